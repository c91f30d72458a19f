#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""simulate --layers: layers migrate from slow devices, and back."""
import json

from harness import case, check, finish, json_case, read, test, uniform, write

GO_BY = 2  # iterations from a decision until it takes effect
STEPS = 160
LAYERS = ["--layers", "8,8,8,8"]


def files(*rows):
    uniform("p.yaml", microbatches=8, times=(16, 16, 16))
    write("e.yaml", "longhaul: events/1\ntime_unit: ms\nevents:\n" +
          "".join(f"  - {{{row}}}\n" for row in rows))


def played(name, *more):
    return json_case(name, ["simulate", "p.yaml", "-s", "zb-h1", "--events",
                            "e.yaml", "--steps", str(STEPS), "--adapt", *more])


def seconds(found, step):
    return found["iterations"][step]["seconds"]


@test
def layers_leave_a_slow_device_and_return():
    files("from: 20, to: 120, device: 2, slower: x2")
    found = played("moving", *LAYERS, "--moving", "400ms", "--log", "log",
                   "--html", "r.html", "--svg", "s.svg")
    kept = played("kept")
    moves = found["layer_moves"]
    first, last = moves[0], moves[-1]
    check(first["step"] in (20 + 2 + GO_BY, 20 + 3 + GO_BY), first)
    check(all(sum(m["layers"]) == 32 and m["layers"][2] < 8
              for m in moves[:-1]), moves)
    check("device 2 takes 2 times as long" in first["why"], first)
    # The layers return soon after the event, as far as this saves time.
    check(last["layers"][2] >= 8 and 120 < last["step"] < 140, last)
    check(seconds(found, STEPS - 1) <= seconds(kept, STEPS - 1), "as before")
    for m in moves:
        at = m["step"]
        # 50 ms per layer; a host sends and receives one layer at a time.
        check(m["move_s"] > 0 and
              abs(m["move_s"] / 0.05 - round(m["move_s"] / 0.05)) < 1e-6, m)
        check(abs(seconds(found, at) - seconds(found, at + 1) - m["move_s"])
              < 1e-6 and abs(seconds(found, at + 1) - m["predicted_s"]) < 1e-6,
              found["iterations"][at:at + 2])
        check(found["iterations"][at]["layers"] == m and
              "layers" not in found["iterations"][at + 1], "its iteration")
    check(json.loads(read("log").splitlines()[first["step"]])["layers"] ==
          first, "log")
    check("Layer migrations" in read("r.html") and
          "layers move" in read("s.svg"), "report and picture")
    # With two of its eight layers fewer the device takes 1.5 times as long.
    check(seconds(kept, 100) > 1.6 * seconds(kept, 10), "kept")
    check(seconds(found, 100) < 1.25 * seconds(found, 10), "moved")
    check(found["total_s"] < 0.85 * kept["total_s"],
          f"{found['total_s']} and {kept['total_s']}")
    check("layer_moves" not in kept, kept.keys())
    again = played("again", *LAYERS, "--moving", "400ms")
    check(again == played("and again", *LAYERS, "--moving", "400ms"), "same")


@test
def unprofitable_migrations_are_rejected():
    files("from: 20, to: 30, device: 2, slower: x2")
    found = played("short", *LAYERS, "--moving", "40s")
    check(found["layer_moves"] == [], found["layer_moves"])
    files("from: 20, to: 150, device: 2, slower: x1.01")
    found = played("little", *LAYERS, "--moving", "1ms")
    check(found["layer_moves"] == [], found["layer_moves"])


@test
def links_and_jitter_move_no_layers():
    uniform("p.yaml", microbatches=8, latency=8, transfer=1)
    write("e.yaml", """
        longhaul: events/1
        time_unit: ms
        events:
          - {from: 40, to: 90, links: [0-1], latency: 60}
        """)
    found = played("links", *LAYERS, "--moving", "1ms", "--jitter",
                   "latency=0.03,transfer=0.03")
    check(found["layer_moves"] == [], found["layer_moves"])


@test
def hosts_and_layers_go_together():
    """A slow link between replicas, and a slow host."""
    uniform("p.yaml", microbatches=8, times=(16, 16, 16))
    write("p.yaml", read("p.yaml") + "links:\n" + "".join(
        f"  - {{from: {a}, to: {b}, transfer: 1}}\n"
        for a, b in ((0, 1), (1, 0), (1, 2), (2, 1), (2, 3), (3, 2))) +
          "data_parallel:\n" + "".join(
              f"  - {{chunk: {c}, all_gather: 20, reduce_scatter: 20}}\n"
              for c in range(4)))
    write("e.yaml", """
        longhaul: events/1
        time_unit: ms
        events:
          - {from: 20, to: 90, links: [h0-h4], transfer: 20}
          - {from: 50, to: 90, device: 6, slower: x2}
        """)
    both = ["--replicas", "2", *LAYERS, "--moving", "400ms"]
    found = played("both", *both)
    check(len(found["exchanges"]) >= 1 and len(found["layer_moves"]) >= 2 and
          found["layer_moves"][0]["layers"][2] < 8, found)
    quiet = seconds(found, 10)
    check(seconds(found, 45) < 1.1 * quiet < 3 * quiet, "hosts moved")
    check(seconds(found, 85) < 1.4 * quiet, "layers moved")


@test
def the_text_names_the_exchanges():
    files("from: 20, to: 120, device: 2, slower: x2")
    case("text", ["simulate", "p.yaml", "-s", "zb-h1", "--events", "e.yaml",
                  "--steps", "130", "--adapt", *LAYERS, "--moving", "400ms"],
         out=r"Layer migrations.*device 2 takes 2 times\s+as long.*with\s+8,"
             r"\s+8,\s+8,\s+8\s+layers")


@test
def impossible_requests_are_rejected():
    files("from: 20, to: 120, device: 2, slower: x2")
    base = ["simulate", "p.yaml", "-s", "zb-h1"]
    play = [*base, "--events", "e.yaml", "--steps", "3", "--adapt"]
    case("alone", [*play, *LAYERS], 2, err="--layers requires --moving")
    case("moving", [*play, "--moving", "1ms"], 2, err="--moving requires --adapt")
    for wrong in ("8,8,8", "8,8,8,8,8", "8,8,8,0", "8,8,8,", "8,8,,8", "a",
                  "8,8,8,8.5"):
        case(wrong, [*play, "--moving", "1ms", "--layers", wrong], 2,
             err=r"--layers: '.*for each of the 4 chunks")


finish()
