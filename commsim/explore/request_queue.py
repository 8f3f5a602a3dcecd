"""
The requests of the worker: answered one by one, and left where nobody wants the answer.

A stop names the request that it ends. It is noted before the work is interrupted (SIGINT), so that
it holds wherever the work is: a request that is still to begin is not begun, one that has ended is
left alone, and the work is interrupted until the one that is meant has ended.
"""

from __future__ import annotations

import json
import sys
from _thread import interrupt_main
from collections.abc import Callable, Iterable, Iterator, Mapping
from queue import SimpleQueue
from time import sleep
from typing import Any, Protocol, TextIO

from commsim.errors import CommsimError

__all__ = ["Answer", "RequestQueue", "write"]

Answer = dict[str, Any]
_BETWEEN_INTERRUPTS = 0.05  # seconds


class _Stopped(BaseException):
    """The answer that is being made is not wanted any more."""


class _Answering(Protocol):
    """Whoever knows the answers."""

    def answers(
        self, request: Mapping[str, Any], say: Callable[[str], None], /
    ) -> Iterator[Answer]: ...

    def error(self, problem: CommsimError, /) -> Answer: ...


class RequestQueue:
    """One thread listens, the main one works, and is interrupted by SIGINT. Numbers count up."""

    def __init__(self, answering: _Answering, out: TextIO) -> None:
        self._answering, self._out = answering, out
        self._waiting: SimpleQueue[Answer | None] = SimpleQueue()
        self._now = self._ended = self._unwanted = 0
        self._stoppable = False

    def listen(self, messages: Iterable[str]) -> None:
        """Hear {"id", "ask", ...}, a request, and {"stop": id}, until there are no more."""
        try:
            for text in messages:
                message = json.loads(text)
                if "stop" in message:
                    self.drop(message["stop"])
                    self._interrupt_work()
                else:
                    self._waiting.put(message)
        finally:
            self._waiting.put(None)

    def drop(self, number: int) -> None:
        """Note that no answer up to this one is wanted."""
        self._unwanted = number

    def _interrupt_work(self) -> None:
        """Interrupt until the work has ended: once may be in vain.

        What is raised in a `__del__` or in the callback of a weak reference is dropped by Python.
        """
        while self._ended < self._unwanted:
            interrupt_main()
            sleep(_BETWEEN_INTERRUPTS)

    def interrupt(self, *_: object) -> None:
        """Interrupt the answer being made if it is unwanted, and not being left already."""
        if self._stoppable and not _leaving():
            self._look()

    def work(self) -> None:
        """Answer requests until there are no more."""
        while (request := self._waiting.get()) is not None:
            self._now = request["id"]
            try:
                self._answer(request)
                self._stoppable = False
            except _Stopped:
                self._stoppable = False
                self._tell({"kind": "stopped"})
            self._tell({"kind": "end"})
            self._ended = self._now

    def _answer(self, request: Answer) -> None:
        try:
            self._progress("building the work")
            for answer in self._answering.answers(request, self._progress):
                self._tell_more(answer)
        except CommsimError as problem:
            self._tell_more(self._answering.error(problem))
        except MemoryError:
            text = "out of memory. Choose fewer GPUs, layers or microbatches."
            self._tell_more({"kind": "error", "controls": [], "message": text})
        except Exception:
            self._look()  # NumPy makes an error of its own out of what is raised within it
            raise

    def _progress(self, doing: str) -> None:
        self._tell_more({"kind": "progress", "doing": doing})

    def _tell_more(self, message: Mapping[str, Any]) -> None:
        """Write a message whole, then go on, unless nobody wants either."""
        self._stoppable = False
        self._look()
        self._tell(message)
        self._stoppable = True  # before the look: a stop is seen there, or interrupts
        self._look()

    def _look(self) -> None:
        """Leave the answer being made if it is unwanted."""
        if self._now <= self._unwanted:
            raise _Stopped

    def _tell(self, message: Mapping[str, Any]) -> None:
        write(self._out, {"id": self._now, **message})


def _leaving() -> bool:
    """Return whether an answer is being left: what cleans up behind it is not disturbed."""
    problem = sys.exception()
    while problem is not None and not isinstance(problem, _Stopped):
        problem = problem.__context__
    return problem is not None


def write(out: TextIO, message: Mapping[str, Any]) -> None:
    """Write one message as a line."""
    out.write(json.dumps(message, separators=(",", ":")) + "\n")
    out.flush()
