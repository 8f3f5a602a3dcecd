"""What the tuning model makes of latency and bandwidth, size by size, by hand."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace

from commsim.libraries.nccl.env import Knobs
from commsim.libraries.nccl.shapes import Algorithm, Communicator, CpuArch, Protocol
from commsim.libraries.nccl.tuning.model import TunerCost, Tuning
from commsim.libraries.nccl.tuning.tables import tables_of

Make = Callable[[str], Communicator]
LL, LL128, SIMPLE = Protocol.LL, Protocol.LL128, Protocol.Simple
ENDLESS = float("inf")


def times(
    comm: Communicator,
    algorithm: Algorithm,
    protocol: Protocol,
    sizes: list[int],
    *,
    op: str = "all_reduce",
    cost: TunerCost = TunerCost(0.0, 0.001),  # noqa: B008  (a byte takes a microsecond)
) -> list[float]:
    tuning = Tuning(comm, tables_of(comm.version), Knobs(), channels=2)
    found: list[float] = tuning.times(op, algorithm, protocol, np.array(sizes), cost).tolist()
    return found


@pytest.mark.parametrize(
    ("protocol", "shares"),
    [
        # from treeCorrectionFactor (src/graph/tuning.cc): by log2(S / 64), one below 64 bytes
        (LL, {-1: 1, 0: 1, 3: 1, 4: 0.9, 5: 0.8, 11: 0.5, 12: 0.4, 18: 0.9, 19: 1, 22: 1, 23: 1}),
        (LL128, {-1: 1, 0: 1, 4: 1, 5: 0.9, 6: 0.8, 16: 0.8, 20: 0.9, 21: 1, 23: 1}),
        (SIMPLE, {-1: 1, 0: 0.9, 6: 0.9, 7: 0.8, 17: 0.8, 18: 0.7, 19: 0.7, 22: 0.9, 23: 1}),
    ],
)
def test_shares_of_a_trees_bandwidth(
    protocol: Protocol, shares: dict[int, float], recorded: Make
) -> None:
    comm = recorded("dgx_a100_2")
    for doublings, share in shares.items():
        first, last = (64 << doublings, (128 << doublings) - 1) if doublings >= 0 else (1, 63)
        found = times(comm, Algorithm.Tree, protocol, [first, last])
        assert found == pytest.approx([first / share, last / share], rel=1e-6), doublings
        others = times(comm, Algorithm.Tree, protocol, [first, last], op="reduce")
        assert others == pytest.approx([first, last], rel=1e-6)
        ring = times(comm, Algorithm.Ring, protocol, [first, last])
        assert ring == pytest.approx([first, last], rel=1e-6)


@pytest.mark.parametrize(
    ("more", "corrected"),
    [
        ({}, True),
        ({"min_compute_capability": 99}, False),
        ({"cpu_arch": CpuArch.ARM}, False),
        ({"version": "2.28.9"}, False),
    ],
)
def test_trees_of_switches_lose_bandwidth_with_blackwell_and_x86(
    more: dict[str, Any], corrected: bool, recorded: Make
) -> None:
    base = replace(recorded("dgx_h100_2"), version="2.30", min_compute_capability=100)
    comm = replace(base, **more)
    sizes = [63, 64, 64 << 23, 64 << 24]
    shares = [1, 0.9, 0.9, 1] if corrected else [1] * 4
    found = times(comm, Algorithm.NVLSTree, SIMPLE, sizes)
    assert found == pytest.approx(np.array(sizes) / shares, rel=1e-6)
    assert times(comm, Algorithm.NVLS, SIMPLE, sizes) == pytest.approx(sizes, rel=1e-6)


@pytest.mark.parametrize(
    ("more", "algorithm", "protocol", "op", "factor"),
    [
        ({}, Algorithm.Ring, SIMPLE, "all_reduce", 1.4),
        ({"min_compute_capability": 79}, Algorithm.Ring, SIMPLE, "all_reduce", 1.9),
        ({"min_compute_capability": 80}, Algorithm.Ring, SIMPLE, "all_reduce", 1.4),
        ({"local_ranks": (16,)}, Algorithm.Ring, SIMPLE, "all_reduce", 1.0),
        ({}, Algorithm.Ring, LL, "all_reduce", 1.0),
        ({}, Algorithm.Ring, SIMPLE, "all_gather", 1.0),
        ({}, Algorithm.NVLS, SIMPLE, "all_reduce", 1.0),
    ],
)
def test_rings_between_nodes_have_a_plateau(
    more: dict[str, Any],
    algorithm: Algorithm,
    protocol: Protocol,
    op: str,
    factor: float,
    recorded: Make,
) -> None:
    """From 64 bytes for each of 16 ranks on each of two channels."""
    comm = replace(recorded("dgx_a100_2"), **more)
    cost = TunerCost(10.0, ENDLESS)
    found = times(comm, algorithm, protocol, [2047, 2048, 1 << 30], op=op, cost=cost)
    assert found == pytest.approx([10, 10 * factor, 10 * factor], rel=1e-6)
