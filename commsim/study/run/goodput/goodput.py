"""
`goodput_of`: the rates of a cluster's parts, the bytes of a checkpoint and its way, and the answer.
"""

from __future__ import annotations

from typing import Any

import msgspec

from commsim.cluster import Cluster
from commsim.errors import ScenarioError
from commsim.models import state_bytes
from commsim.scenario import GoodputSection
from commsim.study.run.goodput.closed_form import (
    Recovery,
    away,
    best_interval,
    longest_interval,
    progress,
    standing,
)
from commsim.units import PS_PER_SECOND, format_size

__all__ = ["Goodput", "goodput_of"]

_MONTH = 30 * 86400.0
_PER_HOURS = 1e6 * 3600
_PARTS = ("gpu", "nic", "link", "node", "software")


class Goodput(msgspec.Struct, frozen=True):
    """The share of time that is progress, and what the rest is.

    Seconds: `mtbf_s` between failures of the job, `checkpoint_bytes` in `blocked_s` that all wait
    and `safe_after_s` until it may be relied on, `recover_s` from a failure until work goes on,
    `interval_s` of work between two checkpoints (`best`: chosen so; one of up to `interval_to_s`
    leaves a thousandth less). Shares of the time: `goodput`,
    `checkpoints`, `failures` (lost work and recovery), `standing` (no node to go on with),
    `fewer_replicas`. `failures_per_day` by part. `effective_step_s`: a step's share of all
    the time, infinite if nothing is ever done, as `mtbf_s` is if nothing fails; null in JSON.
    """

    goodput: float
    mtbf_s: float
    interval_s: float
    interval_to_s: float
    best: bool
    checkpoint_bytes: int
    blocked_s: float
    safe_after_s: float
    recover_s: float
    checkpoints: float
    failures: float
    standing: float
    fewer_replicas: float
    failures_per_day: dict[str, float]
    effective_step_s: float

    def as_dict(self) -> dict[str, Any]:
        """Return the fields, ready for JSON."""
        return msgspec.structs.asdict(self)

    def sentence(self) -> str:
        """Say what it comes to."""
        lost, failures = (1 - self.goodput) * _MONTH, _MONTH / self.mtbf_s
        told = [
            f"checkpoints {self.checkpoints:.1%}",
            f"failures {self.failures:.1%}",
            *([f"no node to go on with {self.standing:.1%}"] if self.standing else []),
            *([f"fewer replicas {self.fewer_replicas:.1%}"] if self.fewer_replicas else []),
        ]
        return (
            f"Goodput {self.goodput:.1%}: of 30 days {_apart(lost)} are lost, with {failures:,.3g}"
            f" failures (one every {_apart(self.mtbf_s)}); a checkpoint of"
            f" {format_size(self.checkpoint_bytes)} every {_apart(self.interval_s)}{self._flat()};"
            f" lost to {', '.join(told)}."
        )

    def _flat(self) -> str:
        """Say how much rarer checkpoints may be, if that was left open."""
        if not self.best:
            return ""
        return f" (the best; every {_apart(self.interval_to_s)} costs 0.1% more)"


def _apart(seconds: float) -> str:
    """Return a time as people say it: "40 s", "12 min", "5.2 h", "12 days"."""
    for unit, name in ((86400.0, "days"), (3600.0, "h"), (60.0, "min")):
        if seconds >= 2 * unit:
            return (
                f"{seconds / unit:,.3g} {name}"
                if seconds < 1000 * unit
                else f"{seconds / unit:,.0f} {name}"
            )
    return f"{seconds:.3g} s"


def goodput_of(
    section: GoodputSection,
    cluster: Cluster,
    *,
    parameters: int,
    precision: str,
    replicas: int,
    step_time_s: float,
    where: str = "goodput",
) -> Goodput:
    """Return the goodput of a training on all of a cluster.

    Raises:
        ScenarioError: no storage that checkpoints could go to, or NICs.
    """
    state = _state(section, parameters, precision)
    rates = _rates(section, cluster)
    blocked, safe_after, load = _times(section, cluster, state, where)
    recover = (int(section.detect) + int(section.restart)) / PS_PER_SECOND + load
    one = Recovery(
        rate=sum(rates.values()),
        blocked=blocked,
        safe_after=safe_after,
        recover=recover,
        hardware=sum(rates[part] for part in ("gpu", "nic", "node")),
        repair=int(section.repair) / PS_PER_SECOND,
        spares=section.spares,
        elastic=section.elastic,
        replicas=replicas,
        nodes=len(cluster.node_names),
    )
    given = section.interval
    interval = best_interval(one, step=step_time_s) if given is None else int(given) / PS_PER_SECOND
    if interval <= 0:
        raise ScenarioError(f"{where}.interval: must be above zero.")
    up = progress(one, interval)
    still, fewer = standing(one), away(one)
    whole = up * (1 - still) * (1 - fewer)
    writing = interval / (interval + blocked) if interval + blocked else 1.0
    running = 1 - still
    return Goodput(
        goodput=whole,
        mtbf_s=1 / one.rate if one.rate else float("inf"),
        interval_s=interval,
        interval_to_s=longest_interval(one, interval) if given is None else interval,
        best=given is None,
        checkpoint_bytes=state,
        blocked_s=blocked,
        safe_after_s=safe_after,
        recover_s=recover,
        checkpoints=running * up * (1 / writing - 1),
        failures=running * (1 - up / writing),
        standing=still,
        fewer_replicas=running * up * fewer,
        failures_per_day={part: rate * 86400 for part, rate in rates.items()},
        effective_step_s=step_time_s / whole if whole else float("inf"),
    )


def _state(section: GoodputSection, parameters: int, precision: str) -> int:
    """Return the bytes of a checkpoint: parameters and the optimizer's state, each once."""
    if section.state is not None:
        return int(section.state)
    held = state_bytes(parameters, precision=precision)
    return int(held.parameters + held.optimizer)


def _rates(section: GoodputSection, cluster: Cluster) -> dict[str, float]:
    """Return failures per second of the job, by part."""
    counts = {
        "gpu": cluster.world_size,
        "nic": len(cluster.nics),
        "link": len(cluster.nics),
        "node": len(cluster.node_names),
        "software": len(cluster.node_names),
    }
    return {part: counts[part] * getattr(section.rates, part) / _PER_HOURS for part in _PARTS}


def _times(
    section: GoodputSection, cluster: Cluster, state: int, where: str
) -> tuple[float, float, float]:
    """Return what a checkpoint blocks, how much later it is safe, and what loading it takes.

    All nodes write their share at once: over their NICs, and no faster than the storage takes it.
    A copy to host memory goes over each GPU's PCIe or C2C.
    """
    nodes = len(cluster.node_names)
    links = cluster.links
    routes = [cluster.to_host(rank).link for rank in (0, cluster.world_size - 1)]
    to_host = min(
        min((float(links.capacity[link]) for link in route), default=float("inf"))
        for route in routes
    )
    copy = state / cluster.world_size / to_host
    nics = sum(nic.bandwidth * nic.efficiency for nic in cluster.nics)
    if section.checkpoint == "memory":
        if nodes < 2 or not nics:
            raise ScenarioError(f"{where}.checkpoint: memory needs the NICs of another node.")
        sent = state / nics
        return copy, sent, sent + copy
    if section.storage is None:
        raise ScenarioError(
            f"{where}.storage: is missing: how many bytes per second the storage takes from all"
            " nodes together, like storage: 200GB/s. Or checkpoint: memory."
        )
    rate = float(section.storage) if nodes < 2 or not nics else min(float(section.storage), nics)
    stored = state / rate
    if section.checkpoint == "sync":
        return copy + stored, 0.0, stored + copy
    return copy, stored, stored + copy
