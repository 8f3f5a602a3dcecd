"""
The tables of a run as CSV files: spans, ranks, collectives, links, the critical path.
"""

from __future__ import annotations

import csv
from collections.abc import Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from commsim.files import folder_to_fill, write_all
from commsim.graph import OpKind
from commsim.timeline import Timeline

__all__ = ["write_csv"]

_TABLES = ("ranks", "collectives", "links", "critical_path")


def write_csv(timeline: Timeline, result: dict[str, Any], folder: str | Path) -> list[Path]:
    """Write spans.csv (times in ps) and the tables of the result's JSON; return the files."""
    tables: list[tuple[str, Sequence[str], Iterable[Sequence[Any]]]] = [
        ("spans", _SPAN_HEAD, _spans(timeline))
    ]
    for name in _TABLES:
        head = list(result[name][0]) if result[name] else ["empty"]
        tables.append((name, head, [[row[key] for key in head] for row in result[name]]))
    with folder_to_fill(folder) as place:
        return write_all(
            (place / f"{name}.csv", partial(_write, head=head, rows=rows))
            for name, head, rows in tables
        )


_SPAN_HEAD = ("rank", "stream", "kind", "name", "arrive_ps", "start_ps", "end_ps", "bytes")


def _spans(timeline: Timeline) -> Iterable[Sequence[Any]]:
    graph = timeline.graph
    columns = (
        timeline.op.tolist(),
        timeline.arrive.tolist(),
        timeline.start.tolist(),
        timeline.end.tolist(),
    )
    for op, arrive, start, end in zip(*columns, strict=True):
        yield (
            int(graph.lane_rank[graph.lane[op]]),
            graph.streams[graph.stream[op]],
            OpKind(graph.kind[op]).name.lower(),
            graph.op_name(op),
            arrive,
            start,
            end,
            int(graph.size[op]),
        )


def _write(aside: Path, head: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    with aside.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(head)
        writer.writerows([[_cell(value) for value in row] for row in rows])


def _cell(value: Any) -> Any:
    """Keep text that a spreadsheet would run as a formula from being one."""
    dangerous = isinstance(value, str) and value[:1] in ("=", "+", "-", "@")
    return f"'{value}" if dangerous else value
