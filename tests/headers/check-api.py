#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks the rules of docs/develop.md, "The API", that headers show.

check-api.py FOLDER: FOLDER has include and tests/unit/test_api.c. Prints a
line for each rule that a header violates, and fails if there is one. Also checks the
two tiers: headers outside longhaul/experimental are stable, longhaul.h includes all
of them, and none includes an experimental one.
"""
import pathlib
import re
import sys

# Values that are words of the field, not of an enumeration of ours.
WORDS = {'lh_status', 'lh_pass_kind', 'lh_assignment', 'lh_collective_kind'}

EXPERIMENTAL = 'longhaul/experimental/'
PLEDGE = 'Experimental: may change in any release, see longhaul.h.'
wrong = []


def say(header, what):
    wrong.append(f'{header.name}: {what}')


def without_comments(text):
    return re.sub(r'/\*.*?\*/', ' ', text, flags=re.S)


def functions(code):
    """(return type with LH_API, name, parameters) of each declaration."""
    flat = re.sub(r'^#(?:.*\\\n)*.*$', '', code, flags=re.M)
    flat = re.sub(r'extern "C" \{', '', flat)
    while '{' in flat:  # bodies of structs and enumerations
        flat, n = re.subn(r'\{[^{}]*\}', '', flat)
        if n == 0:
            break
    for d in flat.split(';'):
        d = ' '.join(d.split())
        m = re.fullmatch(r'(.*?)\b(\w+)\((.*)\)', d)
        if m:
            params = [] if m[3] == 'void' else m[3].split(', ')
            yield m[1].strip(), m[2], params


def is_output(param):
    """What is pointed to last is not const."""
    return bool(re.fullmatch(r'(?!const [^*]*\*[^*]*$).*\*\s*\w+', param)) and \
        not re.search(r'const\s*\*\s*\w+$', param)


def check_function(header, returned, name, params, code):
    if not returned.startswith('LH_API '):
        say(header, f'{name}() lacks LH_API')
    if not name.startswith('lh_'):
        say(header, f'{name}() does not begin with lh_')
    returned = returned.removeprefix('LH_API ')
    errs = [p for p in params if p.startswith('lh_error')]
    if (returned == 'lh_status') != bool(errs):
        say(header, f'{name}(): lh_status and lh_error *err go together')
    if errs and params[-1] != 'lh_error *err':
        say(header, f'{name}(): the last parameter is not lh_error *err')
    if returned == 'int':
        say(header, f'{name}() returns int: failures are lh_status')
    if returned == 'const char *' and len(params) == 1 and \
            re.search(r'_(text|str|string)$', name):
        say(header, f'{name}(): names of values are _name()')
    if re.search(r'_count$', name):
        say(header, f'{name}(): counts are _n_things()')
    if returned == 'lh_status':
        outputs = False
        for p in params[1:-1]:
            if is_output(p):
                outputs = True
            elif outputs:
                say(header, f'{name}(): {p} stands behind an output')
    for p in params:
        m = re.match(r'(lh_\w+) \*\*out$', p)
        if m and not re.search(
                r'\w+_free\(\s*(const )?%s \*' % m[1], code):
            say(header, f'{name}(): nothing frees an {m[1]}')
        if re.search(r'\b(counts?|num_\w+|\w+_count)$', p):
            say(header, f'{name}(): {p} is not n_things')


def check_struct(header, name, body, sized, tested):
    fields = [f for f in ' '.join(body.split()).split('; ') if f]
    has_size = any(f.startswith('size_t size') for f in fields)
    if has_size and not fields[0].startswith('size_t size'):
        say(header, f'{name}: size is not its first member')
    if has_size and name not in tested:
        say(header, f'{name}: tests/unit/test_api.c does not call anything '
                    'with it')
    for f in fields:
        m = re.match(r'(lh_\w+) \w', f)
        if has_size and m and m[1] in sized:
            say(header, f'{name}: has an {m[1]} that cannot grow in there; '
                        'point to it')
        if re.search(r'\b(counts?|num_\w+|\w+_count)(;|,|$)', f):
            say(header, f'{name}: "{f}": a count is n_things')


def check_enum(header, name, body):
    values = re.findall(r'\b([A-Za-z_]\w*)\s*(?:=[^,]*)?(?:,|$)', body.strip())
    values = [v for v in values if v.isupper() and v != 'X']
    for v in values:
        if not v.startswith('LH_'):
            say(header, f'{v} does not begin with LH_')
    first = {v.split('_')[1] for v in values if not v.startswith('LH_N_')}
    if name and name not in WORDS and len(first) > 1:
        say(header, f'values of {name} begin with different words: '
                    + ', '.join(sorted(first)))


def check_tier(header, path, text, stable):
    experimental = path.startswith(EXPERIMENTAL)
    if experimental != (PLEDGE in ' '.join(re.sub(r'\n \*', ' ', text).split())):
        say(header, f'must say: {PLEDGE}' if experimental else
            'is outside longhaul/experimental, but says that it is experimental')
    included = set(re.findall(r'#\s*include [<"]([^>"]+)', text))
    for other in sorted(included):
        if not experimental and other.startswith(EXPERIMENTAL):
            say(header, f'is stable and includes the experimental {other}')
    if path == 'longhaul.h':
        for other in sorted(stable - included - {path}):
            say(header, f'does not include {other}')


def check_header(header, path, sized, tested, all_code):
    text = header.read_text()
    code = without_comments(text)
    guard = re.sub(r'\W', '_', path.removesuffix('.h')).upper() + '_H'
    if not re.match(r'/\* SPDX[^\n]*\n/\* [A-Z]', text):
        say(header, 'does not begin with what it is for')
    if f'#ifndef {guard}\n#define {guard}\n' not in text:
        say(header, f'the guard is not {guard}')
    if 'extern "C"' not in text and '{' in code:
        say(header, 'lacks extern "C"')
    for f in functions(code):
        check_function(header, *f, all_code)
    for body, name in re.findall(
            r'typedef struct \w+ \{(.*?)\n\} (\w+);', code, re.S):
        check_struct(header, name, body, sized, tested)
    for name, body in re.findall(r'enum (\w*)\s*\{([^}]*)\}', code):
        body = re.sub(r'#.*', '', body)
        check_enum(header, name, body)


def main():
    root = pathlib.Path(sys.argv[1])
    headers = sorted((root / 'include').rglob('*.h'))
    all_code = without_comments('\n'.join(h.read_text() for h in headers))
    sized = set(re.findall(r'typedef struct (\w+) \{\s*size_t size;', all_code))
    test = (root / 'tests/unit/test_api.c').read_text()
    tested = set(re.findall(r'TAKER\((\w+),', test))
    paths = {h: h.relative_to(root / 'include').as_posix() for h in headers}
    stable = {p for p in paths.values() if not p.startswith(EXPERIMENTAL)}
    for h, path in paths.items():
        check_header(h, path, sized, tested, all_code)
        check_tier(h, path, h.read_text(), stable)
    n = {tier: sum(len(list(functions(without_comments(h.read_text()))))
                   for h, path in paths.items() if (path in stable) == tier)
         for tier in (True, False)}
    print('\n'.join(wrong) or f'api: {len(headers)} headers, '
          f'{len(sized)} structs with a size, {n[True]} stable and {n[False]} '
          'experimental functions')
    return bool(wrong)


sys.exit(main())
