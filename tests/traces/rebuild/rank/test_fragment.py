"""What ops of a rank wait for, and what released each: GPU work, pieces, messages of a kernel."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from commsim.traces.rebuild.rank.fragment import _tie_gpu, _tie_pieces, _window
from commsim.traces.rebuild.rank.fragment_rows import FragmentRows
from commsim.traces.rebuild.rank.threads import Pieces

MAIN, OTHER = ("1", "1"), ("1", "2")


def pieces(*spans: tuple[int, int], gpu: Any = None, after: Any = None) -> Pieces:
    starts, ends = (np.array(column) for column in zip(*spans, strict=True))
    none = np.zeros(len(spans), np.int64)
    return Pieces(starts, ends, none, none, ("x",), gpu or {}, after or {})


def rows(place: list[int], first: list[int], counts: list[int], **threads: Any) -> FragmentRows:
    columns = (np.array(column) for column in (place, first, counts))
    found = {MAIN: threads.get("main", (0, 0)), OTHER: threads.get("other", (0, 0))}
    of_place, of_first, of_counts = columns
    return FragmentRows({}, (), (), of_place, found, of_first, of_counts)


def test_all_messages_of_a_kernel_wait_and_hold_what_waits_for_it() -> None:
    """Pieces 0 and 1 stand at 0 and 2; work 0 at 1, work 1 (two messages) at 3, 4, work 2 at 5.

    Work 0 waits for piece 0, work 1 for work 0 and for piece 1, which released it, and work 2 for
    work 1.
    """
    made = rows([0, 2, 1, 3, 4, 5], [2, 3, 5, 1, 0], [1, 2, 1, 1, 1])
    tied: Any = SimpleNamespace(
        op=np.array([0, 1, 1, 2]), source=np.array([-1, 0, -2, 1]),
        delay=np.array([5, 6, 7, 8]), binding=np.array([0, 2, 3]),
    )  # fmt: skip
    cause = np.full(6, -1)
    op, source, delay = _tie_gpu(made, tied, cause)
    assert list(zip(op.tolist(), source.tolist(), delay.tolist(), strict=True)) == [
        (1, 0, 5), (3, 1, 6), (4, 1, 6), (3, 2, 7), (4, 2, 7), (5, 3, 8), (5, 4, 8),
    ]  # fmt: skip
    assert cause.tolist() == [-1, 0, -1, 2, 2, 4]


def test_without_gpu_work_nothing_is_tied() -> None:
    none = np.zeros(0, np.int64)
    tied: Any = SimpleNamespace(op=none, source=none, delay=none, binding=none)
    cause = np.full(2, -1)
    op, source, delay = _tie_gpu(rows([0, 1], [1, 0], [1, 1]), tied, cause)
    assert (op.tolist(), source.tolist(), delay.tolist()) == ([], [], [])
    assert cause.tolist() == [-1, -1]


def test_a_piece_waits_for_gpu_work_and_for_other_threads_and_the_last_released_it() -> None:
    """Main: pieces to 10, 30 and 50, at 0, 1, 2; the other thread: 0 to 20 and 25 to 45, at 3, 4.

    GPU work 0 ends at 28, at 5. Main's second piece waits for it, and ended later than the first
    piece; main's third waits for the other thread up to 24: for its first piece, which ended
    sooner than its own one before.
    """
    work: Any = SimpleNamespace(
        activity=SimpleNamespace(gpu=SimpleNamespace(ends=[28])),
        pieces={
            MAIN: pieces(
                (0, 10), (28, 30), (40, 50), gpu={0: [], 1: [0]}, after={2: [(OTHER, 24)]}
            ),
            OTHER: pieces((0, 20), (25, 45)),
        },
    )
    made = rows([0, 1, 2, 3, 4, 5], [5, 4, 3, 2, 1, 0], [1] * 6, main=(0, 3), other=(3, 5))
    cause = np.full(6, -1)
    op, source, delay = _tie_pieces(work, made, cause)
    assert list(zip(op.tolist(), source.tolist(), strict=True)) == [(1, 5), (2, 3)]
    assert delay.tolist() == [0, 0]
    assert cause.tolist() == [-1, 5, 1, -1, 3, -1]


@pytest.mark.parametrize(
    ("step", "window"),
    [
        (None, (4, 6)), ((0, 50), (4, 6)), ((20, 30), (5, 5)), ((20, 50), (5, 6)),
        ((0, 30), (4, 5)), ((1, 50), (5, 6)), ((0, 29), (4, 4)), ((12, 13), (-1, -1)),
    ],
)  # fmt: skip
def test_the_window_is_the_pieces_within_the_step(
    step: tuple[int, int] | None, window: tuple[int, int]
) -> None:
    marked = SimpleNamespace(start=step[0], end=step[1]) if step else None
    work: Any = SimpleNamespace(
        activity=SimpleNamespace(main=MAIN, step=marked),
        pieces={OTHER: pieces((0, 99)), MAIN: pieces((0, 10), (20, 30), (40, 50))},
    )
    made = rows([7, 4, 5, 6], [0], [1], other=(0, 1), main=(1, 4))
    assert _window(work, made) == window
