#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares the closed forms of one message and of a stream with the mean of
packet simulations over a grid: the table of docs/theory/packets.md.

    packet_cells.py LONGHAUL [--ends]

Prints the cells beyond 10 %. --ends: cells at latencies of 10 us and 80 ms, the
ends of the range.
"""
import argparse
import json
import math
import subprocess

PACKET = 4096
WINDOW = 512 * PACKET  # bytes of a sprayed queue pair


def simulate(program, batches, seeds, **options):
    """Simulates each combination with batches x seeds seeds; returns the rows
    with the mean over all."""
    words = [word for name, value in options.items()
             for word in ("--" + name.replace("_", "-"), str(value))]
    total = []
    for batch in range(batches):
        done = subprocess.run(
            [program, "packets", "--json", "--seeds", str(seeds), "--seed",
             str(1000 * batch), "--gbps", "400", *words],
            capture_output=True, text=True, check=True)
        rows = json.loads(done.stdout)["rows"]
        total = total or [{**row, "mean_ns": 0} for row in rows]
        for row, more in zip(total, rows, strict=True):
            row["mean_ns"] += more["mean_ns"] / batches
    return total


def cells(program):
    """Yields the rows of the grid."""
    pairs = {"queue_pairs": "1,8,64"}
    for latency, few in (("1ms", "1e-5,1e-4,1e-3"), ("35ms", "1e-6,1e-5,1e-4")):
        near = latency == "1ms"
        for message, seeds, batches in (("64KiB", 256, 16), ("4MB", 256, 4),
                                        ("16MB", 100, 3)):
            yield from simulate(program, batches, seeds, latency=latency,
                                loss="1e-5,1e-4,1e-3,1e-2", message=message,
                                **pairs)
        for message, seeds, batches in (("64KiB", 256, 8), ("4MB", 256, 4)):
            yield from simulate(program, batches, seeds, latency=latency, loss=few,
                                message=message, recovery="go-back-n", **pairs)
        yield from simulate(program, 3, 32, latency=latency,
                            loss="1e-4" if near else "1e-6,1e-5",
                            message="134MB", recovery="go-back-n", **pairs)
        for message, seeds, batches in (("64KiB", 256, 4), ("4MB", 256, 2),
                                        ("134MB", 24, 1)):
            yield from simulate(program, batches, seeds, latency=latency, loss="0,1e-4",
                                message=message, paths=4,
                                balancing="ecmp,spray", **pairs)


def end_cells(program):
    """Yields the rows at the ends of the range of latencies."""
    for recovery, losses in (("selective-repeat", "1e-4,1e-3,1e-2"),
                             ("go-back-n", "1e-5,1e-4")):
        for message, seeds, batches in (("64KiB", 256, 16), ("4MB", 256, 4),
                                        ("64MB", 128, 4)):
            yield from simulate(program, batches, seeds, latency="10us,80ms",
                                loss=losses, message=message, recovery=recovery,
                                queue_pairs="1,8,64")


def stream_ns(row):
    """Returns the time of a message by the mean rate of an endless stream."""
    trip, pairs = 2 * row["latency_ns"], row["queue_pairs"]
    rate = row["gbps"] / 8
    if row["load_balancing"] == "spray":
        rate = min(rate, pairs * WINDOW / trip)
    each = PACKET / rate * pairs
    packets = math.ceil(row["message_bytes"] / pairs / PACKET)
    lost = packets * row["loss"] / (1 - row["loss"])
    again = each + (trip if row["recovery"] == "go-back-n" else 0)
    return row["latency_ns"] + packets * each + lost * again


def get_closed_form_ns(row):
    return row["closed_form_ns"]


def print_errors(name, rows, formula):
    """Prints the number of cells within 10 % and the largest errors."""
    errors = [formula(row) / row["mean_ns"] - 1 for row in rows]
    print(f"{name}: {sum(abs(e) <= 0.1 for e in errors)} of {len(errors)} "
          f"within 10 %, {min(errors):+.1%} to {max(errors):+.1%}")


def print_outliers(rows):
    """Prints the cells of one message beyond 10 %."""
    for row in rows:
        error = row["closed_form_ns"] / row["mean_ns"] - 1
        if abs(error) > 0.1:
            print(f"{row['latency_ns'] / 1e3:g} us, {row['message_bytes']} bytes, "
                  f"{row['queue_pairs']} queue pairs, {row['paths']} paths, "
                  f"{row['load_balancing']}, {row['recovery']}, loss {row['loss']:g}: "
                  f"{error:+.1%}")


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("--ends", action="store_true")
    args = parser.parse_args()
    rows = list((end_cells if args.ends else cells)(args.program))
    if not args.ends:
        plain = [row for row in rows
                 if row["paths"] == 1 or row["load_balancing"] == "spray"]
        print_errors("stream, one path or spraying", plain, stream_ns)
        print_errors("one message, one path or spraying", plain, get_closed_form_ns)
    print_errors("one message, all", rows, get_closed_form_ns)
    print_outliers(rows)


main()
