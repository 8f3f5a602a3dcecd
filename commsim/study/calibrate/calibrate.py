"""
`calibrate`: from measured tables to what is broken, and to a cluster file that says their times.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
import yaml

from commsim._version import __version__
from commsim.arrays import Floats
from commsim.errors import ScenarioError
from commsim.files import write_json, write_text
from commsim.follow import Follow, unfollowed
from commsim.study.calibrate.factors import Factor, factors_of, overrides_of
from commsim.study.calibrate.faults import Finding, diagnose
from commsim.study.calibrate.fit import PARTS, ErrorParts, errors_of
from commsim.study.calibrate.out_of_line import slow_figures, slow_ops
from commsim.study.calibrate.predicted import (
    FOUND,
    BenchedMachine,
    MeasuredTable,
    machine_of,
    read_tables,
)
from commsim.study.calibrate.shrink import fit_that_carries
from commsim.study.calibrate.training import StepCalibration

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

__all__ = ["Calibration", "calibrate", "fitted_to", "joined", "save_cluster"]

_LEAST_ROWS = 4


class Calibration(msgspec.Struct, frozen=True, eq=False):
    """A cluster fitted to measured tables.

    `cluster` is its file in plain data. `finding` is what is broken, None if nothing explains
    the tables better than the machine as it should be. `out_of_line` says what no known fault
    explains and is not healthy either; the tables of an op that is slower than the others, and of
    a machine with a fault, stay out of `cluster`. Errors are medians of |predicted / measured
    - 1|: `before` with the figures given, `after` with the fitted ones, on the rows fitted to;
    `left_out` has both by what was left out of a fit of its own: "sizes" (every second one) and
    "ops" (half). `tables` are measured and predicted times for the chart.
    """

    cluster: dict[str, Any]
    finding: Finding | None
    out_of_line: tuple[str, ...]
    factors: tuple[tuple[Factor, float], ...]
    before: float
    after: float
    left_out: dict[str, tuple[float, float]]
    tables: tuple[dict[str, Any], ...]
    notes: tuple[str, ...]

    def __repr__(self) -> str:
        name = self.cluster.get("preset", "a node")
        return f"Calibration({name!r}, {self.before:.1%} -> {self.after:.1%})"

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON of `commsim calibrate`."""
        found = self.finding
        return {
            "schema": 1,
            "commsim": __version__,
            "cluster": self.cluster,
            "finding": None
            if found is None
            else {
                "name": found.fault.name,
                "says": found.fault.says,
                "before": found.before,
                "after": found.after,
                "also": list(found.also),
            },
            "out_of_line": list(self.out_of_line),
            "factors": [
                {"path": factor.path, "was": factor.value, "times": times}
                for factor, times in self.factors
            ],
            "before": self.before,
            "after": self.after,
            "left_out": {
                what: {"before": before, "after": after}
                for what, (before, after) in self.left_out.items()
            },
            "tables": list(self.tables),
            "notes": list(self.notes),
        }

    def figures(self) -> list[Figure]:
        """Return a chart of each table: measured, as given, and fitted."""
        from commsim.charts import calibration_figures

        return calibration_figures(self.to_dict())

    def save(self, path: str | Path) -> None:
        """Write the cluster file (.yaml), the result (.json) or the charts (.html)."""
        path = Path(path)
        if path.suffix in (".yaml", ".yml"):
            save_cluster(self.cluster, path)
        elif path.suffix == ".json":
            write_json(self.to_dict(), path)
        elif path.suffix == ".html":
            from commsim.charts import save_page

            save_page(self.figures(), path)
        else:
            raise ScenarioError(f"{path}: write .yaml, .json or .html.")


def calibrate(
    logs: str | Path | Iterable[str | Path],
    cluster: str | Path,
    *,
    version: str | None = None,
    on: tuple[int, int] | None = None,
    progress: Callable[[str], None] = lambda _: None,
    follow: Follow = unfollowed,
) -> Calibration:
    """Fit a few figures of `cluster` (a preset or a cluster file) to logs of nccl-tests or PARAM.

    First it looks for what is broken, and takes that as part of the machine. `version` is the NCCL
    that should have run; without it the logs' own word counts. `on` is (nodes, GPUs on each) for
    logs that do not list their devices, as PARAM's. `progress` hears what is being done, `follow`
    is given a function that says which share of it is done.

    Raises:
        TraceError: a log cannot be read.
        ScenarioError: no such cluster, or one that cannot have run these tables.
    """
    tables = read_tables([logs] if isinstance(logs, str | Path) else logs, on)
    machine = machine_of(cluster)
    if version is not None:
        machine = machine.having({}, version=version)
    return fitted(machine, tables, progress=progress, follow=follow)


def fitted(
    machine: BenchedMachine,
    tables: Sequence[MeasuredTable],
    *,
    progress: Callable[[str], None] = lambda _: None,
    follow: Follow = unfollowed,
) -> Calibration:
    """Return the calibration of a machine by tables that have been read."""
    progress("looking for what is broken")
    finding = diagnose(machine, tables, follow)
    broken = machine if finding is None else finding.fault.on(machine)
    factors = factors_of(broken, tables)
    progress(f"fitting {len(factors)} figures to {sum(len(t.sizes) for t in tables)} rows")
    x = fit_that_carries(broken, tables, factors)
    left_out = _left_out(machine, broken, tables, factors)
    worse = [what for what, (before, after) in left_out.items() if after > before]
    if "ops" in worse or worse == list(left_out):
        x = np.zeros(len(factors))
    known = broken.having(overrides_of(factors, x))
    slow = slow_ops(known, tables)
    # A broken machine's times are no yardstick: `check` would pass as long as it stays broken.
    kept = [table for table in tables if table.op not in slow and finding is None]
    told = [
        f"{op} takes {times:.2g} times what the other ops of these logs lead to expect: its tables"
        " are not kept in the file, so that `check` holds it against the prediction"
        for op, times in slow.items()
    ]
    return Calibration(
        cluster=_written(known, factors, tables, kept, finding),
        finding=finding,
        out_of_line=(*slow_figures(factors, x), *told),
        factors=tuple(zip(factors, np.exp(x).tolist(), strict=True)),
        before=float(np.median(errors_of(machine, tables))),
        after=float(np.median(errors_of(known, tables))),
        left_out=left_out,
        tables=tuple(_charted(machine, known, table) for table in tables),
        notes=tuple(_notes(machine, tables, finding, worse if not x.any() else [])),
    )


def fitted_to(
    machine: BenchedMachine, tables: Sequence[MeasuredTable], parts: ErrorParts = PARTS
) -> BenchedMachine:
    """Return the machine with what is broken, and the figures that fit the tables best."""
    finding = diagnose(machine, tables)
    broken = machine if finding is None else finding.fault.on(machine)
    factors = factors_of(broken, tables)
    return broken.having(overrides_of(factors, fit_that_carries(broken, tables, factors, parts)))


def _left_out(
    machine: BenchedMachine,
    broken: BenchedMachine,
    tables: Sequence[MeasuredTable],
    factors: Sequence[Factor],
) -> dict[str, tuple[float, float]]:
    """Return errors before and after on what a fit of its own did not see."""
    parts: dict[str, tuple[list[MeasuredTable], list[MeasuredTable]]] = {}
    long = [table for table in tables if len(table.sizes) >= _LEAST_ROWS]
    if long:
        parts["sizes"] = (
            [table.at(range(0, len(table.sizes), 2)) for table in long],
            [table.at(range(1, len(table.sizes), 2)) for table in long],
        )
    ops = sorted({table.op for table in tables})
    if len(ops) > 1:
        seen = ops[: (len(ops) + 1) // 2]
        parts["ops"] = (
            [table for table in tables if table.op in seen],
            [table for table in tables if table.op not in seen],
        )
    found = {}
    for what, (shown, hidden) in parts.items():
        x: Floats = fit_that_carries(broken, shown, factors)
        made = broken.having(overrides_of(factors, x))
        found[what] = (
            float(np.median(errors_of(machine, hidden))),
            float(np.median(errors_of(made, hidden))),
        )
    return found


def _written(
    machine: BenchedMachine,
    factors: Sequence[Factor],
    tables: Sequence[MeasuredTable],
    kept: Sequence[MeasuredTable],
    finding: Finding | None,
) -> dict[str, Any]:
    """Return the cluster file: the figures with where they are from, the tables that are kept."""
    data = dict(machine.cluster)
    data["nodes"] = max(table.nodes for table in tables)
    names = ", ".join(dict.fromkeys(table.name.partition(":")[0] for table in tables))
    overrides = {part: dict(fields) for part, fields in data["overrides"].items()}
    for factor in factors:
        part, field = factor.path.split(".")
        overrides[part].setdefault("sources", {})
        overrides[part]["sources"] = {
            **overrides[part]["sources"],
            field: f"fitted: commsim calibrate {names}",
        }
    for part in finding.fault.overrides if finding is not None else ():
        sources = overrides[part].get("sources", {})
        told = f"{FOUND}{finding.fault.name}, in {names}" if finding is not None else ""
        fields = finding.fault.overrides[part] if finding is not None else {}
        overrides[part]["sources"] = {**sources, **dict.fromkeys(fields, told)}
    data["overrides"] = overrides
    data["measured"] = [table.written() for table in kept]
    return data


def save_cluster(cluster: Mapping[str, Any], path: str | Path) -> None:
    """Write a cluster file: what it is one setting a line, what was measured a table a line."""
    figures = {key: value for key, value in cluster.items() if key != "measured"}
    text = yaml.safe_dump(figures, sort_keys=False, width=100)
    if cluster.get("measured"):
        measured = {"measured": cluster["measured"]}
        text += yaml.safe_dump(measured, sort_keys=False, width=100, default_flow_style=None)
    write_text(Path(path), text)


def joined(found: Calibration | None, paced: StepCalibration | None) -> dict[str, Any]:
    """Return one cluster of both: what logs say of links and launch, what steps say of GPUs."""
    if found is None:
        return {} if paced is None else dict(paced.cluster)
    if paced is None:
        return dict(found.cluster)
    both = dict(found.cluster)
    gpu = (paced.cluster.get("overrides") or {}).get("gpu")
    if gpu is not None:
        both["overrides"] = {**both["overrides"], "gpu": gpu}
    return both


def _charted(
    machine: BenchedMachine, known: BenchedMachine, table: MeasuredTable
) -> dict[str, Any]:
    return {
        "name": table.name,
        "sizes": list(table.sizes),
        "measured_s": table.seconds.tolist(),
        "given_s": machine.seconds(table).tolist(),
        "fitted_s": known.seconds(table).tolist(),
    }


def _notes(
    machine: BenchedMachine,
    tables: Sequence[MeasuredTable],
    finding: Finding | None,
    worse: Sequence[str],
) -> list[str]:
    notes = []
    if worse:
        told = " and ".join(worse)
        notes.append(f"fits predict {told} that they did not see worse: the figures stay as given")
    versions = sorted({_release(table.nccl) for table in tables if table.nccl})
    wanted = machine.library.get("version")
    if len(versions) > 1:
        notes.append(f"the logs ran different releases of NCCL: {', '.join(versions)}")
    wrong = [one for one in versions if wanted is not None and one != _release(str(wanted))]
    if wrong:
        notes.append(f"NCCL {', '.join(wrong)} ran, and {wanted} should have: wrong NCCL version")
    if finding is not None and finding.fault.library:
        told = ", ".join(f"{key}: {value}" for key, value in finding.fault.library.items())
        notes.append(
            f"the fault is in the library, not in the cluster file ({told}): mend it there"
        )
    several = any(table.nodes > 1 for table in tables)
    if not several:
        notes.append("all tables are of one node: nothing is learned of NICs and the fabric")
    return notes


def _release(version: str) -> str:
    return ".".join(version.split(".")[:2])
