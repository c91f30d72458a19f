# SPDX-License-Identifier: Apache-2.0
# What cffi makes of the public headers, which have the types.
from typing import Any

ffi: Any
lib: Any
