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
