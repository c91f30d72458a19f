# SPDX-License-Identifier: Apache-2.0
"""Imports longhaul as installed by pip, or skips the test with a reason."""
import os
import pathlib
import sys

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent / "cli"), str(HERE.parent / "peers")]
from skip_without import skip_without  # noqa: E402

if os.environ.pop("LD_LIBRARY_PATH", None):  # another library than its own
    os.execv(sys.executable, [sys.executable, *sys.argv])
try:
    import longhaul  # noqa: F401
except ImportError as error:
    skip_without("longhaul", error, "LONGHAUL_PYTHON", "the Python package")
