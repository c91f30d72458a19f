#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks every #include: modules of src/ include only those that layers.txt
lets them, and cli, bench and examples see the library by <longhaul/...> alone.

    tools/check-layers.py [FOLDER of the sources]
"""
import pathlib
import re
import sys

root = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else '.')
may = {}
for line in (root / 'tools/layers.txt').read_text().splitlines():
    if ':' in line and not line.startswith('#'):
        module, others = line.split(':')
        may[module] = {module, *others.split()}
wrong = []
for path in sorted(p for top in ('src', 'cli', 'bench', 'examples', 'include')
                   for p in (root / top).rglob('*.[ch]')):
    parts = path.relative_to(root).parts
    outside = parts[0] != 'src'
    if not outside and parts[1] not in may:
        wrong.append(f'{path}: module {parts[1]} is not in tools/layers.txt')
        continue
    for number, line in enumerate(path.read_text().splitlines(), 1):
        found = re.match(r'\s*#\s*include\s*"([^"]+)"', line)
        if not found:
            continue
        bad = found[1].split('/')[0] not in may.get(parts[1], ())
        if outside:  # their own headers, and generated ones, are fine
            bad = '..' in found[1] or (root / 'src' / found[1]).exists()
        if bad:
            wrong.append(f'{path}:{number}: {"/".join(parts[:2])} may not '
                         f'include "{found[1]}"')
print('\n'.join(wrong) or 'layers: all includes are allowed')
sys.exit(bool(wrong))
