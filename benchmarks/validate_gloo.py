"""
Whether replays of freshly recorded programs on Gloo meet their recordings, and further runs.

    python benchmarks/validate_gloo.py [--programs 40] [--seed 100]

Needs torch. Records random programs (`gloo_random`) of 2 to 8 ranks on this machine and replays
each: how far every part of every rank's account is off (step, compute, transfers, waits), and
whether calls, groups and bytes are those that the program made. Whether what-ifs come true:
`gloo_what_ifs.py`.
"""

from __future__ import annotations

import argparse
import json
import math
import random
from collections import Counter
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

from record_gloo import keep, record

from commsim.ops import op_of
from commsim.study.replay import replay
from commsim.traces import Trace, load_trace

WORLDS = (2, 3, 4, 5, 6, 8)
CLOSE, SHARE = 1e-3, 0.02


def main() -> None:
    """Record, replay and print."""
    parser = argparse.ArgumentParser(description=__doc__.strip().splitlines()[0])
    parser.add_argument("--programs", type=int, default=40)
    parser.add_argument("--seed", type=int, default=100)
    parser.add_argument("--keep", type=Path, help="folder for the recordings")
    options = parser.parse_args()
    accounts(options.programs, options.seed, options.keep)


def accounts(programs: int, seed: int, kept: Path | None) -> None:
    """Print how far the replay of each program is from its recording."""
    chance = random.Random(seed)
    worst: list[float] = []
    right = 0
    for number in range(programs):
        name = f"random-{seed + number}-{chance.choice(WORLDS)}"
        with TemporaryDirectory() as place:
            length, found = record(name)
            if length == math.inf:
                print(f"{name}: did not come to its end")
                continue
            folder = (kept or Path(place)) / name
            keep(found, folder)
            missed, wrong = account_error(folder), wrong_calls(folder)
            worst.append(missed)
            right += not wrong
            print(
                f"{name}: worst part of any rank's account off by {missed * 1e3:.3f} ms;"
                f" {wrong or 'no'} calls otherwise than made",
                flush=True,
            )
    if worst:
        within = sum(error < CLOSE for error in worst)
        print(f"{within} of {len(worst)} within 1 ms; median {median(worst) * 1e3:.3f} ms;")
        print(f"calls, groups and bytes are right in {right} of {len(worst)}")


def account_error(folder: Path) -> float:
    """Return the largest difference of any part beyond its 2 %, in seconds."""
    rows = replay(folder).result.extra["self_check"]["account"]["ranks"]
    off = [
        (abs(part["replayed_s"] - part["recorded_s"]), part["recorded_s"])
        for row in rows
        for name, part in row.items()
        if name != "rank"
    ]
    return max(miss if miss > SHARE * recorded else 0.0 for miss, recorded in off)


def wrong_calls(folder: Path) -> int:
    """Return how many calls of the programs are in the replay with another op, group or size."""
    trace = load_trace(folder)
    return sum(_wrong(trace, folder, rank) for rank in trace.ranks)


def _wrong(trace: Trace, folder: Path, rank: int) -> int:
    made: Counter[tuple[Any, ...]] = Counter()
    for call in json.loads((folder / f"rank{rank}.calls.json").read_text()):
        op = op_of(call["op"])
        if op in ("send", "recv"):
            made[op, rank, max(call["in"], call["out"])] += 1
        elif op and op != "barrier":
            size = call["out"] if op == "all_gather" else call["in"]
            made[op, tuple(call["ranks"]), size] += 1
    found: Counter[tuple[Any, ...]] = Counter(
        (row.op, row.ranks, row.size)
        for row in trace.collectives
        if rank in row.waits and row.op != "barrier"
    )
    for row in trace.messages:
        found["send", rank, row.size] += row.source == rank
        found["recv", rank, row.size] += row.target == rank
    return sum(((made - found) + (+found - made)).values())


if __name__ == "__main__":
    main()
