"""Arguments of Kineto events as typed records: what is stated, what is not, hostile values."""

from __future__ import annotations

import json
from typing import Any

import pytest

from commsim.traces.formats import EventArgs
from commsim.traces.formats.files import Document
from commsim.traces.formats.kineto import read_kineto

_MODERN = {
    "Collective name": "all_to_allv", "dtype": "BFloat16", "In msg nelems": 12,
    "Out msg nelems": "20", "In split size": "[4, 8]", "Process Group Name": 3, "Seq": 7,
    "Global rank start": 1, "Global rank stride": 2, "Group size": 2,
    "Process Group Ranks": "[1, 3, ...]", "Record function id": 11,
}  # fmt: skip


def args_of(args: Any, name: str = "record_param_comms", cat: str = "cpu_op") -> EventArgs:
    row = {"ph": "X", "cat": cat, "name": name, "pid": 1, "tid": 2, "ts": 1.0, "dur": 1.0}
    text = json.dumps({"traceEvents": [{**row, "args": args}]})
    return read_kineto(Document("rank0.json", text.encode())).events[0].args


def test_a_modern_call_is_read_whole() -> None:
    args = args_of(_MODERN)
    assert (args.call, args.op, args.dtype, args.itemsize) == (
        "all_to_allv", "all_to_all_v", "bfloat16", 2,
    )  # fmt: skip
    assert (args.elements, args.out_elements, args.most_elements) == (12, 20, 20)
    assert args.splits == (4, 8)
    assert (args.group, args.sequence, args.record_function) == ("3", 7, 11)
    assert args.ranks == (1, 3)  # the list is cut short: by start, stride and size


def test_an_empty_list_of_splits_is_an_even_all_to_all() -> None:
    assert args_of(_MODERN | {"In split size": "[]"}).op == "all_to_all"


def test_an_event_without_arguments_states_nothing() -> None:
    assert args_of(None) == args_of({}) == EventArgs()


@pytest.mark.parametrize(
    ("dims", "inputs"),
    [
        ([[2, 3], [4]], (6, 4)),
        ([[[2, 3], [4]], []], (10, -1)),  # a list of tensors counts together
        ([[[2, -3], [4]]], (-1, -1)),
        ([[2, "x"]], (-1, -1)),
        ([[2, 0], [0]], (0, 0)),
        ([[[2, 0], [4]]], (4, -1)),
        ([[[0], [0]]], (0, -1)),
        ("[[2, 3]]", (-1, -1)),
        (7, (-1, -1)),
    ],
)
def test_shapes_become_elements(dims: object, inputs: tuple[int, int]) -> None:
    assert args_of({"Input Dims": dims}, "c10d::allreduce_").inputs == inputs


@pytest.mark.parametrize(
    ("start", "stride", "size", "ranks"),
    [
        (0, 1, 3, (0, 1, 2)), (2, 4, 3, (2, 6, 10)), (5, 1, 1, (5,)), ("1", "2", "2", (1, 3)),
        (-1, 1, 3, ()), (0, 0, 3, ()), (0, 1, 0, ()), (0, 1, 1_000_001, ()), (None, 1, 3, ()),
    ],
)  # fmt: skip
def test_a_group_is_a_start_a_stride_and_a_size_if_it_is_not_listed(
    start: object, stride: object, size: object, ranks: tuple[int, ...]
) -> None:
    said = {"Global rank start": start, "Global rank stride": stride, "Group size": size}
    assert args_of(said).ranks == ranks
    assert args_of({**said, "Process Group Ranks": "[7, 8]"}).ranks == (7, 8)
    assert args_of({**said, "Process Group Ranks": "[7, 8, ...]"}).ranks == ranks


def test_a_group_of_a_million_ranks_is_the_largest() -> None:
    said = {"Global rank start": 0, "Global rank stride": 1, "Group size": 1_000_000}
    assert len(args_of(said).ranks) == 1_000_000


def test_a_message_takes_its_type_from_its_input_and_its_peer_from_its_numbers() -> None:
    written = {"Input type": ["float", ""], "Concrete Inputs": ["", "5", "1e3", "12"]}
    args = args_of(written, "c10d::send")
    assert (args.dtype, args.itemsize) == ("float32", 4)
    assert args.numbers == (-1, 5, -1, 12)


def test_what_no_number_can_be_is_not_stated() -> None:
    hostile: dict[str, object] = {
        "Collective name": {"a": 1}, "In msg nelems": [1], "Out msg nelems": 1e300, "Seq": 2**70,
        "Group size": 10**9, "Global rank start": 0, "Global rank stride": 1,
        "Concrete Inputs": {"a": "b"}, "Input type": [["x"]], "dtype": [],
    }  # fmt: skip
    args = args_of(hostile)
    assert (args.elements, args.out_elements, args.sequence) == (-1, -1, -1)
    assert (args.ranks, args.numbers, args.dtype, args.op) == ((), (), "", "")


def test_arguments_of_compute_are_dropped() -> None:
    assert args_of({"Input Dims": [[2]]}, "aten::mm") == EventArgs()


def test_a_synchronisation_names_its_record_and_stream() -> None:
    written = {"wait_on_cuda_event_record_corr_id": 5, "wait_on_stream": 20, "stream": 7}
    row = {"ph": "X", "cat": "cpu_op", "name": "x", "pid": 1, "tid": 2, "ts": 0.0, "dur": 9.0}
    sync = row | {"cat": "cuda_sync", "name": "Stream Wait Event", "ts": 1.0, "args": written}
    text = json.dumps({"traceEvents": [row, sync]})
    event = read_kineto(Document("rank0.json", text.encode())).events[1]
    assert (event.args.waits_for, event.args.waits_for_stream, event.stream) == (5, 20, 7)
