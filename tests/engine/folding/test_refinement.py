"""What plans do to links, held once per kind: 12 bytes an entry, in parts that change nothing."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from msgspec.structs import replace

from commsim import arrays
from commsim.cluster import Cluster
from commsim.engine.folding.ample import ample_links
from commsim.engine.folding.refinement import (
    Entries,
    PhaseLoads,
    color_by_plans,
    entries_of,
    mix,
    refine,
)
from commsim.engine.folding.shifted_plans import ShiftedPlans
from commsim.libraries import Ideal, Library, Plan, Request
from commsim.libraries.nccl import Nccl

BEYOND = 2**32


def dgx(nodes: int = 32, oversubscription: int = 1) -> Cluster:
    fabric = {"kind": "rail_optimized", "nodes_per_leaf": 4, "oversubscription": oversubscription}
    return Cluster.preset("dgx-h100", nodes=nodes, fabric=fabric)


def plans_of(library: Library, cluster: Cluster, rows: np.ndarray) -> list[Plan]:
    request = Request("all_reduce", 3 << 20, ())
    return [library.plan(replace(request, ranks=tuple(row)), cluster) for row in rows.tolist()]


def replicas(ranks: int, tp: int) -> np.ndarray:
    """Return the groups of dp: every rank with those of its place in other groups of tp."""
    return np.arange(ranks).reshape(-1, tp).T.copy()


@pytest.mark.parametrize("library", [Ideal(), Nccl()], ids=["ideal", "nccl"])
def test_entries_say_what_the_plans_do(library: Library) -> None:
    cluster = dgx(8)
    plans = plans_of(library, cluster, replicas(64, 8))
    entries = entries_of(plans)
    phases = [
        (at, number, phase)
        for at, plan in enumerate(plans)
        for number, phase in enumerate(p for part in plan.parts for p in part.phases)
    ]
    assert entries.plan.tolist() == [at for at, _, p in phases for _ in p.link]
    assert entries.phase.tolist() == [number for _, number, p in phases for _ in p.link]
    for column in ("link", "load", "conns"):
        whole = np.concatenate([getattr(p, column) for _, _, p in phases])
        assert getattr(entries, column).tolist() == whole.tolist()


@pytest.mark.parametrize("library", [Ideal(), Nccl()], ids=["ideal", "nccl"])
@pytest.mark.parametrize(
    "rows", [replicas(256, 8), np.arange(256).reshape(-1, 8)], ids=["dp", "tp"]
)
def test_an_entry_takes_twelve_bytes(library: Library, rows: np.ndarray) -> None:
    """Three columns of 32 bits: loads of links that are loaded alike are held once."""
    cluster = dgx()
    shifted = ShiftedPlans(cluster, lambda r, ranks: library.plan(replace(r, ranks=ranks), cluster))
    request = Request("all_reduce", 3 << 20, tuple(rows[0].tolist()))
    found = shifted.plans(request, rows).entries
    entries = Entries.joined([found.numbered(np.arange(len(rows)) + at) for at in (0, len(rows))])
    count = len(entries.load)
    assert count == 2 * len(found.load) > 1000
    columns = (entries.plan, entries.link, entries.flow)
    assert [column.dtype for column in columns] == [np.int32] * 3
    assert len(entries.flows.load) < count / 20
    held = sum(column.nbytes for column in columns)
    held += sum(getattr(entries.flows, name).nbytes for name in ("phase", "load", "conns"))
    assert held < 13.2 * count


def test_plans_and_links_beyond_32_bits_are_held_in_64() -> None:
    entries = entries_of(plans_of(Ideal(), dgx(4), np.arange(32).reshape(4, 8)))
    far = entries.numbered(np.arange(4) + BEYOND)
    assert far.plan.dtype == np.int64
    assert (far.plan - BEYOND).tolist() == entries.plan.tolist()
    for both in (Entries.joined([entries, far]), Entries.joined([far, entries])):
        assert both.plan.dtype == np.int64
        assert both.flow.dtype == np.int32
        assert np.bincount(both.plan > 5).tolist() == [len(entries.plan)] * 2
        assert both.load.tolist() == entries.load.tolist() * 2


@pytest.mark.parametrize(("value", "bits"), [
    (2**31 - 1, 32), (2**31, 64), (-1, 32), (-(2**31) + 1, 32), (-(2**40), 64),
])  # fmt: skip
def test_numbers_are_narrow_if_they_fit(value: int, bits: int) -> None:
    found = arrays.narrow(np.array([0, value, 1]))
    assert found.dtype == np.dtype(f"int{bits}")
    assert found.tolist() == [0, value, 1]
    assert arrays.narrow(found).dtype == found.dtype


@pytest.mark.parametrize("step", [2**27, BEYOND], ids=["32 bits", "64 bits"])
@pytest.mark.parametrize("oversubscription", [1, 2, 4])
def test_numbers_of_plans_change_no_ample_link(oversubscription: int, step: int) -> None:
    """Keys of plan, phase and device are of 64 bits: in 32 these plans would be one."""
    cluster = dgx(8, oversubscription)
    pairs = np.stack((np.arange(16), np.arange(16) + 32), axis=1)
    entries = entries_of(plans_of(Ideal(), cluster, pairs))
    apart = entries.numbered(np.arange(16) * step)
    apart = replace(apart, flows=replace(apart.flows, phase=apart.flows.phase + 31))
    assert apart.plan.dtype == (np.int64 if step == BEYOND else np.int32)
    assert (ample_links(apart, cluster) == ample_links(entries, cluster)).all()


@pytest.mark.parametrize("part", [1, 7, 100])
def test_parts_change_nothing(part: int, monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = dgx(8, 2)
    capacity = cluster.links.capacity.copy()
    capacity[cluster.fabric.nic_link(5)] /= 2
    entries = entries_of(plans_of(Nccl(), cluster, replicas(64, 8)))
    keys = mix(np.zeros(8, np.int64), np.zeros(8, np.int64))

    def found() -> list[list[int]]:
        plans, links = refine(keys, entries, capacity)
        used, color = color_by_plans(plans, entries, capacity)
        every = (plans, links, used, color, ample_links(entries, cluster), entries.on(9))
        return [one.tolist() for one in every]

    whole = found()
    assert len(set(whole[0])) > 1
    monkeypatch.setattr(arrays, "_PART", part)
    assert found() == whole
    several = list(entries.in_parts())
    assert len(several) > 1
    assert all(a.plan[-1] < b.plan[0] for a, b in pairwise(several))
    assert np.concatenate([one.link for one in several]).tolist() == entries.link.tolist()


def test_links_beyond_a_clusters_own_are_in_no_choice_of_links() -> None:
    entries = entries_of(plans_of(Ideal(), dgx(4), np.arange(32).reshape(4, 8)))
    middle = int(np.median(entries.link))
    some = np.ones(middle, np.bool_)
    below = entries.link < middle
    assert entries.of_links(some).link.tolist() == entries.link[below].tolist()
    assert entries.without(some).link.tolist() == entries.link[~below].tolist()
    assert entries.without(np.zeros(middle, np.bool_)) is entries
    assert np.flatnonzero(entries.on(5)).tolist() == sorted(set(entries.link.tolist()))
    last = int(entries.link.max())
    for links, length in (
        (5, last + 1),
        (last, last + 1),
        (last + 1, last + 1),
        (last + 7, last + 7),
    ):
        assert len(entries.on(links)) == length


def test_pairs_are_hashed_as_splitmix64_does() -> None:
    """Its first three numbers from the seed 0, whose states are 1, 2 and 3 times its constant."""
    found = mix(np.array([1, 2, 3]), np.zeros(3, np.int64))
    assert found.tolist() == [0xE220A8397B1DCDAF, 0x6E789E6AA1B965F4, 0x06C45D188009454F]
    golden = np.array([0x9E3779B97F4A7C15], np.uint64)
    assert mix(np.zeros(1, np.int64), golden).tolist() == [0xE220A8397B1DCDAF]


@pytest.mark.parametrize("length", [1, 2, 3, 4, 9])
def test_parts_of_entries_have_all_of_a_plan_each_and_miss_none(
    length: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last plan has one entry, as has the first."""
    monkeypatch.setattr(arrays, "_PART", length)
    plans = np.array([0, 1, 1, 1, 2, 2, 3])
    links = np.arange(7)
    loads = PhaseLoads(np.zeros(1, np.int64), np.ones(1), np.ones(1))
    found = list(Entries(plans, links, np.zeros(7, np.int64), loads).in_parts())
    assert [link for part in found for link in part.link.tolist()] == links.tolist()
    of_parts = [set(part.plan.tolist()) for part in found]
    assert sum(map(len, of_parts)) == 4
    assert all(of_parts)
