#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks the dependencies between modules.

    tools/check-layers.py [SOURCE_ROOT]

- Modules of src/ include and call only modules that tools/layers.txt permits.
  Every permission there is used. No module depends on itself through others.
- cli, bench and examples use the library through <longhaul/...> alone.
- No circular dependencies between files: of headers by #include, of .c files by
  the functions and tables that one defines and another uses.
"""
import collections
import pathlib
import re
import sys

root = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else '.')
problems = []


def strip_c(text):
    """Removes comments and strings."""
    text = re.sub(r'/\*.*?\*/', ' ', text, flags=re.S)
    text = re.sub(r'//[^\n]*', ' ', text)
    return re.sub(r'"(\\.|[^"\\\n])*"', '""', text)


def find_cycles(needs):
    """Returns the strongly connected components of more than one node
    (Tarjan)."""
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


# Includes.
may = {}
for line in (root / 'tools/layers.txt').read_text().splitlines():
    if ':' in line and not line.startswith('#'):
        module, others = line.split(':')
        may[module] = set(others.split())
for part in find_cycles(may):
    problems.append(f'tools/layers.txt: {", ".join(part)} depend on each other')
used = collections.defaultdict(set)
included = collections.defaultdict(set)
for path in sorted(p for top in ('src', 'cli', 'bench', 'examples', 'include')
                   for p in (root / top).rglob('*.[ch]')):
    inside = path.relative_to(root)
    outside = inside.parts[0] != 'src'
    module = inside.parent.relative_to('src').as_posix() if not outside else ''
    if not outside and module not in may:
        problems.append(f'{inside}: src/{module} is not in tools/layers.txt')
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
        if outside:  # own headers and generated ones are permitted
            bad = '..' in header or (root / 'src' / header).exists()
            target = f'{inside.parts[0]}/{header}'
        else:
            bad = theirs != module and theirs not in may[module]
            if theirs != module:
                used[module].add(theirs)
            target = 'src/' + header
        if bad:
            problems.append(f'{inside}:{number}: src/{module} may not include '
                            f'"{header}"' if module else f'{inside}:{number}: '
                            f'{inside.parts[0]} may not include "{header}"')
        if path.suffix == '.h':
            included[inside.as_posix()].add(target)
for part in find_cycles(included):
    problems.append('headers include each other: ' + ', '.join(part))

# Calls.
texts = {p.relative_to(root).as_posix(): strip_c(p.read_text())
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
                problems.append(f'{path}: {found[1]} is also defined in {other}')
needs = collections.defaultdict(lambda: collections.defaultdict(set))
for path, text in texts.items():
    for word in re.findall(r'\b(?:lhi?|cli)_\w+', text):
        if defined.get(word, path) != path:
            needs[path][defined[word]].add(word)
for path, others in needs.items():
    module = pathlib.PurePath(path).parent.as_posix().removeprefix('src/')
    for other, names in others.items():
        theirs = pathlib.PurePath(other).parent.as_posix().removeprefix('src/')
        if path.startswith('cli/') or theirs == module:
            continue
        used[module].add(theirs)
        if theirs not in may.get(module, ()):
            problems.append(f'{path}: src/{module} may not use src/{theirs}: '
                            f'{", ".join(sorted(names))} in {other}')
for module, others in may.items():
    for other in sorted(others - used[module]):
        problems.append(f'tools/layers.txt: {module} does not use {other}')
for part in find_cycles(needs):
    problems.append('these files depend on each other:')
    for path in part:
        for other in sorted(set(needs[path]) & set(part)):
            problems.append(f'    {path} calls {other} for '
                         f'{", ".join(sorted(needs[path][other]))}')
print('\n'.join(problems) or 'layers: all dependencies are permitted, no cycles')
sys.exit(bool(problems))
