"""What ops mean: bus factors, and what ranks hold before and after, written out for three ranks."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from commsim.collectives.semantics import promise, start
from commsim.ops import COLLECTIVES, bus_factor

EIGHT = {
    "all_reduce": 1.75,
    "all_gather": 0.875,
    "reduce_scatter": 0.875,
    "all_to_all": 0.875,
    "all_to_all_v": 0.875,
    "gather": 0.875,
    "scatter": 0.875,
    "broadcast": 1.0,
    "reduce": 1.0,
    "barrier": 0.0,
    "send_recv": 1.0,
}


@pytest.mark.parametrize("op", [*COLLECTIVES, "send_recv"])
def test_bus_factors_are_those_of_nccl_tests(op: str) -> None:
    assert bus_factor(op, 8) == EIGHT[op]
    assert bus_factor(op, 1) == 0


A, B, C, ALL = (1, 0, 0), (0, 1, 0), (0, 0, 1), (1, 1, 1)
NO = (0, 0, 0)

# Per op: what ranks 0, 1, 2 hold of each chunk before, and what they must hold after (None: of
# no concern). The root is rank 1.
Chunks = Sequence[Sequence[tuple[int, int, int] | None]]
MEANINGS: dict[str, tuple[Chunks, Chunks]] = {
    "all_reduce": ([[A], [B], [C]], [[ALL], [ALL], [ALL]]),
    "reduce": ([[A], [B], [C]], [[None], [ALL], [None]]),
    "broadcast": ([[NO], [B], [NO]], [[B], [B], [B]]),
    "scatter": ([[NO] * 3, [B] * 3, [NO] * 3], [[B, None, None], [None, B, None], [None, None, B]]),
    "gather": ([[A, NO, NO], [NO, B, NO], [NO, NO, C]], [[None] * 3, [A, B, C], [None] * 3]),
    "all_gather": ([[A, NO, NO], [NO, B, NO], [NO, NO, C]], [[A, B, C]] * 3),
    "barrier": ([[A, NO, NO], [NO, B, NO], [NO, NO, C]], [[A, B, C]] * 3),
    "reduce_scatter": (
        [[A] * 3, [B] * 3, [C] * 3],
        [[ALL, None, None], [None, ALL, None], [None, None, ALL]],
    ),
    "all_to_all": (
        [[A] * 3 + [NO] * 6, [NO] * 3 + [B] * 3 + [NO] * 3, [NO] * 6 + [C] * 3],
        [
            [A, None, None, B, None, None, C, None, None],
            [None, A, None, None, B, None, None, C, None],
            [None, None, A, None, None, B, None, None, C],
        ],
    ),
}
MEANINGS["all_to_all_v"] = MEANINGS["all_to_all"]


@pytest.mark.parametrize("op", COLLECTIVES)
@pytest.mark.parametrize("cut", [1, 2])
def test_what_ranks_hold_before_and_after(op: str, cut: int) -> None:
    """Cut in two, every part has two chunks that mean the same."""
    before, after = MEANINGS[op]
    chunks = len(before[0]) * cut
    held = start(op, 3, chunks, 1)
    wanted, promised = promise(op, 3, chunks, 1)
    for rank in range(3):
        for chunk in range(chunks):
            assert tuple(held[rank, chunk]) == before[rank][chunk // cut]
            expected = after[rank][chunk // cut]
            assert promised[rank, chunk] == (expected is not None)
            if expected is not None:
                assert tuple(wanted[rank, chunk]) == expected
