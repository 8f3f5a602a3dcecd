"""The checker finds every broken program, and says where."""

from __future__ import annotations

import random
from collections import Counter

import numpy as np
import pytest
from helpers.chunk_programs import PAIRS, drop, make, repeat, set_entry
from helpers.share import examples, later
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from commsim.collectives import Program, check
from commsim.collectives.checker import final_state
from commsim.collectives.semantics import promise
from commsim.ops import REDUCING

# The scatter and all-gather of this broadcast send a rank back what it has just handed on, and
# the NVSwitch already holds the sum that the owner multicasts through it.
LAVISH = (("broadcast", "halving_doubling"), ("all_reduce", "nvls"))
FRUGAL = [pair for pair in PAIRS if pair not in LAVISH]

# Where only switches add, ranks get sums as copies.
IN_SWITCH = ("nvls", "sharp")
ADDING = [pair for pair in PAIRS if pair[0] in REDUCING and pair[1] not in IN_SWITCH]


def drawn(good: Program, most: int) -> list[int]:
    """Return so many messages of a program at most."""
    return random.Random(0).sample(range(len(good)), min(most, len(good)))


few_or_all = pytest.mark.parametrize("most", [20, later(10**9)])


@few_or_all
@pytest.mark.parametrize(("op", "algorithm"), FRUGAL)
def test_no_message_can_be_lost(op: str, algorithm: str, most: int) -> None:
    good = make(op, algorithm, 6, root=4)
    for at in drawn(good, most):
        assert check(drop(good, at)), f"message {at}"


@few_or_all
@pytest.mark.parametrize(("op", "algorithm"), PAIRS)
def test_a_copy_is_no_reduce_and_a_reduce_is_no_copy(op: str, algorithm: str, most: int) -> None:
    good = make(op, algorithm, 6, root=4)
    for at in drawn(good, most):
        assert check(set_entry(good, "reduce", at, not good.reduce[at])), f"message {at}"


@pytest.mark.parametrize(("op", "algorithm"), ADDING)
def test_a_contribution_counts_once(op: str, algorithm: str) -> None:
    """Repeat each message that adds to something promised, when all else is done."""
    good = make(op, algorithm, 6, root=4)
    _, promised = promise(op, 6, len(good.share), good.root)
    target = good.target[good.message]
    known = np.concatenate((promised, np.zeros((len(good.switches), len(good.share)), bool)))
    adds = good.reduce[good.message] & known[target, good.chunk]
    assert adds.any()
    for at in np.unique(good.message[adds]).tolist():
        assert check(repeat(good, at)), f"message {at}"


def plainly_right(p: Program) -> bool:
    """Run a program chunk by chunk with counters, and compare with the op in plain words."""
    n, per = p.n, len(p.share) // (p.n**2 if p.op.startswith("all_to_all") else p.n)
    everybody = Counter(range(n))

    def holds_first(rank: int, chunk: int) -> Counter[int]:
        if rank >= n:
            return Counter()
        if p.op in ("all_reduce", "reduce", "reduce_scatter"):
            return Counter([rank])
        if p.op in ("broadcast", "scatter"):
            return Counter([rank] if rank == p.root else [])
        owner = chunk // per // n if p.op.startswith("all_to_all") else chunk // per
        return Counter([rank] if rank == owner else [])

    def must_hold(rank: int, chunk: int) -> Counter[int] | None:
        if p.op in ("reduce", "gather") and rank != p.root:
            return None
        if p.op in ("reduce_scatter", "scatter") and rank != chunk // per:
            return None
        if p.op.startswith("all_to_all"):
            return Counter([chunk // per // n]) if chunk // per % n == rank else None
        if p.op in ("all_reduce", "reduce", "reduce_scatter"):
            return everybody
        return Counter([p.root if p.op in ("broadcast", "scatter") else chunk // per])

    places = [(rank, chunk) for rank in range(n) for chunk in range(len(p.share))]
    actors = [(actor, chunk) for actor in range(p.actors) for chunk in range(len(p.share))]
    held = {place: holds_first(*place) for place in actors}
    for step in sorted(set(p.step.tolist())):
        moving = [
            (int(p.target[m]), c, bool(p.reduce[m]), held[int(p.source[m]), c].copy())
            for m, c in zip(p.message.tolist(), p.chunk.tolist(), strict=True)
            if p.step[m] == step
        ]
        for target, chunk, adds, cargo in moving:
            held[target, chunk] = held[target, chunk] + cargo if adds else cargo
    return all(must_hold(*place) in (None, held[place]) for place in places)


@examples(200)
@given(pair=st.sampled_from(PAIRS), n=st.integers(2, 6), data=st.data())
def test_a_wrong_end_is_caught(pair: tuple[str, str], n: int, data: st.DataObject) -> None:
    """Another source, target or chunk; now and then that is another right program."""
    good = make(*pair, n, root=data.draw(st.integers(0, n - 1)))
    column = data.draw(st.sampled_from(["source", "target", "chunk"]))
    at = data.draw(st.integers(0, len(getattr(good, column)) - 1))
    count = len(good.share) if column == "chunk" else n
    broken = set_entry(good, column, at, data.draw(st.integers(0, count - 1)))
    assert check(broken) or plainly_right(broken)


@examples(200)
@given(pair=st.sampled_from(PAIRS), n=st.integers(2, 6), data=st.data())
def test_what_a_plain_run_finds_wrong_the_checker_finds(
    pair: tuple[str, str], n: int, data: st.DataObject
) -> None:
    """Several changes at once; the plain run shares no code with the checker."""
    p = make(*pair, n, root=data.draw(st.integers(0, n - 1)))
    assert plainly_right(p)
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(p) - 1))
        p = data.draw(
            st.sampled_from(
                [
                    repeat(p, at),
                    set_entry(p, "reduce", at, not p.reduce[at]),
                    set_entry(p, "target", at, data.draw(st.integers(0, n - 1))),
                    set_entry(p, "source", at, data.draw(st.integers(0, n - 1))),
                    set_entry(p, "chunk", at, data.draw(st.integers(0, len(p.share) - 1))),
                ]
            )
        )
    if not plainly_right(p):
        assert check(p)


def only_problem(p: Program) -> str:
    problems = check(p)
    assert len(problems) == 1, problems
    return problems[0]


def test_a_contribution_that_counts_twice_is_named() -> None:
    problems = check(repeat(make("all_reduce", "server", 3), 0))
    assert problems == [
        "rank 0, chunk 0: the contribution of rank 0 is in it 2 times instead of 1."
    ]


def test_a_missing_contribution_is_named() -> None:
    good = make("all_gather", "direct", 4)
    at = int(np.flatnonzero((good.source == 2) & (good.target == 1))[0])
    assert only_problem(drop(good, at)) == (
        "rank 1, chunk 2: the contribution of rank 2 is missing."
    )


def test_data_that_a_rank_does_not_hold_cannot_be_sent() -> None:
    broken = set_entry(make("broadcast", "tree", 8, pieces=1), "source", 0, 7)
    assert "step 0: rank 7 sends chunk 0, of which it holds nothing." in check(broken)


def test_data_cannot_be_sent_on_in_the_step_in_which_it_arrives() -> None:
    chain = make("broadcast", "ring", 3, pieces=1)
    assert check(replace(chain, step=np.array([4, 4])))[0] == (
        "step 4: rank 1 sends chunk 0, of which it holds nothing."
    )


def test_nobody_sends_to_itself() -> None:
    good = make("all_gather", "direct", 3)
    assert check(set_entry(good, "target", 1, int(good.source[1])))[0] == (
        "step 0: rank 1 sends to itself."
    )


def test_an_op_that_adds_nothing_has_no_reduce() -> None:
    broken = set_entry(make("broadcast", "direct", 3), "reduce", 0, 1)
    assert only_problem(broken) == "step 0: rank 1 adds, but broadcast adds nothing."


def test_a_copy_does_not_race_another_message() -> None:
    good = make("all_reduce", "server", 3)
    assert any(
        "step 1: rank 0 gets chunk 0 more than once, one a copy." in problem
        for problem in check(replace(set_entry(good, "reduce", 1, 0), step=np.array([1, 1, 2, 3])))
    )


def test_shares_add_up_to_what_s_is() -> None:
    for op, algorithm in PAIRS:
        good = make(op, algorithm, 4)
        assert check(replace(good, share=good.share * 0.5 + 0.01 * (op == "barrier"))), op
    uneven = np.array([0.5, 0.5, 0.0, 0.0])
    assert only_problem(replace(make("all_gather", "ring", 4), share=uneven)) == (
        "each part of S should be 0.25 of S, not 0.5."
    )
    assert check(replace(make("all_reduce", "ring", 4), share=uneven)) == []


@pytest.mark.parametrize("bad", [-0.25, float("nan"), float("inf")])
def test_shares_are_numbers(bad: float) -> None:
    good = make("all_reduce", "ring", 4)
    share = good.share.copy()
    share[1] = bad
    assert "negative or not a number" in only_problem(replace(good, share=share))


@pytest.mark.parametrize(
    ("column", "value", "sentence"),
    [
        ("target", 4, "step 0: target 4 is none of the 4 ranks."),
        ("source", -1, "step 0: source -1 is none of the 4 ranks."),
        ("chunk", 4, "step 0: chunk 4 is none of the 4 chunks."),
        ("step", 9, "message 3 is of step 0, message 2 of a later step."),
        ("message", 3, "the rows do not name the messages 0 to 11 in ascending order."),
    ],
)
def test_what_cannot_be_run_is_said(column: str, value: int, sentence: str) -> None:
    assert only_problem(set_entry(make("all_gather", "ring", 4), column, 2, value)) == sentence


def test_every_part_has_its_chunks() -> None:
    good = make("all_gather", "ring", 4)
    assert only_problem(replace(good, share=np.append(good.share, 0.0))) == (
        "5 chunks cannot be dealt evenly to the 4 parts of all_gather."
    )


def test_a_long_list_is_cut() -> None:
    broken = replace(make("all_gather", "ring", 16), reduce=np.ones(240, dtype=bool))
    silent = drop(make("all_gather", "direct", 16), 0)
    for at in range(20):
        silent = drop(silent, at)
    assert check(silent)[-1] == "and 13 more chunks that are wrong at the end."
    assert len(check(broken)) == 15


def test_the_final_state_is_what_messages_leave() -> None:
    state = final_state(make("reduce", "ring", 3, root=0, pieces=1))
    assert state[:, 0].tolist() == [[1, 1, 1], [0, 1, 0], [0, 1, 1]]
