"""
Who runs what can run apart: this process, local processes, or a Dask cluster.

All of them are a `concurrent.futures.Executor`, opened by the word that `--executor` takes.
"""

from __future__ import annotations

import os
import re
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future, ProcessPoolExecutor
from contextlib import contextmanager
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from commsim.errors import ScenarioError
from commsim.limits import limited_to, stated_limit

__all__ = ["ExecutorName", "WorkerPool", "dask_executor", "limited_call", "submitted"]

T = TypeVar("T")


class ExecutorName(msgspec.Struct, frozen=True):
    """What `--executor` says: `kind` is serial, processes or dask.

    `count` processes; at a scheduler's `address`, "" for Dask workers on this machine.
    """

    kind: str
    count: int = 1
    address: str = ""

    @classmethod
    def read(cls, text: str) -> ExecutorName:
        """Read "processes", "processes:4", "serial", "dask" or "dask:ADDRESS".

        Raises:
            ScenarioError: no such executor.
        """
        kind, _, detail = text.partition(":")
        if kind == "serial" and not detail:
            return cls(kind)
        if kind == "processes" and (not detail or re.fullmatch(r"0*[1-9]\d{0,3}", detail)):
            return cls(kind, int(detail or _cores()))
        if kind == "dask":
            return cls(kind, address=detail)
        raise ScenarioError(
            f"--executor {text}: give processes, processes:N, serial, dask or dask:ADDRESS."
            " N is 1 to 9999."
        )

    @contextmanager
    def opened(self) -> Iterator[Executor | None]:
        """Give the executor, None for this process. What it runs when the block ends is given up.

        Raises:
            ScenarioError: Dask is not installed or not to be reached.
        """
        if self.kind == "dask":
            with dask_executor(self.address) as executor:
                yield executor
        elif self.kind == "serial" or self.count == 1:
            yield None
        else:
            pool = WorkerPool(self.count)
            with pool as executor:
                try:
                    yield executor
                finally:
                    pool.kill()


def _cores() -> int:
    """Return how many CPUs this process may use."""
    return len(os.sched_getaffinity(0)) if _AFFINITY else os.cpu_count() or 1


_AFFINITY = hasattr(os, "sched_getaffinity")


class WorkerPool:
    """A pool of processes that is gone at the end of the block, whatever happens in it."""

    def __init__(self, count: int) -> None:
        # A spawned process starts clean: no threads or locks of ours are copied into it.
        self._pool = ProcessPoolExecutor(
            count, mp_context=get_context("spawn"), initializer=_leave_interrupts_to_the_parent
        )

    def __enter__(self) -> Executor:
        return self._pool

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        if kind is not None:
            self.kill()
        self._pool.shutdown(wait=kind is None, cancel_futures=True)

    def kill(self) -> None:
        """End the workers with what they do.

        That comes before the pool lets go of what a worker that still starts looks for; such a one
        has blocked every signal that can be blocked.
        """
        for process in list((self._pool._processes or {}).values()):
            process.kill()


def submitted(pool: Executor, call: Callable[..., T], *given: Any) -> Future[T]:
    """Give work to a worker, which has the limit of memory that is stated here.

    The first starts the workers, which no signal may cut in two.
    """
    with _uninterrupted(), _script_not_run_again():
        return pool.submit(limited_call(call), *given)


def limited_call(call: Callable[..., T]) -> Callable[..., T]:
    """Return `call` with the limit that is stated here, for a worker elsewhere."""
    return partial(_limited, stated_limit(), call)


def _limited(limit: int | None, call: Callable[..., T], *given: Any) -> T:
    with limited_to(limit):
        return call(*given)


@contextmanager
def _script_not_run_again() -> Iterator[None]:
    """Keep processes that start in the block from running the user's script again.

    A spawned process imports it for what it defines (multiprocessing.spawn,
    get_preparation_data). One that guards its work by `__name__` may be; another would begin its
    work anew in every worker.
    """
    main = sys.modules["__main__"]
    path = getattr(main, "__file__", None)
    if path is None or getattr(main, "__spec__", None) is not None or _is_guarded(path):
        yield
        return
    del main.__file__
    try:
        yield
    finally:
        main.__file__ = path


def _is_guarded(path: str) -> bool:
    try:
        return "__name__" in Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return True


@contextmanager
def dask_executor(address: str) -> Iterator[Executor]:
    """Give the executor of a scheduler, or of workers on this machine for "".

    Raises:
        ScenarioError: Dask is not installed, or no scheduler is there.
    """
    try:
        from distributed import Client
    except ImportError:
        raise ScenarioError(
            'the executor dask needs Dask: pip install "commsim[dask]". Or use processes.'
        ) from None
    try:
        client = Client(address) if address else Client(dashboard_address=None)
    except (OSError, ValueError) as error:
        raise ScenarioError(
            f"--executor dask:{address}: no scheduler there ({error}). Give HOST:PORT."
        ) from None
    with client:
        executor = client.get_executor(pure=False)
        try:
            yield executor
        finally:
            executor.shutdown(wait=False)


@contextmanager
def _uninterrupted() -> Iterator[None]:
    """Put off Ctrl-C and SIGTERM until the end of the block.

    Processes that start in it inherit blocked signals: a Ctrl-C, which a terminal sends to all,
    finds them when they are ready. Blocking is not enough here: another thread may take a signal.
    """
    if threading.current_thread() is not threading.main_thread() or not hasattr(
        signal, "pthread_sigmask"
    ):
        yield
        return
    came: list[int] = []
    handlers = {each: signal.getsignal(each) for each in _STOPPING}
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, _STOPPING)
    for each in _STOPPING:
        signal.signal(each, lambda number, _: came.append(number))
    try:
        yield
    finally:
        for each, handler in handlers.items():
            signal.signal(each, handler)
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        for number in came[:1]:
            signal.raise_signal(number)


_STOPPING = (signal.SIGINT, signal.SIGTERM)


def _leave_interrupts_to_the_parent() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if hasattr(signal, "pthread_sigmask"):
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _STOPPING)
