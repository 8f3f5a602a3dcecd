"""
Runs side by side: their metrics with what differs, their settings, and what they cost.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from commsim.cluster import Cluster
from commsim.errors import ScenarioError, TraceError
from commsim.follow import Follow, unfollowed
from commsim.metrics import PARTS, finding, limits, measure
from commsim.scenario import Scenario
from commsim.study.compare.settings import flat, hardware, side_by_side
from commsim.study.compare.sources import Source
from commsim.study.run import Result, run
from commsim.timeline import Timeline
from commsim.traces import Trace, load_trace

__all__ = ["QUANTITIES", "Quantity", "Side", "lay_out", "open_run", "value_at"]


_NOTABLE = 0.05  # differences are marked from here on, however much is tolerated


class Quantity(msgspec.Struct, frozen=True):
    """A figure of a run: where it stands in the JSON, its name, its unit, and if less is better.

    Units: s, share (a fraction), rate (1/s), number, GiB, money (the cost's currency), W, kWh, J.
    """

    key: str
    label: str
    unit: str
    better: str = ""


QUANTITIES = (
    Quantity("step_time_s", "step time", "s", "less"),
    Quantity("breakdown.compute_s", "compute", "s"),
    *(
        Quantity(f"breakdown.{part}_s", name, "s", "less")
        for part, name in PARTS.items()
        if part != "compute"
    ),
    Quantity("breakdown.comm_s", "bytes move, hidden or not", "s"),
    Quantity("bubble_fraction", "bubble fraction", "share", "less"),
    Quantity("mfu", "MFU", "share", "more"),
    Quantity("hfu", "HFU", "share", "more"),
    Quantity("tflops_per_gpu", "TFLOP/s per GPU", "number", "more"),
    Quantity("tokens_per_s", "tokens per second", "rate", "more"),
    Quantity("tokens_per_s_per_gpu", "tokens per second and GPU", "rate", "more"),
    Quantity("memory_gib.peak", "memory of the fullest GPU", "GiB", "less"),
    Quantity("links.0.utilization", "use of the busiest link", "share"),
    Quantity("cost.capital", "what is bought", "money", "less"),
    Quantity("cost.per_hour", "the cluster for an hour", "money", "less"),
    Quantity("cost.per_step", "a step", "money", "less"),
    Quantity("cost.per_1e9_tokens", "1e9 tokens", "money", "less"),
    Quantity("cost.power_w", "power, at most", "W", "less"),
    Quantity("cost.energy_j_per_step", "energy of a step, at most", "J", "less"),
    Quantity("cost.energy_kwh_per_1e9_tokens", "energy of 1e9 tokens, at most", "kWh", "less"),
)


class Side(msgspec.Struct, frozen=True, eq=False):
    """One run: its metrics under the keys of the run JSON, and what is known besides them."""

    name: str
    kind: str
    measured: bool
    metrics: dict[str, Any]
    settings: dict[str, str]
    notes: tuple[str, ...] = ()
    timeline: Timeline | None = None
    cluster: Cluster | None = None
    ran: tuple[Scenario, Result] | None = None
    """The scenario and its result, where it was run for the comparison."""

    @property
    def gpus(self) -> int:
        """Ranks that ran, 0 if the file does not say."""
        return sum(row["multiplicity"] for row in self.metrics.get("ranks") or ())

    @property
    def tokens(self) -> float | None:
        """Tokens of a step."""
        rate = self.metrics.get("tokens_per_s")
        return None if rate is None else float(rate) * float(self.metrics["step_time_s"])


def open_run(source: Source, follow: Follow = unfollowed) -> Side:
    """Run or read a source; `follow` is as for `run`.

    Raises:
        ScenarioError, DeadlockError: as `run` does.
        TraceError: the file cannot be read.
    """
    if source.kind == "scenario":
        return _ran(source, run(source.held, follow=follow), source.held)
    if source.kind == "ran":
        return _ran(source, source.held)
    if source.kind in ("result", "replay"):
        return Side(source.name, source.kind, False, source.held, {}, tuple(source.held["notes"]))
    if source.kind in ("trace", "recorded"):
        return _recorded(source)
    raise ScenarioError(f"{source.name}: has no work to run. Give a scenario that uses it.")


def _ran(source: Source, result: Result, scenario: Scenario | None = None) -> Side:
    settings = {k: v for k, v in flat(source.written or {}).items() if k != "name"}
    kind = "scenario" if source.kind == "scenario" else "result"
    return Side(
        source.name,
        kind if result.measured is None else "replay",
        False,
        result.to_dict(),
        settings,
        result.notes,
        result.timeline,
        result.cluster,
        None if scenario is None else (scenario, result),
    )


def _recorded(source: Source) -> Side:
    trace: Trace = source.held if source.kind == "recorded" else load_trace(source.held)
    timeline = trace.timeline()
    if not len(timeline):
        raise TraceError(f"{source.name}: holds no work.")
    metrics = measure(timeline)
    data = {**metrics.to_dict(), "headline": finding(timeline, metrics, limits(timeline))}
    return Side(source.name, "trace", True, data, {}, trace.notes, timeline)


def value_at(metrics: dict[str, Any], key: str) -> float | None:
    """Return the number under a path such as "links.0.utilization"; None if there is none."""
    found: Any = metrics
    for step in key.split("."):
        if isinstance(found, list):
            found = found[int(step)] if int(step) < len(found) else None
        elif isinstance(found, dict):
            found = found.get(step)
        else:
            return None
    return float(found) if isinstance(found, int | float) else None


def lay_out(sides: Sequence[Side], reference: int, tolerance: float) -> dict[str, Any]:
    """Return everything that the comparison's JSON says about runs."""
    currency = _currency(sides)
    return {
        "settings": side_by_side([side.settings for side in sides]),
        "hardware": side_by_side([hardware(side.cluster) for side in sides]),
        "metrics": [
            row
            for quantity in QUANTITIES
            if (row := _row(quantity, sides, reference, tolerance, currency)) is not None
        ],
        "currency": currency,
        "within": _within(sides, reference, tolerance),
        "warnings": _warnings(sides),
    }


def _row(
    quantity: Quantity,
    sides: Sequence[Side],
    reference: int,
    tolerance: float,
    currency: str | None,
) -> dict[str, Any] | None:
    """Return a quantity on all sides; None if no side has it, or if it is zero on all."""
    values = [value_at(side.metrics, quantity.key) for side in sides]
    if not any(values):
        return None
    base, notable = values[reference], min(tolerance, _NOTABLE)
    mixed = quantity.unit == "money" and currency is None
    differences = [
        None if value is None or not base or at == reference or mixed else value / base - 1
        for at, value in enumerate(values)
    ]
    return {
        "key": quantity.key,
        "label": quantity.label,
        "unit": quantity.unit,
        "better": quantity.better,
        "values": values,
        "difference": differences,
        "differs": any(d is not None and abs(d) > notable for d in differences)
        or (not base and any(values)),
    }


def _currency(sides: Sequence[Side]) -> str | None:
    found = dict.fromkeys(
        cost["currency"]
        for side in sides
        if (cost := side.metrics.get("cost")) and cost.get("currency")
    )
    return next(iter(found)) if len(found) == 1 else None


def _within(sides: Sequence[Side], reference: int, tolerance: float) -> bool:
    """Whether every step time is as near to the reference's as `tolerance` says."""
    base = float(sides[reference].metrics["step_time_s"])
    steps = [float(side.metrics["step_time_s"]) for side in sides]
    return all(abs(step - base) <= tolerance * base for step in steps)


def _warnings(sides: Sequence[Side]) -> list[str]:
    """Return what makes the sides hard to compare, or impossible to use."""
    found = []
    tokens = [side.tokens for side in sides]
    known = [value for value in tokens if value]
    if len(known) > 1 and max(known) > min(known) * (1 + 1e-6):
        counts = ", ".join("–" if not value else f"{value:,.0f}" for value in tokens)
        found.append(
            f"They do not do the same work: {counts} tokens in a step. Compare tokens per second"
            " and what 1e9 tokens cost, and not step times."
        )
    for side in sides:
        memory = side.metrics.get("memory_gib")
        if memory and memory.get("fits") is False:
            found.append(f"{side.name} does not fit: {memory['peak']:.1f} GiB on its fullest GPU.")
    costs = [cost for side in sides if (cost := side.metrics.get("cost"))]
    if len({cost.get("currency") for cost in costs}) > 1:
        found.append("Prices are in different currencies, or only some sides have one.")
    return found
