"""What must hold of any time: monotonic, never faster than the wires, right in the limits."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest
from helpers.share import examples
from hypothesis import given
from hypothesis import strategies as st

from commsim.libraries.nccl.timing.constants import TRANSPORTS, default_terms
from commsim.libraries.nccl.timing.predict import latencies, time_runs
from commsim.libraries.nccl.timing.programs import ring_edges
from commsim.libraries.nccl.timing.runs import ChunkShape, LinkKind, NicWay, Runs
from commsim.libraries.nccl.timing.shapes import program_time

TERMS = default_terms()
SIZES = 2.0 ** np.arange(2, 36, 0.5)
SYSTEMS = st.fixed_dictionaries(
    {
        "shape": st.sampled_from(list(ChunkShape)),
        "protocol": st.integers(0, 2),
        "generation": st.integers(0, 3),
        "channels": st.sampled_from([1, 2, 4, 8, 24, 32]),
        "rounds": st.integers(1, 2),
        "link": st.sampled_from(list(LinkKind)),
        "way": st.sampled_from(list(NicWay)),
        "transport": st.integers(0, len(TRANSPORTS) - 1),
        "gpus_per_process": st.sampled_from([0, 8]),
        "old": st.booleans(),
        "repeated": st.booleans(),
    }
)
IN_SWITCHES = (ChunkShape.NVLS, ChunkShape.NVLS_TREE)
PLACES = st.sampled_from([(2, 1), (8, 1), (16, 2), (10, 10), (32, 4), (96, 12), (1024, 128)])


def seconds(run: Runs) -> np.ndarray:
    return time_runs(run).seconds


@examples(150)
@given(system=SYSTEMS, place=PLACES)
def test_time_never_falls_when_a_message_grows(runs, system, place):
    run = runs(size=SIZES, ranks=place[0], domains=place[1], **system)
    times = seconds(run)
    assert np.isfinite(times).all()
    assert (np.diff(times) >= -1e-12 * times[1:]).all()


@examples(150)
@given(system=SYSTEMS, place=PLACES, column=st.sampled_from(["local", "net", "hop", "reach"]))
def test_time_never_falls_when_wires_slow_down(runs, system, place, column):
    fast = runs(size=SIZES[::7], ranks=place[0], domains=place[1], **system)
    slow = msgspec.structs.replace(fast, **{column: getattr(fast, column) * 2})
    assert (seconds(slow) >= seconds(fast) * (1 - 1e-12)).all()


@examples(150)
@given(system=SYSTEMS, place=PLACES)
def test_never_faster_than_the_wires(runs, system, place):
    run = runs(size=SIZES, ranks=place[0], domains=place[1], **system | {"rounds": 2})
    own = 1 + 1 / (place[0] // place[1]) if system["shape"] in IN_SWITCHES else 1.0
    assert (seconds(run) >= run.local / own * SIZES * (1 - 1e-12)).all()
    if system["shape"] != ChunkShape.NVLS:
        assert (seconds(run) >= run.net * SIZES * (1 - 1e-12)).all()


@pytest.mark.parametrize(("shape", "factor"), [(ChunkShape.TREE, 1.0), (ChunkShape.NVLS_TREE, 1.0)])
def test_two_nodes_send_a_tree_once_over_their_nics(runs, shape, factor):
    run = runs(shape=shape, size=float(1 << 36), port=45e12, channels=64)
    wire = factor * (1 << 36) / (8 * 48e9 * TERMS.nic[0, 2])
    assert seconds(run)[0] == pytest.approx(wire, rel=0.01)


def test_more_nodes_send_a_tree_twice(runs):
    run = runs(shape=ChunkShape.NVLS_TREE, size=float(1 << 36), ranks=32, domains=4, port=45e12)
    wire = 2 * (1 << 36) / (8 * 48e9 * TERMS.nic[0, 2] * TERMS.tree_net)
    assert seconds(run)[0] == pytest.approx(wire, rel=0.01)


def test_a_ring_ends_at_the_slower_of_nvlink_and_nics(runs):
    size = float(1 << 36)
    expected = {900e9: 8 * 48e9 * TERMS.nic[0, 2], 150e9: 150e9 * TERMS.link[2, 0, 2]}
    for port, rate in expected.items():
        run = runs(size=size, port=port, channels=64)
        assert seconds(run)[0] == pytest.approx(2 * 15 / 16 * size / rate, rel=0.01)


def test_few_channels_limit_a_ring(runs):
    run = runs(size=float(1 << 34), ranks=8, domains=1, channels=2)
    rate = 2 * TERMS.channel[2, 2]
    assert seconds(run)[0] == pytest.approx(2 * 7 / 8 * (1 << 34) / rate, rel=0.01)


@pytest.mark.parametrize("size", [64.0, float(1 << 22)])
def test_a_repeated_broadcast_hides_its_chain_and_what_fills_it(runs, size):
    at = {"shape": ChunkShape.CHAIN, "size": size, "rounds": 1, "channels": 8}
    for protocol in range(3):
        once = seconds(runs(**at, protocol=protocol))[0]
        again = seconds(runs(**at, protocol=protocol, repeated=True))[0]
        assert again < once / 2


def test_broadcasts_in_a_row_wait_for_the_buffers_of_a_far_hop(runs):
    """Eight steps of a connection's buffer: eight broadcasts for each way there and back."""
    at = {"shape": ChunkShape.CHAIN, "rounds": 1, "protocol": 0, "repeated": True, "size": 8.0}
    near, far = (seconds(runs(**at, reach=way))[0] for way in (1.5e-6, 10e-3))
    assert near < 20e-6
    assert far == pytest.approx(2 * 10e-3 / 8, rel=0.01)


def test_small_chunks_cost_nvls_time(runs):
    at = {"shape": ChunkShape.NVLS, "size": float(1 << 28), "ranks": 8, "domains": 1}
    large, small = (runs(**at, channels=16, window=float(chunk)) for chunk in (1 << 17, 1 << 15))
    lost = (1 << 28) / 16 * (1 / (1 << 15) - 1 / (1 << 17)) * TERMS.nvls_chunk
    assert seconds(small)[0] - seconds(large)[0] == pytest.approx(lost, rel=1e-9)


def test_the_first_chunk_to_each_far_peer_fills_its_channels(runs):
    at = {"shape": ChunkShape.EXCHANGE, "size": float(1 << 26), "ranks": 32, "domains": 4}
    small, large = (seconds(runs(**at, window=float(chunk)))[0] for chunk in (1 << 15, 1 << 16))
    filled = 24 * TERMS.fill_exchange * (1 << 15) / TERMS.pair_channel
    assert large - small == pytest.approx(filled, rel=1e-9)


def test_one_process_is_a_floor_under_small_messages_alone(runs):
    at = {"size": SIZES, "ranks": 8, "domains": 1, "protocol": 0}
    alone = time_runs(runs(**at))
    driven = time_runs(runs(**at, gpus_per_process=8))
    floor = 8 * TERMS.launch_one_process + 16 * TERMS.launch_channel[0]
    least = np.maximum(alone.seconds, floor)
    assert (driven.seconds >= least).all()
    assert (driven.seconds <= least * 2 ** (1 / 4) * (1 + 1e-12)).all()  # launches vary
    assert driven.launch[0] > alone.launch[0]
    assert driven.seconds[-1] == pytest.approx(alone.seconds[-1], rel=1e-9)


def test_each_channel_costs_a_start_and_old_nccl_more_of_them(runs):
    at = {"size": 64.0, "ranks": 8, "domains": 1, "protocol": 0}
    for old in (False, True):
        less = TERMS.launch_old if old else 1.0
        host, start = less * TERMS.launch, TERMS.launch_channel[int(old)]
        first = seconds(runs(**at, channels=1, old=old))[0] - host - start
        for channels in (8, 32):
            alone = seconds(runs(**at, channels=channels, old=old))[0]
            assert alone == pytest.approx(host + channels * start + first, rel=0.01)
            took = seconds(runs(**at, channels=channels, old=old, gpus_per_process=8))[0]
            least = 8 * less * TERMS.launch_one_process + channels * start
            assert least <= took <= least * 2 ** (1 / 4)  # launches vary
    assert TERMS.launch_channel[1] > 5 * TERMS.launch_channel[0]


def test_a_hosts_own_launch_stands_for_both_fitted_ones(runs):
    at = {"size": 64.0, "ranks": 8, "domains": 1, "protocol": 0, "host_launch": 20e-6}
    assert seconds(runs(**at, old=True))[0] - seconds(runs(**at))[0] == pytest.approx(
        16 * (TERMS.launch_channel[1] - TERMS.launch_channel[0]), rel=1e-6
    )


def test_ll_between_nodes_fetches_its_lines_over_pcie(runs):
    at = {"ranks": 2, "domains": 2, "rounds": 1, "channels": 1, "protocol": 0, "window": 4096.0}
    one, many = seconds(runs(**at, size=np.array([4096.0, 65 * 4096.0]) * 2))
    rate = 64 * 4096 / (many - one)
    assert rate == pytest.approx(4096 / TERMS.fetch, rel=0.15)  # a line for each turn of a thread
    slow = seconds(runs(**at | {"window": 1024.0}, size=65 * 4096.0 * 2))[0]
    assert (slow - one) / (many - one) == pytest.approx(4.0, rel=0.15)
    for other in (1, 2):  # only LL's lines lie in host memory
        wide, narrow = (
            seconds(runs(**at | {"protocol": other, "window": w}, size=65 * 4096.0 * 2))[0]
            for w in (4096.0, 1024.0)
        )
        assert narrow <= wide


def test_three_tenths_of_a_trees_threads_fetch_what_comes_down(runs):
    at = {"ranks": 2, "domains": 2, "channels": 1, "protocol": 0, "window": 4096.0}
    one, many = seconds(runs(**at, shape=ChunkShape.TREE, size=np.array([4096.0, 65 * 4096.0]) * 8))
    assert (many - one) / (8 * 64 * TERMS.fetch) == pytest.approx(1 / 0.3, rel=0.05)


def test_rings_of_few_channels_wait_for_the_slowest_of_many_nodes(runs):
    """With 16 channels two B200 nodes measure 345 GB/s and 46 of them 291, with 24 both 380."""

    def took(nodes: int, channels: int, nics: float) -> float:
        at = {"ranks": nodes * 8, "domains": nodes, "channels": channels, "rounds": 1}
        wires = {"net": 1 / nics, "local": 1e-12, "window": float(1 << 20)}
        time: float = seconds(runs(**at, **wires, size=float(1 << 34)))[0]
        return time

    each = (1 << 34) / 16 / (1 << 20)  # slices of a channel
    waited = (took(46, 16, 4e12) * 368 / 367 - took(2, 16, 4e12) * 16 / 15) / each
    grown = TERMS.skew * np.log2(23) * (TERMS.net[0] + TERMS.net_protocol[2])
    assert waited == pytest.approx(grown, rel=0.1)
    assert took(46, 32, 4e11) == pytest.approx(took(2, 32, 4e11), rel=0.01)  # the NICs decide


def test_a_chunk_of_a_ring_is_two_slices_however_small(runs):
    at = {"ranks": 8, "domains": 1, "rounds": 1, "channels": 1, "window": float(1 << 20)}
    size = 8.0 * np.array([1 << 19, 1 << 20, 1 << 21])  # parts of half a chunk and more
    edges = ring_edges(runs(**at, size=size), TERMS)
    held = edges.start * np.minimum(edges.local, edges.net) / TERMS.fill_ring[2]
    assert held == pytest.approx([1 << 18, 1 << 19, 1 << 20])


def test_staging_and_the_cpu_root_cost_rate(runs):
    size = float(1 << 32)
    direct, root, staged = (
        seconds(runs(size=size, way=way))[0] for way in (NicWay.DIRECT, NicWay.ROOT, NicWay.STAGED)
    )
    assert direct < root < staged
    assert 2 * 15 / 16 * size / staged < TERMS.staged


def test_only_ll_makes_rendezvous_on_slingshot(runs):
    slingshot = TRANSPORTS.index("slingshot")
    for protocol, jumps in ((0, True), (2, False)):
        sizes = np.array([2047.0, 2049.0]) * 16  # of one message: 4 KiB of LL on the wire
        run = runs(size=sizes, transport=slingshot, protocol=protocol, channels=1)
        below, above = seconds(run)
        assert (above - below > TERMS.rendezvous[slingshot]) == jumps


def test_a_single_rank_needs_no_more_than_its_launch(runs):
    timing = time_runs(runs(ranks=1, domains=1, size=SIZES))
    assert (timing.program == 0).all()


def test_latency_is_what_is_left_without_bytes(runs):
    run = runs(size=SIZES)
    still = latencies(run)
    assert (still == still[0]).all()
    assert (time_runs(run).program >= still).all()
    assert time_runs(runs(size=4.0)).program[0] == pytest.approx(still[0], rel=1e-3)


LATENCIES = [
    # shape, ranks, domains, rounds, and how often hop, reach and longest count for a few bytes
    (ChunkShape.CHAIN, 8, 1, 1, (7, 0, 0)),
    (ChunkShape.CHAIN, 16, 2, 1, (14, 1, 0)),
    (ChunkShape.CHAIN, 4, 4, 1, (0, 3, 0)),
    # up and down; one branch has the longest way of all instead of the mean one, up and down
    (ChunkShape.TREE, 8, 1, 2, (14, 0, 0)),
    (ChunkShape.TREE, 16, 2, 2, (14, 2 - 2, 2)),
    (ChunkShape.TREE, 64, 8, 2, (14, 6 - 2, 2)),
    # to the switch and back
    (ChunkShape.NVLS, 8, 1, 2, (2, 0, 0)),
    (ChunkShape.NVLS_TREE, 16, 2, 2, (2, 2 - 2, 2)),
    (ChunkShape.NVLS_TREE, 72, 9, 2, (2, 8 - 2, 2)),
    (ChunkShape.COLLNET, 16, 2, 2, (2, 0, 2)),
    # a round for each doubling
    (ChunkShape.PAT, 8, 8, 1, (0, 0, 3)),
    (ChunkShape.PAT, 9, 9, 1, (0, 0, 4)),
    # all at once
    (ChunkShape.EXCHANGE, 8, 1, 1, (1, 0, 0)),
    (ChunkShape.EXCHANGE, 16, 2, 1, (0, 0, 1)),
    (ChunkShape.FAN, 16, 2, 1, (0, 0, 1)),
    (ChunkShape.PAIR, 8, 1, 1, (1, 0, 0)),
    (ChunkShape.PAIR, 16, 2, 1, (0, 0, 1)),
]


@pytest.mark.parametrize(("shape", "ranks", "domains", "rounds", "times"), LATENCIES)
def test_how_often_the_latency_of_a_way_counts(runs, shape, ranks, domains, rounds, times):
    at = {"shape": shape, "ranks": ranks, "domains": domains, "rounds": rounds, "size": 8.0}
    more = 1e-6
    plain = program_time(runs(**at), TERMS)[0]
    for name, expected in zip(("hop", "reach", "longest"), times, strict=True):
        way = 0.8e-6 if name == "hop" else 1.5e-6
        slower = program_time(runs(**at, **{name: way + more}), TERMS)[0]
        assert (slower - plain) / more == pytest.approx(expected, abs=1e-3), name


def test_what_shapes_pay_once_and_for_each_peer(runs):
    more = 1e-6

    def grown(shape, ranks, domains, **terms):
        run = runs(shape=shape, ranks=ranks, domains=domains, size=8.0)
        slower = program_time(run, msgspec.structs.replace(TERMS, **terms))[0]
        return (slower - program_time(run, TERMS)[0]) / more

    for shape, ranks, domains in ((ChunkShape.NVLS, 8, 1), (ChunkShape.NVLS_TREE, 16, 2)):
        assert grown(shape, ranks, domains, nvls=TERMS.nvls + more) == pytest.approx(1)
    near, far = TERMS.exchange_near + more, TERMS.exchange_peer + more
    for ranks, domains, within, beyond in ((8, 1, 7, 0), (16, 2, 7, 8), (64, 8, 7, 56)):
        at = (ChunkShape.EXCHANGE, ranks, domains)
        assert grown(*at, exchange_near=near) == pytest.approx(within, abs=1e-6)
        assert grown(*at, exchange_peer=far) == pytest.approx(beyond, abs=1e-6)
    # NCCL's own 31 us of CollNetDirect, a microsecond for each rank of PAT
    no_way = {"size": 0.0, "hop": 0.0, "reach": 0.0, "longest": 0.0}
    assert program_time(runs(shape=ChunkShape.COLLNET, **no_way), TERMS)[0] == pytest.approx(31e-6)
    evenly = msgspec.structs.replace(TERMS, skew=0.0)  # no longer waits of more ranks
    nine, ten = (
        program_time(runs(shape=ChunkShape.PAT, ranks=n, domains=n, rounds=1, **no_way), evenly)[0]
        for n in (9, 10)
    )
    assert ten - nine == pytest.approx(1e-6, rel=1e-6)


def slope(run, from_bytes, to_bytes):
    """Seconds for a byte more, between two sizes."""
    small, large = (
        program_time(msgspec.structs.replace(run, size=np.array([size])), TERMS)[0]
        for size in (from_bytes, to_bytes)
    )
    return (large - small) / (to_bytes - from_bytes)


def test_a_byte_through_a_switch(runs):
    """An all-reduce gives a GPU's port a byte of S; each chunk costs its channels; below a loop of
    chunks the first one through holds the rest up.
    """
    run = runs(shape=ChunkShape.NVLS, ranks=8, domains=1, loop=2.0**24)
    byte = 1 / 400e9 / TERMS.nvls_share[2]
    chunk = TERMS.nvls_chunk / (16 * 2.0**19)
    assert slope(run, 2.0**30, 2.0**31) == pytest.approx(byte + chunk, rel=1e-9)
    filled = byte * (1 + TERMS.fill_nvls) + chunk
    assert slope(run, 2.0**20, 2.0**23) == pytest.approx(filled, rel=1e-9)
    gather = runs(shape=ChunkShape.NVLS, ranks=8, domains=1, rounds=1, local=1 / 400e9)
    wires = 1 / 400e9 / TERMS.link[2, LinkKind.NVLINK, 2]
    assert slope(gather, 2.0**30, 2.0**31) == pytest.approx(wires + chunk, rel=1e-9)


def test_a_byte_that_the_network_reduces(runs):
    at = {"shape": ChunkShape.COLLNET, "ranks": 16, "domains": 2}
    nic = 1e-11 / TERMS.nic[TRANSPORTS.index("ib"), 2]
    near = 1e-11 / TERMS.link[2, LinkKind.NVLINK, 2]
    sizes = (2.0**20, 2.0**30)
    assert slope(runs(**at, local=0.0, net=1e-11), *sizes) == pytest.approx(nic / TERMS.collnet)
    assert slope(runs(**at, local=1e-11, net=0.0), *sizes) == pytest.approx(near)
    pat = at | {"shape": ChunkShape.PAT, "ranks": 2, "rounds": 1}
    assert slope(runs(**pat, local=0.0, net=1e-11), *sizes) == pytest.approx(nic)
    assert slope(runs(**pat, local=1e-11, net=0.0), *sizes) == pytest.approx(near)
    tree = at | {"shape": ChunkShape.NVLS_TREE, "loop": 2.0**10}
    far = runs(**tree, local=0.0, net=1e-9)
    assert slope(far, 2.0**26, 2.0**30) == pytest.approx(100 * nic, rel=1e-3)
    # four stages of a loop of chunks: there and back, and the switches at either end
    small = slope(msgspec.structs.replace(far, loop=np.array([2.0**32])), 2.0**26, 2.0**30)
    assert small == pytest.approx(100 * nic * (1 + 4 * TERMS.fill_nvls_tree), rel=1e-3)
