"""
Whether replays of freshly recorded programs on Gloo meet their recordings, and further runs.

    python benchmarks/validate_gloo.py [--programs 40] [--seed 100]
    python benchmarks/validate_gloo.py --causal 20 [--seed 500] [--repeats 5]

Needs torch. Records random programs (`gloo_random`) of 2 to 8 ranks on this machine and replays
each: how far every part of every rank's account is off (step, compute, transfers, waits), and
whether calls, groups and bytes are those that the program made. `--causal`: the host work of one
rank is taken away, halved or doubled in the replay, and in the program, which really runs again,
both recorded with Python frames; of `--repeats` runs each way the shortest counts.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import shutil
from collections import Counter
from dataclasses import replace
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from gloo_random import program_of
from record_gloo import keep, record

from commsim.engine import simulate
from commsim.graph import Graph, OpKind
from commsim.libraries import Recorded
from commsim.metrics import measured_window
from commsim.ops import op_of
from commsim.study.replay import replay
from commsim.traces import Trace, load_trace
from commsim.units import PS_PER_MS, PS_PER_SECOND

WORLDS = (2, 3, 4, 5, 6, 8)
FEW = (2, 3, 4)  # ranks of causal runs: a processor each, or nearly
CHANGES = (0.0, 0.5, 2.0)
WORK = PS_PER_MS // 2  # host work of `gloo_random` is a millisecond or more, Python's own far less
CLOSE, SHARE = 1e-3, 0.02


def main() -> None:
    """Record, replay and print."""
    parser = argparse.ArgumentParser(description=__doc__.strip().splitlines()[0])
    parser.add_argument("--programs", type=int, default=40)
    parser.add_argument("--causal", type=int, default=0, metavar="RUNS")
    parser.add_argument("--seed", type=int, default=100)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--keep", type=Path, help="folder for the recordings")
    options = parser.parse_args()
    if options.causal:
        causal(options.causal, options.seed, options.repeats)
    else:
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


def causal(runs: int, seed: int, repeats: int) -> None:
    """Print how far predicted steps are from those of programs that really run again."""
    chance = random.Random(seed)
    errors: list[float] = []
    with TemporaryDirectory() as place:
        for number in range(runs):
            world, share = chance.choice(FEW), CHANGES[number % len(CHANGES)]
            name = f"random-{seed + number}-{world}"
            before = shortest(name, repeats, Path(place) / "before")
            after = shortest(f"{name}-{share}", repeats, Path(place) / "after")
            if before is None or after is None:
                print(f"{name}: did not come to its end")
                continue
            late = program_of(seed + number, world).late
            graph = before.graph()
            was, told = step(graph), step(with_work(graph, late, share))
            really = step(after.graph())
            errors.append(abs(told - really) / really)
            print(
                f"{name}: work of rank {late} x {share:g}: {was * 1e3:.1f} ms -> predicted"
                f" {told * 1e3:.1f}, really {really * 1e3:.1f} ({errors[-1]:+.1%})",
                flush=True,
            )
    if errors:
        print(f"{len(errors)} what-ifs: median {median(errors):.1%}, worst {max(errors):.1%}")


def shortest(name: str, repeats: int, folder: Path) -> Trace | None:
    """Return the shortest of some recordings of a program."""
    best = math.inf
    for _ in range(repeats):
        length, found = record(name, stacks=True)
        if length < best:
            best = length
            keep(found, folder)
        else:
            shutil.rmtree(found, ignore_errors=True)
    return load_trace(folder) if best < math.inf else None


def step(graph: Graph) -> float:
    """Return the longest rank's step with the recorded transfers, in seconds."""
    timeline = simulate(graph, None, library=Recorded(), overlap_slowdown=False)
    window = measured_window(timeline)
    return float((window.end - window.begin).max()) / PS_PER_SECOND


def with_work(graph: Graph, rank: int, share: float) -> Graph:
    """Return a graph in which the host work of one rank takes `share` of its time."""
    lane = int(np.flatnonzero(graph.lane_rank == rank)[0])
    long = (graph.kind == OpKind.COMPUTE) & (graph.duration >= WORK) & (graph.lane == lane)
    duration = np.where(long, np.rint(graph.duration * share).astype(np.int64), graph.duration)
    return replace(graph, duration=duration)


if __name__ == "__main__":
    main()
