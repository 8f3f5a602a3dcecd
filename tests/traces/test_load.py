"""Which file is of which rank, what goes beside it, and what is said of files that do not fit."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from commsim.errors import TraceError
from commsim.traces import load
from commsim.traces.formats import Document, ExecutionTrace, RankRecord
from commsim.traces.load import _Found


def kineto(name: str, rank: int, pid: str = "1") -> Any:
    return SimpleNamespace(name=name, rank=rank, pid=pid)


def record(name: str, rank: int, format: str = "Chakra", **more: Any) -> RankRecord:
    return RankRecord(name, format, rank, 0, (), **more)


def execution(name: str, pid: str, rank: int) -> ExecutionTrace:
    return ExecutionTrace(name, pid, rank, ())


def test_one_path_or_several() -> None:
    assert load._listed("a") == load._listed(Path("a")) == load._listed(["a"]) == [Path("a")]
    assert load._listed(iter(("a", Path("b")))) == [Path("a"), Path("b")]


def test_a_lone_file_without_a_rank_is_rank_0() -> None:
    found = _Found(kineto=[kineto("x", -1)])
    assert load._by_rank(found) == {0: found.kineto[0]}
    assert found.notes == ["x: does not say its rank; taken as rank 0."]
    for rank in (0, 3):
        found = _Found(kineto=[kineto("x", rank)])
        assert (load._by_rank(found), found.notes) == ({rank: found.kineto[0]}, [])


@pytest.mark.parametrize(
    "found",
    [
        _Found(kineto=[kineto("x", -1), kineto("y", 0)]),
        _Found(kineto=[kineto("y", 0), kineto("x", -1)]),
        _Found(kineto=[kineto("x", -1)], parts=[kineto("y", 0)]),
        _Found(kineto=[], parts=[kineto("x", -1)]),
    ],
)
def test_one_of_several_files_has_to_say_its_rank(found: _Found) -> None:
    with pytest.raises(TraceError, match=r"^x: does not say its rank \(no distributedInfo"):
        load._by_rank(found)


def test_two_files_of_one_rank_are_refused() -> None:
    for found in (
        _Found(kineto=[kineto("x", 2), kineto("y", 2)]),
        _Found(kineto=[kineto("y", 2)], parts=[kineto("x", 2)]),
    ):
        with pytest.raises(TraceError, match=r"^x and y are both of rank 2\."):
            load._by_rank(found)
    both = _Found(kineto=[kineto("x", 0)], parts=[kineto("y", 1)])
    assert load._by_rank(both) == {0: both.kineto[0]}


def test_records_have_their_ranks_and_the_groups_of_the_file_beside_them() -> None:
    found = _Found()
    (lone,) = load._ranked([record("x", -1)], found)
    assert (lone.rank, found.notes) == (0, ["x: does not say its rank; taken as rank 0."])
    found = _Found()
    assert load._ranked([record("x", 0)], found) == [record("x", 0)]
    assert load._ranked([record("x", 1), record("y", 0)], found) == [record("x", 1), record("y", 0)]
    assert found.notes == []
    with pytest.raises(TraceError, match=r"^y: does not say its rank, and neither"):
        load._ranked([record("x", 0), record("y", -1)], found)
    with pytest.raises(TraceError, match="x and y are both of rank 0"):
        load._ranked([record("x", 0), record("y", 0)], found)
    found.groups = {"a": (0, 1), "b": (0,)}
    own, none = load._ranked([record("x", 0, groups={"a": (5,)}), record("y", 1)], found)
    assert own.groups == {"a": (5,), "b": (0,)}
    assert none.groups == found.groups


def test_an_execution_trace_goes_by_its_process_else_by_its_rank() -> None:
    zero, one, two = execution("e0", "10", -1), execution("e1", "99", 0), execution("e2", "98", 1)
    files = {0: kineto("x", 0, "10"), 1: kineto("y", 1, "11"), 2: kineto("z", 2, "12")}
    found = _Found(execution=[zero, one, two])
    assert load._of_processes(files, found) == {0: zero, 1: two}
    same = {0: kineto("x", 0, "10"), 1: kineto("y", 1, "10")}  # as containers have them
    assert load._of_processes(same, found) == {0: one, 1: two}


def test_flight_recorders_stand_beside_kineto_and_other_records_are_left_out() -> None:
    dump, other = record("d", 1, "flight recorder"), record("g", 1, "GOAL")
    found = _Found(records=[dump, other, record("e", 5, "flight recorder")])
    assert load._dumps({0: kineto("x", 0), 1: kineto("y", 1)}, found) == {1: dump}
    assert found.notes == ["g: not needed beside Kineto traces; left out."]


@pytest.mark.parametrize(
    ("strange", "said"),
    [
        ([], []), (["a"], ["a: not a trace; left out."]),
        (["a", "b"], ["a and 1 more file: not traces that are read; left out."]),
        (["a", "b", "c"], ["a and 2 more files: not traces that are read; left out."]),
    ],
)  # fmt: skip
def test_files_that_are_no_traces_are_named_in_a_sentence(
    strange: list[str], said: list[str]
) -> None:
    assert load._left_out(_Found(strange=strange)) == said


@pytest.mark.parametrize(
    ("found", "said"),
    [
        (_Found(records=[record("x", 0)]), "here: a Chakra has no times of its own."),
        (_Found(execution=[execution("x", "1", 0)]), "here: holds PyTorch Execution Traces"),
        (_Found(strange=["a.xml", "b"]), "a.xml: an algorithm (MSCCL XML), not a trace."),
        (_Found(strange=["b", "a.xml"]), "b: not a format that is read."),
        (_Found(), "here: holds no trace."),
    ],
)
def test_without_times_it_is_said_what_the_files_are(found: _Found, said: str) -> None:
    assert load._nothing("here", found).startswith(said)


@pytest.mark.parametrize(
    ("name", "data", "said"),
    [
        ("x.bin", b" \n", "is empty"), ("x.json", b"", "is empty"),
        ("x.json", b"{", "not valid JSON"), ("X.JSON.GZ", b"{", "not valid JSON"),
        ("x.pt", b"{", "not valid JSON"), ("x.json", b"[" * 9999, "nested too deeply"),
        ("x.bin", b"{", ""), ("x.json", b"{}", ""),
    ],
)  # fmt: skip
def test_another_file_may_stand_beside_a_trace_and_a_broken_one_not(
    name: str, data: bytes, said: str
) -> None:
    document = Document(name, data)
    if not said:
        load._check_other(document)
        return
    with pytest.raises(TraceError, match=said):
        load._check_other(document)


def test_documents_are_sorted_by_what_they_hold() -> None:
    found = _Found()
    load._sort(found, Document("end of x", b"", cut=True))
    assert found.notes == ["end of x: cut off; what it held past here is lost."]
    load._sort(found, Document("groups.json", b'{"0": [0, 1], "1": [2]}'))
    load._sort(found, Document("groups.json", b'{"1": [3]}'))
    assert found.groups == {"0": (0, 1), "1": (3,)}
    load._sort(found, Document("notes.txt", b"nothing"))
    assert found.strange == ["notes.txt"]
    load._sort(found, Document("rank1.goal", b"num_ranks 2\nrank 0 {\n}\nrank 1 {\n}\n"))
    assert [one.rank for one in found.records] == [0, 1]
    assert not any((found.kineto, found.execution, found.tables))


def test_progress_is_told_file_by_file(tmp_path: Path) -> None:
    for name in "abc":
        (tmp_path / f"{name}.json").write_text('{"0": [0, 1]}')
    told: list[tuple[int, int]] = []
    found = load._search([tmp_path], lambda done, of: told.append((done, of)))
    assert told[:3] == [(1, 3), (2, 3), (3, 3)]
    assert set(told[3:]) <= {(3, 3)}
    assert found.groups == {"0": (0, 1)}
