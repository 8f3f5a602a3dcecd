"""Messages matched by hand: which send each receive takes, and when each moved."""

from __future__ import annotations

import pytest

from commsim.errors import TraceError
from commsim.traces.rebuild.match_messages import (
    Exchange,
    MessageTimes,
    Span,
    match_messages,
    move_of,
)
from commsim.traces.rebuild.rank import CollectiveCall, KernelMessage, RankCollectives


def moved(send: Span, recv: Span, done: Span, library: str = "gloo") -> MessageTimes:
    return move_of(Exchange((0, 0, 0), (1, 0, 0), 8, 0, "g", (0, 1), library, done), send, recv)


@pytest.mark.parametrize(
    ("send", "recv", "done", "start", "until", "ends", "eager"),
    [
        # It moves from when both are there until the first of them has its end.
        ((10, 50), (20, 60), (-1, -1), 20, 50, (50, 60), False),
        ((30, 70), (20, 60), (-1, -1), 30, 60, (70, 60), False),
        # The send ended before the receive was there: each takes its own time.
        ((0, 19), (20, 30), (-1, -1), 20, 30, (19, 30), True),
        ((0, 20), (20, 30), (-1, -1), 20, 20, (20, 30), False),
        # A wait that took 5 found the send done: it ended with the receive, before that wait.
        ((0, 100), (20, 60), (5, -1), 20, 60, (60, 60), False),
        ((0, 62), (20, 60), (5, -1), 20, 57, (57, 60), False),
        ((0, 100), (20, 60), (0, -1), 20, 60, (60, 60), False),
        ((0, 60), (20, 100), (-1, 5), 20, 60, (60, 60), False),
        # Both were found done: nobody knows when, but no longer than the shorter wait.
        ((0, 100), (20, 90), (5, 3), 20, 23, (23, 23), False),
        ((0, 100), (20, 90), (3, 5), 20, 23, (23, 23), False),
        ((0, 22), (20, 24), (1, 3), 20, 21, (21, 21), False),
        # The wait began before the receive was there: it left eagerly, and took that long.
        ((0, 50), (20, 30), (45, -1), 20, 30, (45, 30), True),
        ((0, 50), (20, 30), (45, 3), 20, 23, (45, 23), True),
        ((0, 10), (20, 30), (-1, 0), 20, 20, (10, 20), True),
    ],
)
def test_when_a_message_moved(
    send: Span, recv: Span, done: Span, start: int, until: int, ends: Span, eager: bool
) -> None:
    assert moved(send, recv, done) == MessageTimes(start, until, ends, eager)


def test_a_message_of_nccl_moved_until_its_receive_had_it() -> None:
    """Whether a buffer took it from the sender sooner, or the sender left later."""
    for send, recv in (((10, 50), (20, 60)), ((30, 70), (20, 60)), ((0, 20), (20, 60))):
        start = max(send[0], recv[0])
        found = moved(send, recv, (-1, -1), "nccl")
        assert found == MessageTimes(start, 60, (send[1], 60), eager=False)
    assert moved((0, 19), (20, 60), (-1, -1), "nccl").eager


def call(rank: int, end: int, *messages: KernelMessage) -> CollectiveCall:
    return CollectiveCall(rank, "messages", 0, end - 10, end, end - 10, messages=messages)


def calls(*of_rank: CollectiveCall) -> RankCollectives:
    return RankCollectives(of_rank, (), ())


def send(to: int, size: int = 100, tag: int = 0, group: str = "") -> KernelMessage:
    return KernelMessage("send", to, size, tag=tag, group=group)


def recv(source: int, size: int = 100, tag: int = 0, group: str = "") -> KernelMessage:
    return KernelMessage("recv", source, size, tag=tag, group=group)


def matched(
    *ranks: RankCollectives, zeros: tuple[int, ...] = (0, 0, 0)
) -> tuple[list[tuple[object, ...]], list[str]]:
    found, notes = match_messages(dict(enumerate(ranks)), dict(enumerate(zeros)))
    return [(one.send, one.recv, one.size, one.tag, one.group) for one in found], notes


def test_a_message_no_rank_of_which_says_more() -> None:
    bare = KernelMessage("send", 1, 8)
    assert (bare.dtype, bare.tag, bare.group, bare.found_done) == ("", 0, "", -1)


def test_sends_and_receives_of_one_tag_meet_in_order() -> None:
    found, notes = matched(
        calls(call(0, 10, send(1, 100), send(1, 300, tag=7)), call(0, 20, send(1, 200))),
        calls(call(1, 15, recv(0, 300, tag=7), recv(0, 100)), call(1, 30, recv(0, -1))),
    )
    assert found == [
        ((0, 0, 0), (1, 0, 1), 100, 0, "messages"), ((0, 1, 0), (1, 1, 0), 200, 0, "messages"),
        ((0, 0, 1), (1, 0, 0), 300, 7, "messages"),
    ]  # fmt: skip
    assert notes == []


def test_an_exchange_has_the_ranks_in_order_and_how_its_waits_ended() -> None:
    done = KernelMessage("send", 0, -1, found_done=5, group="pp")
    late = KernelMessage("recv", 1, -1, found_done=7, group="pp")
    ((one,), _) = match_messages({0: calls(call(0, 9, late)), 1: calls(call(1, 9, done))},
                                 {0: 0, 1: 0})  # fmt: skip
    assert (one.ranks, one.size, one.group, one.found_done) == ((0, 1), 0, "pp", (5, 7))
    assert Exchange((0, 0, 0), (1, 0, 0), 8, 0, "", (0, 1), "nccl").found_done == (-1, -1)


@pytest.mark.parametrize(("zeros", "nearest"), [((0, 0, 0), 1), ((85, 0, 0), 0)])
def test_a_receive_from_anyone_takes_the_send_that_ended_nearest(
    zeros: tuple[int, ...], nearest: int
) -> None:
    """By the ranks' own clocks: rank 0's ended at 20 or at 105, rank 1's at 100, it at 104."""
    ranks = calls(call(0, 20, send(2))), calls(call(1, 100, send(2))), calls(call(2, 104, recv(-1)))
    found, notes = matched(*ranks, zeros=zeros)
    assert [one[0] for one in found] == [(nearest, 0, 0)]
    assert notes == [f"rank {1 - nearest} sent 1 messages to rank 2 that no receive matches."]


def test_a_receive_from_anyone_takes_its_tag_group_and_size() -> None:
    for other in (send(2, tag=1), send(2, group="x"), send(2, size=50), send(1)):
        found, _ = matched(calls(call(0, 104, other)), calls(call(1, 9, send(2))),
                           calls(call(2, 104, recv(-1))))  # fmt: skip
        assert [one[0] for one in found][-1:] == [(1, 0, 0)]


def test_what_is_left_over_meets_by_ranks_and_size() -> None:
    """Whatever its tag or group; the nearest in time, of several."""
    found, notes = matched(
        calls(call(0, 10, send(1, 100, tag=1)), call(0, 50, send(1, 100, tag=2)),
              call(0, 52, send(1, 70, tag=3)), call(0, 51, send(2, 100, tag=4))),
        calls(call(1, 49, recv(0, 100, tag=5)), call(1, 90, recv(0, 60, tag=6))),
        calls(),
    )  # fmt: skip
    assert found == [((0, 1, 0), (1, 0, 0), 100, 2, "messages")]
    assert notes == [
        "rank 0 sent 2 messages to rank 1 that no receive matches.",
        "rank 0 sent 1 messages to rank 2 that no receive matches.",
    ]
    found, _ = matched(calls(call(0, 9, send(1, tag=1))), calls(call(1, 9, recv(-1, tag=2))))
    assert len(found) == 1


def test_ends_of_ranks_that_are_not_recorded_are_not_missed() -> None:
    assert matched(calls(call(0, 10, send(5), recv(6)))) == ([], [])
    _, notes = matched(calls(), calls(call(1, 10, recv(0), recv(0, tag=3))))
    assert notes == ["rank 1 posted 2 receives from rank 0 that no send matches."]


def test_ends_that_differ_in_size_are_refused() -> None:
    with pytest.raises(TraceError, match="a message from rank 0 to rank 1 differs: 100 B are sent"):
        matched(calls(call(0, 10, send(1, 100))), calls(call(1, 10, recv(0, 101))))
