"""Every algorithm, proven for many n and every root, and held to the textbook's figures."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest
from helpers.chunk_programs import PAIRS, SIZES, make, roots
from helpers.share import share_of_each

from commsim.collectives import Program, ProgramBuilder, algorithms_for, check, program
from commsim.collectives.tree import parents
from commsim.errors import ScenarioError
from commsim.ops import COLLECTIVES


@pytest.mark.share(0.5)
@pytest.mark.parametrize(
    ("op", "algorithm", "n", "pieces"),
    share_of_each([(*pair, n) for pair, n in product(PAIRS, SIZES)], [(1,), (3,)], 0.5),
)
def test_every_rank_ends_with_what_the_op_promises(
    op: str, algorithm: str, n: int, pieces: int
) -> None:
    for root in roots(op, n):
        p = make(op, algorithm, n, root=root, pieces=pieces)
        assert check(p) == []
        assert (p.op, p.algorithm, p.n) == (op, algorithm, n)
        assert p.root == (root if op in ("broadcast", "reduce", "scatter", "gather") else -1)


@pytest.mark.parametrize(("op", "algorithm"), PAIRS)
def test_a_lone_rank_has_nothing_to_do(op: str, algorithm: str) -> None:
    alone = make(op, algorithm, 1)
    assert len(alone) == 0
    assert check(alone) == []


def test_every_op_has_an_algorithm() -> None:
    assert {op for op, _ in PAIRS} == set(COLLECTIVES)
    assert set(algorithms_for("all_reduce")) == {
        "ring", "ring_chunked", "tree", "double_tree", "binomial", "halving_doubling", "bcube",
        "direct", "server", "hierarchical", "torus",
    }  # fmt: skip
    assert set(algorithms_for("all_reduce", switched=True)) - set(algorithms_for("all_reduce")) == {
        "nvls", "nvls_tree", "sharp", "collnet_direct", "collnet_chain",
    }  # fmt: skip


# Textbook figures: what each rank sends, as a share of S, and in how many steps.


def received(p: Program) -> np.ndarray:
    return np.bincount(p.target, weights=p.message_share, minlength=p.n)


@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize(
    ("op", "algorithm", "rounds"),
    [
        ("all_reduce", "ring", 2),
        ("all_reduce", "direct", 2),
        ("all_gather", "ring", 1),
        ("all_gather", "direct", 1),
        ("reduce_scatter", "ring", 1),
        ("reduce_scatter", "direct", 1),
        ("all_to_all", "direct", 1),
    ],
)
def test_every_rank_sends_and_receives_the_least_possible(
    op: str, algorithm: str, rounds: int, n: int
) -> None:
    p = make(op, algorithm, n)
    assert p.bytes_sent == pytest.approx(np.full(n, rounds * (n - 1) / n))
    assert received(p) == pytest.approx(np.full(n, rounds * (n - 1) / n))


@pytest.mark.parametrize("n", [2, 4, 8, 16, 32])
@pytest.mark.parametrize(
    ("op", "rounds"), [("all_reduce", 2), ("all_gather", 1), ("reduce_scatter", 1)]
)
def test_halving_doubling_is_least_in_bytes_and_in_steps(op: str, rounds: int, n: int) -> None:
    p = make(op, "halving_doubling", n)
    assert p.bytes_sent == pytest.approx(np.full(n, rounds * (n - 1) / n))
    assert p.steps == rounds * (n.bit_length() - 1)
    assert len(np.unique(p.phase)) == p.steps


@pytest.mark.parametrize("n", [3, 5, 6, 7, 9, 15, 17])
def test_halving_doubling_folds_extra_ranks_in_two_more_steps(n: int) -> None:
    p = make("all_reduce", "halving_doubling", n)
    core = 1 << (n.bit_length() - 1)
    assert p.steps == 2 * (n.bit_length() - 1) + 2
    assert p.bytes_sent[core:] == pytest.approx(np.ones(n - core))


@pytest.mark.parametrize("n", SIZES)
def test_a_ring_forwards_an_all_to_all_half_way_around_on_average(n: int) -> None:
    """Chunks go 1, 2, ..., n - 1 hops: n (n - 1) / 2 chunks of S/n leave each rank."""
    p = make("all_to_all", "ring", n)
    assert p.bytes_sent == pytest.approx(np.full(n, (n - 1) / 2))
    assert p.steps == n - 1


@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize("algorithm", ["ring", "tree", "double_tree", "direct"])
def test_a_broadcast_and_a_reduce_move_the_buffer_to_each_rank_once(algorithm: str, n: int) -> None:
    others = np.arange(n) != n - 1
    down, up = (make(op, algorithm, n, root=n - 1) for op in ("broadcast", "reduce"))
    assert received(down) == pytest.approx(1.0 * others)
    assert up.bytes_sent == pytest.approx(1.0 * others)


@pytest.mark.parametrize("n", SIZES)
def test_all_of_a_server_all_reduce_passes_the_server(n: int) -> None:
    p = make("all_reduce", "server", n)
    assert p.bytes_sent.tolist() == [n - 1] + [1] * (n - 1)
    assert received(p).tolist() == [n - 1] + [1] * (n - 1)


@pytest.mark.parametrize("n", SIZES)
def test_ring_steps(n: int) -> None:
    assert make("all_reduce", "ring", n).steps == 2 * (n - 1)
    assert make("all_gather", "ring", n).steps == n - 1
    assert make("reduce_scatter", "ring", n).steps == n - 1
    for op in ("broadcast", "reduce"):
        for pieces in (1, 5):
            assert make(op, "ring", n, pieces=pieces).steps == n - 1 + pieces - 1


@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize("pieces", [1, 5])
def test_tree_steps_are_levels_plus_pieces(n: int, pieces: int) -> None:
    """Below the top with its one child is a binary tree: ceil(log2 n) levels of edges."""
    levels = (n - 1).bit_length()
    assert make("broadcast", "tree", n, pieces=pieces).steps == levels + pieces - 1
    assert make("reduce", "tree", n, pieces=pieces).steps == levels + pieces - 1
    assert make("all_reduce", "tree", n, pieces=pieces).steps == 2 * levels + pieces - 1


@pytest.mark.parametrize(
    "op", ["all_reduce", "reduce_scatter", "all_gather", "all_to_all", "all_to_all_v", "barrier"]
)
def test_in_each_step_of_a_direct_exchange_everybody_has_another_peer(op: str) -> None:
    p = make(op, "direct", 7)
    for step in np.unique(p.step):
        assert sorted(p.target[p.step == step].tolist()) == list(range(7))
        assert len(np.unique((p.target - p.source)[p.step == step] % 7)) == 1


# Double binary trees.


def test_trees_are_those_of_nccl() -> None:
    """Worked out by hand from the rule of ncclGetDtree (nccl, src/graph/trees.cc)."""
    assert parents(8, 0) == [-1, 2, 4, 2, 0, 6, 4, 6]
    assert parents(8, 0, second=True) == [1, 3, 1, 7, 5, 3, 5, -1]  # mirrored
    assert parents(7, 0) == [-1, 2, 4, 2, 0, 6, 4]
    assert parents(7, 0, second=True) == [5, -1, 3, 5, 3, 1, 0]  # shifted by one


@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize("second", [False, True])
def test_a_tree_has_one_top_and_two_children_at_most(n: int, second: bool) -> None:
    tree = parents(n, 0, second=second)
    assert tree.count(-1) == 1
    assert np.bincount([p for p in tree if p >= 0], minlength=n).max() <= 2


def halves_sent(p: Program) -> np.ndarray:
    """Return whether each rank sends each of the two halves, shape (n, 2)."""
    sent = np.zeros((p.n, 2), dtype=bool)
    sent[p.source[p.message], p.chunk * 2 // len(p.share)] = True
    return sent


@pytest.mark.parametrize("n", SIZES)
def test_inner_ranks_of_one_tree_are_leaves_of_the_other(n: int) -> None:
    for root in range(n):
        inner = halves_sent(make("broadcast", "double_tree", n, root=root))
        assert inner[root].all()
        assert not np.delete(inner, root, axis=0).all(axis=1).any()
        first, second = parents(n, root), parents(n, root, second=True)
        assert (set(first) & set(second)) - {-1} <= {root}


@pytest.mark.parametrize("n", SIZES)
def test_double_trees_spread_the_load(n: int) -> None:
    """With one tree inner ranks send 2 S; with two of half the data, nobody more than S."""
    for root in range(n):
        assert make("broadcast", "double_tree", n, root=root).bytes_sent.max() <= 1 + 1e-12
        assert received(make("reduce", "double_tree", n, root=root)).max() <= 1 + 1e-12
    both_ways = make("all_reduce", "double_tree", n)
    assert both_ways.bytes_sent.max() <= 2 + 1e-12
    assert both_ways.bytes_sent.sum() == pytest.approx(2 * (n - 1))
    if n >= 6:
        assert make("broadcast", "tree", n).bytes_sent.max() == pytest.approx(2)


# The builder and the catalogue.


def test_messages_ascend_by_step_and_keep_their_order_within_one() -> None:
    build = ProgramBuilder("broadcast", "mine", 4, [0.25, 0.75], root=0)
    build.copy(1, 1, 3, step=5, phase=2)
    build.copy([0, 1], 0, 1, step=2)
    build.copy(0, 0, 2, step=5)
    p = build.build()
    assert p.step.tolist() == [2, 5, 5]
    assert list(zip(p.source.tolist(), p.target.tolist(), strict=True)) == [(0, 1), (1, 3), (0, 2)]
    assert p.message.tolist() == [0, 0, 1, 2]
    assert p.chunk.tolist() == [0, 1, 1, 0]
    assert p.phase.tolist() == [0, 2, 0]
    assert p.message_share.tolist() == [1.0, 0.75, 0.25]
    assert p.bytes_sent.tolist() == [1.25, 0.75, 0, 0]
    assert repr(p) == "Program(broadcast by mine, n=4, 3 messages in 2 steps)"


def test_many_messages_keep_their_order_within_a_step() -> None:
    build = ProgramBuilder("all_gather", "mine", 300, [1 / 300] * 300)
    for i in range(299):
        build.copy(i, i, i + 1, step=i * 7 % 3)
    p = build.build()
    for step in range(3):
        assert (np.diff(p.source[p.step == step]) > 0).all()


def test_splits_are_shares_of_the_largest_sum() -> None:
    p = program("all_to_all_v", "direct", 3, splits=[[0, 1, 2], [3, 4, 5], [6, 7, 7]])
    assert p.share == pytest.approx(np.array([0, 1, 2, 3, 4, 5, 6, 7, 7]) / 20)
    assert p.bytes_sent == pytest.approx([3 / 20, 8 / 20, 13 / 20])
    assert check(p) == []


def test_nothing_to_split_is_nothing_to_send() -> None:
    p = program("all_to_all_v", "direct", 2, splits=[[0, 0], [0, 0]])
    assert p.bytes_sent.tolist() == [0, 0]
    assert check(p) == []


def test_the_same_program_is_made_once() -> None:
    assert program("all_reduce", "ring", 9) is program("all_reduce", "ring", 9)
    splits = [[1, 2], [3, 4]]
    first = program("all_to_all_v", "direct", 2, splits=splits)
    assert first is program("all_to_all_v", "direct", 2, splits=tuple(map(tuple, splits)))


@pytest.mark.parametrize(
    ("op", "algorithm", "n", "settings", "message"),
    [
        ("all_reduce", "rnig", 4, {}, "Did you mean 'ring'"),
        ("all_to_all", "tree", 4, {}, "Possible: ring, bruck, direct, pairwise"),
        ("allreduce", "ring", 4, {}, "not a collective. Did you mean 'all_reduce'"),
        ("all_reduce", "ring", 0, {}, "among 0 members"),
        ("broadcast", "ring", 4, {"root": 4}, "root 4 is none of the members 0 to 3"),
        ("broadcast", "ring", 4, {"root": -1}, "root -1 is none"),
        ("broadcast", "ring", 1, {"root": 1}, "root 1 is none of the members 0 to 0"),
        ("all_gather", "ring", 4, {"root": 2}, "all_gather has no root"),
        ("broadcast", "tree", 4, {"pieces": 0}, "in 0 pieces"),
        ("all_to_all_v", "direct", 2, {}, "needs 2 rows of 2 splits"),
        ("all_to_all_v", "direct", 2, {"splits": [[1, 2]]}, "needs 2 rows of 2 splits"),
        ("all_to_all_v", "direct", 2, {"splits": [[1, 2], [3]]}, "needs 2 rows of 2 splits"),
        ("all_to_all_v", "direct", 2, {"splits": [[1, 2], [-3, 0]]}, "-3 bytes from 1 to 0"),
        ("all_to_all", "direct", 2, {"splits": [[1, 2], [3, 4]]}, "has no splits"),
    ],
)
def test_what_cannot_be_is_said(
    op: str, algorithm: str, n: int, settings: dict[str, Any], message: str
) -> None:
    with pytest.raises(ScenarioError, match=message):
        program(op, algorithm, n, **settings)
