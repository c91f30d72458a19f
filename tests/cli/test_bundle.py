#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""export --bundle: starts every rank on its planned host. Runs launch.sh for each
host with a fake torchrun that prints its arguments; derives ranks, hosts and sites
from these. Computes groups from the program's rank order.
"""
import itertools
import json
import os
import random
import re
import stat
import subprocess

import random_jobs
from bridge_recipes import differences
from example_jobs import by_replicas, example_jobs, plan_example
from harness import (ANY, ENVIRONMENT, PROGRAM, ROOT, WORK, case, check, finish,
                     has_few_cases, json_case, run, test, write)
from megatron_rules import complaints

CHEAP = "--no-optimal", "--effort", "50", "-q"
# Maximum number of hosts for which launch.sh runs; for other hosts only
# nodes.txt is read. Sanitizers do not instrument shell scripts.
MOST_HOSTS = 4 if has_few_cases() else 12
JOBS = 3 if has_few_cases() else 12

TORCHRUN = """\
#!/bin/sh
echo "${CUDA_VISIBLE_DEVICES:-all} ${NCCL_IB_QPS_PER_CONNECTION:-1} $*"
case " $* " in *" --node-rank=${TORCHRUN_HANGS:-none} "*) exec sleep 1000 ;; esac
exit ${TORCHRUN_STATUS:-0}
"""


def shim():
    (WORK / "bin").mkdir(exist_ok=True)
    (WORK / "bin/torchrun").write_text(TORCHRUN)
    (WORK / "bin/torchrun").chmod(0o755)


def launch(folder, host, *args, **more):
    """Runs launch.sh on a host; prints the GPUs and arguments of its
    torchruns."""
    done = subprocess.run(
        [WORK / folder / "launch.sh", *args], capture_output=True, text=True,
        check=False, env={**ENVIRONMENT, "LAUNCH_HOST": host, "PROGRAM": "x.py",
                          "PATH": f"{WORK}/bin:{os.environ['PATH']}", **more})
    return done


def option(words, name):
    return next(w.partition("=")[2] for w in words
                if w.startswith(f"--{name}="))


def lines(path):
    return [line.split() for line in path.read_text().splitlines()
            if line and not line.startswith("#")]


def hosts_of(folder):
    """Returns (host, site) in the order in which launch.sh numbers them."""
    order = re.findall(r"^read_hosts 'hosts-(\S+)\.txt' (\d+)$",
                       (WORK / folder / "launch.sh").read_text(), re.M)
    found = []
    for site, n in order:
        names = [h for h, in lines(WORK / folder / f"hosts-{site}.txt")]
        check(len(names) == int(n), f"{site}: {len(names)} hosts of {n}")
        found += [(name, site) for name in names]
    return found


def started(folder):
    """Returns (host, GPU, site) of each rank, as launch.sh starts them."""
    hosts = hosts_of(folder)
    nodes = lines(WORK / folder / "nodes.txt")
    shown = range(len(hosts))
    if len(hosts) > MOST_HOSTS:
        shown = sorted(random.Random(1).sample(shown, MOST_HOSTS - 2) +
                       [0, len(hosts) - 1])
    told = {}
    for k in shown:
        done = launch(folder, hosts[k][0])
        check(done.returncode == 0 and not done.stderr, done.stderr)
        for line in done.stdout.splitlines():
            words = line.split()
            check(option(words, "nnodes") == str(len(nodes)), line)
            check(option(words, "master-addr") == hosts[int(nodes[0][0])][0],
                  f"rank 0 is elsewhere: {line}")
            told[int(option(words, "node-rank"))] = (
                k, words[0], int(option(words, "nproc-per-node")))
    ranks = []
    for i, (k, gpus, n, first, site) in enumerate(nodes):
        k, n = int(k), int(n)
        if k in shown:
            check(told.get(i) == (k, gpus, n), f"line {i}: {told.get(i)}")
        # torchrun assigns ranks in the order of node ranks
        check(len(ranks) == int(first), f"line {i} begins at {first}")
        check(site == hosts[k][1], f"line {i}: host of {hosts[k][1]}")
        local = range(n) if gpus == "all" else map(int, gpus.split(","))
        ranks += [(k, g, site) for g in local]
        check(gpus == "all" or len(gpus.split(",")) == n, gpus)
    return ranks


def groups(sizes, order, wanted):
    """Returns Megatron-LM's groups (core/parallel_state.py, RankGenerator):
    ranks that differ only in the dimensions `wanted`; the first dimension of
    the order varies fastest."""
    fixed = [d for d in order if d not in wanted]
    stride, n = {}, 1
    for d in order:
        stride[d], n = n, n * sizes[d]
    inner = [d for d in order if d in wanted]

    def all_of(names):
        return [sum(stride[d] * i for d, i in zip(names, each))
                for each in itertools.product(
                    *(range(sizes[d]) for d in names))]
    return [[base + i for i in all_of(inner[::-1])]
            for base in all_of(fixed[::-1])]


def label(name, job):
    names = [d["name"] for d in job]
    plain = re.sub(r"[^A-Za-z0-9._-]", "_", name)
    return plain if plain == name else f"{plain}@{names.index(name)}"


def planned_site(layout, job, replica, stage):
    for group in layout["sites"]:
        if replica < group["replicas"]:
            for part in group["pipeline"]:
                if stage < part["stages"]:
                    return label(part["datacenter"], job)
                stage -= part["stages"]
        replica -= group["replicas"]
    return None


def check_places(what, plan, ranks, by_data):
    """Checks that every rank is at its site and every GPU is used once. Tensor
    and context groups span as few hosts as possible. Experts are at one site if
    the plan requires it."""
    layout, job = plan["layout"], plan["job"]["cluster"]["datacenters"]
    per_node = {label(d["name"], job): d.get("gpus_per_node") for d in job}
    sizes = {"tp": layout["tensor"], "cp": layout["context"],
             "pp": layout["pipeline"], "dp": layout["data"]}
    order = ["tp", "cp", *(("pp", "dp") if by_data else ("dp", "pp"))]
    world = plan["search"]["gpus_used"]
    check(len(ranks) == world == sizes["tp"] * sizes["cp"] * sizes["pp"] *
          sizes["dp"], f"{what}: {len(ranks)} ranks of {world}")
    check(len({r[:2] for r in ranks}) == world, f"{what}: a GPU twice")
    pipelines = groups(sizes, order, ["pp"])
    replicas = groups(sizes, order, ["dp"])
    stage = {r: s for g in pipelines for s, r in enumerate(g)}
    replica = {r: d for g in replicas for d, r in enumerate(g)}
    wrong = [r for r in range(world) if "sites" in layout and ranks[r][2] !=
             planned_site(layout, job, replica[r], stage[r])]
    check(not wrong, f"{what}: ranks {wrong[:5]} at other sites than planned")
    for group in groups(sizes, order, ["tp", "cp"]):
        check(len({ranks[r][2] for r in group}) == 1, f"{what}: {group}")
        here = per_node[ranks[group[0]][2]]
        if here and (here % len(group) == 0 or len(group) % here == 0):
            check(len({ranks[r][0] for r in group}) ==
                  max(1, len(group) // here),
                  f"{what}: {group} on hosts {[ranks[r][0] for r in group]}")
    # The sites of the data-parallel groups are those of the plan's replicas.
    if "sites" in layout:
        for group in replicas:
            check([ranks[r][2] for r in group] ==
                  [planned_site(layout, job, d, stage[group[0]])
                   for d in range(sizes["dp"])], f"{what}: replicas {group}")


def check_experts(what, plan, ranks, by_data, given):
    """Checks that expert groups, by Megatron-LM's own generator for experts,
    are blocks of consecutive ranks of a stage."""
    layout = plan["layout"]
    if "num-experts" not in given:
        return
    ep = int(given["expert-model-parallel-size"][0])
    etp = int(given["expert-tensor-parallel-size"][0])
    pp = layout["pipeline"]
    sizes = {"tp": etp, "ep": ep, "pp": pp, "dp": len(ranks) // (etp * ep * pp)}
    order = ["tp", "ep", *(("pp", "dp") if by_data else ("dp", "pp"))]
    size = layout["tensor"] * layout["context"]

    def stage(r):
        return r // size % pp if by_data else r // (len(ranks) // pp)
    for group in groups(sizes, order, ["tp", "ep"]):
        check(len({stage(r) for r in group}) == 1, f"{what}: experts {group}")
        sites = {ranks[r][2] for r in group}
        one = all(len(g["pipeline"]) == 1 or g["replicas"] * size %
                  len(group) == 0 for g in layout.get("sites", []))
        if one and all(g["replicas"] * size % len(group) == 0
                       for g in layout.get("sites", [])):
            check(len(sites) == 1, f"{what}: experts {group} over {sites}")


def check_scripts(what, folder, plan):
    for script, shell in ("launch.sh", "sh"), ("job.sbatch", "bash"):
        done = subprocess.run([shell, "-n", WORK / folder / script],
                              capture_output=True, text=True, check=False)
        check(done.returncode == 0, f"{what}: {script}: {done.stderr}")
    check((WORK / folder / "launch.sh").stat().st_mode & stat.S_IXUSR,
          f"{what}: launch.sh is no program")
    header = (WORK / folder / "job.sbatch").read_text()
    n = len(hosts_of(folder))
    given = dict(re.findall(r"^#SBATCH --([a-z-]+)=(.*)$", header, re.M))
    check(given["nodes"] == str(n) and given["ntasks-per-node"] == "1",
          f"{what}: {given}, {n} hosts")
    used = {g["datacenter"] for s in plan["layout"].get("sites", [])
            for g in s["pipeline"]}
    each = {d["gpus_per_node"] for d in plan["job"]["cluster"]["datacenters"]
            if not used or d["name"] in used}
    check(given.get("gpus-per-node") ==
          (str(*each) if len(each) == 1 else None), f"{what}: {given}, {each}")
    check(f"srun --nodes={n} --ntasks={n} " in header, header[-200:])
    readme = (WORK / folder / "README.md").read_text()
    for text in (f"{plan['iteration_ns'] / 1e9:.3f} s",
                 f"{plan['search']['gpus_used']} GPUs, {n} hosts",
                 f"{plan['peak_memory'] / 2**30:.1f} GiB" if "peak_memory" in
                 plan else "GiB"):
        check(text in readme, f"{what}: README.md without {text}")
    stages = [[float(x) for x in row] for row in
              re.findall(r"^\| (\d+) \| ([\d.]+) \| ([\d.]+) \|", readme, re.M)]
    check(len(stages) == plan["layout"]["pipeline"] and
          all(holds <= may_use for _, may_use, holds in stages),
          f"{what}: memory of each stage: {stages}")


def check_bucket(what, recipe, given):
    """Checks the bucket size. Megatron-LM divides the parameters of a GPU by
    the number of buckets; norms and biases are not counted here."""
    def size(name, absent=0):
        return int(given.get(name, [absent])[0])
    hidden, layers = size("hidden-size"), size("num-layers")
    if "multi-latent-attention" in given:
        return
    heads = size("num-attention-heads")
    shared = size("num-query-groups", heads)
    matrices = 3 if "swiglu" in given else 2
    sparse = (sum(eval(given["moe-layer-freq"][0]))
              if "num-experts" in given else 0)
    cut = (2 * hidden * size("kv-channels") * (heads + shared) * layers +
           matrices * hidden * size("ffn-hidden-size") * (layers - sparse) +
           hidden * size("num-experts") * sparse +
           matrices * hidden * sparse *
           size("moe-shared-expert-intermediate-size") +
           hidden * size("vocab-size") *
           (1 + ("untie-embeddings-and-output-weights" in given)))
    own = (matrices * hidden * size("moe-ffn-hidden-size") * sparse *
           size("num-experts"))
    whole = cut / size("tensor-model-parallel-size") + own / (
        size("expert-model-parallel-size", 1) *
        size("expert-tensor-parallel-size", 1))
    told = int(re.search(r"bucket_size=(\d+),", recipe)[1])
    check(abs(told * size("ddp-num-buckets") - whole) < 0.02 * whole,
          f"{what}: buckets of {told}, of {whole:.0f} parameters")


def check_recipe(what, plan_file, given):
    """Checks that the Megatron-Bridge recipe has the values of the Megatron-LM
    arguments."""
    told = run("export", plan_file, "--to", "megatron-bridge",
               "--allow-inexact")
    if given["position-embedding-type"] == ["learned_absolute"] and (
            given["max-position-embeddings"] != given["seq-length"]):
        check(told.returncode == 1 and "learns one position per token of a "
              "sequence" in told.stderr, f"{what}: {told.stderr}")
        return
    check(told.returncode == 0, f"{what}: {told.stderr}")
    wrong = differences(told.stdout, given)
    check(not wrong, f"{what}: {wrong}")
    if "ddp-num-buckets" in given:
        check_bucket(what, told.stdout, given)


def check_bundle(what, target, plan_file):
    """Makes a bundle and checks all of its files; returns the plan."""
    plan = json.loads((WORK / plan_file).read_text())
    more = [] if target == "pytorch" else ["--allow-inexact"]
    case(what, ["export", plan_file, "--to", target, "--bundle", what, *more],
         out=rf"\Awritten +{what}\n\Z", err=r"\A(longhaul: not the model's: "
         r"[^\n]*\n)*\Z")
    check(not [p for p in os.listdir(WORK) if ".tmp-" in p], "leftovers")
    by_data = (by_replicas(plan["layout"]) and
               plan["layout"]["pipeline"] > 1)
    check_scripts(what, what, plan)
    ranks = started(what)
    check_places(what, plan, ranks, by_data)
    if target == "pytorch":
        alone = run("export", plan_file, "-q").stdout
        check((WORK / what / "schedule.csv").read_text() == alone, "schedule")
        return plan
    text = (WORK / what / "args.txt").read_text()
    check(text == run("export", plan_file, "--to", target, *more).stdout,
          "args.txt")
    if target == "torchtitan":
        check((WORK / what / "longhaul_model.py").read_text() ==
              run("export", plan_file, "--to", "torchtitan-model",
                  *more).stdout, "longhaul_model.py")
    if target == "megatron":
        given = {words[0].lstrip("-"): words[1:] for words in
                 lines(WORK / what / "args.txt")}
        check_recipe(what, plan_file, given)
        wrong = complaints(text, plan["search"]["gpus_used"])
        check(not wrong, f"{what}: {wrong}")
        check(("use-tp-pp-dp-mapping" in given) == by_data, f"{what}: mapping")
        check_experts(what, plan, ranks, by_data, given)
    return plan


def planned(target, text, name="job.yaml"):
    write(name, text)
    (WORK / "plan.json").unlink(missing_ok=True)
    return run("plan", name, "--for", target, *CHEAP, "-o",
               "plan.json").returncode == 0


@test
def every_example_starts_where_it_was_planned():
    shim()
    for i, target in enumerate(("megatron", "torchtitan", "pytorch")):
        made = 0
        for j, (path, text) in enumerate(example_jobs(ROOT, target)):
            # With few cases: a third of the examples, each with one target.
            if has_few_cases() and j % 9 != 3 * i:
                continue
            done = plan_example(PROGRAM, path, text, target, WORK)
            if check(done.returncode == 0,
                     f"{path.name} for {target}: {done.stderr}"):
                check_bundle(f"{path.stem}-{target}", target, "plan.json")
                made += 1
        check(made >= (1 if has_few_cases() else 10),
              f"{made} examples for {target}")


@test
def every_random_job_starts_where_it_was_planned():
    shim()
    made, seen = 0, set()
    for seed in itertools.count():
        if made == JOBS or not check(seed < 80, f"{made} plans of {seed} jobs"):
            break
        text = random_jobs.job(random.Random(seed))
        if planned("megatron", text):
            plan = check_bundle(f"job-{seed}", "megatron", "plan.json")
            seen.add((plan["layout"]["outermost"],
                      len(plan["job"]["cluster"]["datacenters"])))
            made += 1
    if has_few_cases():  # too few jobs to contain all kinds
        return
    check({n for _, n in seen} == {1, 2, 3}, f"sites: {seen}")
    check({o for o, _ in seen} >= {"pipeline", "data"}, f"outermost: {seen}")


SHARED = """
longhaul: job/1
model: {name: m, layers: 8, hidden: 1024, heads: 8, vocab: 32000, ffn: 4096}
training: {global_batch: 48, sequence: 1024}
cluster:
  gpu: h100-sxm
  gpus_per_node: 8
  node_link: {gbps: 3600, latency_us: 3}
  fabric: {gbps: 400, latency_us: 8}
  datacenters: [{name: "a b", nodes: 2}, {name: c, nodes: 2}]
  links: [{between: ["a b", c], latency_ms: 5, gbps: 100,
           load_balancing: ecmp, queue_pairs: 4}]
layout: {tensor: 2, context: 1, pipeline: 4, data: 3, micro_batch: 1,
         chunks_per_device: 1, outermost: pipeline, schedule: 1f1b,
         packing: dense}
"""


ONE_RANK = """
longhaul: job/1
model: {{name: m, layers: 8, hidden: 1024, heads: 8, vocab: 32001, {model}}}
training: {{global_batch: 64, sequence: 1024, zero: {zero}}}
cluster:
  gpu: h100-sxm
  gpus_per_node: 8
  node_link: {{gbps: 3600, latency_us: 3}}
  fabric: {{gbps: 400, latency_us: 8}}
  datacenters: [{{name: a, nodes: 2}}]
layout: {{tensor: 2, context: 1, pipeline: 1, micro_batch: 1,
         chunks_per_device: {chunks}{more}}}
"""


def check_chunks(what, told, zero, chunks):
    """Megatron-LM's buckets have equal sizes, the plan's chunks do not; the
    export reports this difference. ZeRO 3 shards layer by layer."""
    if zero == 3:
        check("FSDP gathers and reduces each layer" in told, what)
        return
    found = re.search(r"^# .* into (\d+) buckets of ([\d.]+) million parameters "
                      r"each; .* have ([\d.]+) to ([\d.]+) million$", told, re.M)
    if not check(found, f"{what}: {told}"):
        return
    n, each, least, most = map(float, found.groups())
    recipe = run("export", "plan.json", "--to", "megatron-bridge").stdout
    size = int(re.search(r"bucket_size=(\d+),", recipe)[1])
    check(n == chunks and abs(each * 1e6 - size) < 1e5, f"{what}: {size}")
    check(least <= each <= most and
          least + (n - 1) * most >= n * each - 0.1 * n >=
          most + (n - 1) * least - 0.2 * n, f"{what}: {found[0]}")


@test
def a_recipe_for_megatron_bridge_starts_the_job():
    shim()
    for zero, chunks, model, more in (
            (1, 2, "ffn: 4096", ""), (0, 4, "ffn: 4096, gated: true", ""),
            (3, 2, "ffn: 4096, positions: 1024", ""),
            (2, 3, "experts: 8, experts_per_token: 2, expert_ffn: 512, "
             "router_bias: false", ", expert: 4, expert_tensor: 1")):
        text = ONE_RANK.format(zero=zero, chunks=chunks, model=model, more=more)
        if not check(planned("megatron", text), text):
            continue
        check_bundle(f"one-{zero}", "megatron", "plan.json")
        told = (WORK / f"one-{zero}/args.txt").read_text()
        check(f"--ddp-num-buckets {chunks}\n" in told, "buckets")
        check_chunks(f"one-{zero}", told, zero, chunks)
    case("a bundle", ["export", "plan.json", "--to", "megatron-bridge",
                      "--bundle", "bridge"], out=ANY)
    check_scripts("bridge", "bridge", json.loads((WORK / "plan.json")
                                                 .read_text()))
    check((WORK / "bridge/longhaul_recipe.py").read_text() ==
          run("export", "plan.json", "--to", "megatron-bridge").stdout, "recipe")
    check(started("bridge") == started("one-2"), "other places")
    done = launch("bridge", "a-0", "train.train_iters=7", PROGRAM="")
    check(done.stdout.split()[2:].count("-m") == 1 and done.stdout.endswith(
        " -m longhaul_recipe train.train_iters=7\n"), done.stdout)
    check("unset CUDA_DEVICE_MAX_CONNECTIONS" in
          (WORK / "bridge/launch.sh").read_text(), "FSDP's connections")
    check(planned("megatron", ONE_RANK.format(
        zero=1, chunks=1, model="ffn: 4096, positions: 4096", more="")), "plan")
    case("positions", ["export", "plan.json", "--to", "megatron-bridge"], 1,
         err="1024, and the model has 4096; set the model's positions to "
         "the sequence length")


@test
def stages_that_share_hosts_have_a_torchrun_each():
    """6 GPUs per stage on hosts of 8: the GPUs of a host belong to two stages,
    and the last host of a site is not full."""
    shim()
    check(planned("megatron", SHARED), "plan")
    check_bundle("shared", "megatron", "plan.json")
    check((WORK / "shared/hosts-a_b@0.txt").exists(), os.listdir(WORK))
    ranks = started("shared")
    check(len({r[0] for r in ranks}) == 4, "four hosts of 8, 4, 8 and 4 ranks")
    done = launch("shared", "c-1")
    words = done.stdout.split()
    check(words[0] == "0,1,2,3" and option(words, "nproc-per-node") == "4",
          done.stdout)
    check(words[1] == "4", "queue pairs of the link, as the plan has them")
    case("two groups that mix at a site", ["plan", write(
        "mixed.yaml", re.sub(
            r"layout: \{.*", "layout: {tensor: 2, context: 1, micro_batch: 1, "
            "chunks_per_device: 1, schedule: 1f1b, sites: [{replicas: 1, "
            "pipeline: [{datacenter: c, stages: 1}, {datacenter: \"a b\", "
            "stages: 3}]}, {replicas: 2, pipeline: [{datacenter: \"a b\", "
            "stages: 1}, {datacenter: c, stages: 3}]}]}", SHARED, flags=re.S)),
        "--for", "megatron", *CHEAP, "-o", "plan.json"], out=ANY, err=ANY)
    check_bundle("mixed", "megatron", "plan.json")
    done = launch("mixed", hosts_of("mixed")[0][0])
    check(len(done.stdout.splitlines()) > 1, "several torchruns on a host")
    last = option(done.stdout.splitlines()[-1].split(), "node-rank")
    # The run ends, and stops the torchrun that would wait forever.
    done = launch("mixed", hosts_of("mixed")[0][0], TORCHRUN_STATUS="9",
                  TORCHRUN_HANGS=last)
    check(done.returncode == 9, "one that fails stops the others")


@test
def who_a_host_is_comes_from_files_or_the_environment():
    shim()
    check(planned("megatron", SHARED), "plan")
    case("bundle", ["export", "plan.json", "--to", "megatron", "--bundle", "b"],
         out=ANY)
    hosts = hosts_of("b")
    by_number = launch("b", "nobody", NODE_RANK="2", MASTER_ADDR="there",
                       MASTER_PORT="7").stdout
    check(option(by_number.split(), "master-addr") == "there" and
          option(by_number.split(), "master-port") == "7", by_number)
    check(option(launch("b", hosts[2][0]).stdout.split(), "node-rank") ==
          option(by_number.split(), "node-rank"), "the same host")
    check(launch("b", f"{hosts[2][0]}.site.example").returncode == 0,
          "a name with its domain")
    words = launch("b", hosts[0][0], "--lr", "a b").stdout
    check("x.py --lr a b --num-layers 8" in words, words)
    for name, host, old, new, says in (
            ("unknown", "nobody", "", "", "nobody is in none of"),
            ("twice", "c-0", "c-1\n", "c-0\n", "c-0 is there twice"),
            ("too few", "c-0", "c-1\n", "", "has 1 hosts, and the plan needs "
             "2")):
        file = WORK / "b/hosts-c.txt"
        before = file.read_text()
        file.write_text(before.replace(old, new) if old else before)
        done = launch("b", host)
        check(done.returncode == 1 and not done.stdout and
              says in done.stderr, f"{name}: {done.stdout} {done.stderr}")
        file.write_text(before)
    check(launch("b", "c-0", TORCHRUN_STATUS="9").returncode == 9, "status")
    done = launch("b", "c-0", NODE_RANK="99")
    check(done.returncode == 1 and "no host 99" in done.stderr, done.stderr)


@test
def schedules_that_megatron_lacks_are_run_by_the_plan():
    shim()
    text = (ROOT / "examples/megatron/two-sites.yaml").read_text()
    for schedule in "look-ahead", "zb-v":
        done = run("plan", write("job.yaml", text.replace("look-ahead", schedule)),
                   *CHEAP, "-o", "plan.json")
        check(done.returncode == 0, done.stderr)
        case("bundle", ["export", "plan.json", "--to", "megatron", "--bundle",
                        schedule], out=ANY)
        plan = WORK / schedule / "plan.json"
        check(plan.read_text() == (WORK / "plan.json").read_text(), "plan.json")
        words = launch(schedule, "west-0", "--lr", "1").stdout
        check(f"-m longhaul.megatron --plan {plan} x.py --lr 1 --num-layers 8 "
              in words, words)
        check("plan.json | the plan" in (WORK / schedule / "README.md").read_text(),
              "README.md")
    # What no runtime runs stays an error.
    for old, new, says in (
            ("heads: 4", "heads: 4, tied_embeddings: true",
             "shares no embedding between two chunks"),
            ("heads: 4", "heads: 4, mtp_layers: 1", "no multi-token prediction"),
            ("cluster:", "framework: {fp8: matmul}\ncluster:",
             "separates no weight gradients of parameters in FP8"),
            ("layout: {pipeline: 4,", "framework: {overlap: {tensor: 0.5}}\n"
             "layout: {tensor: 2, pipeline: 2,", "separates no weight gradients "
             "beside overlapped tensor parallelism")):
        write("job.yaml", text.replace("look-ahead", "zb-v").replace(old, new))
        check(run("plan", "job.yaml", *CHEAP, "-o", "plan.json").returncode == 0,
              new)
        case(new, ["export", "plan.json", "--to", "megatron"], 1, err=says)
    case("bridge", ["export", "plan.json", "--to", "megatron-bridge"], 1,
         err="does not support schedule")


@test
def bundles_set_the_ends_that_the_plan_assumes():
    link = "load_balancing: ecmp, queue_pairs: 4}"
    for name, given, variables in (
            ("near", "latency_ms: 5, gbps: 100, " + link, ""),
            ("far", "latency_ms: 70, gbps: 100}",
             "NCCL_NCHANNELS_PER_NET_PEER=4 NCCL_MIN_NCHANNELS=4 "
             "NCCL_BUFFSIZE=134217728"),
            ("sockets", "latency_ms: 70, gbps: 100, nccl: {channels: 8, "
             "buffer_kib: 16384, sockets: 12}}",
             "NCCL_NCHANNELS_PER_NET_PEER=8 NCCL_MIN_NCHANNELS=8 "
             "NCCL_BUFFSIZE=16777216 NCCL_SOCKET_NTHREADS=12 "
             "NCCL_NSOCKS_PERTHREAD=1")):
        job = re.sub(r"latency_ms: 5.*?queue_pairs: 4}", given, SHARED,
                     flags=re.S)
        done = run("plan", write("ends.yaml", job), "--for", "megatron", *CHEAP,
                   "-o", "plan.json")
        check(done.returncode == 0, done.stderr)
        ends = re.findall(r"^ends .*", done.stdout, flags=re.M)
        check(len(ends) == (name != "near"), f"{name}: {done.stdout}")
        case("bundle", ["export", "plan.json", "--to", "megatron", "--bundle",
                        name], out=ANY)
        told = re.findall(r"^export (NCCL_(?!IB).*)",
                          (WORK / name / "launch.sh").read_text(), flags=re.M)
        check(" ".join(told) == variables, f"{name}: {told}")


@test
def slurm_fills_in_the_hosts():
    shim()
    check(planned("megatron", SHARED), "plan")
    case("bundle", ["export", "plan.json", "--to", "megatron", "--bundle", "b"],
         out=ANY)
    for name, text in (("scontrol", 'echo "$3" | tr , "\\n"'),
                       ("srun", 'echo "$@"')):
        (WORK / "bin" / name).write_text(f"#!/bin/sh\n{text}\n")
        (WORK / "bin" / name).chmod(0o755)
    done = subprocess.run(
        ["bash", WORK / "b/job.sbatch", "--lr", "1"], capture_output=True,
        text=True, check=False, cwd=WORK,
        env={**ENVIRONMENT, "PATH": f"{WORK}/bin:{os.environ['PATH']}",
             "BUNDLE": str(WORK / "b"), "SITE_0_NODES": "n1,n2",
             "SITE_1_NODES": "n7,n9"})
    check(done.returncode == 0 and done.stdout.endswith(
        f"{WORK}/b/launch.sh --lr 1\n"), f"{done.stdout} {done.stderr}")
    check([h for h, _ in hosts_of("b")] == ["n1", "n2", "n7", "n9"],
          f"{hosts_of('b')}")


@test
def existing_files_are_kept_and_failures_leave_none():
    shim()
    check(planned("megatron", SHARED), "plan")
    make = ["export", "plan.json", "--to", "megatron", "--bundle"]
    (WORK / "old").mkdir()
    write("old/mine", "x\n")
    (WORK / "empty").mkdir()
    write("file", "x\n")
    os.symlink("nowhere", WORK / "link")
    before = sorted(p.relative_to(WORK) for p in WORK.rglob("*"))
    for name in "old", "empty", "file", "link", "empty/":
        case(name, [*make, name], 1, err="already exists; .*Use another "
             "name")
    case("no folder above", [*make, "none/b"], 1,
         err="cannot create the folder")
    case("too long a name", [*make, "b" * 300], 1, err="cannot")
    case("for nobody", ["export", "plan.json", "--to", "chrome", "--bundle",
                        "b"], 1, err="is not a training program")
    case("torchtitan cannot", ["export", "plan.json", "--to", "torchtitan",
                               "--bundle", "b"], 1, err="torchtitan")
    for more in ["-o", "x"], ["--stages", "x"], ["-s", "1f1b"]:
        case("both", [*make, "b", *more], 2, err="--bundle.*; omit ")
    write("p.yaml", "longhaul: pipeline/1\nmicrobatches: 2\ndevices: 2\n"
          "time_unit: ms\nuniform: {F: 1, D: 1, W: 1}\n")
    case("a pipeline", ["export", "p.yaml", "--bundle", "b"], 1,
         err="a plan is required")
    (WORK / "p.yaml").unlink()
    # The file size limit is one block: writing the first or a later file fails.
    for blocks in 1, 2:
        done = subprocess.run(
            ["sh", "-c", f"trap '' XFSZ; ulimit -f {blocks}; exec \"$@\"", "-",
             os.path.abspath(os.sys.argv[1]), *make, "b"], cwd=WORK,
            capture_output=True, text=True, check=False, env=ENVIRONMENT)
        check(done.returncode == 1 and "cannot write" in done.stderr,
              f"{blocks}: {done.stdout} {done.stderr}")
    check(sorted(p.relative_to(WORK) for p in WORK.rglob("*")) == before,
          "what there was, and nothing else")
    told = json_case("told", [*make, "b"])
    check(told == {"to": "megatron", "bundle": "b"}, f"{told}")


finish()
