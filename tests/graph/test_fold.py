"""Folding: classes of ranks, orbits of groups, and graphs built from them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from commsim.errors import ScenarioError, TraceError
from commsim.graph import Fold, Graph, GraphBuilder, load_graph, member_lanes, save_graph
from commsim.graph.file import pack_graph
from commsim.graph.npz import write_arrays


def grid(*sizes: int) -> np.ndarray:
    return np.arange(np.prod(sizes)).reshape(sizes)


def layout(dp: int, pp: int, tp: int) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    """Ranks ordered tp fastest, then pp, then dp."""
    ranks = grid(dp, pp, tp)
    groups = {
        "tp": ranks.reshape(-1, tp),
        "dp": ranks.transpose(1, 2, 0).reshape(-1, dp),
        "pp": ranks.transpose(0, 2, 1).reshape(-1, pp),
    }
    pairs = {"next": np.stack((ranks[:, :-1].ravel(), ranks[:, 1:].ravel()), axis=1)}
    return groups, pairs


def test_one_lane_per_stage() -> None:
    groups, pairs = layout(4, 3, 2)
    stage = (np.arange(24) // 2) % 3
    fold = Fold.of(stage, groups, pairs)
    assert fold.representatives == [0, 2, 4]
    assert fold.multiplicities()[[0, 2, 4]].tolist() == [8, 8, 8]
    assert fold.groups["dp"].instances(0).tolist() == groups["dp"][:2].tolist()
    assert len(fold.pairs["next"].instances(0)) == 8


def test_none_folds_nothing() -> None:
    groups, pairs = layout(2, 2, 2)
    fold = Fold.none(8, groups, pairs)
    assert fold.representatives == list(range(8))
    assert not fold.folded


def test_uneven_roles_split_what_they_touch() -> None:
    groups, pairs = layout(4, 1, 2)
    roles = np.zeros(8, np.int64)
    roles[0] = 1  # one rank of one tensor group is different
    fold = Fold.of(roles, groups, {})
    # rank 0, its tp neighbour, its dp group (2, 4, 6), and the rest of the neighbour's dp group
    assert [sorted(np.flatnonzero(fold.stands == r)) for r in fold.representatives] == [
        [0], [1], [2, 4, 6], [3, 5, 7],
    ]  # fmt: skip


@given(st.integers(1, 4), st.integers(1, 4), st.integers(1, 4), st.data())
def test_partition_is_equitable(dp: int, pp: int, tp: int, data: st.DataObject) -> None:
    groups, pairs = layout(dp, pp, tp)
    world = dp * pp * tp
    roles = np.array(data.draw(st.lists(st.integers(0, 2), min_size=world, max_size=world)))
    fold = Fold.of(roles, groups, pairs)
    for axis in fold.groups.values():
        for orbit in range(axis.orbit.max(initial=-1) + 1):
            classes = fold.stands[axis.instances(orbit)]
            assert (classes == classes[0]).all()
        touched: dict[int, set[int]] = {}
        for row, orbit in zip(axis.rows, axis.orbit.tolist(), strict=True):
            for rank in fold.stands[row].tolist():
                touched.setdefault(rank, set()).add(orbit)
        assert all(len(orbits) == 1 for orbits in touched.values())
    for rank in range(world):
        assert roles[rank] == roles[fold.stands[rank]]


def test_graph_of_a_fold() -> None:
    groups, pairs = layout(4, 2, 2)
    fold = Fold.of((np.arange(16) // 2) % 2, groups, pairs)
    build = GraphBuilder(fold)
    lanes = [build.lane(rank) for rank in fold.representatives]
    for lane, rank in zip(lanes, fold.representatives, strict=True):
        for axis in ("tp", "dp"):
            build.collective(lane, build.orbit(axis, rank), "all_reduce", 64, stream=axis)
    world = [build.orbit("pp", rank) for rank in fold.representatives]
    build.send(lanes[0], "next", 128, group=world[0], stream="pp")
    build.recv(lanes[1], "next", 128, group=world[1], stream="pp")
    graph = build.build()
    assert graph.multiplicity.tolist() == [8, 8]
    assert len(graph.collectives) == 4
    folding = graph.folding
    assert folding is not None
    assert folding.lane_of.tolist() == ((np.arange(16) // 2) % 2).tolist()
    assert [len(rows) for rows in folding.groups] == [4, 2, 4, 2, 8]
    assert folding.pairs[folding.pair[0]].tolist() == pairs["next"].tolist()
    assert graph.groups[4].ranks == (0, 2)
    assert member_lanes(graph)[0] == {0: 0}
    assert member_lanes(graph)[4] == {0: 0, 1: 1}


def test_rank_twice_in_an_axis() -> None:
    with pytest.raises(ScenarioError, match="axis 'tp' has a rank twice"):
        Fold.of(np.zeros(3, np.int64), {"tp": np.array([[0, 1], [1, 2]])}, {})


def test_rank_outside() -> None:
    with pytest.raises(ScenarioError, match=r"axis 'tp' has a rank outside 0\.\.1"):
        Fold.of(np.zeros(2, np.int64), {"tp": np.array([[0, 2]])}, {})


def test_sends_nothing_on_that_axis() -> None:
    groups, pairs = layout(1, 2, 1)
    build = GraphBuilder(Fold.none(2, groups, pairs))
    lanes = [build.lane(0), build.lane(1)]
    with pytest.raises(ScenarioError, match="rank 1 sends nothing on axis 'next'"):
        build.send(lanes[1], "next", 1, group=build.orbit("pp", 1), stream="pp")


def folded_graph() -> Graph:
    groups, pairs = layout(4, 2, 2)
    fold = Fold.of((np.arange(16) // 2) % 2, groups, pairs)
    build = GraphBuilder(fold)
    lanes = [build.lane(rank) for rank in fold.representatives]
    for lane, rank in zip(lanes, fold.representatives, strict=True):
        build.collective(lane, build.orbit("tp", rank), "all_reduce", 64, stream="tp")
    build.send(lanes[0], "next", 128, group=build.orbit("pp", 0), stream="pp")
    build.recv(lanes[1], "next", 128, group=build.orbit("pp", 2), stream="pp")
    return build.build()


def test_file_keeps_what_a_graph_stands_for(tmp_path: Path) -> None:
    graph = folded_graph()
    save_graph(graph, tmp_path / "g.npz")
    back = load_graph(tmp_path / "g.npz").folding
    assert graph.folding is not None
    assert back is not None
    assert back.lane_of.tolist() == graph.folding.lane_of.tolist()
    assert [t.tolist() for t in back.groups] == [t.tolist() for t in graph.folding.groups]
    assert [t.tolist() for t in back.pairs] == [t.tolist() for t in graph.folding.pairs]
    assert back.pair.tolist() == graph.folding.pair.tolist()


@pytest.mark.parametrize(
    ("name", "values"),
    [("f_lane_of", [99] * 16), ("f_groups_rows", [0, 1, 1]), ("f_pair", [7]), ("f_pairs", [0])],
)
def test_file_that_stands_for_nothing(name: str, values: list[int], tmp_path: Path) -> None:
    arrays = pack_graph(folded_graph())
    arrays[name] = np.array(values)
    write_arrays(tmp_path / "g.npz", arrays)
    with pytest.raises(TraceError, match="f_"):
        load_graph(tmp_path / "g.npz")
