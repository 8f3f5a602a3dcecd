"""
A table of collectives side by side: busbw and error against size, and every figure.

The axes are boxes of HTML with their labels, the curves an SVG stretched between them, so that
text keeps its size on any screen.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from commsim.charts.compare.formatting import BANDS, NONE, difference_text
from commsim.charts.report import ReportSection, legend, text
from commsim.metrics import op_label
from commsim.units import format_size

__all__ = ["sizes_section"]

_TICKS = 6
_COLOURS = 8
_MOST_ERROR = 1.0  # beyond this a curve of errors is cut


def sizes_section(data: dict[str, Any], table: dict[str, Any]) -> ReportSection:
    """Return the section of one op."""
    sides = data["sides"]
    op = op_label(table["op"])
    reference = table["reference"]
    ranks, nodes = table["ranks"][reference], table["nodes"][reference]
    lead = f"{table['type']}, {ranks or 'unknown'} ranks"
    lead += f" on {nodes} node{'s' if nodes > 1 else ''}" if nodes else ""
    marks = [(_look(at), f"{side['label']} {side['name']}") for at, side in enumerate(sides)]
    body = (
        legend(marks)
        + '<p class="plot-title">busbw, GB/s, against size</p>'
        + _rates(table)
        + f'<p class="plot-title">error of time against {text(sides[reference]["label"])}</p>'
        + _errors(table, data["tolerance"])
        + _bands(data, table)
        + f"<details open><summary>every size</summary>{_figures(data, table)}</details>"
    )
    return ReportSection(f"op-{table['op']}", f"{op[0].upper()}{op[1:]}", lead, body, True)


def _look(at: int) -> str:
    return f"s{at % _COLOURS}"


def _places(table: dict[str, Any]) -> list[float]:
    """Return each size's place on the axis, 0..1000, by its logarithm."""
    logs = [math.log2(max(1, row["size"])) for row in table["rows"]]
    low, high = logs[0], max(logs[-1], logs[0] + 1)
    return [1000 * (one - low) / (high - low) for one in logs]


def _rates(table: dict[str, Any]) -> str:
    """Return the curves of busbw; the axis starts at zero."""
    rates = [rate for row in table["rows"] for rate in row["busbw_gbs"] if rate is not None]
    top, step = _round_up(max(rates, default=1.0))
    ticks = [(step * at / top, f"{step * at:g}") for at in range(round(top / step) + 1)]
    curves = _curves(table, lambda row, at: _share(row["busbw_gbs"][at], top))
    return _plot(ticks, _size_ticks(table), curves)


def _share(value: float | None, top: float) -> float | None:
    return None if value is None else value / top


def _errors(table: dict[str, Any], tolerance: float) -> str:
    """Return the curves of the error around zero, the tolerance as a band."""
    errors = [abs(e) for row in table["rows"] for e in row["error"] if e is not None]
    reach = min(_MOST_ERROR, max(0.1, math.ceil(max(errors, default=0.1) * 10) / 10))
    ticks = [(0.0, f"{-reach:+.0%}"), (0.5, "0"), (1.0, f"{reach:+.0%}")]
    curves = _curves(table, lambda row, at: _around(row["error"][at], reach))
    band = min(tolerance, reach) / reach * 500
    shade = f'<rect x="0" y="{500 - band:.4g}" width="1000" height="{2 * band:.4g}"/>'
    return _plot(ticks, _size_ticks(table), shade + curves, low=True)


def _around(error: float | None, reach: float) -> float | None:
    return None if error is None else 0.5 + 0.5 * max(-1.0, min(1.0, error / reach))


def _curves(table: dict[str, Any], height: Any) -> str:
    """Return a line with dots per source; `height(row, source)` is 0..1, None for a gap."""
    places = _places(table)
    made = []
    for at in range(len(table["ranks"])):
        line, dots, pen = [], [], "M"
        for place, row in zip(places, table["rows"], strict=True):
            value = height(row, at)
            if value is None:
                pen = "M"
                continue
            spot = f"{place:.5g} {1000 - 1000 * value:.5g}"
            line.append(f"{pen}{spot}")
            dots.append(f"M{spot}h0")
            pen = "L"
        if line:
            made.append(f'<path class="{_look(at)}" d="{"".join(line)}"/>')
            made.append(f'<path class="dots {_look(at)}" d="{"".join(dots)}"/>')
    return "".join(made)


def _plot(
    y_ticks: Sequence[tuple[float, str]],
    x_ticks: Sequence[tuple[float, str]],
    curves: str,
    *,
    low: bool = False,
) -> str:
    rules = "".join(_rule(y, zero=low and label == "0") for y, label in y_ticks)
    labels = "".join(
        f'<span class="y" style="bottom:{100 * y:.4g}%">{text(label)}</span>'
        for y, label in y_ticks
    ) + "".join(
        f'<span class="x" style="left:{100 * x:.4g}%">{text(label)}</span>' for x, label in x_ticks
    )
    return (
        f'<div class="plot{" low" if low else ""}"><svg viewBox="0 0 1000 1000"'
        f' preserveAspectRatio="none" aria-hidden="true">{rules}{curves}</svg>{labels}</div>'
    )


def _rule(y: float, *, zero: bool) -> str:
    return f'<path class="{"zero" if zero else "rule"}" d="M0 {1000 - 1000 * y:.5g}h1000"/>'


def _round_up(value: float) -> tuple[float, float]:
    """Return the end of an axis that holds `value`, and the step of its ticks: 1, 2 or 5."""
    rough = max(value, 1e-9) / 4
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(power * k for k in (1, 2, 5, 10) if power * k >= rough)
    return step * math.ceil(value / step * (1 - 1e-9)), step


def _size_ticks(table: dict[str, Any]) -> list[tuple[float, str]]:
    """Return up to `_TICKS` sizes, evenly picked, the last one among them."""
    rows, places = table["rows"], _places(table)
    last = len(rows) - 1
    stride = max(1, math.ceil(last / (_TICKS - 1)))
    return [(places[at] / 1000, format_size(rows[at]["size"])) for at in range(last, -1, -stride)][
        ::-1
    ]


def _bands(data: dict[str, Any], table: dict[str, Any]) -> str:
    rows = []
    for at, bands in enumerate(table["bands"]):
        for name, band in (bands or {}).items():
            if band["n"]:
                off = band["median_abs_err"] > data["tolerance"]
                rows.append(
                    f"<tr><td>{text(data['sides'][at]['label'])} {text(BANDS[name])}</td>"
                    f"<td>{band['n']}</td>"
                    f"<td{' class=off' if off else ''}>{band['median_abs_err']:.1%}</td>"
                    f"<td>{difference_text(band['median_err'])}</td>"
                    f"<td>{difference_text(band['worst_err'])}</td></tr>\n"
                )
    heads = "".join(f"<th>{one}</th>" for one in ("", "sizes", "median |error|", "median", "worst"))
    return _wrapped(heads, "".join(rows))


def _wrapped(heads: str, rows: str) -> str:
    return (
        f'<div class="scroll"><table class="sheet sizes"><thead><tr>{heads}</tr></thead>'
        f"<tbody>{rows}</tbody></table></div>"
    )


def _figures(data: dict[str, Any], table: dict[str, Any]) -> str:
    """Return every size's times and errors; busbw gives way if the page is narrow."""
    sides, reference = data["sides"], table["reference"]
    heads = [_cell("size", tag="th")]
    for at, side in enumerate(sides):
        heads += [_cell(f"{side['label']} us", tag="th"), _cell("busbw", "rate", tag="th")]
        heads += [] if at == reference else [_cell(f"{side['label']} error", tag="th")]
    lines = []
    for row in table["rows"]:
        cells = [_cell(format_size(row["size"]))]
        for at in range(len(sides)):
            cells += [
                _cell(_number(row["time_us"][at])),
                _cell(_number(row["busbw_gbs"][at]), "rate"),
            ]
            if at != reference:
                error = row["error"][at]
                off = error is not None and abs(error) > data["tolerance"]
                cells.append(_cell(difference_text(error) or NONE, "off" if off else ""))
        lines.append(f"<tr>{''.join(cells)}</tr>\n")
    return _wrapped("".join(heads), "".join(lines))


def _cell(words: str, look: str = "", *, tag: str = "td") -> str:
    return f"<{tag}{f' class={look}' if look else ''}>{text(words)}</{tag}>"


def _number(value: float | None) -> str:
    return NONE if value is None else f"{value:,.2f}"
