"""Names of a recorded rank's streams."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from commsim.graph import OpKind
from commsim.traces.rebuild.rank.calls import CollectiveCall, KernelMessage
from commsim.traces.rebuild.rank.fragment_rows import _fill_call, _stream_names
from commsim.traces.rebuild.rank.gloo_work import FIRST_MESSAGES

MAIN, BACKWARD, OTHER = 11, 12, 13


def work(**columns: list[Any]) -> Any:
    """A rank with three threads of work, and of its kernels the columns that names go by."""
    arrays = {name: np.array(values) for name, values in columns.items()}
    events = SimpleNamespace(stream=arrays.pop("stream"))
    gpu = SimpleNamespace(events=events, **arrays)
    activity = SimpleNamespace(main=MAIN, backward={BACKWARD}, gpu=gpu)
    return SimpleNamespace(activity=activity, pieces={MAIN: [], OTHER: [], BACKWARD: []})


def test_streams_are_called_by_what_runs_on_them() -> None:
    names = _stream_names(
        work(
            stream=[7, 7, 84, 84, 90, 90, 91, -3, FIRST_MESSAGES, FIRST_MESSAGES - 1],
            is_collective=[False, True, True, True, False, False, False, True, True, True],
            communicates=[False, True, True, True, True, True, True, True, True, True],
        )
    )
    assert names == {
        MAIN: "cpu",
        OTHER: "cpu 2",
        BACKWARD: "autograd",
        7: "stream 7",
        84: "nccl 84",
        90: "comm 90",
        91: "comm 91",
        -3: "gloo 2",
        FIRST_MESSAGES: "messages 1",
        FIRST_MESSAGES - 1: "messages 2",
    }


@pytest.mark.parametrize("count", [1, 2])
def test_messages_of_a_kernel_are_a_batch_if_there_are_several(count: int) -> None:
    """Call 4, of kernel 9, stands in the rows from the second on."""
    names: list[str] = []

    def number(name: str) -> int:
        names.append(name)
        return 10 + len(names)

    labels: Any = SimpleNamespace(name=number)
    columns = ("kind", "name", "item", "duration", "message", "batch")
    rows = {column: np.full(3, -7) for column in columns}
    messages = (KernelMessage("send", 2, 8), KernelMessage("recv", 3, 8))[:count]
    call = CollectiveCall(0, "messages", 9, 0, 1, 0, messages=messages)
    _fill_call(rows, 1, 4, call, labels)
    filled = slice(1, 1 + count)
    assert names == ["send 2", "recv 3"][:count]
    assert rows["kind"][filled].tolist() == [OpKind.SEND, OpKind.RECV][:count]
    assert rows["name"][filled].tolist() == [11, 12][:count]
    assert rows["item"][filled].tolist() == [4] * count
    assert rows["duration"][filled].tolist() == [-1] * count
    assert rows["message"][filled].tolist() == [0, 1][:count]
    assert rows["batch"][filled].tolist() == ([-1] if count == 1 else [9, 9])
    assert {rows[column][0] for column in columns} == {-7}


def test_a_collective_is_one_row() -> None:
    rows = {column: np.full(2, -7) for column in ("kind", "name", "item", "duration", "batch")}
    labels: Any = SimpleNamespace(name=lambda name: len(name))
    _fill_call(rows, 1, 0, CollectiveCall(0, "barrier", 9, 0, 1, 0), labels)
    assert [int(rows[column][1]) for column in rows] == [OpKind.COLLECTIVE, 7, 0, -1, -7]
