#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks who needs whom.

    tools/check-layers.py [FOLDER of the sources]

- Rooms of src/ include and call only what tools/layers.txt lets them, and every
  permission there is used; no room needs, by a chain of others, itself.
- cli, bench and examples see the library by <longhaul/...> alone.
- No circles between files: of headers by #include, of .c files by the functions
  and tables that one defines and another uses.
"""
import collections
import pathlib
import re
import sys

root = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else '.')
wrong = []


def plain(text):
    """Without comments and strings, in which names mean nothing."""
    text = re.sub(r'/\*.*?\*/', ' ', text, flags=re.S)
    text = re.sub(r'//[^\n]*', ' ', text)
    return re.sub(r'"(\\.|[^"\\\n])*"', '""', text)


def circles(needs):
    """The strongly connected parts of more than one node (Tarjan)."""
    sys.setrecursionlimit(100000)
    number, low, stack, on_stack, found = {}, {}, [], set(), []

    def visit(node):
        number[node] = low[node] = len(number)
        stack.append(node)
        on_stack.add(node)
        for other in needs.get(node, ()):
            if other not in number:
                visit(other)
                low[node] = min(low[node], low[other])
            elif other in on_stack:
                low[node] = min(low[node], number[other])
        if low[node] == number[node]:
            part = []
            while not part or part[-1] != node:
                part.append(stack.pop())
                on_stack.discard(part[-1])
            if len(part) > 1:
                found.append(sorted(part))

    for node in list(needs):
        if node not in number:
            visit(node)
    return found


# Who includes whom.
may = {}
for line in (root / 'tools/layers.txt').read_text().splitlines():
    if ':' in line and not line.startswith('#'):
        room, others = line.split(':')
        may[room] = set(others.split())
for part in circles(may):
    wrong.append(f'tools/layers.txt: {", ".join(part)} need each other')
used = collections.defaultdict(set)
included = collections.defaultdict(set)
for path in sorted(p for top in ('src', 'cli', 'bench', 'examples', 'include')
                   for p in (root / top).rglob('*.[ch]')):
    inside = path.relative_to(root)
    outside = inside.parts[0] != 'src'
    room = inside.parent.relative_to('src').as_posix() if not outside else ''
    if not outside and room not in may:
        wrong.append(f'{inside}: src/{room} is not in tools/layers.txt')
        continue
    for number, line in enumerate(path.read_text().splitlines(), 1):
        found = re.match(r'\s*#\s*include\s*["<]([^">]+)[">]', line)
        if not found:
            continue
        header = found[1]
        if line.split('#')[1].lstrip()[7:].lstrip().startswith('<'):
            if header.startswith('longhaul/') and path.suffix == '.h':
                included[inside.as_posix()].add('include/' + header)
            continue
        theirs = pathlib.PurePath(header).parent.as_posix()
        if outside:  # their own headers, and generated ones, are fine
            bad = '..' in header or (root / 'src' / header).exists()
            target = f'{inside.parts[0]}/{header}'
        else:
            bad = theirs != room and theirs not in may[room]
            if theirs != room:
                used[room].add(theirs)
            target = 'src/' + header
        if bad:
            wrong.append(f'{inside}:{number}: src/{room} may not include '
                         f'"{header}"' if room else f'{inside}:{number}: '
                         f'{inside.parts[0]} may not include "{header}"')
        if path.suffix == '.h':
            included[inside.as_posix()].add(target)
for part in circles(included):
    wrong.append('headers include each other: ' + ', '.join(part))

# Who calls whom.
texts = {p.relative_to(root).as_posix(): plain(p.read_text())
         for top in ('src', 'cli') for p in sorted((root / top).rglob('*.c'))}
name = r'((?:lhi?|cli)_\w+)'
defined = {}
for path, text in texts.items():
    for pattern in (r'^(?!static|extern|typedef|return)[A-Za-z][\w\s*]*?[\s*]' +
                    name + r'\([^;{}]*\)\s*\{',
                    r'^(?!static|extern|typedef)[A-Za-z][\w\s*]*?[\s*]' +
                    name + r'(?:\[[^\]]*\])*\s*=[^=]'):
        for found in re.finditer(pattern, text, flags=re.M):
            other = defined.setdefault(found[1], path)
            if other != path:
                wrong.append(f'{path}: {found[1]} is also in {other}')
needs = collections.defaultdict(lambda: collections.defaultdict(set))
for path, text in texts.items():
    for word in re.findall(r'\b(?:lhi?|cli)_\w+', text):
        if defined.get(word, path) != path:
            needs[path][defined[word]].add(word)
for path, others in needs.items():
    room = pathlib.PurePath(path).parent.as_posix().removeprefix('src/')
    for other, names in others.items():
        theirs = pathlib.PurePath(other).parent.as_posix().removeprefix('src/')
        if path.startswith('cli/') or theirs == room:
            continue
        used[room].add(theirs)
        if theirs not in may.get(room, ()):
            wrong.append(f'{path}: src/{room} may not use src/{theirs}, whose '
                         f'{other} has {", ".join(sorted(names))}')
for room, others in may.items():
    for other in sorted(others - used[room]):
        wrong.append(f'tools/layers.txt: {room} does not use {other}')
for part in circles(needs):
    wrong.append('these need each other:')
    for path in part:
        for other in sorted(set(needs[path]) & set(part)):
            wrong.append(f'    {path} calls {other} for '
                         f'{", ".join(sorted(needs[path][other]))}')
print('\n'.join(wrong) or 'layers: all includes are allowed, no circles')
sys.exit(bool(wrong))
