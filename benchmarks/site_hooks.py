"""
What MkDocs adds to docs/ when it builds the site: the changelog, the gallery, the notebooks.

The gallery's reports and pictures are those that `python benchmarks/gallery.py` left in
build/gallery, and the notebooks' pages those of `python benchmarks/notebook_pages.py`. Where they
are missing the pages say which command makes them.
"""

from __future__ import annotations

import json
import os
import sys
from html import escape
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

sys.path.insert(0, str(Path(__file__).parent))
from notebook_pages import plain_page
from scenarios_page import catalogue

from commsim.units import format_time

ROOT = Path(__file__).resolve().parents[1]
FIRST = ("training", "pipeline")
GALLERY, NOTEBOOKS = ROOT / "build" / "gallery", ROOT / "build" / "notebooks"
HEAD = """# Gallery

Every scenario that comes with commsim, each with what it is there to show. `commsim run NAME` runs
one, `commsim explore NAME` opens it to be changed.
"""
MISSING = "\nReports and pictures are made by `python benchmarks/gallery.py`.\n"


def on_config(config: Any) -> Any:
    """Give the list of versions its place where mike builds one of several: it says which."""
    if "MIKE_DOCS_VERSION" in os.environ:
        config["extra"]["version"] = {"provider": "mike"}
    return config


def on_files(files: Files, config: Any) -> Files:
    """Add the pages that are made, and what they show."""

    def add(name: str, **what: Any) -> None:
        files.append(File.generated(config, name, **what))

    add("changelog.md", content=(ROOT / "CHANGELOG.md").read_text(encoding="utf-8"))
    add("gallery.md", content=gallery_page())
    for path in sorted(GALLERY.glob("*.*")):
        add(f"gallery/{path.name}", abs_src_path=str(path))
    for source in sorted((ROOT / "docs" / "notebooks").glob("*.ipynb")):
        made = NOTEBOOKS / f"{source.stem}.md"
        text = made.read_text(encoding="utf-8") if made.exists() else plain_page(source)
        add(f"notebooks/{source.stem}.md", content=text)
    for path in sorted(NOTEBOOKS.glob("*.*")):
        if path.suffix in (".js", ".html"):
            add(f"notebooks/{path.name}", abs_src_path=str(path))
    return files


def gallery_page() -> str:
    """Return the gallery: a card per scenario, with its report where there is one."""
    parts = [HEAD] if any(GALLERY.glob("*.html")) else [HEAD, MISSING]
    kinds = catalogue()
    for kind in sorted(kinds, key=lambda one: (one not in FIRST, one)):
        cards = "\n".join(_card(name, sentence) for name, sentence in kinds[kind])
        parts.append(
            f'## {kind.capitalize()}\n\n<div class="gallery" markdown="0">\n{cards}\n</div>\n'
        )
    return "\n".join(parts)


def _card(name: str, sentence: str) -> str:
    expected = json.loads((ROOT / "scenarios" / f"{name}.expected.json").read_text())
    step = expected.get("step_time_s")
    took = f"step {format_time(step * 1e12)}" if step else ""
    told = GALLERY / f"{name}.txt"
    headline = told.read_text(encoding="utf-8") if told.exists() else took
    title, picture = escape(name), ""
    if (GALLERY / f"{name}.html").exists():
        title = f'<a href="gallery/{name}.html">{title}</a>'
        image = f'<img src="gallery/{name}.svg" alt="timeline of {escape(name)}" loading="lazy">'
        picture = f'<a href="gallery/{name}.html">{image}</a>'
    return (
        f"<div><h3>{title}</h3>{picture}<p><b>{escape(headline)}</b></p>"
        f"<p>{escape(sentence)}</p></div>"
    )
