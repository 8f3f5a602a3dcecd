"""The worker's process: a question ends the one before, and a stop the one that it names."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterable, Iterator
from threading import Thread
from typing import Any

import pytest
from helpers.browsing import PATIENCE

from commsim.explore.process import Question, WorkerProcess

Questions = Iterator[Question]
SHORT = {"ask": "run", "chosen": {}}
LONG = {
    "ask": "run",
    "chosen": {"nodes": 1000, "tp": 8, "microbatches": 512, "model": "llama3-70b"},
}


@pytest.fixture(scope="module")
def worker() -> Iterator[WorkerProcess]:
    """A worker that gets all the time that a busy machine needs to stop it."""
    made = WorkerProcess("llama3-8b", patience=PATIENCE / 1e3)
    yield made
    made.close()


def last(answers: Iterable[dict[str, Any]]) -> str:
    """Return the kind of the last answer."""
    return str([answer["kind"] for answer in answers][-1])


def test_a_wrong_scenario_is_told_before_anything_is_shown() -> None:
    worker = WorkerProcess("no-such-scenario")
    try:
        assert worker.hello()["kind"] == "failed"
        assert "neither a file nor a scenario" in worker.hello()["message"]
    finally:
        worker.close()


def test_all_parts_of_the_page_hear_what_the_worker_says_first() -> None:
    """They ask side by side, before it has said anything."""
    worker = WorkerProcess("llama3-8b")
    heard: list[dict[str, Any]] = []
    asking = [Thread(target=lambda: heard.append(worker.hello()), daemon=True) for _ in range(6)]
    for thread in asking:
        thread.start()
    for thread in asking:
        thread.join(60)
    worker.close()
    assert [message["kind"] for message in heard] == ["hello"] * 6


def test_a_question_that_is_stopped_while_the_process_starts(questions: Questions) -> None:
    """Neither a stop nor a later question needs a worker that has come to its requests."""
    worker = WorkerProcess("llama3-8b", patience=PATIENCE / 1e3)
    process = worker.process_id
    try:
        first = next(questions)
        stopped = worker.ask(first, LONG)
        worker.stop(first)
        assert last(stopped) == "stopped"
        left = worker.ask(next(questions), LONG)
        assert last(worker.ask(next(questions), SHORT)) == "run"
        assert last(left) == "stopped"
        assert worker.process_id == process  # it lives on, with what it knows
    finally:
        worker.close()


def test_the_latest_question_ends_the_one_before(
    worker: WorkerProcess, questions: Questions
) -> None:
    long = worker.ask(next(questions), LONG)
    assert next(long)["kind"] == "progress"
    process = worker.process_id
    assert last(worker.ask(next(questions), SHORT)) == "run"
    assert last(long) == "stopped"
    assert worker.process_id == process


def test_a_stop_ends_what_is_being_answered(worker: WorkerProcess, questions: Questions) -> None:
    question = next(questions)
    answers = worker.ask(question, LONG)
    next(answers)
    worker.stop(question)
    assert last(answers) == "stopped"
    worker.stop(question)  # nothing runs: nothing happens


def test_a_stop_that_comes_before_its_question(worker: WorkerProcess, questions: Questions) -> None:
    """The question is not begun, and the next one of the page is."""
    question, later = next(questions), next(questions)
    asked = worker.asked
    worker.stop(question)
    assert list(worker.ask(question, LONG)) == [{"kind": "stopped"}]
    assert worker.asked == asked
    assert last(worker.ask(later, SHORT)) == "run"


def test_a_stop_that_comes_after_its_question(worker: WorkerProcess, questions: Questions) -> None:
    """The next one, which runs by then, goes on."""
    question = next(questions)
    assert last(worker.ask(question, SHORT)) == "run"
    later = worker.ask(next(questions), SHORT)
    worker.stop(question)
    assert last(later) == "run"


def test_a_question_that_was_overtaken_on_its_way(
    worker: WorkerProcess, questions: Questions
) -> None:
    """The page has gone on from it: the one that arrived first is not stopped by it."""
    early, late = next(questions), next(questions)
    answers = worker.ask(late, SHORT)
    assert last(worker.ask(early, LONG)) == "stopped"
    assert last(answers) == "run"


def test_a_stop_of_another_page(worker: WorkerProcess, questions: Questions) -> None:
    answers = worker.ask(next(questions), SHORT)
    worker.stop(Question("another page", 10))
    assert last(answers) == "run"


def test_a_worker_that_does_not_hear_is_replaced(questions: Questions) -> None:
    """What it was asked is stopped all the same, and no error."""
    worker = WorkerProcess("llama3-8b", patience=0)
    try:
        question = next(questions)
        answers = worker.ask(question, LONG)
        next(answers)
        process = worker.process_id
        os.kill(process, signal.SIGSTOP)
        worker.stop(question)
        assert last(answers) == "stopped"
        assert worker.process_id != process
        assert last(worker.ask(next(questions), SHORT)) == "run"
    finally:
        worker.close()


def test_a_worker_that_died_is_told_and_replaced(questions: Questions) -> None:
    worker = WorkerProcess("llama3-8b", patience=PATIENCE / 1e3)
    try:
        question = next(questions)
        answers = worker.ask(question, LONG)
        next(answers)
        worker.kill()
        worker.stop(question)  # too late: there is nobody to stop
        (*_, lost) = answers
        assert lost["kind"] == "error"
        assert "ended" in lost["message"]
        assert last(worker.ask(next(questions), SHORT)) == "run"
    finally:
        worker.close()
