#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""longhaul optical, through the program."""
import json

from harness import WORK, check, finish, run

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
for axes, why in (("slots=0", "--sweep slots=0: optical.yaml:1: slots"),
                  ("slots", "expected KEY=VALUE"), ("slots=1,", "empty"),
                  ("slots=1;slots=2", "given twice"),
                  ("slotz=2", "unknown key; did you mean 'slots'"),
                  ("job.stages.x=1", "job.stages: has no key 'x'")):
    bad = run("optical", "optical.yaml", "--sweep", axes)
    check(bad.returncode == 1 and bad.stdout == "" and why in bad.stderr and
          bad.stderr.count("\n") == 1, f"--sweep {axes}: {bad.stderr}")
check(run("optical", "optical.yaml", "--csv", "x.csv").returncode == 2,
      "--csv without --sweep")

# --- refusals -------------------------------------------------------------------
for change, why in ((("km: 600", "km: -600"), "links[1].km"),
                    (("b: 5", "b: 6"), "there is no node 6"),
                    (("[8, 5]", "[8, 6]"), "the topology has no node 6"),
                    (("seeds:", "request_slots: 81\nseeds:"), "request_slots"),
                    (("cba: {}", "best: {}"), "is not the name of a policy")):
    (WORK / "bad.yaml").write_text(SCENARIO.replace(*change))
    bad = run("optical", "bad.yaml")
    check(bad.returncode == 1 and bad.stdout == "" and
          bad.stderr.startswith("longhaul: bad.yaml:") and why in bad.stderr and
          bad.stderr.count("\n") == 1, f"{change[1]}: {bad.stderr}")
check(run("optical").returncode == 2, "no scenario is wrong usage")

finish()
