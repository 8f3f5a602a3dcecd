"""
One collective alone on an idle cluster: what it takes as a flow and message by message.

`case(seed)` draws any preset, group, op, size, root and library; `LIMITS` is what is promised for
`steps / fluid`, in docs/background/fluid-and-steps.md too.
"""

from __future__ import annotations

import random
from collections import Counter
from typing import Any, NamedTuple

import commsim as cs
from helpers.random_scenarios import COLLECTIVES, NO_NIC, PRESETS, ROOTED, gpus_per_node

__all__ = ["LIMITS", "Case", "case", "kind_of", "ratio"]

MOST = 32  # GPUs
LARGEST_OF_IDEAL = 1 << 24  # bytes: beyond, a chain has tens of thousands of pieces
ALGORITHMS = (None, "ring", "tree", "double_tree", "recursive_doubling", "halving_doubling")
NEARLY = 1e-6  # rounding

LIMITS = {
    "gloo": (0.96, 1.03),
    "nccl, equally many ranks on each node": (0.98, 1.12),
    "nccl, uneven groups": (0.8, 1.2),
    "ideal, one channel": (1 - NEARLY, 1 + NEARLY),
    "ideal, channels": (0.85, 1.6),
    "ideal, all_to_all": (1 - NEARLY, 1.35),
}
"""Of each kind of library, the least and the most that messages take for what the flow takes."""


class Case(NamedTuple):
    """A cluster, a library and a call, as plain data of a scenario."""

    cluster: dict[str, Any]
    library: dict[str, Any]
    call: dict[str, Any]


def case(seed: int) -> Case:
    """Return the case of a seed."""
    rng = random.Random(f"idle {seed}")
    preset = rng.choice(PRESETS)
    each = gpus_per_node(preset)
    nodes = 1 if preset in NO_NIC else rng.randint(1, max(1, min(4, MOST // each)))
    name = rng.choice(("nccl", "ideal", "gloo"))
    library: dict[str, Any] = {"name": name}
    if name == "ideal" and (algorithm := rng.choice(ALGORITHMS)):
        library["algo"] = algorithm
    op = rng.choice([one for one in COLLECTIVES if one != "barrier"])
    world = each * nodes
    group = sorted(rng.sample(range(world), rng.randint(2, world))) if world > 1 else [0]
    if rng.random() < 0.6:
        group = list(range(world))
    large = LARGEST_OF_IDEAL if name == "ideal" else 1 << 28
    size = 4 * len(group) * max(1, round(2 ** rng.uniform(10, large.bit_length() - 1)) // 128)
    call: dict[str, Any] = {"op": op, "bytes": f"{size}B", "group": group}
    if op in ROOTED:
        call["root"] = rng.choice(group)
    return Case({"preset": preset, "nodes": nodes}, library, call)


def ratio(of: Case) -> tuple[float, str]:
    """Return steps / fluid of a case, and the kind in `LIMITS` that it belongs to.

    Raises:
        ScenarioError: the draw cannot run: NICs that meet nowhere.
    """
    fluid, steps = (_run(of, network) for network in ("fluid", "steps"))
    took, flow = (int(run.timeline.end.max()) for run in (steps, fluid))
    return took / flow if flow else 1.0, kind_of(of, fluid)


def kind_of(of: Case, run: cs.Result) -> str:
    """Return the kind of library and op that limits are given for."""
    name: str = of.library["name"]
    if name == "nccl":
        nodes = Counter(rank // gpus_per_node(of.cluster["preset"]) for rank in of.call["group"])
        even = len(set(nodes.values())) == 1
        return "nccl, equally many ranks on each node" if even else "nccl, uneven groups"
    if name == "gloo":
        return name
    if of.call["op"] == "all_to_all":
        return "ideal, all_to_all"
    several = any("channels" in choice for choice in run.timeline.choices.values())
    return "ideal, channels" if several else "ideal, one channel"


def _run(of: Case, network: str) -> cs.Result:
    return cs.run(
        {
            "cluster": of.cluster,
            "library": of.library,
            "engine": {"network": network},
            "workload": {"collectives": [of.call]},
        }
    )
