"""
A comparison as text: the answer, then what differs, then the figures side by side.
"""

from __future__ import annotations

from typing import Any

from commsim.charts.compare import (
    BANDS,
    NONE,
    difference_text,
    figure_text,
    kind_text,
    quantity_text,
)
from commsim.cli.terminal import columns

__all__ = ["comparison_text"]


def comparison_text(data: dict[str, Any]) -> str:
    """Return what `commsim compare` prints."""
    listed = [(side["label"], side["name"], kind_text(side["kind"])) for side in data["sides"]]
    tables = _run_tables(data) if data["kind"] == "runs" else _size_tables(data)
    blocks = ["\n".join(data["verdict"]), columns(listed), *tables, *_warned(data), _closing(data)]
    return "\n\n".join(block for block in blocks if block)


def _run_tables(data: dict[str, Any]) -> list[str]:
    labels = [side["label"] for side in data["sides"]]
    right = range(1, 1 + 2 * len(labels))
    head = ["", *(cell for label in labels for cell in (label, ""))]
    rows = [tuple(head)]
    for row in data["metrics"]:
        cells = [quantity_text(row, data["currency"])]
        for value, off in zip(row["values"], row["difference"], strict=True):
            cells += [figure_text(value, row["unit"]), difference_text(off)]
        rows.append((*cells, "*" if row["differs"] else ""))
    rows[0] = (*rows[0], "")
    blocks = [columns(rows, right=right)]
    for title, key in (("settings that differ", "settings"), ("hardware", "hardware")):
        differing = [row for row in data[key] if row["differs"]]
        if differing:
            lines = [(title, *labels)]
            lines += [(f"  {row['key']}", *(v or NONE for v in row["values"])) for row in differing]
            blocks.append(columns(lines))
    return blocks


def _size_tables(data: dict[str, Any]) -> list[str]:
    blocks = []
    sides = data["sides"]
    for table in data["tables"]:
        head = ["size (B)"]
        for at, side in enumerate(sides):
            mark = "measured" if side["measured"] else "time"
            head += [f"{side['label']} {mark} (us)", "busbw (GB/s)"]
            head += [] if at == table["reference"] else ["error"]
        rows = [tuple(head)]
        for row in table["rows"]:
            cells = [f"{row['size']}"]
            for at in range(len(sides)):
                cells += [_number(row["time_us"][at]), _number(row["busbw_gbs"][at])]
                cells += [] if at == table["reference"] else [_percent(row["error"][at])]
            rows.append(tuple(cells))
        title = f"{table['op']}, {table['type']}, {_ranks(table)}"
        blocks.append(f"{title}\n{columns(rows, right=range(len(head)))}")
        blocks.append(_band_table(table, sides))
    return blocks


def _ranks(table: dict[str, Any]) -> str:
    ranks, nodes = table["ranks"][table["reference"]], table["nodes"][table["reference"]]
    if not ranks:
        return "ranks unknown"
    return f"{ranks} ranks" + (f" on {nodes} node{'s' if nodes > 1 else ''}" if nodes else "")


def _band_table(table: dict[str, Any], sides: list[dict[str, Any]]) -> str:
    rows: list[tuple[str, ...]] = [
        ("error of time", "", "n", "median of |error|", "median", "worst")
    ]
    for at, bands in enumerate(table["bands"]):
        for name, band in (bands or {}).items():
            if band["n"]:
                rows.append(
                    (
                        f"  {sides[at]['label']}",
                        BANDS[name],
                        str(band["n"]),
                        f"{band['median_abs_err']:.1%}",
                        _percent(band["median_err"]),
                        _percent(band["worst_err"]),
                    )
                )
    return columns(rows, right=(2, 3, 4, 5)) if len(rows) > 1 else ""


def _number(value: float | None) -> str:
    return NONE if value is None else f"{value:.2f}"


def _percent(value: float | None) -> str:
    return difference_text(value) or NONE


def _warned(data: dict[str, Any]) -> list[str]:
    return ["\n".join(f"warning: {line}" for line in data["warnings"])]


def _closing(data: dict[str, Any]) -> str:
    state = "within" if data["within"] else "outside"
    what = "step times" if data["kind"] == "runs" else "medians by band"
    reference = data["sides"][data["reference"]]["label"]
    return f"{state} {data['tolerance']:.3g} of {reference} ({what})".replace(
        f"{data['tolerance']:.3g}", f"{100 * data['tolerance']:.4g}%"
    )
