#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""packets: messages over a long link, packet by packet."""
import json
import re
import shlex

from harness import ROOT, case, check, finish, json_case, makes, read, run, test, write

PAGE = (ROOT / "docs" / "theory" / "packets.md").read_text(encoding="utf-8")
LINK = ["packets", "--gbps", "100", "--latency", "1ms", "--message", "1MB"]


@test
def the_page_shows_the_output_of_its_commands():
    blocks = re.findall(r"```console\n\$ longhaul (.*)\n([^`]*)```", PAGE)
    check(len(blocks) == 7, len(blocks))
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
def rates_follow_from_mean_times():
    for options, count in ((["--messages", "3", "--senders", "4"], 3),
                           (["--traffic", "ring", "--senders", "4"], 1)):
        row = json_case(f"rate {count}", [*LINK, "--loss", "1%", *options])["rows"][0]
        check(abs(row["bytes_per_s"] * row["end_ns"] / (count * 1e15) - 1) < 1e-9, row)


@test
def a_failed_row_keeps_the_finished_rows():
    case("failed row", ["packets", "--gbps", "40", "--latency", "100us", "--message", "16MB",
                        "--interface-gbps", "40", "--oversubscription", "1.5", "--seeds", "3",
                        "--recovery", "selective-repeat,go-back-n"], 1,
         out="selective-repeat +[0-9]",
         err="row 2 of 2 recovery go-back-n: seed [0-9]+: a queue pair makes no progress")


@test
def every_option_changes_the_result():
    base = [*LINK, "--loss", "0.5%", "--seeds", "1", "--paths", "2",
            "--queue-pairs", "4", "--interface-gbps", "100", "--messages", "2",
            "--senders", "3"]
    plain = json_case("plain", base)["rows"][0]
    for option in (["--messages", "3"], ["--interface-gbps", "50"], ["--oversubscription", "2"],
                   ["--site-oversubscription", "3"],
                   ["--return-latency", "3ms"], ["--burst", "4"],
                   ["--variation", "90us"], ["--window-kib", "64"],
                   ["--buffer-kib", "100"], ["--timeout", "700us"],
                   ["--balancing", "spray"], ["--balancing", "adaptive"],
                   ["--recovery", "go-back-n"],
                   ["--fec", "8+1"], ["--senders", "4"],
                   ["--switch-kib", "200"], ["--switch-kib", "400", "--switch-share", "0.2"],
                   ["--switch-kib", "800000", "--flow-control", "pfc", "--switch-share", "0.0005"],
                   ["--failed", "1"], ["--failed", "1", "--failed-at", "1ms"],
                   ["--failed", "1", "--reroute", "50ms"],
                   ["--other-gpus", "1"], ["--other-gpus", "2", "--other-load", "0.5"],
                   ["--other-gpus", "2", "--other-load", "0.5", "--other-message", "64KiB"],
                   ["--control", "dcqcn", "--queue-kib", "64"]):
        row = json_case(" ".join(option), [*base, *option])["rows"][0]
        check([row["mean_ns"], row["sent"], row["acks"]] !=
              [plain["mean_ns"], plain["sent"], plain["acks"]],
              f"{option} changes nothing")
        named = dict(zip(option[::2], option[1::2]))
        check(row["failed_paths"] == int(named.get("--failed", 0)) and
              row["other_gpus"] == int(named.get("--other-gpus", 0)) and
              row["other_load"] == float(named.get("--other-load", 0)), row)
    near = ["packets", "--gbps", "100", "--latency", "50us", "--message",
            "4MB", "--senders", "3", "--interface-gbps", "100", "--control",
            "none,delay"]
    none, delay = json_case("delay", near)["rows"]
    check(delay["dropped"] < none["dropped"], (none, delay))
    none, pfc = json_case("pfc", ["packets", "--gbps", "100", "--latency", "1us", "--message",
                                  "4MB", "--senders", "3", "--interface-gbps", "100",
                                  "--switch-kib", "1000", "--flow-control",
                                  "none,pfc"])["rows"]
    check(none["dropped"] > 0 and none["pauses"] == 0, none)
    check(pfc["dropped"] == 0 and pfc["pauses"] > 0 and pfc["paused_ns"] > 0 and
          0 < pfc["max_switch_bytes"] <= 1024000, pfc)
    marks = [json_case(kib, [*base, "--control", "dcqcn", "--queue-kib", kib])
             ["rows"][0]["marked"] for kib in ("8", "4000")]
    check(marks[0] > marks[1], marks)


@test
def all_reduces_take_their_steps():
    rows = json_case("all-reduce", ["packets", "--gbps", "400", "--latency", "1ms", "--message",
                                    "8MB", "--senders", "4", "--traffic",
                                    "ring,hierarchical"])["rows"]
    for row, crossings in zip(rows, (4, 2)):
        # 8 GPUs; 7/8 of the data twice at 100 Gb/s, and the latency of the link.
        sending = 2 * 7 / 8 * 8e6 / 12.5
        check(sending + crossings * 1e6 < row["mean_ns"] <
              1.02 * sending + crossings * 1.01e6, row)
        check(abs(row["closed_form_ns"] / row["mean_ns"] - 1) < 0.03, row)
    once, twice = (json_case(f"{n} all-to-alls", ["packets", "--gbps", "100", "--latency", "1ms",
                                                  "--message", "4MB", "--senders", "2",
                                                  "--traffic", "all-to-all", "--messages",
                                                  n])["rows"][0] for n in ("1", "2"))
    check(twice["sent"] == 2 * once["sent"] and
          abs(twice["end_ns"] / once["end_ns"] - 2) < 0.01, (once, twice))
    case("messages", [*LINK, "--traffic", "ring", "--messages", "2"], 1,
         err="messages: an all-reduce is simulated once, not 2 times")


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
                          ("--control", "ecn"), ("--flow-control", "on"),
                          ("--traffic", "tree")):
        case(f"{option} {value}", [*LINK, option, value], 2,
             err=rf"{option}: '.*' is not a value such as ")
    case("no rate", ["packets", "--latency", "1ms"], 2,
         err="--gbps is required")
    case("block", [*LINK, "--fec", "32+2", "--window-kib", "64"], 1,
         err="window_bytes: 65536 is less than a block")
    case("buffer", [*LINK, "--buffer-kib", "1"], 1,
         err="buffer_bytes: 1024 is less than a packet")
    case("pauses", [*LINK, "--flow-control", "pfc"], 2, err="--flow-control pfc requires --switch-kib")
    case("share", [*LINK, "--switch-share", "2"], 2, err="--switch-share requires --switch-kib")
    case("headroom", [*LINK, "--flow-control", "pfc", "--switch-kib", "1000"], 1,
         err="switch_bytes: 1024000 is too little for pauses.* takes 25[0-9]{6} bytes")
    case("failed", [*LINK, "--paths", "2", "--failed", "2"], 1,
         err="failed_paths: 2 is not less than the 2 paths")
    case("no other jobs", [*LINK, "--other-load", "0.5"], 2,
         err="--other-load requires --other-gpus")
    case("other message", [*LINK, "--other-gpus", "2", "--other-load", "0.5", "--other-message",
                           "5XB"], 2, err="--other-message: '5XB' is not a value such as 1MB")
    case("slow interfaces", [*LINK, "--interface-gbps", "10", "--other-gpus", "2", "--other-load",
                             "0.5"], 1, err="other_load: 2 GPUs with .* cannot offer")
    case("frequent messages", [*LINK, "--other-gpus", "2", "--other-load", "0.5",
                               "--other-message", "100B"], 1,
         err="a GPU would send a message every 32 ns; it must be 100 to 1e.14 ns")
    case("rare messages", [*LINK, "--other-gpus", "2", "--other-load", "1e-12",
                           "--other-message", "1GB"], 1,
         err="a GPU would send a message every 1.6e.20 ns")
    case("many GPUs", [*LINK, "--senders", "4096", "--other-gpus", "1"], 1,
         err="senders and other_gpus together: ")
    case("reroute", [*LINK, "--paths", "2", "--reroute", "1ms"], 2, err="--reroute requires --failed")
    many = ",".join(str(n) for n in range(1, 60))
    case("many", [*LINK, "--senders", many, "--paths", many, "--queue-pairs",
                  many], 2, err="more than 4096 combinations")


# Four stages on two datacenters: 8 messages of 1 MB in each direction.
JOB = """longhaul: job/1
model: {hidden: 1024, heads: 8, layers: 8, vocab: 1000, ffn: 4096}
training: {global_batch: 8, sequence: 512, precision: bf16}
layout: {micro_batch: 1, tensor: 1, pipeline: 4, outermost: pipeline, schedule: 1f1b}
cluster:
  gpu: h100-sxm
  gpus_per_node: 2
  node_link: {gbps: 3600, latency_us: 3}
  fabric: {gbps: 400, latency_us: 8}
  datacenters:
    - {name: west, nodes: 1}
    - {name: east, nodes: 1}
  links:
    - {between: [west, east], latency_ms: 1, gbps: 100%s}
"""
ENDS = ", load_balancing: ecmp, recovery: selective-repeat, queue_pairs: 2"


@makes("exact.json", "lossy.json", "silent.json", "lossy.yaml", "silent.yaml")
def plans():
    for name, settings in (("exact", ENDS), ("lossy", ENDS + ", loss: 0.001"),
                           ("silent", "")):
        write(f"{name}.yaml", JOB % settings)
        run("plan", f"{name}.yaml", "--effort", "1000", "-o", f"{name}.json")


@test
def a_plan_without_losses_keeps_its_times():
    plans()
    found = json_case("exact", ["packets", "exact.json", "--seeds", "1"])
    check(found["longhaul"] == "packet_plan/1", found["longhaul"])
    check([(link["link"], link["messages"], link["message_bytes"])
           for link in found["links"]] ==
          [("west>east", 8, 1048576), ("east>west", 8, 1048576)], found)
    for link in found["links"]:
        # Both sites' switches: 2 us; the last packet is sent three times.
        more = link["max_ns"] - link["planned_ns"]
        check(1900 <= more <= 4000, link)
        check(link["sent"] == link["delivered"] == 8 * 256, link)
    more = found["mean_ns"] - found["planned_ns"]
    check(0 < more < 16 * 4000, found)


@test
def late_messages_delay_the_iteration():
    plans()
    exact = json_case("exact", ["packets", "exact.json", "--seeds", "1"])
    full = json_case("full", ["packets", "lossy.json", "--seeds", "40"])
    drawn = json_case("drawn", ["packets", "lossy.json", "--seeds", "40",
                                "--sample", "4"])
    check(full["sample"] is None and drawn["sample"] == 4, drawn)
    more = json_case("more", ["packets", "lossy.json", "--seeds", "1",
                              "--sample", "1000"])
    check(more["sample"] == 8, "more messages than an iteration has")
    for link in full["links"]:
        check(link["lost"] > 0 and link["max_ns"] > link["mean_ns"], link)
    # The messages' delays exceed the iteration's: some hide behind passes.
    late = sum(a["messages"] * (a["mean_ns"] - b["mean_ns"])
               for a, b in zip(full["links"], exact["links"]))
    check(0 < full["mean_ns"] - exact["mean_ns"] < late, (full, late))
    check(full["least_ns"] < full["mean_ns"] < full["greatest_ns"], full)
    # What fast-forwarding costs: below 2 % of the iteration, 15 % of a message.
    check(abs(drawn["mean_ns"] / full["mean_ns"] - 1) < 0.02, (full, drawn))
    for a, b in zip(full["links"], drawn["links"]):
        check(abs(b["mean_ns"] / a["mean_ns"] - 1) < 0.15, (a, b))
    again = json_case("again", ["packets", "lossy.json", "--seeds", "40", "-j",
                                "2"])
    check(again == full, "depends on the number of threads")
    other = json_case("seed", ["packets", "lossy.json", "--seeds", "40",
                               "--seed", "99"])
    check(other["mean_ns"] != full["mean_ns"], "--seed changes nothing")


@test
def the_slowest_replica_counts():
    plans()
    # Four replicas, each with the same share of the link as one alone.
    write("four.yaml", (JOB % (ENDS + ", loss: 0.001")).replace("nodes: 1", "nodes: 4")
          .replace("global_batch: 8", "global_batch: 32").replace("gbps: 100,", "gbps: 400,"))
    run("plan", "four.yaml", "--effort", "1000", "-o", "four.json")
    for sample in ("all", "4"):
        one, four = (json_case(f"{name} {sample}", ["packets", f"{name}.json", "--seeds", "20",
                                                    "--sample", sample])
                     for name in ("lossy", "four"))
        check([link["replicas"] for link in four["links"]] == [4, 4], four)
        check(all(link["sent"] == link["delivered"] + link["lost"] + link["dropped"]
                  for link in four["links"]), four)
        check(four["mean_ns"] / four["planned_ns"] >
              one["mean_ns"] / one["planned_ns"] + 0.01, (one, four))


def curves(page):
    """Returns the points of each panel's charts."""
    return [[[float(y) for y in re.findall(r"[ML][\d.]+ ([\d.]+)", path)]
             for path in re.findall('class=curve [^>]* d="([^"]*)"', panel)]
            for panel in read(page).split("<section class=panel>")[1:]]


@test
def pages_show_queues_and_repeats_over_time():
    run(*LINK, "--senders", "4", "--interface-gbps", "100", "--loss", "0,1%",
        "--seeds", "2", "--html", "link.html")
    clean, lossy = curves("link.html")
    # Queue, throughput, repeats and losses; the axis is the largest y.
    for charts in (clean, lossy):
        check(len(charts) == 4 and len(set(map(len, charts))) == 1, charts)
        check(50 <= len(charts[0]) <= 400, len(charts[0]))
        check(min(charts[0]) < 176 and min(charts[1]) < 176, charts)
    check(set(clean[2]) == set(clean[3]) == {176.0}, clean[2])
    # 4 MB arrive in 80 us and leave in 320 us: the queue grows, then drains.
    top = clean[0].index(min(clean[0]))
    rest = clean[0][top:]
    check(rest[:rest.index(176.0)] == sorted(rest[:rest.index(176.0)]) and
          rest.index(176.0) > 2 * top, clean[0])
    check(min(lossy[2]) < 176 and min(lossy[3]) < 176, lossy[2])
    # A round trip is 2 ms: repeats come later than losses.
    first = [next(i for i, y in enumerate(chart) if y < 176)
             for chart in lossy[2:]]
    check(first[0] > first[1], first)
    plans()
    run("packets", "lossy.json", "--seeds", "1", "--html", "plan.html")
    page = read("plan.html")
    check("<h2>west&gt;east</h2>" in page and "<h2>east&gt;west</h2>" in page,
          page[:200])
    check(len(curves("plan.html")) == 2 and "http" not in
          page.split("<section")[1], "links to other places")


@test
def plans_take_link_times_from_packets():
    plans()
    by_model = json.loads(read("lossy.json"))
    done = run("plan", "lossy.yaml", "--effort", "1000", "--network", "packets", "-o",
               "packets.json")
    check(len(re.findall("link .*>.* by packets: 1.* ms and 100.000 Gb/s", done.stderr)) == 2,
          done.stderr)
    found = json.loads(read("packets.json"))
    links = found["job"]["profile"]["links"]
    check([(link["from"], link["to"]) for link in links] ==
          [("west", "east"), ("east", "west")], links)
    for link in links:
        # Above the latency of the link, below that with a loss in every message.
        check(1001 < link["alpha_us"] < 3000, link)
    check(found["iteration_ns"] != by_model["iteration_ns"], found)
    check("simulated packets, not measured" in
          found["job"]["profile"]["source"], found)
    case("again", ["packets", "packets.json"], 1,
         err="its times come from the job's profile")
    case("silent", ["plan", "silent.yaml", "--effort", "1000", "--network",
                    "packets", "-o", "none.json"], 1,
         err="link west>east: the job does not give load_balancing")
    case("today", ["plan", "--from", "megatron", "args.txt", "--network",
                   "packets"], 2,
         err="--network packets cannot be combined with --from")


@test
def plans_without_settings_are_refused():
    plans()
    case("no settings", ["packets", "silent.json"], 1,
         err="link west>east: the job does not give load_balancing.*add")
    case("link option", ["packets", "exact.json", "--gbps", "100"], 2,
         err="--gbps cannot be combined with a plan")
    case("sample", ["packets", "exact.json", "--sample", "few"], 2,
         err="--sample: 'few' is neither")
    case("no plan", [*LINK, "--sample", "2"], 2, err="--sample requires a plan")
    write("inside.yaml", JOB.replace("outermost: pipeline", "outermost: data")
          .replace("pipeline: 4", "pipeline: 2") % ENDS)
    run("plan", "inside.yaml", "--effort", "1000", "-o", "inside.json")
    case("no messages", ["packets", "inside.json"], 1,
         err="no message of the plan crosses a link between datacenters")
    case("a pipeline", ["packets", str(ROOT / "examples" /
                                       "pipeline-two-sites.yaml")], 2,
         err="is a pipeline; packets needs a plan")


finish()
