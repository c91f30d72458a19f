#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Profiles that PyTorch measures: of layers made from a job's shape, of any
module, of Hugging Face's and torchtitan's models; by call and by program.

Needs torch ($LONGHAUL_TORCH names a Python that has it) and longhaul installed
by pip, for the same Python or for that which $LONGHAUL_PYTHON names."""
import json
import os
import pathlib
import sys
import time
import weakref

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "cli"), str(HERE.parent / "peers")]
import stand_ins  # noqa: E402
from import_torch import longhaul, torch  # noqa: E402

import harness  # noqa: E402
from harness import WORK, case, check, long_test, test, write  # noqa: E402
from longhaul.torch import profile  # noqa: E402
from torch import nn  # noqa: E402

torch.set_num_threads(1)
HIDDEN, VOCAB, SEQUENCE = 64, 128, 32
JOB = f"""\
longhaul: job/1
model: {{name: small, layers: 4, hidden: {HIDDEN}, ffn: 96, heads: 4,
  kv_heads: 2, head_dim: 16, vocab: {VOCAB}, gated: true}}
training: {{global_batch: 8, sequence: {SEQUENCE}}}
cluster:
  gpu: h100-sxm
  gpus_per_node: 2
  node_link: {{gbps: 3600, latency_us: 3}}
  fabric: {{gbps: 400, latency_us: 8}}
  datacenters: [{{name: west, nodes: 2}}, {{name: east, nodes: 2}}]
  links: [{{between: [west, east], latency_ms: 20, gbps: 400}}]
layout: {{tensor: 1, context: 1, micro_batch: 1, pipeline: 4}}
"""
F_MS, D_MS = 3, 7
CONFIG = {"hidden_size": HIDDEN, "intermediate_size": 96, "vocab_size": VOCAB,
          "num_hidden_layers": 3, "num_attention_heads": 4,
          "num_key_value_heads": 4, "max_position_embeddings": 64}


class Slow(torch.autograd.Function):
    """Takes a known minimum time, forward and for the input's gradient."""

    @staticmethod
    def forward(ctx, x):
        time.sleep(F_MS * 1e-3)
        return x.clone()

    @staticmethod
    def backward(ctx, gradient):
        time.sleep(D_MS * 1e-3)
        return gradient


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(HIDDEN, HIDDEN, bias=False)

    def forward(self, hidden, scale):
        return Slow.apply(self.linear(hidden)) * scale


class Model(nn.Module):
    """Layers in a list inside a module, called with a keyword argument."""

    def __init__(self, vocab=VOCAB, layers=4):
        super().__init__()
        self.body = nn.Module()
        self.body.table = nn.Embedding(vocab, HIDDEN)
        self.body.layers = nn.ModuleList(Layer() for _ in range(layers))
        self.norm = nn.RMSNorm(HIDDEN)
        self.head = nn.Linear(HIDDEN, vocab, bias=False)

    def forward(self, tokens):
        x = self.body.table(tokens)
        for layer in self.body.layers:
            x = layer(x, scale=1.0)
        return self.head(self.norm(x))


def entries(made):
    return {(e["kind"], e.get("tensor", 1), e.get("micro_batch", 1)): e
            for e in made["entries"]}


def times(entry):
    return [entry[key] for key in ("F_us", "D_us", "W_us")]


@test
def layers_of_a_jobs_shape_are_shares_of_a_layer():
    made = profile(JOB, tensor=[1, 2], micro_batch=[1, 2], repeats=1)
    got = entries(made)
    check(set(got) == {(kind, t, b) for kind in ("layer", "embedding", "head")
                       for t in (1, 2) for b in (1, 2)}, f"{sorted(got)}")
    check(all(e["F_us"] > 0 and not e.get("communication")
              for e in got.values()), f"{got}")
    kept = {key[1:]: e["activation_bytes"] for key, e in got.items()
            if key[0] == "layer"}
    # Bytes saved by autograd are linear in tokens; two shares have half each.
    check(kept[1, 2] == 2 * kept[1, 1] == 2 * 2 * kept[2, 1], f"{kept}")
    # Inputs of both norms, of attention and of the MLP, q, k, v and more.
    check(kept[1, 1] > 10 * SEQUENCE * HIDDEN * 2, f"{kept}")
    check(made["model"] == "small" and "PyTorch" in made["source"], f"{made}")


@test
def biases_of_queries_keys_and_values_are_part_of_a_layer():
    biased = JOB.replace("gated: true", "gated: true, qkv_bias: true")
    got = entries(profile(biased, tensor=[2], repeats=1))
    check(min(times(got["layer", 2, 1])[:2]) > 0, f"{got}")
    refused("has biases behind attention or in the MLP",
            JOB.replace("gated: true", "gated: true, mlp_bias: true"))


@test
def the_epsilon_of_a_config_is_computed_and_unsupported_keys_are_reported():
    from longhaul._inputs import job_of
    from longhaul.torch import _layers

    (WORK / "config.json").write_text(json.dumps({
        **CONFIG, "model_type": "llama", "rms_norm_eps": 0.5,
        "rope_scaling": {"rope_type": "linear", "factor": 2.0}}))
    shape = JOB[JOB.index("model:"):JOB.index("training")]
    job = JOB.replace(shape, f"model: {WORK / 'config.json'}\n")
    parsed = job_of(job)  # name of the model
    share = _layers.Share(parsed.model, 1, 1, SEQUENCE, torch.device("cpu"),
                          torch.float32)
    x = torch.randn(3, HIDDEN)
    want = x / (x.square().mean(-1, keepdim=True) + 0.5).sqrt()
    got = share._norm(x, torch.ones(HIDDEN))
    check(torch.allclose(got, want), f"{(got - want).abs().max()} away")
    said = profile(job, repeats=1)["source"]
    check(" without rope_scaling, PyTorch" in said, said)
    check(" without " not in profile(JOB, repeats=1)["source"], "all is there")
    check(" without " not in profile(job, modules=Model(), repeats=1)["source"],
          "what modules are without nobody knows")


@test
def plans_use_measured_times():
    made = profile(JOB, repeats=1)
    layer = entries(made)["layer", 1, 1]
    plan = longhaul.plan(JOB + "profile: " + json.dumps(made) + "\n",
                         effort=100, quick=True)
    check(plan.to_dict()["cost_source"] == "profile", f"{plan}")
    check(plan.iteration_s * 1e6 > plan.microbatches * sum(times(layer)),
          f"{plan.iteration_s} s, a layer {layer}")


@test
def measurements_release_their_memory():
    from longhaul.torch._pieces import Piece, kept_bytes

    x = torch.ones(1000, requires_grad=True)
    made = []

    def run_once():
        y = x.exp()  # its backward needs y itself
        made.append(weakref.ref(y))
        return [y * 2]

    kept = kept_bytes(Piece(run_once, [x], []))
    check(kept == 4000 and made[0]() is None, f"{kept} bytes: {made}")


@test
def modules_run_as_they_are_called():
    got = entries(profile(JOB, modules=Model(), repeats=2))
    layer = got["layer", 1, 1]
    f, d, _ = times(layer)
    check(f >= F_MS * 1e3 and d >= D_MS * 1e3, f"{layer}")
    # The linear map saves its input, and nothing else is saved.
    check(layer["activation_bytes"] == SEQUENCE * HIDDEN * 2, f"{layer}")
    check(got["embedding", 1, 1]["D_us"] == 0 and
          got["head", 1, 1]["activation_bytes"] >=
          SEQUENCE * (VOCAB * 4 + HIDDEN * 2), f"{got}")


@test
def hugging_face_models_have_an_entry_of_each_kind():
    try:
        import transformers
    except ImportError as error:
        print(f"SKIPPED: no transformers ({error}); that its models are "
              "measured is not tested", file=sys.stderr)
        return
    # A torch changed by tools/torch-without-cuda.py has no driver to query.
    torch.cuda.is_current_stream_capturing = lambda: False
    llama = transformers.LlamaConfig(**CONFIG)
    deepseek = transformers.DeepseekV3Config(
        **CONFIG, n_routed_experts=8, num_experts_per_tok=2, n_group=2,
        topk_group=1, moe_intermediate_size=32, first_k_dense_replace=1,
        q_lora_rank=16, kv_lora_rank=16, qk_rope_head_dim=8,
        qk_nope_head_dim=8, v_head_dim=16)
    for config, kinds in ((llama, {"layer", "head"}),
                          (deepseek, {"layer", "moe_layer"})):
        name = type(config).__name__
        config.architectures = [name.replace("Config", "ForCausalLM")]
        config.save_pretrained(WORK / name)
        job = JOB.replace(JOB[JOB.index("model:"):JOB.index("training")],
                          f"model: {WORK / name / 'config.json'}\n")
        made = profile(job, modules=str(WORK / name), repeats=1)
        got = {e["kind"] for e in made["entries"]}
        check(got == kinds | {"embedding"}, f"{name}: {got}")


@test
def heads_with_prediction_modules_are_omitted():
    job = JOB.replace("gated: true", "gated: true, mtp_layers: 1")
    got = {e["kind"] for e in profile(job, modules=Model(), repeats=1)[
        "entries"]}
    check(got == {"layer", "embedding"}, f"{got}")
    refused("multi-token prediction", job)


@test
def torchtitan_models_are_measured():
    stand_ins.put_in()
    try:
        import torchtitan.models.llama3  # noqa: F401
    except ImportError as error:
        print(f"SKIPPED: no torchtitan ({error}); that its models are measured "
              "is not tested", file=sys.stderr)
        return
    shape = ("model: {layers: 6, hidden: 256, ffn: 768, heads: 16, "
             "kv_heads: 16, head_dim: 16, vocab: 2048, gated: true}\n")
    job = JOB.replace(JOB[JOB.index("model:"):JOB.index("training")], shape)
    got = entries(profile(job, modules="torchtitan:llama3:debugmodel",
                          repeats=1))
    check({key[0] for key in got} == {"layer", "embedding", "head"} and
          min(times(got["layer", 1, 1])[:2]) > 0, f"{got}")


def refused(wanted, job=JOB, **given):
    try:
        profile(job, repeats=1, **given)
    except longhaul.Error as error:
        check(wanted in str(error), f"{str(error)!r} has no {wanted!r}")
        return
    check(False, f"{given}: nothing was raised")


@test
def unmeasurable_models_are_rejected():
    experts = JOB.replace("gated: true", "gated: true, experts: 4, "
                          "experts_per_token: 2, expert_ffn: 32")
    refused("has experts", experts)
    refused("tensor: 3 does not divide small's heads, 4", tensor=[3])
    refused("modules are run whole", modules=Model(), tensor=[2])
    refused("hidden states have 64 features; the job's model has 128",
            JOB.replace(f"hidden: {HIDDEN}", "hidden: 128"), modules=Model())
    refused("the head makes 256 logits", modules=Model(256))
    refused("no nn.ModuleList", modules=nn.Sequential(nn.Linear(2, 2)))
    refused("is neither a folder with a config.json", modules="nowhere")
    refused("must be torchtitan:MODEL:FLAVOR", modules="torchtitan:llama3")
    refused("cannot read", modules=f"{WORK}/none.py:make")
    refused("micro_batch: must be 1 or more", micro_batch=[0])


def program_options():
    """Returns options with which the program measures by this Python, and the
    environment: paths of both packages, without the rest of their environment."""
    import _cffi_backend

    (WORK / "packages").mkdir()
    for path in (pathlib.Path(longhaul.__file__).parent,
                 pathlib.Path(_cffi_backend.__file__)):
        os.symlink(path, WORK / "packages" / path.name)
    write("job.yaml", JOB)
    return (["--torch", "--python", sys.executable, "--repeats", "1"],
            {"PYTHONPATH": str(WORK / "packages"), "OMP_NUM_THREADS": "1"})


@long_test
def the_program_measures_tensor_degrees():
    by_torch, env = program_options()
    case("to a file", ["profile", "job.yaml", *by_torch, "--tensor", "1,2",
                       "-o", "p.json"], out=r"layer +\S+ (us|ms|s) .*written",
         err=None, env=env)
    got = entries(json.loads((WORK / "p.json").read_text()))
    check(("layer", 2, 1) in got and ("layer", 1, 1) in got, f"{sorted(got)}")
    case("refused", ["profile", "job.yaml", *by_torch, "--tensor", "3"], 1,
         err=r"\Alonghaul: tensor: 3 does not divide small's heads",
         env=env)


@test
def the_program_has_this_python_measure():
    by_torch, env = program_options()
    write("model.py", "from torch import nn\n"
          "print('what a model prints is no part of it')\n"
          "class Model(nn.Module):\n"
          "    def __init__(self):\n"
          "        super().__init__()\n"
          f"        self.table = nn.Embedding({VOCAB}, {HIDDEN})\n"
          "        self.layers = nn.ModuleList("
          f"nn.Linear({HIDDEN}, {HIDDEN}) for _ in range(2))\n"
          f"        self.head = nn.Linear({HIDDEN}, {VOCAB})\n"
          "    def forward(self, tokens):\n"
          "        x = self.table(tokens)\n"
          "        for layer in self.layers:\n"
          "            x = layer(x)\n"
          "        return self.head(x)\n")
    case("a file's module", ["profile", "job.yaml", *by_torch, "--modules",
                             "model.py:Model", "--micro-batch", "2", "-o", "p.json"],
         out=r"layer +\S+ (us|ms|s) .*written", err=r"no part of it", env=env)
    made = json.loads((WORK / "p.json").read_text())
    check(set(entries(made)) == {(kind, 1, 2) for kind in
                                 ("layer", "embedding", "head")}, f"{made}")
    case("no Python", ["profile", "job.yaml", "--torch", "--python", "./none"],
         1, err=r"cannot run ./none: No such file or directory; set --python to a Python with longhaul and torch\n\Z")
    case("without longhaul", ["profile", "job.yaml", "--torch", "--python",
                              "/bin/false"], 1,
         err=r"/bin/false failed to measure the layers; set --python to a Python")


if __name__ == "__main__":
    harness.finish()
