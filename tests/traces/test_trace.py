"""A recorded run put together from parts: its world, its clocks, its messages."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from commsim.traces.rebuild import Clocks
from commsim.traces.rebuild.match_messages import Exchange
from commsim.traces.trace import Trace, _clock_notes, _world

US = 1_000_000


@pytest.mark.parametrize(
    ("ranks", "sizes", "world"),
    [
        ((0, 1), (-1, -1), (0, 1)), ((3, 1), (-1, -1), (1, 3)), ((1, 3), (0, 0), (1, 3)),
        ((0, 1), (4, -1), (0, 1, 2, 3)), ((0, 1), (2, 1), (0, 1)), ((5,), (4,), (0, 1, 2, 3, 4, 5)),
        ((0,), (1,), (0,)), ((3,), (4,), (0, 1, 2, 3)), ((2,), (1_000_001,), (0, 1, 2)),
        ((2,), (1,), (0, 1, 2)),
    ],
)  # fmt: skip
def test_the_world_is_as_large_as_files_say_and_holds_all_that_are_recorded(
    ranks: tuple[int, ...], sizes: tuple[int, ...], world: tuple[int, ...]
) -> None:
    parts: Any = [
        SimpleNamespace(rank=r, world_size=size) for r, size in zip(ranks, sizes, strict=True)
    ]
    assert _world(parts) == world


def test_a_world_of_a_million_ranks_is_the_largest() -> None:
    part: Any = SimpleNamespace(rank=0, world_size=1_000_000)
    assert len(_world([part])) == 1_000_000


@pytest.mark.parametrize(
    ("residual", "ranks", "said"),
    [
        (-1, (0, 1), "the ranks share no synchronising collective"),
        (0, (0, 1), "largest offset 7 us, residual 0 s, at most 3 us."),
        (2 * US, (0, 1), "largest offset 7 us, residual 2 us, at most 3 us."),
        (-1, (0,), "one rank is recorded"), (2 * US, (5,), "one rank is recorded"),
    ],
)  # fmt: skip
def test_it_is_said_how_well_clocks_are_known(
    residual: int, ranks: tuple[int, ...], said: str
) -> None:
    (note,) = _clock_notes(Clocks({0: 2 * US, 1: -7 * US}, residual, 3 * US), ranks)
    assert said in note


@pytest.mark.parametrize(
    ("send", "recv", "late", "start", "transfer", "waits"),
    [
        # The receive is posted later: the send waits for it.
        ((10, 100), (40, 100), 1, 40, 60, {0: 30, 1: 0}),
        ((40, 100), (10, 100), 0, 40, 60, {0: 0, 1: 30}),
        ((10, 100), (10, 100), 1, 10, 90, {0: 0, 1: 0}),
        # It woke after its step was over.
        ((10, 100), (40, 110), 1, 40, 60, {0: 30, 1: 0}),
        # It was over before the receive was there: nobody waited.
        ((10, 30), (40, 120), 1, 40, 20, {0: 0, 1: 0}),
    ],
)  # fmt: skip
def test_a_message_says_who_was_late_and_who_waited(
    send: tuple[int, int],
    recv: tuple[int, int],
    late: int,
    start: int,
    transfer: int,
    waits: dict[int, int],
) -> None:
    """Rank 1's clock is 5 ahead, and its step ends at 110 of its own."""
    trace = Trace.__new__(Trace)
    trace._shift = {0: 0, 1: -5}
    trace._parts = {
        rank: SimpleNamespace(  # type: ignore[misc]
            calls=SimpleNamespace(calls=[None, SimpleNamespace(start=begin, end=end)]),
            window=(0, 20) if rank == 0 else (0, 110),
        )
        for rank, (begin, end) in ((0, send), (1, (recv[0] + 5, recv[1] + 5)))
    }
    row = trace._message(Exchange((0, 1, 0), (1, 1, 0), 64, 7, "pp", (0, 1), "gloo"))
    assert (row.source, row.target, row.size, row.tag, row.group) == (0, 1, 64, 7, "pp")
    assert (row.late, row.start, row.transfer, dict(row.waits)) == (late, start, transfer, waits)
    assert row.in_step == (recv[1] <= 105)
