"""Files that are broken, cut, huge or malicious: one sentence, or a harmless result."""

from __future__ import annotations

import gzip
import io
import json
import re
import shutil
import tarfile
from pathlib import Path
from typing import Any

import pytest
from helpers.captured import DATA
from helpers.kineto_writer import Recording, late_rank
from helpers.share import examples
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from commsim.cli.main import call
from commsim.errors import TraceError
from commsim.study.replay import replay
from commsim.traces import load_trace
from commsim.traces.formats.files import FileLimits, documents

RUNS = {
    run.name: run
    for kind in ("gloo_runs", "gloo_random")
    for run in sorted((DATA / kind).iterdir())
    if run.is_dir()
}
WHOLE = json.dumps(late_rank(0).content()).encode()


def refusal(path: Path) -> str:
    """Return the one message that loading `path` ends in."""
    with pytest.raises(TraceError) as caught:
        load_trace(path)
    assert caught.value.exit_code == 3
    assert str(path.name) in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "is empty"),
        (b"  \n", "is empty"),
        (b"this is not JSON", "not valid JSON"),
        (b"\x00\xff\x13", "not valid JSON"),
        (b'{"schemaVersion": 1, "dist', "not valid JSON"),
        (b'{"traceEvents": [', "before its first complete event"),
        (b'{"traceEvents": [{"ph": "X", "cat": "ker', "before its first complete event"),
        (b'{"traceEvents": []}', "no complete event"),
        (b'{"traceEvents": 3}', "not a trace"),
        (b'{"other": 1}', "not a format that is read"),
        (b"[1, 2, 3]", "not a format that is read"),
    ],
)
def test_a_file_that_is_no_trace(tmp_path: Path, content: bytes, says: str) -> None:
    path = tmp_path / "rank0.json"
    path.write_bytes(content)
    assert says in refusal(path)


def test_a_missing_path_and_an_empty_folder(tmp_path: Path) -> None:
    assert "no such file" in refusal(tmp_path / "nowhere")
    (tmp_path / "void").mkdir()
    assert "no trace in this folder" in refusal(tmp_path / "void")


@settings(examples(60), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.integers(1, len(WHOLE) - 1))
def test_a_trace_cut_anywhere_is_salvaged_or_refused(tmp_path: Path, length: int) -> None:
    path = tmp_path / "rank0.json"
    path.write_bytes(WHOLE[:length])
    try:
        trace = load_trace(path)
        trace.graph()
    except TraceError as error:
        assert "\n" not in str(error)  # noqa: PT017
    else:
        assert any("cut off" in note for note in trace.notes) or length > len(WHOLE) - 3


def test_a_cut_trace_keeps_its_whole_events(tmp_path: Path) -> None:
    path = tmp_path / "rank0.json"
    path.write_bytes(WHOLE[: WHOLE.index(b'"aten::item"') + 5])
    trace = load_trace(path)
    assert len(trace.collectives) == 1
    assert any(
        re.search(r"cut off: \d+ events are whole, the last \d+ bytes", n) for n in trace.notes
    )


def test_a_cut_gzip_keeps_its_whole_events(tmp_path: Path) -> None:
    many = late_rank(0)
    for k in range(4000):
        many.op(f"aten::op{k * 7919 % 4001}", 1_700_000_000_000_700 + k / 100, 0.01)
    packed = gzip.compress(json.dumps(many.content()).encode())
    path = tmp_path / "rank0.json.gz"
    path.write_bytes(packed[: len(packed) // 2])
    assert any("cut off" in note for note in load_trace(path).notes)


def test_a_gzip_damaged_inside_keeps_the_events_before(tmp_path: Path) -> None:
    """Other bytes in the middle: what was unpacked before stands, and the file counts as cut."""
    many = late_rank(0)
    for k in range(20_000):
        many.op(f"aten::op{k * 7919 % 20_001}", 1_700_000_000_000_700 + k / 100, 0.01)
    packed = bytearray(gzip.compress(json.dumps(many.content()).encode()))
    for place in range(len(packed) * 3 // 4, len(packed)):
        packed[place] ^= 0xFF
    path = tmp_path / "rank0.json.gz"
    path.write_bytes(packed)
    assert len(load_trace(path).collectives) == 1
    (document,) = documents(path)
    assert document.cut


def test_a_gzip_bomb_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "rank0.json.gz"
    path.write_bytes(_bomb(192))
    assert "no trace does" in refusal(path)


def _bomb(mebibytes: int) -> bytes:
    out = io.BytesIO()
    with gzip.GzipFile(fileobj=out, mode="wb") as file:
        for _ in range(mebibytes):
            file.write(bytes(2**20))
    return out.getvalue()


def test_a_bomb_inside_an_archive_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "run.tar.gz"
    with tarfile.open(path, "w:gz") as archive:
        member = tarfile.TarInfo("rank0.json.gz")
        inner = _bomb(192)
        member.size = len(inner)
        archive.addfile(member, io.BytesIO(inner))
    assert "no trace does" in refusal(path)


def test_limits_bound_what_is_unpacked(tmp_path: Path) -> None:
    path = tmp_path / "x.json.gz"
    path.write_bytes(_bomb(4))
    limits = FileLimits(unpacked=2**20, ratio=10, free=2**16)
    with pytest.raises(TraceError, match="unpacks to more than"):
        list(documents(path, limits))
    (content,) = documents(path)
    assert len(content.data) == 4 * 2**20


def test_links_in_an_archive_are_not_followed(tmp_path: Path) -> None:
    secret = tmp_path / "secret.json"
    secret.write_bytes(WHOLE)
    with tarfile.open(tmp_path / "run.tar", "w") as archive:
        link = tarfile.TarInfo("rank0.json")
        link.type, link.linkname = tarfile.SYMTYPE, str(secret)
        archive.addfile(link)
    assert "no trace" in refusal(tmp_path / "run.tar")


@pytest.mark.parametrize("suffix", [b"}", b"]}", b""])
def test_deep_nesting_is_refused(tmp_path: Path, suffix: bytes) -> None:
    path = tmp_path / "rank0.json"
    path.write_bytes(b'{"traceEvents": [{"args": {"x": ' + b"[" * 1_000_000 + suffix)
    assert "nested too deeply" in refusal(path)


def test_deep_nesting_outside_a_trace_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "rank0.json"
    path.write_bytes(b"[" * 1_000_000)
    assert "nested too deeply" in refusal(path)


def _with(change: dict[str, Any]) -> bytes:
    record = late_rank(0)
    record.events.append({"ph": "X", "cat": "cpu_op", "name": "odd", "pid": 4242, "tid": 100,
                          "ts": 1_700_000_000_000_010, "dur": 5, "args": {}} | change)  # fmt: skip
    return json.dumps(record.content()).encode()


def test_nan_is_not_json(tmp_path: Path) -> None:
    path = tmp_path / "rank0.json"
    path.write_bytes(_with({"ts": float("nan")}))
    assert "not valid JSON" in refusal(path)


@pytest.mark.parametrize(
    "change", [{"dur": -5}, {"ts": 1e300}, {"dur": 1e300}, {"ts": "soon"}, {"ts": "nan"}]
)
def test_impossible_times_are_left_out_and_counted(tmp_path: Path, change: dict[str, Any]) -> None:
    path = tmp_path / "rank0.json"
    path.write_bytes(_with(change))
    trace = load_trace(path)
    assert any("1 events have no possible time" in note for note in trace.notes)
    assert len(trace.graph()) > 5


@pytest.mark.parametrize("rank", [2**63, -3, 1e30, "many", [0]])
def test_an_impossible_rank_is_refused(tmp_path: Path, rank: Any) -> None:
    record = late_rank(0)
    record.rank = rank
    assert "not a rank" in refusal(record.save(tmp_path, "a.json"))


def test_an_impossible_world_is_harmless(tmp_path: Path) -> None:
    record = late_rank(0, modern=False)
    record.world = 2**62
    assert load_trace(record.save(tmp_path)).graph().groups[0].ranks == (0,)


def test_markup_in_names_stays_text(tmp_path: Path) -> None:
    path = tmp_path / "rank0.json"
    record = late_rank(0)
    record.kernel("<script>alert(1)</script>", 1_700_000_000_000_700, 1_700_000_000_000_710, 9)
    record.save(tmp_path)
    assert "<script>alert(1)</script>" in load_trace(path).graph().names


@pytest.mark.parametrize("change", [{"args": {"correlation": "x", "stream": None}}, {"pid": None},
                                    {"args": {"Input Dims": {"a": 1}}}, {"cat": None},
                                    {"args": 3}])  # fmt: skip
def test_odd_fields_are_harmless(tmp_path: Path, change: dict[str, Any]) -> None:
    path = tmp_path / "rank0.json"
    path.write_bytes(_with(change))
    assert len(load_trace(path).collectives) == 1


@pytest.mark.parametrize(
    "change",
    [
        {"name": 5},
        {"ts": {}},
        {"args": 3, "cat": "kernel"},
        {"args": 3, "name": "record_param_comms"},
    ],
)
def test_fields_of_another_type_are_named(tmp_path: Path, change: dict[str, Any]) -> None:
    path = tmp_path / "rank0.json"
    path.write_bytes(_with(change))
    assert "traceEvents" in refusal(path)


def test_kernels_without_cpu_events_are_refused(tmp_path: Path) -> None:
    record = Recording(0)
    record.event("kernel", "gemm", 10, 5, pid=0, tid=7, stream=7, correlation=4)
    assert "ProfilerActivity.CPU" in refusal(record.save(tmp_path))


def test_a_kernel_before_its_launch_is_clamped(tmp_path: Path) -> None:
    record = Recording(0, world=1)
    record.note("ProfilerStep#1", 0, 100)
    record.kernel("early", 50, 45, 10)
    graph = load_trace(record.save(tmp_path)).graph()
    assert graph.dep_delay.min() == 0


def test_an_execution_trace_of_another_run_is_not_used(tmp_path: Path) -> None:
    late_rank(0).save(tmp_path)
    node = {"name": "record_param_comms", "id": 5, "rf_id": 9, "input_types": ["Tensor(float)"],
            "inputs": [[1, 2, 0, 77, 4, "cuda:0"], 3, 8, 0, "allreduce", [], []]}  # fmt: skip
    trace = {"schema": "1.0.1", "pid": 4242, "nodes": [node, node | {"rf_id": 10}]}
    (tmp_path / "et_0.json").write_text(json.dumps(trace))
    loaded = load_trace(tmp_path)
    assert loaded.collectives[0].size == 4000
    assert any("it is not used" in note for note in loaded.notes)


@pytest.mark.parametrize(
    "content",
    [
        '{"schema": "1", "nodes": 4}',
        '{"schema": "1", "nodes": [',
        '{"schema":1,"nodes":[{"name":3}]}',
    ],
)
def test_a_broken_execution_trace_is_refused(tmp_path: Path, content: str) -> None:
    path = tmp_path / "et.json"
    path.write_text(content)
    assert "not a readable PyTorch Execution Trace" in refusal(path)


def test_odd_execution_trace_nodes_are_passed_over(tmp_path: Path) -> None:
    late_rank(0).save(tmp_path)
    inputs: tuple[Any, ...] = (3, [], {}, [1, 2], [[], [], {}, None, 5])
    odd = [{"name": "record_param_comms", "inputs": value} for value in inputs]
    (tmp_path / "et_0.json").write_text(json.dumps({"schema": "x", "pid": 4242, "nodes": odd}))
    assert load_trace(tmp_path).collectives[0].op == "all_reduce"


@pytest.mark.share(0.5)
@pytest.mark.parametrize("share", [0.05, 0.35, 0.65, 0.95])
@pytest.mark.parametrize("run", ["ddp-4", "fsdp2-tp-4", "1f1b-4", "p2p-2", "random-3-3"])
def test_one_file_cut_anywhere_replays_or_says_one_sentence(
    run: str, share: float, tmp_path: Path
) -> None:
    """Rank 1's file ends early; the others are replayed with what is left of it."""
    check_cut(RUNS[run], 1, share, tmp_path)


def test_a_root_that_is_lost_holds_the_others_of_a_broadcast_apart(tmp_path: Path) -> None:
    """Rank 0 is the root of a broadcast on Gloo: ranks 1 and 2 wait for it, not for each other."""
    check_cut(RUNS["random-3-3"], 0, 0.05, tmp_path)


@pytest.mark.long
@pytest.mark.parametrize("share", [percent / 100 for percent in range(5, 100, 10)])
@pytest.mark.parametrize("run", RUNS)
def test_every_cut_of_every_set_replays_or_says_one_sentence(
    run: str, share: float, tmp_path: Path
) -> None:
    rank = round(share * 100) // 10 % len([*RUNS[run].glob("rank*.calls.json")])
    check_cut(RUNS[run], rank, share, tmp_path)


def test_the_end_that_a_cut_took_from_a_step_is_said_first(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The step's own event is written early, so that its length is known and not what was in it."""
    folder = tmp_path / ("of_a_long_name" * 8)  # which takes no room from what is said
    folder.mkdir()
    cut_copy(RUNS["1f1b-4"], 2, 0.13, folder)
    assert call(["replay", str(folder)]) == 0
    printed = capsys.readouterr().err
    assert "rank 2: cut off 37.35 ms into its step of 96.98 ms: the rest counts as" in printed
    assert "rank2.json: cut off: 75" in printed


def test_a_step_that_a_cut_left_whole_has_lost_no_end(tmp_path: Path) -> None:
    cut_copy(RUNS["1f1b-4"], 2, 0.999, tmp_path)
    notes = replay(tmp_path).result.notes
    assert any("rank2.json: cut off" in note for note in notes)
    assert not any("into its step" in note for note in notes)


def cut_copy(run: Path, rank: int, share: float, to: Path) -> None:
    """Copy a recorded run with only a share of one rank's file."""
    for file in run.iterdir():
        if file.name == f"rank{rank}.json.gz":
            text = gzip.decompress(file.read_bytes())
            (to / f"rank{rank}.json").write_bytes(text[: int(len(text) * share)])
        elif "calls" not in file.name:
            shutil.copy(file, to)


def check_cut(run: Path, rank: int, share: float, tmp_path: Path) -> None:
    cut_copy(run, rank, share, tmp_path)
    try:
        found = replay(tmp_path)
    except TraceError as error:
        refused = str(error)
    else:
        refused = ""
    if refused:
        assert "\n" not in refused
        return
    assert "DO NOT TRUST" not in found.headline
    assert any("cut off" in note for note in found.result.notes)
