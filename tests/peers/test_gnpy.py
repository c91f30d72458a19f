#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""GNPy and `longhaul optical` agree on the GSNR of paths, within 0.1 dB.

    test_gnpy.py PROGRAM SOURCE

Needs gnpy 3; $LONGHAUL_GNPY names a Python that has it, if this one has not.
Without it the test is skipped with a message.
"""
import json
import os
import pathlib
import subprocess
import sys
import tempfile

from skip_without import skip_without

PROGRAM, SOURCE = os.path.abspath(sys.argv[1]), pathlib.Path(sys.argv[2])
try:
    from gnpy.core.elements import Roadm, Transceiver
    from gnpy.tools.json_io import load_equipments_and_configs, load_network
    from gnpy.tools.worker_utils import designed_network
    from gnpy.topology.request import compute_constrained_path, propagate
except ImportError as error:
    skip_without("gnpy", error, "LONGHAUL_GNPY", "GNPy computes the same GSNR")

FOLDER = (SOURCE / "tests/data/optical/gnpy").resolve()
NETWORK, EQUIPMENT = FOLDER / "network.json", FOLDER / "equipment.json"


def gnpy_paths():
    """Each pair's path, as ROADM names, and its least GSNR in 0.1 nm."""
    equipment = load_equipments_and_configs(EQUIPMENT, [], [])
    network = load_network(NETWORK, equipment)
    ends = [n for n in network.nodes() if isinstance(n, Transceiver)]
    network, request, _ = designed_network(
        equipment, network, source=ends[0].uid, destination=ends[1].uid,
        no_insert_edfas=True)
    for a in ends:
        for b in ends:
            if a is b:
                continue
            request.source, request.destination = a.uid, b.uid
            request.nodes_list, request.loose_list = [b.uid], ["STRICT"]
            path = compute_constrained_path(network, request)
            propagate(path, request, equipment)
            yield (tuple(e.uid for e in path if isinstance(e, Roadm)),
                   float(min(path[-1].snr_01nm)))


def our_paths():
    names = [e["uid"] for e in json.loads(NETWORK.read_text())["elements"]
             if e["type"] == "Roadm"]
    with tempfile.TemporaryDirectory() as folder:
        scenario = pathlib.Path(folder, "s.yaml")
        scenario.write_text(f"""longhaul: optical/1
topology: {{gnpy: {{network: {NETWORK}, equipment: {EQUIPMENT}}}}}
job: {{preset: 8b, stages: 2, datacenters: 2, schedule: gpipe, microbatches: 1}}
seeds: [1]
iterations: 1
candidate_paths: 8
policies: {{ksp-ff: {{}}}}
""")
        out = subprocess.run([PROGRAM, "optical", scenario, "--json"],
                             check=True, stdout=subprocess.PIPE).stdout
    return {tuple(names[n - 1] for n in p["nodes"]): p["gsnr_db"]
            for p in json.loads(out)["paths"]}


ours, worst, n = our_paths(), 0, 0
for nodes, gsnr in gnpy_paths():
    worst = max(worst, abs(ours[nodes] - gsnr))
    n += 1
print(f"{n} paths, largest difference {worst:.2g} dB")
sys.exit(0 if n == 20 and worst <= 0.1 else 1)
