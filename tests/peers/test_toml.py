#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The TOML parser agrees with Python's tomllib.

    test_toml.py PROGRAM [SEED...]

Seeded random documents with all of TOML 1.0 except dates, half of them damaged: both
parsers accept a text with equal values, or both reject it. PROGRAM is print-toml.
Needs Python 3.11.
"""
import json
import math
import pathlib
import random
import subprocess
import sys
import tempfile

try:
    import tomllib
except ImportError as error:
    print(f"SKIPPED: no tomllib ({error}); that TOML is read as Python reads "
          "it is not tested. Run it with Python 3.11.", file=sys.stderr)
    sys.exit(77)

DOCUMENTS = 3000
KEYS = ("a", "b", "c", "a-b", "1", '"a"', "'b c'", '""', '"\\u0061"', "x_y",
        '"é.x"')
SCALARS = ("1", "-17", "+0", "0", "1_000", "0x_f", "0xDEAD_beef", "0o17",
           "0b101", "01", "9223372036854775807", "9223372036854775808", "1.5",
           "-0.0", "6.626e-34", "1e06", "1.e1", ".5", "1_2.3_4e5_6", "inf",
           "-nan", "true", "false", "True", '"x"', "'y'", '"\\t\\"\\\\"', '""',
           '"\\uD800"', '"\\x"', "'a\\b'", '"""\nl\n"m""\\\n  n"""',
           "'''\nr\\''\n'''", '"""a"""""', "''''b'''''", "\"a'b\"",
           '"\\U0001F600é"', "word", "", "'''", '"""\\ \n\n x"""')


def key(r):
    return " . ".join(r.choice(KEYS) for _ in range(r.choice((1, 1, 1, 2, 3)))
                      ) if r.random() < .2 else ".".join(
        r.choice(KEYS) for _ in range(r.choice((1, 1, 1, 2))))


def blank(r):
    return r.choice(("", "", "", " ", "\n", " # r\n ", "\t", "\r\n"))


def value(r, depth):
    kind = r.random()
    if depth > 3 or kind < .75:
        return r.choice(SCALARS[:20] if r.random() < .9 else SCALARS
                        ) if r.random() < .5 else r.choice(SCALARS[21:32])
    if kind < .88:
        items = [value(r, depth + 1) for _ in range(r.randrange(4))]
        return "[" + ",".join(blank(r) + item + blank(r) for item in items) + (
            "," if items and r.random() < .3 else "") + blank(r) + "]"
    items = [f"{key(r)} = {value(r, depth + 1)}" for _ in range(r.randrange(3))]
    return "{ " + ", ".join(items) + ("," if r.random() < .05 else "") + " }"


def document(r):
    lines = []
    for _ in range(r.randrange(1, 9)):
        kind = r.random()
        if kind < .25:
            lines.append(f"[{key(r)}]")
        elif kind < .35:
            lines.append(f"[[{key(r)}]]")
        elif kind < .4:
            lines.append("# é" + r.choice(("", "\t[a]", "\x01")))
        else:
            lines.append(f"{key(r)} = {value(r, 0)}" +
                         r.choice(("", "", " # r", "  ")))
    text = r.choice(("\n", "\n", "\r\n")).join(lines)
    if r.random() < .5:
        at = r.randrange(len(text) + 1)
        text = text[:at] + r.choice(("", "'", '"', "[", "]", "{", "}", "=", ".",
                                     ",", "\n", "\\", "#", "_", "\r", "0", " ",
                                     "\0", "-")) + text[at + r.choice((0, 1)):]
    return text


class Large(Exception):
    """An integer beyond 64 bits, which a parser may reject."""


def plain(x):
    """Formats values like print-toml; numbers remain numbers."""
    if isinstance(x, dict):
        return {"map": {k: plain(v) for k, v in x.items()}}
    if isinstance(x, list):
        return [plain(v) for v in x]
    if isinstance(x, str):
        return x
    if isinstance(x, bool):
        return ["truth", x]
    if isinstance(x, int) and not -2**63 <= x < 2**63:
        raise Large
    if isinstance(x, (int, float)):
        return ["number", type(x).__name__, "nan" if math.isnan(x) else repr(x)]
    raise Large  # a date


def read(x):
    if isinstance(x, dict) and "plain" in x:
        word = x["plain"]
        if word in ("true", "false"):
            return ["truth", word == "true"]
        try:
            return plain(int(word))
        except ValueError:
            return plain(float(word))
    if isinstance(x, dict):
        return {"map": {k: read(v) for k, v in x["map"].items()}}
    return [read(v) for v in x] if isinstance(x, list) else x


def expected(text):
    """Returns the expected value; None: both parsers must reject the text."""
    try:
        return plain(tomllib.loads(text))
    except (tomllib.TOMLDecodeError, Large):
        return None


def main(program, seeds):
    failed = taken = 0
    texts = [document(random.Random(seed)) for seed in seeds]
    with tempfile.TemporaryDirectory() as folder:
        paths = [pathlib.Path(folder, str(i)) for i in range(len(texts))]
        for path, text in zip(paths, texts):
            path.write_bytes(text.encode())
        lines = subprocess.run([program, *map(str, paths)], check=True,
                               text=True, capture_output=True
                               ).stdout.splitlines()
    assert len(lines) == len(texts)
    for seed, text, line in zip(seeds, texts, lines):
        want, got = expected(text), json.loads(line)
        # A NUL in a string is valid TOML, but rejected here.
        if want is not None and "\\u0000" in json.dumps(want):
            continue
        taken += want is not None
        if (read(got["value"]) if "value" in got else None) != want:
            failed += 1
            print(f"FAILED: seed {seed}: {text!r}\n  {want}\n  {line}",
                  file=sys.stderr)
    print(f"{len(texts) - failed} passed, {failed} failed; {taken} are TOML")
    return failed > 0 or taken < len(texts) / 10


sys.exit(main(sys.argv[1], [int(seed) for seed in sys.argv[2:]] or
              range(DOCUMENTS)))
