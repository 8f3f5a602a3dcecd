"""Gloo's algorithms as chunk programs: they are right, and move the bytes that Gloo moves."""

from __future__ import annotations

import numpy as np
import pytest
from helpers.share import examples
from hypothesis import given
from hypothesis import strategies as st

from commsim import run
from commsim.collectives import Program, check
from commsim.errors import ScenarioError
from commsim.libraries.gloo import programs, rings

MIB = 1 << 20
SIZES = (4, 12, 1000, 123_456, 3 * MIB + 8, 40 * MIB)


def every_all_reduce(n: int) -> list[Program]:
    found = [programs.bcube_all_reduce(n), programs.halving_doubling(n)]
    for size in SIZES[:-1]:
        found.append(rings.program_of(rings.all_reduce(n, size, 4)))
        found.append(rings.program_of(rings.chunked_all_reduce(n, size, 4)))
    return found


@pytest.mark.share(0.6)
@pytest.mark.parametrize("n", [2, 3, 4, 5, 6, 7, 8, 12, 13, 16])
def test_every_program_does_what_its_op_promises(n: int) -> None:
    found = every_all_reduce(n)
    found += [rings.program_of(rings.all_gather(n, n * each)) for each in (1, 4, 1001)]
    found += [programs.barrier(n), programs.all_to_all(n, None)]
    for root in dict.fromkeys((0, 1, n - 1)):
        found += [programs.broadcast(n, root), programs.gather(n, root), programs.scatter(n, root)]
        found += [programs.reduce(n, root, size, 4) for size in SIZES[:-1]]
    for program in found:
        assert check(program) == []


@examples(60)
@given(n=st.integers(2, 40), elements=st.integers(1, 10**8), element=st.sampled_from([1, 2, 4, 8]))
def test_segments_cover_the_buffer_and_are_as_gloo_cuts_them(
    n: int, elements: int, element: int
) -> None:
    total = elements * element
    cut = rings.segments(total, n, element)
    lengths = cut.lengths(n)
    assert lengths.sum() == total
    assert len(lengths) == n * cut.per_member
    assert cut.per_member >= 2
    assert cut.size % element == 0
    assert cut.size <= MIB
    assert np.all(np.diff(lengths) <= 0)
    if cut.per_member > 2:  # no more segments than the limit of a segment's size asks for
        assert (cut.per_member - 1) * n * MIB < total


def test_segments_of_a_known_buffer() -> None:
    """100 MiB over 8: 100 segments, rounded up to 104 of 1008247 bytes, rounded to floats."""
    cut = rings.segments(100 * MIB, 8, 4)
    assert (cut.per_member, cut.size) == (13, 1_008_248)
    assert rings.segments(4, 8, 4) == rings.Segments(4, 4, 2)


@pytest.mark.parametrize("n", [2, 3, 8, 13])
def test_the_ring_sends_what_a_ring_sends(n: int) -> None:
    """Every chunk crosses every edge but one, twice: 2 (n-1)/n of S per member on average."""
    for size in SIZES:
        ring = rings.all_reduce(n, size, 4)
        assert ring.sent_bytes().sum() == pytest.approx(2 * (n - 1) * size, rel=1e-12)
        chunk = ring.length.reshape(n, -1).sum(axis=1)
        expected = 2 * size - chunk - np.roll(chunk, 1)
        assert ring.sent_bytes() == pytest.approx(expected)


def test_the_gathering_ring_sends_all_but_one_contribution() -> None:
    assert rings.all_gather(5, 5000).sent_bytes().tolist() == [4000.0] * 5


def test_the_chunked_ring_has_chunks_of_256_elements_at_least() -> None:
    assert rings.chunked_all_reduce(4, 4000, 4).length.tolist() == [1024.0] * 3 + [928.0] + [0] * 4
    assert len(rings.program_of(rings.chunked_all_reduce(4, 4, 4))) == 4 * 12  # empty ones go too
    large = rings.chunked_all_reduce(4, 80_000, 4)
    assert large.sent_bytes().tolist() == [120_000.0] * 4


def test_reduce_forwards_two_segments_less_than_there_are() -> None:
    ring = rings.reduce_scatter(4, 4 * 3 * MIB, 4)
    assert ring.phases[0].rounds == 12 - 2
    program = programs.reduce(4, 2, 4 * 3 * MIB, 4)
    assert len(program) == 4 * 10 + 3
    assert np.count_nonzero(program.target[program.phase == 1] == 2) == 3


def test_broadcast_doubles_those_who_have_it() -> None:
    program = programs.broadcast(8, 3)
    assert np.bincount(program.step).tolist() == [1, 2, 4]
    assert program.source[0] == 3
    assert programs.broadcast(6, 0).steps == 3


@pytest.mark.parametrize(("n", "steps"), [(8, 3 + 3), (6, 2 + 2 + 2), (7, 2 + 4 + 2), (2, 2)])
def test_halving_doubling_takes_its_steps(n: int, steps: int) -> None:
    """log2 of the largest block each way, and two for each block that is not the largest."""
    assert programs.halving_doubling(n).steps == steps


def test_halving_doubling_of_a_power_of_two_moves_no_more_than_a_ring() -> None:
    assert programs.halving_doubling(8).bytes_sent == pytest.approx(np.full(8, 2 * 7 / 8))
    assert programs.bcube_all_reduce(8).bytes_sent == pytest.approx(np.full(8, 2 * 7 / 8))


def test_bcube_takes_an_odd_factor_as_one_group() -> None:
    program = programs.bcube_all_reduce(12)  # 2 * 2 * 3
    assert program.steps == 6
    assert np.bincount(program.step).tolist() == [12, 12, 24, 24, 12, 12]


def test_a_barrier_tells_everybody_in_log_rounds() -> None:
    assert [programs.barrier(n).steps for n in (2, 3, 4, 5, 8, 9)] == [1, 2, 2, 3, 3, 4]


def messages(program: Program) -> list[tuple[int, int, int, list[int]]]:
    """Return (step, source, target, chunks) of every message, in order."""
    rows = zip(program.step.tolist(), program.source.tolist(), program.target.tolist(), strict=True)
    return [
        (*row, program.chunk[program.message == number].tolist()) for number, row in enumerate(rows)
    ]


def test_a_tree_of_five_sends_four_messages() -> None:
    """From member 3: places 0, then 0 and 1, then 0 alone, as place 5 is nobody's."""
    assert messages(programs.broadcast(5, 3)) == [
        (0, 3, 4, [0]), (1, 3, 0, [0]), (1, 4, 1, [0]), (2, 3, 2, [0]),
    ]  # fmt: skip


def test_what_is_sent_directly_is_sent_at_once() -> None:
    assert messages(programs.gather(4, 2)) == [(0, 0, 2, [0]), (0, 1, 2, [1]), (0, 3, 2, [3])]
    assert messages(programs.scatter(4, 2)) == [(0, 2, 0, [0]), (0, 2, 1, [1]), (0, 2, 3, [3])]
    one = programs.message()
    assert (one.n, one.root, one.share.tolist()) == (2, 0, [1.0])
    assert messages(one) == [(0, 0, 1, [0])]


def test_blocks_of_four_and_one() -> None:
    """Ranks 0 to 3 halve by their low bit, then by the other; rank 4 is a block of its own."""
    halving = [
        (0, 0, 1, [2, 3]), (0, 1, 0, [0, 1]), (0, 2, 3, [2, 3]), (0, 3, 2, [0, 1]),
        (1, 0, 2, [1]), (1, 1, 3, [3]), (1, 2, 0, [0]), (1, 3, 1, [2]),
    ]  # fmt: skip
    between = [
        (2, 4, 0, [0]), (2, 4, 1, [2]), (2, 4, 2, [1]), (2, 4, 3, [3]),
        (3, 0, 4, [0]), (3, 1, 4, [2]), (3, 2, 4, [1]), (3, 3, 4, [3]),
    ]  # fmt: skip
    doubling = [
        (4, 0, 2, [0]), (4, 1, 3, [2]), (4, 2, 0, [1]), (4, 3, 1, [3]),
        (5, 0, 1, [0, 1]), (5, 1, 0, [2, 3]), (5, 2, 3, [0, 1]), (5, 3, 2, [2, 3]),
    ]  # fmt: skip
    made = programs.halving_doubling(5)
    assert messages(made) == halving + between + doubling
    assert made.reduce.tolist() == [True] * 12 + [False] * 12
    assert made.share.tolist() == [1 / 4] * 4


@pytest.mark.parametrize("n", [2, 3, 4, 6, 7, 8, 12, 15])
def test_no_step_is_left_out(n: int) -> None:
    found = [programs.bcube_all_reduce(n), programs.halving_doubling(n), programs.barrier(n)]
    found += [programs.broadcast(n, 0), programs.gather(n, 0), programs.scatter(n, 0)]
    for program in found:
        steps = np.unique(program.step)
        assert steps.tolist() == list(range(len(steps))), program.algorithm


def test_a_reduce_of_single_bytes_gathers_each() -> None:
    """Two segments of a byte for each of two; the gather waits for what is in flight."""
    made = programs.reduce(2, 0, 4, 1)
    assert check(made) == []
    assert messages(made) == [
        (0, 0, 1, [2]), (0, 1, 0, [0]), (1, 0, 1, [3]), (1, 1, 0, [1]), (3, 1, 0, [2, 3]),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("total", "n", "element", "size", "per_member"),
    [
        # a (2 n)-th of the buffer in whole elements, at most 1 MiB; whole rounds of members
        (1000, 3, 4, 168, 2),
        (1, 2, 1, 1, 2),
        (0, 2, 4, 4, 2),
        (0, 2, 1, 1, 2),
        (16 * MIB, 8, 4, MIB, 2),
        (16 * MIB + 4, 8, 4, MIB, 3),
        (100 * MIB, 8, 4, MIB, 13),
        # elements of 3 bytes do not fill a MiB: 349,525 of them
        (16 * MIB, 8, 3, MIB - 1, 3),
    ],
)
def test_segments_of_a_reduce(total: int, n: int, element: int, size: int, per_member: int) -> None:
    assert rings.reduce_segments(total, n, element) == rings.Segments(total, size, per_member)


def test_the_chunked_ring_sends_its_pairs_from_the_own_one_back() -> None:
    """allreduce_ring_chunked.h: 2 rank - (i & ~1) + (i & 1), of 2 n chunks; rounds 0 to 2 n - 3."""
    ring = rings.chunked_all_reduce(3, 6 * 1024, 4)
    scatter, gather = ring.phases
    assert (scatter.first, scatter.rounds, scatter.reduces) == (0, 4, True)
    assert (gather.first, gather.rounds, gather.reduces) == (4, 4, False)
    sent = [scatter.index(i).tolist() for i in range(4)] + [
        gather.index(i).tolist() for i in (0, 1)
    ]
    assert sent == [[0, 2, 4], [1, 3, 5], [4, 0, 2], [5, 1, 3], [2, 4, 0], [3, 5, 1]]


def test_rings_rest_for_a_step_between_their_halves() -> None:
    scatter, gather = rings.all_reduce(3, 24, 4).phases
    assert (scatter.first, scatter.rounds) == (0, 4)  # two segments of each of two others
    assert (gather.first, gather.rounds) == (5, 4)
    (only,) = rings.all_gather(3, 24).phases
    assert (only.first, only.rounds) == (0, 4)
    assert [only.index(i).tolist() for i in range(3)] == [[0, 2, 4], [1, 3, 5], [4, 0, 2]]


def test_of_nothing_every_chunk_has_an_equal_share() -> None:
    assert rings.shares(rings.all_gather(3, 0)).tolist() == [1 / 6] * 6


@pytest.mark.parametrize("op", ["all_reduce", "reduce", "reduce_scatter"])
def test_rings_of_too_many_segments_are_refused_before_they_are_made(op: str) -> None:
    work = {"op": op, "bytes": "4000TiB", **({"root": 0} if op == "reduce" else {})}
    scenario = {"cluster": {"preset": "dgx-h100"}, "workload": {"collectives": [work]}}
    with pytest.raises(ScenarioError, match=r"by Gloo's ring: [\d,]+ segments over 8 members need"):
        run({**scenario, "library": {"name": "gloo"}}, limit="8GiB")
