#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""simulate --replicas: slow links between hosts; host exchanges."""
import json

from harness import (VIRTUAL, case, check, finish, json_case, read, run, test,
                     write)
from input_files import TRAINED

GO_BY = 2  # iterations from a decision until it takes effect
STEPS = 100
QUIET = 434  # ms, iteration time of zb-h2 on the direct path


def files(stages=4):
    """Writes the 7B job of Adaptra's figure 3; the data-parallel communication
    of a stage equals 104 messages."""
    links = [(a, b) for a in range(stages) for b in (a - 1, a + 1)
             if 0 <= b < stages]
    write("p.yaml", "longhaul: pipeline/1\ntime_unit: us\nmicrobatches: 8\n"
          f"devices: {stages}\nuniform: {{placement: ud, F: 12400, D: 12400, "
          "W: 12400, memory: {F: 1, D: 0, W: -1}}\nlinks:\n" +
          "".join(f"  - {{from: {a}, to: {b}, transfer: 671}}\n"
                  for a, b in links) + "data_parallel:\n" +
          "".join(f"  - {{chunk: {c}, all_gather: 35000, "
                  "reduce_scatter: 35000}\n" for c in range(stages)))


def events(*rows):
    write("e.yaml", "longhaul: events/1\ntime_unit: ms\nevents:\n" +
          "".join(f"  - {{{row}}}\n" for row in rows))


def played(name, *more, path=("--coupled", "1", "--receives", "late")):
    return json_case(name, ["simulate", "p.yaml", "-s", "zb-h2", "--events",
                            "e.yaml", "--steps", str(STEPS), "--replicas", "2",
                            *path, *more])


def seconds(found, step):
    return found["iterations"][step]["seconds"]


@test
def the_cost_of_a_slow_link_depends_on_its_traffic():
    files()
    # Hosts 0 and 4 have device 0; 0 and 1 are neighbours; 0 and 5 are neither.
    for link, least, most in (("h0-h4", 8, 8.4), ("h4>h0", 8, 8.4),
                              ("h0-h1", 1.8, 2.3), ("0-1", 1.8, 2.3),
                              ("h0-h5", 1, 1)):
        events(f"from: 10, to: 20, links: ['{link}'], transfer: 30")
        found = played(link)
        quiet, slow = seconds(found, 9), seconds(found, 10)
        check(abs(quiet * 1000 - QUIET) < 1, f"{link}: quiet {quiet}")
        check(least <= slow / quiet <= most, f"{link}: {slow / quiet}")
        check(seconds(found, 20) == quiet and found["exchanges"] == [], link)
        check(found["iterations"][10]["slow"] == [link], link)


@test
def a_slow_host_affects_its_own_stage():
    files()
    events("from: 10, to: 20, device: 6, slower: x2")
    found = played("host")
    check(found["iterations"][10]["slow"] == ["host 6"], found["iterations"])
    check(seconds(found, 10) > 1.5 * seconds(found, 9), "slow")


@test
def a_timed_run_has_the_predicted_time():
    """Uses the timed device: no iteration may be shorter than predicted."""
    files()
    events("from: 1, to: 3, links: [h0-h4], transfer: 30",
           "from: 4, to: 5, device: 6, slower: x2")
    replicas = ["--events", "e.yaml", "--replicas", "2"]
    said = json_case("simulate", ["simulate", "p.yaml", "-s", "zb-h2", "-n",
                                  "6", *replicas])["iterations"]
    for transport in ("inproc", "local"):
        found = json_case(transport, [
            "train", "p.yaml", "-s", "1f1b", "--steps", "6", "--speed", "8",
            "--schedule-at", "1=zb-h2", "--transport", transport, *replicas])
        for i, one in enumerate(found["iterations"][1:], 1):
            check(one["slow"] == said[i]["slow"] and
                  one["seconds"] * 8 >= 0.999 * said[i]["seconds"],
                  f"{transport}, {i}: {one}, said {said[i]}")
        check(found["iterations"][1]["seconds"] * 8 > 3, "data was slow")
    case("without", ["train", "p.yaml", "--replicas", "2"], 2,
         err="--replicas requires --events, or --adapt with --moving")


@test
def hosts_exchange_their_places():
    files()
    events("from: 20, to: 80, links: [h0-h4], transfer: 30")
    found = played("moving", "--adapt", "--moving", "400ms", "--log", "log",
                   "--html", "r.html", "--svg", "s.svg")
    kept = played("kept", "--adapt")
    check(len(found["exchanges"]) == 1, found["exchanges"])
    one = found["exchanges"][0]
    step = one["step"]
    # The event is located two iterations after its second or third one.
    check(step in (20 + 4 + GO_BY, 20 + 5 + GO_BY), one)
    check(sorted(one["hosts"]) == list(range(8)), one)
    places = {host: place for place, host in enumerate(one["hosts"])}
    check(places[0] % 4 != places[4] % 4, f"still a ring: {one}")
    check("hosts 0 and 4 carries the data-parallel communication of device 0"
          in one["why"], one)
    check(one["before_s"] > 3 and one["predicted_s"] < 0.5, one)
    check(abs(one["move_s"] - 0.4) < 0.002, one)
    # The first iteration includes the migration; the next ones have the
    # predicted time.
    check(abs(seconds(found, step) - seconds(found, step + 1) - one["move_s"])
          < 1e-9 and abs(seconds(found, step + 1) - one["predicted_s"]) < 1e-9,
          found["iterations"][step:step + 2])
    check(found["iterations"][step]["exchange"] == one and
          "exchange" not in found["iterations"][step + 1], "its iteration")
    check(json.loads(read("log").splitlines()[step])["exchange"] == one, "log")
    check("Host exchanges" in read("r.html") and
          "hosts exchanged" in read("s.svg"), "report and picture")
    check(kept["total_s"] > 3.5 * found["total_s"] and kept["exchanges"] == [],
          f"{kept['total_s']} and {found['total_s']}")
    again = played("again", "--adapt", "--moving", "400ms")
    check(again == played("and again", "--adapt", "--moving", "400ms"), "same")


@test
def a_run_locates_a_link_and_exchanges_hosts():
    """Nothing but measured times announces the link to the run."""
    write("job.yaml", TRAINED % 2)
    run("plan", "job.yaml", "-o", "plan.json", "-q")
    write("text", "It was the best of times, it was the worst of times.\n" * 99)
    write("e.yaml", "longhaul: events/1\ntime_unit: ms\nevents:\n"
          "  - {from: 14, to: 60, links: [h0-h2], transfer: 50}\n")
    train = ["train", "plan.json", "--device", "cpu", "--data", "text",
             "--steps", "40", "--replicas", "2", "--events", "e.yaml"]
    if "OpenBLAS" in run(*train[:6], "--steps", "1").stderr:
        print("SKIPPED training: OpenBLAS is not installed")
        return
    found = json_case("run", [*train, "--adapt", "--moving", "20ms"],
                      program=VIRTUAL)
    begun = [(n["what"], n["index"], n["from"]) for n in found["noticed"]
             if n["change"] == "begins"]
    check(begun == [("data", 0, 14)], found["noticed"])
    located = [d for d in found["decisions"] if "located" in d["why"]]
    check([d["step"] for d in located] == [17] and all(
        f"the link from host {a} to {b} (" in located[0]["why"]
        for a, b in ((0, 2), (2, 0))), found["decisions"])
    move, = found["switches"]
    places = move["moved"]["places"]
    check(move["step"] in (19, 20) and sorted(places) == [0, 1, 2, 3] and
          places.index(0) % 2 != places.index(2) % 2 and
          "the slow link between hosts 0 and 2 carries the data" in move["why"],
          move)
    quiet, slow = (found["iterations"][i]["seconds"] for i in (13, 14))
    check(slow > 100 * quiet and all(
        i["seconds"] < 2 * quiet for i in found["iterations"][21:]),
        found["iterations"])


@test
def unprofitable_exchanges_are_rejected():
    """The exchange costs the savings of twelve iterations."""
    files()
    for last, moves in ((10, 0), (80, 1)):
        events(f"from: 20, to: {20 + last}, links: [h0-h4], transfer: 10")
        found = played(f"{last} steps", "--adapt", "--moving", "12s", path=())
        check(len(found["exchanges"]) == moves, found["exchanges"])
    events("from: 20, to: 80, links: [h0-h4], transfer: 10")
    found = played("dear", "--adapt", "--moving", "120s", path=())
    check(found["exchanges"] == [], found["exchanges"])


@test
def between_two_switches_messages_cross():
    """Only links with traffic can be located. After some exchanges the rings
    are within the halves, and schedules are for the slow link."""
    files()
    across = ", ".join(f"h{a}-h{b}" for a in range(4) for b in range(4, 8))
    events(f"from: 20, to: 90, links: [{across}], transfer: 30")
    found = played("switches", "--adapt", "--moving", "100ms")
    moved = found["exchanges"][-1]
    check(len(found["exchanges"]) <= 4, found["exchanges"])
    halves = [[host // 4 for host in moved["hosts"][r:r + 4]] for r in (0, 4)]
    check(halves[0] == halves[1] and sorted(halves[0]) == [0, 0, 1, 1] and
          halves[0][0] == halves[0][1], f"one link of each pipeline: {moved}")
    later = [s for s in found["switches"] if s["step"] > moved["step"]]
    check(later and later[0]["predicted_s"] < 0.95 * moved["predicted_s"],
          found["switches"])


@test
def the_text_names_the_exchanges():
    files()
    events("from: 20, to: 80, links: [h0-h4], transfer: 30")
    case("text", ["simulate", "p.yaml", "-s", "zb-h2", "--events", "e.yaml",
                  "--steps", "90", "--replicas", "2", "--adapt", "--moving",
                  "400ms"],
         out=r"Host exchanges.*the slow link between hosts 0 "
             r"and\s+4\s+carries\s+the\s+data-parallel\s+communication\s+of\s+"
             r"device\s+0.*carries\s+nothing")


@test
def impossible_requests_are_rejected():
    files()
    events("from: 1, to: 2, links: [h0-h4], transfer: 3")
    base = ["simulate", "p.yaml", "-s", "zb-h2"]
    play = [*base, "--events", "e.yaml", "--steps", "3"]
    case("hosts of no replicas", play, 1, err=r"'h0-h4' is neither a link")
    case("none", [*base, "--replicas", "2"], 2, err="--replicas requires")
    case("moving", [*play, "--moving", "1ms"], 2, err="--moving requires")
    case("path", [*play, "--replicas", "2", "--path", "delegated"], 2,
         err="--replicas cannot be combined with --path")
    case("staging", [*play, "--replicas", "2", "--adapt", "--moving", "1ms",
                     "--staging", "1ms", "--coupled", "1"], 2,
         err="--moving cannot be combined with --staging")
    for link in ("h0-h8", "h0-h0", "h0", "h-h1", "h0-h1-"):
        events(f"from: 1, to: 2, links: ['{link}'], transfer: 3")
        case(link, [*play, "--replicas", "2"], 1,
             err=f"e.yaml:4: links: '{link}'")
    events("from: 1, to: 2, device: 8, slower: x2")
    case("host", [*play, "--replicas", "2"], 1,
         err="no host 8; the placement has 0 to 7")
    events("from: 1, to: 2, links: [h0-h4], latency: x2")
    case("factor", [*play, "--replicas", "2"], 1, err="has no latency")
    write("p.yaml", read("p.yaml").replace("to: 1, transfer: 671",
                                           "to: 1, transfer: 672"))
    # The links differ, so the ratio of data to messages is unknown.
    events("from: 1, to: 2, links: [h0-h4], transfer: 3")
    case("unlike ring", [*play, "--replicas", "2"], 1,
         err="are 0 or differ; set equal ones")


@test
def hosts_that_differ_exchange_with_those_of_their_device():
    files()
    write("p.yaml", read("p.yaml").replace("to: 1, transfer: 671",
                                           "to: 1, transfer: 1500"))
    events("from: 20, to: 80, links: [h0-h1], latency: 60")
    found = played("unlike", "--adapt", "--moving", "400ms", path=())
    kept = played("kept", "--adapt", path=())
    one = found["exchanges"][0]
    check(all(host % 4 == place % 4 for place, host in enumerate(one["hosts"]))
          and found["total_s"] < kept["total_s"], (one, found["total_s"],
                                                   kept["total_s"]))


finish()
