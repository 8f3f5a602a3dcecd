"""
Write docs/reference/scenarios.md: every scenario of the catalogue with what to see.

    python benchmarks/scenarios_page.py
"""

from __future__ import annotations

from pathlib import Path

from commsim.scenario import load_scenario

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "reference" / "scenarios.md"
HEAD = """# The catalogue

`commsim run NAME` runs one, `commsim presets show NAME` prints its file. What each is there to show
stands on top of it, and a test holds it to that; the figures that it gave are in
`scenarios/NAME.expected.json`.
This page is written by `python benchmarks/scenarios_page.py`.
"""


def page() -> str:
    """Return the page."""
    parts = [
        f"## {kind}\n\n" + "\n".join(f"- `{name}`: {sentence}" for name, sentence in scenarios)
        for kind, scenarios in catalogue().items()
    ]
    return "\n".join([HEAD, "\n\n".join(parts), ""])


def catalogue() -> dict[str, list[tuple[str, str]]]:
    """Return the scenarios by the kind of their work, each with what it is there to show."""
    by_kind: dict[str, list[tuple[str, str]]] = {}
    for path in sorted((ROOT / "scenarios").glob("*.yaml")):
        workload = load_scenario(path).file.workload
        kinds = (k for k in workload.__struct_fields__ if getattr(workload, k) is not None)
        by_kind.setdefault(next(kinds, "jobs"), []).append((path.stem, _sentence(path)))
    return dict(sorted(by_kind.items()))


def _sentence(path: Path) -> str:
    """Return the comment on top of a scenario as one line."""
    lines = path.read_text(encoding="utf-8").splitlines()
    top = lines[: next(i for i, line in enumerate(lines) if not line.startswith("#"))]
    return " ".join(line.removeprefix("#").strip() for line in top)


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
    print(f"wrote {PAGE.relative_to(ROOT)}")
