"""The table of a run's collectives, as it prints."""

from __future__ import annotations

from typing import Any

from commsim.traces.table import CollectiveRow, CollectiveTable, ends_in

US = 1_000_000


def row(**more: Any) -> CollectiveRow:
    given: dict[str, Any] = {
        "op": "all_reduce", "group": "dp", "ranks": (0, 1, 2), "size": 1024, "dtype": "float32",
        "splits": {}, "transfer": 40 * US, "last_arriver": 1, "waits": {0: 3 * US, 1: 0, 2: 5 * US},
    }  # fmt: skip
    return CollectiveRow(**(given | more))


def test_a_table_has_sizes_times_and_who_waited_longest() -> None:
    table = CollectiveTable((row(), row(size=0, dtype="", waits={0: 2 * US, 1: 0}), row(size=-1)))
    assert str(table).splitlines() == [
        "op          group  bytes    type     transfer  last    wait: median  longest",
        "all_reduce  dp     1 KiB    float32  40 us     rank 1  3 us          5 us (rank 2)",
        "all_reduce  dp     0 B      unknown  40 us     rank 1  2 us          2 us (rank 0)",
        "all_reduce  dp     unknown  float32  40 us     rank 1  3 us          5 us (rank 2)",
    ]
    assert repr(table) == "CollectiveTable(3 collectives, transfer 120 us in all)"
    assert str(CollectiveTable(())).split() == [
        "op", "group", "bytes", "type", "transfer", "last", "wait:", "median", "longest",
    ]  # fmt: skip


def test_a_table_is_a_sequence_and_has_those_of_the_step() -> None:
    inside, outside = row(), row(in_step=False)
    table = CollectiveTable((inside, outside, inside))
    assert (len(table), table[1], list(table)) == (3, outside, [inside, outside, inside])
    assert table.of_step().rows == (inside, inside)
    assert (inside.in_step, inside.inferred, inside.alone) == (True, False, False)


def test_the_end_of_any_rank_may_lie_in_its_step() -> None:
    windows = {0: (10, 20), 1: (30, 40)}
    assert [ends_in(windows, {0: end}) for end in (9, 10, 20, 21)] == [False, True, True, False]
    assert ends_in(windows, {0: 9, 1: 30})
    assert not ends_in(windows, {0: 30, 1: 20})
