"""
What every page may do, and a page of figures, one above the other: plotly.js is inside.

A content security policy (W3C CSP level 3) stands in the head of each page. Scripts are named by
their hashes, so text that were to slip into a page as a script, or as a handler of an element,
would not run; nothing is loaded but what the page holds (pictures may be `data:` or `blob:`).

Our charts are lines, bars and maps: plotly's own bundle of cartesian charts draws them, and packed
it is a seventh of the whole. A figure of another kind, which only a caller can bring, takes the
whole.
"""

from __future__ import annotations

import gzip
import json
import re
from base64 import b64encode
from collections.abc import Sequence
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

from commsim.charts.theme import FONT, INK, MUTED, PAPER

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

__all__ = ["figure_page", "policy", "scripts_of"]

_SCRIPT = re.compile(r"<script>(.*?)</script>", re.DOTALL)
_BUNDLE = Path(__file__).parent / "plotly_js" / "plotly-cartesian.min.js.gz"
_IN_BUNDLE = frozenset(
    (
        "bar", "box", "contour", "heatmap", "histogram", "histogram2d", "histogram2dcontour",
        "image", "pie", "scatter", "scatterternary", "violin",
    )
)  # fmt: skip
_STYLE = f"""
:root{{color-scheme:light dark;--paper:{PAPER};--ink:{INK};--muted:{MUTED}}}
@media (prefers-color-scheme:dark){{:root{{--paper:#15171C;--ink:#E5E7EB;--muted:#A3ABB8}}}}
body{{margin:0;background:var(--paper);color:var(--ink);font-family:{FONT}}}
section{{margin:0 auto;max-width:2000px}}
h1{{font-size:18px;line-height:1.3;margin:18px 24px 2px;overflow-wrap:anywhere}}
p{{font-size:12px;line-height:1.4;margin:0 24px 6px;color:var(--muted);overflow-wrap:anywhere}}
label{{font-size:12px;margin:0 24px;color:var(--muted);cursor:pointer}}
label input{{vertical-align:-2px;margin:0}}
.table{{overflow-x:auto;margin:6px 24px 24px}}
table{{border-collapse:collapse;font-size:13px;line-height:1.4}}
th,td{{text-align:left;vertical-align:top;padding:5px 14px 5px 0;border-bottom:1px solid #8886}}
th{{color:var(--muted);font-weight:500}}
td{{font-variant-numeric:tabular-nums;min-width:3em}}
a{{color:inherit}}
.modebar-container{{top:-26px!important}}
@media (max-width:560px){{h1,
 p,label,.table{{margin-left:12px;margin-right:12px}}h1{{font-size:16px}}}}
"""


def policy(*scripts: str) -> str:
    """Return the element that allows a page these scripts: each all that is between its tags."""
    hashes = " ".join(dict.fromkeys(map(_hash, scripts))) or "'none'"
    return (
        '<meta http-equiv="Content-Security-Policy" content="'
        f"default-src 'none'; script-src {hashes}; style-src 'unsafe-inline';"
        " img-src data: blob:; font-src data:; base-uri 'none'; form-action 'none'\">"
    )


def scripts_of(template: str) -> list[str]:
    """Return the scripts of a template of ours, before anything is filled in."""
    return _SCRIPT.findall(template)


@cache
def _hash(script: str) -> str:
    return f"'sha256-{b64encode(sha256(script.encode()).digest()).decode()}'"


def figure_page(figures: Sequence[Figure]) -> str:
    """Return the HTML of a page; the same figures give the same bytes.

    A figure that is a table becomes one of HTML, whose text wraps, scrolls and is selected.
    """
    plain = [json.loads(figure.to_json()) for figure in figures]
    sections = "".join(_section(figure, at) for at, figure in enumerate(plain))
    # "</" would end the script that holds the data.
    drawn = [None if _is_table(figure) else figure for figure in plain]
    data = json.dumps(drawn, ensure_ascii=True, separators=(",", ":")).replace("</", "<\\/")
    script = Path(__file__).with_name("page.js").read_text(encoding="utf-8")
    packed = _plotly_js(drawn)
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f"{policy(script, *_unpacked(packed))}"
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        '<link rel="icon" href="data:,">'
        f"<title>commsim</title><style>{_STYLE}</style></head>\n<body>{sections}\n"
        f'<script type="application/json" id="figures">{data}</script>\n'
        f'<script type="text/plain" id="plotly">{b64encode(packed).decode()}</script>\n'
        f"<script>{script}</script></body></html>\n"
    )


def _plotly_js(figures: Sequence[dict[str, Any] | None]) -> bytes:
    """Return plotly.js for these figures, as gzip; nothing if nothing is drawn."""
    kinds = {
        trace.get("type", "scatter") for figure in figures if figure for trace in figure["data"]
    }
    if not any(figures):
        return b""
    if kinds <= _IN_BUNDLE:
        return _BUNDLE.read_bytes()
    from plotly.offline import get_plotlyjs

    return gzip.compress(get_plotlyjs().encode(), mtime=0)


@cache
def _unpacked(packed: bytes) -> tuple[str, ...]:
    """Return the script that the page makes of what is packed, for its hash."""
    return (gzip.decompress(packed).decode(),) if packed else ()


def _section(figure: dict[str, Any], at: int) -> str:
    """Return the place of a figure under its title; titles are markup already."""
    title = figure["layout"].get("title", {})
    heading = title.get("text", "").removeprefix("<b>").removesuffix("</b>")
    below = title.get("subtitle", {}).get("text", "")
    name = f"chart{at}" if at else "chart"
    inside = _table(figure["data"][0]) if _is_table(figure) else ""
    kind = ' class="table"' if inside else ""
    return (
        f'<section><h1>{heading}</h1><p>{below}</p><div id="{name}"{kind}>{inside}</div></section>'
    )


def _is_table(figure: dict[str, Any]) -> bool:
    return bool(figure["data"]) and figure["data"][0].get("type") == "table"


def _table(trace: dict[str, Any]) -> str:
    """Return a table of text that is markup already, column by column, as HTML."""
    heads = "".join(f"<th>{text}</th>" for text in trace["header"]["values"])
    rows = zip(*trace["cells"]["values"], strict=True)
    lines = "".join(f"<tr>{''.join(f'<td>{text}</td>' for text in row)}</tr>" for row in rows)
    return f"<table><tr>{heads}</tr>{lines}</table>"
