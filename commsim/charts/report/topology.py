"""
The cluster as a drawing, its links coloured by use: `charts.topology_scene` as SVG.
"""

from __future__ import annotations

from commsim.charts.report.facts import ReportFacts, ReportSection
from commsim.charts.report.markup import percent, text
from commsim.charts.theme import shorten
from commsim.charts.topology import (
    USE_STEPS,
    TopologyFrame,
    TopologyLink,
    TopologyNode,
    TopologyScene,
    describe_link,
    topology_scene,
    use_step,
)

__all__ = ["topology_section"]

_ACROSS, _DOWN, _HIGH, _PAD, _LEFT = 66, 72, 24, 30, 62
_LETTER, _LINE = 6.3, 4  # pixels of a letter, and below the lowest line
_ROWS = {"nic": "NIC", "cpu": "CPU", "pcie": "PCIe", "pcie below": "PCIe", "gpu": "GPU",
         "nvswitch": "NVSwitch"}  # fmt: skip


def topology_section(facts: ReportFacts) -> ReportSection | None:
    """Return the drawing, None for a run without a cluster or without traffic on links."""
    if facts.cluster is None or not len(facts.timeline.links.start):
        return None
    scene = topology_scene(facts.cluster, facts.timeline)
    lead = (
        "A link has the colour of its peak: the most that it is used at any moment of the measured"
        " step, by the busier of its directions. Its mean is in its tip."
    )
    notes = "".join(f" {note[:1].upper()}{note[1:]}." for note in scene.notes)
    body = _key() + _drawing(scene)
    return ReportSection("topology", "Topology", lead + notes.replace("..", "."), body, wide=True)


def _key() -> str:
    marks = "".join(
        f'<span><i class="use{step}"></i>{text(name)}</span>'
        for step, (_, name, _) in enumerate(USE_STEPS)
    )
    return f'<p class="key lines scale">{marks}</p>'


def _drawing(scene: TopologyScene) -> str:
    width = _ACROSS * max(1.0, scene.width) + _LEFT + _PAD
    low = [_y(y) for link in scene.links for _, y in link.points]
    low += [_y(one.y1) for one in scene.frames]
    height = max(_DOWN * (len(scene.rows) - 1) + _HIGH + 2 * _PAD, *low, 0) + _LINE
    above = _y(0) - min((_y(y) for link in scene.links for _, y in link.points), default=_y(0))
    # the busy ones last: they are drawn over the others
    lines = sorted(scene.links, key=lambda link: link.peak or 0.0)
    parts = (
        *map(_frame, scene.frames),
        *map(_line, lines),
        *map(_node, scene.nodes),
        *(_row(name, at) for at, name in enumerate(scene.rows)),
    )
    return (
        f'<div class="scroll"><svg class="topology"'
        f' viewBox="0 {0 - above:.0f} {width:.0f} {height + above:.0f}"'
        f' style="width:{width:.0f}px" role="img" aria-label="the cluster, links by use">'
        f"{''.join(parts)}</svg></div>"
    )


def _x(column: float) -> float:
    return round(_LEFT + _ACROSS * (column + 0.5), 1)


def _y(row: float) -> float:
    return round(_PAD + _HIGH / 2 + _DOWN * row, 1)


def _line(link: TopologyLink) -> str:
    path = "L".join(f"{_x(x)} {_y(y)}" for x, y in link.points)
    words = f"{link.name}: peak {percent(link.peak or 0.0)}, mean {percent(link.share or 0.0)}"
    if link.back is not None:
        words += f", back {percent(link.back)}"
    return (
        f'<path class="use{use_step(link.peak or 0.0)}" d="M{path}">'
        f"<title>{text(f'{words} · {describe_link(link)}')}</title></path>"
    )


def _row(name: str, at: int) -> str:
    words = _ROWS.get(name, name)
    return f'<text class="row" x="2" y="{_y(at) + 3.7:.1f}">{text(words)}</text>'


def _node(node: TopologyNode) -> str:
    label = shorten(node.label, 12)
    wide = max(38.0, _LETTER * len(label) + 10)
    x, y = _x(node.x), _y(node.y)
    return (
        f'<g class="end {text(node.kind)}"><rect x="{x - wide / 2:.1f}" y="{y - _HIGH / 2:.1f}"'
        f' width="{wide:.1f}" height="{_HIGH}" rx="4"/><text x="{x}" y="{y + 3.7:.1f}">'
        f"{text(label)}</text></g>"
    )


def _frame(frame: TopologyFrame) -> str:
    left, right, top, bottom = _x(frame.x0), _x(frame.x1), _y(frame.y0), _y(frame.y1)
    return (
        f'<rect class="frame" x="{left}" y="{top}" width="{right - left:.1f}"'
        f' height="{bottom - top:.1f}" rx="8"/><text class="name" x="{left + 8:.1f}"'
        f' y="{bottom - 6:.1f}">{text(shorten(frame.label, 40))}</text>'
    )
