"""What rows of a graph ask for, told apart by column."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from commsim.engine.planning import Planner
from commsim.graph import Device, GraphBuilder
from commsim.libraries import Ideal

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
