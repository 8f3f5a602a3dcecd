"""NCCL's constants by version: each changes at one release."""

import pytest

from commsim.errors import ScenarioError
from commsim.libraries.nccl.topology.rules import mbs, rules_of


@pytest.mark.parametrize(
    ("name", "before", "old", "after", "new"),
    [
        ("max_channels", "2.24", 32, "2.25", 64),
        ("c2c_to_nic", "2.26", False, "2.27", True),
        ("pxn_over_c2c", "2.27", False, "2.28", True),
        ("reach", "2.24", "sys", "2.25", "paths"),
        ("reach", "2.28", "paths", "2.29", "paths_from_hopper"),
        ("number_among_sharers", "2.28", False, "2.29", True),
        ("nvls_min_gpus", "2.28", 3, "2.29", 2),
        ("merges_ports", "2.19", False, "2.20", True),
        ("intel_link", "2.25", ((0, 6_000), (85, 10_000)), "2.26.0",
         ((0, 6_000), (85, 10_000), (143, 22_000), (207, 40_000))),
    ],
)  # fmt: skip
def test_a_constant_changes_at_a_release(name, before, old, after, new):
    assert getattr(rules_of(before), name) == old
    assert getattr(rules_of(f"{before}.99"), name) == old
    assert getattr(rules_of(after), name) == new
    assert getattr(rules_of(f"{after.removesuffix('.0')}.0"), name) == new


def test_the_oldest_version_is_2_18():
    assert rules_of("2.18.0").version == "2.18.0"
    for version in ("2.17", "2.17.99", "1.99"):
        with pytest.raises(ScenarioError, match="older than 2.18"):
            rules_of(version)
    assert rules_of("3.0").max_channels == 64


@pytest.mark.parametrize("version", ["2", "2.27.1.1", "2.27 ", "v2.27", "2.1234567890"])
def test_what_is_no_version(version):
    with pytest.raises(ScenarioError, match="is not an NCCL version"):
        rules_of(version)


@pytest.mark.parametrize(
    ("capability", "rate"),
    [
        (0, 20_000), (59, 20_000), (60, 18_000), (69, 18_000), (70, 20_000), (85, 20_000),
        (86, 12_000), (87, 20_000), (89, 20_000), (90, 20_600), (99, 20_600), (100, 40_100),
    ],
)  # fmt: skip
def test_nvlinks_count_by_generation(capability, rate):
    assert rules_of("2.27").nvlink_bandwidth(capability) == rate


def test_speeds_are_those_of_the_generation_and_the_way():
    rules = rules_of("2.24")
    assert rules.speeds(89, inter=False)[:3] == (40_000, 30_000, 20_000)
    assert rules.speeds(90, inter=False)[:3] == (60_000, 50_000, 40_000)
    assert rules.speeds(100, inter=False) == rules.speeds(90, inter=False)
    assert rules.speeds(89, inter=True)[:3] == (48_000, 30_000, 28_000)
    assert rules.speeds(90, inter=True)[-3:] == (1_200, 240, 120)
    assert rules_of("2.25").speeds(100, inter=False)[0] == 90_000
    assert rules_of("2.27.4").speeds(100, inter=True)[0] == 48_000
    assert rules_of("2.27.5").speeds(100, inter=True)[0] == 96_000


def test_gigabytes_are_rounded_to_megabytes():
    assert (mbs(20.6), mbs(0.12), mbs(0.0004), mbs(0.0006)) == (20_600, 120, 0, 1)
