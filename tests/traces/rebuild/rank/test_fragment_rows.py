"""Names of a recorded rank's streams."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np

from commsim.traces.rebuild.rank.fragment_rows import _stream_names
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
