#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checkpoint folders: locks, stale files of killed runs, resuming from damaged
checkpoints.
"""
import json
import os
import re
import resource
import shutil
import signal
import socket
import subprocess
import time

from checkpointed import (LOCK, arguments, begin, checkpoints, damage, end,
                          finish_if_trained, prepare, sealed, train)
from harness import (ANY, ENVIRONMENT, HANGS, PROGRAM, ROOT, WORK, case, check,
                     children, json_case, makes, read, run, test, until,
                     until_blocked, write)
from input_files import TWO_SITES


# --- one run at a time -------------------------------------------------------
@test
def a_second_run_is_rejected_by_name():
    prepare()
    for transport in ("inproc", "local"):
        first = begin("--checkpoint-every", "1", "--transport", transport,
                      "--fresh")
        lock = json.loads(read(f"run/{LOCK}"))
        check(lock["host"] == socket.gethostname() and
              os.path.exists(f"/proc/{lock['process']}"), lock)
        check(transport == "local" or lock["process"] == first.pid, lock)
        second = case("the second run", arguments(3, "--checkpoint", "run"), 1,
                      err=rf"\Alonghaul: rank 0: run/{LOCK}: the folder is in "
                          rf"use by process {lock['process']} on "
                          rf"{lock['host']} since 20\d\d-[^\n]*another "
                          rf"folder\n\Z")
        check(second.stdout == "", "and has done nothing")
        # Reading requires no lock.
        case("resuming elsewhere", arguments(
            1, "--resume", "run", "--checkpoint", "other"), out=ANY, err=ANY)
        out, err = end(first, signal.SIGINT)
        check(first.returncode == 1 and "iterations" in out, (out, err))
        check(LOCK not in checkpoints() and
              not [n for n in checkpoints() if n.startswith(".")],
              f"the lock goes with the run: {checkpoints()}")
        case("a run after it", arguments(2, "--checkpoint", "run", "--fresh"),
             out=ANY)


@test
def one_of_several_simultaneous_runs_starts():
    """Of simultaneous starts one trains; all others are rejected, also later
    ones."""
    prepare()
    for turn in range(12):
        shutil.rmtree(WORK / "run", ignore_errors=True)
        if turn % 3 == 2:  # a stale lock
            (WORK / "run").mkdir()
            (WORK / "run" / LOCK).write_text(json.dumps(stale()))
        all_of_them = [subprocess.Popen(
            [PROGRAM, *arguments(4, "--checkpoint", "run", "--checkpoint-every",
                                 "1")], cwd=WORK, env=ENVIRONMENT,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
            for _ in range(3)]
        ended = [(p.communicate(timeout=HANGS), p.returncode)
                 for p in all_of_them]
        good = [e for e in ended if e[1] == 0]
        bad = [e for e in ended if e[1] != 0]
        check(len(good) == 1 and
              all("in use by process" in e[0][1] or
                  "run: belongs to the run " in e[0][1] for e in bad), ended)
        check(checkpoints() == ["step-00000003", "step-00000004"],
              checkpoints())
        case("what is there is whole", arguments(4, "--resume", "run"),
             out=r"the checkpoint already has --steps iterations \(4\)")


def stale():
    """Writes the lock of a process that no longer exists."""
    gone = subprocess.run(["true"], check=True) and subprocess.Popen(["true"])
    gone.wait()
    return {"longhaul": "lock/1", "host": socket.gethostname(),
            "process": gone.pid, "started": 1, "flock": True,
            "machine": text_of("/etc/machine-id"),
            "boot": text_of("/proc/sys/kernel/random/boot_id"),
            "space": os.stat("/proc/self/ns/pid").st_ino,
            "since": "2026-01-02T03:04:05Z", "token": "t"}


def text_of(path):
    try:
        with open(path, encoding="ascii") as file:
            return file.read().strip()
    except OSError:
        return ""


@test
def a_stale_lock_is_taken_over_with_a_remark():
    prepare()
    (WORK / "run").mkdir()
    taken = r"was in use by process \d+ on [^\n]* since 2026-01-02T03:04:05Z, " \
            r"which has ended; [^\n]*removed\n"
    for name, change in [
            ("its process is gone", {}),
            ("without flock", {"flock": False}),
            ("its number is another's", {"process": os.getpid()}),
            ("the machine was restarted", {"boot": "another"}),
            ("in a container of this kernel", {"space": 1})]:
        lock = {**stale(), **change}
        if "boot" in change and not lock["machine"]:
            continue
        write(f"run/{LOCK}", json.dumps(lock))
        case(name, arguments(1, "--checkpoint", "run", "--fresh"),
             out=ANY,
             err=rf"\Alonghaul: run: {taken}\Z")
        check(LOCK not in checkpoints(), f"{name}: {checkpoints()}")
    for name, change, why in [
            ("another host", {"host": "far", "boot": "b", "machine": "m"},
             r"process \d+ on far since [^\n]*cannot be checked from this "
             r"machine; if it has ended, remove this file"),
            ("another host of the same name", {"boot": "b", "machine": "m"},
             "cannot be checked from this machine"),
            ("a container that has no flock", {"space": 1, "flock": False},
             "cannot be checked from this machine"),
            ("a process that runs", {"process": os.getpid(), "started": int(
                text_of("/proc/self/stat").rpartition(")")[2].split()[19])},
             f"in use by process {os.getpid()}"),
            ("another form", {"longhaul": "lock/2"},
             "is not a lock file of longhaul"),
            ("a number that cannot be", {"process": -1},
             "is not a lock file of"),
            ("letters that terminals obey", {"host": "\x1b[2J"},
             "is not a lock file of")]:
        before = json.dumps({**stale(), **change})
        write(f"run/{LOCK}", before)
        case(name, arguments(1, "--checkpoint", "run"), 1, err=why)
        check(read(f"run/{LOCK}") == before, f"{name}: it stays")
    for text in ("", "{", "x" * 5000):
        write(f"run/{LOCK}", text)
        case("no lock", arguments(1, "--checkpoint", "run"), 1,
             err=f"run/{LOCK}: is not a lock file of longhaul, or is damaged; "
                 "remove")


@test
def a_folder_whose_lock_was_replaced_is_not_written():
    prepare()
    first = begin("--checkpoint-every", "1")
    write(f"run/{LOCK}.other", json.dumps(stale()))
    os.replace(WORK / f"run/{LOCK}.other", WORK / f"run/{LOCK}")
    out, err = first.communicate(timeout=HANGS)
    check(first.returncode == 1 and "replaced this run's lock; no checkpoint "
          "was written" in err and out == "", (out, err))
    check(json.loads(read(f"run/{LOCK}"))["token"] == "t", "it is the other's")


@test
def a_folder_that_is_removed_is_made_again():
    prepare()
    first = begin()
    shutil.rmtree(WORK / "run")
    end(first, signal.SIGINT)
    check(len(checkpoints()) == 1 and checkpoints()[0].startswith("step-"),
          checkpoints())


@test
def a_folder_that_nothing_was_written_to_goes_again():
    prepare()
    case("no such checkpoint", arguments(
        1, "--checkpoint", "run/deep", "--resume", "nowhere"), 1, err="nowhere")
    check(not (WORK / "run/deep").exists(), "it was made for nothing")


@test
def a_run_stopped_at_once_reports_that_no_checkpoint_was_written():
    """The second iteration waits for messages of ten minutes, so that it cannot
    end between two signals."""
    prepare()
    write("far.yaml", TWO_SITES % 8)
    write("e.yaml", """
        longhaul: events/1
        time_unit: s
        events: [{from: 1, to: 99, links: [west-east], latency: 600}]
        """)
    case("a plan", ["plan", "far.yaml", "-o", "far.json", "--no-optimal"],
         out=ANY)
    for transport in ("inproc", "local"):
        shutil.rmtree(WORK / "run", ignore_errors=True)
        log, said = WORK / "far.jsonl", WORK / "far.said"
        log.unlink(missing_ok=True)
        process = subprocess.Popen(
            [PROGRAM, "train", "far.json", "--device", "cpu", "--data", "text",
             "--steps", "99", "--checkpoint", "run", "--events", "e.yaml",
             "--transport", transport, "--log", log.name], cwd=WORK,
            env=ENVIRONMENT, stdout=subprocess.PIPE, stderr=said.open("w"),
            text=True, start_new_session=True)
        check(until(lambda: log.exists() and log.read_text(), process) and
              until_blocked(process), "in the second iteration")
        process.send_signal(signal.SIGINT)
        check(until(lambda: "stopping" in said.read_text(), process), "stops")
        time.sleep(0.25)  # closer signals count as one
        process.send_signal(signal.SIGINT)
        out = process.communicate(timeout=HANGS)[0]
        err = " ".join(said.read_text().split())
        check(process.returncode == 1 and "interrupted" in out, (out, err))
        check("stopped at once: no checkpoint of the last iteration was "
              "written" in err, f"{transport}: {err}")
        check(not (WORK / "run").exists(), "there was none to keep")
    _, err = end(begin(), signal.SIGINT)
    check("no checkpoint" not in err, f"one signal: {err}")


# --- stale files of killed runs -----------------------------------------------
@test
def stale_files_of_killed_runs_are_removed():
    prepare()
    kept = {}
    for transport in ("inproc", "local", "inproc"):
        before = checkpoints() if (WORK / "run").exists() else []
        more = ["--resume", "run"] if before else []
        first = begin("--checkpoint-every", "1", "--transport", transport,
                      *more)
        _, err = end(first, signal.SIGKILL)
        check(LOCK in checkpoints(), f"a lock is left: {checkpoints()}")
        kept[transport] = max(n for n in checkpoints() if n.startswith("step"))
    again = begin("--resume", "run", "--checkpoint-every", "1")
    out, err = end(again, signal.SIGINT)
    check("which has ended; its incomplete files are removed" in err, err)
    step = int(checkpoints()[-1].partition("-")[2])
    check(f"\ncheckpoint    step {step} in run: continue with --resume\n" in out,
          out)
    check(len(checkpoints()) == 2 and
          all(n.startswith("step-") for n in checkpoints()), checkpoints())


@test
def a_run_that_loses_a_rank_names_its_last_checkpoint():
    prepare()
    shutil.rmtree(WORK / "run", ignore_errors=True)
    process = begin("--checkpoint-every", "1", "--transport", "local")
    os.kill(children(process.pid)[-1], signal.SIGKILL)
    _, err = process.communicate(timeout=HANGS)
    step = max(int(name.partition("-")[2]) for name in checkpoints()
               if name.startswith("step-"))
    check(process.returncode == 1 and f"killed by signal 9 (Killed); the last "
          f"checkpoint is step {step} in run: continue with --resume" in err,
          err)


@test
def links_at_guessed_names_are_not_followed():
    prepare()
    for name in ("run", "elsewhere"):
        (WORK / name).mkdir()
    (WORK / "run/.new-step-00000002").symlink_to(WORK / "elsewhere")
    case("a link where the checkpoint is made",
         arguments(2, "--checkpoint", "run"), code=1, out=ANY,
         err=r"\.new-step-00000002: exists and is not a folder of this user; "
             "remove it")
    check(os.listdir(WORK / "elsewhere") == [] and
          not (WORK / "run/step-00000002").exists(), checkpoints())


@test
def files_of_others_are_kept():
    prepare()
    train("a run", 2)
    (WORK / "elsewhere").mkdir()
    write("elsewhere/config.json", "mine")
    for name in (".new-step-00000007", ".old-step-00000001",
                 ".new-step-00000008.old"):
        (WORK / "run" / name).mkdir()
        for file in ("config.json", "model.safetensors", "state.json.tmp-1-0",
                     "config.json.tmp-12-0badcafe-0"):
            write(f"run/{name}/{file}", "")
    # Files that the program must not touch: other names, files, links, notes.
    for name in (".new-step-7", ".old-step-0000007x", ".old-steps",
                 "step-00000009.bak", ".new-step-00000003.old.old"):
        (WORK / "run" / name).mkdir()
        write(f"run/{name}/config.json", "mine")
    (WORK / "run/.old-step-00000004").symlink_to(WORK / "elsewhere")
    write("run/.old-step-00000005", "a file")
    (WORK / "run/.old-step-00000006").mkdir()
    write("run/.old-step-00000006/notes.txt", "mine")
    write("run/.old-step-00000006/model.safetensors", "")
    mine = {str(p.relative_to(WORK)) for p in (WORK / "run").rglob("*")
            if p.is_file() and p.read_text(errors="ignore") in (
                "mine", "a file")}
    # A checkpoint that was being replaced, on a file system that cannot
    # exchange names atomically.
    os.rename(WORK / "run/step-00000002", WORK / "run/.new-step-00000002.old")
    train("the next run", 3, "--resume", "run", "--override", "steps")
    left = {n for n in checkpoints() if n.startswith(".")}
    check(left == {".new-step-7", ".old-step-0000007x", ".old-steps",
                   ".new-step-00000003.old.old", ".old-step-00000004",
                   ".old-step-00000005", ".old-step-00000006"}, left)
    check(all((WORK / name).is_file() for name in mine) and len(mine) == 7 and
          read("elsewhere/config.json") == "mine",
          f"somebody's files: {sorted(mine)}")
    check(not (WORK / "run/.old-step-00000006/model.safetensors").exists(),
          "what is ours goes")
    check("step-00000002" in checkpoints() and
          "step-00000003" in checkpoints(), checkpoints())


@test
def an_old_folder_does_not_stop_pruning():
    prepare()
    train("a run", 2, "--checkpoint-every", "1", "--keep", "1")
    (WORK / "run/.old-step-00000002").mkdir()
    write("run/.old-step-00000002/notes.txt", "mine")
    train("more", 6, "--checkpoint-every", "1", "--keep", "1", "--resume",
          "run", "--override", "steps")
    check([n for n in checkpoints() if n.startswith("step")] ==
          ["step-00000006"], checkpoints())
    check(read("run/.old-step-00000002/notes.txt") == "mine", "notes stay")


@test
def the_checkpoint_that_was_just_written_is_never_pruned():
    """Damaged checkpoints of later steps are kept."""
    prepare()
    train("a long run", 6, "--checkpoint-every", "2", "--keep", "3")
    for step in (4, 6):
        damage(f"run/step-{step:08}/model.safetensors")
    train("resumed from step 2", 3, "--keep", "1", "--resume", "run",
          err="resuming from step 2")
    check(checkpoints() == ["step-00000003", "step-00000006"], checkpoints())


# --- one run, its data and its options ---------------------------------------
@test
def a_folder_belongs_to_one_run():
    prepare()
    first = train("a run", 4, "--checkpoint-every", "2")
    before = {p: p.read_bytes() for p in (WORK / "run").rglob("*")
              if p.is_file()}
    run_of = json.loads(read("run/step-00000004/state.json"))["run"]
    foreign = (rf"\Alonghaul: rank 0: run: belongs to the run {run_of['id']} "
               r"\(model custom\), whose newest checkpoint is of step 4: "
               r"continue it with --resume run, discard its checkpoints with "
               r"--fresh, or choose another folder\n\Z")
    case("another run", arguments(9, "--checkpoint", "run"), 1, err=foreign)
    case("one with its weights", arguments(
        9, "--checkpoint", "run", "--weights", "run/step-00000004"), 1,
         err=foreign)
    case("one that resumes another", arguments(
        3, "--rate", "2e-2", "--checkpoint", "other"), out=ANY)
    case("one that resumes another", arguments(
        9, "--rate", "2e-2", "--resume", "other", "--checkpoint", "run"), 1,
         err=foreign.replace(r"\Alonghaul", "longhaul"))
    case("a later one", arguments(
        3, "--resume", "run/step-00000002", "--checkpoint", "run"), 1,
         err=r"\Alonghaul: rank 0: run: has a checkpoint of step 4, later than "
             r"step 2, from which this run resumes: discard it with --fresh, "
             r"or choose another folder\n\Z")
    check(before == {p: p.read_bytes() for p in (WORK / "run").rglob("*")
                     if p.is_file()}, "as they were")
    train("from step 2 again", 3, "--resume", "run/step-00000002", "--fresh")
    check(checkpoints() == ["step-00000002", "step-00000003"], checkpoints())
    check(json.loads(read("run/step-00000003/state.json"))["run"] == run_of,
          "it is the same run")
    case("one that fails", arguments(
        9, "--checkpoint", "run", "--fresh", "--weights", "nowhere"), 1,
         err="nowhere")
    check(checkpoints() == ["step-00000002", "step-00000003"], "discards none")
    check(train("a new one", 1, "--fresh") == first[:1], "from the beginning")
    check(checkpoints() == ["step-00000001"], checkpoints())


@test
def the_global_batch_stays_and_the_degrees_may_change():
    """Each step uses the same samples, so losses are equal up to rounding."""
    prepare()
    job = read("job.yaml")
    for name, old, new in (
            ("two", "pipeline: 4, data: 1", "pipeline: 2, data: 2"),
            ("wide", "pipeline: 4, data: 1, micro_batch: 1",
             "pipeline: 1, data: 4, micro_batch: 2"),
            ("large", "global_batch: 8", "global_batch: 16")):
        check(old in job, old)
        write("job.yaml", job.replace(old, new))
        case(name, ["plan", "job.yaml", "-o", f"{name}.json"], out=ANY)
    losses = train("a run", 6, "--checkpoint-every", "2", "--keep", "3")
    for name in ("two", "wide"):
        found = json_case(name, [
            "train", f"{name}.json", *arguments(
                6, "--resume", "run/step-00000002")[2:]])
        got = [one["loss"] for one in found["iterations"]]
        check(len(got) == 4 and
              all(abs(a / b - 1) < 1e-5
                  for a, b in zip(got, losses[2:], strict=True)),
              (name, got, losses))
    case("another batch", [
        "train", "large.json", *arguments(9, "--resume", "run")[2:]], 1,
         err=r"\Alonghaul: rank \d: run/step-00000006/state\.json: "
             r"data\.global_batch: the checkpoint's run has 8, this run 16: "
             r"plan with the same training\.global_batch\n\Z")


@test
def other_data_are_refused():
    prepare()
    train("a run", 2)
    text = read("text")
    resumed = arguments(4, "--resume", "run")
    for name, at in (("first", 0), ("in the middle", len(text) // 2),
                     ("last", len(text) - 2)):
        write("text", text[:at] + "#" + text[at + 1:])
        case(f"another byte: {name}", resumed, 1,
             err=r"state\.json: data\.fingerprint: the checkpoint's run has "
                 r"[0-9a-f]{16}, this run [0-9a-f]{16}: give the same --data, "
                 r"--format and --tokenizer\n\Z")
    write("text", text)
    case("another share", [*resumed, "--validation", "0.25"], 1,
         err="data.validation: the checkpoint's run has 0, this run 0.25: give "
             "the same --validation")
    case("the same", [*resumed, "--override", "steps"], out=ANY)


@test
def options_and_schedule_are_kept_unless_overridden():
    prepare()
    options = ("--min-rate", "2e-3", "--warmup", "2", "--clip", "0.3",
               "--weight-decay", "0.2")
    whole = json_case("all of it", arguments(
        8, *options, "--checkpoint", "run", "--checkpoint-every", "4"))
    check(whole["checkpoint"] == {"step": 8, "folder": "run"}, whole["checkpoint"])
    losses = [one["loss"] for one in whole["iterations"]]
    want = [one["rate"] for one in whole["iterations"]]
    resume = ["train", "plan.json", "--device", "cpu", "--data", "text",
              "--resume", "run/step-00000004", "--steps"]
    found = json_case("the options are the checkpoint's", [*resume, "8"])
    check(found["checkpoint"] is None, found["checkpoint"])
    check([one["loss"] for one in found["iterations"]] == losses[4:],
          "bit for bit")
    found = json_case("a longer run", [*resume, "12"],
                      err=r"\Alonghaul: the learning-rate schedule ends at step "
                          r"8; later steps have its final rate, 0\.002; "
                          r"--override steps stretches it to --steps\n\Z")
    got = [one["rate"] for one in found["iterations"]]
    check(got == want[4:] + [2e-3] * 4, got)
    case("a rate below the checkpoint's min-rate",
         [*resume, "8", "--rate", "1e-3", "--override", "rate"], 1,
         err=r"min-rate, .*, is 0\.002 and above rate, the highest, which is "
             r"0\.001: override both\n\Z")
    case("a rate below its own min-rate",
         arguments(2, "--rate", "1e-3", "--min-rate", "2e-3"), 1,
         err=r"min-rate, .*, is 0\.002 and above rate, the highest, which is "
             r"0\.001: give other rates\n\Z")
    case("a rate after the decay",
         ["train", "plan.json", "--device", "cpu", "--data", "text", "--resume",
          "run/step-00000008", "--steps", "10", "--rate", "0.02", "--override",
          "rate"], 1,
         err=r"--override rate has no effect: the learning-rate schedule ended "
             r"at step 8; override steps, too, or min-rate in its place\n\Z")
    found = json_case("a stretched one", [*resume, "12", "--override", "steps"])
    got = [one["rate"] for one in found["iterations"]]
    check(got[0] > want[4] and got[-1] > 2e-3 and
          got == sorted(got, reverse=True), got)
    for option, mine, value in (
            ("rate", "0.01", "0.02"), ("min-rate", "0.002", "0.001"),
            ("warmup", "2", "3"), ("clip", "0.3", "0.5"),
            ("weight-decay", "0.2", "0.1")):
        case(option, [*resume, "8", f"--{option}", value], 1,
             err=rf"state\.json: {option}: the checkpoint's run has {mine}, "
                 rf"this run {value}: omit the option to continue with the "
                 rf"checkpoint's, or change it with --override {option}\n\Z")
        case(f"{option}, equal", [*resume, "8", f"--{option}", mine], out=ANY)
    for option, value in (("beta1", "0.8"), ("epsilon", "1e-6"),
                          ("rate-decay", "linear"), ("decay-steps", "2")):
        case(option, [*resume, "8", f"--{option}", value], 1,
             err=rf"state\.json: {option}: the checkpoint's run has .*--override "
                 rf"{option}\n\Z")
    # checkpoints of older versions lack these options
    state = json.loads((WORK / "run/step-00000004/state.json").read_text())
    for option in ("beta1", "beta2", "epsilon", "rate-decay", "decay-steps"):
        del state["options"][option]
    old = "old/step-00000004"
    shutil.copytree(WORK / "run/step-00000004", WORK / old)
    write(f"{old}/state.json", sealed(state))
    found = json_case("an older checkpoint", [
        "train", "plan.json", "--device", "cpu", "--data", "text", "--resume",
        "old", "--steps", "8"])
    check([one["loss"] for one in found["iterations"]] == losses[4:],
          "an older checkpoint's losses")
    found = json_case("another rate", [*resume, "8", "--rate", "0.02",
                                       "--override", "rate"])
    got = [one["rate"] for one in found["iterations"]]
    check(all(a > b for a, b in zip(got, want[4:], strict=True)), (got, want))
    case("no new value", [*resume, "8", "--rate", "0.02", "--override",
                          "rate,clip"], 1,
         err=r"--override clip requires --clip: a resumed run continues with "
             r"the checkpoint's, 0\.3\n\Z")
    case("no such option", [*resume, "8", "--override", "rate,speed"], 1,
         err="'speed' is not an option that a resumed run can override: use "
             "steps, rate, ")
    case("nothing to override", arguments(1, "--override", "rate"), 2,
         err="--override requires --resume")
    case("no folder", arguments(1, "--fresh"), 2,
         err="--fresh requires --checkpoint")


@test
def threads_of_a_rank_do_not_change_the_result():
    prepare()
    job = (WORK / "job.yaml").read_text()
    for old, new in (("sequence: 8", "sequence: 128"), ("pipeline: 4", "pipeline: 1"),
                     ("micro_batch: 1", "micro_batch: 8"),
                     ("layers: 4", "layers: 1")):
        job = job.replace(old, new)
    for precision in ("fp32", "bf16"):
        write("threads.yaml", job.replace("fp32", precision))
        case("plan", ["plan", "threads.yaml", "-o", "threads.json"], out=ANY)
        weights, used = set(), []
        for threads in (1, 3):
            folder = f"{precision}-{threads}"
            found = json_case(f"{threads} threads", [
                "train", "threads.json", "--device", "cpu", "--data", "text",
                "--steps", "2", "--threads", str(threads), "--checkpoint",
                folder])
            weights.add((WORK / folder / "step-00000002/model.safetensors")
                        .read_bytes())
            used.append(found["memory"][0])
        check(len(weights) == 1, f"{precision}: other weights")
        # in bf16 each thread has blocks of its own
        more = 2 * 3 * 256 * 256 * 4 if precision == "bf16" else 0
        for key in ("predicted_bytes", "measured_bytes"):
            check(used[1][key] - used[0][key] == more, f"{precision}: {used}")


# --- limits of the system ----------------------------------------------------
@test
def too_large_a_file_is_an_error():
    prepare()
    train("a run", 2)
    before = {p.name: p.read_bytes()
              for p in (WORK / "run/step-00000002").iterdir()}

    def limit():
        signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
        resource.setrlimit(resource.RLIMIT_FSIZE, (4000, 4000))
    for transport in ("inproc", "local"):
        case(f"ulimit -f over {transport}",
             arguments(4, "--checkpoint", "run", "--resume", "run", "--override",
                       "steps", "--transport", transport), 1,
             preexec_fn=limit,
             err=r"\Alonghaul: rank 0: run/\.new-step-00000004/model\."
                 r"safetensors: File too large; no checkpoint[^\n]*\n\Z")
    check(checkpoints() == ["step-00000002"] and before == {
        p.name: p.read_bytes() for p in
        (WORK / "run/step-00000002").iterdir()}, checkpoints())
    done = case("any other file", ["plan", "job.yaml", "-o", "p2.json"], 1,
                err="p2.json: cannot write: File too large",
                preexec_fn=limit) if write_job() else None
    check(done is None or not [n for n in os.listdir(WORK) if "p2" in n],
          os.listdir(WORK))


def write_job():
    job = (ROOT / "examples/tiny-llama-cpu.yaml").read_text()
    return write("job.yaml", job)


# --- damage ------------------------------------------------------------------
STEPS = [f"step-{step:08}" for step in (2, 4, 6)]


@makes("whole.tar")
def several():
    prepare()
    losses = train("a run", 6, "--checkpoint-every", "2", "--keep", "3")
    write("losses.json", json.dumps(losses))
    subprocess.run(["tar", "cf", "whole.tar", "run", "losses.json"], cwd=WORK,
                   check=True)


def restore():
    several()
    prepare()
    shutil.rmtree(WORK / "run", ignore_errors=True)
    subprocess.run(["tar", "xf", "whole.tar"], cwd=WORK, check=True)
    return json.loads(read("losses.json"))


@test
def damaged_ones_are_passed_over_on_all_ranks():
    """The tensors of a file belong to several ranks. Any rank may find the
    damage."""
    def empty(step):
        shutil.rmtree(WORK / "run" / step)
        (WORK / "run" / step).mkdir()

    def without(name):
        return lambda step: (WORK / "run" / step / name).unlink()

    def cut(step):
        path = WORK / "run" / step / "optimizer.safetensors"
        os.truncate(path, path.stat().st_size // 2)

    def flipped(name, share):
        path = f"run/{{}}/{name}"
        return lambda step: damage(path.format(step), int(
            (WORK / path.format(step)).stat().st_size * share))

    ways = {"empty": empty, "no state": without("state.json"),
            "no weights": without("model.safetensors"), "cut": cut,
            "state": flipped("state.json", .5)}
    for share in (.001, .05, .3, .6, .99):
        ways[f"weights at {share}"] = flipped("model.safetensors", share)
    for share in (.3, .99):
        ways[f"moments at {share}"] = flipped("optimizer.safetensors", share)
    ranks = set()
    for i, (name, spoil) in enumerate(ways.items()):
        losses = restore()
        spoil(STEPS[2])
        if i % 2:
            spoil(STEPS[1])
        found = json_case(
            name, arguments(6, "--resume", "run", "--transport",
                            ["inproc", "local"][i % 2]),
            err=r"run: step 6 is skipped: rank \d: run/step-00000006")
        got = [one["loss"] for one in found.get("iterations", [])]
        check(got == losses[2 if i % 2 else 4:], f"{name}: {got} {losses}")
        done = run(*arguments(6, "--resume", "run"))
        ranks |= set(re.findall(r"skipped: rank (\d): ", done.stderr))
        check(("step 4 is skipped" in done.stderr) == bool(i % 2) and
              f"run: resuming from step {[4, 2][i % 2]}\n" in done.stderr,
              f"{name}: {done.stderr}")
        case(f"{name}, by its name",
             arguments(6, "--resume", f"run/{STEPS[2]}"), 1, err="rank \\d")
    check(len(ranks) > 1, f"ranks that found something: {ranks}")


@test
def ranks_that_mpirun_started_pass_over_alike():
    losses = restore()
    damage(f"run/{STEPS[2]}/model.safetensors")
    if not shutil.which("mpirun"):
        print("SKIPPED mpirun: it is not installed")
        return
    done = subprocess.run(
        ["mpirun", "--allow-run-as-root", "--oversubscribe", "-np", "4",
         PROGRAM, *arguments(6, "--resume", "run", "--checkpoint", "run",
                             "--transport", "tcp"), "--json"], cwd=WORK,
        env={**ENVIRONMENT, "ASAN_OPTIONS": "detect_leaks=0"},
        capture_output=True, text=True, timeout=HANGS)
    if "this build" in done.stderr:
        print(f"SKIPPED tcp: {done.stderr}")
        return
    check(done.returncode == 0 and done.stderr.count("longhaul: ") == 2 and
          "step 6 is skipped: rank 3: " in done.stderr and
          [one["loss"] for one in json.loads(done.stdout)["iterations"]] ==
          losses[4:], done)
    check(checkpoints() == STEPS[1:], checkpoints())


@test
def none_that_is_whole_is_an_error():
    restore()
    for step in STEPS:
        damage(f"run/{step}/model.safetensors")
    case("all damaged", arguments(8, "--resume", "run"), 1,
         err=r"none of its checkpoints is intact; the newest: "
             r"rank \d: run/step-00000006/model\.safetensors: damaged: tensor "
             r"[a-z_.0-9]+ does not match")


@test
def checkpoints_of_other_jobs_are_not_skipped():
    restore()
    case("another recipe", arguments(8, "--resume", "run", "--seed", "3"), 1,
         err=r"\Alonghaul: rank \d: run/step-00000006/state\.json: data\.seed: "
             r"the checkpoint's run has 0, this run 3: give the same --seed\n\Z")
    text = read("run/step-00000006/state.json").replace("checkpoint/2",
                                                        "checkpoint/3")
    write("run/step-00000006/state.json", text)
    case("another format", arguments(8, "--resume", "run"), 1,
         err="has format checkpoint/3, this version reads checkpoint/2")


@test
def a_changed_file_of_other_programs_is_remarked():
    restore()
    damage("run/step-00000006/config.json")
    case("config.json", arguments(7, "--resume", "run", "--override", "steps"),
         out=ANY,
         err=r"\Alonghaul: run/step-00000006/config\.json: has changed since "
             r"it was written; [^\n]*\n\Z")


finish_if_trained()
