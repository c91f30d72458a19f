#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The Python package returns the program's results, from several threads too. Errors
are exceptions with their position; Ctrl-C ends searches. Needs longhaul installed by
pip; $LONGHAUL_PYTHON names a Python that has it.
"""
import concurrent.futures
import ctypes
import dataclasses
import gc
import importlib.util
import inspect
import json
import os
import pathlib
import random
import signal
import subprocess
import sys
import traceback
import types
import typing
import xml.etree.ElementTree

from import_longhaul import longhaul

import harness
import random_jobs
from compare_program import SOON as JOB
from compare_program import both, printed, random_pipeline, same
from harness import HANGS, ROOT, WORK, check, test, uniform

TWO_SITES = str(ROOT / "examples/pipeline-two-sites.yaml")
LITTLE = {"effort": 300}
AS_LITTLE = ("--effort", 300)


def raises(kind, call, *args, **given):
    """Returns the exception that a call raises."""
    try:
        call(*args, **given)
    except kind as error:
        return error
    except Exception as error:  # not the expected one
        check(False, f"{call.__name__}: {error!r} is no {kind.__name__}")
        return error
    check(False, f"{call.__name__}: nothing was raised")
    return kind("")


# --- equality with the program
# -------------------------------------------------


def as_the_program(name, method):
    """Compares one method on one pipeline: schedule, simulate, check."""
    path, csv = str(WORK / name), str(WORK / "s.csv")
    made = both(f"schedule {name} {method}",
                lambda: longhaul.schedule(path, method), "schedule", path,
                "--method", method, but=("seconds",))
    both(f"late {name} {method}",
         lambda: longhaul.simulate(path, method, receives="late", coupled=2),
         "simulate", path, "-s", method, "--receives", "late", "--coupled", 2)
    if made:
        made.write(csv)
        same(f"simulate {name} {method}", longhaul.simulate(path, csv),
             "simulate", path, "-s", csv)
        same(f"check {name} {method}", made.check(), "check", path, csv)


@test
def schedules_and_simulations_are_those_of_the_program():
    r = random.Random(1)
    for i in range(12):
        name = random_pipeline(r, f"p{i}.yaml")
        for method in r.sample(("gpipe", "1f1b", "zb-h1", "zb-v", "greedy",
                                "interleaved-1f1b", "auto"), 2):
            as_the_program(name, method)


@test
def optimal_schedules_are_those_of_the_program():
    made = longhaul.schedule(TWO_SITES, "optimal", effort=50000, threads=1)
    same("optimal", made, "schedule", TWO_SITES, "--method", "optimal",
         "--effort", 50000, "--threads", 1, but=("seconds",))
    check(made.status == "optimal" and made.gap == 0, f"{made.status}")
    check(made.engines and made.engines[0].on, "no engines")
    cut = longhaul.schedule(TWO_SITES, "greedy", sub_blocks=4, whole=True)
    same("whole", cut, "schedule", TWO_SITES, "--method", "greedy",
         "--sub-blocks", 4, "--whole", but=("seconds",))
    check(cut.whole_cost_s is not None, "no whole_cost_s")


@test
def comparisons_are_those_of_the_program():
    r = random.Random(2)
    paths = [str(WORK / random_pipeline(r, f"p{i}.yaml")) for i in range(2)]
    methods = ["1f1b", "zb-h1", "zb-v"]
    listed = ("--methods", ",".join(methods))
    same("compare", longhaul.compare(*paths, methods=methods), "compare",
         *paths, *listed)
    swept = longhaul.compare(
        TWO_SITES, methods=methods, latency=longhaul.Delays(forwards=[0, 0.5]),
        transfer=longhaul.Delays(forwards=[0.25]))
    same("sweep", swept, "compare", TWO_SITES, *listed, "--sweep",
         "latency=0,0.5,transfer=0.25")
    varied = longhaul.Jitter(latency=0.2, degraded=(0.1, 3), samples=50, seed=3)
    same("jitter", longhaul.compare(TWO_SITES, methods=methods, jitter=varied,
                                    by="p95"),
         "compare", TWO_SITES, *listed, "--jitter",
         "latency=0.2,degraded=0.1x3", "--samples", 50, "--seed", 3, "--by",
         "p95")


@test
def plans_are_those_of_the_program():
    path = str(WORK / "job.yaml")
    (WORK / "job.yaml").write_text(JOB)
    plan = longhaul.plan(path, **LITTLE, curves=True)
    same("plan", plan, "plan", path, *AS_LITTLE, "--curves")
    plan.write(WORK / "plan.json")
    again = longhaul.read_plan(WORK / "plan.json")
    check(again == plan and again.json() == plan.json(), "plan.json reads back")
    lines = repr(plan).splitlines()
    check(len(lines) == 4 and max(map(len, lines)) < 100 and
          "tensor 4, " in lines[1] and plan.schedule_method in lines[2],
          repr(plan))
    check(plan.iteration_s > 0 and plan.layout.tensor == 4 and plan.alternatives
          and plan.schedule_method == plan.layout.schedule, f"{plan}")
    check(max(m.total_bytes for m in plan.memory) == plan.peak_memory_bytes,
          f"{plan.memory} is not {plan.peak_memory_bytes}")
    same("simulate", plan.simulate(), "simulate", WORK / "plan.json")
    same("simulate a plan with jitter",
         again.simulate(jitter=longhaul.Jitter(straggler=(0.01, 2), samples=9)),
         "simulate", WORK / "plan.json", "--jitter", "straggler=0.01x2",
         "--samples", 9)
    same("check", plan.check(), "check", WORK / "plan.json")
    same("compare", plan.compare(methods=["1f1b", "zb-h1"]), "compare",
         WORK / "plan.json", "--methods", "1f1b,zb-h1")
    for target, zero in (("megatron", 1), ("torchtitan", 2), ("pytorch", 1)):
        (WORK / "job.yaml").write_text(JOB.replace(
            "sequence: 4096", f"sequence: 4096, zero: {zero}"))
        made = longhaul.plan(path, **LITTLE, target=target)
        same(target, made, "plan", path, *AS_LITTLE, "--for", target)
        made.write(WORK / "t.json")
        check(made.export(target) == printed("export", WORK / "t.json", "--to",
                                             target)["text"], target)
        if target == "torchtitan":
            check(made.export("torchtitan-model") ==
                  printed("export", WORK / "t.json", "--to",
                          "torchtitan-model")["text"], "its model")
    chrome = printed("export", WORK / "t.json", "--to", "chrome")["text"]
    check(longhaul.export(str(WORK / "t.json"), "chrome") == chrome, "chrome")


@test
def plans_of_random_jobs_are_those_of_the_program():
    r, planned = random.Random(3), 0
    jobs = 5 if harness.has_few_cases() else 24
    for i in range(jobs):
        (WORK / "r.yaml").write_text(random_jobs.job(r))
        path = str(WORK / "r.yaml")
        plan = both(f"job {i}", lambda: longhaul.plan(path, **LITTLE, top=3),
                    "plan", path, *AS_LITTLE, "--top", 3)
        if not plan:
            continue
        planned += 1
        plan.write(WORK / "r.json")
        for command, call in (("simulate", plan.simulate),
                              ("check", plan.check)):
            both(f"{command} {i}", call, command, WORK / "r.json")
        both(f"compare {i}", lambda: plan.compare(methods=["1f1b", "zb-h1"]),
             "compare", WORK / "r.json", "--methods", "1f1b,zb-h1")
    check(planned > jobs / 4, f"{planned} of {jobs} jobs have a plan")


@test
def plans_without_alternatives_have_none():
    alone = longhaul.plan(JOB.replace("pipeline: 4}", (
        "pipeline: 4, data: 1, expert: 1, micro_batch: 1, schedule: 1f1b, "
        "chunks_per_device: 1, outermost: pipeline, sharding: full}")),
        top=1, **LITTLE)
    check(isinstance(alone.alternatives, tuple) and isinstance(
        alone.runners_up, tuple) and isinstance(alone.answers, tuple),
        f"{alone}")
    again = longhaul.read_plan(alone.to_dict())
    check(again.alternatives == alone.alternatives, "a map reads back")


@test
def what_if_equals_the_program():
    path = str(WORK / "job.yaml")
    (WORK / "job.yaml").write_text(JOB)
    plan = longhaul.plan(path, **LITTLE)
    for asked, given in (
            ("bandwidth=100,loss=0.001", {"bandwidth_gbps": 100, "loss": 1e-3}),
            ("west-east.latency=60",
             {"latency_ms": 60, "link": ("west", "east")}),
            *[("latency=40", {"latency_ms": 40})] *
            (not harness.has_few_cases())):
        theirs = printed("plan", path, *AS_LITTLE, "--what-if", asked)
        mine = plan.what_if(**given)
        check(mine.to_dict() == theirs["what_if"][0], f"{asked}: {mine}")
    check(mine.kept.iteration_s > plan.iteration_s, "more latency costs")


@test
def optical_networks_are_those_of_the_program():
    path = ROOT / "examples/optical-two-jobs.yaml"
    mine = longhaul.optical(path, seeds=[7])
    same("optical", mine, "optical", path, "--seed", 7)
    check(mine.html().startswith("<!"), "a page")
    first = next(iter(mine.policies.values()))
    check(first.iteration_s > 0, f"{first}")


@test
def paths_texts_and_maps_are_the_same_job():
    path = str(WORK / "job.json")
    whole = printed("plan", ROOT / "examples/crosspipe-m70-four-sites.yaml",
                    *AS_LITTLE)["job"]
    (WORK / "job.json").write_text(json.dumps(whole))
    of_path = longhaul.plan(path, quick=True, **LITTLE)
    for given in (json.dumps(whole, indent=1), json.dumps(whole), whole,
                  pathlib.Path(path)):
        other = longhaul.plan(given, quick=True, **LITTLE)
        check(dataclasses.replace(other, name=path) == of_path,
              f"{type(given)} is another job")


@test
def commands_without_a_function_run_the_program():
    drafted = longhaul.run("init", "--model", "llama3-8b", "--sites", 2)
    check("longhaul: job/1" in drafted["job"], f"{drafted.keys()}")
    error = raises(longhaul.Error, longhaul.run, "explain", "no-such-file")
    check("no-such-file" in str(error), f"{error}")
    out = WORK / "run.json"
    check(longhaul.run("compare", TWO_SITES, "-o", out) is None and
          json.loads(out.read_text()), "what goes to a file is not returned")
    raises(longhaul.Error, longhaul.run, "--version")


# --- runs ---------------------------------------------------------------------


def of_two_sites(**given):
    return longhaul.train(TWO_SITES, **{
        "schedule": longhaul.schedule(TWO_SITES, "1f1b"), "speed": 100,
        **given})


@test
def runs_are_iterators_over_their_steps():
    seen = []
    training = of_two_sites(steps=6, schedule_at={2: "zb-h1"},
                            callbacks=[lambda step, _: seen.append(step)])
    steps = [next(training), next(training)]
    result = training.result()
    check(len(seen) == 6 and tuple(seen[:2]) == tuple(steps) and
          [s.step for s in seen] == list(range(6)), f"{seen}")
    check([s.to_dict()["seconds"] for s in result.iterations] ==
          [s.seconds for s in seen] and result is training.result(),
          f"{result}")
    check([s.schedule for s in seen] == ["schedule-0.csv"] * 2 + ["zb-h1"] * 4
          and seen[2].switch["to"] == "zb-h1" and seen[3].switch is None,
          f"{seen}")
    check(not result.interrupted and result.device == "timed" and
          result.ranks == 4 and len(repr(result)) < 300, f"{result}")
    (WORK / "tiny.yaml").write_text(
        (ROOT / "examples/tiny-llama-cpu.yaml").read_text().replace(
            "layers: 4, hidden: 128, ffn: 384", "layers: 4, hidden: 32, ffn: 64")
        .replace("head_dim: 32", "head_dim: 8"))
    plan = longhaul.plan(WORK / "tiny.yaml")
    losses = []
    cpu = {"device": "cpu", "data": ROOT / "README.md"}
    for step in longhaul.train(plan, **cpu, validation=0.1, validate_every=2,
                               steps=2, checkpoint=WORK / "run"):
        losses.append((step.loss, step.validation_loss))
    check(5 < losses[0][0] < 6 and losses[0][1] is None and
          5 < losses[1][1] < 6, f"{losses}")
    shards = longhaul.write_shards(WORK / "run", WORK / "shards",
                                   max_bytes=40000)
    check(len(shards) > 2 and
          all(path.stat().st_size < 50000 for path in shards) and
          (WORK / "shards/config.json").exists(), f"{shards}")
    first = [next(longhaul.train(plan, **cpu, steps=1, weights=WORK / path)).loss
             for path in ("run/step-00000002", "shards")]
    check(first[0] == first[1] != losses[0][0], f"{first}")
    error = raises(longhaul.FileError, longhaul.write_shards, WORK / "none",
                   WORK / "x")
    check("has no checkpoint" in str(error), f"{error}")


@test
def runs_end_early():
    ended = []

    class Once:
        def __call__(self, step, training):
            if step.step == 1:
                training.stop()

        def close(self):
            ended.append(True)

    result = of_two_sites(steps=10000, callbacks=[Once()]).result()
    check(result.interrupted and 2 <= len(result.iterations) < 10000 and
          ended == [True], f"{len(result.iterations)} steps, {ended}")
    with of_two_sites(steps=10000, callbacks=[Once()]) as training:
        next(training)
    raises(longhaul.Error, training.result)
    check(ended == [True, True], "close() of a run that was left")


@test
def errors_of_runs_have_file_line_and_key():
    bad = JOB.replace("sequence:", "sequenc:")
    (WORK / "bad.yaml").write_text(bad)
    for given, name in ((WORK / "bad.yaml", str(WORK / "bad.yaml")),
                        (bad, "text")):
        error = raises(longhaul.InputError, longhaul.profile, given)
        check((error.file, error.line, error.key) ==
              (name, 3, "training.sequenc"), f"{error.__dict__}")
    error = raises(longhaul.InputError,
                   longhaul.train({"longhaul": "pipeline/1", "x": 1}).result)
    check((error.file, error.key) == ("map", "x"), f"{error.__dict__}")
    error = raises(longhaul.FileError, longhaul.diagnose, WORK / "none.csv")
    check(error.file == str(WORK / "none.csv"), f"{error.__dict__}")
    error = raises(longhaul.InvalidError, of_two_sites(stepz=3).result)
    check("'--stepz'" in str(error) and "Try" not in str(error), f"{error}")
    check("JSON" not in "".join(traceback.format_exception(error)),
          "the traceback shows the error alone")
    raises(longhaul.InvalidError, of_two_sites, log="x")


@test
def recordings_and_machines_are_measured():
    path = ROOT / "tests/data/recordings/AR.csv.gz"
    made = longhaul.diagnose(path)
    same("diagnose", made, "diagnose", path)
    check(made.slow[0].what == "worker" and made.helps[0].gain > 0.4 and
          made.slowdown > 1.9, f"{made}")
    made = longhaul.profile(ROOT / "examples/tiny-llama-cpu.yaml", links=False,
                            repeats=1)
    made.write(WORK / "measured.json")
    check([e.kind for e in made.entries] == ["embedding", "layer", "head"] and
          made.entries[1].F_us > 0 and
          json.loads((WORK / "measured.json").read_text()) == made.to_dict(),
          f"{made}")


class StandIn(types.ModuleType):
    """A stub of a library that logs metrics: `calls` has what it got."""
    __file__ = "stand-in"

    def __init__(self, name):
        super().__init__(name)
        self.calls = []

    def init(self, **given):
        self.calls.append(given)
        return self

    Writer = init

    def log(self, values, step):
        self.calls.append((step, values))

    def add_scalar(self, name, value, step):
        self.calls.append((step, name, value))

    def flush(self):
        pass

    def finish(self):
        self.calls.append("end")

    close = finish


@test
def metrics_go_to_other_libraries():
    """With stubs: the libraries need a quarter of a gigabyte."""
    board, wandb = StandIn("tensorboard.summary"), StandIn("wandb")
    board.Writer = lambda folder: board.init(folder=folder)
    sys.modules.update({"tensorboard.summary": board, "wandb": wandb})
    result = of_two_sites(steps=2, callbacks=[
        longhaul.TensorBoard(WORK / "logs"), longhaul.WandB(project="p")
    ]).result()
    seconds = [step.seconds for step in result.iterations]
    check(wandb.calls == [{"project": "p"}, *(
        (i, {"seconds": s, "slips": wandb.calls[i + 1][1]["slips"]})
        for i, s in enumerate(seconds)), "end"], f"{wandb.calls}")
    check([c for c in board.calls if "slips" not in c] ==
          [{"folder": str(WORK / "logs")}, (0, "seconds", seconds[0]),
           (1, "seconds", seconds[1]), "end"], f"{board.calls}")
    sys.modules.update({"tensorboard.summary": None, "wandb": types.ModuleType(
        "wandb")})
    sys.modules["wandb"].__file__ = None  # a folder that wandb made
    for make, package in ((lambda: longhaul.TensorBoard("x"), "tensorboard"),
                          (longhaul.WandB, "wandb")):
        error = raises(longhaul.UnsupportedError, make)
        check(f"pip install {package}" in str(error), f"{error}")


# --- errors ------------------------------------------------------------------


@test
def errors_have_file_line_and_key():
    path = str(WORK / "job.yaml")
    (WORK / "job.yaml").write_text(JOB.replace("nodes: 2}]", "nodes: -2}]"))
    error = raises(longhaul.InputError, longhaul.plan, path)
    check((error.file, error.line, error.key) ==
          (path, 9, "cluster.datacenters[1].nodes"), f"{error.__dict__}")
    check(isinstance(error, longhaul.Error) and isinstance(error, ValueError),
          "an Error that is a ValueError")
    error = raises(longhaul.InputError, longhaul.plan,
                   JOB.replace("sequence:", "sequenc:"))
    check((error.file, error.line, error.key) ==
          ("text", 3, "training.sequenc"), f"{error.__dict__}")
    error = raises(longhaul.InputError, longhaul.plan, {"longhaul": "job/1"})
    check((error.file, error.line) == ("map", 1), f"{error.__dict__}")
    error = raises(longhaul.FileError, longhaul.plan, WORK / "none.yaml")
    check(error.file == str(WORK / "none.yaml") and isinstance(error, OSError)
          and "none.yaml" in str(error), f"{error!r}")
    raises(longhaul.InputError, longhaul.plan, {"model": float("nan")})
    raises(longhaul.InputError, longhaul.simulate, JOB)
    raises(longhaul.InputError, longhaul.plan, TWO_SITES)


@test
def argument_errors_are_reported():
    error = raises(longhaul.InvalidError, longhaul.simulate, TWO_SITES, "zb-q")
    check("zb-h1" in str(error), f"{error}")
    raises(longhaul.UnsupportedError, longhaul.simulate, TWO_SITES, "zb-v")
    raises(longhaul.InvalidError, longhaul.check, TWO_SITES)
    raises(longhaul.InvalidError, longhaul.plan, JOB, target="none")
    error = raises(longhaul.InvalidError, longhaul.plan, JOB, top=-1)
    check("top: -1" in str(error), f"{error}")
    raises(longhaul.InvalidError, longhaul.plan, JOB, threads=2**32)
    raises(longhaul.InvalidError, longhaul.simulate, TWO_SITES + "\0x")
    raises(longhaul.FileError, longhaul.check, TWO_SITES, "1f1b",
           certificate=WORK / "none.cert")
    raises(longhaul.InvalidError, longhaul.simulate, TWO_SITES, "1f1b\0x")
    raises(longhaul.InvalidError, longhaul.plan, JOB, search="none")
    raises(longhaul.InvalidError, longhaul.export, TWO_SITES, "megatron")
    raises(longhaul.InvalidError, longhaul.compare, TWO_SITES, by="none")
    raises(longhaul.InvalidError, longhaul.Delays().struct)
    made = longhaul.schedule(TWO_SITES, "1f1b")
    raises(dataclasses.FrozenInstanceError, setattr, made, "method", "x")
    lost = "\n".join(made.csv().splitlines()[:-1] + ["3F0"]) + "\n"
    verdict = longhaul.check(TWO_SITES, lost)
    check(not verdict and verdict.violations, f"{verdict}")
    raises(longhaul.InfeasibleError, longhaul.simulate, TWO_SITES, lost)
    small = JOB.replace("gpu: h100-sxm", "gpu: {tflops: 1, memory_gib: 1, "
                        "memory_gbps: 1}")
    raises(longhaul.InfeasibleError, longhaul.plan, small, **LITTLE)


# --- pictures and frames -----------------------------------------------------


@test
def timelines_are_pictures():
    plan = longhaul.plan(JOB, **LITTLE)
    for shown in (longhaul.simulate(TWO_SITES, "zb-h1"), plan,
                  longhaul.schedule(TWO_SITES, "1f1b")):
        svg = xml.etree.ElementTree.fromstring(shown._repr_html_())
        check(svg.tag.endswith("svg"), f"{svg.tag}")
    simulated = plan.simulate()
    check("traceEvents" in json.loads(simulated.trace()), "a trace")
    check(len(simulated.text(60).splitlines()) >= plan.layout.pipeline, "rows")
    rows = simulated.passes()
    check(abs(max(row["end_s"] for row in rows) - simulated.makespan_s) <=
          simulated.makespan_s and all(r["end_s"] > r["start_s"] for r in rows),
          "passes within the iteration")


@test
def results_are_frames():
    if not importlib.util.find_spec("pandas"):
        print("SKIPPED: no pandas; that results are frames is not tested",
              file=sys.stderr)
        return
    simulated = longhaul.simulate(TWO_SITES, "1f1b")
    frame = simulated.frame()
    check(len(frame) == len(simulated.passes()) and "start_s" in frame.columns,
          f"{frame.columns}")
    compared = longhaul.compare(TWO_SITES, methods=["1f1b", "zb-h1"])
    check(list(compared.frame()["method"]) == [r.method for r in compared.rows],
          "rows")
    plan = longhaul.plan(JOB, **LITTLE)
    check(len(plan.frame()) == 1 + len(plan.alternatives), "alternatives")


SHOWN = """
import sys, time, longhaul
begin = time.monotonic()
longhaul.plan(sys.argv[1], effort=3000, progress=True)
print(time.monotonic() - begin)
"""


@test
def bars_are_drawn_ten_times_a_second():
    if not importlib.util.find_spec("tqdm"):
        print("SKIPPED: no tqdm; progress is not tested", file=sys.stderr)
        return
    done = subprocess.run(
        [sys.executable, "-c", SHOWN,
         ROOT / "examples/tiny-llama-cpu.yaml"], text=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, check=True)
    drawn = done.stderr.count("planning")
    check(0 < drawn <= 10 * float(done.stdout) + 4,
          f"{drawn} times in {done.stdout} s")


# --- threads and interrupts --------------------------------------------------


@test
def many_plans_in_threads_are_one():
    def work(i):
        if i % 4 == 0:
            return longhaul.schedule(shared, "auto").csv()
        return longhaul.plan(JOB, quick=True, threads=1, **LITTLE).json()

    shared = longhaul.plan(JOB, quick=True, threads=1, **LITTLE)
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        done = list(pool.map(work, range(
            80 if harness.has_few_cases() else 1000)))
    check(len(set(done[0::4])) == 1, "schedules differ")
    check({text for i, text in enumerate(done) if i % 4} == {shared.json()},
          "plans differ")


class Memory(ctypes.Structure):
    """struct mallinfo2 of glibc."""
    _fields_ = [(name, ctypes.c_size_t) for name in (
        "arena", "ordblks", "smblks", "hblks", "hblkhd", "usmblks", "fsmblks",
        "uordblks", "fordblks", "keepcost")]


def used_bytes():
    """Returns the allocated bytes as counted by the C library."""
    count = ctypes.CDLL(None).mallinfo2
    count.restype = Memory
    gc.collect()
    now = count()
    return now.uordblks + now.hblkhd


def all_kinds_of_calls():
    plan = longhaul.plan(JOB, quick=True, threads=1, **LITTLE)
    again = longhaul.read_plan(plan.json())
    again.simulate(jitter=longhaul.Jitter(latency=0.1, samples=5)).svg()
    again.check()
    again.compare(methods=["1f1b", "zb-h1"])
    again.export("chrome")
    plan.what_if(latency_ms=40)
    made = longhaul.schedule(TWO_SITES, "greedy")
    made.check()
    longhaul.simulate(TWO_SITES, made.csv()).passes()
    for wrong in (JOB.replace("sequence:", "sequenc:"), {"longhaul": "job/1"},
                  JOB.replace("nodes: 2}]", "nodes: -2}]")):
        raises(longhaul.InputError, longhaul.plan, wrong)
    raises(longhaul.UnsupportedError, longhaul.simulate, TWO_SITES, "zb-v")


@test
def calls_leave_no_memory_behind():
    """A leaked verdict alone would add 4 KB per call."""
    if not hasattr(ctypes.CDLL(None), "mallinfo2"):
        print("SKIPPED: this C library does not count; leaks are not looked "
              "for", file=sys.stderr)
        return
    for _ in range(3):  # one-time allocations of Python and the library
        all_kinds_of_calls()
    before = used_bytes()
    for _ in range(10):
        all_kinds_of_calls()
    left = used_bytes() - before
    check(left < 30_000, f"{left} bytes are left after ten rounds")


INTERRUPTED = """
import sys, threading, longhaul
before = threading.active_count()
for _ in range(2):
    print("begun", flush=True)
    try:
        {call}
    except KeyboardInterrupt:
        print("interrupted", flush=True)
print(longhaul.simulate(sys.argv[1], "1f1b").schedule, flush=True)
print(threading.active_count() - before, flush=True)
"""


def interrupted(call, path):
    process = subprocess.Popen(
        [sys.executable, "-c", INTERRUPTED.format(call=call), path],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        for _ in range(2):
            check(harness.read_line(process.stdout, process) == "begun\n",
                  f"{call}: begun")
            # Interrupts during the search, after it has used processor time.
            until = harness.worked(process) + 0.3
            harness.until(lambda: harness.worked(process) > until, process)
            process.send_signal(signal.SIGINT)
            check(harness.read_line(process.stdout, process) ==
                  "interrupted\n", f"{call}: int")
        out, err = process.communicate(timeout=HANGS)
        check(out == "1f1b\n0\n" and process.returncode == 0,
              f"{call}: {out!r} {err}")
    finally:
        process.kill()
        process.wait()


@test
def interrupts_end_searches():
    (WORK / "job.yaml").write_text(
        (ROOT / "examples/llama3-70b-two-sites.yaml").read_text())
    interrupted("longhaul.plan('job.yaml', time_s=3000)".replace(
        "job.yaml", str(WORK / "job.yaml")), TWO_SITES)
    large = uniform("large.yaml", devices=16, microbatches=64, sites=4,
                    placement="loop", chunks=2, times=(13, 11, 7), latency=17,
                    transfer=3, limit=40)
    interrupted(f"longhaul.schedule('{WORK / large}', 'optimal')", TWO_SITES)


@test
def annotations_mean_something():
    for name in longhaul.__all__:
        thing = getattr(longhaul, name)
        if inspect.isfunction(thing):
            check(typing.get_type_hints(thing), f"{name} has no types")


@test
def little_is_imported_at_first():
    """Nothing outside the standard library, and none of its large packages."""
    code = ("import sys; before = set(sys.modules); import longhaul; "
            "print(*sorted(set(sys.modules) - before))")
    seen = subprocess.run([sys.executable, "-c", code], text=True, check=True,
                          stdout=subprocess.PIPE).stdout.split()
    packages = {name.partition(".")[0] for name in seen}
    others = packages - sys.stdlib_module_names
    check(others <= {"longhaul", "_cffi_backend"}, f"{others}")
    large = {"asyncio", "concurrent", "email", "http", "logging",
             "multiprocessing", "sqlite3", "unittest", "xml"}
    check(not large & packages, f"{large & packages}")
    check(len(seen) < 150, f"{len(seen)} modules")


os.environ.pop("PYTHONSAFEPATH", None)
harness.finish()
