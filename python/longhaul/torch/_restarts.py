# SPDX-License-Identifier: Apache-2.0
# pyright: basic, reportMissingImports=false, reportAttributeAccessIssue=false
"""Training states in memory that outlives a rank (Gemini,
doi:10.1145/3600006.3613145), for jobs that torchrun restarts after a loss.

The states are files in a memory file system. Their names have the process that
started the rank, torchrun's agent, which is the same before and after a
restart, and a number of the job; files of agents that have ended are removed.
The library chooses the
state with which all ranks continue, as for `longhaul train --max-restarts`.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import pathlib
import re
from collections.abc import Callable, Iterator
from typing import Any, BinaryIO

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import FSDPModule
from torch.distributed.pipelining import PipelineStage
from torch.utils._pytree import tree_map_only

from .._errors import FileError, UnsupportedError
from .._library import ffi, lib, made_text, try_call
from ._orders import Course
from ._runtime import PipelineRuntime

_DATA_TAG = 7  # below the tags of messages between passes
_NUMBER_BYTES = 8
_N_STATES = 2
# Owner, job and local rank; of a whole state also its step and part.
_NAME = re.compile("longhaul" + 6 * r"-(\d+)" + r"(?:-(\d+)-(\d+))?")


def _start_of(process: int) -> int | None:
    """Returns when a process began, in ticks since boot; None: it ended."""
    try:
        text = pathlib.Path(f"/proc/{process}/stat").read_text()
    except OSError:
        return None
    return int(text.rpartition(")")[2].split()[19])


def _number(text: str) -> int:
    """Returns a number above 0 that differs between texts."""
    made = hashlib.blake2b(text.encode(), digest_size=_NUMBER_BYTES).digest()
    return int.from_bytes(made, "little") | 1


def _job_of(course: Course) -> int:
    """Returns the job's number: of torchrun's name for it, and of its plan or
    pipeline."""
    plan = course.problem.plan
    text = (
        made_text(lib.lh_pipeline_format, course.pipeline)
        if plan is None
        else made_text(lib.lh_plan_format, plan)
    )
    return _number(f"{os.environ.get('TORCHELASTIC_RUN_ID', '')} {text}")


class _Files:
    """A rank's states in a folder, at most two. `job`: the job's number."""

    def __init__(self, folder: pathlib.Path, job: int) -> None:
        self._folder = folder
        parent = os.getppid()
        # Process numbers are unique in a namespace.
        space = os.stat("/proc/self/ns/pid").st_ino
        self._owner = os.getuid(), space, parent, _start_of(parent) or 0
        local = int(os.environ.get("LOCAL_RANK") or dist.get_rank())
        self._mine = (*self._owner, job, local)
        if not folder.is_dir():
            raise UnsupportedError(
                f"folder: {folder} is no folder; name one in a memory file "
                "system (tmpfs)"
            )
        self._remove_ended()

    def _found(self) -> Iterator[tuple[pathlib.Path, tuple[int, ...]]]:
        for path in self._folder.glob(f"longhaul-{os.getuid()}-*"):
            name = _NAME.fullmatch(path.name)
            with contextlib.suppress(FileNotFoundError):
                if name and path.lstat().st_uid == os.getuid():
                    yield path, tuple(map(int, filter(None, name.groups())))

    def _remove_ended(self) -> None:
        """Removes states whose agent has ended, and those that this rank was
        writing when it was killed."""
        for path, (_, space, parent, start, *_) in self._found():
            if space == self._owner[1] and _start_of(parent) != start:
                path.unlink(missing_ok=True)
        self._new().unlink(missing_ok=True)

    def _new(self) -> pathlib.Path:
        return self._folder / "-".join(("longhaul", *map(str, self._mine)))

    def kept(self) -> list[tuple[int, int, pathlib.Path]]:
        """Returns the step and part of this rank's states, newest first."""
        return sorted(
            (
                (key[6], key[7], path)
                for path, key in self._found()
                if len(key) == 8 and key[:6] == self._mine
            ),
            reverse=True,
        )

    def write(
        self, step: int, part: int, save: Callable[[BinaryIO], object]
    ) -> pathlib.Path:
        """Keeps a state, which only this user can read, and the newest one of
        another step; returns the state's file. When a rank stores a state, all
        ranks have the one before."""
        others = [one for one in self.kept() if one[0] != step]
        for _, _, path in others[_N_STATES - 1 :]:
            path.unlink(missing_ok=True)
        new = self._new()
        path = new.with_name(f"{new.name}-{step}-{part}")
        try:
            new.unlink(missing_ok=True)
            made = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with os.fdopen(made, "wb") as file:
                save(file)
            return new.replace(path)
        except OSError as error:
            new.unlink(missing_ok=True)
            raise FileError(
                f"{path}: {error.strerror}; each rank keeps {_N_STATES} "
                "states: enlarge the file system, or name another folder"
            ) from error


class MemoryCheckpoint:
    """States of this rank's chunks, of an optimizer and of random numbers, in
    memory that outlives the rank: torchrun --max-restarts N restarts all ranks
    after the loss of one, and they continue after the last completed step.

        kept = longhaul.torch.MemoryCheckpoint(runtime, optimizer)
        step = kept.restore()
        if step is None:
            step = load_newest_checkpoint()  # the program's own; or 0
        for step in range(step, steps):
            runtime.step(...)
            optimizer.step()
            kept.store(step + 1)
        kept.close()
    """

    def __init__(
        self,
        runtime: PipelineRuntime,
        *objects: Any,
        folder: str | os.PathLike[str] = "/dev/shm",
    ) -> None:
        """Makes a rank's checkpoint; keeps none yet.

        Args:
            runtime: its chunks are stored; with `replicas` this replica's
                parts of them.
            objects: the optimizer, and others with state_dict() and
                load_state_dict(), in one order on all ranks.
            folder: in a memory file system, with space for two states of each
                rank of the host.

        Raises:
            UnsupportedError: the stages are wrapped in fully_shard, or are
                Megatron's; or there is no such folder.
        """
        for stage in runtime._stages:
            if not isinstance(stage, PipelineStage):
                raise UnsupportedError(
                    "MemoryCheckpoint: the stages are those of another "
                    "program; use its checkpoints"
                )
            if any(isinstance(m, FSDPModule) for m in stage.submod.modules()):
                raise UnsupportedError(
                    "MemoryCheckpoint: the stages are wrapped in fully_shard; "
                    "shard them by the argument `replicas` of the runtime"
                )
        self._runtime, self._objects = runtime, objects
        self._files = _Files(pathlib.Path(folder), _job_of(runtime._course))

    def restore(self) -> int | None:
        """Restores the newest state that all ranks have completed; collective.

        Ranks without their states get them from ranks with the same chunks.

        Returns:
            The number of completed steps; None: this is the job's start, or no
            rank has the state of some chunks: load a checkpoint.
        """
        host = self._runtime._host
        kept = self._files.kept()
        part = kept[0][1] if kept else 0
        steps = [step + 1 for step, one, _ in kept if one == part]
        told = host.all_gather_object((self._part(), part, steps[:_N_STATES]))
        ranks = ffi.new("lh_kept_states[]", len(told))
        for i, (needed, one, numbers) in enumerate(told):
            ranks[i].needed, ranks[i].kept = needed, one
            for k, number in enumerate(numbers):
                ranks[i].steps[k] = number
        step = ffi.new("uint64_t *")
        donors = ffi.new("uint32_t[]", len(told))
        try_call(lib.lh_restart_choose, len(told), ranks, step, donors)
        is_restored = donors[0] < len(told)
        got = self._exchanged(step[0], list(donors)) if is_restored else None
        written = None
        if got is not None:
            data = memoryview(got.numpy())
            written = self._files.write(
                step[0], self._part(), lambda file: file.write(data)
            )
        for number, _, path in kept:
            is_old = got is not None or number > step[0]
            if path != written and (not is_restored or is_old):
                path.unlink(missing_ok=True)
        if not is_restored:
            return None
        self._load(self._files.kept()[0][2])
        self._runtime.resume(step[0])
        return int(step[0])

    def store(self, step: int) -> None:
        """Keeps the state after `step` steps, and the one stored before.
        All ranks call it after the same steps."""
        state = {
            "chunks": [chunk for _, chunk in self._tensors()],
            "objects": [one.state_dict() for one in self._objects],
            "random": _random_state(self._runtime._place),
        }
        state = tree_map_only(torch.Tensor, lambda t: t.detach().cpu(), state)
        self._files.write(
            step, self._part(), lambda file: torch.save(state, file)
        )

    def close(self) -> None:
        """Removes this rank's states, at the end of training."""
        for _, _, path in self._files.kept():
            path.unlink(missing_ok=True)

    def _exchanged(self, step: int, donors: list[int]) -> torch.Tensor | None:
        """Sends this rank's state to those that continue with it; returns the
        bytes of another rank's state, if this one continues with that."""
        host, mine = self._runtime._host, dist.get_rank()
        got = None
        for rank, donor in enumerate(donors):
            if donor == rank or mine not in (donor, rank):
                continue
            if mine == donor:
                (path,) = (p for n, _, p in self._files.kept() if n == step)
                n = path.stat().st_size
                data = torch.from_file(str(path), size=n, dtype=torch.uint8)
                host.send(torch.tensor([n], device="cpu"), rank, _DATA_TAG)
                host.send(data, rank, _DATA_TAG)
            else:
                size = torch.empty(1, dtype=torch.int64, device="cpu")
                host.receive(size, donor, _DATA_TAG)
                got = torch.empty(int(size), dtype=torch.uint8, device="cpu")
                host.receive(got, donor, _DATA_TAG)
        return got

    def _tensors(self) -> Iterator[tuple[int, dict[str, Any]]]:
        """Yields the tensors of each chunk; of sharded parameters those that
        this replica owns."""
        sharding = self._runtime.sharding
        for stage in self._runtime._stages:
            chunk, module = stage.stage_index, stage.submod
            if sharding is None:
                yield chunk, module.state_dict()
                continue
            found = dict(module.named_buffers())
            for i, part in enumerate(sharding.parts[chunk]):
                found[f"{i} {part.level}"] = part.shard
            yield chunk, found

    def _part(self) -> int:
        """Returns a number above 0 for the part of the model that this rank
        stores, and the order of its parameters in optimizers, which load their
        states by it."""
        sharding = self._runtime.sharding
        features = self._runtime._features
        share = None
        if sharding is not None:
            share = dist.get_rank(features.replicas)
        names = {
            id(p): (stage.stage_index, name)
            for stage in self._runtime._stages
            for name, p in stage.submod.named_parameters()
        }
        order = [
            [names.get(id(p)) for p in group["params"]]
            for one in self._objects
            for group in getattr(one, "param_groups", [])
        ]
        text = repr(
            [
                (chunk, name, tuple(t.shape), str(t.dtype), share)
                for chunk, tensors in self._tensors()
                for name, t in tensors.items()
                if isinstance(t, torch.Tensor)
            ]
            + order
        )
        return _number(text)

    def _load(self, path: pathlib.Path) -> None:
        state = torch.load(path, map_location="cpu", weights_only=False)
        sharding = self._runtime.sharding
        modules: list[nn.Module] = [s.submod for s in self._runtime._stages]
        chunks = list(self._tensors())
        for module, (_, tensors), saved in zip(
            modules, chunks, state["chunks"], strict=True
        ):
            if sharding is None:
                module.load_state_dict(saved)
                continue
            with torch.no_grad():
                for name, tensor in tensors.items():
                    tensor.copy_(saved[name])
        for one, saved in zip(self._objects, state["objects"], strict=True):
            one.load_state_dict(saved)
        _set_random_state(self._runtime._place, state["random"])


def _random_state(device: torch.device) -> list[torch.Tensor]:
    states = [torch.get_rng_state()]
    if device.type == "cuda":
        states.append(torch.cuda.get_rng_state(device))
    return states


def _set_random_state(device: torch.device, states: list[torch.Tensor]) -> None:
    torch.set_rng_state(states[0])
    if device.type == "cuda":
        torch.cuda.set_rng_state(states[1], device)
