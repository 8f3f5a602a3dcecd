"""Distinct values, and distinct columns of a table, as numpy finds them."""

from __future__ import annotations

import numpy as np
import pytest

from commsim.arrays import distinct, distinct_columns


@pytest.mark.parametrize("far", [False, True], ids=["near", "far apart"])
@pytest.mark.parametrize("seed", range(20))
def test_distinct_columns_are_numpys(seed: int, far: bool) -> None:
    rng = np.random.default_rng(seed)
    table = rng.integers(-2, 3, (int(rng.integers(1, 5)), int(rng.integers(1, 60))))
    if far:  # of three values a row, so that columns are equal, but no two rows fit in 64 bits
        table = np.array([-(2**62), 0, 2**62 - seed])[table % 3]
    unique, first, where = np.unique(table, axis=1, return_index=True, return_inverse=True)
    ours, number = distinct_columns(table)
    assert ours.tolist() == first.tolist()
    assert number.tolist() == where.reshape(-1).tolist()
    assert (table[:, ours] == unique).all()


def test_no_columns() -> None:
    first, number = distinct_columns(np.zeros((3, 0), np.int64))
    assert len(first) == len(number) == 0


@pytest.mark.parametrize("dtype", ["int64", "int32", "uint8", "float64"])
def test_distinct_values_are_numpys(dtype: str) -> None:
    rng = np.random.default_rng(3)
    for size in ((0,), (1,), (50,), (7, 9)):
        values = rng.integers(0, 20, size).astype(dtype)
        before = values.copy()
        assert distinct(values).tolist() == np.unique(values).tolist()
        assert distinct(values).dtype == values.dtype
        assert (values == before).all()
