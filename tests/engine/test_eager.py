"""Sends that return before they are received, and deadlocks that only they would hide."""

from __future__ import annotations

import pytest
from helpers.star import US, Star
from msgspec.structs import replace

from commsim.cluster import Cluster
from commsim.engine import simulate
from commsim.errors import DeadlockError
from commsim.graph import Graph, GraphBuilder
from commsim.libraries import Ideal, Plan, Request, Start

MB = 10**6
HINT = "too large to be buffered"


class Buffered(Ideal):
    """The ideal library with a buffer at every receiver for messages up to a size."""

    def __init__(self, limit: int) -> None:
        super().__init__()
        self._limit = limit

    def plan(self, request: Request, cluster: Cluster | None) -> Plan:
        plan = super().plan(request, cluster)
        small = request.kind == "send_recv" and request.size <= self._limit
        return replace(plan, start=Start.EAGER) if small else plan


def message(late: int, *, sender_late: int = 0) -> Graph:
    """Return a message of 1 MB whose receiver posts `late` ps after the start."""
    build = GraphBuilder()
    lanes = [build.lane(rank) for rank in range(2)]
    world = build.group("world", range(2))
    build.compute(lanes[0], sender_late, name="work", stream="s")
    build.send(lanes[0], 1, MB, group=world, stream="s")
    build.compute(lanes[1], late, name="work", stream="s")
    build.recv(lanes[1], 0, MB, group=world, stream="s")
    return build.build()


TRANSFER = 2 * US + 1000 * US


@pytest.mark.parametrize("network", ["fluid", "steps"])
def test_an_eager_send_returns_and_a_late_receiver_gets_it_at_once(network: str) -> None:
    run = simulate(message(5000 * US), Star(2), library=Buffered(MB), network=network)
    assert run.end[1] == pytest.approx(TRANSFER, abs=US)
    assert run.end[3] == run.start[3] == 5000 * US


@pytest.mark.parametrize("network", ["fluid", "steps"])
def test_a_receiver_that_comes_midway_leaves_when_the_data_is_there(network: str) -> None:
    run = simulate(message(300 * US), Star(2), library=Buffered(MB), network=network)
    assert run.start[3] == 300 * US
    assert run.end[3] == TRANSFER


@pytest.mark.parametrize("network", ["fluid", "steps"])
def test_a_receiver_that_is_first_waits_for_the_sender(network: str) -> None:
    run = simulate(message(0, sender_late=700 * US), Star(2), library=Buffered(MB), network=network)
    assert run.end[3] == 700 * US + TRANSFER


def test_above_the_limit_both_sides_must_be_there() -> None:
    run = simulate(message(5000 * US), Star(2), library=Buffered(MB - 1))
    assert run.end[1] == run.end[3] == 5000 * US + TRANSFER


def both_send_first() -> Graph:
    build = GraphBuilder()
    lanes = [build.lane(rank) for rank in range(2)]
    world = build.group("world", range(2))
    for rank, lane in enumerate(lanes):
        build.send(lane, 1 - rank, MB, group=world, stream="s")
        build.recv(lane, 1 - rank, MB, group=world, stream="s")
    return build.build()


def test_a_program_that_hangs_only_above_the_limit_is_told_apart() -> None:
    graph = both_send_first()
    assert simulate(graph, Star(2), library=Buffered(MB)).end.max() > 0
    with pytest.raises(DeadlockError, match=HINT):
        simulate(graph, Star(2), library=Buffered(MB - 1))


def test_a_program_that_hangs_with_any_size_is_not_called_lucky() -> None:
    build = GraphBuilder()
    lanes = [build.lane(rank) for rank in range(2)]
    world = build.group("world", range(2))
    for rank, lane in enumerate(lanes):
        build.recv(lane, 1 - rank, MB, group=world, stream="s")
        build.send(lane, 1 - rank, MB, group=world, stream="s")
    with pytest.raises(DeadlockError) as caught:
        simulate(build.build(), Star(2), library=Buffered(0))
    assert HINT not in str(caught.value)


def test_a_send_that_nobody_receives_would_only_be_lost() -> None:
    build = GraphBuilder()
    lanes = [build.lane(rank) for rank in range(2)]
    world = build.group("world", range(2))
    build.send(lanes[0], 1, MB, group=world, stream="s")
    build.collective(lanes[0], world, "barrier", 0, stream="s")
    with pytest.raises(DeadlockError) as caught:
        simulate(build.build(), Star(2), library=Buffered(0))
    assert HINT not in str(caught.value)
