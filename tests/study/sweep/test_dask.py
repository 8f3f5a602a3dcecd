"""A sweep over a Dask cluster is the sweep over local processes, whoever dies on the way."""

from __future__ import annotations

import os
import random
import signal
from pathlib import Path
from typing import Any

import pytest

import commsim as cs

pytest.importorskip("distributed")

SMALL: dict[str, Any] = {
    "cluster": {"preset": "dgx-h100"},
    "workload": {"collectives": [{"op": "all_reduce", "bytes": "1MiB"}]},
    "library": {"name": "ideal"},
}
POINTS = 1000
KILLS = 10


@pytest.mark.long
def test_a_thousand_points_on_four_workers_that_are_killed_are_those_of_processes(
    tmp_path: Path,
) -> None:
    """After every eleventh of the results one of the four workers is killed; none is lost."""
    from distributed import LocalCluster

    vary = [f"workload.collectives.0.bytes=1KiB..{POINTS}KiB+1"]
    chance, killed = random.Random(3), 0
    with LocalCluster(
        n_workers=4, threads_per_worker=1, dashboard_address=None, silence_logs=50
    ) as cluster:

        def kill(done: int, _: int) -> None:
            nonlocal killed
            if done >= (killed + 1) * POINTS / (KILLS + 1) and killed < KILLS:
                running = [one.pid for one in cluster.workers.values() if one.pid]
                if running:
                    os.kill(chance.choice(sorted(running)), signal.SIGKILL)
                    killed += 1

        store = tmp_path / "x.sqlite"
        shared = cs.sweep(
            SMALL, vary, executor=f"dask:{cluster.scheduler_address}", store=store, progress=kill
        )
    assert (killed, shared.ran) == (KILLS, POINTS)
    assert all(error is None for error in shared.errors)
    local = cs.sweep(SMALL, vary, executor="processes:2")
    assert shared.results == local.results
    assert cs.sweep(SMALL, vary, executor="serial", store=store).ran == 0
