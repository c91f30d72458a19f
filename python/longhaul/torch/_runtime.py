# SPDX-License-Identifier: Apache-2.0
# pyright: basic, reportMissingImports=false, reportAttributeAccessIssue=false
"""PyTorch's pipelining runtime for longhaul's plans."""

from __future__ import annotations

import json
import logging
import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.pipelining import PipelineStage, schedules

from .._errors import Error, InvalidError, UnsupportedError
from . import _moves
from ._adapting import KEEP, Adapt, Follower, Leader, Switch, Word, vote
from ._clocks import host_clock, host_ns, marks_of
from ._features import Features
from ._host import RailMessages, messages_over
from ._links import Links
from ._orders import Course, Order
from ._records import Row, gathered, packed, settle, trace_text, write_text
from ._shapes import tell_by_host
from ._sharding import Link, Steps
from ._transport import Message, Sending

__all__ = ["PipelineRuntime", "Switch", "places"]

log = logging.getLogger("longhaul.torch")
_KNOWN = schedules._ComputationType.__members__
# Messages of one pass have distinct tags, starting here.
_TENSORS = 16
_FIRST_TAG = 16


def places(what: Any) -> tuple[int, ...]:
    """Returns the device of each chunk of a plan or pipeline. A rank's stages
    are the chunks whose device is its rank in the pipeline's process group."""
    return Course(what).places


def _place_of(device: Any) -> torch.device:
    """Adds the index to a device, since other threads have another current
    device."""
    device = torch.device(device)
    if device.type == "cuda" and device.index is None:
        return torch.device("cuda", torch.cuda.current_device())
    return device


def _backend(group: Any, device: torch.device) -> Any:
    """Returns the backend by which a group sends a device's memory."""
    group = dist.group.WORLD if group is None else group
    return group._get_backend(device)


def _needs_host(group: Any, device: torch.device) -> bool:
    """Tests whether a group cannot send a device's memory."""
    return device.type == "cuda" and _backend(group, device).name() == "gloo"


def _is_known(cell: str) -> bool:
    """Tests whether this torch has an action. Older versions do the work of
    WAIT_SEND_F and REDUCE_GRAD implicitly."""
    name = re.fullmatch(r"\d+([A-Z_]+)\d*", cell)
    return name is None or name[1] in _KNOWN or len(name[1]) == 1


class PipelineRuntime(schedules._PipelineScheduleRuntime):
    """Runs a plan's schedule on this rank's stages.

    Collective: all ranks of the job construct one at the same time, with the
    same arguments except for `stages`, and call `step()` equally often.

    Attributes:
        order: the name of the current schedule.
        device: the plan's device that this rank runs.
        switches: switches during the run.
        step_s: duration of the last step on this rank, in seconds.
        sharding: sharded parameters, with `replicas`; otherwise None.
        notices: with `rails`, sentences about lost and reconnected rails.
    """

    def __init__(
        self,
        what: Any,
        stages: Sequence[PipelineStage],
        *,
        schedule: Any = None,
        loss_fn: Callable[..., torch.Tensor] | None = None,
        inject: str | None = None,
        path: str | Iterable[str] | None = None,
        rails: str | Iterable[str] | None = None,
        adapt: bool | Any = False,
        schedule_at: Mapping[int, Any] | None = None,
        replicas: Any = None,
        sites: Any = None,
        layers: Callable[[torch.nn.Module], Sequence[Any]] | None = None,
        operations: Mapping[str, str | Iterable[str]] | None = None,
        own_activations: bool = False,
        **options: Any,
    ) -> None:
        """Makes a runtime for this rank's part of a plan.

        Args:
            what: a plan or a pipeline, as `longhaul.simulate` takes them.
            stages: PyTorch's stages of this rank, one for each chunk that the
                plan places on it (`longhaul.torch.places`).
            schedule: as for `longhaul.simulate`; None: the plan's own.
            loss_fn: function of a microbatch's output and target.
            inject: emulate the pipeline's links, with these delays in place of
                the plan's: "a-b=latency:40ms;1>0=transfer:3ms"; "": the plan's
                delays. None: links are real.
            path: "direct", "delegated", or names of delegated links. None:
                direct, except with `rails` and for stages on GPUs whose group
                is gloo, which cannot send GPU memory: delegated.
            rails: send delegated messages over several connections, each on
                another network interface of this host: "eth1,eth2", or
                networks, or addresses. If an interface goes down, messages
                continue on the others.
            adapt: True: measure, and switch schedules when links and devices
                change; a longhaul.torch.Adapt for its options.
            schedule_at: schedules from these steps on, counted from 0.
            replicas: process group of the ranks with the same chunks, over
                which the runtime shards parameters as the plan says. None:
                the stages' modules do it, for example by fully_shard.
            sites: process group of the ranks with the same shards, one of each
                datacenter: hybrid sharding over the `replicas` of one.
            layers: function that returns a chunk's layers, for recomputation
                and offloading; None: the list of modules with the most
                parameters.
            operations: submodules of a layer by the names of the operations
                that elastic plans recompute: {"mlp norm": "norm2"}. Others
                are named by `longhaul.torch.operation`.
            own_activations: the stages' modules recompute and offload
                activations by themselves.
            options: those of PyTorch's runtime, such as `scale_grads`.

        Raises:
            longhaul.Error: the plan cannot be run like this; with the reason.
        """
        stages = list(stages)
        if not stages:
            raise InvalidError("stages: none; each rank has at least one")
        self._course = Course(what)
        self.device = stages[0].group_rank
        self._hosts = list(range(stages[0].group_size))
        chunks = [stage.stage_index for stage in stages]
        self._course.check_rank(self.device, stages[0].group_size, chunks)
        splits = hasattr(stages[0], "parts")
        features = Features(
            replicas, layers, operations, own_activations, splits, sites
        )
        features.check(self._course)
        self._features = features
        options |= {"loss_fn": loss_fn}
        self._options = options
        super().__init__(stages, self._course.n_microbatches, **options)
        self._place = _place_of(stages[0].device)
        self._meet(stages[0].group, rails)
        try:
            self._agree(stages[0].group)
            self._prepare(schedule, inject, path, adapt, schedule_at or {})
        except BaseException as error:
            why = str(error) or type(error).__name__
            self._host.close(f"its runtime was not made: {why}")
            raise

    def _prepare(
        self,
        schedule: Any,
        inject: str | None,
        path: str | Iterable[str] | None,
        adapt: bool | Adapt,
        schedule_at: Mapping[int, Any],
    ) -> None:
        """Makes the state of steps, by the constructor's arguments."""
        stages = self._stages
        # Gloo allows any number of pending receives in any order. NCCL's
        # pending receives block sends to the same rank.
        backend = _backend(stages[0].group, self._place)
        self._posts_early = backend.name() == "gloo"
        self._is_staged = _needs_host(stages[0].group, self._place)
        self.notices: list[str] = []
        self._is_posted = False
        self._receivers: dict[tuple[bool, int], Callable[[int], Any]] = {}
        self._rows: list[Row] = []
        self._marks = marks_of(self._place)
        self._times: list[tuple[Any, Any]] = []
        self._messages: dict[tuple[bool, int, int], Message] = {}
        self._sendings: dict[tuple[bool, int, int], Sending] = {}
        self._steps = 0
        self._is_measured = False
        self._failure: str | None = None  # the last step has raised
        self.step_s = 0.0
        self.switches: list[Switch] = []
        self._links = Links(
            self._course, self._host, self.device, self._place, self._is_staged
        )
        self._links.choose_path(path)
        self._is_emulated = inject is not None
        if inject is not None:
            self._links.inject(inject)
        self._shard()
        if self.sharding is not None and self._is_emulated:
            self.sharding.link = Link()
        self._follow(self._course.chosen(schedule))
        for stage in self._stages:
            self._take_over(stage)
        if adapt and schedule_at:
            raise UnsupportedError(
                "schedule_at: a run with adapt chooses its schedules; leave "
                "one of both out"
            )
        self._planned = self._prepare_switches(schedule_at)
        self._control: Leader | Follower | None = None
        if adapt:
            self._begin_adapting(adapt)

    def _shard(self) -> None:
        """Applies the plan's sharding, recomputation and offloading."""
        self.sharding = self._features.apply(
            self._course, self._stages, self.scale_grads
        )
        if self.sharding is not None:
            self.scale_grads = False

    # ranks

    def _meet(self, group: Any, rails: str | Iterable[str] | None) -> None:
        """Connects all ranks over host memory. Waits have the time limit of
        the stages' group."""
        if dist.get_backend(group) == "fake":
            raise UnsupportedError("a process group that is fake runs nothing")
        limit = _backend(group, self._place).options._timeout
        self._gloo = dist.new_group(backend="gloo", timeout=limit)
        self._host = messages_over(rails, self._gloo, limit)

    def _agree(self, group: Any) -> None:
        """Exchanges the ranks' data."""
        members = (
            list(range(dist.get_world_size()))
            if group is None
            else dist.get_process_group_ranks(group)
        )
        told = self._host.all_gather_object((members, host_clock()))
        self._members = self._ranks = members
        self._clocks = [told[rank][1] for rank in members]
        pipelines = sorted({tuple(ranks) for ranks, _ in told})
        self._first = list(pipelines[0])
        self._course.check_replicas(len(pipelines))

    def _is_first(self) -> bool:
        """Tests whether this rank is in the first replica, whose times are
        used."""
        return self._ranks == self._first

    # --- links --------------------------------------------------------------

    @property
    def path(self) -> str:
        """Data path of messages: "direct", "delegated" or "mixed"."""
        return self._links.path

    def inject(self, text: str) -> None:
        """Sets the delays of emulated links from the next step on.

        Raises:
            InvalidError: the runtime was made without `inject`, so its links
                are real, or the text names no link.
        """
        if not self._is_emulated:
            raise InvalidError(
                "inject: the links of this runtime are real; make it with "
                'inject="" or delays'
            )
        self._links.inject(text)

    # --- the schedule -------------------------------------------------------

    def _actions(self, order: Order) -> dict[int, list[Any]]:
        return {
            self._hosts[device]: [
                schedules._Action.from_str(cell)
                for cell in row
                if _is_known(cell)
            ]
            for device, row in enumerate(order.rows)
        }

    def _collectives(self, order: Order) -> Steps:
        return Steps(self._course.pipeline, order, self.device)

    def _check(self, order: Order) -> None:
        """Raises if this runtime cannot run a schedule."""
        if self.sharding is not None:
            self._collectives(order)
        splits = any(one.kind == "W" for row in order.passes for one in row)
        if splits and self.scale_grads and "REDUCE_GRAD" not in _KNOWN:
            raise UnsupportedError(
                f"torch {torch.__version__} does not scale gradients where "
                "the backward pass is split; give a loss that adds up, and "
                "scale_grads=False"
            )
        for stage in self._stages if splits else ():
            if isinstance(
                stage.submod, torch.nn.parallel.DistributedDataParallel
            ):
                raise UnsupportedError(
                    "DistributedDataParallel does not see weight gradients of "
                    "a backward pass that is split; use FSDP2 (fully_shard), "
                    "add up gradients after the step, or take a schedule with "
                    "joint backward passes"
                )

    def _follow(self, order: Order) -> None:
        """Sets the schedule from the next step on."""
        self._check(order)
        self._prepare_schedule_with_comms(
            self._actions(order), format="compute_comms"
        )
        if self.sharding is not None:
            self.sharding.follow(self._collectives(order))
        self._order = order
        self.order = order.name
        self._coming = order.sent_to(self.device, self._course.places)

    def _prepare_switches(self, at: Mapping[int, Any]) -> dict[int, Order]:
        """Resolves and checks schedules in advance, so that none fails during
        the run."""
        orders = {step: self._course.chosen(one) for step, one in at.items()}
        for order in orders.values():
            self._check(order)
            self._actions(order)
        return orders

    def resume(self, step: int) -> None:
        """Continues with a step, counted from 0, for example after a
        checkpoint was loaded: of `schedule_at` the last schedule up to this
        step applies. All ranks call it, before their first step."""
        self._steps = step
        past = sorted(n for n in self._planned if n <= step)
        for n in past:
            order = self._planned.pop(n)
            if n == past[-1]:
                self._follow(order)

    # integration into PyTorch's runtime

    def _take_over(self, stage: PipelineStage) -> None:
        """Replaces a stage's communication, and times its passes."""
        if hasattr(stage, "_get_init_p2p_neighbors_ops") and self._posts_early:
            # Older torch sends eight bytes to a receive of four, which gloo
            # rejects; it needs no first message to connect ranks.
            stage._get_init_p2p_neighbors_ops = list
        if self._is_staged:
            tell_by_host(stage, self._gloo, self._ranks)
        self._replace(stage, "get_fwd_recv_ops", self._receive(stage, True))
        self._replace(stage, "get_bwd_recv_ops", self._receive(stage, False))
        self._replace(stage, "get_fwd_send_ops", self._send(stage, True))
        self._replace(stage, "get_bwd_send_ops", self._send(stage, False))
        if hasattr(stage, "release_fwd_send_outputs"):
            self._replace(
                stage, "release_fwd_send_outputs", self._release(stage)
            )
        self._replace(stage, "forward_one_chunk", self._run(stage, True))
        self._replace(stage, "backward_one_chunk", self._run(stage, False))
        self._replace(
            stage, "backward_weight_one_chunk", self._run(stage, None)
        )

    def _replace(
        self, stage: PipelineStage, name: str, make: Callable[[Any], Any]
    ) -> None:
        setattr(stage, name, make(getattr(stage, name)))

    def _tag(self, forward: bool, stage: int, microbatch: int) -> int:
        number = (microbatch * self._num_stages + stage) * 2 + forward
        return _FIRST_TAG + number * _TENSORS

    def _receive(self, stage: Any, forward: bool) -> Callable[[Any], Any]:
        index = stage.stage_index

        def make(original: Any) -> Any:
            self._receivers[forward, index] = original

            def get_recv_ops(microbatch: int) -> list[Any]:
                if self._posts_early and self._has_backward:
                    self._post_all()
                else:
                    self._post(forward, index, microbatch)
                return []

            return get_recv_ops

        return make

    def _post(self, forward: bool, index: int, microbatch: int) -> None:
        ops = self._receivers[forward, index](microbatch)
        if ops:
            peer = self._course.places[index + (-1 if forward else 1)]
            tag = self._tag(forward, index, microbatch)
            self._messages[forward, index, microbatch] = self._links.post(
                peer, ops, tag
            )

    def _post_all(self) -> None:
        """Posts every receive of the step, once. The pass that needs a late
        message waits for it; early messages block none."""
        if self._is_posted:
            return
        self._is_posted = True
        for key in self._coming:
            self._post(*key)

    def _send(self, stage: Any, forward: bool) -> Callable[[Any], Any]:
        index = stage.stage_index

        def make(original: Any) -> Any:
            def get_send_ops(microbatch: int) -> list[Any]:
                ops = original(microbatch)
                if ops:
                    to = index + (1 if forward else -1)
                    tag = self._tag(forward, to, microbatch)
                    self._sendings[forward, index, microbatch] = (
                        self._links.send(self._course.places[to], ops, tag)
                    )
                return []

            return get_send_ops

        return make

    def _release(self, stage: Any) -> Callable[[Any], Any]:
        def make(original: Any) -> Any:
            def release(microbatch: int) -> None:
                key = True, stage.stage_index, microbatch
                if key in self._sendings:
                    self._sendings.pop(key).wait()
                original(microbatch)

            return release

        return make

    def _run(self, stage: Any, forward: bool | None) -> Callable[[Any], Any]:
        """Runs a pass: waits for its input, and marks its start and end."""

        def make(original: Any) -> Any:
            def run(microbatch: int, *args: Any, **more: Any) -> Any:
                shards = self.sharding if self._has_backward else None
                chunk = stage.stage_index
                key = (
                    -1 - chunk if forward is None else chunk,
                    forward is True,
                    microbatch,
                )
                if self._posts_early and self._has_backward:
                    self._post_all()
                message = None
                if forward is not None:
                    message = self._messages.pop(
                        (forward, stage.stage_index, microbatch), None
                    )
                row = Row()
                if message is not None:
                    message.wait()
                    row.posted_ns = message.posted_ns
                    row.entered_ns = message.entered_ns
                    row.arrived_ns = message.arrived_ns
                if shards is not None:
                    shards.before(key)
                start = self._marks.mark()
                made = original(microbatch, *args, **more)
                self._rows.append(row)
                self._times.append((start, self._marks.mark()))
                if shards is not None:
                    shards.after(key)
                return made

            return run

        return make

    def _maybe_compute_loss(self, *args: Any, **more: Any) -> None:
        """Adds the loss to the last chunk's forward."""
        super()._maybe_compute_loss(*args, **more)
        if self._times:
            self._times[-1] = (self._times[-1][0], self._marks.mark())

    # --- steps --------------------------------------------------------------

    def step(self, *args: Any, **more: Any) -> Any:
        """Runs an iteration like PyTorch's `step()`; with `adapt`, schedules
        may switch between two iterations."""
        begin = host_ns()
        self._failure = "a step has failed"  # until it has completed
        trains = self._has_backward
        if trains and self._steps in self._planned:
            self._follow(self._planned.pop(self._steps))
        self._order_of_step = self._order
        if trains and self._control is not None:
            self._control.begin(self._steps)
        self._rows.clear()
        self._times.clear()
        self._is_posted = False
        self._marks.begin()
        if self.sharding is not None:
            self.sharding.begin() if trains else self.sharding.gather()
        try:
            made = super().step(*args, **more)
            for sending in self._sendings.values():
                sending.wait()
            if self.sharding is not None and trains:
                self.sharding.end()
        except KeyboardInterrupt:
            self._failure = "interrupted"
            raise
        finally:
            self._sendings.clear()
            self._messages.clear()
        self.step_s = (host_ns() - begin) * 1e-9
        self._is_measured = trains
        if trains:
            settle(self._rows, self._times, self._marks)
            if self._control is not None:
                word = self._control.end(self._steps, packed(self._rows))
                if word is not None:
                    self._obey(word)
            self._steps += 1
        for text in self._host.read_notices():
            self.notices.append(text)
            log.warning("%s", text)
        self._failure = None
        return made

    # schedule switches

    def _begin_adapting(self, adapt: bool | Adapt) -> None:
        how = adapt if isinstance(adapt, Adapt) else Adapt()
        if how.staging_s is not None and isinstance(self._host, RailMessages):
            raise UnsupportedError(
                "staging_s: with rails, messages have no other path than the "
                "delegated one; leave one of both out"
            )
        if how.staging_s is not None and self._is_staged:
            raise UnsupportedError(
                "staging_s: messages have no other path than the delegated "
                "one, since the stages' process group is gloo and they are on "
                "GPUs; leave it out, or take NCCL for the group"
            )
        self._links.observe()
        self._host.separate_votes()
        if dist.get_rank() == self._first[0]:
            self._control = Leader(
                self._course,
                self._order,
                how,
                self._clocks,
                self._members,
                self._host,
            )
        else:
            self._control = Follower(
                self._first[0], self._host, self._is_first()
            )

    def _obey(self, word: Word) -> None:
        """Runs on all ranks between two steps."""
        assert self._control is not None
        if word.kind == KEEP:
            return
        told = json.loads(word.text)
        order, against = self._prepared(told)
        against = vote(against, self._host)
        self._control.answer(self._steps + 1, against is None)
        if order is not None and against is None:
            self._follow(order)
            if told["delegated"] is not None:
                self._links.delegate(told["delegated"])
        self.switches.append(
            Switch(
                self._steps + 1,
                told["name"],
                self.path,
                told["before_s"],
                told["predicted_s"],
                told["why"],
                against,
            )
        )

    def _prepared(
        self, told: dict[str, Any]
    ) -> tuple[Order | None, str | None]:
        """Returns the schedule that this rank would run, or the reason against
        it."""
        try:
            order = self._course.parsed(
                told["passes"], told["name"], told["rows"]
            )
            self._check(order)
            self._actions(order)
        except (Error, ValueError, RuntimeError) as error:
            return None, str(error)
        return order, None

    # layers moved between chunks

    def move_layers(
        self,
        counts: Sequence[int],
        optimizer: torch.optim.Optimizer | None = None,
    ) -> int:
        """Changes the number of layers of each chunk between two steps: sends
        layers, with their weights and optimizer state, to other chunks.
        Collective: all ranks call it with the same counts, after the
        optimizer's step. Schedules and emulated times remain.

        Args:
            counts: layers per chunk, in model order.
            optimizer: the rank's optimizer; its parameter groups are the same
                on all ranks.

        Returns:
            The number of layers that moved.

        Raises:
            UnsupportedError: the runtime shards the parameters, recomputes
                or offloads activations in the plan's layers, or runs the
                stages of another program.
            InvalidError: the counts are no partition of the layers.
        """
        self._check_movable("move_layers")
        return _moves.move(
            {stage.stage_index: stage.submod for stage in self._stages},
            counts,
            optimizer,
            _moves.Ranks(
                self._course.places, self._members, self._host, self._place
            ),
            self._features.layers,
        )

    def _check_movable(self, method: str) -> None:
        """Raises if the runtime's layers cannot move to other ranks."""
        why = None
        if not all(isinstance(one, PipelineStage) for one in self._stages):
            why = (
                "the stages are those of another program, which has its own "
                "buffers of their parameters; use stages of PyTorch"
            )
        elif self.sharding is not None:
            why = (
                "the runtime shards the parameters of the plan's layers; make "
                "it without `replicas`"
            )
        elif self._features.changes(self._course):
            why = (
                "the runtime recomputes or offloads activations in the plan's "
                "layers; plan with training.recompute: none and offload: 0"
            )
        if why is not None:
            raise UnsupportedError(f"{method}: {why}")

    @property
    def stages(self) -> tuple[PipelineStage, ...]:
        """This rank's stages."""
        return tuple(self._stages)

    def move_hosts(
        self,
        hosts: Sequence[int],
        optimizer: torch.optim.Optimizer | None = None,
    ) -> None:
        """Exchanges the ranks that run the plan's devices, between two steps:
        sends chunks, with their weights and optimizer state, to other ranks.
        Collective: all ranks call it with the same hosts, after the
        optimizer's step. Then `device` and `stages` are other ones.

        Args:
            hosts: for each device the rank, in the pipeline's process group,
                that runs it from now on.
            optimizer: as for `move_layers`.

        Raises:
            UnsupportedError: as for `move_layers`, or the runtime adapts.
            InvalidError: the hosts are no permutation.
        """
        self._check_movable("move_hosts")
        if self._control is not None:
            raise UnsupportedError(
                "move_hosts: the runtime adapts to measurements of the hosts; "
                "make it without `adapt`"
            )
        _moves.check_hosts(hosts, len(self._hosts))
        members = [self._ranks[host] for host in hosts]
        first = self._stages[0]
        chunks = _moves.exchange(
            {stage.stage_index: stage.submod for stage in self._stages},
            members,
            optimizer,
            _moves.Ranks(
                self._course.places, self._members, self._host, self._place
            ),
        )
        self._hosts, self._members, self._is_measured = [*hosts], members, False
        self.device = self._hosts.index(first.group_rank)
        self._links.move(self.device)
        self._receivers.clear()
        stages = [
            PipelineStage(
                module,
                chunk,
                self._num_stages,
                self._place,
                group=first.group,
                dw_builder=first.dw_builder,
            )
            for chunk, module in chunks.items()
        ]
        super().__init__(stages, self._n_microbatches, **self._options)
        self._follow(self._order)
        for stage in stages:
            self._take_over(stage)

    def close(self) -> None:
        """Ends this rank's threads; call before destroying the process group.

        After a step that raised it does not wait for them: other ranks may
        never send the messages that they wait for, or only after this call.
        """
        waits = self._failure is None
        if self._control is not None:
            self._control.close(waits)
            self._control = None
        self._links.close(waits)
        self._host.close(self._failure)

    def write_trace(self, path: str | os.PathLike[str]) -> None:
        """Writes the last step as a longhaul trace, for `longhaul report
        --measured`. Collective: all ranks call it; the first one writes the
        file.

        Raises:
            UnsupportedError: the pipeline's hosts have different clocks.
            InvalidError: no step has run.
        """
        if not self._is_measured:
            raise InvalidError("write_trace: no step was taken so far")
        if len(set(self._clocks)) > 1:
            raise UnsupportedError(
                "write_trace: the pipeline's ranks are on several hosts, "
                "whose clocks show other times"
            )
        if not self._is_first():
            return
        rows = gathered(
            self._order_of_step,
            self.device,
            packed(self._rows),
            self._members,
            self._host,
        )
        if rows is not None:
            text = trace_text(
                self._course,
                self._order_of_step,
                rows,
                self._links.transfers,
                f"{self._course.name}, {self.order}, PyTorch",
            )
            write_text(path, text)
