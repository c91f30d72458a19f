# SPDX-License-Identifier: Apache-2.0
"""Imports longhaul as installed by pip, or skips the test with a reason."""
import pathlib
import sys

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent / "cli"), str(HERE.parent / "peers")]
from library_path import leave_built_library  # noqa: E402
from skip_without import skip_without  # noqa: E402

leave_built_library()
try:
    import longhaul  # noqa: F401
except ImportError as error:
    skip_without("longhaul", error, "LONGHAUL_PYTHON", "the Python package")
