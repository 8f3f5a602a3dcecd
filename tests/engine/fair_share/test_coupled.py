"""Flows that no link limits alone: levels by hand, and what a solution has to hold up to."""

from __future__ import annotations

import numpy as np
import pytest

from commsim.engine.fair_share import coupled
from commsim.engine.fair_share.coupled import coupled_rates

INF = float("inf")
Stuck = coupled._StuckFlows


def crossed(
    *, caps: tuple[float, float] = (INF, INF), rooms: tuple[float, float] = (1.0, 1.0)
) -> coupled._StuckFlows:
    """Two flows over two links, each with two bytes on one and one byte on the other."""
    return Stuck(
        np.array([0, 2, 4]), np.array([0, 1, 0, 1]), np.array([2.0, 1.0, 1.0, 2.0]), np.ones(4),
        np.array(caps), np.array(rooms), np.array([0, 1]),
    )  # fmt: skip


def one_link(*loads: float, conns: tuple[float, ...] | None = None) -> coupled._StuckFlows:
    """Flows of those bytes on a link; 0: a flow on another link alone."""
    links = [0 if load else 1 for load in loads]
    count = len(loads)
    return Stuck(
        np.arange(count + 1), np.array(links), np.array([load or 1.0 for load in loads]),
        np.array(conns or (1.0,) * count), np.full(count, INF), np.array([1.0, 9.0]),
        np.arange(count),
    )  # fmt: skip


def test_only_flows_without_a_rate_are_solved_on_the_links_that_they_use() -> None:
    """Flow 1 has its rate; the links of the others are 2 and 5, of which 5 has nothing left."""
    made = Stuck(
        np.array([0, 2, 3, 4]), np.array([2, 5, 3, 5]), np.array([4.0, 2.0, 7.0, 5.0]),
        np.array([2.0, 1.0, 7.0, 3.0]), np.array([8.0, 9.0, 10.0]),
        np.array([1.0, 1.0, 6.0, 1.0, 1.0, -1e-20]), np.array([0, 2]),
    )  # fmt: skip
    assert made.cap.tolist() == [8.0, 10.0]
    assert made.room.tolist() == [6.0, 0.0]
    assert made.load.tolist() == [[4.0, 2.0], [0.0, 5.0]]
    assert made.conns.tolist() == [[2.0, 1.0], [0.0, 3.0]]
    assert made.gain.tolist() == [[0.5, 0.5], [INF, 0.6]]


def test_rates_are_given_in_place_to_those_that_have_none() -> None:
    rate = np.array([np.nan, 7.0, np.nan])
    coupled_rates(
        np.array([0, 2, 2, 4]), np.array([0, 1, 0, 1]), np.array([2.0, 1.0, 1.0, 2.0]),
        np.ones(4), np.full(3, INF), np.ones(2), rate,
    )  # fmt: skip
    assert rate == pytest.approx([1 / 3, 7.0, 1 / 3], rel=1e-15)


def test_a_flow_goes_at_the_least_of_its_links_or_at_its_cap() -> None:
    made = crossed(caps=(0.25, 0.2))
    level = np.array([0.5, 0.75])
    assert made._limits(level).tolist() == [[0.25, 0.75], [0.5, 0.375]]
    assert made._limiter(level).tolist() == [-1, -1]  # its link lets the first have just its cap
    assert crossed()._limiter(level).tolist() == [0, 1]
    assert crossed(caps=(0.26, 0.375))._limiter(level).tolist() == [0, -1]
    apart = one_link(1.0, 0.0)
    assert apart._limits(np.array([0.5, INF])).tolist() == [[0.5, INF], [INF, INF]]


@pytest.mark.parametrize(
    ("loads", "conns", "others", "level"),
    [
        ((1, 1), (1, 1), (INF, INF), 0.5),
        ((1, 1), (3, 1), (INF, INF), 0.25),
        ((1, 1), (1, 1), (0.5, 0.5), INF),  # they just fit
        ((1, 1), (1, 1), (0.5, 0.6), 0.5),
        ((1, 1), (1, 1), (0.1, INF), 0.9),
        ((2, 1), (1, 1), (0.1, INF), 0.8),
        ((1, 1, 1), (1, 1, 1), (0.1, 0.4, INF), 0.5),  # 1/3 and 0.45 free one more flow each
        ((1, 1, 1), (1, 2, 1), (0.1, INF, INF), 0.3),
        ((1, 0), (1, 1), (0.4, INF), INF),  # the other is on another link
        ((1, 0, 1), (1, 1, 1), (0.4, INF, INF), 0.6),
    ],
)  # fmt: skip
def test_the_level_at_which_a_link_is_full(
    loads: tuple[float, ...], conns: tuple[float, ...], others: tuple[float, ...], level: float
) -> None:
    made = one_link(*loads, conns=conns)
    assert made._fill_link(0, np.array(others)) == pytest.approx(level, rel=1e-15)


def test_a_sweep_fills_one_link_after_the_other() -> None:
    """At levels of 1/2 the second flow leaves 3/4 of the first link, and the first then 5/8."""
    level = np.array([0.5, 0.5])
    assert crossed()._sweep(level, 1.0) == pytest.approx(1 / 3, rel=1e-15)  # from 1/2 to 3/4
    assert level == pytest.approx([0.75, 0.625], rel=1e-15)


def test_a_damped_sweep_goes_a_part_of_the_way() -> None:
    """The root of 3/2 from a half, which leaves the second link 1 - 0.5 * level."""
    level = np.array([0.5, 0.5])
    first = 0.5 * 1.5**0.5
    second = 0.5 * ((1 - first / 2) / 0.5) ** 0.5
    assert crossed()._sweep(level, 0.5) == pytest.approx(1 - 0.5 / first, rel=1e-14)
    assert level == pytest.approx([first, second], rel=1e-14)


@pytest.mark.parametrize(("before", "after"), [(0.5, INF), (INF, 0.25), (0.0, 0.25)])
def test_a_link_that_begins_or_ends_to_limit_is_a_whole_change(before: float, after: float) -> None:
    """One flow of four bytes on a link of 1, with a cap that the link holds or does not."""
    made = one_link(4.0)
    made.cap = np.array([0.2 if after == INF else INF])
    made.room = np.array([1.0])
    made.conns[:], made.load[:], made.gain[:] = 1.0, 4.0, 0.25
    level = np.array([before])
    expected = 1.0 if after == 0.25 else after
    assert made._sweep(level, 0.5) == 1.0
    assert level.tolist() == [expected]
    assert made._sweep(level, 0.5) == 0.0  # it stays


def test_levels_of_the_links_that_limit_are_solved_for() -> None:
    assert crossed()._eliminate(np.array([0, 1])) == pytest.approx([1 / 3, 1 / 3], rel=1e-15)
    # The first at its cap of 1/4 leaves 3/4 of the second link for two bytes of the second.
    found = crossed(caps=(0.25, INF))._eliminate(np.array([-1, 1]))
    assert found == pytest.approx([0.25, 0.375], rel=1e-15)
    # On the second link alone, 1/2 each per byte: the first link would have to carry 1 + 1/4.
    room = crossed(rooms=(1.25, 1.0))._eliminate(np.array([1, 1]))
    assert room == pytest.approx([0.5, 0.25], rel=1e-15)


@pytest.mark.parametrize(
    ("caps", "rooms", "limiter"),
    [
        ((0.1, 0.1), (1.0, 1.0), [-1, -1]),  # no link limits any
        ((INF, INF), (1.2, 1.0), [1, 1]),  # the first link is over
        ((0.3, INF), (1.0, 1.0), [0, 1]),  # the first flow would be over its cap
        ((0.6, INF), (1.0, 1.0), [-1, 0]),  # nothing is left for the second flow, and less
        ((0.5, INF), (1.0, 1.0), [-1, 0]),
        ((0.2, INF), (1.0, 1.0), [-1, 0]),  # the second link is over by its two bytes
    ],
)  # fmt: skip
def test_a_solution_that_does_not_hold_up_is_none(
    caps: tuple[float, float], rooms: tuple[float, float], limiter: list[int]
) -> None:
    assert crossed(caps=caps, rooms=rooms)._eliminate(np.array(limiter)) is None


def test_what_has_no_single_solution_or_is_too_large_is_left_to_sweeps(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    equal = Stuck(
        np.array([0, 2, 4]), np.array([0, 1, 0, 1]), np.ones(4), np.ones(4), np.full(2, INF),
        np.ones(2), np.arange(2),
    )  # fmt: skip
    assert equal._eliminate(np.array([0, 1])) is None
    for most, found in ((2, True), (1, False)):
        monkeypatch.setattr(coupled, "_LARGEST_SYSTEM", most)
        assert (crossed()._eliminate(np.array([0, 1])) is not None) is found
    assert crossed().solve() == pytest.approx([1 / 3, 1 / 3], rel=1e-13)  # by sweeping alone


def test_links_that_limit_nobody_do_not_matter() -> None:
    """The first flow is on a third link too, which has enough for it."""
    made = Stuck(
        np.array([0, 3, 5]), np.array([0, 1, 2, 0, 1]), np.array([2.0, 1.0, 4.0, 1.0, 2.0]),
        np.ones(5), np.full(2, INF), np.array([1.0, 1.0, 9.0]), np.arange(2),
    )  # fmt: skip
    assert made.solve() == pytest.approx([1 / 3, 1 / 3], rel=1e-15)


def test_rates_of_levels_that_have_not_settled_are_scaled_to_the_links(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """After one sweep: 3/8 and 5/16, of which the first link carries 17/16."""
    monkeypatch.setattr(coupled, "_SWEEPS", 1)
    assert crossed().solve() == pytest.approx([6 / 17, 5 / 17], rel=1e-15)


@pytest.mark.parametrize(
    ("rates", "scaled"),
    [
        ([0.5, 0.5], [1 / 3, 1 / 3]),
        ([0.25, 0.5], [0.2, 0.4]),  # the first link is full, the second carries 1.25
        ([0.25, 0.25], [0.25, 0.25]),
    ],
)
def test_no_link_is_left_over_its_capacity(rates: list[float], scaled: list[float]) -> None:
    assert crossed()._within_capacity(np.array(rates)) == pytest.approx(scaled, rel=1e-15)


def test_flows_on_other_links_are_not_scaled() -> None:
    assert one_link(4.0, 0.0)._within_capacity(np.array([0.5, 7.0])).tolist() == [0.25, 7.0]


def test_solutions_are_tried_more_and_more_rarely_and_swings_are_held_back_more_and_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each link goes on to limit its flow, but no solution holds and no sweep settles."""
    damping: list[float] = []
    tries: list[int] = []

    def sweep(_: object, __: object, damped: float) -> float:
        damping.append(damped)
        return 1.0

    def eliminate(_: object, __: object) -> None:
        tries.append(len(damping) - 1)

    monkeypatch.setattr(Stuck, "_sweep", sweep)
    monkeypatch.setattr(Stuck, "_eliminate", eliminate)
    crossed().solve()
    assert tries[:9] == [1, 3, 7, 15, 31, 63, 127, 191, 255]
    assert [damping.count(one) for one in (1.0, 0.5, 0.2, 0.05)] == [40, 80, 280, 1600]


def test_sweeps_end_when_levels_have_settled(monkeypatch: pytest.MonkeyPatch) -> None:
    changes = iter((0.5, 1e-14, 0.0))
    monkeypatch.setattr(Stuck, "_sweep", lambda *_: next(changes))
    monkeypatch.setattr(Stuck, "_eliminate", lambda *_: None)
    crossed().solve()
    assert list(changes) == []
