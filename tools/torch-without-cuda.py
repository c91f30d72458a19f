#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes the torch wheel of PyPI importable without NVIDIA's libraries.

usage: torch-without-cuda.py PYTHON

The x86-64 wheels of torch on PyPI link against CUDA libraries, several gigabytes
of other wheels. The tests do not use them, but the loader must find their
symbols. This script compiles a stub for every missing library, whose functions
return an error, so that torch detects no GPU. It installs the stubs beside
torch's own libraries, in the virtual environment of the given Python. Needs cc
and readelf.
"""

import collections
import pathlib
import re
import subprocess
import sys
import tempfile


def readelf(flag, path):
    return subprocess.run(["readelf", "--wide", flag, str(path)], check=True,
                          capture_output=True, text=True).stdout


def library_folder(python):
    code = ("import importlib.util, pathlib; "
            "print(pathlib.Path(importlib.util.find_spec('torch').origin)"
            ".parent / 'lib')")
    out = subprocess.run([python, "-c", code], check=True,
                         capture_output=True, text=True).stdout
    return pathlib.Path(out.strip())


def needed(path):
    return re.findall(r"\(NEEDED\).*\[(.*)\]", readelf("-d", path))


def version_homes(path):
    """Returns the library in which each needed symbol version is expected."""
    homes, home = {}, None
    for line in readelf("-V", path).splitlines():
        if found := re.search(r"Version: \d+\s+File: (\S+)", line):
            home = found[1]
        elif (found := re.search(r"Name: (\S+)\s+Flags: ", line)) and home:
            homes[found[1]] = home
    return homes


def symbols(path):
    """Returns (name, version or None, is defined) for each dynamic symbol."""
    for line in readelf("--dyn-syms", path).splitlines():
        fields = line.split()
        if len(fields) < 8 or not fields[0].rstrip(":").isdigit():
            continue
        weak, home, name = fields[4] == "WEAK", fields[6], fields[7]
        name, _, version = name.partition("@")
        if home == "UND" and weak:
            continue
        yield name, version.lstrip("@") or None, home != "UND"


def build(folder, soname, versions):
    """Compiles a library with these symbols, by version."""
    with tempfile.TemporaryDirectory() as temp:
        source, script = pathlib.Path(temp, "s.s"), pathlib.Path(temp, "s.map")
        lines = [".text", "error: mov $999, %eax", "ret"]
        nodes = []
        for version, names in sorted(versions.items(), key=str):
            for name in sorted(names):
                lines += [f".globl {name}", f".type {name}, @function",
                          f".set {name}, error"]
            if version:
                listed = " ".join(f"{n};" for n in sorted(names))
                nodes.append(f"{version} {{ global: {listed} }};")
        lines.append('.section .note.GNU-stack,"",@progbits')
        source.write_text("\n".join(lines) + "\n")
        script.write_text("\n".join(nodes) + "\n")
        command = ["cc", "-shared", "-nostdlib", "-o", str(folder / soname),
                   f"-Wl,-soname,{soname}", str(source)]
        if nodes:
            command.append(f"-Wl,--version-script={script}")
        subprocess.run(command, check=True)


def main():
    folder = library_folder(sys.argv[1])
    libraries = sorted(folder.glob("*.so*"))
    missing = set()
    for library in libraries:
        missing.update(n for n in needed(library)
                       if not (folder / n).exists() and
                       re.match(r"lib(cu|nccl|nv)", n))
    if not missing:
        print("torch has all its libraries")
        return
    wanted = {name: collections.defaultdict(set) for name in missing}
    unversioned, defined = collections.defaultdict(set), set()
    for library in libraries:
        homes = version_homes(library)
        lacks = [n for n in needed(library) if n in missing]
        for name, version, is_defined in symbols(library):
            if is_defined:
                defined.add(name)
            elif version is None:
                if lacks and name.startswith(("cu", "nccl", "nv", "__cuda")):
                    unversioned[name].update(lacks)
            elif homes.get(version) in missing:
                wanted[homes[version]][version].add(name)
    for name, homes in unversioned.items():
        if name not in defined:
            wanted[sorted(homes)[0]][None].add(name)
    for soname, versions in wanted.items():
        build(folder, soname, versions)
    print(f"{len(wanted)} libraries stand in for NVIDIA's")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    main()
