"""GOAL as LogGOPSim has it: the grammar of its txt2bin.re, and what we write run by its rules."""

from __future__ import annotations

import heapq
import re
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

from commsim.errors import TraceError
from commsim.export import convert
from commsim.graph import GraphBuilder, save_graph
from commsim.traces import import_graph

US = 1_000_000
# The states of txt2bin.re as one expression per kind of line.
CALC = re.compile(r"(?:(?P<label>[A-Za-z]\w*)\s*:\s*)?calc (?P<ns>\d+)(?: cpu (?P<cpu>\d+))?")
SEND = re.compile(
    r"(?:(?P<label>[A-Za-z]\w*)\s*:\s*)?(?P<way>send|recv) (?P<size>\d+)b (?:to|from) (?P<peer>\d+)"
    r"(?: tag (?P<tag>\d+))?(?: cpu (?P<cpu>\d+))?(?: nic \d+)?"
)
TIE = re.compile(r"([A-Za-z]\w*) i?requires ([A-Za-z]\w*)")


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Two ranks: an all-reduce of 30 us beside 100 us of work, then work that needs both."""
    build = GraphBuilder()
    world = build.group("world", range(2), library="nccl")
    for rank in range(2):
        lane = build.lane(rank)
        first = build.compute(lane, 10 * US, name="F")
        beside = build.compute(lane, 30 * US, name="cast", stream="copies", after=[first])
        reduce = build.collective(
            lane, world, "all_reduce", 4096, stream="nccl", after=[beside], recorded=US
        )
        work = build.compute(lane, 100 * US, name="B")
        build.compute(lane, 5 * US, name="step", after=[reduce, work])
    folder = tmp_path_factory.mktemp("goal")
    save_graph(build.build(), folder / "x.npz")
    convert(folder / "x.npz", folder / "x.goal")
    return (folder / "x.goal").read_text()


def test_every_line_is_of_the_grammar_and_labels_come_first(written: str) -> None:
    assert written.startswith("num_ranks 2\n")
    labels: set[str] = set()
    for line in filter(None, written.splitlines()[1:]):
        if re.fullmatch(r"rank \d+ \{", line):
            labels = set()
        elif tie := TIE.fullmatch(line):
            assert set(tie.groups()) <= labels  # txt2bin gives up at a label that it has not read
        elif line != "}":
            found = CALC.fullmatch(line) or SEND.fullmatch(line)
            assert found is not None, line
            assert int(found["cpu"]) < 256
            labels.add(found["label"])


def run(text: str) -> int:
    """Run GOAL by LogGOPSim's rules with L = o = g = G = 0; return the end in ns.

    A cpu does one `calc` at a time, in the order in which they become ready.
    """
    ops: dict[tuple[int, str], dict[str, Any]] = {}
    needs = defaultdict(list)
    rank = -1
    for line in filter(None, text.splitlines()):
        if line.startswith("rank"):
            rank = int(line.split()[1])
        elif tie := TIE.fullmatch(line):
            needs[rank, tie[1]].append((rank, tie[2]))
        elif found := CALC.fullmatch(line) or SEND.fullmatch(line):
            ops[rank, found["label"]] = found.groupdict() | {"rank": rank}
    sends = {
        (op["rank"], int(op["peer"]), op["tag"]): at
        for at, op in ops.items()
        if op.get("way") == "send"
    }
    for at, op in ops.items():
        if op.get("way") == "recv":
            needs[at].append(sends[int(op["peer"]), op["rank"], op["tag"]])
    after = defaultdict(list)
    waiting = {at: len(needs[at]) for at in ops}
    for at, of in needs.items():
        for need in of:
            after[need].append(at)
    ready = [(0, number, at) for number, at in enumerate(ops) if not waiting[at]]
    heapq.heapify(ready)
    free: dict[tuple[int, str], int] = defaultdict(int)
    ends = {}
    begun = dict.fromkeys(ops, 0)
    numbers = {at: number for number, at in enumerate(ops)}
    while ready:
        time, _, at = heapq.heappop(ready)
        op = ops[at]
        length = int(op.get("ns") or 0)
        if length:
            cpu = (op["rank"], op["cpu"] or "0")
            time = max(time, free[cpu])
            free[cpu] = time + length
        ends[at] = time + length
        for later in after[at]:
            begun[later] = max(begun[later], ends[at])
            waiting[later] -= 1
            if not waiting[later]:
                heapq.heappush(ready, (begun[later], numbers[later], later))
    assert len(ends) == len(ops)
    return max(ends.values())


def test_streams_overlap_as_they_do_in_the_graph(written: str) -> None:
    """10 us, then 30 beside 100, then 5; on one cpu it would be 145."""
    assert run(written) == 115_000
    assert run(re.sub(r" cpu \d+", "", written)) == 145_000


def test_labels_may_be_left_out_and_comments_have_lines(tmp_path: Path) -> None:
    path = tmp_path / "x.goal"
    path.write_text(
        "num_ranks 2\n/* two\nlines */\nrank 0 {\ncalc 5\nsend 8b to 1\n}\n"
        "rank 1 {\nl: recv 8b from 0\ncalc 7 cpu 1 // alone\n}\n"
    )
    graph = import_graph(path).graph
    assert graph.messages.size.tolist() == [8]
    assert sorted(graph.duration[graph.duration > 0].tolist()) == [5_000, 7_000]
    path.write_text(path.read_text().replace("calc 7", "calc x"))
    with pytest.raises(TraceError, match="line 10"):
        import_graph(path)


def test_any_source_takes_what_no_other_receive_names(tmp_path: Path) -> None:
    path = tmp_path / "x.goal"
    path.write_text(
        "num_ranks 3\nrank 0 {\na: recv 8b from -1 tag 5\nb: recv 4b from 2 tag -1\n}\n"
        "rank 1 {\nsend 8b to 0 tag 5\n}\nrank 2 {\nsend 4b to 0 tag 9\n}\n"
    )
    messages = import_graph(path).graph.messages
    found = zip(messages.source.tolist(), messages.size.tolist(), strict=True)
    assert sorted(found) == [(1, 8), (2, 4)]
