"""
The cost of a step: money if everything has a price, energy if every node has a power.

Rented: an hour of a GPU with its share of all that carries it, as the provider lists it. Bought:
nodes, NICs, switches, cables and optics by the fabric's own counts, paid off over their years, and
the electricity of all of it at the most that it draws. A node's power is its datasheet's maximum,
so energy is an upper bound; cooling is in it if a PUE is given. Storage, staff and the building
are in neither.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
from msgspec.structs import replace

from commsim.cluster import Cluster, NodeSpec, PricesSection
from commsim.metrics.measure import Metrics

__all__ = ["BillLine", "Cost", "bill_of", "cost_of", "hourly_price", "priced", "rated_power"]

_HOUR = 3600.0
_HOURS_PER_YEAR = 365.25 * 24
_BILLION = 1e9
_JOULES_PER_KWH = 3.6e6
_WATTS_PER_KILOWATT = 1e3


class BillLine(msgspec.Struct, frozen=True):
    """So many of a part at a price; `source` says whose figure it is, and of when."""

    part: str
    count: int
    each: float
    source: str

    @property
    def total(self) -> float:
        """The price of all of them."""
        return self.count * self.each

    def as_dict(self) -> dict[str, Any]:
        """Return the line, ready for JSON."""
        return msgspec.structs.asdict(self) | {"total": self.total}


class Cost(msgspec.Struct, frozen=True):
    """Money and energy of a run; None if prices, power or tokens are not known.

    `per_hour` and `power_w` are the whole cluster's. `capital` is what was bought, by the lines of
    `bill`; None and () if it is rented. `sources` says whose figures these are.
    """

    currency: str | None
    per_hour: float | None
    per_step: float | None
    per_1e9_tokens: float | None
    power_w: float | None
    energy_j_per_step: float | None
    energy_kwh_per_1e9_tokens: float | None
    capital: float | None
    bill: tuple[BillLine, ...]
    sources: tuple[str, ...]

    def as_dict(self) -> dict[str, Any]:
        """Return the fields, ready for JSON."""
        return msgspec.structs.asdict(self) | {
            "bill": [line.as_dict() for line in self.bill],
            "sources": list(self.sources),
        }


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
    """Return what steps of `step_time_s` cost on a cluster; None if nothing is known of it."""
    price, power = hourly_price(cluster), rated_power(cluster)
    if price is None and power is None:
        return None
    currency, per_hour = price if price is not None else (None, None)
    steps = _BILLION / tokens_per_step if tokens_per_step else None
    per_step = None if per_hour is None else per_hour * step_time_s / _HOUR
    joules = None if power is None else power * step_time_s
    bill = bill_of(cluster)
    return Cost(
        currency=currency,
        per_hour=per_hour,
        per_step=per_step,
        per_1e9_tokens=_times(per_step, steps),
        power_w=power,
        energy_j_per_step=joules,
        energy_kwh_per_1e9_tokens=_times(joules, steps, 1 / _JOULES_PER_KWH),
        capital=sum(line.total for line in bill) if bill else None,
        bill=bill,
        sources=_sources(cluster, bill, has_price=price is not None, has_power=power is not None),
    )


def hourly_price(cluster: Cluster) -> tuple[str, float] | None:
    """Return the currency and what an hour of the whole cluster costs, rented or bought.

    None if a node has no price, or if the nodes' currencies differ.
    """
    prices = [one for one in cluster.prices if one is not None]
    currencies = list(dict.fromkeys(_currency(one) for one in prices))
    if len(prices) < len(cluster.specs) or len(currencies) > 1:
        return None
    if not prices[0].bought:
        rents = [one.gpu_hour for one in prices]
        if None in rents:
            return None
        hours = zip(rents, cluster.specs, _counts(cluster), strict=True)
        return currencies[0], sum(
            rent.price * spec.gpus * count for rent, spec, count in hours if rent is not None
        )
    site, power = prices[0], rated_power(cluster)
    assert power is not None
    capital = capital_per_hour(sum(line.total for line in bill_of(cluster)), site)
    return currencies[0], capital + power_per_hour(power, site)


def capital_per_hour(money: float, site: PricesSection) -> float:
    """Return what money costs an hour, paid off over the years of what is bought."""
    return money / ((site.years or 1.0) * _HOURS_PER_YEAR)


def power_per_hour(watts: float, site: PricesSection) -> float:
    """Return what an hour of so many watts, with the site's own, costs."""
    return watts / _WATTS_PER_KILOWATT * (site.electricity.price if site.electricity else 0.0)


def bill_of(cluster: Cluster) -> tuple[BillLine, ...]:
    """Return what a bought cluster consists of, with prices; () if it is rented or unpriced."""
    site = cluster.prices[0]
    if site is None or not site.bought:
        return ()
    lines = []
    for spec, own, count in zip(cluster.specs, cluster.prices, _counts(cluster), strict=True):
        assert own is not None
        lines.append(_line(f"node {spec.name}", count, own, "node"))
        if spec.nic is not None:
            nics = count * spec.nic.count
            lines.append(_line(f"NIC {spec.nic.model}".rstrip(), nics, own, "nic"))
    parts = cluster.fabric.parts
    if parts.switches:
        lines.append(_line("switch", parts.switches, site, "switch"))
        lines.append(_line("cable", parts.cables, site, "cable"))
        lines.append(_line("optic", parts.optics, site, "optic"))
    return tuple(lines)


def rated_power(cluster: Cluster) -> float | None:
    """Return the most that all nodes draw together, in watts; None if one is not known.

    Of a bought cluster the switches count too, and both are times the site's PUE.
    """
    nodes = 0.0
    for spec, count in zip(cluster.specs, _counts(cluster), strict=True):
        if spec.power is None:
            return None
        nodes += spec.power.watts * count
    site = cluster.prices[0]
    if site is None or not site.bought:
        return nodes
    switches = cluster.fabric.parts.switches * (site.switch_watts or 0.0)
    return (nodes + switches) * (site.pue or 1.0)


def _counts(cluster: Cluster) -> list[int]:
    return [cluster.spec_of.count(kind) for kind in range(len(cluster.specs))]


def _currency(prices: PricesSection) -> str:
    return prices.currency or "USD"


def _line(part: str, count: int, prices: PricesSection, field: str) -> BillLine:
    price = getattr(prices, field)
    return BillLine(part, count, price.price, f"{price.date}; {price.source}")


def _times(value: float | None, *factors: float | None) -> float | None:
    """Return a product, None if one of its factors is."""
    for factor in factors:
        value = None if value is None or factor is None else value * factor
    return value


def _sources(
    cluster: Cluster, bill: Sequence[BillLine], *, has_price: bool, has_power: bool
) -> tuple[str, ...]:
    """Return each price and power with whose figure it is, once."""
    lines: list[str] = []
    for spec, own in _once(cluster):
        if has_price and own is not None and own.gpu_hour is not None:
            rent = own.gpu_hour
            lines.append(
                f"{spec.name}: {rent.price:g} {_currency(own)} per GPU and hour"
                f" ({rent.date}; {rent.source})"
            )
        if has_power and spec.power is not None:
            lines.append(f"{spec.name}: {spec.power.watts:g} W at most ({spec.power.source})")
    site = cluster.prices[0]
    if site is not None and site.electricity is not None and bill:
        lines += [
            f"{line.count:,} x {line.part}: {line.each:,g} {_currency(site)} each ({line.source})"
            for line in bill
        ]
        lines.append(
            f"electricity: {site.electricity.price:g} {_currency(site)} a kWh"
            f" ({site.electricity.date}; {site.electricity.source}), PUE {site.pue:g},"
            f" paid off over {site.years:g} years"
        )
    return tuple(dict.fromkeys(lines))


def _once(cluster: Cluster) -> list[tuple[NodeSpec, PricesSection | None]]:
    pairs = zip(cluster.specs, cluster.prices, strict=True)
    return list({(spec.name, own, spec.power): (spec, own) for spec, own in pairs}.values())
