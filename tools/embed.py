#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Turns files into a C file of byte arrays.

    embed.py OUT.c NAME=[FILE[:FILE...]] ...

gives, for each NAME, `const char NAME[]`: the files, ASCII text, one after the
other, and a NUL. Without a FILE the text is empty; of a .wasm it is its gzip in
base64. The build runs it for the parts of the HTML report; building
without Meson takes the same command. Arrays of numbers, since C guarantees
string literals of no more than 4095 characters."""
import base64
import gzip
import sys


def array(name, data):
    lines = [f"extern const char {name}[];", f"const char {name}[] = {{"]
    data += b"\0"
    for i in range(0, len(data), 16):
        lines.append("    " + ", ".join(map(str, data[i:i + 16])) + ",")
    return "\n".join(lines + ["};", ""])


def read(path):
    with open(path, "rb") as f:
        data = f.read()
    if not path.endswith(".wasm"):
        return data
    return base64.b64encode(gzip.compress(data, mtime=0))


def main():
    if len(sys.argv) < 3:
        sys.exit("usage: embed.py OUT.c NAME=FILE ...")
    parts = ["/* Made by tools/embed.py; do not edit. */"]
    for arg in sys.argv[2:]:
        name, paths = arg.split("=", 1)
        data = b""
        for path in paths.split(":"):
            if path:
                data += read(path)
        if not data.isascii() or b"\0" in data:
            sys.exit(f"embed.py: {paths}: must be ASCII text")
        parts.append(array(name, data))
    with open(sys.argv[1], "w", encoding="ascii") as out:
        out.write("\n".join(parts))


main()
