"""How the data lies on the channels."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from commsim.libraries.nccl.tuning.partition import Cut, cut, interleaved
from commsim.libraries.nccl.tuning.tables import tables_of

CASE = {
    "count": st.integers(1, 1 << 33),
    "element": st.sampled_from([1, 2, 4, 8]),
    "weight": st.sampled_from([1, 2, 8, 64, 4096]),
    "ll": st.booleans(),
    "most": st.integers(1, 64),
    "spare": st.integers(0, 8),
    "version": st.sampled_from(["2.18", "2.22", "2.27", "2.30"]),
}


@given(**CASE)
def test_every_element_lies_somewhere(
    count: int, element: int, weight: int, ll: bool, most: int, spare: int, version: str
) -> None:
    tables = tables_of(version)
    laid = cut(
        count, element, traffic_per_byte=weight, ll=ll, most=most, total=most + spare, tables=tables
    )
    between = max(0, laid.channels - 2)
    held = laid.lo + laid.mid * between + laid.hi
    assert held == count
    assert 1 <= laid.channels <= most + spare
    assert laid.lo > 0
    assert (laid.hi > 0) == (laid.channels > 1)
    assert (laid.mid > 0) == (laid.channels > 2)


def test_small_data_stays_on_one_channel() -> None:
    laid = cut(1024, 4, traffic_per_byte=2, ll=False, most=16, total=16, tables=tables_of("2.30"))
    assert (laid.channels, laid.lo, laid.mid, laid.hi) == (1, 1024, 0, 0)
    assert laid.typical == 1024


@pytest.mark.parametrize(("version", "channels"), [("2.27", 8), ("2.30", 4)])
def test_the_least_of_a_channel_doubled(version: str, channels: int) -> None:
    laid = cut(
        1 << 14, 4, traffic_per_byte=2, ll=False, most=16, total=16, tables=tables_of(version)
    )
    assert laid.channels == channels


def test_nothing_needs_no_channel() -> None:
    assert interleaved(0, 8) == Cut(0, 0, 0, 0)
    laid = cut(0, 4, traffic_per_byte=2, ll=False, most=16, total=16, tables=tables_of("2.30"))
    assert laid.channels == 0
