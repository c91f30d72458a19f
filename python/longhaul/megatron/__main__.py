# SPDX-License-Identifier: Apache-2.0
"""`python -m longhaul.megatron`: runs a Megatron program by a plan."""

import sys

from ._program import main

sys.exit(main())
