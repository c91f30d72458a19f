#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What the program says goes through the functions of cli/print.c, which show
what others wrote: names, paths, messages with such in them.

    tools/check-printing.py [FOLDER of the sources]

Nothing else of cli/ writes to a stream, but for these: pages made of the
program's own tables, progress and its end, what a program of its own reads, and
what writes standard output in the end. A line of ours does not stand in an argument, where its end would be
shown as \\n.
"""
import pathlib
import re
import sys

root = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else '.')
OWN = {'print.c', 'complete.c', 'help.c', 'man.c'}
# Each file's ways past print.c, and how often.
ALLOWED = {'terminal.c': {'fprintf': 1, 'fputs': 1, 'write': 1},
           'output.c': {'fprintf': 1, 'fwrite': 1},
           'profile_torch.c': {'write': 1},
           'signals.c': {'write': 1},
           'train_log.c': {'write': 1}}
WAYS = r'\b(v?f?printf|v?dprintf|fputs|puts|f?putc|putchar|fwrite|write|perror)\('
PRINTS = r'\b(cli_print|cli_print_stderr|cli_note|cli_error|cli_usage)\('


def without_comments(text):
    return re.sub(r'/\*.*?\*/', lambda found: '\n' * found[0].count('\n'), text,
                  flags=re.S)


def arguments(text, at):
    """Those of the call whose opening bracket is before `at`."""
    found, begin, depth, quoted = [], at, 1, False
    while depth:
        c = text[at]
        if quoted:
            if c == '\\':
                at += 1
            elif c == '"':
                quoted = False
        elif c == '"':
            quoted = True
        elif c in '([{':
            depth += 1
        elif c in ')]}':
            depth -= 1
        elif c == ',' and depth == 1:
            found.append(text[begin:at])
            begin = at + 1
        at += 1
    return found + [text[begin:at - 1]]


wrong = []
for path in sorted((root / 'cli').glob('*.c')):
    if path.name in OWN:
        continue
    text = without_comments(path.read_text())
    left = dict(ALLOWED.get(path.name, {}))
    for found in re.finditer(WAYS, text):
        way = found[1]
        line = text.count('\n', 0, found.start()) + 1
        left[way] = left.get(way, 0) - 1
        if left[way] < 0:
            wrong.append(f'cli/{path.name}:{line}: {way}() goes past '
                         'cli_print(), cli_print_stderr() and cli_note()')
    wrong += [f'cli/{path.name}: {n} fewer {way}() than this file allows'
              for way, n in left.items() if n > 0]
    for found in re.finditer(PRINTS, text):
        given = arguments(text, found.end())
        first = {'cli_print_stderr': 1, 'cli_error': 3}.get(found[1], 2)
        line = text.count('\n', 0, found.start()) + 1
        wrong += [f'cli/{path.name}:{line}: an end of line in an argument of '
                  f'{found[1]}() would be shown as \\n; it goes into the format'
                  for one in given[first:] if re.search(r'"[^"]*\\n', one)]

print('\n'.join(wrong) or 'all that is said is shown')
sys.exit(1 if wrong else 0)
