"""What rows of a graph ask for, told apart by column."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from commsim.cluster import Cluster
from commsim.engine.planning import Planner, _checked
from commsim.errors import ScenarioError
from commsim.graph import Device, GraphBuilder
from commsim.libraries import Ideal, Plan, Request

CALLS = st.fixed_dictionaries(
    {
        "kind": st.sampled_from(["broadcast", "reduce"]),
        "group": st.sampled_from([0, 1]),
        "size": st.sampled_from([8, 16]),
        "root": st.sampled_from([0, 1]),
        "dtype": st.sampled_from(["", "float32"]),
        "redop": st.sampled_from(["", "avg"]),
        "recorded": st.sampled_from([-1, 5]),
        "device": st.sampled_from(list(Device)),
    }
)
SENDS = st.tuples(
    st.sampled_from([(0, 1), (1, 0)]),  # source and target
    st.sampled_from([8, 16]),
    st.sampled_from([-1, 5]),
    st.sampled_from(list(Device)),
)


@given(st.lists(CALLS, max_size=8), st.lists(SENDS, max_size=8))
def test_rows_are_alike_where_their_requests_are(
    calls: list[dict[str, Any]], sends: list[tuple[tuple[int, int], int, int, Device]]
) -> None:
    build = GraphBuilder()
    groups = [build.group(name, range(2)) for name in ("a", "b")]
    lanes = [build.lane(rank) for rank in range(2)]
    for call in calls:
        more = dict(call)
        kind, group, size = more.pop("kind"), groups[more.pop("group")], more.pop("size")
        for lane in lanes:
            build.collective(lane, group, kind, size, stream="comm", **more)
    for (source, target), size, recorded, device in sends:
        how: dict[str, Any] = {
            "group": groups[0], "stream": "p2p", "recorded": recorded, "device": device,
        }  # fmt: skip
        build.send(lanes[source], target, size, **how)
        build.recv(lanes[target], source, size, **how)
    graph = build.build()
    planner = Planner(graph, None, Ideal())
    group_of = graph.collectives.group.tolist()
    asked = [
        (group_of[row], planner.collective_request(row)) for row in range(len(graph.collectives))
    ]
    posted = [planner.message_request(row) for row in range(len(graph.messages))]
    for (first, number), requests in (
        (planner.equivalent_collectives(), asked), (planner.equivalent_messages(), posted),
    ):  # fmt: skip
        assert len(first) == len(set(requests))
        assert [requests[first[at]] for at in number] == requests


class _Broken:
    """A library with a fault of its own."""

    name = "broken"
    concurrency = 1

    def plan(self, request: Request, cluster: Cluster | None) -> Plan:
        raise IndexError("its own")


@pytest.mark.parametrize("nodes", [0, 1])
def test_only_a_rank_beyond_the_cluster_is_the_users_fault(nodes: int) -> None:
    build = GraphBuilder()
    group = build.group("dp", range(2))
    for rank in range(2):
        build.collective(build.lane(rank), group, "all_reduce", 8, stream="comm")
    cluster = Cluster.preset("dgx-a100") if nodes else None
    with pytest.raises(IndexError, match="its own"):
        Planner(build.build(), cluster, _Broken()).collective(0)


def test_a_rank_beyond_the_cluster_is_named() -> None:
    build = GraphBuilder()
    group = build.group("dp", (7, 8))
    for rank in (7, 8):
        build.collective(build.lane(rank), group, "all_reduce", 8, stream="comm")
    graph, cluster = build.build(), Cluster.preset("dgx-a100")
    with pytest.raises(ScenarioError, match="its group has rank 8, the cluster 8 GPUs"):
        Planner(graph, cluster, Ideal()).collective(0)


def test_how_long_each_member_was_recorded_to_stay_on() -> None:
    """By place in the group for a collective, (sender, receiver) for a message; only if known."""
    build = GraphBuilder()
    group = build.group("dp", (1, 0))
    lanes = [build.lane(rank) for rank in range(2)]
    for _ in range(2):
        for lane in lanes:
            build.collective(lane, group, "all_reduce", 8, stream="comm")
    for _ in range(2):
        build.send(lanes[0], 1, 8, group=group, stream="p2p")
        build.recv(lanes[1], 0, 8, group=group, stream="p2p")
    graph = build.build()
    # ranks 0 and 1 of the first all-reduce, its second only on rank 1, of messages the receiver
    late = np.array([1, 2, 0, 7, 0, 3, 0, 0])
    planner = Planner(replace(graph, duration=late), None, Ideal())
    assert planner.collective_request(0).late == (2, 1)
    assert planner.collective_request(1).late == (7, 0)
    assert planner.message_request(0).late == (0, 3)
    assert planner.message_request(1).late == ()


def test_what_has_no_size_is_not_planned() -> None:
    build = GraphBuilder()
    group = build.group("world", range(2))
    for rank in range(2):
        build.collective(build.lane(rank), group, "all_reduce", 8, stream="s")
    graph = build.build()
    unknown = np.full_like(graph.collectives.size, -1)
    graph = replace(graph, collectives=replace(graph.collectives, size=unknown))
    planner = Planner(graph, Cluster.preset("dgx-h100"), Ideal())
    with pytest.raises(ScenarioError, match="neither its size is known nor how long it took"):
        planner.collective(0)


@pytest.mark.parametrize(("root", "member"), [(-1, -1), (5, 0), (0, 1), (1, 2)])
def test_a_root_is_told_by_its_place_in_the_group(root: int, member: int) -> None:
    build = GraphBuilder()
    group = build.group("some", (5, 0, 1))
    kind = "all_reduce" if root < 0 else "broadcast"
    for rank in (5, 0, 1):
        build.collective(build.lane(rank), group, kind, 8, stream="s", root=root)
    assert Planner(build.build(), None, Ideal()).collective_request(0).root == member


@pytest.mark.parametrize(
    ("size", "recorded", "splits", "known"),
    [(-1, -1, None, False), (0, -1, None, True), (-1, 0, None, True), (-1, -1, ((1,),), True)],
)
def test_nothing_to_move_and_no_time_are_known(
    size: int, recorded: int, splits: tuple[tuple[int, ...], ...] | None, known: bool
) -> None:
    request = Request("all_to_all_v", size, (0,), splits=splits, recorded=recorded)
    if known:
        assert _checked(request) is request
    else:
        with pytest.raises(ScenarioError, match="among 1 ranks: neither its size is known"):
            _checked(request)


@pytest.mark.parametrize(
    ("sizes", "first", "number"),
    [((), [], []), ((8,), [0], [0]), ((8, 8, 8), [0], [0, 0, 0]), ((8, 4, 8), [1, 0], [1, 0, 1])],
)
def test_equal_rows_are_named_by_their_first(
    sizes: tuple[int, ...], first: list[int], number: list[int]
) -> None:
    build = GraphBuilder()
    group = build.group("world", range(1))
    lane = build.lane(0)
    for size in sizes:
        build.collective(lane, group, "all_reduce", size, stream="s")
    firsts, numbers = Planner(build.build(), None, Ideal()).equivalent_collectives()
    assert (firsts.tolist(), numbers.tolist()) == (first, number)
