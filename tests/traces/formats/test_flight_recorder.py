"""Flight recorder dumps: order, groups, bytes, and hostile pickles."""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import Any

import pytest
from helpers.recorded_calls import GLOO, dump, entry, rows

from commsim.errors import TraceError
from commsim.traces import import_graph
from commsim.traces.formats.plain_pickle import plain_values


def test_a_dump_without_entries_says_that_nothing_was_called(tmp_path: Path) -> None:
    """What torch writes if nothing was enqueued: groups, and no "entries"."""
    for rank in range(2):
        written = {k: v for k, v in dump([]).items() if k != "entries"} | {"pg_status": {}}
        (tmp_path / f"fr_rank{rank}.json").write_text(json.dumps(written))
    with pytest.raises(TraceError, match="no call of any rank is recorded"):
        import_graph(tmp_path)


@pytest.mark.parametrize("packed", [True, False])
def test_a_flight_recorder_dump_gives_order_groups_and_bytes(tmp_path: Path, packed: bool) -> None:
    shard = {"input_sizes": [[128, 4]]}
    for rank in (0, 1):
        content = dump([
            entry("nccl:all_reduce", 1),
            entry("nccl:_all_gather_base", 2, **shard),
            entry(f"nccl:send {rank}->{1 - rank}", 0, is_p2p=True, p2p_seq_id=1),
            entry(f"nccl:recv {rank}<-{1 - rank}", 0, is_p2p=True, p2p_seq_id=2),
        ])  # fmt: skip
        path = tmp_path / f"nccl_trace_rank_{rank}"
        path.write_bytes(pickle.dumps(content) if packed else json.dumps(content).encode())
    found = import_graph(tmp_path)
    assert found.format == "flight recorder"
    assert rows(found.graph) == [("all_reduce", 2048, (0, 1)), ("all_gather", 2048, (0, 1))]
    assert found.graph.collectives.dtype == ("bfloat16", "bfloat16")
    messages = found.graph.messages
    assert (messages.source.tolist(), messages.target.tolist()) == ([0, 1], [1, 0])
    assert messages.size.tolist() == [2048, 2048]
    assert found.graph.groups[0].library == "nccl"
    assert found.trace is None


def test_messages_hold_what_comes_after_them_and_not_each_other(tmp_path: Path) -> None:
    for rank in (0, 1):
        content = dump([
            entry("nccl:all_reduce", 1),
            entry(f"nccl:send {rank}->{1 - rank}", 0, is_p2p=True, p2p_seq_id=1),
            entry(f"nccl:recv {rank}<-{1 - rank}", 0, is_p2p=True, p2p_seq_id=2),
            entry("nccl:all_reduce", 2),
        ])  # fmt: skip
        (tmp_path / f"fr_rank{rank}.json").write_text(json.dumps(content))
    graph = import_graph(tmp_path).graph
    causes = [graph.dep_op[graph.dep_ptr[op] : graph.dep_ptr[op + 1]].tolist() for op in range(4)]
    assert causes == [[], [0], [0], [0, 1, 2]]


def test_what_a_ring_buffer_forgot_is_left_out_on_all_ranks(tmp_path: Path) -> None:
    for rank, first in ((0, 1), (1, 3)):
        entries = [entry("nccl:all_reduce", n, input_sizes=[[n]]) for n in range(first, 6)]
        (tmp_path / f"fr_rank{rank}.json").write_text(json.dumps(dump(entries)))
    found = import_graph(tmp_path)
    assert [size for _, size, _ in rows(found.graph)] == [2048, 2048, 2048]
    assert any("2 calls are recorded on some ranks" in note for note in found.notes)


def test_groups_of_a_mesh_are_those_that_speak_of_them() -> None:
    """Gloo's dumps list no ranks; on a 2 x 2 mesh sibling groups have names of their own."""
    found = import_graph(sorted((GLOO / "fsdp2-tp-4").glob("*.fr.json")))
    named = {group.ranks for group in found.graph.groups}
    assert named == {(0, 1, 2, 3), (0, 1), (2, 3), (0, 2), (1, 3)}


def test_a_dump_that_torch_pickled_holds_the_calls_of_the_run() -> None:
    """DDP on two ranks: its start-up, then steps; the last is a barrier and two buckets."""
    found = import_graph(sorted((GLOO / "ddp-2").glob("*.fr.pickle")))
    table = found.graph.collectives
    bucket, rest = 98816 * 4, 98944 * 4
    assert table.kind[:4] == ("all_gather", "broadcast", "broadcast", "barrier")
    assert table.kind[-3:] == ("barrier", "all_reduce", "all_reduce")
    assert table.size[-3:].tolist() == [0, bucket, rest]
    assert table.dtype[-3:] == ("", "float32", "float32")
    assert len(table) == 16


def test_a_pickled_dump_and_its_json_are_read_alike(tmp_path: Path) -> None:
    for rank in range(2):
        pickled = (GLOO / f"ddp-2/rank{rank}.fr.pickle").read_bytes()
        text = json.dumps(plain_values(pickled, "dump"))
        (tmp_path / f"rank{rank}.fr.json").write_text(text)
    one, other = import_graph(sorted((GLOO / "ddp-2").glob("*.fr.pickle"))), import_graph(tmp_path)
    assert rows(one.graph) == rows(other.graph)
    assert one.notes == other.notes


class _Evil:
    def __reduce__(self) -> tuple[Any, ...]:
        return (exec, ("import pathlib; pathlib.Path('EXECUTED').touch()",))


@pytest.mark.parametrize("protocol", [2, 4, 5])
def test_a_pickle_that_imports_is_refused_and_runs_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, protocol: int
) -> None:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "fr_rank0.pkl"
    path.write_bytes(pickle.dumps({"entries": [_Evil()]}, protocol=protocol))
    with pytest.raises(TraceError, match="more than hold values"):
        import_graph(path)
    assert not (tmp_path / "EXECUTED").exists()


@pytest.mark.parametrize(
    "data",
    [
        b"\x80\x02c__builtin__\neval\n.",
        b"\x80\x04\x8c\x02os\x8c\x06system\x93.",
        b"\x80\x02r\xff\xff\xff\x7f.",  # a memo slot that would take 16 GiB
        b"\x80\x05\x8e\xff\xff\xff\xff\xff\xff\xff\x0fabc.",  # 1 EiB of bytes
        b"\x80\x02(((",
        b"\x80\x02Q.",
    ],
)
def test_hostile_pickles_end_in_one_sentence(data: bytes) -> None:
    with pytest.raises(TraceError) as caught:
        plain_values(data, "dump")
    assert "\n" not in str(caught.value)
