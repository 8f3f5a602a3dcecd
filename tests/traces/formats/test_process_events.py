"""Events of a process as tables tell them: possible times, names that the rebuild knows, zero."""

from __future__ import annotations

import pytest

from commsim.traces.formats.event_args import NO_ARGS
from commsim.traces.formats.events import EventKind
from commsim.traces.formats.process_events import ProcessEvents, is_step, plain_call

LATEST, LONGEST = 2**60, 2**53  # ns
OP = EventKind.CPU_OP


def test_an_event_says_as_much_as_it_was_given() -> None:
    process = ProcessEvents(7)
    assert (process.events, dict(process.devices), process.lost, process.steps) == ([], {}, 0, 0)
    process.add(OP, "x", 8, 1, "3")
    process.add(EventKind.KERNEL, "k", 8, 1, 3, "5", 6)
    process.add(OP, "y", 8, 1, 3, "odd", "odd")
    one, kernel, odd = process.events
    assert (one.thread, one.start, one.end, one.correlation, one.stream, one.args) == (
        ("7", "8"), 1000, 3000, 0, -1, NO_ARGS,
    )  # fmt: skip
    assert (kernel.correlation, kernel.stream) == (5, 6)
    assert (odd.correlation, odd.stream) == (0, -1)


@pytest.mark.parametrize(
    ("start", "end", "kept"),
    [
        (0, 0, True), (5, 5, True), (0, LATEST - 1, True), (LATEST - 1, LATEST - 1, True),
        (-1, 5, False), (5, 4, False), (0, LATEST, False), ("x", 5, False), (None, 5, False),
    ],
)  # fmt: skip
def test_times_that_no_clock_says_are_lost(start: object, end: object, kept: bool) -> None:
    process = ProcessEvents(7)
    process.add(OP, "x", 1, start, end)
    assert (len(process.events), process.lost) == ((1, 0) if kept else (0, 1))


def test_events_are_counted_from_the_first_of_them_in_order() -> None:
    process = ProcessEvents(7)
    for name, start, end in (("c", 30, 40), ("b", 20, 25), ("a", 20, 90)):
        process.add(OP, name, 1, start, end)
    file = process.file("x", 3, ("said",))
    assert [(e.name, e.start, e.end) for e in file.events] == [
        ("a", 0, 70_000), ("b", 0, 5000), ("c", 10_000, 20_000),
    ]  # fmt: skip
    assert (file.name, file.rank, file.pid, file.notes) == ("x", 3, "7", ("said",))
    assert (file.zero_ns, file.world_size, file.groups, file.cut) == (20, -1, {}, False)
    more = process.file("x", 3, (), world_size=4, zero_ns=1000, groups={"0": (0, 1)}, cut=True)
    assert (more.zero_ns, more.world_size, more.groups, more.cut) == (1020, 4, {"0": (0, 1)}, True)


@pytest.mark.parametrize(("end", "kept"), [(LONGEST - 1, 2), (LONGEST, 1)])
def test_a_recording_is_shorter_than_a_hundred_days(end: int, kept: int) -> None:
    process = ProcessEvents(7)
    process.add(OP, "a", 1, 100, 101)
    process.add(OP, "b", 1, 102, 100 + end)
    process.add(OP, "odd", 1, -1, 5)
    file = process.file("x", 0, ("said",))
    assert len(file.events) == kept
    assert file.notes == ("said", f"x: {3 - kept} events have no possible time and are left out.")


def test_the_nth_time_launched_what_began_from_then_on() -> None:
    process = ProcessEvents(7)
    for start in (9, 10, 19, 20):
        process.add(EventKind.KERNEL, "k", 1, start, 30, 5, 1)
    process.add(OP, "x", 1, 12, 13, 5)
    process.launch_at([10, 20])
    assert [event.correlation for event in process.events] == [0, 1, 1, 2, 5]


@pytest.mark.parametrize(
    ("name", "step"),
    [
        ("step 3", "3"), ("Step_12", "12"), ("iteration", "0"), ("iter: 4", "4"),
        ("training step 5", "5"), ("global_step6", "6"), ("step", "0"), ("optimizer-step", "0"),
    ],
)  # fmt: skip
def test_steps_by_their_names(name: str, step: str) -> None:
    assert is_step(name)
    process = ProcessEvents(7)
    process.add_range(name, 1, 2, 3)
    process.add_range("step", 1, 4, 5)
    assert [event.name for event in process.events] == [f"ProfilerStep#{step}", "ProfilerStep#1"]


@pytest.mark.parametrize("name", ["stepping", "backward step 3", "step 3 of 4", "", "model.step 1"])
def test_other_ranges_are_no_steps(name: str) -> None:
    assert not is_step(name)


def test_calls_have_versions_that_are_no_part_of_their_names() -> None:
    assert plain_call("cudaLaunchKernel_v7000") == "cudaLaunchKernel"
    assert plain_call("cudaMemcpyAsync_v3020_ptsz") == "cudaMemcpyAsync"
    assert plain_call("cuMemAlloc_v2_ptds") == "cuMemAlloc"
    assert plain_call("cudaMalloc") == "cudaMalloc"
