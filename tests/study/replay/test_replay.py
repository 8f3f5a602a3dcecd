"""The recorded run of eight V100s, replayed through the command's own path."""

from __future__ import annotations

from pathlib import Path

import pytest
from helpers.optional import present

from commsim.cluster import Cluster
from commsim.errors import ScenarioError
from commsim.study.replay import replay

FOLDER = "traces/dev_param_dlrm_8xV100"


def test_the_replay_is_the_measured_run(shared_data: Path) -> None:
    found = replay(shared_data / FOLDER)
    error = found.result.to_dict()["error"]
    assert len(error["ranks"]) == 8
    assert max(abs(rank["step_time"]) for rank in error["ranks"]) < 0.02
    assert error["waits"]["count"] == 64
    assert error["waits"]["median_abs_s"] < 50e-6
    assert present(found.measured).step_time_s == pytest.approx(19.9e-3, rel=0.01)


def test_modelled_communication_uses_the_links(shared_data: Path) -> None:
    found = replay(shared_data / FOLDER, comm="modelled", cluster=Cluster.preset("dgx-1v"))
    assert found.result.metrics.links
    assert abs(found.result.to_dict()["error"]["step_time"]) < 0.02


def test_modelled_communication_needs_a_cluster(tmp_path: Path) -> None:
    with pytest.raises(ScenarioError, match="--cluster"):
        replay(tmp_path, comm="modelled")
