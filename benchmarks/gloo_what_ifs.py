"""
Whether what-ifs on recorded programs of Gloo come true when the programs really run again.

    python benchmarks/gloo_what_ifs.py [--runs 20] [--seed 500] [--repeats 5] [--keep FOLDER]

Needs torch and an idle machine. Each random program (`gloo_random`, light: one rank computes,
the others sleep, and buffers are small, so that two processors are enough for all ranks and for
Gloo's threads) runs with the work of one rank as it is, and with it taken away,
halved, doubled or longer by some milliseconds: in turns, in the same processes, recorded with
Python frames. Of the repeats each way the shortest step counts. The recording of the program as
it was is replayed with the changed work, and its step held against that of the program that ran
changed. "Noise" is how far two recordings of one program are apart, the shortest of the even
repeats and that of the odd ones; "unchanged" is how far off a model is that never moves.
"""

from __future__ import annotations

import argparse
import json
import math
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import numpy as np
from gloo_random import program_of, step_of
from msgspec.structs import replace
from record_gloo import be_patient, before_all_others, events_of, join_ranks, keep, last_step, ran

from commsim.engine import simulate
from commsim.graph import Graph, OpKind
from commsim.libraries import Recorded
from commsim.metrics import measured_window
from commsim.traces import Trace, load_trace
from commsim.units import PS_PER_SECOND, PS_PER_US

WORLDS = (2, 3, 4)
CHANGES: dict[str, Callable[[float], float]] = {
    "none": lambda ms: 0.0,
    "half": lambda ms: ms / 2,
    "twice": lambda ms: ms * 2,
    "more": lambda ms: ms + 5,
}
"""What becomes of each piece of work, in ms."""
WARM_UPS, FORMS = 3, ("before", "after")
SHORT_US = 500  # what the profiler itself sleeps and computes is shorter than any work


class WhatIf(NamedTuple):
    """A program of a seed, and what becomes of the work of its rank `late`."""

    seed: int
    world: int
    change: str

    @property
    def name(self) -> str:
        """What its recordings are called."""
        return f"{self.seed}-{self.world}-{self.change}"


class Outcome(NamedTuple):
    """Steps in seconds: as recorded, predicted, and as it really ran changed; and the noise."""

    before: float
    predicted: float
    really: float
    noise: float

    @property
    def error(self) -> float:
        """How far the prediction is off."""
        return abs(self.predicted / self.really - 1)


def main() -> None:
    """Record, predict and print."""
    parser = argparse.ArgumentParser(description=__doc__.strip().splitlines()[0])
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--seed", type=int, default=500)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--keep", type=Path, help="folder for the recordings, by name")
    options = parser.parse_args()
    found = []
    for what_if in what_ifs(options.runs, options.seed):
        with TemporaryDirectory() as place:
            folder = options.keep / what_if.name if options.keep else Path(place)
            if not folder.exists() or not options.keep:
                folder.mkdir(parents=True, exist_ok=True)
                if not record(what_if, folder, options.repeats):
                    print(f"{what_if.name}: did not come to its end")
                    continue
            found.append(outcome(what_if, folder))
            print(line(what_if, found[-1]), flush=True)
    if found:
        print(summary(found))


def what_ifs(runs: int, seed: int) -> Iterator[WhatIf]:
    """Yield so many what-ifs: every change in turn."""
    chance = random.Random(seed)
    for number in range(runs):
        yield WhatIf(seed + number, chance.choice(WORLDS), tuple(CHANGES)[number % len(CHANGES)])


def record(what_if: WhatIf, folder: Path, repeats: int) -> bool:
    """Run in both forms, and leave the recordings `before-0`, `after-0` and so on in a folder."""
    with TemporaryDirectory() as place:
        if not ran(what_if.world, _be_rank, what_if, repeats, Path(place)):
            return False
        for number in range(repeats):
            for form in FORMS:
                found = Path(place) / f"{form}-{number}"
                for file in found.glob("rank?.json"):
                    file.write_text(json.dumps(without_other_frames(json.loads(file.read_text()))))
                keep(found, folder / f"{form}-{number}")
    return True


def without_other_frames(trace: dict[str, Any]) -> dict[str, Any]:
    """Return a trace with only those Python frames that show waits and work."""
    events = [
        event
        for event in trace["traceEvents"]
        if event.get("cat") != "python_function"
        or "of pybind11" in event["name"]
        or _is_work(event)
    ]
    return {**trace, "traceEvents": events}


def _is_work(event: dict[str, Any]) -> bool:
    frame = event.get("cat") == "python_function" and event["dur"] > SHORT_US
    return frame and ("function sleep" in event["name"] or "_busy" in event["name"])


def _be_rank(rank: int, what_if: WhatIf, repeats: int, folder: Path) -> None:
    """Be one rank: warm up, then record both forms in turns."""
    import torch.distributed as dist
    from torch._C._distributed_c10d import _dump_fr_trace_json

    before_all_others()
    join_ranks(rank, what_if.world, folder)
    steps = {
        form: step_of(program_of(what_if.seed, what_if.world, light=True, change=change), rank)
        for form, change in zip(FORMS, (None, CHANGES[what_if.change]), strict=True)
    }
    for _ in range(WARM_UPS):
        for step in steps.values():
            step()
    for number in range(repeats):
        for form, step in steps.items():
            place = folder / f"{form}-{number}"
            place.mkdir(exist_ok=True)
            be_patient()  # a slow machine takes minutes for all repeats together
            _profiled(step, place / f"rank{rank}.json")
            (place / f"rank{rank}.fr.json").write_bytes(_dump_fr_trace_json())
    dist.barrier()
    dist.destroy_process_group()


def _profiled(step: Callable[[], None], file: Path) -> None:
    """Record two steps: ranks begin to record at different times, the second is rid of that.

    The ranks meet between the steps and before any of them ends the recording, which is much work:
    the schedule is asked after one step has ended and before anything else is done.
    """
    import torch
    import torch.distributed as dist

    plan = torch.profiler.schedule(wait=0, warmup=1, active=2, repeat=1)

    def met(number: int) -> torch.profiler.ProfilerAction:
        if number > 1:
            dist.barrier()
        return plan(number)

    with torch.profiler.profile(
        activities=[torch.profiler.ProfilerActivity.CPU],
        schedule=met,
        record_shapes=True,
        with_stack=True,
    ) as profiler:
        for _ in range(3):
            step()
            profiler.step()
    profiler.export_chrome_trace(str(file))


def outcome(what_if: WhatIf, folder: Path) -> Outcome:
    """Return what the shortest recording predicts, beside what really happened."""
    steps = {form: [_recorded(file) for file in sorted(folder.glob(f"{form}-*"))] for form in FORMS}
    first = int(np.argmin(steps["before"]))
    trace = load_trace(folder / f"before-{first}")
    late = program_of(what_if.seed, what_if.world, light=True).late
    file = folder / f"before-{first}" / f"rank{late}.json.gz"
    graph = with_work(trace, late, work_of(file), CHANGES[what_if.change])
    halves = min(steps["before"][::2]), min(steps["before"][1::2], default=math.nan)
    return Outcome(
        before=min(steps["before"]),
        predicted=step_time(graph),
        really=min(steps["after"]),
        noise=max(halves) / min(halves) - 1,
    )


def _recorded(folder: Path) -> float:
    """Return the longest rank's step of a recording, in seconds."""
    return max(last_step(file) for file in folder.glob("rank?.json.gz")) / 1e6


def work_of(file: Path) -> list[tuple[float, float]]:
    """Return when a rank worked: (start, end) in us after its step's begin."""
    events = events_of(file)
    begin = max(e["ts"] for e in events if str(e.get("name", "")).startswith("ProfilerStep"))
    return [
        (event["ts"] - begin, event["ts"] - begin + event["dur"])
        for event in events
        if _is_work(event) and event["ts"] >= begin
    ]


def with_work(
    trace: Trace, rank: int, work: list[tuple[float, float]], change: Callable[[float], float]
) -> Graph:
    """Return the run's graph with each piece of a rank's work changed."""
    graph, measured = trace.graph(), trace.timeline()
    lane = int(np.flatnonzero(graph.lane_rank == rank)[0])
    begin = int(measured_window(measured).begin[lane])
    duration = graph.duration.copy()
    mine = (graph.kind == OpKind.COMPUTE) & (graph.lane == lane)
    for start, end in work:
        middle = begin + round((start + end) / 2 * PS_PER_US)
        (op,) = np.flatnonzero(mine & (measured.start <= middle) & (middle < measured.end))
        longer = change((end - start) / 1e3) * 1e3 - (end - start)
        duration[op] = max(0, duration[op] + round(longer * PS_PER_US))
    return replace(graph, duration=duration)


def step_time(graph: Graph) -> float:
    """Return the longest rank's step with the recorded transfers, in seconds."""
    timeline = simulate(graph, None, library=Recorded(), overlap_slowdown=False)
    window = measured_window(timeline)
    return float((window.end - window.begin).max()) / PS_PER_SECOND


def line(what_if: WhatIf, found: Outcome) -> str:
    """Return a line on one what-if."""
    return (
        f"{what_if.name}: {found.before * 1e3:.1f} ms (noise {found.noise:.1%}) -> predicted"
        f" {found.predicted * 1e3:.1f}, really {found.really * 1e3:.1f} ({found.error:.1%})"
    )


def summary(found: list[Outcome]) -> str:
    """Return how far all are off, beside noise and a model that never moves."""
    errors = [one.error for one in found]
    noise = [one.noise for one in found]
    still = [abs(one.before / one.really - 1) for one in found]
    return (
        f"{len(found)} what-ifs: median {median(errors):.1%}, worst {max(errors):.1%};"
        f" noise {median(noise):.1%}, {max(noise):.1%};"
        f" unchanged {median(still):.1%}, {max(still):.1%}"
    )


if __name__ == "__main__":
    main()
