"""
Figures on disk: a self-contained page, or a picture by kaleido if that is installed.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from commsim.charts.page import figure_page
from commsim.errors import ScenarioError
from commsim.files import write_aside, write_text

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

__all__ = ["check_picture", "save_figure", "save_page"]

_PICTURES = (".svg", ".png", ".pdf")
_WIDTH = 1100  # pixels


def save_figure(figure: Figure, path: str | Path) -> None:
    """Write a figure as .html (plotly.js inside, no network), .svg, .png or .pdf.

    Raises:
        ScenarioError: an unknown suffix, or kaleido (or its browser) is missing.
    """
    path = Path(path)
    if path.suffix == ".html":
        save_page([figure], path)
        return
    if path.suffix not in (".html", *_PICTURES):
        raise ScenarioError(f"{path}: write .html, {', '.join(_PICTURES)}.")
    write_aside(path, lambda aside: _picture(figure, aside))


def check_picture(path: Path) -> None:
    """Raise ScenarioError if a figure with this suffix cannot be drawn here."""
    if path.suffix in _PICTURES and importlib.util.find_spec("kaleido") is None:
        raise ScenarioError(
            f"{path.suffix} needs kaleido and Chrome or Chromium:"
            ' pip install "commsim[png]", then plotly_get_chrome. Or write .html.'
        )


def save_page(figures: Sequence[Figure], path: str | Path) -> None:
    """Write figures as one .html page, one above the other (plotly.js inside, no network)."""
    write_text(path, figure_page(figures))


def _picture(figure: Figure, path: Path) -> None:
    check_picture(path)
    try:
        figure.write_image(path, width=_WIDTH, scale=2 if path.suffix == ".png" else 1)
    except (RuntimeError, OSError, ValueError) as error:
        first = str(error).strip().splitlines()[0] if str(error).strip() else "no reason given"
        raise ScenarioError(
            f"{path.suffix} could not be drawn ({first}). Install Chrome or Chromium"
            " (plotly_get_chrome), or write .html."
        ) from None
