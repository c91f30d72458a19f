#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks header guards, duplicate definitions and retired words.

    tools/check-names.py [SOURCE_ROOT]

- A header's guard follows from its path: LHI_BASE_HEAP_H for src/base/heap.h,
  CLI_HELP_H for cli/help.h, CLI_H for cli/cli.h, LONGHAUL_PLAN_H for
  include/longhaul/plan.h.
- Every lh_, lhi_ and cli_ function, table and type is defined once.
- Retired words do not occur. tools/retired-words.tsv lists them, in lines of three
  columns; the third column selects the checks of a line, separated by commas:
    name  identifiers of C, Python and JavaScript: the word, or its plural with
          s, as a complete part (`lent` in lent_to, not in silent). A word that
          ends with _ only counts where _ follows in the identifier.
    file  file names without suffix, below src, cli, include, python and wasm
    text  phrases in documents (*.md), and in all files of cli and src/report;
          upper and lower case are equal
"""
import collections
import functools
import io
import os
import pathlib
import re
import sys
import tokenize

root = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else '.')
SOURCES = ('include', 'src', 'cli', 'python', 'wasm')
CHECKS = {'name', 'file', 'text'}
RETIRED = 'tools/retired-words.tsv'
problems = []


def list_files(top):
    """Returns paths relative to the root, without hidden and build folders."""
    found = []
    for folder, folders, names in os.walk(root / top):
        inside = pathlib.Path(folder).relative_to(root)
        folders[:] = sorted(name for name in folders if not re.match(
            r'\.|__pycache__$' if inside.parts else r'\.|build|shared$', name))
        found += [(inside / name).as_posix() for name in sorted(names)]
    return found


def read(name):
    return (root / name).read_text(encoding='utf-8', errors='replace')


def strip_c(text):
    """Removes comments and the contents of strings."""
    text = re.sub(r'/\*.*?\*/', ' ', text, flags=re.S)
    return re.sub(r'"(\\.|[^"\\\n])*"', '""', text)


def strip_javascript(text):
    text = re.sub(r'`(\\.|[^`\\])*`|\'(\\.|[^\'\\\n])*\'', '""', strip_c(text))
    return re.sub(r'(^|\s)//[^\n]*', ' ', text)


def list_identifiers(name):
    text = read(name)
    if name.endswith('.py'):
        return {token.string for token in
                tokenize.generate_tokens(io.StringIO(text).readline)
                if token.type == tokenize.NAME}
    text = strip_javascript(text) if name.endswith('.js') else strip_c(text)
    return set(re.findall(r'\b[A-Za-z_]\w*', text))


# --- header guards and definitions -----------------------------------------------
def guard_of(name):
    if name == 'cli/cli.h':
        return 'CLI_H'
    top, *rest = name.removesuffix('.h').split('/')
    prefix = {'include': '', 'src': 'LHI_', 'cli': 'CLI_'}[top]
    return prefix + re.sub(r'\W', '_', '/'.join(rest)).upper() + '_H'


def check_guard(name, text):
    guard = guard_of(name)
    if not re.search(rf'^#ifndef {guard}\n#define {guard}$', text, re.M):
        problems.append(f'{name}: the header guard must be {guard}')


def list_definitions(text):
    """Yields (name, kind). A tag and its typedef are one definition."""
    symbol = r'((?:lhi?|cli)_\w+)'
    declarator = r'[A-Za-z][\w\s*]*?[\s*]' + symbol
    for found in re.finditer(r'\b(?:struct|union|enum)\s+' + symbol + r'\s*\{',
                             text):
        yield found[1], 'type'
    for found in re.finditer(r'^typedef\s[^;{]*?\b' + symbol + r'[;)]', text,
                             re.M):
        if not re.fullmatch(rf'typedef\s+(struct|union|enum)\s+{found[1]}\s+'
                            rf'{found[1]};', found[0]):
            yield found[1], 'type'
    for found in re.finditer(r'^(?!extern|typedef|return|struct \w+;)' +
                             declarator + r'\([^;{}]*\)\s*\{', text, re.M):
        yield found[1], 'function'
    for found in re.finditer(r'^(?!extern|typedef|return)' + declarator +
                             r'(?:\[[^\]]*\])*\s*=[^=]', text, re.M):
        yield found[1], 'table'


sources = [name for top in SOURCES for name in list_files(top)]
definitions = collections.defaultdict(set)
for name in sources:
    if name.endswith(('.c', '.h')) and name.startswith(('include/', 'src/',
                                                        'cli/')):
        code = strip_c(read(name))
        if name.endswith('.h'):
            check_guard(name, code)
        for symbol, kind in list_definitions(code):
            definitions[symbol].add((name, kind))
for symbol, places in sorted(definitions.items()):
    if len(places) > 1:
        problems.append(f'{symbol} is defined more than once: ' + ', '.join(
            f'{kind} in {name}' for name, kind in sorted(places)))


# --- retired words ---------------------------------------------------------------
def read_retired():
    """Returns the retired words and their replacements, for each check."""
    retired = {check: {} for check in CHECKS}
    if not (root / RETIRED).is_file():
        problems.append(f'{RETIRED} does not exist')
        return retired
    for number, line in enumerate(read(RETIRED).splitlines(), 1):
        if line.startswith('#'):
            continue
        row = line.split('\t')
        checks = set(re.findall(r'\w+', row[2])) if len(row) == 3 else set()
        if not checks or checks - CHECKS:
            problems.append(f'{RETIRED}:{number}: {row[0]} must have three '
                            'columns, the third with name, file or text')
            continue
        words = re.sub(r'\(.*?\)|`', '', row[0]).split(',')
        for check in checks:
            retired[check].update((word.strip(), row[1]) for word in words)
    return retired


def pattern_of_name(word):
    parts = re.escape(word.rstrip('_').replace(' ', '_').lower())
    return rf'(?:^|_){parts}' + ('_' if word.endswith('_') else 's?(?:_|$)')


def compile_any(patterns):
    """Compiles a pattern that matches if any of these does."""
    return re.compile('|'.join(patterns) or r'(?!)', re.I)


def split_camel_case(identifier):
    return re.sub(r'(?<=[a-z\d])(?=[A-Z])', '_', identifier)


@functools.cache
def list_retired(identifier):
    """Returns the retired words in an identifier. Splits camelCase, except for
    a word that ends with _."""
    split = split_camel_case(identifier)
    if not (any_name.search(split) or any_prefix.search(identifier)):
        return []
    return [word for word in retired['name'] if re.search(
        pattern_of_name(word), identifier if word.endswith('_') else split,
        re.I)]


def join_text(text):
    """Joins adjacent C strings, and the lines of a comment or paragraph."""
    text = re.sub(r'"\s*\n\s*"', '', text)
    text = re.sub(r'\n\s*(?:\*|//|#|>)\s', ' ', text)
    return re.sub(r'\s+', ' ', text)


retired = read_retired()
any_name = compile_any(pattern_of_name(word) for word in retired['name']
                       if not word.endswith('_'))
any_prefix = compile_any(pattern_of_name(word) for word in retired['name']
                         if word.endswith('_'))
for name in sources:
    if not name.endswith(('.c', '.h', '.py', '.js')):
        continue
    for identifier in sorted(list_identifiers(name)):
        problems += [f'{name}: {identifier}: "{word}" is retired, use: '
                     f'{retired["name"][word]}'
                     for word in list_retired(identifier)]
for name in sources:
    stem = pathlib.PurePath(name).stem.replace('-', '_')
    for word, better in retired['file'].items():
        if stem == word.replace(' ', '_'):
            problems.append(f'{name}: the file name "{word}" is retired, use: '
                            f'{better}')
texts = [name for name in list_files('.')
         if name.startswith(('cli/', 'src/report/')) or
         name.endswith('.md') and not name.startswith('tests/')]
any_text = compile_any(rf'\b{re.escape(word)}\b' for word in retired['text'])
for name in texts:
    text = join_text(read(name))
    if not any_text.search(text):
        continue
    for word, better in retired['text'].items():
        for found in re.finditer(rf'\b{re.escape(word)}\b', text, re.I):
            context = text[max(found.start() - 20, 0):found.end() + 20]
            problems.append(f'{name}: "{context}": "{word}" is retired, use: '
                            f'{better}')

print('\n'.join(problems) or
      f'names: {len(definitions)} names, each defined once; '
      f'{len(set().union(*retired.values()))} retired words, none in use')
sys.exit(bool(problems))
