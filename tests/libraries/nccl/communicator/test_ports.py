"""Ports of a NIC are one device or several, by the release and the environment."""

from __future__ import annotations

from typing import Any

import pytest

from commsim.cluster import Cluster
from commsim.errors import ScenarioError
from commsim.libraries.nccl.env import knobs_of
from commsim.libraries.nccl.plans.group import NcclGroup, Site


def group(version: str = "2.27", env: dict[str, Any] | None = None, **nic: Any) -> NcclGroup:
    cluster = Cluster.preset("oci-h100", nodes=2, overrides={"nic": nic} if nic else {})
    return NcclGroup(Site(cluster, version=version, knobs=knobs_of(env or {})), range(16))


@pytest.mark.parametrize(
    ("version", "env", "merged"),
    [
        ("2.27", {}, True), ("2.20", {}, True), ("2.19", {}, False),
        ("2.27", {"NCCL_IB_MERGE_NICS": 0}, False),
        ("2.27", {"NCCL_NET_MERGE_LEVEL": "LOC"}, False),
        ("2.27", {"NCCL_NET_MERGE_LEVEL": "PIX"}, True),
    ],
)  # fmt: skip
def test_ports_are_one_device_where_nccl_merges_them(
    version: str, env: dict[str, Any], merged: bool
) -> None:
    made = group(version, env)
    rate, devices = (48.0, 1) if merged else (25.0, 2)
    assert (made.comm.net_bandwidth, made.comm.local_nets) == (rate, devices)


@pytest.mark.long
def test_another_transport_merges_nothing() -> None:
    assert group(transport="tcp", gdr=False).comm.local_nets == 2


def test_devices_of_a_nic_load_its_one_wire() -> None:
    for env in ({}, {"NCCL_IB_MERGE_NICS": 0}):
        made = group(env=env)
        loads = made.loads("all_to_all", None, -1)
        kinds = [made.cluster.links.kinds[link] for link in loads.link.tolist()]
        busy = loads.share[[kind == "network" for kind in kinds]]
        assert len(busy) == 2 * 2 * 8  # out of and into every NIC
        assert busy == pytest.approx(busy[0])


def test_merging_whole_nics_is_named_as_left_out() -> None:
    (note,) = knobs_of({"NCCL_NET_MERGE_LEVEL": "PXB"}).notes
    assert "not several NICs" in note


@pytest.mark.parametrize("ports", [0, 5])
def test_impossible_ports_are_refused(ports: int) -> None:
    with pytest.raises(ScenarioError, match="1 to 4 ports"):
        group(ports=ports)


def test_an_unknown_level_is_refused() -> None:
    with pytest.raises(ScenarioError, match="Give one of LOC, PORT"):
        knobs_of({"NCCL_NET_MERGE_LEVEL": "NEAR"})
