"""The table of constants: few, positive, told, and read in the right units."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import yaml

import commsim.libraries.nccl.timing.constants as module
from commsim.libraries.nccl.timing.constants import (
    TRANSPORTS,
    default_terms,
    read_values,
    terms_of,
    usual_launch,
)

TABLE = yaml.safe_load(Path(module.__file__).with_name("timing.yaml").read_text())


def test_no_more_than_sixty_constants_are_fitted():
    assert len(TABLE["constants"]) <= 56  # four of the sixty are Gloo's


def test_each_constant_says_what_it_is_and_where_it_started():
    for name, entry in TABLE["constants"].items():
        assert entry["value"] > 0, name
        assert entry["prior"] > 0, name
        assert 0 < entry["spread"] <= 1, name
        assert len(entry["says"]) >= 5, name
        assert entry["unit"] in ("us", "GB/s", ""), name


def test_no_constant_strays_far_from_its_prior():
    for name, entry in TABLE["constants"].items():
        assert abs(np.log(entry["value"] / entry["prior"])) < 4 * entry["spread"], name


def test_units_are_seconds_and_bytes_per_second():
    values, terms = read_values(), default_terms()
    assert terms.launch == pytest.approx(values["launch.host"] * 1e-6)
    assert terms.channel[1, 2] == pytest.approx(values["rate.channel_ampere"] * 1e9)
    assert terms.nic[0, 2] == values["rate.nic_ib"]
    assert terms.nic[0, 1] == pytest.approx(values["rate.nic_ib"] * 15 / 16)


def test_new_efa_takes_the_constants_of_the_one_measured():
    terms = default_terms()
    two, four = TRANSPORTS.index("efa_v2"), TRANSPORTS.index("efa_v4")
    assert terms.net[two] == terms.net[four] > 0
    assert terms.net[TRANSPORTS.index("efa_v1")] != terms.net[two]


def test_every_constant_changes_something():
    values, terms = read_values(), default_terms()
    for name in TABLE["constants"]:
        changed = terms_of(values | {name: values[name] * 1.5})
        fields = terms.__struct_fields__
        assert any(not np.array_equal(getattr(terms, f), getattr(changed, f)) for f in fields), name


def test_no_share_of_a_link_is_above_one():
    terms = default_terms()
    single = [terms.tree_far, terms.tree_net, terms.root_rate, terms.collnet, terms.nvls_tree]
    for shares in (terms.link, terms.nic, terms.nvls_share, terms.exchange_net, single):
        assert (np.asarray(shares) <= 1).all()


def test_hops_over_pcie_and_host_memory():
    """PCIe as in NCCL's latency table for rings; LL128 between the two fitted through memory."""
    values = read_values()
    hop = terms_of(values).hop * 1e6
    nvlink = [values[f"hop.nvlink_{protocol}"] for protocol in ("LL", "LL128", "Simple")]
    assert hop[0] == pytest.approx(nvlink)
    pcie = [nvlink[0] * 1.0 / 0.6, nvlink[1] * 2.5 / 1.9, nvlink[2] * 5.7 / 3.4]
    assert hop[1] == pytest.approx(pcie)
    low, high = values["hop.host_LL"], values["hop.host_Simple"]
    assert hop[2] == pytest.approx([low, np.sqrt(low * high), high])


def test_payload_shares_of_links_and_nics():
    """LL and LL128 of NVLink were fitted; elsewhere LL has 8 of 16 bytes and LL128 120 of 128."""
    values = read_values()
    terms = terms_of(values)
    framing = np.array([0.5, 120 / 128, 1.0])
    fitted = np.array([values["rate.nvlink_LL"], values["rate.nvlink_LL128"], 1.0])
    for at, generation in enumerate(("ampere", "ampere", "hopper", "blackwell")):
        assert terms.link[at, 0] == pytest.approx(values[f"rate.nvlink_{generation}"] * fitted)
        assert terms.link[at, 1] == pytest.approx(values["rate.pcie"] * framing)
        assert terms.link[at, 2] == pytest.approx(values["rate.shm"] * framing)
    for at, name in enumerate(TRANSPORTS):
        share = values.get(f"rate.nic_{name}", values["rate.nic"])
        assert terms.nic[at] == pytest.approx(share * framing), name


def test_channels_copy_as_each_generation_does():
    values = read_values()
    terms = terms_of(values)
    fitted = np.array([values["rate.channel_LL"], values["rate.channel_LL128"], 1.0])
    for at, generation in enumerate(("volta", "ampere", "hopper", "hopper")):
        simple = values[f"rate.channel_{generation}"] * 1e9
        assert terms.channel[at] == pytest.approx(simple * fitted)


def test_a_host_of_old_releases_takes_more_or_less_to_launch():
    values = read_values()
    assert usual_launch() == pytest.approx(values["launch.host"] * 1e-6)
    assert usual_launch(old=True) == pytest.approx(usual_launch() * default_terms().launch_old)
    assert default_terms().launch_old != 1
