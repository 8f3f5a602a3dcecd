"""
The headline of a run: how long, how much of it is compute, and what costs most of the rest.

What costs most is what saves most if it is gone (`metrics.limits`), never the largest label; unless
half of another saves far more: twice the bandwidth can be bought, no bandwidth cannot.
"""

from __future__ import annotations

from collections.abc import Sequence
from types import MappingProxyType

from commsim.graph import Phase
from commsim.metrics.limits import Limit
from commsim.metrics.measure import CollectiveMetrics, Metrics
from commsim.metrics.words import op_label, schedule_words, short_time
from commsim.timeline import Timeline
from commsim.units import PS_PER_SECOND, format_bandwidth, format_size

__all__ = ["finding", "limit_name", "limit_remarks", "limit_text"]

_TOGETHER = 1.01  # times of collectives that add up to more than this share of all ran together
_NOTHING = 5e-4  # of the step: 0.0 % in a table
_UNEVEN = 0.005  # of the step: ranks whose own steps end that far apart are named by their mean
_FAR_MORE = 1.5  # times what half of the costliest part saves
_FAR_LESS = 0.4  # of what a limit costs: half of its bandwidth's part would save 0.5
_ALL_COMPUTE = 0.95  # from this share on, compute is the finding
_RESOURCES = MappingProxyType(
    {
        "nvlink": "NVLink",
        "c2c": "NVLink-C2C",
        "pcie": "PCIe",
        "cpu": "the links between CPU sockets",
        "memory": "host memory",
        "network": "the NICs",
        "fabric": "the switches of the network",
        "tcp": "TCP",
    }
)


def finding(
    timeline: Timeline, metrics: Metrics, limits: Sequence[Limit], *, subject: str = ""
) -> str:
    """Return the headline in one or two sentences, with its numbers.

    `subject` is what takes that long, with its verb; without it the timeline says it.
    """
    step = metrics.step_time_s
    told = _told(step)
    whole = metrics.breakdown.whole_s
    most = _costliest(limits)
    if not metrics.breakdown.compute_s and metrics.collectives:
        held = f" Held back by {_held_by(most)}." if most else ""
        return f"{_collective(metrics, told)}.{held}"
    if not whole:
        return f"The run takes {told}."
    share = metrics.breakdown.compute_s / whole
    line = f"{subject or _subject(timeline)} {told}, {share:.1%} of it compute."
    if abs(whole - step) > _UNEVEN * step:
        line = (
            f"{subject or _subject(timeline)} {told}, {_told(whole)} in the mean of the ranks,"
            f" {share:.1%} of that compute."
        )
    if share >= _ALL_COMPUTE or most is None:
        return line
    travels = next((one for one in limits if one.kind == "p2p"), None)
    told = limit_text(most, step)
    if most.kind == "pipeline" and travels is not None:
        told += f" ({travels.removed_s / step:.1%} if p2p took no time)"
    return f"{line} Most of the rest: {told}."


def _told(seconds: float) -> str:
    return short_time(seconds * PS_PER_SECOND).replace(" ", "\N{NO-BREAK SPACE}")


def limit_name(limit: Limit) -> str:
    """Name a limit for a table: "bandwidth of NVLink: all-gather on tp (node0/gpu0->gpu1)"."""
    if limit.kind in ("bandwidth", "latency"):
        at = f" ({limit.link})" if limit.link else ""
        over = _RESOURCES.get(limit.resource, "transfers")
        word = "over" if limit.kind == "latency" else "of"
        return f"{limit.kind} {word} {over}: {limit.where}{at}"
    if limit.kind == "pipeline":
        return f"waiting between {limit.where} of the pipeline"
    if limit.kind == "p2p":
        return f"what travels between {limit.where} of the pipeline (p2p)"
    if limit.kind == "imbalance":
        return f"imbalance: {limit.where} computes {limit.ratio:.3g} times the mean"
    return {"copy": "copies to and from host memory", "host": "waiting for the host"}.get(
        limit.kind, limit.kind
    )


def limit_text(limit: Limit, step: float) -> str:
    """Say what a limit is, and what a step of `step` seconds would save without it."""
    half = "" if limit.halved_s is None else f"{limit.halved_s / step:.1%}"
    half += f" (--set {limit.setting})" if limit.setting else ""
    without = f"{limit.removed_s / step:.1%}"
    if limit.kind == "bandwidth":
        if (limit.halved_s or 0.0) < _NOTHING * step:
            half = "nothing: links of another kind are as full"
        return f"{_moved(limit)}; twice that bandwidth would save {half}"
    if limit.kind == "latency":
        return (
            f"the latency of {_moved(limit)}, which bandwidth does not help; half would save {half}"
        )
    if limit.kind == "pipeline":
        return f"pipeline stages wait for each other (the bubble); without that, {without} less"
    if limit.kind == "p2p":
        return f"what travels between pipeline stages (p2p); if it took no time, {without} less"
    if limit.kind == "imbalance":
        return (
            f"the others wait for {limit.where}, which computes {limit.ratio:.3g} times the mean;"
            f" if all were equal, {without} less"
        )
    if limit.kind == "copy":
        return f"copies to and from host memory; twice as fast would save {half}"
    if limit.kind == "host":
        return f"the GPUs wait for their host; CPUs twice as fast would save {half}"
    return f"compute; GPUs twice as fast would save {half}"


def limit_remarks(limits: Sequence[Limit]) -> list[str]:
    """Say what a table of limits does not: what latency holds, and why twice a bandwidth saves far
    less than half of what its transfers cost.
    """
    told = []
    if any(limit.kind == "latency" for limit in limits):
        told.append("latency: what bytes do not explain, of the library's steps and of the links")
    slow = {
        limit.resource
        for limit in limits
        if limit.kind == "bandwidth" and (limit.halved_s or 0.0) < _FAR_LESS * limit.removed_s
    }
    if inside := {"nvlink", "c2c", "pcie", "cpu", "memory"} & slow:
        link = "NVLink" if "nvlink" in inside else "PCIe"
        told.append(f"twice {link} is not twice as fast: the library has as many SMs and channels")
    if "network" in slow or "fabric" in slow:
        told.append("twice the NICs are not twice as fast: the next link on the way is full first")
    return told


def _moved(limit: Limit) -> str:
    over = _RESOURCES.get(limit.resource, "")
    at = f" ({limit.link})" if limit.link else ""
    return f"{limit.where}{f' over {over}' if over else ''}{at}"


def _held_by(limit: Limit) -> str:
    if limit.kind not in ("bandwidth", "latency"):
        return limit.kind
    over = _RESOURCES.get(limit.resource, "the network")
    at = f" ({limit.link})" if limit.link else ""
    return f"{limit.kind} of {over}{at}" if limit.kind == "latency" else f"{over}{at}"


def _costliest(limits: Sequence[Limit]) -> Limit | None:
    """Return the costliest limit besides compute; a link counts with bandwidth and latency."""
    others = [one for one in limits if one.kind != "compute"]
    if not others:
        return None
    cost: dict[tuple[str, str], float] = {}
    for one in others:
        cost[_part(one)] = cost.get(_part(one), 0.0) + one.removed_s
    part = max(cost, key=lambda key: cost[key])
    most = max((one for one in others if _part(one) == part), key=lambda one: one.removed_s)
    better = max(others, key=_gain)
    return better if _gain(better) > _FAR_MORE * _gain(most) else most


def _part(limit: Limit) -> tuple[str, str]:
    transfer = limit.kind in ("bandwidth", "latency")
    return ("transfer", limit.resource) if transfer else (limit.kind, "")


def _gain(limit: Limit) -> float:
    """Return the seconds that half of a limit would save."""
    return limit.removed_s / 2 if limit.halved_s is None else limit.halved_s


def _subject(timeline: Timeline) -> str:
    """Return what the figures are about: a training step, or all of the run."""
    stepped = bool((timeline.graph.phase == Phase.OPTIMIZER).any())
    if stepped or (timeline.graph.window >= 0).any():
        return "A step takes"
    return f"{schedule_words(timeline)}:" if "schedule" in timeline.graph.meta else "The run takes"


def _collective(metrics: Metrics, step: str) -> str:
    most, *others = sorted(metrics.collectives, key=lambda use: -use.time_s)
    if not others:
        line = _one_collective(most, step)
        return line[0].upper() + line[1:]
    together = sum(use.time_s for use in metrics.collectives) > _TOGETHER * metrics.step_time_s
    # One after the other, members of a gather end at different times: their means add up to less.
    told = "; ".join(
        _one_collective(use, short_time(use.time_s * PS_PER_SECOND) if together else "")
        for use in (most, *others[:1])
    )
    more = f"; {len(others) - 1} more" if len(others) > 1 else ""
    how = "at the same time" if together else "one after the other"
    return f"{len(others) + 1} collectives {how}, {step} in all: {told}{more}"


def _one_collective(use: CollectiveMetrics, time: str) -> str:
    name = op_label(use.op)
    if use.busbw_gbs is None:
        return f"{name} on {use.group}" + (f": {time}" if time else "")
    size = format_size(use.bytes / use.count)
    rate = f"{format_bandwidth(use.busbw_gbs * 1e9)} on the bus"
    return f"{name} of {size}: {time}, {rate}" if time else f"{name} of {size} at {rate}"
