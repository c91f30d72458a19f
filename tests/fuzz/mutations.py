# SPDX-License-Identifier: Apache-2.0
"""Mutations of files: each takes a random generator and bytes and returns other bytes.
They work on any kind of file; a mutation without a target in a file returns it
unchanged.
"""
import json
import re

# Replacements of numbers and values.
NUMBERS = [b"0", b"-1", b"1", b"-0.0", b"0.5", b"2.5", b"1e308", b"-1e308",
           b"1e400", b"1e-320", b"NaN", b"nan", b".nan", b".inf", b"-.inf",
           b"Infinity", b"2147483647", b"2147483648", b"4294967295",
           b"4294967296", b"9223372036854775807", b"9223372036854775808",
           b"18446744073709551615", b"99999999999999999999999", b"0x10",
           b"007", b"1_000", b"+1", b"1e", b"--1", b"1048576", b"65536", b"3",
           b"7", b"100"]
VALUES = [b"null", b"~", b"true", b"false", b"[]", b"{}", b"[1]", b"{a: 1}",
          b'{"a": 1}', b"'text'", b'"text"', b'""', b"''", b"*alias",
          b"&anchor 1", b"!!int 1", b"!tag x", b"? x", b"|", b">", b"%x",
          b"[[[[[[1]]]]]]", b'"\\u0000"', b'"\\ud800"', b'"\\u202e"',
          b'"\\u001b[31m"', b"-", b"..", b"/etc/passwd", b"../../x", b"a" * 300]
# Bytes that are invalid in text, and text of other formats.
FOREIGN = [b"\x00", b"\x1b[31m", b"\x1b]0;title\x07", b"\x07", b"\x08", b"\x7f",
           b"\x0c", b"\x0b", b"\t", b"\r", b"\xff", b"\xfe", b"\x80", b"\xc0\xaf",
           b"\xed\xa0\x80", b"\xf5\x80\x80\x80", b"\xe2\x82", b"\xc2\x9b31m",
           "\u202e".encode(), "\u2066".encode(), "\u2028".encode(),
           "\u0085".encode(), "\ufeff".encode(), "\U0010ffff".encode(),
           "\u00e9".encode(), b"%n%s", b"<script>alert(1)</script>", b"#", b":",
           b",", b"'", b'"', b"[", b"]", b"{", b"}", b"---\n", b"...\n"]
NUMBER = re.compile(rb"-?\d+(?:\.\d+)?(?:[eE][-+]?\d+)?")
WORD = re.compile(rb"[A-Za-z_][A-Za-z_0-9.-]*")
PAIR = re.compile(rb'"?[A-Za-z_][A-Za-z_0-9]*"?\s*:\s*(?:"[^"\n]*"|[^\s,\[\]{}]+)')
LARGEST = 1 << 18


def _at(rng, data):
    """Returns a position in the data: anywhere, or with probability 1/2 near
    the beginning, where headers are."""
    if rng.random() < .5:
        return rng.randrange(min(len(data), 200) + 1)
    return rng.randrange(len(data) + 1)


def _range(rng, data):
    begin = _at(rng, data)
    length = int(2 ** rng.uniform(0, 8))
    return begin, min(begin + length, len(data))


def _one(rng, pattern, data):
    found = list(pattern.finditer(data))
    return rng.choice(found) if found else None


def _put(data, match, new):
    if match is None:
        return data
    return data[:match.start()] + new + data[match.end():]


# --- bytes --------------------------------------------------------------------
def flip_a_bit(rng, data):
    if not data:
        return data
    at = min(_at(rng, data), len(data) - 1)
    return data[:at] + bytes([data[at] ^ 1 << rng.randrange(8)]) + data[at + 1:]


def other_bytes(rng, data):
    begin, end = _range(rng, data)
    return data[:begin] + rng.randbytes(end - begin) + data[end:]


def insert_foreign(rng, data):
    at = _at(rng, data)
    return data[:at] + rng.choice(FOREIGN) + data[at:]


def delete_range(rng, data):
    begin, end = _range(rng, data)
    return data[:begin] + data[end:]


def double_range(rng, data):
    begin, end = _range(rng, data)
    return data[:end] + data[begin:end] * rng.choice([1, 1, 2, 50]) + data[end:]


def swap_ranges(rng, data):
    a, b = sorted([_range(rng, data), _range(rng, data)])
    if a[1] > b[0]:
        return data
    return (data[:a[0]] + data[b[0]:b[1]] + data[a[1]:b[0]] +
            data[a[0]:a[1]] + data[b[1]:])


def truncate(rng, data):
    return data[:rng.randrange(len(data) + 1)]


def more_at_the_end(rng, data):
    return data + rng.choice([b"\n", b"\0", b"}", b"]", b"x", b"---\n", b"...",
                              data, rng.randbytes(40), b"\n" * 3000])


def byte_order_mark(rng, data):
    mark = rng.choice([b"\xef\xbb\xbf", b"\xff\xfe", b"\xfe\xff"])
    if rng.random() < .3:
        return mark + data.decode("latin1").encode("utf-16-le")
    return mark + data


def other_line_ends(rng, data):
    return data.replace(b"\n", rng.choice([b"\r\n", b"\r", b"\n\n", b"\x00",
                                           "\u2028".encode(), b" "]))


def nothing(rng, data):
    return rng.choice([b"", b"\n", b" ", b"{}", b"[]", b"#", data[:1]])


# --- text ---------------------------------------------------------------------
def other_number(rng, data):
    return _put(data, _one(rng, NUMBER, data), rng.choice(NUMBERS))


def near_number(rng, data):
    """Changes a number slightly, so that it is often in range."""
    match = _one(rng, NUMBER, data)
    if match is None:
        return data
    try:
        value = float(match[0][:15])
    except ValueError:  # truncated within an exponent
        return data
    new = rng.choice([value + 1, value - 1, value * 2, value / 2, value * 10,
                      value / 10, -value])
    text = str(int(new)) if new.is_integer() else repr(new)
    return _put(data, match, text.encode())


def wrong_type(rng, data):
    return _put(data, _one(rng, rng.choice([NUMBER, WORD]), data),
                rng.choice(VALUES))


def other_word(rng, data):
    """Replaces a word by another word of the file, or by an unknown one."""
    match, other = _one(rng, WORD, data), _one(rng, WORD, data)
    if match is None:
        return data
    new = rng.choice([other[0], match[0] + b"x", match[0][:-1], b"unheard_of",
                      match[0].upper(), match[0] * 20])
    return _put(data, match, new)


def key_twice(rng, data):
    match = _one(rng, PAIR, data)
    if match is None:
        return data
    glue = rng.choice([b", ", b"\n"])
    return _put(data, match, match[0] + glue + match[0])


def key_missing(rng, data):
    return _put(data, _one(rng, PAIR, data), b"")


def key_unknown(rng, data):
    match = _one(rng, PAIR, data)
    if match is None:
        return data
    return _put(data, match, match[0] + rng.choice(
        [b", unheard_of: 1", b"\nunheard_of: 1", b', "unheard_of": 1',
         b', "\\u001b": 1', b', "": 1']))


def _lines(change):
    def mutation(rng, data):
        lines = data.split(b"\n")
        change(rng, lines, rng.randrange(len(lines)))
        return b"\n".join(lines)
    mutation.__name__ = change.__name__
    return mutation


@_lines
def line_missing(rng, lines, i):
    del lines[i]


@_lines
def line_twice(rng, lines, i):
    lines[i:i] = [lines[i]] * rng.choice([1, 1, 1, 40])


@_lines
def lines_swapped(rng, lines, i):
    other = rng.randrange(len(lines))
    lines[i], lines[other] = lines[other], lines[i]


@_lines
def line_indented(rng, lines, i):
    lines[i] = rng.choice([b" ", b"  ", b"\t", b"- "]) + lines[i]


@_lines
def line_long(rng, lines, i):
    lines[i] += rng.choice([b" ", b"x", b"9", b",", b"# "]) * 60000


def cells_swapped(rng, data):
    """Exchanges cells of a file of comma-separated cells or items."""
    cells = data.split(b",")
    a, b = rng.randrange(len(cells)), rng.randrange(len(cells))
    cells[a], cells[b] = cells[b], cells[a]
    return b",".join(cells)


def cell_twice(rng, data):
    cells = data.split(b",")
    a = rng.randrange(len(cells))
    cells[a:a] = [cells[rng.randrange(len(cells))]]
    return b",".join(cells)


def deep(rng, data):
    """Inserts nested brackets, closed or not."""
    depth = rng.choice([20, 200, 5000])
    opened, closed = rng.choice([(b"[", b"]"), (b'{"a":', b"}"), (b"{a: ", b"}"),
                                 (b"- ", b"")])
    inner = opened * depth + b"1" + closed * rng.choice([depth, depth - 1, 0])
    return _put(data, _one(rng, NUMBER, data), inner)


# --- trees --------------------------------------------------------------------
def _containers(tree):
    found = []
    stack = [tree]
    while stack:
        node = stack.pop()
        if isinstance(node, (dict, list)) and node:
            found.append(node)
            stack.extend(node.values() if isinstance(node, dict) else node)
    return found


def tree(rng, data):
    """Changes one of a JSON text's values: removes, moves or duplicates it, or
    changes its type."""
    try:
        text = json.loads(data)
    except (ValueError, RecursionError):
        return data
    nodes = _containers(text)
    if not nodes:
        return data
    node = rng.choice(nodes)
    key = rng.choice(list(node) if isinstance(node, dict)
                     else range(len(node)))
    what = rng.randrange(6)
    if what == 0:
        del node[key]
    elif what == 1:
        node[key] = rng.choice([0, -1, 1e308, 2**63, 2**31, 1.5, True, None, "",
                                "x", [], {}, [1], {"a": 1}, [[]]])
    elif what == 2:
        node[key] = rng.choice(nodes)
        return json.dumps(_cut(text, 8)).encode()
    elif isinstance(node, dict):
        node[rng.choice([key + "_", "", "longhaul", "\x1b"])] = node[key]
    elif what == 3:
        node.insert(key, node[rng.randrange(len(node))])
    elif what == 4:
        rng.shuffle(node)
    else:
        node *= 3
    return json.dumps(text).encode()


def _cut(node, depth):
    """Returns the tree without its deep parts, since a part may contain
    itself."""
    if depth == 0:
        return 0
    if isinstance(node, dict):
        return {key: _cut(value, depth - 1) for key, value in node.items()}
    if isinstance(node, list):
        return [_cut(value, depth - 1) for value in node]
    return node


BYTES = [flip_a_bit, other_bytes, insert_foreign, delete_range, double_range,
         swap_ranges, truncate, more_at_the_end]
RARE = [byte_order_mark, other_line_ends, nothing, deep, line_long]
TEXT = [other_number, other_number, near_number, near_number, wrong_type,
        other_word, key_twice, key_missing, key_unknown, line_missing,
        line_twice, lines_swapped, line_indented, cells_swapped, cell_twice,
        tree, tree]
GENTLE = [near_number, near_number, near_number, lines_swapped, line_missing,
          cells_swapped, tree]


def mutate(rng, data):
    """Makes a mutant: mostly one change, sometimes up to four. Also returns
    their names. A third of the mutants have changes that are likely to be
    accepted."""
    said = []
    is_text = b"\0" not in data
    gentle = is_text and rng.random() < .35
    for _ in range(rng.choice([1, 1, 1, 2, 2, 4])):
        if gentle:
            way = rng.choice(GENTLE)
            data = way(rng, data)[:LARGEST]
            said.append(way.__name__)
            continue
        pick = rng.random()
        ways = (RARE if pick < .07 else
                TEXT if is_text and pick < .7 or pick < .2 else BYTES)
        way = rng.choice(ways)
        data = way(rng, data)[:LARGEST]
        said.append(way.__name__)
    return data, said
