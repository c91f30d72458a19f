#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""simulate --events --adapt: decisions of an adaptive run, and their steps."""
import json
import re

from harness import (ANY, ROOT, case, check, finish, json_case, read, run, test,
                     uniform, write)

TRACE = ROOT / "examples/adaptra-trace.yaml"
STAGES = ROOT / "examples/adaptra-8-stages.yaml"
DIRECT = ["--coupled", "1", "--receives", "late"]
GO_BY = 2     # iterations from a decision to the switch
LEAST = 10    # from one switch to the next
AT_ONCE = 1.2  # a slowdown by this factor is handled earlier


def played(name, pipeline, events, steps, *more):
    return json_case(name, ["simulate", pipeline, "-s", "zb-h2", "--events",
                            events, "--steps", str(steps), "--adapt", *more])


def slow_link(*spans, latency=60):
    """Returns events that slow down link 6-7 in those steps."""
    return ("longhaul: events/1\ntime_unit: ms\nevents:\n" +
            "".join(f"  - {{from: {a}, to: {b}, links: [6-7], "
                    f"latency: {latency}}}\n" for a, b in spans))


@test
def the_published_trace_is_adapted_to():
    """The run may take 29.6 minutes. With instantaneous detection it would take
    29.4: each event's iterations at their lower bound. The paper measured 33.2
    with staging."""
    found = played("trace", STAGES, TRACE, 1200, *DIRECT)
    check(found["total_s"] <= 29.6 * 60, f"{found['total_s'] / 60} minutes")
    steps = found["iterations"]
    check(abs(sum(i["seconds"] for i in steps) - found["total_s"]) < 1e-6,
          "the sum of the iterations")
    check(steps[0]["path"] == "direct" and steps[1199]["path"] == "delegated",
          "the path")
    for s in found["switches"]:
        # Measured times equal predicted times while the links do not change.
        first = steps[s["step"]]
        check(abs(first["seconds"] - s["predicted_s"]) < 1e-9, s)
        check(first["schedule"] == s["to"] and first["path"] == s["path"] and
              steps[s["step"] - 1]["schedule"] == s["from"], s)
        check(s["bound_s"] <= s["predicted_s"] < s["before_s"], s)
        check(s["why"], s)


@test
def sums_are_kept_where_that_is_asked_for():
    """The initial schedule runs W passes in reverse order. No method keeps this
    reduction order, so --same-sums excludes all methods."""
    write("p.yaml", """\
        longhaul: pipeline/1
        time_unit: ms
        microbatches: 8
        devices: 4
        backward: split
        uniform: {placement: ud, F: 10, D: 10, W: 10, memory: {F: 1, W: -1}}
        datacenters: {count: 4, latency: 1}
        """)
    write("s.csv", "".join(",".join(
        [f"{d}{kind}{m}" for kind in "FI" for m in range(8)] +
        [f"{d}W{7 - m}" for m in range(8)]) + "\n" for d in range(4)))
    write("e.yaml", "longhaul: events/1\ntime_unit: ms\nevents:\n"
          "  - {from: 5, to: 30, links: [dc1-dc2], latency: 60}\n")
    common = ["simulate", "p.yaml", "-s", "s.csv", "--events", "e.yaml",
              "--steps", "30"]
    free, kept = (json_case(str(more), [*common, "--adapt", *more])
                  for more in ([], ["--same-sums"]))
    searched = {"original", "optimal"}
    check({s["to"] for s in free["switches"]} - searched,
          f"{free['switches']}")
    check({s["to"] for s in kept["switches"]} <= searched,
          f"{kept['switches']}")
    case("alone", [*common, "--same-sums"], code=2,
         err="--same-sums requires --adapt")


@test
def a_switch_comes_when_it_can_be_there():
    """Detection takes two iterations, the decision one, the vote one. The first
    change of a run takes one iteration more to detect."""
    write("once.yaml", slow_link((40, 80)) +
          "  - {from: 120, to: 160, links: [5-6], latency: 80}\n")
    found = played("once", STAGES, "once.yaml", 200)
    for begin, end, seen in ((40, 80, 3), (120, 160, 2)):
        onset = [s["step"] for s in found["switches"]
                 if begin <= s["step"] < end]
        check(onset[:1] == [begin + seen + GO_BY], found["switches"])
    write("late.yaml", slow_link((97, 100)))
    found = played("too late", STAGES, "late.yaml", 100)
    check(not any(s["step"] > 97 for s in found["switches"]),
          found["switches"])


@test
def short_recurring_events_cause_no_flapping():
    """Tests events of two to six iterations with pauses of the same length."""
    for on in (2, 3, 4, 6):
        spans = [(a, a + on) for a in range(20, 200, 2 * on)]
        write("flap.yaml", slow_link(*spans))
        found = played(f"{on} on", STAGES, "flap.yaml", 220)
        at = [s["step"] for s in found["switches"]]
        check(len(at) <= 220 // LEAST, at)
        for before, now in zip(found["switches"], found["switches"][1:]):
            check(now["step"] - before["step"] >= LEAST or
                  now["before_s"] >= AT_ONCE * before["predicted_s"],
                  f"{before} and then {now}")
        kept = json_case(f"{on} kept", ["simulate", STAGES, "-s", "zb-h2",
                                        "--events", "flap.yaml", "--steps",
                                        "220"])
        check(found["total_s"] <= 1.01 * kept["total_s"],
              f"{found['total_s']} s, kept {kept['total_s']}")
        check(found["kept_s"] == kept["total_s"] and "kept_s" not in kept,
              f"{found['kept_s']} s kept, {kept}")


# Memory permits one of two schedules: one for the normal link, one for the slow
# link.
TIGHT = """
    longhaul: pipeline/1
    time_unit: ms
    microbatches: 16
    devices: 4
    memory_limit: 7
    chunks:
""" + "".join(f"      - {{device: {d}, F: 20, D: 22, W: 14, "
              "memory: {F: 1, D: 0, W: -1}}\n" for d in range(4)) + """
    links:
      - {from: 0, to: 1, latency: 0.1, transfer: 0.2}
      - {from: 1, to: 0, latency: 0.1, transfer: 0.2}
      - {from: 1, to: 2, latency: 30, transfer: 2}
      - {from: 2, to: 1, latency: 30, transfer: 2}
      - {from: 2, to: 3, latency: 0.1, transfer: 0.2}
      - {from: 3, to: 2, latency: 0.1, transfer: 0.2}
"""


@test
def short_events_are_not_handled():
    """Tests recurring events that end before they can be detected."""
    write("tight.yaml", TIGHT)
    for on, period in ((2, 20), (3, 20), (4, 20), (5, 40)):
        write("short.yaml", "longhaul: events/1\ntime_unit: ms\nevents:\n" +
              "".join(f"  - {{from: {a}, to: {a + on}, links: [1-2], "
                      "latency: 120}\n" for a in range(20, 300, period)))
        totals = [json_case(
            f"{on} of {period}", ["simulate", "tight.yaml", "-s",
                                  "steady-slack", "--events", "short.yaml",
                                  "--steps", "300", *adapt])["total_s"]
                  for adapt in ([], ["--adapt"])]
        check(totals[1] <= 1.006 * totals[0], f"{on} of {period}: {totals}")


@test
def copies_that_cost_are_kept_to_slow_links():
    found = played("staging", STAGES, TRACE, 120, *DIRECT, "--staging", "5ms")
    paths = [i["path"] for i in found["iterations"]]
    check(paths[14] == "direct" and paths[60] == "mixed" and
          paths[119] == "direct", paths)
    found = played("dear", STAGES, TRACE, 120, *DIRECT, "--staging", "2s")
    check({i["path"] for i in found["iterations"]} == {"direct"}, "path")


@test
def results_with_jitter_are_deterministic():
    uniform("p.yaml", latency=8, transfer=1)
    write("e.yaml", """
        longhaul: events/1
        time_unit: ms
        events:
          - {from: 40, to: 90, links: [0-1], latency: 60}
        """)
    jitter = ["--jitter", "latency=0.03,transfer=0.03"]
    ones = [played(f"seed {seed}", "p.yaml", "e.yaml", 120, *jitter, "--seed",
                   seed, "--log", "l.jsonl") for seed in "112"]
    check(ones[0] == ones[1] != ones[2], "the seed decides")
    check([json.loads(line) for line in read("l.jsonl").splitlines()] ==
          ones[2]["iterations"], "the log")
    seconds = [i["seconds"] for i in ones[0]["iterations"]]
    check(len(set(seconds)) > 100, "iterations vary")


@test
def the_text_explains_decisions():
    done = case("text", ["simulate", STAGES, "-s", "zb-h2", *DIRECT,
                         "--events", TRACE, "--steps", "420", "--adapt"],
                out=r"(?s)no switch .*Events.*Switches.*all messages\s+delegated")
    for words in ("each way", "no schedule is"):
        check(words in done.stdout, words)
    check(max(map(len, done.stdout.splitlines())) <= 80, "columns")
    case("page", ["simulate", STAGES, "-s", "zb-h2", *DIRECT, "--events", TRACE,
                  "--steps", "420", "--adapt", "--html", "r.html", "-q"], out=ANY)
    kept = re.search(r"(?m)^no switch +(.*) with zb-h2", done.stdout)[1]
    check(f'["without adapting","{kept}"]' in read("r.html"), kept)


@test
def messages_are_delegated_by_hand():
    """No pass waits for a delegated message. Two copies add to the latency of
    the delegated links only."""
    uniform("p.yaml", latency=8, sites=4)
    uniform("far.yaml", latency=8 + 2 * 3, sites=4)
    base = ["simulate", "p.yaml", "-s", "zb-h1"]
    free = json_case("free", [*base])["makespan_s"]
    direct = json_case("direct", [*base, *DIRECT])["makespan_s"]
    check(direct > free, f"{direct} and {free}")
    every = json_case("all", [*base, *DIRECT, "--path", "delegated"])
    check(every["makespan_s"] == free, every["makespan_s"])
    staged = json_case("staged", [*base, *DIRECT, "--path", "delegated",
                                  "--staging", "3ms"])["makespan_s"]
    # The schedule is the one for the longer latency: zb-h1 has one schedule for
    # all.
    far = json_case("far", ["simulate", "far.yaml", "-s", "zb-h1"])
    check(staged == far["makespan_s"], f"{staged}, {far['makespan_s']}")
    some = json_case("some", [*base, *DIRECT, "--path",
                              "dc0-dc1=delegated,dc1>dc2=delegated"])["makespan_s"]
    check(free <= some <= direct, f"{free}, {some}, {direct}")
    names = ",".join(f"dc{a}-dc{a + 1}=delegated" for a in range(3))
    each = json_case("each", [*base, *DIRECT, "--path", names])["makespan_s"]
    check(each == free, f"{each}, {free}")


@test
def delegated_messages_have_events_too():
    """Factors of events apply to links, not to copies."""
    uniform("p.yaml", latency=8, sites=4)
    write("e.yaml", """
        longhaul: events/1
        time_unit: ms
        events:
          - {from: 2, to: 4, links: [dc0-dc1], latency: x3}
        """)
    played_on = json_case("played", [
        "simulate", "p.yaml", "-s", "zb-h1", *DIRECT, "--path", "delegated",
        "--staging", "3ms", "--events", "e.yaml", "-n", "5"])
    seconds = [i["seconds"] for i in played_on["iterations"]]
    text = read("p.yaml")
    quiet = json_case("quiet", ["simulate", "p.yaml", "-s", "zb-h1", "--path",
                                "delegated", "--staging", "3ms"])
    check(seconds[0] == seconds[4] == quiet["makespan_s"], seconds)
    write("slow.yaml", re.sub(
        r"datacenters:.*", "links:\n" + "".join(
            f"  - {{from: {a}, to: {b}, latency: {6 + 8 * (3 if 0 in (a, b) else 1)}}}\n"
            for a, b in ((0, 1), (1, 0), (1, 2), (2, 1), (2, 3), (3, 2))), text))
    slow = json_case("slow", ["simulate", "slow.yaml", "-s", "zb-h1"])
    check(seconds[2] == seconds[3] == slow["makespan_s"], seconds)
    check({i["path"] for i in played_on["iterations"]} == {"delegated"},
          "path")


@test
def paths_that_mean_nothing_are_refused():
    uniform("p.yaml", latency=8, sites=4)
    for path, words in (("direct", "is not delegated or LINK=delegated"),
                        ("0-1", "is not delegated or LINK=delegated"),
                        ("", "the argument is empty")):
        case(path, ["simulate", "p.yaml", *DIRECT, "--path", path], code=2,
             err=words)
    case("no effect", ["simulate", "p.yaml", "--path", "delegated"], code=2,
         err="--path has no effect")
    case("no link", ["simulate", "p.yaml", *DIRECT, "--path",
                     "0-9=delegated"], code=1, err="--path: '0-9' is neither a link")
    case("no link there", ["simulate", STAGES, *DIRECT, "--path",
                           "0-1=delegated"], code=1, err="has no link '0-1'")
    case("both", ["simulate", "p.yaml", *DIRECT, "--path", "delegated",
                  "--adapt", "--events", TRACE, "--steps", "3"], code=2,
         err="--path cannot be combined with --adapt")


@test
def activations_on_the_host_cost_copies():
    """Four activations fit on a device and twelve on the host. Activations
    beyond the first four cost a copy each way. On a single device no link wait
    hides the copies, so each of these passes takes a copy longer."""
    uniform("one.yaml", devices=1, microbatches=6, limit=4)
    base = ["simulate", "one.yaml", "-s", "gpipe", "--host-memory", "12"]
    free = json_case("free", base)["makespan_s"]
    check(free == 6 * 0.03, free)
    copied = json_case("copied", [*base, "--host-copy", "1ms"])["makespan_s"]
    check(abs(copied - (free + 2 * 2 * 0.001)) < 1e-9, f"{copied} and {free}")
    uniform("p.yaml", devices=4, latency=1, sites=4, limit=4)
    write("e.yaml", """
        longhaul: events/1
        time_unit: ms
        events:
          - {from: 20, to: 60, links: [dc0-dc1], latency: 20}
        """)
    base = ["simulate", "p.yaml", "-s", "zb-h1", "--events", "e.yaml",
            "--steps", "70", "--adapt"]
    host = ["--host-memory", "12"]
    played_on = [json_case(name, [*base, *more])
                 for name, more in (("without", []), ("with", host),
                                    ("copies", [*host, "--host-copy", "1ms"]),
                                    ("some", ["--host-memory", "2",
                                              "--host-copy", "3ms"]))]
    totals = [found["total_s"] for found in played_on]
    check(totals[1] < totals[2] < totals[0], totals)
    # Each copy is counted once: the iteration takes the predicted time.
    for found in played_on:
        for s in found["switches"]:
            seconds = found["iterations"][s["step"]]["seconds"]
            check(abs(seconds - s["predicted_s"]) < 1e-9, f"{s}: {seconds}")


@test
def the_options_that_adapt_requires_are_named():
    for more, words in ((["--adapt"], "--adapt requires --events"),
                        (["--events", TRACE, "--steps", "9", "--staging",
                          "1ms"], "--staging requires --path or --adapt"),
                        (["--adapt", "--events", TRACE, "--steps", "9",
                          "--staging", "1ms"],
                         "--staging has no effect"),
                        (["--host-copy", "1ms"],
                         "--host-copy requires --host-memory"),
                        (["--events", TRACE, "--steps", "9", "--jitter",
                          "latency=1"], "--jitter with --events requires")):
        case(words, ["simulate", STAGES, *more], code=2, err=words)


finish()
