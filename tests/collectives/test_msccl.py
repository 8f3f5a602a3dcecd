"""MSCCL files: right ones become programs, wrong ones are told where, hostile ones refused."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from helpers.paths import TESTS

from commsim.collectives import check, dependencies, load_msccl
from commsim.collectives.checker import final_state
from commsim.errors import ScenarioError

FILES = TESTS / "data" / "msccl"
RING = FILES / "ring_all_reduce.xml"


def changed(tmp_path: Path, *swaps: tuple[str, str], source: Path = RING) -> Path:
    """Write a file with some text replaced, once each."""
    text = source.read_text()
    for old, new in swaps:
        assert old in text, old
        text = text.replace(old, new, 1)
    path = tmp_path / "changed.xml"
    path.write_text(text)
    return path


def refusal(path: Path) -> str:
    with pytest.raises(ScenarioError) as caught:
        load_msccl(path)
    return str(caught.value).removeprefix(f"{path}: ")


def test_a_ring_over_two_channels() -> None:
    custom = load_msccl(RING)
    p = custom.program
    assert (p.op, p.n, p.algorithm, custom.channels) == ("all_reduce", 4, "ring_two_channels", 2)
    assert check(p) == []
    assert p.bytes_sent == pytest.approx(np.full(4, 2 * 3 / 4))
    between = p.source != p.target
    assert between.sum() == 2 * 4 * 6
    assert p.message_share[between] == pytest.approx(np.full(48, 1 / 8))


def test_a_ring_waits_as_the_catalogues_ring_does() -> None:
    """Each message but the first of a rank waits for exactly the one before from its left."""
    p = load_msccl(RING).program
    ptr, needs = dependencies(p)
    between = np.flatnonzero(p.source != p.target)
    first = 0
    for m in between.tolist():
        before = needs[ptr[m] : ptr[m + 1]].tolist()
        first += not before
        for b in before:
            assert p.target[b] == p.source[m]
            assert (p.target[b] - p.source[b]) % 4 == 1
        assert len(before) <= 1
    assert first == 8


def test_all_pairs_with_scratch_and_local_sums() -> None:
    custom = load_msccl(FILES / "all_pairs_all_reduce.xml")
    p = custom.program
    assert (custom.least, custom.most, custom.protocol) == (8, 262144, "LL")
    assert p.bytes_sent == pytest.approx(np.full(4, 2 * 3 / 4))
    assert p.layout is not None
    assert p.layout.names == (
        "buffer chunk 0", "buffer chunk 1", "buffer chunk 2", "buffer chunk 3",
        "scratch chunk 0", "scratch chunk 1", "scratch chunk 2",
    )  # fmt: skip
    assert (final_state(p)[:, :4] == 1).all()
    ptr, needs = dependencies(p)
    back = [m for m in range(len(p)) if p.source[m] != p.target[m] and ptr[m + 1] > ptr[m]]
    assert len(back) == 12  # handing back waits for what all three others sent
    assert all(set(p.source[needs[ptr[m]:ptr[m + 1]]].tolist()) == {0, 1, 2, 3} - {p.source[m]}
               for m in back)  # fmt: skip


def test_out_of_place_the_output_must_be_written_too(tmp_path: Path) -> None:
    good = FILES / "ring_all_gather.xml"
    p = load_msccl(good).program
    assert p.bytes_sent == pytest.approx(np.full(3, 2 / 3))
    lazy = changed(tmp_path, ('type="cpy"', 'type="nop"'), source=good)
    assert refusal(lazy) == (
        "not a correct all_gather. rank 0, output chunk 0: must end with chunk 0, but it"
        " holds nothing."
    )


def test_the_first_mismatch_is_named() -> None:
    assert refusal(FILES / "broken_all_reduce.xml").startswith(
        "not a correct all_reduce. rank 0, buffer chunk 1: the contribution of rank 2 is missing"
    )


def test_the_wrong_chunk_is_named(tmp_path: Path) -> None:
    path = changed(
        tmp_path,
        ('type="rcs" srcbuf="o" srcoff="0" dstbuf="o" dstoff="0"',
         'type="rcs" srcbuf="o" srcoff="0" dstbuf="o" dstoff="1"'),
        source=FILES / "ring_all_gather.xml",
    )  # fmt: skip
    text = refusal(path)
    assert "rank 1, output chunk 0: must end with chunk 0, but it holds nothing" in text


def test_a_sum_of_different_chunks_is_named(tmp_path: Path) -> None:
    path = changed(
        tmp_path,
        ('type="rrcs" srcbuf="i" srcoff="1" dstbuf="i" dstoff="1"',
         'type="rrcs" srcbuf="i" srcoff="2" dstbuf="i" dstoff="1"'),
    )  # fmt: skip
    assert "rank 0 adds chunk 1 to chunk 2" in refusal(path)


def test_what_is_overwritten_while_in_flight_arrives_as_it_was_sent(tmp_path: Path) -> None:
    """A rank sends its chunk and overwrites it before the other takes it from the buffer."""
    path = tmp_path / "swap.xml"
    path.write_text(
        '<algo name="swap" nchunksperloop="4" ngpus="2" coll="alltoall" inplace="1">'
        + "".join(
            f'<gpu id="{g}" s_chunks="0"><tb id="0" send="{1 - g}" recv="{1 - g}" chan="0">'
            f'<step s="0" type="s" srcbuf="i" srcoff="{2 - 2 * g}" dstbuf="i" dstoff="0" cnt="2"/>'
            f'<step s="1" type="r" srcbuf="i" srcoff="0" dstbuf="i" dstoff="{2 - 2 * g}" cnt="2"/>'
            "</tb></gpu>"
            for g in range(2)
        )
        + "</algo>"
    )
    p = load_msccl(path).program
    assert check(p) == []
    assert p.bytes_sent == pytest.approx([0.5, 0.5])


def step(s: int, kind: str, source: str, target: str, *, after: tuple[int, int] = (-1, -1)) -> str:
    """Write a step; places are a buffer's letter and an offset."""
    return (
        f'<step s="{s}" type="{kind}" srcbuf="{source[0]}" srcoff="{source[1:]}" cnt="1"'
        f' dstbuf="{target[0]}" dstoff="{target[1:]}" depid="{after[0]}" deps="{after[1]}"/>'
    )


def block(number: int, send: int, receive: int, *steps: str, channel: int = 0) -> str:
    inside = "".join(steps)
    return f'<tb id="{number}" send="{send}" recv="{receive}" chan="{channel}">{inside}</tb>'


def algorithm(path: Path, coll: str, chunks: int, *gpus: str, scratch: int = 0) -> Path:
    """Write a file that works in place."""
    inside = "".join(
        f'<gpu id="{i}" s_chunks="{scratch}">{blocks}</gpu>' for i, blocks in enumerate(gpus)
    )
    path.write_text(
        f'<algo nchunksperloop="{chunks}" ngpus="{len(gpus)}" coll="{coll}" inplace="1">'
        f"{inside}</algo>"
    )
    return path


def test_a_chunk_may_be_overwritten_long_before_it_is_received(tmp_path: Path) -> None:
    """GPU 0 sends chunk 0, overwrites it, and restores it only after GPU 1 has taken it."""
    path = algorithm(
        tmp_path / "late.xml", "broadcast", 2,
        block(0, 1, -1, step(0, "cpy", "i0", "s0"), step(1, "s", "i0", "i0"),
              step(2, "cpy", "i1", "i0"))
        + block(1, 1, -1, step(0, "s", "i1", "i1", after=(0, 2)), channel=1)
        + block(2, -1, 1, step(0, "r", "s1", "s1", after=(0, 2)), step(1, "cpy", "s0", "i0"),
                channel=2),
        block(0, -1, 0, step(0, "r", "i0", "i0", after=(1, 0)))
        + block(1, -1, 0, step(0, "r", "i1", "i1"), channel=1)
        + block(2, 0, -1, step(0, "s", "i1", "s1", after=(0, 0)), channel=2),
        scratch=2,
    )  # fmt: skip
    assert check(load_msccl(path).program) == []


def test_a_wait_is_never_forgotten_for_an_earlier_one(tmp_path: Path) -> None:
    """GPU 1 hands on chunk 1 first, then chunk 0, for which it has waited all along."""
    path = algorithm(
        tmp_path / "chain.xml", "broadcast", 2,
        block(0, 1, -1, step(0, "s", "i0", "i0"), step(1, "s", "i1", "i1")),
        block(0, -1, 0, step(0, "r", "i0", "i0"), step(1, "r", "i1", "i1"))
        + block(1, 2, -1, step(0, "s", "i1", "i1", after=(0, 1)),
                step(1, "s", "i0", "i0", after=(0, 0))),
        block(0, -1, 1, step(0, "r", "i1", "i1"), step(1, "r", "i0", "i0")),
    )  # fmt: skip
    p = load_msccl(path).program
    ptr, needs = dependencies(p)
    first, second = np.flatnonzero(p.source == 0).tolist()
    assert first < second
    for onward in np.flatnonzero(p.source == 1).tolist():
        assert needs[ptr[onward] : ptr[onward + 1]].tolist() == [second]


@pytest.mark.parametrize("end", ["o0", "own"])
def test_a_reduce_scatter_in_place_ends_in_the_ranks_own_part(tmp_path: Path, end: str) -> None:
    """The output is the rank's part of the input, by either name."""
    gpus = [
        block(0, 1 - g, 1 - g, step(0, "s", f"i{1 - g}", f"i{1 - g}"),
              step(1, "rrc", f"i{g}", f"i{g}" if end == "own" else end))
        for g in range(2)
    ]  # fmt: skip
    p = load_msccl(algorithm(tmp_path / "rs.xml", "reducescatter", 2, *gpus)).program
    assert check(p) == []
    assert p.bytes_sent == pytest.approx([0.5, 0.5])


@pytest.mark.parametrize("coll", ["reduce", "gather", "scatter"])
def test_ops_with_a_root(tmp_path: Path, coll: str) -> None:
    """GPU 1 and GPU 0 as root; what does not belong to the root's side is not promised."""
    kind = "rrc" if coll == "reduce" else "r"
    place = {"reduce": ("i0", "i0"), "gather": ("i0", "o1"), "scatter": ("i1", "o0")}[coll]
    giving, taking = (0, 1) if coll == "scatter" else (1, 0)
    sends = block(0, taking, -1, step(0, "s", place[0], place[0]))
    source = place[0] if coll == "reduce" else place[1]
    takes = block(0, -1, giving, step(0, kind, source, place[1]))
    gpus = [sends, takes] if giving == 0 else [takes, sends]
    chunks = 1 if coll == "reduce" else 2
    p = load_msccl(algorithm(tmp_path / f"{coll}.xml", coll, chunks, *gpus)).program
    assert (p.op, p.root) == (coll, 0)
    assert check(p) == []


def test_a_circle_is_a_deadlock(tmp_path: Path) -> None:
    text = RING.read_text().replace('type="s" ', 'type="rcs" ')
    path = tmp_path / "circle.xml"
    path.write_text(text)
    assert "receives" in refusal(path)  # more receives than sends
    waits = changed(
        tmp_path,
        ('type="s" srcbuf="i" srcoff="0" dstbuf="i" dstoff="0" cnt="1" depid="-1" deps="-1"',
         'type="s" srcbuf="i" srcoff="0" dstbuf="i" dstoff="0" cnt="1" depid="0" deps="6"'),
    )  # fmt: skip
    assert refusal(waits).startswith("steps wait for each other in a circle: gpu 0, tb 0, step 0;")


def test_a_race_is_found(tmp_path: Path) -> None:
    """Without its wait the sum may start before the last part has come."""
    path = changed(
        tmp_path,
        ('dstoff="0" cnt="1" depid="3" deps="1"', 'dstoff="0" cnt="1" depid="-1" deps="-1"'),
        source=FILES / "all_pairs_all_reduce.xml",
    )  # fmt: skip
    assert refusal(path).endswith(
        "gpu 0, tb 0, step 4 and gpu 0, tb 3, step 1 both touch scratch chunk 2, one of them"
        " writing it, in no fixed order. Let one wait for the other (depid, deps)."
    )


@pytest.mark.parametrize(
    ("swap", "message"),
    [
        (('coll="allreduce"', 'coll="allredce"'), "Did you mean 'allreduce'"),
        (('coll="allreduce"', 'coll="custom"'), "is not supported"),
        (('ngpus="4"', 'ngpus="5"'), "ngpus=5, but gpu 4 is missing"),
        (('ngpus="4"', 'ngpus="four"'), "ngpus='four' is not a whole number"),
        (('ngpus="4"', 'ngpus="9999999"'), "not between 1 and 1024"),
        (('ngpus="4"', ""), "attribute 'ngpus' is missing"),
        (('<gpu id="1"', '<gpu id="0"'), "two <gpu> with id=0"),
        (('send="1" recv="3"', 'send="0" recv="3"'), "gpu 0, tb 0: sends to or receives from"),
        (('send="1" recv="3"', 'send="-1" recv="3"'), "gpu 0, tb 0, step 0: 's', but the block"),
        (('type="rrs"', 'type="rrx"'), "gpu 0, tb 0, step 1: type='rrx' is none of"),
        (('srcbuf="i"', 'srcbuf="q"'), "srcbuf='q' is none of i, o, s"),
        (('srcoff="0"', 'srcoff="8"'), "gpu 0, tb 0, step 0: chunks 8 to 8 of the input buffer"),
        (('cnt="1"', 'cnt="2"'), "sends 2 chunks, gpu 1, tb 0, step 1 receives 1 of them"),
        (('depid="-1" deps="-1"', 'depid="7" deps="1"'), "waits for tb 7, step 1"),
        (('<tb id="1"', '<tb id="0"'), "gpu 0: there are two <tb> with id=0"),
        (('chan="1"', 'chan="0"'), "another thread block already"),
        (("</algo>", ""), "not XML"),
        (("<algo ", "<algorithm "), "not XML"),
        (("<tb ", "<td/><tb "), "<td> where <tb> belongs"),
    ],
)
def test_what_is_wrong_in_a_file_is_said(
    swap: tuple[str, str], message: str, tmp_path: Path
) -> None:
    assert message in refusal(changed(tmp_path, swap))


def test_hostile_xml_is_refused(tmp_path: Path) -> None:
    bomb = tmp_path / "bomb.xml"
    bomb.write_text(
        '<!DOCTYPE algo [<!ENTITY a "aaaaaaaaaa"><!ENTITY b "&a;&a;&a;&a;&a;&a;&a;&a;&a;&a;">]>'
        '<algo name="&b;"/>'
    )
    assert refusal(bomb) == "a DOCTYPE is not allowed in an MSCCL file."
    outside = tmp_path / "outside.xml"
    outside.write_bytes('<!DOCTYPE a SYSTEM "file:///etc/hosts"><a/>'.encode("utf-16"))
    assert "DOCTYPE" in refusal(outside)
    nothing = tmp_path / "nothing.xml"
    nothing.write_bytes(b"\x00\xff\xfe")
    assert "not XML" in refusal(nothing)
    assert "no such file" in refusal(tmp_path / "absent.xml")


def test_too_many_chunks_to_prove_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "large.xml"
    gpus = "".join(f'<gpu id="{g}" s_chunks="60000"></gpu>' for g in range(64))
    path.write_text(
        f'<algo nchunksperloop="64" ngpus="64" coll="allreduce" inplace="1">{gpus}</algo>'
    )
    assert "too many to prove it right" in refusal(path)
