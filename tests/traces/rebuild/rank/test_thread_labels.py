"""What a thread was doing at a time: its outermost op, else the innermost annotation."""

from __future__ import annotations

import numpy as np
import pytest

from commsim.graph import Phase
from commsim.traces.formats import Event, EventKind, Events
from commsim.traces.formats.event_args import NO_ARGS
from commsim.traces.rebuild.rank.calls import Thread
from commsim.traces.rebuild.rank.thread_labels import thread_labels

OP, NOTE, CALL = EventKind.CPU_OP, EventKind.ANNOTATION, EventKind.RUNTIME


def a_thread(*spans: tuple[EventKind, str, int, int]) -> Thread:
    events = [
        Event(kind, name, ("1", "1"), start, end, 0, -1, NO_ARGS)
        for kind, name, start, end in spans
    ]
    return Thread(("1", "1"), Events.of(events))


def label(thread: Thread, time: int, *, backward: bool = False) -> tuple[str, Phase]:
    names, phases, texts = thread_labels(thread, np.array([time]), backward=backward)
    return texts[names[0]], Phase(phases[0])


THREAD = a_thread(
    (OP, "aten::first", 0, 10),
    (NOTE, "ProfilerStep#1", 20, 200),
    (NOTE, "forward", 30, 80),
    (OP, "aten::linear", 40, 60),
    (OP, "aten::mm", 45, 55),
    (CALL, "cudaLaunchKernel", 50, 52),
    (NOTE, "Optimizer.step#Adam", 90, 120),
    (OP, "aten::add", 100, 110),
    (OP, "autograd::engine::evaluate_function: X", 130, 150),
    (OP, "aten::mm", 135, 140),
)


@pytest.mark.parametrize(
    ("time", "name", "phase"),
    [
        (0, "aten::first", Phase.NONE), (10, "aten::first", Phase.NONE), (11, "cpu", Phase.NONE),
        (25, "cpu", Phase.NONE), (30, "forward", Phase.NONE), (35, "forward", Phase.NONE),
        (41, "aten::linear", Phase.NONE), (51, "aten::linear", Phase.NONE),
        (60, "aten::linear", Phase.NONE), (61, "forward", Phase.NONE), (80, "forward", Phase.NONE),
        (81, "cpu", Phase.NONE), (95, "Optimizer.step#Adam", Phase.OPTIMIZER),
        (105, "aten::add", Phase.OPTIMIZER), (121, "cpu", Phase.NONE),
        (136, "autograd::engine::evaluate_function: X", Phase.BACKWARD), (201, "cpu", Phase.NONE),
    ],
)  # fmt: skip
def test_a_time_has_a_name_and_a_phase(time: int, name: str, phase: Phase) -> None:
    assert label(THREAD, time) == (name, phase)


def test_before_all_events_there_is_no_name() -> None:
    assert label(a_thread((OP, "aten::mm", 5, 6)), 4) == ("cpu", Phase.NONE)


def test_on_autograds_own_threads_all_is_backward() -> None:
    for time in (5, 35, 105):
        assert label(THREAD, time, backward=True)[1] == Phase.BACKWARD
