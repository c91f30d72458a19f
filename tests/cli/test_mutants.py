#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Regressions found by damaged files (tests/fuzz/mutate.py)."""
from harness import WORK, case, finish, run, test, uniform, write


@test
def errors_in_a_start_name_its_file():
    uniform("p.yaml", devices=2, microbatches=4)
    good = run("schedule", "p.yaml", "-m", "gpipe").stdout.splitlines()
    solve = ["schedule", "p.yaml", "-m", "optimal", "--start", "s.csv"]
    write("s.csv", "\n".join(good) + "\n")
    case("a start", solve, out=r"\A0F0")
    write("s.csv", good[0] + ",2F0\n" + good[1] + "\n")
    case("no such chunk", solve, 1,
         err=r"\Alonghaul: start: s\.csv:1: cell 9 \(2F0\): the pipeline "
             r"has no such chunk\n\Z")
    write("s.csv", good[0] + "\n")
    case("a row is missing", solve, 1,
         err=r"\Alonghaul: start: s\.csv: the schedule has 1 row for the "
             r"pipeline's 2 devices\n\Z")


@test
def errors_in_link_orders_name_the_schedule():
    uniform("p.yaml", devices=2, microbatches=2, latency=5, transfer=1)
    (WORK / "s.csv").write_text(run("schedule", "p.yaml", "-m", "gpipe").stdout)
    order = "dc0>dc1,0F0,0F1\n"
    for name, text, message in (
            ("another link", order + "moon,0F0\n",
             "2: the schedule orders messages of link 'moon'"),
            ("twice", order + order, "2: link 'dc0>dc1' has two"),
            ("a message is missing", "dc0>dc1,0F1\n",
             "1: link 'dc0>dc1': 1 messages are ordered"),
            ("another pass", "dc0>dc1,0F0,1F1\n",
             "1: link 'dc0>dc1': 1F1 sends nothing")):
        write("s.links.csv", text)
        case(name, ["simulate", "p.yaml", "-s", "s.csv"], 1,
             err=rf"\Alonghaul: s\.csv: link order {message}[^\n]*\n\Z")


finish()
