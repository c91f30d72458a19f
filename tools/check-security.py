#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Every claim of SECURITY.md names a test, and each test that it names exists.

    tools/check-security.py [FOLDER of the sources]

A claim is a row of a table; its last cell says by what it is seen: `FILE`, or
`FILE` (`NAME`, ...) with tests that the file has and runs, or "not tested:" and
why. Files are named by some meson.build or shell script, so that they are run,
or are what the fuzzing stage runs.
"""
import pathlib
import re
import sys

root = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else '.')
page = root / 'SECURITY.md'
wrong = []


def refuse(number, text):
    wrong.append(f'SECURITY.md:{number}: {text}')


def runs(text, name):
    """Whether a test file of C or Python has this test and runs it."""
    return re.search(rf'\bRUN\({name}\)', text) or re.search(
        rf'^@test\n(?:@\w+(?:\(.*\))?\n)*def {name}\(', text, re.M)


def scripts():
    """What is said to be run: text of all build files and shell scripts."""
    found = []
    for pattern in ('**/meson.build', 'tests/**/*.sh', 'tools/*.sh', 'test.sh'):
        for path in root.glob(pattern):
            if not path.relative_to(root).parts[0].startswith('build'):
                found.append(path.read_text())
    return '\n'.join(found)


def is_run(path, said):
    """By its name, or by the part of it that a list of such has."""
    name = path.stem
    short = re.sub(r'^(?:test|fuzz|check)[-_]', '', name)
    return path.name in said or f"'{short}'" in said or f"'{name}'" in said


said = scripts()
text = page.read_text() if page.exists() else ''
for number, line in enumerate(text.splitlines(), 1):
    for name, of in re.findall(
            r'`((?:tests|tools)/[^`\s]+)`(?:\s\(((?:`\w+`(?:,\s)?)+)\))?', line):
        path = root / name
        if not path.is_file():
            refuse(number, f'there is no {name}')
            continue
        if not is_run(path, said):
            refuse(number, f'nothing runs {name}')
        for test in re.findall(r'\w+', of):
            if not runs(path.read_text(), test):
                refuse(number, f'{name} runs no test {test}')
    cells = line.strip().strip('|').split('|')
    if line.startswith('|') and not re.fullmatch(r'[-| ]+', line):
        if 'seen by' in cells[-1]:
            continue
        if not re.search(r'`(?:tests|tools)/|not tested: \w', cells[-1]):
            refuse(number, 'a claim without a test')
if not re.search(r'^\|.*seen by', text, re.M):
    wrong.append('SECURITY.md: has no claims')

print('\n'.join(wrong))
sys.exit(bool(wrong))
