"""
The runs of a what-if: one per combination of the axes' places, or each axis alone.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from itertools import product
from math import prod
from pathlib import Path
from typing import Any

import msgspec

from commsim._version import __version__
from commsim.errors import CommsimError, ScenarioError
from commsim.scenario import read_scenario, scenario_from
from commsim.study.next_dollar.what_if.axes import WhatIfAxis, axes_for
from commsim.study.run import Result, run
from commsim.study.sweep import Outcome, SweepPoint, point_of, run_points

__all__ = ["WhatIfGrid", "WhatIfPoint", "what_if"]

_PAGE = 1_700_000  # bytes of all timelines of a page, deflated: about 3 MB with all the rest
_TIMELINE = 150_000  # bytes of one
_MANY_OPS = 100_000  # from here on runs are worth a process each


class WhatIfPoint(msgspec.Struct, frozen=True):
    """A run at one place of every axis.

    `settings` are what it changes, as `--set` takes them. `metrics` and `page` are the figures of
    the run, and what its report says; None, with `error`, if it cannot run.
    """

    places: tuple[int, ...]
    settings: tuple[tuple[str, str], ...]
    metrics: dict[str, Any] | None = None
    page: dict[str, Any] | None = None
    spans: bytes = b""
    error: str | None = None

    def __repr__(self) -> str:
        told = " ".join(f"{path}={value}" for path, value in self.settings) or "as given"
        return f"WhatIfPoint({told!r}, step {self.step_time_s} s)"

    @property
    def step_time_s(self) -> float | None:
        """The step in seconds, None if it cannot run."""
        return None if self.metrics is None else float(self.metrics["step_time_s"])


class WhatIfGrid(msgspec.Struct, frozen=True):
    """A scenario at every combination of places; the last axis moves first.

    `result` is the run as it was given. Made with `combined=False` it has the points at which one
    axis at most has moved, and no report with sliders.
    """

    scenario: str
    axes: tuple[WhatIfAxis, ...]
    points: tuple[WhatIfPoint, ...]
    result: Result

    def __repr__(self) -> str:
        shape = " x ".join(f"{len(axis.labels)} {axis.name}" for axis in self.axes)
        return f"WhatIfGrid({self.scenario!r}, {shape}, {len(self.points)} runs)"

    def __len__(self) -> int:
        return len(self.points)

    def at(self, **labels: str) -> WhatIfPoint:
        """Return the point at these labels of axes; other axes stand as they were given.

        Raises:
            ScenarioError: no such axis or label.
        """
        places = [axis.given for axis in self.axes]
        names = [axis.name for axis in self.axes]
        for name, label in labels.items():
            if name not in names:
                raise ScenarioError(f"what-if: there is no axis {name!r}: {', '.join(names)}.")
            axis = self.axes[names.index(name)]
            if str(label) not in axis.labels:
                raise ScenarioError(f"what-if: {name} has {', '.join(axis.labels)}, not {label}.")
            places[names.index(name)] = axis.labels.index(str(label))
        found = next((point for point in self.points if point.places == tuple(places)), None)
        if found is None:
            raise ScenarioError("what-if: combinations were not run (combined=False).")
        return found

    def along(self, axis: WhatIfAxis) -> list[WhatIfPoint]:
        """Return the points along one axis, the others as they were given."""
        at = self.axes.index(axis)
        return [
            point
            for point in self.points
            if all(p == a.given for k, (p, a) in enumerate(self._pairs(point)) if k != at)
        ]

    def _pairs(self, point: WhatIfPoint) -> list[tuple[int, WhatIfAxis]]:
        return list(zip(point.places, self.axes, strict=True))

    def rows(self) -> list[dict[str, Any]]:
        """Return a row per point: the label of every axis, the main figures, the error."""
        keys = ("step_time_s", "tokens_per_s", "mfu", "bubble_fraction")
        return [
            {axis.name: axis.labels[place] for place, axis in self._pairs(point)}
            | {key: None if point.metrics is None else point.metrics.get(key) for key in keys}
            | {"error": point.error}
            for point in self.points
        ]

    def to_pandas(self) -> Any:
        """Return `rows` as a pandas DataFrame. Needs pandas."""
        try:
            import pandas
        except ImportError:
            raise CommsimError("a table needs pandas: pip install pandas") from None
        return pandas.DataFrame(self.rows())

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON: the axes, and every point with its settings and figures or error."""
        return {
            "schema": 1,
            "commsim": __version__,
            "scenario": self.scenario,
            "axes": [
                {"name": a.name, "title": a.title, "labels": list(a.labels), "given": a.given}
                for a in self.axes
            ],
            "points": [
                {"settings": dict(p.settings), "metrics": p.metrics, "error": p.error}
                for p in self.points
            ],
        }

    def report(self, path: str | Path) -> None:
        """Write the report of the run as it was given, with a slider per axis.

        Raises:
            ScenarioError: combinations were not run.
        """
        if len(self.points) < prod(len(axis.labels) for axis in self.axes):
            raise ScenarioError("what-if: sliders need every combination; leave combined as it is.")
        from commsim.charts import ReportSlider, WhatIfRuns, write_report

        shown = WhatIfRuns(
            tuple(ReportSlider(axis.title, axis.labels, axis.given) for axis in self.axes),
            tuple(point.page or {"error": point.error} for point in self.points),
            tuple(point.spans for point in self.points),
        )
        write_report(self.result.facts(), path, what_if=shown)


def what_if(
    scenario: str | Path | Mapping[str, Any],
    vary: str | Iterable[str],
    *,
    sets: Iterable[str] = (),
    executor: str | None = None,
    combined: bool = True,
    progress: Callable[[int, int], None] = lambda done, of: None,
) -> WhatIfGrid:
    """Run a scenario at every combination of places of a few axes.

    Without `combined` each axis moves alone, the others as they were given: a fraction of the runs.

    `vary` names them: "nic.bandwidth,nodes", or with values: ["nodes=2,4,8", "microbatches"];
    an unknown one is answered by a list of those that there are. `executor` is one of a sweep
    (None: by the size of the work), `progress` hears how many runs are done.

    Raises:
        ScenarioError: a scenario that cannot run as it is, or an axis that it does not have. A
            point that cannot run has its error, and stops no other.
    """
    sets = tuple(sets)
    asked = (vary,) if isinstance(vary, str) else tuple(vary)
    data, where, folder, name = read_scenario(scenario, sets)
    loaded = scenario_from(data, where, folder=folder, default_name=name)
    given = run(scenario, sets) if isinstance(scenario, str | Path) else run(loaded)
    axes = axes_for(loaded, given.cluster, data, asked)
    places = [
        at
        for at in product(*(range(len(axis.labels)) for axis in axes))
        if combined or sum(p != axis.given for p, axis in zip(at, axes, strict=True)) < 2
    ]
    settings = [_settings(axes, at) for at in places]
    points = [_point(data, one, where, folder) for one in settings]
    unique = {point.key: point for point in points}
    executor = executor or _executor(given, len(unique))
    work = partial(_run_point, most=min(_TIMELINE, _PAGE // len(unique)))
    known: dict[str, Outcome] = {}
    progress(0, len(unique))
    for outcome in run_points(list(unique.values()), executor, work):
        known[outcome.key] = outcome
        progress(len(known), len(unique))
    return WhatIfGrid(
        given.scenario,
        axes,
        tuple(
            _found(at, one, known[point.key], given.command)
            for at, one, point in zip(places, settings, points, strict=True)
        ),
        given,
    )


def _settings(axes: tuple[WhatIfAxis, ...], places: tuple[int, ...]) -> dict[str, str]:
    """Return what a point changes, by path; each axis sees what those before it have changed."""
    changed: dict[str, str] = {}
    for axis, place in zip(axes, places, strict=True):
        changed |= axis.changes[place](changed)
    return changed


def _point(data: Any, settings: dict[str, str], where: str, folder: str) -> SweepPoint:
    return point_of(data, tuple(settings.items()), where, folder)


def _executor(given: Result, points: int) -> str:
    work = len(given.timeline.graph) * points
    return "processes" if work > _MANY_OPS else "serial"


def _run_point(point: SweepPoint, *, most: int) -> Outcome:
    """Run a point; what a user can cause becomes its error."""
    from commsim.charts import point_page, point_spans

    told = " ".join(f"{path}={value}" for path, value in point.settings)
    try:
        where = f"{point.where} ({told})" if told else point.where
        result = run(scenario_from(point.changed(), where, folder=point.folder))
        facts = result.facts()
    except CommsimError as error:
        return Outcome(point.key, None, str(error))
    except MemoryError:
        return Outcome(point.key, None, "out of memory")
    metrics = result.metrics.to_dict()
    found = {
        "metrics": {key: value for key, value in metrics.items() if not isinstance(value, list)},
        "page": point_page(facts),
        "spans": point_spans(facts, most),
    }
    return Outcome(point.key, found, None)


def _found(
    places: tuple[int, ...], settings: dict[str, str], outcome: Outcome, command: str
) -> WhatIfPoint:
    """Return a point with its outcome; `command` runs the scenario as it was given."""
    changed = tuple(settings.items())
    if outcome.result is None:
        return WhatIfPoint(places, changed, error=outcome.error)
    words = [word for path, value in changed for word in ("--set", f"{path}={value}")]
    again = " ".join((command, shlex.join(words))).strip() if command else ""
    page = {**outcome.result["page"], "command": again}
    return WhatIfPoint(places, changed, **{**outcome.result, "page": page})
