# SPDX-License-Identifier: Apache-2.0
"""Networks of GNPy on longhaul's topologies, and formats by distance or GSNR."""
import json
import math
import pathlib
import re
import subprocess

SPAN_KM = 80
# The distance table, `modulation: adaptive`: km, Gb/s per slot.
TABLE = ((625, 50), (1250, 37.5), (2500, 25), (math.inf, 12.5))


def build(topology, equipment):
    """Returns GNPy's network and equipment for a topology file's text.

    Every link has spans of equal length, 80 km at most, of 0.2 dB/km. A booster
    sends 0 dBm per channel; each amplifier restores the span's loss with a noise
    figure of 5 dB. Transceivers, fibres and channels are from `equipment`.
    """
    def amplifier(uid, gain):
        return {"uid": uid, "type": "Edfa", "type_variety": "line",
                "operational": {"gain_target": gain, "delta_p": 0,
                                "tilt_target": 0, "out_voa": 0, "in_voa": 0}}

    nodes = re.findall(r"id: (\d+)", topology)
    elements = [{"uid": f"trx {n}", "type": "Transceiver"} for n in nodes]
    wires = [(a, b) for n in nodes for a, b in (
        (f"trx {n}", f"roadm {n}"), (f"roadm {n}", f"trx {n}"))]
    links = re.findall(r"a: (\d+), b: (\d+), km: ([\d.]+)", topology)
    degrees = {n: {} for n in nodes}
    for a, b, km in [(x, y, k) for a, b, k in links
                     for x, y in ((a, b), (b, a))]:
        spans = math.ceil(float(km) / SPAN_KM)
        line = [amplifier(f"booster {a}-{b}", 20)]
        degrees[a][line[0]["uid"]] = -20
        for i in range(spans):
            length = float(km) / spans
            line += [{"uid": f"fiber {a}-{b} {i}", "type": "Fiber",
                      "type_variety": "SSMF",
                      "params": {"length": length, "length_units": "km",
                                 "att_in": 0, "con_in": 0, "con_out": 0,
                                 "loss_coef": 0.2}},
                     amplifier(f"amplifier {a}-{b} {i}", 0.2 * length)]
        elements += line
        uids = [f"roadm {a}"] + [e["uid"] for e in line] + [f"roadm {b}"]
        wires += list(zip(uids, uids[1:]))
    elements += [{"uid": f"roadm {n}", "type": "Roadm",
                  "type_variety": "default",
                  "params": {"target_pch_out_db": -20,
                             "per_degree_pch_out_db": degrees[n]}}
                 for n in nodes]
    made = json.loads(json.dumps(equipment))
    made["Span"][0]["padding"] = 0  # else GNPy attenuates short spans to 10 dB
    made["Edfa"] = [{"type_variety": "line", "type_def": "fixed_gain",
                     "gain_flatmax": 25, "gain_min": 0, "p_max": 23, "nf0": 5,
                     "allowed_for_design": True}]
    return ({"elements": elements,
             "connections": [{"from_node": a, "to_node": b} for a, b in wires]},
            made)


def write(topology, equipment, folder):
    """Writes both files into a folder and returns their paths."""
    paths = []
    for name, value in zip(("network", "equipment"),
                           build(topology, equipment)):
        paths.append(pathlib.Path(folder, f"{name}.json"))
        paths[-1].write_text(json.dumps(value))
    return paths


def shortest_paths(program, network, equipment, folder):
    """Returns longhaul's shortest path per pair of nodes, a < b, as in its JSON,
    with the mode of GNPy's transceiver Voyager; none if no mode reaches."""
    scenario = pathlib.Path(folder, "s.yaml")
    scenario.write_text(f"""longhaul: optical/1
topology: {{gnpy: {{network: {network}, equipment: {equipment}}}}}
modulation: {{transceiver: Voyager}}
job: {{preset: 8b, stages: 1, placement: [1], schedule: gpipe, microbatches: 1}}
seeds: [1]
iterations: 1
candidate_paths: 1
policies: {{ksp-ff: {{}}}}
""")
    done = subprocess.run([program, "optical", scenario, "--json"], check=True,
                          stdout=subprocess.PIPE)
    return {(p["nodes"][0], p["nodes"][-1]): p
            for p in json.loads(done.stdout)["paths"]
            if p["nodes"][0] < p["nodes"][-1]}


def compare_table(paths, n_pairs):
    """Compares the distance table with the modes by GSNR, pair by pair: mean
    rates per slot, and the pairs for which the table gives more, or less."""
    table = {pair: next(rate for km, rate in TABLE if p["km"] <= km)
             for pair, p in paths.items()}
    more = sum(table[k] > p["gbps_per_slot"] for k, p in paths.items())
    less = sum(table[k] < p["gbps_per_slot"] for k, p in paths.items())
    return {"pairs": n_pairs, "unreached": n_pairs - len(paths),
            "table_gbps": round(sum(table.values()) / len(paths), 1),
            "gsnr_gbps": round(sum(p["gbps_per_slot"] for p in paths.values()) /
                               len(paths), 1),
            "table_more": more, "table_less": less}


def write_profiles(source, folder):
    """Writes GNPy's test network with gain and noise that depend on the frequency.

    Amplifiers have a gain tilt, ripple, and a polynomial noise figure. Returns the
    paths of network and equipment, and of the files with profiles.
    """
    folder = pathlib.Path(folder)
    network, equipment = (json.loads((source / f"{name}.json").read_text())
                          for name in ("network", "equipment"))
    default = json.loads((source / "amplifier.json").read_text())
    ripple = {"gain_ripple": [0.3, -0.2, 0.1, 0.4, -0.5],
              "nf_ripple": [0.5, 0, -0.3, 0.2, 0.1]}
    profiles = {"std_low_gain": default, "test": {**default, **ripple},
                "std_medium_gain": {
                    **default, **ripple,
                    "nf_fit_coeff": [0.0002, 0.05, 0.04, 5.8]}}
    for e in network["elements"]:
        if e.get("type_variety") in profiles:
            e["operational"]["tilt_target"] = -2
    for e in equipment["Edfa"]:
        name = e["type_variety"]
        if name not in profiles:
            continue
        advanced = "nf_fit_coeff" in profiles[name]
        e["advanced_config_from_json" if advanced else
          "default_config_from_json"] = f"{name}.json"
        if advanced:
            e["type_def"] = "advanced_model"
            del e["nf_min"], e["nf_max"]
    files = {"network": network, "equipment": equipment, **profiles}
    for name, value in files.items():
        (folder / f"{name}.json").write_text(json.dumps(value))
    return (folder / "network.json", folder / "equipment.json",
            [folder / f"{name}.json" for name in profiles])
