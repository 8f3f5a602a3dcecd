"""Perfetto's protobuf, parsed back with the same descriptors: tracks, slices, counters, arrows."""

from __future__ import annotations

import sys
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.star import Star

from commsim.engine import simulate
from commsim.errors import ScenarioError
from commsim.export import write_perfetto
from commsim.export.perfetto_schema import perfetto_messages
from commsim.export.rows import lay_out
from commsim.graph import GraphBuilder
from commsim.libraries import Ideal
from commsim.study.run import run
from commsim.timeline import Timeline

pytest.importorskip("google.protobuf")
MS = 10**9
BEGIN, END, COUNTER = 1, 2, 4


@cache
def scenario(name: str) -> Timeline:
    return run(name, ("engine.fold=off",)).timeline


def packets(timeline: Timeline, folder: Path) -> list[Any]:
    path = folder / "trace.pftrace"
    write_perfetto(timeline, path)
    return list(perfetto_messages().trace.FromString(path.read_bytes()).packet)


def tracks(found: list[Any]) -> dict[int, Any]:
    return {
        p.track_descriptor.uuid: p.track_descriptor for p in found if p.HasField("track_descriptor")
    }


def events(found: list[Any], *kinds: int) -> list[Any]:
    return [p for p in found if p.HasField("track_event") and p.track_event.type in kinds]


def names(found: list[Any]) -> tuple[dict[int, str], dict[int, str], dict[int, str]]:
    told = found[0].interned_data
    tables = (told.event_names, told.event_categories, told.debug_annotation_names)
    first, second, third = ({entry.iid: entry.name for entry in table} for table in tables)
    return first, second, third


def test_a_process_per_rank_in_order_and_a_track_per_stream_below(tmp_path: Path) -> None:
    found = tracks(packets(scenario("ddp"), tmp_path))
    assert found[0].process_ordering == 1  # else the ranks below count for nothing
    processes = {uuid: track for uuid, track in found.items() if track.HasField("process")}
    ranked = sorted(processes.values(), key=lambda track: track.sibling_order_rank)
    assert [track.process.process_name for track in ranked] == [f"rank {r}" for r in range(4)]
    assert [track.process.pid for track in ranked] == [1, 2, 3, 4]
    timeline = scenario("ddp")
    streams = [t for t in found.values() if t.parent_uuid in processes and t.name != "memory"]
    used = {
        (int(a), int(b))
        for a, b in zip(timeline.lane, timeline.graph.stream[timeline.op], strict=True)
    }
    assert len(streams) == len(used)
    assert {t.name for t in streams} == {timeline.graph.streams[s] for _, s in used}


def test_every_span_is_a_slice_at_its_time(tmp_path: Path) -> None:
    timeline = scenario("p2p-blocking")
    found = packets(timeline, tmp_path)
    event_names, categories, arguments = names(found)
    begun: dict[int, Any] = {}
    seen = {}
    for packet in events(found, BEGIN, END):
        event = packet.track_event
        if event.type == BEGIN:
            assert event.track_uuid not in begun, "slices of a track may not overlap"
            begun[event.track_uuid] = packet
            continue
        start = begun.pop(event.track_uuid)
        note = {arguments[n.name_iid]: n for n in start.track_event.debug_annotations}
        kind = categories[start.track_event.category_iids[0]]
        if kind == "wait":
            assert packet.timestamp - start.timestamp == 2_000_000  # rank 0 waits for 2 ms
            continue
        op = note["op"].int_value
        seen[op] = (start.timestamp, packet.timestamp)
        assert event_names[start.track_event.name_iid] == timeline.graph.op_name(op)
        if "bytes" in note:
            assert note["bytes"].int_value == timeline.graph.size[op]
    assert begun == {}
    spans = zip(timeline.op.tolist(), timeline.start.tolist(), timeline.end.tolist(), strict=True)
    assert seen == {op: (round(start / 1000), round(end / 1000)) for op, start, end in spans}


def test_time_never_runs_back_on_a_track(tmp_path: Path) -> None:
    last: dict[int, int] = {}
    for packet in events(packets(scenario("ddp"), tmp_path), BEGIN, END):
        uuid = packet.track_event.track_uuid
        assert packet.timestamp >= last.get(uuid, 0)
        last[uuid] = packet.timestamp


def test_an_arrow_runs_from_send_to_recv(tmp_path: Path) -> None:
    found = packets(scenario("p2p-nonblocking"), tmp_path)
    out = {f: p for p in events(found, BEGIN) for f in p.track_event.flow_ids}
    into = {f: p for p in events(found, BEGIN) for f in p.track_event.terminating_flow_ids}
    assert sorted(out) == sorted(into) == [1]
    parents = tracks(found)
    ranks = [parents[parents[p[1].track_event.track_uuid].parent_uuid] for p in (out, into)]
    assert [track.process.process_name for track in ranks] == ["rank 0", "rank 1"]


def test_links_are_counters_of_their_own(tmp_path: Path) -> None:
    found = packets(scenario("ring-all-reduce"), tmp_path)
    described = tracks(found)
    above = next(uuid for uuid, track in described.items() if track.name == "links (GB/s)")
    links = {u: t for u, t in described.items() if t.parent_uuid == above and t.HasField("counter")}
    assert {track.counter.unit_name for track in links.values()} == {"GB/s"}
    order = sorted(links.values(), key=lambda track: track.sibling_order_rank)
    assert [track.sibling_order_rank for track in order] == list(range(len(order)))
    values = [p.track_event.double_counter_value for p in events(found, COUNTER)
              if p.track_event.track_uuid in links]  # fmt: skip
    assert max(values) == pytest.approx(300 * 0.9412, rel=0.02)
    assert min(values) == 0


def test_memory_is_a_counter_of_each_rank(tmp_path: Path) -> None:
    timeline = scenario("ddp")
    found = packets(timeline, tmp_path)
    described = tracks(found)
    memory = {u: t for u, t in described.items() if t.name == "memory"}
    assert len(memory) == 4
    for uuid, track in memory.items():
        assert track.counter.unit == 3
        assert described[track.parent_uuid].HasField("process")
        mine = [p for p in events(found, COUNTER) if p.track_event.track_uuid == uuid]
        peak = max(p.track_event.double_counter_value for p in mine)
        lane = track.parent_uuid - 1
        assert peak == timeline.memory.held[timeline.memory.lane == lane].max()


def test_spans_that_overlap_get_tracks_of_their_own(tmp_path: Path) -> None:
    timeline = scenario("batched-exchange")
    rows = lay_out(timeline)
    assert rows.copy.max() > 0
    for track in range(len(rows.lane)):
        mine = np.flatnonzero(rows.track == track)
        mine = mine[np.lexsort((timeline.end[mine], rows.begin[mine]))]
        assert np.all(rows.begin[mine][1:] >= timeline.end[mine][:-1])
    found = [t.name for t in tracks(packets(timeline, tmp_path)).values()]
    assert any(name.endswith(" (2)") for name in found)


def test_same_bytes_and_no_file_left_aside(tmp_path: Path) -> None:
    for name in ("a.pftrace", "b.pftrace"):
        write_perfetto(scenario("ddp"), tmp_path / name)
    assert (tmp_path / "a.pftrace").read_bytes() == (tmp_path / "b.pftrace").read_bytes()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.pftrace", "b.pftrace"]


def test_names_stay_as_they_are(tmp_path: Path) -> None:
    build = GraphBuilder()
    build.lane(0)
    build.compute(0, MS, name="<script>\u00e9\u2028")
    timeline = simulate(build.build(), Star(1), library=Ideal("ring"))
    assert "<script>\u00e9\u2028" in names(packets(timeline, tmp_path))[0].values()


def test_without_protobuf_one_is_told_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "google.protobuf.descriptor_pb2", None)
    perfetto_messages.cache_clear()
    with pytest.raises(ScenarioError, match=r"commsim\[trace\]"):
        write_perfetto(scenario("ddp"), tmp_path / "a.pftrace")
    perfetto_messages.cache_clear()
    assert list(tmp_path.iterdir()) == []
