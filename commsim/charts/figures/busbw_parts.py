"""
The pieces of a busbw chart: curves, bounds, the library's choice, ribbons, crossovers.
"""

from __future__ import annotations

from math import log10
from typing import Any, NamedTuple

import msgspec

from commsim.charts.theme import INK, LINES, MUTED, PAPER, markup
from commsim.metrics import op_label
from commsim.units import format_size

__all__ = ["Bench", "bounds", "choice", "curves", "marks", "ribbons"]

_ALGORITHMS = ("ring", "tree", "nvls", "collnetdirect", "nvlstree", "collnetchain", "pat")
_MARKS = (
    "circle", "square", "diamond", "cross", "triangle-up", "triangle-down", "star", "x",
)  # fmt: skip
_AGAIN = ("solid", "dashdot", "longdash")  # if more algorithms than colours compete
_DASHES = {"LL": "dot", "LL128": "dash"}
_LABEL_ROOM = 0.035  # of the axis: a line of text, upright, on a narrow screen
_NAMES = {"nccl": "NCCL", "gloo": "Gloo", "ideal": "ideal"}


class CurveStyle(NamedTuple):
    """What tells an algorithm (or an op) from others; NCCL's always have the same."""

    colour: str
    mark: str
    dash: str


def _styles(keys: list[str]) -> dict[str, CurveStyle]:
    """Give each key a look of its own: NCCL's algorithms theirs, the others what is left."""
    taken = [_ALGORITHMS.index(key.lower()) for key in keys if key.lower() in _ALGORITHMS]
    free = [at for at in range(len(LINES)) if at not in taken]
    order = free + [at + len(LINES) * again for again in (1, 2) for at in range(len(LINES))]
    found: dict[str, CurveStyle] = {}
    for key in keys:
        named = key.lower() in _ALGORITHMS
        at = _ALGORITHMS.index(key.lower()) if named else order.pop(0) if order else 0
        place, again = at % len(LINES), at // len(LINES)
        found[key] = CurveStyle(LINES[place], _MARKS[(place + again) % len(_MARKS)], _AGAIN[again])
    return found


class Bench(msgspec.Struct, frozen=True):
    """The rows of a bench that have a busbw; `contested`: an op has several rows per size."""

    rows: list[dict[str, Any]]
    ops: list[str]
    sizes: list[int]
    crossovers: list[dict[str, Any]]
    choices: list[dict[str, Any]]
    library: str
    contested: bool
    styles: dict[str, CurveStyle]

    @staticmethod
    def of(bench: dict[str, Any]) -> Bench:
        """Read the JSON of a bench."""
        rows = [row for row in bench["results"] if row["busbw_gbs"] is not None]
        cells = [(row["op"], row["size"]) for row in rows]
        library = str(bench["system"].get("library", ""))
        contested = len(dict.fromkeys(cells)) < len(cells)
        keys = dict.fromkeys(row["algo"] if contested else row["op"] for row in rows)
        return Bench(
            rows,
            list(dict.fromkeys(row["op"] for row in rows)),
            sorted({row["size"] for row in rows}),
            bench["crossovers"],
            bench.get("choices", []),
            _NAMES.get(library, library),
            contested,
            _styles(list(keys)),
        )

    def way(self, row: dict[str, Any]) -> str:
        """Name what ran: "Ring LL128"."""
        return f"{row['algo']} {row['proto'] or ''}".strip()

    def colour(self, way: str) -> str:
        """Return the colour of what `way` or a crossover names."""
        found = (row["algo"] for row in self.rows if way in (self.way(row), row["algo"]))
        look = self.styles.get(next(found, way))
        return MUTED if look is None else look.colour

    @property
    def chooses(self) -> bool:
        """Whether the library says which of several it would take."""
        return self.contested and any(row.get("chosen") for row in self.rows)

    def of_op(self, op: str) -> list[dict[str, Any]]:
        """Return the rows of one op; all for ""."""
        return [row for row in self.rows if not op or row["op"] == op]

    def best(self, op: str, size: int) -> dict[str, Any]:
        """Return the fastest row of an op at a size; the first of equals."""
        return min((r for r in self.of_op(op) if r["size"] == size), key=lambda r: r["time_us"])


def curves(data: Bench, op: str) -> list[dict[str, Any]]:
    """Return a curve per algorithm and protocol; per op if nothing is contested."""
    lines: dict[tuple[str, str, str], list[dict[str, Any]]] = {}
    for row in data.of_op(op):
        key = (row["algo"], row["proto"] or "", "") if data.contested else ("", "", row["op"])
        lines.setdefault(key, []).append(row)
    found = []
    for (algo, proto, name), rows in lines.items():
        look = data.styles[algo if data.contested else name]
        found.append(
            {
                "type": "scatter",
                "mode": "lines+markers",
                "name": markup(f"{algo} {proto}".strip() or op_label(name)),
                "x": [r["size"] for r in rows],
                "y": [r["busbw_gbs"] for r in rows],
                "customdata": [_details(data, row) for row in rows],
                "hovertemplate": "<b>%{customdata[0]}</b> at %{customdata[1]}<br>%{y:.4g} GB/s in"
                " %{customdata[2]}%{customdata[3]}<extra></extra>",
                "line": {"color": look.colour, "width": 2, "dash": _DASHES.get(proto, look.dash)},
                "marker": {"size": 5, "color": look.colour, "symbol": look.mark},
            }
        )
    return found


def _details(data: Bench, row: dict[str, Any]) -> list[str]:
    more = []
    if row.get("nchannels"):
        more.append(f"{row['nchannels']} channels")
    if row.get("bound_us"):
        more.append(f"{row['bound_us'] / row['time_us']:.1%} of the bound")
    if row.get("chosen"):
        more.append(f"{data.library} takes this")
    after = "".join(f"<br>{markup(part)}" for part in more)
    size = format_size(row["size"])
    return [markup(data.way(row)), size, f"{row['time_us']:.4g} us", after]


def bounds(data: Bench, op: str) -> list[dict[str, Any]]:
    """Return the best that the topology allows: summed up by GPUs, and by switches."""
    kinds = [row["bound_kind"] for row in data.of_op(op) if row.get("bound_kind")]
    label = f"bound ({kinds[0].replace('_', ' ')})" if kinds else "bound"
    plain = _bound(data, op, "bound_by_gpus_us", label, "dash", INK)
    summed = _bound(data, op, "bound_in_network_us", "bound, switches adding", "dot", MUTED)
    same = plain and summed and plain["y"] == summed["y"]
    return [trace for trace in (plain, None if same else summed) if trace]


def _bound(
    data: Bench, op: str, field: str, name: str, dash: str, colour: str
) -> dict[str, Any] | None:
    if not data.contested and len(data.ops) > 1:
        return None  # each op has its own bound: too many lines for one plot
    least = {row["size"]: row for row in data.of_op(op) if row.get(field)}
    if not least:
        return None
    return {
        "type": "scatter",
        "mode": "lines",
        "name": markup(name),
        "x": list(least),
        "y": [r["busbw_gbs"] * r["time_us"] / r[field] for r in least.values()],
        "line": {"color": colour, "width": 1.25, "dash": dash},
        "hovertemplate": f"{name}: %{{y:.4g}} GB/s<extra></extra>",
    }


def choice(data: Bench, op: str) -> list[dict[str, Any]]:
    """Return a broad band under the curves along what the library would choose."""
    rows = [row for row in data.of_op(op) if row.get("chosen")] if data.contested else []
    if not rows:
        return []
    return [
        {
            "type": "scatter",
            "mode": "lines",
            "name": markup(f"{data.library}'s choice"),
            "x": [row["size"] for row in rows],
            "y": [row["busbw_gbs"] for row in rows],
            "line": {"color": "rgba(107,114,128,0.28)", "width": 11},
            "hoverinfo": "skip",
        }
    ]


def ribbons(data: Bench, op: str) -> list[dict[str, Any]]:
    """Return thick lines that say over which sizes an algorithm is fastest, and is chosen."""
    sizes = sorted({row["size"] for row in data.of_op(op)})
    if len(sizes) < 2:
        return []
    fastest = [(float(sizes[0]), data.way(data.best(op, sizes[0])))]
    fastest += [(float(c["size"]), c["to"]) for c in data.crossovers if c["op"] == op]
    rows = [row for row in data.of_op(op) if row.get("chosen")]
    taken = [(float(rows[0]["size"]), data.way(rows[0]))] if rows else []
    taken += [(float(c["size"]), c["to"]) for c in data.choices if rows and c["op"] == op]
    return [*_ribbon(data, fastest, 1, sizes[-1]), *_ribbon(data, taken, 0, sizes[-1])]


def _ribbon(
    data: Bench, pieces: list[tuple[float, str]], level: int, last: int
) -> list[dict[str, Any]]:
    """Return a line per (size it begins at, algorithm and protocol), up to size `last`."""
    found: list[dict[str, Any]] = []
    ends = [*(begin for begin, _ in pieces[1:]), float(last)][: len(pieces)]
    for (left, way), right in zip(pieces, ends, strict=True):
        text = f"{way} from {format_size(round(left))} to {format_size(round(right))}"
        points = [left * (right / left) ** (i / 8) for i in range(9)]
        found.append(
            {
                "type": "scatter",
                "mode": "lines",
                "name": f"ribbon {level}",
                "showlegend": False,
                "x": points,
                "y": [level] * 9,
                "line": {"color": data.colour(way), "width": 13, "dash": "solid"},
                "opacity": {"LL": 0.45, "LL128": 0.7}.get(way.rpartition(" ")[2], 1.0),
                "customdata": [markup(text)] * 9,
                "hovertemplate": "%{customdata}<extra></extra>",
            }
        )
    return found


def marks(data: Bench, op: str, axis: str) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Return a line and an upright label for each size at which the fastest changes."""
    shapes, labels = [], []
    apart = _LABEL_ROOM * (log10(data.sizes[-1]) - log10(data.sizes[0]))
    free = -1.0
    for change in data.crossovers:
        if change["op"] != op:
            continue
        size = change["size"]
        shapes.append(
            {
                "type": "line",
                "x0": size,
                "x1": size,
                "y0": 0,
                "y1": 1,
                "xref": f"x{axis}",
                "yref": f"y{axis} domain",
                "layer": "below",
                "line": {"color": MUTED, "width": 1, "dash": "dot"},
            }
        )
        if log10(size) < free:  # too close to the label before: the ribbon says it
            continue
        free = log10(size) + apart
        labels.append(
            {
                "x": log10(size),
                "y": 1,
                "xref": f"x{axis}",
                "yref": f"y{axis} domain",
                "yanchor": "top",
                "xanchor": "right",
                "textangle": -90,
                "showarrow": False,
                "xshift": -1,
                "text": markup(f"{change['to']} from {format_size(size)}"),
                "font": {"size": 10, "color": MUTED},
                "bgcolor": PAPER,  # over the curves that it meets
            }
        )
    return shapes, labels
