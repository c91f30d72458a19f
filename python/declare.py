#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes the C source of longhaul._native from the public headers.

usage: declare.py OUTPUT INCLUDE CC [ARGUMENT...]

The compiler preprocesses the headers below INCLUDE. The declarations that
come from these files, and not from the system's, are passed to cffi. No
declaration is written twice.
"""

import pathlib
import re
import subprocess
import sys

import cffi

# Macros that Python code uses; the compiler computes their values.
CONSTANTS = ("LH_ALL_LINKS", "LH_KIND_TEXT_SIZE", "LH_PASS_TEXT_SIZE")

# Python functions that the library calls: those of longhaul/_search.py and of
# longhaul/torch/_host.py.
CALLED = """
extern "Python" {
    bool longhaul_on_layouts(void *, uint32_t, uint32_t, int64_t);
    bool longhaul_on_plan(void *, const lh_plan_progress *);
    bool longhaul_on_solve(void *, const lh_solve_progress *);
    bool longhaul_on_point(void *, uint32_t, uint32_t);
    bool longhaul_on_wait(void *);
}
"""


def preprocessed(source: str, include: pathlib.Path, cc: list[str]) -> str:
    """Returns the declarations in the headers, without those of system
    headers."""
    text = subprocess.run(
        [*cc, "-E", "-D__attribute__(x)=", f"-I{include}", "-x", "c", "-"],
        input=source,
        stdout=subprocess.PIPE,
        check=True,
        text=True,
    ).stdout
    lines: list[str] = []
    ours = False
    for line in text.splitlines():
        marker = re.match(r'# \d+ "(.*?)"', line)
        if marker:
            ours = include in pathlib.Path(marker[1]).parents
        elif ours:
            lines.append(line)
    return "\n".join(lines)


def main() -> None:
    output, include = sys.argv[1], pathlib.Path(sys.argv[2])
    headers = sorted(
        p.relative_to(include).as_posix() for p in include.rglob("*.h")
    )
    source = "".join(f"#include <{name}>\n" for name in headers)
    ffi = cffi.FFI()
    ffi.cdef(preprocessed(source, include, sys.argv[3:]))
    ffi.cdef("".join(f"#define {name} ...\n" for name in CONSTANTS))
    ffi.cdef(CALLED)
    ffi.set_source("longhaul._native", source)
    ffi.emit_c_code(output)


main()
