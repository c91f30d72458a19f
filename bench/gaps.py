#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Formats the output of bench-gaps as the tables and plot of docs/theory/gaps.md.

    build/bench/bench-gaps ud 8 16 > ud.json
    bench/gaps.py ud.json --svg docs/img/gaps-ud.svg
"""
import argparse
import json
import math
import pathlib

# Distinct in all types of colour vision (Okabe and Ito).
COLOURS = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9",
           "#000000"]
WIDTH, HEIGHT, LEFT, TOP = 250, 200, 48, 46
TICKS = [0, 1, 3, 10, 30, 100]


def percent(point, method):
    ns = point["methods"][method]
    return None if ns is None else 100 * (ns / point["bound_ns"] - 1)


def shown_methods(run):
    return [m for m in run["points"][0]["methods"]
            if any(p["methods"][m] is not None for p in run["points"])]


def memory_text(point, of):
    return f"room for {point['memory']} {of}" if point["memory"] \
        else "no limit"


def table(run):
    methods = shown_methods(run)
    lines = ["| memory | latency, transfer | least, ms | proven in, s | "
             + " | ".join(methods) + " |",
             "| --- | --- | --- | --- |" + " --- |" * len(methods)]
    for p in run["points"]:
        least = f"{p['best_ns'] / 1e6:g}" if p["status"] == "optimal" else \
            f"{p['bound_ns'] / 1e6:g} to {p['best_ns'] / 1e6:g}"
        cells = [percent(p, m) for m in methods]
        lines.append(f"| {p['memory'] or 'no limit'} "
                     f"| {p['latency']:g}, {p['transfer']:g} | {least} "
                     f"| {p['seconds']:.2f} | "
                     + " | ".join("" if c is None else f"{c:.1f}"
                                  for c in cells) + " |")
    return "\n".join(lines) + "\n"


def worst(run):
    lines = ["| method | fits | mean | worst |", "| --- | --- | --- | --- |"]
    for m in shown_methods(run):
        found = [x for x in (percent(p, m) for p in run["points"])
                 if x is not None]
        lines.append(f"| {m} | {len(found)} of {len(run['points'])} "
                     f"| {sum(found) / len(found):.1f} | {max(found):.1f} |")
    return "\n".join(lines) + "\n"


def text(x, y, words, anchor="middle", size=11, more=""):
    return f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" ' \
           f'text-anchor="{anchor}"{more}>{words}</text>'


def panel(run, points, x0, y0, of):
    def at(i, value):
        y = math.sqrt(min(value, TICKS[-1]) / TICKS[-1])
        return (x0 + (i + .5) * WIDTH / len(points),
                y0 + HEIGHT - y * HEIGHT)
    out = [text(x0 + WIDTH / 2, y0 - 8, memory_text(points[0], of), size=12)]
    for t in TICKS:
        y = at(0, t)[1]
        out.append(f'<path d="M{x0} {y:.1f}h{WIDTH}" stroke="#ddd"/>')
        out.append(text(x0 - 5, y + 4, f"{t} %", "end", 10))
    for i, p in enumerate(points):
        x = at(i, 0)[0]
        out.append(text(x, y0 + HEIGHT + 14, f"{p['latency']:g}", size=10))
        out.append(text(x, y0 + HEIGHT + 26, f"{p['transfer']:g}", size=10))
    for k, m in enumerate(shown_methods(run)):
        dots = [at(i, percent(p, m)) for i, p in enumerate(points)
                if percent(p, m) is not None]
        line = " ".join(f"{x:.1f},{y:.1f}" for x, y in dots)
        out.append(f'<polyline points="{line}" fill="none" '
                   f'stroke="{COLOURS[k]}" stroke-width="1.6"/>')
        out += [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" '
                f'fill="{COLOURS[k]}"/>' for x, y in dots]
    return out


def plot(run):
    of = "activations" if run["placement"] == "ud" else "chunk activations"
    limits = list(dict.fromkeys(p["memory"] for p in run["points"]))
    wide = (WIDTH + LEFT) * 2 + 20
    high = (HEIGHT + TOP + 36) * ((len(limits) + 1) // 2) + 34
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{wide}" '
           f'height="{high}" font-family="sans-serif" role="img">',
           f"<title>Makespan above the optimum, {run['placement']} "
           f"{run['devices']} x {run['microbatches']}, by memory and by "
           "latency and transfer</title>",
           '<rect width="100%" height="100%" fill="#fff"/>']
    for k, m in enumerate(shown_methods(run)):
        x = LEFT + 95 * k
        out.append(f'<circle cx="{x}" cy="16" r="4" fill="{COLOURS[k]}"/>')
        out.append(text(x + 8, 20, m, "start"))
    for k, limit in enumerate(limits):
        out += panel(run, [p for p in run["points"] if p["memory"] == limit],
                     LEFT + (k % 2) * (WIDTH + LEFT),
                     TOP + 14 + (k // 2) * (HEIGHT + TOP + 36), of)
    out.append(text(wide / 2, high - 8, "below each panel: latency and "
                    "transfer, in forward passes; the scale is a square root"))
    return "\n".join([*out, "</svg>"]) + "\n"


def main():
    a = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    a.add_argument("json", nargs="+")
    a.add_argument("--svg", help="file for the plot (of the first JSON)")
    o = a.parse_args()
    for path in o.json:
        run = json.loads(pathlib.Path(path).read_text())
        print(worst(run))
        print(table(run))
        if o.svg:
            pathlib.Path(o.svg).write_text(plot(run))
            o.svg = None


if __name__ == "__main__":
    main()
