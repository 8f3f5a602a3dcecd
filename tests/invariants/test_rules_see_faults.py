"""Each rule of `helpers.invariants` sees what it guards against, planted into a sound run."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import pytest
from helpers.invariants import broken
from msgspec.structs import replace

import commsim as cs
from commsim.graph import OpKind
from commsim.timeline import LinkUse, Timeline


@cache
def sound(network: str) -> cs.Result:
    """Return a run in which members come late to a collective, and messages go as one batch."""
    calls: dict[int, list[Any]] = {
        rank: [{"compute": f"{rank + 1}us"}, {"all_reduce": {"bytes": "8MiB"}}]
        for rank in range(16)
    }
    for rank, peer in ((1, 9), (9, 1)):
        ops = [
            {"isend": {"to": peer, "bytes": f"{rank}MiB"}},
            {"irecv": {"from": peer, "bytes": f"{peer}MiB"}},
        ]
        calls[rank] += [{"batch_isend_irecv": {"ops": ops, "as": "both"}}, {"wait": "both"}]
        calls[rank] += [{"batch_isend_irecv": {"ops": ops, "as": "again"}}, {"wait": "again"}]
        calls[rank] += [{"compute": "1us"}]
    return cs.run(
        {
            "cluster": {"preset": "dgx-a100", "nodes": 2},
            "library": {"name": "ideal", "algo": "ring"},
            "engine": {"network": network},
            "workload": {"program": {"ranks": calls}},
        }
    )


def of_kind(timeline: Timeline, kind: OpKind) -> int:
    return int(np.flatnonzero(timeline.kind == kind)[0])


def with_time(column: str, kind: OpKind, by: int) -> Callable[[Timeline], Timeline]:
    """Return a fault: one time of the first span of a kind is another."""

    def plant(timeline: Timeline) -> Timeline:
        changed = getattr(timeline, column).copy()
        changed[of_kind(timeline, kind)] += by
        return replace(timeline, **{column: changed})

    return plant


def a_while_late(timeline: Timeline) -> Timeline:
    """Let the last op of compute do nothing for a while before it arrives."""
    last = int(np.argmax(np.where(timeline.kind == OpKind.COMPUTE, timeline.end, 0)))
    moved = {name: getattr(timeline, name).copy() for name in ("arrive", "start", "end")}
    for column in moved.values():
        column[last] += 10**9
    return replace(timeline, **moved)


def with_links(change: Callable[[LinkUse], LinkUse]) -> Callable[[Timeline], Timeline]:
    return lambda timeline: replace(timeline, links=change(timeline.links))


def without_bytes_on(part: str) -> Callable[[LinkUse], LinkUse]:
    """Return a fault: links whose name has `part` carry half of what they should."""

    def change(links: LinkUse) -> LinkUse:
        less = np.array([part in name for name in links.names])[links.load_link]
        return replace(links, load_bytes=np.where(less, links.load_bytes / 2, links.load_bytes))

    return change


def too_few(links: LinkUse) -> LinkUse:
    return replace(links, load_bytes=links.load_bytes / 3)


def faster(links: LinkUse) -> LinkUse:
    """Let all bytes move in half of the time."""
    return replace(links, end=(links.start + links.end) // 2, rate=links.rate * 2)


def cut_short(links: LinkUse) -> LinkUse:
    return replace(links, end=(links.start + links.end) // 2)


def sooner(links: LinkUse) -> LinkUse:
    return replace(links, start=links.start - 10**7, end=links.end - 10**7)


FAULTS: dict[str, tuple[str, Callable[[Timeline], Timeline]]] = {
    "a span ends before it starts": ("span", with_time("end", OpKind.COMPUTE, -(10**9))),
    "an op works for less than its time": ("span", with_time("end", OpKind.COMPUTE, -1000)),
    "an op arrives before its stream is free": (
        "arrival",
        with_time("arrive", OpKind.COLLECTIVE, -1),
    ),
    "an op idles though it could begin": ("arrival", a_while_late),
    "an op of a batch waits for the other": ("arrival", with_time("arrive", OpKind.RECV, 1)),
    "a collective begins without a member": (
        "meeting",
        with_time("start", OpKind.COLLECTIVE, -1_000_000),
    ),
    "bytes move before their collective": ("meeting", with_links(sooner)),
    "a link carries more than it can": ("capacity", with_links(faster)),
    "a flow ends half way": ("bytes", with_links(cut_short)),
    "bytes are lost in a switch": ("bytes", with_links(without_bytes_on("nvswitch->"))),
    "bytes are lost in the fabric": ("bytes", with_links(without_bytes_on("leaf0->"))),
    "two thirds of the bytes are never sent": ("bytes", with_links(too_few)),
}


@pytest.mark.parametrize("network", ["fluid", "steps"])
def test_nothing_is_found_in_a_sound_run(network: str) -> None:
    assert broken(sound(network)) == []


@pytest.mark.parametrize("network", ["fluid", "steps"])
@pytest.mark.parametrize("fault", FAULTS)
def test_a_planted_fault_is_seen(fault: str, network: str) -> None:
    rule, plant = FAULTS[fault]
    run = sound(network)
    found = {rule for rule, _ in broken(replace(run, timeline=plant(run.timeline)))}
    assert rule in found
