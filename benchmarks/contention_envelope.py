"""
How far flows are from messages under contention: the envelope of `fluid` against `steps`.

    python benchmarks/contention_envelope.py [--cases 60] [--seed 0]

Random cases: several collectives at once, over groups that share NICs, NVLink ports or trunks.
Each is run as coupled flows and message by message; the ratio fluid / steps of each collective's
end is collected by kind of case. Prints a table (markdown).
"""

from __future__ import annotations

import argparse
from collections.abc import Callable

import numpy as np

from commsim.cluster import Cluster
from commsim.engine import simulate
from commsim.graph import GraphBuilder
from commsim.libraries import Ideal, Library
from commsim.libraries.nccl.plans.library import Nccl

Job = tuple[str, tuple[int, ...], int]

FABRICS = {
    "rail-optimized": {"kind": "rail_optimized"},
    "4:1 fat tree": {"kind": "fat_tree", "oversubscription": 4, "nodes_per_leaf": 1},
}
LIBRARIES: dict[str, Callable[[], Library]] = {
    "ideal ring": lambda: Ideal("ring"),
    "NCCL ring": lambda: Nccl(env={"NCCL_ALGO": "Ring", "NCCL_PROTO": "Simple"}),
    "NCCL tree": lambda: Nccl(env={"NCCL_ALGO": "Tree", "NCCL_PROTO": "Simple"}),
}


def jobs(rng: np.random.Generator, nodes: int, per_node: int, op: str, *, equal: bool) -> list[Job]:
    """Return two to four collectives over groups of the same nodes, placed by chance."""
    found = []
    size = 1 << int(rng.integers(20, 27))
    for _ in range(int(rng.integers(2, 5))):
        each = int(rng.integers(1, per_node + 1))
        local = np.sort(rng.choice(per_node, each, replace=False))
        ranks = tuple(int(n * per_node + g) for n in range(nodes) for g in local)
        found.append((op, ranks, size if equal else 1 << int(rng.integers(20, 27))))
    return found


def ends(cluster: Cluster, work: list[Job], library: Library, network: str) -> list[int]:
    """Return when each collective ends, in ps, all started at once on streams of their own."""
    build = GraphBuilder()
    lanes = {rank: build.lane(rank) for rank in sorted({r for _, ranks, _ in work for r in ranks})}
    for number, (op, ranks, size) in enumerate(work):
        group = build.group(f"g{number}", ranks)
        for rank in ranks:
            build.collective(lanes[rank], group, op, size, stream=f"s{number}")
    graph = build.build()
    timeline = simulate(graph, cluster, library=library, network=network)
    pointers, ops = graph.members()
    return [int(timeline.end[ops[a:b]].max()) for a, b in zip(pointers, pointers[1:], strict=False)]


def main() -> None:
    """Print the table."""
    parse = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parse.add_argument("--cases", type=int, default=60, help="cases per row")
    parse.add_argument("--seed", type=int, default=0)
    asked = parse.parse_args()
    print("| library | fabric | sizes | what | number | 5 % | median | 95 % | worst |")
    print("|---|---|---|---|---|---|---|---|---|")
    for library in LIBRARIES:
        for fabric in FABRICS:
            for equal in (True, False):
                each, whole = ratios(library, fabric, asked.cases, asked.seed, equal=equal)
                head = f"| {library} | {fabric} | {'equal' if equal else 'mixed'} |"
                print(f"{head} each collective | {_row(each)}")
                print(f"{head} the last to end | {_row(whole)}", flush=True)


def ratios(
    library: str, fabric: str, cases: int, seed: int, *, equal: bool
) -> tuple[list[float], list[float]]:
    """Return fluid / steps of every collective's end, and of every case's last end."""
    rng = np.random.default_rng(seed)
    cluster = Cluster.preset("dgx-a100", nodes=2, fabric=FABRICS[fabric])
    each: list[float] = []
    whole: list[float] = []
    for _ in range(cases):
        op = str(rng.choice(["all_reduce", "all_gather", "reduce_scatter"]))
        work = jobs(rng, 2, 8, "all_reduce" if "tree" in library else op, equal=equal)
        fluid = ends(cluster, work, LIBRARIES[library](), "fluid")
        steps = ends(cluster, work, LIBRARIES[library](), "steps")
        each += [a / b for a, b in zip(fluid, steps, strict=True)]
        whole.append(max(fluid) / max(steps))
    return each, whole


def _row(values: list[float]) -> str:
    low, middle, high = np.percentile(values, [5, 50, 95])
    worst = max(values, key=lambda ratio: abs(np.log(ratio)))
    return f"{len(values)} | {low:.2f} | {middle:.2f} | {high:.2f} | {worst:.2f} |"


if __name__ == "__main__":
    main()
