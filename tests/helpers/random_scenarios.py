"""
Random scenarios that are valid: any preset, fabric, library, layout, schedule, program, fault.

`scenario(seed)` is plain data; the same seed gives the same scenario on every machine. What is
drawn is small (a few nodes, a few collectives, two thin layers), so that thousands can be run.
"""

from __future__ import annotations

import random
from functools import cache
from typing import Any

from commsim.cluster import Cluster
from commsim.scenario import presets

__all__ = ["scenario"]

PRESETS = sorted(presets("clusters"))
FABRICS = ("single_switch", "rail_optimized", "rail_only", "fat_tree")
COLLECTIVES = (
    "all_reduce", "all_gather", "reduce_scatter", "all_to_all", "barrier", "broadcast", "reduce",
    "scatter", "gather",
)  # fmt: skip
ROOTED = ("broadcast", "reduce", "scatter", "gather")
IDEAL = ("ring", "tree", "double_tree", "recursive_doubling", "direct")
SCHEDULES = ("gpipe", "1f1b", "interleaved_1f1b", "zb_h1", "zb_h2", "zb_v", "dualpipe", "dualpipev")
NO_NIC = ("pcie-rtx2080ti", "pcie-rtx5090")  # presets of one node
QUICK = 8  # up to so many GPUs trainings do not run message by message, which takes seconds

Data = dict[str, Any]


def scenario(seed: int, *, most: int = 16) -> Data:
    """Return the scenario of a seed as the plain data of a file: a node, or up to `most` GPUs."""
    rng = random.Random(seed)
    kind = rng.choices(("collectives", "program", "pipeline", "training", "jobs"), (5, 4, 2, 5, 1))[
        0
    ]
    if kind == "pipeline":
        return {"workload": {"pipeline": _pipeline(rng)}}
    cluster, world = _cluster(rng, most, several=kind == "jobs")
    data: Data = {"cluster": cluster, "library": _library(rng), "engine": _engine(rng)}
    if kind == "jobs":
        return data | {"jobs": _jobs(rng, cluster["nodes"], world)}
    work = {"collectives": draw_collectives, "program": draw_program, "training": _training}[kind]
    if kind == "program" and data["library"]["name"] == "auto":
        data["library"] = {"name": "nccl"}  # auto may be Gloo, which sends host memory only
    if kind == "training" and most <= QUICK:
        data["engine"]["network"] = "fluid"
    data["workload"] = {kind: work(rng, world)}
    if kind == "program" and data["library"]["name"] == "gloo":
        to_host_memory(data["workload"]["program"])
    if rng.random() < 0.15 and data["engine"]["network"] == "fluid":
        data["faults"] = _faults(rng, cluster["nodes"], world)
    return data


@cache
def gpus_per_node(preset: str) -> int:
    """Return the GPUs of a node of a preset."""
    return Cluster.preset(preset).world_size


def _cluster(rng: random.Random, most_gpus: int, *, several: bool) -> tuple[Data, int]:
    name = rng.choice([one for one in PRESETS if not several or one not in NO_NIC])
    per_node = gpus_per_node(name)
    most = 1 if name in NO_NIC and not several else max(1, most_gpus // per_node)
    nodes = rng.randint(2, max(2, min(most, 6))) if several else rng.randint(1, min(most, 6))
    data: Data = {"preset": name, "nodes": nodes}
    if nodes > 1 and rng.random() < 0.5:
        kind = rng.choice(FABRICS)
        fabric: Data = {"kind": kind}
        if kind in ("rail_optimized", "fat_tree"):
            fabric["oversubscription"] = rng.choice((1, 2, 4, 7.5))
            fabric["nodes_per_leaf"] = rng.randint(1, nodes)
            if rng.random() < 0.3:
                fabric |= {"ecmp": "hash", "seed": rng.randint(0, 99)}
        data["fabric"] = fabric
    if rng.random() < 0.2:
        what = rng.choice(("nic", "nvlink", "pcie", "compute", "network_latency"))
        data["scale"] = {what: rng.choice((0.1, 0.5, 3, 10))}
    return data, per_node * nodes


def _library(rng: random.Random) -> Data:
    name = rng.choice(("auto", "nccl", "nccl", "gloo", "ideal", "ideal"))
    if name == "nccl" and rng.random() < 0.5:
        return {"name": name, "version": rng.choice(("2.8.4", "2.14.3", "2.18.3", "2.23.4"))}
    if name == "ideal" and rng.random() < 0.4:
        return {"name": name, "channels": rng.randint(1, 4)}
    return {"name": name}


def _engine(rng: random.Random) -> Data:
    network = "steps" if rng.random() < 0.4 else "fluid"
    return {"network": network, "overlap_slowdown": rng.random() < 0.7}


def draw_size(rng: random.Random, of: int = 4) -> int:
    """Return a number of bytes from 0 to 16 MiB, of any magnitude, a multiple of `of`."""
    if rng.random() < 0.03:
        return 0
    return of * rng.randint(1, max(1, 2 ** rng.randint(1, 24) // of))


def draw_group(rng: random.Random, world: int) -> list[int]:
    """Return two ranks or more, mostly in order; the one of a world of one."""
    few = rng.randint(1 if world == 1 else 2, world)
    group = rng.sample(range(world), few)
    return sorted(group) if rng.random() < 0.8 else group


def draw_collectives(rng: random.Random, world: int) -> list[Data]:
    """Return one to four collectives of some or all ranks, as a workload lists them."""
    made = []
    for _ in range(rng.randint(1, 4)):
        op = rng.choice((*COLLECTIVES, "all_to_all_v"))
        group = None if rng.random() < 0.4 else draw_group(rng, world)
        ranks = list(range(world)) if group is None else group
        call: Data = {"op": op}
        if group is not None:
            call["group"] = group
        if op == "all_to_all_v":
            call["splits"] = [[f"{draw_size(rng) // len(ranks)}B" for _ in ranks] for _ in ranks]
        elif op != "barrier":
            call["bytes"] = f"{draw_size(rng, 4 * len(ranks))}B"
        if op in ROOTED:
            call["root"] = rng.choice(ranks)
        made.append(call)
    return made


def draw_program(rng: random.Random, world: int) -> Data:
    """Return calls that all ranks issue in one order, so that nothing deadlocks."""
    groups = {f"g{n}": draw_group(rng, world) for n in range(rng.randint(1, 3))}
    calls: dict[int, list[Any]] = {rank: [] for rank in range(world)}
    pending: dict[int, list[str]] = {rank: [] for rank in range(world)}
    for number in range(rng.randint(1, 8)):
        draw = rng.random()
        if draw < 0.3 and world > 1:
            source, target = rng.sample(range(world), 2)
            size, later = f"{draw_size(rng)}B", rng.random() < 0.5
            send, recv = {"to": target, "bytes": size}, {"from": source, "bytes": size}
            if later:
                send["as"] = recv["as"] = f"h{number}"
                pending[source].append(f"h{number}")
                pending[target].append(f"h{number}")
            calls[source].append({"isend" if later else "send": send})
            calls[target].append({"irecv" if later else "recv": recv})
        elif draw < 0.5:
            for rank in calls:
                calls[rank].append({"compute": f"{rng.randint(0, 3000)}us"})
        elif draw < 0.6:
            where = rng.choice(("copy_to_host", "copy_from_host"))
            calls[rng.randrange(world)].append({where: f"{draw_size(rng)}B"})
        else:
            name = rng.choice(list(groups))
            op = rng.choice(COLLECTIVES[:6])
            settings: Data = {"group": name}
            if op != "barrier":
                settings["bytes"] = f"{draw_size(rng, 4 * len(groups[name]))}B"
            if op == "broadcast":
                settings["root"] = rng.choice(groups[name])
            later = rng.random() < 0.4
            for rank in groups[name]:
                mine = dict(settings)
                if later:
                    mine["as"] = f"h{number}"
                    pending[rank].append(f"h{number}")
                calls[rank].append({op: mine})
    for rank, names in pending.items():
        calls[rank] += [{"wait": name} for name in names]
    return {"groups": groups, "ranks": {rank: own for rank, own in calls.items() if own}}


def to_host_memory(program: Data) -> None:
    """Let all sends and receives of a program be of host memory, which Gloo asks for."""
    for calls in program["ranks"].values():
        for call in calls:
            for word in ("send", "recv", "isend", "irecv"):
                if word in call:
                    call[word]["device"] = "cpu"


def _pipeline(rng: random.Random) -> Data:
    schedule = rng.choice(SCHEDULES)
    stages = rng.randint(1, 4) * 2
    virtual = 2 if schedule in ("zb_v", "dualpipev") else 1
    if schedule == "interleaved_1f1b":
        virtual = rng.randint(2, 3)
    times: Data = {
        "stages": stages,
        "microbatches": 2 * stages * rng.randint(1, 2),
        "schedule": schedule,
        "forward": f"{rng.randint(1, 3000)}us",
        "backward": f"{rng.randint(1, 3000)}us",
        "weight": f"{rng.randint(1, 3000)}us",
        "p2p": f"{rng.randint(0, 500)}us",
    }
    return times | ({"virtual_stages": virtual} if virtual > 1 else {})


def _training(rng: random.Random, world: int) -> Data:
    degrees = draw_degrees(rng, world)
    kind = rng.choice(("ddp", "zero", "fsdp", "hsdp"))
    data: Data = {"kind": kind}
    replicas = degrees["dp"] * degrees["cp"]
    if kind == "zero":
        data["stage"] = rng.choice((1, 2, 3))
    if kind == "hsdp":
        data["shard"] = rng.choice([n for n in range(1, replicas + 1) if replicas % n == 0])
    pipelined = degrees["pp"] > 1
    micro = rng.randint(1, 2)
    many = degrees["pp"] * rng.randint(1, 2) if pipelined else rng.randint(1, 2)
    parallel: Data = {axis: degree for axis, degree in degrees.items() if degree > 1}
    if pipelined:
        parallel["schedule"] = rng.choice(("gpipe", "1f1b", "zb_h1"))
    if degrees["tp"] > 1 and rng.random() < 0.5:
        parallel["sequence_parallel"] = True
    if rng.random() < 0.3:
        order = ["tp", "cp", "dp", "pp"]
        rng.shuffle(order)
        parallel["order"] = order
    return {
        "model": {
            "layers": max(2, degrees["pp"] * rng.randint(1, 2)),
            "hidden": 64 * degrees["tp"] * degrees["cp"] * rng.randint(1, 8),
            "heads": 4 * degrees["tp"] * degrees["cp"],
            "vocab": 1024 * degrees["tp"],
            "seq_len": 128 * degrees["cp"] * degrees["tp"],
        },
        "batch": {"global": degrees["dp"] * micro * many, "micro": micro},
        "parallel": parallel,
        "data_parallel": data,
        "recompute": rng.choice(("none", "selective", "full")),
        "precision": "fp16",  # every GPU has it
        "compute": {"efficiency": 0.4},
    }


def draw_degrees(rng: random.Random, world: int) -> dict[str, int]:
    """Return degrees of dp, tp, pp and cp whose product is `world`."""
    left, degrees = world, dict.fromkeys(("dp", "tp", "pp", "cp"), 1)
    factor = 2
    while left > 1:
        if left % factor:
            factor += 1
            continue
        degrees[rng.choices(("dp", "tp", "pp", "cp"), (4, 2, 2, 1))[0]] *= factor
        left //= factor
    return degrees


def _faults(rng: random.Random, nodes: int, world: int) -> Data:
    found: Data = {"samples": rng.randint(1, 2), "seed": rng.randint(0, 99)}
    draw = rng.random()
    if draw < 0.4:
        found["slow_gpus"] = [{"rank": rng.randrange(world), "factor": rng.choice((1.3, 4))}]
    elif draw < 0.7 and nodes > 1:
        found["slow_links"] = [{"share": 0.3, "left": rng.choice((0.1, 0.5))}]
    else:
        found["jitter"] = [{"spread": rng.choice((0.01, 0.2))}]
    return found


def _jobs(rng: random.Random, nodes: int, world: int) -> list[Data]:
    each, per_node = nodes // 2, world // nodes
    placement = rng.choice(("packed", "spread", "random"))
    return [
        {
            "name": name,
            "nodes": each,
            "placement": placement,
            "workload": {"collectives": draw_collectives(rng, each * per_node)},
            "repeat": rng.randint(1, 2),
        }
        for name in ("first", "second")
    ]
