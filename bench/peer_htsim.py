#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares the packet simulation with htsim (ultraethernet/uet-htsim).

    peer_htsim.py validate PACKET_MATRIX DATACENTER [--markdown]
    peer_htsim.py dcqcn PACKET_MATRIX DATACENTER [--runs N] [--markdown]
    peer_htsim.py fair PACKET_MATRIX DATACENTER [--runs N] [--markdown]

PACKET_MATRIX: the program of tests/speed/packet_matrix.c. DATACENTER: the folder
htsim/sim/datacenter of uet-htsim, with the programs htsim_uec and htsim_roce,
or links to them.

validate: the experiments of validate_uec_sender.txt. Prints the last message's
completion and the processor time of both programs, and the experiment's target.
Fails if a completion exceeds the target by more than 5 % or longhaul is less
than twice as fast. longhaul sprays at random, htsim_uec with feedback from the
network. A failed link is not simulated.

dcqcn: go-back-N with pauses, with and without DCQCN, against htsim_roce: the
mean and the last completion over a grid of incasts, means over RUNS hashes in
both programs. Fails if a mean or a last completion differs by more than 5 %.
The htsim_roce in DATACENTER needs the five changes of its DCQCN in
docs/theory/packets.md, "Against htsim". Without them it does not end.

fair: the single paths of the permutation with 1,024 hosts, without htsim: mean
and last completion of each of RUNS hashes, and those of flows with max-min fair
rates on the same paths. Fails if the means over the hashes differ by more than
5 %.
"""
import argparse
import heapq
import json
import os
import pathlib
import re
import resource
import subprocess
import tempfile


def measure_children():
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def run_longhaul(program, matrix, options):
    done = subprocess.run([program, str(matrix), *options], capture_output=True, text=True,
                          check=True)
    return json.loads(done.stdout)


def run_htsim(program, matrix, options, limit=None):
    """Returns htsim's completions in us and its processor time in seconds. htsim
    writes files into its working folder. Exits after `limit` seconds."""
    before = measure_children()
    with tempfile.TemporaryDirectory() as folder:
        try:
            done = subprocess.run([program, "-tm", str(matrix), *options], capture_output=True,
                                  text=True, check=True, cwd=folder, timeout=limit)
        except subprocess.TimeoutExpired:
            raise SystemExit(f"{program} did not end in {limit} s: make the five changes in "
                             "docs/theory/packets.md, \"Against htsim\"") from None
    ends = [float(us) for us in re.findall(r" finished at ([0-9.]+)", done.stdout)]
    return ends, measure_children() - before


def read_experiments(path):
    """Yields matrix, name, htsim's options and the target in us."""
    lines = path.read_text(encoding="utf-8").splitlines()
    found = None
    for line in [*lines, "end"]:
        if line.startswith("!") and found:
            word, _, rest = line[1:].partition(" ")
            if word == "Experiment":
                found["name"] = rest.strip()
            elif word == "Param":
                found["options"] += rest.split()
            elif word == "tailFCT":
                found["target"] = float(rest)
        elif line.strip():
            if found:
                yield found
            found = {"matrix": line.strip(), "options": []}


def read_topology(path):
    """Returns packet-matrix's options for a topology of two tiers."""
    keys = dict(re.findall(r"^(\w+) (\d+)", path.read_text(encoding="utf-8").partition("Tier 1")[0],
                           re.M))
    leaves = int(keys["Nodes"]) // int(keys["Radix_Down"])
    return ["--leaves", str(leaves), keys["Radix_Up"], keys["Oversubscribed"]]


def translate(folder, options):
    """Returns the options of both programs; None: longhaul has none such."""
    mine, theirs = [], list(options)
    if "-failed" in options:
        return None
    if "-topo" in options:
        at = options.index("-topo") + 1
        mine += read_topology(folder / options[at])
        theirs[at] = str(folder / options[at])
    if "-paths" in options and options[options.index("-paths") + 1] == "1":
        mine.append("--ecmp")
    return mine, theirs


def print_row(cells, markdown):
    print("| " + " | ".join(cells) + " |" if markdown else "  ".join(cells), flush=True)


def validate(args):
    good = True
    for e in read_experiments(args.folder / "validate_uec_sender.txt"):
        both = translate(args.folder, e["options"])
        matrix = args.folder / e["matrix"]
        if not both:
            print_row([e["name"], "not simulated: a failed link"], args.markdown)
            continue
        mine = run_longhaul(args.program, matrix, both[0])
        ends, seconds = run_htsim(str(args.folder / "htsim_uec"), matrix, both[1])
        if len(ends) != len(mine["end_us"]):
            raise SystemExit(f"{e['name']}: htsim ended {len(ends)} messages")
        last, peer = max(mine["end_us"]), max(ends)
        faster = seconds / mine["processor_s"]
        good = good and last <= 1.05 * e["target"] and faster >= 2
        print_row([e["name"], f"{e['target']:.0f}", f"{last:.1f}", f"{peer:.1f}",
                   f"{last / peer - 1:+.1%}", f"{mine['packets'] / mine['processor_s']:,.0f}",
                   f"{mine['packets'] / seconds:,.0f}", f"{faster:.1f}"], args.markdown)
    return good


def write_incast(path, n, size):
    """Writes n messages to host 15 of 16, from different racks where possible."""
    senders = [*range(0, 14, 2), *range(1, 15, 2)][:n]
    path.write_text(f"Nodes 16\nConnections {n}\n" + "".join(
        f"{sender}->15 id {i + 1} start 0 size {size}\n" for i, sender in enumerate(senders)),
        encoding="utf-8")


def compare_incast(args, n, size, marks):
    """Returns mean and last completion of longhaul, and of htsim, in us."""
    sums = [0, 0, 0, 0]
    options = ["-nodes", "16", "-tiers", "3", "-linkspeed", "100000", "-strat", "ecmp_host",
               "-paths", "64", "-mtu", "4096", "-end", "8000", "-q", "1000000",
               "-pfc_thresholds", "98", "100", *(["-dcqcn", str(marks)] if marks else [])]
    with tempfile.TemporaryDirectory() as folder:
        matrix = pathlib.Path(folder) / "matrix"
        write_incast(matrix, n, size)
        for seed in range(1, args.runs + 1):
            mine = run_longhaul(args.program, matrix,
                                ["--ecmp", "--go-back-n", "100", "--seed", str(seed),
                                 *(["--dcqcn", str(marks)] if marks else [])])["end_us"]
            ends = run_htsim(str(args.folder / "htsim_roce"), matrix,
                             [*options, "-seed", str(seed)], limit=60)[0]
            if len(ends) != n:
                raise SystemExit(f"htsim ended {len(ends)} of {n} messages")
            for i, value in enumerate((sum(mine) / n, max(mine), sum(ends) / n, max(ends))):
                sums[i] += value / args.runs
    return sums


def compare_dcqcn(args):
    good = True
    for marks in (None, 5, 20):
        for n in (1, 2, 4, 8):
            for size in (500000, 4000000):
                mean, last, peer, peer_last = compare_incast(args, n, size, marks)
                good = good and max(abs(mean / peer - 1), abs(last / peer_last - 1)) <= 0.05
                print_row([f"DCQCN, marks above {marks}" if marks else "go-back-N", str(n),
                           f"{size / 1e6:g}", f"{mean:.1f}", f"{peer:.1f}",
                           f"{mean / peer - 1:+.1%}", f"{last:.1f}", f"{peer_last:.1f}",
                           f"{last / peer_last - 1:+.1%}"], args.markdown)
    return good


RATE = 12500  # of a port, bytes per us
PERMUTATION = "perm_1024n_1024c_0u_2000000b.cm"
PACKETS, PACKET = 490, 4150  # of its messages, with headers
LATENCY = 12  # us, of six links and back


def compute_shares(flows, paths):
    """Returns the max-min fair rate of each flow: the ports with the least equal
    share are filled first."""
    users = {}
    for flow in flows:
        for port in paths[flow]:
            users.setdefault(port, []).append(flow)
    left = {port: (RATE, len(of)) for port, of in users.items()}
    heap = [(RATE / n, port) for port, (_, n) in left.items()]
    heapq.heapify(heap)
    rates = {}
    while len(rates) < len(flows):
        share, port = heapq.heappop(heap)
        rate, n = left[port]
        if n == 0:
            continue
        if rate / n > share * (1 + 1e-9):
            heapq.heappush(heap, (rate / n, port))
            continue
        for flow in users[port]:
            if flow not in rates:
                rates[flow] = rate / n
                for other in paths[flow]:
                    left[other] = (left[other][0] - rates[flow], left[other][1] - 1)
    return rates


def compute_fair_ends(paths, size):
    """Returns the completions of flows with max-min fair rates, in us."""
    left = dict.fromkeys(range(len(paths)), size)
    now, ends = 0, []
    while left:
        rates = compute_shares(list(left), paths)
        step = min(left[flow] / rate for flow, rate in rates.items())
        now += step
        left = {flow: size - rates[flow] * step for flow, size in left.items()}
        ends += [now + LATENCY for size in left.values() if size < 1]
        left = {flow: size for flow, size in left.items() if size >= 1}
    return ends


def compare_fair(args):
    sums = [0, 0, 0, 0]
    for seed in range(1, args.runs + 1):
        found = run_longhaul(args.program, args.folder / "connection_matrices" / PERMUTATION,
                             ["--ecmp", "--seed", str(seed)])
        mine, fair = found["end_us"], compute_fair_ends(found["paths"], PACKETS * PACKET)
        row = [sum(mine) / len(mine), sum(fair) / len(fair), max(mine), max(fair)]
        sums = [a + b for a, b in zip(sums, row)]
        print_row([str(seed), *(f"{value:.1f}" for value in row)], args.markdown)
    print_row(["mean", *(f"{value / args.runs:.1f}" for value in sums)], args.markdown)
    return abs(sums[0] / sums[1] - 1) <= 0.05


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("validate", "dcqcn", "fair"))
    parser.add_argument("program", type=os.path.abspath)
    parser.add_argument("folder", type=lambda text: pathlib.Path(text).resolve())
    parser.add_argument("--runs", type=int, default=10)
    parser.add_argument("--markdown", action="store_true")
    args = parser.parse_args()
    programs = {"validate": validate, "dcqcn": compare_dcqcn, "fair": compare_fair}
    raise SystemExit(not programs[args.what](args))


main()
