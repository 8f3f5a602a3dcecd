"""
Compare captured training steps with recordings of the same scripts on a GPU.

    python benchmarks/validate_captures.py [FOLDER] [--capture] [--rows] [--only ddp-7b-1,...]

FOLDER (tests/data/captured_steps) holds `recorded.json.gz`, as `recorded_steps.py` writes it from
what `record_nccl.py` records, and a captured graph per run. `--capture` captures the scripts of
`scenarios/scripts` again into it, which needs torch. Of each run: whether every rank's calls are
the recorded ones (kind, ranks, bytes, type, order), and the products of the same shapes; memory at
the peak; and, where a rank has the GPU for itself, the time of its kernels by phase and kind
(`--rows`) and the step. Times are those of a `dgx-h200`.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter, defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from recorded_steps import Call, RankSteps, RunSteps, kind_of, product_name, read_steps

from commsim import run as run_scenario
from commsim.cluster import Cluster
from commsim.errors import CommsimError
from commsim.graph import Graph, OpKind, Phase, load_graph, refold, save_graph
from commsim.models import resolve_durations, shapes_of

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / "tests/data/captured_steps"
CLUSTER = "dgx-h200"
_NOT_CAPTURED = ("communication", "memsets")
"""Kinds of recorded kernels that are no ops of a captured step."""


class Row(NamedTuple):
    """Kernels of a phase and kind, and their time in seconds: recorded and captured."""

    phase: str
    kind: str
    recorded_kernels: int
    recorded: float
    kernels: int
    seconds: float


class Judged(NamedTuple):
    """A run: is what was captured the same, and what is its time and memory?"""

    name: str
    calls: int
    same_calls: bool
    products: int
    same_products: bool
    recorded_peaks: list[int]
    reserved: list[int]
    peaks: list[int]
    recorded_step: float
    step: float
    step_unpaced: float
    rows: list[Row]


def judge(name: str, recorded: RunSteps, file: Path) -> Judged:
    """Compare one run with its captured graph."""
    graph = load_graph(file)
    ranks = recorded.ranks
    apart = refold(graph, np.arange(len(ranks)))
    lane_of = {rank: lane for lane, rank in enumerate(apart.lane_rank.tolist())}
    told = [_told(rank) if len(ranks) > 1 else [] for rank in ranks]
    calls = [_calls(apart, lane_of[rank]) for rank in range(len(ranks))]
    products = [_products(apart, lane_of[rank]) for rank in range(len(ranks))]
    capture = graph.meta["capture"]
    memory = [capture["memory"][str(role)]["peak"] for role in capture["role_of_rank"]]
    rows = _rows(graph, ranks[0]) if len(ranks) == 1 else []
    return Judged(
        name,
        sum(map(len, told)),
        calls == told,
        sum(sum(rank.products.values()) for rank in ranks),
        products == [rank.products for rank in ranks],
        [rank.peak_bytes for rank in ranks],
        [rank.reserved_bytes for rank in ranks],
        memory,
        float(np.mean(ranks[0].seconds)),
        _step(file),
        _step(file, host_overhead="0us"),
        rows,
    )


def _told(rank: RankSteps) -> list[Call]:
    """Return a rank's recorded calls; a message has no type, as a graph has none for it."""
    return [_untyped(Call(*rank.calls[at])) for at in rank.order]


def _untyped(call: Call) -> Call:
    return call._replace(dtype="") if call.op in ("send", "recv") else call


def _calls(graph: Graph, lane: int) -> list[Call]:
    """Return the communication of a lane in the order of issue."""
    found = []
    for op in np.flatnonzero((graph.lane == lane) & (graph.kind != OpKind.COMPUTE)).tolist():
        row, size = int(graph.item[op]), int(graph.size[op])
        ranks = graph.groups[graph.group_of(op)].ranks
        if graph.kind[op] == OpKind.COLLECTIVE:
            kinds = graph.collectives
            found.append(Call(kinds.kind[row], ranks, size, kinds.dtype[row], -1))
        else:
            sends = graph.kind[op] == OpKind.SEND
            peer = int((graph.messages.target if sends else graph.messages.source)[row])
            found.append(Call("send" if sends else "recv", ranks, size, "", peer))
    return found


def _products(graph: Graph, lane: int) -> dict[str, int]:
    """Return how many products of each shape a lane computes."""
    shapes = shapes_of(graph)
    found: Counter[str] = Counter()
    for op in np.flatnonzero(graph.lane == lane).tolist():
        shape = shapes.get(graph.op_name(op))
        if shape is not None and shape.kind == "matmul":
            found[product_name(shape.m, shape.k, shape.n)] += 1
    return dict(sorted(found.items()))


def _rows(graph: Graph, recorded: RankSteps) -> list[Row]:
    """Return the kernels of the one lane of a graph beside the recorded ones."""
    timed = resolve_durations(graph, Cluster.preset(CLUSTER, nodes=1))
    launches = graph.meta["capture"]["launches"]
    found: dict[tuple[str, str], list[float]] = defaultdict(lambda: [0, 0.0])
    for op in np.flatnonzero(timed.flops >= 0).tolist():
        name, phase = timed.op_name(op), Phase(int(timed.phase[op])).name.lower()
        kind = "optimizer" if phase == "optimizer" else kind_of([name.split(" ")[0]])
        sums = found[phase, kind]
        sums[0] += launches.get(name, 1)
        sums[1] += float(timed.duration[op]) / 1e12
    there = {(phase, kind): (n, us / 1e6) for phase, kind, n, us in recorded.work}
    return [
        Row(*key, *there.get(key, (0, 0.0)), int(found[key][0]), found[key][1])
        for key in sorted(there.keys() | found.keys())
    ]


def _step(file: Path, **settings: Any) -> float:
    """Return the predicted seconds of a step."""
    scenario = {
        "cluster": {"preset": CLUSTER, "nodes": 1},
        "workload": {"graph": str(file.resolve()), **settings},
    }
    return float(run_scenario(scenario).metrics.step_time_s)


def capture_again(runs: dict[str, RunSteps], folder: Path) -> None:
    """Capture the script of each run into `folder`."""
    from commsim.traces import capture

    for name, run in runs.items():
        graph = capture(
            ROOT / "scenarios/scripts" / run.script,
            world_size=len(run.ranks),
            arguments=run.arguments.split(),
        )
        save_graph(graph, folder / f"{name}.npz")
        print(f"{name}: captured", flush=True)


def tell(judged: Judged, *, rows: bool) -> None:
    """Print a run: a line on what is the same, one on memory, and one on time."""
    print(f"\n{judged.name}")
    if judged.calls:
        same = "the same" if judged.same_calls else "NOT the same"
        print(f"  calls of all ranks     {judged.calls:>5}  {same}")
    same = "the same" if judged.same_products else "NOT the same"
    print(f"  products of all ranks  {judged.products:>5}  {same} shapes")
    worst = max(range(len(judged.peaks)), key=lambda rank: judged.recorded_peaks[rank])
    recorded, peak = judged.recorded_peaks[worst], judged.peaks[worst]
    print(
        f"  memory at the peak     recorded {recorded / 1e6:,.1f} MB, captured {peak / 1e6:,.1f}"
        f" ({_share(peak, recorded)}; {(recorded - peak) / 2**20:,.1f} MiB less); the allocator"
        f" held {judged.reserved[worst] / 1e6:,.1f} ({_share(judged.reserved[worst], recorded)})"
    )
    if judged.rows:
        _tell_times(judged, rows=rows)


def _tell_times(judged: Judged, *, rows: bool) -> None:
    known = [row for row in judged.rows if row.kind not in _NOT_CAPTURED]
    sums = [sum(row[at] for row in known) for at in range(2, 6)]
    if rows:
        print("  phase     kind          recorded: kernels     ms   captured: kernels     ms")
        for row in judged.rows:
            print(
                f"  {row.phase:9} {row.kind:13} {row.recorded_kernels:17} {row.recorded * 1e3:6.2f}"
                f" {row.kernels:19} {row.seconds * 1e3:6.2f}"
            )
    print(
        f"  kernels                recorded {sums[0]:.0f} in {sums[1] * 1e3:.2f} ms, captured"
        f" {sums[2]:.0f} in {sums[3] * 1e3:.2f} ms ({_share(sums[3], sums[1])})"
    )
    print(
        f"  step                   recorded {judged.recorded_step * 1e3:.2f} ms, predicted"
        f" {judged.step * 1e3:.2f} ms ({_share(judged.step, judged.recorded_step)}); Python at no"
        f" time {judged.step_unpaced * 1e3:.2f} ms"
    )


def _share(found: float, wanted: float) -> str:
    return f"{100 * (found / wanted - 1):+.1f} %"


def main(words: Sequence[str] | None = None) -> None:
    """Compare all runs of a folder."""
    parser = argparse.ArgumentParser(description=__doc__.strip().splitlines()[0])
    parser.add_argument("folder", nargs="?", type=Path, default=FOLDER)
    parser.add_argument("--capture", action="store_true", help="capture the scripts again first")
    parser.add_argument("--rows", action="store_true", help="show kernels by phase and kind")
    parser.add_argument("--only", help="names of runs, with commas between")
    options = parser.parse_args(words)
    runs = read_steps(options.folder / "recorded.json.gz")
    if options.only:
        runs = {name: runs[name] for name in options.only.split(",")}
    try:
        if options.capture:
            capture_again(runs, options.folder)
        for name, run in runs.items():
            tell(judge(name, run, options.folder / f"{name}.npz"), rows=options.rows)
    except CommsimError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
