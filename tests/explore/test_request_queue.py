"""The queue of requests: wherever a stop falls, it ends the request that it names, and no other."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from io import StringIO
from types import FrameType
from typing import Any

import pytest

from commsim.errors import CommsimError, ScenarioError
from commsim.explore import request_queue as queue_module
from commsim.explore.request_queue import RequestQueue

WHOLE = ["progress", "progress", "step", "progress", "run", "end"]
Say = Callable[[str], None]


class Work:
    """Answers in steps; `done` has the request of each step that was made."""

    def __init__(self) -> None:
        self.done: list[int] = []

    def answers(self, request: Any, say: Say) -> Iterator[dict[str, Any]]:
        say("measuring")
        self.done.append(request["id"])
        yield {"kind": "step"}
        self.done.append(request["id"])
        say("finding what limits it")
        self.done.append(request["id"])
        yield {"kind": "run"}
        self.done.append(request["id"])

    def error(self, problem: CommsimError) -> dict[str, Any]:
        return {"kind": "error", "message": str(problem)}


class Doing(Work):
    """Does what a test says, while it answers."""

    def __init__(self, does: Callable[[], None]) -> None:
        super().__init__()
        self._does = does

    def answers(self, request: Any, say: Say) -> Iterator[dict[str, Any]]:
        self._does()
        yield from super().answers(request, say)


def request(number: int) -> str:
    return json.dumps({"id": number, "ask": "run"})


def kinds(out: StringIO, number: int) -> list[str]:
    said = [json.loads(text) for text in out.getvalue().splitlines()]
    return [message["kind"] for message in said if message["id"] == number]


class Interrupting:
    """Stops the first request before a certain line of the code that is traced is run."""

    def __init__(self, requests: RequestQueue, work: Work, at: int) -> None:
        self._requests, self._work, self._left = requests, work, at
        self.done: int | None = None

    def __call__(self, frame: FrameType, event: str, _: Any) -> Interrupting | None:
        code = frame.f_code
        if code.co_filename != queue_module.__file__ and code is not Work.answers.__code__:
            return None
        if event == "line":
            self._left -= 1
            if self._left < 0 and self.done is None:
                self.done = self._work.done.count(1)
                self._requests.drop(1)
                self._requests.interrupt()
        return self


def stopped_at(at: int) -> tuple[StringIO, int, int | None]:
    """Answer two requests, of which the first is stopped before the line `at`.

    Return what is said, the steps of the first, and how many of them were made before the stop.
    """
    work, out = Work(), StringIO()
    requests = RequestQueue(work, out)
    requests.listen([request(1), request(2)])
    interrupting, before = Interrupting(requests, work, at), sys.gettrace()
    sys.settrace(interrupting)
    try:
        requests.work()
    finally:
        sys.settrace(before)
    return out, work.done.count(1), interrupting.done


def test_a_stop_before_any_line_of_the_work() -> None:
    """Not one more step is made, all messages are whole, and the next request is answered."""
    at, stopped = 0, 0
    while True:
        out, steps, before = stopped_at(at)
        if before is None:
            break
        first = kinds(out, 1)
        assert steps == before, at
        assert first == WHOLE or first == [*WHOLE[: len(first) - 2], "stopped", "end"], at
        assert kinds(out, 2) == WHOLE, at
        stopped += "stopped" in first
        at += 1
    assert 50 < stopped < at  # those that are left came when the first had been answered


def test_a_stop_of_an_error() -> None:
    """One that falls while the sentence is found ends in "stopped"."""

    def fail() -> None:
        raise ScenarioError("impossible")

    class Stopped(Doing):
        def error(self, problem: CommsimError) -> dict[str, Any]:
            requests.drop(1)
            requests.interrupt()
            return super().error(problem)

    out = StringIO()
    requests = RequestQueue(Stopped(fail), out)
    requests.listen([request(1)])
    requests.work()
    assert kinds(out, 1) == ["progress", "stopped", "end"]


@pytest.mark.parametrize("error", [TypeError, MemoryError, ScenarioError])
def test_a_stop_that_others_make_an_error_of(error: type[Exception]) -> None:
    """NumPy, interrupted, says that arrays cannot be compared."""

    def does() -> None:
        requests.drop(1)
        heard = False
        try:
            requests.interrupt()
        except BaseException:
            heard = True
        if heard:
            raise error

    out = StringIO()
    requests = RequestQueue(Doing(does), out)
    requests.listen([request(1), request(2)])
    requests.work()
    assert kinds(out, 1) == ["progress", "stopped", "end"]
    assert kinds(out, 2) == WHOLE


def test_an_error_of_ours_is_no_stop() -> None:
    def fail() -> None:
        raise TypeError

    requests = RequestQueue(Doing(fail), StringIO())
    requests.listen([request(1)])
    with pytest.raises(TypeError):
        requests.work()


def test_an_interrupt_that_python_drops_is_followed_by_another(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What is raised in a `__del__` goes to a hook, and the work on."""
    dropped: list[str] = []
    monkeypatch.setattr(sys, "unraisablehook", lambda found: dropped.append(found.exc_type))

    class Deaf:
        def __del__(self) -> None:
            requests.drop(1)
            requests.interrupt()

    def does() -> None:
        Deaf()
        assert len(dropped) == 1
        requests.interrupt()

    work, out = Doing(does), StringIO()
    requests = RequestQueue(work, out)
    requests.listen([request(1)])
    requests.work()
    assert kinds(out, 1) == ["progress", "stopped", "end"]
    assert work.done == []


def test_an_interrupt_does_not_disturb_what_cleans_up() -> None:
    """Neither a `finally` that an answer is left by, nor what fails within it."""
    cleaned: list[str] = []

    def does() -> None:
        requests.drop(1)
        try:
            requests.interrupt()
        finally:
            requests.interrupt()
            try:
                raise ValueError
            except ValueError:
                requests.interrupt()
            cleaned.append("all")

    out = StringIO()
    requests = RequestQueue(Doing(does), out)
    requests.listen([request(1)])
    requests.work()
    assert kinds(out, 1) == ["progress", "stopped", "end"]
    assert cleaned == ["all"]


def test_work_is_interrupted_until_the_request_has_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    rung: list[int] = []

    def ring() -> None:
        rung.append(1)
        if len(rung) == 3:
            raise InterruptedError

    monkeypatch.setattr(queue_module, "interrupt_main", ring)
    requests = RequestQueue(Work(), StringIO())
    stop = json.dumps({"stop": 1})
    with pytest.raises(InterruptedError):
        requests.listen([request(1), stop])
    requests.work()
    requests.listen([stop])  # it has ended: there is nothing to ring for
    assert len(rung) == 3
