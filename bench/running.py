# SPDX-License-Identifier: Apache-2.0
"""Runs the program, for what measures it."""
import subprocess
import sys


def run(*args):
    """What it prints; ends with what it says if it fails."""
    done = subprocess.run([*map(str, args)], text=True, capture_output=True,
                          check=False)
    if done.returncode:
        sys.exit(done.stderr)
    return done.stdout
