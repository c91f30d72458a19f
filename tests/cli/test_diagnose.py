#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""longhaul diagnose on three production jobs and on damaged files."""
import gzip
import json
import re

from harness import (ANY, ROOT, WORK, case, check, finish, json_case, run, test,
                     uniform, write)

RECORDINGS = ROOT / "tests/data/recordings"
AR, SE, ST = (RECORDINGS / f"{name}.csv.gz" for name in ("AR", "SE", "ST"))


def close(got, want, what):
    """Tests agreement within a thousandth of the requested half percent."""
    check(abs(got - want) <= 5e-6 * max(1, abs(want)),
          f"{what}: {got}, not {want}")


@test
def every_published_number_is_in_the_json():
    for path in AR, SE, ST:
        found = json_case(path.name, ["diagnose", path])
        wanted = json.loads(
            (RECORDINGS / f"{path.name[:2]}.expected.json").read_text())
        close(found["slowdown"], wanted["blocking_slowdown"], "slowdown")
        close(found["t_s"], wanted["ms"]["tori"], "t_s")
        close(found["ideal_s"], wanted["ms"]["tideal"], "ideal_s")
        close(found["measured_s"] / found["t_s"], wanted["launch_slowdown"],
              "launch")
        close(found["worker_share"], wanted["mw"]["Mw"], "worker_share")
        close(found["last_stage_share"], wanted["ms"]["Ms"],
              "last_stage_share")
        for key, name in (("by_stage", "stage"), ("by_replica", "dp_rank"),
                          ("by_operation", "optype")):
            want = wanted[f"blocking_decompose_by_{name}"]
            check(set(found[key]) == set(want), found[key])
            for of, value in want.items():
                close(found[key][of], value, f"{key} {of}")
        for step in found["steps"]:
            close(step["t_s"], wanted["step_t_nodelay"][str(step["step"])],
                  "a step")
        check(found["remarks"] == [], found["remarks"])


@test
def in_one_job_one_worker_is_slow_and_in_the_other_the_last_stage():
    slow = json_case("AR", ["diagnose", AR])["slow"]
    check([(s["what"], s["stage"], s["replica"], s["steps"], s["from"])
           for s in slow] == [("worker", 0, 0, 44, 16)], slow)
    slow = json_case("ST", ["diagnose", ST])["slow"]
    check([(s["what"], s["stage"], s["steps"]) for s in slow] ==
          [("stage", 3, 32)], slow)


@test
def uneven_sequences_are_not_reported_as_slow_workers():
    """All of 64 workers have longer sequences at times. The advice must be to
    balance sequences, not to replace a machine."""
    found = json_case("SE", ["diagnose", SE])
    check([(s["what"], s.get("stage"), s.get("replica"), s["steps"])
           for s in found["slow"]] ==
          [("microbatches", None, None, 43), ("stage", 1, None, 43)],
          found["slow"])
    check(found["helps"][0]["what"].startswith("distribute sequences so"),
          found["helps"])
    check(not any("worker" in h["what"] for h in found["helps"]),
          found["helps"])
    case("the text", ["diagnose", SE],
         out=r"(?s)slow +uneven microbatches:.*stage 1, the last")


@test
def remedies_are_sorted_by_their_gain():
    for path, first in ((AR, "replace the worker of stage 0, replica 0"),
                        (ST, "twice as many microbatches")):
        found = json_case(path.name, ["diagnose", path])
        helps = found["helps"]
        check(helps and first in helps[0]["what"], helps)
        check(any("layers" in h["what"] for h in helps) == (path == ST), helps)
        for one, next_one in zip(helps, helps[1:]):
            check(one["gain"] >= next_one["gain"], helps)
        for one in helps:
            close(1 - one["predicted_s"] / found["t_s"], one["gain"], "gain")


@test
def the_text_fits_on_one_screen():
    for path in AR, SE, ST:
        done = run("diagnose", path)
        lines = done.stdout.splitlines()
        check(done.returncode == 0 and not done.stderr, done.stderr)
        check(len(lines) <= 36 and max(map(len, lines)) <= 80, done.stdout)
    case("who is slow", ["diagnose", AR],
         out=r"(?s)slowdown +1\.973 \+- 0\.002.*the worker of stage 0, replica "
         r"0:.*2\.36 times.*50\.5 %  replace the worker")


@test
def the_document_shows_the_output_of_the_command():
    page = (ROOT / "docs/diagnose.md").read_text()
    shown = re.findall(r"    \$ longhaul (diagnose \S+)\n((?:    .*\n|\n)+)", page)
    check(len(shown) == 5, shown)
    for (words, block), section in zip(shown, page.split("\n## ")[1:]):
        command, path = words.split()
        done = run(command, *sorted(ROOT.glob(path)))
        lines = [line[4:] for line in block.rstrip().splitlines()]
        check(done.stdout.startswith("\n".join(lines)), done.stdout)
        # The table of possible improvements contains each of them, in order.
        gains = re.findall(r"^ +[\d.]+ m?s +([\d.]+ %)  ", done.stdout, re.M)
        told = re.findall(r"^\|.*\| ([\d.]+ %) \|", section, re.M)
        check(told == gains or "rank" in path,
              f"{gains}: {section}")


def page_data(path):
    """Returns the page's data; it has the 15 digits of --json."""
    page = path.read_text()
    return json.loads(page.split('id="data">')[1].split("</script>")[0],
                      parse_float=lambda text: float(f"{float(text):.15g}"))


PIPELINE = """longhaul: pipeline/1
time_unit: ms
microbatches: 6
devices: 3
backward: %s
chunks:
  - {device: 0, F: 10, D: 12, W: 8, memory: {F: 1, D: 0, W: -1}}
  - {device: 1, F: 14, D: 11, W: 13, memory: {F: 1, D: 0, W: -1}}
  - {device: 2, F: 9, D: 15, W: 6, memory: {F: 1, D: 0, W: -1}}
links:
  - {from: 0, to: 1, latency: 5, transfer: 0}
  - {from: 1, to: 0, latency: 4, transfer: 0}
  - {from: 1, to: 2, latency: 7, transfer: 0}
  - {from: 2, to: 1, latency: 3, transfer: 0}
"""


@test
def a_trace_gives_back_the_pipeline_that_it_is_of():
    for form, method in ("split", "zb-h1"), ("joint", "1f1b"):
        write("p.yaml", PIPELINE % form)
        went = json_case(form, ["simulate", "p.yaml", "-s", method, "--trace",
                                "t.json"])
        json_case(form, ["diagnose", "t.json", "--pipeline-out", "back.json"])
        back = json.loads((WORK / "back.json").read_text())
        unit = {"s": 1e3, "ms": 1, "us": 1e-3, "ns": 1e-6}[back["time_unit"]]
        passes = [(round(c["F"] * unit, 6), round((c["D"] + c["W"]) * unit, 6))
                  for c in back["chunks"]]
        check(passes == [(10, 20), (14, 24), (9, 21)], passes)
        if form == "split":
            check([round(c["D"] * unit, 6) for c in back["chunks"]] ==
                  [12, 11, 15], back["chunks"])
        links = {(link["from"], link["to"]): round(link["latency"] * unit, 6)
                 for link in back["links"]}
        check(links == {(0, 1): 5, (1, 0): 4, (1, 2): 7, (2, 1): 3}, links)
        came = json_case("again", ["simulate", "back.json", "-s", method])
        close(came["makespan_s"], went["makespan_s"], f"{form}: makespan")


JOB = """longhaul: job/1
model: llama3-8b
training: {global_batch: 16, sequence: 4096}
cluster:
  gpu: h100-sxm
  gpus_per_node: 8
  node_link: {gbps: 3600, latency_us: 3}
  fabric: {gbps: 400, latency_us: 8}
  datacenters:
    - {name: here, nodes: 1}
layout: {tensor: 1, context: 1, expert: 1, pipeline: 4, data: 2, micro_batch: 2,
         chunks_per_device: 1, schedule: 1f1b}
"""


@test
def a_profile_of_a_recording_plans_its_job():
    write("job.yaml", JOB)
    told = json_case("ST", ["diagnose", ST, "--pipeline-out", "now.json",
                            "--profile-out", "st.json", "--job", "job.yaml"])
    profile = json.loads((WORK / "st.json").read_text())
    now = json.loads((WORK / "now.json").read_text())
    unit = {"s": 1e6, "ms": 1e3, "us": 1, "ns": 1e-3}[now["time_unit"]]
    for entry, chunk in zip(profile["entries"], now["chunks"]):
        check((entry["sequence"], entry["micro_batch"], entry["of"]) ==
              (4096, 2, 4), entry)
        for key in "FDW":
            close(entry[key + "_us"], chunk[key] * unit, key)
    # Passes take 2.003 s of 2.214 s; the rest is counted once.
    check(0.1 < profile["iteration_us"] / 1e6 < 0.3, profile["iteration_us"])
    write("job.yaml", JOB + "profile: st.json\n")
    plan = json_case("planned", ["plan", "job.yaml", "-o", "plan.json"])
    # The measured values return, except for messages, which the job defines.
    check(0.98 < plan["iteration_s"] / told["measured_s"] < 1.02,
          plan["iteration_s"])


@test
def a_profile_contains_only_known_quantities():
    case("no job", ["diagnose", ST, "--profile-out", "f"], code=2,
         err=r"--profile-out requires --job FILE: a recording lacks")
    case("a job alone", ["diagnose", ST, "--job", "job.yaml"], code=2,
         err=r"--job requires --profile-out")
    write("job.yaml", JOB.replace("tensor: 1, ", ""))
    case("no degree", ["diagnose", ST, "--profile-out", "f", "--job",
                       "job.yaml"], code=1,
         err=r"job\.yaml: layout\.tensor is required to")
    write("job.yaml", JOB.replace("pipeline: 4, data: 2", "pipeline: 8, data: 1"))
    case("other layer partitions", ["diagnose", ST, "--profile-out", "f", "--job",
                          "job.yaml"], code=1,
         err=r"8 x 1 chunks \(pipeline x chunks_per_device\), the recording "
             r"has 4")
    check(not (WORK / "f").exists(), "a profile was written")


@test
def the_page_has_the_contents_of_the_json():
    for path in AR, ST:
        told = json_case(path.name, ["diagnose", path, "--html", "slow.html"])
        size = (WORK / "slow.html").stat().st_size
        x = page_data(WORK / "slow.html")["diagnosis"]
        check(x["told"] == told, "not the same numbers")
        check(size < 1.5e6 and len(x["steps"]) == len(told["steps"]), size)
        check(len(x["helps"]) == len(told["helps"]) and all(x["helps"]),
              "a help without its timeline")
        for shown, step in zip(x["steps"], told["steps"]):
            end = shown["own"]["makespan"] * shown["own"]["tick"]
            usual = x["ideals"][str(shown["ideal"])]
            close(end / 1e9, step["t_s"], "a step")
            close(usual["makespan"] * usual["tick"] / 1e9, step["ideal_s"],
                  "usual times")
        # Passes relative to their usual time: the mean over all steps is about
        # 1.
        cells = [v for shown in x["steps"] for v in shown["map"]]
        check(abs(sum(cells) / len(cells) / 1e4 - 1) < 0.02, "maps")
    case("nowhere to write", ["diagnose", ST, "--html", "no/slow.html"],
         code=1, err=r"no/slow\.html")


@test
def the_page_of_a_large_recording_omits_steps_and_reports_it():
    steps, replicas, microbatches = 30, 70, 40
    rows = ["step,rank,dp_rank,stage,optype,seq_id,mc,gmc,mb_id,start_ts,"
            "duration\n"]
    for step in range(steps):
        for r in range(replicas):
            slow = 2 if r == 11 else 1
            for mb in range(microbatches):
                rows.append(f"{step},{r},{r},0,forward-compute,{mb},0,0,{mb},"
                            f"{0.03 * slow * mb:.3f},{0.01 * slow}\n"
                            f"{step},{r},{r},0,backward-compute,{mb},0,0,{mb},"
                            f"{0.03 * slow * mb + 0.01 * slow:.3f},"
                            f"{0.02 * slow}\n")
    write("large.csv", "".join(rows))
    told = json_case("large", ["diagnose", "large.csv", "--html", "large.html"])
    check([s["replica"] for s in told["slow"]] == [11], told["slow"])
    x = page_data(WORK / "large.html")["diagnosis"]
    check(len(x["drawn"]) == 64 and 11 in x["drawn"], x["drawn"])
    check(len(x["mapped"]) == 70 and len(x["map"]) == 70, x["mapped"])
    check(2 < len(x["steps"]) < 30, len(x["steps"]))
    check((WORK / "large.html").stat().st_size < 6e6, "large.html is large")


@test
def files_of_ranks_are_one_recording():
    rows = gzip.open(ST, "rt").read().splitlines(keepends=True)
    ranks = {}
    for row in rows[1:]:
        ranks.setdefault(row.split(",")[1], []).append(row)
    for rank, own in ranks.items():
        with gzip.open(WORK / f"rank-{rank}.csv.gz", "wt") as out:
            out.write(rows[0] + "".join(own))
    names = sorted(path.name for path in WORK.glob("rank-*"))
    one = json_case("one file", ["diagnose", ST])
    many = json_case("a file for each rank", ["diagnose", *names])
    check(one == many, "not the same")
    check(one == json_case("threads", ["diagnose", ST, "-j", "3"]), "threads")
    # One rank's file is missing: its replica is excluded, and the output
    # reports this.
    lost = json_case("a file is lost", ["diagnose", *names[1:]])
    check(list(lost["by_replica"]) in (["0"], ["1"]), lost["by_replica"])
    check([r["kind"] for r in lost["remarks"]] == ["replicas-left-out"] and
          lost["remarks"][0]["n"] == 32, lost["remarks"])


@test
def traces_of_longhaul_are_steps():
    uniform("p.yaml", latency=8, transfer=1)
    for method, name in (("1f1b", "a.json"), ("gpipe", "b.json")):
        run("simulate", "p.yaml", "-s", method, "--trace", name)
    found = json_case("two", ["diagnose", "a.json", "b.json"])
    for step, method in zip(found["steps"], ("1f1b", "gpipe")):
        want = json_case(method, ["simulate", "p.yaml", "-s", method])
        close(step["t_s"], want["makespan_s"], method)
    check(found["stages"] == 4 and found["replicas"] == 1, found)
    for files in ([ST, "a.json"], ["a.json", ST]):
        case("of one kind", ["diagnose", *map(str, files)], 1,
             err=f"{files[1]}: is a .*, but an earlier file is a ")


@test
def damage_is_reported_and_the_rest_is_diagnosed():
    data = ST.read_bytes()
    (WORK / "cut.csv.gz").write_bytes(data[:len(data) // 2])
    found = json_case("cut", ["diagnose", "cut.csv.gz"])
    kinds = [r["kind"] for r in found["remarks"]]
    check("cut-files" in kinds and 5 < found["n_steps"] < 32, found["remarks"])
    case("said", ["diagnose", "cut.csv.gz"], out="damage +1 truncated or damaged files")
    rows = gzip.decompress(data).decode().splitlines()
    write("odd.csv", "\n".join(rows + ["23,0,0,0,\x1b[31mx,0,0,0,0,0,0"]) + "\n")
    case("no escapes", ["diagnose", "odd.csv"], out=r"damage .*\\x1b\[31mx")
    # Unreadable input gives the reason.
    for row, why in (("23,0,0", "3 cells, but the heading has 11"),
                     ("x,0,0,0,gc,0,0,0,-1,0,1", "step 'x' is not a whole number"),
                     ("23,0,0,0,gc,0,0,0,-1,y,1", "start_ts 'y' is not a time"),
                     ("23,0,0,0,gc,0,0,0,-1,0,-1", "duration '-1' is not a dur"),
                     ("23,0,0,70000,gc,0,0,0,-1,0,1", "stage '70000' is not a "
                      "whole number of 0 to 65534")):
        write("odd.csv", "\n".join([*rows[:9], row, *rows[9:]]) + "\n")
        kinds = json_case(row, ["diagnose", "odd.csv"])["remarks"]
        check([r["kind"] for r in kinds] == ["unread-rows"] and
              f"odd.csv:10: {why}" in kinds[0]["text"], kinds)


@test
def steps_without_duration_have_no_shares():
    write("none.csv", "step,dp_rank,stage,optype,mb_id,start_ts,duration\n"
          "1,0,0,forward-compute,0,0,0\n1,0,0,backward-compute,0,0,0\n")
    found = json_case("none", ["diagnose", "none.csv"])
    check(found["measured_s"] == 0 and found["helps"] == [], found)
    done = run("diagnose", "none.csv")
    check(done.returncode == 0 and "nan" not in done.stdout, done.stdout)


@test
def files_that_are_not_recordings_are_rejected():
    write("trace.json", '{"events": []}\n')
    case("JSON", ["diagnose", "trace.json"], 1,
         err="trace.json: is JSON, but neither a trace of longhaul.*a table")
    case("nothing", ["diagnose", "absent.csv"], 1, err="absent.csv: No such")
    case("endless", ["diagnose", "/dev/zero"], 1, err="a line exceeds")
    case("no files", ["diagnose"], 2, err=ANY)
    write("other.csv", "a,b\n1,2\n")
    case("a table", ["diagnose", "other.csv"], 1, err="column 'step' is missing")


finish()
