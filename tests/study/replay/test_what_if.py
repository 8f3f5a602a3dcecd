"""What-ifs of a replay: on traces whose every time is known."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
from helpers.kineto_writer import Recording, late_rank

from commsim.cluster import Cluster
from commsim.errors import CommsimError, ScenarioError
from commsim.graph import Device, Graph, GraphBuilder, OpKind
from commsim.libraries import Ideal
from commsim.study.replay.errors import worst
from commsim.study.replay.replay import Replay, _rules, replay
from commsim.study.replay.what_if import WhatIf, grown, split_sets, with_library

MS, US = 1_000_000_000, 1_000_000


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for rank in (0, 1):
        late_rank(rank).save(tmp_path)
    return tmp_path


@pytest.fixture(scope="module")
def dgx() -> Cluster:
    return Cluster.preset("dgx-h100")


def change(*words: str) -> WhatIf:
    return split_sets(words)[0]


def step_us(found: Replay) -> float:
    return found.result.metrics.step_time_s * 1e6


def test_the_self_check_is_part_of_every_replay(folder: Path) -> None:
    found = replay(folder)
    check = found.result.to_dict()["self_check"]
    assert found.trusted
    assert [rank["step_time"] for rank in check["ranks"]] == [0.0, 0.0]
    assert any("self-check: with recorded transfers every step" in n for n in found.result.notes)


def test_both_errors_stand_side_by_side(folder: Path, dgx: Cluster) -> None:
    found = replay(folder, cluster=dgx, comm="modelled", library=Ideal())
    said = found.result.to_dict()
    assert found.tables["steps"][0] == (
        "rank", "measured step", "replayed", "error", "modelled", "error",
    )  # fmt: skip
    assert said["self_check"]["step_time"] == 0.0
    assert -0.05 < said["error"]["step_time"] < 0  # 4 kB take less than the 40 us recorded
    assert said["measured"]["step_time_s"] == pytest.approx(1e-3)


def test_an_import_that_misses_its_own_step_carries_a_warning(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.modules["commsim.study.replay.verdict"], "worst", lambda check: 0.051)
    found = replay(folder)
    assert not found.trusted
    assert any("by 5.1%: do not trust what-ifs" in note for note in found.result.notes)


def test_the_worst_rank_decides() -> None:
    ranks = [{"step_time": 0.01}, {"step_time": -0.2}, {"step_time": None}]
    assert worst({"ranks": ranks}) == 0.2


def test_late_is_counted_from_the_one_before(tmp_path: Path) -> None:
    for rank, arrive in enumerate((100, 350, 400)):
        record = Recording(rank, world=3)
        record.note("ProfilerStep#1", 0, 900)
        record.all_reduce(20, arrive, 450)
        record.save(tmp_path)
    (_, _, last) = replay(tmp_path).result.to_dict()["late"]
    assert last["latest"]["late_s"] == pytest.approx(50e-6)
    assert last["made_others_wait_s"] == pytest.approx(350e-6)


def test_half_the_compute_halves_what_is_compute(folder: Path) -> None:
    found = replay(folder, what_if=change("compute.scale=0.5"))
    # Rank 1's path: launch at 55 us, 400 us of kernel, 40 of all-reduce, 50 of add, 430 of CPU.
    assert step_us(found) == pytest.approx(0.5 * (60 + 400 + 50 + 430) + 60, abs=25)
    assert found.result.to_dict()["measured"]["step_time_s"] == pytest.approx(1e-3)


def test_a_scale_of_one_changes_nothing(folder: Path) -> None:
    assert step_us(replay(folder, what_if=change("compute.scale=1"))) == pytest.approx(1000)


def test_a_library_means_nothing_to_recorded_times(folder: Path) -> None:
    with pytest.raises(ScenarioError, match="add --comm modelled"):
        replay(folder, what_if=change("library.version=2.21"))


def test_the_version_and_the_algorithm_of_nccl_reach_the_library(
    folder: Path, dgx: Cluster
) -> None:
    newer = replay(folder, cluster=dgx, comm="modelled", what_if=change('library.version="2.99"'))
    assert any("2.99" in note for note in newer.result.notes)
    with pytest.raises(ScenarioError, match="two"):
        replay(folder, cluster=dgx, comm="modelled", what_if=change('library.version="two"'))
    ring = replay(folder, cluster=dgx, comm="modelled", what_if=change("library.algo=ring"))
    tree = replay(folder, cluster=dgx, comm="modelled", what_if=change("library.algo=tree"))
    assert step_us(ring) != step_us(tree)


def test_words_that_are_no_what_ifs_are_the_clusters() -> None:
    found, others = split_sets(["overrides.nic.bandwidth=200Gbps", "compute.scale=2", "nodes=4"])
    assert found.compute.scale == 2.0
    assert others == ("overrides.nic.bandwidth=200Gbps", "nodes=4")


@pytest.mark.parametrize("word", ["compute.scal=2", "data_parallel.sise=4", "compute.scale=fast"])
def test_unknown_settings_are_refused(word: str) -> None:
    with pytest.raises(ScenarioError, match="--set"):
        split_sets([word])


def test_a_run_that_does_not_fit_the_cluster_is_refused(folder: Path) -> None:
    with pytest.raises(ScenarioError, match=r"the run has 64 ranks, the cluster 8 GPUs\. Add"):
        replay(
            folder, cluster=Cluster.preset("dgx-h100"), comm="modelled",
            what_if=change("data_parallel.size=64"),
        )  # fmt: skip


def test_unknown_sizes_cannot_be_modelled(tmp_path: Path, dgx: Cluster) -> None:
    for rank in (0, 1):
        late_rank(rank, modern=False).save(tmp_path)
    with pytest.raises(ScenarioError, match="1 of 1 collectives have no known size"):
        replay(tmp_path, cluster=dgx, comm="modelled")


def fsdp(world: int = 4, kinds: tuple[str, ...] = ("all_gather", "reduce_scatter")) -> Graph:
    """Two data-parallel groups of two, and tensor-parallel ones across them."""
    build = GraphBuilder()
    dp = [build.group(f"dp {[a, a + 2]}", [a, a + 2]) for a in (0, 1)]
    tp = [build.group(f"tp {[a, a + 1]}", [a, a + 1]) for a in (0, 2)]
    whole = build.group("world", range(world))
    for rank in range(world):
        lane = build.lane(rank)
        for kind in kinds:
            build.collective(lane, dp[rank % 2], kind, 2**20, stream="dp")
        build.collective(lane, tp[rank // 2], "all_reduce", 2**10, stream="tp")
        build.collective(lane, whole, "barrier", 1, stream="w")
    return build.build()


def test_weak_scaling_grows_the_groups_and_the_world_and_keeps_the_bytes() -> None:
    graph, note = grown(fsdp(), 8, "dp")
    assert [group.ranks for group in graph.groups] == [
        (0, 2, 4, 6, 8, 10, 12, 14), (1, 3, 5, 7, 9, 11, 13, 15), (0, 1), (2, 3),
        tuple(range(16)),
    ]  # fmt: skip
    assert graph.collectives.size.tolist() == fsdp().collectives.size.tolist()
    assert "weak scaling" in note


@pytest.mark.parametrize(
    ("graph", "size", "group", "says"),
    [
        (fsdp(), 8, "", "several groups"),
        (fsdp(), 8, "pp", "no collective is on a group 'pp'"),
        (fsdp(), 7, "dp", "not the recorded 2"),
        (fsdp(), -2, "dp", "or a multiple"),
        (fsdp(kinds=("all_to_all",)), 8, "dp", "runs all_to_all"),
    ],
)
def test_what_is_not_sound_is_refused_with_the_reason(
    graph: Graph, size: int, group: str, says: str
) -> None:
    with pytest.raises(ScenarioError, match=says):
        grown(graph, size, group)


def test_more_ranks_take_longer_to_meet(folder: Path, dgx: Cluster) -> None:
    """An all-reduce of 8 ranks on one node against 2, and the same work."""
    two = replay(folder, cluster=dgx, comm="modelled", library=Ideal("ring"))
    eight = replay(
        folder, cluster=dgx, comm="modelled", library=Ideal("ring"),
        what_if=change("data_parallel.size=8"),
    )  # fmt: skip
    assert step_us(eight) > step_us(two)
    assert any("ranks 2 to 7" in note for note in eight.result.notes)


def test_who_was_late_and_by_how_much(folder: Path) -> None:
    said = replay(folder).result.to_dict()
    assert [row["last_arrivals"] for row in said["late"]] == [0, 1]
    assert said["late"][1]["made_others_wait_s"] == pytest.approx(300e-6)
    assert said["late"][1]["latest"] == {
        "op": "all_reduce", "group": "0", "bytes": 4000, "index": 0,
        "late_s": pytest.approx(300e-6),
    }  # fmt: skip
    assert said["late"][0]["wait_s"] == pytest.approx(300e-6)


def test_busbw_beside_what_the_library_predicts(folder: Path, dgx: Cluster) -> None:
    (row,) = replay(folder, cluster=dgx).result.to_dict()["busbw"]
    assert row["busbw_gbs"] == pytest.approx(4000 / 40e-6 / 1e9)  # 2 (n - 1) / n = 1
    assert 1e-6 < row["expected_s"] < 40e-6
    assert row["expected_busbw_gbs"] > row["busbw_gbs"]


def test_untimed_traces_need_a_cluster(tmp_path: Path, dgx: Cluster) -> None:
    path = tmp_path / "x.goal"
    path.write_text("num_ranks 2\nrank 0 {\na: send 65536b to 1 tag 1\n}\n"
                    "rank 1 {\na: recv 65536b from 0 tag 1\n}\n")  # fmt: skip
    with pytest.raises(ScenarioError, match="GOAL has no measured times"):
        replay(path)
    found = replay(path, cluster=dgx, comm="modelled")
    assert found.measured is None
    assert found.result.to_dict()["measured"] is None
    assert found.result.metrics.step_time_s > 0


def test_the_slowest_rank_replaced_computes_like_the_others() -> None:
    """Three ranks of 10, 10 and 15 ms before a barrier: the slowest is 2, and 5 ms are saved."""
    build = GraphBuilder()
    lanes = [build.lane(rank) for rank in range(3)]
    group = build.group("all", [0, 1, 2])
    for lane, ms in zip(lanes, (10, 10, 15), strict=True):
        work = build.compute(lane, ms * 10**9, name="work")
        build.collective(lane, group, "barrier", 0, stream="comm", after=[work])
    graph = build.build()
    change, _ = split_sets(["replace.rank=slowest"])
    made, notes = change.applied(graph)
    assert made.duration[made.kind == OpKind.COMPUTE].tolist() == [10 * 10**9] * 3
    assert "rank 2 computes 0.6667 times as long" in notes[0]
    assert change.changes_work
    for wrong in ("fastest", "7"):
        with pytest.raises(ScenarioError, match=r"replace\.rank"):
            split_sets([f"replace.rank={wrong}"])[0].applied(graph)


def test_another_library_takes_every_group_but_those_of_recorded_times() -> None:
    """On a GPU with NCCL, where data was on the CPU; compute stays where it is."""
    build = GraphBuilder()
    lane, host = build.lane(0), {"device": Device.CPU, "stream": "s"}
    build.compute(lane, 5, name="work", device=Device.CPU)
    for library in ("gloo", "recorded", "ideal"):
        group = build.group(library, [0, 1], library=library)
        build.collective(lane, group, "all_reduce", 8, **host)  # type: ignore[arg-type]
    graph = build.build()
    moved = with_library(graph, "nccl")
    assert [group.library for group in moved.groups] == ["nccl", "recorded", "nccl"]
    on = dict(zip(moved.kind.tolist(), moved.device.tolist(), strict=True))
    assert on == {OpKind.COMPUTE: Device.CPU, OpKind.COLLECTIVE: Device.CUDA}
    stays = with_library(graph, "gloo")
    assert [group.library for group in stays.groups] == ["gloo", "recorded", "gloo"]
    assert stays.device.tolist() == graph.device.tolist()


@pytest.mark.parametrize(
    ("word", "changes"),
    [
        ("compute.scale=1", False),
        ("compute.scale=0.5", True),
        ("data_parallel.size=0", True),
        ("data_parallel.size=1", True),
        ("replace.rank=0", True),
        ("library.version=2.20", False),
    ],
)
def test_what_changes_the_work_itself(word: str, changes: bool) -> None:
    assert change(word).changes_work is changes


def test_a_version_stays_as_it_was_written() -> None:
    for word in ("library.version=2.20", 'library.version="2.20"', "library.version='2.20'"):
        library = change(word).library
        assert library is not None
        assert library.get("version") == "2.20"


@pytest.mark.parametrize("words", [(), ("compute.scale=0.5",), ("data_parallel.size=2",)])
def test_what_was_measured_beside_communication_is_not_slowed_once_more(
    folder: Path, dgx: Cluster, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...]
) -> None:
    module = sys.modules["commsim.study.replay.replay"]
    simulate, slows = module.simulate, []

    def watched(*given: object, overlap_slowdown: bool = True, **settings: object) -> object:
        slows.append(overlap_slowdown)
        return simulate(*given, overlap_slowdown=overlap_slowdown, **settings)

    monkeypatch.setattr(module, "simulate", watched)
    replay(folder, cluster=dgx, comm="modelled", what_if=change(*words))
    assert slows
    assert not any(slows)


@pytest.mark.parametrize(("name", "device"), [("nccl", Device.CUDA), ("gloo", Device.CPU)])
def test_another_library_speaks_for_all_groups_whose_times_are_not_kept(
    name: str, device: Device
) -> None:
    """By NCCL data is on the GPU; work stays where it was."""
    build = GraphBuilder()
    lanes = [build.lane(rank) for rank in (0, 1)]
    pair = build.group("pair", (0, 1), library="gloo")
    kept = build.group("kept", (0,), library="recorded")
    for lane in lanes:
        build.compute(lane, 5, name="w", stream="cpu")
        build.collective(lane, pair, "all_reduce", 8, stream="c")
    build.send(lanes[0], 1, 8, group=pair, stream="p")
    build.recv(lanes[1], 0, 8, group=pair, stream="p")
    graph = build.build()
    graph.device[:] = Device.CPU
    found = with_library(graph, name)
    assert [found.groups[at].library for at in (pair, kept)] == [name, "recorded"]
    speaks = found.kind != OpKind.COMPUTE
    assert set(found.device[speaks].tolist()) == {device}
    assert set(found.device[~speaks].tolist()) == {Device.CPU}


def test_sizes_and_groups_that_cannot_grow() -> None:
    with pytest.raises(ScenarioError, match="0 is not the recorded 2 or a multiple"):
        grown(fsdp(), 0, "dp")
    assert grown(fsdp(), 2, "dp")[1].startswith("what-if: 2 data-parallel ranks for 2")
    assert "ranks 4 to 15 are taken" in grown(fsdp(), 8, "dp")[1]
    bare = GraphBuilder()
    bare.compute(bare.lane(0), 5, name="w")
    for name, told in (("dp", "Groups: none"), ("", "group=NAME: none")):
        with pytest.raises(ScenarioError, match=told):
            grown(bare.build(), 2, name)
    with pytest.raises(ScenarioError, match="Groups: dp, tp, world"):
        grown(fsdp(), 8, "pp")
    build = GraphBuilder()
    unlike = [build.group("dp [0, 1]", [0, 1]), build.group("dp [2, 3, 4]", [2, 3, 4])]
    for group, ranks in zip(unlike, ((0, 1), (2, 3, 4)), strict=True):
        for rank in ranks:
            build.collective(build.lane(rank), group, "all_reduce", 8, stream="c")
    with pytest.raises(ScenarioError, match="its groups have different numbers of ranks"):
        grown(build.build(), 4, "dp")


def test_a_barrier_of_gloo_among_too_many_ranks_is_refused() -> None:
    """A rank tells on whom it has heard from: of a million ranks each of each. NCCL's does not."""

    def barrier(library: str, kind: str = "barrier") -> Graph:
        build = GraphBuilder()
        group = build.group("dp", (0, 1), library=library)
        for rank in (0, 1):
            build.collective(build.lane(rank), group, kind, 8, stream="c")
        return build.build()

    many = change("data_parallel.size=1000000")
    with pytest.raises(CommsimError, match="1,000,000 ranks.* 1,000,000,000,000 chunks"):
        many.applied(barrier("gloo"))
    for graph in (barrier("nccl"), barrier("gloo", "all_reduce")):
        many.applied(graph)
    change("data_parallel.size=1000000", "library.name=nccl").applied(barrier("gloo"))


@pytest.mark.parametrize(("ranks", "fits"), [(8, True), (9, False)])
def test_as_many_ranks_as_the_cluster_has_gpus(ranks: int, fits: bool, dgx: Cluster) -> None:
    build = GraphBuilder()
    build.group("world", range(ranks))
    if fits:
        assert _rules(build.build(), dgx, "modelled", Ideal(), change()).name == "ideal"
        return
    with pytest.raises(ScenarioError, match="the run has 9 ranks, the cluster 8 GPUs"):
        _rules(build.build(), dgx, "modelled", Ideal(), change())


def test_sizes_are_needed_of_what_a_library_has_to_time(dgx: Cluster) -> None:
    """Not of a barrier, and not where the recorded time counts; 0 bytes are a size."""

    def rules(size: int, kind: str = "all_reduce", library: str = "") -> Any:
        build = GraphBuilder()
        group = build.group("g", (0, 1), library=library)
        for rank in (0, 1):
            build.collective(build.lane(rank), group, kind, size, stream="c")
        return _rules(build.build(), dgx, "modelled", Ideal(), change())

    for sound in (rules(0), rules(1), rules(-1, "barrier"), rules(-1, library="recorded")):
        assert sound.name == "ideal"
    with pytest.raises(ScenarioError, match="1 of 1 collectives have no known size"):
        rules(-1)


@pytest.mark.parametrize(("miss", "trusted"), [(0.05, True), (0.0501, False)])
def test_a_miss_of_a_twentieth_is_still_trusted(
    miss: float, trusted: bool, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.modules["commsim.study.replay.verdict"], "worst", lambda check: miss)
    found = replay(folder)
    assert found.trusted is trusted
    assert any("do not trust what-ifs" in note for note in found.result.notes) is not trusted
