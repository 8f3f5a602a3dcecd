"""A value in the wrong unit is refused, or named, with the likely one."""

from __future__ import annotations

from typing import Any

import pytest

from commsim.cluster import Cluster
from commsim.cluster.presets import preset_names
from commsim.errors import ScenarioError


def dgx(**overrides: dict[str, Any]) -> Cluster:
    return Cluster.preset("dgx-h100", overrides=overrides)


@pytest.mark.parametrize(
    ("overrides", "words"),
    [
        ({"gpu": {"tflops": {"bf16": 700e12}}}, r"1e12 FLOP/s\. Did you mean 700\?"),
        ({"nic": {"efficiency": 97.0}}, r"97 is not a share.*Did you mean 0\.97\?"),
        ({"nvlink": {"efficiency": 881.0}}, r"881 is not a share above 0 and up to 1\.$"),
        ({"power": {"watts": 10.2, "source": "x"}}, r"did you mean 10200\?"),
        ({"power": {"watts": 10_200_000, "source": "x"}}, r"did you mean 10200\?"),
        ({"nic": {"bandwidth": 400}}, "400 has no unit"),
        ({"nic": {"latency": 1}}, "1 has no unit"),
        ({"gpu": {"memory": 80}}, "80 has no unit"),
        ({"pcie": {"generation": 32}}, "is not one of 1 to 6"),
    ],
)
def test_what_is_refused(overrides: dict[str, Any], words: str) -> None:
    with pytest.raises(ScenarioError, match=words):
        dgx(**overrides)


def test_bytes_for_bits_of_a_nic_are_named() -> None:
    (note,) = [n for n in dgx(nic={"bandwidth": "400GB/s"}).notes if "bits for bytes" in n]
    assert "3200 Gbps" in note
    assert "400Gbps" in note


def test_a_nic_that_is_faster_than_its_slot_is_named() -> None:
    """16 lanes at 32 GT/s, coded 128b/130b, carry 504 Gbps, 461 of them payload."""
    assert not dgx(nic={"bandwidth": "450Gbps"}).notes
    (note,) = dgx(nic={"bandwidth": "800Gbps"}).notes
    assert "57.61 GB/s of payload (pcie: {generation: 5, width: 16})" in note
    assert dgx(nic={"bandwidth": "800Gbps"}, pcie={"generation": 6}).notes == ()


def test_part_of_a_node_draws_what_the_node_does() -> None:
    assert Cluster.preset("dgx-2", overrides={"gpu": {"count": 1}}).world_size == 1


def test_no_preset_is_doubted() -> None:
    for name in preset_names():
        assert not any("bits for bytes" in note for note in Cluster.preset(name).notes)
