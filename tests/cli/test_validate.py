#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Measured runs as job files: `longhaul plan` predicts the same times as
bench/validate, so docs/validation.md applies to jobs that users write.
"""
import json
import os
import re
import subprocess

from harness import ANY, ROOT, case, check, finish, read, test, write

VALIDATE = os.environ["VALIDATE"]
# One run of each set, with replicas and stages; for mit with different GPUs.
SETS = {"vtrain multi": 3, "vtrain single": 100, "sailor clariden": 3,
        "sailor mit": 3, "clariden, no profiles": 5}


def validate(*args):
    return subprocess.run([VALIDATE, *args, str(ROOT / "bench/data")],
                          check=True, capture_output=True, text=True).stdout


@test
def a_measured_run_is_planned_as_it_is_validated():
    files = json.loads(validate("--rows", "--json"))["files"]
    for name, n in SETS.items():
        runs = [run for run in files[name]["runs"] if not run["excluded"]]
        for run in runs[n::max(1, len(runs) // 3)][:3]:
            if name == "clariden, no profiles":
                continue  # contains the names of another set's runs
            # Memory is increased beyond any need: measured runs must count as
            # feasible, and only times are compared.
            text = validate("--job", run["run"])
            write("job.yaml", text.replace("gpu: a100-80g",
                                           "gpu: {preset: a100-80g, "
                                           "memory_gib: 1000}"))
            case(run["run"], ["plan", "job.yaml", "-o", "plan.json"], out=ANY)
            plan = json.loads(read("plan.json"))
            check(abs(plan["iteration_s"] / run["predicted_s"] - 1) < 1e-5,
                  f"{name}, {run['run']}: plan {plan['iteration_s']}, "
                  f"validate {run['predicted_s']}")
            peak = max(sum(value for key, value in rank.items()
                           if key.endswith("_bytes"))
                       for rank in plan["memory"])
            if name != "sailor clariden":
                continue
            peak += 0.06 * 96 * 2**30 # the reserve
            check(abs(peak / run["predicted_bytes"] - 1) < 1e-5,
                  f"{name}, {run['run']}: plan {peak} bytes, validate "
                  f"{run['predicted_bytes']}")


@test
def the_readme_and_the_page_contain_the_results():
    table = re.search(r"^all +(\d+) +(\d+) +([\d.]+)% +([\d.]+)% +(\d+) +"
                      r"([\d.]+)% +([\d.]+)% +([\d.]+)%", validate(), re.M)
    (groups, right, mean, worst, others, usual, usual_worst,
     any_layout) = table.groups()
    page = (ROOT / "docs/validation.md").read_text()
    check(f"\n| all | {groups} | {right} | **{mean} %** | {worst} % | {others} | "
          f"**{usual} %** | {usual_worst} % | {any_layout} % |\n" in page,
          f"docs/validation.md: {table[0]}")
    check(f"`practice` names another layout than the fastest by the model in "
          f"{others} of {groups} groups. The layouts by practice are slower than "
          f"the fastest measured by {usual} % on average, those that the model "
          f"calls the fastest by {mean} %" in " ".join(page.split()),
          f"docs/validation.md: {table[0]}")
    readme = " ".join((ROOT / "README.md").read_text().split())
    check(f"In {groups} groups of layouts measured by others, the layout that "
          f"longhaul chooses takes on average {mean} % longer than the fastest "
          f"measured layout, and {worst} % longer at worst" in readme,
          f"README.md: {table[0]}")


finish()
