"""
Tables of collectives side by side: what was measured, what is predicted, and how far apart.

Errors are signed, (this - reference) / reference, of the time; medians of their absolute values
stand by band of size, as a latency error says nothing about bandwidth.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from statistics import median
from typing import Any

import msgspec

from commsim.ops import bus_factor
from commsim.traces.formats import NcclTests

__all__ = [
    "BANDS",
    "Sheet",
    "TablePoint",
    "TableRows",
    "band_of",
    "from_bench",
    "from_log",
    "line_up",
]

BANDS = (("large", 16 * 2**20), ("mid", 64 * 2**10), ("small", 0))
"""Bands by the least size in bytes that belongs to them."""

_NEAR = 0.01  # sizes that nccl-tests rounds differently in its versions are one size


class TablePoint(msgspec.Struct, frozen=True):
    """A size of a table; `busbw_gbs` in 1e9 bytes/s."""

    size: int
    time_us: float
    busbw_gbs: float | None
    algo: str | None = None
    proto: str | None = None


class Sheet(msgspec.Struct, frozen=True):
    """One op's table from one source, by size; `ranks` and `nodes` are 0 if unknown."""

    name: str
    op: str
    dtype: str
    ranks: int
    nodes: int
    measured: bool
    points: tuple[TablePoint, ...]
    notes: tuple[str, ...] = ()


class TableRows(msgspec.Struct, frozen=True):
    """One op over all sources: `times[i][k]` of size i and source k, None if it has none."""

    op: str
    sheets: tuple[Sheet | None, ...]
    reference: int
    sizes: tuple[int, ...]
    points: tuple[tuple[TablePoint | None, ...], ...]

    def error(self, row: int, source: int) -> float | None:
        """Return the signed relative error of the time against the reference; None without."""
        point, held = self.points[row][source], self.points[row][self.reference]
        if source == self.reference or point is None or held is None or not held.time_us:
            return None
        return point.time_us / held.time_us - 1

    def bands(self, source: int) -> dict[str, dict[str, Any]]:
        """Return by band: n, the median absolute and the median signed error, the worst."""
        found: dict[str, dict[str, Any]] = {}
        for name, _ in BANDS:
            errors = [
                error
                for row, size in enumerate(self.sizes)
                if band_of(size) == name and (error := self.error(row, source)) is not None
            ]
            found[name] = {
                "n": len(errors),
                "median_abs_err": median(map(abs, errors)) if errors else None,
                "median_err": median(errors) if errors else None,
                "worst_err": max(errors, key=abs) if errors else None,
            }
        return found

    def to_dict(self, tolerance: float) -> dict[str, Any]:
        """Return the table as plain data."""
        sources = range(len(self.sheets))
        rows = [
            {
                "size": size,
                "band": band_of(size),
                "time_us": [point.time_us if point else None for point in points],
                "busbw_gbs": [point.busbw_gbs if point else None for point in points],
                "algo": [point.algo if point else None for point in points],
                "proto": [point.proto if point else None for point in points],
                "error": [self.error(row, source) for source in sources],
            }
            for row, (size, points) in enumerate(zip(self.sizes, self.points, strict=True))
        ]
        sheets = [sheet for sheet in self.sheets if sheet is not None]
        return {
            "op": self.op,
            "type": sheets[0].dtype,
            "ranks": [sheet.ranks or None if sheet else None for sheet in self.sheets],
            "nodes": [sheet.nodes or None if sheet else None for sheet in self.sheets],
            "reference": self.reference,
            "rows": rows,
            "bands": [None if at == self.reference else self.bands(at) for at in sources],
            "within": self.within(tolerance),
        }

    def within(self, tolerance: float) -> bool:
        """Whether every band of every source is as near to the reference as `tolerance` says."""
        medians = (
            band["median_abs_err"]
            for source in range(len(self.sheets))
            for band in self.bands(source).values()
        )
        return all(value is None or value <= tolerance for value in medians)


def band_of(size: int) -> str:
    """Return the name of the band of a size in bytes."""
    return next(name for name, least in BANDS if size >= least)


def from_log(table: NcclTests, name: str) -> Sheet:
    """Return the out-of-place times of an nccl-tests table (in-place if there are no others).

    A size that was run several times has the median. busbw is computed anew if the ranks are
    known: old versions printed another one.
    """
    times: dict[int, list[float]] = {}
    printed: dict[int, float] = {}
    for row in table.rows:
        timing = row.out_of_place or row.in_place
        if row.size > 0 and timing is not None and timing.time_us > 0:
            times.setdefault(row.size, []).append(timing.time_us)
            printed[row.size] = timing.busbw_gbs
    points = []
    for size in sorted(times):
        time = median(times[size])
        busbw = _busbw(table.op, size, time, table.ranks)
        points.append(TablePoint(size, time, printed[size] if busbw is None else busbw))
    return Sheet(
        name, table.op, table.dtype, table.ranks, table.nodes, True, tuple(points), table.notes
    )


def _busbw(op: str, size: int, time_us: float, ranks: int) -> float | None:
    if ranks < 2:
        return None
    factor = 1.0 if op == "send_recv" else bus_factor(op, ranks)
    return size / time_us * 1e-3 * factor


def from_bench(data: dict[str, Any], name: str) -> tuple[Sheet, ...]:
    """Return the tables of a bench's JSON, one per op: the library's choice at each size.

    Where the choice was not among what was timed, the fastest stands for it, and a note says so.
    """
    system = data.get("system") or {}
    found = []
    for op in dict.fromkeys(row["op"] for row in data["results"]):
        rows = [row for row in data["results"] if row["op"] == op]
        points, notes = _chosen(rows)
        where = [int(system.get(key) or 0) for key in ("gpus", "nodes")]
        found.append(
            Sheet(name, op, rows[0]["type"], where[0], where[1], False, tuple(points), notes)
        )
    return tuple(found)


def _chosen(rows: Iterable[dict[str, Any]]) -> tuple[list[TablePoint], tuple[str, ...]]:
    by_size: dict[int, list[dict[str, Any]]] = {}
    for row in rows:
        by_size.setdefault(row["size"], []).append(row)
    points, guessed = [], False
    for size in sorted(by_size):
        several = by_size[size]
        chosen = [row for row in several if row.get("chosen")]
        guessed = guessed or (len(several) > 1 and not chosen)
        row = min(chosen or several, key=lambda one: float(one["time_us"]))
        points.append(TablePoint(size, row["time_us"], row["busbw_gbs"], row["algo"], row["proto"]))
    note = "several algorithms were timed without the library's own choice: the fastest is taken."
    return points, (note,) if guessed else ()


def line_up(sheets: Sequence[Sequence[Sheet]], reference: int) -> list[TableRows]:
    """Put the tables of several sources next to each other, op by op; `sheets[k]` are source k's.

    The rows are the reference's sizes, then those that only others have; sizes that differ by
    less than 1 % are one.
    """
    ops = dict.fromkeys(sheet.op for sheet in sheets[reference])
    found = []
    for op in ops:
        mine = tuple(_of(group, op) for group in sheets)
        if sum(sheet is not None for sheet in mine) < 2:
            continue
        base = mine[reference]
        assert base is not None
        sizes = [point.size for point in base.points]
        rows = tuple(
            tuple(_near(sheet, size) if sheet is not None else None for sheet in mine)
            for size in sizes
        )
        kept = [at for at, row in enumerate(rows) if sum(p is not None for p in row) > 1]
        found.append(
            TableRows(
                op, mine, reference, tuple(sizes[at] for at in kept), tuple(rows[at] for at in kept)
            )
        )
    return found


def _of(sheets: Sequence[Sheet], op: str) -> Sheet | None:
    return next((sheet for sheet in sheets if sheet.op == op), None)


def _near(sheet: Sheet, size: int) -> TablePoint | None:
    best = min(sheet.points, key=lambda point: abs(point.size - size), default=None)
    return best if best is not None and abs(best.size - size) <= _NEAR * size else None
