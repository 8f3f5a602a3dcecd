"""Typical latencies of launches, streams and waits, and which cause came last."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from commsim.traces.rebuild.rank.causes import (
    LONG,
    _first_of_each,
    _last_of_each,
    _main,
    _typical,
    launch_pieces,
)
from commsim.traces.rebuild.rank.threads import Pieces

LAUNCH, STREAM, SYNC, LEFT = range(4)
US = 1_000_000


def typical(*rows: tuple[int, int, int], starts: list[int]) -> list[int]:
    """Return what each kind takes; rows are (op, kind, when the cause ended), by op."""
    op, kind, ended = (np.array(column) for column in zip(*rows, strict=True))
    found: list[int] = _typical(np.array(starts), op, ended, kind, _first_of_each(op)).tolist()
    return found


def test_the_middle_of_those_that_a_kind_alone_released() -> None:
    """Ops start 1, 3 and 9 us after their launches, the fourth 2 us after its stream."""
    rows = [(op, LAUNCH, 10 * US) for op in range(3)]
    rows += [(3, LAUNCH, 10 * US), (3, STREAM, 20 * US)]
    starts = [11 * US, 13 * US, 19 * US, 22 * US]
    assert typical(*rows, starts=starts) == [3 * US, 2 * US, US, 0]


def test_what_no_op_shows_is_as_usual() -> None:
    """A launch takes 5 us, a stream and a wait one: none here lasted as long as 0 to 100 us."""
    usual = [5 * US, US, US, 0]
    assert typical((0, LAUNCH, 10), starts=[9]) == usual
    assert typical((0, LAUNCH, 10), starts=[10 + LONG + 1]) == usual
    assert typical((0, LAUNCH, 10), starts=[10 + LONG]) == [LONG, US, US, 0]
    assert typical((0, LAUNCH, 10), starts=[10]) == [0, US, US, 0]
    assert typical((0, SYNC, 10), starts=[17]) == [5 * US, US, 7, 0]
    assert typical((0, LEFT, 10), starts=[17]) == [5 * US, US, US, 7]
    assert LONG == 100 * US


def test_the_first_of_the_latest_rows_of_each_op() -> None:
    op, times = np.array([0, 0, 0, 1, 2, 2]), np.array([5, 9, 9, 1, 4, 3])
    first = _first_of_each(op)
    assert first.tolist() == [0, 3, 4]
    assert _last_of_each(times, op, first).tolist() == [1, 3, 4]
    none = np.zeros(0, np.int64)
    assert _last_of_each(none, none, _first_of_each(none)).tolist() == []


class Launched:
    """GPU work: the number of the thread that launched each piece (-1: not recorded), and when."""

    def __init__(self, threads: list[int], *launches: tuple[int, int]) -> None:
        thread, launched = zip(*launches, strict=True)
        self.threads, self.thread, self.launched = threads, np.array(thread), np.array(launched)

    def __len__(self) -> int:
        return len(self.thread)


def pieces(*ends: int) -> Pieces:
    until = np.array(ends)
    none = np.zeros(len(ends), np.int64)
    return Pieces(until - 1, until, none, none, ("x",), {}, {})


@pytest.mark.parametrize(("main", "first"), [(7, 0), (8, 2), (9, 5)])
def test_pieces_are_counted_through_all_threads(main: int, first: int) -> None:
    """Threads 7, 8 and 9 have 2, 3 and 1 pieces; a launch is of the last one that had ended."""
    launches = ((0, 10), (0, 19), (0, 20), (1, 5), (1, 30), (-1, 30), (2, 99))
    work: Any = SimpleNamespace(
        activity=SimpleNamespace(main=main, gpu=Launched([7, 8, 9], *launches)),
        pieces={7: pieces(10, 20), 8: pieces(10, 20, 30), 9: pieces(10)},
    )
    assert launch_pieces(work).tolist() == [0, 0, 1, 2, 4, -1, 5]
    assert _main(work) == first
