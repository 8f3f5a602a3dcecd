"""
Run the catalogue for the gallery of the site: a report, a picture and a headline of each scenario.

    python benchmarks/gallery.py [NAME ...]

Writes build/gallery/NAME.html, NAME.svg and NAME.txt; what is newer than its scenario stays unless
it is named.
"""

from __future__ import annotations

import sys
from pathlib import Path

from commsim.charts import gantt_svg
from commsim.files import write_text
from commsim.study.run import run

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / "build" / "gallery"


def main(names: list[str]) -> None:
    """Write what is missing or named."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    for path in sorted((ROOT / "scenarios").glob("*.yaml")):
        made = FOLDER / f"{path.stem}.txt"
        old = made.exists() and made.stat().st_mtime > path.stat().st_mtime
        if path.stem in names or (not names and not old):
            show(path.stem)
            print(path.stem, flush=True)


def show(name: str) -> None:
    """Write the files of one scenario; the headline last, which says that they are whole."""
    result = run(name)
    result.report(FOLDER / f"{name}.html")
    write_text(FOLDER / f"{name}.svg", gantt_svg(result.timeline, metrics=result.metrics))
    write_text(FOLDER / f"{name}.txt", result.headline.replace("\N{NO-BREAK SPACE}", " "))


if __name__ == "__main__":
    main(sys.argv[1:])
