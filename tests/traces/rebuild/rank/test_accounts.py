"""What a recording says of a rank itself: unions of its events, and the pace of its GPU."""

from __future__ import annotations

import json
from typing import Any

import pytest
from helpers.kineto_writer import COMMS, Recording

from commsim.traces.formats import KinetoFile
from commsim.traces.formats.files import Document
from commsim.traces.formats.kineto import read_kineto
from commsim.traces.rebuild.rank.activity import Activity, activity_of
from commsim.traces.rebuild.rank.host_account import HostAccount, host_account
from commsim.traces.rebuild.rank.own_account import OwnAccount, own_account, window_of
from commsim.traces.rebuild.rank.pace import StepPace, pace_of

US = 1_000_000
NCCL = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(x)"


def read(record: Recording) -> KinetoFile:
    return read_kineto(Document("x", json.dumps(record.content()).encode()))


def activity(*kernels: tuple[Any, ...], step: tuple[float, float] | None = (0, 1000)) -> Activity:
    """Kernels as (name, launched, start, length) on streams of their own."""
    record = Recording(0)
    record.op("aten::first", 0, 1)
    if step:
        record.note("ProfilerStep#1", step[0], step[1] - step[0])
    for number, (name, launched, start, length) in enumerate(kernels):
        stream = COMMS if name == NCCL else 30 + number
        cat = "gpu_memcpy" if name.startswith("Memcpy") else ""
        record.kernel(name, launched, start, length, stream=stream, cat=cat)
    return activity_of(read(record), 0)


def test_time_of_a_gpu_counts_once_compute_first_then_communication_then_copies() -> None:
    """Compute 100 to 200 and 150 to 300; NCCL 250 to 400; a copy 350 to 450 and 10 to 20."""
    found = activity(
        ("mm", 1, 100, 100), ("add", 2, 150, 150), (NCCL, 3, 250, 150),
        ("Memcpy HtoD", 4, 350, 100),
        ("Memcpy HtoD", 5, 10, 10),
    )  # fmt: skip
    account = own_account(found)
    assert account == OwnAccount(200 * US, 100 * US, 60 * US)
    assert account.bounds() == {
        "compute": (200 * US, 200 * US),
        "exposed communication": (100 * US, 100 * US),
        "exposed copy": (60 * US, 60 * US),
    }


def test_only_what_lies_in_the_step_counts() -> None:
    kernels = (("mm", 1, 100, 100), ("mm", 2, 300, 100), ("mm", 3, 500, 10), ("mm", 4, 390, 5))
    assert own_account(activity(*kernels, step=(150, 350))) == OwnAccount(100 * US, 0, 0)
    assert own_account(activity(*kernels, step=(410, 420))) == OwnAccount(0, 0, 0)
    assert own_account(activity(("mm", 1, 5, 5), step=(20, 30))) == OwnAccount(0, 0, 0)


def test_the_window_is_the_step_else_the_main_threads_recording() -> None:
    assert window_of(activity(("mm", 1, 5, 5), step=(20, 30))) == (20 * US, 30 * US)
    assert window_of(activity(("mm", 8, 9, 500), step=None)) == (0, 13 * US)


WAIT = "<built-in method wait of pybind11_object>"


def host(*events: tuple[Any, ...], begin: int = 0, end: int = 1000) -> HostAccount | None:
    """Events as (kind, name, start, length[, thread]) of a rank without a GPU."""
    record = Recording(0)
    for kind, name, start, length, *thread in events:
        where = {"tid": thread[0]} if thread else {}
        record.event(kind, name, start, length, **where)
    return host_account(read(record), begin * US, end * US)


OP, NOTE, PYTHON = "cpu_op", "user_annotation", "python_function"


def account(least: int, most: int, low: int, high: int) -> HostAccount:
    return HostAccount((low * US, high * US), least * US, most * US)


def test_a_rank_that_waits_for_a_collective_computes_no_more_than_the_rest() -> None:
    """Gloo 100 to 300; ops 0 to 50 and 250 to 300. With frames, a wait 120 to 200 is all."""
    events = (
        (OP, "aten::mm", 0, 50), (OP, "c10d::allreduce_", 90, 10),
        (NOTE, "gloo:all_reduce", 100, 200, 9), (OP, "aten::mm", 250, 50),
    )  # fmt: skip
    assert host(*events) == account(100, 1000, 200, 200)
    assert host(*events, (PYTHON, WAIT, 120, 80)) == account(920, 920, 200, 200)
    assert host(*events, (PYTHON, WAIT, 400, 80)) == account(1000, 1000, 200, 200)
    assert host(*events, (PYTHON, WAIT, 120, 80), (OP, "aten::x", 150, 10, 7)) == account(
        100, 920, 200, 200
    )
    waited = host(*events, (OP, "_c10d_functional::wait_tensor", 120, 80))
    assert waited == account(100, 920, 200, 200)
    found = host(*events)
    assert found is not None
    assert found.bounds() == {
        "compute": (100 * US, 1000 * US), "communication": (200 * US, 200 * US),
    }  # fmt: skip


@pytest.mark.parametrize(("wait", "low"), [(200, 10), (201, 211)])
def test_a_message_may_have_been_done_before_a_short_wait(wait: int, low: int) -> None:
    """Posted from 100 to 110 and marked until the wait for it has returned, at 600."""
    events = ((OP, "c10d::send", 100, 10), (NOTE, "gloo:send", 105, 495))
    found = host(*events, (PYTHON, WAIT, 600 - wait, wait))
    assert found == account(1000 - wait, 1000 - wait, low, 500)
    assert host(*events) == account(0, 1000, 500, 500)


def test_the_window_bounds_all_and_without_gloo_there_is_no_account() -> None:
    events = ((NOTE, "gloo:all_reduce", 100, 200, 9), (OP, "aten::mm", 50, 300))
    assert host(*events, begin=150, end=250) == account(100, 100, 100, 100)
    assert host(*events, begin=300, end=400) is None
    assert host((OP, "aten::mm", 0, 5)) is None
    assert own_account(activity(step=(0, 5))) is None


def paced(*steps: tuple[float, float], kernels: tuple[tuple[Any, ...], ...]) -> Activity:
    record = Recording(0)
    for number, (start, end) in enumerate(steps):
        record.note(f"ProfilerStep#{number}", start, end - start)
    for name, launched, start, length in kernels:
        stream = COMMS if name == NCCL else 7
        record.kernel(name, launched, start, length, stream=stream)
    return activity_of(read(record), 0)


def test_kernels_belong_to_the_step_in_which_they_were_launched() -> None:
    """The third is launched where no step is; the fourth is launched in the second, run later."""
    found = pace_of(paced((0, 100), (150, 300), (300, 400), kernels=(
        ("mm", 10, 20, 30), ("add", 12, 40, 20), ("mm", 100, 160, 10), ("mm", 299, 350, 7),
        (NCCL, 310, 390, 10),
    )))  # fmt: skip
    assert found.steps == (
        StepPace("ProfilerStep#0", 40 * US, {"mm": (1, 30 * US), "add": (1, 20 * US)}),
        StepPace("ProfilerStep#1", 7 * US, {"mm": (1, 7 * US)}),
    )


def test_a_launch_is_what_an_idle_gpu_took_from_the_call_on() -> None:
    """Of 10, 20 and 90 us on an idle GPU the middle; one waits for another, one is NCCL's."""
    kernels = (
        ("mm", 0, 10, 100), ("mm", 20, 110, 5), ("mm", 115, 135, 5), (NCCL, 200, 500, 5),
        ("mm", 505, 595, 5),
    )  # fmt: skip
    assert pace_of(paced((0, 1000), kernels=kernels)).launch == 20 * US
    assert pace_of(paced((0, 1000), kernels=((NCCL, 200, 500, 5),))).launch == -1
    assert pace_of(activity()).launch == -1
    assert pace_of(paced((0, 1000), kernels=(("mm", 30, 30, 5),))).launch == 0
