# SPDX-License-Identifier: Apache-2.0
"""Imports torch and longhaul, or skips the test with a reason."""
import os
import subprocess
import sys

from library_path import leave_built_library
from skip_without import skip_without

leave_built_library()
try:
    import torch  # noqa: F401
except ImportError as error:
    skip_without("torch", error, "LONGHAUL_TORCH", "longhaul.torch")
try:
    import longhaul
except ImportError:
    # The package is in another Python's folder, and compatible with this one.
    if other := os.environ.get("LONGHAUL_PYTHON"):
        sys.path.append(subprocess.run(
            [other, "-c", "import longhaul, pathlib;"
             "print(pathlib.Path(longhaul.__file__).parents[1])"],
            check=True, text=True, stdout=subprocess.PIPE).stdout.strip())
    try:
        import longhaul  # noqa: F401
    except ImportError as error:
        skip_without("longhaul", error, "", "longhaul.torch")
