#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A name means one thing in all of longhaul.

    tools/check-names.py [FOLDER of the sources]

- No two files of C have the same name, whatever their folder.
- A header's guard is LONGHAUL_, LHI_ or CLI_, its file's name and _H.
- No lh_, lhi_ or cli_ name is two things: of functions, tables, types and tags
  each is defined once.
- Functions local to a file say what they do: `run`, `fill` and the like do not.
"""
import collections
import pathlib
import re
import sys

root = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else '.')
VAGUE = {'run', 'fill', 'take', 'make', 'find', 'add', 'put', 'set', 'keep',
         'check', 'begin', 'finish', 'prepare', 'walk', 'look', 'enter', 'work',
         'handle', 'process', 'do_it', 'helper'}
wrong = []


def plain(text):
    """Without comments and strings, in which names mean nothing."""
    text = re.sub(r'/\*.*?\*/', ' ', text, flags=re.S)
    return re.sub(r'"(\\.|[^"\\\n])*"', '""', text)


files = [p for top in ('include', 'src', 'cli', 'bench', 'examples', 'tests')
         for p in sorted((root / top).rglob('*.[ch]'))
         if 'data' not in p.relative_to(root).parts]
at = collections.defaultdict(list)
for path in files:
    at[path.name].append(path.relative_to(root).as_posix())
for name, paths in sorted(at.items()):
    if len(paths) > 1:
        wrong.append(f'{name} is the name of {", ".join(paths)}')

defined = collections.defaultdict(set)
for path in files:
    inside = path.relative_to(root).as_posix()
    top = inside.split('/')[0]
    text = plain(path.read_text())
    if path.suffix == '.h' and top in ('include', 'src', 'cli'):
        prefix = {'include': 'LONGHAUL_', 'src': 'LHI_', 'cli': 'CLI_'}[top]
        guard = 'CLI_H' if inside == 'cli/cli.h' else (
            f'{prefix}{path.stem.upper()}_H')
        if not re.search(rf'^#ifndef {guard}\n#define {guard}$', text, re.M):
            wrong.append(f'{inside}: its guard is to be {guard}')
    if top not in ('include', 'src', 'cli'):
        continue
    # What is defined: a tag with its typedef is one thing, a function another.
    for found in re.finditer(r'\b(struct|union|enum) ((?:lhi?|cli)_\w+) \{',
                             text):
        defined[found[2]].add((inside, 'type'))
    for found in re.finditer(r'^typedef [^;{]*?\b((?:lhi?|cli)_\w+)(?:;|\))',
                             text, flags=re.M):
        if not re.search(rf'typedef (struct|union|enum) {found[1]} {found[1]};',
                         found[0] if found[0].endswith(';') else found[0] + ';'):
            defined[found[1]].add((inside, 'type'))
    for found in re.finditer(
            r'^(?!extern|typedef|return|struct \w+;)[A-Za-z][\w\s*]*?[\s*]'
            r'((?:lhi?|cli)_\w+)\([^;{}]*\)\s*\{', text, flags=re.M):
        defined[found[1]].add((inside, 'function'))
    for found in re.finditer(
            r'^(?!extern|typedef|return)[A-Za-z][\w\s*]*?[\s*]'
            r'((?:lhi?|cli)_\w+)(?:\[[^\]]*\])*\s*=[^=]', text, flags=re.M):
        defined[found[1]].add((inside, 'table'))
    if path.suffix == '.c' and top in ('src', 'cli'):
        for found in re.finditer(r'^static [^=;(){}]*?\b(\w+)\(', text,
                                 flags=re.M):
            if found[1] in VAGUE:
                wrong.append(f'{inside}: say what {found[1]}() does')
for name, places in sorted(defined.items()):
    if len(places) > 1:
        wrong.append(f'{name} is ' + ' and '.join(
            f'a {kind} in {inside}' for inside, kind in sorted(places)))
print('\n'.join(wrong) or f'names: {len(at)} files, {len(defined)} names, each '
      'of one thing')
sys.exit(bool(wrong))
