#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The notebooks of examples/ run, and reproduce their stored outputs.

    test_notebooks.py PROGRAM ROOT [--write]

Every cell has outputs of the same kinds as in the file. Output on schedules, whose
pipeline never changes, is identical. --write stores the outputs. Needs longhaul
installed by pip, nbclient and ipykernel; $LONGHAUL_PYTHON names a Python that has
them.
"""
import sys

import import_longhaul  # noqa: F401
from skip_without import skip_without

try:
    import ipykernel  # noqa: F401
    import nbclient
    import nbformat
except ImportError as error:
    skip_without("nbclient or ipykernel", error, "LONGHAUL_PYTHON",
            "the notebooks run")

WRITES = "--write" in sys.argv
if WRITES:
    sys.argv.remove("--write")
import harness  # noqa: E402
from harness import HANGS, ROOT, check, long_test, test  # noqa: E402

FOLDER = ROOT / "examples/notebooks"
# Numbers that do not depend on the planner.
EXACT = {"schedules"}


def settle(notebook):
    """Removes progress bars and values of this run."""
    for cell in notebook.cells:
        cell.metadata = {}
        if cell.cell_type != "code":
            continue
        kept = []
        for output in cell.outputs:
            output.get("data", {}).pop("text/plain", None)
            if output.get("name") == "stderr":
                continue
            if output.get("name") and kept and kept[-1].get("name"):
                kept[-1].text += output.text  # a bar was between them
            else:
                kept.append(output)
        cell.outputs = kept
    notebook.metadata["language_info"] = {"name": "python"}


def printed(cell):
    return [output.get("text") for output in cell.get("outputs", [])]


def kinds(cell):
    return [(output["output_type"], sorted(output.get("data", {})))
            for output in cell.get("outputs", [])]


def executed(path):
    notebook = nbformat.read(path, as_version=4)
    nbclient.NotebookClient(
        notebook, timeout=HANGS, kernel_name="python3",
        resources={"metadata": {"path": str(FOLDER)}}).execute()
    return notebook


def holds(name):
    path = FOLDER / f"{name}.ipynb"
    before = nbformat.read(path, as_version=4)
    after = executed(path)
    settle(after)
    if WRITES:
        path.write_text(nbformat.writes(after) + "\n")
    for old, new in zip(before.cells, after.cells, strict=True):
        if old.cell_type != "code":
            continue
        what = f"{name}: {new.source.splitlines()[0]!r}"
        check(kinds(old) == kinds(new), f"{what}: {kinds(new)}")
        if name in EXACT:
            check(printed(old) == printed(new), f"{what}: {printed(new)}")
    text = path.read_text()
    check("/home/" not in text and str(ROOT) not in text, f"{name}: paths")


@test
def the_first_plan_runs():
    holds("first-plan")


@test
def schedules_run():
    holds("schedules")


@long_test
def what_if_runs():
    holds("what-if")


harness.finish()
