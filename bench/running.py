# SPDX-License-Identifier: Apache-2.0
"""Runs the program, for measurements."""
import subprocess
import sys


def run(*args):
    """Returns its output; exits with its error message if it fails."""
    done = subprocess.run([*map(str, args)], text=True, capture_output=True,
                          check=False)
    if done.returncode:
        sys.exit(done.stderr)
    return done.stdout
