#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Output files: contents, locations and write errors."""
import os
import re
import subprocess
import xml.etree.ElementTree as xml

from harness import (ANY, PROGRAM, WORK, case, check, finish, json_case, makes,
                     read, run, test, uniform, write)
from input_files import loaded, names, pipeline, plan, schedule


@makes("p.yaml", "less.csv")
def less_schedule():
    """p.yaml and a schedule of it that lacks a pass."""
    schedule()
    write("less.csv", read("s.csv").replace(",0F7", "", 1))


@makes("two.yaml", "two.csv")
def two_devices():
    """Writes two alternating devices and messages of 5 ms."""
    uniform("two.yaml", devices=2, microbatches=2, latency=8, transfer=5)
    run("schedule", "two.yaml", "-m", "gpipe", "-o", "two.csv")


# --- schedule --------------------------------------------------------------------
@test
def schedule_prints_and_writes():
    pipeline()
    case("schedule", ["schedule", "p.yaml", "-m", "zb-h1", "-o", "s.csv"],
         out=r"\Amethod +zb-h1\nmakespan +458 ms\nlower bound .*"
             r"written +s\.csv\n\Z")
    check(read("s.csv") == run("schedule", "p.yaml", "-m", "zb-h1").stdout,
          "-o and standard output agree")
    check(len(read("s.csv").splitlines()) == 4, "a row per device")


@test
def schedule_as_json_has_its_numbers():
    schedule()
    found = json_case("schedule as JSON", ["schedule", "p.yaml", "-m", "zb-h1",
                                           "-o", "t.csv"])
    check(read("t.csv") == read("s.csv"), "--json writes the same file")
    check(found["makespan_s"] == 0.458 and found["peak_memory"] == [4, 4, 4, 4]
          and found["method"] == "zb-h1" and found["status"] == "feasible"
          and 0 < found["lower_bound_s"] <= 0.458 and found["seconds"] >= 0
          and abs(found["gap"] - (0.458 / found["lower_bound_s"] - 1)) < 1e-12,
          f"numbers of schedule --json: {found}")


@test
def auto_names_the_method_that_won():
    pipeline()
    found = json_case("auto", ["schedule", "p.yaml"])
    check(found["requested"] == "auto" and found["method"] != "auto", found)


@test
def a_schedule_at_the_bound_is_optimal():
    uniform("one.yaml", devices=1)
    found = json_case("one device", ["schedule", "one.yaml", "-m", "gpipe"])
    check(found["status"] == "optimal" and found["gap"] == 0, "a gap of 0")


@test
def weight_gradients_are_cut_and_made_whole():
    pipeline()
    parts = ["schedule", "p.yaml", "-m", "greedy", "--sub-blocks", "4"]
    case("parts", parts, out=r"W\d+:\d/4", err=ANY)
    case("whole", [*parts, "--whole"], out=r"\A[^:]+\Z",
         err=r"whole weight-gradient passes (cost|save) [\d.]+ ms")
    case("quiet", [*parts, "--whole", "-q"], out=r"\A[^:]+\Z")


@test
def slack_accepts_a_warm_up():
    pipeline()
    case("warm-up given", ["schedule", "p.yaml", "-m", "slack", "--warmup",
                           "4,3,2,1"], out=r"\A0F0,0F1,0F2,0F3,0[^F]")


@test
def a_pipeline_comes_from_standard_input():
    schedule()
    case("standard input", ["schedule", "-", "-m", "zb-h1"],
         stdin=read("p.yaml"), out="^" + re.escape(read("s.csv")) + "$")
    case("wrong standard input", ["schedule", "-"], 1, stdin="what: 1\n",
         err=r"\Alonghaul: standard input:1: [^\n]+\n\Z")


# --- check -----------------------------------------------------------------------
@test
def check_reports_a_valid_schedule():
    schedule()
    case("valid", ["check", "p.yaml", "s.csv"],
         out=r"\Avalid: s\.csv takes 458 ms")
    found = json_case("as JSON", ["check", "p.yaml", "s.csv"])
    check(found["valid"] is True and found["violations"] == [] and
          found["makespan_s"] == 0.458 and
          found["peak_memory"] == [4, 4, 4, 4], found)


@test
def check_reports_violations():
    less_schedule()
    case("not valid", ["check", "p.yaml", "less.csv"], 1,
         out=r"\Anot valid: \d+ violation.*0F7")
    found = json_case("as JSON", ["check", "p.yaml", "less.csv"], 1)
    check(found["valid"] is False and len(found["violations"]) >= 1, found)


# --- simulate --------------------------------------------------------------------
@test
def simulate_writes_trace_and_pictures():
    schedule()
    case("simulate", ["simulate", "p.yaml", "-s", "s.csv", "--trace", "t.json",
                      "--svg", "t.svg", "--html", "t.html"],
         out=r"makespan +458 ms.*Critical path.*Slackness.*Links")
    check(sum(e.get("ph") == "X" for e in loaded("t.json")["traceEvents"])
          >= 4 * 36, "the trace has all passes")
    check(xml.fromstring(read("t.svg")).tag.endswith("svg"), "SVG is XML")
    check(read("t.html").lower().startswith("<!doctype html>") and
          not re.search(r"""(src|href)=["']?https?:""", read("t.html")),
          "the report loads nothing")


@test
def simulate_accounts_for_all_time():
    schedule()
    found = json_case("as JSON", ["simulate", "p.yaml", "-s", "s.csv"])
    path = found["critical_path"]
    check(found["makespan_s"] == 0.458 and path[0]["start_s"] == 0 and
          path[-1]["end_s"] == 0.458 and
          all(a["end_s"] == b["start_s"] for a, b in zip(path, path[1:])),
          "the critical path joins from 0 to the makespan")
    idle = 4 * 0.458 - 4 * 12 * 0.030
    check(abs(sum(found["bubble_s"].values()) - idle) < 1e-12,
          "causes add up to the idle time")
    check(abs(found["bubble_ratio"] - idle / (4 * 0.458)) < 1e-12,
          "bubble ratio")
    check([link["name"] for link in found["links"]] == ["dc0>dc1", "dc1>dc0"],
          "links by name")


@test
def stricter_receives_are_not_faster():
    pipeline()
    for model in (["--receives", "late"], ["--receives", "late-fd"],
                  ["--coupled", "1"]):
        slower = json_case(f"{model}", ["simulate", "p.yaml", "-s", "zb-h1",
                                        *model])
        check(slower["makespan_s"] >= 0.458, f"{model} is not faster")


@test
def the_first_device_is_an_objective():
    pipeline()
    found = json_case("first device", ["simulate", "p.yaml", "-s", "zb-h1",
                                       "--objective", "first-device"])
    check(found["objective_s"] == found["first_device_s"]
          <= found["makespan_s"], found)


@test
def simulate_rejects_a_schedule_without_a_pass():
    less_schedule()
    case("less", ["simulate", "p.yaml", "-s", "less.csv"], 1,
         err=r"\Alonghaul: ")


@test
def memory_above_the_limit_is_reported():
    pipeline()
    uniform("roomy.yaml", latency=8, transfer=1)
    run("schedule", "roomy.yaml", "-m", "gpipe", "-o", "g.csv")
    case("over memory", ["simulate", "p.yaml", "-s", "g.csv"],
         out=r"peak memory +12 on device \d, over the limit",
         err=r"\Alonghaul: the schedule exceeds the memory limit on device")


# --- message orders of links, from the file beside the schedule
# -------------------
@test
def link_orders_beside_a_schedule_count():
    two_devices()
    simulate = ["simulate", "two.yaml", "-s", "two.csv"]
    fifo = json_case("first in, first out", simulate)["makespan_s"]
    write("two.links.csv", "dc0>dc1,0F1,0F0\n")
    held = json_case("0F0 waits for 0F1", simulate)["makespan_s"]
    # 0F1 is sent at its end, 10 ms after 0F0, whose message then takes 5.
    check(round((held - fifo) * 1e3) == 15, f"{held} and {fifo}")
    check(json_case("--fifo", [*simulate, "--fifo"])["makespan_s"] == fifo,
          "--fifo ignores link orders")
    check(json_case("check", ["check", "two.yaml", "two.csv"])["makespan_s"]
          == held, "check reads link orders")
    case("what PyTorch cannot", ["export", "two.yaml", "-s", "two.csv"],
         out=ANY, err=r"PyTorch supports neither .* takes 15 ms less")


@test
def link_orders_have_every_message():
    two_devices()
    write("two.links.csv", "dc0>dc1,0F1\n")
    case("check", ["check", "two.yaml", "two.csv"], 1, out=r"not valid")
    case("simulate", ["simulate", "two.yaml", "-s", "two.csv"], 1,
         err=r"\Alonghaul: [^\n]+\n\Z")


@test
def a_new_schedule_removes_old_link_orders():
    two_devices()
    write("two.links.csv", "dc0>dc1,0F1,0F0\n")
    run("schedule", "two.yaml", "-m", "gpipe", "-o", "two.csv")
    check("two.links.csv" not in names(), "an old links file goes")


# --- compare ---------------------------------------------------------------------
@test
def compare_sorts_all_methods():
    pipeline()
    case("compare", ["compare", "p.yaml"],
         out=r"\Amethod +makespan.*\ngreedy .*\ngpipe .*limit is 4.*"
             r"lower bound")
    rows = json_case("as JSON", ["compare", "p.yaml"])["rows"]
    good = [r for r in rows if r["status"] == "ok"]
    times = [r["makespan_s"] for r in good]
    check(times == sorted(times) and len(times) >= 4 and
          {r["method"] for r in rows} >= {"gpipe", "1f1b", "zb-h1", "zb-v"},
          "rows are sorted and all there")
    check(all(len(r["peak_memory"]) == 4 and max(r["peak_memory"]) <= 4
              for r in good), "a row has the peak memory of each device")
    check(all(r["makespan_s"] >= r["lower_bound_s"] for r in good),
          "nothing beats the bound")


@test
def a_sweep_has_all_its_points():
    pipeline()
    sweep = ["compare", "p.yaml", "-m", "zb-h1,greedy", "--sweep"]
    rows = json_case("sweep", [*sweep, "latency=0:1:0.5,transfer=0,2ms"])[
        "rows"]
    check(sorted({(r["latency_s"], r["transfer_s"]) for r in rows}) ==
          [(0.0, 0.0), (0.0, 0.002), (0.005, 0.0), (0.005, 0.002), (0.01, 0.0),
           (0.01, 0.002)] and len(rows) == 12, "points of a sweep")
    alone = json_case("one point", [*sweep, "latency=8ms,transfer=1ms"])
    check([r["makespan_s"] for r in alone["rows"] if r["method"] == "zb-h1"] ==
          [0.458], "a sweep sets what the file says, too")
    done = case("as text", [*sweep, "latency=0:2:0.25"],
                out=r"\nlatency .*\nzb-h1 .*slowdown")
    check(max(map(len, done.stdout.splitlines())) <= 80,
          "a sweep fits the width")


@test
def replay_keeps_the_schedules_of_a_sweep():
    pipeline()
    sweep = ["compare", "p.yaml", "-m", "slack", "--sweep", "latency=0:4:1"]
    check(json_case("replay", [*sweep, "--replay"])["rows"] !=
          json_case("no replay", sweep)["rows"], "they are others")


@test
def methods_compete_on_placements_that_suit_them():
    pipeline()
    uniform("wave.yaml", placement="wave", chunks=2, latency=8, transfer=1)
    rows = json_case("two files", ["compare", "p.yaml", "wave.yaml"])["rows"]
    check({r["pipeline"] for r in rows if r["method"] == "greedy"} ==
          {"p", "wave"} and
          {r["pipeline"] for r in rows if r["method"] == "zb-v"} == {"wave"},
          rows)
    uniform("both.yaml", placement="bd", chunks=2)
    case("two batches", ["compare", "wave.yaml", "both.yaml", "-m", "greedy"],
         out=ANY, err="different batches: wave runs 12 microbatches, both 24")


@test
def compare_writes_a_report():
    pipeline()
    case("report", ["compare", "p.yaml", "--html", "c.html"], out=ANY)
    check("zb-h1" in read("c.html"), "the report has the methods")


# --- report ----------------------------------------------------------------------
@test
def a_plan_and_its_own_trace_agree():
    plan()
    case("Chrome", ["export", "plan.json", "--to", "chrome", "-o", "x.json"],
         out=ANY)
    found = json_case("report", ["report", "--predicted", "plan.json",
                                 "--measured", "x.json", "-o", "both.html"])
    made = loaded("plan.json")
    passes = (3 * made["microbatches"] * made["layout"]["pipeline"] *
              made["layout"]["chunks_per_device"])
    check(found["error"] == 0 and found["mean_start_error_s"] == 0 and
          found["passes"] == passes and found["report"] == "both.html", found)
    case("files", ["report", "plan.json", "x.json"],
         out=r"\Areport +report\.html\n\Z")


@test
def passes_of_one_trace_alone_are_counted():
    uniform("single.yaml", devices=1, microbatches=1)
    uniform("double.yaml", devices=1, microbatches=1, backward="joint")
    run("simulate", "single.yaml", "-s", "zb-h1", "--trace", "single.json")
    run("simulate", "double.yaml", "--trace", "double.json")
    case("other passes", ["report", "--predicted", "single.json",
                          "--measured", "double.json"],
         out=r"in one trace only: 2 predicted, 1 measured passes")


# --- writing ---------------------------------------------------------------------
@test
def a_file_is_replaced_whole():
    schedule()
    inode = (WORK / "s.csv").stat().st_ino
    run("schedule", "p.yaml", "-m", "zb-h1", "-o", "s.csv")
    check((WORK / "s.csv").stat().st_ino != inode, "it is another file")
    check(not [n for n in names() if ".tmp-" in n],
          "no temporary files are left")


@test
def write_failures_are_errors():
    schedule()
    plan()
    (WORK / "no").mkdir()
    long = ["train", "p.yaml", "--steps", "100000000"]
    for args in (["schedule", "p.yaml", "-o"], ["simulate", "p.yaml", "--html"],
                 ["simulate", "p.yaml", "--trace"], ["plan", "job.yaml", "-o"],
                 ["simulate", "p.yaml", "-o"], ["compare", "p.yaml", "-o"],
                 ["check", "p.yaml", "s.csv", "-o"],
                 ["export", "plan.json", "-o"], ["report", "plan.json", "-o"],
                 [*long, "--trace"], [*long, "--html"], [*long, "-o"]):
        case(f"no such folder: {args}", [*args, "nowhere/f"], 1,
             err=r"\A(longhaul: [^\n]*\n)?longhaul: nowhere/f: cannot write: "
                 r"No such file or directory\n\Z")
        case(f"a folder: {args}", [*args, "no"], 1,
             err=r"\A(longhaul: [^\n]*\n)?longhaul: no: is a directory"
                 r"[^\n]*\n\Z")
    if os.geteuid() != 0:
        (WORK / "no").chmod(0o555)
        case("folder that is closed", ["schedule", "p.yaml", "-o", "no/f"], 1,
             err=r"no/f: cannot write: Permission denied")


@test
def text_and_json_go_to_files():
    schedule()
    case("text to a file", ["simulate", "p.yaml", "-o", "sim.txt"])
    check("makespan" in read("sim.txt"), "simulate -o")
    case("JSON to a file", ["check", "p.yaml", "s.csv", "--json", "-o",
                            "v.json"])
    check(loaded("v.json")["valid"] is True, "check --json -o")


@test
def a_full_device_is_an_error():
    pipeline()
    with open("/dev/full", "w") as full:
        done = subprocess.run([PROGRAM, "schedule", "p.yaml"], stdout=full,
                              stderr=subprocess.PIPE, text=True, cwd=WORK)
    check(done.returncode == 1 and
          re.match(r"\Alonghaul: cannot write to standard output: No space",
                   done.stderr), done)


@test
def closed_standard_output_is_an_error():
    """The descriptor must not be reused for another file."""
    pipeline()
    done = subprocess.run(["sh", "-c",
                           f"'{PROGRAM}' schedule p.yaml -o z.csv >&-"],
                          cwd=WORK, capture_output=True, text=True)
    check(done.returncode == 1 and "standard output" in done.stderr and
          read("z.csv").startswith("0F0"), done)


@test
def a_closed_reader_ends_the_program_silently():
    uniform("wave.yaml", placement="wave", chunks=2, latency=8, transfer=1)
    done = subprocess.run(["sh", "-c",
                           f"'{PROGRAM}' simulate wave.yaml --json | true"],
                          cwd=WORK, capture_output=True, text=True)
    check(done.stderr == "", done)


finish()
