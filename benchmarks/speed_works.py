"""
The works that `speed.py` times: what runs, how much it is, and what its answer must be.

A work is a function of its size. It prepares what is not timed, and returns what is: a call, how
many events of the work's own kind that is (ops, messages, flows, spans), and a check of what the
call returns against a closed form, an independent computation or a figure on record. A check
raises AssertionError, so that fast and wrong fails.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from commsim.cluster import Cluster
from commsim.engine import simulate
from commsim.graph import Fold, Graph, GraphBuilder, refold
from commsim.libraries import Ideal, Request
from commsim.libraries.expansion import per_byte
from commsim.libraries.nccl import Nccl
from commsim.libraries.routing import Router

__all__ = ["WORKS", "Run", "Work"]

ROOT = Path(__file__).resolve().parents[1]
MS, PS = 10**9, 1e12
GIB = 2**30
_NOISE = 1e-9  # relative: floats and whole picoseconds


@dataclass(frozen=True)
class Run:
    """A prepared piece of work: `call` is timed, `events` counts it, `check` gets its answer."""

    call: Callable[[], Any]
    events: int
    check: Callable[[Any], None]


@dataclass(frozen=True)
class Work:
    """A row of the table per size: `axis` is what grows, `event` what is counted."""

    name: str
    axis: str
    sizes: tuple[int, ...]
    event: str
    prepare: Callable[[int], Run]
    checked: str


def ring_first(ranks: int) -> Run:
    """Plan a ring of 1 GiB over DGX H100 nodes for the first time."""
    cluster = Cluster.preset("dgx-h100", nodes=ranks // 8)
    request = Request("all_reduce", GIB, tuple(range(ranks)))
    return Run(
        lambda: Ideal("ring").plan(request, cluster),
        2 * ranks * (ranks - 1),
        lambda plan: _same(plan.idle, _ring_by_steps(ranks, request.size, cluster)),
    )


def ring_again(ranks: int) -> Run:
    """Plan a ring of another size where one has been planned."""
    cluster, library = Cluster.preset("dgx-h100", nodes=ranks // 8), Ideal("ring")
    everyone = tuple(range(ranks))
    library.plan(Request("all_reduce", GIB, everyone), cluster)
    sizes = iter(range(GIB // 2, GIB))
    last = [0]

    def call() -> Any:
        last[0] = next(sizes)
        return library.plan(Request("all_reduce", last[0], everyone), cluster)

    return Run(
        call,
        2 * ranks * (ranks - 1),
        lambda plan: _same(plan.idle, _ring_by_steps(ranks, last[0], cluster)),
    )


def _ring_by_steps(ranks: int, size: int, cluster: Cluster, *, channels: int = 8) -> float:
    """Return when a ring in the order of ranks ends, in ps, by going through all of its steps.

    A channel per NIC rotates each node's GPUs and carries its part; on nodes whose GPUs are all
    alike the channels take equally long, so one is enough.
    """
    router, links = Router(cluster), cluster.links
    routes = [router.route(rank, (rank + 1) % ranks) for rank in range(ranks)]
    latency = np.array([route.latency for route in routes], dtype=np.float64)
    service = size / channels / ranks * np.array([per_byte(route, links) for route in routes])
    leaves, arrives = np.zeros(ranks), np.zeros(ranks)
    for _ in range(2 * (ranks - 1)):
        leaves = np.maximum(np.roll(arrives, 1), leaves) + service
        arrives = leaves + latency
    return float(arrives.max())


def all_to_all(ranks: int) -> Run:
    """Plan an all-to-all of the ideal library: every pair at once."""
    cluster = Cluster.preset("dgx-h100", nodes=-(-ranks // 8))
    request = Request("all_to_all", GIB, tuple(range(ranks)))

    def check(plan: Any) -> None:
        _at_the_cut(plan.idle, ranks, GIB, cluster)

    return Run(lambda: Ideal("direct").plan(request, cluster), ranks * (ranks - 1), check)


def all_to_all_nccl(ranks: int) -> Run:
    """Plan an all-to-all under NCCL, which takes longer than its links need."""
    cluster = Cluster.preset("dgx-h100", nodes=-(-ranks // 8))
    request = Request("all_to_all", GIB, tuple(range(ranks)))

    def check(plan: Any) -> None:
        floor = _cut(ranks, GIB, cluster)
        assert floor <= plan.idle <= 2 * floor, (plan.idle, floor)

    return Run(lambda: Nccl().plan(request, cluster), ranks * (ranks - 1), check)


def _cut(ranks: int, size: int, cluster: Cluster) -> float:
    """Return the ps that the busiest NIC needs: what a node sends to one rail leaves by one NIC."""
    nodes = -(-ranks // 8)
    last = ranks - 8 * (nodes - 1)
    carried = size / ranks * 8 * (nodes - 2 + (1 if last else 0))
    speed = cluster.links.capacity[cluster.fabric.nic_link(0)]
    return float(carried / speed * PS)


def _at_the_cut(idle: float, ranks: int, size: int, cluster: Cluster) -> None:
    floor = _cut(ranks, size, cluster)
    longest = 100e6  # ps: no route's latency is as long as 100 us
    assert floor <= idle <= floor + longest, (idle, floor)


def messages_of_a_ring(ranks: int) -> Run:
    """Send a ring of 1 GiB message by message, one GPU and one NIC per node: equal edges."""
    cluster = _one_gpu_each(ranks)
    build = GraphBuilder()
    world = build.group("world", range(ranks))
    for rank in range(ranks):
        build.collective(build.lane(rank), world, "all_reduce", GIB, stream="dp")
    graph, links = build.build(), cluster.links
    route = Router(cluster).route(0, 1)
    step = route.latency + GIB / ranks * per_byte(route, links)
    return Run(
        lambda: simulate(graph, cluster, library=Ideal("ring"), network="steps"),
        2 * ranks * (ranks - 1),
        lambda timeline: _same(int(timeline.end.max()), 2 * (ranks - 1) * step),
    )


def messages_of_an_uneven_ring(ranks: int) -> Run:
    """Send a ring of 1 GiB message by message: seven edges of NVLink, then one of the network."""
    cluster = Cluster.preset("dgx-h100", nodes=ranks // 8)
    build = GraphBuilder()
    world = build.group("world", range(ranks))
    for rank in range(ranks):
        build.collective(build.lane(rank), world, "all_reduce", GIB, stream="dp")
    graph, library = build.build(), Ideal("ring", channels=1)
    ends = _ring_by_steps(ranks, GIB, cluster, channels=1)
    return Run(
        lambda: simulate(graph, cluster, library=library, network="steps"),
        2 * ranks * (ranks - 1),
        lambda timeline: _same(int(timeline.end.max()), ends),
    )


def _one_gpu_each(ranks: int) -> Cluster:
    return Cluster.preset(
        "dgx-h100", nodes=ranks,
        overrides={"gpu": {"count": 1}, "nic": {"count": 1}},
        fabric={"kind": "single_switch"},
    )  # fmt: skip


def flows(count: int) -> Run:
    """Run random flows through a fat tree of 1,024 hosts; all begin at once and end singly."""
    from random_flows import fat_tree_flows, run_flows, unfair_at

    case = fat_tree_flows(count, arity=16, seed=1)

    def check(ran: Any) -> None:
        found = unfair_at(case, ran, instants=25)
        assert found < _NOISE, found

    return Run(lambda: run_flows(case), count, check)


def layers(ranks: int, *, depth: int = 48) -> Run:
    """Simulate a step of layers cut over nodes of 8, gradients reduced over the nodes."""
    cluster, library = Cluster.preset("dgx-h100", nodes=ranks // 8), Ideal("ring")
    ends = _layers_end(ranks, depth, cluster, library)
    ops = len(_layers_graph(ranks, depth))

    def call() -> Any:
        return simulate(_layers_graph(ranks, depth), cluster, library=library)

    return Run(call, ops, lambda timeline: _same(int(timeline.end.max()), ends))


FORWARD, BACKWARD, ACTIVATION, GRADIENT = 2 * MS, 4 * MS, 64 << 20, 256 << 20


def _layers_graph(ranks: int, depth: int) -> Graph:
    """Return the graph of all ranks: what one does is laid down once, and copied by columns."""
    world = np.arange(ranks)
    nodes = world.reshape(-1, 8)
    fold = Fold.of(np.zeros(ranks, np.int64), {"tp": nodes, "dp": nodes.T.copy()}, {})
    build = GraphBuilder(fold)
    for rank in fold.representatives:
        lane = build.lane(rank)
        cut, copies = build.orbit("tp", rank), build.orbit("dp", rank)
        for _ in range(2 * depth):
            build.compute(lane, FORWARD, name="forward")
            build.collective(lane, cut, "all_reduce", ACTIVATION, stream="compute")
        for _ in range(depth):
            build.compute(lane, BACKWARD, name="backward")
            build.collective(lane, cut, "all_reduce", ACTIVATION, stream="compute")
            build.compute(lane, BACKWARD, name="backward")
            done = build.collective(lane, cut, "all_reduce", ACTIVATION, stream="compute")
            build.collective(lane, copies, "all_reduce", GRADIENT, stream="dp", after=[done])
    return refold(build.build(), world)


def _layers_end(ranks: int, depth: int, cluster: Cluster, library: Ideal) -> int:
    """Return when the step ends: no link is shared, so ops follow each other by their idle times.

    Compute is not slowed: the ideal library holds no SMs.
    """
    cut = library.plan(Request("all_reduce", ACTIVATION, tuple(range(8))), cluster).idle
    copies = library.plan(Request("all_reduce", GRADIENT, tuple(range(0, ranks, 8))), cluster).idle
    now, free = 2 * depth * (FORWARD + cut), 0
    for _ in range(depth):
        now += 2 * (BACKWARD + cut)
        free = max(free, now) + copies
    return free


def microbatches(count: int) -> Run:
    """Run 1F1B over 8 stages."""
    from commsim import run

    scenario = {"workload": {"pipeline": {
        "stages": 8, "microbatches": count, "schedule": "1f1b",
        "forward": "1ms", "backward": "2ms",
    }}}  # fmt: skip
    return Run(
        lambda: run(scenario),
        8 * count * 2,
        lambda result: _same(result.metrics.step_time_s, (count + 7) * 3e-3),
    )


def noise(gpus: int) -> Run:
    """Run a training step whose every GPU has jitter of its own, and say what limits it.

    Two runs of all ranks: a healthy one, which has to take as long as the same step folded, and
    one with jitter, which has to take longer.
    """
    from commsim import run

    replicas = max(gpus // 32, 1)
    scenario: dict[str, Any] = {
        "cluster": {"preset": "dgx-h100", "nodes": gpus // 8},
        "faults": {"jitter": [{"spread": 0.03}]},
        "workload": {"training": {
            "model": {"preset": "llama3-70b", "seq_len": 8192},
            "parallel": {"dp": replicas, "tp": 8, "pp": 4, "sequence_parallel": True},
            "batch": {"global": 4 * replicas, "micro": 1},
        }},
    }  # fmt: skip
    whole = {**scenario, "engine": {"fold": "off"}}
    healthy = run({name: part for name, part in scenario.items() if name != "faults"})
    graph, step = healthy.timeline.graph, healthy.metrics.step_time_s
    ops = int(graph.multiplicity[graph.lane].sum())

    def call() -> Any:
        found = run(whole)
        assert found.headline
        return found

    def check(found: Any) -> None:
        _same(found.extra["faults"]["healthy_step_time_s"], step)
        assert found.metrics.step_time_s > step

    return Run(call, 2 * ops, check)


def on_record(name: str, **settings: Any) -> Run:
    """Run a scenario of the catalogue, against its figures on record."""
    from commsim import run

    record = json.loads((ROOT / "scenarios" / f"{name}.expected.json").read_text())
    return Run(
        lambda: run(name, **settings),
        1,
        lambda result: _same(result.metrics.step_time_s, record["step_time_s"], noise=1e-6),
    )


def small_run(_: int) -> Run:
    """Run the quickstart in a process of its own, imports and page included."""
    import subprocess
    import sys

    folder = tempfile.mkdtemp()
    page, figures = Path(folder) / "page.html", Path(folder) / "figures.json"
    record = json.loads((ROOT / "scenarios" / "quickstart.expected.json").read_text())
    words = ["run", "quickstart", "-o", str(page), "--json", str(figures)]

    def call() -> Any:
        subprocess.run([sys.executable, "-m", "commsim", *words], check=True, capture_output=True)
        return json.loads(figures.read_text())

    expected = record["step_time_s"]
    return Run(call, 1, lambda found: _same(found["step_time_s"], expected, noise=1e-6))


def trace(megabytes: int) -> Run:
    """Import two ranks' Kineto files in this process; events are those of the files."""
    from import_speed import generate

    from commsim.traces import load_trace

    folder = Path(tempfile.mkdtemp())
    files = [generate(folder / f"rank{r}.json", r, 2, megabytes / 2) for r in range(2)]
    text = [file.read_bytes() for file in files]
    kernels = sum(one.count(b'"cat": "kernel"') for one in text)
    calls = sum(one.count(b"c10d::allreduce_") for one in text)

    def check(graph: Any) -> None:
        timed = int((graph.duration > 0).sum())
        assert len(graph.collectives) == calls // 2, (len(graph.collectives), calls)
        assert timed >= kernels - calls, (timed, kernels)

    return Run(
        lambda: load_trace(folder).graph(),
        sum(one.count(b'"ph"') for one in text),
        check,
    )


def report(spans: int) -> Run:
    """Measure a timeline of many spans and write its report."""
    import sys

    sys.path.insert(0, str(ROOT / "tests"))
    from helpers.many_spans import many_spans

    from commsim.charts.report import ReportFacts, write_report
    from commsim.metrics import measure

    timeline = many_spans(spans)
    path = Path(tempfile.mkdtemp()) / "report.html"
    computing = (timeline.end - timeline.start)[timeline.graph.kind == 0].sum() / 16 / PS

    def call() -> Any:
        metrics = measure(timeline)
        write_report(ReportFacts(f"{spans:,} spans", timeline, metrics), path)
        return metrics

    return Run(call, spans, lambda metrics: _same(metrics.breakdown.compute_s, float(computing)))


def _same(found: float, expected: float, *, noise: float = _NOISE) -> None:
    """Hold a figure to another, to `noise` or two whole units."""
    assert abs(found - expected) <= max(noise * abs(expected), 2.0 * isinstance(found, int)), (
        found,
        expected,
    )


WORKS = (
    Work("ring plan, first time", "ranks", (1024, 4096, 16384), "messages", ring_first,
         "all steps of the ring one by one"),
    Work("ring plan, another size", "ranks", (1024, 4096, 16384), "messages", ring_again,
         "all steps of the ring one by one"),
    Work("all-to-all plan, ideal", "ranks", (64, 316), "pairs", all_to_all,
         "the cut at the busiest NIC"),
    Work("all-to-all plan, NCCL", "ranks", (64, 512), "pairs", all_to_all_nccl,
         "between the cut and twice that"),
    Work("ring, message by message", "ranks", (32, 128, 1024), "messages", messages_of_a_ring,
         "2(n-1)(a + S/nB)"),
    Work("ring of unequal edges, by messages", "ranks", (128, 1024), "messages",
         messages_of_an_uneven_ring, "all steps of the ring one by one"),
    Work("random flows, fat tree", "flows", (100, 300, 1000, 3000, 10_000), "flows", flows,
         "max-min certificate at 25 instants, and all bytes sent"),
    Work("DP x TP, 48 layers, unfolded", "ranks", (64, 256), "ops", layers,
         "ops one after the other by idle times"),
    Work("DP x TP, 64 ranks, unfolded", "layers", (12, 48), "ops",
         lambda depth: layers(64, depth=depth), "ops one after the other by idle times"),
    Work("training step with jitter, unfolded", "GPUs", (512, 4096), "ops", noise,
         "its healthy run folded"),
    Work("1F1B, 8 stages", "microbatches", (64, 512), "ops", microbatches,
         "(m + 7)(F + B)"),
    Work("Llama 3 405B, 16,384 GPUs", "steps", (1,), "runs", lambda _: on_record("llama3-405b"),
         "its figures on record"),
    Work("`commsim run quickstart`, a process", "steps", (1,), "runs", small_run,
         "its figures on record"),
    Work("Kineto to graph", "MB", (4, 16), "events", trace, "its kernels and collectives"),
    Work("measure and report", "spans", (100_000, 1_000_000), "spans", report,
         "the compute time of its spans"),
)  # fmt: skip
