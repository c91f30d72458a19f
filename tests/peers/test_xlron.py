#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`longhaul optical` reads the topologies of XLRON.

    test_xlron.py PROGRAM SOURCE

$LONGHAUL_XLRON names the folder xlron/data/topologies of XLRON
(https://github.com/micdoh/XLRON, commit 158ef03f), which has the 119 networks of
TopologyBench and six others. Without it the test is skipped with a message.
"""
import json
import os
import pathlib
import subprocess
import sys
import tempfile

from skip_without import SKIP

PROGRAM = os.path.abspath(sys.argv[1])
if "LONGHAUL_XLRON" not in os.environ:
    print("SKIPPED: LONGHAUL_XLRON does not name XLRON's topologies; that "
          "longhaul reads them is not tested.", file=sys.stderr)
    sys.exit(SKIP)
FILES = sorted(pathlib.Path(os.environ["LONGHAUL_XLRON"]).resolve().glob(
    "*_undirected.json"))
rejected, wrong = {}, []
for path in FILES:
    graph = json.loads(path.read_text())
    with tempfile.TemporaryDirectory() as folder:
        scenario = pathlib.Path(folder, "s.yaml")
        scenario.write_text(f"""longhaul: optical/1
topology: {path}
job: {{preset: 8b, stages: 2, datacenters: 2, schedule: gpipe, microbatches: 1}}
seeds: [1]
iterations: 1
policies: {{ksp-ff: {{}}}}
""")
        done = subprocess.run([PROGRAM, "optical", scenario, "--json"],
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                              text=True, check=False)
    if done.returncode != 0:
        rejected[path.name] = done.stderr.strip()
        continue
    seed = json.loads(done.stdout)["policies"]["ksp-ff"]["seeds"][0]
    if not set(seed["placement"]) <= {n["id"] for n in graph["nodes"]}:
        wrong.append(path.name)
print(f"{len(FILES)} topologies, {len(FILES) - len(rejected)} read")
for name, why in rejected.items():
    print(f"{name}: {why}")
sys.exit(0 if list(rejected) == ["oxford_undirected.json"] and
         "to itself" in rejected["oxford_undirected.json"] and
         not wrong and len(FILES) == 125 else 1)
