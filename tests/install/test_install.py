#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`meson install` into an empty folder, and a C program that uses what is
there through pkg-config.

    test_install.py BUILD SOURCE PREFIX LIBDIR SANITIZE CC...
"""
import os
import pathlib
import subprocess
import sys
import tempfile

BUILD, SOURCE, PREFIX, LIBDIR, SANITIZE, *CC = sys.argv[1:]
FILES = ["bin/longhaul", "include/longhaul/pipeline.h",
         "share/man/man1/longhaul.1", "share/man/man1/longhaul-simulate.1",
         "share/bash-completion/completions/longhaul",
         "share/zsh/site-functions/_longhaul",
         "share/fish/vendor_completions.d/longhaul.fish",
         f"{LIBDIR}/liblonghaul.so", f"{LIBDIR}/pkgconfig/longhaul.pc"]
PIPELINE = """longhaul: pipeline/1
time_unit: ms
microbatches: 12
devices: 4
backward: split
uniform: {placement: ud, chunks_per_device: 1, F: 8, D: 8, W: 8, memory: {F: 1, D: 0, W: -1}}
"""
count = {True: 0, False: 0}


def check(ok, what):
    count[bool(ok)] += 1
    if not ok:
        print("FAILED:", what, file=sys.stderr)


def run(*command, env=None):
    done = subprocess.run([str(c) for c in command], capture_output=True,
                          text=True, env=env)
    check(done.returncode == 0, f"{command}: {done.stdout}{done.stderr}")
    return done.stdout


with tempfile.TemporaryDirectory(prefix="longhaul-install-") as temp:
    temp = pathlib.Path(temp)
    run("meson", "install", "-C", BUILD, "--no-rebuild", "--quiet",
        "--destdir", temp / "root")
    root = temp / "root" / PREFIX.lstrip("/")
    for name in FILES:
        check((root / name).is_file(), f"{name} is installed")
    def list_headers(folder):
        return {p.relative_to(folder) for p in folder.rglob("*.h")}
    check(list_headers(pathlib.Path(SOURCE, "include")) ==
          list_headers(root / "include"),
          "all public headers are installed, and no others")

    env = {**os.environ, "PKG_CONFIG_PATH": str(root / LIBDIR / "pkgconfig"),
           "PKG_CONFIG_SYSROOT_DIR": str(temp / "root"),
           "LD_LIBRARY_PATH": str(root / LIBDIR)}
    version = run("pkg-config", "--modversion", "longhaul", env=env).strip()
    check(run(root / "bin/longhaul", "--version", env=env) ==
          f"longhaul {version}\n", "the program's version is pkg-config's")
    flags = run("pkg-config", "--cflags", "--libs", "longhaul",
                env=env).split()
    if SANITIZE != "none":
        flags.append(f"-fsanitize={SANITIZE}")
    run(*CC, "-std=c11", "-Wall", "-Wextra", "-Werror", "-o", temp / "tour",
        pathlib.Path(SOURCE, "tests/install/tour.c"), *flags)
    (temp / "p.yaml").write_text(PIPELINE)
    check(run(temp / "tour", temp / "p.yaml", env=env) == "312000000 ns\n",
          "the program says what zb-h1 takes")

print(f"{count[True]} passed, {count[False]} failed")
sys.exit(1 if count[False] else 0)
