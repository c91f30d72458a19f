#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""GNPy and `longhaul optical` agree on the GSNR of paths, within 0.1 dB.

    test_gnpy.py PROGRAM SOURCE

On the networks of GNPy in tests/data/optical/gnpy, and on the shipped
topologies as networks of GNPy. Prints the table of docs/optical.md that compares
formats by distance with those by GSNR. Needs gnpy 3; $LONGHAUL_GNPY names a
Python that has it, if this one has not. Without it the test is skipped with a
message.
"""
import json
import os
import pathlib
import subprocess
import sys
import tempfile

import gnpy_network
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
EQUIPMENT = FOLDER / "equipment.json"
PAIRS = 20  # compared per topology


def gnpy_paths(network_file, equipment_file, pairs, profiles=()):
    """Each pair's path, as ROADM names, and its least GSNR in 0.1 nm."""
    equipment = load_equipments_and_configs(equipment_file, [], list(profiles))
    network = load_network(network_file, equipment)
    ends = {n.uid: n for n in network.nodes() if isinstance(n, Transceiver)}
    names = list(ends)
    if pairs is None:
        pairs = [(a, b) for a in names for b in names if a != b]
    network, request, _ = designed_network(
        equipment, network, source=names[0], destination=names[1],
        no_insert_edfas=True)
    for a, b in pairs:
        request.source, request.destination = a, b
        request.nodes_list, request.loose_list = [b], ["STRICT"]
        path = compute_constrained_path(network, request)
        propagate(path, request, equipment)
        yield (tuple(e.uid for e in path if isinstance(e, Roadm)),
               float(min(path[-1].snr_01nm)))


def our_paths(network_file, equipment_file):
    names = [e["uid"] for e in json.loads(network_file.read_text())["elements"]
             if e["type"] == "Roadm"]
    with tempfile.TemporaryDirectory() as folder:
        scenario = pathlib.Path(folder, "s.yaml")
        scenario.write_text(f"""longhaul: optical/1
topology: {{gnpy: {{network: {network_file}, equipment: {equipment_file}}}}}
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


def compare(network_file, equipment_file, pairs=None, profiles=()):
    """Returns the number of paths and the largest difference in dB."""
    ours, worst, n = our_paths(network_file, equipment_file), 0, 0
    for nodes, gsnr in gnpy_paths(network_file, equipment_file, pairs,
                                  profiles):
        worst = max(worst, abs(ours[nodes] - gsnr))
        n += 1
    return n, worst


good = True
for name in ("network", "impairments"):
    n_paths, difference = compare(FOLDER / f"{name}.json", EQUIPMENT)
    print(f"{name}: {n_paths} paths, largest difference {difference:.2g} dB")
    good = good and n_paths == 20 and difference <= 0.1
with tempfile.TemporaryDirectory() as folder:
    *files, profiles = gnpy_network.write_profiles(FOLDER, folder)
    n_paths, difference = compare(*files, profiles=profiles)
    print(f"amplifier profiles: {n_paths} paths, largest difference "
          f"{difference:.2g} dB")
    good = good and n_paths == 20 and difference <= 0.1
for name in ("nsfnet", "nsfnet-rounded", "cost239", "usnet", "nobel-us",
             "nobel-eu", "germany50", "jpn48"):
    text = (SOURCE / f"data/topologies/{name}.yaml").read_text()
    with tempfile.TemporaryDirectory() as folder:
        files = gnpy_network.write(text, json.loads(EQUIPMENT.read_text()),
                                   folder)
        ids = [e["uid"].split()[1]
               for e in json.loads(files[0].read_text())["elements"]
               if e["type"] == "Transceiver"]
        every = [(a, b) for i, a in enumerate(ids) for b in ids[:i]]
        some = every[::max(1, len(every) // PAIRS)][:PAIRS]
        n_paths, difference = compare(
            *files, [(f"trx {a}", f"trx {b}") for a, b in some])
        row = gnpy_network.compare_table(
            gnpy_network.shortest_paths(PROGRAM, *files, folder),
            len(every))
    good = good and n_paths == len(some) and difference <= 0.1
    print(f"| {name} | {' | '.join(str(v) for v in row.values())} | "
          f"{difference:.1g} |")
sys.exit(0 if good else 1)
