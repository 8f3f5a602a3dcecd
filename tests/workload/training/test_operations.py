"""A training of too many operations: what it says there is, and what could be less."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from commsim.errors import ScenarioError
from commsim.workload.training.operations import check_operations

FOLD = "Let equal ranks fold (engine.fold: auto, network: fluid)."
LESS = ["fewer steps", "fewer microbatches (a smaller batch.global)", "fewer ranks", "fewer layers"]
HUGE = 10**15


def refusal(
    *, steps: int = 1, count: int = 1, lanes: int = 1, layers: int = 1, unfolds: bool = False
) -> str:
    """Return what is said of far too many operations."""
    plan: Any = SimpleNamespace(
        section=SimpleNamespace(steps=steps), microbatches=count, where="x",
        model=SimpleNamespace(shape=SimpleNamespace(layers=layers)),
    )  # fmt: skip
    with pytest.raises(ScenarioError) as caught:
        check_operations(plan, HUGE, lanes=lanes, earlier=1, unfolds=unfolds)
    return str(caught.value)


def test_one_of_each_is_said_as_one() -> None:
    said = refusal()
    assert "x: the work: 1 step of 1 microbatch, each of" in said
    assert "on 1 lane," in said
    assert "Take " not in said
    said = refusal(steps=2, count=2, lanes=2)
    assert "2 steps of 2 microbatches, each of 1,000,000,000,000,000 operations on 2 lanes," in said


@pytest.mark.parametrize(
    ("work", "less"),
    [
        ({"steps": 2}, []),  # the measured one and one before it
        ({"steps": 3}, LESS[:1]),
        ({"count": 2}, LESS[1:2]),
        ({"lanes": 2}, LESS[2:3]),
        ({"layers": 2}, LESS[3:]),
        ({"steps": 3, "count": 2, "lanes": 2, "layers": 2}, LESS),
    ],
)
def test_what_there_is_several_of_can_be_less(work: dict[str, Any], less: list[str]) -> None:
    assert [one for one in LESS if one in refusal(**work)] == less
    assert (
        f"Take {', or '.join(less)}." in refusal(**work) if less else "Take" not in refusal(**work)
    )
    assert FOLD not in refusal(**work)
    assert FOLD in refusal(**work, unfolds=True)


def test_steps_before_the_last_may_have_fewer_microbatches(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three steps of 2, 2 and 5 microbatches of 10 operations each."""
    asked: list[int] = []
    monkeypatch.setattr(
        "commsim.workload.training.operations.check_size", lambda many, *_: asked.append(many)
    )
    plan: Any = SimpleNamespace(
        section=SimpleNamespace(steps=3), microbatches=5, where="x",
        model=SimpleNamespace(shape=SimpleNamespace(layers=1)),
    )  # fmt: skip
    check_operations(plan, 10, lanes=1, earlier=2, unfolds=False)
    assert asked == [10 * (2 + 2 + 5)]
