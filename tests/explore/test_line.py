"""The line of requests: wherever a stop falls, it ends the request that it names, and no other."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from io import StringIO
from types import FrameType
from typing import Any

import pytest

from commsim.errors import CommsimError, ScenarioError
from commsim.explore import line as line_module
from commsim.explore.line import Line

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


class Ringing:
    """Stops the first request before a certain line of the code that is traced is run."""

    def __init__(self, line: Line, work: Work, at: int) -> None:
        self._line, self._work, self._left = line, work, at
        self.done: int | None = None

    def __call__(self, frame: FrameType, event: str, _: Any) -> Ringing | None:
        code = frame.f_code
        if code.co_filename != line_module.__file__ and code is not Work.answers.__code__:
            return None
        if event == "line":
            self._left -= 1
            if self._left < 0 and self.done is None:
                self.done = self._work.done.count(1)
                self._line.drop(1)
                self._line.bell()
        return self


def stopped_at(at: int) -> tuple[StringIO, int, int | None]:
    """Answer two requests, of which the first is stopped before the line `at`.

    Return what is said, the steps of the first, and how many of them were made before the stop.
    """
    work, out = Work(), StringIO()
    line = Line(work, out)
    line.listen([request(1), request(2)])
    ringing, before = Ringing(line, work, at), sys.gettrace()
    sys.settrace(ringing)
    try:
        line.work()
    finally:
        sys.settrace(before)
    return out, work.done.count(1), ringing.done


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
            line.drop(1)
            line.bell()
            return super().error(problem)

    out = StringIO()
    line = Line(Stopped(fail), out)
    line.listen([request(1)])
    line.work()
    assert kinds(out, 1) == ["progress", "stopped", "end"]


@pytest.mark.parametrize("error", [TypeError, MemoryError, ScenarioError])
def test_a_stop_that_others_make_an_error_of(error: type[Exception]) -> None:
    """NumPy, interrupted, says that arrays cannot be compared."""

    def does() -> None:
        line.drop(1)
        heard = False
        try:
            line.bell()
        except BaseException:
            heard = True
        if heard:
            raise error

    out = StringIO()
    line = Line(Doing(does), out)
    line.listen([request(1), request(2)])
    line.work()
    assert kinds(out, 1) == ["progress", "stopped", "end"]
    assert kinds(out, 2) == WHOLE


def test_an_error_of_ours_is_no_stop() -> None:
    def fail() -> None:
        raise TypeError

    line = Line(Doing(fail), StringIO())
    line.listen([request(1)])
    with pytest.raises(TypeError):
        line.work()


def test_a_bell_that_python_drops_is_heard_the_next_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is raised in a `__del__` goes to a hook, and the work on."""
    dropped: list[str] = []
    monkeypatch.setattr(sys, "unraisablehook", lambda found: dropped.append(found.exc_type))

    class Deaf:
        def __del__(self) -> None:
            line.drop(1)
            line.bell()

    def does() -> None:
        Deaf()
        assert len(dropped) == 1
        line.bell()

    work, out = Doing(does), StringIO()
    line = Line(work, out)
    line.listen([request(1)])
    line.work()
    assert kinds(out, 1) == ["progress", "stopped", "end"]
    assert work.done == []


def test_a_bell_does_not_disturb_what_cleans_up() -> None:
    """Neither a `finally` that an answer is left by, nor what fails within it."""
    cleaned: list[str] = []

    def does() -> None:
        line.drop(1)
        try:
            line.bell()
        finally:
            line.bell()
            try:
                raise ValueError
            except ValueError:
                line.bell()
            cleaned.append("all")

    out = StringIO()
    line = Line(Doing(does), out)
    line.listen([request(1)])
    line.work()
    assert kinds(out, 1) == ["progress", "stopped", "end"]
    assert cleaned == ["all"]


def test_the_bell_rings_until_the_request_has_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    rung: list[int] = []

    def ring() -> None:
        rung.append(1)
        if len(rung) == 3:
            raise InterruptedError

    monkeypatch.setattr(line_module, "interrupt_main", ring)
    line = Line(Work(), StringIO())
    stop = json.dumps({"stop": 1})
    with pytest.raises(InterruptedError):
        line.listen([request(1), stop])
    line.work()
    line.listen([stop])  # it has ended: there is nothing to ring for
    assert len(rung) == 3
