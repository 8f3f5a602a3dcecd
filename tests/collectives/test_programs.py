"""Every algorithm, proven for many n and every root; and the checker, held to mutated programs."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from commsim.collectives import algorithms_for, bus_factor, check, dependencies, program
from commsim.collectives.catalogue import ALGORITHMS
from commsim.collectives.checker import initial_state
from commsim.collectives.ops import ROOTED
from commsim.collectives.program import Program
from commsim.errors import ScenarioError

SIZES = [*range(2, 18), 32]
PAIRS = sorted(ALGORITHMS)


def make(op: str, algorithm: str, n: int, root: int = 0, pieces: int = 3) -> Program:
    splits = tuple(tuple(7 * i + j + 1 for j in range(n)) for i in range(n))
    return program(
        op, algorithm, n, root=root, pieces=pieces, splits=splits if op == "all_to_all_v" else None
    )


@pytest.mark.parametrize(("op", "algorithm"), PAIRS)
@pytest.mark.parametrize("n", SIZES)
def test_every_rank_ends_with_what_the_op_promises(op: str, algorithm: str, n: int) -> None:
    for root in range(n) if op in ROOTED else [0]:
        assert check(make(op, algorithm, n, root)) == []


@pytest.mark.parametrize(("op", "algorithm"), PAIRS)
def test_a_lone_rank_has_nothing_to_do(op: str, algorithm: str) -> None:
    assert len(program(op, algorithm, 1)) == 0


# Scatter and all-gather sends a rank back what it has just handed on: those can be lost.
REDUNDANT = [("broadcast", "halving_doubling")]


@pytest.mark.parametrize(("op", "algorithm"), [p for p in PAIRS if p not in REDUNDANT])
def test_no_message_can_be_lost(op: str, algorithm: str) -> None:
    good = make(op, algorithm, 6, root=4)
    for at in range(len(good)):
        assert check(mutate(good, at, "drop")), f"message {at}"


@pytest.mark.parametrize("algorithm", algorithms_for("all_reduce"))
@pytest.mark.parametrize("how", ["reduce", "twice"])
def test_a_reduction_must_be_one_and_happen_once(algorithm: str, how: str) -> None:
    good = make("all_reduce", algorithm, 6)
    for at in np.flatnonzero(good.reduce).tolist():
        assert check(mutate(good, at, how)), f"message {at}"


def test_data_that_a_rank_does_not_hold_cannot_be_sent() -> None:
    good = make("broadcast", "tree", 8, pieces=1)
    source = good.source.copy()
    source[0] = 7
    assert any("of which it holds nothing" in p for p in check(replace(good, source=source)))


def mutate(p: Program, at: int, how: str) -> Program:
    if how == "drop":
        keep = p.message != at
        renumber = p.message[keep] - (p.message[keep] > at)
        cut = {c: np.delete(getattr(p, c), at) for c in COLUMNS}
        return replace(p, message=renumber, chunk=p.chunk[keep], **cut)
    if how == "reduce":
        flipped = p.reduce.copy()
        flipped[at] = not flipped[at]
        return replace(p, reduce=flipped)
    again = np.concatenate((np.arange(len(p)), [at]))
    columns = {c: getattr(p, c)[again] for c in COLUMNS}
    columns["step"] = columns["step"].copy()
    columns["step"][-1] = p.step.max() + 1
    rows = p.message == at
    return replace(
        p,
        message=np.concatenate((p.message, np.full(rows.sum(), len(p)))),
        chunk=np.concatenate((p.chunk, p.chunk[rows])),
        **columns,
    )


COLUMNS = ("step", "source", "target", "reduce", "phase")


def test_a_contribution_that_counts_twice_is_named() -> None:
    good = make("all_reduce", "server", 3)
    problems = check(mutate(good, 0, "twice"))
    assert "rank 0, chunk 0: the contribution of rank" in problems[0]
    assert "2 times instead of 1" in problems[0]


def sent(p: Program) -> list[float]:
    return np.bincount(p.source, weights=p.message_share, minlength=p.n).tolist()


@pytest.mark.parametrize("n", [2, 5, 8, 16])
def test_bytes_sent_are_the_textbooks(n: int) -> None:
    each = (n - 1) / n
    assert sent(make("all_reduce", "ring", n)) == pytest.approx([2 * each] * n)
    assert sent(make("all_gather", "ring", n)) == pytest.approx([each] * n)
    assert sent(make("reduce_scatter", "direct", n)) == pytest.approx([each] * n)
    assert sent(make("all_to_all", "direct", n)) == pytest.approx([each] * n)
    assert sum(sent(make("broadcast", "tree", n))) == pytest.approx(n - 1)
    assert sum(sent(make("all_reduce", "double_tree", n))) == pytest.approx(2 * (n - 1))
    assert sent(make("all_reduce", "server", n))[0] == pytest.approx(n - 1)


@pytest.mark.parametrize("n", [2, 4, 8, 16, 32])
def test_halving_doubling_takes_two_log_steps(n: int) -> None:
    p = make("all_reduce", "halving_doubling", n)
    assert len(np.unique(p.step)) == 2 * (n.bit_length() - 1)
    assert sent(p) == pytest.approx([2 * (n - 1) / n] * n)


@pytest.mark.parametrize("n", range(3, 20))
def test_inner_ranks_of_one_tree_are_leaves_of_the_other(n: int) -> None:
    from commsim.collectives.tree import parents

    first, second = parents(n, 0), parents(n, 0, second=True)
    inner = [set(tree) - {-1} for tree in (first, second)]
    tops = {first.index(-1), second.index(-1)}
    assert inner[0] & inner[1] <= tops


@settings(max_examples=60, deadline=None)
@given(pair=st.sampled_from(PAIRS), n=st.integers(2, 9), seed=st.integers(0, 10**6))
def test_dependencies_alone_give_the_same_end(pair: tuple[str, str], n: int, seed: int) -> None:
    """Messages in any order that the dependencies allow leave what the steps leave."""
    p = make(*pair, n, root=seed % n)
    ptr, dep = dependencies(p)
    left = [set(dep[ptr[m] : ptr[m + 1]].tolist()) for m in range(len(p))]
    rng, state = np.random.default_rng(seed), initial_state(p)
    waiting = list(range(len(p)))
    while waiting:
        free = [m for m in waiting if not left[m]]
        assert free
        m = int(rng.choice(free))
        waiting.remove(m)
        for other in waiting:
            left[other].discard(m)
        for chunk in p.chunk[p.message == m].tolist():
            data = state[p.source[m], chunk].copy()
            if p.reduce[m]:
                state[p.target[m], chunk] += data
            else:
                state[p.target[m], chunk] = data
    from commsim.collectives.checker import wanted_state

    wanted, matters = wanted_state(p)
    assert not ((state != wanted).any(axis=2) & matters).any()


def test_bus_factors_are_those_of_nccl_tests() -> None:
    assert bus_factor("all_reduce", 8) == 1.75
    assert bus_factor("all_gather", 8) == bus_factor("all_to_all", 8) == 0.875
    assert bus_factor("broadcast", 8) == bus_factor("send_recv", 2) == 1


def test_an_unknown_pair_lists_what_is_possible() -> None:
    with pytest.raises(ScenarioError, match="Did you mean 'ring'"):
        program("all_reduce", "rnig", 4)
    with pytest.raises(ScenarioError, match="Possible: ring, direct"):
        program("all_to_all", "tree", 4)
