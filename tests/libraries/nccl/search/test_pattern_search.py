"""What is asked of the search of a pattern, and what is made of its result."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from helpers.nccl_machines import bridge, cpu, gpu, net, nic, root

from commsim.libraries.nccl.env import Knobs
from commsim.libraries.nccl.search import graph_search
from commsim.libraries.nccl.search.graph_search import _graph, _PatternSearch, search_all
from commsim.libraries.nccl.search.state import Trial
from commsim.libraries.nccl.shapes import PathType, Pattern, SearchGraph
from commsim.libraries.nccl.topology import Paths, rules_of, system_of


def paths_of(*inside, version="2.27", nets=True):
    rules = rules_of(version)
    return Paths(system_of(root(cpu(*inside)), "f", rules, nets=nets), Knobs(), rules)


@pytest.mark.parametrize(("version", "half", "most"), [("2.24", 16, 32), ("2.27", 32, 64)])
@pytest.mark.parametrize("asked", [{}, {"nvls": True}, {"collnet": True}])
def test_each_pattern_may_have_so_many_channels(version, half, most, asked, monkeypatch):
    """Rings half of all, trees as many as rings."""
    found: list[Any] = []

    def find(self, pattern, least, most, *, collnet=False):
        found.append((pattern, least, most, collnet))
        return SimpleNamespace(n_channels=5)

    monkeypatch.setattr(_PatternSearch, "find", find)
    graphs = search_all(
        paths_of(gpu(0), gpu(1), version=version), inter=False, nvls=asked.get("nvls", False),
        collnet=asked.get("collnet", False),
    )  # fmt: skip
    wanted = {
        "ring": (Pattern.RING, 1, half, False), "tree": (Pattern.BALANCED_TREE, 5, 5, False),
    }  # fmt: skip
    if "collnet" in asked:
        wanted["collnet_chain"] = (Pattern.TREE, 5, 5, True)
        wanted["collnet_direct"] = (Pattern.COLLNET_DIRECT, 1, most, True)
    if "nvls" in asked:
        wanted["nvls"] = (Pattern.NVLS, 1, most, False)
    assert list(graphs) == list(wanted)
    assert found == list(wanted.values())


def facts(**changes) -> Any:
    asked = {
        "gpus": 8, "inter": True, "split": False, "nearest": (PathType.NVL, PathType.PXB),
        "cross_nic": lambda pattern: 0, "multicasts": True,
    }  # fmt: skip
    return SimpleNamespace(**(asked | changes))


@pytest.mark.parametrize(
    ("pattern", "asked", "least", "most", "changes", "wanted"),
    [
        (Pattern.RING, {}, 1, 16, {}, (Pattern.RING, 1, 16)),
        (Pattern.RING, {"split": True}, 1, 16, {}, (Pattern.RING, 2, 16)),
        (Pattern.RING, {"split": True}, 1, 2, {}, (Pattern.RING, 2, 2)),
        (Pattern.RING, {"split": True}, 1, 1, {}, (Pattern.RING, 1, 1)),
        (Pattern.RING, {"split": True}, 3, 9, {}, (Pattern.RING, 3, 9)),
        (Pattern.TREE, {"split": True}, 1, 16, {}, (Pattern.TREE, 1, 16)),
        (Pattern.BALANCED_TREE, {}, 4, 4, {}, (Pattern.BALANCED_TREE, 4, 4)),
        (Pattern.BALANCED_TREE, {"gpus": 1}, 4, 4, {}, (Pattern.TREE, 4, 4)),
        (Pattern.RING, {"gpus": 1}, 1, 16, {}, (Pattern.RING, 1, 16)),
        (Pattern.NVLS, {}, 1, 64, {}, (Pattern.NVLS, 1, 8)),
        (Pattern.NVLS, {"gpus": 72}, 1, 64, {}, (Pattern.NVLS, 1, 32)),
        (Pattern.NVLS, {"inter": False}, 1, 64, {}, (Pattern.NVLS, 8, 8)),
        (Pattern.COLLNET_DIRECT, {"gpus": 5}, 1, 64, {}, (Pattern.COLLNET_DIRECT, 1, 5)),
        (Pattern.COLLNET_DIRECT, {"gpus": 9}, 1, 64, {}, (Pattern.COLLNET_DIRECT, 1, 8)),
        (Pattern.COLLNET_DIRECT, {"inter": False}, 1, 64, {}, (Pattern.COLLNET_DIRECT, 1, 8)),
    ],
)
def test_an_empty_graph_of_a_pattern(pattern, asked, least, most, changes, wanted):
    """NVLS has up to 32 heads, CollNet 8; a node of two NVLink islands has two rings at least."""
    found = _PatternSearch(facts(**asked))._empty(pattern, least, most, False)
    assert (found.pattern, found.min_channels, found.max_channels) == wanted
    assert (found.type_intra, found.type_inter) == (PathType.NVL, PathType.PXB)
    assert found.same_channels == (pattern != Pattern.NVLS)
    assert (found.cross_nic, found.collnet, found.channels) == (0, False, 0)


@pytest.mark.parametrize(("asked", "crosses"), [(0, 0), (1, 1), (2, 0)])
def test_nics_are_crossed_from_the_start_only_if_they_must(asked, crosses):
    search = _PatternSearch(facts(cross_nic=lambda pattern: asked))
    found = search._empty(Pattern.RING, 1, 4, True)
    assert (found.cross_nic, found.collnet) == (crosses, True)


def test_without_a_switch_that_multicasts_there_is_no_nvls():
    search = _PatternSearch(facts(multicasts=False))
    found = search.find(Pattern.NVLS, 1, 8)
    assert found == SearchGraph(Pattern.NVLS, (), 0.0, 0.0, PathType.LOC, PathType.LOC)
    assert (found.cross_nic, found.n_channels) == (0, 0)


@pytest.mark.parametrize(
    ("pattern", "collnet", "channels"),
    [
        (Pattern.RING, False, 1), (Pattern.BALANCED_TREE, False, 1), (Pattern.TREE, True, 0),
        (Pattern.COLLNET_DIRECT, True, 0), (Pattern.NVLS, False, 0),
    ],
)  # fmt: skip
def test_where_nothing_is_found_gpus_follow_in_order(pattern, collnet, channels, monkeypatch):
    """Over one channel of 0.1 GB/s; for NVLS and CollNet there is none."""
    monkeypatch.setattr(graph_search, "Passes", lambda *_: SimpleNamespace(run=lambda: None))
    ports = [SimpleNamespace(index=7), None, SimpleNamespace(index=4)]
    gpus = [0, 1, 2]
    asked = facts(
        gpus=3, system=SimpleNamespace(gpus=gpus),
        paths=SimpleNamespace(near_net=lambda one, channel: ports[one] if not channel else None),
    )  # fmt: skip
    found = _PatternSearch(asked).find(pattern, 1, 4, collnet=collnet)
    assert found.n_channels == channels
    if channels:
        (channel,) = found.channels
        assert (channel.intra, channel.inter) == ((0, 1, 2), (7, 4))
        assert (found.bw_intra, found.bw_inter) == (0.1, 0.1)
        assert (found.type_intra, found.type_inter) == (PathType.SYS, PathType.SYS)


def test_gpus_without_nics_end_at_the_first_of_none(monkeypatch):
    paths = paths_of(gpu(0), gpu(1))
    asked = facts(gpus=2, system=paths.system, paths=paths)
    best = _PatternSearch(asked)._empty(Pattern.RING, 1, 4, False)
    _PatternSearch(asked)._fall_back(best)
    assert (best.intra, best.inter) == ([[0, 1]], [[0, 0]])


@pytest.mark.parametrize(("pattern", "width"), [(Pattern.NVLS, 1), (Pattern.RING, 3)])
@pytest.mark.parametrize("inter", [False, True])
def test_a_graph_has_the_channels_that_were_found(pattern, width, inter):
    best = Trial(
        pattern, 1, 4, PathType.NVL, PathType.PIX, cross_nic=2, bw_intra=20_500, bw_inter=12_000,
        latency=1.5, channels=2, intra=[[0, 1, 2], [2, 1, 0], [9, 9, 9]],
        inter=[[3, 4], [5, 6], [9, 9]], same_channels=False,
    )  # fmt: skip
    system: Any = SimpleNamespace(gpus=[0, 1, 2])
    found = _graph(best, system, inter=inter)
    assert [c.intra for c in found.channels] == [(0, 1, 2)[:width], (2, 1, 0)[:width]]
    assert [c.inter for c in found.channels] == ([(3, 4), (5, 6)] if inter else [None, None])
    assert (found.bw_intra, found.bw_inter, found.latency_inter) == (20.5, 12.0, 1.5)
    assert (found.cross_nic, found.same_channels) == (2, False)


def test_a_pair_of_gpus_below_a_switch():
    """By hand: 12 GB/s out of each GPU are one ring of 12; a NIC of 12.5 takes it outside."""
    paths = paths_of(bridge(1, gpu(0), gpu(1), nic(0x10, net(0, gdr="1"))))
    ring = search_all(paths, inter=True, nvls=False, collnet=False)["ring"]
    assert (ring.n_channels, ring.bw_intra, ring.bw_inter) == (1, 12.0, 12.0)
    assert ring.channels[0].inter == (0, 0)
    assert sorted(ring.channels[0].intra) == [0, 1]
