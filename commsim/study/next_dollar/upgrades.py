"""
What `next_dollar` finds: each resource with more and with less of it, and other settings.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from commsim._version import __version__
from commsim.files import write_json
from commsim.study.next_dollar.alternatives import Alternative
from commsim.study.run import Result
from commsim.units import format_time

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

__all__ = ["NOTICED", "NextDollar", "ResourceChange", "Upgrade"]

NOTICED = 0.01
"""The share of a step that is worth a word."""


class ResourceChange(msgspec.Struct, frozen=True):
    """A resource made `better` times as good, by `sets`, and the step (s) that came of it.

    `saved_s` is below zero if the step got longer. Both are None if it cannot run: `error`.
    """

    better: float
    sets: tuple[str, ...]
    step_time_s: float | None = None
    saved_s: float | None = None
    error: str | None = None


class Upgrade(msgspec.Struct, frozen=True):
    """One resource: what there is `now`, and what more and less of it comes to.

    `kind` is hardware, size or setting. `saved_s` is what twice as much saves of a step (None:
    not to be had). `saturates`: from so many times on another doubling saves less than 1 %.
    `hurts`: at this share of what there is the step is 1 % longer (None: not looked for, or
    never). `worth_per_hour`: what twice as much may cost per hour of the cluster until a step
    costs what it did; `price_per_hour` what it was said to cost, or costs by the cluster's own
    prices (`buys`: as much again of what), and `per_saved_second` that money over the seconds that
    it saves in an hour. `why`: the words.
    """

    resource: str
    title: str
    kind: str
    now: str
    changes: tuple[ResourceChange, ...]
    saved_s: float | None
    saturates: float | None = None
    hurts: float | None = None
    worth_per_hour: float | None = None
    price_per_hour: float | None = None
    per_saved_second: float | None = None
    why: str = ""
    buys: str = ""


class NextDollar(msgspec.Struct, frozen=True):
    """What every resource is worth to a scenario's step, and which settings (`alternatives`) would
    make it shorter for nothing; those that save most first.
    """

    scenario: str
    result: Result
    upgrades: tuple[Upgrade, ...]
    runs: int
    alternatives: tuple[Alternative, ...] = ()

    def __repr__(self) -> str:
        best = self.best
        told = "nothing saves 1 %" if best is None else f"{best.title} first"
        return f"NextDollar({self.scenario!r}, {len(self.upgrades)} resources, {told})"

    @property
    def step_time_s(self) -> float:
        """The step as it is."""
        return self.result.metrics.step_time_s

    @property
    def best(self) -> Upgrade | None:
        """The hardware whose doubling saves most; None if none saves 1 %."""
        first = next((one for one in self.upgrades if one.kind == "hardware"), None)
        if first is None or (first.saved_s or 0.0) < NOTICED * self.step_time_s:
            return None
        return first

    @property
    def headline(self) -> str:
        """What to buy next, in a sentence or two."""
        step = self.step_time_s
        told = f"A step takes {format_time(step * 1e12)}."
        best = self.best
        if best is None:
            return f"{told} Twice as much of any one thing saves less than {NOTICED:.0%} of it."
        saved = best.saved_s or 0.0
        line = f"{told} {best.title} is worth most: twice {best.now} saves {saved / step:.1%}"
        if best.worth_per_hour is not None and self.currency:
            gpus = self._gpus
            line += f", and may cost {best.worth_per_hour / gpus:.3g} {self.currency} per GPU-hour"
        if best.saturates is not None:
            line += f"; beyond {best.saturates:g} times there is little more"
        return f"{line}."

    @property
    def currency(self) -> str | None:
        """The currency of the scenario's prices."""
        cost = self.result.metrics.cost
        told = None if cost is None else cost.get("currency")
        return str(told) if told else None

    @property
    def _gpus(self) -> int:
        cluster = self.result.cluster
        return 1 if cluster is None else cluster.world_size

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON of `commsim next`."""
        return {
            "schema": 1,
            "commsim": __version__,
            "scenario": self.scenario,
            "headline": self.headline,
            "step_time_s": self.step_time_s,
            "currency": self.currency,
            "upgrades": [msgspec.to_builtins(one) for one in self.upgrades],
            "alternatives": [msgspec.to_builtins(one) for one in self.alternatives],
            "runs": self.runs,
            "notes": list(self.result.notes),
        }

    def figures(self) -> list[Figure]:
        """Return the tornado chart, and the table behind it."""
        from commsim.charts import tornado_figures

        return tornado_figures(self.to_dict())

    def save_json(self, path: str | Path) -> None:
        """Write `to_dict` to a file."""
        write_json(self.to_dict(), Path(path))

    def report(self, path: str | Path) -> None:
        """Write the charts as one self-contained HTML page."""
        from commsim.charts import save_page

        save_page(self.figures(), path)
