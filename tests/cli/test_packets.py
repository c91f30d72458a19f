#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""packets: messages over a long link, packet by packet."""
import re
import shlex

from harness import ROOT, case, check, finish, json_case, run, test

PAGE = (ROOT / "docs" / "theory" / "packets.md").read_text(encoding="utf-8")
LINK = ["packets", "--gbps", "100", "--latency", "1ms", "--message", "1MB"]


@test
def the_page_shows_the_output_of_its_commands():
    blocks = re.findall(r"```console\n\$ longhaul (.*)\n([^`]*)```", PAGE)
    check(len(blocks) == 3, len(blocks))
    for line, output in blocks:
        done = run(*shlex.split(line))
        printed = "\n".join(row.rstrip() for row in done.stdout.splitlines())
        check(printed.strip() == output.strip(), f"{line}:\n{printed}")


@test
def rows_are_all_combinations():
    found = json_case("grid", [*LINK, "--loss", "0,1%", "--queue-pairs", "1,2,8",
                               "--seeds", "2"])
    check([(r["loss"], r["queue_pairs"]) for r in found["rows"]] ==
          [(loss, n) for loss in (0, 0.01) for n in (1, 2, 8)], found)
    for row in found["rows"]:
        check(row["sent"] == row["delivered"] + row["lost"] + row["dropped"],
              row)
        check((row["lost"] > 0) == (row["loss"] > 0), row)
    again = json_case("again", [*LINK, "--loss", "0,1%", "--queue-pairs",
                                "1,2,8", "--seeds", "2", "-j", "2"])
    check(again == found, "depends on the number of threads")
    other = json_case("seed", [*LINK, "--loss", "1%", "--seeds", "2",
                               "--seed", "9"])
    check(other["rows"][0] != found["rows"][3], "--seed changes nothing")


@test
def every_option_changes_the_result():
    base = [*LINK, "--loss", "0.5%", "--seeds", "1", "--paths", "2",
            "--queue-pairs", "4", "--interface-gbps", "100", "--messages", "2",
            "--senders", "3"]
    plain = json_case("plain", base)["rows"][0]
    for option in (["--messages", "3"], ["--interface-gbps", "50"], ["--oversubscription", "2"],
                   ["--return-latency", "3ms"], ["--burst", "4"],
                   ["--variation", "90us"], ["--window-kib", "64"],
                   ["--buffer-kib", "100"], ["--timeout", "700us"],
                   ["--balancing", "spray"], ["--recovery", "go-back-n"],
                   ["--fec", "8+1"], ["--senders", "4"],
                   ["--control", "dcqcn", "--queue-kib", "64"]):
        row = json_case(" ".join(option), [*base, *option])["rows"][0]
        check([row["mean_ns"], row["sent"], row["acks"]] !=
              [plain["mean_ns"], plain["sent"], plain["acks"]],
              f"{option} changes nothing")
    near = ["packets", "--gbps", "100", "--latency", "50us", "--message",
            "4MB", "--senders", "3", "--interface-gbps", "100", "--control",
            "none,delay"]
    none, delay = json_case("delay", near)["rows"]
    check(delay["dropped"] < none["dropped"], (none, delay))
    marks = [json_case(kib, [*base, "--control", "dcqcn", "--queue-kib", kib])
             ["rows"][0]["marked"] for kib in ("8", "4000")]
    check(marks[0] > marks[1], marks)


@test
def settings_outside_the_closed_form_are_named():
    note = "The formula does not model: "
    for options, names in (
            (["--loss", "1%"], None),
            (["--loss", "1%", "--burst", "4"], "--burst."),
            (["--variation", "5us", "--timeout", "9ms"],
             "--variation, --timeout."),
            (["--senders", "4", "--interface-gbps", "100", "--buffer-kib",
              "40", "--control", "dcqcn"],
             "dropped packets, the start of congestion control."),
            (["--balancing", "spray", "--recovery", "go-back-n", "--paths",
              "2"], "go-back-n with spray.")):
        printed = run(*LINK, *options, "--seeds", "1").stdout
        found = [line for line in printed.splitlines() if note in line]
        check(found == ([note + names] if names else []), printed)


@test
def invalid_values_are_rejected():
    for option, value in (("--gbps", "0"), ("--latency", "5"), ("--loss", "60%"),
                          ("--loss", "x"), ("--message", "5XB"),
                          ("--message", "0"), ("--senders", "0"),
                          ("--queue-pairs", "1,,2"), ("--paths", "-1"),
                          ("--balancing", "both"), ("--recovery", "arq"),
                          ("--fec", "32"), ("--fec", "0+2"),
                          ("--control", "ecn")):
        case(f"{option} {value}", [*LINK, option, value], 2,
             err=rf"{option}: '.*' is not a value such as ")
    case("no rate", ["packets", "--latency", "1ms"], 2,
         err="--gbps is required")
    case("block", [*LINK, "--fec", "32+2", "--window-kib", "64"], 1,
         err="window_bytes: 65536 is less than a block")
    case("buffer", [*LINK, "--buffer-kib", "1"], 1,
         err="buffer_bytes: 1024 is less than a packet")
    many = ",".join(str(n) for n in range(1, 60))
    case("many", [*LINK, "--senders", many, "--paths", many, "--queue-pairs",
                  many], 2, err="more than 4096 combinations")


finish()
