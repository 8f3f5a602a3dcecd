"""Who was late and how fast collectives were, of rows written by hand."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

import commsim as cs
from commsim.libraries import Ideal
from commsim.study.replay.analysis import (
    _predicted,
    busbw,
    busbw_table,
    collective_table,
    late,
    late_table,
    overlaps,
)
from commsim.traces import CollectiveRow, MessageRow
from commsim.traces.table import CollectiveTable

US = 10**6


def row(
    op: str = "all_reduce", size: int = 8000, transfer: int = 10, last: int = 1, *,
    waits: Any = None, **more: Any,
) -> CollectiveRow:  # fmt: skip
    waited = {0: 5, 1: 0} if waits is None else waits
    fixed: dict[str, Any] = {
        "op": op, "size": size, "transfer": transfer * US, "last_arriver": last, "group": "dp",
        "ranks": (0, 1), "dtype": "float32", "splits": {},
        "waits": {rank: wait * US for rank, wait in waited.items()},
    } | more  # fmt: skip
    return CollectiveRow(**fixed)


def trace(*rows: CollectiveRow, messages: tuple[MessageRow, ...] = ()) -> Any:
    return SimpleNamespace(collectives=CollectiveTable(rows), messages=messages)


def rank(number: int, waiting: float = 0.0, comm: float = 0.0, exposed: float = 0.0) -> Any:
    return SimpleNamespace(rank=number, waiting_s=waiting, comm_s=comm, exposed_transfer_s=exposed)


def test_who_was_last_and_by_how_much() -> None:
    """Rank 1 came last in two, by 5 and by 7 us (of three, the least wait), and in a message."""
    rows = (
        row(), row("all_gather", waits={0: 9, 1: 0, 2: 7}), row(last=0, waits={0: 0}),
        row(last=1, waits={0: 99, 1: 0}, in_step=False),
        row(last=0, waits={0: 0, 1: 3}, inferred=True),
    )  # fmt: skip
    moved = (
        MessageRow(0, 1, 8, 0, "", 0, 1, 1, {0: 4 * US, 1: 0}),
        MessageRow(0, 1, 8, 0, "", 0, 1, 1, {0: 0, 1: 0}),
        MessageRow(0, 1, 8, 0, "", 0, 1, 1, {0: 50 * US, 1: 0}, in_step=False),
    )
    measured: Any = SimpleNamespace(ranks=(rank(1, 2e-6, 8e-6, 2e-6), rank(0), rank(2)))
    one, other, third = late(trace(*rows, messages=moved), measured)
    assert (one["rank"], one["wait_s"], one["overlap"]) == (1, 2e-6, pytest.approx(0.75))
    assert (one["last_arrivals"], one["inferred"]) == (3, 0)
    assert one["made_others_wait_s"] == pytest.approx(25e-6)  # 5 + (9 + 7) + 4
    assert one["latest"] == {
        "op": "all_gather", "group": "dp", "bytes": 8000, "index": 1,
        "late_s": pytest.approx(7e-6),
    }  # fmt: skip
    assert (other["last_arrivals"], other["inferred"], other["overlap"]) == (1, 1, None)
    assert (third["last_arrivals"], third["latest"], third["made_others_wait_s"]) == (0, None, 0)
    table = late_table([one, other, third])
    assert table[1:] == [
        ("1", "2 us", "75%", "3 times", "25 us", "#1 all_gather", "7 us"),
        ("0", "0 s", "–", "1 times", "~3 us", "#3 all_reduce", "3 us"),
        ("2", "0 s", "–", "0 times", "0 s", "–", "–"),
    ]


def test_how_much_compute_hid_over_all_ranks() -> None:
    measured: Any = SimpleNamespace(ranks=(rank(0, 0, 6.0, 1.0), rank(1, 0, 2.0, 1.0)))
    assert overlaps(measured) == pytest.approx(0.75)
    nothing: Any = SimpleNamespace(ranks=(rank(0),))
    assert overlaps(nothing) is None


def test_bus_bandwidths_are_of_medians() -> None:
    """8000 bytes in 10 us are 0.8 GB/s, which two ranks' all-reduce has as busbw."""
    rows = [row(transfer=time) for time in (4, 10, 90)]
    more = [row("all_gather", 16000, 50), row("barrier"), row(size=0), row(alone=True), row("odd"),
            row("all_gather", 4000, 0)]  # fmt: skip
    found = busbw(trace(*rows, *more), None, None)
    assert [(one["op"], one["count"], one["bytes"]) for one in found] == [
        ("all_gather", 1, 16000), ("all_reduce", 3, 8000), ("all_gather", 1, 4000),
    ]  # fmt: skip
    assert found[1]["busbw_gbs"] == pytest.approx(0.8)
    assert found[0]["busbw_gbs"] == pytest.approx(0.16)  # half of its algbw of 0.32
    assert found[2]["busbw_gbs"] is None
    assert found[1]["transfer_s"] == pytest.approx(10e-6)
    assert (found[1]["ranks"], found[1]["expected_s"], found[1]["expected_busbw_gbs"]) == (
        2, None, None,
    )  # fmt: skip
    assert [one["bytes"] for one in busbw(trace(row(size=1)), None, None)] == [1]
    assert busbw_table(found)[0] == ("op", "ranks", "bytes", "count", "transfer", "busbw")
    assert busbw_table(found)[2] == ("all_reduce", "2", "7.812 KiB", "3", "10 us", "0.8 GB/s")
    assert busbw_table(found)[3][5] == "–"
    expected = [found[1] | {"expected_s": 5e-6}, found[0]]
    rows_told = busbw_table(expected)
    assert rows_told[0][6:] == ("predicted", "measured/predicted")
    assert [told[6:] for told in rows_told[1:]] == [("5 us", "2.00x"), ("–", "–")]


def test_collectives_that_took_longest_in_the_order_they_ran() -> None:
    """41 of which the shortest is left out; a wait counts as a transfer does."""
    rows = [row(transfer=20 + at) for at in range(41)]
    rows[7] = row(transfer=3, waits={0: 2, 1: 0}, inferred=True)
    rows[9] = row(transfer=3, waits={0: 0, 1: 200}, last=0, inferred=True, size=-1)
    rows[11] = row(transfer=500, waits={0: 0}, last=0)
    table = collective_table(trace(*rows))
    assert [int(line[0]) for line in table[1:-1]] == [at for at in range(41) if at != 7]
    assert table[-1] == ("and 1 more", *[""] * 7)
    assert table[1] == ("0", "all_reduce", "dp", "7.812 KiB", "20 us", "5 us", "0", "1")
    assert table[9] == ("9", "all_reduce", "dp", "unknown", "3 us", "~200 us", "1", "~0")
    assert table[11][5:] == ("unknown", "–", "unknown")
    assert len(collective_table(trace(*rows[:7]))) == 8
    empty = collective_table(trace(row(size=0), row(size=1)))
    assert [line[3] for line in empty[1:]] == ["0 B", "1 B"]


def test_what_a_library_takes_is_known_of_ranks_that_the_cluster_has() -> None:
    cluster = cs.Cluster.preset("dgx-h100")
    op, size, dtype = "all_reduce", 2**20, "float32"
    assert _predicted(op, (0, 7), size, dtype, cluster, Ideal())
    assert _predicted(op, (0, 8), size, dtype, cluster, Ideal()) is None
    assert _predicted(op, (0, 7), size, dtype, None, Ideal()) is None
    assert _predicted(op, (0, 7), size, dtype, cluster, None) is None


@pytest.mark.parametrize(("last", "planned"), [(7, True), (8, False)])
def test_ranks_that_a_cluster_does_not_have_are_not_planned(
    last: int, planned: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    from commsim.study.replay import analysis

    monkeypatch.setattr(analysis, "plan_of", lambda *_: SimpleNamespace(idle=5))
    cluster, library = cs.Cluster.preset("dgx-h100"), Ideal()
    found = _predicted("all_reduce", (0, last), 8, "float", cluster, library)
    assert found == (5 if planned else None)
    assert _predicted("all_reduce", (0, 1), 8, "float", None, library) is None
    assert _predicted("all_reduce", (0, 1), 8, "float", cluster, None) is None
