"""Facts of what trace files are made of: tracks, descriptions."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from commsim.export.rows import _distinct_rows, _spread

intervals = st.lists(st.tuples(st.integers(0, 50), st.integers(0, 20)), max_size=40)


@given(intervals)
def test_intervals_are_spread_over_as_few_rows_as_can_be(drawn: list[tuple[int, int]]) -> None:
    spans = sorted((begin, begin + length) for begin, length in drawn)
    rows = _spread([begin for begin, _ in spans], [end for _, end in spans])
    for row in set(rows):
        mine = [span for span, at in zip(spans, rows, strict=True) if at == row]
        assert all(b[0] >= a[1] for a, b in zip(mine, mine[1:], strict=False))
    busiest = max(
        (sum(b <= at < e or (b == at == e) for b, e in spans) for at, _ in spans), default=0
    )
    assert max(rows, default=-1) + 1 <= max(busiest, 1 if spans else 0)


@given(st.lists(st.tuples(st.integers(-1, 3), st.integers(0, 3)), max_size=30))
def test_rows_that_agree_share_a_number(drawn: list[tuple[int, int]]) -> None:
    columns = [np.array([row[i] for row in drawn], dtype=np.int64) for i in range(2)]
    first, which = _distinct_rows(columns)
    for at, row in enumerate(drawn):
        assert drawn[int(first[which[at]])] == row
        assert int(first[which[at]]) <= at
    assert len(first) == len(set(drawn))
