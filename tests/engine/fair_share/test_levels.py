"""Levels of links and the flows on them, one step at a time."""

from __future__ import annotations

import numpy as np
import pytest

from commsim.engine.fair_share import AT_CAP, Sharers
from commsim.engine.fair_share.levels import INF, KEPT, WAITING, level_of, settle, unsettle


@pytest.mark.parametrize(
    ("grants", "weights", "at_least", "level"),
    [
        ([INF, INF], [1, 1], 0.0, 6.0),
        ([INF, INF], [1, 3], 0.0, 3.0),
        ([INF, INF], [1, 1], 7.0, 7.0),  # not below what has been reached
        ([2.0, INF], [1, 1], 0.0, 10.0),
        ([2.0, INF], [3, 1], 0.0, 6.0),
        ([2.0, INF], [3, 2], 0.0, 3.0),
        ([6.0, INF], [1, 1], 0.0, 6.0),
        ([1.0, 5.0, INF], [1, 1, 1], 0.0, 6.0),  # 4, then 5.5, then what both leave
        ([2.0, 3.0], [1, 1], 0.0, INF),  # never full
        ([6.0, 6.0], [1, 1], 0.0, 6.0),  # just full
        ([6.0, 6.0], [1, 1], 6.0, INF),
        ([9.0, 9.0], [1, 1], 0.0, 6.0),  # more than they can have here
        ([2.0, 9.0], [1, 1], 2.0, INF),
        ([2.0, 9.0, INF], [1, 2, 1], 2.0, 10 / 3),
        ([], [], 0.0, INF),
    ],
)  # fmt: skip
def test_the_level_at_which_a_link_of_twelve_is_full(
    grants: list[float], weights: list[float], at_least: float, level: float
) -> None:
    """The places of the link are the second and those after it."""
    count = len(grants)
    flow, weight = [0, *range(count, 0, -1), 0], [99.0, *map(float, weights), 99.0]
    grant = [1.0, *reversed(grants)]
    found = level_of(12.0, (1, 1 + count), flow, weight, grant, at_least)
    assert found == pytest.approx(level, rel=1e-15)


def on_links(*routes: list[int], links: int = 3) -> Sharers:
    """Flows of so many connections as their number on links of 12."""
    shared = Sharers(np.full(links, 12.0))
    for at, route in enumerate(routes):
        assert shared.add(route, [at + 1.0] * len(route), INF) == at
    return shared


def users(shared: Sharers, link: int) -> list[tuple[int, float]]:
    """Return the flows of a link in their order, with their connections."""
    s = shared.columns
    places = range(s.start[link], s.start[link] + s.users[link])
    return [(s.flow[at], s.weight[at]) for at in places]


def test_flows_come_behind_those_before_and_others_move_up() -> None:
    shared = on_links([0, 2], [0], [2, 1], [0], [0], [0])
    assert users(shared, 0) == [(0, 1.0), (1, 2.0), (3, 4.0), (4, 5.0), (5, 6.0)]
    assert (users(shared, 1), users(shared, 2)) == ([(2, 3.0)], [(0, 1.0), (2, 3.0)])
    shared.remove(1)
    assert users(shared, 0) == [(0, 1.0), (3, 4.0), (4, 5.0), (5, 6.0)]
    shared.remove(5)
    assert users(shared, 0) == [(0, 1.0), (3, 4.0), (4, 5.0)]
    assert shared.add([1, 2], [7.0, 8.0], INF) == 5  # the number that became free last
    shared.remove(0)
    assert (users(shared, 0), users(shared, 1)) == ([(3, 4.0), (4, 5.0)], [(2, 3.0), (5, 7.0)])
    assert users(shared, 2) == [(2, 3.0), (5, 8.0)]


def test_only_links_and_flows_that_changed_are_shared_again() -> None:
    """Links of 12: on 0 there are 1 + 2 connections, on 1 there are 2 + 3, the last is on 2."""
    shared = on_links([0], [0, 1], [1], [2])
    found, shares = shared.share_again()
    assert dict(zip(found.tolist(), shares.tolist(), strict=True)) == pytest.approx(
        {0: 7.2, 1: 2.4, 2: 2.4, 3: 3.0}
    )
    assert [shared.limit_of(flow) for flow in range(4)] == [0, 1, 1, 2]
    assert list(shared.columns.holds) == [1, 2, 1]
    assert [len(one) for one in shared.share_again()] == [0, 0]
    shared.set_capacity(1, 30.0)  # 4 for each connection of link 0 then, and the rest for flow 2
    found, shares = shared.share_again()
    assert dict(zip(found.tolist(), shares.tolist(), strict=True)) == pytest.approx(
        {0: 4.0, 1: 4.0, 2: 22 / 3}
    )
    assert list(shared.columns.holds) == [2, 1, 1]
    assert set(shared.columns.key) == {INF}
    assert not any(shared.columns.asked)


def test_a_cap_holds_a_flow_back_below_its_links() -> None:
    shared = Sharers(np.full(2, 12.0))
    capped, other = shared.add([0, 1], [1.0, 1.0], 2.0), shared.add([0], [2.0], INF)
    alone = shared.add([], [], 3.0)
    found, shares = shared.share_again()
    assert dict(zip(found.tolist(), shares.tolist(), strict=True)) == {
        capped: 2.0, other: 5.0, alone: 3.0,
    }  # fmt: skip
    assert [shared.limit_of(at) for at in (capped, other, alone)] == [AT_CAP, 0, AT_CAP]
    assert list(shared.columns.holds) == [1, 0]
    shared.remove(capped)
    assert shared.share_again()[1].tolist() == [6.0]
    shared.remove(other)
    assert list(shared.columns.holds) == [0, 0]


def test_without_links_flows_have_their_caps() -> None:
    shared = Sharers(np.zeros(0))
    for cap in (3.0, 2.0):
        shared.add([], [], cap)
    found, shares = shared.share_again()
    assert (found.tolist(), shares.tolist()) == ([0, 1], [3.0, 2.0])
    assert [shared.limit_of(flow) for flow in (0, 1)] == [AT_CAP, AT_CAP]


def test_a_share_that_changes_lets_others_of_its_links_wait_and_one_that_does_not_none() -> None:
    """Flow 1 is held back by link 0 and flow 2 by link 1, over which flow 1 goes too."""
    for share, waits in ((4.0 * (1 + 1e-13), False), (4.5, True)):
        shared = on_links([0], [0, 1], [1], links=2)
        shared.set_capacity(1, 30.0)
        shared.share_again()
        s, touched = shared.columns, list[int]()
        settle(s, 1, share, 0, touched)
        assert touched == ([1, 2] if waits else [1])
        assert s.share[1] == (share if waits else 4.0)
        assert list(s.holds) == [1, 0 if waits else 1]
        assert s.state[2] == (WAITING if waits else KEPT)
        unsettle(s, 0, touched)  # of those that link 0 holds back flow 0 alone has not been seen
        assert (s.state[0], s.grant[0], s.holds[0]) == (WAITING, INF, 0)
