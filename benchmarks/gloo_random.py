"""
Random programs on torch.distributed: groups, async calls, messages, sleeps and host work by seed.

`actions(seed, world)` is what every rank does, decided without torch; `step_of` runs one rank's.
All ranks issue what they share in one order, so that no program deadlocks.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from typing import Any, NamedTuple

__all__ = ["Action", "Program", "program_of", "step_of"]

SHARED = ("all_reduce", "all_gather", "reduce_scatter", "broadcast", "all_to_all", "barrier")


class Action(NamedTuple):
    """One thing a rank does. `group` is an index into the program's groups, -1 for the world."""

    kind: str
    ms: float = 0.0
    group: int = -1
    elements: int = 0
    peer: int = -1
    tag: int = 0
    key: int = -1


class Program(NamedTuple):
    """Groups of ranks, and the actions of each rank in order; `late` is the rank to change."""

    groups: tuple[tuple[int, ...], ...]
    ranks: tuple[tuple[Action, ...], ...]
    late: int


class Load(NamedTuple):
    """What programs are made of: ranks that compute, length of work, elements of buffers.

    The first `computing` ranks sleep or compute, the others sleep.
    """

    computing: int
    ms: tuple[float, float]
    elements: tuple[int, ...]


HEAVY = Load(99, (1, 8), (256, 4096, 65536, 262144))
LIGHT = Load(1, (4, 20), (256, 4096, 16384))


def program_of(
    seed: int, world: int, *, light: bool = False, change: Callable[[float], float] | None = None
) -> Program:
    """Return the program of a seed; `change` gives the work of rank `late` other lengths in ms.

    `light`: two processors are enough: one rank computes, the others sleep; buffers are small.
    """
    chance = random.Random(seed)
    load = LIGHT if light else HEAVY
    groups = tuple(
        tuple(sorted(chance.sample(range(world), chance.randint(2, world))))
        for _ in range(chance.randint(1, 3))
    )
    ranks: list[list[Action]] = [[] for _ in range(world)]
    waiting: list[list[int]] = [[] for _ in range(world)]
    for key in range(chance.randint(6, 14)):
        for rank in range(world):
            _own_work(chance, load, rank < load.computing, ranks[rank], waiting[rank])
        _together(chance, load, groups, ranks, waiting, key)
    for rank in range(world):
        ranks[rank] += [Action("wait", key=key) for key in waiting[rank]]
    late = chance.randrange(world)
    if change is not None:
        ranks[late] = [a._replace(ms=change(a.ms)) if a.ms else a for a in ranks[late]]
    return Program(groups, tuple(map(tuple, ranks)), late)


def _own_work(
    chance: random.Random,
    load: Load,
    computes: bool,
    actions: list[Action],
    waiting: list[int],
) -> None:
    if chance.random() < 0.6:
        kinds = ("sleep", "numpy", "aten") if computes else ("sleep",)
        actions.append(Action(chance.choice(kinds), ms=chance.uniform(*load.ms)))
    while waiting and chance.random() < 0.4:
        actions.append(Action("wait", key=waiting.pop(chance.randrange(len(waiting)))))


def _together(
    chance: random.Random,
    load: Load,
    groups: tuple[tuple[int, ...], ...],
    ranks: list[list[Action]],
    waiting: list[list[int]],
    key: int,
) -> None:
    """Add a collective on a group, or a message between two ranks."""
    world, elements = len(ranks), chance.choice(load.elements)
    if chance.random() < 0.3:
        source, target = chance.sample(range(world), 2)
        sends = chance.choice(("send", "isend"))
        receives = chance.choice(("recv", "irecv", "recv_any"))
        # What comes from anywhere has a tag of its own: it must not take another's message.
        tag = 10 + key if receives == "recv_any" else chance.randint(0, 3)
        ranks[source].append(Action(sends, elements=elements, peer=target, tag=tag, key=key))
        ranks[target].append(Action(receives, elements=elements, peer=source, tag=tag, key=key))
        waiting[source] += [key] if sends == "isend" else []
        waiting[target] += [key] if receives == "irecv" else []
        return
    group = chance.randrange(-1, len(groups))
    kind, delayed = chance.choice(SHARED), chance.random() < 0.5
    for rank in range(world) if group < 0 else groups[group]:
        ranks[rank].append(
            Action(f"async_{kind}" if delayed else kind, group=group, elements=elements, key=key)
        )
        waiting[rank] += [key] if delayed else []


def step_of(program: Program, rank: int) -> Callable[[], None]:
    """Return the step that a rank runs; call it after init_process_group."""
    import torch.distributed as dist

    groups = [dist.new_group(list(ranks)) for ranks in program.groups]
    own = program.ranks[rank]

    def step() -> None:
        works: dict[int, Any] = {}
        for action in own:
            _do(action, groups, program.groups, works)

    return step


def _do(
    action: Action, groups: list[Any], members: tuple[tuple[int, ...], ...], works: dict[int, Any]
) -> None:
    import numpy as np
    import torch
    import torch.distributed as dist

    if action.kind == "sleep":
        time.sleep(action.ms / 1e3)
    elif action.kind == "numpy":
        _busy(action.ms, lambda: np.sort(np.arange(20_000)[::-1]))
    elif action.kind == "aten":
        _busy(action.ms, lambda: torch.mm(torch.ones(64, 64), torch.ones(64, 64)))
    elif action.kind == "wait":
        works.pop(action.key).wait()
    elif action.kind in ("send", "isend", "recv", "irecv", "recv_any"):
        tensor = torch.ones(action.elements)
        call = {"recv_any": dist.recv}.get(action.kind) or getattr(dist, action.kind)
        where = () if action.kind == "recv_any" else (action.peer,)
        work = call(tensor, *where, tag=action.tag)
        if action.kind in ("isend", "irecv"):
            works[action.key] = work
    else:
        delayed = action.kind.startswith("async_")
        group = groups[action.group] if action.group >= 0 else dist.group.WORLD
        ranks = members[action.group] if action.group >= 0 else range(dist.get_world_size())
        kind = action.kind.removeprefix("async_")
        work = _collective(kind, action.elements, group, tuple(ranks), delayed)
        if delayed:
            works[action.key] = work


def _collective(kind: str, elements: int, group: Any, ranks: tuple[int, ...], delayed: bool) -> Any:
    import torch
    import torch.distributed as dist

    part, whole = torch.ones(elements), torch.ones(elements * len(ranks))
    how = {"group": group, "async_op": delayed}
    if kind == "all_reduce":
        return dist.all_reduce(part, **how)
    if kind == "all_gather":
        return dist.all_gather_into_tensor(whole, part, **how)
    if kind == "reduce_scatter":
        return dist.reduce_scatter_tensor(part, whole, **how)
    if kind == "broadcast":
        return dist.broadcast(part, src=ranks[0], **how)
    if kind == "all_to_all":
        return dist.all_to_all_single(torch.ones_like(whole), whole, **how)
    return dist.barrier(**how)


def _busy(ms: float, work: Callable[[], Any]) -> None:
    until = time.perf_counter() + ms / 1e3
    while time.perf_counter() < until:
        work()
