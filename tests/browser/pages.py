# SPDX-License-Identifier: Apache-2.0
"""Shared code of the page tests: checks, the program (their first argument), input
files, and the final result.
"""
import os
import subprocess
import sys

failures = []


def check(ok, what):
    if not ok:
        failures.append(what)
        print("FAILED:", what, file=sys.stderr)


def program(folder, *words):
    """Runs longhaul in a folder."""
    return subprocess.run([os.path.abspath(sys.argv[1]), *words], cwd=folder,
                          capture_output=True, text=True, check=False)


def longhaul(folder, *words):
    """Returns the program's output; the program must succeed."""
    done = program(folder, *words)
    check(done.returncode == 0, f"{words}: {done.stderr}")
    return done.stdout


def write(folder, name, text):
    with open(os.path.join(folder, name), "w", encoding="utf-8") as f:
        f.write(text)


def two_sites(microbatches, links):
    """Writes a pipeline of four devices, with lines for its links."""
    return f"""longhaul: pipeline/1
time_unit: ms
microbatches: {microbatches}
devices: 4
backward: split
uniform: {{placement: ud, chunks_per_device: 1, F: 9.7, D: 10.1, W: 8.3,
          memory: {{F: 3, D: -1, W: -2}}}}
links:
{links}sites: [{{name: a, devices: [0, 1]}}, {{name: b, devices: [2, 3]}}]
memory_limit: 21
"""


def small_job(memory_gib, more=""):
    """Writes a job with a short plan search; `more`: further lines of its
    cluster."""
    return f"""longhaul: job/1
model: {{layers: 4, hidden: 64, ffn: 128, heads: 4, vocab: 256}}
training: {{global_batch: 12, sequence: 32, precision: fp32}}
cluster:
  gpu: {{tflops: 0.1, memory_gib: {memory_gib}, memory_gbps: 20}}
  gpus_per_node: 1
{more}  fabric: {{gbps: 10, latency_us: 50}}
  datacenters: [{{name: west, nodes: 2}}, {{name: east, nodes: 2}}]
  links: [{{between: [west, east], latency_ms: 1, gbps: 1}}]
layout: {{tensor: 1, context: 1, pipeline: 4, data: 1, micro_batch: 1}}
"""


def parts(color):
    """Returns red, green and blue of #rrggbb, from 0 to 255."""
    return [int(color[i:i + 2], 16) for i in (1, 3, 5)]


def linear(color):
    return [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4
            for c in (part / 255 for part in parts(color))]


def luminance(color):
    """Computes the relative luminance of WCAG 2."""
    r, g, b = linear(color)
    return 0.2126 * r + 0.7152 * g + 0.0722 * b


def contrast(one, other):
    lo, hi = sorted((luminance(one), luminance(other)))
    return (hi + 0.05) / (lo + 0.05)


def finish(*missing):
    """Ends the program; prints the missing tools as skipped."""
    print(f"{len(failures)} failed")
    if failures:
        sys.exit(1)
    if missing:
        print("SKIPPED: not to be had here: " + ", ".join(missing),
              file=sys.stderr)
        sys.exit(77)
    sys.exit(0)
