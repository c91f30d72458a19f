#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""train --layers-at and --places-at: migrations during a run."""
import json

from harness import (WORK, case, check, finish, json_case, makes, read, run,
                     test, uniform, write)
from input_files import TRAINED
from trained import TRAIN, can_train, make_plan, over_transports, saved

STEPS = 9
MOVES = ["--layers-at", "2=1,3;6=3,1", "--places-at", "3=1,0,3,2;5=2,3,0,1",
         "--schedule-at", "4=gpipe"]


def hosts(*rows):
    write("e.yaml", "longhaul: events/1\ntime_unit: ms\nevents:\n" +
          "".join(f"  - {{{row}}}\n" for row in rows))


def unlike():
    """Returns links that differ by their devices, with a slow one between two
    replicas."""
    write("unlike.yaml", "longhaul: pipeline/1\ntime_unit: ms\n"
          "microbatches: 4\ndevices: 2\nuniform: {placement: ud, F: 4, D: 4, "
          "W: 4, memory: {F: 1, D: 0, W: -1}}\nlinks:\n"
          "  - {from: 0, to: 1, latency: 1, transfer: 1}\n"
          "  - {from: 1, to: 0, latency: 2, transfer: 1}\n")
    hosts("from: 1, to: 9, links: [h0-h2], latency: 3")


@makes("plan.json", "text")
def a_plan():
    """Plans two stages and two replicas."""
    make_plan(TRAINED % 2)


STEPPED = [*TRAIN, "--steps", str(STEPS)]


def checkpoint(name):
    return [saved(name, STEPS, file)
            for file in ("model.safetensors", "optimizer.safetensors")]


def trains_quietly():
    return can_train(run(*STEPPED, "--checkpoint", "quiet", "--json"))


def said(found):
    return [(s["step"], s["moved"] and s["moved"]["layers"],
             s["moved"] and s["moved"]["places"], s["why"])
            for s in found["switches"]]


WANT = [(2, [1, 3], None, "--layers-at"),
        (3, [1, 3], [1, 0, 3, 2], "--places-at"),
        (4, None, None, "--schedule-at"),
        (5, [1, 3], [2, 3, 0, 1], "--places-at"),
        (6, [3, 1], [2, 3, 0, 1], "--layers-at")]


@test
def weights_are_unaffected_on_every_transport():
    a_plan()
    if not trains_quietly():
        return
    for transport, found in over_transports(STEPPED, MOVES):
        check(said(found) == WANT, found["switches"])
        check(all(s["refused"] is None for s in found["switches"]), found)
        for s in found["switches"]:
            moved = s["moved"]
            check(not moved or moved["bytes"] > 0 and moved["seconds"] > 0 and
                  moved["predicted_s"] is None and moved["vias"] is None,
                  moved)
        check(checkpoint(transport) == checkpoint("quiet"),
              f"{transport}: weights or moments")


@test
def a_run_begins_where_parts_are_by_then():
    a_plan()
    if not trains_quietly():
        return
    done = run(*STEPPED, "--checkpoint", "half", "--checkpoint-every", "4", "--keep", "9",
               *MOVES, "--json")
    check(done.returncode == 0, done.stderr)
    found = json_case("resumed", [*STEPPED, "--resume", "half/step-00000004",
                                  "--checkpoint", "whole", *MOVES])
    check([s["step"] for s in found["switches"]] == [4, 5, 6], found)
    check(found["switches"][0]["moved"]["layers"] == [1, 3] and
          found["switches"][0]["moved"]["places"] == [1, 0, 3, 2], found)
    check(checkpoint("whole") == checkpoint("quiet"), "weights or moments")


@test
def migrations_are_reported():
    a_plan()
    if not trains_quietly():
        return
    (WORK / "log").unlink(missing_ok=True)
    case("for people", [*STEPPED, "-q", *MOVES, "--log", "log", "--html",
                        "r.html"],
         out=r"\nmoved +before iteration 2, in .*, \d+ bytes: layers\s+per\s+"
             r"chunk\s+1,3\n(.*\n)*moved +before iteration 3, .*: layers\s+"
             r"per\s+chunk\s+1,3; rank\s+per\s+position\s+1,0,3,2\n")
    lines = [json.loads(line) for line in read("log").splitlines()]
    check([line["step"] for line in lines if "switch" in line and
           line["switch"]["moved"]] == [2, 3, 5, 6], lines)
    page = read("r.html")
    check("layers move" in page or "layers and ranks move" in page,
          "the report marks it")
    check("Migrations" in page and "rank per position" in page
          and "2,3,0,1" in page and "initial" in page, "the report's table")


@test
def hosts_that_differ_keep_their_devices():
    unlike()
    found = json_case("unlike", [
        "train", "unlike.yaml", "-s", "1f1b", "--steps", "4", "--speed", "4",
        "--events", "e.yaml", "--replicas", "2", "--places-at", "2=1,0,2,3"],
                      err="iteration 2 continues with 1f1b")
    check("host 1 cannot take a place of device 0, whose links or memory "
          "differ" in found["switches"][0]["refused"] and
          len(found["iterations"]) == 4, found)


@test
def timed_devices_take_the_time_of_a_migration():
    uniform("p.yaml", microbatches=4, times=(8, 8, 8), latency=1, transfer=1)
    base = ["train", "p.yaml", "-s", "1f1b", "--speed", "4", "--steps", "4",
            "--layers", "4,4,4,4", "--layers-at", "2=2,6,6,2"]
    # 2 of 16 layers cross two boundaries: 2/16 of 4 x 80 ms, at 4 times the
    # speed.
    found = json_case("moving", [*base, "--moving", "80ms"])
    moved = found["switches"][0]["moved"]
    check(abs(moved["predicted_s"] - 0.010) < 1e-9 and
          moved["seconds"] >= 0.010 and moved["bytes"] == 0, moved)
    times = [i["seconds"] for i in found["iterations"]]
    check(times[2] >= found["predicted_s"] + 0.010, found)
    still = json_case("still", base[:-4])
    check(found["predicted_s"] > 1.1 * still["predicted_s"], found)
    free = json_case("free", base)
    check(free["switches"][0]["moved"]["predicted_s"] is None, free)


@test
def exchanged_hosts_avoid_the_slow_link():
    """With exchanged hosts no message uses the ring's slow link."""
    write("ring.yaml", "longhaul: pipeline/1\ntime_unit: us\n"
          "microbatches: 4\ndevices: 2\nuniform: {placement: ud, F: 8000, "
          "D: 8000, W: 8000, memory: {F: 1, D: 0, W: -1}}\nlinks:\n"
          "  - {from: 0, to: 1, transfer: 671}\n"
          "  - {from: 1, to: 0, transfer: 671}\ndata_parallel:\n"
          "  - {chunk: 0, all_gather: 35000, reduce_scatter: 35000}\n"
          "  - {chunk: 1, all_gather: 35000, reduce_scatter: 35000}\n")
    write("e.yaml", "longhaul: events/1\ntime_unit: ms\nevents:\n"
                    "  - {from: 1, to: 9, links: [h0-h2], transfer: 30}\n")
    base = ["train", "ring.yaml", "-s", "1f1b", "--speed", "4", "--steps", "6",
            "--events", "e.yaml", "--replicas", "2", "--moving", "8ms"]
    # The emulated time does not depend on which host runs the stage.
    for places in ("1,0,2,3", "2,3,0,1"):
        found = json_case(places, [*base, "--places-at", f"2={places}"])
        check(found["switches"][0]["moved"] and
              len(found["iterations"]) == 6, found)
    found = json_case("moving", [*base, "--places-at", "3=0,1,3,2"])
    moved = found["switches"][0]["moved"]
    check(moved["places"] == [0, 1, 3, 2] and moved["layers"] is None and
          abs(moved["predicted_s"] - 0.002) < 1e-9 and
          moved["seconds"] >= moved["predicted_s"], moved)
    said_s = [i["predicted_s"] for i in found["iterations"]]
    check(said_s[0] == said_s[4] < said_s[2] / 4, said_s)
    check(all(i["seconds"] >= i["predicted_s"] - 1e-6
              for i in found["iterations"]), found)


@test
def rejected_moves_are_requested_once():
    unlike()
    found = json_case("refused", [
        "train", "unlike.yaml", "-s", "1f1b", "--steps", "7", "--speed", "4",
        "--events", "e.yaml", "--replicas", "2", "--moving", "4ms",
        "--places-at", "1=1,0,2,3;5=2,1,0,3", "--schedule-at",
        "3=zb-h1;4=1f1b"], err="iteration 1 continues with 1f1b")
    check([(s["step"], s["to"], s["refused"] is not None,
            s["moved"] and s["moved"]["places"]) for s in found["switches"]] ==
          [(1, "1f1b", True, None), (3, "zb-h1", False, None),
           (4, "1f1b", False, None), (5, "1f1b", False, [2, 1, 0, 3])],
          found["switches"])
    # One hop of 4 ms over the slow link and 3 others, at 4 times the speed. The
    # path starts at the current hosts, not at the planned ones.
    check(abs(found["switches"][3]["moved"]["predicted_s"] - 0.00175) < 1e-9,
          found["switches"][3])


@test
def third_hosts_relay_the_traffic_of_a_slow_link():
    a_plan()
    if not trains_quietly():
        return
    hosts("from: 2, to: 9, links: [h0-h1], latency: 60")
    for transport in ("inproc", "local"):
        (WORK / "log").unlink(missing_ok=True)
        found = json_case(transport, [
            *STEPPED, "--transport", transport, "--checkpoint", transport,
            "--replicas", "2", "--events", "e.yaml", "--moving", "12ms",
            "--places-at", "4=1,0,2,3;6=1,0,3,2", "--log", "log"])
        one, other = (s["moved"] for s in found["switches"])
        check(one["places"] == [1, 0, 2, 3] and
              all(via in (2, 3) for via in one["vias"][:2]) and
              one["vias"][2:] == [None, None], one)
        check(other["vias"] is None and
              one["bytes"] == 2 * other["bytes"] > 0, (one, other))
        # Two hops of 12 ms, and one hop.
        check(0.024 <= one["predicted_s"] < 0.025 and
              0.012 <= other["predicted_s"] < 0.013, (one, other))
        check(all(m["seconds"] >= m["predicted_s"] for m in (one, other)),
              (one, other))
        check(checkpoint(transport) == checkpoint("quiet"),
              f"{transport}: weights or moments")
        switch = json.loads(read("log").splitlines()[4])["switch"]
        check(switch["moved"]["vias"] == one["vias"], switch)
    case("for people", [*STEPPED, "--replicas", "2", "--events", "e.yaml",
                        "--moving", "12ms", "--places-at", "4=1,0,2,3"],
         out=r"rank\s+per\s+position\s+1,0,2,3;\s+slow\s+links\s+were"
             r"\s+bypassed\s+through\s+other\s+hosts")


@test
def gathers_before_migrations_cross_slow_links():
    """A migration gathers parameters between two iterations, which takes the
    emulated link's time."""
    a_plan()
    if not trains_quietly():
        return
    hosts("from: 2, to: 90, links: [h0-h2], latency: 40")
    found = json_case("gathers", [
        *STEPPED, "--checkpoint", "gathers", "--replicas", "2", "--events",
        "e.yaml", "--layers-at", "4=1,3;6=3,1"])
    # Two crossings in each iteration: gradients and parameters.
    times = [i["seconds"] for i in found["iterations"]]
    check(min(times[2:]) >= 0.08, times)
    moves = [s["moved"]["seconds"] for s in found["switches"]]
    check(len(moves) == 2, moves)
    check(checkpoint("gathers") == checkpoint("quiet"), "weights or moments")


@test
def ranks_exchange_automatically():
    """The slow link is in a ring; tested with both devices."""
    a_plan()
    hosts("from: 12, to: 90, links: [h0-h2], latency: 40")
    train = [*STEPPED[:-1], "40"]
    done = run(*train, "--checkpoint", "quiet-40", "--json")
    if "OpenBLAS" in done.stderr:
        return
    found = json_case("run", [*train, "--checkpoint", "by-itself", "--replicas",
                              "2", "--events", "e.yaml", "--adapt", "--moving",
                              "4ms"])
    # Layers may migrate as well, since pass times vary on a busy machine.
    moves = [move for move in moves_of(found) if move["moved"]["places"]]
    if not check(moves, found["switches"]):
        return
    moved, step = moves[0]["moved"], moves[0]["step"]
    places = {rank: place for place, rank in enumerate(moved["places"])}
    check(places[0] % 2 != places[2] % 2, f"still a ring: {moved}")
    located = [d["why"] for d in found["decisions"] if "located" in d["why"]]
    check(located and "the link from host 0 to 2 (" in located[0] and
          "the link from host 2 to 0 (" in located[0], located)
    check("the slow link between hosts 0 and 2 carries the data" in
          moves[0]["why"], moves[0])
    check(moved["seconds"] >= moved["predicted_s"] > 0.004, moved)
    times = [i["seconds"] for i in found["iterations"]]
    check(min(times[12:step]) > 0.08 > min(times[step + 1:]), times)
    for file in ("model.safetensors", "optimizer.safetensors"):
        check(saved("quiet-40", 40, file) == saved("by-itself", 40, file), file)


@test
def hosts_need_no_events():
    """Over real links, whose times the run measures; a busy machine may look
    like a slow host."""
    a_plan()
    if not trains_quietly():
        return
    found = json_case("run", [*STEPPED, "--checkpoint", "no-events",
                              "--replicas", "2", "--adapt", "--moving", "4ms"])
    check(all(s["refused"] is None for s in found["switches"]),
          found["switches"])
    check(checkpoint("no-events") == checkpoint("quiet"), "weights or moments")


@test
def hosts_that_are_not_are_refused():
    a_plan()
    if not trains_quietly():
        return
    replicas = ["--events", "e.yaml", "--replicas"]
    hosts("from: 1, to: 2, links: [h0-h2], latency: 3")
    case("three", [*STEPPED, *replicas, "3"], 2,
         err="--replicas 3: the plan has 2")
    hosts("from: 1, to: 2, device: 3, slower: x2")
    case("slow", [*STEPPED, *replicas, "2"], 1,
         err="on the cpu device passes take their real duration")
    write("t.yaml", (TRAINED % 2).replace("tensor: 1", "tensor: 2"))
    done = run("plan", "t.yaml", "-o", "t.json", "--no-optimal")
    check(done.returncode == 0, done.stderr)
    hosts("from: 1, to: 2, links: [h0-h2], latency: 3")
    case("tensor", ["train", "t.json", *STEPPED[2:], *replicas, "2"], 1,
         err=r"the events affect hosts with one rank each, but ranks "
             r"compute passes together \(tensor 2, context 1, expert 1\)")


# Reports the changes of the job and its ranks, and the reason why nothing
# migrates.
FIXED = [
    ({"zero: 1": "zero: 2"}, 4, r"gradients are sharded over replicas \(ZeRO "
     r"2\); plan with zero: 1"),
    ({"zero: 1": "zero: 3"}, 4, r"gradients are sharded over replicas \(ZeRO "
     r"3\); plan with zero: 1"),
    ({"tensor: 1": "tensor: 2"}, 8, r"ranks compute passes together \(tensor "
     r"2, context 1\); plan with tensor: 1 and context: 1"),
    ({"context: 1": "context: 2", "data: 2": "data: 1"}, 4, "ranks compute "
     r"passes together \(tensor 1, context 2\); plan with"),
    ({"ffn: 48": "experts: 4, experts_per_token: 2, expert_ffn: 16",
      "expert: 1": "expert: 2"}, 4,
     r"experts are on several ranks \(expert 2\); plan with expert: 1"),
]


@test
def immovable_parts_are_reported_before_the_run():
    a_plan()
    if not trains_quietly():
        return
    (WORK / "f.log").unlink(missing_ok=True)
    for other, n, why in FIXED:
        text = TRAINED % 2
        for old, new in other.items():
            check(old in text, old)
            text = text.replace(old, new)
        write("f.yaml", text)
        done = run("plan", "f.yaml", "-o", "f.json", "--no-optimal")
        if not check(done.returncode == 0, done.stderr):
            continue
        swapped = ",".join(map(str, range(n - 1, -1, -1)))
        train = ["train", "f.json", "--device", "cpu", "--data", "text",
                 "--steps", "6", "--log", "f.log"]
        case(f"{other}: places", [*train, "--places-at", f"3={swapped}",
                                  "--schedule-at", "4=gpipe"], 1,
             err=f"ranks cannot migrate in this run: {why}")
        case(f"{other}: layers", [*train, "--layers-at", "3=1,3"], 1,
             err=f"layers cannot migrate in this run: {why}")
        case(f"{other}: adapt", [*train, "--adapt", "--moving", "1ms"], 1,
             err=f"layers cannot migrate in this run: {why}")
    check(read("f.log") == "", "no iteration has run")


def moves_of(found):
    return [s for s in found["switches"] if s["moved"]]


@test
def layers_leave_a_slow_device_automatically():
    uniform("p.yaml", microbatches=8, times=(16, 16, 16))
    write("e.yaml", "longhaul: events/1\ntime_unit: ms\nevents:\n"
                    "  - {from: 12, to: 60, device: 2, slower: x2}\n")
    base = ["p.yaml", "-s", "zb-h1", "--events", "e.yaml", "--steps", "40",
            "--adapt", "--layers", "8,8,8,8", "--moving", "400ms"]
    played = json_case("played", ["simulate", *base])["layer_moves"][0]
    found = json_case("run", ["train", *base, "--speed", "8", "--log", "log"])
    moves = moves_of(found)
    if not check(moves, found["switches"]):
        return
    first = moves[0]
    # As in virtual time, unless the machine is too busy to decide in time.
    check(first["step"] >= played["step"] - 1 and
          first["moved"]["layers"][2] < 8 and
          sum(first["moved"]["layers"]) == 32, (first, played))
    check("device 2 takes 2 times as long" in first["why"], first)
    check(first["moved"]["seconds"] >= first["moved"]["predicted_s"] > 0, first)
    told = [d for d in found["decisions"] if d["switch"]]
    check(any(d["why"] == first["why"] for d in told), told)
    lines = [json.loads(line) for line in read("log").splitlines()]
    check(any(line.get("switch") == first for line in lines), "log")
    noticed = [n["text"] for n in found["noticed"]]
    check(any("passes of device 2" in text for text in noticed) and
          not any("enable migration with" in text for text in noticed), noticed)
    stay = json_case("stay", ["train", *base[:-4], "--speed", "8"])
    check(not moves_of(stay), stay["switches"])
    check(any("migrated layers could save a part" in n["text"]
              for n in stay["noticed"]), stay["noticed"])


@test
def hosts_exchange_automatically():
    links = [(a, b) for a in range(4) for b in (a - 1, a + 1) if 0 <= b < 4]
    write("h.yaml", "longhaul: pipeline/1\ntime_unit: us\nmicrobatches: 8\n"
          "devices: 4\nuniform: {placement: ud, F: 12400, D: 12400, W: 12400, "
          "memory: {F: 1, D: 0, W: -1}}\nlinks:\n" +
          "".join(f"  - {{from: {a}, to: {b}, transfer: 671}}\n"
                  for a, b in links) + "data_parallel:\n" +
          "".join(f"  - {{chunk: {c}, all_gather: 35000, "
                  "reduce_scatter: 35000}\n" for c in range(4)))
    write("e.yaml", "longhaul: events/1\ntime_unit: ms\nevents:\n"
                    "  - {from: 12, to: 60, links: [h0-h4], transfer: 30}\n")
    base = ["h.yaml", "-s", "zb-h2", "--events", "e.yaml", "--steps", "24",
            "--adapt", "--replicas", "2", "--moving", "400ms"]
    played = json_case("played", ["simulate", *base])["exchanges"][0]
    found = json_case("run", ["train", *base, "--speed", "10"])
    moves = moves_of(found)
    if check(moves, found["switches"]):
        check(moves[0]["moved"]["places"] == played["hosts"] and
              moves[0]["step"] >= played["step"] - 1 and
              abs(moves[0]["moved"]["predicted_s"] * 10 - played["move_s"])
              < 1e-6, (moves[0], played))


@test
def impossible_requests_are_rejected():
    uniform("p.yaml", latency=8, transfer=1)
    a_plan()
    played = ["train", "p.yaml", "-s", "1f1b", "--steps", "3", "--layers",
              "2,2,2,2"]
    layers = "--layers-at"
    for given, says in [
            (["1"], r"--layers-at: '1' is not STEP=N,N,\.\.\."),
            (["x=1,2"], "is not STEP=N,N"),
            (["1=1,2,"], "is not STEP=N,N"),
            (["1=0,4,2,2"], r"is not STEP=N,N,\.\.\. with whole numbers of at "
                            r"least 1 \(each chunk needs a layer\)"),
            (["1=2,2,4"], "1: numbers of 3 chunks; the pipeline has 4"),
            (["1=2,2,2,3"], "1: 9 layers; the chunks have 8 together"),
            (["3=1,2,3,2"], "iterations 0 to 2; see --steps"),
            (["1=1,2,3,2;1=2,2,2,2"], "--layers-at: iteration 1 is given "
                                      "twice")]:
        case(given[0], [*played, layers, *given], 2, err=says)
    case("no layers", ["train", "p.yaml", "-s", "1f1b", layers, "1=1,2,3,2"],
         2, err="--layers-at requires --layers, or a plan")
    case("wrong ones", ["train", "p.yaml", "-s", "1f1b", "--layers", "1,2",
                        layers, "1=1,2,3,2"], 2, err="--layers: '1,2' is not")
    case("alone", ["train", "p.yaml", "--layers", "2,2,2,2"], 2,
         err="--layers requires --layers-at")
    case("moving", ["train", "p.yaml", "--moving", "1ms"], 2,
         err="--moving requires --layers-at")
    case("adapt moving", ["train", "p.yaml", "--adapt", "--moving", "1ms"], 2,
         err="--moving with --adapt requires --layers or --replicas")
    case("real links", ["train", "p.yaml", "-s", "1f1b", "--adapt", "--moving",
                        "1ms", "--replicas", "2", "--real-links"], 1,
         err="timed ranks run one replica")
    case("timed places", ["train", "p.yaml", "--places-at", "1=1,0,2,3"], 2,
         err="--places-at on the timed device requires --replicas and --events")
    cpu = [*STEPPED, "--places-at"]
    for given, says in [("1=0,1", "expected each of the ranks 0 to 3 once"),
                        ("1=0,1,2,2", "expected each of the ranks 0 to 3 once"),
                        ("1=0,1,2,4", "expected each of the ranks 0 to 3 "
                                      "once")]:
        case(given, [*cpu, given], 2, err=says)
    case("a plan's", [*STEPPED, layers, "1=1,3", "--layers", "2,2"], 2,
         err="--layers requires --device timed")
    case("cpu moving", [*STEPPED, layers, "1=1,3", "--moving", "1ms"], 2,
         err="--moving requires --device timed")
    case("profile", [*STEPPED, layers, "1=1,3", "--profile-out", "f"], 2,
         err="--profile-out measures one schedule")
    case("adapt", [*STEPPED, layers, "1=1,3", "--adapt"], 2,
         err="--adapt chooses schedules itself")
    if trains_quietly():
        for given in ([layers, "1=1,3"], ["--places-at", "1=1,0,2,3"]):
            case("enforced", [*STEPPED, *given, "--memory", "enforce"], 1,
                 err="in this run: memory limits are enforced, and a migration "
                     "needs memory for the state twice")


finish()
