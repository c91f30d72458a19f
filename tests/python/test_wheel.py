#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The wheel that tools/get-wheel.sh built and its installed package: contents,
supported machines, program, headers, types, and the example in the README.

Needs longhaul installed by pip; $LONGHAUL_PYTHON names a Python that has it."""
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile

from import_longhaul import longhaul

import harness
from harness import PROGRAM, ROOT, check, test

PACKAGE = pathlib.Path(longhaul.__file__).parent
BIN = pathlib.Path(sys.prefix) / "bin"
MOST_BYTES = 6 << 20


def said(*args, **more):
    """Returns a program's output, and whether it succeeded."""
    done = subprocess.run([*map(str, args)], text=True, check=False,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          **more)
    check(done.returncode == 0, f"{args}: {done.returncode} {done.stdout}")
    return done.stdout


def tool(name, untested):
    """Returns the path of an installed program; None: skipped."""
    path = BIN / name
    if path.exists():
        return path
    print(f"SKIPPED: no {name} beside {sys.executable}; {untested} is not "
          "tested", file=sys.stderr)
    return None


def the_wheel():
    found = sorted((pathlib.Path(sys.prefix) / "wheel").glob("*.whl"))
    if not found:
        print("SKIPPED: longhaul was not installed by tools/get-wheel.sh; what "
              "is in the wheel is not tested", file=sys.stderr)
    return found[0] if found else None


@test
def the_version_stands_in_one_place():
    project = re.search(r"version: '([\d.]+)'",
                        (ROOT / "meson.build").read_text())[1]
    check(longhaul.__version__ == project, f"{longhaul.__version__}")
    for program in (PROGRAM, BIN / "longhaul", PACKAGE / "bin/longhaul"):
        check(said(program, "--version") == f"longhaul {project}\n", program)


@test
def the_playground_is_in_it_where_it_can_be_built():
    if not the_wheel():
        return
    page = harness.WORK / "playground.html"
    done = subprocess.run([BIN / "longhaul", "playground", "-o", page],
                          text=True, stderr=subprocess.PIPE)
    if (ROOT / "build-wasm/jansson").is_dir() and shutil.which("wasm-ld"):
        check(done.returncode == 0 and page.stat().st_size > 300_000,
              f"{done.returncode} {done.stderr}")
    else:
        check(done.returncode == 1 and "tools/get-wasm.sh" in done.stderr,
              f"{done.returncode} {done.stderr}")


@test
def the_wheel_is_small_and_whole():
    wheel = the_wheel()
    if not wheel:
        return
    check("-abi3-" in wheel.name, f"{wheel.name} is for one version of Python")
    check(wheel.stat().st_size < MOST_BYTES, f"{wheel.stat().st_size} bytes")
    print(f"{wheel.name}: {wheel.stat().st_size} bytes")
    names = set(zipfile.ZipFile(wheel).namelist())
    headers = {f"longhaul/{p.relative_to(ROOT)}"
               for p in (ROOT / "include").rglob("*.h")}
    sources = {str(p.relative_to(ROOT / "python"))
               for p in (ROOT / "python/longhaul").rglob("*.py")}
    for wanted in headers | sources | {
            "longhaul/py.typed", "longhaul/lib/liblonghaul.so",
            "longhaul/bin/longhaul", "longhaul/_native.abi3.so"}:
        check(wanted in names, f"{wanted} is not in the wheel")
    check(any(n.endswith("man1/longhaul-plan.1") for n in names), "manual")


@test
def the_wheel_runs_on_manylinux():
    wheel, auditwheel = the_wheel(), tool("auditwheel", "manylinux")
    if not wheel or not auditwheel:
        return
    shown = " ".join(said(auditwheel, "show", wheel).split())
    check("manylinux_2_" in shown, shown)
    # Libraries that `auditwheel repair` adds: every system must have them.
    allowed = {"libyaml-0.so.2", "libjansson.so.4", "libcrypto.so.3",
               "libz.so.1", "libm.so.6", "libc.so.6", "ld-linux-x86-64.so.2",
               "ld-linux-aarch64.so.1", "liblonghaul.so"}
    for path in ("_native.abi3.so", "lib/liblonghaul.so", "bin/longhaul"):
        needed = re.findall(r"\(NEEDED\).*\[(.*)\]",
                            said("readelf", "-d", PACKAGE / path))
        check(set(needed) <= allowed, f"{path} needs {needed}")


@test
def headers_and_library_compile_a_user():
    with tempfile.TemporaryDirectory() as folder:
        user = pathlib.Path(folder, "user")
        text = (PACKAGE / "include/longhaul.h").read_text()
        example = "\n".join(re.findall(r"^ \*     (.*)", text, re.M)) + "\n"
        source = pathlib.Path(folder, "user.c")
        source.write_text(example)
        said("cc", source, "-o", user,
             f"-I{PACKAGE / 'include'}", f"-L{PACKAGE / 'lib'}", "-llonghaul",
             f"-Wl,-rpath,{PACKAGE / 'lib'}")
        libraries = said("ldd", user)
        check(str(PACKAGE / "lib/liblonghaul.so") in libraries, libraries)


@test
def the_lines_of_the_readme_run():
    readme = (ROOT / "README.md").read_text()
    block = re.search(r"(?:^    .*\n)*^    import longhaul\n(?:^    .*\n)*",
                      readme, flags=re.M)[0]
    lines = [line[4:] for line in block.splitlines()]
    check(len(lines) == 10, f"{len(lines)} lines")
    with tempfile.TemporaryDirectory() as folder:
        os.symlink(ROOT / "examples", pathlib.Path(folder, "examples"))
        out = said(sys.executable, "-c", "\n".join(lines), cwd=folder)
    check(len(out.splitlines()) == sum("print(" in x for x in lines), out)


@test
def sources_are_typed_and_tidy():
    if ruff := tool("ruff", "what ruff says"):
        said(ruff, "check", ROOT / "python")
        said(ruff, "format", "--check", ROOT / "python")
    if pyright := tool("pyright", "what pyright says"):
        said(pyright, "--pythonpath", sys.executable, "--project", ROOT)


harness.finish()
