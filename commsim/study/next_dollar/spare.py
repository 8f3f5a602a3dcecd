"""
What a run has to spare: how full a resource ever was, and from when on less of it is felt.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from commsim.cluster import Cluster
from commsim.scenario import Scenario
from commsim.study.next_dollar.reasons import hurts_words, idle_reason, link_uses
from commsim.study.next_dollar.resources import Resource, resources_of
from commsim.study.run import Result, run

__all__ = ["differing", "spare_words"]

_NOTICED = 0.01  # of the step
_LEAST = 1 / 64  # share of what there is, below which no loss is looked for
_ROUNDS = 4


def differing(one: Cluster, other: Cluster) -> list[str]:
    """Return the keys of the resources that are links, and that two clusters have unlike."""
    a, b = one.specs[0], other.specs[0]
    pairs = {
        "nvlink": ((a.switch, a.nvlink, a.mesh), (b.switch, b.nvlink, b.mesh)),
        "pcie": (a.pcie.bandwidth, b.pcie.bandwidth),
        "nic": (a.nic and (a.nic.count, a.nic.wire), b.nic and (b.nic.count, b.nic.wire)),
        "uplinks": (_between_switches(one), _between_switches(other)),
    }
    return [key for key, (here, there) in pairs.items() if here != there]


def spare_words(scenario: Scenario, base: Result, keys: Iterable[str]) -> list[str]:
    """Say of each resource how full it was at most, and from when on less of it is felt.

    The latter by a few runs of the scenario with less.
    """
    resources = {r.key: r for r in resources_of(scenario.file, base.cluster, scenario.where)}
    uses = link_uses(base.timeline)
    lines = []
    for resource in (resources[key] for key in keys if key in resources):
        told = f"{resource.title}: {idle_reason(resource.key, resource.links, uses, base)}"
        share = _felt_from(scenario, base, resource) if uses.of(resource.links)[0] else None
        if share is not None:
            told += f"; {hurts_words(resource.key, resource.now, share)}"
        lines.append(told)
    return lines


def _felt_from(scenario: Scenario, base: Result, resource: Resource) -> float | None:
    """Return the share of a resource at which the step is 1 % longer; None if it never is."""
    step = base.metrics.step_time_s

    def felt(share: float) -> bool:
        return _with_less(scenario, resource.key, share) >= (1 + _NOTICED) * step

    high, low = 1.0, 0.5
    while not felt(low):
        if low <= _LEAST:
            return None
        high, low = low, low / 2
    for _ in range(_ROUNDS):
        middle = (low * high) ** 0.5
        low, high = (middle, high) if felt(middle) else (low, middle)
    return low


def _with_less(scenario: Scenario, key: str, share: float) -> float:
    """Return the step (s) with a share of one resource."""
    cluster = scenario.file.cluster
    assert cluster is not None
    scale = msgspec.structs.replace(cluster.scale, **{key: getattr(cluster.scale, key) * share})
    changed = msgspec.structs.replace(cluster, scale=scale)
    file = msgspec.structs.replace(scenario.file, cluster=changed)
    return run(msgspec.structs.replace(scenario, file=file)).metrics.step_time_s


def _between_switches(cluster: Cluster) -> tuple[object, ...]:
    spec = cluster.fabric.spec
    shape = (spec.dims, spec.leaves_per_group, spec.global_links, spec.link_bandwidth, spec.links)
    return spec.oversubscription / spec.uplinks, shape
