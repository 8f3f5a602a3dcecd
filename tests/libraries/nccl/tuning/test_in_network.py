"""CollNet and NVLS: whether they run, what the model gives them, by hand from NCCL's formulas.

Two nodes of 8 H100: NVLS on 8 channels of 40 GB/s within a node, 48 GB/s between nodes.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
from msgspec.structs import replace

from commsim.libraries.nccl.env import Knobs
from commsim.libraries.nccl.shapes import Algorithm, Communicator, Protocol
from commsim.libraries.nccl.tuning.choose import Tuner
from commsim.libraries.nccl.tuning.reduction import Reduction

Make = Callable[[str], Communicator]
DIRECT = (Algorithm.CollNetDirect, Protocol.Simple)
CHAIN = (Algorithm.CollNetChain, Protocol.Simple)
NVLS = (Algorithm.NVLS, Protocol.Simple)
NVLSTREE = (Algorithm.NVLSTree, Protocol.Simple)
PAT = (Algorithm.PAT, Protocol.Simple)
ON = Knobs(collnet_enable=1)
NEWEST = "2.30"


def sharp(
    recorded: Make,
    *,
    nodes: int = 2,
    ranks: int = 8,
    version: str = "2.27",
    channels: int = 8,
    inter: float = 48.0,
) -> Communicator:
    """`ranks` of each node where the fabric reduces; each channel has a head of its own."""
    comm = recorded("dgx_h100_2")
    nvls = comm.graphs["nvls"]
    nvls = replace(nvls, channels=nvls.channels[:channels], bw_inter=inter)
    assert (nvls.n_channels, nvls.n_heads, nvls.bw_intra) == (channels, channels, 40.0)
    graphs = {**comm.graphs, "nvls": nvls}
    graphs |= {"collnet_chain": comm.graphs["tree"], "collnet_direct": nvls}
    return replace(
        comm,
        version=version,
        graphs=graphs,
        collnet_support=True,
        node_of=tuple(rank // ranks for rank in range(nodes * ranks)),
        local_ranks=(ranks,) * nodes,
    )


@pytest.mark.parametrize(
    ("channels", "capability", "expected"),
    [
        # GPUs for each NIC: 1, or 2, which costs half of what is over one
        (8, 90, 8 * 40 * 0.85),
        (4, 90, 4 * 40 / 1.5 * 0.85),
        (4, 80, 4 * 40 / 1.5),
        (2, 80, 2 * 40 / 2.5),
    ],
)
def test_direct_needs_a_nic_for_each_gpu(
    channels: int, capability: int, expected: float, recorded: Make
) -> None:
    comm = replace(sharp(recorded, channels=channels), min_compute_capability=capability)
    cost = Tuner(comm, ON).costs("all_reduce")[DIRECT]
    assert cost.bandwidth == pytest.approx(expected * 0.5, rel=1e-6)


@pytest.mark.parametrize(
    ("version", "ranks", "inter", "expected"),
    [
        # 95 % of what the links do with one rank of a node, 85 % with eight, between them on a line
        ("2.20", 8, 48.0, 8 * 40 * 0.85),
        ("2.20", 4, 48.0, 4 * 40 * (0.95 - 0.1 * 3 / 7)),
        ("2.25", 1, 48.0, 40 * 0.95),
        # later the slower of the links and 90 % of the NIC
        ("2.27", 8, 48.0, 8 * 40),
        ("2.27", 8, 20.0, 8 * 20 * 0.9),
        ("2.27", 4, 20.0, 4 * 20 * 0.9),
    ],
)
def test_direct_gathers(
    version: str, ranks: int, inter: float, expected: float, recorded: Make
) -> None:
    comm = sharp(recorded, version=version, ranks=ranks, inter=inter)
    found = Tuner(comm, replace(ON, algo="CollNetDirect")).costs("all_gather")
    assert found[DIRECT].bandwidth == pytest.approx(expected, rel=1e-6)


def test_a_chain_passes_every_rank_twice(recorded: Make) -> None:
    cost = Tuner(sharp(recorded), ON).costs("all_reduce")[CHAIN]
    assert cost.latency == pytest.approx(2 * 7 * 2.8 + 30)
    older = Tuner(sharp(recorded, version="2.18"), ON).costs("all_reduce")[CHAIN]
    assert older.latency == pytest.approx(2 * 7 * 4.75 + 14)


@pytest.mark.parametrize(
    ("version", "nodes", "latency"),
    [
        ("2.18", 1, 23),
        ("2.18", 2, 23 + 18),
        ("2.18", 4, 23 + 18),
        ("2.19", 1, 23),
        ("2.19", 2, 23 + 18),
        ("2.27", 4, 25 + 18),
    ],
)
def test_nvls_with_sharp_is_one_hop_away(
    version: str, nodes: int, latency: float, recorded: Make
) -> None:
    comm = sharp(recorded, nodes=nodes, version=version)
    assert Tuner(comm, ON).costs("all_reduce")[NVLS].latency == pytest.approx(latency)


@pytest.mark.parametrize(
    ("version", "nodes", "inter", "expected"),
    [
        # until 2.27 the slower of both; between more than two nodes half of the NICs' for each way
        ("2.27", 2, 48.0, 8 * 40 * 5 / 6),
        ("2.27", 2, 30.0, 8 * 30 * 5 / 6),
        ("2.27", 3, 30.0, 8 * 15 * 5 / 6),
        # later both ways of a NIC between two nodes; 2 (n - 1) of n of an all-reduce
        (NEWEST, 2, 10.0, 8 * 20 * 16 / 30),
        (NEWEST, 3, 10.0, 8 * 10 * 24 / 46),
    ],
)
def test_trees_of_nvls(
    version: str, nodes: int, inter: float, expected: float, recorded: Make
) -> None:
    comm = sharp(recorded, nodes=nodes, version=version, inter=inter)
    cost = Tuner(comm).costs("all_reduce")[NVLSTREE]
    assert cost.bandwidth == pytest.approx(expected, rel=1e-6)


def test_nvls_with_sharp_has_the_nics_once(recorded: Make) -> None:
    for nodes, share in ((2, 16 / 30), (4, 32 / 62)):
        comm = sharp(recorded, nodes=nodes, version=NEWEST, inter=10.0)
        cost = Tuner(comm, ON).costs("all_reduce")[NVLS]
        assert cost.bandwidth == pytest.approx(8 * 10 * share, rel=1e-6)


def test_nvls_gathers_at_nine_tenths_of_the_nics(recorded: Make) -> None:
    comm = sharp(recorded, version="2.27", inter=20.0)
    cost = Tuner(comm, ON).costs("all_gather")[NVLS]
    assert cost.bandwidth == pytest.approx(8 * 20 * 0.9, rel=1e-6)


@pytest.mark.parametrize(("ranks", "there"), [(8, True), (9, False)])
def test_collnet_takes_eight_ranks_of_a_node(ranks: int, there: bool, recorded: Make) -> None:
    costs = Tuner(sharp(recorded, ranks=ranks), ON).costs("all_reduce")
    assert (DIRECT in costs) is there
    assert (CHAIN in costs) is there


@pytest.mark.parametrize(("ranks", "there"), [(32, True), (33, False)])
def test_nvls_gathers_for_32_ranks_of_a_node(ranks: int, there: bool, recorded: Make) -> None:
    tuner = Tuner(sharp(recorded, nodes=1, ranks=ranks))
    assert (NVLS in tuner.costs("all_gather")) is there
    assert (NVLS in tuner.costs("reduce_scatter")) is there
    assert NVLS in tuner.costs("all_reduce")


@pytest.mark.parametrize(("ranks", "there"), [(7, True), (8, True), (9, False)])
def test_gathering_in_the_network_takes_a_nic_for_each_rank(
    ranks: int, there: bool, recorded: Make
) -> None:
    tuner = Tuner(sharp(recorded, ranks=ranks), ON)
    assert (NVLS in tuner.costs("all_gather")) is there
    assert NVLS in tuner.costs("all_reduce")


def test_gathering_without_heads_leaves_the_network_out(recorded: Make) -> None:
    comm = sharp(recorded)
    graphs = {name: made for name, made in comm.graphs.items() if name != "collnet_direct"}
    headless = replace(comm, graphs=graphs)
    assert NVLS not in Tuner(headless, ON).costs("all_gather")
    assert NVLS in Tuner(headless, ON).costs("all_reduce")


def test_nvls_between_nodes_needs_sharp_and_the_switch_for_it(recorded: Make) -> None:
    comm = sharp(recorded)
    assert NVLS in Tuner(comm, ON).costs("all_reduce")
    assert NVLS not in Tuner(comm, Knobs(collnet_enable=0)).costs("all_reduce")
    assert NVLS not in Tuner(replace(comm, collnet_support=False), ON).costs("all_reduce")


@pytest.mark.parametrize(
    ("version", "channels", "there"),
    [("2.27", 1, True), (NEWEST, 1, False), (NEWEST, 2, True)],
)
def test_one_channel_of_nvls_is_for_synchronising_since_2_28(
    version: str, channels: int, there: bool, recorded: Make
) -> None:
    tuner = Tuner(sharp(recorded, nodes=1, version=version, channels=channels))
    assert (NVLS in tuner.costs("all_reduce")) is there


@pytest.mark.parametrize(("capability", "there"), [(59, False), (60, True)])
def test_pat_since_sm60(capability: int, there: bool, recorded: Make) -> None:
    alone = replace(sharp(recorded, nodes=4, ranks=1), min_compute_capability=capability)
    assert (PAT in Tuner(alone).costs("all_gather")) is there


def test_rings_stay_for_all_but_all_reduce_in_2_18(recorded: Make) -> None:
    tuner = Tuner(sharp(recorded, version="2.18"), Knobs(algo="Tree"))
    assert {algorithm for algorithm, _ in tuner.costs("all_reduce")} == {Algorithm.Tree}
    assert {algorithm for algorithm, _ in tuner.costs("all_gather")} == {Algorithm.Ring}


def test_notes_name_each_that_was_asked_for_and_cannot(recorded: Make) -> None:
    comm = recorded("dgx_a100_1")
    asked = Knobs(algo="Ring,NVLS,CollNetDirect")
    notes = Tuner(comm, asked).choose("all_reduce", 8).notes
    assert notes == (
        "NCCL_ALGO: CollNetDirect finds no channels on this hardware; left out.",
        "NCCL_ALGO: NVLS finds no channels on this hardware; left out.",
    )
    # what a list only excludes was not asked for: six of seven are left of it
    assert Tuner(comm, Knobs(algo="^Tree")).choose("all_reduce", 8).notes == ()
    assert Tuner(comm).choose("all_reduce", 8).notes == ()
    # where five are left, each of them was
    assert Tuner(comm, Knobs(algo="^Tree,PAT")).choose("all_reduce", 8).notes == tuple(
        f"NCCL_ALGO: {name} finds no channels on this hardware; left out."
        for name in ("CollNetDirect", "CollNetChain", "NVLS", "NVLSTree")
    )


@pytest.mark.parametrize(
    ("reduction", "said"),
    [
        (Reduction("float32", "product"), "NVLS cannot do a product of float32"),
        (Reduction("int8", ""), "NVLS cannot do a sum of int8"),
    ],
)
def test_what_switches_cannot_reduce(reduction: Reduction, said: str, recorded: Make) -> None:
    tuner = Tuner(sharp(recorded, nodes=1), Knobs(algo="Ring,NVLS"))
    assert tuner.choose("all_reduce", 8, reduction=reduction).notes == (
        f"NCCL_ALGO: {said}; left out.",
    )


@pytest.mark.parametrize(("ranks", "penalty"), [(8, 1), (9, 1024)])
def test_rings_of_8_bits_beyond_eight_ranks(ranks: int, penalty: float, recorded: Make) -> None:
    tuner = Tuner(sharp(recorded, nodes=1, ranks=ranks))
    ring = (Algorithm.Ring, Protocol.Simple)
    narrow, wide = (
        tuner.candidates("all_reduce", [1 << 20], dtype_size=1, reduction=reduction)[ring][0]
        for reduction in (Reduction("fp8"), Reduction("int8"))
    )
    assert narrow.selection_us == pytest.approx(penalty * wide.selection_us)


def test_each_channel_of_collnet_carries_its_share(recorded: Make) -> None:
    tuner = Tuner(sharp(recorded), replace(ON, algo="CollNetChain"))
    choice = tuner.choose("all_reduce", 1 << 30)
    assert choice.channels == 16
    assert {choice.count_lo, choice.count_mid, choice.count_hi} == {1 << 24}
    # 64 MiB of a channel are 64 chunks of 128 KiB for each of eight ranks, and not of 256 KiB
    assert choice.chunk == 128 << 10


@pytest.mark.parametrize("pair", [(Algorithm.Tree, Protocol.LL128), NVLSTREE])
def test_a_chunk_is_that_of_a_channel_in_the_middle(
    pair: tuple[Algorithm, Protocol], recorded: Make
) -> None:
    tuner = Tuner(recorded("dgx_h100_2"))
    for size in range(1 << 20, 64 << 20, 777_216):
        (choice,) = tuner.candidates("all_reduce", [size])[pair]
        share = 4 * (choice.count_mid or choice.count_lo)
        assert choice.chunk == tuner.chunks.chunk("all_reduce", *pair, share), size


@pytest.mark.parametrize(
    ("nodes", "channels", "inter", "chunk"),
    [
        # NVLS at 5/6 of 8 x 22.5 GB/s is not under 150; on one node no speed is slow
        (2, 8, 22.5, 128 << 10),
        (2, 8, 22.4, 32 << 10),
        (1, 2, 48.0, 128 << 10),
    ],
)
def test_chunks_of_slow_nvls(
    nodes: int, channels: int, inter: float, chunk: int, recorded: Make
) -> None:
    comm = sharp(recorded, nodes=nodes, channels=channels, inter=inter)
    (choice,) = Tuner(comm, ON).candidates("all_reduce", [1 << 34])[NVLS]
    assert choice.chunk == chunk


def test_what_has_no_bandwidth_is_not_chosen_and_what_has_little_is(recorded: Make) -> None:
    comm = sharp(recorded, nodes=1, version=NEWEST)
    assert NVLS not in Tuner(replace(comm, min_compute_capability=80)).costs("all_reduce")
    far = recorded("dgx_a100_4")
    graphs = {name: replace(made, bw_inter=0.01) for name, made in far.graphs.items()}
    slow = Tuner(replace(far, graphs=graphs)).costs("all_reduce")
    assert slow[Algorithm.Ring, Protocol.LL].bandwidth < 1
