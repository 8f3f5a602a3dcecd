"""
The cluster as a drawing, its links coloured by use.

Everything is read from the names of the timeline's links ("node0/gpu0->nvswitch", "leaf0->spine").
Up to two nodes are drawn as they are. More of them are drawn as one, each link standing for the
same link of every node, with the use of the busiest; so are switches of a level that are many.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from commsim.charts.report.facts import Facts, Section
from commsim.charts.report.markup import percent, text
from commsim.metrics import utilization
from commsim.units import format_size

__all__ = ["topology_section"]

_ROWS = ("core", "spine", "leaf", "nic", "cpu", "pcie", "gpu", "nvswitch")  # from the top
_NODE = re.compile(r"(node\d+)/")
_POD = re.compile(r"(pod\d+|domain\d+)/")
_ACROSS, _DOWN, _HIGH, _PAD = 66, 72, 24, 26
_MOST = 16  # of one level of switches, before they are drawn as one
_SHADES = ((0.0, (143, 176, 211)), (0.5, (242, 166, 90)), (1.0, (176, 42, 48)))


@dataclass(slots=True)
class _Link:
    """Links drawn as one: how many, the use of the busiest, and its name."""

    count: int = 0
    share: float = -1.0
    carried: float = 0.0
    name: str = ""


def topology_section(facts: Facts) -> Section | None:
    """Return the drawing, None for a run without links."""
    names = facts.timeline.links.names
    pairs = [
        _ends(name, kind) for name, kind in zip(names, facts.timeline.links.kinds, strict=True)
    ]
    known = [pair for pair in pairs if pair is not None]
    if not known:
        return None
    nodes = list(dict.fromkeys(m[1] for a, b in known for m in map(_NODE.match, (a, b)) if m))
    merged = len(nodes) > 2 or facts.timeline.graph.folding is not None
    links = _merge(facts, pairs, merged)
    drawing = _draw(
        links, nodes if not merged else nodes[:1], "" if not merged else f" ×{len(nodes):,}"
    )
    lead = "A link's colour is its use over the measured step, each way a line of its own."
    if merged and len(nodes) > 1:
        lead += f" One node stands for {len(nodes):,}: each link shows the busiest of its like."
    scale = "".join(f'<i style="background:{_shade(k / 10)}"></i>' for k in range(11))
    key = f'<p class="key scale"><span><i class="unused"></i>unused</span><span>0% {scale} 100%</span></p>'
    return Section("topology", "Topology", lead, key + drawing, wide=True)


def _ends(name: str, kind: str) -> tuple[str, str] | None:
    """Return both ends of a link by their full names, None for what joins nothing (TCP threads)."""
    source, arrow, target = name.partition("->")
    if not arrow:
        return None
    found = _NODE.match(source)
    if found and "/" not in target and kind != "network":
        target = found[1] + "/" + target
    return source, target


def _merge(
    facts: Facts, pairs: list[tuple[str, str] | None], merged: bool
) -> dict[tuple[str, str], _Link]:
    use = utilization(facts.timeline)
    many = _crowded({end for pair in pairs if pair for end in pair if not _NODE.match(end)})
    drawn: dict[tuple[str, str], _Link] = {}
    rows = zip(
        pairs, use.share.tolist(), use.bytes.tolist(), facts.timeline.links.names, strict=True
    )
    for pair, share, carried, name in rows:
        if pair is None or "mem" in pair[1].rpartition("/")[2][:3]:
            continue
        key = _short(pair[0], merged, many), _short(pair[1], merged, many)
        link = drawn.setdefault(key, _Link())
        link.count += 1
        link.carried += carried
        if share > link.share:
            link.share, link.name = share, name
    return drawn


def _crowded(switches: Iterable[str]) -> set[str]:
    """Return the levels of the fabric that have too many switches to be drawn one by one."""
    count: dict[str, int] = {}
    for name in {_POD.sub("", one) for one in switches}:
        count[_level(name)] = count.get(_level(name), 0) + 1
    return {level for level, found in count.items() if found > _MOST}


def _short(end: str, merged: bool, many: set[str]) -> str:
    """Return the name of what is drawn for `end`; ends in a node keep "node0/" in front."""
    node = _NODE.match(end)
    if node is None:
        plain = _POD.sub("", end) if merged else end
        return _level(plain) if _level(plain) in many else plain
    return ("node/" if merged else node[0]) + end[node.end() :]


def _level(name: str) -> str:
    last = name.rpartition("/")[2].rstrip("0123456789")
    return {"switch": "leaf"}.get(last, last)


def _row(name: str) -> int:
    return _ROWS.index(_level(name)) if _level(name) in _ROWS else 3


def _draw(links: dict[tuple[str, str], _Link], nodes: list[str], times: str) -> str:
    spots, width, boxes = _places(list(dict.fromkeys(end for key in links for end in key)))
    rows = sorted({_row(name) for name in spots})
    level = {row: at for at, row in enumerate(rows)}
    height = _DOWN * (len(rows) - 1) + _HIGH + 2 * _PAD
    where = {name: (x, _PAD + _HIGH / 2 + _DOWN * level[_row(name)]) for name, x in spots.items()}
    lines = "".join(
        _line(where[a], where[b], link, beside=_row(a) == _row(b))
        for (a, b), link in sorted(links.items(), key=lambda item: item[1].share)
    )
    frames = "".join(_frame(box, where, times, len(nodes)) for box in boxes)
    labels = "".join(_box(name, *where[name]) for name in spots)
    return (
        f'<div class="scroll"><svg class="topology" viewBox="0 0 {width:.0f} {height:.0f}"'
        f' style="width:{width:.0f}px" role="img" aria-label="links by use">{frames}{lines}{labels}</svg></div>'
    )


def _places(ends: list[str]) -> tuple[dict[str, float], float, list[list[str]]]:
    """Return the x of each end, the width of all, and the ends of each node.

    Nodes stand side by side; the switches of a level are spread over all of them.
    """
    inside: dict[str, list[str]] = {}
    outside: dict[int, list[str]] = {}
    for end in ends:
        prefix, slash, _ = end.partition("/")
        if slash and prefix.startswith("node"):
            inside.setdefault(prefix, []).append(end)
        else:
            outside.setdefault(_row(end), []).append(end)
    spots: dict[str, float] = {}
    left = float(_PAD)
    for members in inside.values():
        by_row: dict[int, list[str]] = {}
        for end in members:
            by_row.setdefault(_row(end), []).append(end)
        wide = _ACROSS * max(len(row) for row in by_row.values())
        for row in by_row.values():
            for at, end in enumerate(sorted(row, key=_number)):
                spots[end] = left + wide * (at + 0.5) / len(row)
        left += wide + _PAD
    widest = max((_ACROSS * len(row) for row in outside.values()), default=0)
    width = max(left, widest + 2 * _PAD)
    shift = (width - left) / 2
    spots = {end: x + shift for end, x in spots.items()}
    for row in outside.values():
        for at, end in enumerate(sorted(row, key=_number)):
            spots[end] = _PAD + (width - 2 * _PAD) * (at + 0.5) / len(row)
    return spots, width, list(inside.values())


def _number(name: str) -> tuple[str, int]:
    digits = re.search(r"\d+$", name)
    return _POD.sub(lambda m: m[0].zfill(12), name).rstrip("0123456789"), int(
        digits[0]
    ) if digits else 0


def _line(a: tuple[float, float], b: tuple[float, float], link: _Link, *, beside: bool) -> str:
    """Return one direction: a line a little to its right, an arc between ends of one row."""
    length = ((b[0] - a[0]) ** 2 + (b[1] - a[1]) ** 2) ** 0.5 or 1.0
    x, y = -(b[1] - a[1]) / length * 2.2, (b[0] - a[0]) / length * 2.2
    if beside:
        bend = 14 + abs(b[0] - a[0]) / 5
        way = 1 if b[0] > a[0] else 1.35
        path = f"M{a[0]:.1f} {a[1]:.1f}Q{(a[0] + b[0]) / 2:.1f} {a[1] + 2 * bend * way:.1f} {b[0]:.1f} {b[1]:.1f}"
    else:
        path = f"M{a[0] + x:.1f} {a[1] + y:.1f}L{b[0] + x:.1f} {b[1] + y:.1f}"
    used = link.carried > 0
    look = (
        f'stroke="{_shade(min(1.0, link.share))}" stroke-width="{1.6 + 2.4 * min(1.0, link.share):.2f}"'
        if used
        else 'class="unused"'
    )
    others = f", the busiest of {link.count:,}" if link.count > 1 else ""
    words = (
        f"{link.name}{others}: {percent(max(0.0, link.share))}, {format_size(link.carried)} in all"
        if used
        else f"{link.name}: unused"
    )
    return f'<path d="{path}" fill="none" {look}><title>{text(words)}</title></path>'


def _box(name: str, x: float, y: float) -> str:
    label = text(name.partition("/")[2] if name.startswith("node") else name)
    wide = max(40.0, 6.4 * len(label) + 10)
    return (
        f'<g class="end {text(_level(name))}"><rect x="{x - wide / 2:.1f}" y="{y - _HIGH / 2:.1f}" width="{wide:.1f}"'
        f' height="{_HIGH}" rx="4"/><text x="{x:.1f}" y="{y + 3.7:.1f}">{label}</text></g>'
    )


def _frame(
    members: list[str], where: dict[str, tuple[float, float]], times: str, nodes: int
) -> str:
    xs, ys = zip(*(where[name] for name in members), strict=True)
    left, right = min(xs) - _ACROSS / 2 + 4, max(xs) + _ACROSS / 2 - 4
    top, bottom = min(ys) - 22, max(ys) + 22
    label = f"node{times}" if times else members[0].partition("/")[0]
    return (
        f'<rect class="frame" x="{left:.1f}" y="{top:.1f}" width="{right - left:.1f}" height="{bottom - top:.1f}" rx="8"/>'
        f'<text class="name" x="{left + 8:.1f}" y="{bottom - 6:.1f}">{text(label)}</text>'
    )


def _shade(share: float) -> str:
    for (low, a), (high, b) in zip(_SHADES, _SHADES[1:], strict=False):
        if share <= high:
            part = (share - low) / (high - low)
            mixed = [round(p + (q - p) * part) for p, q in zip(a, b, strict=True)]
            return "#" + "".join(f"{value:02X}" for value in mixed)
    return "#B02A30"
