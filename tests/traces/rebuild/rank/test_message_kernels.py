"""Sends and receives of kernels, from the names and arguments around their launch."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from commsim.traces.formats import Event, EventKind, Events
from commsim.traces.formats.event_args import EventArgs
from commsim.traces.rebuild.rank.call_args import inside, with_args
from commsim.traces.rebuild.rank.calls import CollectiveCall, KernelMessage, Thread
from commsim.traces.rebuild.rank.gloo_calls import _placed
from commsim.traces.rebuild.rank.message_kernels import (
    _bare_calls,
    _completed,
    _is_message,
    _merged,
    _message,
    _peer,
    with_messages,
)

COMMS = "record_param_comms"


def event(
    name: str, start: int = 0, end: int = 1, kind: EventKind = EventKind.CPU_OP, **args: Any
) -> Event:
    return Event(kind, name, ("1", "1"), start, end, 0, -1, EventArgs(**args))


def message(op: str = "send", peer: int = -1, size: int = -1, **more: Any) -> KernelMessage:
    return KernelMessage(op, peer, size, **more)


@pytest.mark.parametrize(
    ("name", "call", "found"),
    [
        ("nccl:send 0->1", "", True), ("nccl:recv 0<-1", "", True), ("c10d::send", "", True),
        ("c10d::recv_", "", True), (COMMS, "send", True), (COMMS, "allreduce", False),
        ("nccl:all_reduce", "", False), ("aten::send", "", False), ("c10d::allreduce_", "", False),
    ],
)  # fmt: skip
def test_which_events_are_messages(name: str, call: str, found: bool) -> None:
    assert _is_message(event(name, call=call)) is found


@pytest.mark.parametrize(
    ("op", "name", "args", "ranks", "peer"),
    [
        ("send", COMMS, {"source": 4, "target": 5}, (), 5),
        ("recv", COMMS, {"source": 4, "target": 5}, (), 4),
        ("send", "nccl:send 0->1", {}, (6, 7), 7), ("recv", "nccl:recv 1<-0", {}, (6, 7), 6),
        ("send", "nccl:send 0->2", {}, (6, 7), 2), ("send", "nccl:send 0->3", {}, (), 3),
        ("send", "nccl:send", {}, (6, 7), -1), ("send", "nccl:send 0->1", {"target": 0}, (6, 7), 0),
    ],
)  # fmt: skip
def test_a_peer_is_said_by_arguments_or_by_a_place_in_the_name(
    op: str, name: str, args: dict[str, Any], ranks: tuple[int, ...], peer: int
) -> None:
    assert _peer(op, event(name, **args), ranks) == peer


def test_what_two_sources_say_of_a_message_is_joined() -> None:
    assert _merged([message(peer=3), message(size=8, dtype="int8", group="g")]) == [
        message(peer=3, size=8, dtype="int8", group="g")
    ]
    assert _merged([message(size=0), message(peer=0, dtype="x")]) == [
        message(peer=0, size=0, dtype="x")
    ]
    for one, other in (
        (message(peer=3), message(peer=4)), (message(size=3), message(size=4)),
        (message("send", 3), message("recv", size=4)), (message(peer=0), message(peer=0)),
        (message(size=0), message(size=0)), (message(peer=3), message(peer=3, size=1)),
    ):  # fmt: skip
        assert _merged([one, other]) == [one, other]
    assert _merged([]) == []


def test_messages_of_gloo_name_places_in_their_group() -> None:
    messages = tuple(message(peer=peer) for peer in (0, 1, 2, -1))
    call = CollectiveCall(0, "messages", 0, 0, 1, 0, library="gloo", messages=messages)
    placed = _placed(call, "g", (4, 6))
    assert (placed.group, placed.ranks) == ("g", (4, 6))
    assert [(m.peer, m.group) for m in placed.messages] == [
        (4, "g"), (6, "g"), (2, "g"), (-1, "g"),
    ]  # fmt: skip


def test_what_a_message_lacks_is_that_of_its_call() -> None:
    call = CollectiveCall(0, "send", 0, 0, 1, 0, 16, "int8", root=1, ranks=(4, 6))
    assert _completed(message(), call) == message(peer=6, size=16, dtype="int8")
    assert _completed(message(peer=0, size=0, dtype="x"), call) == message(
        peer=0, size=0, dtype="x"
    )
    far = CollectiveCall(0, "send", 0, 0, 1, 0, root=2, ranks=(4, 6))
    assert _completed(message(), far).peer == 2
    assert _completed(message(), CollectiveCall(0, "send", 0, 0, 1, 0, ranks=(4,))).peer == -1
    first = CollectiveCall(0, "send", 0, 0, 1, 0, root=0, ranks=(4, 6))
    assert _completed(message(), first).peer == 4


def test_calls_that_launch_nothing_are_those_of_a_kernel_after_them() -> None:
    events = [
        event("c10d::send", 0, 10), event(COMMS, 1, 5, call="send"),
        event("cudaLaunchKernel", 6, 7, EventKind.RUNTIME),
        event("c10d::recv_", 20, 30), event("cudaEventRecord", 21, 22, EventKind.RUNTIME),
        event("LaunchOp", 23, 24), event(COMMS, 40, 50, call="allreduce"),
        event(COMMS, 60, 70, call="wait"), event(COMMS, 71, 72, call="barrier"),
        event("nccl:all_reduce", 80, 90), event("aten::mm", 100, 110),
    ]  # fmt: skip
    thread = Thread(("1", "1"), Events.of(events))
    assert [(one.name, one.start) for one in _bare_calls(thread)] == [
        (COMMS, 1), ("c10d::recv_", 20), (COMMS, 40),
    ]  # fmt: skip


def test_an_event_encloses_what_begins_before_its_end() -> None:
    spans = [(0, 10), (0, 5), (5, 5), (10, 12), (11, 12)]
    events = Events.of(event(f"{start}-{end}", start, end) for start, end in spans)
    assert [one.name for one in inside(events, 0)] == ["0-5", "5-5", "10-12"]
    assert [one.name for one in inside(events, 1)] == ["5-5"]
    assert list(inside(events, 4)) == []


def test_arguments_of_a_kernel_count_before_what_was_known() -> None:
    known = CollectiveCall(0, "reduce", 0, 0, 1, 0, 7, "x", (1,), group="g", ranks=(8, 9))
    bare = with_args(known, EventArgs(), {})
    assert (bare.op, bare.size, bare.dtype, bare.splits, bare.group, bare.ranks, bare.sequence) == (
        "reduce", 7, "x", (), "g", (8, 9), -1,
    )  # fmt: skip
    args = EventArgs(op="all_gather", elements=2, out_elements=4, itemsize=2, dtype="half",
                     group="h", ranks=(0, 1), sequence=5, splits=(1, 1))  # fmt: skip
    full = with_args(known, args, {})
    assert (full.op, full.size, full.dtype, full.splits, full.group, full.ranks, full.sequence) == (
        "all_gather", 8, "half", (), "h", (0, 1), 5,
    )  # fmt: skip
    assert with_args(known, args, {"h": (2, 3)}).ranks == (2, 3)
    empty = EventArgs(op="all_gather", elements=0, out_elements=0, itemsize=2)
    assert with_args(known, empty, {}).size == 0
    uneven = EventArgs(op="all_to_all_v", elements=2, out_elements=9, itemsize=2, splits=(0, 2))
    assert (with_args(known, uneven, {}).size, with_args(known, uneven, {}).splits) == (4, (0, 4))


class Nothing:
    """A rank without bare calls; `asked` if they were looked for."""

    asked = False

    def before(self, launch: object) -> list[Event]:
        self.asked = True
        return []


@pytest.mark.parametrize(
    ("op", "size", "launched", "asked"),
    [
        ("all_reduce", 8, True, False), ("all_reduce", 0, True, False),
        ("all_reduce", -1, True, True), ("", 8, True, True), ("", -1, True, True),
        ("", -1, False, False), ("all_reduce", -1, False, False),
    ],
)  # fmt: skip
def test_bare_calls_are_looked_at_for_what_a_launch_does_not_say(
    op: str, size: int, launched: bool, asked: bool
) -> None:
    activity: Any = SimpleNamespace(enclosing=lambda launch: [], file=SimpleNamespace(groups={}))
    kernel: Any = SimpleNamespace(launch="launch" if launched else None)
    call, bare = CollectiveCall(0, op, 0, 0, 1, 0, size), Nothing()
    assert with_messages(activity, call, kernel, bare) is call  # type: ignore[arg-type]
    assert bare.asked is asked


@pytest.mark.parametrize("around", [False, True])
def test_a_kernel_of_one_message_has_the_first_that_names_its_peer(around: bool) -> None:
    """Peer 0 is a peer; without any the number in the kernel's name is taken."""
    events = [event(COMMS, call="send", target=0, elements=3, itemsize=4, dtype="float")]
    events.append(event(COMMS, call="send", target=5, elements=3, itemsize=4, dtype="float"))
    activity: Any = SimpleNamespace(
        enclosing=lambda launch: events if around else [], file=SimpleNamespace(groups={})
    )
    kernel: Any = SimpleNamespace(launch="launch", event=event("nccl:send 1->3"))
    given = CollectiveCall(0, "send", 0, 0, 1, 0, 12, dtype="float")
    found = with_messages(activity, given, kernel, Nothing())  # type: ignore[arg-type]
    assert found.op == "messages"
    peer = 0 if around else 3
    assert found.messages == (KernelMessage("send", peer, 12, "float"),)


@pytest.mark.parametrize(
    ("args", "size"),
    [
        ({"elements": 3, "out_elements": 2, "inputs": (7, 9)}, 12),
        ({"elements": 0, "out_elements": 0, "inputs": (7, 9)}, 0),
        ({"inputs": (7, 9)}, 28), ({"inputs": (-1, 9)}, -1), ({}, -1),
    ],
)  # fmt: skip
def test_a_message_has_the_elements_that_are_told_else_those_of_its_first_input(
    args: dict[str, Any], size: int
) -> None:
    groups: dict[str, tuple[int, ...]] = {"pp": (6, 7)}
    activity: Any = SimpleNamespace(file=SimpleNamespace(groups=groups))
    said = event("nccl:send 0->1", itemsize=4, dtype="float", group="pp", ranks=(8, 9), **args)
    assert _message(activity, said) == KernelMessage("send", 7, size, "float", group="pp")
    groups.clear()
    assert _message(activity, said).peer == 9


def bare(*events: Event) -> Any:
    return SimpleNamespace(before=lambda launch: list(events))


def joins(op: str, *sizes: int) -> list[Event]:
    """Calls that a launch joins, of so many elements of 4 bytes; -1 if one says none."""
    return [event(COMMS, call=op, op=op, elements=size, itemsize=4, group="g") for size in sizes]


@pytest.mark.parametrize(
    ("events", "op", "size"),
    [
        (joins("all_reduce", 3, 4), "all_reduce", 28), (joins("all_reduce", 0, 0), "all_reduce", 0),
        (joins("all_reduce", 3), "all_reduce", 12), (joins("all_reduce", 3, -1), "", -1),
        (joins("all_reduce", -1), "", -1),
        ([*joins("all_reduce", 3), *joins("broadcast", 3)], "", -1),
        ([*joins("broadcast", 3), *joins("all_reduce", 3)], "", -1), ([], "", -1),
    ],
)  # fmt: skip
def test_calls_that_one_launch_joins_are_one_of_all_their_bytes(
    events: list[Event], op: str, size: int
) -> None:
    activity: Any = SimpleNamespace(enclosing=lambda launch: [], file=SimpleNamespace(groups={}))
    kernel: Any = SimpleNamespace(launch="launch")
    given = CollectiveCall(0, "", 0, 0, 1, 0)
    found = with_messages(activity, given, kernel, bare(*events))
    assert (found.op, found.size) == (op, size)
