"""What GPU work waits for on other streams, in small recordings; times in us."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pytest
from helpers.kineto_writer import COMMS, MAIN, Recording

from commsim.traces.formats.files import Document
from commsim.traces.formats.kineto import read_kineto
from commsim.traces.rebuild.rank.activity import activity_of
from commsim.traces.rebuild.rank.collectives import _by_work, _comms, collectives_of
from commsim.traces.rebuild.rank.issue_order import issue_order
from commsim.traces.rebuild.rank.part import rank_part
from commsim.traces.rebuild.rank.process_group_waits import process_group_waits
from commsim.traces.rebuild.rank.streams import cross_stream

AUTOGRAD = 200
US = 1_000_000


def recording() -> Recording:
    record = Recording(0)
    record.note("ProfilerStep#1", 0, 2000)
    return record


def edges(record: Recording) -> tuple[set[tuple[str, str]], str]:
    """Return who waits for whom, as "stream@start", and how that is known."""
    found = activity_of(read_kineto(Document("x", json.dumps(record.content()).encode())), 0)
    waits, how = cross_stream(found, issue_order(found), collectives_of(found, None))
    names = [f"{op.event.stream}@{op.event.start // US}" for op in found.gpu]
    return {(names[source], names[op]) for op, of in waits.items() for source in of}, how


def wait(record: Recording, at: float, group: str = "0", tid: int = MAIN) -> int:
    """Add a Work.wait(); return the correlation of its cudaStreamWaitEvent."""
    args = {"Collective name": "wait", "Process Group Name": group}
    record.op("record_param_comms", at, 5, tid=tid, **args)
    return record.call("cudaStreamWaitEvent", at + 1, 1, tid=tid)


def sync(record: Recording, wait: int, stream: int, of: tuple[int, int] = (-1, -1)) -> None:
    """Say by a cuda_sync event that `stream` waits, and for which (stream, record)."""
    record.event(
        "cuda_sync", "Stream Wait Event", 0, 1, pid=0, tid=stream, stream=stream,
        correlation=wait, wait_on_stream=of[0], wait_on_cuda_event_record_corr_id=of[1],
    )  # fmt: skip


def test_a_collective_waits_for_what_another_thread_launched_on_the_current_stream() -> None:
    """The main thread sums up what autograd's thread computed after it."""
    record = recording()
    record.kernel("forward", 10, 20, 50)
    record.kernel("backward", 30, 80, 200, tid=AUTOGRAD)
    record.kernel("aside", 40, 50, 10, stream=9, tid=AUTOGRAD)
    record.all_reduce(100, 283, 400)
    assert edges(record)[0] == {("7@80", "20@283")}


def test_a_collective_that_began_before_waits_for_its_own_threads_last() -> None:
    record = recording()
    record.kernel("forward", 10, 20, 50)
    record.kernel("backward", 30, 80, 200, tid=AUTOGRAD)
    record.all_reduce(100, 120, 400)
    assert edges(record)[0] == {("7@20", "20@120")}


@pytest.mark.parametrize(("second", "found"), [("0", {("21@20", "25@203")}), ("1", set())])
def test_kernels_of_one_communicator_run_in_the_order_of_issue(
    second: str, found: set[tuple[str, str]]
) -> None:
    """Two collectives that are not async, on two streams, as FSDP2 has them."""
    record = recording()
    record.all_reduce(0, 20, 200, stream=21)
    record.all_reduce(50, 203, 300, stream=25, group=second)
    assert edges(record)[0] == found


def test_kernels_of_one_communicator_that_ran_at_once_are_taken_as_they_were() -> None:
    record = recording()
    record.all_reduce(0, 20, 200, stream=21)
    record.all_reduce(50, 150, 300, stream=25)
    assert edges(record)[0] == set()


def test_a_collective_waits_for_what_its_stream_waits_for() -> None:
    """Group 1 waits for group 0 through the current stream, which has no work in between."""
    record = recording()
    record.kernel("forward", 10, 20, 50)
    record.all_reduce(40, 75, 200)
    wait(record, 80)
    record.all_reduce(100, 203, 300, group="1", stream=30)
    record.kernel("later", 150, 400, 10)
    assert edges(record)[0] == {
        ("7@20", "20@75"), ("7@20", "30@203"), ("20@75", "30@203"), ("20@75", "7@400"),
    }  # fmt: skip


def test_a_thread_that_has_launched_nothing_yet_is_on_the_stream_where_it_will() -> None:
    record = recording()
    record.kernel("forward", 10, 20, 50)
    record.all_reduce(100, 120, 200, tid=AUTOGRAD)
    record.kernel("backward", 150, 210, 20, tid=AUTOGRAD)
    assert edges(record)[0] == {("7@20", "20@120")}


def test_a_kernel_that_no_call_issued_is_not_the_work_of_a_call_that_has_one() -> None:
    """After an all-reduce somebody calls NCCL directly; what is coalesced has its kernel later."""
    record = recording()
    record.all_reduce(10, 30, 100)
    record.kernel("ncclDevKernel_Generic", 60, 110, 20, stream=30)
    record.op("record_param_comms", 80, 3, **{"Collective name": "allreduce"})
    record.kernel("ncclDevKernel_Generic", 90, 150, 20, stream=30)
    found = activity_of(read_kineto(Document("x", json.dumps(record.content()).encode())), 0)
    calls = collectives_of(found, None).calls
    nodes: Any = {
        call: SimpleNamespace(work=("0", at), is_wait=False)
        for at, call in enumerate(_comms(found))
    }
    assert _by_work(found, list(calls), nodes) == {("0", 0): 0, ("0", 1): 2}


def test_a_wait_is_for_a_call_of_its_own_group() -> None:
    record = recording()
    record.all_reduce(10, 30, 100)
    record.all_reduce(60, 80, 150, group="1", stream=30)
    wait(record, 110)
    record.kernel("later", 130, 300, 10)
    assert edges(record)[0] == {("20@30", "7@300")}


def test_the_stream_that_waits_is_known_where_no_record_is() -> None:
    """Recorded by CUDA 13: the thread launches on stream 9 next, but 7 waits."""
    record = recording()
    record.kernel("forward", 10, 20, 50)
    record.all_reduce(40, 75, 200)
    sync(record, wait(record, 80), 7)
    unseen = record.call("cudaStreamWaitEvent", 90, 1)  # by a stream without work: it is not told
    record.kernel("copy", 100, 210, 10, stream=9)
    record.kernel("later", 120, 230, 10)
    found, how = edges(record)
    assert found == {("7@20", "20@75"), ("20@75", "7@230")}
    assert "which stream waits, not for what" in how
    sync(record, unseen, 9)
    assert edges(record)[0] == found | {("7@20", "9@210"), ("20@75", "9@210")}


def test_a_record_stands_for_what_its_stream_waits_for_too() -> None:
    """Stream 8 waits for 7, and before it has work of its own stream 9 waits for 8."""
    record = recording()
    record.kernel("first", 10, 20, 100, stream=7)
    record.kernel("second", 20, 25, 10, stream=8)
    on_7 = record.call("cudaEventRecord", 30, 1)
    sync(record, record.call("cudaStreamWaitEvent", 40, 1), 8, (7, on_7))
    on_8 = record.call("cudaEventRecord", 50, 1)
    sync(record, record.call("cudaStreamWaitEvent", 60, 1), 9, (8, on_8))
    record.kernel("third", 70, 125, 10, stream=9)
    record.kernel("fourth", 80, 140, 10, stream=8)
    found, how = edges(record)
    assert found == {("7@20", "9@125"), ("8@25", "9@125"), ("7@20", "8@140")}
    assert how.endswith("as the cuda_sync events say.")


def test_streams_that_wait_for_each_other_again_and_again_wait_for_each_work_once() -> None:
    """Each wait passes on all that the other stream waits for: counted anew it would double."""
    record = recording()
    record.kernel("first", 10, 20, 5, stream=7)
    record.kernel("second", 15, 30, 5, stream=8)
    for at in range(200):
        waiting, other = (7, 8) if at % 2 else (8, 7)
        recorded = record.call("cudaEventRecord", 50 + 4 * at, 1)
        sync(record, record.call("cudaStreamWaitEvent", 52 + 4 * at, 1), waiting, (other, recorded))
    record.kernel("third", 900, 910, 5, stream=7)
    record.kernel("fourth", 905, 920, 5, stream=8)
    assert edges(record)[0] >= {("8@30", "7@910"), ("7@20", "8@920")}


def test_collectives_with_nothing_between_them_each_wait_for_what_is_new() -> None:
    """A benchmark of two communicators in turns: one buffer is filled, each call is waited for."""
    record = recording()
    record.kernel("fill", 10, 20, 5)
    for call in range(80):
        at, group = 50 + 20 * call, call % 2
        record.all_reduce(at, at + 4, at + 8, group=str(group), stream=20 + 10 * group)
        wait(record, at + 10, str(group))
    found = activity_of(read_kineto(Document("x", json.dumps(record.content()).encode())), 0)
    waits = list(process_group_waits(found, issue_order(found), collectives_of(found, None), {}))
    assert len(waits) == 80 + 79  # for the buffer, and all but the first for the call before
    assert edges(record)[0] >= {("7@20", "30@1634"), ("20@1614", "30@1634")}


@pytest.mark.parametrize(
    ("stream", "start", "told"),
    [(7, 703, (1, 0)), (7, 730, (0, 1)), (COMMS, 703, (0, 0))],
)
def test_work_behind_the_head_of_a_queue_waits_for_what_that_waits_for(
    stream: int, start: int, told: tuple[int, int]
) -> None:
    """The second all-reduce waits for the first; a kernel launched then begins as it does.

    One that begins later was held by something else, and one on its own stream is in order anyway.
    """
    record = recording()
    record.kernel("forward", 10, 20, 50)
    record.all_reduce(40, 75, 700, stream=21)
    record.all_reduce(80, 702, 702.5, stream=COMMS)
    record.kernel("beside", 120, start, 10, stream=stream)
    fragment = rank_part(
        read_kineto(Document("x", json.dumps(record.content()).encode())), rank=0
    ).fragment
    assert (fragment.queued_ops, fragment.held_ops) == told
