"""
Running points by a `concurrent.futures.Executor`: local processes, a Dask cluster, or this process.

A worker may die at any time (killed, out of memory). Then a new pool takes over; the points that
were running are tried again one at a time, and one that kills its worker alone is given up with
that as its error.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, BrokenExecutor, Future, wait

from commsim.executors import ExecutorName, WorkerPool, dask_executor, limited_call, submitted
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
    name = ExecutorName.read(executor)
    if name.kind == "serial":
        yield from map(evaluate, points)
    elif name.kind == "processes":
        yield from _by_processes(points, name.count, evaluate)
    else:
        yield from _by_dask(points, name.address, evaluate)


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
        with WorkerPool(count) as pool:
            yield from _until_broken(
                lambda point: submitted(pool, evaluate, point), left, suspects, count
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
        with WorkerPool(1) as pool:
            try:
                return submitted(pool, evaluate, point).result()
            except BrokenExecutor:
                continue
    return Outcome(point.key, None, _DIED)


def _by_dask(points: Sequence[SweepPoint], address: str, evaluate: Evaluate) -> Iterator[Outcome]:
    with dask_executor(address) as executor:
        there = limited_call(evaluate)
        running = {executor.submit(there, point): point for point in points}
        while running:
            done, _ = wait(running, return_when=FIRST_COMPLETED)
            for future in done:
                point = running.pop(future)
                try:
                    yield future.result()
                except Exception as error:  # a worker may fail in any way: KilledWorker and others
                    yield Outcome(point.key, None, f"the worker failed: {error}")
