"""Host work beside async calls of Gloo is work, and what is not known of a gap is said."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from helpers.kineto_writer import Recording
from helpers.paths import TESTS

from commsim.metrics import measure
from commsim.traces import Trace, load_trace
from commsim.traces.formats.files import Document
from commsim.traces.formats.kineto import read_kineto
from commsim.traces.rebuild.rank.activity import Activity, activity_of
from commsim.traces.rebuild.rank.gloo_waits import found_done, gloo_waits, unsure_waits

STACKS = TESTS / "data" / "gloo_stacks"
OWN_WORK = ("<built-in function sleep>", "<built-in method sort of numpy", "aten::ones")


def own_work(rank: int) -> float:
    """Return the seconds in sleeps, sorts and tensors that the recording's own frames show."""
    file = json.loads(gzip.decompress((STACKS / f"rank{rank}.json.gz").read_bytes()))
    events: list[dict[str, Any]] = file["traceEvents"]
    return float(sum(e["dur"] for e in events if e["name"].startswith(OWN_WORK)) / 1e6)


def compute(trace: Trace) -> list[float]:
    return [times.compute_s for times in measure(trace.timeline()).ranks]


def test_sleeps_and_numpy_beside_async_calls_are_work_with_stacks() -> None:
    for rank, seconds in enumerate(compute(load_trace(STACKS))):
        assert own_work(rank) <= seconds <= own_work(rank) + 0.025  # numpy.arange, Python itself


def test_without_stacks_what_may_be_work_is_said(tmp_path: Path) -> None:
    """The sleep ends long after its all-reduce did: work. The sort ends as the send's wait does."""
    for rank in range(2):
        file = json.loads(gzip.decompress((STACKS / f"rank{rank}.json.gz").read_bytes()))
        file["traceEvents"] = [
            event for event in file["traceEvents"] if event.get("cat") != "python_function"
        ]
        (tmp_path / f"rank{rank}.json").write_text(json.dumps(file))
    trace = load_trace(tmp_path)
    without, known = compute(trace)[0], compute(load_trace(STACKS))[0]
    assert without == pytest.approx(known - 0.0538, abs=1e-3)
    (note,) = [n for n in trace.notes if n.startswith("rank 0") and "with_stack=True" in n]
    assert "53.8" in note


US = 1_000_000


def message(
    *waits: tuple[float, float], end: float, op: str = "send", rank: int = 0, issued: int = 10
) -> Activity:
    """A send issued for 10 us at 10 us and recorded until `end`, with frames of waits, in us."""
    record = Recording(rank)
    record.note("ProfilerStep#1", 0, 2000)
    record.op(f"c10d::{op}", 10, issued)
    record.note(f"gloo:{op}", 12, end - 12)
    for start, until in waits:
        record.event(
            "python_function", "<built-in method wait of pybind11_object>", start, until - start
        )
    return activity_of(read_kineto(Document("x", json.dumps(record.content()).encode())), rank)


@pytest.mark.parametrize(
    ("wait", "end", "took"),
    [
        ((700, 900), 900, 200), ((699, 900), 900, -1),  # at most 200 us
        ((160, 310), 310, 150), ((159, 310), 310, -1),  # no longer than since it was issued
        ((300, 400), 300, 0), ((300, 400), 400, 100), ((300, 400), 299, -1), ((300, 400), 401, -1),
    ],
)  # fmt: skip
def test_a_short_wait_long_after_a_message_was_posted_found_it_done(
    wait: tuple[float, float], end: float, took: int
) -> None:
    found = found_done(message(wait, end=end), 0, gaps_are_work=False)
    assert found == (took * US if took >= 0 else -1)


def test_the_last_wait_that_began_before_the_end_is_the_messages() -> None:
    waits = ((100, 110), (300, 400), (500, 510))
    assert found_done(message(*waits, end=350), 0, gaps_are_work=False) == 50 * US
    assert found_done(message(*waits, end=450), 0, gaps_are_work=False) == -1


@pytest.mark.parametrize(("end", "done"), [(21, 0), (20, -1), (900, 0)])
def test_without_frames_a_message_that_outlived_its_op_may_have_been_found_done(
    end: float, done: int
) -> None:
    assert found_done(message(end=end), 0, gaps_are_work=True) == done
    assert found_done(message(end=end), 0, gaps_are_work=False) == -1


def test_a_collective_is_never_found_done() -> None:
    found = message((700, 800), end=800, op="allreduce_")
    assert len(found.gpu) == 1
    assert found_done(found, 0, gaps_are_work=False) == -1
    assert found_done(message(end=900, op="allreduce_"), 0, gaps_are_work=True) == -1


def waits_of(found: Activity, *, gaps_are_work: bool = False) -> list[tuple[int, int]]:
    (thread,) = found.threads.values()
    return [
        (start // US, end // US)
        for start, end, work in gloo_waits(found, thread, gaps_are_work=gaps_are_work)
        if work == (0,)
    ]


def test_who_waits_for_gloo() -> None:
    """In the op; in a frame; where a frame found it done; at the end of the step."""
    assert waits_of(message(end=20)) == [(10, 20)]
    assert waits_of(message((300, 700), end=700)) == [(300, 700)]
    assert waits_of(message((300, 701), end=700)) == [(300, 700)]
    assert waits_of(message((300, 1701), end=700)) == [(300, 700)]
    assert waits_of(message((600, 700), end=700)) == [(700, 700)]
    assert waits_of(message((300, 400), end=700)) == [(2000, 2000)]


def with_gap(end: float, until: float) -> Activity:
    """An op follows at `until`."""
    record = Recording(0)
    record.note("ProfilerStep#1", 0, 4000)
    record.op("c10d::allreduce_", 10, 10)
    record.note("gloo:all_reduce", 12, end - 12, tid=9)
    record.op("aten::mm", until, 4000 - until)
    return activity_of(read_kineto(Document("x", json.dumps(record.content()).encode())), 0)


@pytest.mark.parametrize(
    ("end", "until", "waited", "unsure"),
    [
        (700, 700, (20, 700), 680), (700, 1700, (20, 700), 680), (700, 1701, (1701, 1701), 0),
        (700, 699, (4000, 4000), 0), (21, 39, (20, 21), 1),
    ],
)  # fmt: skip
def test_a_gap_that_ends_within_a_millisecond_of_the_collective_is_taken_for_waiting(
    end: float, until: float, waited: tuple[int, int], unsure: int
) -> None:
    found = with_gap(end, until)
    assert waits_of(found) == [waited]
    assert unsure_waits(found) == unsure * US
    sure = (waited[1], waited[1])
    assert waits_of(found, gaps_are_work=True) == [sure]


def test_a_functional_wait_is_seen_without_frames() -> None:
    record = Recording(0)
    record.note("ProfilerStep#1", 0, 2000)
    record.op("c10d::send", 10, 10)
    record.note("gloo:send", 12, 688)
    record.op("_c10d_functional::wait_tensor", 300, 401)
    found = activity_of(read_kineto(Document("x", json.dumps(record.content()).encode())), 0)
    assert waits_of(found) == [(300, 700)]


def test_a_thread_waits_for_what_it_issued_itself() -> None:
    record = Recording(0)
    record.note("ProfilerStep#1", 0, 2000)
    record.op("aten::mm", 10, 20)
    record.op("c10d::allreduce_", 10, 10, tid=200)
    record.note("gloo:all_reduce", 12, 3, tid=9)
    found = activity_of(read_kineto(Document("x", json.dumps(record.content()).encode())), 0)
    waits = [list(gloo_waits(found, t, gaps_are_work=False)) for t in found.threads.values()]
    assert waits == [[], [(10 * US, 15 * US, (0,))]]


@pytest.mark.parametrize(("begins", "end", "waited"), [
    (10, 10, (10, 10)), (10, 20, (10, 20)), (10, 21, (2000, 2000)),
])  # fmt: skip
def test_a_call_waits_for_what_ends_within_it(
    begins: int, end: int, waited: tuple[int, int]
) -> None:
    """A call from 10 to 20 us, of work that ended as it began, as it ended, and later."""
    record = Recording(0)
    record.note("ProfilerStep#1", 0, 2000)
    record.op("c10d::allreduce_", 10, 10)
    record.note("gloo:all_reduce", begins, end - begins, tid=9)
    record.event("python_function", "<built-in method wait of pybind11_object>", 1990, 1)
    found = activity_of(read_kineto(Document("x", json.dumps(record.content()).encode())), 0)
    assert waits_of(found) == [waited]
