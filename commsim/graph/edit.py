"""
Edits of a graph for what-ifs: faster compute, more work at one place. Each returns a new graph.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt
from msgspec.structs import replace

from commsim.arrays import Ints
from commsim.errors import ScenarioError
from commsim.graph.table import Device, Graph, OpKind, op_columns
from commsim.limits import too_long
from commsim.units import MOST_PICOSECONDS

__all__ = ["add_work", "insert_work", "replace_rank", "scale_compute", "slowest_rank"]


def scale_compute(graph: Graph, factor: float) -> Graph:
    """Return `graph` with the duration (and FLOPs and traffic) of all compute times `factor`.

    CPU and GPU work; copies, communication and the latencies of launches stay.

    Raises:
        ScenarioError: `factor` is not a positive number, or makes work too long for the clock.
    """
    if not 0 < factor < math.inf:
        raise ScenarioError(f"compute.scale: {factor} is not a positive number.")
    most = max(graph.flops.max(initial=0.0), graph.traffic.max(initial=0.0))
    longest = float(graph.duration.max(initial=1))
    if longest * factor > MOST_PICOSECONDS or float(most) * factor == math.inf:
        raise too_long(f"compute.scale: work times {factor:g}", "Give a smaller factor.")
    compute = graph.kind == OpKind.COMPUTE
    timed, counted = compute & (graph.duration >= 0), compute & (graph.flops >= 0)
    duration = graph.duration.copy()
    duration[timed] = np.rint(graph.duration[timed] * factor).astype(np.int64)
    return replace(
        graph,
        duration=duration,
        flops=np.where(counted, graph.flops * factor, graph.flops),
        traffic=np.where(compute & (graph.traffic >= 0), graph.traffic * factor, graph.traffic),
    )


def slowest_rank(graph: Graph) -> int:
    """Return the rank whose GPU computes longest (whose CPU, if no GPU does).

    Raises:
        ScenarioError: nothing computes, or there is one rank.
    """
    spent = _compute_time(graph)
    if len(spent) < 2 or not spent.any():
        raise ScenarioError("replace.rank: there are no two ranks whose compute could be compared.")
    return int(graph.lane_rank[int(np.argmax(spent))])


def replace_rank(graph: Graph, rank: int) -> tuple[Graph, float]:
    """Return `graph` with one rank's compute as long as that of the others, and the factor.

    Each of its compute ops shrinks (or grows) by the median of the other ranks' whole compute over
    its own.

    Raises:
        ScenarioError: no such rank, or nothing to compare it with.
    """
    lanes = np.flatnonzero(graph.lane_rank == rank)
    spent = _compute_time(graph)
    others = spent[(graph.lane_rank != rank) & (spent > 0)]
    if not lanes.size or not others.size or not spent[lanes[0]]:
        raise ScenarioError(
            f"replace.rank: rank {rank} has no compute, or there is none beside it to be like."
        )
    factor = float(np.median(others)) / float(spent[lanes[0]])
    mine = (graph.kind == OpKind.COMPUTE) & (graph.duration >= 0) & (graph.lane == lanes[0])
    if _on_gpus(graph).any():
        mine &= graph.device == Device.CUDA
    duration = graph.duration.copy()
    duration[mine] = np.rint(graph.duration[mine] * factor).astype(np.int64)
    return replace(graph, duration=duration), factor


def _on_gpus(graph: Graph) -> npt.NDArray[np.bool_]:
    on_gpu: npt.NDArray[np.bool_] = (graph.kind == OpKind.COMPUTE) & (graph.device == Device.CUDA)
    return on_gpu & (graph.duration > 0)


def _compute_time(graph: Graph) -> Ints:
    """Return the compute of each lane in ps: its GPU's, if GPUs compute at all."""
    ops = _on_gpus(graph)
    if not ops.any():
        ops = (graph.kind == OpKind.COMPUTE) & (graph.duration > 0)
    spent = np.bincount(
        graph.lane[ops], weights=graph.duration[ops], minlength=len(graph.lane_rank)
    )
    return spent.astype(np.int64)


def add_work(graph: Graph, *, rank: int, before_collective: int, duration: int) -> Graph:
    """Return `graph` with `duration` ps of work on `rank`, ahead of one of its collectives.

    `before_collective` counts that rank's collectives from 0 in the order it issues them. The
    work goes where the rank decides when the collective may run: before the CPU work that
    launches it, else before the work it depends on, else before the collective itself.

    Raises:
        ScenarioError: no such rank, or it has no such collective.
    """
    mine = graph.lane_rank[graph.lane] == rank
    ops = np.flatnonzero(mine & (graph.kind == OpKind.COLLECTIVE))
    if not 0 <= before_collective < len(ops):
        raise ScenarioError(
            f"rank {rank} has {len(ops)} collectives; there is none before which number"
            f" {before_collective} (from 0) could stand."
        )
    return insert_work(graph, _origin(graph, int(ops[before_collective])), duration)


def _origin(graph: Graph, op: int) -> int:
    """Return the op that `op` was issued by: a CPU op it depends on, else any compute."""
    causes = graph.dep_op[graph.dep_ptr[op] : graph.dep_ptr[op + 1]]
    causes = causes[graph.lane[causes] == graph.lane[op]]
    compute = causes[graph.kind[causes] == OpKind.COMPUTE]
    on_cpu = compute[graph.device[compute] == Device.CPU]
    chosen = on_cpu if on_cpu.size else compute
    return int(chosen[-1]) if chosen.size else op


def insert_work(graph: Graph, before: int, duration: int, *, name: str = "added work") -> Graph:
    """Return `graph` with a compute op of `duration` ps right before op `before`.

    It runs on the same stream, and waits for what `before` waits for. Ids from `before` on
    move up by one.

    Raises:
        ScenarioError: `duration` is negative.
    """
    if duration < 0:
        raise ScenarioError(f"{name}: a duration must not be negative ({duration} ps).")
    names = graph.names if name in graph.names else (*graph.names, name)
    fresh: dict[str, Any] = {
        "kind": int(OpKind.COMPUTE), "duration": duration, "flops": -1.0, "traffic": -1.0,
        "size": -1, "item": -1, "name": names.index(name), "alloc": 0, "free": 0, "batch": -1,
    }  # fmt: skip
    columns: dict[str, Any] = {}
    for column in op_columns():
        values = getattr(graph, column)
        columns[column] = np.insert(values, before, fresh.get(column, values[before]))
    if graph.kind[before] != OpKind.COMPUTE:
        columns["device"][before] = Device.CUDA
    first, last = graph.dep_ptr[before], graph.dep_ptr[before + 1]
    counts = np.insert(np.diff(graph.dep_ptr), before, last - first)
    again = slice(int(first), int(last))
    return replace(
        graph,
        **columns,
        dep_ptr=np.concatenate(([0], np.cumsum(counts))).astype(np.int64),
        dep_op=_moved(np.insert(graph.dep_op, first, graph.dep_op[again]), before),
        dep_delay=np.insert(graph.dep_delay, first, graph.dep_delay[again]),
        window=_moved(graph.window, before),
        messages=replace(
            graph.messages,
            send_op=_moved(graph.messages.send_op, before),
            recv_op=_moved(graph.messages.recv_op, before),
        ),
        names=names,
    )


def _moved(ops: Ints, place: int) -> Ints:
    return np.where(ops >= place, ops + 1, ops)
