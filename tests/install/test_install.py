#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`meson install` into an empty folder, and the example in longhaul.h, compiled
with the flags of pkg-config.

    test_install.py BUILD SOURCE PREFIX LIBDIR SANITIZE CC...
"""
import os
import json
import pathlib
import re
import subprocess
import sys
import tempfile

BUILD, SOURCE, PREFIX, LIBDIR, SANITIZE, *CC = sys.argv[1:]
FILES = ["bin/longhaul", "include/longhaul.h",
         "include/longhaul/plan.h", "include/longhaul/experimental/plan.h",
         "share/man/man1/longhaul.1", "share/man/man1/longhaul-simulate.1",
         "share/bash-completion/completions/longhaul",
         "share/zsh/site-functions/_longhaul",
         "share/fish/vendor_completions.d/longhaul.fish",
         f"{LIBDIR}/liblonghaul.so", f"{LIBDIR}/pkgconfig/longhaul.pc"]
JOB = pathlib.Path(SOURCE, "examples/tiny-llama-cpu.yaml")
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
    example = re.findall(r"^ \*     (.*)", (root / "include/longhaul.h")
                         .read_text(), re.M)
    (temp / "example.c").write_text("\n".join(example) + "\n")
    run(*CC, "-std=c11", "-Wall", "-Wextra", "-Wpedantic", "-Werror", "-o",
        temp / "example", temp / "example.c", *flags)
    run(root / "bin/longhaul", "plan", JOB, "-o", temp / "plan.json", env=env)
    plan = json.loads((temp / "plan.json").read_text())
    said = run(temp / "example", JOB, env=env)
    found = re.fullmatch(r"plan: (\d+) ns on 4 GPUs\n\S+: (\d+) ns, valid\n"
                         r"measured / predicted: \d+\.\d+\n", said)
    check(found, f"the example's output: {said}")
    check(found and int(found[1]) == plan["iteration_ns"],
          f"the plan's time is that of the command: {said}")
    check(found and int(found[2]) <= plan["makespan_ns"],
          f"the schedule takes at most the plan's makespan: {said}")

print(f"{count[True]} passed, {count[False]} failed")
sys.exit(1 if count[False] else 0)
