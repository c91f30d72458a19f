# SPDX-License-Identifier: Apache-2.0
"""`inject="a-b=latency:40ms"`: delays of emulated links."""

from __future__ import annotations

import re
from typing import Any

from .._errors import Error, InvalidError
from .._library import encoded, lib, owned

_UNITS = {"ns": 1, "us": 1e3, "ms": 1e6, "s": 1e9}
_TIME = re.compile(r"(?P<number>\d+(\.\d*)?)(?P<unit>ns|us|ms|s)")


def injected(pipeline: Any, text: str) -> Any:
    """Returns an lh_pipeline with other delays on the named links.

    Raises:
        InvalidError: the text is malformed, or names no link.
    """
    for one in filter(None, text.split(";")):
        name, _, given = one.rpartition("=")
        delays = {"latency": -1, "transfer": -1}
        for pair in given.split(","):
            key, _, value = pair.partition(":")
            time = _TIME.fullmatch(value)
            if not name or key not in delays or time is None:
                raise InvalidError(
                    f"inject: {one!r} must be LINK=latency:TIME or "
                    "LINK=transfer:TIME, with times such as 40ms; several "
                    "with commas, several links with ';'"
                )
            delays[key] = round(float(time["number"]) * _UNITS[time["unit"]])
        try:
            pipeline = owned(
                "lh_pipeline",
                lib.lh_pipeline_free,
                lib.lh_pipeline_set_link_delay,
                pipeline,
                encoded(name),
                delays["latency"],
                delays["transfer"],
            )
        except Error as error:
            raise InvalidError(f"inject: {error}") from error
    return pipeline
