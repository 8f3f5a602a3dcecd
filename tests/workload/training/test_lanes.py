"""The items of an action as ops: what each waits for, beside what, and on which stream."""

from __future__ import annotations

from typing import Any

import pytest

from commsim.graph import Tags
from commsim.workload.training.lanes import RING, Chain, Lane
from commsim.workload.training.work_items import EXCHANGE, WorkItem

WORK = WorkItem(0, "work", 3, duration=10)
REDUCE = WorkItem(0, "reduce", 3, "all_reduce", axis="tp", size=64)
GATHER = WorkItem(0, "gather", 3, "all_gather", axis="tp", size=64, beside=True)
PASS = WorkItem(0, "pass", 3, EXCHANGE, axis="cp", size=32)


class Build:
    """Notes each op that is issued, with what it waits for; ops are counted from `first`."""

    def __init__(self, first: int = 0) -> None:
        self.first = first
        self.ops: list[dict[str, Any]] = []

    def _add(self, kind: str, how: dict[str, Any]) -> int:
        self.ops.append({"kind": kind, **how})
        return self.first + len(self.ops) - 1

    def orbit(self, axis: str, rank: int) -> str:
        return f"{axis} of {rank}"

    def compute(self, lane: int, duration: int, **how: Any) -> int:
        return self._add("compute", {"duration": duration, **how})

    def collective(self, lane: int, group: str, kind: str, size: int, **how: Any) -> int:
        return self._add(kind, {"group": group, "size": size, **how})

    def send(self, lane: int, peer: str, size: int, **how: Any) -> int:
        return self._add("send", {"peer": peer, "size": size, **how})

    def recv(self, lane: int, peer: str, size: int, **how: Any) -> int:
        return self._add("recv", {"peer": peer, "size": size, **how})


def chain(
    build: Build,
    *items: WorkItem,
    after: tuple[int, ...] = (),
    ends: tuple[int, ...] = (),
    skew: tuple[float, ...] = (),
    place: int = -1,
) -> Chain:
    given: Any = build
    lane = Lane(0, 5, 0, {}, {}, skew, place, list(ends))
    made = Chain(given, lane, Tags(stage=1), after=after, precision="bf16")
    for item in items:
        made.add(item)
    return made


def waits(build: Build) -> list[tuple[str, list[int]]]:
    return [(op["kind"], op["after"]) for op in build.ops]


@pytest.mark.parametrize("first", [0, 7])
def test_each_op_waits_for_the_one_before_unless_their_stream_does(first: int) -> None:
    build = Build(first)
    made = chain(build, WORK, WORK, REDUCE, REDUCE, WORK)
    assert waits(build) == [
        ("compute", []), ("compute", []), ("all_reduce", [first + 1]),
        ("all_reduce", [first + 2]), ("compute", [first + 3]),
    ]  # fmt: skip
    assert (made.last, made.on_compute, made.ends()) == (first + 4, True, [first + 4])
    alone = Build(first)
    assert not chain(alone, WORK, REDUCE).on_compute
    assert waits(alone)[1] == ("all_reduce", [first])


def test_the_first_op_waits_for_what_was_received_and_for_the_action_before() -> None:
    build = Build(9)
    made = chain(build, after=(4, 5), ends=(2, 3))
    made.wait([6])
    made.add(WORK)
    made.add(WORK)
    assert waits(build) == [("compute", [4, 5, 6]), ("compute", [])]
    collective = Build(9)
    chain(collective, REDUCE, after=(4, 5), ends=(2, 3))
    assert waits(collective) == [("all_reduce", [3, 4, 5])]
    assert chain(Build(), after=(4,)).ends() == [4]
    empty = chain(Build())
    assert (empty.last, empty.on_compute) == (-1, False)


def test_what_runs_beside_an_item_is_waited_for_where_it_is_joined() -> None:
    """Gather 1 runs beside work 2; the reduction waits for both, the work behind it for that."""
    build = Build()
    made = chain(build, WORK, GATHER, WORK, REDUCE._replace(joins=True), WORK)
    assert waits(build) == [
        ("compute", []), ("all_gather", [0]), ("compute", []), ("all_reduce", [2, 1]),
        ("compute", [3]),
    ]  # fmt: skip
    assert made.ends() == [4]


def test_what_runs_beside_and_is_not_joined_ends_with_the_action() -> None:
    build = Build()
    made = chain(build, WORK, GATHER, WORK, WORK)
    assert waits(build)[2:] == [("compute", []), ("compute", [])]
    assert made.ends() == [3, 1]
    last = Build()
    assert chain(last, WORK, GATHER).ends() == [0, 1]


def test_two_beside_each_other_both_start_behind_the_item_before() -> None:
    build = Build()
    chain(build, WORK, GATHER, GATHER, WORK, WORK._replace(joins=True))
    assert waits(build) == [
        ("compute", []), ("all_gather", [0]), ("all_gather", [0]), ("compute", []),
        ("compute", [1, 2]),
    ]  # fmt: skip


def test_a_ring_passes_on_what_came_in_the_step_before() -> None:
    build = Build()
    made = chain(build, WORK, PASS, PASS, WORK)
    assert waits(build) == [
        ("compute", []), ("send", [0]), ("recv", [0]), ("send", [2, 2]), ("recv", [2]),
        ("compute", [4]),
    ]  # fmt: skip
    sent, came = build.ops[1:3]
    assert (sent["peer"], sent["stream"], sent["size"]) == (RING, "cp send", 32)
    assert (came["peer"], came["stream"], came["group"]) == (RING, "cp recv", "cp of 5")
    assert made.ends() == [5]


def test_a_ring_whose_first_block_came_as_op_0_passes_it_on() -> None:
    build = Build(-1)
    chain(build, PASS, PASS)
    assert waits(build) == [("send", []), ("recv", []), ("send", [0, 0]), ("recv", [0])]


def test_ops_carry_what_their_item_says() -> None:
    build = Build()
    chain(build, WORK._replace(flops=3.0, traffic=4.0, alloc=5, free=6), REDUCE)
    work, reduce = build.ops
    assert [work[name] for name in ("duration", "name", "flops", "traffic", "alloc", "free")] == [
        10, "work", 3.0, 4.0, 5, 6,
    ]  # fmt: skip
    assert [reduce[name] for name in ("group", "size", "stream", "name", "dtype", "splits")] == [
        "tp of 5", 64, "tp", "reduce", "bf16", None,
    ]  # fmt: skip
    assert work["tags"] == reduce["tags"] == Tags(stage=1, layer=3)


@pytest.mark.parametrize(
    ("kind", "place", "splits"),
    [
        ("to_skewed", 0, (60, 20, 20)),
        ("to_skewed", 2, (60, 20, 20)),
        ("from_skewed", 0, (60, 60, 60)),
        ("from_skewed", 1, (20, 20, 20)),
    ],
)
def test_tokens_go_by_the_share_of_each_expert_and_come_back_by_the_own(
    kind: str, place: int, splits: tuple[int, ...]
) -> None:
    build = Build()
    item = WorkItem(0, "tokens", 3, kind, axis="ep", size=100)
    chain(build, item, skew=(0.6, 0.2, 0.2), place=place)
    (op,) = build.ops
    assert (op["kind"], op["size"], op["splits"]) == ("all_to_all_v", sum(splits), splits)
    even = Build()
    chain(even, item._replace(kind="all_to_all"), skew=(0.6, 0.2, 0.2), place=place)
    assert (even.ops[0]["kind"], even.ops[0]["size"]) == ("all_to_all", 100)
