"""
How far flows are from messages on an idle cluster: one collective alone, of any kind.

    python benchmarks/idle_envelope.py [--cases 300] [--first 0]

Draws presets, groups, libraries, algorithms, ops and sizes by seed (`tests/helpers/
idle_collectives.py`), runs each as a flow and message by message, and prints the time as messages
over the time as a flow: by library, by library and op (markdown), and the worst with their seeds.
"""

from __future__ import annotations

import argparse
import sys
from collections import defaultdict
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from helpers.idle_collectives import LIMITS, case, ratio

import commsim as cs

WORST = 10


def main() -> None:
    """Print the tables."""
    parse = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parse.add_argument("--cases", type=int, default=300)
    parse.add_argument("--first", type=int, default=0, help="first seed")
    asked = parse.parse_args()
    found: dict[tuple[str, str], list[float]] = defaultdict(list)
    seeds: list[tuple[float, int]] = []
    for seed in range(asked.first, asked.first + asked.cases):
        drawn = case(seed)
        try:
            took, kind = ratio(drawn)
        except cs.ScenarioError:
            continue
        found[kind, drawn.call["op"]].append(took)
        seeds.append((took, seed))
    print("| library | number | over 1 % off | least | median | most |")
    print("|---|---|---|---|---|---|")
    for kind in LIMITS:
        values = [value for (of, _), some in found.items() if of == kind for value in some]
        if values:
            print(f"| {kind} | {_row(values)}")
    print("\n| library | op | number | over 1 % off | least | median | most |")
    print("|---|---|---|---|---|---|---|")
    for kind in LIMITS:
        for op in sorted(op for of, op in found if of == kind):
            print(f"| {kind} | {op} | {_row(found[kind, op])}", flush=True)
    print("\nWorst: " + ", ".join(f"{took:.3f} (seed {seed})" for took, seed in _worst(seeds)))


def _worst(seeds: list[tuple[float, int]]) -> list[tuple[float, int]]:
    return sorted(seeds, key=lambda one: -abs(np.log(one[0])))[:WORST]


def _row(values: list[float]) -> str:
    off = sum(abs(value - 1) > 0.01 for value in values)
    least, middle, most = np.percentile(values, [0, 50, 100])
    return f"{len(values)} | {off} | {least:.3f} | {middle:.3f} | {most:.3f} |"


if __name__ == "__main__":
    main()
