"""Shares found again in the order of levels are those of a full solution, after every change."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from helpers.counting import python_calls
from helpers.share import examples
from hypothesis import given
from hypothesis import strategies as st

from commsim.engine.fair_share import AT_CAP, UNKNOWN, Flows, Sharers, fair_rates, sharers
from commsim.engine.fair_share.levels import share_again


class Traffic:
    """Random flows that come and go over random links."""

    def __init__(self, seed: int, links: int) -> None:
        self.rng = np.random.default_rng(seed)
        equal = self.rng.random() < 0.4
        self.capacity = np.ones(links) if equal else np.exp(self.rng.normal(0, 0.5, links))
        self.sharers = Sharers(self.capacity)
        self.flows: dict[int, tuple[np.ndarray, float, float]] = {}
        self.share: dict[int, float] = {}

    def come(self) -> None:
        links = len(self.capacity)
        count = int(self.rng.integers(0, min(links, 5) + 1))
        chosen = np.sort(self.rng.choice(links, size=count, replace=False))
        conns = float(self.rng.integers(1, 4))
        cap = float(np.exp(self.rng.normal(-2, 1)))
        cap = cap if self.rng.random() < 0.3 or not count else float("inf")
        at = self.sharers.add(chosen.tolist(), [conns] * count, cap)
        assert at not in self.flows
        self.flows[at] = (chosen, conns, cap)

    def go(self) -> None:
        at = list(self.flows)[int(self.rng.integers(len(self.flows)))]
        self.sharers.remove(at)
        del self.flows[at]

    def slow_down(self) -> None:
        link = int(self.rng.integers(len(self.capacity)))
        self.capacity[link] *= float(self.rng.choice([0.5, 2.0]))
        self.sharers.set_capacity(link, self.capacity[link])

    def settle(self) -> None:
        found, shares = self.sharers.share_again()
        self.share.update(zip(found.tolist(), shares.tolist(), strict=True))

    def assert_fair(self) -> None:
        routes = [links for links, _, _ in self.flows.values()]
        counts = [len(route) for route in routes]
        conns = np.repeat([conns for _, conns, _ in self.flows.values()], counts)
        cap = np.array([cap for _, _, cap in self.flows.values()])
        table = Flows(
            np.concatenate(([0], np.cumsum(counts))).astype(np.int64),
            np.concatenate([np.zeros(0, np.int64), *routes]), conns, conns, cap,
        )  # fmt: skip
        full = fair_rates(table, self.capacity)
        assert full.unfixed == 0
        assert [self.share[at] for at in self.flows] == pytest.approx(full.rate.tolist(), rel=1e-9)
        for at, (links, _, capped) in self.flows.items():
            limit = self.sharers.limit_of(at)
            assert limit in links if limit != AT_CAP else self.share[at] == pytest.approx(capped)
            assert limit != UNKNOWN


def run(traffic: Traffic, steps: int) -> None:
    for step in range(steps):
        for _ in range(int(traffic.rng.integers(0, 60 if step == 0 else 4))):
            traffic.come()
        for _ in range(min(int(traffic.rng.integers(0, 3)), len(traffic.flows))):
            traffic.go()
        if traffic.rng.random() < 0.2:
            traffic.slow_down()
        traffic.settle()
        if traffic.flows:
            traffic.assert_fair()


@examples(30)
@given(seed=st.integers(0, 2**32), links=st.integers(1, 40))
def test_shares_are_those_of_a_full_solution(seed: int, links: int) -> None:
    run(Traffic(seed, links), 15)


@pytest.mark.parametrize("seed", range(2))
def test_arrays_give_what_lists_give(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """To the bit, and from the middle of a run on: what is compiled works on arrays."""
    lists, arrays = Traffic(seed, 30), Traffic(seed, 30)
    run(lists, 20)
    monkeypatch.setattr(sharers, "can_compile", lambda: True)
    monkeypatch.setattr(sharers, "compiled", lambda _: share_again)
    monkeypatch.setattr(sharers, "COMPILED_FROM", 150)
    run(arrays, 20)
    assert isinstance(arrays.sharers.columns.share, np.ndarray)
    assert isinstance(lists.sharers.columns.share, list)
    assert arrays.share == lists.share


@pytest.mark.long
def test_what_numba_compiles_gives_what_the_interpreter_does_on_large_cases(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Two thousand flows over 600 links, of which hundreds are looked at per change; to the bit."""
    pytest.importorskip("numba")
    lists, compiled = Traffic(5, 600), Traffic(5, 600)
    for traffic in (lists, compiled):
        with monkeypatch.context() as chosen:
            chosen.setattr(sharers, "COMPILED_FROM", float("inf") if traffic is lists else 0)
            for _ in range(2000):
                traffic.come()
            for _ in range(150):
                traffic.settle()
                traffic.go()
                traffic.come()
                if traffic.rng.random() < 0.2:
                    traffic.slow_down()
            traffic.settle()
    assert isinstance(lists.sharers.columns.share, list)
    assert isinstance(compiled.sharers.columns.share, np.ndarray)
    assert compiled.share == lists.share
    assert list(map(compiled.sharers.limit_of, compiled.flows)) == list(
        map(lists.sharers.limit_of, lists.flows)
    )
    compiled.assert_fair()


def test_the_work_of_a_change_does_not_grow_with_what_is_far_from_it() -> None:
    def calls(pairs: int) -> int:
        shared = Sharers(np.ones(pairs))
        first = [shared.add([link], [1.0], float("inf")) for link in range(pairs) for _ in range(2)]
        shared.share_again()

        def change() -> Any:
            shared.remove(first[0])
            return shared.share_again()

        return python_calls(change)

    assert calls(500) == calls(50)


def test_a_flow_that_ends_touches_only_those_it_held_back() -> None:
    """Two flows share link 0; one of them meets a third on link 1, and a fourth is far away."""
    shared, inf = Sharers(np.ones(3)), float("inf")
    a = shared.add([0], [1.0], inf)
    b = shared.add([0, 1], [1.0, 1.0], inf)
    c, far = shared.add([1], [1.0], 0.4), shared.add([2], [1.0], inf)
    found, shares = shared.share_again()
    assert dict(zip(found.tolist(), shares.tolist(), strict=True)) == {
        a: 0.5,
        b: 0.5,
        c: 0.4,
        far: 1,
    }
    shared.remove(a)
    found, shares = shared.share_again()
    assert dict(zip(found.tolist(), shares.tolist(), strict=True)) == {b: 0.6}
    assert (shared.limit_of(b), shared.limit_of(c)) == (1, AT_CAP)
