"""What a CPU thread waits for in a call of the CUDA runtime, and until when."""

from __future__ import annotations

import json
from typing import Any

import pytest
from helpers.kineto_writer import Recording

from commsim.traces.formats.files import Document
from commsim.traces.formats.kineto import read_kineto
from commsim.traces.rebuild.rank.activity import activity_of
from commsim.traces.rebuild.rank.streams import SLACK, issue_order
from commsim.traces.rebuild.rank.threads import _blocking

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
