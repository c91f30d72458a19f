#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Other programs read and write the checkpoints.

    test_checkpoint_files.py PROGRAM ROOT

safetensors reads both files, with the names, shapes and types of
docs/formats/checkpoint.md. transformers loads an unchanged checkpoint as the model of
its family, with our validation loss within 1e-5 relative. Training starts from a
model that transformers saved. `longhaul` reads the config.json that it wrote as the
model that it trained. Needs torch, safetensors and transformers ($LONGHAUL_TORCH names
a Python that has them).
"""
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import warnings

from skip_without import SKIP, skip_without

PROGRAM, ROOT = os.path.abspath(sys.argv[1]), sys.argv[2]
try:
    warnings.filterwarnings("ignore")
    os.environ["HF_HUB_OFFLINE"] = "1"
    import torch
    from safetensors import safe_open
    from transformers import AutoModelForCausalLM
    from transformers.utils import logging
except ImportError as error:
    skip_without("torch, safetensors or transformers", error, "LONGHAUL_TORCH",
            "other programs read our checkpoints")

# GPT-2's code queries CUDA's libraries; a torch without them
# (tools/torch-without-cuda.py) would exit.
torch.cuda.is_current_stream_capturing = lambda: False
logging.set_verbosity_error()
logging.disable_progress_bar()
STEPS, SEQUENCE, BATCH = 6, 32, 8
count = {True: 0, False: 0}


def check(ok, what):
    count[bool(ok)] += 1
    if not ok:
        print("FAILED:", what, file=sys.stderr)


def longhaul(folder, *args):
    done = subprocess.run([PROGRAM, *args], cwd=folder, text=True,
                          capture_output=True)
    if "OpenBLAS" in done.stderr:
        print("SKIPPED:", done.stderr, file=sys.stderr)
        sys.exit(SKIP)
    if done.returncode:
        sys.exit(f"{args}: {done.stderr}")
    return done.stdout


def train(folder, steps, *more):
    return json.loads(longhaul(
        folder, "train", "plan.json", "--device", "cpu", "--data", "text",
        "--rate", "1e-2", "--steps", str(steps), "--validation", "0.25",
        "--json", *more))["iterations"]


def plan(folder, model, replicas, experts):
    """Plans a small job: grouped heads whose width is not hidden / heads."""
    job = pathlib.Path(ROOT, "examples/tiny-llama-cpu.yaml").read_text()
    lines = job.splitlines(keepends=True)
    at, = [i for i, line in enumerate(lines) if line.startswith("model:")]
    lines[at] = f"model: {json.dumps(model)}\n"
    job = "".join(lines)
    for old, new in [
            ("sequence: 128", f"sequence: {SEQUENCE}"),
            ("pipeline: 4, data: 1", f"pipeline: {4 // replicas}, "
                                     f"data: {replicas}"),
            ("expert: 1", experts)]:
        check(old in job, f"{old} is in the example")
        job = job.replace(old, new)
    pathlib.Path(folder, "job.yaml").write_text(job)
    longhaul(folder, "plan", "job.yaml", "-o", "plan.json")
    pathlib.Path(folder, "text").write_bytes(
        pathlib.Path(ROOT, "LICENSE").read_bytes())


def in_layers(prefix, rows, front, back):
    """Returns names and shapes of a model with four layers; `rows` of all, or
    of each."""
    shapes = dict(front)
    for layer in range(4):
        here = rows[layer] if isinstance(rows, dict) else rows
        shapes |= {f"{prefix}.{layer}.{name}": shape for name, shape in here}
    return shapes | dict(back)


def llama(biases=""):
    """Returns names and shapes by docs/formats/checkpoint.md; `biases`: of q,
    k, v, o and m, the MLP."""
    hidden, ffn, vocab, q, kv = 40, 56, 256, 4 * 12, 2 * 12
    rows = [("input_layernorm", [hidden]), ("self_attn.q_proj", [q, hidden]),
            ("self_attn.k_proj", [kv, hidden]),
            ("self_attn.v_proj", [kv, hidden]),
            ("self_attn.o_proj", [hidden, q]),
            ("post_attention_layernorm", [hidden]),
            ("mlp.gate_proj", [ffn, hidden]), ("mlp.up_proj", [ffn, hidden]),
            ("mlp.down_proj", [hidden, ffn])]
    with_bias = [(f"{name}.bias", shape[:1]) for name, shape in rows
                 if name.endswith("_proj") and
                 ("m" if "mlp" in name else name[-6]) in biases]
    return in_layers(
        "model.layers", [(f"{name}.weight", s) for name, s in rows] + with_bias,
        [("model.embed_tokens.weight", [vocab, hidden])],
        [("model.norm.weight", [hidden]), ("lm_head.weight", [vocab, hidden])])


def gpt2():
    hidden, ffn, vocab = 48, 56, 256
    rows = [(f"{name}.{kind}", shape if kind == "weight" else shape[-1:])
            for name, shape in [
                ("ln_1", [hidden]), ("attn.c_attn", [hidden, 3 * hidden]),
                ("attn.c_proj", [hidden, hidden]), ("ln_2", [hidden]),
                ("mlp.c_fc", [hidden, ffn]), ("mlp.c_proj", [ffn, hidden])]
            for kind in ("weight", "bias")]
    return in_layers(
        "transformer.h", rows,
        [("transformer.wte.weight", [vocab, hidden]),
         ("transformer.wpe.weight", [64, hidden])],
        [("transformer.ln_f.weight", [hidden]),
         ("transformer.ln_f.bias", [hidden]),
         ("lm_head.weight", [vocab, hidden])])


def mixtral():
    hidden, ffn, vocab, q, kv = 40, 28, 256, 4 * 12, 2 * 12
    rows = [("input_layernorm", [hidden]), ("self_attn.q_proj", [q, hidden]),
            ("self_attn.k_proj", [kv, hidden]),
            ("self_attn.v_proj", [kv, hidden]),
            ("self_attn.o_proj", [hidden, q]),
            ("post_attention_layernorm", [hidden]),
            ("block_sparse_moe.gate", [5, hidden])]
    for expert in range(5):
        at = f"block_sparse_moe.experts.{expert}"
        rows += [(f"{at}.w1", [ffn, hidden]), (f"{at}.w2", [hidden, ffn]),
                 (f"{at}.w3", [ffn, hidden])]
    return in_layers(
        "model.layers", [(f"{name}.weight", s) for name, s in rows],
        [("model.embed_tokens.weight", [vocab, hidden])],
        [("model.norm.weight", [hidden]), ("lm_head.weight", [vocab, hidden])])


def qwen3():
    shapes = llama()
    for layer in range(4):
        for norm in ("q_norm", "k_norm"):
            shapes[f"model.layers.{layer}.self_attn.{norm}.weight"] = [12]
    return shapes


def falcon():
    hidden, ffn, vocab = 48, 56, 256
    rows = [("input_layernorm.weight", [hidden]),
            ("input_layernorm.bias", [hidden]),
            ("self_attention.query_key_value.weight", [hidden + 24, hidden]),
            ("self_attention.dense.weight", [hidden, hidden]),
            ("mlp.dense_h_to_4h.weight", [ffn, hidden]),
            ("mlp.dense_4h_to_h.weight", [hidden, ffn])]
    return in_layers(
        "transformer.h", rows,
        [("transformer.word_embeddings.weight", [vocab, hidden])],
        [("transformer.ln_f.weight", [hidden]),
         ("transformer.ln_f.bias", [hidden]),
         ("lm_head.weight", [vocab, hidden])])


def deepseek(model):
    hidden, ffn, vocab, heads = 40, 56, 256, 4
    q = heads * (model["qk_nope_head_dim"] + model["qk_rope_head_dim"])
    made = heads * (model["qk_nope_head_dim"] + model["v_head_dim"])
    kv, rank = model["kv_lora_rank"], model.get("q_lora_rank", 0)
    rows = [("input_layernorm", [hidden]),
            ("self_attn.kv_a_proj_with_mqa",
             [kv + model["qk_rope_head_dim"], hidden]),
            ("self_attn.kv_a_layernorm", [kv]),
            ("self_attn.kv_b_proj", [made, kv]),
            ("self_attn.o_proj", [hidden, heads * model["v_head_dim"]]),
            ("post_attention_layernorm", [hidden]),
            ("mlp.gate_proj", [ffn, hidden]), ("mlp.up_proj", [ffn, hidden]),
            ("mlp.down_proj", [hidden, ffn])]
    rows += [("self_attn.q_a_proj", [rank, hidden]),
             ("self_attn.q_a_layernorm", [rank]),
             ("self_attn.q_b_proj", [q, rank])] if rank else [
                 ("self_attn.q_proj", [q, hidden])]
    return in_layers(
        "model.layers", [(f"{name}.weight", s) for name, s in rows],
        [("model.embed_tokens.weight", [vocab, hidden])],
        [("model.norm.weight", [hidden]), ("lm_head.weight", [vocab, hidden])])


def with_experts(dense, experts, more, attention):
    """Adds experts to a dense model's names and shapes. Layers of `dense` have
    its MLPs, the others `experts` and `more`."""
    hidden, ffn, vocab = 40, 28, 256
    rows = {}
    for layer in range(4):
        at = f"model.layers.{layer}."
        rows[layer] = [(key.removeprefix(at), shape)
                       for key, shape in attention.items()
                       if key.startswith(at) and
                       (layer in dense or "mlp" not in key)]
        if layer in dense:
            continue
        rows[layer] += [("mlp.gate.weight", [experts, hidden]), *more]
        for expert in range(experts):
            rows[layer] += [
                (f"mlp.experts.{expert}.{what}_proj.weight",
                 [hidden, ffn] if what == "down" else [ffn, hidden])
                for what in ("gate", "up", "down")]
    return in_layers(
        "model.layers", rows, [("model.embed_tokens.weight", [vocab, hidden])],
        [("model.norm.weight", [hidden]), ("lm_head.weight", [vocab, hidden])])


def shared(name, ffn):
    return [(f"mlp.{name}.{what}_proj.weight",
             [40, ffn] if what == "down" else [ffn, 40])
            for what in ("gate", "up", "down")]


def read_file(name, path, shapes):
    """Reads all tensors with safetensors."""
    with safe_open(path, framework="pt") as file:
        check(file.metadata() == {"format": "pt"}, f"{name}: metadata")
        check(set(file.keys()) == set(shapes),
              f"{name}: {set(file.keys()) ^ set(shapes)}")
        tensors = {key: file.get_tensor(key) for key in file.keys()}
    for key, tensor in tensors.items():
        check(list(tensor.shape) == shapes.get(key) and
              tensor.dtype == torch.float32 and
              bool(torch.isfinite(tensor).all()),
              f"{name}: {key} is {tensor.dtype} {list(tensor.shape)}")
    return tensors


def safetensors(name, folder, shapes):
    weights = read_file(name, folder / "model.safetensors", shapes)
    moments = read_file(name, folder / "optimizer.safetensors", {
        key + suffix: shape for key, shape in shapes.items()
        for suffix in (".exp_avg", ".exp_avg_sq")})
    check(all(bool((m >= 0).all()) and bool((m > 0).any())
              for key, m in moments.items()
              if key.endswith("_sq") and "score_correction" not in key),
          f"{name}: means of squares")
    return weights


def their_loss(model):
    """Returns transformers' loss over the first windows of the last quarter of
    the text, like our validation."""
    text = pathlib.Path(ROOT, "LICENSE").read_bytes()
    first = len(text) - int(len(text) * 0.25)
    rows = [list(text[first + i * SEQUENCE:][:SEQUENCE + 1])
            for i in range(BATCH)]
    tokens = torch.tensor(rows)
    with torch.no_grad():
        logits = model(tokens[:, :-1]).logits.double()
    return torch.nn.functional.cross_entropy(
        logits.reshape(-1, logits.shape[-1]), tokens[:, 1:].reshape(-1)).item()


def transformers(name, folder, weights, loss):
    model, found = AutoModelForCausalLM.from_pretrained(
        folder, output_loading_info=True, dtype=torch.float32)
    wrong = {key: value for key, value in found.items() if value}
    check(not wrong, f"{name}: {wrong}")
    theirs = dict(model.named_parameters())
    # It stores the experts of a layer in one tensor; the loss tests them.
    if "Experts" not in name:
        check(set(theirs) == set(weights), f"{name}: parameters of transformers")
        check(all(torch.equal(theirs[key], weights[key]) for key in weights),
              f"{name}: values in transformers")
    got = their_loss(model)
    check(abs(got - loss) <= 1e-5 * loss,
          f"{name}: transformers' loss is {got}, ours {loss}")
    print(f"{name}: transformers' loss is {got:.7f}, ours {loss:.7f}")
    return model


def back(name, folder, model):
    """Trains from the model that transformers has saved; transformers reads the
    result."""
    ours = train(folder, 1, "--weights", f"run/step-{STEPS:08}")
    model.save_pretrained(folder / "theirs")
    theirs = train(folder, 1, "--weights", "theirs")
    check(ours[0]["loss"] == theirs[0]["loss"],
          f"{name}: {ours[0]} from ours, {theirs[0]} from transformers'")
    model.to(torch.bfloat16).save_pretrained(folder / "halves",
                                             max_shard_size="20KB")
    check(len(list((folder / "halves").glob("*.safetensors"))) > 2 and
          (folder / "halves/model.safetensors.index.json").exists(),
          f"{name}: several files")
    halves = train(folder, 1, "--weights", "halves")
    check(0 < abs(halves[0]["loss"] - ours[0]["loss"]) < 0.01,
          f"{name}: {halves[0]} from bfloat16, {ours[0]} from ours")


def config(name, folder, model):
    """Checks that our reader of config.json finds the trained model."""
    job = json.loads((folder / "plan.json").read_text())["job"]
    job["model"] = str(folder / "run" / f"step-{STEPS:08}" / "config.json")
    (folder / "again.json").write_text(json.dumps(job))
    longhaul(folder, "plan", "again.json", "-o", "again-plan.json")
    again = json.loads((folder / "again-plan.json").read_text())["job"]["model"]
    want = model if "positions" in model else {"rope_theta": 10000} | model
    if not model.get("gated", True):  # the device's GELU, which the file names
        want = {"activation": "gelu_tanh"} | want
    if "kv_lora_rank" in model:  # this class has another default
        want = {"norm_epsilon": 1e-5} | want
    loss = job["training"].get("balance_loss", 0.01)
    check(again.pop("router_aux_loss_coef", loss) == loss, f"{name}: {again}")
    check({key: value for key, value in again.items() if key != "name"} ==
          {key: value for key, value in want.items() if value or
           key == "gated"}, f"{name}: config.json says {again}, not {want}")


def run(name, model, shapes, replicas, experts="expert: 1"):
    model = {"layers": 4, "vocab": 256, "ffn": 56, "heads": 4} | model
    if model["tied_embeddings"]:
        shapes.pop("lm_head.weight")
    with tempfile.TemporaryDirectory() as at:
        plan(at, model, replicas, experts)
        loss = train(at, STEPS, "--checkpoint", "run")[-1]["validation_loss"]
        folder = pathlib.Path(at, "run", f"step-{STEPS:08}")
        weights = safetensors(name, folder, shapes)
        back(name, pathlib.Path(at),
             transformers(name, folder, weights, loss))
        config(name, pathlib.Path(at), model)


LLAMA = {"hidden": 40, "kv_heads": 2, "head_dim": 12}
GPT2 = {"hidden": 48, "kv_heads": 4, "head_dim": 12, "gated": False,
        "norm": "layer", "positions": 64, "qkv_bias": True,
        "output_bias": True, "mlp_bias": True}
run("Llama, tied", LLAMA | {"tied_embeddings": True}, llama(), 1)
run("Llama, another epsilon", LLAMA | {"tied_embeddings": True,
                                       "norm_epsilon": 1e-2}, llama(), 1)
run("Llama, 2 replicas", LLAMA | {"tied_embeddings": False}, llama(), 2)
run("Llama with biases", LLAMA | {"tied_embeddings": True, "qkv_bias": True,
                                  "output_bias": True, "mlp_bias": True},
    llama("qkvom"), 1)
run("Qwen2", LLAMA | {"tied_embeddings": False, "qkv_bias": True},
    llama("qkv"), 1)
run("Qwen3", LLAMA | {"tied_embeddings": False, "qk_norm": True,
                      "norm_epsilon": 1e-6}, qwen3(), 1)
FALCON = {"hidden": 48, "kv_heads": 1, "head_dim": 12, "gated": False,
          "norm": "layer", "parallel_block": True}
run("Falcon, tied", FALCON | {"tied_embeddings": True, "norm_epsilon": 1e-2},
    falcon(), 1)
run("Falcon, 2 replicas", FALCON | {"tied_embeddings": False}, falcon(), 2)
DEEPSEEK = {"hidden": 40, "kv_lora_rank": 16, "qk_nope_head_dim": 10,
            "qk_rope_head_dim": 6, "v_head_dim": 12, "tied_embeddings": False}
for rank in (20, 0):
    model = DEEPSEEK | ({"q_lora_rank": rank} if rank else {})
    run(f"DeepSeek, latent attention, queries' rank {rank}", model,
        deepseek(model), 1)
run("GPT-2, tied", GPT2 | {"tied_embeddings": True, "norm_epsilon": 1e-2},
    gpt2(), 1)
run("GPT-2, 2 replicas", GPT2 | {"tied_embeddings": False}, gpt2(), 2)
EXPERTS = LLAMA | {"experts": 5, "experts_per_token": 2, "expert_ffn": 28,
                   "tied_embeddings": False}
run("Experts, Mixtral", EXPERTS | {"ffn": 0}, mixtral(), 2)
run("Experts, Qwen2-MoE", EXPERTS | {
    "qkv_bias": True, "raw_shares": True, "shared_expert_ffn": 20,
    "shared_expert_gate": True, "moe_interval": 2, "moe_phase": 1},
    with_experts({0, 2}, 5, shared("shared_expert", 20) +
                 [("mlp.shared_expert_gate.weight", [1, 40])], llama("qkv")), 2)
SIGMOID = {"experts": 8, "experts_per_token": 2, "expert_ffn": 28,
           "router": "sigmoid", "routed_scale": 2.5, "expert_groups": 4,
           "groups_per_token": 2, "shared_expert_ffn": 56, "dense_layers": 1}
MORE = shared("shared_experts", 56) + [("mlp.gate.e_score_correction_bias",
                                        [8])]
run("Experts, GLM-4.5", EXPERTS | SIGMOID, with_experts({0}, 8, MORE, llama()),
    1)
UNSCALED = {key: SIGMOID[key] for key in SIGMOID if key != "routed_scale"}
run("Experts, GLM-4.5 with norms", EXPERTS | UNSCALED | {
    "qk_norm": True, "expert_groups": 0, "groups_per_token": 0},
    with_experts({0}, 8, MORE, qwen3()), 1)
run("Experts, DeepSeek-V3, parts of some on each rank",
    DEEPSEEK | SIGMOID | {"q_lora_rank": 20},
    with_experts({0}, 8, MORE, deepseek(DEEPSEEK | {"q_lora_rank": 20})), 4,
    "expert: 2, expert_tensor: 2")
run("Experts, Qwen3-MoE", EXPERTS | {"qk_norm": True, "dense_list": [1]},
    with_experts({1}, 5, [], qwen3()), 1)
print(f"{count[True]} passed, {count[False]} failed")
sys.exit(count[False] > 0)
