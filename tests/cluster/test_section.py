"""What users write: overrides, inline nodes, mixed nodes, and every message when it is wrong."""

from __future__ import annotations

from typing import Any

import pytest
from helpers.optional import present

from commsim.cluster import Cluster, ClusterSection, build_cluster, cluster_from, load_cluster
from commsim.cluster.describe import describe
from commsim.errors import ScenarioError
from commsim.sections import decode

A10G = {"gpu": {"count": 4, "spec": "A10G"}, "nic": {"count": 1, "bandwidth": "25Gbps"}}


def error(data: dict[str, Any]) -> str:
    with pytest.raises(ScenarioError) as raised:
        cluster_from(data, "x.yaml")
    return str(raised.value)


def test_an_override_changes_the_nics():
    cluster = Cluster.preset("dgx-h100", nodes=2, overrides={"nic": {"bandwidth": "800Gbps"}})
    assert {nic.bandwidth for nic in cluster.nics} == {100e9}


def test_an_override_changes_nvlink_pcie_and_memory():
    overrides = {
        "nvlink": {"bandwidth": "900GB/s"},
        "pcie": {"generation": 4},
        "gpu": {"memory": "141GB", "tflops": {"bf16": 1200.0}},
    }
    cluster = Cluster.preset("dgx-h100", overrides=overrides)
    rates = dict(zip(cluster.links.kinds, cluster.links.bandwidth.tolist(), strict=True))
    assert rates["nvlink"] == 900e9
    assert rates["pcie"] == pytest.approx(31.508e9, rel=1e-4)
    assert cluster.gpu(0).memory_bytes == 141_000_000_000
    assert (cluster.gpu(0).tflops["bf16"], cluster.gpu(0).tflops["fp16"]) == (1200.0, 989.0)
    assert cluster.gpu(0).source["tflops"] == "stated in the cluster's description"


def test_fewer_nics_spread_over_the_old_places():
    cluster = Cluster.preset("dgx-h100", nodes=2, overrides={"nic": {"count": 4}})
    assert len(cluster.nics) == 8
    assert [cluster.nics_of(gpu)[0] for gpu in range(8)] == [0, 0, 1, 1, 2, 2, 3, 3]
    assert len(cluster.to_nic(2, 1).link) == 2  # NIC 1 stands where NIC 2 stood
    assert cluster.notes == ("nic.count: 4 NICs spread over the places of the node's 8.",)


def test_fewer_nics_stand_beside_the_gpus_that_stay() -> None:
    overrides = {"gpu": {"count": 4}, "nic": {"count": 2}}
    cluster = Cluster.preset("dgx-a100", nodes=2, overrides=overrides)
    assert [cluster.nics_of(rank)[0] for rank in range(8)] == [0, 0, 1, 1, 2, 2, 3, 3]
    for rank in range(8):  # GPUDirect: by PCIe alone, through no socket
        way = [cluster.links.names[link] for link in cluster.to_nic(rank, rank // 2).link]
        assert not any("cpu" in name or "mem" in name for name in way)


def test_fewer_gpus_are_the_first_ones():
    cluster = Cluster.preset("dgx-1v", overrides={"gpu": {"count": 4}})
    assert cluster.world_size == 4
    assert len(present(cluster.local_route(0, 3)).link) == 1


def test_an_inline_node_takes_defaults_and_says_so():
    cluster = cluster_from({"node": A10G, "nodes": 2}, "x")
    assert cluster.world_size == 8
    taken = cluster.notes[0].removeprefix("node node: taken by default: ").removesuffix(".")
    assert taken.split(", ")[:6] == [
        "cpu.sockets", "cpu.arch", "cpu.vendor", "cpu.family", "cpu.model_id", "nic.efficiency",
    ]  # fmt: skip
    assert "nic.transport (ib), nic.gdr (true)" in taken
    assert taken.endswith("pcie.root_latency, pcie.p2p, pcie.generation (the GPU's)")
    assert "fabric: kind single_switch taken by default." in cluster.notes


@pytest.mark.parametrize(("spec", "preset"), [
    ("A100-SXM4-80GB", "dgx-a100"), ("H100-SXM5-80GB", "dgx-h100"),
    ("B200-SXM-180GB", "dgx-b200"),
])  # fmt: skip
def test_nvlink_of_ones_own_carries_what_its_generation_does(spec, preset):
    node = {"gpu": {"count": 8, "spec": spec}, "nvlink": {"bandwidth": "300GB/s"},
            "nic": {"count": 8, "bandwidth": "400Gbps"}}  # fmt: skip
    shares = [
        {
            float(cluster.links.efficiency[link])
            for link, kind in enumerate(cluster.links.kinds)
            if kind == "nvlink"
        }
        for cluster in (cluster_from({"node": node}, "x.yaml"), Cluster.preset(preset))
    ]
    assert shares[0] == shares[1]


def test_a_gpu_of_ones_own_needs_no_table():
    node = {"gpu": {"count": 2, "memory": "64GiB"}, "pcie": {"generation": 5}}
    assert cluster_from({"node": node}, "x").gpu(1).memory_bytes == 64 * 2**30


def test_overrides_apply_to_one_kind_of_several():
    nodes = [
        {"preset": "dgx-h100", "overrides": {"nic": {"bandwidth": "200Gbps"}}},
        {"preset": "dgx-h100"},
    ]
    cluster = cluster_from({"nodes": nodes}, "x")
    assert [nic.bandwidth for nic in cluster.nics] == [25e9] * 8 + [50e9] * 8
    assert cluster.name == "1 x dgx-h100 + 1 x dgx-h100"


def test_a_scenarios_section_builds():
    data = {"preset": "dgx-h100", "nodes": 2, "fabric": {"kind": "rail_only"}}
    section = decode(data, ClusterSection, "s.yaml")
    assert build_cluster(section, "s.yaml").fabric.kind == "rail_only"


def test_paths_start_where_the_section_stands():
    section = decode({"preset": "dgx-h100", "nodes": 0}, ClusterSection, "s.yaml")
    with pytest.raises(ScenarioError, match=r"^s\.yaml: cluster\.nodes: 0 is not a count"):
        build_cluster(section, "s.yaml")


def test_a_misspelt_override_is_named():
    message = error({"preset": "dgx-h100", "overrides": {"nic": {"bandwdth": "400Gbps"}}})
    assert "x.yaml: overrides.nic.bandwdth: unknown setting 'bandwdth'." in message
    assert "Did you mean 'bandwidth'?" in message


def test_a_misspelt_part_is_named():
    message = error({"preset": "dgx-h100", "overrides": {"nvlnk": {}}})
    assert "overrides.nvlnk" in message
    assert "Did you mean 'nvlink'?" in message


def test_a_bandwidth_needs_its_unit():
    message = error({"preset": "dgx-h100", "overrides": {"nic": {"bandwidth": 400}}})
    assert "overrides.nic.bandwidth: 400 has no unit. Did you mean '400Gbps'?" in message


def test_six_nics_do_not_divide_eight_gpus():
    expected = (
        "6 NICs do not divide 8 GPUs evenly. Give a divisor of 8 (1, 2, 4, 8), or list gpu_to_nic"
        " explicitly."
    )
    message = error({"preset": "dgx-h100", "overrides": {"nic": {"count": 6}}})
    assert message == f"x.yaml: overrides.nic.count: {expected}"
    node = {
        "gpu": {"count": 8, "spec": "A10G"},
        "nic": {"count": 6, "bandwidth": "100Gbps"},
    }
    assert error({"node": node}) == f"x.yaml: node.nic.count: {expected}"
    node["nic"]["gpu_to_nic"] = [0, 1, 2, 3, 4, 5, 0, 1]
    assert cluster_from({"node": node}, "x").nics_of(7)[0] == 1


def test_an_unknown_preset_is_named():
    message = error({"preset": "dgx-h10"})
    assert message.startswith("x.yaml: preset: unknown preset 'dgx-h10'. Did you mean 'dgx-h100'?")
    assert error({"nodes": [{"preset": "dgx"}]}).startswith("x.yaml: nodes.0.preset: ")


INLINE = {"gpu": {"count": 2, "spec": "A10G"}, "nic": {"count": 2, "bandwidth": "25Gbps"}}
MESH = {"kind": "mesh", "per_link": "25GB/s"}


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        ({"preset": "dgx-h100", "nodes": 0}, "nodes: 0 is not a count of nodes"),
        ({"preset": "dgx-h100", "nodes": -2}, "nodes: -2 is not a count of nodes"),
        ({"preset": "dgx-h100", "nodes": 10**12}, "nodes are more than commsim can hold"),
        ({"preset": "dgx-h100", "nodes": 200_000}, "GPUs are more than commsim can hold"),
        ({"preset": "dgx-h100", "nodes": float("nan")}, "nodes: nan is not a number"),
        ({"preset": "dgx-h100", "nodes": "two"}, "nodes: 'two' is not a whole number"),
        ({"nodes": []}, "nodes: is empty"),
        ({"preset": "dgx-h100", "nodes": [{"preset": "dgx-1v"}]}, "preset: means nothing beside"),
        ({"nodes": [{"preset": "dgx-1v", "count": 0}]}, "nodes.0.count: 0 is not a count"),
        ({}, "preset: neither stands here"),
        ({"preset": "dgx-h100", "node": A10G}, "preset: both stand here"),
        ({"node": {}}, "node.gpu: is missing"),
        ({"node": {"gpu": {"count": 2}}}, "node.gpu: give a `spec`"),
        ({"node": {"gpu": {"spec": "A10G"}}}, "node.gpu.count: is missing"),
        ({"node": {"gpu": {"spec": "A10G", "count": 0}}}, "node.gpu.count: 0 is not a count"),
        ({"node": {"gpu": {"spec": "A10", "count": 1}}}, "Did you mean 'A10G'?"),
        ({"node": {"gpu": INLINE["gpu"]}, "nodes": 2}, "node.nic: is missing"),
        ({"node": {**INLINE, "nic": {"count": 2}}}, "node.nic.bandwidth: is missing"),
        ({"node": {**INLINE, "cpu": {"sockets": 0}}}, "node.cpu.sockets: 0 is not a count"),
        ({"node": {**INLINE, "cpu": {"sockets": 65}}}, "node.cpu.sockets: 65 are more than 64"),
        ({"node": {**INLINE, "cpu": {"gpus": [[0], [1]]}}}, "node.cpu.gpus: has 2 lists for 1"),
        ({"node": {**INLINE, "cpu": {"gpus": [[0, 0]]}}}, "may stand only once"),
        ({"node": {**INLINE, "pcie": {"generation": 9}}}, "node.pcie.generation: 9 is not"),
        ({"node": {**INLINE, "pcie": {"width": 3}}}, "node.pcie.width: 3 is not"),
        (
            {"node": {**INLINE, "pcie": {"efficiency": 1.5}}},
            "node.pcie.efficiency: 1.5 is not a share",
        ),
        (
            {"node": {**INLINE, "pcie": {"switches": [{"gpus": [2]}]}}},
            "node.pcie.switches: [0]: there is no GPU 2",
        ),
        (
            {"node": {**INLINE, "pcie": {"switches": [{"gpus": [0]}, {"gpus": [0]}]}}},
            "node.pcie.switches: [1]: GPU 0 hangs under switch 0 already",
        ),
        (
            {"node": {**INLINE, "pcie": {"switches": [{"under": 0}]}}},
            "node.pcie.switches: [0]: under: 0 must name an earlier switch",
        ),
        (
            {"node": {**INLINE, "pcie": {"switches": [{"socket": 3}]}}},
            "node.pcie.switches: [0]: there is no socket 3",
        ),
        ({"node": {**INLINE, "nvlink": {"kind": "switch"}}}, "node.nvlink.bandwidth: is missing"),
        ({"node": {**INLINE, "nvlink": MESH}}, "node.nvlink.links: is missing"),
        ({"node": {**INLINE, "nvlink": {**MESH, "links": [[0]]}}}, "must be 2 rows of 2"),
        (
            {"node": {**INLINE, "nvlink": {**MESH, "links": [[0, 1], [2, 0]]}}},
            "node.nvlink.links: [0][1] is 1, [1][0] is 2",
        ),
        (
            {"preset": "dgx-1v", "overrides": {"nvlink": {"bandwidth": "1GB/s"}}},
            "overrides.nvlink.bandwidth: means nothing with kind: mesh",
        ),
        (
            {"node": {**INLINE, "nic": {**INLINE["nic"], "gpu_to_nic": [0, 2]}}},
            "node.nic.gpu_to_nic: GPU 1 gets [2]",
        ),
        (
            {"node": {**INLINE, "nic": {**INLINE["nic"], "gpu_to_nic": [0]}}},
            "node.nic.gpu_to_nic: has 1 entries for 2 GPUs",
        ),
        (
            {"node": {**INLINE, "nic": {**INLINE["nic"], "rails": [0]}}},
            "node.nic.rails: [0] must give each of 2 NICs",
        ),
        (
            {"preset": "dgx-h100", "overrides": {"gpu": {"count": 9}}},
            "overrides.gpu.count: 9 GPUs, but the node has places for 8",
        ),
        (
            {"preset": "dgx-h100", "overrides": {"nic": {"efficiency": 0.0}}},
            "overrides.nic.efficiency: 0 is not a share",
        ),
        (
            {"preset": "dgx-h100", "overrides": {"nic": {"bandwidth": "0Gbps"}}},
            "overrides.nic.bandwidth: '0Gbps': a bandwidth must be above zero",
        ),
        (
            {"preset": "dgx-h100", "fabric": {"oversubscription": 0.5}},
            "fabric.oversubscription: 0.5 is below 1",
        ),
        (
            {"preset": "dgx-h100", "fabric": {"oversubscription": float("inf")}},
            "fabric.oversubscription: inf is not a number",
        ),
        ({"preset": "dgx-h100", "fabric": {"radix": 1}}, "fabric.radix: 1 is too few"),
        ({"preset": "dgx-h100", "fabric": {"spines": 0}}, "fabric.spines: 0 is too few"),
        (
            {"preset": "dgx-h100", "fabric": {"kind": "mesh"}},
            "fabric.kind: 'mesh' is not one of: none, single_switch",
        ),
        ({"preset": "dgx-h100", "fabric": {"knd": "x"}}, "Did you mean 'kind'?"),
        (
            {"preset": "dgx-h100", "nodes": 2, "fabric": {"kind": "none"}},
            "fabric.kind: none joins no nodes, and there are 2",
        ),
        (
            {"preset": "dgx-h100", "fabric": {"kind": "rail_only", "oversubscription": 2}},
            "fabric.oversubscription: means nothing with kind: rail_only",
        ),
        (
            {"nodes": [{"preset": "dgx-h100"}, {"preset": "cpu-ethernet"}]},
            "fabric: infiniband and ethernet NICs cannot share one fabric",
        ),
    ],
)
def test_what_is_wrong_is_said(data, expected):
    message = error(data)
    assert message.startswith("x.yaml: ")
    assert expected in message


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", "empty"),
        ("- 1", "a list"),
        ("a: [", "line 1, col"),
        ("preset: x", "unknown preset 'x'"),
    ],
)
def test_a_file_that_is_no_cluster(tmp_path, text, expected):
    file = tmp_path / "c.yaml"
    file.write_text(text)
    with pytest.raises(ScenarioError, match=expected) as raised:
        load_cluster(file)
    assert str(file) in str(raised.value)


def test_a_file_that_is_not_there(tmp_path):
    with pytest.raises(ScenarioError, match="there is no such file"):
        load_cluster(tmp_path / "none.yaml")


def test_description_of_a_cluster():
    told = describe(Cluster.preset("dgx-h100", nodes=4, fabric={"oversubscription": 2}))
    assert (told["nodes"], told["world_size"]) == (4, 32)
    assert told["kinds"][0]["nics_per_gpu"] == 1.0
    assert told["fabric"]["rails"] == 8
    assert told["fabric"]["oversubscription"] == 2.0
    assert sum(row["count"] for row in told["links"]) == 4 * 84 + 16
    nvlink = next(row for row in told["links"] if row["kind"] == "nvlink")
    assert nvlink == {
        "kind": "nvlink", "medium": "", "from": "gpu", "to": "nvswitch", "bandwidth": 450e9,
        "efficiency": 0.881, "latency_ps": 400_000, "count": 32,
    }  # fmt: skip
    near, far = told["routes"]
    assert (near["from"], near["to"], near["latency_ps"]) == (0, 1, 800_000)
    assert (far["to"], far["bandwidth"]) == (8, 48.5e9)


def test_description_is_plain_data():
    import json

    for name in ("cpu-ethernet", "pcie-a100", "dgx-1v"):
        json.dumps(describe(Cluster.preset(name)))


def test_small_honest_reprs():
    cluster = Cluster.preset("dgx-h100", nodes=2)
    assert repr(cluster) == (
        "Cluster('2 x dgx-h100', 2 nodes, 16 GPUs, 184 links, fabric rail_optimized)"
    )
    assert repr(cluster.links) == "Links(184)"
