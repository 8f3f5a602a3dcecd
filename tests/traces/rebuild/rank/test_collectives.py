"""What a rank's collective is told by shapes, by the Execution Trace and by names of kernels."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pytest
from helpers.kineto_writer import late_rank

from commsim.traces.formats import Event, EventKind
from commsim.traces.formats.event_args import EventArgs
from commsim.traces.formats.execution_trace import CommNode
from commsim.traces.formats.files import Document
from commsim.traces.formats.kineto import read_kineto
from commsim.traces.rebuild.rank.activity import activity_of
from commsim.traces.rebuild.rank.calls import CollectiveCall, KernelMessage
from commsim.traces.rebuild.rank.collectives import (
    _agree,
    _annotated,
    _kept,
    _named,
    _with_dims,
    _with_node,
    collectives_of,
)

COMMS = "record_param_comms"


def call(op: str = "all_reduce", **more: Any) -> CollectiveCall:
    return CollectiveCall(0, op, 0, 10, 20, 5, **more)


def event(name: str, kind: EventKind = EventKind.CPU_OP, **args: Any) -> Event:
    return Event(kind, name, ("1", "1"), 0, 1, 0, -1, EventArgs(**args))


@pytest.mark.parametrize(
    ("op", "name", "elements", "itemsize", "size", "dtype"),
    [
        ("all_reduce", COMMS, 6, 4, 24, "float"), ("all_reduce", COMMS, 0, 4, 0, "float"),
        ("all_reduce", COMMS, -1, 4, 99, ""), ("all_reduce", COMMS, 6, -1, 99, ""),
        ("all_reduce", "c10d::allreduce_", 6, 4, 99, ""),
        # The input of these is a part of the buffer, or all of it, by the op.
        ("all_gather", COMMS, 6, 4, 99, "float"), ("reduce_scatter", COMMS, 6, 4, 99, "float"),
        ("gather", COMMS, 6, 4, 99, "float"), ("scatter", COMMS, 6, 4, 99, "float"),
        ("broadcast", COMMS, 6, 4, 24, "float"),
    ],
)  # fmt: skip
def test_shapes_of_inputs_say_the_size_where_the_input_is_the_buffer(
    op: str, name: str, elements: int, itemsize: int, size: int, dtype: str
) -> None:
    seen = event(name, inputs=(elements, 3), itemsize=itemsize, dtype="float")
    found = _with_dims(call(op, size=99), seen)
    assert (found.size, found.dtype) == (size, dtype)


def node(op: str, elements: int, out: int, itemsize: int = 4, **more: Any) -> CommNode:
    said: dict[str, Any] = {"group": "7", "dtype": "half", "splits": (1, 2), "peer": 1} | more
    return CommNode(
        name=op, op=op, record_function=1, sequence=2, elements=elements, out_elements=out,
        itemsize=itemsize, **said,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("op", "elements", "out", "itemsize", "size"),
    [
        ("all_reduce", 3, 3, 4, 12), ("all_gather", 3, 6, 4, 24), ("reduce_scatter", 6, 3, 2, 12),
        ("all_to_all_v", 3, 6, 4, 12), ("all_reduce", -1, -1, 4, 99), ("all_reduce", 3, 3, -1, 99),
        ("broadcast", 0, 0, 4, 0),
    ],
)  # fmt: skip
def test_the_execution_trace_says_the_largest_buffer_and_of_uneven_ones_what_is_sent(
    op: str, elements: int, out: int, itemsize: int, size: int
) -> None:
    found = _with_node(call(size=99), node(op, elements, out, itemsize))
    assert (found.size, found.op, found.group, found.dtype) == (size, op, "7", "half")
    assert found.splits == ((4, 8) if op == "all_to_all_v" else ())
    assert found.sequence == -1


@pytest.mark.parametrize(
    ("op", "root"),
    [("broadcast", 1), ("reduce", 1), ("gather", 1), ("scatter", 1), ("send", 1), ("recv", 1),
     ("all_reduce", -1), ("all_gather", -1)],
)  # fmt: skip
def test_the_execution_trace_says_the_root_of_what_has_one(op: str, root: int) -> None:
    assert _with_node(call(), node(op, 1, 1)).root == root


def test_what_the_execution_trace_leaves_out_stays() -> None:
    found = _with_node(call("broadcast", dtype="float"), node("", 1, 1, dtype=""))
    assert (found.op, found.dtype, found.root) == ("broadcast", "float", 1)


def test_a_node_is_of_the_call_if_both_say_as_many_elements() -> None:
    seen = event(COMMS, inputs=(6, 0))
    assert _agree(seen, node("all_reduce", 6, 7))
    assert not _agree(seen, node("all_reduce", 7, 6))
    assert _agree(seen, node("all_reduce", -1, 7))
    assert _agree(event(COMMS, inputs=(-1, 0)), node("all_reduce", 7, 7))
    assert not _agree(event(COMMS, inputs=(0, 0)), node("all_reduce", 7, 7))
    assert not _agree(seen, node("all_reduce", 0, 7))


def test_calls_with_unknown_partners_keep_their_time() -> None:
    unnamed = _kept(call(""))
    assert (unnamed.op, unnamed.alone) == ("unknown", True)
    known = call("messages", messages=(KernelMessage("send", 0, 8), KernelMessage("recv", 1, 8)))
    assert _kept(known) is known
    half = _kept(
        call("messages", messages=(KernelMessage("send", 0, 8), KernelMessage("recv", -1, 8)))
    )
    assert (half.op, half.messages, half.alone) == ("send_recv", (), True)
    assert _kept(call()) == call()


def test_an_annotation_of_nccl_or_the_kernel_names_the_op() -> None:
    note = EventKind.ANNOTATION
    around = [event("c10d::allreduce_"), event("nccl:x"), event("nccl:all_reduce", note)]
    assert _annotated(around) == "all_reduce"
    assert _annotated([event("nccl:all_reduce"), event("allreduce", note)]) == ""
    assert _annotated([]) == ""
    assert _named("ncclDevKernel_AllGather_RING_LL(ncclDevComm*)") == "all_gather"
    assert _named("ncclKernel_AllReduce_RING_LL_Sum_float(x)") == "all_reduce"
    assert _named("gemm") == ""
    assert SimpleNamespace(op=_named("ncclDevKernel_Broadcast_RING_LL(x)")).op == "broadcast"


def test_a_wait_of_which_no_file_says_the_call_is_a_wait_all_the_same() -> None:
    """A record_param_comms that is called "wait", at the time where it stands."""
    record = late_rank(0, start=0.0)
    record.op(COMMS, 145.0, 3.0, **{"Collective name": "wait", "dtype": "Byte"})
    found = activity_of(read_kineto(Document("x", json.dumps(record.content()).encode())), 0)
    made = collectives_of(found, None)
    assert [call.op for call in made.calls] == ["all_reduce"]
    (wait,) = made.waits
    assert wait.call == -1
    event = found.event(wait.at)
    assert (event.name, event.start) == (COMMS, 145 * 10**6)
