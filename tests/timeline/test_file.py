"""A timeline on disk: everything comes back, and nothing but a timeline is read."""

from __future__ import annotations

import contextlib
import pickle
import zipfile
from collections.abc import Callable
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from commsim.errors import TraceError
from commsim.graph import GraphBuilder, Phase, Tags, save_graph
from commsim.timeline import (
    Cause,
    LinkUse,
    Memory,
    Timeline,
    load_timeline,
    save_timeline,
)


def ints(*values: int) -> np.ndarray:
    return np.array(values, dtype=np.int64)


def small_timeline() -> Timeline:
    """Two ranks that compute and all-reduce over one link."""
    build = GraphBuilder()
    world = build.group("world", [0, 1], library="ideal", axis="dp")
    for rank in range(2):
        lane = build.lane(rank, multiplicity=rank + 1, offset=rank)
        work = build.compute(lane, 5, name="F0", tags=Tags(Phase.FORWARD, 0, 0, 0, 0), alloc=7)
        build.collective(lane, world, "all_reduce", 64, stream="dp", after=[(work, 3)])
        build.window(lane, work, work + 1)
    return Timeline(
        graph=build.build({"model": "tiny", "sizes": [1, 2]}),
        op=ints(0, 1, 2, 3),
        arrive=ints(0, 8, 1, 9),
        start=ints(0, 9, 1, 9),
        end=ints(5, 19, 6, 19),
        cause=ints(-1, 3, -1, 2),
        cause_kind=np.array([0, Cause.RENDEZVOUS, 0, Cause.DEPENDENCY], dtype=np.uint8),
        links=LinkUse(
            names=("a → b", "b → a"),
            kinds=("nvlink", "nvlink"),
            bandwidth=np.array([1e9, 1e9 * (0.1 + 0.2)]),
            load_ptr=ints(0, 2),
            load_link=ints(0, 1),
            load_bytes=np.array([64.0, 1 / 3]),
            flow=ints(0),
            start=ints(9),
            end=ints(19),
            rate=np.array([0.1]),
            op=ints(1),
        ),
        memory=Memory(ints(0, 1), ints(0, 1), ints(7, 7)),
        source="measured",
        notes=("clocks aligned to 1 us", "naïve"),
        choices=MappingProxyType({0: "ring, 8 channels"}),
    )


def assert_same(first: Any, second: Any) -> None:
    """Compare two structs of arrays and plain values, down to the types of the arrays."""
    for field in first.__struct_fields__:
        a, b = getattr(first, field), getattr(second, field)
        if isinstance(a, np.ndarray):
            assert a.dtype == b.dtype, field
            assert np.array_equal(a, b), field
        elif hasattr(a, "__struct_fields__"):
            assert_same(a, b)
        else:
            assert a == b, field


def test_everything_comes_back(tmp_path: Path) -> None:
    path = tmp_path / "run.npz"
    save_timeline(small_timeline(), path)
    assert_same(small_timeline(), load_timeline(path))


def test_saving_twice_gives_the_same_columns_and_leaves_nothing_else(tmp_path: Path) -> None:
    save_timeline(small_timeline(), tmp_path / "run.npz")
    save_timeline(load_timeline(tmp_path / "run.npz"), tmp_path / "run.npz")
    assert_same(small_timeline(), load_timeline(tmp_path / "run.npz"))
    assert [path.name for path in tmp_path.iterdir()] == ["run.npz"]


def test_a_timeline_without_links_or_spans_comes_back(tmp_path: Path) -> None:
    build = GraphBuilder()
    none = ints()
    empty = Timeline(
        graph=build.build(),
        op=none, arrive=none, start=none, end=none, cause=none,
        cause_kind=np.zeros(0, dtype=np.uint8),
        links=LinkUse.nothing(),
        memory=Memory(none, none, none),
    )  # fmt: skip
    save_timeline(empty, tmp_path / "empty.npz")
    assert_same(empty, load_timeline(tmp_path / "empty.npz"))


def test_an_existing_file_survives_a_failed_save(tmp_path: Path) -> None:
    path = tmp_path / "run.npz"
    save_timeline(small_timeline(), path)
    before = path.read_bytes()
    nothing_to_keep: Any = object()
    broken = replace(small_timeline(), source=nothing_to_keep)
    with pytest.raises(TypeError):
        save_timeline(broken, path)
    assert path.read_bytes() == before
    assert len(list(tmp_path.iterdir())) == 1


def write_text(path: Path) -> None:
    path.write_text("not a zip file")


def write_nothing(path: Path) -> None:
    path.write_bytes(b"")


def write_graph(path: Path) -> None:
    save_graph(small_timeline().graph, path)


def write_pickle(path: Path) -> None:
    np.savez(path, header=np.array([{"format": "x"}], dtype=object))


def write_raw_pickle(path: Path) -> None:
    path.write_bytes(pickle.dumps({"format": "commsim-timeline-1"}))


def write_other_zip(path: Path) -> None:
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("header.npy", b"\x93NUMPY\x01\x00garbage")
        archive.writestr("readme.txt", b"hello")


def write_other_arrays(path: Path) -> None:
    np.savez(path, weights=np.zeros(3))


@pytest.mark.parametrize(
    "write",
    [
        write_text,
        write_nothing,
        write_graph,
        write_pickle,
        write_raw_pickle,
        write_other_zip,
        write_other_arrays,
    ],
)
def test_a_foreign_file_is_refused_by_name(write: Callable[[Path], None], tmp_path: Path) -> None:
    path = tmp_path / "foreign.npz"
    write(path)
    with pytest.raises(TraceError, match=r"foreign\.npz: not a timeline that commsim saved"):
        load_timeline(path)


def test_a_missing_file_is_said_to_be_missing(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match="No such file"):
        load_timeline(tmp_path / "nowhere.npz")


def test_a_folder_is_not_a_timeline(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match="cannot be read"):
        load_timeline(tmp_path)


def damaged(path: Path, **columns: Any) -> Path:
    """Save the small timeline with some columns replaced (None: left out)."""
    save_timeline(small_timeline(), path)
    with np.load(path) as file:
        arrays = {name: file[name] for name in file.files} | columns
    np.savez(path, **{name: values for name, values in arrays.items() if values is not None})
    return path


@pytest.mark.parametrize(
    "columns",
    [
        {"span_op": ints(0, 1, 2, 4)},
        {"span_op": ints(0, 1, 2)},
        {"span_arrive": None},
        {"span_arrive": ints(0, 8, 1, 10)},
        {"span_end": ints(5, 19, 6, 8)},
        {"span_end": np.array([5.0, 19.0, 6.0, 19.0])},
        {"span_start": ints(0, 9, 1, 9).reshape(2, 2)},
        {"span_cause": ints(-1, 4, -1, 2)},
        {"span_cause": ints(-2, 3, -1, 2)},
        {"span_cause_kind": np.array([0, 5, 0, 2], dtype=np.uint8)},
        {"span_end": ints(5, 19, 6, 2**63 - 1)},
        {"span_arrive": ints(0, 8, -2, 9)},
        {"span_op": ints(0, 1, 2, 2)},
        {"memory_time": ints(0, -5)},
        {"memory_held": ints(7, 2**63 - 1)},
        {"links_end": ints(2**63 - 1)},
        {"links_load_ptr": ints(0, 1)},
        {"links_load_ptr": ints()},
        {"links_load_link": ints(0, 2)},
        {"links_load_bytes": np.zeros(1)},
        {"links_flow": ints(1)},
        {"links_op": ints(4)},
        {"links_op": ints(0, 1)},
        {"links_bandwidth": np.zeros(3)},
        {"links_like": ints(0, 2)},
        {"links_like": ints(0)},
        {"memory_lane": ints(0, 2)},
        {"memory_held": ints(1)},
        {"graph_lane": ints(0, 0, 1, 2)},
        {"graph_header": None},
        {"header": np.frombuffer(b'{"format": "commsim-timeline-2"}', dtype=np.uint8)},
        {"header": np.frombuffer(b"[]", dtype=np.uint8)},
        {"header": np.frombuffer(b"\xff\xfe", dtype=np.uint8)},
    ],
    ids=lambda columns: "-".join(columns),
)
def test_columns_that_do_not_fit_are_refused(columns: dict[str, Any], tmp_path: Path) -> None:
    path = damaged(tmp_path / "damaged.npz", **columns)
    with pytest.raises(TraceError, match="not a timeline that commsim saved"):
        load_timeline(path)


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("saved") / "run.npz"
    save_timeline(small_timeline(), path)
    return path


@given(data=st.data())
def test_a_cut_or_flipped_file_ends_in_a_trace_error_or_is_read(
    saved: Path, data: st.DataObject
) -> None:
    original = saved.read_bytes()
    at = data.draw(st.integers(0, len(original) - 1))
    hurt = original[:at]
    if data.draw(st.booleans()):
        hurt += bytes([original[at] ^ data.draw(st.integers(1, 255))]) + original[at + 1 :]
    copy = saved.with_name("hurt.npz")
    copy.write_bytes(hurt)
    with contextlib.suppress(TraceError):
        assert_same(load_timeline(copy).links, small_timeline().links)
