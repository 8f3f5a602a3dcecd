"""The tuning model: latencies and bandwidths, against the record and by hand."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from msgspec.structs import replace

from commsim.libraries.nccl.env import Knobs
from commsim.libraries.nccl.shapes import (
    Algorithm,
    Communicator,
    CpuArch,
    CpuVendor,
    PathType,
    Pattern,
    Protocol,
)
from commsim.libraries.nccl.tuning import model
from commsim.libraries.nccl.tuning.algo_filter import FUNCTIONS
from commsim.libraries.nccl.tuning.choose import Tuner

Make = Callable[[str], Communicator]
OPS = {function: op for op, function in FUNCTIONS.items()}
RING_LL = (Algorithm.Ring, Protocol.LL)
RING_LL128 = (Algorithm.Ring, Protocol.LL128)
RING_SIMPLE = (Algorithm.Ring, Protocol.Simple)
TREE_LL = (Algorithm.Tree, Protocol.LL)
TREE_SIMPLE = (Algorithm.Tree, Protocol.Simple)
NVLS = (Algorithm.NVLS, Protocol.Simple)
NVLSTREE = (Algorithm.NVLSTree, Protocol.Simple)


def at(comm: Communicator, version: str) -> Tuner:
    return Tuner(replace(comm, version=version))


def test_latencies_and_bandwidths_are_the_recorded_ones(
    nccl_records: dict[str, dict[str, Any]], recorded: Make
) -> None:
    for name, record in nccl_records.items():
        tuner = Tuner(recorded(name))
        for function, cells in record["model"].items():
            costs = tuner.costs(OPS[function])
            found = {f"{a.name}/{p.name}": cost for (a, p), cost in costs.items()}
            assert set(found) == set(cells), (name, function)
            for pair, cell in cells.items():
                assert found[pair].latency == pytest.approx(cell["lat_us"], rel=1e-6)
                assert found[pair].bandwidth == pytest.approx(cell["algbw_GBps"], rel=1e-6)


def test_every_sampled_prediction_is_the_recorded_one(
    recorded: Make, rows: Callable[[str], list[dict[str, str]]]
) -> None:
    tuners: dict[str, Tuner] = {}
    for row in rows("costs.csv"):
        tuner = tuners.setdefault(row["case"], Tuner(recorded(row["case"])))
        every = tuner.candidates(OPS[row["op"]], [int(row["size_bytes"])])
        (choice,) = every[Algorithm[row["algo"]], Protocol[row["proto"]]]
        # the record prints six decimals of a 32-bit float
        assert choice.selection_us == pytest.approx(float(row["predicted_us"]), abs=6e-7), row


def test_a_ring_of_ll_in_one_node_by_hand(recorded: Make) -> None:
    cost = Tuner(recorded("dgx_a100_1")).costs("all_gather")[RING_LL]
    assert cost.latency == pytest.approx(6.6 + 7 * 0.6)
    # the GPU's limit on LL, 87.7, is below half of 12 x 20
    assert cost.bandwidth == pytest.approx(87.7 * 8 / 7)


def test_a_tree_between_nodes_by_hand(recorded: Make) -> None:
    cost = Tuner(recorded("dgx_a100_4")).costs("all_reduce")[TREE_LL]
    assert cost.latency == pytest.approx(6.8 + 2 * (7 * 0.6 + 2 * 5.0))
    # min(8 x 24 x 0.92, 8 x 17.8) / 3.8 is above LL's limit with an AMD CPU, 19
    assert cost.bandwidth == pytest.approx(19.0 * 0.5)


def test_nvls_trees_by_hand(recorded: Make) -> None:
    cost = Tuner(recorded("dgx_h100_2")).costs("all_reduce")[NVLSTREE]
    assert cost.latency == pytest.approx(25 + 2 * 20.9)
    intra = 40 * 0.85 * 7 / 8 * 2
    assert cost.bandwidth == pytest.approx(8 * min(intra, 96, 57.7) * 16 / 30, rel=1e-6)


@pytest.mark.parametrize(
    ("version", "steps"), [("2.18", 8), ("2.22", 8), ("2.23", 6), ("2.27", 6), ("2.30", 6)]
)
def test_older_releases_count_two_crossings_more(version: str, steps: int, recorded: Make) -> None:
    cost = at(recorded("dgx_a100_4"), version).costs("all_reduce")[RING_LL]
    # between nodes a step costs at least the host's 2 us with AMD CPUs
    assert cost.latency == pytest.approx(6.6 + (62 - steps) * 2.0 + steps * 2.7, rel=1e-6)


@pytest.mark.parametrize(
    ("version", "expected"),
    [
        ("2.18", 40 * 8 * 0.75),
        ("2.19", 40 * 8 * 5 / 6),
        ("2.27", 40 * 8 * 5 / 6),
        ("2.28", min(40 * 0.85 * 7 / 8 * 2, 60) * 8 * 8 / 14),
    ],
)
def test_nvls_in_one_node_by_release(version: str, expected: float, recorded: Make) -> None:
    cost = at(recorded("dgx_h100_1"), version).costs("all_reduce")[NVLS]
    assert cost.bandwidth == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize(("version", "expected"), [("2.18", 23.0), ("2.20", 23.0), ("2.21", 25.0)])
def test_the_latency_of_nvls_by_release(version: str, expected: float, recorded: Make) -> None:
    assert at(recorded("dgx_h100_1"), version).costs("all_reduce")[NVLS].latency == expected


@pytest.mark.parametrize(("version", "share"), [("2.20", 1 / 4), ("2.21", 1 / 2)])
def test_the_share_of_ll_by_release(version: str, share: float, recorded: Make) -> None:
    cost = at(recorded("dgx_a100_1"), version).costs("reduce")[RING_LL]
    assert cost.bandwidth == pytest.approx(min(240 * share, 87.7))


def test_nvls_gathers_only_since_2_19(recorded: Make) -> None:
    comm = recorded("dgx_h100_1")
    assert NVLS not in at(comm, "2.18").costs("all_gather")
    assert NVLS in at(comm, "2.19").costs("all_gather")


def test_nvls_gathers_by_2_27(recorded: Make) -> None:
    cost = at(recorded("dgx_h100_1"), "2.27").costs("all_gather")[NVLS]
    assert cost.bandwidth == pytest.approx(8 * min(40 * 7 / 8, 0.9 * 60), rel=1e-6)


def test_one_rank_per_node_sees_the_trees_latency(recorded: Make) -> None:
    alone = _alone(recorded("pcie4_sw_100g_2"), 4)
    assert at(alone, "2.30").costs("all_gather")[RING_LL].latency == pytest.approx(6.6 + 3 * 5.0)
    assert at(alone, "2.22").costs("all_gather")[RING_LL].latency == pytest.approx(6.6 + 3 * 2.7)


def test_pat_by_hand(recorded: Make) -> None:
    alone = _alone(recorded("pcie4_sw_100g_2"), 4)
    pat = (Algorithm.PAT, Protocol.Simple)
    cost = at(alone, "2.30").costs("all_gather")[pat]
    assert cost.latency == pytest.approx(8 + 2 * 14 / 3.5 + 4 * 2.8)
    assert cost.bandwidth == pytest.approx(0.75 * 12)
    assert at(alone, "2.24").costs("all_gather")[pat].bandwidth == pytest.approx(0.85 * 12)
    assert pat not in at(alone, "2.22").costs("all_gather")


def test_the_hosts_overhead(recorded: Make) -> None:
    comm = recorded("dgx_h100_2")
    intel = Tuner(comm).costs("all_gather")[RING_LL].latency
    amd = Tuner(replace(comm, cpu_vendor=CpuVendor.AMD)).costs("all_gather")[RING_LL].latency
    set_ = Tuner(comm, Knobs(net_overhead=5000)).costs("all_gather")[RING_LL].latency
    assert amd - intel == pytest.approx(14.0)
    assert set_ - intel == pytest.approx(14 * 4.0)


def test_power_cpus_ease_the_tree(recorded: Make) -> None:
    comm = recorded("pcie4_sw_100g_1")
    power = replace(comm, cpu_arch=CpuArch.POWER)
    assert Tuner(comm).costs("all_reduce")[TREE_SIMPLE].latency == pytest.approx(8.4 + 6 * 4.0)
    assert Tuner(power).costs("all_reduce")[TREE_SIMPLE].latency == pytest.approx(8.4 + 6 * 5.7)


def test_a_tree_on_the_first_gpu_alone_loses_15_percent(recorded: Make) -> None:
    comm = recorded("dgx_h100_2")
    tree = comm.graphs["tree"]
    assert tree.pattern is Pattern.TREE
    balanced = replace(
        comm, graphs={**comm.graphs, "tree": replace(tree, pattern=Pattern.BALANCED_TREE)}
    )
    one = Tuner(comm).costs("all_reduce")[TREE_SIMPLE].bandwidth
    other = Tuner(balanced).costs("all_reduce")[TREE_SIMPLE].bandwidth
    assert one == pytest.approx(0.85 * other, rel=1e-6)
    assert at(comm, "2.18").costs("all_reduce")[TREE_SIMPLE].bandwidth == pytest.approx(
        8 * min(48 * 0.92, 41.4) * 0.5
    )


def test_nvlink_through_a_gpu_counts_as_pci(recorded: Make) -> None:
    comm = recorded("dgx_a100_1")
    ring = replace(comm.graphs["ring"], type_intra=PathType.NVB)
    bridged = replace(comm, graphs={**comm.graphs, "ring": ring})
    assert Tuner(bridged).costs("all_gather")[RING_LL].latency == pytest.approx(6.6 + 7 * 1.0)


def test_the_nets_latency_counts_twice_with_a_flush(recorded: Make) -> None:
    comm = recorded("dgx_a100_2")
    ring = replace(comm.graphs["ring"], latency_inter=75.0)
    slow = replace(comm, graphs={**comm.graphs, "ring": ring})
    for pair, trips in ((RING_LL, 1), (RING_SIMPLE, 2)):
        extra = (
            Tuner(slow).costs("all_gather")[pair].latency
            - Tuner(comm).costs("all_gather")[pair].latency
        )
        assert extra == pytest.approx(75.0 * trips, rel=1e-5)


@pytest.mark.parametrize(
    ("version", "lowest", "highest", "on"),
    [
        ("2.22", 80, 80, True),
        ("2.22", 89, 89, False),
        ("2.25", 89, 89, False),
        ("2.27", 89, 89, True),
        ("2.27", 60, 60, False),
        ("2.27", 90, 100, False),
        ("2.30", 90, 100, True),
        ("2.30", 80, 90, False),
    ],
)
def test_ll128_by_gpu_and_release(
    version: str, lowest: int, highest: int, on: bool, recorded: Make
) -> None:
    comm = replace(
        recorded("dgx_a100_1"),
        min_compute_capability=lowest,
        max_compute_capability=highest,
        version=version,
    )
    assert (RING_LL128 in Tuner(comm).costs("all_reduce")) is on
    forced = Tuner(comm, Knobs(proto="LL128")).costs("all_reduce")
    assert RING_LL128 in forced


@pytest.mark.parametrize(
    ("capability", "path", "c2c", "on"),
    [
        (80, PathType.PXB, True, True),
        (80, PathType.PXN, True, False),
        (90, PathType.PXN, True, True),
        (90, PathType.PXN, False, False),
        (90, PathType.PHB, True, False),
    ],
)
def test_ll128_by_path_to_the_net(
    capability: int, path: PathType, c2c: bool, on: bool, recorded: Make
) -> None:
    comm = recorded("dgx_a100_2")
    ring = replace(comm.graphs["ring"], type_inter=path)
    there = replace(
        comm,
        graphs={**comm.graphs, "ring": ring},
        min_compute_capability=capability,
        max_compute_capability=capability,
    )
    assert (RING_LL128 in Tuner(there, Knobs(ll128_c2c=c2c)).costs("all_reduce")) is on


def _alone(comm: Communicator, nodes: int) -> Communicator:
    """Return the communicator of one rank of each node."""
    return replace(comm, node_of=tuple(range(nodes)), local_ranks=(1,) * nodes)


def test_trees_of_hopper_in_2_18(recorded: Make) -> None:
    comm = replace(recorded("dgx_h100_2"), version="2.18")
    four = replace(comm, node_of=tuple(r // 8 for r in range(32)), local_ranks=(8,) * 4)
    tree = Tuner(four).costs("all_reduce")[TREE_SIMPLE]
    assert tree.bandwidth == pytest.approx(8 * 33.0 * 0.5)
    nvls = Tuner(four).costs("all_reduce")[NVLSTREE]
    assert nvls.latency == pytest.approx(23 + 2 * 3 * 19)
    assert nvls.bandwidth == pytest.approx(8 * 48 * 0.70 * 4 / 6, rel=1e-6)


@pytest.mark.parametrize(
    ("version", "inter"), [("2.19", 14.0), ("2.27", 14.0), ("2.28", 20.9), ("2.30", 20.9)]
)
def test_hops_of_nvls_trees_by_release(version: str, inter: float, recorded: Make) -> None:
    cost = at(recorded("dgx_h100_2"), version).costs("all_reduce")[NVLSTREE]
    within = 23.0 if version == "2.19" else 25.0
    assert cost.latency == pytest.approx(within + 2 * inter)


def test_nvls_trees_beyond_two_nodes_halve_the_net_until_2_27(recorded: Make) -> None:
    comm = recorded("dgx_h100_2")
    four = replace(comm, node_of=tuple(r // 8 for r in range(32)), local_ranks=(8,) * 4)
    assert at(four, "2.27").costs("all_reduce")[NVLSTREE].bandwidth == pytest.approx(
        8 * 24 * 5 / 6, rel=1e-6
    )
    assert at(four, "2.30").costs("all_reduce")[NVLSTREE].bandwidth == pytest.approx(
        8 * 45.5 * 32 / 62, rel=1e-6
    )


def test_rings_of_ll_have_a_third_of_light_operations_in_a_node_until_2_20(recorded: Make) -> None:
    comm = recorded("dgx_a100_1")
    for op, share in (("all_gather", 3), ("broadcast", 3), ("reduce", 4), ("all_reduce", 4)):
        cost = at(comm, "2.20").costs(op)[RING_LL]
        ratio = {"all_gather": 8 / 7, "all_reduce": 8 / 14}.get(op, 1.0)
        assert cost.bandwidth == pytest.approx(240 / share * ratio, rel=1e-6), op


@pytest.mark.parametrize(("local", "share"), [(1, 0.7), (2, 0.92), (4, 0.92)])
def test_rings_of_ll128_lose_three_tenths_with_one_rank_of_a_node_until_2_22(
    local: int, share: float, recorded: Make
) -> None:
    comm = recorded("dgx_a100_2")
    ring = replace(comm.graphs["ring"], bw_intra=10.0)
    few = replace(
        comm,
        graphs={**comm.graphs, "ring": ring},
        node_of=tuple(rank // local for rank in range(2 * local)),
        local_ranks=(local,) * 2,
    )
    n = 2 * local
    cost = at(few, "2.22").costs("all_gather")[RING_LL128]
    assert cost.bandwidth == pytest.approx(ring.n_channels * 10 * share * n / (n - 1), rel=1e-6)


@pytest.mark.parametrize(
    ("version", "path", "on"),
    [
        ("2.18", PathType.NVL, True),
        ("2.18", PathType.NVB, False),
        ("2.27", PathType.NVB, True),
        ("2.27", PathType.PIX, False),
    ],
)
def test_ll128_by_path_within_a_node(
    version: str, path: PathType, on: bool, recorded: Make
) -> None:
    comm = recorded("dgx_a100_1")
    ring = replace(comm.graphs["ring"], type_intra=path)
    there = replace(comm, graphs={**comm.graphs, "ring": ring})
    assert (RING_LL128 in at(there, version).costs("all_reduce")) is on


@pytest.mark.parametrize(
    ("pair", "shares"),
    # treeCorrectionFactor of Simple by log2(S / 64): trees have 23 of its 24 entries
    [(TREE_SIMPLE, {21: 0.9, 22: 0.9, 23: 1.0, 24: 1.0}), (NVLSTREE, {22: 0.9, 23: 0.9, 24: 1.0})],
)
def test_where_the_correction_of_trees_ends(
    pair: tuple[Algorithm, Protocol], shares: dict[int, float], recorded: Make
) -> None:
    comm = replace(
        recorded("dgx_h100_2"),
        version="2.30",
        min_compute_capability=100,
        max_compute_capability=100,
    )
    tuner = Tuner(comm)
    cost = tuner.costs("all_reduce")[pair]
    for doublings, share in shares.items():
        size = 64 << doublings
        (choice,) = tuner.candidates("all_reduce", [size])[pair]
        expected = cost.latency + size / (1000 * cost.bandwidth * share)
        assert choice.selection_us == pytest.approx(expected, rel=1e-5), doublings


def test_no_correction_gives_a_tree_more_than_its_bandwidth() -> None:
    assert model._TREE_CORRECTION.shape == (3, 24)
    assert ((model._TREE_CORRECTION >= 0.4) & (model._TREE_CORRECTION <= 1)).all()


def test_trees_have_a_share_of_their_bandwidth_at_each_size() -> None:
    """All of it at the smallest and the largest sizes, or nine tenths; less between them."""
    shares = model._TREE_CORRECTION
    assert shares.shape == (3, 24)
    assert shares.max() == 1.0
    assert shares.min(axis=1) == pytest.approx([0.4, 0.6, 0.5])
    assert shares[:, 0] == pytest.approx([1.0, 1.0, 0.9])
    assert shares[:, -1] == pytest.approx([1.0, 1.0, 0.9])
    assert (abs(shares[:, 1:] - shares[:, :-1]) < 0.21).all()
