"""
Figures above one another on one axis, such as the measured run and its replay.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

__all__ = ["one_above_other"]


def one_above_other(figures: Sequence[tuple[str, Figure]]) -> list[Figure]:
    """Name figures of one kind, and give them one scale along x if their units agree."""
    from plotly.graph_objects import Figure as MakeFigure

    plain = [figure.to_dict() for _, figure in figures]
    axes = [figure["layout"]["xaxis"] for figure in plain]
    ends = [axis["range"][1] for axis in axes if "range" in axis]
    if len({axis["title"]["text"] for axis in axes}) == 1 and len(ends) == len(axes):
        for axis in axes:
            axis["range"] = [axis["range"][0], max(ends)]
    for (name, _), figure in zip(figures, plain, strict=True):
        title = figure["layout"]["title"]
        title["text"] = f"<b>{name[:1].upper()}{name[1:]}: {title['text'].removeprefix('<b>')}"
    return [MakeFigure(figure) for figure in plain]
