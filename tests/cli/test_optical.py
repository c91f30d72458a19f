#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""longhaul optical, through the program."""
import csv
import json
import sys

from harness import PROGRAM, ROOT, WORK, check, finish, run

sys.path.insert(0, str(ROOT / "tests/peers"))
import gnpy_network

SCENARIO = """longhaul: optical/1
topology: {nodes: [{id: 8}, {id: 7}, {id: 5}], links: [{a: 8, b: 7, km: 750}, {a: 7, b: 5, km: 600}]}
job: {preset: 8b, stages: 2, placement: [8, 5], schedule: gpipe, microbatches: 2}
seeds: [1, 2]
policies: {ksp-ff: {}, cba: {}}
"""
(WORK / "optical.yaml").write_text(SCENARIO)

# --- numbers worked by hand ----------------------------------------------------
done = run("optical", "optical.yaml", "--json", "--html", "optical.html")
check(done.returncode == 0, f"optical: {done.stderr}")
policies = json.loads(done.stdout)["policies"]
ksp, cba = policies["ksp-ff"], policies["cba"]
check(ksp["seeds"][0]["iteration_ns"] == [183432464] * 11, "ksp-ff, iterations")
check(cba["seeds"][1]["iteration_ns"][:3] ==
      [183432464, 129549674, 143866232], "cba, iterations")
check(cba["seeds"][0]["labels"][:2] == [4, 3], "cba, labels")
check(abs(ksp["iteration_s"] - 0.183432464) < 1e-15, "ksp-ff, mean")
check(abs(ksp["bubble_ratio"] - (1 - 2 * 27.7 / 183.432464)) < 1e-12, "bubble")
check(ksp["blocking_probability"] == 0 and ksp["iteration_s_sd"] == 0,
      "nothing is refused, seeds are alike")
check([s["seed"] for s in ksp["seeds"]] == [1, 2], "seeds")
check(ksp["seeds"][0]["placement"] == [8, 5], "placement")
check((WORK / "optical.html").read_text().startswith("<!DOCTYPE html>"), "page")

# --- options --------------------------------------------------------------------
one = json.loads(run("optical", "optical.yaml", "--json", "--seed", "9").stdout)
check([s["seed"] for s in one["policies"]["cba"]["seeds"]] == [9], "--seed")
texts = {run("optical", "optical.yaml", "--threads", n).stdout
         for n in ("1", "2", "5")}
check(len(texts) == 1 and "ksp-ff" in texts.pop(), "--threads")

# --- set-up times and grooming -----------------------------------------------------
# Two messages per direction, each sent in 28,633,116 ns over 1350 km and two
# links: set-up delays the first of each direction; the second waits for the
# port. Groomed, the second one uses the first one's circuit.
(WORK / "setup.yaml").write_text(
    SCENARIO + "setup_ns: 3000000\nteardown_ns: 1000000\n")
slow = json.loads(run("optical", "setup.yaml", "--json").stdout)["policies"]
check(slow["ksp-ff"]["seeds"][0]["iteration_ns"] == [189432464] * 11, "set-up")
(WORK / "groom.yaml").write_text(
    SCENARIO.replace("ksp-ff: {}", "ksp-ff: {groom: true}"))
groomed = json.loads(run("optical", "groom.yaml", "--json", "--html",
                         "groom.html").stdout)["policies"]["ksp-ff"]
check(groomed["seeds"][0]["iteration_ns"] == [183432464] * 11 and
      groomed["seeds"][0]["requests"] == [2] * 11 and
      ksp["seeds"][0]["requests"] == [4] * 11, "groom")
HELD = 2 * 2 * (2 * 28633116 + 6750000)  # slots, links, time per direction
check(abs(groomed["slots_held"] - 2 * HELD / 183432464) < 1e-9 and
      groomed["slots_held"] < ksp["slots_held"],
      f"slots held: {groomed['slots_held']}")
held = f"{HELD / 183432464:.2f} slots held"
check(f"7 - 5: 600 km; {held}" in (WORK / "groom.html").read_text(),
      f"slots held in the page: {held}")
# A cut ends the circuit with both messages of the direction on it: from 8 to 5.
(WORK / "groom.yaml").write_text(
    SCENARIO.replace("ksp-ff: {}", "ksp-ff: {groom: true}") +
    "failures: {restore: wait, cuts: [{link: [7, 5], at_s: 0.03, repair_s: 1}]}\n")
cut = json.loads(run("optical", "groom.yaml", "--json").stdout)[
    "policies"]["ksp-ff"]["seeds"][0]
check(cut["cut_messages"] == 2 and
      cut["iteration_ns"][0] == 183432464 + 1000000000 - 10000000 and
      cut["iteration_ns"][1] == 183432464, f"groom, cut: {cut['iteration_ns']}")
# A circuit of the last iteration, which the page shows, is held until its cut:
# from the first F's end to 1.85 s. Its messages are sent again on another.
(WORK / "groom.yaml").write_text(
    SCENARIO.replace("ksp-ff: {}", "ksp-ff: {groom: true}") + "failures: "
    "{restore: wait, cuts: [{link: [7, 5], at_s: 1.85, repair_s: 2.9}]}\n")
last = json.loads(run("optical", "groom.yaml", "--json", "--html", "groom.html")
                  .stdout)["policies"]["ksp-ff"]["seeds"][0]["iteration_ns"][10]
cut_ns = 1850000000 - 10 * 183432464 - 10000000
held = f"{2 * (cut_ns + HELD / 2) / last:.2f} slots held"
check(last > 1000000000 and f"7 - 5: 600 km; {held}" in
      (WORK / "groom.html").read_text(), f"held until the cut: {held}")

# --- priorities --------------------------------------------------------------------
# Two slots on one line between the jobs' nodes: a message uses all of it. The job
# with the higher priority runs as without the other one, which sends messages again.
LINE = """longhaul: optical/1
topology: {nodes: [{id: 8}, {id: 7}, {id: 5}], links: [{a: 8, b: 7, km: 750}, {a: 7, b: 5, km: 600}]}
slots: 2
jobs:
- {preset: 8b, stages: 2, placement: [8, 5], schedule: gpipe, microbatches: 2%s}
- {preset: 8b, stages: 3, placement: [8, 7, 5], schedule: 1f1b, microbatches: 8%s}
seeds: [1]
iterations: 5
policies: {ksp-ff: {}, cba: {groom: true}}
"""


def jobs_of(*priorities):
    (WORK / "rank.yaml").write_text(LINE % tuple(
        f", priority: {n}" for n in priorities))
    found = json.loads(run("optical", "rank.yaml", "--json").stdout)["policies"]
    return {name: policy["seeds"][0]["jobs"] for name, policy in found.items()}


high, low, equal = jobs_of(1, 0), jobs_of(0, 7), jobs_of(3, 3)
(WORK / "rank.yaml").write_text("\n".join(
    line for line in (LINE % ("", "")).splitlines() if "stages: 3" not in line))
alone = json.loads(run("optical", "rank.yaml", "--json").stdout)["policies"]
for name in alone:
    check(high[name][0]["iteration_ns"] ==
          alone[name]["seeds"][0]["iteration_ns"], f"priority, {name}")
    check(high[name][0]["preempted_messages"] == 0 <
          high[name][1]["preempted_messages"], f"preempted, {name}")
    check(low[name][0]["preempted_messages"] > 0 ==
          low[name][1]["preempted_messages"], f"lower, {name}")
    check(equal[name][0]["iteration_ns"] != high[name][0]["iteration_ns"] and
          equal[name][0]["preempted_messages"] == 0, f"equal, {name}")
(WORK / "bad.yaml").write_text(LINE % (", priority: -1", ""))
check("jobs[0].priority" in run("optical", "bad.yaml").stderr, "priority -1")

# Equal jobs with four messages per microbatch: the first one takes nearly every
# circuit of the second, whose warm-up lasts until the first has ended.
WARM_UP = "\npreempted in the warm-up iteration, which the table excludes: jobs[1]"
(WORK / "starved.yaml").write_text(
    LINE.split("jobs:")[0].replace("slots: 2", "slots: 4") + """jobs:
- {preset: 8b, stages: 4, placement: [8, 5, 8, 5], schedule: 1f1b, microbatches: 16, priority: 1}
- {preset: 8b, stages: 4, placement: [8, 5, 8, 5], schedule: 1f1b, microbatches: 16}
seeds: [1]
iterations: 1
policies: {ksp-ff: {}}
""")
starved = json.loads(run("optical", "starved.yaml", "--json").stdout)["policies"][
    "ksp-ff"]["seeds"][0]["jobs"]
first, counted = starved[1]["iteration_ns"]
check(first > 2 * counted and starved[0]["warm_up_preempted_messages"] == 0 <
      starved[1]["warm_up_preempted_messages"] <=
      starved[1]["preempted_messages"], f"preempted warm-up: {starved[1]}")
check(f"{WARM_UP} under ksp-ff, seed 1, took {first / 1e9:.3f} s" in
      run("optical", "starved.yaml").stdout, "preempted warm-up, in text")
(WORK / "starved.yaml").write_text(
    (WORK / "starved.yaml").read_text().replace(", priority: 1", ""))
check(WARM_UP[:20] not in run("optical", "starved.yaml").stdout,
      "equal priorities, in text")

# --- replicas ----------------------------------------------------------------------
# Both stages are on node 8, with replicas on 5 and 7. The passes take 83.1 ms. A
# message of a ring is sent in 28,633,116 ns; the longest hop is 1350 km.
REPLICAS = SCENARIO.replace("placement: [8, 5]",
                            "data_parallel: {nodes: [8, 5, 7], %s}")
(WORK / "ring.yaml").write_text(REPLICAS % "reduce_bits: 4294967296")
ring = json.loads(run("optical", "ring.yaml", "--json").stdout)["policies"][
    "ksp-ff"]["seeds"][0]
HOP = 28633116 + 6750000
check(ring["iteration_ns"] == [83100000 + HOP] * 11 and
      ring["requests"] == [6] * 11 and ring["labels"] == [6] * 11 and
      ring["placement"] == [8, 8] and ring["lower_bound_s"] == 0.0831,
      f"replicas: {ring}")
(WORK / "ring.yaml").write_text(
    REPLICAS % "reduce_bits: 4294967296, gather_bits: 4294967296" +
    "failures: {restore: wait, cuts: [{link: [7, 5], at_s: 0.02, repair_s: 1}]}\n")
done = json.loads(run("optical", "ring.yaml", "--json").stdout)["policies"]
ring = done["ksp-ff"]["seeds"][0]
check(ring["intact_ns"] == [83100000 + 2 * HOP] * 11 and
      ring["requests"][1:] == [12] * 10, "replicas, gather")
# From 8 to 5 and from 5 to 7, both devices' messages wait for the repair.
check(ring["cut_messages"] == 4 and ring["requests"][0] == 16 and
      ring["iteration_ns"][0] == 1000000000 + HOP + 83100000 + HOP,
      f"replicas, cut: {ring['iteration_ns']}")
# CBA doubles the slots of the messages that delay an iteration, and so halves
# their time, and then of none.
cba_ring = done["cba"]["seeds"][0]["intact_ns"]
check(cba_ring[0] == 83100000 + 2 * HOP > cba_ring[1], f"replicas, cba: {cba_ring}")
ONE = REPLICAS % "reduce_bits: 5"
for text, why in ((REPLICAS % "reduce_bits: 0", "data_parallel.reduce_bits"),
                  (REPLICAS % "gather_bits: 5", "reduce_bits"),
                  (ONE.replace("stages: 2", "stages: 2, datacenters: 1"),
                   "give one of placement, sites, datacenters and"),
                  (ONE.replace("[8, 5, 7]", "[8, 5, 8]"), "nodes[2]"),
                  (ONE.replace("[8, 5, 7]", "[8]"), "2 to 512 replicas")):
    (WORK / "bad.yaml").write_text(text)
    bad = run("optical", "bad.yaml")
    check(bad.returncode == 1 and why in bad.stderr and
          bad.stderr.count("\n") == 1, f"{why}: {bad.stderr}")

# --- plans as traffic ---------------------------------------------------------------
# The job of docs/optical.md, and a cell of its table: 0 Erlang, KSP-FF.
PAGE = (ROOT / "docs/optical.md").read_text().split("## Plans as traffic")[1]
(WORK / "job.yaml").write_text("".join(
    line[4:] for line in PAGE.split("    longhaul plan")[0].splitlines(True)
    if line.startswith("    ")))
done = run("plan", "job.yaml", "-o", "plan.json")
check(done.returncode == 0, f"job of the page: {done.stderr}")
(WORK / "plans.yaml").write_text(f"""longhaul: optical/1
topology: {ROOT}/data/topologies/nsfnet.yaml
jobs: [{{plan: plan.json, sites: {{west: 1, east: 9}}}}, {{plan: plan.json, sites: {{west: 3, east: 13}}}}]
request_slots: 4
seeds: [1]
policies: {{ksp-ff: {{}}}}
""")
done = run("optical", "plans.yaml", "--json")
check(done.returncode == 0, f"plans of the page: {done.stderr}")
times = [f"{job['iteration_s']:.3f}" for job in json.loads(done.stdout)[
    "policies"]["ksp-ff"]["seeds"][0]["jobs"]]
check(f"| 0 Erlang | {', '.join(times)} |" in PAGE, f"plans of the page: {times}")

# --- sweeps ---------------------------------------------------------------------
GRID = ("optical", "optical.yaml", "--sweep", "job.microbatches=1,2,4",
        "--sweep", "job.preset=8b,70b")
pages = {}
for n in ("1", "3"):
    done = run(*GRID, "--threads", n, "--json", "--csv", f"{n}.csv",
               "--html", f"{n}.html")
    check(done.returncode == 0, f"--sweep: {done.stderr}")
    pages[n] = (done.stdout, (WORK / f"{n}.csv").read_text(),
                (WORK / f"{n}.html").read_text())
check(pages["1"] == pages["3"], "--sweep --threads")
cells = json.loads(pages["1"][0])["cells"]
check([c["values"] for c in cells] ==
      [{"job.microbatches": m, "job.preset": p}
       for m in "124" for p in ("8b", "70b")], "--sweep, cells")
rows = [line.split(",") for line in pages["1"][1].splitlines()]
(WORK / "quoted.yaml").write_text(
    SCENARIO.replace("ksp-ff: {}", "'k,\"1\"': {policy: ksp-ff}"))
run("optical", "quoted.yaml", "--sweep", "job.preset=8b", "--csv", "quoted.csv")
check([row[1] for row in csv.reader((WORK / "quoted.csv").open())] ==
      ["policy", 'k,"1"', "cba"], "--sweep, CSV with quotes")
check(rows[0][:3] == ["job.microbatches", "job.preset", "policy"] and
      len(rows) == 1 + 6 * 2, "--sweep, CSV")
for values, row in zip((c for c in cells for _ in range(2)), rows[1:]):
    policy = values["policies"][row[2]]
    check(abs(policy["iteration_s"] - float(row[4])) < 1e-8 and
          row[:2] == list(values["values"].values()), "--sweep, CSV and JSON")
check(cells[2]["policies"]["ksp-ff"]["iteration_s"] == ksp["iteration_s"] and
      cells[2]["policies"]["cba"]["iteration_s"] == cba["iteration_s"],
      "a combination equals its scenario")
page = pages["1"][2]
check(page.count("<svg class=chart") == 6 and "job.preset: 70b" in page and
      "http:" not in page and "nan" not in page, "--sweep, page")
# A job's own policy, also by its number; two distant jobs do not meet.
TWO = """longhaul: optical/1
topology: {nodes: [{id: 8}, {id: 7}, {id: 5}], links: [{a: 8, b: 7, km: 750}, {a: 7, b: 5, km: 600}]}
slots: 160
jobs:
- {preset: 8b, stages: 2, placement: [8, 5], schedule: gpipe, microbatches: 2}
- {preset: 8b, stages: 2, placement: [8, 5], schedule: gpipe, microbatches: 2, policy: {policy: cba}}
seeds: [1]
policies: {ksp-ff: {}}
"""
(WORK / "two.yaml").write_text(TWO)
one, two = json.loads(run("optical", "two.yaml", "--json").stdout)["policies"][
    "ksp-ff"]["seeds"][0]["jobs"]
check(one["iteration_ns"][:3] == [183432464] * 3 and
      two["iteration_ns"][:3] == [183432464, 129549674, 143866232],
      f"own policy: {two['iteration_ns'][:3]}")
done = run("optical", "two.yaml", "--sweep", "jobs.0.policy=ksp-ff,cba",
           "--sweep", "jobs.1.policy=ksp-ff,cba", "--json")
grid = json.loads(done.stdout)
times = [c["policies"]["ksp-ff"]["iteration_s"] for c in grid["cells"]]
check(times[0] > times[1] > times[3] and times[1] == times[2] and
      grid["best"] == {"cell": 3, "policy": "ksp-ff", "stepwise_cell": 3},
      f"--sweep, best: {times}, {grid['best']}")
# Without a number, a value is set in all jobs; in an empty policy too.
both = json.loads(run("optical", "two.yaml", "--sweep", "jobs.policy=ksp-ff,cba",
                      "--json").stdout)["cells"]
check([c["policies"]["ksp-ff"]["iteration_s"] for c in both] ==
      [times[0], times[3]], f"--sweep, all jobs: {both}")
(WORK / "empty.yaml").write_text(SCENARIO.replace("ksp-ff: {}", "ksp-ff: "))
done = run("optical", "empty.yaml", "--sweep", "policies.ksp-ff.groom=false,true",
           "--json")
check([c["policies"]["ksp-ff"]["iteration_s"]
       for c in json.loads(done.stdout)["cells"]] ==
      [ksp["iteration_s"], groomed["iteration_s"]], f"empty map: {done.stderr}")
text = run("optical", "two.yaml", "--sweep", "jobs.0.policy=ksp-ff,cba").stdout
check("shortest iteration: jobs.0.policy=cba, ksp-ff: " in text, text)
check("no entry number '2.policy'" in
      run("optical", "two.yaml", "--sweep", "jobs.2.policy=cba").stderr,
      "--sweep, no such job")
(WORK / "bad.yaml").write_text(TWO.replace("policy: cba", "policy: best"))
check("jobs[1].policy.policy" in run("optical", "bad.yaml").stderr, "own policy")

for axes, why in (("slots=0", "--sweep slots=0: optical.yaml:1: slots"),
                  ("slots", "expected KEY=VALUE"), ("slots=1,", "empty"),
                  ("slots=1;slots=2", "given twice"),
                  ("slotz=2", "unknown key; did you mean 'slots'"),
                  ("job.stages.x=1", "job.stages: has no key 'x', because its "
                   "value is '2'; write a map")):
    bad = run("optical", "optical.yaml", "--sweep", axes)
    check(bad.returncode == 1 and bad.stdout == "" and why in bad.stderr and
          bad.stderr.count("\n") == 1, f"--sweep {axes}: {bad.stderr}")
check(run("optical", "optical.yaml", "--csv", "x.csv").returncode == 2,
      "--csv without --sweep")

# --- background traffic ---------------------------------------------------------
# A rate takes as many slots of 75 Gb/s as it needs.
LOAD = SCENARIO.replace("seeds: [1, 2]", "seeds: [1]") + (
    "slots: 160\nbackground: {erlang: 400, %s_min: %d, %s_max: %d}\n")
loads = []
for unit, n in ("slots", 1), ("gbps", 75), ("slots", 2), ("gbps", 76), ("gbps", 150):
    (WORK / "load.yaml").write_text(LOAD % (unit, n, unit, n))
    loads.append(json.loads(run("optical", "load.yaml", "--json").stdout)["policies"])
check(loads[0] == loads[1] and loads[2] == loads[3] == loads[4] and
      loads[0] != loads[2], "rates of background requests")

# --- networks of GNPy ------------------------------------------------------------
GNPY = ROOT / "tests/data/optical/gnpy"
LINES = f"""longhaul: optical/1
topology: {{gnpy: {{network: {GNPY}/network.json, equipment: {GNPY}/equipment.json}}}}
job: {{preset: 8b, stages: 2, placement: [1, 2], schedule: gpipe, microbatches: 1}}
seeds: [1]
iterations: 1
candidate_paths: 8
policies: {{ksp-ff: {{}}}}
"""


def paths_of(text):
    (WORK / "lines.yaml").write_text(text)
    done = run("optical", "lines.yaml", "--json")
    check(done.returncode == 0, f"gnpy: {done.stderr}")
    return {tuple(p["nodes"]): p for p in json.loads(done.stdout)["paths"]}


PROFILES = WORK / "profiles"
PROFILES.mkdir()
gnpy_network.write_profiles(GNPY, PROFILES)
for text, values in ((LINES.replace("network.json", "impairments.json"),
                      "impairments"), (LINES, "gsnr"),
                     (LINES.replace(f"{GNPY}/", f"{PROFILES}/"), "profiles")):
    found = paths_of(text)
    rows = [line.split(",")
            for line in (GNPY / f"{values}.csv").read_text().splitlines()
            if line[0] != "#"]
    for nodes, km, gsnr in rows:
        path = found[tuple(map(int, nodes.split("-")))]
        check(abs(path["gsnr_db"] - float(gsnr)) < 1e-6 and
              path["km"] == float(km),
              f"GSNR of {nodes}: {path['gsnr_db']}, not {gsnr}")
    check(len(rows) == 20 and found[1, 2]["format"] is None, "all pairs")
# Modes of the Voyager: 18 dB for 300 Gb/s in 5 slots, 21 dB for 400 Gb/s in 6.
MODES = LINES + "modulation: {transceiver: Voyager, margin_db: %s}\n"
modes = {n: (p["format"], p["gbps_per_slot"])
         for n, p in paths_of(MODES % 2).items()}
check(modes[1, 2] == ("mode 3", 60) and modes[1, 4] == ("mode 2", 66.667),
      f"modes: {modes[1, 2]}, {modes[1, 4]}")
for text, why in ((MODES % 20, "no mode of the transceiver 'Voyager' reaches"),
                  (LINES + "modulation: {transceiver: Nokia}\n", "'Nokia'"),
                  (LINES.replace("network.json", "none.json"), "none.json"),
                  (LINES.replace("{gnpy:", "{nodes: [], gnpy:"),
                   "cannot be combined with gnpy"),
                  (SCENARIO + "modulation: {transceiver: Voyager}\n",
                   "needs a topology with gnpy")):
    (WORK / "bad.yaml").write_text(text)
    bad = run("optical", "bad.yaml")
    check(bad.returncode != 0 and bad.stdout == "" and why in bad.stderr and
          bad.stderr.count("\n") == 1, f"{why}: {bad.stderr}")
network, equipment, impairments = (
    (GNPY / f"{n}.json").read_text()
    for n in ("network", "equipment", "impairments"))
for file, change, why in (
        (network, ('"gain_target"', '"gain"'), "'gain_target' is missing"),
        (network, ('"tilt_target": 0', '"tilt_target": 1'),
         "give the type"),
        (network, ('"type": "Fused"', '"type": "RamanFiber"'), "'RamanFiber'"),
        (network, ('"con_in": 0', '"con_in": null'), "--save-network"),
        (network, ('"gain_target": 20.0', '"gain_target": null'),
         "gain_target: is not set; save the network after GNPy"),
        (network, ('Quimper", "to_node": "roadm Brest_KLA"',
                   'Quimper", "to_node": "roadm Lannion_CAS"'),
         "; add one to the network before GNPy's design (--save-network)"),
        (network, ('"con_in": 0', '"con_in": -60'), "has only noise after"),
        (network, ('"target_pch_out_db": -20, "per_degree_pch_out_db": '
                   '{"east edfa in Lannion_CAS to Corlay": -20, ',
                   '"target_psd_out_mWperGHz": 3e-4, "per_degree_pch_out_db": {'),
         "has no target_pch_out_db towards 'east edfa in Lannion_CAS to Corlay'"),
        (network, ('"per_degree_pch_out_db": {"east edfa in Lannion',
                   '"per_degree_psd_out_mWperGHz": {"east edfa in Lannion'),
         "has no target_pch_out_db towards 'east edfa in Lannion_CAS to Corlay'"),
        (impairments, ('"impairment_id": 0', '"impairment_id": 3'),
         "impairment_id: only the first profile"),
        (network, ('"std_low_gain"', '"other"'), "'other'"),
        (network, ('"to_node": "roadm', '"to_node": "no roadm'), "no element"),
        (equipment, ('"fixed_gain"', '"dual_stage"'), "'dual_stage'"),
        (equipment, ('"fixed_gain"', '"advanced_model"'),
         "'advanced_config_from_json' is missing"),
        (equipment, ('"roadm-maxloss": 16.5', '"roadm-osnr": 30'), "express"),
        (equipment, ('"SI"', '"IS"'), "SI")):
    check(change[0] in file, change[0])
    name = "equipment" if file is equipment else "network"
    (WORK / f"bad-{name}.json").write_text(file.replace(*change))
    (WORK / "bad.yaml").write_text(
        LINES.replace(f"{GNPY}/{name}.json", f"bad-{name}.json").replace(
            "network.json", "impairments.json" if why == "express" else
            "network.json"))
    bad = run("optical", "bad.yaml")
    check(bad.returncode == 1 and f"bad-{name}.json:" in bad.stderr and
          why in bad.stderr and bad.stderr.count("\n") == 1,
          f"{change[1]}: {bad.stderr}")

(WORK / "bad.yaml").write_text(LINES.replace(f"{GNPY}/", f"{PROFILES}/"))
profile = (PROFILES / "std_medium_gain.json").read_text()
for change, why in ((("191275000000000.0", "192000000000000.0"),
                     "must contain all channels"),
                    (('"dgt"', '"tgd"'), "'dgt' is missing"),
                    (('"nf_fit_coeff"', '"fit"'), "'nf_fit_coeff' is missing")):
    check(change[0] in profile, change[0])
    (PROFILES / "std_medium_gain.json").write_text(profile.replace(*change))
    bad = run("optical", "bad.yaml")
    check(bad.returncode == 1 and "std_medium_gain.json:" in bad.stderr and
          why in bad.stderr and bad.stderr.count("\n") == 1,
          f"{change[1]}: {bad.stderr}")

# The distance table against modes by GSNR on NSFNET: a row of docs/optical.md.
FILES = gnpy_network.write((ROOT / "data/topologies/nsfnet.yaml").read_text(),
                           json.loads(equipment), WORK)
row = gnpy_network.compare_table(
    gnpy_network.shortest_paths(PROGRAM, *FILES, WORK), 91)
check(row == {"pairs": 91, "unreached": 0, "table_gbps": 25.7,
              "gsnr_gbps": 45.0, "table_more": 0, "table_less": 91},
      f"distance table: {row}")

# --- failures -------------------------------------------------------------------
# Routes from 1 to 3: 300 km by 2, 400 km. A message takes 28,633,116 ns to send.
CUT = """longhaul: optical/1
topology: {nodes: [{id: 1}, {id: 2}, {id: 3}],
           links: [{a: 1, b: 2, km: 100}, {a: 2, b: 3, km: 200}, {a: 1, b: 3, km: 400}]}
job: {preset: 8b, stages: 2, placement: [1, 3], schedule: gpipe, microbatches: 1}
seeds: [1]
iterations: 3
policies: {ksp-ff: {}}
failures: {cuts: [{link: [2, 1], at_s: 0.02}]}
"""
SEND, PASSES = 28633116, 2 * 27700000
USUAL, DETOUR = SEND + 1500000, SEND + 2000000
(WORK / "cut.yaml").write_text(CUT)
done = run("optical", "cut.yaml", "--json", "--events", "cut-events.yaml")
check(done.returncode == 0, f"failures: {done.stderr}")
seed = json.loads(done.stdout)["policies"]["ksp-ff"]["seeds"][0]
# The cut at 20 ms is detected 50 ms later; the message is sent again.
check(seed["iteration_ns"] == [70000000 + 2 * DETOUR + PASSES - 10000000] +
      3 * [2 * DETOUR + PASSES], f"reroute: {seed['iteration_ns']}")
check(seed["intact_ns"] == 4 * [2 * USUAL + PASSES], "without failures")
check(seed["cut_messages"] == 1 and abs(seed["lost_s"] - 1e-3) < 1e-12, "lost")
check(seed["outages"] == [{"link": [1, 2], "cable": 0, "down_s": 0.02,
                           "up_s": None}], "outages")
table = run("optical", "cut.yaml").stdout.splitlines()
at = next(i for i, line in enumerate(table) if "messages cut" in line)
check(table[at + 1].split() == ["ksp-ff", "0.001", "1.0", "1.0", "0.0", "0.0"],
      f"table of failures: {table[at + 1]}")
(WORK / "cut-pipeline.yaml").write_text(f"""longhaul: pipeline/1
time_unit: ns
microbatches: 1
devices: 2
backward: joint
chunks:
- {{device: 0, F: 10000000, D: 17700000, W: 0}}
- {{device: 1, F: 10000000, D: 17700000, W: 0}}
links:
- {{from: 0, to: 1, latency: 1500000, transfer: {SEND}}}
- {{from: 1, to: 0, latency: 1500000, transfer: {SEND}}}
""")
done = run("simulate", "cut-pipeline.yaml", "--schedule", "gpipe", "--events",
           "cut-events.yaml", "--steps", "4", "--json")
check(abs(json.loads(done.stdout)["total_s"] -
          4 * (2 * DETOUR + PASSES) / 1e9) < 1e-9, f"events: {done.stderr}")
(WORK / "cut.yaml").write_text(
    CUT.replace("at_s: 0.02", "at_s: 0.02, repair_s: 0.2").replace(
        "{cuts", "{restore: wait, cuts"))
seed = json.loads(run("optical", "cut.yaml", "--json").stdout)[
    "policies"]["ksp-ff"]["seeds"][0]
check(seed["iteration_ns"] == [200000000 + 2 * USUAL + PASSES - 10000000] +
      3 * [2 * USUAL + PASSES], f"wait: {seed['iteration_ns']}")
RANDOM = CUT.replace("{cuts: [{link: [2, 1], at_s: 0.02}]}",
                     "{mtbf_s: 0.5, mttr_s: 0.05}").replace("seeds: [1]",
                                                            "seeds: [1, 2]")
(WORK / "cut.yaml").write_text(RANDOM)
texts = {run("optical", "cut.yaml", "--json", "--threads", n).stdout
         for n in ("1", "3")}
found = json.loads(texts.pop())["policies"]["ksp-ff"]["seeds"]
check(not texts and found[0]["outages"] and
      found[0]["outages"] != found[1]["outages"], "random failures")
for change, why in ((("at_s: 0.02}", "at_s: 0.02}, {link: [1, 3], at_s: 0}"),
                     "leave no candidate path from node 1"),
                    (("[2, 1]", "[2, 2]"), "has no such link"),
                    (("[2, 1]", "[2, 9]"), "no node 9"),
                    (("0.02}", "0.02, index: 1}"), "index"),
                    (("0.02}", "2, repair_s: 1}"), "later than at_s"),
                    (("{cuts", "{restore: wait, cuts"), "needs repair_s"),
                    (("{cuts", "{mtbf_s: 5, cuts"), "both mtbf_s and mttr_s")):
    (WORK / "bad.yaml").write_text(CUT.replace(*change))
    bad = run("optical", "bad.yaml")
    check(bad.returncode != 0 and bad.stdout == "" and why in bad.stderr and
          bad.stderr.count("\n") == 1, f"{change[1]}: {bad.stderr}")
check("has no failures" in
      run("optical", "optical.yaml", "--events", "x.yaml").stderr, "--events")

# --- refusals -------------------------------------------------------------------
for change, why in ((("km: 600", "km: -600"), "links[1].km"),
                    (("b: 5", "b: 6"), "there is no node 6"),
                    (("[8, 5]", "[8, 6]"), "the topology has no node 6"),
                    (("seeds:", "request_slots: 81\nseeds:"), "request_slots"),
                    (("cba: {}", "best: {}"), "is not the name of a policy"),
                    (("gpipe", "optimal"),
                     "job.schedule: unknown method 'optimal'; known: gpipe, 1f1b"),
                    (("ksp-ff: {}", "ksp-ff: {keep_labels: true}"),
                     "ksp-ff.keep_labels: is an option of the policy cba only"),
                    (("ksp-ff: {}", "ksp-ff: {fill_idle: true}"),
                     "ksp-ff.fill_idle: has no effect"),
                    (("ksp-ff: {}", "ksp-ff: {warm_up_factor: 2}"),
                     "ksp-ff.warm_up_factor: has no effect"),
                    (("stages", "warm_up_factor: 2, stages"),
                     "job.warm_up_factor: has no effect"),
                    (("stages", "weight_ns: 2, stages"),
                     "job.weight_ns: has no effect"),
                    (("stages", "activation_limit: 2, stages"),
                     "job.activation_limit: has no effect"),
                    (("stages", "policy: {policy: cba, fill_idle: true}, stages"),
                     "job.policy.fill_idle: has no effect")):
    (WORK / "bad.yaml").write_text(SCENARIO.replace(*change))
    bad = run("optical", "bad.yaml")
    check(bad.returncode == 1 and bad.stdout == "" and
          bad.stderr.startswith("longhaul: bad.yaml:") and why in bad.stderr and
          bad.stderr.count("\n") == 1, f"{change[1]}: {bad.stderr}")
# They have an effect under another schedule: of a policy, or in a sweep.
LIMIT = SCENARIO.replace("stages", "activation_limit: 1, weight_ns: 2, stages")
(WORK / "limit.yaml").write_text(
    LIMIT.replace("cba: {}", "cba: {schedule: greedy, fill_idle: true}"))
done = run("optical", "limit.yaml", "--json")
check(done.returncode == 0, f"keys of schedules, policy: {done.stderr}")
# Without a fixed order, the bound is the passes of a device without a pause.
check(json.loads(done.stdout)["policies"]["cba"]["lower_bound_s"] == 0.0554,
      "lower bound with fill_idle")
(WORK / "limit.yaml").write_text(LIMIT)
done = run("optical", "limit.yaml", "--sweep", "job.schedule=gpipe,greedy")
check(done.returncode == 0, f"keys of schedules, --sweep: {done.stderr}")
check(run("optical").returncode == 2, "no scenario is wrong usage")

finish()
