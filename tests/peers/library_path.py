# SPDX-License-Identifier: Apache-2.0
"""Keeps the build's library out of Python's processes."""
import os
import pathlib
import sys


def leave_built_library():
    """Restarts this program without the folders of liblonghaul.so in
    LD_LIBRARY_PATH, if it has any: the Python package has its own library."""
    folders = os.environ.get("LD_LIBRARY_PATH", "").split(":")
    others = [one for one in folders
              if not (pathlib.Path(one) / "liblonghaul.so").exists()]
    if others != folders:
        os.environ["LD_LIBRARY_PATH"] = ":".join(others)
        os.execv(sys.executable, [sys.executable, *sys.argv])
