"""PARAM's comms traces as they are written: bytes in and out, the world, splits."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from commsim.graph import GraphBuilder
from commsim.traces.formats.param.writer import _element, _sides, write_param


@pytest.mark.parametrize(
    ("kind", "sides"),
    [
        ("all_gather", (4, 12)), ("gather", (4, 12)), ("reduce_scatter", (12, 4)),
        ("scatter", (12, 4)), ("all_reduce", (12, 12)), ("broadcast", (12, 12)),
        ("all_to_all", (12, 12)),
    ],
)  # fmt: skip
def test_what_goes_in_and_comes_out_of_one_of_three_ranks(
    kind: str, sides: tuple[int, int]
) -> None:
    assert _sides(kind, 12, 3) == sides


def test_types_have_torchs_names_and_bytes_their_own() -> None:
    assert [_element(name) for name in ("float32", "bfloat16", "int64", "", "float4")] == [
        ("Float", 4), ("BFloat16", 2), ("Long", 8), ("Byte", 1), ("Byte", 1),
    ]  # fmt: skip


def test_groups_calls_and_messages_of_a_rank(tmp_path: Path) -> None:
    """Rank 5 is only named in a group: the world has six ranks."""
    build = GraphBuilder()
    lanes = [build.lane(rank) for rank in (0, 2)]
    far, near = build.group("far", (2, 5)), build.group("near", (0, 2))
    splits = ((0, 8), (4, 0))
    for rank, lane, own in zip((0, 2), lanes, splits, strict=True):
        build.compute(lane, 10, name="w", stream="s")
        build.collective(
            lane, near, "all_to_all_v", sum(own), stream="s", dtype="float32", splits=own
        )
        build.collective(lane, near, "broadcast", 64, stream="s", root=2)
        post = build.send if rank == 0 else build.recv
        post(lane, 2 - rank, 16, group=near, stream="s")
    paths, notes = write_param(build.build(), tmp_path / "x.json")
    assert [path.name for path in paths] == ["x.rank0.json", "x.rank2.json"]
    assert len(notes) == 1
    first, second = (json.loads(path.read_text()) for path in paths)
    shape: dict[str, Any] = {"comms": "init", "req": -1, "world_size": 2}
    assert first[0] == {**shape, "pg_id": near, "global_ranks": [0, 2]}
    assert second[:2] == sorted(
        [
            {**shape, "pg_id": far, "global_ranks": [2, 5]},
            {**shape, "pg_id": near, "global_ranks": [0, 2]},
        ],
        key=lambda row: row["pg_id"],
    )
    uneven, rooted, message = first[1:]
    assert (uneven["in_msg_size"], uneven["out_msg_size"], uneven["dtype"]) == (2, 1, "Float")
    assert (uneven["in_split"], uneven["out_split"]) == ([0, 2], [0, 1])
    assert (rooted["root"], rooted["in_msg_size"], rooted["world_size"]) == (2, 64, 2)
    assert [row["req"] for row in first[1:]] == [0, 1, 2]
    assert (message["comms"], message["src_rank"], message["dst_rank"]) == ("send", 0, 2)
    assert (message["in_msg_size"], message["out_msg_size"], message["world_size"]) == (16, 16, 6)
    assert second[2]["in_split"] == [1, 0]
    assert (second[-1]["comms"], second[-1]["world_size"]) == ("recv", 6)
