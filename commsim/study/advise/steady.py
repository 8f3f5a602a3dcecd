"""
Steps of many microbatches from two steps with few.

Once a pipeline is full, every further microbatch adds the same time, bytes and work. So a step of m
microbatches is extrapolated linearly from two shorter ones: exactly for most schedules, within
0.2 % if weight gradients fill the bubbles (`tests/study/advise/test_steady.py`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from msgspec.structs import replace

from commsim.metrics import CollectiveMetrics, Metrics, Times

__all__ = ["Short", "extended", "few", "short_counts"]

_SPLIT = ("zb_h1", "zb_h2", "zb_1p", "zb_2p")  # a longer way until every round is the same
_WORTH = 250  # microbatches x layers; a run of more takes over about 0.3 s
_PER_STEP = ("mfu", "hfu", "tflops_per_gpu", "tokens_per_s", "tokens_per_s_per_gpu")

Line = Callable[[float, float], float]


def short_counts(stages: int, schedule: str, *, virtual: int = 1) -> tuple[int, int]:
    """Return two counts of microbatches from which on each further one adds the same.

    Both are whole rounds of the pipeline, as interleaved schedules need them. `virtual` stages
    hold the most at once only from the second round on.
    """
    first = stages * (2 if stages == 1 or virtual > 1 or schedule in _SPLIT else 1)
    return first, first + max(stages, 2)


def few(microbatches: int, *, layers: int, stages: int, schedule: str) -> tuple[int, int] | None:
    """Return two counts of microbatches to run instead; None if that would save little."""
    counts = short_counts(stages, schedule)
    if microbatches * layers < _WORTH or microbatches < sum(counts):
        return None
    return counts


class Short(NamedTuple):
    """A shorter step: its metrics, and the span that its bubbles are a share of."""

    microbatches: int
    metrics: Metrics
    span: float


def extended(shorter: Short, longer: Short, microbatches: int) -> Metrics:
    """Return the metrics of a step of `microbatches`, from those of two shorter ones.

    What advice needs: times, rates and collectives; nothing per rank, link or piece of the
    critical path.
    """
    one, two = shorter.metrics, longer.metrics
    ahead = (microbatches - longer.microbatches) / (longer.microbatches - shorter.microbatches)

    def line(a: float, b: float) -> float:
        return b + (b - a) * ahead

    def rate(a: float | None, b: float | None) -> float | None:
        """Carry what was done per step on, not the rate."""
        if a is None or b is None:
            return None
        return line(a * one.step_time_s, b * two.step_time_s) / step

    step = line(one.step_time_s, two.step_time_s)
    bubble = None
    if one.bubble_fraction is not None and two.bubble_fraction is not None:
        idle = line(one.bubble_fraction * shorter.span, two.bubble_fraction * longer.span)
        bubble = idle / line(shorter.span, longer.span)
    rates: dict[str, Any] = {
        name: rate(getattr(one, name), getattr(two, name)) for name in _PER_STEP
    }
    return replace(
        two,
        step_time_s=step,
        bubble_fraction=bubble,
        bubble_ratio=None if bubble is None else bubble / (1 - bubble),
        breakdown=_times(one.breakdown, two.breakdown, line),
        ranks=(),
        links=(),
        critical_path=(),
        cost=None,
        collectives=_collectives(one.collectives, two.collectives, line),
        **rates,
    )


def _times(one: Times, two: Times, line: Line) -> Times:
    names = Times.__struct_fields__
    return Times(**{name: max(line(getattr(one, name), getattr(two, name)), 0.0) for name in names})


def _collectives(
    one: tuple[CollectiveMetrics, ...], two: tuple[CollectiveMetrics, ...], line: Line
) -> tuple[CollectiveMetrics, ...]:
    before = {(use.op, use.group): use for use in one}
    found = []
    for use in two:
        was = before.get((use.op, use.group), use)
        found.append(
            replace(
                use,
                count=round(line(was.count, use.count)),
                bytes=round(line(was.bytes, use.bytes)),
                time_s=line(was.time_s, use.time_s),
                wait_s=max(line(was.wait_s, use.wait_s), 0.0),
                exposed_s=max(line(was.exposed_s, use.exposed_s), 0.0),
            )
        )
    return tuple(found)
