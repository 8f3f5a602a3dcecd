"""What a call and a message say of what the recording does not: -1, "", () and no doubt."""

from __future__ import annotations

import msgspec

from commsim.traces.rebuild.match_messages import Exchange
from commsim.traces.rebuild.matching import MatchedCollective
from commsim.traces.rebuild.rank.calls import CollectiveCall, KernelMessage, RankCollectives
from commsim.traces.rebuild.rank.part import RankPart
from commsim.traces.table import CollectiveRow, MessageRow


def test_a_call_of_which_only_the_times_are_known() -> None:
    assert msgspec.structs.asdict(CollectiveCall(3, "broadcast", 5, 20, 40, 10)) == {
        "rank": 3, "op": "broadcast", "kernel": 5, "start": 20, "end": 40, "launched": 10,
        "size": -1, "dtype": "", "splits": (), "root": -1, "group": "", "ranks": (),
        "sequence": -1, "library": "nccl", "messages": (), "members": -1, "stream": -1,
        "alone": False,
    }  # fmt: skip


def test_a_message_whose_recorded_end_is_its_end() -> None:
    assert msgspec.structs.asdict(KernelMessage("send", 2, 64)) == {
        "op": "send", "peer": 2, "size": 64, "dtype": "", "tag": 0, "group": "", "found_done": -1,
    }  # fmt: skip


def given(kind: type[msgspec.Struct]) -> dict[str, object]:
    """Return what a record says where nothing is said, its lists aside."""
    fields = msgspec.structs.fields(kind)
    return {f.name: f.default for f in fields if isinstance(f.default, int | tuple) and f.default}


def no_doubt(kind: type[msgspec.Struct], *names: str) -> None:
    """Hold the flags and counts of a record to no, and to none, where nothing is said."""
    found = {field.name: field.default for field in msgspec.structs.fields(kind)}
    assert [found[name] for name in names] == [0] * len(names)


def test_what_is_found_is_whole_known_and_of_the_step_if_nothing_else_is_said() -> None:
    no_doubt(MatchedCollective, "inferred", "alone")
    no_doubt(RankCollectives, "cut")
    no_doubt(RankPart, "unsure")
    no_doubt(CollectiveRow, "inferred", "alone")
    assert given(CollectiveRow) == given(MessageRow) == {"in_step": True}
    assert given(Exchange) == {"found_done": (-1, -1)}
