#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""All commands give the same time for a layout: seeded random jobs, dense and with
experts, on one to four sites.
"""
import copy
import functools
import json
import random

from harness import (ANY, WORK, case, check, finish, has_few_cases,
                     json_case, read, run, test)

FEW = has_few_cases()
JOBS = range(24 if FEW else 60)


def ns(seconds):
    """Converts to whole nanoseconds; JSON contains all digits."""
    return round(seconds * 1e9)


def sites_of(r):
    gpus = [{"tflops": 200, "memory_gib": 80, "memory_gbps": 2000},
            {"tflops": 400, "memory_gib": 40, "memory_gbps": 3000},
            {"tflops": 120, "memory_gib": 24, "memory_gbps": 900},
            {"tflops": 120, "memory_gib": 5, "memory_gbps": 900}]
    mixed = r.random() < .35
    sites = [{"name": f"s{i}", "nodes": r.randint(1, 3),
              **({"gpu": r.choice(gpus)} if mixed else {})}
             for i in range(r.randint(1, 4))]
    links = [{"between": [a["name"], b["name"]],
              "latency_ms": r.choice([0.5, 5, 20]),
              "gbps": r.choice([10, 100, 800]),
              **({"loss": 1e-5} if r.random() < .2 else {})}
             for i, a in enumerate(sites) for b in sites[i + 1:]]
    return {"gpu": r.choice([*gpus, gpus[-1]]),
            "gpus_per_node": r.choice([2, 4]),
            "node_link": {"gbps": 1000, "latency_us": 3},
            "fabric": {"gbps": r.choice([50, 200]), "latency_us": 8},
            "datacenters": sites, **({"links": links} if links else {})}


def layout_of(r, experts):
    chances = {"tensor": (.5, [1, 2]), "context": (.2, [1, 2]),
               "micro_batch": (.4, [1, 2]), "chunks_per_device": (.3, [1, 2]),
               "outermost": (.2, ["pipeline", "data"]),
               "sharding": (.3, ["full", "hybrid", "hybrid-leaders"]),
               "expert": (.3 if experts else 0, [1, 2]),
               "schedule": (.35, ["1f1b", "greedy", "optimal", "elastic",
                                  "elastic"])}
    return {key: r.choice(values) for key, (chance, values) in chances.items()
            if r.random() < chance}


def random_job(seed):
    r = random.Random(seed)
    experts = r.random() < .45
    model = {"layers": r.choice([3, 4, 6, 8]), "heads": 8,
             "hidden": r.choice([512, 1024, 2048]),
             "vocab": r.choice([4000, 32000]), "ffn": r.choice([1024, 4096])}
    if experts:
        model |= {"experts": r.choice([4, 8]), "experts_per_token": 2,
                  "expert_ffn": r.choice([512, 1024])}
    training = {"global_batch": r.choice([8, 16, 24, 32]),
                "sequence": r.choice([1024, 4096])}
    if r.random() < .7:
        training["zero"] = r.randint(0, 3)
    if r.random() < .6:
        training["recompute"] = r.choice(["none", "selective", "full"])
    if r.random() < .2:
        training["rings"] = "pipelined"
    return {"longhaul": "job/1", "model": model, "training": training,
            "cluster": sites_of(r), "layout": layout_of(r, experts)}


def write_json(name, value):
    (WORK / name).write_text(json.dumps(value))
    return name


def planned(job, name, *more):
    """Returns the plan; None if no layout works, which requires a one-line
    error."""
    done = run("plan", write_json(f"{name}.job", job), "-o", f"{name}.json",
               *more)
    check(done.returncode in (0, 1) and done.stderr.count("\n") <= 1,
          done.stderr)
    return json.loads(read(f"{name}.json")) if done.returncode == 0 else None


@functools.cache
def plan_of(seed, *more):
    return planned(random_job(seed), "plan", *more) and read("plan.json")


def plans():
    """Yields seeds, their jobs and plans; writes plan.json."""
    n = 0
    for seed in JOBS:
        text = plan_of(seed)
        if text:
            n += 1
            (WORK / "plan.json").write_text(text)
            yield seed, random_job(seed), json.loads(text)
    check(n > len(JOBS) // 2, f"{n} of {len(JOBS)} jobs have a plan")


def same_layout(a, b):
    """Tests whether layouts are equal except for the schedule."""
    def all_but(choice):
        return {key: value for key, value in choice["layout"].items()
                if key not in ("schedule", "chunks_per_device")}
    return all_but(a) == all_but(b) and all(
        a.get(key) == b.get(key)
        for key in ("zero", "recompute", "chunk_layers", "elastic"))


def row_of(rows, choice):
    name = "plan" if "elastic" in choice else choice["placement"]
    found = [row for row in rows if row["status"] == "ok" and
             row["method"] == choice["layout"]["schedule"] and
             row["pipeline"] == name]
    return found[0] if found else None


def check_compared(seed, plan):
    rows = json_case(f"compare {seed}", ["compare", "plan.json"],
                     err=ANY)["rows"]
    for choice in [plan, *plan["methods"]]:
        if choice["status"] != "ok" or not same_layout(plan, choice):
            continue
        if choice["layout"]["pipeline"] == 1 and choice["placement"] == "wave":
            continue  # compare has it as a loop placement
        row = row_of(rows, choice)
        name = f"{choice['layout']['schedule']} {choice['placement']}"
        if check(row, f"job {seed}: compare has no {name}"):
            check(ns(row["iteration_s"]) == choice["iteration_ns"],
                  f"job {seed}: {name} takes {row['iteration_s']} s in compare,"
                  f" {choice['iteration_ns']} ns in the plan")
    own = row_of(rows, plan)["pipeline"]
    for row in rows:
        if row["status"] != "ok":
            continue
        # Bounds of the search assume chunks without chunk-wise sharding.
        least = max(0 if row["pipeline"] == "plan" else
                    plan["search"].get("lower_bound_ns", 0),
                    plan["lower_bound_ns"] if row["pipeline"] == own else 0)
        check(ns(row["iteration_s"]) >= least,
              f"job {seed}: {row['method']} {row['pipeline']} takes "
              f"{row['iteration_s']} s; the plan proves that none takes less "
              f"than {least} ns")
    for best in rows:
        if best["status"] != "ok" or best["method"] != "optimal":
            continue
        for row in rows:
            check(row["status"] != "ok" or
                  row["pipeline"] != best["pipeline"] or
                  row["iteration_s"] >= best["iteration_s"],
                  f"job {seed}: optimal {best['pipeline']} is slower than "
                  f"{row['method']}")


@test
def a_plan_is_simulated_and_compared_at_its_own_time():
    for seed, _, plan in plans():
        after = plan["optimizer_ns"] + plan["overhead_ns"]
        check(plan["iteration_ns"] == plan["makespan_ns"] + after, seed)
        least = plan["search"].get("lower_bound_ns", 0)
        check(plan["iteration_ns"] >= least,
              f"job {seed}: its plan takes {plan['iteration_ns']} ns, and no "
              f"layout less than {least}")
        alone = json_case(f"simulate {seed}", ["simulate", "plan.json"],
                          err=ANY)
        check(ns(alone["makespan_s"]) == plan["makespan_ns"] and
              ns(alone["iteration_s"]) == plan["iteration_ns"],
              f"job {seed}: {plan['makespan_ns']} ns, and "
              f"{alone['makespan_s']} s simulated")
        check_compared(seed, plan)


def fixed(job, plan):
    """Returns the job with the complete layout of the plan. A job cannot
    express the sharding and recomputation of an elastic plan's chunks."""
    given = copy.deepcopy(job)
    given["layout"] = dict(plan["layout"])
    if "elastic" not in plan:
        given["training"] |= {key: plan[key] for key in ("zero", "recompute")}
    return given


@test
def a_fixed_layout_is_no_slower_than_its_plan():
    """The partition may differ, and be faster. Searches for optimal schedules
    stop after their budget, so another search may miss a schedule."""
    n_elastic = 0
    for seed, job, plan in plans():
        n_elastic += "elastic" in plan
        # The method is given alone: with ZeRO 2 or 3 a job requests sharding by
        # it.
        groups = plan["layout"]["schedule"] == "elastic" and (
            "elastic" not in plan)
        if groups or plan["layout"]["schedule"] == "optimal":
            continue
        again = planned(fixed(job, plan), "again")
        if check(again, f"job {seed}: its own layout is refused"):
            check(again["iteration_ns"] <= plan["iteration_ns"],
                  f"job {seed}: {plan['iteration_ns']} ns, and given again "
                  f"{again['iteration_ns']}")
    check(n_elastic > 0, "no plan is elastic: less is shown than it says")


# Methods are fastest on a loop here; a search finds a schedule on a wave that
# is 4 % faster.
TWO_WAYS = {
    "longhaul": "job/1",
    "model": {"layers": 4, "hidden": 2048, "heads": 8, "vocab": 32000,
              "ffn": 1024},
    "training": {"global_batch": 24, "sequence": 4096, "rings": "pipelined"},
    "cluster": {"gpu": {"tflops": 400, "memory_gib": 40, "memory_gbps": 3000},
                "gpus_per_node": 2, "node_link": {"gbps": 1000,
                                                  "latency_us": 3},
                "fabric": {"gbps": 50, "latency_us": 8},
                "datacenters": [{"name": "s0", "nodes": 2},
                                {"name": "s1", "nodes": 2}],
                "links": [{"between": ["s0", "s1"], "latency_ms": 5,
                           "gbps": 800}]},
    "layout": {"chunks_per_device": 2, "sharding": "full"}}


@test
def compare_does_not_beat_a_plan_by_another_placement():
    plan = planned(TWO_WAYS, "plan", "--effort", "20000")
    rows = json_case("compare", ["compare", "plan.json"], err=ANY)["rows"]
    check({row["pipeline"] for row in rows} == {"loop", "wave"}, rows)
    check(min(ns(row["iteration_s"]) for row in rows
              if row["status"] == "ok") >= plan["iteration_ns"],
          f"{plan['iteration_ns']} ns, and {rows[0]}")


def layers_of(job, choice):
    """Returns the number of layers of each chunk: as even as possible with the
    larger chunks in the middle, unless the plan has a partition."""
    n = (choice["layout"]["pipeline"] * choice["layout"]["chunks_per_device"])
    each, more = divmod(job["model"]["layers"], n)
    first = (n - more) // 2
    return choice.get("chunk_layers") or [
        each + (first <= chunk < first + more) for chunk in range(n)]


@test
def a_completely_fixed_layout_has_the_same_time():
    """Covers the plan and its alternatives. A job cannot distinguish a loop
    from a wave with two chunks, so its time may be shorter there."""
    n = 0
    for seed, job, plan in plans():
        for choice in [plan, *plan["alternatives"][:1 if FEW else 2]]:
            layout = choice["layout"]
            if choice["status"] != "ok" or layout["schedule"] in (
                    "optimal", "elastic"):
                continue
            given = fixed(job, choice)
            given["layout"]["layers"] = layers_of(job, choice)
            again = planned(given, "again")
            n += 1
            if not check(again, f"job {seed}: {layout} is refused"):
                continue
            less = choice["iteration_ns"] - again["iteration_ns"]
            check(less == 0 or (less > 0 and layout["pipeline"] > 1 and
                                layout["chunks_per_device"] == 2),
                  f"job {seed}: {choice['iteration_ns']} ns, and given again "
                  f"{again['iteration_ns']}: {layout}")
    check(n > 20, f"{n} layouts: less is shown than it says")


def exported(target):
    done = run("export", "plan.json", "--to", target, "--allow-inexact")
    check(done.returncode in (0, 1), done.stderr)
    return done.stdout if done.returncode == 0 else None


@test
def exports_contain_the_time_and_state_of_the_plan():
    """Only plans for a program can be exported to it."""
    states = {1: "--use-distributed-optimizer", 2: " optim_grads\n",
              3: " optim_grads_params\n"}
    shown = set()
    for seed in JOBS[::2]:
        for target in "megatron", "torchtitan":
            text = plan_of(seed, "--for", target)
            if not text:
                continue
            plan = json.loads(text)
            (WORK / "plan.json").write_text(text)
            text = exported(target)
            time = f"{plan['iteration_ns'] / 1e9:.3f} s per iteration"
            check(text and time in text, f"job {seed}: {target} has no {time}")
            if target == "torchtitan" or not text:
                continue
            for stage, option in states.items():
                check((option in text) == (stage == plan["zero"] or
                                           (stage == 1 and plan["zero"] > 1)),
                      f"job {seed}: ZeRO {plan['zero']}, and {text}")
            shown.add(plan["zero"])
    check(shown - {1}, "no plan has ZeRO 2 or 3: nothing is shown")


def network_of(plan):
    """Returns a network that contains only the links of the plan's pipeline.
    Requires a simple pipeline: no messages between sites, or one chunk per
    device over one pair of sites, and replicas within sites: gradients between
    sites are messages, too. Light takes 5000 ns per km, and a bit takes 1
    ns in a slot of 1 Gb/s."""
    pipeline = plan["pipeline"]
    at = {device: site["name"] for site in pipeline["sites"]
          for device in site["devices"]}
    far = [link for link in pipeline.get("links", [])
           if at[link["from"]] != at[link["to"]]]
    pairs = {tuple(sorted((at[link["from"]], at[link["to"]]))) for link in far}
    replicas = {tuple(part["datacenter"] for part in group["pipeline"])
                for group in plan["layout"].get("sites", [])}
    if len(pairs) > 1 or len(replicas) > 1 or (
            far and plan["layout"]["chunks_per_device"] > 1):
        return None
    names = [site["name"] for site in pipeline["sites"]]
    bits, km = 1, 1
    if far:
        bits, km = far[0]["transfer"], far[0]["latency"] // 5000
        pair = pairs.pop()
        names = [*pair, *(name for name in names if name not in pair)]
    nodes = ", ".join(f"{{id: {i}}}" for i in range(len(names) + 1))
    links = ", ".join(f"{{a: {i}, b: {i + 1}, km: {km if i == 0 else 9999}}}"
                      for i in range(len(names)))
    where = ", ".join(f"{name}: {i}" for i, name in enumerate(names))
    return (f"longhaul: optical/1\n"
            f"topology: {{nodes: [{nodes}], links: [{links}]}}\n"
            f"gbps_per_slot: 1\nrequest_slots: 1\niterations: 2\nseeds: [1]\n"
            f"job: {{plan: plan.json, message_bits: {bits}, "
            f"sites: {{{where}}}}}\npolicies: {{ksp-ff: {{}}}}\n")


@test
def an_idle_network_gives_the_time_of_the_plan():
    n = {"elastic": 0, "one site": 0, "two sites": 0}
    for seed, _, plan in plans():
        scenario = network_of(plan)
        if not scenario:
            continue
        (WORK / "optical.yaml").write_text(scenario)
        found = json_case(f"optical {seed}", ["optical", "optical.yaml"],
                          err=ANY)
        times = found["policies"]["ksp-ff"]["seeds"][0]["iteration_ns"]
        check(set(times) == {plan["iteration_ns"]},
              f"job {seed}: {times} ns, in the plan {plan['iteration_ns']}")
        n["elastic" if "elastic" in plan else
          "two sites" if "bits: 1," not in scenario else "one site"] += 1
    check(min(n.values()) > 0, f"{n} of plans: less is shown than it says")


finish()
