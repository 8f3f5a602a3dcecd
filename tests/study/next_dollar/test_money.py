"""What as much again of a resource costs, of bills that are added up by hand."""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any

import pytest

from commsim.cluster import ClusterSection, build_cluster
from commsim.cluster.prices import PricesSection
from commsim.sections import decode
from commsim.study.next_dollar.money import DoubledPrice, doubled_price

HOURS = 365.25 * 24


def one(price: float) -> dict[str, Any]:
    return {"price": price, "source": "a list", "date": "2026-01"}


BOUGHT = {"node": one(1e5), "nic": one(11), "switch": one(7), "cable": one(2), "optic": one(1),
          "electricity": one(0.1), "switch_watts": 1000, "pue": 1.5, "years": 2}  # fmt: skip


def doubled(
    monkeypatch: pytest.MonkeyPatch, resource: str, parts: Any = (), *, nics: int = 16,
    **prices: Any,
) -> DoubledPrice | None:  # fmt: skip
    """Return the price of twice as much on a fabric of 9 switches and 30 cables, of which 3 spines
    and 2 cores with 10 cables are between switches. A price of None is left out."""
    monkeypatch.setattr(
        sys.modules["commsim.study.next_dollar.money"], "hourly_price", lambda _: ("EUR", 1.0)
    )
    said = {key: value for key, value in (BOUGHT | prices).items() if value is not None}
    given = {"spines": 3, "cores": 2, "switches": 9, "trunk_cables": 10, "cables": 30}
    cluster: Any = SimpleNamespace(
        prices=(decode(said, PricesSection, "x"),), nics=range(nics),
        fabric=SimpleNamespace(parts=SimpleNamespace(**given | dict(parts))),
    )  # fmt: skip
    section: Any = None
    return doubled_price(resource, cluster, section, "x")


def test_links_between_switches_come_with_the_switches_above_the_leaves(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """5 switches of 7, 10 cables of 2 and their 20 ends: 75 in two years, and 5 kW with half as
    much again of the site."""
    found = doubled(monkeypatch, "uplinks")
    assert found is not None
    assert found.per_hour == pytest.approx(75 / (2 * HOURS) + 5 * 1.5 * 0.1)
    assert found.buys == "5 switches, 10 cables, 20 optics"


def test_nics_come_with_a_second_network(monkeypatch: pytest.MonkeyPatch) -> None:
    """16 of 11, 9 switches, 30 cables and 60 ends: 176 + 63 + 60 + 60."""
    found = doubled(monkeypatch, "nic")
    assert found is not None
    assert found.per_hour == pytest.approx(359 / (2 * HOURS) + 9 * 1.5 * 0.1)
    assert found.buys == "16 NICs, 9 switches, 30 cables, 60 optics"
    few = doubled(monkeypatch, "nic", {"switches": 1, "cables": 1}, nics=1)
    assert few is not None
    assert few.buys == "1 NIC, 1 switch, 1 cable, 2 optics"
    none = doubled(monkeypatch, "nic", {"switches": 0, "cables": 0}, nics=2)
    assert none is not None
    assert none.buys == "2 NICs"
    assert none.per_hour == pytest.approx(22 / (2 * HOURS))


def test_what_the_prices_leave_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without watts no power, without a PUE that of the switches alone, without years one year."""
    bare = doubled(monkeypatch, "uplinks", switch_watts=None, optic=None, years=None)
    assert bare is not None
    assert bare.per_hour == pytest.approx((35 + 20) / HOURS)
    plain = doubled(monkeypatch, "uplinks", pue=None, years=1)
    assert plain is not None
    assert plain.per_hour == pytest.approx(75 / HOURS + 5 * 0.1)


@pytest.mark.parametrize("resource", ["nvlink", "compute", "micro"])
def test_parts_of_a_node_have_no_price_of_their_own(
    resource: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert doubled(monkeypatch, resource) is None


def rented(resource: str, **changes: Any) -> DoubledPrice | None:
    data = {"preset": "dgx-h100", "nodes": 3, "prices": {"gpu_hour": one(2.0)}} | changes
    section = decode({k: v for k, v in data.items() if v is not None}, ClusterSection, "x")
    return doubled_price(resource, build_cluster(section, "x"), section, "x")


def test_a_rent_says_what_nodes_cost_and_nothing_else() -> None:
    """Three nodes more of eight GPUs at 2 an hour."""
    assert rented("nodes") == DoubledPrice(48.0, "3 more nodes and their share of the fabric")
    assert rented("nic") is rented("uplinks") is None
    assert rented("nodes", prices=None) is None
    kinds = [{"preset": "dgx-h100", "count": 2}]
    assert rented("nodes", preset=None, nodes=kinds) is None
