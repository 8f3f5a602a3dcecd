"""
Figures on disk: a self-contained page, or a picture by kaleido where that is installed.
"""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path
from typing import TYPE_CHECKING

from commsim.errors import ScenarioError

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

__all__ = ["save_figure"]

_PICTURES = (".svg", ".png", ".pdf")


def save_figure(figure: Figure, path: str | Path) -> None:
    """Write a figure as .html (plotly.js inside, no network), .svg, .png or .pdf.

    Raises:
        ScenarioError: an unknown suffix, or kaleido (or its browser) is missing.
    """
    path = Path(path)
    if path.suffix not in (".html", *_PICTURES):
        raise ScenarioError(f"{path}: write .html, {', '.join(_PICTURES)}.")
    aside = path.with_name(f".{path.name}.{os.getpid()}{path.suffix}")
    try:
        if path.suffix == ".html":
            aside.write_text(_page(figure), encoding="utf-8")
        else:
            _picture(figure, aside)
        os.replace(aside, path)
    finally:
        aside.unlink(missing_ok=True)


def _page(figure: Figure) -> str:
    """Return a page that needs nothing else; the same figure gives the same bytes."""
    body = figure.to_html(
        full_html=False, include_plotlyjs=True, div_id="chart",
        config={"displaylogo": False, "responsive": True},
    )  # fmt: skip
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        '<link rel="icon" href="data:,">'
        "<title>commsim</title><style>body{margin:0}</style></head>\n"
        f"<body>{body}</body></html>\n"
    )


def _picture(figure: Figure, path: Path) -> None:
    if importlib.util.find_spec("kaleido") is None:
        raise ScenarioError(
            f"{path.suffix} needs kaleido and Chrome or Chromium:"
            ' pip install "commsim[png]", then plotly_get_chrome. Or write .html.'
        )
    try:
        figure.write_image(path)
    except (RuntimeError, OSError, ValueError) as error:
        first = str(error).strip().splitlines()[0] if str(error).strip() else "no reason given"
        raise ScenarioError(
            f"{path.suffix} could not be drawn ({first}). Install Chrome or Chromium"
            " (plotly_get_chrome), or write .html."
        ) from None
