"""A user's script that calls the public API passes mypy --strict against the package."""

from __future__ import annotations

from pathlib import Path

import pytest

SCRIPT = """
from pathlib import Path

import commsim as cs

result: cs.Result = cs.run("quickstart", cluster={"nodes": 2}, progress=print)
again: cs.Result = cs.run(cs.Scenario.load({"workload": {}}), ["engine.seed=1"])
headline: str = result.headline
saved: list[float] = [limit.removed_s for limit in result.limits]
peers: list[int] = [wait.peer for wait in result.waits]
result.report("a.html")
result.viewer(Path("b.html"))
result.save_json("a.json")
table = result.timeline.to_pandas()
cluster = cs.Cluster.preset("dgx-h100", nodes=2)
bench = cs.bench(cluster, "all_reduce", "1GiB", algo="ring")
rate: float | None = bench.results[0].busbw_gbs
names: tuple[str, ...] = cs.presets("models")
least: float = cs.bound(cluster, "all_reduce", 2**20, [0, 1]).seconds
verdict: list[str] = list(cs.compare("gpipe", "1f1b").verdict)
measured: cs.Timeline = cs.load_trace("traces").timeline()
waiting: float = cs.measure(measured).breakdown.waiting_s
replayed: str = cs.replay("example-fsdp").result.headline
"""


@pytest.mark.long
def test_a_users_script_is_strictly_typed(tmp_path: Path) -> None:
    api = pytest.importorskip("mypy.api")
    script = tmp_path / "user.py"
    script.write_text(SCRIPT)
    out, _, code = api.run(["--strict", str(script)])
    assert code == 0, out
