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


@pytest.mark.parametrize(
    ("channels", "expected"),
    [
        (0, Cut(0, 0, 0, 0)),
        (1, Cut(1, 10, 0, 0)),
        (2, Cut(2, 5, 0, 5)),
        (3, Cut(3, 4, 3, 3)),
        (4, Cut(4, 4, 2, 2)),
        (12, Cut(10, 1, 1, 1)),
    ],
)
def test_turns_leave_what_is_over_to_the_first(channels: int, expected: Cut) -> None:
    assert interleaved(10, channels) == expected


@pytest.mark.parametrize(
    ("version", "cell"),
    # a cell is what has the least traffic of a channel, 16 KiB or 32 KiB, at 2 bytes for each
    [("2.27", 8192), ("2.30", 16384)],
)
@pytest.mark.parametrize(
    ("count", "most", "expected"),
    [
        # full cells on every channel
        ((4, 0), 4, [(1, 0), (1, 0), (1, 0)]),
        ((12, 0), 4, [(3, 0), (3, 0), (3, 0)]),
        # three channels of two cells, and one of what is left: a cell and a byte
        ((7, 1), 4, [(2, 0), (2, 0), (1, 1)]),
        # one cell more than the channels have: the last takes it,
        ((12, 1), 4, [(3, 0), (3, 0), (3, 1)]),
        ((5, 1), 5, [(1, 0), (1, 0), (1, 1)]),
        ((3, 1), 3, [(1, 0), (1, 0), (1, 1)]),
        # of two channels each has half a byte more than a cell, so two cells are the first's share
        ((2, 1), 2, [(2, 0), (0, 0), (0, 1)]),
        ((2, 1), 1, [(2, 1), (0, 0), (0, 0)]),
    ],
)
def test_cells_by_hand(
    version: str,
    cell: int,
    count: tuple[int, int],
    most: int,
    expected: list[tuple[int, int]],
) -> None:
    elements = count[0] * cell + count[1]
    laid = cut(
        elements, 1, traffic_per_byte=2, ll=False, most=most, total=most, tables=tables_of(version)
    )
    assert [laid.lo, laid.mid, laid.hi] == [cells * cell + over for cells, over in expected]


def test_two_channels_have_none_between_them() -> None:
    laid = cut(
        2 * 16384 + 1, 1,
        traffic_per_byte=1, ll=False, most=2, total=2, tables=tables_of("2.27"),
    )  # fmt: skip
    assert laid == Cut(2, 16384, 0, 16385)


def test_ll_counts_four_times_and_elements_are_whole() -> None:
    tables = tables_of("2.27")
    # 16 KiB of traffic: 8 KiB twice, or 2 KiB twice four times; elements of four bytes
    simple = cut(4096, 4, traffic_per_byte=2, ll=False, most=16, total=16, tables=tables)
    assert simple == Cut(2, 2048, 0, 2048)
    ll = cut(4096, 4, traffic_per_byte=2, ll=True, most=16, total=16, tables=tables)
    assert ll == Cut(8, 512, 512, 512)
    assert ll.typical == 512
    # 16384 / 3 bytes, up to a multiple of 16: 5472
    odd = cut(4096, 4, traffic_per_byte=3, ll=False, most=16, total=16, tables=tables)
    assert odd == Cut(3, 1368, 1368, 4096 - 2 * 1368)


def test_nothing_is_laid_nowhere() -> None:
    for version in ("2.18", "2.30"):
        laid = cut(0, 4, traffic_per_byte=2, ll=True, most=8, total=8, tables=tables_of(version))
        assert laid == Cut(0, 0, 0, 0)
