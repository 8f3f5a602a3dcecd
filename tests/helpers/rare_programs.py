"""
Random programs with what few call: batches of messages, calls that are joined, objects, copies and
compute on streams of their own, synchronising, a group of Gloo beside NCCL.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from helpers.random_scenarios import draw_program, draw_size, to_host_memory

__all__ = ["rare_program"]

Data = dict[str, Any]
Calls = dict[int, list[Any]]


def rare_program(rng: random.Random, world: int, *, library: str) -> Data:
    """Return a random program whose end has rare calls of one of its groups, in one order."""
    program = draw_program(rng, world)
    groups: Data = program["groups"]
    calls: Calls = {rank: program["ranks"].get(rank, []) for rank in range(world)}
    name = rng.choice(sorted(groups))
    for _ in range(rng.randint(1, 4)):
        rng.choices(RARE, (3, 2, 2, 2, 2))[0](rng, calls, groups, name)
    if rng.random() < 0.25:
        _gloo_beside(calls, groups, name)
    program["ranks"] = {rank: own for rank, own in calls.items() if own}
    if library == "gloo":
        to_host_memory(program)
        for own in program["ranks"].values():
            for call in own:
                if "batch_isend_irecv" in call:
                    _batch_to_host_memory(call["batch_isend_irecv"])
    return program


def _halo(rng: random.Random, calls: Calls, groups: Data, name: str) -> None:
    """Each rank sends to the next and receives from the one before it, in one batch."""
    ranks, size = groups[name], f"{draw_size(rng)}B"
    if len(ranks) < 2:
        return
    for before, rank, behind in zip(
        (ranks[-1], *ranks), ranks, (*ranks[1:], ranks[0]), strict=False
    ):
        ops = [
            {"isend": {"to": behind, "bytes": size}},
            {"irecv": {"from": before, "bytes": size}},
        ]
        calls[rank].append({"batch_isend_irecv": {"ops": ops, "as": "halo"}})
        if rng.random() < 0.7:
            calls[rank].append({"compute": f"{rng.randint(1, 900)}us"})
        calls[rank].append({"wait": "halo"})


def _coalesced(rng: random.Random, calls: Calls, groups: Data, name: str) -> None:
    ranks = groups[name]
    op = rng.choice(("all_reduce", "all_gather", "reduce_scatter"))
    both = [{op: {"bytes": f"{draw_size(rng, 4 * len(ranks))}B", "group": name}} for _ in range(2)]
    for rank in ranks:
        calls[rank] += [{"coalesced": {"calls": both, "as": "joined"}}, {"wait": "joined"}]


def _objects(rng: random.Random, calls: Calls, groups: Data, name: str) -> None:
    size = f"{rng.randint(1, 4000)}B"
    for rank in groups[name]:
        calls[rank].append({"all_gather_object": {"bytes": size, "group": name}})


def _beside(rng: random.Random, calls: Calls, groups: Data, name: str) -> None:
    """Compute and copy on streams of their own, beside more compute."""
    for rank in groups[name]:
        copy = {"bytes": f"{draw_size(rng)}B", "stream": "d2h", "as": "offload"}
        calls[rank] += [
            {"compute": {"duration": f"{rng.randint(1, 3000)}us", "stream": "side"}},
            {"copy_to_host": copy},
            {"compute": f"{rng.randint(1, 900)}us"},
            {"wait": "offload"},
        ]


def _synchronize(rng: random.Random, calls: Calls, groups: Data, name: str) -> None:
    for rank in groups[name]:
        calls[rank].append("synchronize")


RARE: tuple[Callable[[random.Random, Calls, Data, str], None], ...] = (
    _halo, _coalesced, _objects, _beside, _synchronize,
)  # fmt: skip


def _gloo_beside(calls: Calls, groups: Data, name: str) -> None:
    """The ranks of a group add up host memory, by Gloo."""
    groups["cpu"] = {"ranks": groups[name], "backend": "gloo"}
    for rank in groups[name]:
        calls[rank].append({"all_reduce": {"bytes": "40kB", "group": "cpu", "device": "cpu"}})


def _batch_to_host_memory(batch: Data) -> None:
    for op in batch["ops"]:
        for message in op.values():
            message["device"] = "cpu"
