#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Optimal schedules: certificates, memory, and uses of the solver."""
import json
import shutil

from harness import ANY, ROOT, WORK, case, check, finish, json_case, read, write

write("wave.yaml", """
    longhaul: pipeline/1
    time_unit: ms
    microbatches: 8
    devices: 4
    backward: split
    uniform: {placement: wave, chunks_per_device: 2, F: 38, D: 48, W: 20,
              memory: {F: 2, D: 0, W: -2}}
    datacenters: {count: 2, latency: 38, transfer: 0}
    memory_limit: 16
    """)
write("ud.yaml", """
    longhaul: pipeline/1
    time_unit: ms
    microbatches: 16
    devices: 8
    backward: split
    uniform: {placement: ud, chunks_per_device: 1, F: 38, D: 48, W: 20,
              memory: {F: 1, D: 0, W: -1}}
    datacenters: {count: 2, latency: 76, transfer: 9.5}
    """)

write("slow.yaml", """
    longhaul: pipeline/1
    time_unit: ms
    microbatches: 4
    devices: 2
    uniform: {placement: wave, F: 14, D: 20, W: 8,
              memory: {F: 1, D: 0, W: -1}}
    datacenters: {count: 2, latency: 10, transfer: 57}
    memory_limit: 3
    """)

# --- certificates ------------------------------------------------------------
case("a proof by windows",
     ["schedule", "slow.yaml", "-m", "optimal", "--certificate", "c.json",
      "-o", "s.csv"], out=r"optimal.*certificate +c\.json: windows\n", err=ANY)
case("is checked", ["check", "slow.yaml", "s.csv", "--certificate", "c.json"],
     out=r"certificate: verified\n( +verified .*\n){5}\Z")
found = json_case("as JSON", ["check", "slow.yaml", "s.csv", "--certificate",
                              "c.json"])
check(found["valid"] and found["certificate"]["status"] == "verified"
      and found["certificate"]["proof"] == "windows", f"claims: {found}")
text = json.loads(read("c.json"))
text["proof"]["refuted_ns"] += 1
text["bound_ns"] += 1
write("lie.json", json.dumps(text))
case("what is not so",
     ["check", "slow.yaml", "s.csv", "--certificate", "lie.json"], 1,
     out=r"certificate: wrong\n.*not verified +the verifier's windows do not "
         rf"refute {text['makespan_ns']} ns\n.*wrong +the bound is above the "
         r"makespan")
case("of another pipeline",
     ["check", "ud.yaml", "s.csv", "--certificate", "c.json"], 1,
     out=r"wrong +the certificate is for another pipeline")
write("bad.json", read("c.json").replace('"windows"', '"windoes"', 1))
case("not one", ["check", "slow.yaml", "s.csv", "--certificate", "bad.json"],
     1, err=r"bad\.json:\d+: proof\.kind: ")
case("a proof by pass kinds",
     ["schedule", "wave.yaml", "-m", "optimal", "--certificate", "k.json",
      "-o", "k.csv"],
     out=r"makespan +1135 ms.*optimal.*certificate +k\.json: pass-kinds\n")
case("is checked as well",
     ["check", "wave.yaml", "k.csv", "--certificate", "k.json"],
     out=r"certificate: verified\n( +verified .*\n){4}\Z")
text = json.loads(read("k.json"))
for name, more, damage, claim in (
        ("a bound", 1, {"refuted_ns": text["makespan_ns"]},
         r"not verified +passes by kind on device \d do not refute"),
        ("its device", 0, {"device": 4},
         r"wrong +the certificate names no device"),
        ("half of it", 0, {"refuted_ns": text["makespan_ns"] // 2},
         r"wrong +that no schedule takes \d+ ns does not make")):
    write("lie.json", json.dumps(text | {
        "bound_ns": text["makespan_ns"] + more,
        "proof": text["proof"] | damage}))
    case(f"a damaged proof: {name}",
         ["check", "wave.yaml", "k.csv", "--certificate", "lie.json"], 1,
         out=claim)
found = json_case("none without a proof",
                  ["schedule", "wave.yaml", "-m", "optimal", "--objective",
                   "first-device", "--certificate", "n.json", "-o", "n.csv",
                   "-q"])
check(found["certificate"] == {"file": "n.json", "proof": "none"},
      f"certificate: {found}")
case("for optimal only",
     ["schedule", "wave.yaml", "-m", "zb-v", "--certificate", "c.json"], 2,
     err=r"--certificate requires --method optimal")

# --- engines -----------------------------------------------------------------
found = json_case("what engines did", ["schedule", "wave.yaml", "-m", "optimal",
                                       "-o", "e.csv", "--without",
                                       "beams,methods"])
engines = {e["name"]: e for e in found["engines"]}
check([n for n, e in engines.items() if not e["on"]] == ["methods", "beams"]
      and found["status"] == "optimal" and found["makespan_s"] == 1.135
      and engines["beams"]["effort"] == engines["beams"]["improved"] == 0
      and sum(e["improved"] for e in engines.values()) > 0
      and set(engines["beams"]) == {"name", "on", "effort", "calls", "improved",
                                    "gained_s"}, f"engines: {engines}")
case("auto without one", ["schedule", "wave.yaml", "--without", "search", "-o",
                          "e.csv"], out=r"makespan +1135 ms")
case("no such engine",
     ["schedule", "wave.yaml", "-m", "optimal", "--without", "beams,serch"], 2,
     err=r"--without: unknown engine 'serch'; did you mean search\?")
case("nor anything like it",
     ["schedule", "wave.yaml", "-m", "optimal", "--without", "beams,"], 2,
     err=r"--without: unknown engine ''; see Engines")
case("not for others",
     ["schedule", "wave.yaml", "-m", "zb-v", "--without", "beams"], 2,
     err=r"--without requires --method optimal or auto")

# --- memory ------------------------------------------------------------------
found = json_case("least memory",
                  ["schedule", "ud.yaml", "-m", "optimal", "--objective",
                   "memory", "--makespan", "2500ms", "-o", "m.csv"])
check(found["memory_limit"] == 8 == found["memory_limit_bound"]
      and found["memory_status"] == "optimal"
      and found["makespan_s"] <= 2.5 and max(found["peak_memory"]) == 8,
      f"memory: {found}")
case("in words",
     ["schedule", "ud.yaml", "-m", "optimal", "--objective", "memory", "-o",
      "m.csv"], out=r"memory limit +16, the least with a makespan of at most "
              r"2169 ms\n")
found = json_case("the curve", ["schedule", "ud.yaml", "-m", "optimal",
                                "--pareto"])
rows = found["rows"]
check(found["complete"] and len(rows) == 16
      and [r["memory_limit"] for r in rows] == list(range(16, 0, -1))
      and all(a["makespan_s"] < b["makespan_s"]
              for a, b in zip(rows, rows[1:]))
      and rows[0]["makespan_s"] == 2.169 and rows[8]["makespan_s"] == 2.5,
      f"curve: {rows}")
case("the curve in words",
     ["schedule", "wave.yaml", "-m", "optimal", "--pareto", "--points", "2",
      "--html", "curve.html"],
     out=r"\A +memory limit +makespan.*1135 ms.*optimal.*Incomplete.*o optimal")
check("<html" in read("curve.html"), "the curve's report")
for args, message in [
        (["--pareto", "-o", "x.csv"], "makes no single schedule"),
        (["--makespan", "4s"], "--makespan requires --objective memory"),
        (["--objective", "memory", "--makespan", "4"], "has no unit"),
        (["--pareto", "--objective", "memory"], "omit --objective")]:
    case(f"wrong: {args}", ["schedule", "ud.yaml", "-m", "optimal", *args], 2,
         err=message)
case("not to be kept",
     ["schedule", "ud.yaml", "-m", "optimal", "--objective", "memory",
      "--makespan", "1s"], 1, err=r"no schedule takes at most 1 s, whatever")

# --- auto, simulate, compare, plan ---------------------------------------------
found = json_case("auto searches", ["schedule", "wave.yaml"])
check(found["method"] == "optimal" and found["makespan_s"] == 1.135
      and found["status"] == "optimal", f"auto: {found}")
case("simulate takes the name", ["simulate", "wave.yaml", "-s", "optimal"],
     out=r"schedule +optimal\nmakespan +1135 ms.*gap +\d")
found = json_case("compare has it", ["compare", "wave.yaml"])
check(found["rows"][0]["method"] == "optimal", f"compare: {found['rows'][0]}")
shutil.copy(ROOT / "examples/llama3-8b-gcp-regions.yaml", WORK / "job.yaml")
plain = json_case("a plan without", ["plan", "job.yaml", "--no-optimal"])
plan = json_case("a plan", ["plan", "job.yaml", "-o", "plan.json"])
check(plan["iteration_s"] <= plain["iteration_s"]
      and plan["schedule"]["status"] in ("optimal", "feasible")
      and plan["schedule"]["gap"] >= 0, "a plan that was searched")
case("its bound", ["simulate", "plan.json"], out=r"lower bound +.*gap +\d")
case("no effort", ["plan", "job.yaml", "--effort", "0"], 2, err=ANY)

finish()
