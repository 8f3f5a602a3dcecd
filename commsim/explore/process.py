"""
The worker as the server sees it: a process that is asked one thing at a time.

What is asked later stops what is still being answered. Nothing of commsim's models is imported
here, so that the page is up at once.
"""

from __future__ import annotations

import json
import queue
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from typing import Any

from commsim.errors import ScenarioError

__all__ = ["WorkerProcess"]

Message = dict[str, Any]

_PATIENCE = 10.0  # seconds that a worker gets to stop before it is replaced
_LOST: Message = {
    "kind": "error",
    "controls": [],
    "message": "the simulation's process ended (out of memory, perhaps). Choose something smaller.",
}


class _Job:
    """What was asked, and the queue of its answers; `ended` once the last one is in it."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.answers: queue.SimpleQueue[Message] = queue.SimpleQueue()
        self.ended = threading.Event()

    def put(self, message: Message) -> None:
        """Hand on an answer."""
        if message["kind"] == "end":
            self.ended.set()
        self.answers.put(message)


class WorkerProcess:
    """Starts the worker for a scenario, asks it, stops it; `asked` counts the questions."""

    def __init__(self, source: str, sets: tuple[str, ...] = ()) -> None:
        self._first = {"source": source, "sets": list(sets)}
        self._turn = threading.Lock()
        self.asked = 0
        self._job: _Job | None = None
        self._hello: Future[Message] = Future()
        self._start()

    def hello(self) -> Message:
        """Return what the worker says first: {"kind": "hello", ...}, or {"kind": "failed", ...}.

        Waits for it; the parts of the page ask side by side, each from a thread of its own.
        """
        return self._hello.result()

    def ask(self, request: Mapping[str, Any]) -> Iterator[Message]:
        """Yield the answers to a request; what was being answered before is stopped."""
        with self._turn:
            self._halt()
            self.asked += 1
            job = self._job = _Job(self.asked)
            try:
                self._send({**request, "id": job.number, "stops": self._stops})
            except OSError:  # it ended while nothing was asked
                self.close()
                self._start()
                self._send({**request, "id": job.number, "stops": self._stops})
        while (answer := job.answers.get())["kind"] != "end":
            yield answer

    def stop(self) -> None:
        """Stop what is being answered, if anything is."""
        with self._turn:
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

    def _start(self) -> None:
        self._stops = 0
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
        if sys.platform != "win32":
            self._stops += 1
            self._process.send_signal(signal.SIGINT)
            if job.ended.wait(_PATIENCE):
                return
        self.close()
        job.ended.wait(_PATIENCE)
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
        if job is not None and not job.ended.is_set() and process is self._process:
            job.put(_LOST)
            job.put({"kind": "end"})
