"""Ops of two ranks in one set of columns: ids, names, streams and times in common."""

from __future__ import annotations

from typing import Any

import numpy as np

from commsim.traces.rebuild.joined_ops import RankFragment, join_fragments
from commsim.traces.rebuild.rank import Fragment


def fragment(names: tuple[str, ...], streams: tuple[str, ...], **columns: Any) -> Fragment:
    """Three ops: the second waits for the first, the third is part 0 of call 5."""
    given: dict[str, Any] = {
        "kind": [0, 0, 1], "stream": [0, 0, 1], "name": [0, 1, 1], "duration": [1, 2, 3],
        "device": [0, 0, 1], "phase": [0, 0, 0], "batch": [-1, 0, 1], "item": [-1, -1, 5],
        "message": [-1, -1, 0], "start": [10, 20, 30], "end": [15, 25, 35], "cause": [-1, 0, 1],
        "dep_ptr": [0, 0, 1, 1], "dep_op": [0], "dep_delay": [4],
    }  # fmt: skip
    arrays = {name: np.array(values) for name, values in (given | columns).items()}
    return Fragment(
        **arrays, names=names, streams=streams, window=(0, 2), begin=10, held=0, held_ops=0,
        queued_ops=0, left_over=0,
    )  # fmt: skip


def test_ids_of_the_second_rank_follow_those_of_the_first() -> None:
    ranks = [
        RankFragment(4, fragment(("a", "b"), ("cpu", "gpu")), 100),
        RankFragment(6, fragment(("b", "c"), ("gpu", "cpu")), 0),
    ]
    ops = join_fragments(ranks, 10)
    assert (ops.names, ops.streams) == (("a", "b", "c"), ("cpu", "gpu"))
    assert ops.name.tolist() == [0, 1, 1, 1, 2, 2]
    assert ops.stream.tolist() == [0, 0, 1, 1, 1, 0]
    assert ops.lane.tolist() == [0, 0, 0, 1, 1, 1]
    assert ops.rank.tolist() == [4, 4, 4, 6, 6, 6]
    assert ops.start.tolist() == [100, 110, 120, 0, 10, 20]
    assert ops.end.tolist() == [105, 115, 125, 5, 15, 25]
    assert ops.cause.tolist() == [-1, 0, 1, -1, 3, 4]
    assert ops.batch.tolist() == [-1, 0, 1, -1, 3, 4]
    assert ops.counts.tolist() == [0, 1, 0, 0, 1, 0]
    assert (ops.dep_op.tolist(), ops.dep_delay.tolist()) == ([0, 3], [4, 4])
    assert ops.call.tolist() == [-1, -1, 5, -1, -1, 5]
    assert ops.op_of == {(4, 5, 0): 2, (6, 5, 0): 5}
    for column in (ops.item, ops.size, ops.last):
        assert column.tolist() == [-1] * 6


def test_the_first_call_of_a_rank_is_a_call() -> None:
    ops = join_fragments([RankFragment(0, fragment(("a", "b"), ("s", "t"), item=[0, -1, 1]), 0)], 0)
    assert ops.op_of == {(0, 0, -1): 0, (0, 1, 0): 2}
