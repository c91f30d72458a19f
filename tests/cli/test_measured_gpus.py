#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Plans with measured GPU times: data/profiles."""
import json

from harness import ROOT, case, check, finish, json_case, read, run, test, write

H200 = ROOT / "data/profiles/h200.json"


def job(model, tensor, sequence=4096, micro_batch=1, pipeline=4):
    return write(f"{model}.yaml", f"""\
        longhaul: job/1
        model: {model}
        profile: {H200}
        training: {{global_batch: 64, sequence: {sequence}}}
        cluster:
          gpu: h200
          gpus_per_node: 8
          node_link: {{gbps: 3600, latency_us: 3}}
          fabric: {{gbps: 400, latency_us: 8}}
          datacenters: [{{name: west, nodes: 4}}, {{name: east, nodes: 4}}]
          links: [{{between: [west, east], latency_ms: 20, gbps: 400}}]
        layout: {{tensor: {tensor}, context: 1, micro_batch: {micro_batch},
          pipeline: {pipeline}, chunks_per_device: 1}}
        """)


def entry(kind, model, **conditions):
    found = [e for e in json.loads(H200.read_text())["entries"]
             if e["kind"] == kind and e["model"] == model and
             all(e.get(key, 1) == value for key, value in conditions.items())]
    check(len(found) == 1, f"{kind} of {model}, {conditions}: {len(found)}")
    return found[0]


@test
def plans_use_measured_times():
    for model, tensor, layers in (("llama3-8b", 1, 32), ("llama3-70b", 4, 80),
                                  ("qwen2.5-72b", 8, 80)):
        plan = json_case(model, ["plan", job(model, tensor), "--effort", "100",
                                 "-o", "plan.json"])
        check(plan["cost_source"] == "profile", f"{model}: {plan['cost_source']}")
        layer = entry("layer", model, tensor=tensor, sequence=4096,
                      micro_batch=1)
        took = sum(layer[key] for key in ("F_us", "D_us", "W_us")) * 1e-6
        # All layers of all microbatches, on four ranks, without a bubble.
        check(plan["iteration_s"] > took * layers / 4 * plan["microbatches"],
              f"{model}: {plan['iteration_s']} s, a layer {took} s")


@test
def other_models_are_refused():
    case("mine", ["plan", job("qwen2.5-32b", 4)], code=1,
         err=r"profile: has entries for llama3-8b, llama3-70b, qwen2\.5-72b, "
             r"llama3-405b, mixtral-8x7b, deepseek-v3, but the job's model is "
             r"qwen2\.5-32b")


LITTLE = ["--effort", "300", "-o", "plan.json"]


def words(text):
    return " ".join(text.split())


def open_job(layout, sequence=32768):
    text = read(job("llama3-8b", 1, sequence))
    return write("open.yaml", text[:text.index("layout:")] + layout)


# The formulas predict less time than was measured at context 1, so an
# unrestricted search takes another layout.
@test
def a_plan_with_unmeasured_layouts_reports_the_time_of_measured_ones():
    open_job("")
    said = run("plan", "open.yaml", *LITTLE, "--html", "plan.html")
    check(said.returncode == 0, said.stderr)
    plan = json.loads(read("plan.json"))
    check(plan["cost_source"] == "model" and plan["layout"]["context"] > 1,
          f"{plan['cost_source']} {plan['layout']}")
    other = plan["unmeasured"]["fastest"]
    check(plan["unmeasured"]["entries"] > 0 and
          other["layout"]["context"] == 1 and
          other["iteration_s"] > plan["iteration_s"], f"{plan['unmeasured']}")
    line = ("has none of this plan's passes; the fastest layout with measured "
            "passes, by a short search, takes "
            f"{other['iteration_s']:.3f} s (+")
    check("(modelled)" in said.stdout and
          f"profile {line}" in words(said.stdout), said.stdout)
    page = read("plan.html").replace("&#39;", "'")
    check(line in page and "modelled; pipeline" in page, "the page does not")
    done = run("report", "plan.json", "-o", "again.html")
    check(done.returncode == 0 and
          line in read("again.html").replace("&#39;", "'"), done.stderr)
    # With the degrees of the measurement, the measurement is used.
    given = ", ".join(f"{key}: {other['layout'][key]}"
                      for key in ("tensor", "context", "micro_batch"))
    open_job(f"layout: {{{given}}}\n")
    said = run("plan", "open.yaml", *LITTLE, "--html", "plan.html")
    plan = json.loads(read("plan.json"))
    check(plan["cost_source"] in ("profile", "mixed") and
          "unmeasured" not in plan and "\nprofile " not in said.stdout,
          said.stdout)
    # The page's tile has the text of the screen.
    source = {"profile": "from measured passes",
              "mixed": "from measured and modelled passes"}
    shown = source[plan["cost_source"]]
    check(f"({shown})" in words(said.stdout) and
          f"{shown}; pipeline" in read("plan.html"), said.stdout)


@test
def a_profile_without_passes_of_the_job_is_reported():
    open_job("layout: {pipeline: 2, tensor: 2}\n", sequence=30000)
    case("another sequence", ["plan", "open.yaml", *LITTLE],
         out=r"^profile +no passes of this job's model and GPUs with sequence "
             r"30000: the\s+profile has\s+no effect here$")
    check(json.loads(read("plan.json"))["unmeasured"] == {"entries": 0},
          "entries are counted")
    open_job("layout: {context: 4, pipeline: 2, tensor: 2}\n")
    case("another context", ["plan", "open.yaml", *LITTLE],
         out=r"^profile +has none of this plan's passes; a short search found "
             r"no\s+plan with\s+measured layouts$")


# One site's GPU has an efficiency, the other's does not.
@test
def without_a_profile_nothing_is_called_measured():
    write("parts.yaml", """longhaul: job/1
model: llama3-8b
training: {global_batch: 8, sequence: 2048}
cluster:
  gpu: h100-sxm
  gpus_per_node: 4
  node_link: {gbps: 2400, latency_us: 3}
  fabric: {gbps: 200, latency_us: 5}
  datacenters:
    - {name: a, nodes: 1, gpu: {preset: a100-80g, efficiency: 0.5}}
    - {name: b, nodes: 1}
  links: [{between: [a, b], latency_ms: 1, gbps: 100}]
layout: {tensor: 4, context: 1, micro_batch: 1, pipeline: 2, data: 1,
         chunks_per_device: 1, schedule: 1f1b}
""")
    said = run("plan", "parts.yaml", *LITTLE, "--html", "plan.html")
    check(said.returncode == 0, said.stderr)
    check(json.loads(read("plan.json"))["cost_source"] == "part-efficiency" and
          "(modelled, in part with the job's efficiency)" in words(said.stdout)
          and "measured" not in said.stdout, said.stdout + said.stderr)
    check("modelled, in part with the job's efficiency; pipeline" in
          read("plan.html").replace("&#39;", "'"), "the page says otherwise")
    done = run("export", "plan.json", "--to", "pytorch", "--bundle", "bundle")
    check(done.returncode == 0, done.stderr)
    check("modelled, in part with the job's efficiency; none are measured" in
          words(read("bundle/README.md")), read("bundle/README.md"))


@test
def measured_layouts_are_feasible():
    entries = json.loads(H200.read_text())["entries"]
    for e in entries:
        check(e["F_us"] > 0 and e["W_us"] > 0 and
              (e["D_us"] > 0) == (e["kind"] != "embedding") and
              (e["activation_bytes"] > 0) == (e["kind"] != "embedding"),
              f"{e}")
    for e in entries:  # twice the microbatch keeps twice the bytes
        for other in entries if e["kind"] == "layer" else ():
            if all(e.get(key, 1) * times == other.get(key, 1)
                   for key, times in (("kind", 1), ("model", 1), ("tensor", 1),
                                      ("sequence", 1), ("micro_batch", 2))):
                ratio = other["activation_bytes"] / e["activation_bytes"]
                check(abs(ratio - 2) < 0.01, f"{ratio}: {e}")


finish()
