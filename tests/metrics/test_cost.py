"""What a step costs: sums over nodes, and nothing where a price or a power is missing."""

from __future__ import annotations

from typing import Any

import pytest
from helpers.optional import present
from hypothesis import given
from hypothesis import strategies as st

from commsim.cluster import Cluster, cluster_from
from commsim.errors import ScenarioError
from commsim.metrics.cost import bill_of, cost_of, hourly_price, priced, rated_power
from commsim.study.run.run import run

PRICE = {"gpu_hour": {"price": 2.5, "source": "general: a test", "date": "2026-01-01"}}
OTHER = {"gpu_hour": PRICE["gpu_hour"] | {"price": 1.0}}
POWER = {"watts": 7200.0, "source": "general: a test"}


def cluster(*kinds: dict[str, Any], preset: str = "dgx-h100") -> Cluster:
    nodes = [
        {
            "preset": preset,
            "count": 2,
            "overrides": {"power": kind["power"]} if "power" in kind else None,
            "prices": kind.get("prices"),
        }
        for kind in kinds
    ]
    return cluster_from({"nodes": nodes}, "x")


def bought(nodes: int = 2, **changes: Any) -> dict[str, Any]:
    """Return a bought cluster of nodes of 8 H100 in plain data, its prices changed."""

    def price(amount: float) -> dict[str, Any]:
        return {"price": amount, "source": "general: a test", "date": "2026-01-01"}

    prices = {
        "node": price(300_000), "nic": price(0), "switch": price(36_000), "cable": price(200),
        "optic": price(500), "electricity": price(0.1), "switch_watts": 1000, "pue": 1.25,
        "years": 4,
    }  # fmt: skip
    prices = {key: value for key, value in (prices | changes).items() if value is not None}
    return {"preset": "dgx-h100", "nodes": nodes, "prices": prices}


def test_a_step_costs_the_hour_of_all_gpus_by_its_length():
    cost = cost_of(cluster({"prices": PRICE}), step_time_s=9.0, tokens_per_step=5e5)
    assert cost is not None
    assert (cost.currency, cost.per_hour) == ("USD", 2.5 * 16)
    assert cost.per_step == pytest.approx(0.1, rel=1e-12)  # 40 USD/h for 9 s
    assert cost.per_1e9_tokens == pytest.approx(200.0, rel=1e-12)  # 2,000 such steps


def test_energy_is_the_power_of_all_nodes_by_the_time():
    cost = cost_of(cluster({"power": POWER}), step_time_s=10.0, tokens_per_step=1e6)
    assert cost is not None
    assert (cost.power_w, cost.energy_j_per_step) == (14400.0, 144000.0)
    assert cost.energy_kwh_per_1e9_tokens == pytest.approx(40.0, rel=1e-12)  # 1,000 x 144 kJ
    assert (cost.currency, cost.per_step, cost.per_1e9_tokens) == (None, None, None)


def test_without_tokens_there_is_no_price_of_tokens():
    cost = cost_of(Cluster.preset("aws-p5"), step_time_s=1.0)
    assert cost is not None
    assert cost.per_step == pytest.approx(55.04 / 3600, rel=1e-6)
    assert cost.per_1e9_tokens is None


def test_different_kinds_of_nodes_add_up():
    both = cluster({"prices": PRICE}, {"prices": OTHER})
    assert hourly_price(both) == ("USD", 16 * 2.5 + 16 * 1.0)


def test_one_node_without_a_price_leaves_the_sum_unknown():
    both = cluster({"prices": PRICE}, {})
    assert hourly_price(both) is None
    cost = cost_of(both, step_time_s=1.0)  # a DGX H100 has a power
    assert cost is not None
    assert cost.per_hour is None
    assert cost.power_w == 4 * 10200


def test_a_price_counts_the_gpus_that_a_node_has():
    currency, price = present(hourly_price(Cluster.preset("oci-gb200", nodes=18)))
    assert currency == "USD"
    assert price == pytest.approx(18 * 64.0)


def test_two_currencies_do_not_add_up():
    assert hourly_price(cluster({"prices": PRICE}, {"prices": PRICE | {"currency": "EUR"}})) is None


def test_nothing_known_is_no_cost():
    plain = Cluster.preset("pcie-a100", nodes=2)
    assert rated_power(plain) is None
    assert cost_of(plain, step_time_s=1.0) is None


def test_the_sources_name_figure_date_and_origin():
    cost = cost_of(Cluster.preset("aws-p5", nodes=2), step_time_s=1.0)
    assert cost is not None
    (line,) = cost.sources
    assert line.startswith("aws-p5: 6.88 USD per GPU and hour (2026-09-25; documented: 55.04 USD")
    data = cost.as_dict()
    assert data["sources"] == [line]
    assert set(data) == {
        "currency", "per_hour", "per_step", "per_1e9_tokens", "power_w", "energy_j_per_step",
        "energy_kwh_per_1e9_tokens", "capital", "bill", "sources",
    }  # fmt: skip


@given(st.floats(1e-3, 1e3), st.floats(1e3, 1e8), st.floats(1.5, 10))
def test_cost_grows_with_time_and_falls_with_tokens(seconds, tokens, factor):
    nodes = Cluster.preset("gcp-a3-mega", nodes=2)
    one = present(cost_of(nodes, step_time_s=seconds, tokens_per_step=tokens))
    slower = present(cost_of(nodes, step_time_s=seconds * factor, tokens_per_step=tokens))
    denser = present(cost_of(nodes, step_time_s=seconds, tokens_per_step=tokens * factor))
    assert slower.per_step == pytest.approx(present(one.per_step) * factor, rel=1e-9)
    assert denser.per_1e9_tokens == pytest.approx(present(one.per_1e9_tokens) / factor, rel=1e-9)
    assert denser.per_step == one.per_step


def test_a_run_is_priced_by_its_step_and_its_tokens():
    metrics = run("quickstart").metrics
    nodes = Cluster.preset("aws-p5", nodes=2)
    cost = priced(metrics, nodes).cost
    assert cost is not None
    hours = metrics.step_time_s / 3600
    assert cost["per_step"] == pytest.approx(2 * 55.04 * hours, rel=1e-6)
    steps = 1e9 / (present(metrics.tokens_per_s) * metrics.step_time_s)
    assert cost["per_1e9_tokens"] == pytest.approx(cost["per_step"] * steps, rel=1e-9)
    assert priced(metrics, Cluster.preset("pcie-a100")).cost is None


def test_what_is_bought_is_paid_off_and_draws_power():
    own = cluster_from(bought(2), "x")
    lines = {line.part.split()[0]: (line.count, line.total) for line in bill_of(own)}
    assert lines == {
        "node": (2, 600_000), "NIC": (16, 0), "switch": (1, 36_000), "cable": (16, 3_200),
        "optic": (32, 16_000),
    }  # fmt: skip
    watts = (2 * 10_200 + 1000) * 1.25
    assert rated_power(own) == watts
    hours = 4 * 365.25 * 24
    currency, per_hour = present(hourly_price(own))
    assert currency == "USD"
    assert per_hour == pytest.approx(655_200 / hours + watts / 1000 * 0.1)
    cost = present(cost_of(own, step_time_s=3600.0, tokens_per_step=1e9))
    assert cost.capital == 655_200
    assert cost.per_1e9_tokens == pytest.approx(per_hour)
    assert cost.energy_kwh_per_1e9_tokens == pytest.approx(watts / 1000)
    assert "1 x switch: 36,000 USD each (2026-01-01; general: a test)" in cost.sources
    assert any("PUE 1.25, paid off over 4 years" in line for line in cost.sources)


@pytest.mark.parametrize(
    ("nodes", "switches", "cables"),
    [
        (8, 1, 64),  # 64 NICs fill one switch: nothing above it
        (12, 4 + 2, 96 + 96),  # rails of 12 NICs and 12 uplinks: two in a box of 64 ports
        (32, 8 + 4, 256 + 256),  # a box a rail
    ],
)
def test_rails_of_few_nodes_share_boxes(nodes: int, switches: int, cables: int):
    lines = {line.part: line.count for line in bill_of(cluster_from(bought(nodes), "x"))}
    assert (lines["switch"], lines["cable"]) == (switches, cables)


def test_a_fabric_of_half_the_uplinks_costs_its_own_bill_less():
    full, half = (
        cluster_from(bought(64) | {"fabric": {"oversubscription": ratio}}, "x") for ratio in (1, 2)
    )
    lines = [{line.part: line.count for line in bill_of(one)} for one in (full, half)]
    # 1:1: 32 NICs and 32 uplinks to a leaf; 2:1: 42 and 21, pods of 42 nodes.
    assert lines[0]["switch"] == 16 + 8
    assert lines[0]["cable"] == 512 + 512
    assert lines[1]["switch"] == 16 + 4  # 8 leaves of 42 NICs, 8 of 22: 8 x (21 + 11) uplinks
    assert lines[1]["cable"] == 512 + 256
    spent = [present(cost_of(one, step_time_s=1.0)).capital for one in (full, half)]
    assert present(spent[0]) - present(spent[1]) == 4 * 36_000 + 256 * (200 + 2 * 500)


@pytest.mark.parametrize(
    "field",
    ["node", "nic", "switch", "cable", "optic", "electricity", "switch_watts", "pue", "years"],
)
def test_a_missing_price_is_asked_for(field):
    with pytest.raises(ScenarioError, match=rf"^x: prices\.{field}: is missing"):
        cluster_from(bought(2, **{field: None}), "x")


def test_prices_that_cannot_be_meant_are_refused():
    rent = {"price": 2.0, "source": "x", "date": "today"}
    for changes, told in (
        ({"gpu_hour": rent}, "prices.gpu_hour: the hour of a rented GPU holds all"),
        ({"node": rent | {"price": -1}}, "prices.node.price: -1 is below zero"),
        ({"pue": 0.9}, "prices.pue: 0.9 is below 1"),
        ({"years": 0}, "prices.years: 0 is not above zero"),
        ({"cooling": rent}, "unknown setting 'cooling'"),
    ):
        with pytest.raises(ScenarioError, match=told):
            cluster_from(bought(2, **changes), "x")
    with pytest.raises(ScenarioError, match=r"'prices\.gpu_hour\.date' is missing"):
        cluster_from(
            {"preset": "dgx-h100", "prices": {"gpu_hour": {"price": 2, "source": "x"}}}, "x"
        )


def test_one_switch_with_more_ports_than_any_has_no_price():
    data = bought(16) | {"fabric": {"kind": "rail_only"}}
    assert present(cost_of(cluster_from(data, "x"), step_time_s=1.0)).capital
    data = bought(80) | {"fabric": {"kind": "rail_only"}}
    data["fabric"]["switch_latency"] = "230ns"
    with pytest.raises(ScenarioError, match="a leaf of this rail_only needs 80 ports"):
        cluster_from(data, "x")


def test_buying_replaces_the_rent_of_a_preset_and_back():
    data = bought(2) | {"preset": "aws-p5", "overrides": {"power": POWER}}
    assert present(cost_of(cluster_from(data, "x"), step_time_s=1.0)).capital
    rented = {"preset": "aws-p5", "prices": {"gpu_hour": PRICE["gpu_hour"]}}
    assert hourly_price(cluster_from(rented, "x")) == ("USD", 20.0)


def test_kinds_of_nodes_have_their_own_prices_and_share_the_fabric():
    own = bought(1)["prices"]
    node = own.pop("node")
    kinds = [
        {"preset": "dgx-h100", "count": 2, "prices": {"node": node}},
        {"preset": "dgx-h200", "count": 1, "prices": {"node": node | {"price": 400_000}}},
    ]
    both = cluster_from({"nodes": kinds, "prices": own}, "x")
    assert [line.total for line in bill_of(both) if line.part.startswith("node")] == [6e5, 4e5]
    kinds[0]["prices"] = {"pue": 1.1}
    with pytest.raises(ScenarioError, match=r"nodes\.0\.prices\.pue: is the whole cluster"):
        cluster_from({"nodes": kinds, "prices": own}, "x")
    kinds[0]["prices"] = {"gpu_hour": PRICE["gpu_hour"]}
    with pytest.raises(ScenarioError, match="some nodes are rented and others bought"):
        cluster_from({"nodes": kinds, "prices": own}, "x")


@pytest.mark.parametrize(("nodes", "switches"), [(64, 16 + 8), (128, 48), (256, 96)])
def test_the_switches_of_a_full_fabric_are_those_of_published_bills(nodes, switches):
    """128 and 256 nodes of 8 at 400 Gb/s take 48 and 96 switches of 64 ports.

    Recursal's table of August 2024 (docs.google.com, 1Ft3RbeZ-w43kYSiLfYc1vxO41mK5lmJpcPC9GOYHAWc)
    and the reference design of 32 leaves and 16 spines for 1,024 GPUs.
    """
    assert Cluster.preset("dgx-h100", nodes=nodes).fabric.parts.switches == switches


@given(st.integers(2, 300), st.integers(1, 8), st.sampled_from(["fat_tree", "rail_optimized"]))
def test_a_fabric_has_ports_for_all_its_cables(nodes, ratio, kind):
    fabric = {"kind": kind, "oversubscription": float(ratio)}
    parts = Cluster.preset("dgx-h100", nodes=nodes, fabric=fabric).fabric.parts
    assert not parts.wrong
    assert parts.nic_cables == 8 * nodes
    assert 2 * parts.trunk_cables + parts.nic_cables <= 64 * parts.switches
