#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs of ranks that srun or mpirun started, and that lose ranks, hosts, a site.
Their weights and losses are those of an undisturbed run."""
import json
import re
import shutil
import signal

from harness import (
    ANY,
    HANGS,
    UNDER_MPI,
    VIRTUAL,
    WORK,
    case,
    check,
    finish,
    has_few_cases,
    json_case,
    long_test,
    makes,
    read,
    reserved_port,
    test,
    until,
    write,
)
from restarted import (
    RANKS,
    TRAIN,
    begin,
    check_same,
    children,
    has_saved,
    is_stopped,
    losses,
    make_four_replicas,
    prepare,
    ranks_after_checkpoint,
    send,
    weights,
    write_kills,
)


def srun(port, *more, plan="plan.json", ranks=range(RANKS)):
    """One process per rank, as srun would start them."""
    return [begin("--transport", "tcp", *more, plan=plan,
                  env={"LONGHAUL_SECRET": "0123456789abcdef" * 2,
                       "LONGHAUL_PORT": str(port), "SLURM_JOB_ID": "7",
                       "SLURM_STEP_ID": "0", "SLURM_PROCID": str(rank),
                       "SLURM_STEP_NUM_TASKS": str(RANKS),
                       "SLURM_STEP_NUM_NODES": "1",
                       "SLURM_STEP_NODELIST": "localhost"})
            for rank in ranks]


def srun_disturbed(victim, number, *more):
    """Signals a rank; returns rank 0's result and the errors of all."""
    for _ in range(5):
        shutil.rmtree(WORK / "run", ignore_errors=True)
        with reserved_port() as port:
            started = srun(port, "--max-restarts", "5", *more)
            until(has_saved, started[0])
            send(number, children(started[victim].pid))
            ends = [one.communicate(timeout=HANGS) for one in started]
        codes = [one.returncode for one in started]
        errors = "".join(err for _, err in ends)
        if not check(codes == [0] * RANKS, f"{codes} {errors}"):
            break
        found = json.loads(ends[0][0])
        if len(found["restarts"]) == 1:
            return found, errors
    return {"restarts": []}, ""


@test
def ranks_of_srun_are_killed():
    prepare()
    victims = {0: 72} if has_few_cases() else {3: 52, 0: 72}
    write_kills(victims)
    shutil.rmtree(WORK / "run", ignore_errors=True)
    with reserved_port() as port:
        started = srun(port, "--max-restarts", "5", "--silence", "600s",
                       "--events", "events.yaml")
        ends = [one.communicate(timeout=HANGS) for one in started]
    codes = [one.returncode for one in started]
    errors = "".join(err for _, err in ends)
    if not check(codes == [0] * RANKS, f"{codes} {errors}"):
        return
    found = json.loads(ends[0][0])
    check([one["step"] for one in found["restarts"]] == [*victims.values()],
          found["restarts"])
    check("longhaul: rank 0: killed by signal 9 (Killed); all ranks restart ("
          in errors and errors.count("all ranks restart") == len(victims), errors)
    check(len(victims) == 1 or
          "longhaul: rank 3: its connection to rank " in errors, errors)
    check_same(found, "ranks of srun")


def lost_hosts(port, lost, more=()):
    """Starts a run of srun and kills the processes of some ranks, which also
    kills the ranks, after the first checkpoint."""
    shutil.rmtree(WORK / "run", ignore_errors=True)
    started = srun(port, "--max-restarts", "9", "--silence", "4s", *more)
    until(has_saved, started[0])
    for rank in lost:
        started[rank].kill()
    return started


def lose_site(plan, repeats):
    """The hosts of the other replica run the lost ranks in their place. Events
    stop these ranks first, so that the run cannot end before the loss."""
    shutil.rmtree(WORK / "run", ignore_errors=True)
    write("events.yaml", "longhaul: events/1\nevents:\n" + "".join(
        f"  - {{at: 52, rank: {rank}, process: stopped, pause: 3600}}\n"
        for rank in range(4, RANKS)))
    with reserved_port() as port:
        started = srun(port, "--max-restarts", "9", "--silence", "600s",
                       "--events", "events.yaml", plan=plan)
        until((WORK / "run/step-00000050").exists, started[0])
        until(lambda: all(any(map(is_stopped, children(one.pid)))
                          for one in started[4:]), started[0])
        for one in started[4:]:
            one.kill()
        ends = [one.communicate(timeout=HANGS) for one in started]
    codes = [one.returncode for one in started]
    errors = "".join(err for _, err in ends)
    if not check(codes == [0] * 4 + [-9] * 4, f"{codes} {errors}"):
        return
    check(all(f"rank {i + 4} has not restarted: rank {i}'s host runs it" in
              ends[i][1] for i in range(4)), errors)
    found = json.loads(ends[0][0])
    check({one["step"] for one in found["restarts"]} == {52 - repeats}, errors)
    check_same(found, "a lost site", repeats)


@makes("whole.json")
def make_whole():
    write("whole.yaml", read("job.yaml").replace("zero: 1", "zero: 0"))
    case("plan", ["plan", "whole.yaml", "-o", "whole.json"], out=ANY)


def prepare_whole():
    """As prepare(), with a plan in which no replica lacks a state."""
    prepare()
    make_whole()


@test
def a_site_is_lost():
    """Each replica has the entire state of the optimizer."""
    prepare_whole()
    lose_site("whole.json", 0)


@test
def a_host_outlives_a_killed_rank():
    """Its ranks finish the run with a rank of the other host in the place of the
    killed one."""
    prepare_whole()
    write("events.yaml", "longhaul: events/1\n"
          "events: [{at: 4, rank: 4, process: lost}]\n")
    shutil.rmtree(WORK / "run", ignore_errors=True)
    with reserved_port() as port:
        hosts = [begin("--transport", "tcp", "--hosts", "127.0.0.1:4,localhost:4",
                       "--max-restarts", "9", "--silence", "4s", "--events",
                       "events.yaml", "--steps", "8", plan="whole.json",
                       env={"LONGHAUL_SECRET": "0123456789abcdef" * 2,
                            "MASTER_PORT": str(port), "NODE_RANK": str(i)})
                 for i in range(2)]
        ends = [one.communicate(timeout=HANGS) for one in hosts]
    check([one.returncode for one in hosts] == [0, 0], f"{ends}")
    check("rank 4 has not restarted: rank 0's host runs it" in ends[0][1] and
          "longhaul: rank 4 was killed by signal 9 (Killed)\n" in ends[1][1] and
          ends[1][1].endswith("longhaul: the run has finished without the killed "
                              "rank of this host\n"), f"{ends}")


def start_rank_0_again(plan, events="", lost=None):
    """Ends rank 0's process in step 52 and starts it again. Then an event stops
    rank `lost`, whose process ends, too. Returns rank 0's result and errors."""
    shutil.rmtree(WORK / "run", ignore_errors=True)
    write("events.yaml", "longhaul: events/1\nevents:\n"
          "  - {at: 52, rank: 0, process: stopped, pause: 3600}\n" + events)
    more = ["--max-restarts", "9", "--silence", "600s", "--events",
            "events.yaml"]
    with reserved_port() as port:
        started = srun(port, *more, plan=plan)
        until((WORK / "run/step-00000050").exists, started[0])
        until(lambda: any(map(is_stopped, children(started[0].pid))), started[0])
        started[0].kill()
        started[0].communicate()
        started[0], = srun(port, *more, plan=plan, ranks=[0])
        if lost:
            until(lambda: any(map(is_stopped, children(started[lost].pid))),
                  started[0])
            started[lost].kill()
        ends = [one.communicate(timeout=HANGS) for one in started]
    errors = "".join(err for _, err in ends)
    ok = check([one.returncode for one in started] ==
               [-9 if lost and rank == lost else 0 for rank in range(RANKS)],
               errors)
    return json.loads(ends[0][0]) if ok else {}, ends[0][1]


@test
def rank_0_is_started_again():
    """Each replica has the entire state of the optimizer."""
    prepare_whole()
    found, errors = start_rank_0_again("whole.json")
    check("rank 0 was started again: the run continues at step 52, with the "
          "state in memory" in errors, errors)
    check(losses(found) == json.loads(read("calm.json"))[52:] and
          weights("run").read_bytes() == (WORK / "weights").read_bytes(),
          "weights")


@long_test
def the_microbatches_of_a_lost_host_are_divided():
    """The host of the next stage runs the lost rank's part, with the state of
    another replica. The weights are those of ranks that are threads, one of
    which an event ends in that step."""
    make_four_replicas()
    write("two.yaml", read("two.yaml").replace("zero: 1", "zero: 0"))
    case("plan", ["plan", "two.yaml", "-o", "two.json"], out=ANY)
    lost = ["--max-restarts", "9", "--events", "events.yaml"]
    write("events.yaml", """
        longhaul: events/1
        events: [{at: 52, rank: 4, process: lost}]
        """)
    json_case("threads", ["train", "two.json", *TRAIN[2:], *lost, "--checkpoint",
                          "threads"], program=VIRTUAL, err=ANY)
    with reserved_port() as port:
        started = srun(port, *lost, plan="two.json")
        ends = [one.communicate(timeout=HANGS) for one in started]
    errors = "".join(err for _, err in ends)
    check([one.returncode for one in started] ==
          [-9 if rank == 4 else 0 for rank in range(RANKS)] and
          "rank 4 has not restarted: rank 5's host runs it" in errors and
          errors.count("rank 4 is lost, and other ranks run its "
                       "microbatches: ") == 1, errors)
    check(weights("run").read_bytes() == weights("threads").read_bytes(),
          "weights")


@long_test
def a_host_is_lost_after_rank_0_was_started_again():
    """No replica has its state. The run continues twice with the checkpoint
    from before rank 0's loss."""
    prepare()
    found, errors = start_rank_0_again(
        "plan.json", "  - {at: 53, rank: 3, process: stopped, pause: 3600}\n", 3)
    for remark in ("rank 0 was started again: the run continues",
                   "restart 1 continues"):
        check(f"{remark} at step 50, with the state in the checkpoint" in errors,
              errors)
    check(found.get("restarts") == [{"step": 50, "repeated": 3}], errors)
    check(losses(found) == json.loads(read("calm.json"))[50:] and
          weights("run").read_bytes() == (WORK / "weights").read_bytes(),
          "weights")


@long_test
def a_site_with_state_of_its_own_is_lost():
    """The run repeats the iterations since the checkpoint."""
    prepare()
    lose_site("plan.json", 2)


def lose_and_return(lost):
    """Starts the processes of lost ranks again: rank 0 detects them, and all
    ranks restart with them. The return is not reported as a further loss."""
    prepare()
    more = ["--steps", "100000"]
    others = [rank for rank in range(RANKS) if rank not in lost]
    replacing = [rank - 4 for rank in lost]
    with reserved_port() as port:
        started = lost_hosts(port, lost, more)

        def wait_for_children(n):
            return until(lambda: all(len(children(started[rank].pid)) == n
                                     for rank in replacing), started[0])

        wait_for_children(2)
        step = max((WORK / "run").glob("step-*"))
        until(lambda: max((WORK / "run").glob("step-*")) > step, started[0])
        back = srun(port, "--max-restarts", "9", "--silence", "4s", *more,
                    ranks=lost)
        wait_for_children(1)
        step = max((WORK / "run").glob("step-*"))
        check(until(lambda: max((WORK / "run").glob("step-*")) > step,
                    started[0]), "continues")
        check(all(one.poll() is None for one in back), "the ranks are back")
        started[0].send_signal(signal.SIGINT)
        running = [started[rank] for rank in others] + back
        ends = [one.communicate(timeout=HANGS) for one in running]
    check([one.returncode for one in running] == [1] * RANKS and
          re.search(r": its host is back; all ranks restart \(restart \d of at "
                    r"most 9\)\n", ends[0][1]), ends[0][1])


@test
def a_rank_is_back():
    lose_and_return([4])


@long_test
def a_site_is_back():
    lose_and_return([4, 5, 6, 7])


@long_test
def the_host_of_rank_0_is_lost():
    """The others end after 60 s, in which they cannot reach it."""
    prepare()
    with reserved_port() as port:
        started = lost_hosts(port, [0], ["--steps", "10000000"])
        ends = [one.communicate(timeout=HANGS) for one in started[1:]]
    for one, (_, err) in zip(started[1:], ends, strict=True):
        check(one.returncode == 1 and err.count("all ranks restart") <= 1 and
              "the run has ended, or rank 0's host is lost: rank 0 cannot be "
              "reached at " in err, err)


@long_test
def a_rank_of_srun_is_stopped():
    prepare()
    found, errors = srun_disturbed(2, signal.SIGSTOP, "--silence", "2s")
    check("longhaul: rank 2: silent for " in errors, errors)
    check_same(found, "a stopped rank of srun")


@long_test
def a_signal_to_any_rank_of_srun_stops_the_run():
    """Rank 0 names the rank."""
    prepare()
    shutil.rmtree(WORK / "run", ignore_errors=True)
    with reserved_port() as port:
        started = srun(port, "--max-restarts", "5", "--steps", "10000000")
        until(has_saved, started[0])
        started[5].send_signal(signal.SIGINT)
        ends = [one.communicate(timeout=HANGS) for one in started]
    check([err for _, err in ends] ==
          ["longhaul: rank 5 received a stop request: the run ends\n"] +
          [""] * (RANKS - 1), f"{ends}")
    check(all(one.returncode == 1 for one in started), "statuses")


@long_test
def a_rank_of_mpirun_is_killed():
    if not shutil.which("mpirun"):
        print("SKIPPED mpirun: it is not installed")
        return
    prepare()
    for _ in range(5):
        shutil.rmtree(WORK / "run", ignore_errors=True)
        process = begin("--transport", "tcp", "--max-restarts", "3",
                        under=["mpirun", "--allow-run-as-root",
                               "--oversubscribe", "-np", str(RANKS)],
                        env=UNDER_MPI)
        for parent in ranks_after_checkpoint(process)[4:5]:
            send(signal.SIGKILL, children(parent)[:1])
        out, err = process.communicate(timeout=HANGS)
        found = json.loads(out) if process.returncode == 0 else {}
        if not check(process.returncode == 0, err) or found["restarts"]:
            break
    check("longhaul: rank 4: its connection to rank " in err, err)
    check_same(found, "a rank of mpirun")


finish()
