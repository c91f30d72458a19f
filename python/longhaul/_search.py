# SPDX-License-Identifier: Apache-2.0
"""Searches: progress and Ctrl-C.

A search that the main thread starts runs in a separate thread. The main
thread waits and receives the interrupt; the search ends at its next check, and
its results are dropped. Python never interrupts other threads, so there the
search runs in the calling thread. The library releases the interpreter's lock.
"""

from __future__ import annotations

import importlib
import sys
import threading
import time
from collections.abc import Callable
from typing import Any, TypeVar

from ._native import ffi

T = TypeVar("T")

# Seconds between two updates of the bar. The library reports far more often,
# and a notebook without widgets prints each update on a new line.
_REFRESH_S = 0.1


def _bar(what: str) -> Any:
    """Returns a tqdm bar if tqdm is installed, else None."""
    try:
        tqdm: Any = importlib.import_module("tqdm.auto")
    except ImportError:
        return None
    return tqdm.tqdm(desc=what, bar_format="{desc} {bar} {percentage:3.1f} %")


class Search:
    """A search: its stop request and its progress."""

    def __init__(self, what: str, progress: bool | None) -> None:
        if progress is None:
            progress = sys.stderr.isatty() or "ipykernel" in sys.modules
        self.stopped = False
        self._what = what
        self._bar: Any = _bar(what) if progress else None
        self._shown_s = 0.0
        self._handle: Any = ffi.new_handle(self)

    @property
    def context(self) -> Any:
        """Returns the argument that the library passes to `progress` and
        similar callbacks."""
        return self._handle

    def show(self, done: float, total: float, best_ns: int) -> None:
        """Updates the bar."""
        if self._bar is None:
            return
        best = f", best {best_ns / 1e9:.3f} s" if 0 < best_ns < 2**62 else ""
        self._bar.total = total
        self._bar.n = done
        self._bar.set_description(self._what + best, refresh=False)
        now = time.monotonic()
        if now - self._shown_s >= _REFRESH_S:
            self._shown_s = now
            self._bar.refresh()

    def run(self, call: Callable[[], T]) -> T:
        """Returns the result of `call`; raises KeyboardInterrupt if
        interrupted."""
        try:
            if threading.current_thread() is threading.main_thread():
                return self._apart(call)
            return call()
        finally:
            if self._bar is not None:
                self._bar.close()

    def _apart(self, call: Callable[[], T]) -> T:
        results: list[T] = []
        errors: list[BaseException] = []
        done = threading.Event()

        def work() -> None:
            try:
                results.append(call())
            except BaseException as error:  # raised again below
                errors.append(error)
            finally:
                done.set()

        thread = threading.Thread(target=work, name="longhaul", daemon=True)
        thread.start()
        try:
            done.wait()
        except BaseException:
            self.stopped = True
            done.wait()
            raise
        finally:
            if done.is_set():  # else a second interrupt
                thread.join()
        if errors:
            raise errors[0]
        return results[0]


def _look(context: Any, done: float, total: float, best_ns: int) -> bool:
    search: Search = ffi.from_handle(context)
    if not search.stopped:
        search.show(done, total, best_ns)
    return search.stopped


# Errors in callbacks do not stop the search.
@ffi.def_extern(error=False)
def longhaul_on_layouts(
    context: Any, done: int, total: int, best_ns: int
) -> bool:
    return _look(context, done, total, best_ns)


@ffi.def_extern(error=False)
def longhaul_on_plan(context: Any, now: Any) -> bool:
    return _look(context, now.n_closed, now.n_closed + now.n_open, now.best_ns)


@ffi.def_extern(error=False)
def longhaul_on_solve(context: Any, now: Any) -> bool:
    share = now.bound_ns / now.best_ns if now.best_ns > 0 else 0.0
    return _look(context, share, 1.0, now.best_ns)


@ffi.def_extern(error=False)
def longhaul_on_point(context: Any, done: int, total: int) -> bool:
    return _look(context, done, total, -1)
