"""A rank's recording sorted: its main thread, those of autograd, its steps, what is said of it."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pytest
from helpers.kineto_writer import MAIN, Recording

from commsim.errors import TraceError
from commsim.graph import Device, OpKind
from commsim.traces.formats import KinetoFile
from commsim.traces.formats.files import Document
from commsim.traces.formats.kineto import read_kineto
from commsim.traces.rebuild.rank import rank_part
from commsim.traces.rebuild.rank.activity import _step_notes, activity_of
from commsim.traces.rebuild.rank.calls import ThreadCall
from commsim.traces.rebuild.rank.collectives import _is_wait

COMMS = "record_param_comms"


def read(record: Recording) -> KinetoFile:
    return read_kineto(Document("x", json.dumps(record.content()).encode()))


def test_threads_of_autograd_are_those_beside_the_main_one_that_run_its_nodes() -> None:
    """The main thread, on which the step is marked, runs a few too; thread 50 runs none."""
    record = Recording(0)
    record.op("autograd::engine::evaluate_function: x", 5, 1)
    record.op("aten::mm", 6, 1, tid=50)
    record.op("autograd::engine::evaluate_function: y", 7, 1, tid=60)
    record.note("ProfilerStep#1", 0, 20)
    record.note("ProfilerStep#2", 20, 30)
    found = activity_of(read(record), 3)
    assert found.main == ("4242", str(MAIN))
    assert found.backward == {("4242", "60")}
    assert found.step is not None
    assert [step.name for step in found.steps] == ["ProfilerStep#1", "ProfilerStep#2"]
    assert found.step.name == "ProfilerStep#2"
    assert set(found.threads) == {("4242", str(tid)) for tid in (MAIN, 50, 60)}


def test_without_steps_the_main_thread_is_the_one_that_launched_most() -> None:
    record = Recording(0)
    for at in range(9):
        record.op("aten::x", 10 * at, 1)
    for at in range(2):
        record.kernel("k", 100 + 10 * at, 200 + 20 * at, 5, tid=50)
    record.kernel("k", 130, 300, 5, tid=60)
    assert activity_of(read(record), 0).main == ("4242", "50")
    idle = Recording(0)
    for at, tid in enumerate((MAIN, 50, 50)):
        idle.op("aten::x", 10 * at, 1, tid=tid)
    assert activity_of(read(idle), 0).main == ("4242", "50")


def test_a_recording_of_the_gpu_alone_cannot_be_replayed() -> None:
    record = Recording(0)
    record.event("kernel", "k", 0, 5, pid=0, tid=7, stream=7)
    with pytest.raises(TraceError, match="no CPU events"):
        activity_of(read(record), 0)


@pytest.mark.parametrize(
    ("steps", "said"),
    [
        (0, ["no ProfilerStep is marked"]), (1, []), (2, ["2 steps are recorded; the last, s1,"]),
        (3, ["3 steps are recorded; the last, s2,"]),
    ],
)  # fmt: skip
def test_it_is_said_which_step_is_the_window(steps: int, said: list[str]) -> None:
    marked: Any = [SimpleNamespace(name=f"s{at}") for at in range(steps)]
    notes = _step_notes(7, marked)
    assert len(notes) == len(said)
    for note, part in zip(notes, said, strict=True):
        assert note.startswith("rank 7: ")
        assert part in note


def test_what_gloo_does_runs_on_the_cpu_from_the_first_call_on() -> None:
    record = Recording(0)
    record.note("ProfilerStep#1", 0, 2000)
    for at in (100, 500):
        record.op("c10d::allreduce_", at, 10)
        record.note("gloo:all_reduce", at + 12, 88, tid=9)
    record.kernel("k", 700, 710, 5)
    made = rank_part(read(record), rank=0).fragment
    speaks = made.kind == OpKind.COLLECTIVE
    assert made.device[speaks].tolist() == [Device.CPU] * 2
    (kernel,) = (made.stream == made.streams.index("stream 7")).nonzero()[0].tolist()
    assert made.device[kernel] == Device.CUDA


@pytest.mark.parametrize(
    ("inner", "called", "waits"),
    [
        (["cudaStreamWaitEvent"], "", True), (["hipStreamWaitEvent", "x"], "", True),
        (["x"], "", False), ([], "", False), (["cudaStreamWaitEvent", "nccl:x"], "", False),
        (["cudaStreamWaitEvent", "cudaLaunchKernelExC"], "", False),
        ([], "wait", True), (["cudaStreamWaitEvent"], "allreduce", False),
    ],
)  # fmt: skip
def test_a_record_that_only_waits_is_a_wait(inner: list[str], called: str, waits: bool) -> None:
    record = Recording(0)
    record.op(COMMS, 10, 20, **({"Collective name": called} if called else {}))
    for at, name in enumerate(inner):
        if name.startswith("nccl:"):
            record.note(name, 11 + at, 0.5)
        else:
            record.call(name, 11 + at, 0.5)
    found = activity_of(read(record), 0)
    (thread,) = found.threads.values()
    (index,) = thread.events.named(COMMS.__eq__).nonzero()[0].tolist()
    call = ThreadCall(thread.name, index)
    assert _is_wait(found, call, {}) is waits
    for told in (True, False):  # the Execution Trace knows
        node: Any = SimpleNamespace(is_wait=told)
        assert _is_wait(found, call, {call: node}) is told
