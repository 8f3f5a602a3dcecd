"""The order in which GPU work was issued, and what on other streams it may have waited for."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from commsim.traces.formats import EventKind
from commsim.traces.formats.event_args import NO_ARGS
from commsim.traces.rebuild.rank.calls import (
    CollectiveCall,
    RankCollectives,
    StreamWait,
    ThreadCall,
)
from commsim.traces.rebuild.rank.issue_order import (
    SLACK,
    IssueOrder,
    Queue,
    _queues,
    fits,
    last_fit,
)
from commsim.traces.rebuild.rank.process_group_waits import (
    _communicates,
    _next_work,
    process_group_waits,
)
from commsim.traces.rebuild.rank.streams import _gather, _recorded

THREAD = ("1", "1")


def test_a_queue_is_asked_by_times_of_launch() -> None:
    queue = Queue([10, 20, 20, 30], [5, 0, 7, 6])
    assert [queue.last_before(time) for time in (9, 10, 19, 20, 29, 30, 99)] == [
        -1, 5, 5, 7, 7, 6, 6,
    ]  # fmt: skip
    assert [queue.next_after(time) for time in (0, 10, 11, 20, 21, 30, 31)] == [
        5, 5, 0, 0, 6, 6, -1,
    ]  # fmt: skip
    assert list(queue.before(20)) == [7, 0, 5]
    assert list(queue.before(9)) == []
    assert Queue([], []).last_before(5) == Queue([], []).next_after(5) == -1


def test_queues_stand_in_the_order_of_their_first_work() -> None:
    launched, keys = np.array([5, 3, 9, 4]), np.array([7, 8, 7, 7])
    found = _queues(launched, keys, np.array([1, 3, 0, 2]))
    assert list(found) == [8, 7]
    assert (found[8].times, found[8].ops) == ([3], [1])
    assert (found[7].times, found[7].ops) == ([4, 5, 9], [3, 0, 2])
    assert _queues(launched, keys, np.zeros(0, int)) == {}


def rank(**columns: Any) -> Any:
    """A rank whose calls begin at their indices times 10."""
    event = lambda call: SimpleNamespace(start=10 * call.index)  # noqa: E731
    return SimpleNamespace(gpu=SimpleNamespace(**columns), event=event)


def test_work_may_have_waited_for_what_ended_up_to_two_microseconds_later() -> None:
    assert SLACK == 2_000_000
    seen = rank(ends=[100 + SLACK, 101 + SLACK, 100], starts=[0, 0, 100])
    assert [fits(seen, source, 2) for source in (0, 1, 2)] == [True, False, True]
    assert last_fit(seen, [1, 0, 2], 2) == 0
    assert last_fit(seen, [1], 2) == last_fit(seen, [], 2) == -1


ISSUE = IssueOrder({}, {THREAD: Queue([5, 25], [0, 3])}, {7: Queue([5, 18, 25], [0, 2, 3])})


@pytest.mark.parametrize(
    ("index", "waiting"),
    [
        (0, [0]),  # before any launch: the thread's first
        (1, [3, 2]),  # after op 0 on stream 7: the thread's next, and the stream's, of another one
        (2, [3]),  # both are the same
        (3, []),  # nothing comes after
    ],
)
def test_what_may_wait_is_the_next_work_of_the_thread_and_of_its_stream(
    index: int, waiting: list[int]
) -> None:
    seen = rank(streams=[7, 8, 7, 7])
    assert _next_work(seen, ISSUE, ThreadCall(THREAD, index), {}) == waiting
    assert _next_work(seen, ISSUE, ThreadCall(("1", "2"), index), {}) == []


@pytest.mark.parametrize(("call", "sources"), [(0, [4]), (1, [1]), (-1, [1])])
def test_a_wait_is_for_its_call_else_for_the_last_one_that_had_ended(
    call: int, sources: list[int]
) -> None:
    """Calls 0 and 1 are kernels 4 and 1, launched at 2 and 3; both had ended by then."""
    none = np.zeros(5, bool)
    seen = rank(
        streams=[7, 8, 7, 7, 8], ends=[0, 50, 0, 0, 60], starts=[0, 0, 70, 70, 0],
        is_collective=none, has_launch=none, launched=np.zeros(5),
    )  # fmt: skip
    seen.event = lambda call: SimpleNamespace(start=10 * call.index, args=NO_ARGS)
    seen.threads = {}
    calls = [CollectiveCall(0, "all_reduce", kernel, 0, 0, at) for kernel, at in ((4, 2), (1, 3))]
    known = RankCollectives(tuple(calls), (StreamWait(ThreadCall(THREAD, 2), call),), ())
    found = process_group_waits(seen, ISSUE, known, {})
    assert list(found) == [(source, 3) for source in sources]


def test_each_op_waits_for_another_once() -> None:
    assert _gather([(1, 5), (2, 5), (1, 5), (1, 6)]) == {5: [1, 2], 6: [1]}


def test_which_calls_communicate() -> None:
    names = ("record_param_comms", "c10d::x", "nccl:x", "aten::record_param_comms", "nccl")
    assert [_communicates(name) for name in names] == [True, True, True, False, False]


@pytest.mark.parametrize(
    ("changed", "found"),
    [
        ({}, [(0, 1)]),
        ({"source": [1], "target": [0]}, [(1, 0)]),
        ({"record": 7}, []),  # a record that is not in the recording
        ({"wait": 7}, []),
        ({"stream": "c"}, []),
        ({"source": []}, []),  # nothing was recorded before
        ({"target": []}, []),
        ({"ends": 100 + SLACK}, [(0, 1)]),
        ({"ends": 100 + SLACK + 1}, []),  # it ended after the other began
    ],
)
def test_a_recorded_wait_is_of_the_last_before_its_record_and_the_next_after_it(
    changed: dict[str, Any], found: list[tuple[int, int]]
) -> None:
    """Calls 1 and 2, at 10 and 20: an event is recorded on stream a, which stream b waits for."""
    given: dict[str, Any] = {
        "record": 1, "wait": 2, "stream": "a", "source": [0], "target": [1], "ends": 100,
    } | changed  # fmt: skip
    first, second = Queue([5] * len(given["source"]), given["source"]), given["target"]
    event = SimpleNamespace(
        args=SimpleNamespace(waits_for=given["record"], waits_for_stream=given["stream"]),
        correlation=given["wait"], stream="b",
    )  # fmt: skip
    other = SimpleNamespace(args=None)
    events = SimpleNamespace(
        kind=np.array([EventKind.KERNEL, EventKind.CUDA_SYNC, EventKind.CUDA_SYNC]),
        named=lambda which: np.array(
            [which(name) for name in ("Stream Wait Event", "Stream Wait Event", "Stream Sync")]
        ),
        take=lambda mask: [
            one for one, kept in zip((other, event, other), mask, strict=True) if kept
        ],
    )
    activity = rank(starts=[100, 100], ends=[given["ends"]] * 2, launched=[5, 25])
    activity.file = SimpleNamespace(events=events)
    activity.calls = {number: SimpleNamespace(index=number) for number in (1, 2)}
    issue: Any = SimpleNamespace(streams={"a": first, "b": Queue([25] * len(second), second)})
    assert list(_recorded(activity, issue)) == found
