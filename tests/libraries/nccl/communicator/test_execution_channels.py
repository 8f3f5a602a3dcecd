"""The channels that a communicator runs on: repeated, limited, and named by local ranks."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from commsim.libraries.nccl.communicator import execution_channels
from commsim.libraries.nccl.communicator.execution_channels import (
    execution_order,
    in_local_ranks,
    with_nvls_channels,
)
from commsim.libraries.nccl.env import Knobs, knobs_of
from commsim.libraries.nccl.shapes import (
    Channel,
    Communicator,
    CpuArch,
    CpuVendor,
    PathType,
    Pattern,
    SearchGraph,
    Trees,
)


def graph(count, *, intra=20.0, inter=20.0, pattern=Pattern.RING):
    channels = tuple(Channel((0, 1), (c, c)) for c in range(count))
    return SearchGraph(pattern, channels, intra, inter, PathType.NVL, PathType.PIX)


def order(
    count, *, intra=20.0, inter=20.0, chain=None, nodes=2, ranks=4, most=64, capability=80, **env
):
    graphs = {"ring": graph(count, intra=intra, inter=inter)}
    if chain:
        graphs["collnet_chain"] = graph(count, intra=chain[0], inter=chain[1])
    views: Any = [SimpleNamespace(capability=(c, c)) for c in (capability, 100)]
    return execution_order(
        graphs, views, knobs_of(env), nodes=nodes, ranks=ranks, collnet=bool(chain), most=most
    )


@pytest.mark.parametrize(
    ("count", "most", "wanted"), [(1, 64, 2), (3, 64, 6), (32, 64, 64), (33, 64, 64), (4, 7, 7)]
)
def test_searched_channels_run_twice(count, most, wanted):
    assert order(count, most=most) == list(range(wanted))


@pytest.mark.parametrize(
    ("chain", "ranks", "most", "wanted"),
    [
        ((20.0, 10.0), 4, 64, [0, 1, 2, 3, 4, 5, 0, 1, 2]),
        ((20.0, 20.0), 4, 64, [0, 1, 2, 3, 4, 5]),
        ((20.0, 10.0), 2, 64, [0, 1, 2, 3, 4, 5]),
        ((20.0, 10.0), 3, 64, [0, 1, 2, 3, 4, 5, 0, 1, 2]),
        ((20.0, 10.0), 4, 8, [0, 1, 2, 3, 4, 5, 0, 1]),
    ],
)
def test_chains_that_are_wider_within_the_node_get_half_as_many_more(chain, ranks, most, wanted):
    """With more ranks than nodes; up to the most that there are."""
    assert order(3, chain=chain, ranks=ranks, most=most) == wanted


@pytest.mark.parametrize(
    ("count", "intra", "capability", "nodes", "doubled"),
    [
        (3, 45.1, 90, 2, True), (3, 45.0, 90, 2, False), (3, 60.0, 89, 2, False),
        (3, 60.0, 90, 1, False), (7, 60.0, 90, 2, True), (8, 60.0, 90, 2, False),
    ],
)  # fmt: skip
def test_few_wide_rings_of_hopper_nodes_are_doubled_again(count, intra, capability, nodes, doubled):
    """Above 45 GB/s, over several nodes, while there are fewer than 16."""
    once = list(range(2 * count))
    assert order(count, intra=intra, capability=capability, nodes=nodes) == once * (1 + doubled)


@pytest.mark.parametrize(
    ("env", "wanted"),
    [
        ({"NCCL_MAX_NCHANNELS": 3}, [0, 1, 2]),
        ({"NCCL_MAX_CTAS": 2}, [0, 1]),
        ({"NCCL_MAX_NCHANNELS": 3, "NCCL_MAX_CTAS": 1}, [0]),
        ({"NCCL_MAX_NCHANNELS": 0}, [0]),
        ({"NCCL_MIN_NCHANNELS": 6}, [0, 1, 2, 3, 0, 1]),
        ({"NCCL_MIN_CTAS": 5}, [0, 1, 2, 3, 0]),
        ({"NCCL_MIN_NCHANNELS": 5, "NCCL_MIN_CTAS": 6}, [0, 1, 2, 3, 0, 1]),
        ({"NCCL_MIN_NCHANNELS": 4}, [0, 1, 2, 3]),
        ({"NCCL_MIN_NCHANNELS": 99}, [0, 1, 2, 3, 0, 1, 2, 3]),
        ({"NCCL_MAX_NCHANNELS": 3, "NCCL_MIN_NCHANNELS": 5}, [0, 1, 2, 0, 1]),
    ],
)
def test_the_environment_limits_channels(env, wanted):
    """Eight at most; a least one counts after the most."""
    assert order(2, most=8, **env) == wanted


@pytest.mark.parametrize(
    ("ranks", "nets", "wanted"),
    [
        # Ranks 7, 3 and 5 on GPUs 0, 1 and 2: rank 7 is the node's third.
        ([7, 3, 5], ((0, 4), (0, 2)), [((2, 0, 1), (4, 2)), ((0, 2, 1), (2, 2))]),
        ([0, 1, 2], ((0, 4), (0, 2)), [((0, 1, 2), (4, 2)), ((1, 0, 2), (2, 2))]),
        # Over two machines NETs are counted, not numbered.
        ([0, 1, 2], ((1, 0), (0, 9)), [((0, 1, 2), (1, 0)), ((1, 0, 2), (0, 0))]),
    ],
)
def test_channels_name_local_ranks_and_nics_by_number(ranks, nets, wanted):
    node: Any = SimpleNamespace(ranks=np.array(ranks), view=SimpleNamespace(nets=nets))
    searched = SearchGraph(
        Pattern.RING, (Channel((0, 1, 2), (0, 1)), Channel((1, 0, 2), (1, 1))), 1.0, 1.0,
        PathType.NVL, PathType.PIX,
    )  # fmt: skip
    found = in_local_ranks(searched, node)
    assert [(c.intra, c.inter) for c in found.channels] == wanted


def test_channels_within_a_node_name_no_nics():
    node: Any = SimpleNamespace(ranks=np.array([1, 0]), view=SimpleNamespace(nets=()))
    searched = SearchGraph(Pattern.RING, (Channel((0, 1)),), 1.0, 1.0, PathType.NVL, PathType.PIX)
    assert in_local_ranks(searched, node).channels == (Channel((1, 0)),)


def comm(channels, *, nvls=True, version="2.27"):
    numbers = np.arange(channels, dtype=np.int32)
    return Communicator(
        version=version, node_of=(0, 0), local_ranks=(2,), min_compute_capability=90,
        max_compute_capability=90, cpu_arch=CpuArch.X86, cpu_vendor=CpuVendor.INTEL, nvswitch=True,
        max_bw=1.0, total_bw=1.0, graphs={}, channels=channels, nvls_support=nvls,
        rings=np.stack((numbers, numbers + 50), axis=1),
        trees=Trees(numbers[:, None] + 10, numbers[:, None, None] + np.zeros((1, 2, 3), np.int32)),
    )  # fmt: skip


@pytest.mark.parametrize(
    ("channels", "asked", "version", "nvls", "env", "count"),
    [
        (4, 6, "2.27", True, {}, 6), (4, 4, "2.27", True, {}, 4), (4, 3, "2.27", True, {}, 4),
        (4, 6, "2.27", False, {}, 4), (4, 6, "2.28", True, {}, 4), (4, 6, "2.19", True, {}, 4),
        (4, 6, "2.20", True, {}, 6), (4, 9, "2.27", True, {"NCCL_MAX_NCHANNELS": 5}, 5),
        (4, 9, "2.27", True, {"NCCL_MAX_CTAS": 6}, 6), (4, 9, "2.27", True, {}, 9),
        (4, 9, "2.27", True, {"NCCL_MAX_NCHANNELS": 4}, 4),
    ],
)  # fmt: skip
def test_channels_are_repeated_up_to_those_of_nvls(
    channels, asked, version, nvls, env, count, monkeypatch
):
    """In NCCL 2.20 to 2.27, and up to the user's limit."""
    monkeypatch.setattr(
        execution_channels, "nvls_setup", lambda *_: SimpleNamespace(channels=asked)
    )
    found = with_nvls_channels(
        comm(channels, nvls=nvls, version=version), knobs_of(env) if env else Knobs()
    )
    order = [channel % channels for channel in range(count)]
    assert found.channels == count
    assert found.rings[:, 0].tolist() == order
    assert found.trees.up[:, 0].tolist() == [channel + 10 for channel in order]
    assert found.trees.down[:, 1, 2].tolist() == order
