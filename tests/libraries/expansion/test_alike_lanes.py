"""One lane for all that are alike gives the same bits as a column of them."""

from __future__ import annotations

import numpy as np
import pytest
from helpers.counting import python_calls
from msgspec.structs import replace

from commsim.cluster import Cluster
from commsim.libraries.expansion import Waves, hops_of, waves, waves_of
from commsim.libraries.expansion.alike_lanes import AlikeLanes
from commsim.libraries.ideal.rings import ring_messages
from commsim.libraries.plan import Delays, RoutedProgram
from commsim.libraries.routing import Router

NODES = 40


def nodes() -> Cluster:
    return Cluster.preset(
        "dgx-h100", nodes=NODES,
        overrides={"gpu": {"count": 1}, "nic": {"count": 1}}, fabric={"kind": "single_switch"},
    )  # fmt: skip


def ring(cluster: Cluster, *, pace: float = 0.0) -> RoutedProgram:
    messages = ring_messages(range(NODES), range(NODES), 1e8, 2, Router(cluster))
    count = len(messages.size)
    delays = Delays(
        np.full(count, 3e5), np.full(count, 7e5), np.full(len(messages.dep), 1e4),
        np.full(count, pace),
    )  # fmt: skip
    return replace(messages, delays=delays)


def both(
    messages: RoutedProgram, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> tuple[Waves, Waves]:
    """Return what one lane gives, and what columns do."""
    hops = [hops_of(route, cluster.links) for route in messages.routes]
    as_one = waves_of(messages, hops, 1e9)
    with monkeypatch.context() as columns:
        columns.setattr(waves._Lanes, "as_one", lambda _: None)
        one_each = waves_of(messages, hops, 1e9)
    assert as_one is not None
    assert one_each is not None
    return as_one, one_each


def same(one: Waves, other: Waves) -> None:
    assert one.arrive.tolist() == other.arrive.tolist()
    for name in ("link", "begin", "end", "share"):
        assert getattr(one.services, name).tolist() == getattr(other.services, name).tolist()


@pytest.mark.parametrize("pieces", [2**19, 1000])
@pytest.mark.parametrize("pace", [0.0, 2e8])
def test_a_ring_of_equal_edges(pace: float, pieces: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """As many pieces of link use as there are services, and so few that waves become one."""
    monkeypatch.setattr(waves, "_MOST_SERVICES", pieces)
    cluster = nodes()
    same(*both(ring(cluster, pace=pace), cluster, monkeypatch))


@pytest.mark.parametrize("pieces", [2**19, 1000])
@pytest.mark.parametrize("wave", [0, 1, 30, 77])
def test_columns_take_over_where_a_message_differs(
    wave: int, pieces: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A smaller message, so that nothing trickles; in the first wave, midway, in the last."""
    monkeypatch.setattr(waves, "_MOST_SERVICES", pieces)
    cluster, messages = nodes(), ring(nodes())
    size = messages.size.copy()
    size[wave * NODES + 7] *= 0.5
    one, other = both(replace(messages, size=size), cluster, monkeypatch)
    same(one, other)
    arrived = one.arrive.reshape(-1, NODES)[wave]
    assert len(set(arrived.tolist())) == 2


@pytest.mark.parametrize("wave", [1, 3])
def test_columns_take_over_links_that_are_still_busy(
    wave: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Messages that wait for nothing queue behind each other on their first link."""
    monkeypatch.setattr(waves, "_LEAST", 1)
    cluster, messages = nodes(), ring(nodes())
    size = messages.size.copy()
    size[wave * NODES + 7] *= 0.5
    nothing = np.zeros(len(size) + 1, np.int64)
    free = replace(
        messages, size=size, dep_ptr=nothing, dep=np.zeros(0, np.int64), delays=None
    )  # fmt: skip
    one, other = both(free, cluster, monkeypatch)
    same(one, other)
    assert len(set(one.arrive.tolist())) > len(size) // NODES


def test_what_trickles_in_behind_another_is_not_told() -> None:
    """At 2e9 ps per message the first byte is there long before the last, and the next waits."""
    lane = AlikeLanes(np.array([1.0, 1.0]), np.array([10.0, 10.0]), 1e-9)
    assert lane.serve(100.0, 0.0, 500.0) == 520.0
    assert lane.serve(100.0, 400.0, 900.0) is None  # its link is taken until 500, and not whole


def test_a_wave_of_equal_lanes_costs_no_call_per_hop() -> None:
    cluster = nodes()
    messages = ring(cluster)
    hops = [hops_of(route, cluster.links) for route in messages.routes]
    assert python_calls(lambda: waves_of(messages, hops, 0.0)) < 33 * 2 * (
        NODES - 1
    )  # 37 by columns
