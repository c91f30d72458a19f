# SPDX-License-Identifier: Apache-2.0
"""Replaces the times in traces of PyTorch's profiler by those of a machine without
other load: passes take given times, messages arrive after given delays. Names, order
and nesting of all events stay as PyTorch wrote them.

Each rank's clock is mapped piecewise linearly. The mapped points are the begins and
ends of passes and of their linear layers, which take almost all of the time, and the
ends of gloo's receives, which are the ends of waits.
"""
import bisect
import gzip
import json
import pathlib
import re

GAP_US = 50  # between two operations that follow each other
EDGE_US = 20  # of a pass before its linear layer, and after it
MAIN = {"F": "aten::linear",
        "B": "autograd::engine::evaluate_function: AddmmBackward0"}
STEP_US = 1000  # between the passes of two steps
MARK = "pass "  # begins the names of ranges that a test put around passes
PASS = re.compile(rf"(?:PP:|{MARK})(\d+)([FB])(\d+)$")


class Rank:
    """One rank's trace, with its passes in order: (chunk, kind, microbatch), begin
    and end."""

    def __init__(self, path):
        self.path = pathlib.Path(path)
        opened = gzip.open if self.path.suffix == ".gz" else open
        with opened(path, "rt") as file:
            self.trace = json.load(file)
        spans = sorted((e for e in self.trace["traceEvents"]
                        if e.get("ph") == "X"), key=lambda e: e["ts"])
        self.steps = [e for e in spans if e["name"].startswith("ProfilerStep#")]
        self.received = sorted(end_of(e) for e in spans
                               if e["name"] == "gloo:recv")
        self.posted = sorted(end_of(e) for e in spans
                             if e["name"].startswith("c10d::"))
        self.operators = [e for e in spans if e.get("cat") == "cpu_op"
                          and e["name"] in MAIN.values()]
        self.passes = []
        for e in spans:
            name = PASS.match(e["name"])
            if name and any(is_within(e, step) for step in self.steps):
                key = int(name[1]), name[2], int(name[3])
                self.passes.append((key, e["ts"], end_of(e)))
        self.points, self.next, self.now_us = [], 0, 0

    def add(self, real_us, virtual_us):
        """Maps a time, unless an earlier time is mapped to a later one."""
        if not self.points or (real_us > self.points[-1][0] and
                               virtual_us >= self.points[-1][1]):
            self.points.append((real_us, virtual_us))

    def find_layer(self, kind, begin, end):
        """Returns the begin and the end of a pass's linear layer."""
        at = bisect.bisect_left(self.operators, begin, key=lambda e: e["ts"])
        layer = next(e for e in self.operators[at:] if e["name"] == MAIN[kind])
        if end_of(layer) > end:
            raise ValueError(f"{self.path}: a pass without a linear layer")
        return layer["ts"], end_of(layer)

    def run_pass(self, arrival_us, pass_us):
        """Maps the times of the next pass, and of the operations before it."""
        (key, begin, end), before = self.passes[self.next], self.points[-1][0]
        waits = [t for t in self.received if before < t < end]
        wait_end = waits[-1] if waits and arrival_us else None
        posts = [t for t in self.posted
                 if before < t < min(begin, wait_end or begin)]
        start_us = self.now_us + GAP_US
        if posts:
            self.add(posts[-1], start_us)
        ready_us = max(start_us + 2 * GAP_US, arrival_us or 0)
        if wait_end and wait_end < begin:
            self.add(wait_end, ready_us)
            ready_us += GAP_US
            self.add(begin, ready_us)
        else:
            self.add(begin, start_us + GAP_US)
            if wait_end:
                self.add(wait_end, ready_us)
        self.now_us = ready_us + pass_us
        first, last = self.find_layer(key[1], begin, end)
        self.add(first, ready_us + EDGE_US)
        self.add(last, self.now_us - EDGE_US)
        self.add(end, self.now_us)
        self.next += 1

    def map(self, real_us):
        at = bisect.bisect(self.points, (real_us, float("inf")))
        if at in (0, len(self.points)):
            real, virtual = self.points[at and -1]
            return virtual + real_us - real
        (a, x), (b, y) = self.points[at - 1:at + 1]
        return x + (real_us - a) * (y - x) / (b - a)

    def write(self):
        kept = []
        for e in self.trace["traceEvents"]:
            if e["name"].startswith(MARK):
                continue
            if e["ph"] != "M":
                start = self.map(e["ts"])
                if "dur" in e:
                    e["dur"] = round(self.map(end_of(e)) - start, 3)
                e["ts"] = round(start, 3)
            kept.append(e)
        opened = gzip.open if self.path.suffix == ".gz" else open
        with opened(self.path, "wt") as file:
            json.dump(self.trace | {"traceEvents": kept}, file)


def end_of(event):
    return event["ts"] + event["dur"]


def is_within(event, step):
    return step["ts"] <= event["ts"] and end_of(event) <= end_of(step)


def retime(paths, n_chunks, pass_us, delay_us):
    """Rewrites the traces of a pipeline's ranks. pass_us(rank, kind) is a pass's
    time, delay_us(from, to) a message's between chunks. Passes are PyTorch's ranges
    for them, or those with MARK, which are omitted in what is written."""
    ranks = [Rank(path) for path in paths]
    n_steps, ends_us = len(ranks[0].steps), {}
    start_us = max(rank.steps[0]["ts"] for rank in ranks)
    for rank in ranks:
        rank.now_us = start_us
        rank.add(rank.steps[0]["ts"], start_us)
    n_left = sum(len(rank.passes) for rank in ranks)
    while n_left:
        before = n_left
        for i, rank in enumerate(ranks):
            per_step = len(rank.passes) // n_steps
            while rank.next < len(rank.passes):
                step = rank.next // per_step
                chunk, kind, microbatch = key = rank.passes[rank.next][0]
                other = chunk - 1 if kind == "F" else chunk + 1
                arrival_us = None
                if 0 <= other < n_chunks:
                    end_us = ends_us.get((step, other, kind, microbatch))
                    if end_us is None:
                        break
                    arrival_us = end_us + 2 * GAP_US + delay_us(other, chunk)
                if rank.next and rank.next % per_step == 0:
                    rank.now_us += STEP_US
                    rank.add(rank.steps[step]["ts"], rank.now_us)
                rank.run_pass(arrival_us, pass_us(i, kind))
                ends_us[(step, *key)] = rank.now_us
                n_left -= 1
        if n_left == before:
            raise ValueError("passes wait for each other")
    for rank in ranks:
        rank.add(end_of(rank.steps[-1]), rank.now_us + STEP_US)
        rank.write()
