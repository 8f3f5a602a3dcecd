"""
Compare: scenarios, results, measured traces and nccl-tests logs, side by side.

Runs (scenarios, results, traces) are compared by their metrics, tables of collectives (benches,
nccl-tests) size by size. The reference is the first that was measured, else the first given.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec

from commsim._version import __version__
from commsim.errors import ScenarioError
from commsim.files import write_json, write_pieces
from commsim.follow import Follow, followed, unfollowed
from commsim.study.compare.benched import bench_like
from commsim.study.compare.runs import Side, lay_out, open_run
from commsim.study.compare.sources import Comparable, Source, place_of, recognise, tables_of
from commsim.study.compare.tables import Sheet, from_bench, from_log, line_up
from commsim.study.compare.verdict import label, verdict_of_runs, verdict_of_tables

__all__ = ["Comparison", "compare"]


class Comparison(msgspec.Struct, frozen=True, eq=False):
    """Sources side by side; `data` is the JSON, `sides` the runs behind it (none for tables)."""

    data: dict[str, Any]
    sides: tuple[Side, ...] = ()

    def __repr__(self) -> str:
        names = ", ".join(side["name"] for side in self.data["sides"])
        state = "within" if self.within else "outside"
        return f"Comparison({names}: {state} {self.data['tolerance']:.3g})"

    def _repr_html_(self) -> str:
        from html import escape

        return f"<code>{escape(repr(self))}</code>"

    @property
    def within(self) -> bool:
        """Whether everything is within the tolerance of the reference."""
        return bool(self.data["within"])

    @property
    def verdict(self) -> list[str]:
        """The answer in sentences."""
        return list(self.data["verdict"])

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON of `commsim compare`."""
        return self.data

    def save_json(self, path: str | Path) -> None:
        """Write `to_dict` to a file."""
        write_json(self.data, Path(path))

    def report(self, path: str | Path) -> None:
        """Write one self-contained HTML page: the answer, the tables, all on one time axis."""
        from commsim.charts.compare import compare_page

        runs = [
            (
                f"{label(at)} {side.name}",
                side.timeline,
                None if side.cluster is None else side.cluster.node_of,
            )
            for at, side in enumerate(self.sides)
            if side.timeline is not None
        ]
        pieces = compare_page(self.data, runs)
        write_pieces(path, pieces)


def compare(
    *items: Comparable,
    tolerance: float = 0.05,
    progress: Callable[[str], None] = lambda _: None,
    follow: Follow = unfollowed,
) -> Comparison:
    """Compare two or more: paths, names, or what `run`, `replay`, `bench`, `load_trace` return.

    `tolerance` is a fraction: how far step times, or the medians of the errors by band of size,
    may be from the reference. `progress` hears the name of what is run or read, `follow` is given a
    function that says which share of that is done, where it is known.

    Raises:
        ScenarioError: fewer than two, things that have nothing in common, or as `run` does.
        TraceError: a file cannot be read.
    """
    if len(items) < 2:
        raise ScenarioError("compare needs two or more: scenarios, results, traces, or tables.")
    if not 0 <= tolerance <= 1:
        raise ScenarioError(f"tolerance {tolerance}: give a fraction from 0 to 1, such as 0.05.")
    sources = [recognise(item) for item in items]
    make = _tables if any(source.is_table for source in sources) else _runs
    made = make(sources, tolerance, progress, follow)
    made.data["command"] = _command(items, tolerance)
    return made


def _command(items: Sequence[Comparable], tolerance: float) -> str | None:
    """Return the command line that compares the same again; None for objects of a program."""
    names = [str(item) for item in items if isinstance(item, str | Path)]
    if len(names) < len(items):
        return None
    return shlex.join(["commsim", "compare", *names, "--tolerance", f"{100 * tolerance:.6g}%"])


def _runs(
    sources: Sequence[Source], tolerance: float, progress: Callable[[str], None], follow: Follow
) -> Comparison:
    for source in sources:
        if source.kind == "cluster":
            raise ScenarioError(
                f"{source.name}: a cluster has no work to run. Give scenarios that use it, or"
                " compare it with an nccl-tests log or a bench's JSON."
            )
    sides = []
    for source in sources:
        progress(source.name)
        sides.append(open_run(source, follow))
    reference = next((at for at, side in enumerate(sides) if side.measured), 0)
    made = lay_out(sides, reference, tolerance)
    listed = [_side(at, side) for at, side in enumerate(sides)]
    verdict = verdict_of_runs(sides, made["currency"])
    return Comparison(_data("runs", listed, reference, tolerance, made, verdict), tuple(sides))


def _side(at: int, side: Side) -> dict[str, Any]:
    """Return a side of the JSON; what is long in a run's JSON stays there."""
    metrics = side.metrics
    uses = sorted(metrics.get("collectives") or (), key=lambda use: -float(use["exposed_s"]))
    return {
        "label": label(at),
        "name": side.name,
        "kind": side.kind,
        "measured": side.measured,
        "scenario": metrics.get("scenario"),
        "breakdown": metrics["breakdown"],
        "step_time_s": metrics["step_time_s"],
        "memory_gib": metrics.get("memory_gib"),
        "collectives": uses[:24],
        "links": (metrics.get("links") or [])[:5],
        "cost": metrics.get("cost"),
        "notes": list(side.notes),
    }


def _tables(
    sources: Sequence[Source], tolerance: float, progress: Callable[[str], None], follow: Follow
) -> Comparison:
    reference = next((at for at, source in enumerate(sources) if source.kind == "log"), None)
    if reference is None:
        reference = next(at for at, source in enumerate(sources) if source.is_table)
    sheets: list[tuple[Sheet, ...]] = []
    for source in sources:
        progress(source.name)
        sheets.append(_sheets(source, sources[reference], follow))
    tables = [table for table in line_up(sheets, reference) if table.sizes]
    if not tables:
        raise ScenarioError(_nothing_shared(sources, sheets))
    names = [source.name for source in sources]
    made = {
        "tables": [table.to_dict(tolerance) for table in tables],
        "within": all(table.within(tolerance) for table in tables),
        "warnings": _mismatches(sources, sheets, reference),
    }
    listed = [
        {
            "label": label(at),
            "name": source.name,
            "kind": source.kind,
            "measured": source.kind == "log",
            "notes": list(dict.fromkeys(note for sheet in sheets[at] for note in sheet.notes)),
        }
        for at, source in enumerate(sources)
    ]
    verdict = verdict_of_tables(tables, names)
    return Comparison(_data("tables", listed, reference, tolerance, made, verdict))


def _sheets(source: Source, reference: Source, follow: Follow) -> tuple[Sheet, ...]:
    """Return the tables of a source; a cluster is benched like the measured reference."""
    if source.kind == "log":
        return tuple(from_log(table, source.name) for table in source.held)
    if source.kind == "bench":
        return from_bench(source.held, source.name)
    place = place_of(source)
    if place is None:
        raise ScenarioError(
            f"{source.name} is a run and {reference.name} a table of collectives: they share"
            " nothing. Compare the table with a cluster, with a scenario that has one, or with the"
            " JSON of `commsim bench`."
        )
    tables = tables_of(reference)
    if not tables:
        raise ScenarioError(
            f"{source.name} can be benched like an nccl-tests log, and none is given. Run"
            f" `commsim bench --cluster {source.name} --json F` and compare its file."
        )
    return tuple(bench_like(place, table) for table in followed(tables, follow))


def _nothing_shared(sources: Sequence[Source], sheets: Sequence[Sequence[Sheet]]) -> str:
    told = "; ".join(
        f"{source.name} has {', '.join(sheet.op for sheet in group)}"
        for source, group in zip(sources, sheets, strict=True)
    )
    return f"nothing to compare: no op and size is in two of them ({told})."


def _mismatches(
    sources: Sequence[Source], sheets: Sequence[Sequence[Sheet]], reference: int
) -> list[str]:
    """Return notes on tables of one op that are of different ranks or types."""
    found = []
    for base in sheets[reference]:
        for source, group in zip(sources, sheets, strict=True):
            for sheet in group:
                if sheet.op != base.op or sheet is base:
                    continue
                if sheet.ranks and base.ranks and sheet.ranks != base.ranks:
                    found.append(
                        f"{base.op}: {sources[reference].name} ran on {base.ranks} ranks,"
                        f" {source.name} on {sheet.ranks}."
                    )
    return list(dict.fromkeys(found))


def _data(
    kind: str,
    sides: list[dict[str, Any]],
    reference: int,
    tolerance: float,
    made: dict[str, Any],
    verdict: list[str],
) -> dict[str, Any]:
    return {
        "schema": 1,
        "commsim": __version__,
        "kind": kind,
        "tolerance": tolerance,
        "within": made.pop("within"),
        "reference": reference,
        "sides": sides,
        "verdict": verdict,
        **made,
    }
