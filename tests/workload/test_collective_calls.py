"""What one call of a collective means, and every way in which it can be wrong."""

from __future__ import annotations

from typing import Any

import pytest

from commsim.errors import ScenarioError
from commsim.ops import COLLECTIVES, ROOTED
from commsim.workload import build_collectives
from commsim.workload.calls import Coalesced, ObjectCall, ProgramCollective
from commsim.workload.collective_calls import (
    Meaning,
    check_call,
    coalesced,
    meaning,
    object_meanings,
)
from commsim.workload.collectives import CollectiveSection

RANKS = (4, 6, 8)


def meant(word: str, **settings: Any) -> Meaning:
    return meaning(word, ProgramCollective(**settings), RANKS, "x")


def refused(word: str, **settings: Any) -> str:
    with pytest.raises(ScenarioError) as caught:
        meant(word, **settings)
    return str(caught.value)


def test_a_call_has_bytes_and_the_global_rank_of_its_root() -> None:
    assert meant("all_gather_into_tensor", bytes=8) == Meaning("all_gather", 8)
    assert meant("barrier") == Meaning("barrier", 0)
    assert meant("broadcast", bytes=8, src=6).root == 6
    assert [meant("broadcast", bytes=8, group_src=at).root for at in (0, 1, 2)] == [4, 6, 8]
    assert meant("reduce", bytes=8, dst=4, op="max") == Meaning("reduce", 8, 4, redop="max")
    found = meant("all_reduce", bytes=8, dtype="float32", device="cpu")
    assert (found.dtype, found.device, found.root, found.splits) == ("float32", "cpu", -1, None)


def test_splits_make_an_exchange_uneven() -> None:
    uneven = Meaning("all_to_all_v", 6, splits=(1, 2, 3))
    assert meant("all_to_all_single", splits=(1, 2, 3)) == uneven
    assert meant("all_to_all_single", splits=(1, 2, 3), bytes=6) == uneven
    assert meant("all_to_all_v", splits=(1, 2, 3)) == uneven
    both = meant("all_to_all", splits=(1, 2, 3), output_splits=(4, 0, 0))
    assert both.output_splits == (4, 0, 0)
    assert meant("all_to_all", bytes=6) == Meaning("all_to_all", 6)


@pytest.mark.parametrize(
    ("word", "settings", "told"),
    [
        ("broadcast", {"bytes": 8}, "x: broadcast needs a root: the global rank of"),
        ("broadcast", {"bytes": 8, "dst": 4}, "x.dst: broadcast has no dst. It has src or group_src"
         " or root."),
        ("all_reduce", {"bytes": 8, "root": 4}, "x.root: all_reduce has no root. Leave it out."),
        ("reduce", {"bytes": 8, "dst": 4, "root": 4}, "x: root and dst say the same. Give one of"
         " them."),
        ("broadcast", {"bytes": 8, "src": 5}, "x.src: rank 5 is not in the group [4, 6, 8]."),
        ("broadcast", {"bytes": 8, "group_src": 3}, "x.group_src: 3: the group has 3 members, 0 to"
         " 2."),
        ("broadcast", {"bytes": 8, "group_src": -1}, "x.group_src: -1: the group has 3 members"),
        ("all_reduce", {}, "x: the setting 'bytes' is missing, like bytes: 64MiB."),
        ("barrier", {"bytes": 0}, "x.bytes: barrier moves no bytes. Leave it out."),
        ("all_to_all_v", {"bytes": 6}, "x: all_to_all_v needs splits: the bytes from each member"),
        ("all_to_all_v", {"bytes": 6, "splits": (1, 2, 3)}, "x.bytes: all_to_all_v takes its bytes"
         " from splits."),
        ("all_gather", {"bytes": 6, "splits": (1, 2, 3)}, "x.splits: all_gather has no splits;"
         " all_to_all_v has."),
        ("all_to_all", {"bytes": 7, "splits": (1, 2, 3)}, "x.splits: they sum to 6 bytes, bytes"
         " says 7. Make them agree"),
        ("all_to_all", {"splits": (1, 2)}, "x.splits: 2 sizes for the 3 members of group 'world'."),
        ("all_to_all", {"splits": (1, 2, 3), "output_splits": (1, 2, 3, 4)}, "x.output_splits: 4"
         " sizes for the 3 members"),
        ("all_to_all", {"bytes": 6, "output_splits": (1, 2, 3)}, "x.output_splits: go with splits"),
        ("all_gather", {"bytes": 6, "op": "sum"}, "x.op: all_gather reduces nothing."),
        ("all_reduce", {"bytes": 6, "op": "summ"}, "x.op: no reduce op 'summ'. Did you mean 'sum'"),
        ("all_reduce", {"bytes": 6, "dtype": "float32"}, "x.bytes: 6 bytes are no whole number of"
         " float32, which has 4 bytes."),
        ("all_to_all", {"splits": (1, 2, 3), "dtype": "float32"}, "x.bytes: 6 bytes are no whole"),
        ("all_reduce", {"bytes": 6, "dtype": "float23"}, "x.dtype: unknown type 'float23'."),
    ],
)  # fmt: skip
def test_what_is_wrong_is_named_with_its_field(
    word: str, settings: dict[str, Any], told: str
) -> None:
    assert refused(word, **settings).startswith(told)


@pytest.mark.parametrize("op", list(COLLECTIVES))
def test_every_collective_needs_what_it_has_and_no_more(op: str) -> None:
    """A root where there is one, splits where they are uneven, and bytes where some move."""
    needs: dict[str, Any] = {
        "size": None if op in ("barrier", "all_to_all_v") else 8,
        "root": 4 if op in ROOTED else None,
        "has_splits": op == "all_to_all_v",
    }  # fmt: skip
    others: dict[str, Any] = {
        "size": 8 if needs["size"] is None else None, "root": None if op in ROOTED else 4,
        "has_splits": not needs["has_splits"],
    }  # fmt: skip
    check_call(op, **needs, ranks=RANKS, where="x")
    for field, value in others.items():
        with pytest.raises(ScenarioError):
            check_call(op, **needs | {field: value}, ranks=RANKS, where="x")


def test_pickled_objects_are_sent_behind_their_sizes_of_8_bytes() -> None:
    """torch/distributed/distributed_c10d.py: sizes as int64 first, then padded to the largest."""

    def steps(word: str, **more: Any) -> list[tuple[str, int, int]]:
        found = object_meanings(word, ObjectCall(**{"bytes": 100} | more), RANKS, "x")
        return [(one.op, one.size, one.root) for one in found]

    assert steps("all_gather_object") == [("all_gather", 24, -1), ("all_gather", 300, -1)]
    assert steps("gather_object", dst=6) == [("all_gather", 24, -1), ("gather", 300, 6)]
    assert steps("broadcast_object_list", src=6) == [("broadcast", 8, 6), ("broadcast", 100, 6)]
    assert steps("scatter_object_list", group_src=0) == [
        ("broadcast", 8, 4), ("scatter", 300, 4), ("scatter", 24, 4),
    ]  # fmt: skip
    with pytest.raises(
        ScenarioError, match=r"x: gather_object needs a dst: the global rank of one"
    ):
        steps("gather_object")


def test_coalesced_calls_are_one_of_their_bytes_together() -> None:
    def one(word: str, *calls: dict[str, Any]) -> Meaning:
        made = tuple(ProgramCollective(**call) for call in calls)
        return coalesced(Coalesced(word, made, None, False), RANKS, "x")

    assert one("all_reduce", {"bytes": 8}, {"bytes": 4}) == Meaning("all_reduce", 12)
    for calls, told in (
        (({"bytes": 8}, {"bytes": 8, "op": "max"}), r"x.calls\.1: differs from the first call"),
        (({"bytes": 8}, {"bytes": 8, "group": "g"}), "x: the calls name several groups"),
        (({"bytes": 8}, {"bytes": 8, "device": "cpu"}), r"x.calls\.1: differs from the first"),
    ):
        with pytest.raises(ScenarioError, match=told):
            one("all_reduce", *calls)
    with pytest.raises(ScenarioError, match=r"x.calls\.0: calls with splits are not coalesced"):
        one("all_to_all", {"splits": (1, 2, 3)})


def section(**settings: Any) -> CollectiveSection:
    return CollectiveSection(**{"op": "all_reduce"} | settings)


def test_collectives_start_each_in_a_group_of_its_own() -> None:
    build = build_collectives(
        [
            section(op="all_reduce", bytes=8, group=(0, 2), dtype="float32", redop="max"),
            section(op="all_to_all_v", splits=((1, 2), (3, 4)), group=(2, 1)),
            section(op="barrier", group=(1,), device="cpu"),
            section(op="broadcast", bytes=8, root=2, group=(1, 2)),
        ]
    ).graph
    table = build.collectives
    assert build.lane_rank.tolist() == [0, 1, 2]
    assert table.size.tolist() == [8, 7, 0, 8]  # of 3 and 7 the largest sum
    assert table.root.tolist() == [-1, -1, -1, 2]
    assert [group.ranks for group in build.groups] == [(0, 2), (2, 1), (1,), (1, 2)]
    assert [build.streams[at] for at in build.stream.tolist()] == [
        name for name, count in (("all_reduce 0", 2), ("all_to_all_v 1", 2), ("barrier 2", 1),
                                 ("broadcast 3", 2)) for _ in range(count)
    ]  # fmt: skip
    assert (build.dep_op.size, table.splits[1]) == (0, ((1, 2), (3, 4)))


@pytest.mark.parametrize(
    ("call", "told"),
    [
        ({"bytes": 8, "group": (0, 4)}, "c.0.group: no rank 4: there are 4 ranks."),
        ({"bytes": 8, "group": (0, -1)}, "c.0.group: no rank -1: there are 4 ranks."),
        ({"bytes": 8, "group": ()}, "c.0.group: give at least one rank, and each only once."),
        ({"bytes": 8, "group": (1, 1)}, "c.0.group: give at least one rank, and each only once."),
        ({"op": "all_to_all_v", "splits": ((1, 2),), "group": (0, 1)}, "c.0.splits: give 2 rows"),
        ({"op": "all_to_all_v", "splits": ((1,), (2,)), "group": (0, 1)}, "c.0.splits: give 2"),
        ({"op": "all_gather", "bytes": 8, "redop": "sum"}, "c.0.redop: all_gather reduces"),
        ({"bytes": 6, "dtype": "int32"}, "c.0.bytes: 6 bytes are no whole number of int32"),
    ],
)  # fmt: skip
def test_collectives_that_cannot_be_are_refused(call: dict[str, Any], told: str) -> None:
    with pytest.raises(ScenarioError) as caught:
        build_collectives([section(**call)], world_size=4, where="c")
    assert str(caught.value).startswith(told)


def test_without_a_cluster_the_world_ends_with_the_highest_rank() -> None:
    one = section(op="all_reduce", bytes=8, group=(0, 7))
    assert build_collectives([one]).graph.lane_rank.tolist() == [0, 7]
    with pytest.raises(ScenarioError, match=r"c\.1: without a cluster the group must be given"):
        build_collectives([one, section(op="all_reduce", bytes=8)], where="c")
    with pytest.raises(ScenarioError, match="c: the list is empty"):
        build_collectives([], where="c")
    whole = build_collectives([section(op="all_reduce", bytes=8)], world_size=2)
    assert whole.graph.lane_rank.tolist() == [0, 1]
