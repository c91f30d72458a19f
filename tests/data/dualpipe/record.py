# SPDX-License-Identifier: Apache-2.0
"""Record the pass order of DeepSeek's DualPipe and DualPipeV.

    record.py DUALPIPE_CHECKOUT > orders.txt

Runs the `step` method of dualpipe.py and dualpipev.py for every rank, with
the computation of passes replaced by a record of their names. Neither GPUs nor
messages are needed; PyTorch is. SOURCE.md names the commit.
"""

import sys

import torch

sys.path.insert(0, sys.argv[1])
from dualpipe import comm, dualpipe, dualpipev  # noqa: E402

PAIRS = {
    "dualpipe": [(2, n) for n in range(2, 8)]
    + [(4, n) for n in range(4, 11)]
    + [(6, n) for n in (6, 7, 8, 9, 11, 13)]
    + [(8, n) for n in (8, 9, 10, 12, 16, 17)]
    + [(10, n) for n in (10, 11, 15)]
    + [(12, 12), (16, 16)],
    "dualpipev": [(1, n) for n in range(2, 6)]
    + [(2, n) for n in range(4, 10)]
    + [(3, n) for n in (6, 7, 8, 9, 11, 13)]
    + [(4, n) for n in (8, 9, 10, 12, 16, 17)]
    + [(5, n) for n in (10, 11, 15)]
    + [(6, 12), (6, 13), (7, 14), (7, 15), (8, 16)],
}


def record(cls, method, ranks, per_leg, rank):
    """Return the passes of one rank as cells of a schedule file."""
    self = object.__new__(cls)
    torch.nn.Module.__init__(self)
    cells, waiting = [], []
    self.rank, self.num_ranks = rank, ranks
    self.is_first_rank, self.is_last_rank = rank == 0, rank == ranks - 1
    two_way = method == "dualpipe"
    second = two_way and rank >= ranks // 2
    if two_way:
        self.is_in_second_half = second
        self.is_middle_rank = rank in (ranks // 2 - 1, ranks // 2)
    self.batch_dim, self.group = 0, None
    chunks = [rank, 2 * ranks - 1 - rank]
    done = {"F": [0, 0], "B": [0, 0]}

    def name(kind, phase):
        leg = phase ^ second
        count = done["F" if kind == "F" else "B"]
        count[leg] += 1
        return chunks[leg], kind, count[leg] - 1

    def text(cell):
        return f"{cell[0]}{cell[1]}{cell[2]}"

    def forward(phase):
        cells.append(text(name("F", phase)))

    def backward(phase, enable_zb=False):
        cell = name("I" if enable_zb else "B", phase)
        cells.append(text(cell))
        if enable_zb:
            waiting.append(cell)

    def both(phase0, phase1):
        pair = text(name("F", phase0)), text(name("B", phase1))
        cells.append("(" + ";".join(pair) + ")OVERLAP_F_B")

    def weight():
        chunk, _, microbatch = waiting.pop(0)
        cells.append(f"{chunk}W{microbatch}")

    self._forward_compute_chunk = forward
    self._backward_compute_chunk = backward
    self._forward_backward_compute_chunk = both
    self._weight_chunk = weight
    for nothing in (
        "_recv_forward",
        "_send_forward",
        "_recv_backward",
        "_send_backward",
        "_commit_and_wait_comm",
    ):
        setattr(self, nothing, lambda *_: None)
    self.step(
        num_chunks=per_leg * (2 if two_way else 1), criterion=lambda *_: None
    )
    return cells


def main():
    comm.TENSOR_SHAPES = comm.TENSOR_DTYPE = ()
    for module in (dualpipe, dualpipev):
        module.scatter = lambda *_: []
    torch.stack = lambda *_: None
    for method, cls in (
        ("dualpipe", dualpipe.DualPipe),
        ("dualpipev", dualpipev.DualPipeV),
    ):
        for ranks, per_leg in PAIRS[method]:
            print(method, ranks, per_leg)
            for rank in range(ranks):
                print(",".join(record(cls, method, ranks, per_leg, rank)))


main()
