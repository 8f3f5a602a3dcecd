"""What a step costs: sums over nodes, and nothing where a price or a power is missing."""

from __future__ import annotations

from typing import Any

import pytest
from helpers.optional import present
from hypothesis import given
from hypothesis import strategies as st

from commsim.cluster import Cluster, cluster_from
from commsim.metrics.cost import cost_of, hourly_price, priced, rated_power
from commsim.study.run.run import run

PRICE = {"per_gpu_hour": 2.5, "source": "general: a test", "date": "2026-01-01"}
POWER = {"watts": 7200.0, "source": "general: a test"}


def cluster(*kinds: dict[str, Any], preset: str = "dgx-h100") -> Cluster:
    nodes = [{"preset": preset, "count": 2, "overrides": kind} for kind in kinds]
    return cluster_from({"nodes": nodes}, "x")


def test_a_step_costs_the_hour_of_all_gpus_by_its_length():
    cost = cost_of(cluster({"price": PRICE}), step_time_s=9.0, tokens_per_step=5e5)
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
    both = cluster({"price": PRICE}, {"price": PRICE | {"per_gpu_hour": 1.0}})
    assert hourly_price(both) == ("USD", 16 * 2.5 + 16 * 1.0)


def test_one_node_without_a_price_leaves_the_sum_unknown():
    both = cluster({"price": PRICE}, {})
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
    assert hourly_price(cluster({"price": PRICE}, {"price": PRICE | {"currency": "EUR"}})) is None


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
        "energy_kwh_per_1e9_tokens", "sources",
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
