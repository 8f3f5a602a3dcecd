"""From when on less of a resource is felt, and which links of two clusters are unlike."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from commsim.cluster import Cluster
from commsim.scenario import scenario_from
from commsim.study.next_dollar import spare
from commsim.study.next_dollar.spare import differing


def felt_from(least: float, monkeypatch: pytest.MonkeyPatch) -> tuple[float | None, list[float]]:
    """Return the share found, and the shares tried, if a step is 1 % longer from `least` down."""
    tried: list[float] = []

    def step(scenario: object, key: str, share: float) -> float:
        assert key == "nic"
        tried.append(share)
        return 2.0 * 1.01 if share <= least else 2.0 * 1.0099

    monkeypatch.setattr(spare, "_with_less", step)
    base: Any = SimpleNamespace(metrics=SimpleNamespace(step_time_s=2.0))
    return spare._felt_from(None, base, SimpleNamespace(key="nic")), tried  # type: ignore[arg-type]


@pytest.mark.parametrize("least", [0.99, 0.51, 0.5, 0.4, 0.26, 0.25, 0.1, 0.02, 1 / 64])
def test_the_share_is_found_by_halves_and_then_within_five_percent(
    least: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Four times the middle of what is felt and what is not: a 16th of an octave."""
    found, tried = felt_from(least, monkeypatch)
    assert found is not None
    assert found <= least < found * 2 ** (1 / 16) * (1 + 1e-12)
    halves = [0.5**count for count in range(1, 8) if 0.5 ** (count - 1) > least]
    assert tried[: len(halves)] == halves
    assert len(tried) == len(halves) + 4


def test_what_is_never_felt_is_not_looked_for_below_a_64th(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found, tried = felt_from(1 / 65, monkeypatch)
    assert found is None
    assert tried == [0.5**count for count in range(1, 7)]


def test_a_share_of_a_resource_is_less_of_what_the_scenario_scales(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    training = {"model": {"layers": 1, "hidden": 64, "heads": 1, "vocab": 64, "seq_len": 8},
                "batch": {"global": 8, "micro": 1}}  # fmt: skip
    data = {"cluster": {"preset": "dgx-h100", "scale": {"nic": 0.5}},
            "workload": {"training": training}}  # fmt: skip
    seen: list[Any] = []

    def ran(scenario: Any) -> Any:
        seen.append(scenario.file.cluster.scale)
        return SimpleNamespace(metrics=SimpleNamespace(step_time_s=3.0))

    monkeypatch.setattr(spare, "run", ran)
    assert spare._with_less(scenario_from(data, "x"), "nic", 0.25) == 3.0
    (scale,) = seen
    assert (scale.nic, scale.nvlink) == (0.125, 1.0)


def test_links_that_are_unlike() -> None:
    h100 = Cluster.preset("dgx-h100", nodes=2)
    assert differing(h100, Cluster.preset("dgx-h100", nodes=4)) == []
    assert differing(h100, h100) == []
    other = differing(h100, Cluster.preset("dgx-a100", nodes=2))
    assert {"nvlink", "pcie", "nic"} <= set(other)


def test_words_say_how_full_it_was_and_of_what_is_used_from_when_it_is_felt(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made = [SimpleNamespace(key=key, title=key.upper(), links=key, now=f"now {key}")
            for key in ("nvlink", "nic", "pcie")]  # fmt: skip
    uses = SimpleNamespace(of=lambda links: (0 if links == "pcie" else 1, 9))
    shares = {"nvlink": 0.25, "nic": None}
    for name, stands in {
        "resources_of": lambda *_: made, "link_uses": lambda _: uses,
        "idle_reason": lambda key, links, uses, base: f"{links} idle",
        "hurts_words": lambda key, now, share: f"{now} hurts at {share}",
        "_felt_from": lambda scenario, base, resource: shares[resource.key],
    }.items():  # fmt: skip
        monkeypatch.setattr(spare, name, stands)
    scenario: Any = SimpleNamespace(file=None, where="x")
    base: Any = SimpleNamespace(cluster=None, timeline=None)
    assert spare.spare_words(scenario, base, ["pcie", "none", "nvlink", "nic"]) == [
        "PCIE: pcie idle", "NVLINK: nvlink idle; now nvlink hurts at 0.25", "NIC: nic idle",
    ]  # fmt: skip


def test_uplinks_are_what_an_oversubscription_leaves_of_them() -> None:
    """Half of four uplinks is a quarter of eight."""

    def fabric(oversubscription: float, uplinks: int, bandwidth: float = 1.0) -> Any:
        spec = SimpleNamespace(
            oversubscription=oversubscription, uplinks=uplinks, link_bandwidth=bandwidth,
            dims=(), leaves_per_group=1, global_links=1, links=(),
        )  # fmt: skip
        return SimpleNamespace(fabric=SimpleNamespace(spec=spec))

    between = spare._between_switches
    assert between(fabric(2, 4)) == between(fabric(4, 8))
    assert between(fabric(2, 4)) != between(fabric(4, 2))
    assert between(fabric(2, 4)) != between(fabric(2, 4, 2.0))
