#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Prints src/runtime/device/unicode.h: which characters are letters (L*) and numbers (N*),
by Python's copy of the Unicode Character Database.

    tools/make-unicode.py >src/runtime/device/unicode.h
"""
import unicodedata


def ranges(kind):
    found = []
    for c in range(0x110000):
        if unicodedata.category(chr(c))[0] == kind:
            if found and found[-1][1] == c - 1:
                found[-1][1] = c
            else:
                found.append([c, c])
    return found


print('/* SPDX-License-Identifier: Apache-2.0 */')
print(f'/* Unicode {unicodedata.unidata_version}; made by '
      'tools/make-unicode.py. */')
print('#ifndef LHI_UNICODE_H\n#define LHI_UNICODE_H\n')
print('#include <stdint.h>\n')
print('typedef struct lhi_range {\n    uint32_t first, last;\n} lhi_range;\n')
for name, kind in (('letters', 'L'), ('numbers', 'N')):
    print(f'static const lhi_range lhi_{name}[] = {{')
    line = '   '
    for a, b in ranges(kind):
        item = f' {{{a:#x}, {b:#x}}},'
        if len(line + item) > 80:
            print(line)
            line = '   '
        line += item
    print(line + '\n};\n')
print('#endif')
