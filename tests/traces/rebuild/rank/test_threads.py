"""What a CPU thread waits for in a call of the CUDA runtime, and until when."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from helpers.kineto_writer import Recording

from commsim.traces.formats import Event, EventKind, Events
from commsim.traces.formats.event_args import NO_ARGS
from commsim.traces.formats.files import Document
from commsim.traces.formats.kineto import read_kineto
from commsim.traces.rebuild.rank.activity import activity_of
from commsim.traces.rebuild.rank.calls import Thread, ThreadCall
from commsim.traces.rebuild.rank.issue_order import SLACK, IssueOrder, Queue, issue_order
from commsim.traces.rebuild.rank.threads import (
    BlockedSpan,
    _blocking,
    _current_stream,
    _cut,
    _cuts,
    _gaps,
    _hand_overs,
    _last,
    _last_of_each,
)

US = 1_000_000


def blocked(*events: tuple[Any, ...], late: bool = False) -> list[tuple[float, float, list[str]]]:
    """Return (start, end, work) of each wait of the main thread, in us.

    First a and b are launched on stream 7 and c on 8, at 0, 10 and 20 us; they run from 100 to
    200, from 200 to 300 and from 100 to 250. `events` are then calls or copies; `late` launches
    one more, d on stream 8, at 90 us.
    """
    record = Recording(0)
    record.note("ProfilerStep#1", 0, 2000)
    record.kernel("a", 0, 100, 100, stream=7)
    record.kernel("b", 10, 200, 100, stream=7)
    record.kernel("c", 20, 100, 150, stream=8)
    for name, start, length, *copy in events:
        number = record.call(name, start, length)
        if copy:
            what, at, until, stream = copy
            record.event("gpu_memcpy", what, at, until - at, pid=0, tid=stream, stream=stream,
                         device=0, correlation=number)  # fmt: skip
    if late:
        record.kernel("d", 90, 250, 10, stream=8)
    found = activity_of(read_kineto(Document("x", json.dumps(record.content()).encode())), 0)
    (thread,) = found.threads.values()
    return [
        (span.start / US, span.end / US, [found.gpu[op].event.name for op in span.gpu])
        for span in _blocking(found, issue_order(found), thread)
    ]


def test_a_device_is_waited_for_up_to_the_last_work_of_each_stream() -> None:
    assert blocked(("cudaDeviceSynchronize", 50, 255)) == [(50, 300, ["b", "c"])]
    assert blocked(("cudaDeviceSynchronize", 6, 290)) == [(6, 200, ["a"])]
    assert blocked(("cuCtxSynchronize", 50, 205)) == [(50, 250, ["c"])]
    assert blocked(("cudaDeviceSynchronize", 50, 100)) == []
    assert blocked(("cudaDeviceSynchronize", 400, 10)) == [(400, 400, ["b", "c"])]
    assert blocked(("cudaDeviceSynchronize", 50, 300), late=True) == [(50, 300, ["b", "c"])]


def test_a_stream_that_the_call_does_not_say_is_that_of_the_last_launch() -> None:
    assert blocked(("cudaStreamSynchronize", 50, 205)) == [(50, 250, ["c"])]
    assert blocked(("cudaStreamSynchronize", 6, 195)) == [(6, 200, ["a"])]


def test_an_event_that_is_not_known_is_the_work_that_ended_last_in_the_call() -> None:
    assert blocked(("cudaEventSynchronize", 50, 210)) == [(50, 250, ["c"])]
    assert blocked(("cudaEventSynchronize", 50, 200)) == [(50, 250, ["c"])]
    assert blocked(("cudaEventSynchronize", 50, 199)) == [(50, 200, ["a"])]
    assert blocked(("cudaEventSynchronize", 250, 20)) == []
    assert blocked(("cudaEventSynchronize", 249, 20)) == [(249, 250, ["c"])]


TO_PAGES, TO_PINNED = "Memcpy DtoH (Device -> Pageable)", "Memcpy DtoH (Device -> Pinned)"


@pytest.mark.parametrize(
    ("call", "what", "waits"),
    [
        ("cudaMemcpy", TO_PINNED, True), ("cudaMemcpy", "Memcpy HtoD (Pinned -> Device)", True),
        ("cudaMemcpyAsync", TO_PAGES, True), ("cudaMemcpyAsync", TO_PINNED, False),
        ("cudaMemcpyAsync", "Memcpy HtoD (Pageable -> Device)", False),
        ("hipMemcpyWithStream", TO_PINNED, True), ("cudaMemsetAsync", TO_PAGES, False),
    ],
)  # fmt: skip
def test_a_copy_is_waited_for_if_its_call_blocks_or_it_goes_to_pageable_memory(
    call: str, what: str, waits: bool
) -> None:
    found = blocked((call, 50, 350, what, 300, 390, 7))
    assert found == ([(50, 390, [what])] if waits else [])


def test_a_copy_without_work_waits_for_nothing() -> None:
    assert blocked(("cudaMemcpy", 50, 350)) == []


@pytest.mark.parametrize(("early", "waits"), [(0, True), (SLACK, True), (SLACK + 1000, False)])
def test_clocks_of_gpu_and_host_differ_by_a_little(early: int, waits: bool) -> None:
    """The call returns before the work of the GPU has ended, if only by that."""
    found = blocked(("cudaDeviceSynchronize", 6, 194 - early / US))
    assert found == ([(6, 200 - early / US, ["a"])] if waits else [])


def a_thread(number: int, *events: tuple[float, float] | tuple[float, float, EventKind]) -> Thread:
    """A thread with events from and until so, in us: ops, if nothing else is said."""
    name = ("1", str(number))
    return Thread(
        name,
        Events.of(
            Event(kind[0] if kind else EventKind.CPU_OP, "x", name, round(start * US),
                  round(end * US), 0, -1, NO_ARGS)
            for start, end, *kind in events
        ),
    )  # fmt: skip


@pytest.mark.parametrize(
    ("events", "gaps"),
    [
        ([(0, 10), (110, 120)], [(10, 110)]), ([(0, 10), (109, 120)], []),
        ([(0, 10), (110, 120), (300, 301)], [(10, 110), (120, 300)]),
        # Inside an op or a call it works; inside a range of the script, or between them, not.
        ([(0, 400), (0, 10), (110, 120)], []),
        ([(0, 400, EventKind.ANNOTATION), (0, 10), (110, 120)], [(10, 110), (120, 400)]),
        ([(0, 400, EventKind.ANNOTATION), (5, 390), (6, 10), (110, 120)], []),
        ([(0, 400, EventKind.RUNTIME)], []), ([(0, 400, EventKind.ANNOTATION)], [(0, 400)]),
        ([(0, 400), (0, 200, EventKind.ANNOTATION)], [(0, 200)]),
    ],
)  # fmt: skip
def test_a_gap_is_a_tenth_of_a_millisecond_without_an_event(
    events: list[Any], gaps: list[tuple[int, int]]
) -> None:
    found = list(_gaps(a_thread(1, *events)))
    assert found == [(start * US, end * US) for start, end in gaps]


@pytest.mark.parametrize(
    ("busy", "until"),
    [
        ([(110, 120), (150, 160)], 160), ([(110, 160)], 160), ([(110, 159)], None),
        ([(150, 200)], 200), ([(151, 200)], None), ([(90, 99), (201, 300)], None),
        ([(100, 150)], 150), ([(50, 130), (150, 151)], None),
    ],
)  # fmt: skip
def test_a_thread_waits_in_a_gap_for_the_backward_that_is_busy_for_half_of_it(
    busy: list[tuple[float, float]], until: float | None
) -> None:
    """The main thread has nothing from 100 to 200 us: it waits for the last that is done there."""
    main, backward = a_thread(1, (0, 100), (200, 210)), a_thread(2, *busy)
    idle, other = a_thread(3, (0, 1), (400, 401)), a_thread(4, (100, 200))
    activity: Any = SimpleNamespace(backward={backward.name})
    expected = (
        [] if until is None else [BlockedSpan(100 * US, round(until * US), thread=backward.name)]
    )
    assert list(_hand_overs(activity, main, [main, backward, other])) == expected
    assert list(_hand_overs(activity, main, [main, other])) == []  # both are forward
    two: Any = SimpleNamespace(backward={backward.name, idle.name})
    assert list(_hand_overs(two, main, [idle, backward])) == expected


def test_the_last_of_streams_and_the_current_stream() -> None:
    issue = IssueOrder(
        {7: Queue([5, 20], [0, 2]), 8: Queue([10], [1])}, {("1", "1"): Queue([5], [0])}, {}
    )
    assert [_last(issue, 7, time) for time in (4, 5, 20)] == [[], [0], [2]]
    assert _last(issue, 9, 20) == []
    assert [_last_of_each(issue, time) for time in (4, 9, 30)] == [[], [0], [2, 1]]
    activity: Any = SimpleNamespace(
        gpu=SimpleNamespace(streams=[7, 8, 7]), event=lambda call: SimpleNamespace(start=call.index)
    )
    calls = [ThreadCall(("1", "1"), 4), ThreadCall(("1", "1"), 5), ThreadCall(("1", "2"), 9)]
    assert [_current_stream(activity, issue, call) for call in calls] == [-1, 7, -1]


def cut(cuts: list[float], *spans: BlockedSpan) -> Any:
    """Return a thread's pieces between some cuts, without the spans in which it is blocked."""
    thread = a_thread(1, (0, 100))
    activity: Any = SimpleNamespace(backward=set())
    return _cut(activity, thread, np.array([at * US for at in cuts], np.int64), list(spans))


def span(start: float, end: float, *gpu: int, thread: Any = None) -> BlockedSpan:
    return BlockedSpan(round(start * US), round(end * US), gpu, thread)


def test_blocked_time_is_no_piece_but_its_end_is_one_to_wait_in() -> None:
    other = ("1", "2")
    found = cut(
        [0, 20, 30, 50, 60, 90, 100],
        span(60, 90, thread=other), span(20, 50, 3, 4), span(30, 50, 5), span(100, 100, 6),
    )  # fmt: skip
    spans = zip((found.start // US).tolist(), (found.end // US).tolist(), strict=True)
    assert list(spans) == [(0, 0), (0, 20), (50, 50), (50, 60), (90, 90), (90, 100), (100, 100)]
    assert found.gpu == {2: [3, 4, 5], 4: [], 6: [6]}
    assert found.after == {4: [(other, 90 * US)]}


def test_a_thread_that_never_waits_is_one_piece_between_cuts() -> None:
    found = cut([5, 40, 100])
    assert (found.start // US).tolist() == [5, 5, 40]
    assert (found.end // US).tolist() == [5, 40, 100]
    assert (found.gpu, found.after) == ({}, {})


@pytest.mark.parametrize("step", [None, (10, 90)])
def test_threads_are_cut_at_launches_waits_and_the_step(step: tuple[float, float] | None) -> None:
    """Thread 2 waits up to 70 for what thread 1 has done by then."""
    one, two = a_thread(1, (0, 100)), a_thread(2, (30, 80), (85, 95))
    marked = SimpleNamespace(start=step[0] * US, end=step[1] * US) if step else None
    gpu = SimpleNamespace(
        threads=[one.name, two.name], thread=np.array([0, 1, -1, 0]),
        launched=np.array([20, 40, 50, 20]) * US,
    )  # fmt: skip
    activity: Any = SimpleNamespace(step=marked, main=one.name, gpu=gpu)
    blocked = {one.name: [span(60, 65, 7)], two.name: [span(50, 70, thread=one.name)]}
    found = _cuts(activity, [one, two], blocked, {one.name: 0, two.name: 25 * US})
    times = {name: (cuts // US).tolist() for name, cuts in found.items()}
    ends = [10, 90] if step else []
    assert times[one.name] == sorted([0, 20, 60, 65, 70, 100, *ends])
    assert times[two.name] == [25, 40, 50, 70, 95]
