"""What the timeline draws together, and what it does not."""

from __future__ import annotations

import numpy as np
import pytest

from commsim.charts.gantt.scene import Boxes, _longer_before


@pytest.mark.parametrize("unit", [1, 2**58])
def test_longer_boxes_of_the_same_row_are_counted(unit: int) -> None:
    """Of twenty rows of weeks the picoseconds together are more than 64 bits hold."""
    rows = np.arange(20)

    def boxes(row: np.ndarray, start: np.ndarray) -> Boxes:
        none = np.zeros(len(row), np.int64)
        return Boxes(row, none, none.astype(bool), start * unit, start * unit + 1, none, none)

    long = boxes(np.repeat(rows, 3), np.tile([1, 5, 9], 20))
    few = boxes(np.repeat(rows, 2), np.tile([3, 12], 20))
    assert _longer_before(few, long).tolist() == [1, 3] * 20
