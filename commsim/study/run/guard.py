"""
A guard over predictions: no collective may take less than the links of the cluster need.

What a library plans is compared with the proven bound of the op. A plan below it is a defect of the
library's model; its time is kept, and a note says loudly which link it leaves out.
"""

from __future__ import annotations

from msgspec.structs import replace

from commsim.cluster import Cluster
from commsim.collectives import is_switched
from commsim.engine import Planner
from commsim.graph import Graph
from commsim.libraries import Library, Plan, Recorded, Request, library_of
from commsim.libraries.nccl import Algorithm
from commsim.metrics import Bound, bound, slowest
from commsim.units import PS_PER_SECOND, format_size, format_time

__all__ = ["in_network", "too_fast", "too_fast_plans"]

_ROUNDING = 1e-9  # of a time, as plans count whole picoseconds
_MOST_REQUESTS = 32  # different collectives of a run that are compared: the largest ones
_IN_NETWORK = frozenset(each.name for each in Algorithm if each.in_network)


def in_network(algorithm: str) -> bool:
    """Say whether switches add up or multicast for an algorithm ("NVLS Simple", "sharp")."""
    name = algorithm.partition(" ")[0]
    return name in _IN_NETWORK or is_switched(name)


def too_fast_plans(graph: Graph, cluster: Cluster, library: Library) -> tuple[str, ...]:
    """Return a note for each collective of a graph that is planned below its bound."""
    planner = Planner(graph, cluster, library)
    notes: dict[str, None] = {}
    known: dict[tuple[object, ...], tuple[int, float, float]] = {}
    for row in _largest(graph):
        if isinstance(library_of(library, _library_name(graph, row)), Recorded):
            continue
        request = planner.collective_request(row)
        if len(request.ranks) < 2 or request.recorded >= 0:
            continue
        plan = planner.collective(row)
        if _plainly_above(request, plan, cluster, known):
            continue
        found = _bound(request, plan, cluster)
        note = too_fast(request.kind, request.size, request.ranks, plan.idle, found, cluster)
        notes.update(dict.fromkeys(note))
    return tuple(notes)


def too_fast(
    op: str, size: int, ranks: tuple[int, ...], picoseconds: int, least: Bound, cluster: Cluster
) -> list[str]:
    """Return a note if a time is below its bound, which names the link; else nothing."""
    needed = least.seconds * PS_PER_SECOND
    if picoseconds >= needed * (1 - _ROUNDING) - 1:
        return []
    link = slowest(cluster, ranks, least)
    over = f", over {link}" if link else ""
    return [
        f"TOO FAST, do not trust: {op} of {format_size(size)} among {len(ranks)} ranks is predicted"
        f" to take {format_time(picoseconds)}, and {least.cut} alone needs"
        f" {format_time(needed)}{over}. Please report this."
    ]


def _plainly_above(
    request: Request,
    plan: Plan,
    cluster: Cluster,
    known: dict[tuple[object, ...], tuple[int, float, float]],
) -> bool:
    """Say whether a plan is above what larger ones of its kind need, by their bytes and latency.

    A bound is the largest of many straight lines over the size, so that it lies below the one
    through its values at 0 and at a larger size.
    """
    if request.splits is not None:
        return False
    switched = in_network(plan.algorithm)
    key = (request.kind, request.ranks, request.root, switched, bool(plan.copies_in))
    if key not in known:
        large, least = (
            _bound(replace(request, size=size), plan, cluster).seconds * PS_PER_SECOND
            for size in (request.size, 0)
        )
        known[key] = (request.size, large, least)
    size, large, least = known[key]
    if not 0 < request.size <= size:
        return False
    part = request.size / size
    return plan.idle >= part * large + (1 - part) * least


def _bound(request: Request, plan: Plan, cluster: Cluster) -> Bound:
    return bound(
        cluster,
        request.kind,
        request.size,
        request.ranks,
        in_network=in_network(plan.algorithm),
        root=max(request.root, 0),
        splits=request.splits,
        on_host=request.on_host or bool(plan.copies_in),
        every_set=False,
    )


def _largest(graph: Graph) -> list[int]:
    """Return a row for each different collective, the largest ones first, up to a number."""
    table = graph.collectives
    ranks = [len(group.ranks) for group in graph.groups]
    groups = table.group.tolist()
    names = (graph.groups[group].library for group in groups)
    keys = zip(
        table.kind, [ranks[g] for g in groups], table.size.tolist(), table.dtype, names, strict=True
    )
    first: dict[tuple[object, ...], int] = {}
    for row, key in enumerate(keys):
        first.setdefault(key, row)
    rows = sorted(first.values(), key=lambda row: -int(table.size[row]))
    half = _MOST_REQUESTS // 2  # large ones are bounded by bytes, small ones by latency
    return rows if len(rows) <= _MOST_REQUESTS else [*rows[:half], *rows[-half:]]


def _library_name(graph: Graph, row: int) -> str:
    return graph.groups[int(graph.collectives.group[row])].library
