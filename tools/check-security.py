#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks that each claim of SECURITY.md names a test, and that the tests exist.

    tools/check-security.py [SOURCE_ROOT]

A claim is a row of a table. Its last cell names the evidence: `FILE`, or `FILE`
(`NAME`, ...) with tests that the file defines and runs, or "not tested:" and the
reason. A meson.build or shell script names each file, so that it runs, or the
fuzzing stage runs it.
"""
import pathlib
import re
import sys

root = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else '.')
page = root / 'SECURITY.md'
problems = []


def reject(number, text):
    problems.append(f'SECURITY.md:{number}: {text}')


def runs(text, name):
    """Returns whether a C or Python test file defines and runs this test."""
    return re.search(rf'\bRUN(?:_VIRTUAL)?\({name}\)', text) or re.search(
        rf'^@test\n(?:@\w+(?:\(.*\))?\n)*def {name}\(', text, re.M)


def read_scripts():
    """Returns the text of all build files and shell scripts."""
    found = []
    for pattern in ('**/meson.build', 'tests/**/*.sh', 'tools/*.sh', 'test.sh'):
        for path in root.glob(pattern):
            if not path.relative_to(root).parts[0].startswith('build'):
                found.append(path.read_text())
    return '\n'.join(found)


def is_run(path, scripts):
    """Finds a file by its name, or by the part that occurs in a list."""
    name = path.stem
    short = re.sub(r'^(?:test|fuzz|check)[-_]', '', name)
    return (path.name in scripts or f"'{short}'" in scripts or
            f"'{name}'" in scripts)


scripts = read_scripts()
text = page.read_text() if page.exists() else ''
for number, line in enumerate(text.splitlines(), 1):
    for name, of in re.findall(
            r'`((?:tests|tools)/[^`\s]+)`(?:\s\(((?:`\w+`(?:,\s)?)+)\))?', line):
        path = root / name
        if not path.is_file():
            reject(number, f'{name} does not exist')
            continue
        if not is_run(path, scripts):
            reject(number, f'nothing runs {name}')
        for test in re.findall(r'\w+', of):
            if not runs(path.read_text(), test):
                reject(number, f'{name} does not run a test {test}')
    cells = line.strip().strip('|').split('|')
    if line.startswith('|') and not re.fullmatch(r'[-| ]+', line):
        if 'seen by' in cells[-1]:
            continue
        if not re.search(r'`(?:tests|tools)/|not tested: \w', cells[-1]):
            reject(number, 'a claim without a test')
if not re.search(r'^\|.*seen by', text, re.M):
    problems.append('SECURITY.md: no claims')

print('\n'.join(problems))
sys.exit(bool(problems))
