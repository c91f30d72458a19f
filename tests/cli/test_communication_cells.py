#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""longhaul check: SEND, RECV and other communication cells.

Random small schedules are compared with a brute force that shares no code with
longhaul: rows run as communicating processes, in every possible order of steps.
"""
import itertools
import random
import re

from harness import (ANY, ROOT, case, check, finish, has_few_cases, json_case, read,
                     run, test, write)

SEEDS = 300 if has_few_cases() else 3000

# https://github.com/pytorch/pytorch/issues/172668: two ranks of two stages
# whose messages have contradictory orders.
CONTRADICTING = """\
0F0,0SEND_F0,0F1,0SEND_F1,2RECV_F0,2F0,2SEND_F0,2RECV_F1,2F1,2SEND_F1,0F2,0SEND_F2,2RECV_B0,2B0,2SEND_B0,0F3,0SEND_F3,2RECV_B1,2B1,2SEND_B1,0RECV_B0,0B0,0RECV_B1,0B1,2RECV_F2,2F2,2SEND_F2,2RECV_F3,2F3,2SEND_F3,2RECV_B2,2B2,2SEND_B2,2RECV_B3,2B3,2SEND_B3,0RECV_B2,0B2,0RECV_B3,0B3
1RECV_F0,1F0,1SEND_F0,1RECV_F1,1F1,1SEND_F1,3RECV_F0,3F0,3B0,3RECV_F1,3SEND_B0,3F1,3B1,1RECV_F2,3SEND_B1,1F2,1SEND_F2,1RECV_B0,1B0,1SEND_B0,1RECV_F3,1F3,1SEND_F3,1RECV_B1,1B1,1SEND_B1,3RECV_F2,3F2,3B2,3SEND_B2,3RECV_F3,3F3,3B3,3SEND_B3,1RECV_B2,1B2,1SEND_B2,1RECV_B3,1B3,1SEND_B3
"""


def pipeline(devices, placement, chunks, microbatches, backward="joint"):
    return ("longhaul: pipeline/1\ntime_unit: ms\n"
            f"microbatches: {microbatches}\ndevices: {devices}\n"
            f"backward: {backward}\nuniform: {{placement: {placement}, "
            f"chunks_per_device: {chunks}, F: 10, D: 10, W: 10}}\n")


def device_of(chunk, devices, placement):
    if placement == "wave" and chunk >= devices:
        return 2 * devices - 1 - chunk
    return chunk % devices


def message_of(cell, n_chunks):
    """Returns (direction, sending chunk, microbatch), receiving chunk, is a
    receive."""
    found = re.fullmatch(r"(\d+)(SEND|RECV)_([FB])(\d+)", cell)
    if not found:
        return None
    chunk, receive = int(found[1]), found[2] == "RECV"
    step = 1 if found[3] == "F" else -1
    sender = chunk - step if receive else chunk
    if not 0 <= sender < n_chunks or not 0 <= sender + step < n_chunks:
        return None
    return (found[3], sender, int(found[4])), sender + step, receive


# --- brute force -------------------------------------------------------------


def finishes(rows, place, n_chunks, buffers):
    """Explores all orders of steps; rows block like communicating processes."""
    ends = []
    for row in rows:
        ends.append([])
        for cell in row:
            message = message_of(cell, n_chunks)
            if message:
                (kind, sender, _), receiver, receive = message
                pair = place[sender], place[receiver]
                ends[-1].append((pair, receive))
    seen, todo, stuck = set(), [(tuple(0 for _ in rows), ())], set()
    while todo:
        at, queued = todo.pop()
        if (at, queued) in seen:
            continue
        seen.add((at, queued))
        waiting, moved = dict(queued), False
        for row, i in enumerate(at):
            if i == len(ends[row]):
                continue
            pair, receive = ends[row][i]
            to, left = list(at), dict(waiting)
            if buffers == 0:
                other = pair[0] if receive else pair[1]
                k = at[other]
                if k == len(ends[other]) or ends[other][k] != (pair,
                                                               not receive):
                    continue
                to[other] += 1
            elif receive:
                if not left.get(pair):
                    continue
                left[pair] -= 1
            else:
                if left.get(pair, 0) == buffers:
                    continue
                left[pair] = left.get(pair, 0) + 1
            to[row] += 1
            moved = True
            todo.append((tuple(to), tuple(sorted(left.items()))))
        if not moved:
            stuck.add(all(i == len(ends[row]) for row, i in enumerate(at)))
    check(len(stuck) == 1, f"the result depends on the order: {rows}")
    return stuck.pop()


def has_valid_ends(rows, place, n_chunks, microbatches):
    """Checks rules 1 and 2: ends, positions, and the order of each pair."""
    wanted = {(kind, sender, m)
              for kind, senders in (("F", range(n_chunks - 1)),
                                    ("B", range(1, n_chunks)))
              for sender in senders for m in range(microbatches)
              if place[sender] != place[sender + (1 if kind == "F" else -1)]}
    found, orders = {}, {}
    for device, row in enumerate(rows):
        for i, cell in enumerate(row):
            if "_" not in cell:
                continue
            message = message_of(cell, n_chunks)
            if not message:
                return False
            key, receiver, receive = message
            chunk = receiver if receive else key[1]
            if key not in wanted or place[chunk] != device or (
                    key, receive) in found:
                return False
            found[key, receive] = True
            own = row.index(f"{chunk}{key[0]}{key[2]}")
            if (i > own) if receive else (i < own):
                return False
            orders.setdefault((place[key[1]], place[receiver], receive),
                              []).append(key)
    return len(found) == 2 * len(wanted) and all(
        order == orders[a, b, not receive]
        for (a, b, receive), order in orders.items())


# --- random schedules --------------------------------------------------------


def random_rows(draw, place, devices, n_chunks, microbatches):
    """Returns an execution with unlimited buffers: valid passes, valid ends."""
    done, queues = set(), {}
    rows = [[] for _ in range(devices)]
    left = [[f"{c}{kind}{m}" for c in range(n_chunks) if place[c] == d
             for kind in "FB" for m in range(microbatches)]
            for d in range(devices)]
    to_send = [[] for _ in range(devices)]

    def needs(cell):
        chunk, kind, m = re.fullmatch(r"(\d+)([FB])(\d+)", cell).groups()
        before = int(chunk) + (-1 if kind == "F" else 1)
        out = [f"{chunk}F{m}"] if kind == "B" else []
        if 0 <= before < n_chunks:
            out.append(f"{before}{kind}{m}")
        return out

    def can_run(d, cell):
        return all((d, need) in done for need in needs(cell))

    while any(left) or any(to_send) or any(queues.values()):
        d = draw.randrange(devices)
        choices = [("pass", cell) for cell in left[d] if can_run(d, cell)]
        choices += [("send", item) for item in to_send[d]]
        choices += [("recv", pair) for pair, queue in queues.items()
                    if pair[1] == d and queue]
        if not choices:
            continue
        kind, what = draw.choice(choices)
        if kind == "pass":
            left[d].remove(what)
            rows[d].append(what)
            done.add((d, what))
            chunk, letter, m = re.fullmatch(r"(\d+)([FB])(\d+)", what).groups()
            to = int(chunk) + (1 if letter == "F" else -1)
            if 0 <= to < n_chunks and place[to] != d:
                to_send[d].append((what, int(chunk), to, letter, m))
        elif kind == "send":
            to_send[d].remove(what)
            name, chunk, to, letter, m = what
            rows[d].append(f"{chunk}SEND_{letter}{m}")
            queues.setdefault((d, place[to]), []).append(
                (name, f"{to}RECV_{letter}{m}"))
        else:
            name, cell = queues[what].pop(0)
            rows[d].append(cell)
            done.add((d, name))
    return rows


def perturb(draw, rows):
    """Moves, drops or duplicates communication cells."""
    for _ in range(draw.choice([0, 0, 1, 2, 4])):
        row = draw.choice(rows)
        at = [i for i, cell in enumerate(row) if "_" in cell]
        if not at:
            continue
        i = draw.choice(at)
        kind = draw.random()
        if kind < 0.8:
            cell = row.pop(i)
            row.insert(max(0, min(len(row), i + draw.randint(-3, 3))), cell)
        elif kind < 0.9:
            row.pop(i)
        else:
            row.insert(draw.randint(0, len(row)), row[i])


@test
def brute_force_agrees_on_small_schedules():
    draw = random.Random(11)
    verdicts = {"valid": 0, "deadlock": 0, "not valid": 0}
    for i in range(SEEDS):
        devices = draw.choice([2, 2, 3])
        placement, chunks = draw.choice([("ud", 1), ("loop", 2), ("wave", 2)])
        microbatches = draw.choice([1, 2, 3]) if devices == 2 else 2
        n_chunks = devices * chunks
        place = [device_of(c, devices, placement) for c in range(n_chunks)]
        rows = random_rows(draw, place, devices, n_chunks, microbatches)
        perturb(draw, rows)
        buffers = draw.choice([0, 0, 1, 2])
        write("p.yaml", pipeline(devices, placement, chunks, microbatches))
        write("s.csv", "".join(",".join(row) + "\n" for row in rows))
        done = run("check", "p.yaml", "s.csv", "--buffers", str(buffers))
        about = f"{i}: {placement} {buffers} {rows}: {done.stdout}{done.stderr}"
        if not has_valid_ends(rows, place, n_chunks, microbatches):
            verdicts["not valid"] += 1
            check(done.returncode == 1 and "not valid" in done.stdout and
                  "deadlock" not in done.stdout, about)
        elif finishes(rows, place, n_chunks, buffers):
            verdicts["valid"] += 1
            check(done.returncode == 0 and done.stdout.startswith("valid"),
                  about)
        else:
            verdicts["deadlock"] += 1
            fewest = next((n for n in itertools.count(buffers + 1)
                           if n > 12 or finishes(rows, place, n_chunks, n)))
            check(done.returncode == 1 and re.search(
                f"deadlock .*with {fewest} buffered messages? per pair they run"
                if fewest <= 12 else "no number of buffers suffices",
                done.stdout), f"{fewest} {about}")
    check(all(count >= SEEDS / 20 for count in verdicts.values()), verdicts)


@test
def publicly_reported_schedules_are_verified():
    write("p.yaml", pipeline(2, "loop", 2, 4))
    write("s.csv", CONTRADICTING)
    case("contradicting", ["check", "p.yaml", "s.csv"], 1,
         out=r"\Anot valid: 1 violation\n  device 1, cell 17: 1SEND_F2 is message "
             r"4 to device 0, which receives 0RECV_B0 there \(cell 21\)")
    found = json_case("json", ["check", "p.yaml", "s.csv", "--json"], 1)
    check(found["valid"] is False and len(found["violations"]) == 1, found)
    write("p.yaml", pipeline(2, "ud", 1, 2))
    write("s.csv", "0F0,0SEND_F0,0SEND_F0,0F1,0RECV_B0,0B0,0B1\n"
                   "1F0,1B0,1F1,1B1\n")
    case("doubled", ["check", "p.yaml", "s.csv"], 1,
         out=r"cell 3: 0SEND_F0 again; it is cell 2 already\n"
             r"  device 1: 1RECV_F0 is missing\n")
    write("s.csv", "0F0,0F1,0SEND_F0,0SEND_F1,0RECV_B0,0B0,0RECV_B1,0B1\n"
                   "1RECV_F0,1F0,1B0,1SEND_B0,1RECV_F1,1F1,1B1,1SEND_B1\n")
    case("deadlock", ["check", "p.yaml", "s.csv"], 1,
         out=r"not valid: 1 violation\n  deadlock where sends wait for their "
             r"receives: device [01] in cell 4 \(.*\) waits for device .*; with "
             r"1 buffered message per pair they run\n\Z")
    case("with a buffer", ["check", "p.yaml", "s.csv", "--buffers", "1"],
         out=r"\Avalid: ")
    case("elsewhere", ["simulate", "p.yaml", "--schedule", "s.csv"], out=ANY,
         err="s.csv: 8 communication cells are not used")
    peers = ROOT / "tests/data/pytorch"
    write("p.yaml", pipeline(2, "loop", 2, 8, "split"))
    case("PyTorch's own", ["check", "p.yaml",
                           str(peers / "zb1p_2rank_2stagep_comms.csv")],
         out=r"\Avalid: ")


@test
def every_cell_has_its_place():
    write("p.yaml", pipeline(2, "ud", 1, 1))
    rows = ["0UNSHARD,0F0,0SEND_F0,0WAIT_SEND_F0,0RECV_B0,0B0,0RESHARD,"
            "0REDUCE_GRAD,0WAIT_REDUCE_GRAD\n",
            "1RECV_F0,1F0,1B0,1SEND_B0,1WAIT_SEND_B0\n"]

    def judged(old, new, says, name=""):
        check(old in rows[0] + rows[1], old)
        write("s.csv", "".join(row.replace(old, new) for row in rows))
        case(name or f"{old} -> {new}", ["check", "p.yaml", "s.csv"],
             0 if says == "valid" else 1, out=says)

    judged("0F0", "0F0", "valid", "as it is")
    judged("0UNSHARD,0F0", "0F0,0UNSHARD", "cell 1: 0F0 runs while its chunk")
    judged("0UNSHARD", "0UNSHARD,0UNSHARD", "cell 2: 0UNSHARD finds the chunk un")
    judged("0RESHARD", "0RESHARD,0RESHARD", "cell 8: 0RESHARD finds the chunk sh")
    judged("0B0,0RESHARD", "0RESHARD,0B0", "cell 7: 0B0 runs while")
    judged("0B0,0RESHARD,0REDUCE_GRAD", "0REDUCE_GRAD,0B0,0RESHARD",
           "cell 6: 0REDUCE_GRAD comes before the chunk's last backward")
    judged("0REDUCE_GRAD,", "0REDUCE_GRAD,0REDUCE_GRAD,", "is there twice")
    judged("0REDUCE_GRAD,0W", "0W", "0WAIT_REDUCE_GRAD comes before REDUCE_GRAD")
    judged("0SEND_F0,0WAIT_SEND_F0", "0WAIT_SEND_F0,0SEND_F0",
           "cell 3: 0WAIT_SEND_F0 comes before its send")
    judged("1WAIT_SEND_B0", "1WAIT_SEND_F0", "1WAIT_SEND_F0 has no send")
    judged("1WAIT_SEND_B0", "0UNSHARD", "not in the row of its chunk's device")
    judged("0F0,0SEND_F0", "0SEND_F0,0F0", "0SEND_F0 comes before the pass that")
    judged("1RECV_F0,1F0", "1F0,1RECV_F0", "1RECV_F0 comes after the pass that")
    judged("1SEND_B0", "1SEND_B0,1SEND_F0", "1SEND_F0 belongs to no message")
    judged("1RECV_F0,1F0", "0SEND_F0,1RECV_F0,1F0",
           "device 1, cell 1: 0SEND_F0 is not in the row of its chunk's device")
    judged(",0SEND_F0,", ",", "device 0: 0SEND_F0 is missing")
    write("w.yaml", pipeline(2, "wave", 2, 1))
    write("s.csv", "0F0,0SEND_F0,3RECV_F0,3F0,3B0,3SEND_B0,0RECV_B0,0B0\n"
                   "1RECV_F0,1F0,1SEND_F0,2F0,2SEND_F0,2RECV_B0,2B0,1B0,"
                   "1SEND_B0\n")
    case("one device", ["check", "w.yaml", "s.csv"], 1,
         out="1SEND_F0 has both of its chunks on one device")


@test
def exports_with_communication_are_valid():
    draw = random.Random(5)
    for i in range(12):
        devices = draw.choice([2, 4])
        placement, chunks = draw.choice([("ud", 1), ("loop", 2), ("wave", 2)])
        text = pipeline(devices, placement, chunks, 2 * devices,
                        draw.choice(["split", "joint"]))
        write("p.yaml", text + "datacenters: {count: 2, latency: 30, "
                               f"transfer: {draw.choice([0, 4])}}}\n")
        case(f"export {i}", ["export", "p.yaml", "--schedule", "auto", "--form",
                             "compute_comms", "-o", f"s{i}.csv"],
             out="written")
        case(f"check {i}", ["check", "p.yaml", f"s{i}.csv"], out=r"\Avalid: ")


@test
def exported_pairs_are_valid():
    """The messages of an overlapped pair are received before it and sent after
    it, as PyTorch runs it, also if the passes do not overlap here."""
    for i, overlap in enumerate(["", "overlap: {F+B: 0.8}\n"] * 3):
        devices, n = [(2, 4), (2, 7), (4, 8)][i // 2]
        text = pipeline(devices, "wave", 2, n, "split")
        write("p.yaml", text + overlap + "datacenters: {count: 2, latency: "
                                         f"{[0, 30, 5][i // 2]}}}\n")
        case(f"pairs {i}", ["export", "p.yaml", "--schedule", "dualpipev",
                            "--form", "compute_comms", "-o", "s.csv"],
             out="written")
        rows = read("s.csv")
        case(f"check pairs {i}", ["check", "p.yaml", "s.csv"],
             out=r"\Avalid: ")
        check(rows.count(")OVERLAP_F_B") > devices, f"pairs {i} are cells")


finish()
