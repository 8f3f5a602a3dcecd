"""
The step of each rank or stage by the account of time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from commsim.charts.theme import ACCOUNT, GRID, HATCH, INK, MUTED, PAPER, base_layout, time_unit
from commsim.metrics import Metrics, RankTimes, short_time
from commsim.units import PS_PER_SECOND

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

__all__ = ["MOST_BARS", "breakdown"]

MOST_BARS = 64  # more rows are not legible on a page
_TOP, _BOTTOM, _BAR = 112, 56, 26


def breakdown(metrics: Metrics) -> Figure:
    """Draw a bar per rank, or per stage if each rank is one; above 64, evenly spread ones.

    The parts of a bar add up to that rank's window; a thin line is the mean over all ranks.
    """
    from plotly.graph_objects import Figure

    ranks = metrics.ranks
    rows, note = _chosen(ranks)
    longest = max((row.whole_s for row in rows), default=0.0)
    unit, size = time_unit(longest * PS_PER_SECOND)
    scale = PS_PER_SECOND / size
    title, subtitle = _words(metrics)
    bar = max(14, min(_BAR, 1100 // max(1, len(rows))))
    below = " · ".join(part for part in (subtitle, note) if part)
    layout = base_layout(title, below, _TOP + _BOTTOM + bar * max(2, len(rows)))
    layout["margin"] = {"l": 24, "r": 24, "t": _TOP, "b": _BOTTOM}
    layout["legend"] |= {"traceorder": "normal"}
    layout |= {
        "barmode": "stack",
        "bargap": 0.22,
        "xaxis": _time_axis(unit, longest * scale),
        "yaxis": _rows_axis(rows),
    }
    return Figure(data=_bars(rows, unit, scale), layout=layout)


def _chosen(ranks: tuple[RankTimes, ...]) -> tuple[list[RankTimes], str]:
    """Return the rows to draw and what to say of those left out."""
    if len(ranks) <= MOST_BARS:
        return list(ranks), ""
    last = len(ranks) - 1
    picked = [ranks[round(i * last / (MOST_BARS - 1))] for i in range(MOST_BARS)]
    return picked, f"{MOST_BARS} of {len(ranks):,} ranks shown"


def _by_stage(rows: list[RankTimes]) -> bool:
    stages = [row.stage for row in rows]
    return None not in stages and len(rows) > 1 and len(dict.fromkeys(stages)) == len(rows)


def _words(metrics: Metrics) -> tuple[str, str]:
    """Return the finding (the largest loss) and the step that it is part of."""
    mean = metrics.breakdown
    parts = [(part.label, getattr(mean, part.key)) for part in ACCOUNT]
    whole = mean.whole_s
    if not whole:
        return "Nothing ran", ""
    name, lost = max(parts[1:], key=lambda part: part[1])
    step = f"step {short_time(metrics.step_time_s * PS_PER_SECOND)}"
    if not lost:
        return "All of the step is compute", step
    return f"{lost / whole:.1%} of the mean rank's time is {name}", (
        f"{step} · compute {mean.compute_s / whole:.1%}"
    )


def _bars(rows: list[RankTimes], unit: str, scale: float) -> list[dict[str, Any]]:
    labels = list(range(len(rows)))
    names = [_name(row) for row in rows]
    traces = []
    for field, name, look, colour in ACCOUNT:
        values = [getattr(row, field) * scale for row in rows]
        if not any(values):
            continue
        marker: dict[str, Any] = {"color": colour, "line": {"width": 1, "color": PAPER}}
        if look in ("waits", "idle"):
            marker["pattern"] = {
                "shape": "/",
                "bgcolor": colour,
                "fgcolor": HATCH if look == "idle" else "#C85C5C",
                "size": 6,
                "solidity": 0.25,
            }
        shares = [
            f"{v / scale / max(r.whole_s, 1e-30):.1%}" for v, r in zip(values, rows, strict=True)
        ]
        notes = [list(pair) for pair in zip(names, shares, strict=True)]
        traces.append(
            {
                "type": "bar",
                "orientation": "h",
                "name": name,
                "y": labels,
                "x": values,
                "marker": marker,
                "customdata": notes,
                "hovertemplate": f"%{{customdata[0]}}: {name} %{{x:.4g}} {unit}, %{{customdata[1]}}"
                "<extra></extra>",
            }
        )
    return traces


def _name(row: RankTimes) -> str:
    stage = f", stage {row.stage}" if row.stage is not None else ""
    return f"rank {row.rank}{stage}" + (f" (×{row.multiplicity:,})" if row.multiplicity > 1 else "")


def _time_axis(unit: str, longest: float) -> dict[str, Any]:
    return {
        "title": {"text": f"time ({unit})", "font": {"size": 12, "color": MUTED}, "standoff": 8},
        "range": [0, longest or 1],
        "gridcolor": GRID,
        "zeroline": False,
        "nticks": 8,
        "tickfont": {"size": 11, "color": MUTED},
        "automargin": True,
    }


def _rows_axis(rows: list[RankTimes]) -> dict[str, Any]:
    by_stage = _by_stage(rows)
    labels = [f"stage {row.stage}" if by_stage else _label(row) for row in rows]
    return {
        "tickmode": "array",
        "tickvals": list(range(len(rows))),
        "ticktext": labels,
        "tickfont": {"size": 11, "color": INK},
        "range": [len(rows) - 0.5, -0.5],
        "showgrid": False,
        "zeroline": False,
        "fixedrange": True,
        "automargin": True,
        "ticklabelstandoff": 6,
    }


def _label(row: RankTimes) -> str:
    return f"rank {row.rank}" + (f" ×{row.multiplicity:,}" if row.multiplicity > 1 else "")
