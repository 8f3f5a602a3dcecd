"""GPUs that a graph has no ranks for are said."""

from __future__ import annotations

from pathlib import Path

import pytest

import commsim as cs
from commsim.cli.main import call
from commsim.graph import GraphBuilder, save_graph


def test_a_graph_of_fewer_ranks_than_gpus_says_how_many_idle(tmp_path: Path) -> None:
    build = GraphBuilder()
    world = build.group("world", range(4))
    for rank in range(4):
        build.collective(build.lane(rank), world, "all_reduce", 2**20, stream="comm")
    save_graph(build.build(), tmp_path / "four.npz")
    scenario = {
        "cluster": {"preset": "dgx-h100"},
        "workload": {"graph": str(tmp_path / "four.npz")},
    }
    said = "ranks: 4 of the cluster's 8 GPUs have no work: it is of 4 ranks."
    assert any(note.startswith(said) for note in cs.run(scenario).notes)
    fits = {**scenario, "cluster": {"preset": "dgx-h100", "overrides": {"gpu": {"count": 4}}}}
    assert not any(note.startswith("ranks:") for note in cs.run(fits).notes)


def test_a_replay_says_so_and_takes_one_change_at_a_time(
    capsys: pytest.CaptureFixture[str],
) -> None:
    modelled = ["replay", "example-dlrm", "--comm", "modelled", "--cluster", "dgx-h100"]
    assert call([*modelled, "--nodes", "2", "-v"]) == 0
    assert "ranks: 8 of the cluster's 16 GPUs have no work" in capsys.readouterr().err
    assert call([*modelled, "--what-if", "nic"]) == 2
    assert "Write it as a setting: --comm modelled" in capsys.readouterr().err
