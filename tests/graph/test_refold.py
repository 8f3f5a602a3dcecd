"""Graphs folded anew: roots, splits, windows and copies stay with the ranks they belong to."""

from __future__ import annotations

import numpy as np
import pytest

from commsim.errors import ScenarioError
from commsim.graph import CopyDirection, Fold, Graph, GraphBuilder, OpKind, Phase, Tags
from commsim.graph.refold import refold
from commsim.graph.table import Messages

PAIRS = np.array([[0, 1], [2, 3]])


def built(*, whole: bool = False) -> Graph:
    """Two groups of two that do the same; their members differ."""
    groups, ways = {"dp": PAIRS}, {"next": PAIRS}
    role = np.array([0, 1, 0, 1])
    fold = Fold.none(4, groups, ways) if whole else Fold.of(role, groups, ways)
    build = GraphBuilder(fold)
    for rank in fold.representatives:
        lane, first = build.lane(rank, offset=7 * (rank % 2)), rank % 2 == 0
        group = build.orbit("dp", rank, library="gloo")
        tags = Tags(phase=Phase.FORWARD, step=1, microbatch=2, stage=rank % 2, layer=3)
        a = build.compute(lane, 50, name="a", tags=tags, flops=8.0, traffic=9.0, alloc=64, free=32)
        sent = build.collective(
            lane, group, "broadcast", 80, stream="dp", root=build_root(rank), after=[(a, 11)],
            dtype="float32", recorded=5,
        )  # fmt: skip
        post = build.send if first else build.recv
        post(lane, "next", 96, group=group, stream="p2p", after=[sent], batch=build.batch(), tag=4)
        post(lane, "next", 32, group=group, stream="p2p", batch=build.batch(), tag=1)
        build.collective(
            lane, group, "all_to_all_v", 30, stream="dp", splits=(10, 20) if first else (25, 5)
        )
        build.host_copy(lane, 123, way=CopyDirection.TO_HOST, stream="d2h")
        last = build.copy(lane, 17, name="known", size=5, stream="d2h")
        build.window(lane, a, last)
    return build.build({"says": "so"})


def build_root(rank: int) -> int:
    """The second member of the group that a rank is in."""
    return 1 if rank < 2 else 3


def test_apart_it_is_what_an_unfolded_build_gives() -> None:
    apart, whole = refold(built(), np.arange(4)), built(whole=True)
    assert apart.folding is None
    for column in (
        "kind", "lane", "stream", "duration", "flops", "traffic", "size", "item", "name", "device",
        "alloc", "free", "phase", "step", "microbatch", "stage", "layer", "batch", "dep_ptr",
        "dep_op", "dep_delay", "lane_rank", "multiplicity", "lane_offset", "window",
    ):  # fmt: skip
        assert getattr(apart, column).tolist() == getattr(whole, column).tolist(), column
    assert apart.collectives.root.tolist() == whole.collectives.root.tolist()
    assert apart.collectives.splits == whole.collectives.splits
    assert apart.collectives.recorded.tolist() == whole.collectives.recorded.tolist()
    assert apart.collectives.dtype == whole.collectives.dtype
    assert [g.ranks for g in apart.groups] == [g.ranks for g in whole.groups]
    assert {(g.axis, g.library) for g in apart.groups} == {("dp", "gloo")}
    for column in Messages.__struct_fields__:
        assert getattr(apart.messages, column).tolist() == (
            getattr(whole.messages, column).tolist()
        ), column
    assert apart.messages.tag.tolist() == [1, 4, 1, 4]
    assert dict(apart.meta) == {"says": "so"}


def test_equal_roles_keep_the_fold() -> None:
    graph = built()
    again = refold(graph, np.zeros(4, np.int64))
    assert again.folding is not None
    assert again.multiplicity.tolist() == graph.multiplicity.tolist() == [2, 2]
    assert again.duration.tolist() == graph.duration.tolist()


def test_one_rank_of_its_own_splits_its_group_off() -> None:
    again = refold(built(), np.array([0, 0, 1, 0]))
    assert again.lane_rank.tolist() == [0, 1, 2, 3]


def test_ops_of_other_lanes_are_refused() -> None:
    fold = Fold.of(np.array([0, 1, 0, 1]), {"dp": PAIRS}, {})
    build = GraphBuilder(fold)
    first = build.compute(build.lane(0), 5, name="a")
    build.compute(build.lane(1), 5, name="b", after=[first])
    with pytest.raises(ScenarioError, match="depends on another lane's op"):
        refold(build.build(), np.arange(4))


def test_copies_over_links_keep_their_way() -> None:
    apart = refold(built(), np.arange(4))
    copies = apart.kind == OpKind.COPY
    assert sorted(apart.item[copies].tolist()) == [-1] * 4 + [int(CopyDirection.TO_HOST)] * 4


def test_a_lane_splits_for_all_members_that_it_stands_for() -> None:
    groups = {"ep": np.arange(4)[None]}
    fold = Fold.of(np.array([0, 1, 1, 1]), groups, {})
    build = GraphBuilder(fold)
    for rank in fold.representatives:
        lane = build.lane(rank)
        build.collective(
            lane, build.orbit("ep", rank), "all_to_all_v", 40, stream="ep",
            splits=(7, 11, 11, 11) if rank else (25, 5, 5, 5),
        )  # fmt: skip
    graph = build.build()
    matrix = ((25, 5, 5, 5), (7, 11, 11, 11), (7, 11, 11, 11), (7, 11, 11, 11))
    assert graph.collectives.splits == (matrix,)
    assert refold(graph, np.arange(4)).collectives.splits == (matrix,)
