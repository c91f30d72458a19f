#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks that no ten lines occur twice in src and cli.

    tools/check-duplicates.py [SOURCE_ROOT]

Lines are compared without white space, comments and #include. Blank lines and
lines of punctuation do not count. Tables of presets, which repeat their keys, and
generated files are excluded.
"""
import collections
import pathlib
import re
import sys

root = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else '.')
MIN_LINES = 10
TABLES = {'src/format/job/gpu.c', 'src/format/job/model_preset.c',
          'src/runtime/device/unicode.h'}
SUFFIXES = {'.c', '.h', '.inc', '.js', '.css'}


def lines_of(path):
    """Returns (line number, text) for each line that counts."""
    text = re.sub(r'/\*.*?\*/', lambda found: '\n' * found[0].count('\n'),
                  path.read_text(), flags=re.S)
    kept = []
    for number, line in enumerate(text.splitlines(), 1):
        line = ''.join(re.sub(r'(^|\s)//.*', '', line).split())
        if re.search(r'\w', line) and not line.startswith('#include'):
            kept.append((number, line))
    return kept


kept = {}
at = collections.defaultdict(list)
for path in sorted(p for top in ('src', 'cli') for p in (root / top).rglob('*')
                   if p.suffix in SUFFIXES):
    inside = path.relative_to(root).as_posix()
    if inside in TABLES:
        continue
    kept[inside] = lines_of(path)
    for first in range(len(kept[inside]) - MIN_LINES + 1):
        run = kept[inside][first:first + MIN_LINES]
        at[tuple(text for _, text in run)].append((inside, first))

problems = []
seen = set()
for inside, lines in kept.items():
    for first in range(len(lines) - MIN_LINES + 1):
        for other, second in at[tuple(text for _, text in
                                      lines[first:first + MIN_LINES])]:
            if (other, second) <= (inside, first) or (
                    (inside, first, other, second) in seen):
                continue
            # Reports the maximal run once, without its parts.
            length = 0
            while (first + length < len(lines) and
                   second + length < len(kept[other]) and
                   lines[first + length][1] == kept[other][second + length][1]
                   and not (inside == other and first + length >= second)):
                seen.add((inside, first + length, other, second + length))
                length += 1
            if length >= MIN_LINES:
                problems.append(
                    f'{inside}:{lines[first][0]}-{lines[first + length - 1][0]}'
                    f' is repeated at {other}:{kept[other][second][0]}-'
                    f'{kept[other][second + length - 1][0]} ({length} lines)')
print('\n'.join(problems) or f'duplicates: none of {MIN_LINES} lines in '
      f'{len(kept)} files')
sys.exit(bool(problems))
