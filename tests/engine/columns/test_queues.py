"""Queues of events and of flows' ends, and the fair shares of links, over tables by hand."""

from __future__ import annotations

import random

import pytest
from helpers.run_tables import run_tables, with_phases

from commsim.engine.columns import ends, events, filling
from commsim.engine.columns.events import ALARM, FULL_TABLE, LATE, NORMAL, URGENT
from commsim.engine.columns.state import NEVER, State


@pytest.mark.parametrize("seed", range(20))
def test_events_come_by_time_then_urgency_then_as_they_were_set(seed: int) -> None:
    chance, s = random.Random(seed), run_tables(event=20)
    count = chance.randrange(1, 21)
    rows = [(chance.randrange(4), chance.choice((URGENT, NORMAL, LATE))) for _ in range(count)]
    for what, (delay, urgency) in enumerate(rows):
        events.push(s, delay, urgency, what % 5, what, 100 + what)
    assert s.run[0].full == 0
    order = sorted(range(count), key=lambda what: (*rows[what], what))
    for what in order:
        assert events.pop(s) == (what % 5, what, 100 + what)
        assert s.run[0].now == rows[what][0]
    assert s.run[0].event_count == 0


def test_an_event_beyond_the_table_asks_for_more_and_beyond_time_is_left_out() -> None:
    s = run_tables(event=2)
    for _ in range(2):
        events.push(s, 0, NORMAL, 1, 1)
    assert (s.run[0].full, s.run[0].events) == (0, 2)
    events.push(s, 0, NORMAL, 1, 1)
    assert (s.run[0].full, s.run[0].event_count) == (FULL_TABLE, 2)
    s = run_tables()
    s.run[0].now = 10
    events.push(s, NEVER - 11, NORMAL, 1, 1)
    assert (s.run[0].cut, s.run[0].event_count, s.event[0].when) == (0, 1, NEVER - 1)
    events.push(s, NEVER - 10, NORMAL, 1, 1)
    assert (s.run[0].cut, s.run[0].event_count) == (1, 1)


def ending(s: State, at: int, when: int, number: int) -> None:
    """Queue the end of a flow."""
    s.flow[at].active, s.flow[at].wake, s.flow[at].number = 1, when, number
    ends.push_wake(s, at)


@pytest.mark.parametrize("seed", range(20))
def test_ends_come_by_time_then_as_their_flows_began(seed: int) -> None:
    chance, s = random.Random(seed), run_tables(wake=20, flow=20)
    rows = [(chance.randrange(4), number) for number in range(chance.randrange(1, 21))]
    chance.shuffle(rows)
    for at, (when, number) in enumerate(rows):
        ending(s, at, when, number)
    for when, number in sorted(rows):
        assert (s.wake[0].when, s.wake[0].number) == (when, number)
        assert s.wake[0].flow == rows.index((when, number))
        ends.pop_wake(s)
    assert (s.run[0].wake_count, s.run[0].full) == (0, 0)


def test_an_end_that_comes_before_all_others_of_a_table_that_it_fills_is_the_first() -> None:
    s = run_tables(wake=2)
    ending(s, 0, 10, 1)
    ending(s, 1, 5, 2)
    assert [(int(one.when), int(one.flow)) for one in s.wake] == [(5, 1), (10, 0)]


@pytest.mark.parametrize(("room", "stale", "full"), [
    (4, 2, 0), (4, 1, FULL_TABLE), (8, 4, 0), (8, 3, FULL_TABLE), (8, 0, FULL_TABLE), (1, 1, 0),
])  # fmt: skip
def test_at_most_half_of_a_full_queue_may_stand(room: int, stale: int, full: int) -> None:
    s = run_tables(wake=room, flow=room + 1)
    for at in range(room):
        ending(s, at, 10 + at, at)
    s.flow.active[:stale] = 0
    ending(s, room, 100, room)
    assert (s.run[0].full, s.run[0].wake_count) == (full, room - stale + (0 if full else 1))


def test_an_end_stands_while_its_flow_is_the_same_and_ends_then() -> None:
    s = run_tables()
    ending(s, 3, 50, 7)
    assert ends.stands(s, 0)
    for name, value in (("active", 0), ("number", 8), ("wake", 51)):
        before = getattr(s.flow[3], name)
        setattr(s.flow[3], name, value)
        assert not ends.stands(s, 0)
        setattr(s.flow[3], name, before)
    assert ends.stands(s, 0)


@pytest.mark.parametrize(("stale", "full"), [(2, 0), (1, FULL_TABLE), (4, 0)])
def test_a_full_queue_drops_what_is_stale_and_asks_for_more_if_over_half_stands(
    stale: int, full: int
) -> None:
    s = run_tables(wake=4)
    for at in range(4):
        ending(s, at, 40 - at, at)
    s.flow.active[:stale] = 0
    s.flow[5].active, s.flow[5].wake, s.flow[5].number = 1, 60, 9
    ends.push_wake(s, 5)
    assert s.run[0].full == full
    left = [int(flow) for flow in s.wake.flow[: s.run[0].wake_count]]
    assert sorted(left) == [*range(stale, 4), *([] if full else [5])]
    assert s.wake[0].flow == (5 if stale == 4 else 3)


def test_one_alarm_is_set_for_the_first_end_that_stands() -> None:
    s = run_tables()
    s.run[0].now = 10
    for at, when in enumerate((20, 30, 40)):
        ending(s, at, when, at)
    s.flow[0].active = 0
    ends.set_alarm(s)
    assert (s.run[0].alarm_at, s.run[0].wake_count, s.run[0].event_count) == (30, 2, 1)
    assert (s.event[0].when, s.event[0].kind, s.event[0].what) == (30, ALARM, 0)
    ends.set_alarm(s)
    ends.wake_next(s, 31)  # the earlier one sets the next
    assert s.run[0].event_count == 1
    ends.wake_next(s, 29)
    assert (s.run[0].alarm_at, s.run[0].event_count) == (29, 2)
    s.run[0].now = 30  # that one is over
    ends.wake_next(s, 31)
    assert (s.run[0].alarm_at, s.run[0].event_count) == (31, 3)
    ends.wake_next(s, NEVER)
    assert (s.run[0].alarm_at, s.run[0].event_count) == (31, 3)
    s.run[0].alarm_at = -1
    ends.wake_next(s, 25)  # it is due
    assert sorted(s.event.when[:4].tolist()) == [29, 30, 30, 31]


def shares(
    capacities: list[float], *flows: list[tuple[int, float]], cap: float = 1e9
) -> list[float]:
    """Return the fair rate of each flow, one of each phase."""
    s = with_phases(capacities, *flows, cap=cap)
    for at in range(len(flows)):
        s.flow[at].phase = s.member[at] = at
    assert filling.fair_rates_of(s, len(flows)) == 1
    return [float(rate) for rate in s.rate[: len(flows)]]


@pytest.mark.parametrize(
    ("capacities", "flows", "cap", "rates"),
    [
        # Two on one link: halves. One of them over a narrower one too: the other has the rest.
        ([8.0], [[(0, 1.0)], [(0, 1.0)]], 1e9, [4.0, 4.0]),
        ([8.0, 2.0], [[(0, 1.0), (1, 1.0)], [(0, 1.0)]], 1e9, [2.0, 6.0]),
        # Twice the bytes for the same share of a link: half the rate.
        ([8.0], [[(0, 2.0)], [(0, 1.0)]], 1e9, [2.0, 4.0]),
        # Caps that the link holds, and one that it does not.
        ([8.0], [[(0, 1.0)], [(0, 1.0)]], 4.0, [4.0, 4.0]),
        ([8.0], [[(0, 1.0)], [(0, 1.0)]], 3.0, [3.0, 3.0]),
        ([8.0], [[(0, 1.0)], [(0, 1.0)]], 4.5, [4.0, 4.0]),
        # A chain: the middle link limits two, the others what they leave.
        ([9.0, 4.0, 9.0], [[(0, 1.0)], [(0, 1.0), (1, 1.0)], [(1, 1.0), (2, 1.0)], [(2, 1.0)]],
         1e9, [7.0, 2.0, 2.0, 7.0]),
        # Who is on no link goes at its cap.
        ([8.0], [[], [(0, 1.0)]], 9.0, [9.0, 8.0]),
    ],
)  # fmt: skip
def test_links_are_shared_fairly_up_to_caps(
    capacities: list[float], flows: list[list[tuple[int, float]]], cap: float, rates: list[float]
) -> None:
    assert shares(capacities, *flows, cap=cap) == pytest.approx(rates)


def test_a_flow_of_more_connections_has_a_larger_share() -> None:
    s = with_phases([8.0], [(0, 1.0)], [(0, 1.0)])
    s.load[1].conns = 3.0
    s.flow[1].phase = s.member[1] = 1
    assert filling.fair_rates_of(s, 2) == 1
    assert s.rate[:2].tolist() == pytest.approx([2.0, 6.0])


def test_links_are_counted_anew_each_time() -> None:
    """Rates of one filling leave nothing behind for the next."""
    s = with_phases([8.0, 2.0], [(0, 1.0), (1, 1.0)], [(0, 1.0)])
    s.flow[1].phase = s.member[1] = 1
    for _ in range(2):
        assert filling.fair_rates_of(s, 2) == 1
        assert s.rate[:2].tolist() == pytest.approx([2.0, 6.0])
    s.link[1].capacity = 8.0
    assert filling.fair_rates_of(s, 2) == 1
    assert s.rate[:2].tolist() == pytest.approx([4.0, 4.0])
