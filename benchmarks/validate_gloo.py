"""
Whether replays of freshly recorded programs on Gloo meet their recordings.

    python benchmarks/validate_gloo.py [--programs 40] [--seed 100]

Needs torch. Records random programs (`gloo_random`) of 2 to 8 ranks on this machine, replays each,
and prints how far every part of every rank's account is off (step, compute, transfers, waits).
"""

from __future__ import annotations

import argparse
import random
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

from record_gloo import keep, record

from commsim.study.replay import replay

WORLDS = (2, 3, 4, 5, 6, 8)


def main() -> None:
    """Record, replay and print."""
    parser = argparse.ArgumentParser(description=__doc__.strip().splitlines()[0])
    parser.add_argument("--programs", type=int, default=40)
    parser.add_argument("--seed", type=int, default=100)
    options = parser.parse_args()
    chance = random.Random(options.seed)
    worst: list[float] = []
    for number in range(options.programs):
        name = f"random-{options.seed + number}-{chance.choice(WORLDS)}"
        with TemporaryDirectory() as folder:
            length, found = record(name)
            if length == float("inf"):
                print(f"{name}: did not come to its end")
                continue
            keep(found, Path(folder) / "run")
            worst.append(account_error(Path(folder) / "run"))
            print(f"{name}: worst part of any rank's account off by {worst[-1] * 1e3:.3f} ms")
    if worst:
        within = sum(error < 1e-3 for error in worst)
        print(f"{within} of {len(worst)} within 1 ms; median {median(worst) * 1e3:.3f} ms")


def account_error(folder: Path) -> float:
    """Return the largest difference between replay and recording of any part, in seconds."""
    rows = replay(folder).result.extra["self_check"]["account"]["ranks"]
    return max(
        abs(part["replayed_s"] - part["recorded_s"])
        for row in rows
        for name, part in row.items()
        if name != "rank"
    )


if __name__ == "__main__":
    main()
