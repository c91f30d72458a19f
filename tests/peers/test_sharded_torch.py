#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Training with sharded parameters, gradients and optimizer, compared with PyTorch's
FSDP2 over gloo: same weights, data and rates.

    test_sharded_torch.py LONGHAUL ROOT

The losses of four processes agree within 1e-5 (relative), with all cases those of two,
too. Needs torch and
numpy ($LONGHAUL_TORCH names a Python that has them).
"""
import os
import sys

from skip_without import SKIP, skip_without

PROGRAM, ROOT = sys.argv[1:3]
sys.path.insert(0, os.path.join(ROOT, "bench"))
try:
    import torch
    from torch.distributed.fsdp import fully_shard  # not in every version
    import numpy
except ImportError as error:
    skip_without("torch with FSDP2, or numpy", error, "LONGHAUL_TORCH",
            "sharded training agrees with PyTorch's")
assert torch and fully_shard and numpy
import sharded

failed = 0
for replicas, steps in ((4, 2), (2, 3)):
    if replicas == 2 and "LONGHAUL_ALL_CASES" not in os.environ:
        continue
    try:
        row = sharded.compare(PROGRAM, replicas, steps,
                              os.path.join(ROOT, "LICENSE"), levels=(3,))
    except SystemExit as why:
        if "OpenBLAS" not in str(why):
            raise
        print("SKIPPED:", why, file=sys.stderr)
        sys.exit(SKIP)
    falls = row["losses"][-1] < row["losses"][0]
    ok = row["worst_loss"] < 1e-5 and falls and len(row["losses"]) == steps
    print(f"{replicas} processes: losses within {row['worst_loss']:.1e} of "
          "PyTorch's")
    if not ok:
        print("FAILED:", row, file=sys.stderr)
        failed += 1
sys.exit(failed > 0)
