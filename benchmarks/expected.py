"""
Write scenarios/NAME.expected.json from what the program says today.

    python benchmarks/expected.py [NAME ...]

A file that is there keeps its keys, chosen by hand or not, and is written only where a figure
has moved; a new scenario gets the key figures. Run it after a change that is meant to move
figures, and read what it prints: the closed forms in tests/scenarios hold whatever is written
here to account.
"""

from __future__ import annotations

import json
import math
import sys
from pathlib import Path
from typing import Any

from commsim.metrics import PARTS as ACCOUNT
from commsim.study.run import run

FOLDER = Path(__file__).resolve().parents[1] / "scenarios"
PARTS = tuple(f"{part}_s" for part in (*ACCOUNT, "comm"))
MOVED = 1e-6  # relative: what tests/scenarios/test_catalogue.py lets pass


def key_figures(data: dict[str, Any]) -> dict[str, Any]:
    """Return the figures that a new scenario is held to, by their path in the run's JSON."""
    keys = ["step_time_s", *(f"breakdown.{part}" for part in PARTS)]
    keys += [
        key
        for key in ("bubble_fraction", "bubble_ratio", "mfu", "tokens_per_s")
        if data[key] is not None
    ]
    keys += [f"collectives.0.{key}" for key in ("op", "count", "bytes") if data["collectives"]]
    keys += [f"links.0.{key}" for key in ("name", "bytes") if data["links"]]
    return {key: at(data, key) for key in keys}


def at(data: Any, path: str) -> Any:
    """Return what stands at a path like "links.0.name"."""
    for step in path.split("."):
        data = data[int(step) if step.isdecimal() else step]
    return data


def updated(before: dict[str, Any], data: dict[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """Return the figures under the keys of `before`, and a line for each that has moved."""
    found, moved = dict(before), []
    for key, old in before.items():
        new = at(data, key)
        if not _same(old, new):
            found[key] = new
            moved.append(f"  {key}: {old} -> {new}")
    return found, moved


def _same(old: Any, new: Any) -> bool:
    if isinstance(old, bool | str) or isinstance(new, bool | str) or None in (old, new):
        return bool(old == new)
    return math.isclose(old, new, rel_tol=MOVED, abs_tol=1e-12)


def main() -> None:
    names = sys.argv[1:] or sorted(path.stem for path in FOLDER.glob("*.yaml"))
    for name in names:
        path, data = FOLDER / f"{name}.expected.json", run(name).to_dict()
        if path.exists():
            found, moved = updated(json.loads(path.read_text()), data)
            if not moved:
                continue
        else:
            found, moved = key_figures(data), ["  new"]
        path.write_text(json.dumps(found, indent=1) + "\n")
        print("\n".join([f"wrote {path.name}", *moved]))


if __name__ == "__main__":
    main()
