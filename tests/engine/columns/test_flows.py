"""Flows over tables, one function at a time: their places, rates alone, records, and who meets."""

from __future__ import annotations

import pytest
from helpers.run_tables import run_tables, with_phases

from commsim.engine.columns import flows
from commsim.engine.columns.events import FULL_TABLE, LATE, SOLVE
from commsim.engine.columns.state import NEVER, State


@pytest.mark.parametrize(
    ("share", "rate", "time"),
    [
        (1.0, 0.001, 1000), (0.5, 0.001, 500), (0.0, 0.001, 0), (1.0, 1 / 10.002, 11),
        (1.0, 1 / 10.0005, 10), (1.0, 0.0, NEVER), (1.0, 1 / NEVER, NEVER),
        (1.0, 1 / (NEVER - 1024), NEVER - 1024),
    ],
)  # fmt: skip
def test_a_share_takes_whole_picoseconds_rounded_up_but_for_noise(
    share: float, rate: float, time: int
) -> None:
    assert flows.duration_of(share, rate) == time


def test_what_would_end_after_all_time_ends_never() -> None:
    assert (flows.wake_at(5, 10), flows.wake_at(0, NEVER)) == (15, NEVER)
    assert flows.wake_at(5, NEVER) == flows.wake_at(NEVER, NEVER) == NEVER


def test_flows_take_places_of_the_table_and_those_that_were_freed_first() -> None:
    s = with_phases([1.0], [(0, 1.0)], flow=2)
    s.flow.place[:] = 7
    s.run[0].now = 30
    assert flows.start_flow(s, 0, 5, flows.THEN_PART, 6) == 0
    flow = s.flow[0]
    assert (flow.phase, flow.op, flow.then, flow.what, flow.place) == (0, 5, 2, 6, -1)
    assert (flow.left, flow.rate, flow.settled, flow.wake) == (1.0, 0.0, 30, NEVER)
    assert (flow.active, flow.fixed) == (0, 0)
    assert flows.start_flow(s, 0, 5, 0, 0) == 1
    flow.place = 4
    flows.free_flow(s, 0)
    flows.free_flow(s, 1)
    assert [flows.start_flow(s, 0, 5, 0, 0) for _ in range(2)] == [1, 0]
    assert (s.flow[0].place, s.run[0].flow_count, s.run[0].full) == (4, 2, 0)
    assert flows.start_flow(s, 0, 5, 0, 0) == 0
    assert (s.run[0].flow_count, s.run[0].full) == (2, FULL_TABLE)


def test_alone_a_phase_goes_as_its_slowest_link_lets_it_up_to_its_cap() -> None:
    """Links of 8 and 6 bytes per ps, 4 and 2 bytes on them: a half, as 8 / 4 = 2, 6 / 2 = 3."""
    s = with_phases([8.0, 6.0], [(0, 4.0), (1, 2.0)], [(1, 0.0)], cap=2.5)
    flows.know_alone(s, 0)
    assert (s.phase[0].alone, s.phase[0].time, s.phase[0].epoch) == (2.0, 1, 0)
    s.phase[0].cap = 0.25
    flows.know_alone(s, 0)  # nothing has changed since
    assert s.phase[0].alone == 2.0
    s.run[0].epoch = 1
    flows.know_alone(s, 0)
    assert (s.phase[0].alone, s.phase[0].time) == (0.25, 4)
    flows.know_alone(s, 1)  # a link that carries no bytes of it does not limit it
    assert s.phase[1].alone == 2.5


def moving(s: State, at: int, phase: int, number: int = 0) -> None:
    """Let a flow be under way since 10 ps, at a rate of a half."""
    s.flow[at].phase, s.flow[at].rate, s.flow[at].settled = phase, 0.5, 10
    s.flow[at].active, s.flow[at].number, s.flow[at].op = 1, number, 40 + at


def test_a_rate_that_was_kept_for_a_time_is_recorded() -> None:
    s = with_phases([1.0], [(0, 1.0)], [(0, 1.0)], [], segment=2)
    for at, phase in enumerate((0, 1, 0, 2)):
        moving(s, at, phase)
    s.run[0].now = 10
    flows.record(s, 0)  # no time has passed
    s.run[0].now = 15
    flows.record(s, 3)  # on no link
    s.flow[2].rate = 0.0
    flows.record(s, 2)  # it stood still
    assert (s.run[0].segments, s.run[0].templates) == (0, 0)
    flows.record(s, 1)
    flows.record(s, 0)
    assert [(int(r.template), r.start, r.end, r.op, r.rate) for r in s.segment] == [
        (0, 10, 15, 41, 0.5), (1, 10, 15, 40, 0.5),
    ]  # fmt: skip
    assert (s.phase[1].template, s.phase[0].template, s.run[0].templates) == (0, 1, 2)
    assert s.run[0].full == 0
    flows.record(s, 0)
    assert (s.run[0].segments, s.run[0].full) == (2, FULL_TABLE)


def test_a_flow_is_touched_once_and_with_those_on_its_links() -> None:
    """Flows 0 and 1 share link 0; flow 2 is alone on link 1."""
    s = with_phases([1.0, 1.0], [(0, 1.0)], [(0, 1.0)], [(1, 1.0)], member=2)
    for at in range(3):
        moving(s, at, at)
        flows.put_on_links(s, at)
    flows.touch(s, 0)
    assert s.member[:2].tolist() == [0, 1]
    assert (s.run[0].touched_count, s.run[0].full) == (2, 0)
    flows.touch(s, 1)
    assert (s.run[0].touched_count, s.run[0].full) == (2, 0)
    flows.touch(s, 2)
    assert (s.run[0].touched_count, s.run[0].full) == (2, FULL_TABLE)
    s = with_phases([1.0], [(0, 1.0)], [(0, 1.0)])
    moving(s, 1, 1)
    flows.put_on_links(s, 1)
    flows.touch(s, 0)  # it has ended: only who is still on its link
    assert s.member[: s.run[0].touched_count].tolist() == [1]


def users(s: State, link: int) -> list[int]:
    """Return the flows on a link from its head on, and check the way back."""
    found, place, before = [], int(s.link[link].head), -1
    while place >= 0:
        assert s.place[place].before == before
        assert s.place[place].link == link
        found.append(int(s.place[place].flow))
        before, place = place, int(s.place[place].next)
    assert len(found) == s.link[link].users
    return found


def test_flows_stand_on_their_links_until_they_leave() -> None:
    """Flows 0 and 2 are of one phase, over links 0 and 1; flow 1 is on link 1, flow 3 on none."""
    s = with_phases([1.0, 1.0], [(0, 1.0), (1, 1.0)], [(1, 1.0)], [], place=5)
    for at, phase in enumerate((0, 1, 0, 2)):
        s.flow[at].phase = phase
    assert [flows.put_on_links(s, at) for at in range(4)] == [True, False, False, True]
    assert (users(s, 0), users(s, 1)) == ([2, 0], [2, 1, 0])
    assert (s.run[0].place_count, s.run[0].full) == (5, 0)
    assert not flows.take_off_links(s, 1)
    assert (users(s, 0), users(s, 1)) == ([2, 0], [2, 0])
    assert not flows.take_off_links(s, 2)
    assert (users(s, 0), users(s, 1)) == ([0], [0])
    assert flows.take_off_links(s, 3)
    s.flow[4].phase = 0  # it takes the places that flow 2 had
    assert not flows.put_on_links(s, 4)
    assert (users(s, 1), s.flow[4].place, s.run[0].place_count) == ([4, 0], s.flow[2].place, 5)
    assert not flows.take_off_links(s, 0)
    assert flows.take_off_links(s, 4)
    assert (users(s, 0), users(s, 1)) == ([], [])
    for at in (0, 4):
        flows.put_on_links(s, at)
    s.flow[5].phase = 1
    flows.put_on_links(s, 5)
    assert s.run[0].full == 0
    s.flow[6].phase = 1
    flows.put_on_links(s, 6)
    assert (s.run[0].full, s.run[0].place_count) == (FULL_TABLE, 5)


def chain(member: int = 8) -> State:
    """Flows 0 to 3 in a chain over links 0 to 4, flow 4 alone on link 5; later ones begin first."""
    phases = [[(at, 1.0), (at + 1, 1.0)] for at in range(4)]
    s = with_phases([1.0] * 6, *phases, [(5, 1.0)], member=member, place=16)
    for at in range(5):
        moving(s, at, at, number=9 - at)
        flows.put_on_links(s, at)
    return s


@pytest.mark.parametrize(
    ("touched", "found"),
    [((0,), [3, 2, 1, 0]), ((2,), [3, 2, 1, 0]), ((4,), [4]), ((4, 1), [4, 3, 2, 1, 0]), ((), [])],
)
def test_all_that_links_join_is_shared_in_the_order_in_which_it_began(
    touched: tuple[int, ...], found: list[int]
) -> None:
    s = chain()
    for at in touched:
        flows.touch_one(s, at)
    count = flows.find_component(s)
    assert s.member[:count].tolist() == found
    assert (s.run[0].touched_count, s.flow.touched.any(), s.run[0].full) == (0, False, 0)


def test_a_flow_that_has_ended_joins_nothing() -> None:
    s = chain()
    for at in (1, 4):
        flows.touch_one(s, at)
    s.flow[1].active = 0
    assert flows.find_component(s) == 1
    assert (s.member[0], s.flow[1].touched) == (4, 0)


@pytest.mark.parametrize(("room", "full"), [(4, 0), (3, FULL_TABLE)])
def test_a_component_that_the_table_does_not_hold_asks_for_more(room: int, full: int) -> None:
    s = chain(room)
    flows.touch_one(s, 0)
    assert flows.find_component(s) == (0 if full else 4)
    assert s.run[0].full == full


def test_whether_flows_share_a_link() -> None:
    s = chain()
    s.member[:2] = (4, 0)
    assert flows.share_no_link(s, 1)
    assert not flows.share_no_link(s, 2)
    assert flows.share_no_link(s, 0)


def test_a_flow_alone_goes_at_once_and_others_are_shared_at_the_end_of_the_instant() -> None:
    """A link of 1 byte per ps: phase 0 puts 4 bytes on it, and takes 4 ps."""
    s = with_phases([1.0, 1.0], [(0, 4.0)], [(0, 4.0)], [(1, 2.0)])
    s.run[0].now = 100
    for at in range(3):
        flows.start_flow(s, at, 0, 0, 0)
    flows.go(s, 0, 1.0)
    one = s.flow[0]
    assert (one.goal, one.rate, one.wake, one.active, one.number) == (0.0, 0.25, 104, 1, 1)
    assert (s.run[0].alarm_at, s.run[0].wake_count, s.run[0].active) == (104, 1, 1)
    flows.go(s, 2, 0.5)  # half of the 2 ps that it takes
    assert (s.flow[2].rate, s.flow[2].wake, s.run[0].alarm_at) == (0.5, 101, 101)
    assert s.run[0].solving == 0
    events = s.run[0].event_count
    flows.go(s, 1, 1.0)
    assert (s.run[0].solving, s.flow[1].rate) == (1, 0.0)
    assert sorted(s.member[: s.run[0].touched_count].tolist()) == [0, 1]
    flows.solve_soon(s)  # it is asked for once
    assert s.run[0].event_count == events + 1
    assert max(s.event.turn[: s.run[0].event_count]) >= LATE
    assert SOLVE in s.event.kind[: s.run[0].event_count]
    s.run[0].now = 102
    assert flows.solve(s) == 0  # 0 has moved a half, and has half the link from here on
    assert (one.left, one.settled, one.rate) == (0.5, 102, 0.125)
    assert (one.wake, s.flow[1].wake) == (106, 110)
    assert (s.run[0].segments, s.segment[0].start, s.segment[0].end) == (1, 100, 102)


def test_flows_end_one_after_another_and_are_off_their_links() -> None:
    s = with_phases([1.0, 1.0], [(0, 4.0)], [(1, 4.0)])
    for at in range(2):
        flows.start_flow(s, at, 0, 0, 0)
        flows.go(s, at, 1.0)
    s.run[0].now = 3
    assert flows.next_due(s) == -1
    s.run[0].now = 4
    assert [flows.next_due(s) for _ in range(3)] == [0, 1, -1]
    assert (s.run[0].active, s.run[0].wake_count, s.run[0].touched_count) == (0, 0, 0)
    assert (users(s, 0), users(s, 1)) == ([], [])
    assert [(flow.left, flow.rate, flow.settled, flow.wake) for flow in s.flow[:2]] == [
        (0.0, 0.0, 4, NEVER)
    ] * 2
    assert s.run[0].segments == 2


def test_a_link_that_carries_less_touches_its_flows() -> None:
    s = chain()
    flows.set_link(s, 1, 0.25)
    assert (s.link[1].capacity, s.link[1].whole, s.run[0].epoch) == (0.25, 1.0, 1)
    assert sorted(s.member[: s.run[0].touched_count].tolist()) == [0, 1]
    assert s.run[0].solving == 1


def test_nothing_is_free_in_new_tables() -> None:
    assert flows.next_due(run_tables()) == -1
