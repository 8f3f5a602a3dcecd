"""
Reasons for a ranking: facts of the model on the cluster, and what each part of a layout does.

Every sentence comes from computed figures: of one GPU, of the best layout without an axis, and of
what a simulated step waits for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import NamedTuple

import numpy as np

from commsim.cluster import Cluster
from commsim.libraries import Library, Request, plan_of
from commsim.metrics import Metrics
from commsim.models import parameter_count, state_bytes
from commsim.study.advise.layouts import Candidate, Degrees
from commsim.study.advise.search import Search
from commsim.study.advise.simulate import Ran, Worker
from commsim.units import GIB, format_bandwidth, format_time
from commsim.workload.training import WIDTH, make_parts

__all__ = ["Part", "facts", "parts_of", "reasons", "waits_for"]

_PROBE = 2**30
_BACKWARD = 2 / 3  # of a step's computing, which is what gradients can hide behind
_NOTABLE = 0.005  # of a step
_NEAR = 0.1  # of the memory, free
_ENOUGH = 0.5  # of the layouts fit


def facts(worker: Worker, found: Search, best: Metrics) -> list[str]:
    """Return what decides: one GPU, the largest layer, the fabric, how scarce memory is."""
    return [
        _one_gpu(worker),
        _largest_layer(worker),
        _fabric(worker, best),
        _scarcity(found),
    ]


def _one_gpu(worker: Worker) -> str:
    judge = worker.judge
    count = parameter_count(judge.shape)
    whole = [
        one.use.total
        for recompute in judge.recomputes
        if (one := judge.least(Degrees(worker.cluster.world_size, 1, 1, 1, 1), "ddp", recompute))
    ]
    need = min(whole) if whole else _state(worker, count)
    what = "with gradients, optimizer and the least activations" if whole else "with its optimizer"
    verdict = "fits" if need <= judge.capacity else "does not fit"
    return (
        f"model: {count / 1e9:.3g}e9 parameters, {what} {_of(need, judge.capacity)}: {verdict} one"
        " GPU"
    )


def _largest_layer(worker: Worker) -> str:
    shape = worker.judge.shape
    units = make_parts(shape, (range(shape.layers),), tp=1, ep=1, copied=False)[0]
    unit = max(units, key=lambda one: sum(one.entries(expert=kind) for kind in (False, True)))
    need = _state(worker, sum(unit.entries(expert=kind) for kind in (False, True)))
    capacity = worker.cluster.gpu(0).memory_bytes
    verdict = "fits" if need <= capacity else "does not fit"
    return (
        f"largest layer: {unit.name}, {_of(need, capacity)} with its optimizer: {verdict} one GPU"
    )


def _state(worker: Worker, entries: int) -> int:
    section = worker.section
    width = WIDTH[section.data_parallel.gradients or section.precision]
    return state_bytes(entries, precision=section.precision, gradient_width=width).total


def _fabric(worker: Worker, best: Metrics) -> str:
    """Say how fast a GPU reaches others, and whether gradients can hide behind a backward."""
    cluster, library, section = worker.cluster, worker.library, worker.section
    ranks = tuple(range(cluster.world_size))
    if len(ranks) == 1:
        return "fabric: one GPU, nothing to send"
    width = WIDTH[section.data_parallel.gradients or section.precision]
    size = parameter_count(worker.judge.shape) * width
    took = _idle(library, cluster, "all_reduce", size, ranks)
    hides = best.breakdown.compute_s * _BACKWARD
    speed = "fast" if took <= hides else "slow"
    return (
        f"fabric: {speed}: {_reach(library, cluster)}; an all-reduce of all gradients over all"
        f" GPUs takes {_time(took)}, a backward to hide it behind {_time(hides)}"
    )


def _reach(library: Library, cluster: Cluster) -> str:
    """Say what nccl-tests would call the busbw, inside the first node and over all GPUs."""
    inside = tuple(np.flatnonzero(cluster.node_of == cluster.node_of[0]).tolist())
    groups = {"within a node": inside, "over all GPUs": tuple(range(cluster.world_size))}
    told = []
    for where, ranks in groups.items():
        if len(ranks) > 1 and not (where == "within a node" and len(ranks) == cluster.world_size):
            moved = 2 * (len(ranks) - 1) / len(ranks) * _PROBE
            seconds = _idle(library, cluster, "all_reduce", _PROBE, ranks)
            told.append(f"{format_bandwidth(moved / seconds)} {where}")
    return f"busbw of an all-reduce of 1 GiB {', '.join(told)}"


def _idle(
    library: Library, cluster: Cluster, kind: str, size: int, ranks: tuple[int, ...]
) -> float:
    return plan_of(library, Request(kind, size, ranks), cluster).idle * 1e-12


def _scarcity(found: Search) -> str:
    judged = found.judged.values()
    fit = sum(one.fits for one in judged)
    word = "scarce" if fit < _ENOUGH * len(judged) else "enough"
    return f"memory: {word}: {fit} of the {len(judged)} layouts with the lowest bounds fit"


def waits_for(metrics: Metrics) -> list[str]:
    """Return what a step does not compute for, largest first: shares of it, and what they are."""
    step, parts = metrics.step_time_s, metrics.breakdown
    shares = [
        (parts.exposed_transfer_s, _exposed(metrics)),
        (parts.exposed_copy_s, "copies"),
        (parts.waiting_s, "waiting for peers"),
        (parts.host_s, "waiting for the host"),
        (parts.idle_s, "nothing to do"),
    ]
    shares.sort(key=lambda one: -one[0])
    lines = [f"{share / step:.1%} {what}" for share, what in shares if share > _NOTABLE * step]
    return lines or ["hardly anything: it computes"]


def _exposed(metrics: Metrics) -> str:
    """Name what is exposed most."""
    by_group: dict[tuple[str, str], float] = {}
    for use in metrics.collectives:
        key = (use.op, use.group.split()[0].rstrip("0123456789."))
        by_group[key] = by_group.get(key, 0.0) + use.exposed_s
    if not by_group:
        return "communication"
    op, group = max(by_group, key=lambda key: by_group[key])
    return f"transfers of {_GROUPS.get(group, group)} ({op})"


_GROUPS = {
    "dp": "data-parallel traffic", "edp": "experts' gradients", "shard": "sharded parameters",
    "replicate": "gradients between copies", "tp": "tensor-parallel collectives",
    "pp": "pipeline neighbours", "cp": "context-parallel neighbours", "ep": "experts' tokens",
    "embedding": "tied embeddings",
}  # fmt: skip


def reasons(ran: Ran, found: Search) -> list[str]:
    """Return why each part of a layout is there: the best that does without, or otherwise."""
    candidate, step = ran.candidate, ran.metrics.step_time_s
    lines = []
    for part in parts_of(candidate):
        told = {
            part.none: _best(found, part.without, step),
            part.other: _best(found, part.otherwise, step),
        }
        if told[part.none] == told[part.other]:
            del told[part.other]
        lines.append(
            f"{part.name}: best {', '.join(f'{how} {much}' for how, much in told.items() if much)}"
        )
    return lines + _needed(candidate, found) + _microbatch(ran, found) + _room(candidate, found)


def _microbatch(ran: Ran, found: Search) -> list[str]:
    """Say what half and twice the microbatch come to, all else equal."""
    micro, lines = ran.candidate.micro, []
    batch = found.judge.section(ran.candidate).batch.global_ // ran.candidate.degrees.dp
    for other in (micro // 2, micro * 2):
        one = found.known(ran.candidate._replace(micro=other)) if _divides(other, batch) else None
        if one is None:
            continue
        if not one.fits:
            lines.append(f"{other} does not fit ({_of(one.use.total, one.capacity)})")
        elif one.candidate in found.ran:
            step = found.ran[one.candidate].metrics.step_time_s
            lines.append(f"{other} takes {step / ran.metrics.step_time_s - 1:+.1%}")
        elif one.floor > ran.metrics.step_time_s:
            lines.append(f"{other} at least {one.floor / ran.metrics.step_time_s - 1:+.1%}")
    return [f"micro {micro}: {', '.join(lines)}"] if lines else []


def _room(candidate: Candidate, found: Search) -> list[str]:
    """Say how near a layout comes to a GPU's memory, and what of that is estimated."""
    one = found.judged[candidate]
    use, left = one.use, one.capacity - one.use.total
    if left > _NEAR * one.capacity:
        return []
    return [
        f"memory is nearly full: {_of(use.total, one.capacity)}; of it {use.runtime / GIB:.2g} for"
        f" CUDA and NCCL and {use.slack / GIB:.2g} for the allocator's slack are estimates: try it"
        " before you rely on it"
    ]


def _divides(micro: int, batch: int) -> bool:
    return micro > 0 and batch % micro == 0


def _needed(candidate: Candidate, found: Search) -> list[str]:
    """Say which of its savings a layout needs to fit, all else equal."""
    return _sharding(candidate, found) + _recomputing(candidate, found)


def _sharding(candidate: Candidate, found: Search) -> list[str]:
    """Say of the ways to share less than a layout does which do not fit."""
    ways = [way for way in _SHARES_MORE if way in found.judge.shardings(candidate.degrees)]
    place = ways.index(candidate.shard) if candidate.shard in ways else len(ways)
    less = [(way, found.known(candidate._replace(shard=way))) for way in ways[:place]]
    known = [(way, one) for way, one in less if one is not None]
    lacking = [f"{way} {_of(one.use.total, one.capacity)}" for way, one in known if not one.fits]
    if not lacking:
        return []
    if len(lacking) == len(known):
        return [f"{candidate.shard} is needed, all else equal: {', '.join(lacking)} without it"]
    return [f"all else equal does not fit: {', '.join(lacking)}"]


def _recomputing(candidate: Candidate, found: Search) -> list[str]:
    if candidate.recompute == "none":
        return []
    one = found.known(candidate._replace(recompute="none"))
    if one is None or one.fits:
        return []
    need = _of(one.use.total, one.capacity)
    return [f"recompute {candidate.recompute} is needed, all else equal: {need} without it"]


_SHARES_MORE = ("ddp", "zero-1", "zero-2", "fsdp")
"""Each shares all that those before it do. HSDP shares as FSDP does, within its groups."""


class Part(NamedTuple):
    """A part of a layout: which others have none of it, and which have it otherwise or not."""

    name: str
    none: str
    other: str
    without: Callable[[Candidate], bool]
    otherwise: Callable[[Candidate], bool]


def parts_of(candidate: Candidate) -> Iterator[Part]:
    """Yield the parts that a layout has."""
    for axis in ("tp", "pp", "cp", "ep"):
        if (degree := getattr(candidate.degrees, axis)) > 1:
            yield _part(f"{axis} {degree}", axis, partial(_degree, axis), 1, degree)
    if candidate.shard != "ddp":
        shard = candidate.shard
        yield _part(shard, "sharding", lambda one: one.shard, "ddp", shard)
    if candidate.overlap != "none":
        own = candidate.overlap
        yield _part(f"tp overlap {own}", "tp overlap", lambda one: one.overlap, "none", own)
    if candidate.recompute != "none":
        how = candidate.recompute
        yield _part(f"recompute {how}", "recompute", lambda one: one.recompute, "none", how)


def _degree(axis: str, candidate: Candidate) -> int:
    degree: int = getattr(candidate.degrees, axis)
    return degree


def _part(
    name: str, what: str, value: Callable[[Candidate], object], none: object, own: object
) -> Part:
    return Part(
        name,
        f"without {what}",
        f"with other {what}",
        lambda one: value(one) == none,
        lambda one: value(one) != own,
    )


def _best(found: Search, allowed: Callable[[Candidate], bool], step: float) -> str:
    """Say how good the best of the layouts allowed is."""
    times = [one.metrics.step_time_s for one in found.ran.values() if allowed(one.candidate)]
    floor = found.floor(allowed)
    if times and min(times) <= floor:
        return f"{min(times) / step - 1:+.1%}"
    more = max(floor / step - 1, 0.0)
    if times:
        return f"{more:+.1%} to {min(times) / step - 1:+.1%}"
    if floor < float("inf"):
        return f"at least {more:+.1%}"
    least = found.least(allowed)
    if least is None:
        return "cannot run"
    return f"does not fit (at least {_of(least.use.total, least.capacity)})"


def _of(need: float, capacity: int) -> str:
    return f"{need / GIB:.3g} of {capacity / GIB:.3g} GiB"


def _time(seconds: float) -> str:
    return format_time(seconds * 1e12)
