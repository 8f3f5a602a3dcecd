"""
What a cluster costs, as its user states it: rented by the GPU-hour, or bought part by part.

    prices: {gpu_hour: {price: 4.10, source: offer 17, date: "2026-10-02"}}
    prices: {node: {...}, nic: {...}, switch: {...}, cable: {...}, optic: {...},
             electricity: {...}, switch_watts: 1100, pue: 1.3, years: 4}

Nothing that is bought costs zero by being left out: `check_prices` asks for it.
"""

from __future__ import annotations

from msgspec.structs import asdict, replace

from commsim.cluster.fabrics import FabricParts
from commsim.cluster.nodes import NodeSpec, field_path
from commsim.errors import ScenarioError
from commsim.sections import Section

__all__ = ["PriceSection", "PricesSection", "check_prices", "inherited_prices", "of_nodes_only"]

_OF_A_NODE = ("node", "nic")
_OF_THE_FABRIC = ("switch", "cable", "optic", "switch_watts")
_OF_RUNNING = ("electricity", "pue", "years")
_BOUGHT = (*_OF_A_NODE, *_OF_THE_FABRIC, *_OF_RUNNING)
_MONEY = ("gpu_hour", *_OF_A_NODE, "switch", "cable", "optic", "electricity")
_EXAMPLE = '{price: ..., source: ..., date: "..."}'


class PriceSection(Section, frozen=True):
    """What one of something costs: whose figure it is, and of when."""

    price: float
    source: str
    date: str


class PricesSection(Section, frozen=True):
    """The prices of a cluster: `gpu_hour`, or those of everything that is bought.

    `gpu_hour`: an hour of a rented GPU with its share of the node and all that carries it. Bought:
    a `node` without NICs, a `nic`, a `switch`, a `cable`, an `optic` (two to a cable), a kWh of
    `electricity`. What one price holds already has the price 0 and a source that says so.
    `switch_watts`: what a switch draws at most with its optics. `pue`: power of the site over that
    of the machines. `years`: over how long what is bought is paid off.
    """

    currency: str | None = None
    gpu_hour: PriceSection | None = None
    node: PriceSection | None = None
    nic: PriceSection | None = None
    switch: PriceSection | None = None
    cable: PriceSection | None = None
    optic: PriceSection | None = None
    electricity: PriceSection | None = None
    switch_watts: float | None = None
    pue: float | None = None
    years: float | None = None

    @property
    def bought(self) -> bool:
        """Whether anything is said of buying."""
        return any(getattr(self, field) is not None for field in _BOUGHT)


def inherited_prices(base: PricesSection | None, own: PricesSection | None) -> PricesSection | None:
    """Return a preset's prices with the stated ones over them: renting and buying exclude."""
    if base is None or own is None:
        return base if own is None else own
    if own.bought or own.gpu_hour is not None:
        gone = ("gpu_hour",) if own.bought else _BOUGHT
        base = replace(base, **dict.fromkeys(gone))
    stated = {field: value for field, value in asdict(own).items() if value is not None}
    return replace(base, **stated)


def of_nodes_only(own: PricesSection | None, where: str, path: str) -> None:
    """Refuse, among the prices of one kind of node, those that belong to the whole cluster."""
    for field in (*_OF_THE_FABRIC, *_OF_RUNNING):
        if own is not None and getattr(own, field) is not None:
            raise ScenarioError(
                f"{where}: {field_path(path, field)}: is the whole cluster's. Put it into the"
                " cluster's `prices`."
            )


def check_prices(
    prices: PricesSection | None,
    kinds: list[tuple[NodeSpec, PricesSection | None, str]],
    fabric: FabricParts,
    *,
    where: str,
    path: str,
) -> None:
    """Refuse prices that leave out what was bought. `kinds`: each with its own prices and path.

    Raises:
        ScenarioError: a negative figure, renting and buying at once, or a price that is missing.
    """
    stated = [(prices, path)] if prices is not None else []
    for section, at in [*stated, *((own, at) for _, own, at in kinds if own is not None)]:
        _check_figures(section, f"{where}: {at}")
    own_prices = [own for _, own, _ in kinds if own is not None]
    if any(own.bought for own in own_prices) and len(own_prices) < len(kinds):
        raise ScenarioError(f"{where}: {path}: some nodes are bought, and others have no price.")
    if len({own.bought for own in own_prices}) > 1:
        raise ScenarioError(
            f"{where}: {path}: some nodes are rented and others bought. Give all nodes prices of"
            " one kind."
        )
    if prices is None or not prices.bought:
        return
    if fabric.wrong:
        raise ScenarioError(f"{where}: {path}: cannot price the fabric: {fabric.wrong}")
    for spec, own, at in kinds:
        if spec.power is None:
            raise ScenarioError(
                f"{where}: {field_path(at, 'electricity')}: the power of node {spec.name} is not"
                " known. Give overrides: {power: {watts: ..., source: ...}}."
            )
        for field in ("node", *(("nic",) if spec.nic is not None else ())):
            if getattr(own, field) is None:
                count = 1 if field == "node" or spec.nic is None else spec.nic.count
                _ask(field, where, at, f"{count:,} in each {spec.name}")
    for field in (*(_OF_THE_FABRIC if fabric.switches else ()), *_OF_RUNNING):
        if getattr(prices, field) is None:
            _ask(field, where, path, fabric.told if field in _OF_THE_FABRIC else "")


def _ask(field: str, where: str, path: str, of: str) -> None:
    example = _EXAMPLE if field in _MONEY else "a number"
    raise ScenarioError(
        f"{where}: {field_path(path, field)}: is missing{f' ({of})' if of else ''}: what is bought"
        f" has no price of zero. Give {example}; price 0 and a source where another price holds"
        " it."
        if field in _MONEY
        else f"{where}: {field_path(path, field)}: is missing{f' ({of})' if of else ''}. Give"
        f" {example}."
    )


def _check_figures(prices: PricesSection, at: str) -> None:
    if prices.gpu_hour is not None and prices.bought:
        field = next(field for field in _BOUGHT if getattr(prices, field) is not None)
        raise ScenarioError(
            f"{at}.gpu_hour: the hour of a rented GPU holds all, and {field} is of what is bought."
            " Give one of them."
        )
    for field in _MONEY:
        price = getattr(prices, field)
        if price is not None and not price.price >= 0:
            raise ScenarioError(f"{at}.{field}.price: {price.price:g} is below zero.")
    for field, least in (("switch_watts", 0.0), ("pue", 1.0)):
        value = getattr(prices, field)
        if value is not None and not value >= least:
            raise ScenarioError(f"{at}.{field}: {value:g} is below {least:g}.")
    if prices.years is not None and not prices.years > 0:
        raise ScenarioError(f"{at}.years: {prices.years:g} is not above zero.")
