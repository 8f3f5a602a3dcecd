"""
Random scenarios of what `helpers.random_scenarios` leaves out, each setting as often as any other.

`rare_scenario(seed)` is plain data, the same on every machine. What goes with what is known as far
as a simple rule tells it; a cluster or library may still refuse what is asked of it.
"""

from __future__ import annotations

import random
from typing import Any

from helpers.random_scenarios import QUICK, draw_collectives
from helpers.rare_clusters import RareCluster, rare_cluster
from helpers.rare_libraries import rare_library
from helpers.rare_programs import rare_program
from helpers.rare_trainings import rare_training

__all__ = ["rare_scenario"]

Data = dict[str, Any]


def rare_scenario(seed: int, *, most: int = 16) -> Data:
    """Return the rare scenario of a seed, on up to `most` GPUs or two nodes."""
    rng = random.Random(f"rare {seed}")
    cluster, library = rare_cluster(rng, most), rare_library(rng)
    engine = _engine(rng)
    data: Data = {"cluster": cluster.data, "library": library, "engine": engine}
    kind = rng.choices(("collectives", "program", "training", "jobs"), (5, 3, 5, 1))[0]
    if kind == "jobs":
        return data | {"jobs": _jobs(rng, cluster, library["name"])}
    if kind == "training" and cluster.world > QUICK // 2:
        engine["network"] = "fluid"  # message by message it takes seconds
    data["workload"] = {kind: _work(rng, kind, cluster.world, cluster, library["name"])}
    if rng.random() < 0.25 and engine["network"] == "fluid":
        data["faults"] = _faults(rng, cluster)
        engine["overlap_slowdown"] = True  # needed by GPUs that are slow for a while
    return data


def _engine(rng: random.Random) -> Data:
    made: Data = {
        "network": "steps" if rng.random() < 0.4 else "fluid",
        "overlap_slowdown": rng.random() < 0.7,
    }
    if rng.random() < 0.2:
        made["fold"] = "off"
    if rng.random() < 0.2 and made["network"] == "fluid":
        made["executor"] = "simpy"
    return made


def _work(rng: random.Random, kind: str, world: int, cluster: RareCluster, library: str) -> Any:
    if kind == "program":
        return rare_program(rng, world, library=library)
    if kind == "training":
        return rare_training(rng, world, cluster.precisions)
    calls = draw_collectives(rng, world)
    if library == "gloo" and rng.random() < 0.4:
        for call in calls:
            call["device"] = "cpu"
    return calls


def _jobs(rng: random.Random, cluster: RareCluster, library: str) -> list[Data]:
    """Return two jobs of any work, on nodes of their own or each on half of the ranks."""
    jobs: list[Data] = []
    placement = rng.choice(("packed", "spread", "random"))
    by_rank = cluster.mixed or cluster.nodes == 1 or rng.random() < 0.3
    of = cluster.world if by_rank else cluster.nodes
    ranks = rng.sample(range(cluster.world), cluster.world)
    for name, parts in (("first", range(of // 2)), ("second", range(of // 2, of))):
        if not parts:
            continue
        if by_rank:
            where: Data = {"ranks": sorted(ranks[parts.start : parts.stop])}
            world = len(parts)
        else:
            where = {"nodes": len(parts), "placement": placement}
            world = len(parts) * (cluster.world // cluster.nodes)
        kind = rng.choice(("collectives", "program", "training"))
        work = {kind: _work(rng, kind, world, cluster, library)}
        times: Data = {"start": rng.choice(("0us", "300us")), "repeat": rng.randint(1, 3)}
        jobs.append({"name": name, "workload": work} | where | times)
    return jobs


def _faults(rng: random.Random, cluster: RareCluster) -> Data:
    found: Data = {}
    if rng.random() < 0.4:
        slow_gpus: tuple[Data, ...] = (
            {"count": 1, "factor": 2},
            {"share": 0.4, "factor": 3},
            {"rank": rng.randrange(cluster.world), "factor": 5, "start": "10us", "end": "900us"},
        )
        found["slow_gpus"] = [rng.choice(slow_gpus)]
    if rng.random() < 0.5:
        slow_links: tuple[Data, ...] = (
            {"link": "node0/gpu0", "left": 0.4},
            {"link": "node0/nic0", "left": 0.3},
            {"count": 1, "left": 0, "down": "20us", "every": "100us", "end": "5ms"},
            {"share": 0.5, "left": 0.2, "start": "30us", "end": "400us"},
        )
        found["slow_links"] = [rng.choice(slow_links[: 4 if cluster.nodes > 1 else 2])]
    if rng.random() < 0.25:
        found["dead_nics"] = [rng.choice(({"count": 1}, {"node": 0, "nic": 0}))]
    if rng.random() < 0.3 or not found:
        how = rng.choice(("exponential", "lognormal", "normal"))
        found["jitter"] = [{"spread": 0.2, "distribution": how}]
    return found | {"samples": rng.randint(1, 2), "seed": rng.randint(0, 99)}
