# SPDX-License-Identifier: Apache-2.0
"""`python -m longhaul.torch`: the program behind `longhaul profile --torch`."""

import sys

from ._profile import main

sys.exit(main())
