"""The presets: what they are made of, and that each value says where it is from."""

from __future__ import annotations

import re
from collections import Counter

import pytest
import yaml
from helpers.optional import present

from commsim.cluster import Cluster
from commsim.cluster.describe import gpu_names, gpu_spec, gpu_text, preset_names, preset_text
from commsim.errors import ScenarioError
from commsim.yaml_file import parse_yaml

CONFIDENCE = re.compile(r"(documented|derived|general)\b")


def kinds(cluster: Cluster) -> Counter[str]:
    return Counter(cluster.links.kinds)


def bandwidths(cluster: Cluster, kind: str) -> set[float]:
    pairs = zip(cluster.links.kinds, cluster.links.bandwidth.tolist(), strict=True)
    return {bandwidth for k, bandwidth in pairs if k == kind}


ALONE = ("pcie-rtx2080ti", "pcie-rtx5090")  # these have no NIC


def some(name: str) -> Cluster:
    """A few nodes of a preset, one where it has no NIC."""
    return Cluster.preset(name, nodes=1 if name in ALONE else 4)


@pytest.mark.parametrize("name", preset_names())
def test_a_preset_builds_without_any_default_taken(name):
    assert not [note for note in some(name).notes if "PCIe slot" not in note]


def test_only_nics_that_are_faster_than_their_slots_are_bounded_by_them():
    bounded = [name for name in preset_names() if some(name).notes]
    assert bounded == ["pcie-l40s"]  # 400 Gb/s, where 16 lanes of PCIe 4 carry 252 at most


@pytest.mark.parametrize("name", preset_names())
def test_every_value_of_a_preset_has_a_source_with_its_confidence(name):
    data = parse_yaml(preset_text(name), name)  # strictly: no key twice
    parts = {**data["node"], "fabric": data.get("fabric")}
    for part, values in parts.items():
        if not isinstance(values, dict):
            continue
        if "source" in values:
            assert CONFIDENCE.match(values["source"]), part
            continue
        named = set(values) - {"sources"}
        assert named == set(values["sources"]), part
        assert all(CONFIDENCE.match(text) for text in values["sources"].values()), part


def test_a_preset_file_is_itself_a_cluster_file(tmp_path):
    from commsim.cluster import load_cluster

    file = tmp_path / "mine.yaml"
    file.write_text(preset_text("dgx-h100"), encoding="utf-8")
    assert load_cluster(file).links.names == Cluster.preset("dgx-h100").links.names


def test_dgx_h100_links():
    cluster = Cluster.preset("dgx-h100")
    # 8 GPUs to the NVSwitch; 8 GPUs, 8 NICs and 8 switches to what is above; 2 sockets;
    # 8 NICs to leaves, 8 leaves to the spine; each both ways; and 2 sockets' memories.
    assert kinds(cluster) == {"nvlink": 16, "pcie": 48, "cpu": 2, "memory": 2, "network": 32}
    assert bandwidths(cluster, "nvlink") == {450e9}
    assert bandwidths(cluster, "network") == {50e9}
    (pcie,) = bandwidths(cluster, "pcie")
    assert pcie == pytest.approx(63.015e9, rel=1e-4)  # 32 GT/s x 16 lanes x 128/130 / 8
    assert bandwidths(cluster, "cpu") == {22e9}
    assert cluster.gpu(0).memory_bytes == 85027979264


def test_dgx_a100_links():
    cluster = Cluster.preset("dgx-a100")
    assert kinds(cluster) == {"nvlink": 16, "pcie": 40, "cpu": 12, "memory": 4, "network": 32}
    assert bandwidths(cluster, "nvlink") == {300e9}
    assert bandwidths(cluster, "network") == {25e9}
    assert cluster.gpu(7).name == "A100-SXM4-80GB"


def test_dgx_1v_mesh_gives_each_gpu_150_gigabytes_per_second():
    cluster = Cluster.preset("dgx-1v")
    out = dict.fromkeys(range(8), 0.0)
    for link, kind in enumerate(cluster.links.kinds):
        if kind == "nvlink":
            gpu = int(cluster.links.source[link].removeprefix("node0/gpu"))
            out[gpu] += float(cluster.links.bandwidth[link])
    assert out == dict.fromkeys(range(8), 150e9)
    assert kinds(cluster)["nvlink"] == 32  # 16 pairs have NVLinks
    assert bandwidths(cluster, "nvlink") == {25e9, 50e9}


def test_pcie_box_has_no_nvlink():
    cluster = Cluster.preset("pcie-a100", nodes=2)
    assert "nvlink" not in cluster.links.kinds
    assert [nic.node for nic in cluster.nics] == [0, 1]
    assert bandwidths(cluster, "network") == {12.5e9}


def test_cpu_node_has_workers_on_sockets():
    cluster = Cluster.preset("cpu-ethernet", nodes=2)
    assert cluster.gpu(0).device == "cpu"
    route = present(cluster.local_route(0, 1))
    assert [cluster.links.kinds[link] for link in route.link] == ["cpu"] * 3
    assert set(cluster.links.media) == {"", "ethernet"}


def test_capacity_is_the_payload_share_of_the_bandwidth():
    links = Cluster.preset("dgx-h100", nodes=2).links
    assert links.capacity.tolist() == (links.bandwidth * links.efficiency).tolist()
    nvlink = links.kinds.index("nvlink")
    assert links.capacity[nvlink] == pytest.approx(396.45e9, rel=1e-12)


def test_nvlink_through_the_switch_takes_the_links_and_the_switchs_latency():
    assert present(Cluster.preset("dgx-h100").local_route(0, 1)).latency == 800_000
    assert present(Cluster.preset("dgx-1v").local_route(0, 1)).latency == 700_000


def test_two_rails_ends_take_two_nics_and_a_switch():
    cluster = Cluster.preset("dgx-h100", nodes=2)
    assert present(cluster.fabric_route(0, 8)).latency == 2 * 300_000 + 230_000
    assert present(cluster.fabric_route(0, 9)).latency == 2 * 300_000 + 3 * 230_000


def test_gpus_of_the_table_are_those_of_the_data(shared_data):
    data = yaml.safe_load((shared_data / "hardware" / "gpus.yaml").read_text())["gpus"]
    own = {
        "A40", "GB10", "GB300-per-GPU", "H100-SXM5-64GB", "H100-SXM5-94GB", "RTX-2080Ti", "T4",
        "cpu",
    }  # fmt: skip
    assert set(gpu_names()) == set(data) | own
    for name, facts in data.items():
        spec = gpu_spec(name)
        assert spec.memory_bytes == facts["memory_usable_bytes"]["v"]
        assert spec.memory_bandwidth == facts["mem_bw_gbs"]["v"] * 1e9
        known = {p: f["v"] for p, f in facts["tflops_dense"].items() if f["v"] is not None}
        assert dict(spec.tflops) == known
        assert spec.sm_count == facts["sm_count"]["v"]
        assert spec.nvlink_bandwidth == (facts["nvlink"]["gbs_per_dir_total"]["v"] or 0) * 1e9
        assert spec.confidence["memory_bytes"] == facts["memory_usable_bytes"]["c"]


@pytest.mark.parametrize("name", gpu_names())
def test_every_documented_fact_of_a_gpu_names_its_source(name):
    spec = gpu_spec(name)
    for fact, confidence in spec.confidence.items():
        assert CONFIDENCE.fullmatch(confidence), fact
        if confidence == "documented":
            assert spec.source[fact], fact


def test_a_gpus_text_is_its_file():
    assert gpu_text("h100-sxm5-80gb").startswith("# H100-SXM5-80GB")


def test_h100_is_what_it_is():
    spec = gpu_spec("H100-SXM5-80GB")
    assert spec.tflops["bf16"] == 989.0
    assert "fp4" not in spec.tflops
    assert (spec.sm_count, spec.compute_capability) == (132, "9.0")
    assert spec.nvlink_bandwidth == 450e9


@pytest.mark.parametrize("name", ["qqqqqq", "x" * 80])
def test_a_name_like_no_other_is_refused_without_a_suggestion(name):
    with pytest.raises(ScenarioError) as raised:
        Cluster.preset(name)
    text = str(raised.value)
    assert f"unknown preset {name!r}. `commsim presets clusters` lists all" in text


def test_an_unknown_gpu_suggests_one():
    with pytest.raises(ScenarioError, match=r"unknown GPU 'H100'.*Did you mean 'H100-"):
        gpu_spec("H100")


@pytest.mark.parametrize(
    ("name", "near"),
    [
        ("aws-p5.48xlarge", "aws-p5"), ("aws-p5en.48xlarge", "aws-p5en"), ("h100", "dgx-h100"),
        ("dgxh100", "dgx-h100"), ("DGX-H10", "dgx-h100"), ("polars", "polaris"),
    ],
)  # fmt: skip
def test_an_unknown_preset_suggests_one(name, near):
    with pytest.raises(ScenarioError) as raised:
        Cluster.preset(name)
    assert re.search(
        rf"Did you mean [^?]*'{near}'\? `commsim presets clusters` lists all", str(raised.value)
    )


def test_upper_and_lower_case_do_not_matter():
    assert Cluster.preset("DGX-H100", nodes=2).name == "2 x dgx-h100"
    assert preset_text("Alps") == preset_text("alps")
