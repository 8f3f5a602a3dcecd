"""What a message waits for: enough for the right end in any order, and nothing needless."""

from __future__ import annotations

import heapq

import numpy as np
import pytest
from helpers.chunk_programs import PAIRS, SIZES, make
from helpers.share import examples, share_of_each
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from commsim.collectives import Program, ProgramBuilder, dependencies
from commsim.collectives.checker import final_state
from commsim.collectives.state import begin


def run_in_any_order(p: Program, seed: int) -> np.ndarray:
    """Run the messages one at a time, in a random order that the dependencies allow.

    What arrives lands in a buffer; it is applied in program order, so far as it is there.
    """
    ptr, on = dependencies(p)
    left = np.diff(ptr)
    after: list[list[int]] = [[] for _ in range(len(p))]
    for message in range(len(p)):
        for before in on[ptr[message] : ptr[message + 1]].tolist():
            after[before].append(message)
    luck = np.random.default_rng(seed).permutation(len(p)).tolist()
    free = [(luck[m], m) for m in range(len(p)) if left[m] == 0]
    heapq.heapify(free)
    rows = np.searchsorted(p.message, np.arange(len(p) + 1))
    first, done = begin(p).count, 0
    landed: dict[tuple[int, int], list[tuple[int, int, bool, np.ndarray]]] = {}

    def holds(actor: int, chunk: int, step: float) -> np.ndarray:
        value: np.ndarray = first[actor, chunk]
        for at, _, adds, cargo in sorted(landed.get((actor, chunk), []), key=lambda e: e[:2]):
            if at < step:
                value = value + cargo if adds else cargo
        return value

    while free:
        _, m = heapq.heappop(free)
        done += 1
        for chunk in p.chunk[rows[m] : rows[m + 1]].tolist():
            cargo = holds(int(p.source[m]), chunk, p.step[m])
            entry = (int(p.step[m]), m, bool(p.reduce[m]), cargo)
            landed.setdefault((int(p.target[m]), chunk), []).append(entry)
        for message in after[m]:
            left[message] -= 1
            if left[message] == 0:
                heapq.heappush(free, (luck[message], message))
    assert done == len(p)
    places = range(len(p.share))
    return np.array([[holds(a, c, np.inf) for c in places] for a in range(p.actors)])


@pytest.mark.share(0.4)
@pytest.mark.parametrize(
    ("op", "algorithm", "n"), share_of_each(PAIRS, [(n,) for n in SIZES], 0.25)
)
def test_dependencies_alone_give_the_same_end(op: str, algorithm: str, n: int) -> None:
    p = make(op, algorithm, n, root=n // 2)
    assert np.array_equal(run_in_any_order(p, n), final_state(p))


@examples(100)
@given(pair=st.sampled_from(PAIRS), n=st.integers(2, 12), seed=st.integers(0, 10**6))
def test_any_order_gives_the_same_end(pair: tuple[str, str], n: int, seed: int) -> None:
    p = make(*pair, n, root=seed, pieces=1 + seed % 4)
    assert np.array_equal(run_in_any_order(p, seed), final_state(p))


def by_hand(p: Program) -> list[list[int]]:
    """Return what each message waits for, by the rule, one message after another."""
    needs = []
    for message in range(len(p)):
        found: set[int] = set()
        for chunk in p.chunk[p.message == message]:
            writers = [
                m for m in p.message[p.chunk == chunk].tolist()
                if p.target[m] == p.source[message] and p.step[m] < p.step[message]
            ]  # fmt: skip
            for writer in reversed(writers):
                found.add(writer)
                if not p.reduce[writer]:
                    break
        needs.append(sorted(found))
    return needs


@examples(100)
@given(pair=st.sampled_from(PAIRS), n=st.integers(2, 7), data=st.data())
def test_a_message_waits_for_the_last_copy_and_what_was_added_since(
    pair: tuple[str, str], n: int, data: st.DataObject
) -> None:
    """Also where copies and reduces alternate at random, which makes no sense as a program."""
    p = replace(make(*pair, n, root=data.draw(st.integers(0, n - 1))), needs=None)
    if data.draw(st.booleans()):
        seed = data.draw(st.integers(0, 10**6))
        p = replace(p, reduce=np.random.default_rng(seed).random(len(p)) < 0.5)
    ptr, on = dependencies(p)
    assert [on[a:b].tolist() for a, b in zip(ptr, ptr[1:], strict=False)] == by_hand(p)


def test_a_ring_waits_for_its_left_neighbour_only() -> None:
    ptr, on = dependencies(make("all_reduce", "ring", 4))
    assert np.diff(ptr).tolist() == [0] * 4 + [1] * 20
    assert on.tolist() == [(m - 4) // 4 * 4 + (m - 1) % 4 for m in range(4, 24)]


def test_a_copy_replaces_what_came_before() -> None:
    build = ProgramBuilder("all_reduce", "mine", 3, [1.0])
    build.reduce(0, 1, 0, step=0)
    build.copy(0, 2, 0, step=1)
    build.reduce(0, 1, 0, step=2)
    build.copy(0, 0, 1, step=2)
    build.copy(0, 0, 1, step=3)
    ptr, on = dependencies(build.build())
    assert ptr.tolist() == [0, 0, 0, 0, 1, 3]
    assert on.tolist() == [1, 1, 2]


def test_an_empty_program_waits_for_nothing() -> None:
    ptr, on = dependencies(make("all_reduce", "ring", 1))
    assert ptr.tolist() == [0]
    assert len(on) == 0
