# SPDX-License-Identifier: Apache-2.0
"""Record the orders of V-Half, V-Min and Seq1F1B by the zero-bubble authors.

    record.py ZERO_BUBBLE_CHECKOUT > orders.txt
    record.py ZERO_BUBBLE_CHECKOUT seq1f1b > seq1f1b.txt

Runs PipelineGraph of zbv_greedy.py, or create_schedule() of seq1f1b.py. The
modules that need Megatron are replaced by stand-ins with the names that these
files import. SOURCE.md names the commit.
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


SEQUENCE_CASES = [
    (1, 2, 3),
    (2, 2, 2),
    (3, 5, 3),
    (4, 1, 4),
    (4, 2, 4),
    (4, 3, 2),
    (8, 4, 4),
]


def load(checkout, name):
    """Import zbv_greedy.py or seq1f1b.py without Megatron."""
    graph = types.ModuleType(FOLDER.replace("/", ".") + ".graph")
    graph.F, graph.B, graph.W, graph.BW = "F", "I", "W", "B"
    graph.FuncType = graph.GraphConfig = None
    graph.ScheduledNode = types.SimpleNamespace
    sys.modules[graph.__name__] = graph
    for parent in ("megatron", "megatron.core", "megatron.training"):
        sys.modules[parent] = types.ModuleType(parent)
    options = types.SimpleNamespace(num_seq_splits=1)
    sys.modules["megatron.training"].get_args = lambda: options
    path = pathlib.Path(checkout, FOLDER, name)
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module, options


def put(*words, rows, slices=1):
    """Print an order."""
    print(*words)
    for row in rows:
        cells = (
            (p.layer_group_idx, p.type, p.microbatch, vars(p)) for p in row
        )
        print(
            ",".join(
                f"{chunk}{kind}{m * slices + more.get('seq_split_idx', 0)}"
                for chunk, kind, m, more in cells
            )
        )


def record_sequences(checkout):
    module, options = load(checkout, "seq1f1b.py")
    # It prints the order with the values of an enumeration.
    module.print = lambda *_: None
    for kind in ("F", "BW"):
        setattr(module, kind, Word(getattr(module, kind)))
    for stages, n, slices in SEQUENCE_CASES:
        options.num_seq_splits = slices
        config = types.SimpleNamespace(n_stages=stages, n_micro=n)
        rows = module.create_schedule(config)
        put("seq1f1b", stages, n, slices, rows=rows, slices=slices)


class Word(str):
    """A kind of pass that is its own value."""

    @property
    def value(self):
        return self


def record_v(checkout):
    module, _ = load(checkout, "zbv_greedy.py")
    for kind in ("half", "min"):
        for stages, counts in CASES:
            for n in counts:
                graph = module.PipelineGraph(stages, n, kind, 1, 1, 1, 0)
                config = types.SimpleNamespace(n_stages=stages, max_chunks=2)
                with contextlib.redirect_stdout(io.StringIO()):
                    rows = graph.create_schedule(config)
                put(f"v-{kind}", stages, n, rows=rows)


if "seq1f1b" in sys.argv:
    record_sequences(sys.argv[1])
else:
    record_v(sys.argv[1])
