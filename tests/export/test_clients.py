"""Exports in the hands of those who read them: HolisticTraceAnalysis, Perfetto's descriptors."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest

import commsim as cs
from commsim.export import write_kineto, write_perfetto
from commsim.export.perfetto_schema import perfetto_messages
from commsim.metrics import breakdown
from commsim.units import PS_PER_US

WHY = "clients of exports: pip install -e '.[clients]'"
ROUNDED = 2  # us: HTA rounds the start and length of each kernel to whole microseconds


@pytest.mark.parametrize("name", ["ddp", "1f1b"])
@pytest.mark.filterwarnings("ignore")
def test_hta_finds_the_account_that_commsim_prints(name: str, tmp_path: Path) -> None:
    analysis = pytest.importorskip("hta.trace_analysis", reason=WHY)
    logging.disable(logging.WARNING)
    timeline = cs.run(name, sets=("engine.fold=off",)).timeline
    write_kineto(timeline, tmp_path)
    trace = analysis.TraceAnalysis(trace_dir=str(tmp_path))
    logging.disable(logging.NOTSET)
    ours = breakdown(timeline)
    found = trace.get_temporal_breakdown(visualize=False).set_index("rank")
    kernels = max(int((timeline.lane == lane).sum()) for lane in range(len(ours.window)))
    slack = ROUNDED * kernels
    in_kernels = ours.compute + ours.exposed_transfer + ours.exposed_copy
    for lane, rank in enumerate(timeline.graph.lane_rank.tolist()):
        row = found.loc[rank]
        assert abs(row["compute_time(us)"] - ours.compute[lane] / PS_PER_US) <= slack
        held = (in_kernels[lane] + ours.waiting[lane]) / PS_PER_US
        assert in_kernels[lane] / PS_PER_US - slack <= row["kernel_time(us)"] <= held + slack
    assert [int(step) for step in trace.get_profiler_steps()] == [0]


@pytest.mark.filterwarnings("ignore")
def test_hta_finds_the_overlap_of_communication(tmp_path: Path) -> None:
    """A communication kernel lasts from its rank's arrival; ddp's ranks arrive together."""
    analysis = pytest.importorskip("hta.trace_analysis", reason=WHY)
    logging.disable(logging.WARNING)
    timeline = cs.run("ddp").timeline
    write_kineto(timeline, tmp_path)
    trace = analysis.TraceAnalysis(trace_dir=str(tmp_path))
    logging.disable(logging.NOTSET)
    found = trace.get_comm_comp_overlap(visualize=False).set_index("rank")
    overlap = breakdown(timeline).overlap()
    assert len(found) == len(overlap) == 4
    for lane, rank in enumerate(timeline.graph.lane_rank.tolist()):
        assert found.loc[rank, "comp_comm_overlap_pctg"] == pytest.approx(
            100 * overlap[lane], abs=0.5
        )


@pytest.mark.parametrize("name", ["ddp", "batched-exchange", "ring-all-reduce"])
def test_perfettos_own_descriptors_know_every_field(name: str, tmp_path: Path) -> None:
    """Parsed by Perfetto's messages, a trace holds what ours hold, field by field, and no more."""
    theirs = pytest.importorskip("perfetto.protos.perfetto.trace.perfetto_trace_pb2", reason=WHY)
    write_perfetto(cs.run(name).timeline, tmp_path / "x.pftrace")
    data = (tmp_path / "x.pftrace").read_bytes()
    known, ours = theirs.Trace.FromString(data), perfetto_messages().trace.FromString(data)
    assert len(known.packet) == len(ours.packet) > 10
    for packet, own in zip(known.packet, ours.packet, strict=True):
        assert _plain(packet) == _plain(own)
        again = theirs.TracePacket()
        again.MergeFrom(packet)
        again.DiscardUnknownFields()
        assert again.ByteSize() == packet.ByteSize()


def _plain(message: Any) -> dict[str, Any]:
    """Return the set fields of a message by name, messages and lists within."""
    found = {}
    for field, value in message.ListFields():
        many = not isinstance(value, str | bytes) and hasattr(value, "__len__")
        values = list(value) if many else [value]
        found[field.name] = [_plain(v) if hasattr(v, "ListFields") else v for v in values]
    return found
