"""
A comparison as text: the answer, then what differs, then the figures side by side.
"""

from __future__ import annotations

from typing import Any

from commsim.cli.summary import columns
from commsim.units import format_time

__all__ = ["comparison_text", "figure_text"]

_NONE = "–"
_BANDS = {"large": "16 MiB and above", "mid": "64 KiB to 16 MiB", "small": "below 64 KiB"}


def comparison_text(data: dict[str, Any]) -> str:
    """Return what `commsim compare` prints."""
    listed = [(side["label"], side["name"], _kind(side)) for side in data["sides"]]
    tables = _run_tables(data) if data["kind"] == "runs" else _size_tables(data)
    blocks = ["\n".join(data["verdict"]), columns(listed), *tables, *_warned(data), _closing(data)]
    return "\n\n".join(block for block in blocks if block)


def _kind(side: dict[str, Any]) -> str:
    names = {"trace": "measured trace", "log": "measured by nccl-tests", "bench": "predicted",
             "cluster": "predicted"}  # fmt: skip
    return names.get(side["kind"], side["kind"])


def _run_tables(data: dict[str, Any]) -> list[str]:
    labels = [side["label"] for side in data["sides"]]
    right = range(1, 1 + 2 * len(labels))
    head = ["", *(cell for label in labels for cell in (label, ""))]
    rows = [tuple(head)]
    for row in data["metrics"]:
        cells = [_name(row, data["currency"])]
        for value, off in zip(row["values"], row["difference"], strict=True):
            cells += [figure_text(value, row["unit"]), "" if off is None else f"{off:+.1%}"]
        rows.append((*cells, "*" if row["differs"] else ""))
    rows[0] = (*rows[0], "")
    blocks = [columns(rows, right=right)]
    for title, key in (("settings that differ", "settings"), ("hardware", "hardware")):
        differing = [row for row in data[key] if row["differs"]]
        if differing:
            lines = [(title, *labels)]
            lines += [
                (f"  {row['key']}", *(v or _NONE for v in row["values"])) for row in differing
            ]
            blocks.append(columns(lines))
    return blocks


def _name(row: dict[str, Any], currency: str | None) -> str:
    return f"{row['label']}, {currency}" if row["unit"] == "money" and currency else row["label"]


def figure_text(value: float | None, unit: str) -> str:
    """Write a figure in its unit, as `Quantity.unit` names it."""
    if value is None:
        return _NONE
    if unit == "s":
        return format_time(value * 1e12)
    if unit == "share":
        return f"{value:.1%}"
    if unit in ("rate", "W", "kWh", "J"):
        shown = f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"
        return shown if unit == "rate" else f"{shown} {unit}"
    if unit == "GiB":
        return f"{value:.1f} GiB"
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"


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
                rows.append((
                    f"  {sides[at]['label']}", _BANDS[name], str(band["n"]),
                    f"{band['median_abs_err']:.1%}", _percent(band["median_err"]),
                    _percent(band["worst_err"]),
                ))  # fmt: skip
    return columns(rows, right=(2, 3, 4, 5)) if len(rows) > 1 else ""


def _number(value: float | None) -> str:
    return _NONE if value is None else f"{value:.2f}"


def _percent(value: float | None) -> str:
    return _NONE if value is None else f"{value:+.1%}"


def _warned(data: dict[str, Any]) -> list[str]:
    return ["\n".join(f"warning: {line}" for line in data["warnings"])]


def _closing(data: dict[str, Any]) -> str:
    if data["tolerance"] == float("inf"):
        return ""
    state = "within" if data["within"] else "outside"
    what = "step times" if data["kind"] == "runs" else "medians by band"
    reference = data["sides"][data["reference"]]["label"]
    return f"{state} {data['tolerance']:.3g} of {reference} ({what})".replace(
        f"{data['tolerance']:.3g}", f"{100 * data['tolerance']:.4g}%"
    )
