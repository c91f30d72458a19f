#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Which networks of GNPy's own tests `longhaul optical` reads.

    gnpy_expected.py PROGRAM REPOSITORY

REPOSITORY: a checkout of github.com/Telecominfraproject/oopt-gnpy. Reads each
network tests/data/**/*_expected.json, as saved and again after GNPy's design,
and compares the GSNR of up to 20 paths. Prints the table of docs/optical.md;
fails if a GSNR differs by more than 0.1 dB. A Python with gnpy 3 must run it.
"""
import collections
import json
import os
import pathlib
import subprocess
import sys
import tempfile

from gnpy.core.elements import Roadm, Transceiver
from gnpy.tools.json_io import (
    load_equipments_and_configs,
    load_network,
    save_network,
)
from gnpy.tools.worker_utils import designed_network
from gnpy.topology.request import compute_constrained_path, propagate

PROGRAM, REPOSITORY = os.path.abspath(sys.argv[1]), pathlib.Path(sys.argv[2])
DATA, EXAMPLES = REPOSITORY / "tests/data", REPOSITORY / "gnpy/example-data"
PROFILE = "copy_default_edfa_config.json"  # GNPy's default
PATHS = 20  # compared per network
MOST_DB = 0.1


def write_equipment(folder):
    """The equipment of GNPy's tests, and advanced amplifiers of its examples.

    Names GNPy's default profile, has the channels that every amplifier carries,
    and is in gain mode: gains stay as they are saved.
    """
    equipment, examples = (json.loads((d / "eqpt_config.json").read_text())
                           for d in (DATA, EXAMPLES))
    known = {e["type_variety"] for e in equipment["Edfa"]}
    juniper = [e for e in examples["Edfa"] if e["type_variety"] not in known and
               e["type_def"] == "advanced_model"]
    equipment["Edfa"] += juniper
    equipment["Span"][0]["power_mode"] = False
    equipment["SI"][0].update(f_min=191.45e12, f_max=196.05e12)
    profiles = {PROFILE}
    for e in equipment["Edfa"]:
        if e["type_def"] == "variable_gain":
            e["default_config_from_json"] = PROFILE
        elif e["type_def"] == "advanced_model":
            profiles.add(e["advanced_config_from_json"])
    for name in profiles:
        source = DATA / name if (DATA / name).exists() else EXAMPLES / name
        (folder / name).write_text(source.read_text())
    (folder / "eqpt.json").write_text(json.dumps(equipment))
    return folder / "eqpt.json", [folder / name for name in profiles]


def split(network):
    """Yields the connected parts with two ROADMs or more."""
    near = collections.defaultdict(set)
    for c in network["connections"]:
        near[c["from_node"]].add(c["to_node"])
        near[c["to_node"]].add(c["from_node"])
    left = {e["uid"] for e in network["elements"]}
    while left:
        part, new = set(), [next(iter(sorted(left)))]
        while new:
            uid = new.pop()
            if uid not in part:
                part.add(uid)
                new += near[uid]
        left -= part
        elements = [e for e in network["elements"] if e["uid"] in part]
        if sum(e["type"] == "Roadm" for e in elements) > 1:
            yield {"elements": elements,
                   "connections": [c for c in network["connections"]
                                   if c["from_node"] in part]}


def our_gsnr(network, equipment, folder):
    """GSNR by ROADM names; fails with longhaul's message."""
    (folder / "s.yaml").write_text(f"""longhaul: optical/1
topology: {{gnpy: {{network: {network}, equipment: {equipment}}}}}
job: {{preset: 8b, stages: 2, placement: [1, 2], schedule: gpipe,
  microbatches: 1}}
seeds: [1]
iterations: 1
policies: {{ksp-ff: {{}}}}
""")
    done = subprocess.run([PROGRAM, "optical", folder / "s.yaml", "--json"],
                          capture_output=True, text=True, check=False)
    if done.returncode != 0:
        message = done.stderr.strip().split(".json:")[-1]
        raise ValueError(message.partition(": ")[2])
    names = [e["uid"] for e in json.loads(network.read_text())["elements"]
             if e["type"] == "Roadm"]
    return {tuple(names[n - 1] for n in p["nodes"]): p["gsnr_db"]
            for p in json.loads(done.stdout)["paths"]}


def gnpy_gsnr(network_file, equipment_file, profiles):
    """Yields the ROADMs of some paths and the least GSNR of their channels."""
    equipment = load_equipments_and_configs(equipment_file, [], profiles)
    network = load_network(network_file, equipment)
    names = [n.uid for n in network.nodes() if isinstance(n, Transceiver)]
    network, request, _ = designed_network(
        equipment, network, source=names[0], destination=names[1],
        no_insert_edfas=True)
    pairs = [(a, b) for a in names for b in names if a != b]
    for a, b in pairs[::max(1, len(pairs) // PATHS)][:PATHS]:
        request.source, request.destination = a, b
        request.nodes_list, request.loose_list = [b], ["STRICT"]
        path = compute_constrained_path(network, request)
        propagate(path, request, equipment)
        yield (tuple(e.uid for e in path if isinstance(e, Roadm)),
               float(min(path[-1].snr_01nm)))


def compare(network, equipment, profiles, folder):
    """Describes how longhaul reads a network, part by part."""
    parts = list(split(network)) or [network]
    worst, n = 0, 0
    for part in parts:
        (folder / "part.json").write_text(json.dumps(part))
        ours = our_gsnr(folder / "part.json", equipment, folder)
        for nodes, gsnr in gnpy_gsnr(folder / "part.json", equipment, profiles):
            if nodes in ours:
                worst = max(worst, abs(ours[nodes] - gsnr))
                n += 1
    if n == 0 or worst > MOST_DB:
        raise AssertionError(f"{n} paths, {worst} dB")
    return f"{n} paths, {worst:.0e} dB" + (
        f", in {len(parts)} parts" if len(parts) > 1 else "")


def design(network_file, equipment_file, profiles, out):
    """Saves the network with GNPy's amplifiers and gains."""
    text = json.loads(pathlib.Path(equipment_file).read_text())
    text["Span"][0]["power_mode"] = True
    power = out.with_name("power.json")
    power.write_text(json.dumps(text))
    equipment = load_equipments_and_configs(power, [], profiles)
    network = load_network(network_file, equipment)
    names = [n.uid for n in network.nodes() if isinstance(n, Transceiver)]
    network, _, _ = designed_network(equipment, network, source=names[0],
                                     destination=names[1])
    save_network(network, out)
    return json.loads(out.read_text())


def main():
    good = True
    for file in sorted(DATA.glob("**/*_expected.json")):
        network = json.loads(file.read_text())
        if "elements" not in network:
            continue
        row = [str(file.relative_to(DATA))]
        with tempfile.TemporaryDirectory() as name:
            folder = pathlib.Path(name)
            equipment, profiles = write_equipment(folder)
            for designed in (False, True):
                try:
                    if designed:
                        network = design(file, equipment, profiles,
                                         folder / "designed.json")
                    row.append(compare(network, equipment, profiles, folder))
                except ValueError as error:
                    row.append(str(error))
                except AssertionError as error:
                    row.append(str(error))
                    good = False
        print(f"| {' | '.join(row)} |", flush=True)
    return 0 if good else 1


sys.exit(main())
