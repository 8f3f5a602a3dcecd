"""
The cost of a step: money if every node has a price, energy if every node has a power.

A price is an hour of a GPU with its share of the node, as the provider lists it; a node's power
is the most that it draws, so energy is an upper bound. Fabric, cooling and storage are in
neither, unless the price includes them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from commsim.cluster import Cluster, NodeSpec
from commsim.metrics.measure import Metrics

__all__ = ["Cost", "cost_of", "hourly_price", "priced", "rated_power"]

_HOUR = 3600.0
_BILLION = 1e9
_JOULES_PER_KWH = 3.6e6


@dataclass(frozen=True, slots=True)
class Cost:
    """Money and energy of a run; None where prices, power or tokens are not known.

    `per_hour` and `power_w` are the whole cluster's. `sources` says whose figures these are.
    """

    currency: str | None
    per_hour: float | None
    per_step: float | None
    per_1e9_tokens: float | None
    power_w: float | None
    energy_j_per_step: float | None
    energy_kwh_per_1e9_tokens: float | None
    sources: tuple[str, ...]

    def as_dict(self) -> dict[str, Any]:
        """Return the fields, ready for JSON."""
        return asdict(self) | {"sources": list(self.sources)}


def priced(metrics: Metrics, cluster: Cluster) -> Metrics:
    """Return the metrics of a run on a cluster with what its steps cost."""
    seconds, tokens = metrics.step_time_s, metrics.tokens_per_s
    cost = cost_of(
        cluster, step_time_s=seconds, tokens_per_step=None if tokens is None else tokens * seconds
    )
    return replace(metrics, cost=None if cost is None else cost.as_dict())


def cost_of(
    cluster: Cluster, *, step_time_s: float, tokens_per_step: float | None = None
) -> Cost | None:
    """Return what steps of `step_time_s` cost on a cluster; None where nothing is known of it."""
    price, power = hourly_price(cluster), rated_power(cluster)
    if price is None and power is None:
        return None
    currency, per_hour = price if price is not None else (None, None)
    steps = _BILLION / tokens_per_step if tokens_per_step else None
    per_step = None if per_hour is None else per_hour * step_time_s / _HOUR
    joules = None if power is None else power * step_time_s
    return Cost(
        currency=currency,
        per_hour=per_hour,
        per_step=per_step,
        per_1e9_tokens=_times(per_step, steps),
        power_w=power,
        energy_j_per_step=joules,
        energy_kwh_per_1e9_tokens=_times(joules, steps, 1 / _JOULES_PER_KWH),
        sources=_sources(cluster, has_price=price is not None, has_power=power is not None),
    )


def hourly_price(cluster: Cluster) -> tuple[str, float] | None:
    """Return the currency and what an hour of the whole cluster costs.

    None where a node has no price, or where the nodes' currencies differ.
    """
    prices = [spec.price for spec in cluster.specs if spec.price is not None]
    currencies = list(dict.fromkeys(price.currency for price in prices))
    if len(prices) < len(cluster.specs) or len(currencies) > 1:
        return None
    total = _total(cluster, lambda spec: spec.price.per_gpu_hour * spec.gpus if spec.price else 0.0)
    return currencies[0], total


def rated_power(cluster: Cluster) -> float | None:
    """Return the most that all nodes draw together, in watts; None where one is not known."""
    if any(spec.power is None for spec in cluster.specs):
        return None
    return _total(cluster, lambda spec: spec.power.watts if spec.power else 0.0)


def _total(cluster: Cluster, of: Callable[[NodeSpec], float]) -> float:
    counts = [cluster.spec_of.count(kind) for kind in range(len(cluster.specs))]
    return sum(of(spec) * count for spec, count in zip(cluster.specs, counts, strict=True))


def _times(value: float | None, *factors: float | None) -> float | None:
    """Return a product, None where one of its factors is."""
    for factor in factors:
        value = None if value is None or factor is None else value * factor
    return value


def _sources(cluster: Cluster, *, has_price: bool, has_power: bool) -> tuple[str, ...]:
    """Return each kind of node's price and power with whose figure it is, once."""
    lines: list[str] = []
    for spec in _once(cluster.specs):
        if has_price and spec.price is not None:
            price = spec.price
            lines.append(
                f"{spec.name}: {price.per_gpu_hour:g} {price.currency} per GPU and hour"
                f" ({price.date}; {price.source})"
            )
        if has_power and spec.power is not None:
            lines.append(f"{spec.name}: {spec.power.watts:g} W at most ({spec.power.source})")
    return tuple(dict.fromkeys(lines))


def _once(specs: Sequence[NodeSpec]) -> list[NodeSpec]:
    return list({(spec.name, spec.price, spec.power): spec for spec in specs}.values())
