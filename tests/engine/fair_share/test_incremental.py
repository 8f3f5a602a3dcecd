"""Solving again what can have changed finds what solving everything finds."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import pytest
from helpers.counting import python_calls
from helpers.fairness import unfairness
from helpers.share import examples
from hypothesis import given
from hypothesis import strategies as st

from commsim.engine.fair_share import AT_CAP, UNKNOWN, Flows, fair_again, fair_rates, limits_of


@dataclass(eq=False)
class Sharing:
    """A flow with its own loads: (bytes, connections) by link."""

    loads: dict[int, tuple[float, float]]
    cap: float = float("inf")
    rate: float = 0.0
    limit: int = UNKNOWN


@dataclass
class Links:
    """Links and the flows on them, which come and go; rates as they were solved last."""

    capacity: list[float]
    on: list[dict[Sharing, None]] = field(default_factory=list)
    flows: list[Sharing] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.on = [{} for _ in self.capacity]

    def change(
        self, come: list[Sharing], go: list[Sharing], links: list[int], *, most: int = 10**6
    ) -> int:
        """Let flows come and go, solve again, and return how many flows got a new rate."""
        changed = dict.fromkeys(links)
        for link in links:
            for flow in self.on[link]:
                flow.limit = UNKNOWN
        for flow in go:
            self.flows.remove(flow)
            for link in flow.loads:
                del self.on[link][flow]
                changed[link] = None
        for flow in come:
            self.flows.append(flow)
            for link in flow.loads:
                self.on[link][flow] = None
                changed[link] = None
        found = fair_again(come, changed, self.on, self.capacity, most=most)
        if found is None:
            self.solve()
            return len(self.flows)
        for flow, (rate, limit) in found.items():
            flow.rate, flow.limit = rate, limit
        return len(found)

    def table(self) -> Flows:
        entries = [
            (link, *load) for flow in self.flows for link, load in sorted(flow.loads.items())
        ]
        columns = np.array(entries).reshape(-1, 3).T
        ptr = np.concatenate(([0], np.cumsum([len(flow.loads) for flow in self.flows])))
        cap = np.array([flow.cap for flow in self.flows])
        return Flows(ptr, columns[0].astype(np.int64), columns[1], columns[2], cap)

    def solve(self) -> None:
        table, capacity = self.table(), np.array(self.capacity)
        rates = fair_rates(table, capacity).rate
        limits = limits_of(table, capacity, rates)
        for flow, rate, limit in zip(self.flows, rates.tolist(), limits.tolist(), strict=True):
            flow.rate, flow.limit = rate, limit


def random_flow(rng: np.random.Generator, links: int, *, coupled: bool) -> Sharing:
    """Return a flow over a few links; a coupled one has other bytes and connections on each."""
    chosen = rng.choice(links, size=int(rng.integers(1, 6)), replace=False).tolist()
    size, count = float(np.exp(rng.normal(0, 1))), float(rng.integers(1, 4))
    loads = {
        link: (size * float(np.exp(rng.normal(0, 0.5))), count) if coupled else (size, count)
        for link in chosen
    }
    cap = float(np.exp(rng.normal(-2, 1))) if rng.random() < 0.3 else float("inf")
    return Sharing(loads, cap)


@examples(60)
@given(seed=st.integers(0, 2**32), links=st.integers(6, 60), coupled=st.booleans())
def test_rates_are_those_of_a_full_solution(seed: int, links: int, coupled: bool) -> None:
    """Unless flows load links unequally: then there may be several fair allocations."""
    rng = np.random.default_rng(seed)
    net = Links(np.exp(rng.normal(0, 0.5, links)).tolist())
    for _ in range(25):
        come = [random_flow(rng, links, coupled=coupled) for _ in range(int(rng.integers(0, 4)))]
        gone = rng.permutation(len(net.flows))[: int(rng.integers(0, 3))].tolist()
        slower = []
        if rng.random() < 0.2:
            slower = [int(rng.integers(links))]
            net.capacity[slower[0]] *= float(rng.choice([0.5, 2.0]))
        net.change(come, [net.flows[at] for at in gone], slower)
        if not net.flows:
            continue
        rate = np.array([flow.rate for flow in net.flows])
        assert unfairness(net.table(), np.array(net.capacity), rate) < 1e-9
        full = fair_rates(net.table(), np.array(net.capacity))
        if not coupled:
            assert full.unfixed == 0
            assert rate == pytest.approx(full.rate, rel=1e-9)


@pytest.mark.parametrize("seed", range(3))
def test_many_flows_that_begin_together_are_filled_by_arrays(seed: int) -> None:
    rng = np.random.default_rng(seed)
    net = Links(np.exp(rng.normal(0, 0.5, 40)).tolist())
    assert net.change([random_flow(rng, 40, coupled=False) for _ in range(200)], [], []) == 200
    full = fair_rates(net.table(), np.array(net.capacity)).rate
    assert [flow.rate for flow in net.flows] == pytest.approx(full.tolist(), rel=1e-12)
    assert UNKNOWN not in {flow.limit for flow in net.flows}


def test_a_flow_that_ends_touches_only_those_it_held_back() -> None:
    """Two flows share link 0; one of them meets a third on link 1, and a fourth is far away."""
    net = Links([1.0, 1.0, 1.0])
    a, b = Sharing({0: (1.0, 1.0)}), Sharing({0: (1.0, 1.0), 1: (1.0, 1.0)})
    c, far = Sharing({1: (1.0, 1.0)}, cap=0.4), Sharing({2: (1.0, 1.0)})
    net.change([a, b, c, far], [], [])
    assert [flow.rate for flow in (a, b, c, far)] == [0.5, 0.5, 0.4, 1.0]
    assert net.change([], [a], []) == 1
    assert (b.rate, b.limit, c.rate, far.rate) == (0.6, 1, 0.4, 1.0)


def test_flows_of_a_link_that_stays_full_keep_their_rates() -> None:
    """One of three on link 1 is held back by link 0, whose capacity is set to what it was: the two
    others have nothing to gain. Held back more, it leaves them room, and all are solved."""
    net = Links([0.25, 1.0])
    a, b = Sharing({1: (1.0, 1.0)}), Sharing({1: (1.0, 1.0)})
    held = Sharing({0: (1.0, 1.0), 1: (1.0, 1.0)})
    net.change([a, b, held], [], [])
    assert [flow.rate for flow in (a, b, held)] == [0.375, 0.375, 0.25]
    assert net.change([], [], [0]) == 1
    net.capacity[0] = 0.125
    assert net.change([], [], [0]) == 3
    assert [flow.rate for flow in (a, b, held)] == [0.4375, 0.4375, 0.125]


def test_too_many_flows_are_left_to_a_full_solution() -> None:
    net = Links([1.0])
    flows = [Sharing({0: (1.0, 1.0)}) for _ in range(5)]
    for flow in flows:
        net.on[0][flow] = None
    assert fair_again(flows, [0], net.on, net.capacity, most=4) is None
    found = fair_again(flows, [0], net.on, net.capacity, most=5)
    assert found is not None
    assert [found[flow] for flow in flows] == [(0.2, 0)] * 5


@pytest.mark.parametrize("others", [9, 41])
def test_few_flows_and_many_are_held_back_by_the_same(others: int) -> None:
    """Ten flows are at their caps of 0.1 on link 7, which the others fill; three more on link 3."""
    net = Links([1.0] * 7 + [10.0])
    capped = [Sharing({7: (1.0, 1.0)}, cap=0.1) for _ in range(10)]
    rest = [Sharing({7: (1.0, 1.0)}) for _ in range(others)]
    three = [Sharing({3: (2.0, 1.0)}) for _ in range(3)]
    net.change([*capped, *rest, *three], [], [])
    assert {(flow.rate, flow.limit) for flow in capped} == {(0.1, AT_CAP)}
    for flows, rate, limit in ((rest, 9 / others, 7), (three, 1 / 6, 3)):
        assert [flow.rate for flow in flows] == pytest.approx([rate] * len(flows), rel=1e-12)
        assert {flow.limit for flow in flows} == {limit}


def test_the_work_of_a_change_does_not_grow_with_what_is_far_from_it() -> None:
    def calls(pairs: int) -> int:
        net = Links([1.0] * pairs)
        flows = [Sharing({link: (1.0, 1.0)}) for link in range(pairs) for _ in range(2)]
        net.change(flows, [], [])
        return python_calls(lambda: net.change([], [flows[0]], []))

    assert calls(500) == calls(50)
