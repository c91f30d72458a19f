#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""No ten lines stand twice in src and cli.

    tools/check-duplicates.py [FOLDER of the sources]

Lines are compared without white space, comments and #include; blank lines and
lines of punctuation alone do not count. Tables of presets, which repeat their
keys, and what is generated are left out.
"""
import collections
import pathlib
import re
import sys

root = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else '.')
LEAST = 10
TABLES = {'src/format/job/gpu.c', 'src/format/job/model_preset.c', 'src/runtime/device/unicode.h'}
SUFFIXES = {'.c', '.h', '.inc', '.js', '.css'}


def lines_of(path):
    """What a file says: (line number, text) of each line that counts."""
    text = re.sub(r'/\*.*?\*/', lambda found: '\n' * found[0].count('\n'),
                  path.read_text(), flags=re.S)
    said = []
    for number, line in enumerate(text.splitlines(), 1):
        line = ''.join(re.sub(r'(^|\s)//.*', '', line).split())
        if re.search(r'\w', line) and not line.startswith('#include'):
            said.append((number, line))
    return said


said = {}
at = collections.defaultdict(list)
for path in sorted(p for top in ('src', 'cli') for p in (root / top).rglob('*')
                   if p.suffix in SUFFIXES):
    inside = path.relative_to(root).as_posix()
    if inside in TABLES:
        continue
    said[inside] = lines_of(path)
    for first in range(len(said[inside]) - LEAST + 1):
        at[tuple(text for _, text in said[inside][first:first + LEAST])].append(
            (inside, first))

wrong = []
seen = set()
for inside, lines in said.items():
    for first in range(len(lines) - LEAST + 1):
        for other, second in at[tuple(text for _, text in
                                      lines[first:first + LEAST])]:
            if (other, second) <= (inside, first) or (
                    (inside, first, other, second) in seen):
                continue
            # The whole run, once; its parts are not runs of their own.
            length = 0
            while (first + length < len(lines) and
                   second + length < len(said[other]) and
                   lines[first + length][1] == said[other][second + length][1]
                   and not (inside == other and first + length >= second)):
                seen.add((inside, first + length, other, second + length))
                length += 1
            if length >= LEAST:
                wrong.append(
                    f'{inside}:{lines[first][0]}-{lines[first + length - 1][0]}'
                    f' stands again at {other}:{said[other][second][0]}-'
                    f'{said[other][second + length - 1][0]} ({length} lines)')
print('\n'.join(wrong) or f'duplicates: none of {LEAST} lines in {len(said)} '
      'files')
sys.exit(bool(wrong))
