#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The stylesheet of reports: text is readable (contrast AA of WCAG 2), and each colour
has one meaning. Needs no browser.

    test_colors.py SOURCE_ROOT
"""
import itertools
import math
import os
import re
import sys

from pages import check, contrast, finish, linear, luminance, parts

PAGE = os.path.join(sys.argv[1], "src", "report", "page")
AA, GRAPHICS = 4.5, 3.0  # contrast of text, and of lines and marks
SHADE = 0.45  # factor by which colors.js shades a device's last chunk
APART = 12  # minimum distance of two colours in CIELAB that readers distinguish
KINDS = ["f", "d", "w", "b", "dp"]


def lab(color):
    r, g, b = linear(color)
    x = (0.4124 * r + 0.3576 * g + 0.1805 * b) / 0.95047
    y = 0.2126 * r + 0.7152 * g + 0.0722 * b
    z = (0.0193 * r + 0.1192 * g + 0.9505 * b) / 1.08883
    x, y, z = (v ** (1 / 3) if v > 0.008856 else 7.787 * v + 16 / 116
               for v in (x, y, z))
    return 116 * y - 16, 500 * (x - y), 200 * (y - z)


def shaded(color, label):
    to = 0 if luminance(label) > 0.5 else 255
    return "#" + "".join(f"{round(c + (to - c) * SHADE):02x}"
                         for c in parts(color))


def themes():
    with open(os.path.join(PAGE, "report.css"), encoding="utf-8") as f:
        css = f.read()
    pattern = re.compile(r"--([\w-]+):\s*(#[0-9a-f]{6});")
    light = dict(pattern.findall(css.split(":root {")[1].split("}")[0]))
    dark = dict(pattern.findall(
        css.split(':root[data-theme="dark"] {')[1].split("}")[0]))
    return {"light": light, "dark": {**light, **dark}}


def test_text(name, colors):
    pairs = [(text, behind) for text in ("ink", "soft", "faint", "good", "bad",
                                         "accent")
             for behind in ("panel", "bg")]
    pairs += [("ink", "accent-soft"), ("ink", "track"), ("soft", "track"),
              ("ink", "site"), ("panel", "accent"), ("panel", "bad"),
              ("panel", "ink")]
    pairs += [("ink", f"h{i}") for i in range(4)]
    pairs += [("panel", f"h{i}") for i in range(4, 7)]
    for text, behind in pairs:
        ratio = contrast(colors[text], colors[behind])
        check(ratio >= AA, f"{name}: {text} on {behind} has {ratio:.2f}")
    for kind in KINDS[:4]:
        color = colors[kind]
        label = max((colors["on-dark"], colors["on-light"]),
                    key=lambda text: contrast(text, color))
        for shade in (color, shaded(color, label)):
            ratio = contrast(label, shade)
            check(ratio >= AA, f"{name}: a label on {kind}, {shade}, has "
                  f"{ratio:.2f}")


def test_lines(name, colors):
    for line in ["critical", "queue", "accent"] + [f"s{i}" for i in range(9)]:
        ratio = contrast(colors[line], colors["panel"])
        check(ratio >= GRAPHICS, f"{name}: {line} has {ratio:.2f}")


def test_one_meaning(name, colors):
    groups = {"s": 9, "p": 9, "k": 8, "i": 9}
    meanings = KINDS + ["queue", "flight", "mem", "critical", "accent"] + [
        f"{group}{i}" for group, n in groups.items() for i in range(n)]
    for one, other in itertools.combinations(meanings, 2):
        away = math.dist(lab(colors[one]), lab(colors[other]))
        check(away >= APART, f"{name}: {one} and {other} are {away:.1f} apart")


def test_who_uses_which():
    """Colours of passes are used only for passes; every colour is used."""
    texts = {}
    for name in sorted(os.listdir(PAGE)):
        if name.endswith(".js"):
            with open(os.path.join(PAGE, name), encoding="utf-8") as f:
                texts[name] = f.read()
    passes = re.compile(r"--(?:f|d|w|b|dp)\b")
    for name, text in texts.items():
        check(not passes.search(text), f"{name} names a pass's colour")
    for group, name in {"s": "tables.js", "p": "reasons.js", "k": "panels.js",
                        "i": "tables.js"}.items():
        users = [n for n, t in texts.items() if f"--{group}${{" in t]
        check(users == [name], f"--{group}: {users}")


def test_pictures():
    """Static pictures have the colours of light pages."""
    light = themes()["light"]
    for name, pattern, keys in (
            ("svg.c", r"\[(?:LH_)?[FDWB4]\] = \"(#[0-9a-f]{6})\"", KINDS),
            ("iterations_svg.c", r"[{ ]\"(#[0-9a-f]{6})\"",
             [f"s{i}" for i in range(6)])):
        with open(os.path.join(PAGE, name), encoding="utf-8") as f:
            found = re.findall(pattern, f.read())[:len(keys)]
        check(found == [light[key] for key in keys], f"{name}: {found}")


def main():
    for name, colors in themes().items():
        test_text(name, colors)
        test_lines(name, colors)
        test_one_meaning(name, colors)
    test_who_uses_which()
    test_pictures()
    finish()


main()
