"""Facts that the searches of one system share, on machines made by hand."""

from __future__ import annotations

import pytest
from helpers.nccl_machines import bridge, cpu, gpu, net, nic, nvlink, root

from commsim.libraries.nccl.env import Knobs, knobs_of
from commsim.libraries.nccl.search.facts import SearchFacts, limits
from commsim.libraries.nccl.shapes import PathType, Pattern
from commsim.libraries.nccl.topology import DeviceKind, Paths, rules_of, system_of


def paths_of(*inside, version="2.27", nets=True, env=None):
    rules = rules_of(version)
    system = system_of(root(cpu(*inside)), "f", rules, nets=nets)
    return Paths(system, knobs_of(env) if env else Knobs(), rules)


def facts_of(*inside, inter=True, **asked):
    return SearchFacts(paths_of(*inside, nets=inter, **asked), inter=inter)


def mesh(*rows, sm=80):
    """Return GPUs with so many NVLinks to each other."""
    return [
        gpu(i, *(nvlink(0x80 + j, count) for j, count in enumerate(row) if count), sm=sm)
        for i, row in enumerate(rows)
    ]


PORT = nic(0x10, net(0, gdr="1"))


@pytest.mark.parametrize(
    ("inside", "inter", "wanted"),
    [
        ([gpu(0)], False, (5_000_000, 5_000_000)),
        ([gpu(0), gpu(1)], False, (12_000, 12_000)),
        ([gpu(0, link_width="8"), gpu(1), gpu(2)], False, (12_000, 12_000)),
        (mesh([0, 2, 0], [2, 0, 1], [0, 1, 0]), False, (40_000, 60_000)),
        ([gpu(0), PORT], True, (12_000, 12_000)),
        ([gpu(0, link_width="32"), PORT], True, (12_000, 24_000)),
        ([gpu(0)], True, (0, 12_000)),
    ],
)
def test_limits_are_the_widest_path_and_the_most_that_leaves_a_gpu(inside, inter, wanted):
    """To NETs if the group goes beyond the node. A GPU leaves over NVLink or PCIe, not both."""
    assert limits(paths_of(*inside, nets=inter), inter=inter) == wanted


@pytest.mark.parametrize(
    ("sm", "switch", "does"), [(90, True, True), (89, True, False), (90, False, False)]
)
def test_hopper_behind_a_switch_multicasts(sm, switch, does):
    links = [nvlink(None, 4)] if switch else [nvlink(0x81, 4)]
    facts = facts_of(gpu(0, *links, sm=sm), gpu(1, nvlink(None), sm=sm) if switch else gpu(1))
    assert facts.multicasts == (does and switch)


@pytest.mark.parametrize(
    ("nets", "pattern", "asked", "wanted"),
    [
        (2, Pattern.RING, 2, 2), (2, Pattern.RING, 1, 1), (1, Pattern.RING, 2, 0),
        (2, Pattern.BALANCED_TREE, 2, 2), (2, Pattern.SPLIT_TREE, 2, 2), (2, Pattern.TREE, 2, 0),
        (2, Pattern.NVLS, 2, 0),
    ],
)  # fmt: skip
def test_nics_are_crossed_if_there_are_several_and_not_in_plain_trees(nets, pattern, asked, wanted):
    ports = [nic(0x10 + i, net(i)) for i in range(nets)]
    facts = facts_of(gpu(0), *ports, env={"NCCL_CROSS_NIC": asked})
    assert facts.cross_nic(pattern) == wanted


FAR = bridge(1, gpu(0), gpu(1), nic(0x10, net(0, gdr="1"))), gpu(2)
"""Two GPUs and a NIC below a switch, a GPU on the socket."""


@pytest.mark.parametrize(
    ("inside", "inter", "version", "nearest", "farthest"),
    [
        (FAR, False, "2.24", ("PIX", "PIX"), ("SYS", "SYS")),
        (FAR, True, "2.24", ("PIX", "PIX"), ("SYS", "SYS")),
        (FAR, False, "2.27", ("PIX", "PIX"), ("PHB", "SYS")),
        (FAR, True, "2.27", ("PIX", "PIX"), ("PHB", "PHB")),
        (FAR, True, "2.29", ("PIX", "PIX"), ("PHB", "SYS")),
        ([gpu(0), PORT], True, "2.27", ("LOC", "PHB"), ("PHB", "PHB")),
        ([gpu(0)], False, "2.27", ("LOC", "PIX"), ("SYS", "SYS")),
        ([gpu(0, sm=90), PORT], True, "2.29", ("LOC", "PHB"), ("PHB", "PHB")),
        ([gpu(0, sm=89), PORT], True, "2.29", ("LOC", "PHB"), ("PHB", "SYS")),
    ],
)
def test_how_near_and_how_far_paths_may_be(inside, inter, version, nearest, farthest):
    facts = facts_of(*inside, inter=inter, version=version)
    assert tuple(kind.name for kind in facts.nearest) == nearest
    assert tuple(kind.name for kind in facts.farthest) == farthest


@pytest.mark.parametrize(
    ("kind", "limit", "wanted"),
    [
        (DeviceKind.GPU, "LOC", "LOC"), (DeviceKind.GPU, "C2C", "LOC"),
        (DeviceKind.GPU, "PIX", "PIX"), (DeviceKind.GPU, "PXN", "PIX"),
        (DeviceKind.GPU, "PHB", "PHB"), (DeviceKind.GPU, "SYS", "PHB"),
        (DeviceKind.NET, "C2C", "LOC"), (DeviceKind.NET, "PXB", "PIX"),
        (DeviceKind.NET, "SYS", "PHB"),
    ],
)  # fmt: skip
def test_a_limit_reaches_as_far_as_there_are_paths(kind, limit, wanted):
    assert facts_of(*FAR).reached(kind, PathType[limit]).name == wanted


@pytest.mark.parametrize(
    ("islands", "two"),
    [
        ([2, 2], True), ([3, 2], True), ([2, 2, 2], False), ([2], False), ([4], False),
        ([2, 1], False), ([1, 1], False),
    ],
)  # fmt: skip
def test_two_islands_are_split(islands, two):
    """Islands of several GPUs, each linked to all of its own."""
    rows, start = [], 0
    count = sum(islands)
    for size in islands:
        for i in range(start, start + size):
            rows.append([int(start <= j < start + size and j != i) for j in range(count)])
        start += size
    assert facts_of(*mesh(*rows), inter=False).split == two


def test_speeds_are_those_of_the_oldest_gpu():
    facts = facts_of(gpu(0, sm=90), gpu(1, sm=80), PORT)
    assert (facts.gpus, facts.capability) == (2, 80)
    assert facts.speeds == rules_of("2.27").speeds(80, inter=True)
    assert (facts.max_bw, facts.total_bw) == (12_000, 12_000)
