"""
Graphs and timelines with each array, and each leaf of the header, replaced by what nobody saved.

By default some damages of each array are tried; `python -m pytest -m long tests/fuzz` tries all.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
from helpers.arrays import array_damages, arrays_of, header_damages, npz_of
from helpers.leaves import fault_of

import commsim as cs
from commsim.export import write_chrome, write_csv
from commsim.graph import Graph, GraphBuilder, Phase, Tags, save_graph
from commsim.study.run import Result
from commsim.timeline import Timeline, load_timeline, save_timeline

CLUSTER = {"preset": "dgx-h100"}
SOME = 5  # by default, one of so many damages
CAPTURE = {
    "script": "train.py", "torch": "2.9", "model_flops": 1e9, "hardware_flops": 1e9,
    "role_of_rank": [0, 0, 0, 0], "notes": ["rank 0: eager"],
    "memory": {"0": dict.fromkeys(("parameters", "gradients", "optimizer", "other", "peak"), 9)},
    "products": {"B0": ["matmul", 64, 64, 64, 1, "bfloat16", False]},
}  # fmt: skip


def small_graph(meta: dict[str, Any]) -> Graph:
    """Four ranks with work, timed and not, copies, collectives, messages, tags and windows."""
    build = GraphBuilder()
    world = build.group("world", range(4), axis="dp")
    for rank in range(4):
        lane = build.lane(rank)
        tags = Tags(Phase.FORWARD, 0, 0, rank // 2, 0)
        first = build.compute(lane, 5000, name="F0", tags=tags, alloc=7)
        tags = Tags(Phase.BACKWARD, 0, 0, rank // 2, 0)
        work = build.compute(
            lane, -1, name="B0", tags=tags, flops=1e6, traffic=1e3, after=[(first, 3)], free=7
        )
        build.collective(lane, world, "all_reduce", 4096, stream="dp", after=[work])
        build.collective(lane, world, "broadcast", 4096, stream="dp", root=0)
        post, peer = (build.recv, rank - 1) if rank % 2 else (build.send, rank + 1)
        post(lane, peer, 512, group=world, stream="pp", batch=build.batch())
        last = build.compute(lane, 100, name="O", tags=Tags(Phase.OPTIMIZER, 0, 0, rank // 2, 0))
        if rank < 3:
            build.window(lane, first, last)
    return build.build(meta)


def run_graph(folder: Path, file: Path) -> Any:
    return written(folder, cs.run({"workload": {"graph": str(file)}, "cluster": CLUSTER}))


def run_folded(folder: Path, file: Path) -> Any:
    cluster = CLUSTER | {"nodes": 4}
    return written(folder, cs.run({"workload": {"graph": str(file)}, "cluster": cluster}))


def read_timeline(folder: Path, file: Path) -> Any:
    timeline = load_timeline(file)
    return written(folder, Result("x", timeline, cs.measure(timeline)))


def written(folder: Path, result: Result) -> Any:
    """Write all that a command may write of a result, and return its figures."""
    result.report(folder / "report.html")
    write_chrome(result.timeline, folder / "trace.json")
    write_csv(result.timeline, result.to_dict(), folder / "csv")
    return result.to_dict()


def graph_arrays(folder: Path) -> dict[str, Any]:
    save_graph(small_graph({"capture": CAPTURE, "schedule": "1f1b"}), folder / "sound.npz")
    return arrays_of((folder / "sound.npz").read_bytes())


def folded_run() -> Timeline:
    sets = ["cluster.nodes=4", "workload.training.parallel.dp=32"]
    return cs.run("quickstart", [*sets, "workload.training.batch.global=256"]).timeline


def folded_arrays(folder: Path) -> dict[str, Any]:
    save_graph(folded_run().graph, folder / "sound.npz")
    return arrays_of((folder / "sound.npz").read_bytes())


def timeline_arrays(folder: Path) -> dict[str, Any]:
    graph_arrays(folder)
    scenario = {"workload": {"graph": str(folder / "sound.npz")}, "cluster": CLUSTER}
    save_timeline(cs.run(scenario).timeline, folder / "sound.npz")
    return arrays_of((folder / "sound.npz").read_bytes())


def folded_timeline_arrays(folder: Path) -> dict[str, Any]:
    """Links that stand for each other, and a graph whose lanes do."""
    save_timeline(folded_run(), folder / "sound.npz")
    return arrays_of((folder / "sound.npz").read_bytes())


def damages(arrays: dict[str, Any], wanted: Sequence[str]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the arrays with one of those that are wanted damaged, and what was done to it."""
    for name in wanted:
        values = arrays[name]
        made = header_damages(values) if name.endswith("header") else array_damages(values)
        for what, other in made:
            rest = {one: column for one, column in arrays.items() if one != name}
            yield f"{name} {what}", rest if other is None else rest | {name: other}


def faults(
    folder: Path,
    arrays: dict[str, Any],
    read: Callable[[Path, Path], Any],
    wanted: Sequence[str],
    step: int = 1,
) -> list[str]:
    file, found = folder / "damaged.npz", []
    for what, made in islice(damages(arrays, wanted), 0, None, step):
        file.write_bytes(npz_of(made))
        if fault := fault_of(partial(read, folder, file)):
            found.append(f"{what}: {fault}")
    return found


def test_graphs(tmp_path: Path) -> None:
    arrays = graph_arrays(tmp_path)
    assert faults(tmp_path, arrays, run_graph, list(arrays), SOME) == []


def test_timelines(tmp_path: Path) -> None:
    arrays = timeline_arrays(tmp_path)
    own = [name for name in arrays if not name.startswith("graph_")]
    assert faults(tmp_path, arrays, read_timeline, own, SOME) == []


def test_timelines_of_folded_runs(tmp_path: Path) -> None:
    arrays = folded_timeline_arrays(tmp_path)
    own = [name for name in arrays if name == "links_like" or name.startswith("graph_f_")]
    assert faults(tmp_path, arrays, read_timeline, own, SOME) == []


@pytest.mark.long
@pytest.mark.parametrize(
    ("make", "read"),
    [
        (graph_arrays, run_graph),
        (folded_arrays, run_folded),
        (timeline_arrays, read_timeline),
        (folded_timeline_arrays, read_timeline),
    ],
    ids=["graph", "folded", "timeline", "folded timeline"],
)
def test_every_damage(make: Any, read: Any, tmp_path: Path) -> None:
    arrays = make(tmp_path)
    assert faults(tmp_path, arrays, read, list(arrays)) == []
