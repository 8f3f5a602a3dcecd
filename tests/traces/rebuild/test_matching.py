"""Collectives matched by hand: places, groups and notes, at each threshold of what may differ."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from commsim.errors import TraceError
from commsim.traces.rebuild.communicators import inferred_groups
from commsim.traces.rebuild.matching import MatchedCollective, match
from commsim.traces.rebuild.rank import CollectiveCall, RankCollectives

US = 1_000_000
PAIR = (0, 1)


def call(
    rank: int, at: int = 0, size: int = 8, op: str = "all_reduce", **more: Any
) -> CollectiveCall:
    """A call of 10 us from `at` on, of ranks 0 and 1 if not said."""
    fixed: dict[str, Any] = {"ranks": PAIR, "group": "dp", "length": 10} | more
    end = (at + fixed.pop("length")) * US
    return CollectiveCall(rank, op, 0, at * US, end, at * US, size, **fixed)


def matched(
    *ranks: list[CollectiveCall], cut: tuple[int, ...] = (), known: Any = None
) -> tuple[list[MatchedCollective], list[str]]:
    made = {
        rank: RankCollectives(tuple(calls), (), (), rank in cut) for rank, calls in enumerate(ranks)
    }
    return match(made, tuple(made), known or {}, dict.fromkeys(made, 0))


def sizes(found: list[MatchedCollective]) -> list[dict[int, int]]:
    return [{rank: call.size for rank, call in one.calls.items()} for one in found]


def test_a_call_and_a_collective_say_no_more_than_they_know() -> None:
    bare = CollectiveCall(0, "", 0, 0, 0, 0)
    assert (bare.size, bare.root, bare.sequence, bare.members, bare.stream) == (-1, -1, -1, -1, -1)
    assert (bare.library, bare.alone, bare.messages, bare.ranks) == ("nccl", False, (), ())
    one = MatchedCollective("g", PAIR, {1: call(1, size=5, dtype="x"), 0: call(0, size=3)}, {})
    assert (one.size, one.dtype, one.first.rank, one.op) == (5, "x", 0, "all_reduce")
    assert (one.inferred, one.alone, one.lost) == (False, False, ())
    assert MatchedCollective("g", PAIR, {0: call(0)}, {}).dtype == ""


def test_without_numbers_calls_meet_in_the_order_of_issue() -> None:
    found, notes = matched([call(0, 0, 1), call(0, 20, 2)], [call(1, 0, 1), call(1, 20, 2)])
    assert sizes(found) == [{0: 1, 1: 1}, {0: 2, 1: 2}]
    assert [(one.group, one.group_ranks, dict(one.numbers)) for one in found] == [
        ("dp", PAIR, {0: 0, 1: 0}), ("dp", PAIR, {0: 1, 1: 1}),
    ]  # fmt: skip
    assert notes == []


def test_numbers_say_which_call_is_missing() -> None:
    """Sequence numbers begin at 0."""
    ranks = [call(0, 0, 1, sequence=0), call(0, 20, 2, sequence=1)], [call(1, 20, 2, sequence=1)]
    told = (
        "rank 1: 1 collectives of its groups are not in its recording{}: they are replayed without"
        " it, and what others waited for it counts as transfer."
    )
    for cut, which in (((), ""), ((1,), ", which was cut")):
        found, notes = matched(*ranks, cut=cut)
        assert sizes(found) == [{0: 1}, {0: 2, 1: 2}]
        assert [one.lost for one in found] == [(1,), ()]
        assert notes == [told.format(which)]


def test_calls_of_a_cut_file_stand_beside_their_likes() -> None:
    """By time, if any like ran at that time; else the first like in the order."""
    whole = [call(0, 0, 1), call(0, 20, 2), call(0, 40, 1)]
    for at, place in ((40, 2), (50, 2), (30, 2), (10, 0), (500, 0)):
        found, _ = matched(whole, [call(1, at, 1)], cut=(1,))
        assert [one.lost == () for one in found] == [number == place for number in range(3)], at
    found, notes = matched(whole, [call(1, 0, 1), call(1, 20, 9)], cut=(1,))
    assert sizes(found) == [{0: 1, 1: 1}, {0: 2}, {1: 9}, {0: 1}]
    assert [one.alone for one in found] == [False, False, True, False]  # of no like: by itself
    assert any("communication kernels do not say" in note for note in notes)


@pytest.mark.parametrize(
    "other",
    [
        {"op": "all_gather"}, {"size": 9}, {"dtype": "float16"}, {"op": "all_gather", "size": -1},
    ],
)  # fmt: skip
def test_what_differs_at_one_place_is_shown(other: dict[str, Any]) -> None:
    with pytest.raises(TraceError) as caught:
        matched([call(0, dtype="float32")], [call(1, **{"dtype": "float32"} | other)])
    told = str(caught.value).splitlines()
    assert told[0] == "call 0 on group 'dp' differs between ranks:"
    assert told[1] == "  rank 0: all_reduce of 8 B, float32"
    size = "unknown size" if other.get("size") == -1 else f"{other.get('size', 8)} B"
    dtype = other.get("dtype", "float32")
    assert told[2] == f"  rank 1: {other.get('op', 'all_reduce')} of {size}, {dtype}"


def test_what_may_differ_at_one_place() -> None:
    for mine, theirs in (
        ({"dtype": "float32"}, {}),
        ({"op": "broadcast", "size": 8}, {"op": "broadcast", "size": -1}),
        ({"op": "all_to_all_v", "size": 8}, {"op": "all_to_all_v", "size": 3}),
    ):
        found, notes = matched([call(0, **mine)], [call(1, **theirs)])  # type: ignore[arg-type]
        assert (len(found), notes) == (1, [])
    found, notes = matched([call(0, op="all_to_all")], [call(1, op="all_to_all", size=3)])
    assert notes == [
        "group 'dp', call 0: the ranks of an all_to_all send different amounts, and the trace has"
        " no splits; the largest is taken, evenly split."
    ]


def test_groups_of_one_name_have_their_ranks_behind_it() -> None:
    ranks = [[call(rank, ranks=(rank // 2 * 2, rank // 2 * 2 + 1))] for rank in range(4)]
    assert [one.group for one in matched(*ranks)[0]] == ["dp [0, 1]", "dp [2, 3]"]
    ranks = [[call(rank, group="dp" if rank < 2 else "", ranks=(rank // 2 * 2, rank // 2 * 2 + 1))]
             for rank in range(4)]  # fmt: skip
    assert [one.group for one in matched(*ranks)[0]] == ["dp", "world"]


def test_groups_run_in_the_order_of_their_first_calls_but_each_in_its_own() -> None:
    """By rank 1's clock tp's second call begins before its first: it stays behind it."""
    tp = {"group": "tp"}
    found, _ = matched(
        [call(0, 10, 1, **tp), call(0, 20, 2), call(0, 30, 3, **tp)],
        [call(1, 12, 1, **tp), call(1, 25, 2), call(1, 2, 3, **tp)],
    )
    assert [one.size for one in found] == [1, 3, 2]


def test_sizes_that_no_file_says_are_counted() -> None:
    known, unknown = [call(rank, 0, 8) for rank in PAIR], [call(rank, 20, -1) for rank in PAIR]
    empty = [call(rank, 40, 0) for rank in PAIR]
    _, notes = matched(*([known[rank], unknown[rank], empty[rank]] for rank in PAIR))
    assert notes == [
        "1 of 3 collectives have no known size: the trace has no arguments for them, and no"
        " Execution Trace of the same run was given."
    ]


def test_calls_with_unknown_partners_stay_alone() -> None:
    found, notes = matched([call(0, 0, -1, alone=True, group=""), call(0, 20)], [call(1, 20)])
    assert [(one.group, one.group_ranks, one.alone) for one in found] == [
        ("unknown", (0,), True), ("dp", PAIR, False),
    ]  # fmt: skip
    assert notes == [
        "1 communication kernels do not say what they do or with whom: they keep the time that was"
        " recorded, waits included."
    ]
    assert matched([call(0, op="messages")]) == ([], [])


def test_members_of_gloo_whose_root_is_not_recorded_wait_for_nobody_known() -> None:
    trio = (0, 1, 7)
    for op, root, alone in (
        ("broadcast", 2, True), ("scatter", 2, True), ("reduce", 2, False), ("broadcast", 0, False),
        ("broadcast", -1, False), ("broadcast", 3, False),
    ):  # fmt: skip
        calls = [[call(rank, op=op, root=root, ranks=trio, library="gloo")] for rank in PAIR]
        found, notes = matched(*calls)
        assert [one.alone for one in found] == ([True, True] if alone else [False])
        assert [note.split(" of ")[0] for note in notes] == (["2 calls"] if alone else [])
    nccl = [[call(rank, op="broadcast", root=2, ranks=trio)] for rank in PAIR]
    assert [one.alone for one in matched(*nccl)[0]] == [False]


def unplaced(rank: int, at: int, size: int = 8, stream: int = 7, **more: Any) -> CollectiveCall:
    fixed: dict[str, Any] = {"ranks": (), "group": "", "stream": stream}
    return call(rank, at, size, **fixed | more)


def test_what_is_inferred_is_said() -> None:
    found, notes = matched(*([unplaced(rank, at) for at in (0, 20)] for rank in PAIR))
    assert [(one.group, one.group_ranks, one.inferred) for one in found] == [
        ("world", PAIR, True)
    ] * 2
    assert notes == [
        "2 of 2 collectives do not say which ranks form their group: inferred from streams, order"
        " and times (1 groups: world)."
    ]
    many = [[unplaced(rank, at, at + 1, stream=at) for at in range(0, 80, 10)] for rank in PAIR]
    listed = matched(*many)[1][0]
    assert listed.endswith("(8 groups: stream 0, stream 10, stream 20, stream 30, stream 40,"
                         " stream 50, ...).")  # fmt: skip
    six = [[unplaced(rank, at, at + 1, stream=at) for at in range(0, 60, 10)] for rank in PAIR]
    assert matched(*six)[1][0].endswith("stream 40, stream 50).")
    alone, notes = matched([unplaced(0, 0)], [call(1, 5)])
    assert [one.alone for one in alone] == [True, False]
    assert not any("inferred" in note for note in notes)


def groups(
    calls: Mapping[int, list[CollectiveCall]], known: Any = None, whole: Any = (), **zeros: int
) -> dict[tuple[tuple[int, ...], str], dict[int, list[int]]]:
    numbered = {rank: list(enumerate(of)) for rank, of in calls.items()}
    clock = {rank: zeros.get(f"r{rank}", 0) * US for rank in calls}
    found = inferred_groups(numbered, known or {}, clock, tuple(sorted(calls)), whole)
    return {
        key: {rank: [n for n, _ in of] for rank, of in one.items()} for key, one in found.items()
    }


def together(*leads: int, length: int = 10, other: Any = None) -> bool:
    """Whether streams are one communicator whose ends on rank 1 are so many us apart from 0's."""
    mine = [unplaced(0, 10_000 * n, length=length) for n in range(len(leads))]
    theirs = [
        unplaced(1, 10_000 * n + lead, length=length, **(other or {}))
        for n, lead in enumerate(leads)
    ]
    return len(groups({0: mine, 1: theirs})) == 1


def test_streams_that_end_together_are_one_communicator() -> None:
    """Up to 200 us apart in the middle, or a tenth of a call; whatever the clocks' distance."""
    assert together(0, 200, 400)
    assert together(5000, 5200, 5400)
    assert not together(0, 201, 402)
    assert together(0, 400, 800, length=4000)
    assert not together(0, 401, 802, length=4000)
    assert together(0)
    assert not together(0, 401 * 2)
    assert together(0, 400)


@pytest.mark.parametrize(
    ("other", "one"),
    [
        ({"stream": 9}, True), ({"size": 9}, False), ({"size": -1}, True),
        ({"op": "reduce"}, False),
        ({"library": "rccl"}, False),
    ],
)  # fmt: skip
def test_streams_agree_call_by_call(other: dict[str, Any], one: bool) -> None:
    assert together(0, 0, 0, other=other) == one


def test_types_that_both_say_must_agree() -> None:
    def same(mine: str, theirs: str) -> bool:
        calls = {0: [unplaced(0, 0, dtype=mine)], 1: [unplaced(1, 0, dtype=theirs)]}
        return len(groups(calls)) == 1

    assert [same("a", "a"), same("a", ""), same("", "a"), same("a", "b")] == [
        True, True, True, False,
    ]  # fmt: skip


def test_ops_whose_members_hold_other_sizes_agree() -> None:
    for op, one in (("broadcast", 1), ("all_to_all", 1), ("all_to_all_v", 1), ("all_gather", 2)):
        calls = {0: [unplaced(0, 0, 8, op=op)], 1: [unplaced(1, 0, 9, op=op)]}
        assert len(groups(calls)) == one


def test_streams_of_one_number_are_tried_first_and_a_rank_has_one_part() -> None:
    calls = {rank: [unplaced(rank, 0, stream=3), unplaced(rank, 50, stream=7)] for rank in PAIR}
    assert groups(calls) == {
        ((0, 1), "stream 3"): {0: [0], 1: [0]}, ((0, 1), "stream 7"): {0: [1], 1: [1]},
    }  # fmt: skip
    three = {0: [unplaced(0, 0, 1)], 1: [unplaced(1, 0, 2)], 2: [unplaced(2, 0, 1)]}
    assert groups(three) == {
        ((0, 2), "stream 7"): {0: [0], 2: [0]}, ((1,), "stream 7 of rank 1"): {1: [0]},
    }  # fmt: skip


WORLD = (0, 1, 2, 3)
LISTED = {rank: {"w": WORLD, "p": (rank // 2 * 2, rank // 2 * 2 + 1)} for rank in WORLD}


def gloo(rank: int, at: int, size: int = 8, **more: Any) -> CollectiveCall:
    return unplaced(rank, at, size, library="gloo", **more)


def test_calls_of_gloo_are_of_the_largest_group_that_could_run_them() -> None:
    all_four = {rank: [gloo(rank, rank)] for rank in WORLD}
    assert list(groups(all_four, LISTED)) == [(WORLD, "w")]
    # Ranks 2 and 3 came when 0 and 1 had left.
    pairs = {rank: [gloo(rank, rank // 2 * 11)] for rank in WORLD}
    assert list(groups(pairs, LISTED)) == [((0, 1), "p"), ((2, 3), "p")]
    touching = {rank: [gloo(rank, rank // 2 * 10)] for rank in WORLD}
    assert list(groups(touching, LISTED)) == [(WORLD, "w")]
    clocks = groups(touching, LISTED, r2=1, r3=1)
    assert list(clocks) == [((0, 1), "p"), ((2, 3), "p")]
    stated = {rank: [gloo(rank, 0, members=2)] for rank in WORLD}
    assert list(groups(stated, LISTED)) == [((0, 1), "p"), ((2, 3), "p")]


def test_who_has_a_whole_file_and_no_such_call_is_no_member() -> None:
    calls = {rank: [gloo(rank, 0)] for rank in PAIR}
    assert list(groups(calls, LISTED)) == [(WORLD, "w")]
    assert list(groups(calls, LISTED, whole=WORLD)) == [((0, 1), "p")]


def test_a_tenth_of_the_calls_may_leave_early() -> None:
    def of(misfits: int) -> set[str]:
        calls = {
            rank: [gloo(rank, 100 * n + (11 if rank > 1 and n < misfits else 0)) for n in range(10)]
            for rank in WORLD
        }
        return {name for _, name in groups(calls, LISTED)}

    assert of(1) == {"w"}
    assert of(2) != {"w"}


def test_calls_of_several_groups_are_dealt_one_by_one() -> None:
    """Each rank is in two pairs, all of whose calls are of one op and size."""
    listed = {rank: {"p": LISTED[rank]["p"], "q": (rank % 2, rank % 2 + 2)} for rank in WORLD}
    times = {0: (0, 100), 1: (0, 150), 2: (50, 100), 3: (50, 150)}
    calls = {rank: [gloo(rank, at) for at in both] for rank, both in times.items()}
    assert groups(calls, listed) == {
        ((0, 1), "p"): {0: [0], 1: [0]}, ((2, 3), "p"): {2: [0], 3: [0]},
        ((0, 2), "q"): {0: [1], 2: [1]}, ((1, 3), "q"): {1: [1], 3: [1]},
    }  # fmt: skip


def test_a_rank_whose_file_lists_one_group_is_told_by_its_stream() -> None:
    calls = {rank: [gloo(rank, 0, stream=rank)] for rank in PAIR}
    assert list(groups(calls, {rank: {"w": PAIR} for rank in PAIR})) == [(PAIR, "world")]
