"""What is said of a layout before it runs: memory and floors of two short steps, carried on."""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any

import pytest

from commsim.errors import ScenarioError
from commsim.models import MemoryUse
from commsim.study.advise.judge import Judge
from commsim.study.advise.layouts import Candidate, Degrees

MODULE = "commsim.study.advise.judge"


def layout(schedule: str = "1f1b", *, pp: int = 2, virtual: int = 1) -> Candidate:
    """Three replicas of two sequences at once: six in a round of microbatches."""
    return Candidate(Degrees(3, 1, pp, 1, 1), schedule, virtual, 2, "none", "zero-1")


def judge(**parts: Any) -> Any:
    made = Judge.__new__(Judge)
    made.__dict__.update(parts)
    return made


@pytest.mark.parametrize(
    ("batch", "one", "counts", "ahead"),
    [
        (60, layout(), (2, 4), 3.0), (30, layout(), (2, 4), 0.5), (24, layout(), (4,), 0.0),
        (6, layout(), (1,), 0.0), (60, layout("interleaved_1f1b", virtual=2), (4, 6), 2.0),
        (60, layout("zb_h1"), (4, 6), 2.0), (60, layout(pp=1), (2, 4), 3.0),
    ],
)  # fmt: skip
def test_a_long_step_is_judged_by_two_short_ones(
    batch: int, one: Candidate, counts: tuple[int, ...], ahead: float
) -> None:
    """Devices hold 10 and 3 m bytes of activations in a step of m microbatches."""
    asked: list[int] = []

    def floor(section: Any, size: int) -> Any:
        asked.append(size)
        return SimpleNamespace(peaks=lambda: (10, 3 * size // 6))

    def judged(candidate: Candidate, floors: Any, peaks: Any, more: float, *, timed: bool) -> Any:
        told.append((candidate.shard, len(floors), peaks, more, timed))
        return None if candidate.shard == "fsdp" else candidate

    told: list[Any] = []
    section = SimpleNamespace(batch=SimpleNamespace(global_=batch))
    made = judge(section=lambda shape: section, _floor=floor, _judge=judged)
    assert made._judged(one, ["ddp", "fsdp", "zero-1"]) == [one._replace(shard="ddp"), one]
    assert asked == [count * 6 for count in counts]
    peaks = (10, 3 * batch // 6)
    assert told == [(way, len(counts), peaks, ahead, True) for way in ("ddp", "fsdp", "zero-1")]
    made._judged(one, ["ddp"], timed=False)
    assert told[-1][-1] is False


def test_a_batch_that_does_not_divide_and_a_plan_that_cannot_be_have_no_layout() -> None:
    section = SimpleNamespace(batch=SimpleNamespace(global_=61))
    made = judge(section=lambda shape: section)
    assert made._judged(layout(), ["ddp"]) == []
    section.batch.global_ = 60

    def floor(section: Any, size: int) -> Any:
        raise ScenarioError("no such plan")

    made._floor = floor
    assert made._judged(layout(), ["ddp"]) == []
    made._judged = lambda shape, ways: [f"{ways}"] if ways == ["zero-1"] else []
    assert made.one(layout()) == "['zero-1']"
    assert made.one(layout()._replace(shard="ddp")) is None


@pytest.mark.parametrize(
    ("total", "timed", "ahead", "floor"),
    [
        (80, True, 3.0, 13.0), (80, True, 0.0, 7.0), (80, False, 3.0, 0.0),
        (81, True, 3.0, float("inf")), (81, False, 0.0, float("inf")),
    ],
)  # fmt: skip
@pytest.mark.parametrize("pp", [1, 2])
def test_the_floor_of_what_fits(
    total: int, timed: bool, ahead: float, floor: float, pp: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """5 s and 7 s, and 2 s more for as many microbatches again. Of a pipeline the stage is told."""
    monkeypatch.setattr(sys.modules[MODULE], "check_settings", lambda section, where: None)
    monkeypatch.setattr(sys.modules[MODULE], "_with", lambda plan, section: f"{plan} {section}")
    use = MemoryUse(total, 0, 0, 0)

    def made(plan: str, seconds: float) -> Any:
        def memory(whole: str, peaks: Any) -> Any:
            assert (plan, whole, peaks) == ("long", "long x", (1, 2))
            return use, 1

        def took(whole: str) -> float:
            assert timed
            assert total <= 80
            assert whole == f"{plan} x"
            return seconds

        return SimpleNamespace(plan=plan, memory=memory, seconds=took)

    floors = [made("short", 5.0), made("long", 7.0)]
    found = judge(section=lambda one: "x", capacity=80)._judge(
        layout(pp=pp), floors, (1, 2), ahead, timed=timed
    )
    assert (found.use, found.capacity, found.floor) == (use, 80, floor)
    assert found.stage == (1 if pp > 1 else -1)
    assert found.fits is (total <= 80)


def test_settings_that_contradict_each_other_are_no_layout(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(section: Any, where: str) -> None:
        raise ScenarioError("no")

    monkeypatch.setattr(sys.modules[MODULE], "check_settings", refused)
    assert judge(section=lambda one: one)._judge(layout(), [], (), 0.0, timed=True) is None


def test_relaxed_layouts_count_what_they_stand_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of three that can be recomputed in two ways one has no bound, and one is not allowed."""
    shapes = [layout()._replace(micro=micro) for micro in (1, 2, 4)]
    monkeypatch.setattr(sys.modules[MODULE], "shapes", lambda degrees, section: iter(shapes))
    bounds = {1: 1.5, 2: None, 4: 9.0}
    made = judge(
        _section=None, _compute=SimpleNamespace(flash=True),
        _bound=SimpleNamespace(seconds=lambda one: bounds[one.micro]),
        allowed=lambda one: one.micro != 4 and (one.micro, one.recompute) != (1, "full"),
    )  # fmt: skip
    assert made.relaxed(None) == [(1.5, shapes[0], 1)]
    assert made.variants(shapes[0]) == [(1.5, shapes[0])]
    assert made.shapes(None) == [(1.5, shapes[0])]
    assert made.recomputes == ("none", "full")
    made._compute.flash = False
    assert made.recomputes == ("none", "selective", "full")
    assert made.variants(shapes[1]) == []


def test_the_least_of_each_kind_is_judged_once_without_a_floor() -> None:
    asked: list[Any] = []

    def judged(shape: Candidate, ways: list[str], *, timed: bool) -> Any:
        asked.append((shape, ways, timed))
        return [SimpleNamespace(candidate=shape._replace(shard=way)) for way in ways[1:]]

    made = judge(_least={}, _judged=judged, shardings=lambda degrees: ["ddp", "zero-1", "fsdp"])
    degrees = Degrees(4, 1, 2, 1, 1)
    first = made.least(degrees, "fsdp", "full")
    assert first.candidate == Candidate(degrees, "1f1b", 1, 1, "full", "fsdp")
    assert made.least(degrees, "ddp", "full") is None
    assert made.least(degrees, "zero-1", "full").candidate.shard == "zero-1"
    assert asked == [
        (Candidate(degrees, "1f1b", 1, 1, "full", "ddp"), ["ddp", "zero-1", "fsdp"], False)
    ]
    made.least(degrees, "fsdp", "none")
    assert len(asked) == 2
