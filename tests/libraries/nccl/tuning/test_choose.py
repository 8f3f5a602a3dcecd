"""NCCL's choice: against the record, under the environment, and on hardware that cannot."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from pathlib import Path

import pytest
from helpers.counting import python_calls
from helpers.paths import TESTS
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from commsim.errors import ScenarioError
from commsim.libraries.nccl.communicator.record import recorded_communicator
from commsim.libraries.nccl.env import Knobs, knobs_of
from commsim.libraries.nccl.shapes import Algorithm, Choice, Communicator, Protocol
from commsim.libraries.nccl.tuning.algo_filter import FUNCTIONS
from commsim.libraries.nccl.tuning.choose import FLOAT_SUM, Tuner, candidates, choose

Make = Callable[[str], Communicator]
Rows = Callable[[str], list[dict[str, str]]]
OPS = {function: op for op, function in FUNCTIONS.items()}
SIZES = [8 << doubling for doubling in range(31)]


@pytest.fixture(scope="module")
def decided(recorded: Make, rows: Rows) -> list[tuple[dict[str, str], Choice]]:
    """The sampled decisions, each with what commsim chooses."""
    tuners: dict[str, Tuner] = {}
    found = []
    for row in rows("decisions.csv"):
        tuner = tuners.setdefault(row["case"], Tuner(recorded(row["case"])))
        found.append((row, tuner.choose(OPS[row["op"]], int(row["size_bytes"]))))
    return found


@pytest.mark.parametrize(
    ("column", "field"),
    [
        ("nchannels", "channels"),
        ("nmaxchannels", "max_channels"),
        ("nthreads", "threads"),
        ("chunk_bytes", "chunk"),
        ("slice_bytes", "slice"),
        ("count_lo", "count_lo"),
        ("count_mid", "count_mid"),
        ("count_hi", "count_hi"),
    ],
)
def test_every_sampled_decision_has_the_recorded(
    column: str, field: str, decided: list[tuple[dict[str, str], Choice]]
) -> None:
    assert len(decided) > 400
    for row, choice in decided:
        assert getattr(choice, field) == int(row[column]), row


def test_every_sampled_decision_has_the_recorded_algorithm_and_protocol(
    decided: list[tuple[dict[str, str], Choice]],
) -> None:
    for row, choice in decided:
        assert choice.algorithm.name == row["algo"], row
        assert choice.protocol.name == row["proto"], row
        predicted = pytest.approx(float(row["predicted_us"]), abs=6e-7)
        assert choice.selection_us == predicted, row


def test_the_whole_record_agrees(shared_data: Path, recorded: Make) -> None:
    for path in sorted((shared_data / "nccl").glob("decisions_*.csv")):
        tuner = Tuner(recorded(path.stem.removeprefix("decisions_")))
        with path.open(newline="") as file:
            for row in csv.DictReader(file):
                choice = tuner.choose(OPS[row["op"]], int(row["size_bytes"]))
                found = (choice.algorithm.name, choice.protocol.name, str(choice.channels))
                assert found == (row["algo"], row["proto"], row["nchannels"]), row


@pytest.mark.parametrize("version", ["2.21", "2.22", "2.23", "2.27", "2.30"])
def test_a_public_log_of_three_h100_nodes(version: str, recorded: Make) -> None:
    """NCCL's own lines in github.com/NVIDIA/nccl/issues/1453: 8 channels of 24 GB/s."""
    comm = recorded("dgx_h100_2")
    slow = {name: replace(graph, bw_inter=24.0) for name, graph in comm.graphs.items()}
    three = replace(
        comm,
        version=version,
        node_of=tuple(rank // 8 for rank in range(24)),
        local_ranks=(8,) * 3,
        graphs=slow,
    )
    small, large = Tuner(three).sweep("all_reduce", [1024, 262144])
    assert (small.algorithm, small.protocol) == (Algorithm.Tree, Protocol.LL)
    assert small.selection_us == pytest.approx(25.331232, abs=1e-6)
    assert (large.algorithm, large.protocol) == (Algorithm.Tree, Protocol.LL128)
    assert large.selection_us == pytest.approx(54.707825, abs=2e-6)


def test_a_sweep_is_its_choices(recorded: Make) -> None:
    comm = recorded("dgx_h100_2")
    tuner = Tuner(comm)
    assert tuner.sweep("all_reduce", SIZES) == tuple(choose(comm, "all_reduce", s) for s in SIZES)


def test_the_choice_is_the_cheapest_candidate(recorded: Make) -> None:
    for op in FUNCTIONS:
        for size in SIZES[::5]:
            every = candidates(recorded("dgx_h100_2"), op, size)
            best = min(every, key=lambda choice: choice.selection_us)
            assert choose(recorded("dgx_h100_2"), op, size) == best


def test_of_equals_the_first_in_nccls_order_wins(recorded: Make) -> None:
    tuner = Tuner(recorded("dgx_h100_1"))
    cost = tuner.costs("all_reduce")[Algorithm.Ring, Protocol.LL]
    every = {pair: cost for pair in tuner.costs("all_reduce") if pair[0] is not Algorithm.Tree}
    tuner._usable["all_reduce", FLOAT_SUM] = every, ()
    assert tuner.choose("all_reduce", 8).algorithm is Algorithm.Ring
    assert tuner.choose("all_reduce", 8).protocol is Protocol.LL


def test_one_rank_has_nothing_to_choose(recorded: Make) -> None:
    alone = replace(recorded("dgx_a100_1"), node_of=(0,), local_ranks=(1,))
    choice = choose(alone, "all_reduce", 1 << 20)
    assert (choice.algorithm, choice.protocol) == (Algorithm.Ring, Protocol.Simple)
    assert choice.selection_us == 0.0


def test_an_operation_that_the_tuner_does_not_know_is_refused(recorded: Make) -> None:
    with pytest.raises(ScenarioError, match=r"allreduce: NCCL's tuner knows .*'all_reduce'"):
        choose(recorded("dgx_a100_1"), "allreduce", 8)


def test_less_than_an_element_per_rank_moves_nothing(recorded: Make) -> None:
    choice = choose(recorded("dgx_a100_1"), "all_gather", 8)
    assert (choice.channels, choice.count_lo) == (0, 0)


def test_a_forced_algorithm_is_taken(recorded: Make) -> None:
    knobs = knobs_of({"NCCL_ALGO": "allreduce:ring", "NCCL_PROTO": "Simple"})
    choice = choose(recorded("dgx_a100_2"), "all_reduce", 8, env=knobs)
    assert (choice.algorithm, choice.protocol) == (Algorithm.Ring, Protocol.Simple)
    other = choose(recorded("dgx_a100_2"), "broadcast", 8, env=knobs)
    assert other.protocol is Protocol.Simple


def test_what_the_hardware_cannot_do_is_left_out_and_said(recorded: Make) -> None:
    knobs = Knobs(algo="NVLS,Tree")
    choice = choose(recorded("dgx_a100_1"), "all_reduce", 1 << 30, env=knobs)
    assert choice.algorithm is Algorithm.Tree
    assert any("NVLS" in note for note in choice.notes)


def test_nvls_alone_on_an_a100_stops_nccl_since_2_24(recorded: Make) -> None:
    comm = recorded("dgx_a100_1")
    with pytest.raises(
        ScenarioError, match="no algorithm for all_reduce is left by NCCL_ALGO=NVLS"
    ):
        choose(comm, "all_reduce", 8, env=Knobs(algo="NVLS"))


def test_nvls_alone_on_an_a100_falls_back_to_ring_before(recorded: Make) -> None:
    comm = replace(recorded("dgx_a100_1"), version="2.22")
    choice = choose(comm, "all_reduce", 8, env=Knobs(algo="NVLS"))
    assert choice.algorithm is Algorithm.Ring
    assert any("falls back to Ring" in note for note in choice.notes)


@pytest.mark.parametrize("version", ["2.18", "2.22"])
def test_a_tree_for_all_leaves_rings_to_the_rest_in_older_releases(
    version: str, recorded: Make
) -> None:
    comm = replace(recorded("dgx_a100_1"), version=version)
    assert choose(comm, "all_gather", 8, env=Knobs(algo="Tree")).algorithm is Algorithm.Ring


def test_a_tree_for_all_stops_other_operations_since_2_24(recorded: Make) -> None:
    with pytest.raises(ScenarioError, match="allgather:ring"):
        choose(recorded("dgx_a100_1"), "all_gather", 8, env=Knobs(algo="Tree"))


def test_collnet_without_sharp_is_ignored_in_older_releases(recorded: Make) -> None:
    comm = replace(recorded("dgx_a100_2"), version="2.21")
    plain = choose(comm, "all_reduce", 8)
    asked = choose(comm, "all_reduce", 8, env=Knobs(algo="CollNetDirect"))
    assert (asked.algorithm, asked.protocol) == (plain.algorithm, plain.protocol)


def test_nvls_can_be_switched_off(recorded: Make) -> None:
    comm = recorded("dgx_h100_2")
    assert choose(comm, "all_reduce", 1 << 30).algorithm is Algorithm.NVLSTree
    without = choose(comm, "all_reduce", 1 << 30, env=Knobs(nvls_enable=0))
    assert without.algorithm is not Algorithm.NVLSTree


def test_pat_is_for_one_rank_per_node(recorded: Make) -> None:
    comm = recorded("pcie4_sw_100g_2")
    alone = replace(comm, node_of=tuple(range(8)), local_ranks=(1,) * 8)
    pat = (Algorithm.PAT, Protocol.Simple)
    assert pat not in Tuner(comm).costs("all_gather")
    assert pat in Tuner(alone).costs("all_gather")
    assert pat not in Tuner(alone, Knobs(pat_enable=0)).costs("all_gather")
    assert pat not in Tuner(alone).costs("all_reduce")


@pytest.mark.parametrize(
    ("op", "share", "chunk"),
    [
        ("all_gather", 64 << 10, 64 << 10),
        ("all_gather", 4 << 20, 128 << 10),
        ("reduce_scatter", 4 << 20, 256 << 10),
        ("all_gather", 16 << 20, 512 << 10),
    ],
)
def test_pat_takes_all_channels_and_fits_its_chunks(
    op: str, share: int, chunk: int, recorded: Make
) -> None:
    comm = recorded("pcie4_sw_100g_2")
    alone = replace(comm, node_of=tuple(range(8)), local_ranks=(1,) * 8)
    (choice,) = Tuner(alone).candidates(op, [2 * share])[Algorithm.PAT, Protocol.Simple]
    assert (choice.channels, choice.max_channels, choice.threads) == (2, 2, 640)
    assert choice.chunk == chunk


@pytest.mark.parametrize(
    ("version", "size", "chunk"),
    [
        ("2.20", 1 << 20, 32 << 10),
        ("2.20", 16 << 20, 64 << 10),
        ("2.20", 1 << 30, 512 << 10),
        ("2.22", 1 << 20, 512 << 10),
    ],
)
def test_trees_of_simple_fitted_their_chunks_until_2_21(
    version: str, size: int, chunk: int, recorded: Make
) -> None:
    comm = replace(recorded("dgx_a100_4"), version=version)
    forced = choose(comm, "all_reduce", size, env=Knobs(algo="Tree", proto="Simple"))
    assert forced.chunk == chunk


@pytest.mark.parametrize(("version", "chunk"), [("2.21", 512 << 10), ("2.22", 128 << 10)])
def test_nvls_trees_had_larger_chunks_until_2_21(version: str, chunk: int, recorded: Make) -> None:
    comm = replace(recorded("dgx_h100_2"), version=version)
    assert choose(comm, "all_reduce", 8 << 30, env=Knobs(algo="NVLSTree")).chunk == chunk


def test_collnet_where_the_fabric_reduces(recorded: Make) -> None:
    comm = recorded("dgx_h100_2")
    tree, nvls = comm.graphs["tree"], comm.graphs["nvls"]
    graphs = {**comm.graphs, "collnet_chain": tree, "collnet_direct": nvls}
    sharp = replace(comm, graphs=graphs, collnet_support=True)
    direct = (Algorithm.CollNetDirect, Protocol.Simple)
    assert direct not in Tuner(sharp).costs("all_reduce")
    knobs = Knobs(collnet_enable=1)
    cost = Tuner(sharp, knobs).costs("all_reduce")[direct]
    assert cost.latency == pytest.approx(2 * (3.7 + 7 * 0.4) + 31)
    assert cost.bandwidth == pytest.approx(8 * 40 * 0.85 * 0.5, rel=1e-6)
    assert (Algorithm.NVLS, Protocol.Simple) in Tuner(sharp, knobs).costs("all_reduce")
    assert direct not in Tuner(sharp, replace(knobs, collnet_node_threshold=3)).costs("all_reduce")
    forced = Tuner(sharp, replace(knobs, algo="CollNetDirect"))
    small, large = forced.sweep("all_reduce", [1 << 24, 1 << 26])
    assert (large.channels, large.threads) == (16, 640)
    # at 12 channels the threshold halves, and 11 x 640 threads x 8 heads x 256 B fit in 16 MiB
    assert (small.channels, small.threads) == (11, 640)


@pytest.mark.parametrize(
    ("knobs", "field", "expected"),
    [
        (Knobs(max_nchannels=4), "max_channels", 4),
        (Knobs(min_nchannels=20), "max_channels", 20),
        (Knobs(max_ctas=2), "max_channels", 2),
        (Knobs(buffsize=1 << 20), "chunk", 1 << 19),
        (Knobs(nthreads=256), "threads", 288),
        (Knobs(nthreads=1024), "threads", 544),
        (Knobs(nthreads=100), "threads", 544),
        (Knobs(nthreads=32), "threads", 96),
    ],
)
def test_knobs_of_a_large_ring(knobs: Knobs, field: str, expected: int, recorded: Make) -> None:
    forced = replace(knobs, algo="Ring", proto="Simple")
    choice = choose(recorded("dgx_a100_2"), "all_reduce", 1 << 30, env=forced)
    assert getattr(choice, field) == expected


def test_thread_thresholds(recorded: Make) -> None:
    forced = Knobs(algo="Ring", proto="LL", thread_thresholds=(-1, -1, -1, 1))
    plain = Knobs(algo="Ring", proto="LL")
    comm = recorded("dgx_a100_1")
    assert choose(comm, "all_reduce", 1 << 16, env=plain).max_channels == 2
    assert choose(comm, "all_reduce", 1 << 16, env=forced).max_channels == 24


@given(st.sampled_from(list(FUNCTIONS)), st.integers(3, 34), st.integers(0, 7))
def test_with_width_and_chunk_fixed_time_never_falls_with_size(
    op: str, doublings: int, eighths: int
) -> None:
    for name in ("dgx_h100_2", "pcie4_sw_100g_1"):
        tuner = _tuner(name)
        size = (1 << doublings) + eighths * (1 << doublings) // 8
        for pair, (one, two) in tuner.candidates(op, [size, size + 4096]).items():
            fixed = ("max_channels", "threads", "chunk")
            same = all(getattr(one, each) == getattr(two, each) for each in fixed)
            # NCCL's correction of trees by size class lets them dip by design
            if same and pair[0] is not Algorithm.Tree:
                assert one.selection_us <= two.selection_us, (pair, size)


def test_a_wide_sweep_does_not_loop_over_ranks(recorded: Make) -> None:
    comm = recorded("dgx_h100_2")
    large = replace(
        comm, node_of=tuple(rank // 8 for rank in range(16384)), local_ranks=(8,) * 2048
    )

    def sweep() -> None:
        tuner = Tuner(large)
        for op in FUNCTIONS:
            tuner.sweep(op, SIZES)
            tuner.candidates(op, SIZES)

    assert python_calls(sweep) < 2 * 23_067  # 23,067 when written


_TUNERS: dict[str, Tuner] = {}


def _tuner(name: str) -> Tuner:
    """Return a case's tuner; hypothesis does not mix with fixtures that are made per test."""
    if name not in _TUNERS:
        data = TESTS / "data" / "nccl_choice" / "records.json"
        _TUNERS[name] = Tuner(recorded_communicator(json.loads(data.read_text())[name]))
    return _TUNERS[name]
