#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The reference of the Python package: one page with the complete public API, each
entry with a docstring.

Needs torch ($LONGHAUL_TORCH names a Python that has it), and longhaul and pdoc,
which may belong to another Python that $LONGHAUL_PYTHON names.
"""
import inspect
import os
import pathlib
import re
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "cli"), str(HERE.parent / "peers")]
from import_torch import longhaul  # noqa: E402
from skip_without import skip_without  # noqa: E402

try:
    import pdoc  # noqa: F401
except ImportError as error:
    skip_without("pdoc", error, "", "the Python package's reference")

import harness  # noqa: E402
import longhaul.torch  # noqa: E402, F811
from harness import ROOT, WORK, check, test  # noqa: E402


@test
def everything_public_is_on_one_page():
    done = subprocess.run(
        [sys.executable, "-W", "error::UserWarning:pdoc",
         ROOT / "tools/make-reference.py", "-o", WORK / "r.html"], text=True,
        stderr=subprocess.PIPE, env={**os.environ, "PYTHONPATH": os.pathsep.join(
            path for path in sys.path if "site-packages" in path)})
    if not check(done.returncode == 0, done.stderr):
        return
    page = (WORK / "r.html").read_text()
    has = set(re.findall(r'id="([\w.]+)"', page))
    for module in (longhaul, longhaul.torch):
        for name in module.__all__:
            thing = getattr(module, name)
            check(name in has and inspect.getdoc(thing), f"{name} is not there")
            for method, of in vars(thing).items() if isinstance(
                    thing, type) else ():
                if not method.startswith("_") and inspect.isfunction(of):
                    check(f"{name}.{method}" in has, f"{name}.{method}")
    elsewhere = set(re.findall(r'(?:src|href)="(?!#|data:|https?:|")([^"]+)"',
                               page))
    check(not elsewhere, f"it needs {elsewhere}")


harness.finish()
