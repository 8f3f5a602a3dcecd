"""Textbook figures of the algorithms: what each rank sends, and in how many steps."""

from __future__ import annotations

import numpy as np
import pytest
from helpers.chunk_programs import SIZES, make

from commsim.collectives import Program, ProgramBuilder, check, dependencies, program
from commsim.collectives.catalogue import ALGORITHMS, default_per_node, is_switched
from commsim.collectives.program import IN_NETWORK, IN_NODE
from commsim.errors import ScenarioError


def received(p: Program) -> np.ndarray:
    return np.bincount(p.target, weights=p.message_share, minlength=p.actors)[: p.n]


def rounds(n: int) -> int:
    return (n - 1).bit_length()


@pytest.mark.parametrize("n", SIZES)
def test_bruck_gathers_in_log_steps_and_least_bytes(n: int) -> None:
    p = make("all_gather", "bruck", n)
    assert p.steps == rounds(n)
    assert p.bytes_sent == pytest.approx(np.full(n, (n - 1) / n))


@pytest.mark.parametrize("n", SIZES)
def test_bruck_exchanges_in_log_steps_for_more_bytes(n: int) -> None:
    """Each chunk moves once per 1 in the binary digits of its distance."""
    p = make("all_to_all", "bruck", n)
    assert p.steps == rounds(n)
    ones = sum(distance.bit_count() for distance in range(n))
    assert p.bytes_sent == pytest.approx(np.full(n, ones / n))


@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize("op", ["all_gather", "reduce_scatter"])
def test_pat_is_logarithmic_and_least_in_bytes(op: str, n: int) -> None:
    p = make(op, "pat", n)
    assert p.steps == rounds(n)
    assert p.bytes_sent == pytest.approx(np.full(n, (n - 1) / n))
    distance = (p.target - p.source) % n if op == "all_gather" else (p.source - p.target) % n
    far_first = [int(distance[p.step == s][0]) for s in range(p.steps)]
    expected = [1 << k for k in reversed(range(rounds(n)))]
    assert far_first == (expected if op == "all_gather" else expected[::-1])


@pytest.mark.parametrize("n", SIZES)
def test_dissemination_tells_everybody_in_log_rounds(n: int) -> None:
    p = make("barrier", "dissemination", n)
    assert p.steps == rounds(n)
    assert len(p) == n * rounds(n)
    ahead = (p.target - p.source) % n
    assert all((ahead[p.step == k] == 1 << k).all() for k in range(p.steps))


@pytest.mark.parametrize("n", SIZES)
def test_pairwise_exchanges_with_one_partner_at_a_time(n: int) -> None:
    p = make("all_to_all", "pairwise", n)
    assert p.steps == n - 1
    assert p.bytes_sent == pytest.approx(np.full(n, (n - 1) / n))
    for step in range(p.steps):
        now = p.step == step
        assert sorted(p.source[now]) == sorted(p.target[now]) == list(range(n))
        if n & (n - 1) == 0:
            assert (p.source[now] ^ p.target[now] == step + 1).all()


def test_pairwise_goes_on_when_both_halves_are_through() -> None:
    p = make("all_to_all", "pairwise", 5)
    ptr, needs = dependencies(p)
    for m in range(len(p)):
        before = needs[ptr[m] : ptr[m + 1]]
        rank, step = p.source[m], p.step[m]
        assert all(p.step[b] == step - 1 and rank in (p.source[b], p.target[b]) for b in before)
        assert len(before) == (2 if step else 0)


@pytest.mark.parametrize("n", SIZES)
def test_binomial_trees_double_those_who_have_it(n: int) -> None:
    p = make("broadcast", "binomial", n, root=n // 2)
    assert p.steps == rounds(n)
    assert received(p).sum() == n - 1
    assert p.bytes_sent[n // 2] == rounds(n)  # the root sends in every round
    for op in ("gather", "scatter"):
        q = make(op, "binomial", n, root=1)
        moved = q.bytes_sent if op == "gather" else received(q)
        assert moved[1 % n] == 0
        assert q.steps == rounds(n)


@pytest.mark.parametrize(("n", "steps"), [(8, 3), (12, 3), (6, 2), (7, 1), (9, 1), (10, 2)])
def test_bcube_takes_one_round_per_factor(n: int, steps: int) -> None:
    """12 = 2 x 2 x 3, 6 = 2 x 3; odd rests are one round."""
    p = make("all_reduce", "bcube", n)
    assert len(np.unique(p.phase)) == p.steps == 2 * steps
    assert p.bytes_sent == pytest.approx(np.full(n, 2 * (n - 1) / n))


@pytest.mark.parametrize("pieces", [1, 2, 5])
def test_a_chunked_ring_has_two_segments_in_flight_at_least(pieces: int) -> None:
    p = make("all_reduce", "ring_chunked", 6, pieces=pieces)
    cuts = max(2, pieces)
    assert len(p.share) == 6 * cuts
    assert p.steps == 2 * 5 * cuts
    assert p.bytes_sent == pytest.approx(np.full(6, 2 * 5 / 6))


@pytest.mark.parametrize("name", ["hierarchical", "torus"])
@pytest.mark.parametrize(("n", "m"), [(8, 4), (8, 2), (12, 3), (9, 3), (7, 7), (7, 1)])
@pytest.mark.parametrize("op", ["all_reduce", "all_gather", "reduce_scatter"])
def test_two_levels_move_the_least_in_fewer_steps(op: str, name: str, n: int, m: int) -> None:
    p = program(op, name, n, per_node=m)
    assert check(p) == []
    times = 2 if op == "all_reduce" else 1
    assert p.bytes_sent == pytest.approx(np.full(n, times * (n - 1) / n))
    assert p.steps == times * (m - 1 + n // m - 1)


def across(p: Program, m: int) -> np.ndarray:
    """Return the share of S that leaves each node."""
    leaves = p.source // m != p.target // m
    sent = np.where(leaves, p.message_share, 0)
    return np.bincount(p.source // m, weights=sent, minlength=p.n // m)


def test_between_nodes_a_hierarchy_sends_each_byte_as_rarely_as_can_be() -> None:
    p = program("all_reduce", "hierarchical", 12, per_node=4)
    assert across(p, 4) == pytest.approx(np.full(3, 2 * 2 / 3))
    flat = across(program("all_reduce", "ring", 12), 4)
    assert flat == pytest.approx(np.full(3, 2 * 11 / 12))


def test_a_torus_uses_rows_and_columns_at_once() -> None:
    p = program("all_reduce", "torus", 9, per_node=3)
    first = p.step == 0
    assert (p.source[first] // 3 == p.target[first] // 3).sum() == 9
    assert (p.source[first] % 3 == p.target[first] % 3).sum() == 9


@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize("pieces", [1, 3])
def test_nvls_sends_and_gets_the_buffer_and_an_nth(n: int, pieces: int) -> None:
    """Each GPU's data goes up once and the sum of its part comes down; then the reverse."""
    p = program("all_reduce", "nvls", n, pieces=pieces)
    assert p.switches == (IN_NODE,)
    assert p.bytes_sent == pytest.approx(np.full(n, 1 + 1 / n))
    assert received(p) == pytest.approx(np.full(n, 1 + 1 / n))
    assert p.steps == 4 + pieces - 1


@pytest.mark.parametrize("n", SIZES)
def test_a_network_that_adds_gets_and_gives_the_buffer_once(n: int) -> None:
    p = program("all_reduce", "sharp", n, pieces=4)
    assert p.switches == (IN_NETWORK,)
    assert p.bytes_sent == pytest.approx(np.ones(n))
    assert received(p) == pytest.approx(np.ones(n))
    others = np.arange(n) != 0
    down, up = program("broadcast", "sharp", n), program("reduce", "sharp", n)
    assert down.bytes_sent.tolist() == (~others).astype(float).tolist()
    assert received(down) == pytest.approx(1.0 * others)
    assert received(up) == pytest.approx(1.0 * ~others)


def to_network(p: Program) -> np.ndarray:
    sent = np.where(p.target >= p.n, p.message_share, 0)
    return np.bincount(p.source, weights=sent, minlength=p.actors)[: p.n]


def test_collnet_sends_each_part_to_the_network_by_its_own_gpu() -> None:
    direct = program("all_reduce", "collnet_direct", 8, per_node=4, pieces=2)
    assert to_network(direct) == pytest.approx(np.full(8, 1 / 4))
    chain = program("all_reduce", "collnet_chain", 8, per_node=4, pieces=2)
    assert to_network(chain) == pytest.approx([1, 0, 0, 0, 1, 0, 0, 0])


@pytest.mark.parametrize(("n", "m"), [(8, 4), (12, 4), (16, 2), (15, 3)])
def test_nvls_tree_crosses_nodes_by_every_gpu_alike(n: int, m: int) -> None:
    p = program("all_reduce", "nvls_tree", n, per_node=m, pieces=2)
    assert check(p) == []
    assert p.switches == (IN_NODE,) * (n // m)
    nodes = n // m
    crossing = (p.source < n) & (p.target < n)
    assert (p.source[crossing] % m == p.target[crossing] % m).all()
    assert p.message_share[crossing].sum() == pytest.approx(2 * (nodes - 1))


def test_a_switch_adds_and_multicasts() -> None:
    build = ProgramBuilder("all_reduce", "mine", 3, [1.0], switches=[IN_NODE])
    build.reduce_at(0, 3, range(3), 1, step=0)
    build.multicast(0, 3, 1, range(3), step=2)
    p = build.build()
    assert check(p) == []
    assert p.actors == 4
    assert p.step.tolist() == [0, 0, 0, 1, 2, 3, 3, 3]
    assert p.target.tolist() == [3, 3, 3, 1, 3, 0, 1, 2]


def test_a_switch_holds_nothing_at_first_and_is_named() -> None:
    build = ProgramBuilder("broadcast", "mine", 2, [1.0], root=0, switches=[IN_NODE])
    build.copy(0, 2, 1, step=0)
    assert check(build.build())[0] == ("step 0: switch 0 sends chunk 0, of which it holds nothing.")
    other = ProgramBuilder("broadcast", "mine", 2, [1.0], root=0, switches=["box"])
    other.copy(0, 0, 1, step=0)
    assert check(other.build()) == ["a switch is 'node' or 'network', not 'box'."]


def test_actors_end_with_the_switches() -> None:
    build = ProgramBuilder("broadcast", "mine", 2, [1.0], root=0, switches=[IN_NODE])
    build.copy(0, 0, 3, step=0)
    assert check(build.build()) == ["step 0: target 3 is none of the 2 ranks and 1 switches."]


@pytest.mark.parametrize(("n", "m"), [(4, 2), (8, 4), (6, 3), (7, 7), (12, 4), (1, 1), (36, 6)])
def test_levels_are_as_alike_as_can_be(n: int, m: int) -> None:
    assert default_per_node(n) == m


def test_nodes_must_divide_the_members() -> None:
    with pytest.raises(ScenarioError, match="nodes of 3 do not divide them evenly"):
        program("all_reduce", "hierarchical", 8, per_node=3)


def test_an_impossible_pair_says_what_is_possible() -> None:
    with pytest.raises(ScenarioError, match="no algorithm 'nvls' for 'broadcast'.*sharp"):
        program("broadcast", "nvls", 4)
    switched = {name for _, name in ALGORITHMS if is_switched(name)}
    assert switched == {"nvls", "nvls_tree", "sharp", "collnet_direct", "collnet_chain"}
