"""`commsim topo` and `commsim presets`: what they say of racks, transports and prices."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from commsim.cli.main import call


def told(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    assert call(["topo", *words]) == 0
    return capsys.readouterr().out


def test_two_racks_are_two_domains_on_one_screen(capsys: pytest.CaptureFixture[str]) -> None:
    out = told(capsys, "gb200-nvl72", "--nodes", "36")
    assert out.startswith("36 x gb200-nvl72: 36 nodes, 144 GPUs, 2 NVLink domains\n")
    assert "nvswitch: gpu0 to gpu3, 900 GB/s each, 18 links; up to 18 nodes share it" in out
    assert "node0/gpu0 - domain0/nvswitch - node0/gpu1" in out
    assert len(out.splitlines()) < 40


def test_thousands_of_nodes_stay_short(capsys: pytest.CaptureFixture[str]) -> None:
    out = told(capsys, "aws-p5", "--nodes", "2048")
    assert "2,048 nodes, 16,384 GPUs" in out
    assert len(out.splitlines()) < 45
    assert len(out) < 5000


def test_transport_price_and_power_are_told(capsys: pytest.CaptureFixture[str]) -> None:
    out = told(capsys, "aws-p5")
    assert "8 x 4 EFA v2 of 100 Gb/s, 50 GB/s, on 8 rails; efa_v2 over ethernet, with" in out
    assert "6.88 USD per GPU and hour, 2026-09-25 (documented: 55.04 USD for 8 GPUs" in out
    assert "10,200 W at most (documented" in told(capsys, "dgx-h200")
    assert "tcp over ethernet, without GPUDirect" in told(capsys, "gcp-a2-high")


def test_a_node_is_drawn(capsys: pytest.CaptureFixture[str]) -> None:
    out = told(capsys, "polaris")
    assert "cpu2 51.2 GB/s of memory\n    directly: gpu1, nic1" in out
    assert "nvlink: each two GPUs, 4 links, 100 GB/s" in out
    mesh = told(capsys, "dgx-1v")
    assert "nvlink: GPUs 0-1 0-2 1-3 2-6 3-7 4-5 4-6 5-7, 1 link, 25 GB/s" in mesh
    tree = told(capsys, "dgx-2")
    assert "pcie0 15.75 GB/s up: switches\n      pcie4 15.75 GB/s up: gpu0, gpu1, nic0" in tree


def test_a_box_without_nic_or_p2p(capsys: pytest.CaptureFixture[str]) -> None:
    out = told(capsys, "pcie-rtx5090")
    assert "no P2P over PCIe: between GPUs without NVLink, through host memory" in out
    assert "fabric      none" in out
    assert "node0/gpu0 - node0/cpu0 - node0/mem0 - node0/cpu0 - node0/gpu1" in out


def test_a_topology_file_of_nccl_goes_out_and_comes_back(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("dgx-a100", "polaris", "gcp-a3-ultra"):
        file = tmp_path / f"{name}.xml"
        assert f"wrote {file}" in told(capsys, name, "--nccl-xml", str(file))
        plain, back = told(capsys, name, "--nccl"), told(capsys, str(file), "--nccl")
        paths = "Paths between GPUs"
        assert back.split(paths)[1] == plain.split(paths)[1]
    assert call(["topo", str(file), "--set", "name=x"]) == 2
    assert "not NCCL's topology file" in capsys.readouterr().err


def test_an_unknown_cluster_is_named_as_it_was_given(capsys: pytest.CaptureFixture[str]) -> None:
    assert call(["topo", "dgx-h10"]) == 2
    assert capsys.readouterr().err.startswith("commsim: dgx-h10: preset: unknown preset")


def test_what_nccl_sees(capsys: pytest.CaptureFixture[str]) -> None:
    out = told(capsys, "dgx-h100", "--nodes", "2", "--nccl", "2.28")
    assert "GPU 0  PIX 48  PXN 48" in out
    assert "Graphs (NCCL 2.28, 16 ranks on 2 nodes): 16 channels" in out
    assert call(["topo", "dgx-h100", "--nccl", "9"]) == 2
    assert "'9': give a release of NCCL, like 2.27" in capsys.readouterr().err


def test_presets_have_gpus_nics_and_prices_and_are_filtered(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert call(["presets", "clusters", "H100", "usd"]) == 0
    head, *rows = capsys.readouterr().out.splitlines()
    assert head.split("  ")[0] == "name"
    row = next(row for row in rows if row.startswith("aws-p5 "))
    assert "8 H100-SXM5-80GB" in row
    assert "8 of 50 GB/s" in row
    assert "6.88 USD" in row
    assert all("H100" in row and "USD" in row for row in rows)
    assert call(["presets", "clusters", "xylophone"]) == 2
    assert "no row of clusters holds 'xylophone'" in capsys.readouterr().err
    assert call(["presets", "cluster"]) == 2
    assert "Did you mean 'clusters'" in capsys.readouterr().err


def test_presets_tell_gpus_apart(capsys: pytest.CaptureFixture[str]) -> None:
    assert call(["presets", "gpus"]) == 0
    out = capsys.readouterr().out
    assert "A40             Ampere GA102, 44.52 GiB at 696 GB/s, NVLink 56.25 GB/s" in out
    assert "xGMI 448 GB/s" in out


def test_presets_show_finds_what_is_nearly_right(capsys: pytest.CaptureFixture[str]) -> None:
    assert call(["presets", "show", "H100-sxm5-80gb"]) == 0
    assert capsys.readouterr().out.startswith("# H100-SXM5-80GB")
    assert call(["presets", "show", "gb200"]) == 2
    assert "Did you mean 'gb200-nvl72'?" in capsys.readouterr().err


def test_presets_show_prints_a_model_with_its_sources(capsys: pytest.CaptureFixture[str]) -> None:
    assert call(["presets", "show", "llama3-70b"]) == 0
    text = capsys.readouterr().out
    (entry,) = yaml.safe_load(text).items()
    assert entry[0] == "llama3-70b"
    assert entry[1]["shape"]["layers"] == 80
    assert entry[1]["sources"]
    assert call(["presets", "models"]) == 0
    assert "70.55e9 parameters, 80 layers of 8192" in capsys.readouterr().out


def test_a_scenario_stands_for_its_cluster(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "run.yaml"
    path.write_text("cluster: {preset: dgx-a100}\nworkload: {collectives: []}\n")
    assert call(["bench", "all_reduce", "-b", "1M", "-e", "1M", "--cluster", str(path)]) == 0
    assert "# cluster: 1 x dgx-a100" in capsys.readouterr().out
    path.write_text("workload: {collectives: []}\n")
    assert call(["bench", "all_reduce", "--cluster", str(path)]) == 2
    assert "is a scenario without a cluster" in capsys.readouterr().err
