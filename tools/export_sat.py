#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes "there is a schedule no longer than T" as a CNF (DIMACS).

    tools/export_sat.py PIPELINE T_NS > p.cnf
    cadical p.cnf            # or any other SAT solver

If a standard SAT solver finds it unsatisfiable for one time unit less than a
makespan, the makespan is minimal, independent of longhaul's solver. Many solvers
write a proof (DRAT) that others check.

Start times are order-encoded: a variable for every pass, message and time t means
"starts at t or before". A second kind of variable orders two operations on one
machine; memory is counted by those. The chains over microbatches lose no
generality, since microbatches are interchangeable. Data-parallel communication is
rejected. The encoding grows with T: for small pipelines. The first comment line
contains T and the unit.
"""
import itertools
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "bench"))
import peer_cpsat  # noqa: E402  (only reads files)


class Cnf:
    def __init__(self, p, limit_ns):
        self.p, self.unit = p, p["unit"]
        self.top = limit_ns // self.unit
        self.ops = {}     # key -> (machine, duration)
        self.arcs = []    # (a, b, lag after a's start)
        self.clauses, self.n_vars, self.before = [], 0, {}
        self.streams = {}  # machine -> list of lists of keys
        self.kinds = "FD" if p["joint"] else "FDW"
        if any(c["gather"] or c["scatter"] for c in p["chunks"]):
            sys.exit("export_sat: data-parallel communication is not encoded")
        self.operations()
        self.windows()
        if self.possible:
            self.encode()
        else:
            self.clauses.append([])

    def fresh(self):
        self.n_vars += 1
        return self.n_vars

    def stream(self, machine, keys, duration):
        for key in keys:
            self.ops[key] = (machine, duration)
        self.streams.setdefault(machine, []).append(keys)
        self.arcs += [(a, b, duration) for a, b in zip(keys, keys[1:])]

    def operations(self):
        p, n = self.p, self.p["n"]
        for i, c in enumerate(p["chunks"]):
            for k in self.kinds:
                self.stream(("device", c["device"]),
                            [(i, k, j) for j in range(n)],
                            c["time"][k] // self.unit)
        for i in range(len(p["chunks"])):
            for j in range(n):
                self.follow((i, "F", j), (i, "D", j))
                if "W" in self.kinds:
                    self.follow((i, "D", j), (i, "W", j))
            if i > 0:
                self.message(i - 1, i, "F")
                self.message(i, i - 1, "D")

    def follow(self, a, b, lag=0):
        self.arcs.append((a, b, self.ops[a][1] + lag))

    def message(self, a, b, kind):
        p, n = self.p, self.p["n"]
        link = p["links"].get((p["chunks"][a]["device"],
                               p["chunks"][b]["device"]))
        if link:
            self.stream(("link", link[0]),
                        [(a, "m" + kind, j) for j in range(n)],
                        link[2] // self.unit)
        for j in range(n):
            if link:
                self.follow((a, kind, j), (a, "m" + kind, j))
                self.follow((a, "m" + kind, j), (b, kind, j),
                            link[1] // self.unit)
            else:
                self.follow((a, kind, j), (b, kind, j))

    def windows(self):
        """Computes the longest paths from the start and to the end."""
        self.first = {o: 0 for o in self.ops}
        self.last = {o: self.top - t for o, (_, t) in self.ops.items()}
        changed = True
        while changed:
            changed = False
            for a, b, lag in self.arcs:
                if self.first[a] + lag > self.first[b]:
                    self.first[b] = self.first[a] + lag
                    changed = True
                if self.last[b] - lag < self.last[a]:
                    self.last[a] = self.last[b] - lag
                    changed = True
        self.possible = all(self.first[o] <= self.last[o] for o in self.ops)

    def by(self, o, t):
        """Returns the literal "o starts at t or before"; True or False if
        known."""
        if t >= self.last[o]:
            return True
        return False if t < self.first[o] else \
            self.base[o] + t - self.first[o]

    def add(self, *literals):
        """(literal or constant, sign)"""
        clause = []
        for x, positive in literals:
            if x is True or x is False:
                if x == positive:
                    return
            else:
                clause.append(x if positive else -x)
        self.clauses.append(clause)

    def encode(self):
        self.base = {}
        for o in self.ops:
            self.base[o] = self.n_vars + 1
            self.n_vars += self.last[o] - self.first[o]
            for t in range(self.first[o], self.last[o]):
                self.add((self.by(o, t), False), (self.by(o, t + 1), True))
        for a, b, lag in self.arcs:
            self.precede(a, b, lag)
        for machine, streams in self.streams.items():
            limit = self.p["limit"][machine[1]] \
                if machine[0] == "device" else None
            for x, y in itertools.combinations(streams, 2):
                self.order(x, y)
            if limit is not None:
                self.memory(machine[1], streams, limit)

    def precede(self, a, b, lag, unless=None):
        """Adds: b starts at least lag after a, or `unless` holds."""
        more = [] if unless is None else [(unless, True)]
        for t in range(self.first[b], self.last[b] + 1):
            self.add((self.by(b, t), False), (self.by(a, t - lag), True),
                     *more)

    def order(self, x, y):
        for a in x:
            for b in y:
                v = self.fresh()
                self.before[a, b], self.before[b, a] = v, -v
                self.precede(a, b, self.ops[a][1], -v)
                self.precede(b, a, self.ops[b][1], v)
        # Operations of zero duration can have any order at equal times: keep
        # one.
        for a, b, _ in self.arcs:
            if (a in x and b in y) or (a in y and b in x):
                self.clauses.append([self.before[a, b]])
        for s, o in ((x, y), (y, x)):
            for b in o:
                for a, later in zip(s, s[1:]):
                    self.clauses.append([-self.before[later, b],
                                         self.before[a, b]])

    def memory(self, device, streams, limit):
        """For every allocating pass, excludes the counts of the other streams
        at which it does not fit."""
        chunks = self.p["chunks"]
        room = limit - sum(c["static"] for c in chunks
                           if c["device"] == device)
        change = [chunks[s[0][0]]["memory"][s[0][1]] for s in streams]
        for i, mine in enumerate(streams):
            if change[i] <= 0:
                continue
            others = [k for k in range(len(streams)) if k != i and change[k]]
            for j, o in enumerate(mine):
                for counts in itertools.product(
                        *(range(len(streams[k]) + 1) for k in others)):
                    held = (j + 1) * change[i] + sum(
                        c * change[k] for c, k in zip(counts, others))
                    if held > room:
                        self.forbid(o, streams, others, counts, change)
        if room < 0:
            self.clauses.append([])

    def forbid(self, o, streams, others, counts, change):
        """Excludes at least so many allocations with at most so many releases."""
        clause = []
        for k, count in zip(others, counts):
            s = streams[k]
            if change[k] > 0 and count > 0:
                clause.append(-self.before[s[count - 1], o])
            if change[k] < 0 and count < len(s):
                clause.append(self.before[s[count], o])
        self.clauses.append(clause)

    def dimacs(self):
        yield f"c schedules of at most {self.top} times {self.unit} ns"
        yield f"p cnf {self.n_vars} {len(self.clauses)}"
        for clause in self.clauses:
            yield " ".join(map(str, [*clause, 0]))


def main():
    if len(sys.argv) != 3 or not sys.argv[2].isdigit():
        sys.exit("usage: export_sat.py PIPELINE T_NS > p.cnf")
    for line in Cnf(peer_cpsat.load(sys.argv[1]), int(sys.argv[2])).dimacs():
        print(line)


if __name__ == "__main__":
    main()
