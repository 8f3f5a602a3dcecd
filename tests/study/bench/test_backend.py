"""What bench takes for an algorithm of a library."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from commsim.cluster import Cluster
from commsim.errors import ScenarioError
from commsim.graph import OpKind
from commsim.libraries import LibrarySection
from commsim.study.bench import bench
from commsim.study.bench.backend import (
    AUTO,
    SimulatedBackend,
    _graph,
    _taking,
    whole_picoseconds,
)
from commsim.study.bench.nccl_tests import sweep


def test_switches_that_add_are_timed_where_there_are_some_and_missed_where_not() -> None:
    (row,) = bench(
        Cluster.preset("dgx-h100"), "all_reduce", "1MiB", library="ideal", algo="nvls"
    ).results
    assert row.algo == "nvls"
    with pytest.raises(ScenarioError, match="neither adds nor multicasts"):
        bench(Cluster.preset("dgx-a100"), "all_reduce", "1MiB", library="ideal", algo="nvls")


def test_as_many_sizes_as_are_allowed_are_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("commsim.study.bench.nccl_tests._MOST_SIZES", 5)
    assert sweep(8, 128, 2) == [8, 16, 32, 64, 128]
    with pytest.raises(ScenarioError, match="more than 5 sizes"):
        sweep(8, 256, 2)


def test_picoseconds_are_rounded_up_but_for_the_noise_of_floats() -> None:
    seconds = np.array([0.0, 1.0, 1.0009, 1.0011, 1.9, 2.0]) * 1e-12
    assert whole_picoseconds(seconds) == [0, 1, 1, 2, 2, 2]


def algorithms(op: str, *asked: str, library: str = "ideal", **more: Any) -> list[str]:
    backend = SimulatedBackend(
        Cluster.preset("dgx-h100"), range(8), LibrarySection(library), network="fluid",
        dtype="float",
    )  # fmt: skip
    return backend.algorithms(op, list(asked), more.get("protos", [AUTO]))


def test_an_op_takes_those_that_it_has_of_the_algorithms_asked_for() -> None:
    assert algorithms("all_reduce", "ring", "bruck", "ring") == ["ring"]
    assert algorithms("all_gather", "ring", "bruck") == ["ring", "bruck"]
    assert algorithms("all_reduce", AUTO) == [AUTO]
    assert "nvls" not in algorithms("all_reduce", "all")  # only if it is named
    assert algorithms("all_reduce", "nvls") == ["nvls"]
    with pytest.raises(ScenarioError, match="ideal has none of these for all_reduce. Did you mean"):
        algorithms("all_reduce", "rnig")
    with pytest.raises(ScenarioError, match="ideal has no protocols"):
        algorithms("all_reduce", "ring", protos=["LL"])


def test_gloo_has_algorithms_of_all_reduce_alone_and_sends_have_none() -> None:
    assert len(algorithms("all_reduce", "all", library="gloo")) > 1
    assert algorithms("broadcast", "all", library="gloo") == [AUTO]
    assert algorithms("send_recv", "all") == algorithms("all_reduce", "all", library="nccl")
    for op, library in (("broadcast", "gloo"), ("send_recv", "ideal")):
        with pytest.raises(ScenarioError, match="It has: no choice; use auto"):
            algorithms(op, "ring", library=library)


def test_what_is_asked_of_a_library_for_one_algorithm() -> None:
    """Of NCCL's environment what is named here is not asked for twice."""
    env = {"NCCL_ALGO": "Tree", "NCCL_PROTO": "Simple", "NCCL_DEBUG": "WARN"}
    nccl = LibrarySection("nccl", env=env)

    def taken(name: str) -> tuple[Any, ...]:
        section = _taking(nccl, name)
        return section.get("algo"), section.get("proto"), set(section.get("env"))

    assert _taking(nccl, AUTO) is nccl
    assert taken("Ring LL") == ("Ring", "LL", {"NCCL_DEBUG"})
    assert taken("Ring") == ("Ring", None, {"NCCL_PROTO", "NCCL_DEBUG"})
    assert taken("auto LL") == (None, "LL", {"NCCL_ALGO", "NCCL_DEBUG"})
    assert taken("mine.xml")[:2] == ("mine.xml", None)
    assert _taking(LibrarySection("ideal"), "ring").get("algo") == "ring"


def test_a_ring_of_sends_and_a_root_that_is_the_first_rank() -> None:
    """Rank 4 sends to 6, 6 to 9, 9 to 4, each in a batch with what it gets from before it."""
    ranks = (4, 6, 9)
    sends = _graph("send_recv", 8, ranks, "float")
    assert sorted(
        (int(sends.messages.source[at]), int(sends.messages.target[at]))
        for at in range(len(sends.messages))
    ) == [(4, 6), (6, 9), (9, 4)]
    assert (sends.kind == OpKind.SEND).sum() == (sends.kind == OpKind.RECV).sum() == 3
    assert set(_graph("broadcast", 8, ranks, "float").collectives.root.tolist()) == {4}
    assert set(_graph("all_reduce", 8, ranks, "float").collectives.root.tolist()) == {-1}
