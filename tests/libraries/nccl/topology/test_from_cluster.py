"""The topology file of a cluster's node: what NCCL would write of it, element by element."""

from __future__ import annotations

from typing import Any

import pytest

from commsim.cluster import Cluster
from commsim.cluster.section import cluster_from
from commsim.errors import ScenarioError
from commsim.libraries.nccl.topology.from_cluster import (
    _address,
    cluster_xml,
    devices_per_nic,
    domain_xml,
)
from commsim.libraries.nccl.topology.xml_file import read_xml

NODE: dict[str, Any] = {
    "gpu": {"count": 3, "spec": "A100-PCIe-40GB"},
    "nvlink": {"kind": "mesh", "per_link": "25GB/s", "links": [[0, 4, 0], [4, 0, 2], [0, 2, 0]]},
    "pcie": {
        "generation": 4,
        "switches": [
            {"socket": 0, "gpus": [0], "nics": [1]},
            {"under": 0, "gpus": [1], "width": 8},
            {"socket": 1, "width": 16},
        ],
    },
    "cpu": {
        "sockets": 2, "vendor": "amd", "family": 23, "model_id": 49,
        "gpus": [[], [2]], "nics": [[], [0]],
    },
    "nic": {
        "count": 2, "bandwidth": "200Gbps", "medium": "infiniband", "gdr": True, "ports": 2,
        "gpu_to_nic": [1, 0, 0],
    },
}  # fmt: skip


def spec_of(**changes):
    return cluster_from({"node": NODE | changes}, "test").specs[0]


def written(used=({0: 0, 1: 1, 2: 2},), specs=None, **asked):
    specs = specs or [spec_of()] * len(used)
    return domain_xml(specs, used, **asked)


def outline(element):
    """Return an element's tags and addresses as they stand in each other."""
    name = element.attributes.get("busid") or element.tag
    return name if not element.inside else (name, *map(outline, element.inside))


def of(element, tag):
    """Return the attributes of every element of a tag below one."""
    own = [dict(element.attributes)] if element.tag == tag else []
    return own + [found for below in element.inside for found in of(below, tag)]


def test_devices_hang_where_the_node_has_them():
    """Switches on bus 0x40 and on, GPUs on 0x80, NICs on 0xC0; switches come before devices."""
    tree = outline(written())
    assert tree == (
        "system",
        (
            "cpu",
            (
                "0000:40:00.0",
                ("0000:41:00.0", ("0000:81:00.0", ("gpu", "nvlink", "nvlink"))),
                ("0000:80:00.0", ("gpu", "nvlink")),
                ("0000:c1:00.0", ("nic", "net")),
            ),
        ),
        (
            "cpu",
            "0000:42:00.0",
            ("0000:82:00.0", ("gpu", "nvlink")),
            ("0000:c0:00.0", ("nic", "net")),
        ),
    )


def test_cpus_have_numbers_and_a_maker():
    amd = {"affinity": "00000000,ffffffff", "arch": "x86_64", "vendor": "AuthenticAMD",
           "familyid": "23", "modelid": "49"}  # fmt: skip
    both = written(({0: 0}, {0: 1}))
    assert both.attributes == {"version": "1"}
    assert of(both, "cpu") == [
        {"host_hash": host, "numaid": numa} | amd for host in ("0x0", "0x1") for numa in ("0", "1")
    ]
    arm = spec_of(cpu=NODE["cpu"] | {"arch": "arm64", "vendor": "arm"})
    found = of(written(specs=[arm]), "cpu")[1]
    assert found == {"host_hash": "0x0", "numaid": "1", "affinity": "00000000,ffffffff",
                     "arch": "arm64"}  # fmt: skip


def test_slots_have_the_nodes_generation_and_a_switch_its_own_width():
    slots = of(written(), "pci")
    assert {slot["link_speed"] for slot in slots} == {"16.0 GT/s PCIe"}
    widths = {slot["busid"][5:7]: slot["link_width"] for slot in slots}
    assert widths == {
        "40": "16", "41": "8", "42": "16", "80": "16", "81": "16", "82": "16", "c0": "16",
        "c1": "16",
    }  # fmt: skip
    kinds = {slot["busid"][5:7]: (slot["class"], slot["vendor"], slot["device"]) for slot in slots}
    assert kinds["40"] == ("0x060400", "0x10b5", "0x8764")
    assert kinds["80"] == ("0x030200", "0x10de", "0x20f1")
    assert kinds["c0"] == ("0x020700", "0x15b3", "0x101b")


@pytest.mark.parametrize(
    ("generation", "speed"),
    [
        (1, "2.5 GT/s PCIe"), (2, "5.0 GT/s PCIe"), (3, "8.0 GT/s PCIe"), (5, "32.0 GT/s PCIe"),
        (6, "64.0 GT/s PCIe"),
    ],
)  # fmt: skip
def test_a_generation_has_its_speed(generation, speed):
    spec = spec_of(pcie={"generation": generation, "width": 8}, cpu={"sockets": 1})
    slots = of(written(specs=[spec]), "pci")
    assert {(slot["link_speed"], slot["link_width"]) for slot in slots} == {(speed, "8")}


@pytest.mark.parametrize(
    ("generation", "width", "wanted"), [(1, 1, "1"), (5, 16, "32"), (6, 16, "32"), (3, 16, "8")]
)
def test_an_uplinks_width_follows_from_its_rate(generation, width, wanted):
    """In lanes of the node's PCIe 4: at least one, at most 32."""
    switch = {"socket": 0, "gpus": [0, 1, 2], "nics": [0, 1], "generation": generation,
              "width": width}  # fmt: skip
    spec = spec_of(pcie={"generation": 4, "switches": [switch]}, cpu={"sockets": 1})
    assert of(written(specs=[spec]), "pci")[0]["link_width"] == wanted


def test_gpus_have_ranks_where_they_are_used():
    gpus = of(written(({2: 0, 0: 5}, {1: 7})), "gpu")
    assert [(g["dev"], g["rank"], g["sm"], g["gdr"]) for g in gpus] == [
        ("0", "5", "80", "1"), ("2", "0", "80", "1"), ("1", "7", "80", "1"),
    ]  # fmt: skip
    assert len(of(written(({2: 0},)), "pci")) == 8


@pytest.mark.parametrize(("nic", "gdr"), [({"gdr": False}, "0"), ({"gdr": True}, "1"), (None, "1")])
def test_gpus_have_gpudirect_if_their_nics_have(nic, gdr):
    own = {"nic": NODE["nic"] | nic} if nic else {"nic": None}
    cpu = NODE["cpu"] if nic else {"sockets": 1}
    pcie = NODE["pcie"] if nic else {"generation": 4}
    root = written(specs=[spec_of(**own, cpu=cpu, pcie=pcie)])
    assert {gpu["gdr"] for gpu in of(root, "gpu")} == {gdr}
    assert len(of(root, "net")) == (2 if nic else 0)
    assert all(port["gdr"] == gdr for port in of(root, "net"))


def test_a_gpu_without_a_capability_counts_as_volta():
    spec = cluster_from(
        {"node": {"gpu": {"count": 1, "memory": "16GiB"}, "pcie": {"generation": 4}}}, "test"
    ).specs[0]
    root = domain_xml([spec], [{0: 0}])
    assert of(root, "gpu")[0]["sm"] == "70"
    assert of(root, "pci")[0]["device"] == "0x0000"


def test_a_mesh_has_links_to_each_neighbour():
    links = [(x["target"], x["count"], x["tclass"]) for x in of(written(), "nvlink")]
    assert links == [
        ("0000:80:00.0", "4", "0x030200"), ("0000:82:00.0", "2", "0x030200"),
        ("0000:81:00.0", "4", "0x030200"), ("0000:81:00.0", "2", "0x030200"),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("switch", "count"),
    [
        ({"bandwidth": "450GB/s", "links": 17}, "17"),
        ({"bandwidth": "450GB/s"}, "18"),
        ({"bandwidth": "60GB/s"}, "2"),
        ({"bandwidth": "5GB/s"}, "1"),
    ],
)
def test_links_to_a_switch_are_stated_or_follow_from_the_rate(switch, count):
    """25 GB/s each on an H100."""
    node = {"gpu": {"count": 2, "spec": "H100-SXM5-80GB"}, "nvlink": {"kind": "switch"} | switch}
    root = domain_xml([cluster_from({"node": node}, "test").specs[0]], [{0: 0, 1: 1}])
    assert (
        of(root, "nvlink") == [{"target": "0000:05:00.0", "count": count, "tclass": "0x068000"}] * 2
    )


def test_c2c_is_one_link_in_megabytes():
    root = read_xml(cluster_xml(Cluster.preset("gb200-nvl72", nodes=1)), "f")
    found = of(root, "c2c")
    assert len(found) == 4
    spec = Cluster.preset("gb200-nvl72", nodes=1).specs[0]
    assert spec.c2c is not None
    assert found[0] == {"bw": str(round(spec.c2c.bandwidth / 1e6)), "count": "1"}


@pytest.mark.parametrize(
    ("merged", "transport", "devices"), [(True, "ib", 1), (False, "ib", 2), (True, "tcp", 2)]
)
def test_ports_are_one_device_where_they_are_merged(merged, transport, devices):
    gdr = transport == "ib"
    spec = spec_of(nic=NODE["nic"] | {"transport": transport, "gdr": gdr})
    assert spec.nic is not None
    assert devices_per_nic(spec.nic, merged=merged) == devices
    ports = of(written(({0: 0}, {0: 1}), specs=[spec] * 2, merged=merged), "net")
    assert len(ports) == 2 * 2 * devices
    of_last = [p for p in ports if p["guid"] == "0xa0001010"]
    assert [(p["dev"], p["port"], p["speed"]) for p in of_last] == [
        (str(devices + port), str(port + 1), str(200_000 // devices)) for port in range(devices)
    ]


def test_a_port_has_all_that_nccl_writes_of_one():
    far, near = of(written(), "net")
    assert near == {
        "name": "mlx5_0", "dev": "0", "speed": "200000", "port": "1", "latency": "0.000000",
        "guid": "0xa0000000", "maxconn": "131072", "gdr": "1",
    }  # fmt: skip
    assert (far["name"], far["dev"], far["guid"]) == ("mlx5_1", "1", "0xa0000010")


@pytest.mark.parametrize(
    ("medium", "name", "kind", "reduces"),
    [("infiniband", "mlx5_1", "0x020700", True), ("ethernet", "eth1", "0x020000", False)],
)
def test_infiniband_alone_reduces_in_the_network(medium, name, kind, reduces):
    spec = spec_of(nic=NODE["nic"] | {"medium": medium})
    root = written(specs=[spec], collnet=True)
    assert of(root, "net")[0]["name"] == name
    assert kind in {slot["class"] for slot in of(root, "pci")}
    assert [port.get("coll") for port in of(root, "net")] == ["1" if reduces else None] * 2
    assert all("coll" not in port for port in of(written(specs=[spec]), "net"))


@pytest.mark.parametrize(
    ("bus", "address"),
    [
        (0x80, "0000:80:00.0"), (0xFF, "0000:ff:00.0"), (0x100, "0001:00:00.0"),
        (0x2AB, "0002:ab:00.0"),
    ],
)  # fmt: skip
def test_more_than_256_buses_go_on_in_the_next_domain(bus, address):
    assert _address(bus) == address


def test_domains_are_counted_from_zero():
    cluster = Cluster.preset("dgx-h100", nodes=3)
    assert cluster_xml(cluster, domain=2) == cluster_xml(cluster)
    with pytest.raises(ScenarioError, match="no NVLink domain 3: they are counted from 0 to 2"):
        cluster_xml(cluster, domain=3)


def test_the_ranks_of_a_rack_go_on_from_node_to_node():
    root = read_xml(cluster_xml(Cluster.preset("gb200-nvl72", nodes=3)), "f")
    assert [gpu["rank"] for gpu in of(root, "gpu")] == [str(rank) for rank in range(12)]
    assert {cpu["host_hash"] for cpu in of(root, "cpu")} == {"0x0", "0x1", "0x2"}
