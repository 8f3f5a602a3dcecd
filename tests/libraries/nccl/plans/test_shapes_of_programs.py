"""Which message of a ring, chain or tree waits for which, edge by edge."""

from __future__ import annotations

from itertools import pairwise
from typing import Any, cast

import numpy as np
import pytest
from msgspec.structs import replace

from commsim.cluster import Cluster
from commsim.libraries.nccl.plans.group import NcclGroup, Site
from commsim.libraries.nccl.plans.messages import _chain, _ring, _Shape, programs_of
from commsim.libraries.nccl.plans.tree_messages import _needs, _parts
from commsim.libraries.nccl.shapes import Algorithm, Choice, Protocol
from commsim.libraries.nccl.timing import ProgramEdges, chain_edges, default_terms


def rows(shape: _Shape) -> list[tuple[int, int, list[int]]]:
    """Return source, target and needs of each message."""
    ends = zip(shape.source[shape.edge].tolist(), shape.target[shape.edge].tolist(), strict=True)
    dep, ptr = shape.dep.tolist(), shape.ptr.tolist()
    assert len(ptr) == len(shape.edge) + 1
    assert ptr[-1] == len(dep)
    return [(a, b, dep[ptr[at] : ptr[at + 1]]) for at, (a, b) in enumerate(ends)]


def test_each_message_of_a_ring_waits_for_the_one_before_on_the_edge_before() -> None:
    assert rows(_ring(np.array([2, 0, 1]), 3)) == [
        (2, 0, []), (0, 1, []), (1, 2, []),
        (2, 0, [2]), (0, 1, [0]), (1, 2, [1]),
        (2, 0, [5]), (0, 1, [3]), (1, 2, [4]),
    ]  # fmt: skip
    assert rows(_ring(np.array([0, 1]), 1)) == [(0, 1, []), (1, 0, [])]


@pytest.mark.parametrize(("op", "ends"), [
    ("broadcast", [(1, 3), (3, 0), (0, 2)]),  # from the root on
    ("reduce", [(3, 0), (0, 2), (2, 1)]),  # towards it
])  # fmt: skip
def test_pieces_go_along_a_chain(op: str, ends: list[tuple[int, int]]) -> None:
    shape = _chain(np.array([0, 2, 1, 3]), 1, 2, op)
    expected = [
        (a, b, [] if at == 0 else [2 * (at - 1) + piece])
        for at, (a, b) in enumerate(ends)
        for piece in range(2)
    ]
    assert rows(shape) == expected


def test_pieces_go_up_a_tree_after_those_of_children_and_down_after_the_sum() -> None:
    #    2
    #  0   4
    # 1 3
    up = np.array([2, 0, -1, 0, 2])
    ptr, dep = _needs(up, 2)
    assert [dep[a:b].tolist() for a, b in pairwise(ptr.tolist())] == [
        [2, 4], [3, 5],  # up from 0, 1, 3 and 4
        [], [], [], [], [], [],
        # from the root when all its children have sent, from others when theirs has come
        [0, 6], [1, 7],
        [8], [9], [8], [9],
        [0, 6], [1, 7],
    ]  # fmt: skip


def group(nodes: int, each: int = 8) -> NcclGroup:
    cluster = Cluster.preset("dgx-h100", nodes=nodes)
    return NcclGroup(Site(cluster), [8 * n + g for n in range(nodes) for g in range(each)])


def edges(local: tuple[float, float], net: tuple[float, float], message: float) -> ProgramEdges:
    """Return edges of (rate under way, rate alone) and messages of so many bytes."""
    one = np.ones(1)
    return ProgramEdges(
        message * one, 4 * one, one, local[0] * one, one, net[0] * one, 0 * one, local[1] * one,
        net[1] * one,
    )  # fmt: skip


@pytest.mark.parametrize(("local", "net", "message", "parts"), [
    ((1.0, 2.0), (4.0, 12.0), 8.0, 2.0),  # the local edge is the slowest
    ((4.0, 8.0), (1.0, 3.0), 8.0, 3.0),
    ((2.0, 2.0), (3.0, 3.0), 8.0, 1.0),
    ((1.0, 2.0), (4.0, 12.0), 0.0, 1.0),  # nothing to pass
])  # fmt: skip
def test_parts_that_pass_the_slowest_edge_as_one_alone_does(
    local: tuple[float, float], net: tuple[float, float], message: float, parts: float
) -> None:
    assert _parts(edges(local, net, message)) == parts


@pytest.mark.parametrize(("algorithm", "op", "sent"), [
    # times S that all ranks send: around the ring, up and down trees, along chains
    (Algorithm.Ring, "all_reduce", 2 * 15),
    (Algorithm.Ring, "all_gather", 15),
    (Algorithm.Ring, "broadcast", 15),
    (Algorithm.Ring, "reduce", 15),
    (Algorithm.Tree, "all_reduce", 2 * 15),
])  # fmt: skip
def test_every_channel_has_a_program_of_its_share(
    algorithm: Algorithm, op: str, sent: float
) -> None:
    made = group(2)
    size = 1 << 20
    choice = Choice(op, size, algorithm, Protocol.Simple, 4, 4, 512, 1 << 17, 1 << 16, 0.0)
    root = 3 if op in ("broadcast", "reduce") else -1
    programs = programs_of(made, op, choice, root, lead=1000, idle=10**9)
    assert len(programs) == 4
    for expand in programs:
        program = expand()
        assert program.size.sum() * 4 == pytest.approx(sent * size)
        delays: Any = program.delays
        assert (delays.hold >= 1000).all()
        assert delays.dep.tolist() == [0.0] * len(program.dep)
        assert (delays.pace > 0).all()
        if op == "broadcast":
            first = np.diff(program.dep_ptr) == 0
            assert set(program.source[first].tolist()) == {3}
            assert 3 not in program.target
        if op == "reduce":
            assert 3 not in program.source


def test_a_single_rank_and_other_algorithms_have_no_programs() -> None:
    choice = Choice(
        "all_reduce", 8, Algorithm.Ring, Protocol.Simple, 4, 4, 512, 1 << 17, 1 << 16, 0.0
    )
    alone = cast("Any", NcclGroup(Site(Cluster.preset("dgx-h100")), [0]))
    assert programs_of(alone, "all_reduce", choice, -1, lead=0, idle=0) == ()
    collnet = replace(choice, algorithm=Algorithm.CollNetDirect)
    assert programs_of(group(1), "all_reduce", collnet, -1, lead=0, idle=0) == ()
    two = NcclGroup(Site(Cluster.preset("dgx-h100")), [0, 1])
    assert len(programs_of(two, "all_reduce", choice, -1, lead=0, idle=10**6)) == 4


@pytest.mark.parametrize("size", [3_000_000, 40_000, 1 << 22])
def test_a_message_of_a_chain_takes_the_latency_and_the_pace_of_its_edge(size: int) -> None:
    """A whole number of messages, each as long as so many parts of one of the closed form."""
    made = group(2)
    choice = Choice(
        "broadcast", size, Algorithm.Ring, Protocol.Simple, 4, 4, 512, 1 << 17, 1 << 16, 0.0
    )
    timed = chain_edges(made.runs("broadcast", [size], [choice], root=0), default_terms())
    exact = float(timed.count[0])
    count = max(round(exact), 1)
    program = programs_of(made, "broadcast", choice, 0, lead=9, idle=10**9)[0]()
    delays: Any = program.delays
    assert len(program.size) == 15 * count
    assert delays.hold.tolist() == [9.0] * len(program.size)
    node = made.edges.node
    far = node[program.source] != node[program.target]
    pace = np.where(far, timed.net_service[0], timed.local_service[0]) * 1e12
    hop = np.where(far, timed.reach[0], timed.hop[0]) * 1e12
    links = np.array([route.latency for route in program.routes])[program.route]
    assert delays.pace == pytest.approx(pace * exact / count)
    assert delays.after == pytest.approx(np.maximum(hop + pace * (1 - exact / count) - links, 0))
