# SPDX-License-Identifier: Apache-2.0
# pyright: basic, reportMissingImports=false, reportAttributeAccessIssue=false
"""Sharded optimizer state, gradients and parameters (ZeRO-1 to 3).

The pipeline's data-parallel operations set which pass launches a collective,
and which pass waits for it. A chunk's parameters are split into three groups by
ZeRO level. Each group is a flat tensor of as many rows as there are replicas,
and each replica owns one row. A bucket is a range of columns.
"""

from __future__ import annotations

import collections
import dataclasses
import time
from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.distributed as dist

from .._errors import InvalidError
from .._library import lib, text_of
from ._clocks import host_ns
from ._orders import Order, Pass, described

# A pass of this rank: chunk, whether F, microbatch.
Key = tuple[int, bool, int]

_GATHERS = (lib.LH_DP_AGO, lib.LH_DP_AGF, lib.LH_DP_AGB)


@dataclasses.dataclass(frozen=True, eq=False)
class Collective:
    """An all-gather or reduce-scatter of a chunk.

    Attributes:
        kind: lh_dp_kind; AGO and RSO carry the entire chunk.
        bucket, n_buckets: part of the sharded parameters or gradients.
        transfer_ns, latency_ns: duration on an emulated link.
        needed_by: the pass that waits for it; None: the end of the step.
    """

    chunk: int
    kind: int
    bucket: int
    n_buckets: int
    transfer_ns: int
    latency_ns: int
    needed_by: Key | None


@dataclasses.dataclass
class Moment:
    """Data-parallel communication before and after a pass."""

    launches: list[Collective] = dataclasses.field(default_factory=list)
    waits: list[Collective] = dataclasses.field(default_factory=list)
    opens: bool = False  # the first pass that adds gradients to a buffer
    closes: bool = False  # the last one: the buffer can be scattered
    frees: bool = False  # frees the ZeRO-3 parameters
    ends: Collective | None = None  # launched after the pass


class Steps:
    """A rank's data-parallel communication under one schedule.

    Attributes:
        begin: all-gathers launched when a step begins.
        at: communication of the passes; W passes have the key of the backward
            with chunk -1 - chunk.
    """

    def __init__(self, pipeline: Any, order: Order, device: int) -> None:
        desc = described(pipeline)
        self.at: dict[Key, Moment] = collections.defaultdict(Moment)
        self.begin: list[Collective] = []
        self._order = order
        self._row = order.passes[device]
        # in the order of their first passes
        self._chunks = list(dict.fromkeys(one.chunk for one in self._row))
        # the group of each microbatch, whose gradients are scattered together
        self._groups = [
            g for g in range(desc.n_dequeue) for _ in range(desc.dequeue[g])
        ] or [0] * desc.n_microbatches
        operations = _operations(desc, set(self._chunks))
        self._add_ends(desc, operations)
        self._walk(operations)

    def _add_ends(self, desc: Any, operations: dict[Key, list[Any]]) -> None:
        """Adds the collectives of chunks that no pass launches."""
        kinds = {
            (one.chunk, one.kind) for ops in operations.values() for one in ops
        }
        adds = "W" if any(one.kind == "W" for one in self._row) else "B"
        for chunk in self._chunks:
            c = desc.chunks[chunk]
            first = next(one for one in self._row if one.chunk == chunk)
            last = [
                one
                for one in self._row
                if one.chunk == chunk and one.kind == adds
            ][-1]
            if (chunk, lib.LH_DP_AGO) not in kinds:
                gather = Collective(
                    chunk,
                    lib.LH_DP_AGO,
                    0,
                    1,
                    c.all_gather_ns,
                    c.dp_latency_ns,
                    _key(first),
                )
                self.begin.append(gather)
                self.at[_key(first)].waits.append(gather)
            if (chunk, lib.LH_DP_RSO) not in kinds:
                self.at[_key(last)].ends = Collective(
                    chunk,
                    lib.LH_DP_RSO,
                    0,
                    1,
                    c.reduce_scatter_ns,
                    c.dp_latency_ns,
                    None,
                )

    def _walk(self, operations: dict[Key, list[Collective]]) -> None:
        """Checks the operations in the order of passes, and finds where
        gradient buffers begin and end, and where parameters are freed."""
        launched = set(map(id, self.begin))
        gathers = self._gathers(operations)
        pending: collections.Counter[int] = collections.Counter()
        n_added: collections.Counter[int] = collections.Counter()
        n_all = len(self._groups)
        splits = any(one.kind == "W" for one in self._row)
        for i, one in enumerate(self._row):
            moment = self.at[_key(one)]
            if one.kind != "W":
                moment.launches = operations.pop(_key(one), [])
                moment.waits += gathers.pop(_key(one), [])
            for op in moment.launches:
                launched.add(id(op))
                if op.kind == lib.LH_DP_RSG:
                    if not pending[op.chunk]:
                        self._refuse(one, op, "before the group's gradients")
                    if op.bucket == op.n_buckets - 1:
                        pending[op.chunk] -= 1
                elif op.kind == lib.LH_DP_RSO and n_added[op.chunk] < n_all:
                    self._refuse(one, op, "before the chunk's last gradients")
            for op in moment.waits:
                if id(op) not in launched:
                    self._refuse(one, op, "after the pass that waits for it")
            if one.kind == "F":
                moment.frees = self._has_gather(i, gathers, launched)
                continue
            group = self._groups[one.microbatch]
            if one.kind != ("W" if splits else "B"):
                continue
            size = self._groups.count(group)
            before = n_added[one.chunk]
            done = before - self._groups.index(group)
            if not 0 <= done < size:
                raise InvalidError(
                    f"schedule: {self._order.name!r} does not add up the "
                    "gradients group by group, as data_parallel.groups says; "
                    "leave schedule out, or use the method 'elastic'"
                )
            moment.opens = done == 0
            moment.closes = done == size - 1
            n_added[one.chunk] += 1
            if moment.closes and n_added[one.chunk] < n_all:
                pending[one.chunk] += 1
            moment.frees = self._has_gather(i, gathers, launched)

    def _gathers(
        self, operations: dict[Key, list[Collective]]
    ) -> dict[Key, list[Collective]]:
        """Returns the all-gathers that provide the parameters of a pass: the
        last bucket names the pass that waits for all of them."""
        found: dict[Key, list[Collective]] = collections.defaultdict(list)
        buckets: dict[int, list[Collective]] = collections.defaultdict(list)
        for one in self._row:
            for op in operations.get(_key(one), []):
                if op.kind in _GATHERS:
                    buckets[op.chunk].append(op)
                    if op.needed_by is not None:
                        found[op.needed_by] += buckets.pop(op.chunk)
        return found

    def _has_gather(self, i: int, gathers: Any, launched: set[int]) -> bool:
        """Tests whether an all-gather that is launched later provides the
        parameters of the chunk's next pass."""
        chunk = self._row[i].chunk
        later = (one for one in self._row[i + 1 :] if one.chunk == chunk)
        after = next(later, None)
        if after is None or after.kind == "W":
            return False
        found = [
            op
            for op in gathers.get(_key(after), [])
            if op.kind != lib.LH_DP_AGO and op.chunk == chunk
        ]
        return bool(found) and not any(id(op) in launched for op in found)

    def _refuse(self, one: Pass, op: Collective, what: str) -> None:
        kind = text_of(lib.lh_dp_kind_name(op.kind))
        raise InvalidError(
            f"schedule: {self._order.name!r} launches a {kind} of chunk "
            f"{op.chunk} {what}, at {one.chunk}{one.kind}{one.microbatch}; "
            "leave schedule out, or use the method 'elastic'"
        )


def _key(one: Pass) -> Key:
    chunk = -1 - one.chunk if one.kind == "W" else one.chunk
    return chunk, one.kind == "F", one.microbatch


def _operations(desc: Any, chunks: set[int]) -> dict[Key, list[Collective]]:
    """Returns the operations of a rank's chunks by the pass that launches
    them."""
    found: dict[Key, list[Collective]] = collections.defaultdict(list)
    for i in range(desc.n_dp_ops):
        op = desc.dp_ops[i]
        if op.chunk not in chunks:
            continue
        if op.kind == lib.LH_DP_ANY:
            raise InvalidError(
                f"data_parallel.operations: operation {i} of chunk {op.chunk} "
                "has no kind, so its data are unknown; give one: AGO, AGF, "
                "AGB, RSG or RSO"
            )
        needed = op.needed_by
        launch = op.launch
        found[launch.chunk, not launch.backward, launch.microbatch].append(
            Collective(
                op.chunk,
                op.kind,
                op.bucket,
                op.n_buckets,
                op.transfer_ns,
                desc.chunks[op.chunk].dp_latency_ns,
                None
                if needed.chunk >= desc.n_chunks
                else (needed.chunk, not needed.backward, needed.microbatch),
            )
        )
    return found


def shares(pipeline: Any) -> tuple[float, float]:
    """Returns the shares of a chunk's parameters at ZeRO-2 or 3, and at
    ZeRO-3."""
    scattered = gathered = 0.0
    desc = described(pipeline)
    for i in range(desc.n_dp_ops):
        op = desc.dp_ops[i]
        if op.kind == lib.LH_DP_RSG:
            scattered = max(scattered, op.share)
        elif op.kind in (lib.LH_DP_AGF, lib.LH_DP_AGB):
            gathered = max(gathered, op.share)
    return max(scattered, gathered), gathered


class Part:
    """A chunk's parameters of one ZeRO level and data type.

    Attributes:
        level: ZeRO level, 1 to 3.
        shard: this replica's row, updated by the optimizer.
        gradient: the row's gradient, the sum over the replicas.
    """

    def __init__(
        self,
        level: int,
        named: list[tuple[str, torch.nn.Parameter]],
        group: Any,
        grad_type: torch.dtype | None = None,
        sites: Any = None,
    ) -> None:
        """Makes a part of named parameters; `grad_type`: data type of the
        gradients, None: that of the parameters. `sites`: ranks with the same
        row in other groups of replicas (hybrid sharding); None: none."""
        self.level = level
        self._group = group
        self._sites = sites
        self._n = dist.get_world_size(group)
        self._rank = dist.get_rank(group)
        self._named = named
        size = sum(p.numel() for _, p in named)
        self._columns = -(-size // self._n)
        first = named[0][1]
        if sites is not None:
            # NCCL connects the sites here, not within a step, where this would
            # block ranks that wait for messages of each other.
            dist.all_reduce(first.new_zeros(1), group=sites)
        self._flat = first.new_zeros(self._n * self._columns)
        self._bytes = self._flat.untyped_storage().nbytes()
        at = 0
        self._ranges = []
        for _, p in named:
            self._ranges.append((at, at + p.numel()))
            self._flat[at : at + p.numel()] = p.detach().flatten()
            p.data = self._flat[at : at + p.numel()].view(p.shape)
            at += p.numel()
        self.shard = self._matrix(self._flat)[self._rank].clone()
        self.gradient = torch.zeros_like(self.shard, dtype=grad_type)
        self.shards = dict(self._pieces())
        # The buffer to which passes add, and those that wait for a scatter.
        self._filling: torch.Tensor | None = None
        self._full: collections.deque[torch.Tensor] = collections.deque()

    def _matrix(self, flat: torch.Tensor) -> torch.Tensor:
        return flat.view(self._n, self._columns)

    def _pieces(self) -> Iterator[tuple[str, torch.nn.Parameter]]:
        """Yields the parts of parameters in this replica's row. A part of a
        matrix has one row: optimizers decay matrices, and no vectors."""
        begin = self._rank * self._columns
        for (name, p), (a, b) in zip(self._named, self._ranges, strict=True):
            low = max(a - begin, 0)
            high = min(b - begin, self._columns)
            if low < high:
                shape = (-1,) if p.dim() < 2 else (1, -1)
                piece = torch.nn.Parameter(self.shard[low:high].view(shape))
                self._set_gradient(piece, self.gradient[low:high].view(shape))
                yield name, piece

    @property
    def group(self) -> Any:
        """The replicas that share the part."""
        return self._group

    @property
    def named(self) -> list[tuple[str, torch.nn.Parameter]]:
        """The part's parameters."""
        return self._named

    def gather_values(
        self, pieces: dict[str, torch.Tensor], kind: torch.dtype
    ) -> dict[str, torch.Tensor]:
        """Returns values of whole parameters, of which each replica gives those
        of its pieces; collective."""
        row = self.shard.new_zeros(self._columns, dtype=kind)
        begin = self._rank * self._columns
        for (name, _), (a, _) in zip(self._named, self._ranges, strict=True):
            if name in pieces:
                low = max(a - begin, 0)
                values = pieces[name].detach().flatten()
                row[low : low + values.numel()] = values
        flat = row.new_empty(self._n * self._columns)
        dist.all_gather_into_tensor(flat, row, group=self._group)
        return {
            name: flat[a:b].view(p.shape)
            for (name, p), (a, b) in zip(self._named, self._ranges, strict=True)
        }

    def piece_of(self, name: str, whole: torch.Tensor) -> torch.Tensor:
        """Returns this replica's piece of a parameter's values."""
        begin = self._rank * self._columns
        for (other, _), (a, _) in zip(self._named, self._ranges, strict=True):
            if other == name:
                piece = self.shards[name]
                low = max(begin - a, 0)
                part = whole.flatten()[low : low + piece.numel()]
                return part.view(piece.shape)
        raise KeyError(name)

    def restore(self) -> None:
        """Restores the pieces' gradients, which optimizers may drop."""
        begin = self._rank * self._columns
        for (name, _), (a, _) in zip(self._named, self._ranges, strict=True):
            piece = self.shards.get(name)
            if piece is not None:
                low = max(a - begin, 0)
                gradient = self.gradient[low : low + piece.numel()]
                self._set_gradient(piece, gradient.view(piece.shape))

    def take(self) -> None:
        """Copies this replica's row from the gathered parameters."""
        self.shard.copy_(self._matrix(self._flat)[self._rank])

    def _set_gradient(
        self, p: torch.nn.Parameter, gradient: torch.Tensor | None
    ) -> None:
        """Sets the tensor to which backward passes add, or None."""
        p.grad = gradient

    @property
    def is_whole(self) -> bool:
        return self._flat.untyped_storage().nbytes() == self._bytes

    def held_bytes(self) -> int:
        """Counts the bytes of gathered parameters and of gradients that are
        not sharded."""
        buffers = [*self._full]
        if self._filling is not None:
            buffers.append(self._filling)
        return self._flat.untyped_storage().nbytes() + sum(
            b.untyped_storage().nbytes() for b in buffers
        )

    @property
    def adds(self) -> bool:
        return self._filling is not None

    @property
    def has_full(self) -> bool:
        return bool(self._full)

    def free(self) -> None:
        self._flat.untyped_storage().resize_(0)

    def open(self) -> None:
        """Lets backward passes add to an empty gradient buffer."""
        buffer = self.gradient.new_zeros(self._n * self._columns)
        self._filling = buffer
        for (_, p), (a, b) in zip(self._named, self._ranges, strict=True):
            self._set_gradient(p, buffer[a:b].view(p.shape))

    def close(self) -> None:
        assert self._filling is not None
        self._full.append(self._filling)
        self._filling = None
        for _, p in self._named:
            self._set_gradient(p, None)

    def _range(self, bucket: int, n: int) -> slice:
        return slice(
            self._columns * bucket // n, self._columns * (bucket + 1) // n
        )

    def gather(self, bucket: int, n: int) -> Any:
        """Launches an all-gather; returns the function that completes it."""
        if not self.is_whole:
            self._flat.untyped_storage().resize_(self._bytes)
        columns = self._range(bucket, n)
        mine = self.shard[columns].contiguous()
        if not mine.numel():
            return lambda: None
        got = mine.new_empty(self._n * mine.numel())
        work = dist.all_gather_into_tensor(
            got, mine, group=self._group, async_op=True
        )

        def complete() -> None:
            work.wait()
            self._matrix(self._flat)[:, columns] = got.view(self._n, -1)

        return complete

    def scatter(self, bucket: int, n: int, is_last: bool) -> Any:
        """Launches a reduce-scatter of the oldest full buffer; returns the
        function that adds the result to the gradient."""
        full = self._full[0]
        if is_last:
            self._full.popleft()
        columns = self._range(bucket, n)
        given = self._matrix(full)[:, columns].contiguous().flatten()
        if not given.numel():
            return lambda: None
        got = given.new_empty(given.numel() // self._n)
        work = dist.reduce_scatter_tensor(
            got, given, group=self._group, async_op=True
        )
        return Scatter(work, got, self._sites, self.gradient[columns])


class Scatter:
    """A reduce-scatter of gradients in flight, which an all-reduce over sites
    follows with hybrid sharding."""

    def __init__(
        self, work: Any, got: torch.Tensor, sites: Any, gradient: torch.Tensor
    ) -> None:
        self._work, self._got, self._gradient = work, got, gradient
        self._sites = sites
        self.is_last = sites is None  # no collective is left to launch

    def advance(self, waits: bool) -> bool:
        """Launches the all-reduce once the reduce-scatter is complete; returns
        whether it is launched."""
        if not self.is_last and (waits or self._work.is_completed()):
            self._work.wait()
            self._work = dist.all_reduce(
                self._got, group=self._sites, async_op=True
            )
            self.is_last = True
        return self.is_last

    def __call__(self) -> None:
        """Adds the result to the gradient."""
        self._work.wait()
        self._gradient += self._got


class Link:
    """A device's emulated data-parallel link: one collective at a time."""

    def __init__(self) -> None:
        self._free_ns = 0

    def launch(self, transfer_ns: int, latency_ns: int) -> int:
        """Returns the time of arrival."""
        self._free_ns = max(self._free_ns, host_ns()) + transfer_ns
        return self._free_ns + latency_ns


class Sharding:
    """A rank's sharded chunks, and their collectives in flight.

    Attributes:
        scale: factor of the gradients' sums.
        exposed_ns: time that the host waited for collectives in the last step;
            with NCCL only for those on emulated links.
        peak_bytes: maximum of the gathered parameters and unsharded gradients
            in the last step.
    """

    def __init__(self, parts: dict[int, list[Part]], scale: float) -> None:
        """Makes the sharding of chunks from the parts of each of them."""
        self.scale = scale
        self.parts = parts
        self.link: Link | None = None
        self.exposed_ns = 0
        self.peak_bytes = 0
        self._flying: dict[Collective, tuple[list[Any], int]] = {}
        # In the order in which all ranks launch their second collectives.
        self._scatters: collections.deque[Scatter] = collections.deque()

    def shards(self) -> dict[str, torch.nn.Parameter]:
        """Returns this replica's part of each parameter, by chunk and name."""
        return {
            f"{chunk}.{name}": piece
            for chunk, parts in self.parts.items()
            for part in parts
            for name, piece in part.shards.items()
        }

    def gather(self) -> None:
        """Gathers all parameters of the rank's chunks."""
        for parts in self.parts.values():
            for part in parts:
                part.gather(0, 1)()

    def follow(self, steps: Steps) -> None:
        """Sets the collectives from the next step on."""
        self._steps = steps

    def begin(self) -> None:
        self.exposed_ns = self.peak_bytes = 0
        self._flying.clear()
        self._scatters.clear()
        for parts in self.parts.values():
            for part in parts:
                part.gradient.zero_()
                part.restore()
        if self.link is not None:
            self.link = Link()
        for one in self._steps.begin:
            self._launch(one)

    def before(self, key: Key) -> None:
        """Launches and completes the collectives of a pass that begins."""
        self._advance(None)
        moment = self._steps.at.get(key)
        if moment is None:
            return
        for one in moment.launches:
            self._launch(one)
        for one in moment.waits:
            self._wait(one)
        if moment.opens:
            for part in self._parts_of(key):
                if not part.adds:
                    part.open()
        self._count()

    def after(self, key: Key) -> None:
        self._advance(None)
        moment = self._steps.at.get(key)
        if moment is None:
            return
        self._count()
        for part in self._parts_of(key):
            if moment.closes and part.level > 1:
                part.close()
            if moment.frees and part.level > 2:
                part.free()
        if moment.ends is not None:
            self._launch(moment.ends)

    def end(self) -> None:
        """Completes the step: this replica's gradients are final."""
        for one in list(self._flying):
            self._wait(one)
        if self.scale != 1:
            for parts in self.parts.values():
                for part in parts:
                    part.gradient *= self.scale

    def _advance(self, last: Scatter | None) -> None:
        """Launches the all-reduces whose reduce-scatters are complete; waits
        for those up to `last`."""
        waits = last in self._scatters
        while self._scatters and self._scatters[0].advance(waits):
            if self._scatters.popleft() is last:
                waits = False

    def _parts_of(self, key: Key) -> list[Part]:
        return self.parts[key[0] if key[0] >= 0 else -1 - key[0]]

    def _count(self) -> None:
        held = sum(
            part.held_bytes() for parts in self.parts.values() for part in parts
        )
        self.peak_bytes = max(self.peak_bytes, held)

    def _launch(self, one: Collective) -> None:
        jobs = []
        is_last = one.bucket == one.n_buckets - 1
        for part in self.parts[one.chunk]:
            if one.kind in _GATHERS:
                if one.kind == lib.LH_DP_AGO or part.level > 2:
                    jobs.append(part.gather(one.bucket, one.n_buckets))
            elif one.kind == lib.LH_DP_RSG and part.level > 1:
                jobs.append(part.scatter(one.bucket, one.n_buckets, is_last))
            elif one.kind == lib.LH_DP_RSO:
                if part.level == 1:
                    part.close()
                while part.has_full:
                    jobs.append(part.scatter(0, 1, True))
        arrival = (
            self.link.launch(one.transfer_ns, one.latency_ns)
            if self.link
            else 0
        )
        self._scatters.extend(
            job for job in jobs if isinstance(job, Scatter) and not job.is_last
        )
        self._flying[one] = jobs, arrival

    def _wait(self, one: Collective) -> None:
        jobs, arrival = self._flying.pop(one)
        begin = host_ns()
        for complete in jobs:
            self._advance(complete)
            complete()
        if self.link is not None:
            while (left := arrival - host_ns()) > 0:
                time.sleep(left * 1e-9)
        self.exposed_ns += host_ns() - begin


def parts_of(
    pipeline: Any,
    module: torch.nn.Module,
    group_of: Callable[[torch.nn.Parameter], Any],
    make: Callable[..., Part] = Part,
) -> list[Part]:
    """Splits a chunk's parameters by level, and by the group of the replicas
    that have them: its first ones, as many as approximate the pipeline's shares
    best, are sharded. `make` has the arguments of `Part`."""
    scattered, gathered = shares(pipeline)
    named = [
        (name, p) for name, p in module.named_parameters() if p.requires_grad
    ]
    ends = [0]
    for _, p in named:
        ends.append(ends[-1] + p.numel())

    def count(share: float) -> int:
        return min(
            range(len(ends)), key=lambda i: abs(ends[i] - share * ends[-1])
        )

    n3, n2 = count(gathered), count(scattered)
    groups: list[Any] = []
    found: dict[tuple[int, str, int], list[Any]] = {}
    for i, (name, p) in enumerate(named):
        level = 3 if i < n3 else 2 if i < n2 else 1
        group = group_of(p)
        if group not in groups:
            groups.append(group)
        key = -level, str(p.dtype), groups.index(group)
        found.setdefault(key, []).append((name, p))
    return [
        make(-key[0], those, groups[key[2]])
        for key, those in sorted(found.items())
    ]
