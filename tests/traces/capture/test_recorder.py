"""The notebook of a capture: memory, streams and events as they are taken down."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")


@pytest.fixture
def recorder(monkeypatch):
    """A notebook of this test's own, with the default stream alone."""
    from commsim.traces.capture import recorder as module

    own = module.CaptureRecorder()
    monkeypatch.setattr(module, "recorder", own)
    monkeypatch.setattr(module.Stream, "made", [])
    monkeypatch.setattr(module.CapturedEvent, "made", 0)
    monkeypatch.setattr(module, "_current", [module.Stream()])
    return own


def work(**more):
    from commsim.traces.capture.records import CapturedWork

    return CapturedWork("mm", 0, 1.0, 1, **more)


def test_what_issues_work_takes_the_memory_allocated_before_it(recorder):
    from commsim.traces.capture.records import Mark

    recorder.allocated(10)
    recorder.add(Mark(1, 0))
    recorder.add(work())
    recorder.add(work())
    recorder.allocated(3)
    recorder.allocated(4)
    recorder.add(work())
    assert recorder.records == [Mark(1, 0), work(alloc=10), work(), work(alloc=7)]
    assert (recorder.held, recorder.peak, recorder.pending) == (17, 17, 0)


def test_what_is_freed_is_free_when_the_last_op_has_run(recorder):
    from commsim.traces.capture.records import Mark

    recorder.freed(5)
    recorder.add(work())
    recorder.add(Mark(1, 0))
    recorder.allocated(10)
    recorder.freed(10)  # it came and went
    recorder.freed(1)
    recorder.allocated(4)
    recorder.freed(5)
    recorder.freed(2)
    assert recorder.records == [work(free=6), Mark(1, 0)]
    assert (recorder.held, recorder.peak, recorder.pending) == (-9, 5, 2)


def test_a_step_begins_with_what_is_held(recorder):
    from commsim.traces.capture.records import CapturedMemory

    recorder.allocated(10)
    recorder.freed(4)
    recorder.add(work())
    recorder.restart(CapturedMemory(other=6))
    assert (recorder.records, recorder.start) == ([], CapturedMemory(other=6))
    assert (recorder.held, recorder.peak, recorder.pending) == (6, 6, 0)


def test_nothing_is_taken_down_after_the_end(recorder):
    recorder.add(work())
    recorder.on = False
    recorder.add(work())
    assert len(recorder.records) == 1


def test_numbers_notes_and_places(recorder):
    from commsim.graph import Phase

    assert (recorder.number(), recorder.number(), recorder.number()) == (1, 2, 3)
    recorder.note("a")
    recorder.note("b")
    recorder.note("a")
    assert list(recorder.notes) == ["a", "b"]
    assert recorder.tags == {"phase": int(Phase.NONE), "stage": -1, "microbatch": -1}
    assert recorder.batch == -1


@pytest.mark.parametrize("phase", ["FORWARD", "OPTIMIZER"])
def test_what_runs_in_autograd_is_the_backward_but_in_an_optimizer(recorder, phase):
    from commsim.graph import Phase

    seen = []
    recorder.phase = Phase[phase]
    one = torch.ones(1, requires_grad=True)
    one.register_hook(lambda gradient: seen.append(recorder.tags["phase"]))
    (one * 2).sum().backward()
    assert seen == [int(Phase.BACKWARD if phase == "FORWARD" else Phase.OPTIMIZER)]
    assert recorder.tags["phase"] == int(Phase[phase])


def test_streams_and_events_by_their_numbers(recorder):
    from commsim.traces.capture.recorder import (
        CapturedEvent,
        Stream,
        StreamContext,
        current_stream,
    )
    from commsim.traces.capture.records import Mark, Sync, WaitsFor

    default, side, third = current_stream(), Stream(), Stream(device="cuda")
    assert [(s.number, s.name) for s in (default, side, third)] == [
        (0, "compute"), (1, "stream 1"), (2, "stream 2"),
    ]  # fmt: skip
    with side:
        assert current_stream() is side
        with StreamContext(third), StreamContext(None):
            assert current_stream("cuda:0") is third
        event = CapturedEvent(enable_timing=True).record()
    assert current_stream() is default
    event.wait()
    event.wait(third)
    event.synchronize()
    third.synchronize()
    third.wait_stream(side)
    assert side.record_event(event) is event
    assert recorder.records == [
        Mark(1, 1), WaitsFor(1, 0), WaitsFor(1, 2), Sync(1), Sync(2), Mark(2, 1), WaitsFor(2, 2),
        Mark(1, 1),
    ]  # fmt: skip
    assert event.query() is default.query() is True
    assert (event.elapsed_time(event), len(recorder.notes)) == (1.0, 1)
    assert CapturedEvent().stream == -1


def test_an_event_has_happened_and_measures_nothing(recorder):
    from commsim.traces.capture.recorder import CapturedEvent

    event = CapturedEvent()
    assert event.query() is True
    assert event.elapsed_time(CapturedEvent()) == 1.0
    assert event.stream == -1
