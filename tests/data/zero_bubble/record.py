# SPDX-License-Identifier: Apache-2.0
"""Record the pass order of V-Half and V-Min by the zero-bubble authors.

    record.py ZERO_BUBBLE_CHECKOUT > orders.txt

Runs PipelineGraph of zbv_greedy.py. The module graph.py, which needs
Megatron, is replaced by a stand-in with the four names that zbv_greedy.py
imports. SOURCE.md names the commit.
"""

import contextlib
import importlib.util
import io
import pathlib
import sys
import types

FOLDER = "megatron/core/pipeline_parallel/zerobubble/scheduler"
CASES = [
    (1, (1, 2, 5)),
    (2, (1, 2, 3, 4, 9)),
    (3, (2, 3, 6, 7, 12)),
    (4, (1, 4, 7, 8, 13)),
    (5, (5, 10, 11)),
    (6, (6, 12, 17)),
    (7, (14, 15)),
    (8, (8, 16, 32)),
    (16, (32,)),
]


def load(checkout):
    """Import zbv_greedy.py without Megatron."""
    graph = types.ModuleType(FOLDER.replace("/", ".") + ".graph")
    graph.F, graph.B, graph.W, graph.FuncType = "F", "I", "W", None
    graph.ScheduledNode = types.SimpleNamespace
    sys.modules[graph.__name__] = graph
    for name in ("megatron", "megatron.core"):
        sys.modules.setdefault(name, types.ModuleType(name))
    path = pathlib.Path(checkout, FOLDER, "zbv_greedy.py")
    spec = importlib.util.spec_from_file_location("zbv_greedy", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def main():
    module = load(sys.argv[1])
    for kind in ("half", "min"):
        for stages, counts in CASES:
            for n in counts:
                graph = module.PipelineGraph(stages, n, kind, 1, 1, 1, 0)
                config = types.SimpleNamespace(n_stages=stages, max_chunks=2)
                with contextlib.redirect_stdout(io.StringIO()):
                    rows = graph.create_schedule(config)
                print(f"v-{kind}", stages, n)
                for row in rows:
                    print(
                        ",".join(
                            f"{p.layer_group_idx}{p.type}{p.microbatch}"
                            for p in row
                        )
                    )


main()
