#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Measures the effect of delayed updates on the loss: PipeMesh's Fig. 11.

    bench/delayed.py LONGHAUL [--write docs/papers/pipemesh.md] [--tokens N]

Trains a small model on the cpu device: with an elastic plan, which hides
communication at the unchanged batch size; with a depth-first plan at the
unchanged batch size, and at two and four times that size; and with
--delayed-update. All runs share initial weights, windows and their order, the
number of tokens and the learning rate. Prints the losses by tokens, and the
tokens to reach the final loss of delayed updates, as a section of the page.
--write inserts it there, and writes a picture of the curves into docs/img. Needs
only longhaul and OpenBLAS.
"""
import argparse
import json
import math
import pathlib
import sys
import tempfile

from running import run

ROOT = pathlib.Path(__file__).resolve().parent.parent
MARK = "<!-- delayed:"
IMAGE = "img/pipemesh-delayed.svg"
SEQUENCE, BATCH, RATE, WARM_TOKENS, NEAR = 64, 8, 3e-3, 8192, 16384

JOB = """longhaul: job/1
model: {{layers: 4, hidden: 64, ffn: 192, heads: 4, kv_heads: 2, head_dim: 16,
        vocab: 256, gated: true, tied_embeddings: false}}
training: {{global_batch: {batch}, sequence: {sequence}, precision: fp32,
           optimizer: adamw, zero: 1, recompute: none}}
cluster:
  gpu: {{tflops: 0.1, memory_gib: 4, memory_gbps: 20}}
  gpus_per_node: 1
  node_link: {{gbps: 80, latency_us: 10}}
  fabric: {{gbps: 10, latency_us: 50}}
  datacenters: [{{name: here, nodes: 4}}]
layout: {{tensor: 1, context: 1, expert: 1, pipeline: 2, data: 2, micro_batch: 1,
         chunks_per_device: 2, schedule: {schedule}}}
"""

# Name, schedule, batch multiple, more options of `train`, the paper's 10^9
# tokens to a loss of 2.8 (table V; PipeMesh trains like Megatron at the same
# batch size).
RUNS = [("elastic", "elastic", 1, [], 2.47),
        ("depth-first", "interleaved-1f1b", 1, [], 2.47),
        ("batch of 16", "interleaved-1f1b", 2, [], 2.90),
        ("batch of 32", "interleaved-1f1b", 4, [], 3.56),
        ("a step late", "interleaved-1f1b", 1, ["--delayed-update"], 4.17)]
# Distinct in all types of colour vision (Okabe and Ito).
COLOURS = ["#0072b2", "#000000", "#009e73", "#e69f00", "#d55e00"]


def curve(program, folder, data, run_, tokens, seed):
    """Returns [(tokens, loss of the step that ends there)]."""
    _, schedule, times, more, _ = run_
    job, plan = folder / "job.yaml", folder / "plan.json"
    batch = BATCH * times
    job.write_text(JOB.format(batch=batch, sequence=SEQUENCE,
                              schedule=schedule))
    run(program, "plan", job, "-q", "--no-optimal", "-o", plan)
    step = batch * SEQUENCE
    said = json.loads(run(
        program, "train", plan, "--device", "cpu", "--data", data, "--steps",
        tokens // step, "--seed", seed, "--rate", RATE, "--min-rate", RATE,
        "--warmup", WARM_TOKENS // step, "--json", *more))
    return [(step * (i + 1), one["loss"])
            for i, one in enumerate(said["iterations"])]


def near(points, tokens):
    """Returns the mean loss of the steps of the last NEAR tokens up to
    `tokens`."""
    seen = [loss for at, loss in points if tokens - NEAR < at <= tokens]
    return sum(seen) / len(seen)


def tokens_to(points, loss):
    """Returns the first tokens at which `near` is at most `loss`; None: never."""
    return next((at for at, _ in points
                 if at >= NEAR and near(points, at) <= loss), None)


def mean(numbers):
    return sum(numbers) / len(numbers)


def drawn(points):
    """Returns evenly spaced points of a curve."""
    last = points[-1][0]
    at = [NEAR + (last - NEAR) * k // 100 for k in range(101)]
    return [(tokens, near(points, tokens)) for tokens in at]


def text(x, y, words, anchor="middle", more=""):
    return f'<text x="{x:.1f}" y="{y:.1f}" font-size="11" ' \
           f'text-anchor="{anchor}"{more}>{words}</text>'


def picture(curves):
    wide, high, left, top, right, below = 620, 340, 48, 44, 28, 40
    lines = [(name, drawn(points)) for name, points in curves]
    last = max(points[-1][0] for _, points in curves)
    low = math.floor(2 * min(y for _, line in lines for _, y in line)) / 2
    most = math.ceil(2 * max(y for _, line in lines for _, y in line)) / 2

    def at(tokens, loss):
        return (left + (wide - left - right) * tokens / last,
                top + (high - top - below) * (most - loss) / (most - low))
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{wide}" '
           f'height="{high}" font-family="sans-serif" role="img">',
           "<title>Loss by tokens of an elastic plan, of larger batches and of "
           "updates a step late</title>",
           '<rect width="100%" height="100%" fill="#fff"/>']
    tick = low
    while tick <= most + 1e-9:
        y = at(0, tick)[1]
        out.append(f'<path d="M{left} {y:.1f}H{wide - right}" stroke="#ddd"/>')
        out.append(text(left - 6, y + 4, f"{tick:.1f}", "end"))
        tick += .5
    for k in range(0, 6):
        x = at(last * k / 5, low)[0]
        out.append(text(x, high - below + 16, f"{last * k / 5:.0f}"))
    out.append(text(wide / 2, high - 8, "tokens; losses are means of the last "
                    f"{NEAR}"))
    for k, (name, line) in enumerate(lines):
        dots = " ".join("%.1f,%.1f" % at(*point) for point in line)
        dash = ' stroke-dasharray="5 4"' if k == 1 else ""
        out.append(f'<polyline points="{dots}" fill="none" '
                   f'stroke="{COLOURS[k]}" stroke-width="1.6"{dash}/>')
        x = left + 112 * k
        out.append(f'<path d="M{x} 16h16" stroke="{COLOURS[k]}" '
                   f'stroke-width="2"{dash}/>')
        out.append(text(x + 20, 20, name, "start"))
    return "\n".join([*out, "</svg>"]) + "\n"


def page(all_, tokens):
    """Formats the page's section; `all_` has a list of curves for each seed."""
    said = []
    at = [tokens * k // 5 for k in range(1, 6)]
    said.append("| tokens | " + " | ".join(r[0] for r in RUNS) + " |")
    said.append("| --- |" + " --- |" * len(RUNS))
    for when in at:
        said.append(f"| {when} | " + " | ".join(
            f"{mean([near(curves[k], when) for curves in all_]):.3f}"
            for k in range(len(RUNS))) + " |")
    want = mean([near(curves[-1], tokens) for curves in all_])
    first = None
    rows = []
    for k, (_, _, _, _, published) in enumerate(RUNS):
        got = [tokens_to(curves[k], want) for curves in all_]
        got = [one for one in got if one]
        got = mean(got) if len(got) == len(all_) else None
        first = got if k == 0 else first
        rows.append((got, got / first - 1 if got and first else None,
                     published / RUNS[0][4] - 1))
    said.append("\n| | " + " | ".join(r[0] for r in RUNS) + " |")
    said.append("| --- |" + " --- |" * len(RUNS))
    said.append(f"| tokens to {want:.3f} | " + " | ".join(
        f"{got:.0f}" if got else "more" for got, _, _ in rows) + " |")
    said.append("| more than elastic | " + " | ".join(
        "more" if more is None else f"{100 * more:+.0f} %"
        for _, more, _ in rows) + " |")
    said.append("| published, GPT-3 58B to 2.8 | " + " | ".join(
        f"{100 * published:+.0f} %" for _, _, published in rows) + " |")
    apart = max(abs(a[1] / b[1] - 1) for curves in all_
                for a, b in zip(curves[0], curves[1]))
    said.append("\nNo step of the elastic plan has a loss further than "
                f"{apart:.1g} (relative) from the depth-first one's.\n"
                if apart else "\nThe losses of the elastic plan and of the "
                "depth-first one are the same to the last bit.\n")
    said.append(f"![losses by tokens](../{IMAGE})")
    return "\n".join(said) + "\n"


def write(path, made, image):
    lines = path.read_text().split("\n")
    marks = [i for i, line in enumerate(lines) if line.startswith(MARK)]
    if len(marks) != 2:
        sys.exit(f"{path}: has no two lines that begin with {MARK!r}")
    path.write_text("\n".join([*lines[:marks[0] + 1], made.rstrip("\n"),
                               *lines[marks[1]:]]))
    (path.parent.parent / IMAGE).write_text(image)


def main():
    arguments = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    arguments.add_argument("program")
    arguments.add_argument("--write", type=pathlib.Path, metavar="PAGE")
    arguments.add_argument("--tokens", type=int, default=163840)
    arguments.add_argument("--seeds", type=int, default=1)
    arguments.add_argument("--data", help="instead of docs/theory/*.md")
    o = arguments.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        data = o.data
        if not data:
            data = folder / "text"
            data.write_bytes(b"".join(
                one.read_bytes()
                for one in sorted((ROOT / "docs/theory").glob("*.md"))))
        all_ = []
        for seed in range(1, o.seeds + 1):
            all_.append([])
            for one in RUNS:
                all_[-1].append(curve(o.program, folder, data, one, o.tokens,
                                      seed))
                print(f"seed {seed}, {one[0]}: {near(all_[-1][-1], o.tokens)}",
                      file=sys.stderr)
    made = page(all_, o.tokens)
    image = picture([(r[0], c) for r, c in zip(RUNS, all_[0])])
    if o.write:
        write(o.write, made, image)
    print(made, end="")


if __name__ == "__main__":
    main()
