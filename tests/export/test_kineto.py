"""Kineto files of a simulated run: read back by our own reader, and analysed by HTA's rules."""

from __future__ import annotations

import gzip
import json
import re
from pathlib import Path
from typing import Any

import pytest

import commsim as cs
from commsim.export import write_kineto
from commsim.metrics import breakdown, measure
from commsim.traces import load_trace

# hta.utils.utils.get_kernel_type of HolisticTraceAnalysis 0.5.0
COMMUNICATION = re.compile(r"^nccl")
MEMORY = re.compile(r"(^Memcpy)|(^Memset)|(^dma)")


@pytest.fixture(scope="module")
def run() -> cs.Result:
    return cs.run("ddp")


def union(spans: list[tuple[float, float]]) -> float:
    total, reach = 0.0, float("-inf")
    for begin, end in sorted(spans):
        total += max(0.0, end - max(begin, reach))
        reach = max(reach, end)
    return total


def kernels(file: Path) -> list[dict[str, Any]]:
    events = json.loads(gzip.decompress(file.read_bytes()))["traceEvents"]
    (step,) = [event for event in events if event["name"].startswith("ProfilerStep")]
    begin, end = step["ts"], step["ts"] + step["dur"]
    found = []
    for event in events:
        if event["cat"] in ("kernel", "gpu_memcpy"):
            start = max(begin, event["ts"])
            until = min(end, event["ts"] + event["dur"])
            if until > start:
                found.append({**event, "span": (start, until)})
    return found


def test_the_compute_that_hta_finds_is_ours(run: cs.Result, tmp_path: Path) -> None:
    """HTA's temporal breakdown: the union of kernels that are neither nccl nor memory."""
    files = write_kineto(run.timeline, tmp_path)
    ours = breakdown(run.timeline)
    for lane, file in enumerate(files):
        work = [
            kernel["span"]
            for kernel in kernels(file)
            if not COMMUNICATION.search(kernel["name"]) and not MEMORY.search(kernel["name"])
        ]
        assert union(work) == pytest.approx(int(ours.compute[lane]) / 1e6, rel=1e-6, abs=0.01)


def test_files_have_what_hta_asks_for(run: cs.Result, tmp_path: Path) -> None:
    files = write_kineto(run.timeline, tmp_path)
    assert [file.name for file in files][:2] == ["rank0.json.gz", "rank1.json.gz"]
    data = json.loads(gzip.decompress(files[1].read_bytes()))
    assert data["distributedInfo"]["rank"] == 1
    launches = {
        event["args"]["correlation"]
        for event in data["traceEvents"]
        if event["cat"] == "cuda_runtime"
    }
    for kernel in kernels(files[1]):
        assert kernel["args"]["stream"] == kernel["tid"]
        assert kernel["args"]["correlation"] in launches


def test_our_reader_finds_the_same_communication(run: cs.Result, tmp_path: Path) -> None:
    write_kineto(run.timeline, tmp_path)
    found = measure(load_trace(tmp_path).timeline()).collectives
    ours = run.metrics.collectives
    assert [(c.op, c.count, c.bytes) for c in found] == [(c.op, c.count, c.bytes) for c in ours]
    assert [c.time_s for c in found] == pytest.approx([c.time_s for c in ours], abs=1e-8)


def test_a_replay_of_our_own_files_waits_for_no_host(tmp_path: Path) -> None:
    """Nothing here waits for a launch, so launches are early, and the host waits at the end.

    Messages say their ends: a reader joins both sides.
    """
    work = {"model": {"layers": 4, "hidden": 1024, "heads": 8, "vocab": 8192, "seq_len": 512}}
    layout = {"parallel": {"dp": 4, "pp": 2}, "batch": {"global": 8, "micro": 1}}
    ours = cs.run({"cluster": {"preset": "dgx-h100"}, "workload": {"training": work | layout}})
    write_kineto(ours.timeline, tmp_path)
    found = cs.replay(tmp_path).result
    assert found.metrics.step_time_s == pytest.approx(ours.metrics.step_time_s, rel=1e-6)
    assert not [one for one in found.limits if one.kind == "host"]
    messages = found.timeline.graph.messages
    assert len(messages) > 0
    assert (messages.send_op >= 0).all()
    assert (messages.recv_op >= 0).all()
