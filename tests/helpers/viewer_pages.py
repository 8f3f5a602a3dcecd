"""Reports in a browser: written once, asked through their viewer, pointed at."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from commsim.study.run import run

__all__ = ["Open", "point_at", "report_of", "span_named", "viewer"]

Open = Callable[..., Any]


def report_of(name: str, folder: Path, *sets: str) -> Path:
    path = folder / f"{name}{len(sets)}.html"
    if not path.exists():
        run(name, sets).report(path)
    return path


def viewer(page: Any, script: str, *arguments: Any) -> Any:
    """Run `script` with `v` as the viewer and `a` as the arguments."""
    return page.evaluate(
        f"a => {{ const v = document.getElementById('viewer').viewer; {script} }}", list(arguments)
    )


def span_named(page: Any, name: str, rank: int) -> int:
    """Return the first span of a rank with that name."""
    found = viewer(page, """
        const [name, rank] = a, d = v.data;
        for (let i = 0; i < d.count; i++)
          if (d.facts.words[d.meanings[d.what[i]][0]] === name
              && ViewerData.laneOf(d, i).rank === rank) return i;
        return -1;""", name, rank)  # fmt: skip
    assert found >= 0
    return int(found)


def point_at(page: Any, span: int) -> tuple[int, int]:
    """Move the mouse to the middle of a span; return where that is on the page."""
    page.locator(".main").scroll_into_view_if_needed()
    box = page.locator(".main").bounding_box()
    at = viewer(page, "return v.place(a[0])", span)
    x = round(box["x"] + (at["start"] + at["right"]) / 2)
    y = round(box["y"] + at["y"] + at["height"] / 2)
    page.mouse.move(x, y)
    return x, y
