"""Each preset against the figures that are known of its machine, and its routes."""

from __future__ import annotations

import csv
from collections import defaultdict
from itertools import pairwise

import pytest
import yaml
from helpers.optional import present
from helpers.paths import TESTS

from commsim.cluster import Cluster, Route
from commsim.cluster.describe import preset_names

NODE_TYPES = TESTS / "data" / "node_types.csv"
ALONE = ("pcie-rtx2080ti", "pcie-rtx5090")  # these have no NIC


def node_types() -> list[dict[str, str]]:
    lines = NODE_TYPES.read_text(encoding="utf-8").splitlines()
    return list(csv.DictReader(line for line in lines if not line.startswith("#")))


KNOWN = {row["preset"]: row for row in node_types()}


def some(name: str, nodes: int = 2) -> Cluster:
    return Cluster.preset(name, nodes=1 if name in ALONE else nodes)


def spec_of(name: str):
    return some(name).node_spec(0)


def nvlink_out(cluster: Cluster) -> dict[str, float]:
    """Bytes/s that each GPU of the first node can send over NVLink."""
    total: dict[str, float] = defaultdict(float)
    links = cluster.links
    for link, kind in enumerate(links.kinds):
        if kind == "nvlink" and links.source[link].startswith("node0/gpu"):
            total[links.source[link]] += float(links.bandwidth[link])
    return dict(total)


AS_ONE = {"aws-p5": 4, "aws-p5e": 4, "aws-p5en": 2, "aws-p6-b300": 2, "oci-h100": 2}
"""Ports that NCCL takes for one NIC."""


@pytest.mark.parametrize("name", KNOWN)
def test_a_preset_has_the_gpus_and_the_nvlink_of_its_machine(name):
    row, cluster = KNOWN[name], some(name)
    assert cluster.specs[0].gpus == int(row["gpus"])
    memory = {"H100-SXM5-64GB": "64GB", "H100-SXM5-94GB": "94GB"}.get(cluster.gpu(0).name)
    assert (memory or cluster.gpu(0).name.rsplit("-32GB")[0]) in row["gpu"]
    rates = nvlink_out(cluster)
    want = float(row["nvlink_gbs"]) * 1e9
    assert list(rates.values()) == pytest.approx([want] * (int(row["gpus"]) if want else 0))
    assert want in (0, cluster.gpu(0).nvlink_bandwidth)


@pytest.mark.parametrize("name", KNOWN)
def test_a_preset_has_the_nics_of_its_machine(name):
    row, nic = KNOWN[name], spec_of(name).nic
    as_one = {"aws-p5": 4, "aws-p5e": 4, "aws-p5en": 2, "aws-p6-b300": 2, "oci-h100": 2}.get(
        name, 1
    )
    assert nic.count * as_one == int(row["nics"])
    assert nic.wire.bandwidth == as_one * float(row["nic_gbps"]) * 1e9 / 8


@pytest.mark.parametrize("name", KNOWN)
def test_a_preset_has_the_power_and_the_price_of_its_machine(name):
    row, spec, prices = KNOWN[name], spec_of(name), Cluster.preset(name).prices[0]
    if row["power_w"]:
        assert spec.power.watts == float(row["power_w"])
    else:
        assert spec.power is None
    if not row["usd_per_hour"]:
        assert prices is None
        return
    rent = present(present(prices).gpu_hour)
    assert rent.price * spec.gpus == pytest.approx(float(row["usd_per_hour"]), 1e-5)
    assert (present(prices).currency, row["price_date"].startswith(rent.date)) == (None, True)
    assert rent.source.split(":")[0] in ("documented", "general")


def test_the_copy_of_the_figures_is_the_data(shared_data):
    data = yaml.safe_load((shared_data / "hardware" / "nodes.yaml").read_text())["nodes"]
    # The rack is gb200-nvl72 with nodes: 18.
    assert {row["node"] for row in KNOWN.values()} == set(data) - {"gb200-nvl72-rack"}
    for row in KNOWN.values():
        facts = data[row["node"]]
        assert int(row["gpus"]) == facts["gpus"]["v"]
        assert int(row["nics"]) == facts["nics"]["v"].get("ports", facts["nics"]["v"]["count"])
        power, price = facts.get("node_power_w", {}).get("v"), facts.get("price", {}).get("v")
        assert row["power_w"] == ("" if power is None else str(power))
        assert row["usd_per_hour"] == ("" if price is None else str(price))


def test_doubtful_prices_say_so(shared_data):
    data = yaml.safe_load((shared_data / "hardware" / "nodes.yaml").read_text())["nodes"]
    for name, row in KNOWN.items():
        price = data[row["node"]].get("price")
        if price and price["v"] is not None:
            said = "Doubtful" in present(present(Cluster.preset(name).prices[0]).gpu_hour).source
            assert said == (not price["certain"]), name


TRANSPORTS = {
    "ib": {
        "abci-a", "abci-v", "azure-nd-a100-v4", "azure-nd-h100-v5", "azure-ndv2",
        "coreweave-h100", "dgx-1v", "dgx-2", "dgx-a100", "dgx-a100-40gb", "dgx-b200", "dgx-b300",
        "dgx-h100", "dgx-h200", "gb200-nvl72", "gb300-nvl72", "hgx-b200", "hgx-b300", "hgx-h100",
        "hgx-h200", "lambda-h100", "marenostrum5", "nebius-h100", "pcie-a100", "snellius-a100",
        "snellius-h100",
    },
    "roce": {
        "dgx-spark", "gcp-a3-ultra", "gcp-a4", "l40s-ethernet", "oci-a100-40gb", "oci-a100-80gb",
        "oci-b200", "oci-gb200", "oci-h100", "pcie-a40-bridges", "pcie-l40s",
    },
    "efa_v1": {"aws-g5", "aws-p3dn", "aws-p4d", "aws-p4de"},
    "efa_v2": {"aws-g6e", "aws-p5", "aws-p5e"},
    "efa_v3": {"aws-p5en"},
    "efa_v4": {"aws-p6-b200", "aws-p6-b300"},
    "slingshot": {"alps", "perlmutter", "polaris"},
    "tcpx": {"gcp-a3-high"},
    "tcpxo": {"gcp-a3-mega"},
    "tcp": {"cpu-ethernet", "gcp-a2-high", "gcp-a2-ultra", "pcie-rtx4090", "t4-ethernet"},
}  # fmt: skip


def test_each_preset_speaks_its_transport():
    found: dict[str, set[str]] = {}
    for name in preset_names():
        if name not in ALONE:
            found.setdefault(spec_of(name).nic.transport, set()).add(name)
    assert found == TRANSPORTS


def test_where_the_nics_reach_gpu_memory():
    without = {name for name in preset_names() if name not in ALONE and not spec_of(name).nic.gdr}
    assert without == TRANSPORTS["tcp"] | {"aws-g5", "aws-g6e", "aws-p3dn", "dgx-spark"}


def test_where_there_is_no_p2p():
    without = {name for name in preset_names() if not spec_of(name).pcie.p2p}
    assert without == {*ALONE, "aws-g5", "aws-g6e", "pcie-rtx4090"}


@pytest.mark.parametrize(
    ("name", "vendor", "arch", "family", "model"),
    [
        ("dgx-1v", "intel", "x86_64", 6, 79),
        ("dgx-a100", "amd", "x86_64", 143, 49),
        ("dgx-h100", "intel", "x86_64", 6, 143),
        ("pcie-a100", "intel", "x86_64", 6, 106),
        ("dgx-b200", "intel", "x86_64", 6, 207),
        ("alps", "arm", "arm64", 0, 0),
    ],
)
def test_cpus_are_told_as_nccl_has_them(name, vendor, arch, family, model):
    cpu = spec_of(name).cpu
    assert (cpu.vendor, cpu.arch, cpu.family, cpu.model_id) == (vendor, arch, family, model)


def test_what_devices_get_across_sockets_is_nccls_figure():
    for name in preset_names():
        spec = spec_of(name)
        if spec.sockets == 1:
            continue
        table = {"amd": 16e9, "arm": 6e9}
        intel = {79: 6e9, 85: 10e9, 106: 10e9, 143: 22e9, 173: 22e9, 207: 40e9}
        assert spec.socket_link.bandwidth == (
            intel[spec.cpu.model_id] if spec.cpu.vendor == "intel" else table[spec.cpu.vendor]
        ), name


@pytest.mark.parametrize(
    ("name", "links"),
    [("dgx-2", 6), ("dgx-a100", 12), ("dgx-h100", 18), ("dgx-b200", 18), ("gb200-nvl72", 18)],
)
def test_links_into_the_switch(name, links):
    spec = spec_of(name)
    assert spec.switch_links == links
    per_link = {"7.0": 25e9, "8.0": 25e9, "9.0": 25e9, "10.0": 50e9}[spec.gpu.compute_capability]
    assert spec.switch.bandwidth == links * per_link


@pytest.mark.parametrize(
    ("name", "links"), [("abci-v", 2), ("polaris", 4), ("snellius-h100", 6), ("alps", 6)]
)
def test_four_gpus_in_a_mesh(name, links):
    spec = spec_of(name)
    assert spec.mesh == tuple(tuple(0 if a == b else links for b in range(4)) for a in range(4))
    assert spec.switch is None


def test_bridges_join_pairs_and_the_rest_goes_by_pcie():
    cluster = some("pcie-a40-bridges")
    kinds = [
        {cluster.links.kinds[link] for link in present(cluster.local_route(a, b)).link}
        for a, b in ((0, 1), (6, 7), (1, 2), (0, 7))
    ]
    assert kinds == [{"nvlink"}, {"nvlink"}, {"pcie"}, {"pcie", "cpu"}]
    assert float(cluster.links.bandwidth[present(cluster.local_route(2, 3)).link[0]]) == 56.25e9


def test_polaris_nics_are_where_the_site_says():
    cluster = some("polaris")
    assert [cluster.nics_of(gpu)[0] for gpu in range(4)] == [0, 1, 1, 0]
    ways = [cluster.to_nic(gpu, cluster.nics_of(gpu)[0]) for gpu in range(4)]
    kinds = [[cluster.links.kinds[link] for link in way.link] for way in ways]
    assert kinds[3] == kinds[1] == ["pcie", "pcie"]  # at one root
    assert kinds[0] == kinds[2] == ["pcie", "cpu", "pcie"]


def test_gpu_generations_as_nccl_writes_them():
    sms = {name: spec_of(name).gpu.sm for name in ("dgx-1v", "dgx-a100", "dgx-h100", "dgx-b200")}
    assert sms == {"dgx-1v": 70, "dgx-a100": 80, "dgx-h100": 90, "dgx-b200": 100}
    assert some("cpu-ethernet").gpu(0).sm == 0
    assert spec_of("dgx-spark").gpu.sm == 121


def ends(cluster: Cluster, route: Route) -> tuple[str, str]:
    """The vertices that a route joins, checking that each hop begins where the last one ended."""
    links = cluster.links
    hops = [
        [link for link, h in zip(route.link, route.hop, strict=True) if h == hop]
        for hop in dict.fromkeys(route.hop)
    ]
    at = {links.source[link] for link in hops[0]} if hops else set()
    if hops and links.kinds[hops[0][0]] == "memory":
        at = {links.target[hops[0][0]]}
    first = at
    for hop in hops:
        if links.kinds[hop[0]] == "memory":  # one link for both ways
            (link,) = hop
            inward = at == {links.source[link]}
            assert inward or at == {links.target[link]}
            at = {links.target[link] if inward else links.source[link]}
            continue
        assert {links.source[link] for link in hop} == at
        at = {links.target[link] for link in hop}
    ((a,), (b,)) = first, at
    return a, b


@pytest.mark.share(0.5)
@pytest.mark.parametrize("name", preset_names())
def test_every_kind_of_way_joins_what_it_should(name):
    cluster = some(name)
    gpus = cluster.specs[0].gpus
    vertex = [f"node{n}/gpu{g}" for n, g in zip(cluster.node_of, cluster.local_of, strict=True)]
    socket = [f"node{n}/mem{cluster.template(0).socket_of(int(g))}"
              for n, g in zip(cluster.node_of, cluster.local_of, strict=True)]  # fmt: skip
    for a in range(gpus):
        assert ends(cluster, cluster.to_host(a)) == (vertex[a], socket[a])
        assert ends(cluster, cluster.from_host(a)) == (socket[a], vertex[a])
        for b in range(gpus):
            if a != b:
                assert ends(cluster, present(cluster.local_route(a, b))) == (vertex[a], vertex[b])
                assert ends(cluster, cluster.staged_route(a, b)) == (vertex[a], vertex[b])
        if name in ALONE:
            continue
        nic, far = cluster.nics_of(a)[0], cluster.nics_of(gpus + a)[0]
        for staged in (None, False, True):
            out = cluster.to_nic(a, nic, staged=staged)
            back = cluster.from_nic(far, gpus + a, staged=staged)
            whole = out + present(cluster.fabric_route(nic, far)) + back
            assert ends(cluster, whole) == (vertex[a], vertex[gpus + a])
        assert ends(cluster, present(cluster.host_route(a, gpus + a))) == (
            socket[a],
            socket[gpus + a],
        )


@pytest.mark.parametrize("name", preset_names())
def test_a_cluster_of_a_preset_numbers_its_links_node_by_node(name):
    cluster = some(name, nodes=3)
    firsts = [link for link, a in enumerate(cluster.links.source) if a.startswith("node")]
    nodes = [
        int(cluster.links.source[link].split("/")[0].removeprefix("node"))
        for link in firsts
        if cluster.links.kinds[link] != "network"
    ]
    assert all(a <= b for a, b in pairwise(nodes))
    assert len(set(cluster.links.names)) == len(cluster.links)
