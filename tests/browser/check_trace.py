#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks the requirements of viewers on Chrome trace files.

    check_trace.py FILE...

Slices of a thread nest; every flow has one beginning and one end with the same
category, name and id, in order, each inside a slice of its thread; counters are
numbers and in order; threads and processes have names. Times are compared as whole
nanoseconds. Shares no code with the library.
"""
import json
import sys
from collections import defaultdict
from decimal import Decimal


class Bad(Exception):
    pass


def need(ok, message, *args):
    if not ok:
        raise Bad(message % args if args else message)


def ns(value):
    """Converts microseconds, read as a decimal, to whole nanoseconds."""
    number = Decimal(value) * 1000
    need(number == number.to_integral_value(), "%s us is finer than 1 ns", value)
    return int(number)


def check_nesting(thread, slices):
    """Checks that slices are disjoint or nested, never partly overlapping."""
    open_ends = []
    for start, end, name in sorted(slices, key=lambda s: (s[0], -s[1])):
        while open_ends and open_ends[-1] <= start:
            open_ends.pop()
        need(not open_ends or end <= open_ends[-1],
             "thread %s: %s ends at %s, after what it is in (%s)", thread, name,
             end, open_ends[-1] if open_ends else None)
        open_ends.append(end)


def inside(slices, t):
    """Tests whether a viewer finds a slice at t; an empty slice counts at its
    time."""
    lo, hi = 0, len(slices)
    while lo < hi:
        mid = (lo + hi) // 2
        if slices[mid][0] <= t:
            lo = mid + 1
        else:
            hi = mid
    for start, end, _ in reversed(slices[max(0, lo - 8):lo]):
        if start <= t < end or start == t == end:
            return True
    return False


def check_flows(flows, threads):
    steps = defaultdict(list)
    for e in flows:
        steps[(e["cat"], e["name"], e["id"])].append(e)
    for key, events in steps.items():
        kinds = [e["ph"] for e in events]
        need(sorted(kinds) in (["f", "s"], ["f", "s", "t"]),
             "flow %s has %s", key, kinds)
        times = {e["ph"]: ns(e["ts"]) for e in events}
        order = [times[p] for p in "stf" if p in times]
        need(order == sorted(order), "flow %s runs backwards: %s", key, times)
        for e in events:
            need(e["ph"] != "f" or e.get("bp") == "e",
                 "flow %s: its end does not bind to the enclosing slice", key)
            need(inside(threads[(e["pid"], e["tid"])], ns(e["ts"])),
                 "flow %s: '%s' at %s us is in no slice", key, e["ph"], e["ts"])


def check(path):
    with open(path, encoding="utf-8") as f:
        doc = json.load(f, parse_float=Decimal, parse_int=Decimal)
    need(doc.get("displayTimeUnit") in ("ms", "ns"), "displayTimeUnit")
    events = doc["traceEvents"]
    threads, counters, flows = defaultdict(list), defaultdict(list), []
    names = {"process_name": set(), "thread_name": set()}
    used = set()
    for e in events:
        need(e["ph"] in "XMCstf", "unknown phase %s", e["ph"])
        where = (e["pid"], e.get("tid"))
        if e["ph"] == "M":
            if e["name"] in names:
                need(isinstance(e["args"]["name"], str) and e["args"]["name"],
                     "%s without a name", e["name"])
                names[e["name"]].add(where if e["name"] == "thread_name"
                                     else e["pid"])
            else:
                need(e["args"]["sort_index"] >= 0, "sort_index")
            continue
        need(ns(e["ts"]) >= 0, "a time before 0")
        if e["ph"] == "X":
            need(ns(e["dur"]) >= 0, "%s has a negative duration", e["name"])
            threads[where].append((ns(e["ts"]), ns(e["ts"]) + ns(e["dur"]),
                                   e["name"]))
            used.add(where)
        elif e["ph"] == "C":
            need(e["args"], "counter %s without values", e["name"])
            for key, value in e["args"].items():
                need(isinstance(value, Decimal), "counter %s: %s is %r",
                     e["name"], key, value)
            counters[(e["pid"], e["name"])].append(ns(e["ts"]))
        else:
            flows.append(e)
    for where in used:
        need(where in names["thread_name"], "thread %s has no name", where)
        need(where[0] in names["process_name"], "process %s has no name",
             where[0])
    for thread, slices in threads.items():
        check_nesting(thread, slices)
        slices.sort(key=lambda s: (s[0], -s[1]))
    check_flows(flows, threads)
    for key, times in counters.items():
        need(times == sorted(times), "counter %s goes back in time", key)
    return (sum(map(len, threads.values())), len(flows),
            sum(map(len, counters.values())))


def main():
    if len(sys.argv) < 2:
        sys.exit("usage: check_trace.py FILE...")
    failed = 0
    for path in sys.argv[1:]:
        try:
            print("%s: %d slices, %d flow events, %d counter events: good"
                  % ((path,) + check(path)))
        except (Bad, KeyError, ValueError) as why:
            print(f"{path}: {why!r}", file=sys.stderr)
            failed = 1
    sys.exit(failed)


if __name__ == "__main__":
    main()
