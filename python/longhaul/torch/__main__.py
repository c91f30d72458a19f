# SPDX-License-Identifier: Apache-2.0
"""`python -m longhaul.torch`: what `longhaul profile --torch` runs."""

import sys

from ._profile import main

sys.exit(main())
