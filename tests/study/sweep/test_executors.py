"""Who runs when: by executors made by hand, of which a worker may die at any time."""

from __future__ import annotations

from concurrent.futures import BrokenExecutor, Future
from types import SimpleNamespace
from typing import Any

import pytest

from commsim.study.sweep import executors
from commsim.study.sweep.executors import _until_broken


class Workers:
    """Takes points and ends the first that it holds whenever it is waited for."""

    def __init__(self, *, dies_at: Any = (), refuses: Any = ()) -> None:
        self.dies_at, self.refuses = dies_at, refuses
        self.held: list[tuple[Future[Any], Any]] = []
        self.most = 0

    def submit(self, point: Any) -> Future[Any]:
        if point in self.refuses:
            raise BrokenExecutor
        self.held.append((Future(), point))
        self.most = max(self.most, len(self.held))
        return self.held[-1][0]

    def wait(self, running: Any, return_when: str) -> tuple[set[Future[Any]], set[Future[Any]]]:
        assert {future for future, _ in self.held} == set(running)
        future, point = self.held.pop(0)
        if point in self.dies_at:
            future.set_exception(BrokenExecutor())
        else:
            future.set_result(point)
        return {future}, set()


def ran(
    monkeypatch: pytest.MonkeyPatch, workers: Workers, count: int, points: int = 5
) -> tuple[list[Any], list[Any], list[Any]]:
    """Return what came back, what is left and who is suspected."""
    monkeypatch.setattr(executors, "wait", workers.wait)
    left: list[Any] = list(reversed(range(points)))
    suspects: list[Any] = []
    found: list[Any] = list(_until_broken(workers.submit, left, suspects, count))
    return found, left, suspects


@pytest.mark.parametrize(("count", "most"), [(1, 1), (2, 2), (5, 5), (9, 5)])
def test_no_more_points_run_at_a_time_than_there_are_workers(
    monkeypatch: pytest.MonkeyPatch, count: int, most: int
) -> None:
    workers = Workers()
    assert ran(monkeypatch, workers, count) == ([0, 1, 2, 3, 4], [], [])
    assert workers.most == most


def test_when_a_worker_dies_what_ran_ends_and_nothing_begins(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """0 ends, 1 dies, and 2 that ran beside it ends; 3 and 4 stay for the next pool."""
    assert ran(monkeypatch, Workers(dies_at=(1,)), 2) == ([0, 2], [4, 3], [1])
    assert ran(monkeypatch, Workers(dies_at=(0, 1)), 2) == ([], [4, 3, 2], [0, 1])


def test_a_pool_that_takes_no_more_leaves_the_point(monkeypatch: pytest.MonkeyPatch) -> None:
    assert ran(monkeypatch, Workers(refuses=(1,)), 2) == ([0], [4, 3, 2, 1], [])


def test_a_point_that_kills_its_worker_twice_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is tried alone; one that dies once is run again."""
    tries: list[str] = []
    deaths = {"once": 1, "twice": 2}

    class Pool:
        def __init__(self, count: int) -> None:
            pass

        def __enter__(self) -> None:
            pass

        def __exit__(self, *_: object) -> None:
            pass

    def submitted(pool: Any, evaluate: Any, point: Any) -> Future[Any]:
        tries.append(point.key)
        made: Future[Any] = Future()
        if tries.count(point.key) <= deaths[point.key]:
            made.set_exception(BrokenExecutor())
        else:
            made.set_result("done")
        return made

    monkeypatch.setattr(executors, "WorkerPool", Pool)
    monkeypatch.setattr(executors, "submitted", submitted)
    once: Any = executors._alone(SimpleNamespace(key="once"), None)  # type: ignore[arg-type]
    twice = executors._alone(SimpleNamespace(key="twice"), None)  # type: ignore[arg-type]
    assert once == "done"
    assert (twice.key, twice.result) == ("twice", None)
    assert "died twice" in str(twice.error)
    assert tries == ["once", "once", "twice", "twice"]
