"""What one entry of a flight recorder says, and what a dump says of its rank and groups."""

from __future__ import annotations

import json
from typing import Any

import pytest

from commsim.errors import TraceError
from commsim.traces.formats import Issued, RankRecord
from commsim.traces.formats.files import Document
from commsim.traces.formats.flight_recorder import is_flight_recorder, read_flight_recorder

GROUPS = {"0": {"ranks": "[4, 6, 8]"}, "1": {"ranks": "[1, 2, ...]"}, "2": "odd"}


def read(*entries: Any, name: str = "rank3.json", **more: Any) -> RankRecord:
    content = {"version": "2.5", "pg_config": GROUPS, "entries": entries} | more
    return read_flight_recorder(Document(name, json.dumps(content).encode()))


def call(**more: Any) -> Issued:
    entry = {
        "profiling_name": "nccl:all_reduce", "process_group": ["0", "dp"], "is_p2p": False,
        "collective_seq_id": 7, "p2p_seq_id": 9, "input_sizes": [[2, 3], [5]],
        "input_dtypes": ["Float", "Float"], "output_sizes": [[4]], "output_dtypes": ["Half"],
        "time_created_ns": 123,
    } | more  # fmt: skip
    (found,) = read(entry).calls
    return found


def test_an_entry_is_a_call() -> None:
    assert call() == Issued(
        "all_reduce", sent=44, received=8, dtype="float32", group="0 dp", ranks=(4, 6, 8),
        sequence=7, name="nccl:all_reduce", time=123,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("more", "sent", "dtype"),
    [
        ({"input_dtypes": []}, -1, "float16"), ({"input_dtypes": "Float"}, -1, "float16"),
        ({"input_dtypes": ["odd"]}, -1, "float16"), ({"input_sizes": []}, -1, "float16"),
        ({"input_sizes": None}, -1, "float16"), ({"input_sizes": [[]]}, 4, "float32"),
        ({"input_sizes": [[0]]}, 0, "float32"), ({"input_sizes": [["x"]]}, 0, "float32"),
        ({"input_sizes": [[-2, -3]]}, 0, "float32"), ({"input_sizes": [7]}, 4, "float32"),
        ({"input_dtypes": ("Half",)}, 22, "float16"),
    ],
)  # fmt: skip
def test_bytes_are_those_of_all_tensors_in_the_type_of_the_first(
    more: dict[str, Any], sent: int, dtype: str
) -> None:
    found = call(**more)
    assert (found.sent, found.dtype) == (sent, dtype)


@pytest.mark.parametrize(
    ("group", "label", "ranks"),
    [(["0", "dp"], "0 dp", (4, 6, 8)), (["0"], "0", (4, 6, 8)), (["0", ""], "0", (4, 6, 8)),
     (["1", "x"], "1 x", ()), (["9", "x"], "9 x", ())],
)  # fmt: skip
def test_a_group_has_a_number_and_a_description(
    group: list[str], label: str, ranks: tuple[int, ...]
) -> None:
    found = call(process_group=group)
    assert (found.group, found.ranks) == (label, ranks)


def test_before_groups_had_descriptions_they_had_numbers() -> None:
    assert call(process_group=None, pg_id=0).group == "0"
    assert call(process_group=[], pg_id=0).ranks == (4, 6, 8)
    assert call(process_group=None).group == ""


@pytest.mark.parametrize(
    ("name", "peer"),
    [("nccl:send 0->1", 6), ("nccl:recv 1<-0", 4), ("nccl:send 0->2", 8), ("nccl:send 0->3", -1),
     ("nccl:all_reduce", -1)],
)  # fmt: skip
def test_a_peer_is_a_place_in_its_group(name: str, peer: int) -> None:
    found = call(profiling_name=name, is_p2p=True)
    assert (found.peer, found.sequence) == (peer, 9)
    assert call(profiling_name="nccl:send 0->5", process_group=["9"]).peer == 5


def test_brackets_around_coalesced_calls_and_unknown_ops_are_no_calls() -> None:
    bare = {"profiling_name": "nccl:all_gather_into_tensor_coalesced"}
    assert read(bare, {"profiling_name": "nccl:odd"}, {}, "x").calls == ()
    (found,) = read(bare | {"input_sizes": [[0]], "input_dtypes": ["Float"]}).calls
    assert (found.op, found.sent) == ("all_gather", 0)
    (found,) = read(bare | {"output_sizes": [[0]], "output_dtypes": ["Float"]}).calls
    assert (found.sent, found.received) == (-1, 0)


@pytest.mark.parametrize(
    ("name", "rank"),
    [("rank3.json", 3), ("d/nccl_trace_rank_12", 12), ("dump7", 7), ("x_5.pkl", 5),
     ("0.json.gz", 0), ("none.json", -1)],
)  # fmt: skip
def test_the_rank_is_in_the_name(name: str, rank: int) -> None:
    assert read(name=name).rank == rank


def test_what_a_dump_says_of_the_run() -> None:
    found = read({"profiling_name": "nccl:broadcast"})
    assert (found.format, found.library, found.world_size) == ("flight recorder", "nccl", 9)
    assert found.groups == {"0": (4, 6, 8)}
    assert [note.split(":")[0] for note in found.notes] == [
        "flight recorder 2.5",
        "a flight recorder does not say roots",
    ]
    assert read(pg_config=None).world_size == 0
    found = read({"profiling_name": "gloo:all_reduce"})
    assert (found.library, len(found.notes)) == ("gloo", 2)
    assert read({"profiling_name": "odd:x"}).library == ""


def test_what_is_no_dump() -> None:
    assert is_flight_recorder(b'{"pg_config": 1, "entries": []}')
    assert is_flight_recorder(b'{"pg_config": 1, "pg_status": 1}')
    for other in (b'{"pg_config": 1}', b'{"entries": []}', b'["pg_config", "entries"]', b""):
        assert not is_flight_recorder(other)
    for content in ({"entries": 3}, [1]):
        with pytest.raises(TraceError, match="not a flight recorder dump"):
            read_flight_recorder(Document("x", json.dumps(content).encode()))
    with pytest.raises(TraceError, match="not a readable flight recorder dump"):
        read_flight_recorder(Document("x", b"{"))


@pytest.mark.parametrize(
    ("name", "rank"),
    [
        ("rank0.json", 0),
        ("dump_rank_3", 3),
        ("nccl_trace_rank_0", 0),
        ("trace7", 7),
        ("rank2_of_9", 2),
        ("dump", -1),
    ],
)
def test_a_dump_is_of_the_rank_of_its_name_else_of_the_number_at_its_end(
    name: str, rank: int
) -> None:
    assert read(name=name).rank == rank
