"""The fairness rule, by its definition, on random flows; and cases with known answers."""

from __future__ import annotations

import numpy as np
import pytest
from helpers.share import examples
from hypothesis import given
from hypothesis import strategies as st

from commsim.engine.fair_share.progressive import Flows, fair_rates, fill, unfairness


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
