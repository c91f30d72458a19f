# SPDX-License-Identifier: Apache-2.0
"""Commands that run in a process of their own: train, diagnose, profile."""

from __future__ import annotations

import dataclasses
import json
import os
import queue
import signal
import tempfile
import threading
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import TracebackType
from typing import Any

from ._errors import Error, InvalidError
from ._inputs import Source
from ._library import encoded, lib, try_call
from ._plans import Plan
from ._program import Process, words_of
from ._results import Result, frame_of, plain, several
from ._schedules import Schedule


@dataclasses.dataclass(frozen=True)
class Step(Result):
    """An iteration of a run.

    Attributes:
        step: its number, from 0.
        seconds: its duration.
        loss: mean per token; None if nothing is trained.
        mtp_loss: that of the modules for multi-token prediction, if any.
        validation_loss: after this iteration, if it was computed.
        gradient_norm: before clipping.
        rate: the learning rate.
        predicted_s: its predicted duration, with events.
        schedule, path: the current schedule, and the messages' data path.
        slow: links and devices that events slow down.
        switch: the change of schedule or layers before it, as in the log.
    """

    step: int = 0
    seconds: float = 0.0
    loss: float | None = None
    mtp_loss: float | None = None
    validation_loss: float | None = None
    gradient_norm: float | None = None
    rate: float | None = None
    tokens_per_s: float | None = None
    predicted_s: float | None = None
    schedule: str = ""
    path: str = ""
    slow: tuple[Any, ...] = several(lambda one: one)
    switch: Mapping[str, Any] | None = plain()

    def metrics(self) -> dict[str, float]:
        """Returns all numbers except the step's own, by name."""
        return {
            name: value
            for name, value in self._json.items()
            if name != "step" and isinstance(value, (int, float))
        }


@dataclasses.dataclass(frozen=True)
class MeasuredMemory(Result):
    """Peak memory of a trained rank, in bytes."""

    rank: int = 0
    predicted_bytes: int = 0
    measured_bytes: int = 0
    limit_bytes: int = 0
    planned_bytes: int = 0
    by_kind: Mapping[str, int] = plain()


@dataclasses.dataclass(frozen=True)
class TrainResult(Result):
    """A run's results.

    Attributes:
        predicted_s, median_s: an iteration, as predicted and as measured.
        interrupted: the run ended before its last step.
        mfu: share of the plan's floating-point peak; None if nothing was
            trained.
    """

    device: str = ""
    transport: str = ""
    schedule: str = ""
    ranks: int = 0
    replicas: int = 0
    predicted_s: float | None = None
    median_s: float | None = None
    total_s: float = 0.0
    mfu: float | None = None
    interrupted: bool = False
    iterations: tuple[Step, ...] = several(Step.of, shown=False)
    memory: tuple[MeasuredMemory, ...] = several(MeasuredMemory.of, shown=False)

    def frame(self) -> Any:
        """Returns the iterations as a pandas.DataFrame; needs pandas."""
        return frame_of(self._json["iterations"])


Callback = Callable[[Step, "Training"], object]


def _read_lines(fd: int, lines: queue.SimpleQueue[str | None]) -> None:
    with os.fdopen(fd, encoding="utf-8") as log:
        for line in log:
            lines.put(line)
    lines.put(None)


def _end(process: Process) -> None:
    if process.popen.poll() is None:
        process.popen.kill()
        process.popen.wait()


class Training:
    """A run of `longhaul train`, and an iterator over its steps.

        with longhaul.train("plan.json", steps=100) as training:
            for step in training:
                print(step.step, step.seconds)
        print(training.result().median_s)

    Steps run on, whether or not they are iterated over. Leaving the `with`
    block early ends the run at once.
    """

    def __init__(
        self,
        what: Source,
        words: Sequence[str],
        callbacks: Sequence[Callback],
        files: tempfile.TemporaryDirectory[str],
    ) -> None:
        self._files = files  # deleted with this object
        self._callbacks = list(callbacks)
        self._result: TrainResult | None = None
        self._error: Error | None = None
        self._is_over = False
        reader, writer = os.pipe()
        try:
            self._process = Process(
                "train",
                what,
                [*words, "--quiet", "--log", f"/dev/fd/{writer}"],
                (writer,),
                files.name,
            )
        except BaseException:
            os.close(reader)
            raise
        finally:
            os.close(writer)
        self._lines: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        threading.Thread(
            target=_read_lines, args=(reader, self._lines), daemon=True
        ).start()
        self._finalizer = weakref.finalize(self, _end, self._process)

    def __iter__(self) -> Iterator[Step]:
        return self

    def __next__(self) -> Step:
        """Waits for the next step.

        Raises:
            Error: the run has failed; with the program's message.
        """
        line = None if self._is_over else self._lines.get()
        if line is None:
            self._finish()
            raise StopIteration
        step = Step.of(json.loads(self._process.shown(line)))
        for call in self._callbacks:
            call(step, self)
        return step

    def stop(self, now: bool = False) -> None:
        """Ends the run after its current step, with a checkpoint if it writes
        any; `now`: at once. Steps that were completed can still be iterated
        over."""
        if self._process.popen.poll() is None:
            self._process.popen.send_signal(signal.SIGINT)
            if now:  # a second signal of the same kind could merge with it
                self._process.popen.send_signal(signal.SIGTERM)

    def result(self) -> TrainResult:
        """Waits for the run's end, with callbacks for its remaining steps, and
        returns its results.

        Raises:
            Error: the run has failed; with the program's message.
        """
        for _ in self:
            pass
        assert self._result is not None
        return self._result

    def _finish(self) -> None:
        if not self._is_over:
            self._is_over = True
            try:
                self._result = TrainResult.of(self._process.result())
            except Error as error:
                self._error = error
            finally:
                self._close_callbacks()
        if self._error is not None:
            raise self._error

    def _close_callbacks(self) -> None:
        for call in self._callbacks:
            close = getattr(call, "close", None)
            if close is not None:
                close()

    def __enter__(self) -> Training:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if not self._is_over:
            self._is_over = True
            self.stop(now=True)
            self._error = Error("train: the run was left before its end")
            self._process.popen.wait()
            self._close_callbacks()


def train(
    what: Source | Plan,
    *,
    steps: int = 3,
    schedule: str | os.PathLike[str] | Schedule | None = None,
    callbacks: Sequence[Callback] = (),
    **options: Any,
) -> Training:
    """Starts a run of a plan or a pipeline.

        for step in longhaul.train("plan.json", device="cpu", data="book.txt"):
            print(step.loss)

    Args:
        what: a plan or a pipeline: a path, a text, a map, or a `Plan`.
        steps: number of iterations.
        schedule: a method, a path of a CSV or plan, or a `Schedule`; None: the
            plan's own.
        callbacks: functions of a `Step` and the `Training`, called for each
            step where it is iterated over; their `close()`, if any, is called
            at the end. `TensorBoard` and `WandB` are such.
        options: those of the program's `train`, with `_` for `-`: True for a
            flag, a sequence for values between commas, a map for `KEY=VALUE`,
            such as ``schedule_at={2: "gpipe"}``.

    Raises:
        Error: `what` cannot be read. All other errors are raised where steps
            are iterated over: InvalidError for an option, InputError with file,
            line and key for a file.
    """
    for name in ("log", "json", "output", "quiet"):
        if name in options:
            raise InvalidError(
                f"{name}: the steps and the result are values of this "
                "function; write them from a callback"
            )
    files = tempfile.TemporaryDirectory(prefix="longhaul-")
    given = _with_files({"schedule": schedule, **options}, files.name)
    words = words_of({"steps": steps, **given})
    source = what.json() if isinstance(what, Plan) else what
    return Training(source, words, callbacks, files)


def _with_files(options: Mapping[str, Any], folder: str) -> dict[str, Any]:
    """Replaces each Schedule by the path of a file with it."""
    n = 0

    def replace(value: Any) -> Any:
        nonlocal n
        if isinstance(value, Mapping):
            return {k: replace(v) for k, v in value.items()}  # pyright: ignore
        if not isinstance(value, Schedule):
            return value
        path = os.path.join(folder, f"schedule-{n}.csv")
        n += 1
        value.write(path)
        return path

    return {name: replace(value) for name, value in options.items()}


@dataclasses.dataclass(frozen=True)
class Cause(Result):
    """A worker, stage, link or other part that is slower than its peers."""

    what: str = ""
    ratio: float = 0.0
    steps: int = 0
    cost_s: float = 0.0
    stage: int | None = None
    replica: int | None = None
    hidden: bool = False


@dataclasses.dataclass(frozen=True)
class Remedy(Result):
    """A possible remedy, with its predicted time of a step, and its gain as a
    share of the step's time."""

    what: str = ""
    assumes: str = ""
    predicted_s: float = 0.0
    gain: float = 0.0


@dataclasses.dataclass(frozen=True)
class Diagnosis(Result):
    """Why a recorded job is slow.

    Attributes:
        measured_s, t_s, ideal_s: mean time of a step: measured, replayed, and
            replayed with ideal times.
        slowdown: replayed time / ideal time.
        by_stage, by_replica, by_operation: the slowdown if only these parts
            had their measured times.
        slow: parts that are slower than their peers.
        helps: possible remedies.
        remarks: damaged parts of the recording, and other notes.
    """

    n_steps: int = 0
    stages: int = 0
    replicas: int = 0
    microbatches: int = 0
    measured_s: float | None = None
    t_s: float | None = None
    ideal_s: float | None = None
    slowdown: float | None = None
    by_stage: Mapping[str, float] = plain()
    by_replica: Mapping[str, float] = plain()
    by_operation: Mapping[str, float] = plain()
    slow: tuple[Cause, ...] = several(Cause.of)
    helps: tuple[Remedy, ...] = several(Remedy.of)
    remarks: tuple[str, ...] = several(str)

    def frame(self) -> Any:
        """Returns the steps as a pandas.DataFrame; needs pandas."""
        return frame_of(self._json["steps"])


def diagnose(
    *recordings: str | os.PathLike[str],
    map: str | os.PathLike[str] | None = None,
    job: str | os.PathLike[str] | None = None,
    html: str | os.PathLike[str] | None = None,
    pipeline_out: str | os.PathLike[str] | None = None,
    profile_out: str | os.PathLike[str] | None = None,
    threads: int | None = None,
) -> Diagnosis:
    """Finds why a recorded job is slow, and possible remedies.

    Args:
        recordings: paths of one recording: a CSV or trace, or traces of ranks
            by PyTorch's profiler or Nsight Systems.
        map: a file with the stage and replica of each rank, and the operation
            of each range, if the traces lack them.
        job: the recorded job, for `profile_out`.
        html: a page to write: maps, steps, remedies.
        pipeline_out: a pipeline to write: the replica with the slowest passes.
        profile_out: a profile to write, with that replica's passes.
        threads: steps replayed in parallel; None: one per processor.

    Raises:
        Error: the recording cannot be read, or `job` is wrong.
    """
    options = {
        "map": map,
        "job": job,
        "html": html,
        "pipeline_out": pipeline_out,
        "profile_out": profile_out,
        "threads": threads,
    }
    words = [os.fspath(path) for path in recordings]
    made = Process("diagnose", None, [*words, *words_of(options)])
    return Diagnosis.of(made.result())


@dataclasses.dataclass(frozen=True)
class ProfileEntry(Result):
    """Measured passes: of a layer, an embedding, a head or a chunk. Times in
    microseconds."""

    kind: str = ""
    gpu: str | None = None
    tensor: int = 1
    micro_batch: int = 1
    sequence: int = 0
    F_us: float = 0.0
    D_us: float = 0.0
    W_us: float = 0.0
    activation_bytes: int | None = None
    static_bytes: int | None = None


@dataclasses.dataclass(frozen=True)
class Profile(Result):
    """Measured times of a job's layers and of links. `to_dict()` is a job's
    `profile`."""

    model: str | None = None
    gpu: str | None = None
    source: str | None = None
    entries: tuple[ProfileEntry, ...] = several(ProfileEntry.of)

    def write(self, path: str | os.PathLike[str]) -> None:
        """Writes the file that a job's `profile` names, atomically."""
        text = json.dumps(self.to_dict(), indent=2).encode() + b"\n"
        try_call(
            lib.lh_file_write,
            encoded(path),
            text,
            len(text),
            name=os.fsdecode(path),
        )


def profile(
    job: Source,
    *,
    repeats: int | None = None,
    links: bool = True,
    torch: bool = False,
    modules: str | None = None,
    tensor: Sequence[int] | None = None,
    micro_batch: Sequence[int] | None = None,
) -> Profile:
    """Measures a job's layers, and messages, on this machine.

    Args:
        job: a path, a text or a map.
        repeats: runs of each pass, at least; the result is the median.
        links: also measure messages between two processes.
        torch: run the layers with PyTorch, on the GPU if there is one.
        modules, tensor, micro_batch: as in `longhaul.torch.profile`; need
            `torch`.

    Raises:
        InputError: the job is invalid; with its file, line and key.
        Error: the layers cannot be run.
    """
    options = {
        "repeats": repeats,
        "no_links": not links,
        "torch": torch,
        "modules": modules,
        "tensor": tensor,
        "micro_batch": micro_batch,
    }
    return Profile.of(Process("profile", job, words_of(options)).result())
