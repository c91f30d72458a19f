# SPDX-License-Identifier: Apache-2.0
"""Runs longhaul's plans with megatron-core.

    from longhaul.megatron import ForwardBackward

    forward_backward_func = ForwardBackward("plan.json")

or, for a program that asks megatron-core for its function,

    torchrun ... -m longhaul.megatron --plan plan.json pretrain_gpt.py ...

Needs megatron-core 0.16 and torch 2.9 to 2.15.
"""

from ._layout import Layout
from ._program import install
from ._runtime import ForwardBackward

__all__ = ["ForwardBackward", "Layout", "install"]
