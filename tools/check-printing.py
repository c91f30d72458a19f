#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks that cli/ prints through the functions of cli/print.c, which escape
control characters in names, paths and messages.

    tools/check-printing.py [SOURCE_ROOT]

Other files of cli/ must not write to a stream. Exceptions: pages that only contain
the program's own tables, progress display, output for other programs, and the
final write to standard output. An argument of a print function must not end a
line, since the line end would be printed as \\n.
"""
import pathlib
import re
import sys

root = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else '.')
OWN = {'print.c', 'completion.c', 'help.c', 'man.c'}
# Permitted exceptions of each file, with their number.
ALLOWED = {'terminal.c': {'fprintf': 1, 'fputs': 1, 'write': 1},
           'output.c': {'fprintf': 1, 'fwrite': 1},
           'profile_torch.c': {'write': 1},
           'signals.c': {'write': 1},
           'train_log.c': {'write': 1}}
WRITES = r'\b(v?f?printf|v?dprintf|fputs|puts|f?putc|putchar|fwrite|write|perror)\('
PRINTS = r'\b(cli_print|cli_print_stderr|cli_note|cli_error|cli_usage)\('


def without_comments(text):
    return re.sub(r'/\*.*?\*/', lambda found: '\n' * found[0].count('\n'), text,
                  flags=re.S)


def arguments(text, at):
    """Returns the arguments of the call whose opening bracket is before `at`."""
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


problems = []
for path in sorted((root / 'cli').glob('*.c')):
    if path.name in OWN:
        continue
    text = without_comments(path.read_text())
    left = dict(ALLOWED.get(path.name, {}))
    for found in re.finditer(WRITES, text):
        function = found[1]
        line = text.count('\n', 0, found.start()) + 1
        left[function] = left.get(function, 0) - 1
        if left[function] < 0:
            problems.append(f'cli/{path.name}:{line}: {function}() bypasses '
                         'cli_print(), cli_print_stderr() and cli_note()')
    problems += [f'cli/{path.name}: {n} fewer calls of {function}() than '
                 f'ALLOWED has' for function, n in left.items() if n > 0]
    for found in re.finditer(PRINTS, text):
        given = arguments(text, found.end())
        first = {'cli_print_stderr': 1, 'cli_error': 3}.get(found[1], 2)
        line = text.count('\n', 0, found.start()) + 1
        problems += [f'cli/{path.name}:{line}: a line end in an argument of '
                     f'{found[1]}() would be printed as \\n; move it to the '
                     'format string' for one in given[first:]
                     if re.search(r'"[^"]*\\n', one)]

print('\n'.join(problems) or 'printing: all output passes through cli/print.c')
sys.exit(1 if problems else 0)
