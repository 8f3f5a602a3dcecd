"""A graph on disk: everything comes back, and nothing but a graph is read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.share import examples
from hypothesis import given
from hypothesis import strategies as st

from commsim import run
from commsim.errors import TraceError
from commsim.graph import (
    Device,
    Graph,
    GraphBuilder,
    Phase,
    Tags,
    load_graph,
    pack_graph,
    save_graph,
)
from commsim.ops import COLLECTIVES

ROOTED = ("reduce", "broadcast", "scatter", "gather")


@pytest.mark.parametrize(
    ("column", "told"),
    [
        ({"dep_op": np.zeros(110_000_000, np.int64)}, r"unpacks to 839\S* MiB besides the 64 oper"),
        ({"more": np.zeros(110_000_000, np.int64)}, "besides the 64 operations, too many"),
        ({"kind": np.zeros(70_000_000, np.uint8)}, "operations are not equally long"),
    ],
)
def test_a_small_file_that_unpacks_to_much_is_refused_by_its_headers(
    column: dict[str, Any], told: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "graph.npz"
    graph = run("1f1b").timeline.graph
    np.savez_compressed(path, **{**pack_graph(graph), **column})
    monkeypatch.setattr(np, "load", lambda *_, **__: pytest.fail("it is unpacked"))
    with pytest.raises(TraceError, match=told):
        load_graph(path)


def assert_same(first: Any, second: Any) -> None:
    for field in first.__struct_fields__:
        a, b = getattr(first, field), getattr(second, field)
        if isinstance(a, np.ndarray):
            assert (a.dtype, a.shape) == (b.dtype, b.shape), field
            assert np.array_equal(a, b), field
        elif field in ("collectives", "messages"):
            assert_same(a, b)
        else:
            assert a == b, field


@st.composite
def graphs(draw: st.DrawFn) -> Graph:
    """Any mix of ops on up to three ranks."""
    ranks = draw(st.integers(1, 3))
    build = GraphBuilder()
    group = build.group(
        draw(st.text(max_size=5)), range(ranks), library=draw(st.sampled_from(["", "gloo"]))
    )
    for rank in range(ranks):
        build.lane(rank, multiplicity=draw(st.integers(1, 9)), offset=draw(st.integers(0, 99)))
    for number in range(draw(st.integers(0, 6))):
        lane = draw(st.integers(0, ranks - 1))
        what = draw(st.sampled_from(["compute", "copy", "collective", "message"]))
        after = [(draw(st.integers(0, number - 1)), number)] if number else []
        if what == "compute":
            build.compute(
                lane,
                draw(st.integers(0, 2**62)),
                name=draw(st.text(max_size=6)),
                after=after,
                tags=Tags(
                    draw(st.sampled_from(Phase)), *draw(st.tuples(*[st.integers(-1, 3)] * 4))
                ),
                device=draw(st.sampled_from(Device)),
                flops=draw(st.floats(-1, 1e30)),
                alloc=draw(st.integers(0, 2**50)),
            )
        elif what == "copy" or ranks == 1:
            build.copy(lane, 5, name="copy", size=number)
        elif what == "message":
            build.send(lane, (lane + 1) % ranks, number, group=group, stream="p", tag=number)
        else:
            one_call(draw, build, group, lane, ranks)
    return build.build(draw(st.dictionaries(st.text(max_size=3), st.integers(0, 9), max_size=2)))


def one_call(draw: st.DrawFn, build: GraphBuilder, group: int, lane: int, ranks: int) -> None:
    """Issue a collective on one lane, in a group of its own so that nothing must match it."""
    group = build.group(f"own{group}", range(ranks), axis="dp")
    kind = draw(st.sampled_from(list(COLLECTIVES)))
    build.collective(
        lane,
        group,
        kind,
        draw(st.integers(0, 2**40)),
        stream="c",
        root=0 if kind in ROOTED else -1,
        splits=[1] * ranks if kind == "all_to_all_v" else None,
        dtype=draw(st.sampled_from(["", "bf16"])),
        recorded=draw(st.integers(-1, 50)),
    )


@given(graph=graphs())
@examples(45)
def test_everything_comes_back(graph: Graph, tmp_path_factory: pytest.TempPathFactory) -> None:
    path = tmp_path_factory.getbasetemp() / "graph.npz"
    save_graph(graph, path)
    assert_same(graph, load_graph(path))


def small(path: Path) -> Path:
    build = GraphBuilder()
    world = build.group("world", [0, 1])
    build.lane(0), build.lane(1)
    build.compute(0, 1, name="a")
    build.collective(0, world, "all_reduce", 8, stream="s", after=[0])
    build.send(1, 0, 8, group=world, stream="p")
    save_graph(build.build(), path)
    return path


def ints(*values: int) -> np.ndarray:
    return np.array(values, dtype=np.int64)


@pytest.mark.parametrize(
    "columns",
    [
        {"lane": ints(0, 0)},
        {"lane": ints(0, 0, 7)},
        {"kind": np.array([0, 1, 9], dtype=np.uint8)},
        {"phase": np.array([0, 0, 5], dtype=np.uint8)},
        {"kind": np.array([0, 1, 2], dtype=np.int64)},
        {"duration": np.zeros(3)},
        {"flops": np.array(["x", "y", "z"])},
        {"item": ints(-1, 1, 0)},
        {"item": ints(-1, -1, 0)},
        {"item": ints(-1, 0, 3)},
        {"dep_ptr": ints(0, 1, 0, 1)},
        {"dep_ptr": ints(0, 0, 1)},
        {"dep_ptr": ints(0, 0, 1, 2)},
        {"dep_op": ints(3)},
        {"dep_op": ints(1)},
        {"dep_delay": ints()},
        {"window": ints(-1, -1)},
        {"window": ints(-1, -1, 0, 3).reshape(2, 2)},
        {"multiplicity": ints(1, 0)},
        {"lane_rank": ints(0, 0)},
        {"c_group": ints(1)},
        {"c_size": ints()},
        {"m_send_op": ints(3)},
        {"m_target": None},
        {"header": None},
        {"header": np.frombuffer(b'{"format": "other"}', dtype=np.uint8)},
    ],
    ids=lambda columns: "-".join(columns),
)
def test_columns_that_do_not_fit_are_refused(columns: dict[str, Any], tmp_path: Path) -> None:
    path = small(tmp_path / "graph.npz")
    with np.load(path) as file:
        arrays = {name: file[name] for name in file.files} | columns
    np.savez(path, **{name: values for name, values in arrays.items() if values is not None})
    with pytest.raises(TraceError, match=r"graph\.npz: not a graph that commsim saved"):
        load_graph(path)


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04", b"ops: 3\n", b"\x93NUMPY\x01\x00"])
def test_a_foreign_file_is_refused_by_name(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "foreign.npz"
    path.write_bytes(content)
    with pytest.raises(TraceError, match=r"foreign\.npz: not a graph"):
        load_graph(path)


def test_a_missing_file_is_said_to_be_missing(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match="No such file"):
        load_graph(tmp_path / "nowhere.npz")
