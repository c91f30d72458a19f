#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tensor-parallel training on two ranks, compared with PyTorch's tensor parallelism
(DTensor over gloo): same weights, data and rates.

    test_tensor_torch.py LONGHAUL ROOT

The losses agree within 1e-5 (relative). Needs torch and numpy ($LONGHAUL_TORCH names a
Python that has them).
"""
import os
import sys

from skip_without import SKIP, skip_without

PROGRAM, ROOT = sys.argv[1:3]
sys.path.insert(0, os.path.join(ROOT, "bench"))
try:
    import torch
    from torch.distributed.tensor.parallel import (  # not in every version
        SequenceParallel)
    import numpy
except ImportError as error:
    skip_without("torch with DTensor, or numpy", error, "LONGHAUL_TORCH",
            "layers on several ranks train as PyTorch's")
assert torch and SequenceParallel and numpy
import tensor

try:
    row = tensor.compare(PROGRAM, 2, 3, os.path.join(ROOT, "LICENSE"),
                         alone=False)
except SystemExit as why:
    if "OpenBLAS" not in str(why):
        raise
    print("SKIPPED:", why, file=sys.stderr)
    sys.exit(SKIP)
print(f"losses within {row['worst_loss']:.1e} of PyTorch's")
if not (row["worst_loss"] < 1e-5 and len(row["losses"]) == 3 and
        row["losses"][-1] < row["losses"][0]):
    print("FAILED:", row, file=sys.stderr)
    sys.exit(1)
