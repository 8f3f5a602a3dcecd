"""The fairness rule, by its definition, on random flows; and cases with known answers."""

from __future__ import annotations

import numpy as np
import pytest
from helpers.fairness import unfairness
from helpers.share import examples
from hypothesis import given
from hypothesis import strategies as st

from commsim.engine.fair_share.progressive import (
    AT_CAP,
    UNKNOWN,
    Flows,
    fair_rates,
    fill,
    limits_of,
)


def random_flows(seed: int, flows: int, links: int, conns: int, coupled: bool) -> Flows:
    rng = np.random.default_rng(seed)
    chosen = [
        np.sort(rng.choice(links, size=int(rng.integers(1, min(links, 5) + 1)), replace=False))
        for _ in range(flows)
    ]
    count = sum(len(c) for c in chosen)
    load = np.exp(rng.normal(0, 1, count)) if coupled else np.ones(count)
    weights = rng.integers(1, conns + 1, count).astype(float) if coupled else np.ones(count)
    cap = np.where(rng.random(flows) < 0.3, np.exp(rng.normal(-1, 1, flows)), np.inf)
    ptr = np.concatenate(([0], np.cumsum([len(c) for c in chosen])))
    return Flows(ptr, np.concatenate(chosen), load, weights, cap)


@examples(200)
@given(
    seed=st.integers(0, 2**32), flows=st.integers(1, 40), links=st.integers(1, 12),
    conns=st.sampled_from([1, 3]), coupled=st.booleans(),
)  # fmt: skip
def test_no_link_is_over_and_every_flow_has_its_due(
    seed: int, flows: int, links: int, conns: int, coupled: bool
) -> None:
    case = random_flows(seed, flows, links, conns, coupled)
    capacity = np.exp(np.random.default_rng(seed + 1).normal(0, 0.5, links))
    assert unfairness(case, capacity, fair_rates(case, capacity).rate) < 1e-9


@examples(100)
@given(seed=st.integers(0, 2**32), flows=st.integers(1, 60), links=st.integers(1, 12))
def test_plain_flows_get_what_textbook_filling_gives(seed: int, flows: int, links: int) -> None:
    case = random_flows(seed, flows, links, 1, coupled=False)
    capacity = np.exp(np.random.default_rng(seed + 1).normal(0, 0.5, links))
    rates = fair_rates(case, capacity)
    assert rates.unfixed == 0
    assert rates.rate == pytest.approx(textbook(case, capacity), rel=1e-12)


def textbook(case: Flows, capacity: np.ndarray) -> np.ndarray:
    """Progressive filling: raise all rates together, freeze who hits a cap or a full link."""
    rate = np.zeros(len(case))
    links = [case.link[case.ptr[f] : case.ptr[f + 1]] for f in range(len(case))]
    live = set(range(len(case)))
    left = capacity.copy()
    while live:
        users = np.zeros(len(capacity))
        for f in live:
            users[links[f]] += 1
        with np.errstate(divide="ignore", invalid="ignore"):
            room = np.where(users > 0, left / users, np.inf)
        by_cap = min(live, key=lambda f: case.cap[f] - rate[f])
        step = max(min(float(room.min()), case.cap[by_cap] - rate[by_cap]), 0.0)
        for f in live:
            rate[f] += step
        left = left - users * step
        if step < room.min():
            live = live - {by_cap}
        else:
            full = room <= room.min() * (1 + 1e-12)
            live = {f for f in live if not full[links[f]].any()}
    return rate


def test_a_wrong_allocation_is_seen() -> None:
    case = Flows(np.array([0, 1, 2]), np.array([0, 0]), np.ones(2), np.ones(2), np.full(2, np.inf))
    assert unfairness(case, np.array([2.0]), np.array([1.0, 1.0])) == 0
    assert unfairness(case, np.array([2.0]), np.array([0.9, 1.1])) > 0.1  # one has too much
    assert unfairness(case, np.array([2.0]), np.array([0.9, 0.9])) > 0.05  # some is left
    assert unfairness(case, np.array([2.0]), np.array([1.1, 1.1])) > 0.05  # over capacity


def test_two_flows_that_load_another_link_harder() -> None:
    """Neither link limits both flows, so filling gets stuck; the answer is 1/3 each."""
    load = np.array([2.0, 1.0, 1.0, 2.0])
    case = Flows(np.array([0, 2, 4]), np.array([0, 1, 0, 1]), load, np.ones(4), np.full(2, np.inf))
    owner = np.array([0, 0, 1, 1])
    assert np.isnan(fill(case, owner, np.ones(2))[0]).all()
    rates = fair_rates(case, np.ones(2))
    assert rates.unfixed == 2
    assert rates.rate == pytest.approx([1 / 3, 1 / 3], rel=1e-12)


def test_three_connections_get_three_shares() -> None:
    case = Flows(
        np.array([0, 1, 2]), np.array([0, 0]), np.array([3.0, 1.0]), np.array([3.0, 1.0]),
        np.full(2, np.inf),
    )  # fmt: skip
    assert fair_rates(case, np.array([1.0])).rate == pytest.approx([0.25, 0.25], rel=1e-15)


@examples(60)
@given(seed=st.integers(0, 2**32))
def test_flow_order_does_not_matter_for_plain_flows(seed: int) -> None:
    case = random_flows(seed, 12, 6, 1, coupled=False)
    capacity = np.exp(np.random.default_rng(seed).normal(0, 0.5, 6))
    back = list(range(len(case)))[::-1]
    links = [case.link[case.ptr[f] : case.ptr[f + 1]] for f in back]
    turned = Flows(
        np.concatenate(([0], np.cumsum([len(part) for part in links]))),
        np.concatenate(links), case.load, case.conns, case.cap[back],
    )  # fmt: skip
    forward, backward = fair_rates(case, capacity), fair_rates(turned, capacity)
    assert backward.rate[::-1] == pytest.approx(forward.rate, rel=1e-12)


def test_flows_that_want_a_little_too_much_are_held_back() -> None:
    case = Flows(np.array([0, 1, 2]), np.array([0, 0]), np.ones(2), np.ones(2), np.full(2, 0.51))
    assert fair_rates(case, np.array([1.0])).rate == pytest.approx([0.5, 0.5], rel=1e-15)


def flows_on(*links: list[int], conns: list[float] | None = None, caps: list[float]) -> Flows:
    """Flows of a byte on each of their links."""
    ptr = np.concatenate(([0], np.cumsum([len(one) for one in links])))
    count = int(ptr[-1])
    weights = np.ones(count) if conns is None else np.array(conns)
    return Flows(ptr, np.concatenate(links).astype(int), np.ones(count), weights, np.array(caps))


INF = np.inf


def test_what_limits_a_flow_is_a_full_link_of_which_none_has_more() -> None:
    """Link 0 carries 1 and is full, link 1 carries 2 and is full, link 2 has room."""
    flows = flows_on(
        [0], [0], [0, 2], [1], [0, 1], [1, 2], [2], caps=[INF, INF, 0.1, INF, INF, 1.0, INF]
    )
    rates = np.array([0.35, 0.35, 0.1, 0.8, 0.2, 1.0, 0.5])
    found = limits_of(flows, np.array([1.0, 2.0, 9.0]), rates)
    assert found.tolist() == [0, 0, AT_CAP, UNKNOWN, UNKNOWN, AT_CAP, UNKNOWN]


def test_of_two_full_links_the_first_limits() -> None:
    found = limits_of(flows_on([1, 3], [3], caps=[INF, INF]), np.full(4, 0.5), np.array([0.5, 0.0]))
    assert found.tolist() == [1, UNKNOWN]


@pytest.mark.parametrize(("short", "limit"), [(0.0, 0), (1e-13, 0), (1e-9, UNKNOWN)])
def test_a_link_is_full_and_shares_are_the_same_up_to_float_noise(short: float, limit: int) -> None:
    on_one, capacity = flows_on([0], [0], caps=[INF, INF]), np.array([1.0])
    rates = np.array([0.5, 0.5 * (1 - short)])
    assert limits_of(on_one, capacity, rates).tolist() == [limit, limit]
    even = np.array([0.5 + 0.5 * short, 0.5 * (1 - short)])
    assert limits_of(on_one, capacity, even).tolist() == [0, limit]
    capped = flows_on([0], [0], caps=[INF, 0.5])
    assert limits_of(capped, capacity, even).tolist() == [0, AT_CAP if limit == 0 else UNKNOWN]


@pytest.mark.parametrize(
    ("cap", "rate", "limit"),
    [
        (0.5, 0.5, AT_CAP), (0.5, 0.5 * (1 - 1e-12), AT_CAP), (0.5, 0.5 * (1 - 1e-11), 0),
        (0.6, 0.5, 0), (INF, 0.5, 0), (0.0, 0.0, AT_CAP),
    ],
)  # fmt: skip
def test_a_flow_is_at_its_cap_up_to_float_noise(cap: float, rate: float, limit: int) -> None:
    """Also if its link is full; what may have nothing is at its cap."""
    flows = flows_on([0], caps=[cap])
    assert limits_of(flows, np.array([max(rate, 1e-3)]), np.array([rate])).tolist() == [limit]


def test_shares_are_those_of_connections() -> None:
    """Three connections have 3/4 of the link, one has 1/4: the same share."""
    flows = flows_on([0], [0], conns=[3.0, 1.0], caps=[INF, INF])
    assert limits_of(flows, np.array([1.0]), np.array([0.75, 0.25])).tolist() == [0, 0]


@pytest.mark.parametrize(
    ("links", "caps", "rates"),
    [
        ([[0], [0]], [INF, INF], [4.0, 4.0]),
        ([[0], []], [INF, 3.0], [8.0, 3.0]),  # who is on no link goes at its cap
        ([[], [0], [0]], [3.0, INF, 1.0], [3.0, 7.0, 1.0]),
        ([[0, 1], [0], [1, 2]], [INF, INF, INF], [1.0, 7.0, 1.0]),
        ([[0, 2], [0, 2], [2], [2]], [INF, 1.0, INF, 0.5], [5.25, 1.0, 5.25, 0.5]),
        ([[0, 1], [0, 2]], [2.0, 3.0], [2.0, 3.0]),  # no link limits any, the second is full
    ],
)
def test_links_are_filled_by_hand(
    links: list[list[int]], caps: list[float], rates: list[float]
) -> None:
    """Links of 8, 2 and 12 bytes a second."""
    flows = flows_on(*links, caps=caps)
    capacity = np.array([8.0, 2.0, 12.0])
    found = fair_rates(flows, capacity)
    assert (found.rate.tolist(), found.unfixed) == (rates, 0)
    room = fill(flows, np.repeat(np.arange(len(links)), [len(one) for one in links]), capacity)[1]
    used = [sum(rates[at] for at, one in enumerate(links) if link in one) for link in range(3)]
    assert room.tolist() == (capacity - used).tolist()


def test_offers_that_differ_by_float_noise_are_the_same() -> None:
    """Three flows on 0.3 have 0.09999999999999999 each, and one of them 0.1 of its other link."""
    flows = flows_on([0], [0], [0, 1], caps=[INF] * 3)
    found = fair_rates(flows, np.array([0.3, 0.1]))
    assert found.unfixed == 0
    assert found.rate == pytest.approx([0.1] * 3, rel=1e-15)


@pytest.mark.parametrize(("capacity", "rate"), [(64.0, 4.0), (63.0, 63 / 16), (40.0, 2.5)])
def test_a_link_holds_flows_at_their_caps_if_it_carries_their_bytes(
    capacity: float, rate: float
) -> None:
    """Two flows of 8 bytes at a cap of 4 a second."""
    flows = Flows(np.arange(3), np.zeros(2, np.int64), np.full(2, 8.0), np.ones(2), np.full(2, 4.0))
    assert fair_rates(flows, np.array([capacity])).rate.tolist() == [rate, rate]
