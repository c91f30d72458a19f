#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Finds the fastest schedule of a pipeline by OR-tools CP-SAT: a peer for
`longhaul schedule --method optimal`, and an independent check of it.

    pip install ortools              # and pyyaml, for files that are not JSON
    bench/peer_cpsat.py PIPELINE [--time-limit S] [--threads N] [-o S.csv]

Prints one JSON object: best_ns, bound_ns, status, seconds and cpu_seconds (of
the solver), build_seconds (of the model), progress (processor seconds and
makespan of every better schedule). -o writes the schedule, and S.links.csv if
messages of several kinds share a link; `longhaul check PIPELINE S.csv` verifies
both.

The model is the complete performance model of docs/theory/performance-model.md
with exact integer times. Passes are non-overlapping intervals on their device.
Passes of a chunk and kind start in the order of microbatches, without loss of
generality, since microbatches are interchangeable. Messages are intervals on
their link in any order. Memory is a precedence if one chunk's F allocates and one
other pass frees, else a cumulative resource or a reservoir. Split pipelines use
F, D and W, never B.
"""
import argparse
import csv
import json
import math
import pathlib
import sys
import threading
import time

UNITS = {"s": 10**9, "ms": 10**6, "us": 10**3, "ns": 1}


def nanoseconds(value, unit):
    return math.floor(value * UNITS[unit] + 0.5)


def read_file(path):
    text = pathlib.Path(path).read_text()
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        import yaml
        return yaml.safe_load(text)


def chunks_of(p, unit):
    if "chunks" in p:
        found = p["chunks"]
    else:
        u, n = p["uniform"], p["devices"]
        kind = u.get("placement", "ud")
        each = u.get("chunks_per_device", 1 if kind == "ud" else 2)
        place = {"ud": lambda c: c, "loop": lambda c: c % n,
                 "wave": lambda c: c if c < n else 2 * n - 1 - c}[kind]
        found = [{"device": place(c), "memory": u.get("memory", {}),
                  **{k: u[k] / each for k in "FDW"}}
                 for c in range(n * each)]
    made = []
    for c in found:
        memory = c.get("memory", {})
        made.append({"device": c["device"],
                     "time": {k: nanoseconds(c[k], unit) for k in "FDW"},
                     "memory": {k: memory.get(k, 0) for k in "FDW"},
                     "static": memory.get("static", 0),
                     "gather": 0, "scatter": 0, "dp_latency": 0})
    for d in p.get("data_parallel", []):
        c = made[d["chunk"]]
        c["gather"] = nanoseconds(d.get("all_gather", 0), unit)
        c["scatter"] = nanoseconds(d.get("reduce_scatter", 0), unit)
        c["dp_latency"] = nanoseconds(d.get("latency", 0), unit)
    return made


def links_of(p, unit):
    """Maps (from, to) to name, latency, transfer."""
    links = {}
    if "datacenters" in p:
        d, n = p["datacenters"], p["devices"]
        for a in range(n):
            for b in range(n):
                x, y = a * d["count"] // n, b * d["count"] // n
                if x != y:
                    links[a, b] = (f"dc{x}-dc{y}",
                                   nanoseconds(d.get("latency", 0), unit),
                                   nanoseconds(d.get("transfer", 0), unit))
    for link in p.get("links", []):
        a, b = link["from"], link["to"]
        links[a, b] = (link.get("name", f"{a}-{b}"),
                       nanoseconds(link.get("latency", 0), unit),
                       nanoseconds(link.get("transfer", 0), unit))
    return links


def load(path):
    p = read_file(path)
    if p.get("longhaul") != "pipeline/1":
        sys.exit(f"peer_cpsat: {path}: not a pipeline/1 file")
    unit = p.get("time_unit", "s")
    limit = p.get("memory_limit")
    n = p["devices"]
    out = {"n": p["microbatches"], "devices": n,
           "joint": p.get("backward", "split") == "joint",
           "chunks": chunks_of(p, unit), "links": links_of(p, unit),
           "limit": limit if isinstance(limit, list) else [limit] * n}
    if out["joint"]:
        for c in out["chunks"]:
            c["time"]["D"] += c["time"].pop("W")
            c["memory"]["D"] += c["memory"].pop("W")
    times = [t for c in out["chunks"]
             for t in [*c["time"].values(), c["gather"], c["scatter"],
                       c["dp_latency"]]]
    times += [t for link in out["links"].values() for t in link[1:]]
    out["unit"] = math.gcd(*times) or 1
    return out


class Model:
    """Times are in units of self.unit nanoseconds."""

    def __init__(self, cp_model, p, horizon_ns=None, fifo=False):
        self.p, self.unit = p, p["unit"]
        self.m = cp_model.CpModel()
        self.kinds = "FD" if p["joint"] else "FDW"
        self.horizon = self.serial()
        if horizon_ns is not None:
            self.horizon = min(self.horizon, horizon_ns // self.unit)
        self.start, self.ends = {}, []
        self.on_device = [[] for _ in range(p["devices"])]
        self.on_link = {}  # name -> [(chunk, kind, starts, transfer, entries)]
        self.collectives = [[] for _ in range(p["devices"])]
        for c in range(len(p["chunks"])):
            for kind in self.kinds:
                self.add_stream(c, kind)
        self.depend(fifo)
        self.add_collectives()
        for intervals in self.on_device:
            self.m.add_no_overlap(intervals)
        for d in range(p["devices"]):
            if p["limit"][d] is not None:
                self.limit_memory(d, p["limit"][d])
        self.makespan = self.m.new_int_var(0, self.horizon, "makespan")
        for end in self.ends:
            self.m.add(self.makespan >= end)
        self.m.minimize(self.makespan)

    def serial(self):
        """Upper bound: all operations in sequence."""
        p, total = self.p, 0
        for i, c in enumerate(p["chunks"]):
            total += sum(c["time"].values()) * p["n"]
            total += c["gather"] + c["scatter"] + 2 * c["dp_latency"]
            for j in (i - 1, i + 1):
                link = self.link(i, j)
                total += p["n"] * sum(link[1:]) if link else 0
        return total // self.unit

    def link(self, a, b):
        chunks = self.p["chunks"]
        if not 0 <= b < len(chunks):
            return None
        return self.p["links"].get((chunks[a]["device"], chunks[b]["device"]))

    def time(self, c, kind):
        return self.p["chunks"][c]["time"][kind] // self.unit

    def end(self, c, kind, j):
        return self.start[c, kind, j] + self.time(c, kind)

    def chain(self, starts, duration):
        for a, b in zip(starts, starts[1:]):
            self.m.add(b >= a + duration)

    def add_stream(self, c, kind):
        device, t = self.p["chunks"][c]["device"], self.time(c, kind)
        starts = []
        for j in range(self.p["n"]):
            s = self.m.new_int_var(0, self.horizon - t, f"{c}{kind}{j}")
            self.start[c, kind, j] = s
            starts.append(s)
            self.on_device[device].append(
                self.m.new_fixed_size_interval_var(s, t, f"i{c}{kind}{j}"))
        self.chain(starts, t)
        self.ends.append(starts[-1] + t)

    def depend(self, fifo):
        last = len(self.p["chunks"]) - 1
        for c in range(last + 1):
            if c > 0:
                self.send(c - 1, c, "F")
            if c < last:
                self.send(c + 1, c, "D")
            for j in range(self.p["n"]):
                self.m.add(self.start[c, "D", j] >= self.end(c, "F", j))
                if "W" in self.kinds:
                    self.m.add(self.start[c, "W", j] >= self.end(c, "D", j))
        for streams in self.on_link.values():
            self.share(streams, fifo)

    def send(self, a, b, kind):
        """Tensors from passes of this kind of chunk a for chunk b."""
        link, n = self.link(a, b), self.p["n"]
        if not link:
            for j in range(n):
                self.m.add(self.start[b, kind, j] >= self.end(a, kind, j))
            return
        name, latency, transfer = link[0], *(t // self.unit for t in link[1:])
        starts = [self.m.new_int_var(0, self.horizon, f"m{a}{kind}{j}")
                  for j in range(n)]
        for j, s in enumerate(starts):
            self.m.add(s >= self.end(a, kind, j))
            self.m.add(self.start[b, kind, j] >= s + transfer + latency)
        self.chain(starts, transfer)
        self.on_link.setdefault(name, []).append((a, kind, starts, transfer))

    def share(self, streams, fifo):
        if len(streams) == 1:
            return
        self.m.add_no_overlap(
            [self.m.new_fixed_size_interval_var(s, transfer, "m")
             for _, _, starts, transfer in streams for s in starts])
        if not fifo:
            return
        chunks = self.p["chunks"]
        if len({chunks[c]["device"] for c, *_ in streams}) > 1:
            sys.exit("peer_cpsat: --fifo needs links with one sending device: "
                     "with several, idling a device changes the order")
        for i, (c, kind, starts, t) in enumerate(streams):
            for c2, kind2, starts2, t2 in streams[i + 1:]:
                for j, s in enumerate(starts):
                    for j2, s2 in enumerate(starts2):
                        first = self.m.new_bool_var("")
                        a, b = self.end(c, kind, j), self.end(c2, kind2, j2)
                        self.m.add(a <= b).only_enforce_if(first)
                        self.m.add(s + t <= s2).only_enforce_if(first)
                        self.m.add(b <= a).only_enforce_if(~first)
                        self.m.add(s2 + t2 <= s).only_enforce_if(~first)

    def add_collectives(self):
        """Gathers queue from 0 by first need, scatters by last pass.

        Gathers run without a gap, before every scatter.
        """
        p, n = self.p, self.p["n"]
        for d in range(p["devices"]):
            mine = [(i, c) for i, c in enumerate(p["chunks"])
                    if c["device"] == d]
            gathers = [(i, c) for i, c in mine if c["gather"]]
            busy = sum(c["gather"] for _, c in gathers) // self.unit
            self.line(gathers, "gather", 0,
                      lambda i: self.start[i, "F", 0])
            self.line([(i, c) for i, c in mine if c["scatter"]], "scatter",
                      busy, lambda i: self.end(i, self.kinds[-1], n - 1))

    def line(self, members, what, begin, key):
        jobs = []
        for i, c in members:
            t, latency = c[what] // self.unit, c["dp_latency"] // self.unit
            s = self.m.new_int_var(begin, self.horizon, f"{what}{i}")
            jobs.append((i, s, t))
            if what == "gather":
                self.m.add(key(i) >= s + t + latency)
            else:
                self.m.add(s >= key(i))
                self.ends.append(s + t + latency)
        for k, (a, s, t) in enumerate(jobs):
            for b, s2, t2 in jobs[k + 1:]:
                first = self.m.new_bool_var("")
                self.m.add(key(a) <= key(b)).only_enforce_if(first)
                self.m.add(s + t <= s2).only_enforce_if(first)
                self.m.add(key(b) <= key(a)).only_enforce_if(~first)
                self.m.add(s2 + t2 <= s).only_enforce_if(~first)

    def limit_memory(self, device, limit):
        mine = [(i, c) for i, c in enumerate(self.p["chunks"])
                if c["device"] == device]
        room, n = limit - sum(c["static"] for _, c in mine), self.p["n"]
        if room < 0:
            self.m.add_bool_or([])  # infeasible
            return
        if len(mine) == 1:
            i, c = mine[0]
            takes = c["memory"]["F"]
            gives = [k for k in self.kinds[1:] if c["memory"][k]]
            if takes > 0 and len(gives) == 1 and \
                    c["memory"][gives[0]] == -takes:
                fit = room // takes
                if fit == 0:
                    self.m.add_bool_or([])
                for j in range(n - fit if fit else 0):
                    self.m.add(self.start[i, "F", j + fit] >=
                               self.end(i, gives[0], j))
                return
        if all(sum(c["memory"].values()) == 0 and c["memory"]["F"] >= 0 and
               all(c["memory"][k] <= 0 for k in self.kinds[1:])
               for _, c in mine):
            self.cumulative(mine, room)
        else:
            self.reservoir(mine, room)

    def cumulative(self, mine, room):
        held, demands = [], []
        for i, c in mine:
            for k in self.kinds[1:]:
                if not c["memory"][k]:
                    continue
                for j in range(self.p["n"]):
                    size = self.m.new_int_var(0, self.horizon, "")
                    held.append(self.m.new_interval_var(
                        self.start[i, "F", j], size, self.end(i, k, j), ""))
                    demands.append(-c["memory"][k])
        if held:
            self.m.add_cumulative(held, demands, room)

    def reservoir(self, mine, room):
        times, changes = [], []
        for i, c in mine:
            for k in self.kinds:
                change = c["memory"][k]
                for j in range(self.p["n"] if change else 0):
                    times.append(self.start[i, k, j] if change > 0
                                 else self.end(i, k, j))
                    changes.append(change)
        if times:
            least = sum(change for change in changes if change < 0)
            self.m.add_reservoir_constraint(times, changes, min(least, 0),
                                            room)

    def hint(self, path):
        """Starts from the schedule of a CSV file: simulates it in this model."""
        order = []
        with open(path, newline="") as f:
            for row in csv.reader(f):
                order.append([self.cell(x) for x in row if x])
        ready, at, free = {}, {}, {}
        place = [0] * len(order)
        n, last = self.p["n"], len(self.p["chunks"]) - 1
        while any(place[d] < len(row) for d, row in enumerate(order)):
            best = None
            for d, row in enumerate(order):
                if place[d] == len(row):
                    continue
                c, kind, j = row[place[d]]
                before = {"F": (c - 1, "F") if c else None, "D": (c, "F"),
                          "W": (c, "D")}[kind]
                after = (c + 1, "D") if kind == "D" and c < last else None
                needs = [x for x in (before, after) if x]
                if any((*x, c, j) not in ready for x in needs):
                    continue
                s = max([free.get(d, 0)] + [ready[*x, c, j] for x in needs])
                if best is None or s + self.time(c, kind) < best[0]:
                    best = (s + self.time(c, kind), s, d, c, kind, j)
            if not best:
                sys.exit(f"peer_cpsat: {path} stops before its end")
            end, s, d, c, kind, j = best
            place[d] += 1
            at[c, kind, j], free[d] = s, end
            ready[c, kind, c, j] = end
            for to in {"F": [c + 1], "D": [c - 1]}.get(kind, []):
                link = self.link(c, to)
                arrive = end
                if link:
                    t = max(end, free.get(link[0], 0))
                    free[link[0]] = t + link[2] // self.unit
                    arrive = free[link[0]] + link[1] // self.unit
                if 0 <= to <= last:
                    ready[c, kind, to, j] = arrive
        for key, s in at.items():
            self.m.add_hint(self.start[key], s)

    @staticmethod
    def cell(text):
        for i, x in enumerate(text):
            if x in "FIWB":
                return (int(text[:i]), {"I": "D", "B": "D"}.get(x, x),
                        int(text[i + 1:]))
        raise ValueError(text)

    def write(self, solver, path):
        value = {k: solver.value(s) for k, s in self.start.items()}
        letter = {"F": "F", "D": "B" if self.p["joint"] else "I", "W": "W"}
        # Passes of zero duration at equal times: ordered by dependency.
        rank = {"F": lambda c: c, "D": lambda c: 10**6 - c,
                "W": lambda c: 2 * 10**6}
        rows = [[] for _ in range(self.p["devices"])]
        for (c, kind, j), s in value.items():
            rows[self.p["chunks"][c]["device"]].append(
                (s, s + self.time(c, kind), rank[kind](c), j,
                 f"{c}{letter[kind]}{j}"))
        path = pathlib.Path(path)
        path.write_text("".join(
            ",".join(x[-1] for x in sorted(row)) + "\n" for row in rows))
        orders = []
        for name, streams in self.on_link.items():
            if len(streams) > 1:
                sent = sorted((solver.value(s), solver.value(s) + t,
                               rank[kind](c), j, f"{c}{letter[kind]}{j}")
                              for c, kind, starts, t in streams
                              for j, s in enumerate(starts))
                orders.append(",".join([name, *(x[-1] for x in sent)]) + "\n")
        beside = path.with_suffix(".links.csv")
        beside.unlink(missing_ok=True)
        if orders:
            beside.write_text("".join(orders))


def solve(path, time_limit=60.0, threads=1, seed=0, fifo=False, hint=None,
          horizon_ns=None, output=None, cpu_limit=None):
    """Returns the output of main() as a dictionary."""
    import ortools
    from ortools.sat.python import cp_model
    begin = time.perf_counter()
    p = load(path)
    model = Model(cp_model, p, horizon_ns, fifo)
    if hint:
        model.hint(hint)
    built = time.perf_counter()
    cpu = time.process_time()
    unit, progress, done = p["unit"], [], threading.Event()

    class Watch(cp_model.CpSolverSolutionCallback):
        def on_solution_callback(self):
            progress.append([round(time.process_time() - cpu, 4),
                             round(self.objective_value) * unit])

    solver = cp_model.CpSolver()
    solver.parameters.max_time_in_seconds = time_limit
    solver.parameters.num_workers = threads
    solver.parameters.random_seed = seed

    def watch_cpu():
        while not done.wait(0.02):
            if time.process_time() - cpu >= cpu_limit:
                solver.stop_search()

    if cpu_limit is not None:
        threading.Thread(target=watch_cpu, daemon=True).start()
    status = solver.solve(model.m, Watch())
    seconds = time.perf_counter() - built
    done.set()
    names = {cp_model.OPTIMAL: "optimal", cp_model.FEASIBLE: "feasible",
             cp_model.INFEASIBLE: "infeasible"}
    out = {"solver": f"CP-SAT {ortools.__version__}",
           "status": names.get(status, "unknown"), "best_ns": None,
           "bound_ns": None, "seconds": round(seconds, 4),
           "cpu_seconds": round(time.process_time() - cpu, 4),
           "build_seconds": round(built - begin, 4), "threads": threads,
           "progress": progress}
    if status in (cp_model.OPTIMAL, cp_model.FEASIBLE):
        out["best_ns"] = round(solver.objective_value) * unit
        if output:
            model.write(solver, output)
    if status != cp_model.INFEASIBLE:
        out["bound_ns"] = math.ceil(solver.best_objective_bound - 1e-6) * unit
    return out


def main():
    a = argparse.ArgumentParser(
        description="The fastest schedule of a pipeline by OR-tools CP-SAT.")
    a.add_argument("pipeline")
    a.add_argument("--time-limit", type=float, default=60, help="seconds")
    a.add_argument("--cpu-limit", type=float,
                   help="processor seconds, of all threads together")
    a.add_argument("--threads", type=int, default=1)
    a.add_argument("--seed", type=int, default=0)
    a.add_argument("--fifo", action="store_true",
                   help="messages leave first in, first out (links with one "
                        "sending device)")
    a.add_argument("--hint", metavar="S.csv", help="schedule to start from")
    a.add_argument("--horizon-ns", type=int,
                   help="look for schedules no longer than this only")
    a.add_argument("-o", "--output", metavar="S.csv")
    o = a.parse_args()
    try:
        found = solve(o.pipeline, o.time_limit, o.threads, o.seed, o.fifo,
                      o.hint, o.horizon_ns, o.output, o.cpu_limit)
    except ImportError as error:
        sys.exit(f"peer_cpsat: {error}: pip install ortools pyyaml")
    print(json.dumps(found))


if __name__ == "__main__":
    main()
