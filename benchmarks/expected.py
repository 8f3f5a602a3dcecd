"""
Write scenarios/NAME.expected.json from what the program says today.

    python benchmarks/expected.py [NAME ...]

Run it after a change that is meant to move the figures, and look at the difference in git: the
closed forms in tests/scenarios hold whatever is written here to account.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from commsim.study import run

FOLDER = Path(__file__).resolve().parents[1] / "scenarios"
PARTS = ("compute_s", "exposed_comm_s", "exposed_copy_s", "idle_s", "comm_s", "wait_s")


def figures(name: str) -> dict[str, Any]:
    """Return the key figures of a scenario by their path in the run's JSON."""
    data = run(name).to_dict()
    found = {"step_time_s": data["step_time_s"]}
    found |= {f"breakdown.{part}": data["breakdown"][part] for part in PARTS}
    for key in ("bubble_fraction", "bubble_ratio", "mfu", "tokens_per_s"):
        if data[key] is not None:
            found[key] = data[key]
    if data["collectives"]:
        found |= {f"collectives.0.{k}": data["collectives"][0][k] for k in ("op", "count", "bytes")}
    if data["links"]:
        found |= {f"links.0.{k}": data["links"][0][k] for k in ("name", "bytes")}
    return found


def main() -> None:
    names = sys.argv[1:] or sorted(path.stem for path in FOLDER.glob("*.yaml"))
    for name in names:
        path = FOLDER / f"{name}.expected.json"
        path.write_text(json.dumps(figures(name), indent=1) + "\n")
        print(f"wrote {path.name}")


if __name__ == "__main__":
    main()
