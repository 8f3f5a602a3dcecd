"""
Reasons for a ranking: facts of the model on the cluster, and what each part of a layout does.

Every sentence comes from computed figures: of one GPU, of the best layout without an axis, and of
what a simulated step waits for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from commsim.cluster import Cluster
from commsim.libraries import Library, Request
from commsim.metrics import Metrics
from commsim.models import parameter_count, state_bytes
from commsim.study.advise.layouts import Candidate, Degrees
from commsim.study.advise.search import Search
from commsim.study.advise.simulate import Ran, Worker
from commsim.units import GIB, format_bandwidth, format_time
from commsim.workload.training import WIDTH, make_parts

__all__ = ["facts", "reasons", "waits_for"]

_PROBE = 2**30
_BACKWARD = 2 / 3  # of a step's computing, which is what gradients can hide behind
_NOTABLE = 0.005  # of a step
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
    lines = []
    first = next((r for r in range(cluster.world_size) if cluster.node_of[r] > 0), None)
    for peer, where in ((1 if cluster.node_of[1] == 0 else None, "within"), (first, "between")):
        if peer is not None:
            seconds = _idle(library, cluster, "send_recv", _PROBE, (0, peer))
            lines.append(f"{format_bandwidth(_PROBE / seconds)} {where} nodes")
    return ", ".join(lines)


def _idle(
    library: Library, cluster: Cluster, kind: str, size: int, ranks: tuple[int, ...]
) -> float:
    return library.plan(Request(kind, size, ranks), cluster).idle * 1e-12


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
    """Return why each part of a layout is there: the best that does without, and what it costs."""
    candidate, step = ran.candidate, ran.metrics.step_time_s
    lines = [
        f"{what}: best without it {_without(found, allowed, step)}"
        for what, allowed in _parts(candidate)
    ]
    return lines + _needed(candidate, found) + _microbatch(ran, found)


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


def _divides(micro: int, batch: int) -> bool:
    return micro > 0 and batch % micro == 0


def _needed(candidate: Candidate, found: Search) -> list[str]:
    """Say which of its savings a layout needs to fit, all else equal."""
    plainer = {
        candidate.shard: candidate._replace(shard="ddp"),
        f"recompute {candidate.recompute}": candidate._replace(recompute="none"),
    }
    lines = []
    for what, other in plainer.items():
        one = None if other == candidate else found.known(other)
        if one is not None and not one.fits:
            lines.append(f"{what} is needed: {_of(one.use.total, one.capacity)} without it")
    return lines


def _parts(candidate: Candidate) -> Iterable[tuple[str, Callable[[Candidate], bool]]]:
    """Yield the parts that a layout has, each with which layouts do without it."""
    degrees = candidate.degrees
    if degrees.tp > 1:
        yield f"tp {degrees.tp}", lambda one: one.degrees.tp == 1
    if degrees.pp > 1:
        yield f"pp {degrees.pp}", lambda one: one.degrees.pp == 1
    if degrees.cp > 1:
        yield f"cp {degrees.cp}", lambda one: one.degrees.cp == 1
    if degrees.ep > 1:
        yield f"ep {degrees.ep}", lambda one: one.degrees.ep == 1
    if candidate.shard != "ddp":
        yield candidate.shard, lambda one: one.shard == "ddp"
    if candidate.overlap != "none":
        yield f"tp overlap {candidate.overlap}", lambda one: one.overlap == "none"
    if candidate.recompute != "none":
        yield f"recompute {candidate.recompute}", lambda one: one.recompute == "none"


def _without(found: Search, allowed: Callable[[Candidate], bool], step: float) -> str:
    """Say how good the best layout is that does without a part."""
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
