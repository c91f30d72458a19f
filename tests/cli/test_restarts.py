#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs that lose ranks and restart with the state in memory or from their last
checkpoint. Their weights and losses are those of an undisturbed run."""
import json
import re
import shutil
import signal

from harness import (
    ANY,
    HANGS,
    ROOT,
    VIRTUAL,
    WORK,
    case,
    check,
    finish,
    has_few_cases,
    json_case,
    long_test,
    read,
    run,
    test,
    uniform,
    until,
    write,
)
from restarted import (
    RANKS,
    TRAIN,
    begin,
    check_same,
    children,
    disturbed,
    has_saved,
    losses,
    make_four_replicas,
    make_plan,
    prepare,
    ranks_after_checkpoint,
    send,
    write_kills,
)


@test
def one_of_eight_ranks_is_killed():
    prepare()
    write_kills({5: 52})
    shutil.rmtree(WORK / "run", ignore_errors=True)
    found = json_case("a rank", [
        *TRAIN, "--checkpoint", "run", "--max-restarts", "3", "--events",
        "events.yaml", "--adapt", "--html", "run.html"], program=VIRTUAL,
        err=r"rank 5: killed by an event; all ranks restart "
            r"\(restart 1 of at most 3\)(.|\n)*"
            r"restart 1 continues at step 52, with the state in memory")
    check(found["restarts"] == [{"step": 52, "repeated": 0}] and
          re.search(r">restart(, [\w-]+)?</text>", read("run.html")),
          found["restarts"])
    check_same(found, "a rank")
    check(found["decisions"], "measures again")


@test
def a_rate_stays_overridden_after_the_schedule():
    """A rank is lost after the end of the schedule that the run inherits."""
    make_plan()
    train = [*TRAIN[:6], "--ranks", "local"]
    case("first", [*train, "--rate", "1e-2", "--steps", "6", "--checkpoint",
                   "first", "--checkpoint-every", "4"], out=ANY)
    write_kills({3: 10})
    found = json_case("resumed", [
        *train, "--steps", "12", "--rate", "2e-2", "--min-rate", "1e-3",
        "--override", "rate,min-rate", "--resume", "first/step-00000004",
        "--checkpoint", "run", "--checkpoint-every", "2", "--events",
        "events.yaml", "--max-restarts", "1"], err=ANY)
    check(len(found.get("restarts", [])) == 1 and
          [one["rate"] for one in found["iterations"][-4:]] == [1e-3] * 4,
          f"{found}")


@test
def a_replica_is_lost():
    """Events end its ranks, which are threads in virtual time. The schedule is
    again that of the step in which they ended. Another rank pauses."""
    prepare()
    write_kills(dict.fromkeys(range(4), 52),
                "  - {at: 80, rank: 6, process: stopped, pause: 0.05}\n")
    shutil.rmtree(WORK / "run", ignore_errors=True)
    found = json_case("a replica", [
        *TRAIN, "--checkpoint", "run", "--max-restarts", "4", "--events",
        "events.yaml", "--schedule-at", "2=gpipe;70=1f1b"], program=VIRTUAL,
        err="killed by an event; all ranks restart ")
    check_same(found, "a replica")
    check(found["restarts"] and {one["step"] for one in found["restarts"]} == {52},
          found["restarts"])
    check([(one["step"], one["to"]) for one in found["switches"]] == [
        (2, "gpipe"), (52, "zb-h1"), (52, "gpipe"), (70, "1f1b")],
          found["switches"])
    check(found["iterations"][80]["slow"] == ["rank 6 stopped"] and
          found["iterations"][80]["seconds"] > 0.05, found["iterations"][80])


@test
def layers_moved_before_a_loss():
    """The state in memory is that of other layers than those with which the run
    begins again, so the checkpoint is read."""
    make_four_replicas()
    write_kills({6: 12})
    train = ["train", "two.json", *TRAIN[2:], "--steps", "15"]
    calm = json_case("undisturbed", [*train, "--checkpoint", "stayed"])
    found = json_case("moved", [
        *train, "--checkpoint", "moved", "--max-restarts", "1", "--events",
        "events.yaml", "--layers-at", "8=3,1"], program=VIRTUAL,
        err="restart 1 continues at step 10, with the state in the checkpoint")
    check([(one["step"], one["moved"]["layers"]) for one in found["switches"]
           if one["moved"]] == [(8, [3, 1]), (10, [3, 1])], found["switches"])
    check(found["restarts"] == [{"step": 10, "repeated": 2}] and
          losses(found) == losses(calm), found["restarts"])


@test
def each_layout_continues_with_the_state_in_memory():
    make_plan()
    layouts = {
        "elastic": ("chunks_per_device: 1}",
                    "chunks_per_device: 1, schedule: elastic}"),
        "experts": ("tied_embeddings: true}", "experts: 4, experts_per_token: 2,"
                    " expert_ffn: 12}"),
        "zero": ("zero: 1", "zero: 3"),
        "tensor": ("tensor: 1, context: 1, expert: 1, pipeline: 4",
                   "tensor: 2, context: 1, expert: 1, pipeline: 2"),
        "context": ("tensor: 1, context: 1, expert: 1, pipeline: 4",
                    "tensor: 1, context: 2, expert: 1, pipeline: 2"),
    }
    write_kills({3: 4})
    for name in layouts:
        job = read("job.yaml").replace(*layouts[name])
        check(job != read("job.yaml"), name)
        if name == "experts":
            job = job.replace("expert: 1", "expert: 2")
        write("other.yaml", job)
        case(name, ["plan", "other.yaml", "-o", "other.json", "--for",
                    "longhaul"], out=ANY)
        train = ["train", "other.json", "--device", "cpu", "--data", "text",
                 "--rate", "1e-2", "--steps", "7", "--max-restarts", "1",
                 "--checkpoint"]
        json_case(name, [*train, f"{name}-1"], program=VIRTUAL)
        found = json_case(
            name, [*train, f"{name}-2", "--events", "events.yaml"],
            program=VIRTUAL, err="continues at step 4, with the state in memory")
        check(found["restarts"] == [{"step": 4, "repeated": 0}],
              f"{name}: {found['restarts']}")
        for part in "model.safetensors", "optimizer.safetensors":
            one, two = (WORK / f"{name}-{i}/step-00000007" / part
                        for i in (1, 2))
            check(one.read_bytes() == two.read_bytes(), f"{name}: {part}")


@test
def hosts_exchanged_before_a_loss():
    """Each rank receives its state from the host that had its place."""
    prepare()
    write_kills({6: 52})
    shutil.rmtree(WORK / "run", ignore_errors=True)
    found = json_case("exchanged", [
        *TRAIN, "--checkpoint", "run", "--max-restarts", "1", "--events",
        "events.yaml", "--places-at", "20=1,0,2,3,4,5,6,7"], program=VIRTUAL,
        err="restart 1 continues at step 52, with the state in memory")
    check([one["step"] for one in found["switches"] if one["moved"]] == [20, 52],
          found["switches"])
    check_same(found, "exchanged")


@long_test
def restarts_are_printed():
    prepare()
    for _ in range(5):
        shutil.rmtree(WORK / "run", ignore_errors=True)
        process = begin("--ranks", "local", "--max-restarts", "1", form=())
        send(signal.SIGKILL, ranks_after_checkpoint(process)[:1])
        out, err = process.communicate(timeout=HANGS)
        if process.returncode or "\nrestarts " in out:
            break
    check("\nrestarts      1, with " in out and " repeated\n" in out, out + err)


@long_test
def a_rank_is_stopped():
    prepare()
    found, err = disturbed(signal.SIGSTOP, 6, "--silence", "3s")
    check("rank 6: silent for " in err, err)
    check_same(found, "a stopped rank")


@test
def a_bad_day_on_eight_ranks():
    """A slow link, a lost interface, a slow host, killed ranks, a paused one.
    Each iteration runs once, under the conditions of the events. After a restart
    the run chooses a schedule for the slow link again."""
    day = ["train", ROOT / "examples/adaptra-8-stages.yaml", "-s", "zb-h2",
           "--speed", "100", "--message-bytes", "64", "--events",
           ROOT / "examples/bad-day.yaml", "--adapt", "--max-restarts", "2",
           "--steps", "120", "--html", "day.html"]
    for seed in range(1, 2 if has_few_cases() else 4):
        found = json_case(
            "bad day", day, program=VIRTUAL, env={"VIRTUAL_SEED": str(seed)},
            err="rank 5: killed by an event(.|\n)*restart 1 continues at step 35\n"
                "(.|\n)*rank 0: killed by an event(.|\n)*"
                "restart 2 continues at step 100\n")
        steps = found["iterations"]
        check([one["step"] for one in steps] == list(range(120)),
              "all iterations")
        check(found["restarts"] == [{"step": 35, "repeated": 0},
                                    {"step": 100, "repeated": 0}],
              found["restarts"])
        check({i: steps[i]["slow"] for i in (19, 35, 55, 80, 100)} == {
            19: [], 35: ["2-3", "rank 5 killed"], 55: ["rail of rank 3"],
            80: ["device 4", "rank 1 stopped"], 100: ["rank 0 killed"]}, "events")
        check(0.2 < steps[80]["seconds"] < 0.22, f"the pause: {steps[80]}")
        # The clock is the virtual one; restarts cost time outside of iterations.
        check(1 < found["elapsed_s"] / found["total_s"] < 1.5,
              (found["elapsed_s"], found["total_s"]))
        check([(one["what"], one["change"], one["step"])
               for one in found["noticed"]] ==
              [("link", "begins", 21)] * 2 + [("link", "recovers", 46)] * 2 +
              [("device", "begins", 71), ("device", "ends", 91)],
              found["noticed"])
        check("takes only 0 us, instead of 600 us when the run or its last "
              "restart began" in found["noticed"][2]["text"], found["noticed"])
        before, back, after, end = [(one["step"], one["to"])
                                    for one in found["switches"]]
        check(before[0] < 35 < after[0] < 45 and before[1] == after[1] == "slack"
              and (back, end) == ((35, "zb-h2"), (100, "zb-h2")),
              found["switches"])
        check(steps[34]["seconds"] == steps[44]["seconds"] <
              steps[after[0] - 1]["seconds"], "time with the slow link")
    page = read("day.html")
    check(page.count(">restart, zb-h2</text>") == 2 and "rank 1 stopped" in page and
          "2, with 0 iterations repeated" in page and
          "(median with the last schedule)" in page, "page")


@test
def layers_leave_a_host_with_two_ranks():
    """With two replicas of four stages, a lost rank whose replacement shares a
    host costs little more than its share, 7/8, of the throughput."""
    uniform("four.yaml", devices=4, microbatches=8, times=(80, 80, 80),
            memory="{F: 1, W: -1}")
    write("shared.yaml", """
        longhaul: events/1
        events:
          - {at: 30, rank: 1, process: killed}
          - {from: 30, to: 1000, device: 1, slower: x2}
        """)
    calm = json_case("undisturbed", ["simulate", "four.yaml", "-s", "slack"])
    found = json_case("shared", [
        "train", "four.yaml", "-s", "slack", "--speed", "100",
        "--message-bytes", "64", "--adapt", "--moving", "100ms", "--layers",
        "16,16,16,16", "--steps", "60", "--events", "shared.yaml",
        "--max-restarts", "1"], program=VIRTUAL,
        err="rank 1: killed by an event(.|\n)*restart 1 continues at step 30")
    move, = found["switches"]
    last = found["iterations"][59]["seconds"]
    check(move["moved"]["layers"][1] < 16 and
          sum(move["moved"]["layers"]) == 64 and
          calm["makespan_s"] / 100 / last > 0.9 * 7 / 8, (move, last))


@test
def a_lost_rank_leaves_seven_eighths():
    """With four replicas of two stages, and with eight of one, the others run a
    lost rank's microbatches with at least 90 % of 7/8 of the throughput."""
    write("lost.yaml", """
        longhaul: events/1
        events: [{at: 3, rank: 2, process: lost}]
        """)
    for copies, microbatches in (4, 16), (8, 4):
        write("copies.yaml", f"""
            longhaul: pipeline/1
            time_unit: ms
            microbatches: {microbatches}
            devices: 8
            copies: {copies}
            uniform: {{F: 80, D: 80, W: 80, memory: {{F: 1, W: -1}}}}
            """)
        calm = json_case("undisturbed", ["simulate", "copies.yaml", "-s", "auto"])
        found = json_case("lost", [
            "train", "copies.yaml", "-s", "auto", "--speed", "100",
            "--message-bytes", "64", "--steps", "6", "--events", "lost.yaml",
            "--max-restarts", "1"], program=VIRTUAL,
            err="rank 2: lost by an event; all ranks restart (.|\n)*"
                "rank 2 is lost, and other ranks run its microbatches(.|\n)*"
                "restart 1 continues at step 3")
        check([one["step"] for one in found["iterations"]] == list(range(6)),
              found["iterations"])
        before, after = (found["iterations"][i]["seconds"] for i in (2, 5))
        check(abs(before - calm["makespan_s"] / 100) < 0.01 * before, before)
        check(before / after > 0.9 * 7 / 8, (copies, before / after))


@test
def a_lost_rank_trains_on_other_ranks():
    """The weights are those of any run from which the rank is lost in that step,
    threads or processes, restarted or resumed."""
    make_four_replicas()
    train = ["train", "two.json", *TRAIN[2:], "--max-restarts", "1",
             "--checkpoint-every", "4", "--steps", "8"]
    write("events.yaml", """
        longhaul: events/1
        events: [{at: 4, rank: 4, process: lost}]
        """)
    calm = json_case("undisturbed", [*train, "--checkpoint", "calm"])
    lost = ["--events", "events.yaml", "--checkpoint"]
    says = "rank 4 is lost, and other ranks run its microbatches: "
    # With long latencies, adding the gradients takes half of an iteration.
    write("far.yaml", read("two.yaml").replace("latency_us: 10}",
                                               "latency_us: 5000}"))
    case("far", ["plan", "far.yaml", "-o", "far.json"], out=ANY)
    done = run("train", "far.json", *train[2:], *lost, "threads", "--json",
               program=VIRTUAL)
    check(re.search(f"{says}(.|\n)*restart 1 continues at step 4", done.stderr),
          done.stderr)
    found = json.loads(done.stdout)
    # The last pair of times assumes a processor for each rank, as the plan does.
    after, before = (float(number) * {"us": 1e-6, "ms": 1e-3, "s": 1}[unit]
                     for number, unit in re.findall(
                         r"([\d.]+) (\w*s)\b", re.findall(
                             r"[\d.]+ \w+ in place of [\d.]+ \w+",
                             done.stderr)[-1]))
    plan = json.loads(read("far.json"))
    check(abs(before / plan["iteration_s"] - 1) < 1e-3, (before, plan))
    # Seven hosts do the work of eight, and then add the replicas' gradients.
    pipeline = plan["pipeline"]
    work = sum(c[kind] for c in pipeline["chunks"] for kind in "FDW")
    adding = min(c["all_gather"] + c["reduce_scatter"] + c["latency"]
                 for c in pipeline["data_parallel"])
    least = (work * plan["microbatches"] * 4 / 7 + adding +
             plan["optimizer_ns"] + plan["overhead_ns"]) / 1e9
    check(after > max(before, least), (after, before, least))
    check(found["restarts"] == [{"step": 4, "repeated": 0}], found["restarts"])
    json_case("processes", [*train, *lost, "processes", "--ranks", "local"],
              err=r"rank 4: killed by signal 9 \(Killed\); all ranks restart "
                  rf"\(restart 1 of at most 1\)(.|\n)*{says}")
    json_case("adapts", [*train, *lost, "adapts", "--adapt"], program=VIRTUAL,
              err=f"{says}.*; the schedule does not change before the rank is "
                  "back")
    json_case("moves", [*train, *lost, "moves", "--adapt", "--moving", "1ms"],
              program=VIRTUAL, err="its replacement runs all of its "
              "microbatches: other ranks cannot share them in a run with moves of "
              "layers or hosts")
    write("both.yaml", read("events.yaml").replace(
        "lost}", "lost}, {at: 6, rank: 2, process: lost}"))
    json_case("two", [*train[:-4], "--max-restarts", "2", "--steps", "8",
                      "--checkpoint", "two", "--events", "both.yaml"],
              program=VIRTUAL, err=f"{says}(.|\n)*2 ranks are lost: their "
              "replacements run all of their microbatches")
    shutil.copytree(WORK / "calm/step-00000004", WORK / "first/step-00000004")
    json_case("resumed", [*train, *lost, "resumed", "--resume", "first"],
              program=VIRTUAL, err=says)
    for part in "model.safetensors", "optimizer.safetensors":
        one, *others = ((WORK / f"{name}/step-00000008" / part).read_bytes()
                        for name in ("threads", "processes", "resumed", "adapts",
                                     "calm"))
        check([one == other for other in others] == [True, True, True, False],
              part)
    check(losses(found)[:4] == losses(calm)[:4] and
          all(abs(a - b) < 1e-5 * b for a, b in
              zip(losses(found), losses(calm), strict=True)),
          (losses(found), losses(calm)))


@test
def results_of_a_run_that_lost_a_rank():
    """The report and the picture are written; that the trace is not, is an
    error, since other ranks ran passes of the lost rank in the last iteration."""
    make_four_replicas()
    write("events.yaml", """
        longhaul: events/1
        events: [{at: 2, rank: 4, process: lost}]
        """)
    files = ["--html", "lost.html", "--svg", "lost.svg", "--json"]
    lost = ["train", "two.json", *TRAIN[2:], "--max-restarts", "1", "--steps",
            "4", "--events", "events.yaml", "--fresh", "--checkpoint", "lost"]
    done = case("report", [*lost, *files], program=VIRTUAL, out='"restarts"',
                err="rank 4 is lost, and other ranks run its microbatches: ")
    check(all(after != before for after, before in re.findall(
        r"(\S+ \w+) in place of (\S+ \w+)", done.stderr)), done.stderr)
    check('"passes of the last iteration","not recorded"' in read("lost.html") and
          "<svg" in read("lost.svg"), "files")
    case("trace", [*lost, "--trace", "lost.json", "-q", "--memory", "report"], 1,
         program=VIRTUAL, out="memory +not recorded\n",
         err=r"lost\.json: not written: the passes of the last iteration are not "
             "recorded, because other ranks ran a lost rank's microbatches")
    check(not (WORK / "lost.json").exists(), "no trace")


@test
def a_rank_that_is_lost_again_is_named():
    uniform("pair.yaml", devices=2, microbatches=2, times=(1, 1, 1))
    write("again.yaml", """
        longhaul: events/1
        events:
          - {at: 2, rank: 0, process: killed}
          - {at: 3, rank: 1, process: killed}
          - {at: 5, rank: 1, process: killed}
        """)
    train = ["train", "pair.yaml", "--steps", "8", "--events", "again.yaml",
             "--max-restarts"]
    case("three", [*train, "3"], out=ANY, program=VIRTUAL,
         err=r"rank 1: (.|\n)*; all ranks restart \(restart 2 of at most 3\)\n"
             r"(.|\n)*\(restart 3 of at most 3\); rank 1 was lost 2 times in "
             "succession: check its host\n")
    case("two", [*train, "2"], code=1, program=VIRTUAL,
         err=r"all restarts are used up \(--max-restarts 2\); rank 1 was lost 2 "
             "times in succession: check its host")


@test
def process_events_need_restarts():
    events = ["--events", ROOT / "examples/bad-day.yaml"]
    pipeline = ROOT / "examples/adaptra-8-stages.yaml"
    case("no restarts", ["train", pipeline, "--ranks", "local", *events], 1,
         err="which ends a run that does not restart: .*--max-restarts")
    write("nine.yaml", """
        longhaul: events/1
        events: [{at: 5, rank: 8, process: killed}]
        """)
    case("no rank", ["train", pipeline, "--ranks", "local", "--max-restarts",
                     "1", "--events", "nine.yaml"], 1,
         err=r"the event in line \d+: there is no rank 8; the run has 0 to 7")
    case("simulated", ["simulate", pipeline, *events, "--steps", "9"], 1,
         err="process: the events kill or stop rank 5's process at step 35")


@long_test
def a_rank_is_killed_too_often():
    prepare()
    process = begin("--ranks", "local", "--max-restarts", "1", "--steps",
                    "10000000")
    check(until(has_saved, process), "it has begun")
    first = children(process.pid)
    send(signal.SIGKILL, first[1:2])
    until(lambda: len(set(children(process.pid)) - set(first)) == RANKS,
          process)
    send(signal.SIGKILL, children(process.pid)[1:2])
    out, err = process.communicate(timeout=HANGS)
    check(process.returncode == 1 and out == "" and
          err.count("(restart 1 of at most 1)") == 1 and
          "\nlonghaul: rank 1: killed by signal 9 (Killed); all restarts are "
          "used up (--max-restarts 1); rank 1 was lost 2 times in succession: "
          "check its host; the last checkpoint is step " in err, err)


@test
def other_runs_cannot_restart():
    prepare()
    restarts = ["--checkpoint", "run", "--max-restarts", "1"]
    case("nothing to restart from", [
        *TRAIN[:-2], "--max-restarts", "1", "--ranks", "local"], 2,
         err="--max-restarts requires --checkpoint")
    case("profile", [
        *TRAIN, *restarts, "--ranks", "local", "--profile-out", "p.json"], 2,
         err="--max-restarts cannot be combined with --profile-out")


make_plan()
probe = run(*TRAIN, "--checkpoint", "probe", "--steps", "1")
if "OpenBLAS" in probe.stderr:
    print("SKIPPED: OpenBLAS is not installed; restarts are not tested")
else:
    finish()
