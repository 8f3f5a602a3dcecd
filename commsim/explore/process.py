"""
The worker as the server sees it: a process that is asked one thing at a time.

What is asked later stops what is still being answered. Requests of one page may overtake each
other on their way, so each page numbers its questions, and a stop says up to which. Nothing of
commsim's models is imported here, so that the page is up at once.
"""

from __future__ import annotations

import json
import queue
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from typing import Any, NamedTuple

from commsim.errors import ScenarioError
from commsim.limits import stated_limit

__all__ = ["Question", "WorkerProcess"]

Message = dict[str, Any]

_PATIENCE = 10.0  # seconds
_LOST: Message = {
    "kind": "error",
    "controls": [],
    "message": "the simulation's process ended (out of memory, perhaps). Choose something smaller.",
}


class Question(NamedTuple):
    """Which question of which page: each page counts its own."""

    page: str
    number: int


class _Job:
    """What was asked of a process, and the queue of its answers; `ended` once the last is in it."""

    def __init__(self, question: Question, number: int, process: subprocess.Popen[str]) -> None:
        self.question, self.number, self.process = question, number, process
        self._answers: queue.SimpleQueue[Message] = queue.SimpleQueue()
        self.ended = threading.Event()

    def put(self, message: Message) -> None:
        """Hand on an answer."""
        if message["kind"] == "end":
            self.ended.set()
        self._answers.put(message)

    def end(self, last: Message) -> None:
        """End with a message that the process did not say."""
        self.put(last)
        self.put({"kind": "end"})

    def answers(self) -> Iterator[Message]:
        """Yield the answers as they come."""
        while (answer := self._answers.get())["kind"] != "end":
            yield answer


class WorkerProcess:
    """Starts the worker for a scenario, asks it, stops it; `asked` counts what it was asked.

    A worker that does not stop for `patience` seconds is replaced.
    """

    def __init__(
        self, source: str, sets: tuple[str, ...] = (), *, patience: float = _PATIENCE
    ) -> None:
        self._first = {"source": source, "sets": list(sets), "limit": stated_limit()}
        self._patience = patience
        self._turn = threading.Lock()
        self.asked = 0
        self._job: _Job | None = None
        self._unwanted: dict[str, int] = {}
        self._hello: Future[Message] = Future()
        self._start()

    def hello(self) -> Message:
        """Return what the worker says first: {"kind": "hello", ...}, or {"kind": "failed", ...}.

        Waits for it; the parts of the page ask side by side, each from a thread of its own.
        """
        return self._hello.result()

    def ask(self, question: Question, request: Mapping[str, Any]) -> Iterator[Message]:
        """Ask, and return the answers as they come; what was being answered before is stopped.

        A question that its page stopped, or went on from, before it arrived here is not begun.
        """
        with self._turn:
            if self._wants(question):
                self._drop(question.page, question.number - 1)
                self._halt()
                return self._begin(question, request).answers()
        return iter(({"kind": "stopped"},))

    def stop(self, question: Question) -> None:
        """Stop what its page has asked up to this question, whether it arrived already or not."""
        with self._turn:
            self._drop(*question)
            if self._job is not None and not self._wants(self._job.question):
                self._halt()

    @property
    def process_id(self) -> int:
        """The number of the process that simulates now."""
        return self._process.pid

    def kill(self) -> None:
        """End the process as a lack of memory would."""
        self._process.kill()
        self._process.wait()

    def close(self) -> None:
        """End the process and its pipes."""
        self.kill()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                with suppress(OSError):  # what was not read any more
                    pipe.close()

    def _wants(self, question: Question) -> bool:
        return question.number > self._unwanted.get(question.page, 0)

    def _drop(self, page: str, number: int) -> None:
        """Remember that the page wants no answer up to this one."""
        self._unwanted[page] = max(number, self._unwanted.get(page, 0))

    def _begin(self, question: Question, request: Mapping[str, Any]) -> _Job:
        """Send a question to the worker; to a new one, if it ended while nothing was asked."""
        self.asked += 1
        try:
            return self._sent(question, request)
        except OSError:
            self.close()
            self._start()
            return self._sent(question, request)

    def _sent(self, question: Question, request: Mapping[str, Any]) -> _Job:
        job = self._job = _Job(question, self.asked, self._process)
        self._send({**request, "id": job.number})
        return job

    def _start(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "commsim.explore.worker"],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, encoding="utf-8",
            start_new_session=True,  # Ctrl-C in the terminal is the server's
        )  # fmt: skip
        self._send(self._first)
        threading.Thread(target=self._listen, args=(self._process,), daemon=True).start()

    def _send(self, message: Mapping[str, Any]) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(message) + "\n")
        self._process.stdin.flush()

    def _halt(self) -> None:
        """End the job that runs; a worker that does not hear is replaced."""
        job = self._job
        if job is None or job.ended.is_set():
            return
        with suppress(OSError):  # the process has ended; who listens to it ends the job
            self._send({"stop": job.number})
        if not job.ended.wait(self._patience):
            job.end({"kind": "stopped"})
            self.close()
            self._start()

    def _greet(self, message: Message) -> None:
        """Keep what was said first; a worker that replaces another says the same again."""
        with suppress(InvalidStateError):
            self._hello.set_result(message)

    def _listen(self, process: subprocess.Popen[str]) -> None:
        """Hand on what a worker says, until it ends."""
        assert process.stdout is not None
        try:
            for line in process.stdout:
                message = json.loads(line)
                if "id" not in message:
                    self._greet(message)
                elif self._job is not None and message["id"] == self._job.number:
                    self._job.put(message)
        except ValueError:
            pass  # the pipe was closed, or the process killed in the middle of a line
        self._greet({"kind": "failed", "exit_code": ScenarioError.exit_code,
                     "message": "the simulation's process did not start."})  # fmt: skip
        with suppress(ChildProcessError):
            process.wait()  # what is asked until then went to a process that is about to end
        job = self._job
        if job is not None and not job.ended.is_set() and process is job.process:
            job.end(_LOST)
