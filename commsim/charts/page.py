"""
A page of figures, one above the other, that needs nothing else: plotly.js is inside.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from commsim.charts.theme import FONT, INK, MUTED, PAPER

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

__all__ = ["figure_page"]

_STYLE = f"""
:root{{color-scheme:light dark;--paper:{PAPER};--ink:{INK};--muted:{MUTED}}}
@media (prefers-color-scheme:dark){{:root{{--paper:#15171C;--ink:#E5E7EB;--muted:#A3ABB8}}}}
body{{margin:0;background:var(--paper);color:var(--ink);font-family:{FONT}}}
section{{margin:0 auto;max-width:2000px}}
h1{{font-size:18px;line-height:1.3;margin:18px 24px 2px;overflow-wrap:anywhere}}
p{{font-size:12px;line-height:1.4;margin:0 24px 6px;color:var(--muted);overflow-wrap:anywhere}}
label{{font-size:12px;margin:0 24px;color:var(--muted);cursor:pointer}}
label input{{vertical-align:-2px;margin:0}}
@media (max-width:560px){{h1,p,label{{margin-left:12px;margin-right:12px}}h1{{font-size:16px}}}}
"""


def figure_page(figures: Sequence[Figure]) -> str:
    """Return the HTML of a page; the same figures give the same bytes."""
    from plotly.offline import get_plotlyjs

    plain = [json.loads(figure.to_json()) for figure in figures]
    sections = "".join(_section(figure, at) for at, figure in enumerate(plain))
    # "</" would end the script that holds the data.
    data = json.dumps(plain, ensure_ascii=True, separators=(",", ":")).replace("</", "<\\/")
    script = Path(__file__).with_name("page.js").read_text(encoding="utf-8")
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        '<link rel="icon" href="data:,">'
        f"<title>commsim</title><style>{_STYLE}</style></head>\n<body>{sections}\n"
        f'<script type="application/json" id="figures">{data}</script>\n'
        f"<script>{get_plotlyjs()}</script>\n<script>{script}</script></body></html>\n"
    )


def _section(figure: dict[str, Any], at: int) -> str:
    """Return the place of a figure under its title; titles are markup already."""
    title = figure["layout"].get("title", {})
    heading = title.get("text", "").removeprefix("<b>").removesuffix("</b>")
    below = title.get("subtitle", {}).get("text", "")
    name = f"chart{at}" if at else "chart"
    return f'<section><h1>{heading}</h1><p>{below}</p><div id="{name}"></div></section>'
