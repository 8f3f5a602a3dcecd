"""What a c10d op of Gloo says: sides, members, roots, and messages."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pytest
from helpers.kineto_writer import Recording

from commsim.traces.formats import Event, EventKind
from commsim.traces.formats.event_args import EventArgs
from commsim.traces.formats.files import Document
from commsim.traces.formats.kineto import read_kineto
from commsim.traces.rebuild.rank import gloo_calls
from commsim.traces.rebuild.rank.activity import activity_of
from commsim.traces.rebuild.rank.calls import CollectiveCall, KernelMessage
from commsim.traces.rebuild.rank.gloo_calls import _members, _root, _sides, gloo_call


def op(name: str = "c10d::x", **args: Any) -> Event:
    return Event(EventKind.CPU_OP, name, ("1", "1"), 0, 1, 0, -1, EventArgs(**args))


@pytest.mark.parametrize(
    ("kind", "sent", "received", "members"),
    [
        ("all_gather", 4, 12, 3), ("gather", 4, 8, 2), ("reduce_scatter", 12, 4, 3),
        ("scatter", 8, 4, 2), ("all_gather", 12, 4, -1), ("all_gather", 4, 4, -1),
        ("all_gather", 0, 4, -1), ("all_gather", -1, 4, -1), ("all_gather", 1, 2, 2),
        ("all_reduce", 4, 12, -1), ("reduce_scatter", 4, 12, -1),
    ],
)  # fmt: skip
def test_a_buffer_of_all_parts_says_how_many_members_there_are(
    kind: str, sent: int, received: int, members: int
) -> None:
    assert _members(kind, sent, received) == members


@pytest.mark.parametrize(
    ("name", "kind", "inputs", "sides"),
    [
        ("c10d::allreduce_", "all_reduce", (5, 7), (5, 5)),
        ("c10d::allgather_", "all_gather", (12, 4), (4, 12)),
        ("c10d::_allgather_base_", "all_gather", (12, 4), (4, 12)),
        ("c10d::alltoall_base_", "all_to_all", (12, 0), (0, 12)),
        ("c10d::gather_", "gather", (4, -1), (4, 4)), ("c10d::scatter_", "scatter", (1, 2), (2, 1)),
    ],
)  # fmt: skip
def test_gathers_and_base_ops_name_their_output_first(
    name: str, kind: str, inputs: tuple[int, int], sides: tuple[int, int]
) -> None:
    assert _sides(op(name, inputs=inputs), kind) == sides


@pytest.mark.parametrize(
    ("numbers", "root"),
    [((), -1), ((-1, 0, 3), 0), ((-1, 3, 0), 3), ((10_000_000, 2), 2), ((9_999_999,), 9_999_999),
     ((-1, -5), -1)],
)  # fmt: skip
def test_a_root_is_the_first_number_that_is_no_handle(numbers: tuple[int, ...], root: int) -> None:
    assert _root(op(numbers=numbers)) == root


def call(name: str, run: str, dims: Any, concrete: list[str]) -> CollectiveCall:
    record = Recording(3)
    record.note("ProfilerStep#1", 0, 2000)
    written = {"Input Dims": dims, "Input type": ["float"] * len(dims), "Concrete Inputs": concrete}
    record.op(name, 10, 20, **written)
    record.note(run, 40, 60, tid=9)
    found = activity_of(read_kineto(Document("x", json.dumps(record.content()).encode())), 3)
    return gloo_call(found, 0, gaps_are_work=False)


def test_a_collective_and_a_message() -> None:
    us = 1_000_000
    found = call("c10d::broadcast_", "gloo:broadcast", [[[16]], [], []], ["", "", "1"])
    assert (found.op, found.size, found.dtype, found.root, found.library) == (
        "broadcast", 64, "float32", 1, "gloo",
    )  # fmt: skip
    assert (found.rank, found.start, found.end, found.launched) == (3, 40 * us, 100 * us, 10 * us)
    assert call("c10d::allreduce_", "gloo:all_reduce", [[[16]], []], ["", "1"]).root == -1
    sent = call("c10d::send", "gloo:send", [[[16]], [], [], []], ["", "", "2", "7"])
    assert (sent.op, sent.start) == ("messages", 10 * us)
    assert sent.messages == (KernelMessage("send", 2, 64, "float32", 7),)


@pytest.mark.parametrize(
    ("groups", "label", "found", "notes"),
    [
        ({}, "", ("", ()), 0), ({"7": (2, 5)}, "", ("7", (2, 5)), 0),
        ({"7": (2, 5), "8": (1, 2)}, "", ("", ()), 1),
        ({"7": (2, 5), "8": (1, 2)}, "8", ("8", (1, 2)), 0),
        ({"7": (2, 5), "8": (1, 2)}, "9", ("9", ()), 1), ({"7": (2, 5)}, "9", ("9", ()), 0),
    ],
)  # fmt: skip
def test_a_call_of_gloo_is_of_the_group_that_it_names_or_of_the_only_one(
    groups: dict[str, tuple[int, ...]],
    label: str,
    found: tuple[str, tuple[int, ...]],
    notes: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(gloo_calls, "_labels", lambda calls, *_: [label] * len(calls))
    activity: Any = SimpleNamespace(file=SimpleNamespace(groups=groups))
    made = CollectiveCall(2, "all_reduce", 0, 0, 1, 0, library="gloo")
    other = CollectiveCall(2, "all_reduce", 0, 0, 1, 0)
    said: list[str] = []
    one, kept = gloo_calls.with_groups([made, other], activity, None, said)
    assert ((one.group, one.ranks), kept) == (found, other)
    assert len(said) == notes
    assert gloo_calls.with_groups([other], activity, None, said) == [other]
    message = KernelMessage("send", 1, 8)
    sends = CollectiveCall(2, "messages", 0, 0, 1, 0, library="gloo", messages=(message,))
    (sent,) = gloo_calls.with_groups([sends], activity, None, said)
    peer = found[1][1] if found[1] else 1
    assert [(m.peer, m.group) for m in sent.messages] == [(peer, found[0])]
    assert len(said) == notes  # a message names its peer
