"""What all nodes of a group can do: the least of their channels and bandwidths."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from commsim.libraries.nccl.communicator.agreement import agreed, common_cpu
from commsim.libraries.nccl.shapes import (
    Channel,
    CpuArch,
    CpuVendor,
    PathType,
    Pattern,
    SearchGraph,
)


def graph(count, *, first=0, pattern=Pattern.BALANCED_TREE, **changes):
    asked = {"bw_intra": 20.0, "bw_inter": 10.0, "type_intra": PathType.NVL,
             "type_inter": PathType.PIX, "same_channels": True, "latency_inter": 1.0}  # fmt: skip
    channels = tuple(Channel((first, c)) for c in range(count))
    return SearchGraph(pattern=pattern, channels=channels, **(asked | changes))


def seen(*nodes):
    views: Any = [SimpleNamespace(graphs=graphs) for graphs in nodes]
    return agreed(views)


def test_nodes_take_the_least_of_each_figure():
    other = graph(
        3, first=9, pattern=Pattern.TREE, bw_intra=15.0, bw_inter=12.0, type_intra=PathType.PHB,
        type_inter=PathType.LOC, cross_nic=2, same_channels=False, latency_inter=7.0,
    )  # fmt: skip
    found = seen({"ring": graph(4), "tree": graph(4)}, {"ring": graph(4), "tree": other})["tree"]
    assert found == SearchGraph(
        Pattern.TREE, tuple(Channel((0, c)) for c in range(3)), 15.0, 10.0, PathType.PHB,
        PathType.PIX, 2, False, 1.0,
    )  # fmt: skip


@pytest.mark.parametrize(("ring", "tree"), [(4, 2), (2, 4), (3, 3)])
def test_rings_and_trees_have_as_many_channels(ring, tree):
    found = seen({"ring": graph(ring), "tree": graph(tree), "nvls": graph(7)})
    least = min(ring, tree)
    assert {name: one.n_channels for name, one in found.items()} == {
        "ring": least, "tree": least, "nvls": 7,
    }  # fmt: skip


def test_a_graph_that_one_node_lacks_is_none_of_the_groups():
    both = {"ring": graph(2), "tree": graph(2)}
    assert set(seen(both | {"nvls": graph(2)}, both)) == {"ring", "tree"}
    assert set(seen(both, both | {"nvls": graph(2)})) == {"ring", "tree"}


@pytest.mark.parametrize(
    ("kinds", "arch", "vendor"),
    [
        (["X86 INTEL"], "X86", "INTEL"), (["X86 AMD", "X86 AMD"], "X86", "AMD"),
        (["X86 AMD", "X86 INTEL"], "X86", "MIXED"), (["X86 INTEL", "ARM INTEL"], "MIXED", "INTEL"),
        (["X86 AMD", "ARM INTEL", "X86 AMD"], "MIXED", "MIXED"),
    ],
)  # fmt: skip
def test_cpus_that_differ_are_mixed(kinds, arch, vendor):
    views: Any = [
        SimpleNamespace(cpu_arch=CpuArch[kind.split()[0]], cpu_vendor=CpuVendor[kind.split()[1]])
        for kind in kinds
    ]
    assert common_cpu(views) == (CpuArch[arch], CpuVendor[vendor])
