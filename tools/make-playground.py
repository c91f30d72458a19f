#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Builds the page of the playground.

    make-playground.py OUT.html PAGE.html PLANNER.wasm CSS,CSS JS,JS JOB,JOB

Replaces the placeholders of PAGE.html: @CSS@, @JS@, @WASM@ (gzip in base64) and
@PRESETS@ (jobs by name, as JSON).
"""
import base64
import gzip
import json
import os
import sys


def read(paths):
    parts = []
    for path in paths.split(","):
        with open(path, encoding="utf-8") as f:
            parts.append(f.read())
    return parts


def main():
    if len(sys.argv) != 7:
        sys.exit(__doc__)
    out, page, wasm, css, js, jobs = sys.argv[1:]
    with open(wasm, "rb") as f:
        packed = base64.b64encode(gzip.compress(f.read(), mtime=0)).decode()
    presets = [{"name": os.path.splitext(os.path.basename(path))[0],
                "text": text}
               for path, text in zip(jobs.split(","), read(jobs))]
    places = {"@CSS@": "".join(read(css)), "@JS@": "".join(read(js)),
              "@WASM@": packed,
              "@PRESETS@": json.dumps(presets).replace("<", "\\u003c")}
    (text,) = read(page)
    for place, part in places.items():
        before, found, after = text.partition(place)
        if not found:
            sys.exit(f"make-playground.py: {page} has no {place}")
        text = before + part + after
    with open(out, "w", encoding="ascii") as f:
        f.write(text)


main()
