"""
Running points by a `concurrent.futures.Executor`: local processes, a Dask cluster, or this process.

A worker may die at any time (killed, out of memory). Then a new pool takes over; the points that
were running are tried again one at a time, and one that kills its worker alone is given up with
that as its error.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import (
    FIRST_COMPLETED,
    BrokenExecutor,
    Executor,
    Future,
    ProcessPoolExecutor,
    wait,
)
from contextlib import contextmanager
from multiprocessing import get_context

from commsim.errors import ScenarioError
from commsim.study.sweep.points import Outcome, SweepPoint, evaluate

__all__ = ["run_points"]

_TRIES_ALONE = 2
_DIED = "the worker died twice while it ran this alone: out of memory, or killed"


Evaluate = Callable[[SweepPoint], Outcome]
"""What is done with a point; a function that can be sent to another process."""


def run_points(
    points: Sequence[SweepPoint], executor: str, evaluate: Evaluate = evaluate
) -> Iterator[Outcome]:
    """Yield the outcome of every point as it comes, in any order.

    `executor`: "processes", "processes:4", "serial", "dask" (workers on this machine) or
    "dask:ADDRESS".

    Raises:
        ScenarioError: no such executor, or Dask is not installed or not to be reached.
    """
    kind, _, detail = executor.partition(":")
    if kind == "serial" and not detail:
        yield from map(evaluate, points)
    elif kind == "processes" and (not detail or detail.isdigit()):
        yield from _by_processes(points, int(detail or os.cpu_count() or 1), evaluate)
    elif kind == "dask":
        yield from _by_dask(points, detail, evaluate)
    else:
        raise ScenarioError(
            f"--executor {executor}: give processes, processes:N, serial, dask or dask:ADDRESS."
        )


def _by_processes(
    points: Sequence[SweepPoint], count: int, evaluate: Evaluate
) -> Iterator[Outcome]:
    count = max(1, min(count, len(points)))
    left = list(reversed(points))
    suspects: list[SweepPoint] = []
    while left or suspects:
        if suspects:
            yield _alone(suspects.pop(), evaluate)
            continue
        with _WorkerPool(count) as pool:
            yield from _until_broken(
                lambda point: _submitted(pool, evaluate, point), left, suspects, count
            )


def _until_broken(
    submit: Callable[..., Future[Outcome]],
    left: list[SweepPoint],
    suspects: list[SweepPoint],
    count: int,
) -> Iterator[Outcome]:
    """Run points until none is left or a worker dies; those that ran then become suspects."""
    running: dict[Future[Outcome], SweepPoint] = {}
    broken = False
    while running or (left and not broken):
        while left and len(running) < count and not broken:
            try:
                running[submit(left[-1])] = left[-1]
            except BrokenExecutor:
                broken = True
                break
            left.pop()
        done, _ = wait(running, return_when=FIRST_COMPLETED)
        for future in done:
            point = running.pop(future)
            try:
                yield future.result()
            except BrokenExecutor:
                broken = True
                suspects.append(point)


def _alone(point: SweepPoint, evaluate: Evaluate) -> Outcome:
    """Run a point by itself, so that a crash is certainly its own."""
    for _ in range(_TRIES_ALONE):
        with _WorkerPool(1) as pool:
            try:
                return _submitted(pool, evaluate, point).result()
            except BrokenExecutor:
                continue
    return Outcome(point.key, None, _DIED)


class _WorkerPool:
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
            # Before the pool lets go of what a worker that still starts looks for; such a one has
            # blocked every signal that can be blocked.
            for process in list((self._pool._processes or {}).values()):
                process.kill()
        self._pool.shutdown(wait=kind is None, cancel_futures=True)


def _submitted(pool: Executor, evaluate: Evaluate, point: SweepPoint) -> Future[Outcome]:
    """Give a point to a worker. The first starts the workers, which no signal may cut in two."""
    with _uninterrupted():
        return pool.submit(evaluate, point)


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


def _by_dask(points: Sequence[SweepPoint], address: str, evaluate: Evaluate) -> Iterator[Outcome]:
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
    with client, client.get_executor(pure=False) as executor:
        running = {executor.submit(evaluate, point): point for point in points}
        while running:
            done, _ = wait(running, return_when=FIRST_COMPLETED)
            for future in done:
                point = running.pop(future)
                try:
                    yield future.result()
                except Exception as error:  # a worker may fail in any way: KilledWorker and others
                    yield Outcome(point.key, None, f"the worker failed: {error}")
