"""
`sweep`: many runs of one scenario, as a table.
"""

from __future__ import annotations

import csv
import io
import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec.structs import replace

from commsim._version import __version__
from commsim.errors import CommsimError, ScenarioError
from commsim.files import folder_to_fill, write_aside, write_json, write_text
from commsim.scenario import SweepSection, read_scenario
from commsim.sections import decode
from commsim.study.sweep.axes import Settings, SweepAxis, axes_of, combinations
from commsim.study.sweep.executors import run_points
from commsim.study.sweep.points import Outcome, SweepPoint, point_of
from commsim.study.sweep.store import Store

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

__all__ = ["COLUMNS", "Sweep", "sweep"]

COLUMNS = (
    "step_time_s", "tokens_per_s", "tokens_per_s_per_gpu", "mfu", "bubble_fraction",
    "breakdown.compute_s", "breakdown.exposed_transfer_s", "breakdown.waiting_s",
    "memory_gib.peak", "memory_gib.fits", "cost.per_1e9_tokens", "cost.per_step", "cost.capital",
)  # fmt: skip
"""What a table of points shows of each run: keys of its JSON."""

_SUFFIXES = (".csv", ".json", ".parquet", ".html")


_DP = "workload.training.parallel.dp"
_FILLS = re.compile(r"dp=(\d+) would use them all")
_GIVEN = re.compile(r"\bdp=(\d+) (?:=|×)")


class Sweep(msgspec.Struct, frozen=True):
    """The points of a sweep, in the order of their settings.

    `results[i]` is the JSON of point i's run, None if `errors[i]` says what was wrong. `ran`
    counts those that were run now, `paged` those of them that were in the store, and were run
    again for the pages that `reports` names.
    """

    scenario: str
    axes: tuple[SweepAxis, ...]
    settings: tuple[Settings, ...]
    results: tuple[dict[str, Any] | None, ...]
    errors: tuple[str | None, ...]
    reports: tuple[str, ...]
    ran: int
    paged: int = 0

    def __repr__(self) -> str:
        failed = sum(error is not None for error in self.errors)
        return f"Sweep({self.scenario!r}, {len(self.settings)} points, {failed} failed)"

    def __len__(self) -> int:
        return len(self.settings)

    def rows(self) -> list[dict[str, Any]]:
        """Return a row per point: its settings, the figures of `COLUMNS`, its error."""
        return [
            dict(settings)
            | {column: _figure(result, column) for column in COLUMNS}
            | {"error": error}
            for settings, result, error in zip(
                self.settings, self.results, self.errors, strict=True
            )
        ]

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON: the axes, and every point with its settings and result or error."""
        return {
            "schema": 1,
            "commsim": __version__,
            "scenario": self.scenario,
            "axes": [msgspec.to_builtins(axis) for axis in self.axes],
            "points": [
                {"settings": dict(settings), "result": result, "error": error}
                for settings, result, error in zip(
                    self.settings, self.results, self.errors, strict=True
                )
            ],
        }

    def replicas_beside(self) -> str:
        """Return the `vary` of two settings side by side that lets the replicas follow the one that
        was varied, where that is why points did not run; "" elsewhere.
        """
        fills = [_FILLS.search(error or "") for error in self.errors]
        said = next(filter(None, (_GIVEN.search(error or "") for error in self.errors)), None)
        if len(self.axes) != 1 or not any(fills) or self.axes[0].path == _DP:
            return ""
        given = said[1] if said else "1"
        places = [
            (value, fill[1] if fill else given)
            for ((_, value),), fill, error in zip(self.settings, fills, self.errors, strict=True)
            if fill or error is None
        ]
        values, replicas = (
            ",".join(str(one) for one in side) for side in zip(*places, strict=True)
        )
        return f"{self.axes[0].path}={values}; {_DP}={replicas}"

    def unmoved(self) -> list[str]:
        """Return the settings whose every value gives the same step, the others being equal."""
        rows = [row for row in self.rows() if row["error"] is None]
        return [axis.path for axis in self.axes if not axis.beside and _unmoved(axis, rows, self)]

    def to_pandas(self) -> Any:
        """Return `rows` as a pandas DataFrame. Needs pandas."""
        try:
            import pandas
        except ImportError:
            raise CommsimError("a table needs pandas: pip install pandas") from None
        return pandas.DataFrame(self.rows())

    def figures(self) -> list[Figure]:
        """Return the charts that fit what was varied."""
        from commsim.charts import sweep_figures

        return sweep_figures(self.to_dict(), self.rows(), self.reports)

    def save(self, path: str | Path) -> None:
        """Write .csv, .json, .parquet (needs pandas and pyarrow) or .html.

        Raises:
            ScenarioError: another suffix, or the file cannot be written.
        """
        path = Path(path)
        if path.suffix == ".csv":
            write_text(path, self._csv())
        elif path.suffix == ".json":
            write_json(self.to_dict(), path)
        elif path.suffix == ".parquet":
            self._save_parquet(path)
        elif path.suffix == ".html":
            from commsim.charts import save_page

            save_page(self.figures(), path)
        else:
            raise ScenarioError(f"{path}: write {', '.join(_SUFFIXES)}.")

    def _csv(self) -> str:
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        rows = self.rows()
        writer.writerow(rows[0])
        writer.writerows([["" if v is None else v for v in row.values()] for row in rows])
        return text.getvalue()

    def _save_parquet(self, path: Path) -> None:
        try:
            write_aside(path, lambda aside: self.to_pandas().to_parquet(aside))
        except ImportError:
            raise CommsimError(f"{path}: Parquet needs pyarrow: pip install pyarrow") from None


def sweep(
    scenario: str | Path | Mapping[str, Any],
    vary: Iterable[str | SweepAxis] | Mapping[str, Any] = (),
    *,
    zipped: bool | Sequence[Sequence[str]] = False,
    sets: Iterable[str] = (),
    executor: str = "processes",
    store: str | Path | None = None,
    reports: str | Path | None = None,
    progress: Callable[[int, int], None] = lambda done, of: None,
) -> Sweep:
    """Run a scenario at every combination of the settings that are varied.

    `vary` is a mapping from paths to lists, or texts as the command line has them; left out, the
    scenario's section `sweep` says it. `zipped` takes the values side by side instead of all
    combinations, or lists groups of paths that do. Results are kept in `store` (an SQLite file) by
    the content of the scenario and commsim's version: what is there is not run again, so a sweep
    that was stopped goes on.
    `reports` is a folder for the page of every point.

    Raises:
        ScenarioError: nothing to vary, no such scenario or executor, or too many points. A point
            that cannot run has its error in the result and stops no other.
    """
    data, where, folder, name = read_scenario(scenario, sets)
    vary = vary if isinstance(vary, Mapping) else tuple(vary)
    given = data.get("sweep") if isinstance(data, dict) else None
    if not vary and given is not None:
        section = decode(given, SweepSection, where, path="sweep")
        vary, zipped = section.vary, section.zip or zipped
    axes = axes_of(vary, zipped)
    points = [
        _reporting(point_of(data, settings, where, folder), reports)
        for settings in combinations(axes)
    ]
    with folder_to_fill(reports) if reports is not None else nullcontext():
        known, ran, paged = _outcomes(points, executor, store, progress)
    return Sweep(
        scenario=name,
        axes=axes,
        settings=tuple(point.settings for point in points),
        results=tuple(known[point.key].result for point in points),
        errors=tuple(known[point.key].error for point in points),
        reports=tuple(point.report for point in points),
        ran=ran,
        paged=paged,
    )


def _reporting(point: SweepPoint, folder: str | Path | None) -> SweepPoint:
    if folder is None:
        return point
    return replace(point, report=str(Path(folder) / f"{point.key[:16]}.html"))


def _outcomes(
    points: list[SweepPoint],
    executor: str,
    store: str | Path | None,
    progress: Callable[[int, int], None],
) -> tuple[dict[str, Outcome], int, int]:
    """Return the outcomes by key, how many were run, and how many of them only for their page."""
    unique = {point.key: point for point in points}
    with ExitStack() as stack:
        kept = stack.enter_context(Store(store if store is not None else ":memory:"))
        known = dict(kept.get(unique))
        missing = [
            point
            for key, point in unique.items()
            if key not in known
            or (point.report and not os.path.exists(point.report) and known[key].error is None)
        ]
        paged = sum(point.key in known for point in missing)
        progress(len(unique) - len(missing), len(unique))
        for done, outcome in enumerate(run_points(missing, executor), 1):
            kept.put(outcome)
            known[outcome.key] = outcome
            progress(len(unique) - len(missing) + done, len(unique))
    return known, len(missing), paged


def _unmoved(axis: SweepAxis, rows: list[dict[str, Any]], of: Sweep) -> bool:
    """Whether rows that differ in this setting, and in those beside it, take the same time."""
    moving = {one.path for one in of.axes if axis.path in (one.path, one.beside)}
    steps: dict[tuple[str, ...], dict[str, float]] = {}
    for row in rows:
        others = tuple(str(row[one.path]) for one in of.axes if one.path not in moving)
        steps.setdefault(others, {})[str(row[axis.path])] = row["step_time_s"]
    compared = [by_value for by_value in steps.values() if len(by_value) > 1]
    return bool(compared) and all(len(set(by_value.values())) == 1 for by_value in compared)


def _figure(result: dict[str, Any] | None, column: str) -> Any:
    value: Any = result
    for step in column.split("."):
        value = value.get(step) if isinstance(value, dict) else None
    return value
