# SPDX-License-Identifier: Apache-2.0
"""Skips a test that lacks its peer program."""
import os
import sys

SKIP = 77


def skip_without(module, error, variable, untested):
    """Restarts with the Python that the environment variable names, if it has
    the package; else prints the missing package and skips the test."""
    other = os.environ.get(variable)
    if other:  # once only
        environment = {k: v for k, v in os.environ.items() if k != variable}
        os.execve(other, [other, *sys.argv], environment)
    print(f"SKIPPED: no {module} ({error}); that {untested} is not tested. "
          f"Set {variable} to a Python that has it.", file=sys.stderr)
    sys.exit(SKIP)
