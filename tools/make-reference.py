#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes the reference of the Python package, longhaul and longhaul.torch, from its
docstrings as one self-contained HTML page.

    tools/make-reference.py -o reference.html

Needs a Python with longhaul, torch and pdoc.
"""
import argparse
import pathlib
import re

import longhaul
import longhaul.torch
import pdoc.doc
import pdoc.render

MAIN = re.compile(r"<main class=\"pdoc\">.*?</main>", re.S)
CONTENTS = re.compile(r"<nav class=\"pdoc\">.*?</nav>", re.S)
# Links between the two pages, or within one.
LINKS = re.compile(r"(?<=href=\")[./]*longhaul(/torch)?\.html#?")


def page():
    pdoc.render.configure(docformat="google", search=False, show_source=False,
                          footer_text=f"longhaul {longhaul.__version__}")
    for name in longhaul.__all__:  # some are imported at first use
        getattr(longhaul, name)
    modules = {m.__name__: pdoc.doc.Module(m)
               for m in (longhaul, longhaul.torch)}
    first, second = (pdoc.render.html_module(module=one, all_modules=modules)
                     for one in modules.values())
    for part in (MAIN, CONTENTS):
        both = part.search(first)[0] + part.search(second)[0]
        first = part.sub(lambda _: both, first)
    return LINKS.sub("#", first)


def main():
    options = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    options.add_argument("-o", "--output", required=True)
    pathlib.Path(options.parse_args().output).write_text(page())


main()
