"""Which call launched what, and what Gloo's messages say of their other ends."""

from __future__ import annotations

import numpy as np
import pytest

from commsim.traces.formats import Event, EventKind, Events
from commsim.traces.formats.event_args import NO_ARGS, EventArgs
from commsim.traces.rebuild.rank.calls import Thread, ThreadCall
from commsim.traces.rebuild.rank.gloo_work import (
    _free_lane,
    _kind_of_run,
    gloo_op,
    gloo_work,
    peer_and_tag,
)
from commsim.traces.rebuild.rank.gpu_ops import GpuOp, LaunchCalls


def an_event(
    name: str, kind: EventKind = EventKind.RUNTIME, correlation: int = 0, args: EventArgs = NO_ARGS
) -> Event:
    return Event(kind, name, ("1", "1"), 0, 1, correlation, -1, args)


def calls(*of_threads: list[tuple[EventKind, int]]) -> LaunchCalls:
    return LaunchCalls({
        ("1", str(number)): Thread(
            ("1", str(number)), Events.of(an_event("x", kind, of) for kind, of in events)
        )
        for number, events in enumerate(of_threads)
    })  # fmt: skip


CALL, OP = EventKind.RUNTIME, EventKind.CPU_OP


def test_a_call_is_found_by_its_number() -> None:
    found = calls([(OP, 1), (CALL, 5), (CALL, 0)], [(CALL, 1), (CALL, 9), (CALL, 5)])
    thread, place = found.find(np.array([1, 5, 9, 0, -1, 4, 10]))
    assert thread.tolist() == [1, 1, 1, -1, -1, -1, -1]
    assert place.tolist() == [0, 2, 1, -1, -1, -1, -1]  # of two with number 5 the last
    assert found.get(9) == ThreadCall(("1", "1"), 1)
    assert found.get(0) is found.get(4) is None


def test_without_calls_none_is_found() -> None:
    thread, place = calls([(OP, 1)]).find(np.array([1, 2]))
    assert (thread.tolist(), place.tolist()) == ([-1, -1], [-1, -1])
    assert calls([(OP, 1)]).get(1) is None


def test_who_communicates() -> None:
    nccl, gloo, other, add = (
        GpuOp(an_event(name), None)
        for name in (
            "ncclDevKernel_AllReduce_Sum_f32_RING_LL(x)", "gloo:all_reduce",
            "void deep_ep::internode::dispatch<false, 4, true>(int4*, float*)", "add_kernel",
        )
    )  # fmt: skip
    assert [op.is_collective for op in (nccl, gloo, other, add)] == [True, True, False, False]
    assert [op.is_gloo for op in (nccl, gloo, other, add)] == [False, True, False, False]
    assert [op.family is not None for op in (nccl, gloo, other, add)] == [False, False, True, False]
    assert gloo_op(gloo.event) == "all_reduce"


@pytest.mark.parametrize(
    ("name", "numbers", "found"),
    [
        ("c10d::send", (1, 2, 3, 7), (3, 7)), ("c10d::send", (1, 2, 3), (-1, 0)),
        ("c10d::recv_", (0, 1, 2, 3, 8, 9), (8, 9)), ("c10d::send", (1, 2, 3, -1), (3, 0)),
        ("c10d::recv_any_source_", (1, 2, 7), (-1, 7)), ("c10d::recv_any_source_", (1, 7), (-1, 0)),
    ],
)  # fmt: skip
def test_peer_and_tag_are_the_last_two_numbers(
    name: str, numbers: tuple[int, ...], found: tuple[int, int]
) -> None:
    assert peer_and_tag(an_event(name, args=EventArgs(numbers=numbers))) == found


def test_a_message_takes_the_first_lane_that_is_free() -> None:
    until: list[int] = []
    taken = [_free_lane(until, *span) for span in ((0, 10), (5, 8), (8, 9), (10, 11), (8, 20))]
    assert taken == [0, 1, 1, 0, 2]
    assert until == [11, 9, 20]


def test_gloo_runs_some_ops_as_others() -> None:
    assert _kind_of_run("reduce_scatter", {"all_reduce"}) == "all_reduce"
    assert _kind_of_run("reduce_scatter", {"all_reduce", "reduce_scatter"}) == "reduce_scatter"
    assert _kind_of_run("all_to_all_v", {"all_to_all"}) == "all_to_all"
    assert _kind_of_run("all_gather", {"all_reduce"}) == "all_gather"


def test_messages_that_overlap_have_streams_of_their_own_and_calls_that_of_their_thread() -> None:
    """Two sends at once, one after both; calls on two of Gloo's threads, and on the first again."""
    main = ("1", "1")
    rows = [
        ("send", "30", 0, 10), ("send", "30", 5, 20), ("send", "30", 20, 30),
        ("all_reduce", "40", 31, 32), ("all_reduce", "41", 33, 34), ("all_reduce", "40", 35, 36),
    ]  # fmt: skip
    names = {"send": "c10d::send", "all_reduce": "c10d::allreduce_"}
    issued = [
        Event(OP, names[op], main, start, start + 1, 0, -1, NO_ARGS) for op, _, start, _ in rows
    ]
    runs = [
        Event(EventKind.ANNOTATION, f"gloo:{op}", ("1", thread), start, end, 0, -1, NO_ARGS)
        for op, thread, start, end in rows
    ]
    threads = {main: Thread(main, Events.of(issued))}
    found = list(gloo_work(Events.of([*issued, *runs]), threads, lambda calls: [""] * len(calls)))
    assert [event.stream for event, _ in found] == [-1000, -1001, -1000, -2, -3, -2]
    assert [call for _, call in found] == [ThreadCall(main, at) for at in range(6)]
    assert [event.name for event, _ in found] == [f"gloo:{op}" for op, *_ in rows]
    assert list(gloo_work(Events.of(issued), threads, lambda calls: [])) == []
