"""Entries of a flight recorder and the c10d ops that they were created in, on one clock."""

from __future__ import annotations

import pytest

from commsim.traces.formats import Event, EventKind, Issued, RankRecord
from commsim.traces.formats.event_args import NO_ARGS
from commsim.traces.rebuild.rank.gloo_groups import gloo_groups

ZERO, SLACK = 1_000_000, 20_000  # ns


def op(start: int, end: int) -> Event:
    return Event(EventKind.CPU_OP, "c10d::x", ("1", "1"), start * 1000, end * 1000, 0, -1, NO_ARGS)


def groups(ops: list[tuple[int, int]], *entries: tuple[int, str]) -> list[str]:
    calls = tuple(Issued("all_reduce", group=name, time=time) for time, name in entries)
    dump = RankRecord("x", "flight recorder", 0, 2, calls)
    return gloo_groups([op(*span) for span in ops], ZERO, dump)


@pytest.mark.parametrize(
    ("time", "found"),
    [
        (500_000 - SLACK - 1, ""), (500_000 - SLACK, "dp"), (600_000 + SLACK, "dp"),
        (600_000 + SLACK + 1, ""),
    ],
)  # fmt: skip
def test_an_entry_is_of_the_op_that_it_was_created_in(time: int, found: str) -> None:
    assert groups([(500_000, 600_000)], (ZERO + time, "dp more")) == [found]


def test_each_entry_is_of_one_op_in_order_of_time() -> None:
    ops = [(0, 10), (20, 30), (1_000_000, 1_000_010)]
    assert groups(ops, (ZERO + 25, "b"), (ZERO + 5, "a"), (ZERO + 1_000_005, "c")) == [
        "a", "b", "c",
    ]  # fmt: skip
    assert groups(ops, (ZERO + 5, "a"), (ZERO + 1_000_005, "c")) == ["a", "", "c"]
    assert groups(ops, (ZERO + 500_000, "lost"), (ZERO + 1_000_005, "c")) == ["", "", "c"]


def test_without_times_or_a_dump_no_group_is_known() -> None:
    assert groups([(0, 10)], (-1, "a")) == [""]
    assert gloo_groups([op(0, 10)], 0, None) == [""]
    one = RankRecord("x", "flight recorder", 0, 2, (Issued("all_reduce", group="a", time=0),))
    assert gloo_groups([op(0, 10)], 0, one) == ["a"]
