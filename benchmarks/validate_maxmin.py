"""
Solve flow cases by the engine's own network and compare with their recorded finish times.

    python benchmarks/validate_maxmin.py DIR [--json FILE]

DIR holds JSON files with `links` (bandwidth in bytes/s, latency in s), `flows` (start in s,
size in bytes, route as link ids) and `finish` (s), like those in tests/data/maxmin, which
SimGrid 3.32 solved in its pure max-min mode.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Generator
from pathlib import Path
from typing import Any

import numpy as np
import simpy

from commsim.engine.clock import Clock
from commsim.engine.fluid_network import FluidNetwork
from commsim.libraries.plan import PlanPhase
from commsim.units import to_picoseconds


class NoLog:
    """Forgets what flows have moved."""

    def segment(self, flow: Any, now: int) -> None:
        """Forget a stretch."""

    def template(self, phase: PlanPhase) -> int:
        """Name no phase."""
        return 0

    def segments(self, template: Any, op: Any, start: Any, now: int, rate: Any) -> None:
        """Forget several stretches."""


def finish_times(case: dict[str, Any]) -> list[float]:
    """Return when each flow of a case ends, in seconds, as the engine's network has it."""
    place = {link["id"]: at for at, link in enumerate(case["links"])}
    capacity = np.array([link["bandwidth"] for link in case["links"]], dtype=np.float64)
    env = Clock()
    network = FluidNetwork(env, capacity, log=NoLog(), note=lambda _: None)
    ends = [0] * len(case["flows"])

    def run(number: int, flow: dict[str, Any]) -> Generator[simpy.Event, Any, None]:
        route = np.unique([place[link] for link in flow["route"]])
        latency = sum(case["links"][place[link]].get("latency", 0.0) for link in flow["route"])
        yield env.timeout(to_picoseconds(flow["start"] + latency, "a start"))
        if not flow["size"] or not len(route):
            ends[number] = env.now
            return
        load = np.full(len(route), float(flow["size"]))
        yield network.start(PlanPhase(1, route, load, np.ones(len(route)))).reach(1.0)
        ends[number] = env.now

    for number, flow in enumerate(case["flows"]):
        env.process(run(number, flow))
    env.run()
    return [end * 1e-12 for end in ends]


def judge(path: Path) -> dict[str, Any]:
    """Return a case's name, its largest relative difference, and the CPU seconds it took."""
    case = json.loads(path.read_text())
    begin = time.process_time()
    found = finish_times(case)
    seconds = time.process_time() - begin
    pairs = zip(found, case["finish"], strict=True)
    worst = max((abs(a - b) / b for a, b in pairs if b > 0), default=0.0)
    return {"name": case.get("name", path.stem), "max_rel_diff": worst, "seconds": seconds}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--json", type=Path, help="write the figures here")
    options = parser.parse_args()
    paths = sorted(options.folder.glob("*.json"))
    if not paths:
        sys.exit(f"{options.folder}: no .json case in it.")
    cases = [judge(path) for path in paths]
    for case in cases:
        print(f"{case['name']:32} {case['max_rel_diff']:10.2e} {case['seconds']:8.3f} s")
    if options.json:
        options.json.write_text(json.dumps({"cases": cases}, indent=1) + "\n")


if __name__ == "__main__":
    main()
