"""
Why: what a person would say of a model on a cluster, and of a layout among the others.

Every sentence is drawn from figures: of one GPU, of the best layout that does without an axis,
and of what a simulated step waits for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from commsim.cluster import Cluster
from commsim.libraries import Library, Request
from commsim.metrics import Metrics
from commsim.models import build_model, parameter_count, state_bytes
from commsim.study.advise.judge import Judged
from commsim.study.advise.layouts import Candidate
from commsim.study.advise.simulate import Ran, Worker
from commsim.units import GIB, format_bandwidth, format_time
from commsim.workload.training import WIDTH, make_parts

__all__ = ["facts", "reasons", "waits_for"]

_PROBE = 2**30
_BACKWARD = 2 / 3  # of a step's computing, which is what gradients can hide behind
_NOTABLE = 0.005  # of a step


def facts(worker: Worker, judged: Sequence[Judged], best: Metrics) -> list[str]:
    """Return what decides: one GPU, the largest layer, the fabric, how scarce memory is."""
    return [
        _one_gpu(worker, judged),
        _largest_layer(worker),
        _fabric(worker, best),
        _scarcity(judged),
    ]


def _one_gpu(worker: Worker, judged: Sequence[Judged]) -> str:
    model = build_model(worker.section.model, where="model")
    count = parameter_count(model.shape)
    capacity = judged[0].capacity
    whole = [
        one.use.total for one in judged if one.candidate.shard == "ddp" and _unsplit(one.candidate)
    ]
    need = min(whole) if whole else _state(worker, count)
    what = "with gradients, optimizer and the least activations" if whole else "with its optimizer"
    verdict = "fits" if need <= capacity else "does not fit"
    return f"model: {count / 1e9:.3g}e9 parameters, {what} {_of(need, capacity)}: {verdict} one GPU"


def _unsplit(candidate: Candidate) -> bool:
    _, tp, pp, cp, ep = candidate.degrees
    return tp == pp == cp == ep == 1


def _largest_layer(worker: Worker) -> str:
    shape = build_model(worker.section.model, where="model").shape
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
    size = parameter_count(build_model(section.model, where="model").shape) * width
    took = _idle(library, cluster, "all_reduce", size, ranks)
    hides = best.breakdown.compute_s * _BACKWARD
    speed = "fast" if took <= hides else "slow"
    return (
        f"fabric: {speed}: {_reach(library, cluster)}; an all-reduce of all gradients over all"
        f" GPUs takes {_time(took)}, a backward to hide it behind {_time(hides)}"
    )


def _reach(library: Library, cluster: Cluster) -> str:
    said = []
    first = next((r for r in range(cluster.world_size) if cluster.node_of[r] > 0), None)
    for peer, where in ((1 if cluster.node_of[1] == 0 else None, "within"), (first, "between")):
        if peer is not None:
            seconds = _idle(library, cluster, "send_recv", _PROBE, (0, peer))
            said.append(f"{format_bandwidth(_PROBE / seconds)} {where} nodes")
    return ", ".join(said)


def _idle(
    library: Library, cluster: Cluster, kind: str, size: int, ranks: tuple[int, ...]
) -> float:
    return library.plan(Request(kind, size, ranks), cluster).idle * 1e-12


def _scarcity(judged: Sequence[Judged]) -> str:
    fit = sum(one.fits for one in judged)
    share = fit / len(judged)
    word = "scarce" if share < 0.5 else "enough"
    return f"memory: {word}: {fit} of {len(judged)} layouts fit"


def waits_for(metrics: Metrics) -> list[str]:
    """Return what a step does not compute for, largest first: shares of it, and what they are."""
    step, parts = metrics.step_time_s, metrics.breakdown
    shares = [(parts.exposed_transfer_s, _exposed(metrics)), (parts.exposed_copy_s, "copies"),
              (parts.waiting_s, "waiting for peers"), (parts.host_s, "waiting for the host"),
              (parts.idle_s, "nothing to do")]  # fmt: skip
    shares.sort(key=lambda one: -one[0])
    said = [f"{share / step:.1%} {what}" for share, what in shares if share > _NOTABLE * step]
    return said or ["hardly anything: it computes"]


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


def reasons(ran: Ran, judged: Sequence[Judged], every: Mapping[Candidate, Ran]) -> list[str]:
    """Return why each part of a layout is there: the best that does without, and what it costs."""
    candidate, step = ran.candidate, ran.metrics.step_time_s
    said = [
        f"{what}: best without it {_without(judged, every, allowed, step)}"
        for what, allowed in _parts(candidate)
    ]
    return said + _needed(candidate, judged) + _microbatch(ran, judged, every)


def _microbatch(ran: Ran, judged: Sequence[Judged], every: Mapping[Candidate, Ran]) -> list[str]:
    """Say what half and twice the microbatch come to, all else equal."""
    micro, said = ran.candidate.micro, []
    known = {one.candidate: one for one in judged}
    for other in (micro // 2, micro * 2):
        found = known.get(ran.candidate._replace(micro=other))
        if found is None:
            continue
        if not found.fits:
            said.append(f"{other} does not fit ({_of(found.use.total, found.capacity)})")
        elif found.candidate in every:
            step = every[found.candidate].metrics.step_time_s
            said.append(f"{other} takes {step / ran.metrics.step_time_s - 1:+.1%}")
        elif found.floor > ran.metrics.step_time_s:
            said.append(f"{other} at least {found.floor / ran.metrics.step_time_s - 1:+.1%}")
    return [f"micro {micro}: {', '.join(said)}"] if said else []


def _needed(candidate: Candidate, judged: Sequence[Judged]) -> list[str]:
    """Say which of its savings a layout needs to fit, all else equal."""
    plainer = {
        candidate.shard: candidate._replace(shard="ddp"),
        f"recompute {candidate.recompute}": candidate._replace(recompute="none"),
    }
    return [
        f"{what} is needed: {_of(one.use.total, one.capacity)} without it"
        for what, other in plainer.items()
        for one in judged
        if one.candidate == other and not one.fits
    ]


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
    if candidate.recompute != "none":
        yield f"recompute {candidate.recompute}", lambda one: one.recompute == "none"


def _without(
    judged: Sequence[Judged],
    every: Mapping[Candidate, Ran],
    allowed: Callable[[Candidate], bool],
    step: float,
) -> str:
    """Say how good the best layout is that does without a part."""
    others = [one for one in judged if allowed(one.candidate)]
    fitting = [one for one in others if one.fits]
    if not others:
        return "cannot run"
    if not fitting:
        least = min(others, key=lambda one: one.use.total)
        return f"does not fit (at least {_of(least.use.total, least.capacity)})"
    times = [every[one.candidate].metrics.step_time_s for one in fitting if one.candidate in every]
    floor = min((one.floor for one in fitting if one.candidate not in every), default=None)
    if times and (floor is None or min(times) <= floor):
        return f"{min(times) / step - 1:+.1%}"
    assert floor is not None
    more = max(floor / step - 1, 0.0)
    return f"at least {more:+.1%}" if not times else f"{more:+.1%} to {min(times) / step - 1:+.1%}"


def _of(need: float, capacity: int) -> str:
    return f"{need / GIB:.3g} of {capacity / GIB:.3g} GiB"


def _time(seconds: float) -> str:
    return format_time(seconds * 1e12)
