"""What is said of jobs beside one another, of times made by hand; which GPUs they get."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from commsim.cluster import Cluster
from commsim.errors import ScenarioError
from commsim.libraries import Request
from commsim.scenario import JobSection, scenario_from
from commsim.sections import decode
from commsim.study.run import jobs as told_of
from commsim.study.run.guard import _largest, _plainly_above, in_network, too_fast
from commsim.study.run.placement import placed
from commsim.units import PS_PER_SECOND

MS = 10**9


def job(name: str = "a", *, ranks: Any = (0, 1), start: int = 0, repeat: int | None = None,
        training: bool = True, notes: Any = ()) -> Any:  # fmt: skip
    section = SimpleNamespace(name=name, start=start, repeat=repeat)
    work = SimpleNamespace(training=1 if training else None, notes=notes)
    return SimpleNamespace(section=section, ranks=ranks, work=work)


def line(*ends: int, arrive: int = 0, step: Any = None) -> Any:
    """A timeline of an op a step, with their ends; `step` -1 is outside of any."""
    steps = np.arange(len(ends)) if step is None else np.array(step)
    return SimpleNamespace(
        graph=SimpleNamespace(step=steps), op=np.arange(len(ends)), end=np.array(ends),
        arrive=np.full(len(ends), arrive), end_time=max(ends),
    )  # fmt: skip


def test_steps_of_training_are_from_end_to_end_and_others_from_the_beginning() -> None:
    assert told_of._steps(job(), line(10, 30, 60)) == [(10, 30), (30, 60)]
    assert told_of._steps(job(training=False), line(10, 30, arrive=4)) == [(4, 10), (10, 30)]
    assert told_of._steps(job(), line(10, arrive=4)) == [(4, 10)]
    assert told_of._steps(job(), line(10, 12, 30, 99, step=[0, 0, 1, -1])) == [(12, 30)]
    assert told_of._mean([(0, MS), (MS, 4 * MS)]) == pytest.approx(2e-3)


@pytest.mark.parametrize(
    ("ends", "start", "steps"),
    [
        ((0, 100), 0, 1 + 1 + 11), ((0, 100), 800, 1 + 1 + 3), ((0, 100, 300), 0, 2 + 1 + 6),
        ((0, 989), 0, 1 + 1 + 1), ((0, 990), 0, None), ((0, 1), 990, None), ((0, 2), 0, 64),
    ],
)  # fmt: skip
def test_a_training_that_ends_first_goes_on_until_the_others_have_ended(
    ends: tuple[int, ...], start: int, steps: int | None
) -> None:
    """A fifth longer than their 1000: 1100 more are eleven steps of 100, and the first has no
    length. A hundredth earlier is as good as at the same time."""
    listed = [job("a", start=start), job("b", training=False)]
    found = told_of._lasting(listed, [line(*ends), line(1000)])
    assert found == ({} if steps is None else {0: steps})


def test_a_job_that_says_how_often_or_is_no_training_is_left_as_it_is() -> None:
    lines = [line(0, 100), line(1000)]
    assert told_of._lasting([job(repeat=1), job("b")], lines) == {}
    assert told_of._lasting([job(training=False), job("b")], lines) == {}
    assert told_of._lasting([job()], lines[:1]) == {}


def test_when_all_jobs_run() -> None:
    listed = [job(start=5), job(start=70), job()]
    shares: Any = [SimpleNamespace(end_time=end) for end in (900, 800, 950)]
    assert told_of._shared_time(listed, shares) == (70, 800)


def test_ranks_in_words() -> None:
    assert told_of._range((3, 4, 5)) == "3 to 5"
    assert told_of._range((7,)) == "7 to 7"
    assert told_of._range((0, 2, 4)) == "0, 2, 4"
    assert told_of._range((4, 3)) == "4, 3"
    assert told_of._range(tuple(range(0, 16, 2))) == "0, 2, 4, 6, 8, 10, 12, 14"
    assert told_of._range(tuple(range(0, 18, 2))).endswith("12, 14 and 1 more")
    assert told_of._range(tuple(range(0, 20, 2))) == "0, 2, 4, 6, 8, 10, 12, 14 and 2 more"


def row(name: str, step: float, alone: float, beside: int = 1) -> dict[str, Any]:
    return {"name": name, "step_time_s": step, "alone_s": alone, "slowdown": step / alone,
            "steps_beside_all": beside}  # fmt: skip


def test_the_headline_of_jobs() -> None:
    a, b = row("a", 0.003, 0.002), row("b", 0.002, 0.002)
    one, both = "a 3 ms, alone 2 ms (1.50 times)", "; b 2 ms, alone 2 ms (1.00 times)."
    links = [{"link": "leaf0->spine0"}, {"link": "other"}]
    assert told_of._preface([a], links) == f"{one}."
    assert told_of._preface([a, b], links) == f"{one}{both} Most shared: leaf0->spine0."
    assert told_of._preface([a, b], []) == f"{one}{both} They share no link."
    assert told_of._preface([row("a", 0.003, 0.002, 0), b], links).endswith(
        "Most shared: leaf0->spine0. No step of a ran beside all others to its end."
    )
    assert told_of._preface([row("a", 0.003, 0.002, 0), b], []).endswith("They share no link.")
    none = [row("a", 0.003, 0.002, 0), row("b", 0.002, 0.002, 0)]
    assert told_of._preface(none, links).endswith("No step of a and b ran beside all others to"
                                                  " its end.")  # fmt: skip


def test_jobs_that_ended_long_before_the_last_are_told() -> None:
    listed = [job("a", notes=("mine",)), job("b", ranks=(4, 6)), job("c", ranks=(8,))]
    shares: Any = [SimpleNamespace(end_time=end) for end in (989 * MS, 990 * MS, 1000 * MS)]
    assert told_of._notes(listed, shares) == [
        "jobs: a on 2 GPUs, ranks 0 to 1.", "jobs: b on 2 GPUs, ranks 4, 6.",
        "jobs: c on 1 GPUs, ranks 8 to 8.",
        "jobs: a had ended after 989 ms of 1 s; give it a higher repeat to keep it beside the"
        " others.",
        "a: mine",
    ]  # fmt: skip


def test_links_that_carry_bytes_of_several_what_takes_longest_first() -> None:
    """Twelve links of 10 bytes/s; all but the first two carry both jobs' bytes, more and more."""
    links = 14
    first, second = np.arange(links) * 10.0, np.ones(links)
    first[0], second[1] = 0.0, 0.0
    shares: Any = [SimpleNamespace(links=SimpleNamespace(link_bytes=lambda own=own: own))
                   for own in (first, second)]  # fmt: skip
    bandwidth = np.full(links, 10.0)
    bandwidth[13] = 1e6
    whole: Any = SimpleNamespace(
        links=SimpleNamespace(names=[f"l{at}" for at in range(links)], bandwidth=bandwidth)
    )
    found = told_of._shared_links(whole, shares, ["a", "b"])
    assert [one["link"] for one in found] == [f"l{at}" for at in range(12, 2, -1)]
    assert found[0]["bytes"] == {"a": 120.0, "b": 1.0}


def test_jobs_need_a_cluster_and_one_of_them_at_least() -> None:
    one = {"name": "a", "nodes": 1, "workload": WORK}
    for given in ({"jobs": [one]}, {"cluster": {"preset": "dgx-h100"}, "jobs": []}):
        with pytest.raises(ScenarioError, match="need a cluster to run on, and at least one job"):
            told_of.run_jobs(scenario_from(given, "x"))


WORK = {"collectives": [{"op": "barrier", "bytes": "0B"}]}


def ranks_of(*sections: dict[str, Any]) -> list[tuple[int, ...]]:
    listed = [decode({"name": str(at), "workload": WORK} | one, JobSection, "t")
              for at, one in enumerate(sections)]  # fmt: skip
    return placed(listed, Cluster.preset("dgx-h100", nodes=4), "jobs")


def test_jobs_get_what_they_list_and_then_what_is_free() -> None:
    assert ranks_of({"nodes": [3]}, {"ranks": [1, 0]}) == [tuple(range(24, 32)), (1, 0)]
    assert ranks_of({"ranks": [31]}, {"nodes": 3}) == [(31,), tuple(range(24))]
    whole = ranks_of({"nodes": 3}, {"nodes": 1})
    assert (whole[0][-1], whole[1]) == (23, tuple(range(24, 32)))
    spread = ranks_of({"nodes": [0]}, {"nodes": 2, "placement": "spread"})[1]
    assert spread == (*range(8, 16), *range(16, 24))
    drawn = ranks_of({"nodes": [0]}, {"nodes": 3, "placement": "random"})[1]
    assert drawn == tuple(range(8, 32))


@pytest.mark.parametrize(("sections", "told"), [
    ([{"nodes": [4]}], r"there is no node 4: 4 count from 0"),
    ([{"ranks": [32]}], r"there is no rank 32: the cluster has 32"),
    ([{"ranks": [1, 1]}], "list each rank once"), ([{"ranks": []}], "at least one"),
    ([{"nodes": 5}], "5 are wanted, and 4 are free of 4"),
    ([{"ranks": [0]}, {"nodes": 4}], "4 are wanted, and 3 are free of 4"),
    ([{"nodes": 1, "ranks": [0]}], "exactly one"), ([{"nodes": [1]}, {"nodes": [1]}], "rank 8 is"),
])  # fmt: skip
def test_what_jobs_cannot_have(sections: list[dict[str, Any]], told: str) -> None:
    with pytest.raises(ScenarioError, match=told):
        ranks_of(*sections)


def test_a_time_below_its_bound_by_more_than_rounding_is_told() -> None:
    """A microsecond less a picosecond is rounded, less two is not."""
    least: Any = SimpleNamespace(seconds=1e-6, cut="the NIC", link=None, links=())
    cluster = Cluster.preset("dgx-h100")

    def told(picoseconds: int) -> list[str]:
        return too_fast("all_reduce", 1024, (0, 1), picoseconds, least, cluster)

    module = told_of.__name__.replace("jobs", "guard")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(f"{module}.slowest", lambda *_: "")
        assert told(10**6) == told(10**6 - 1) == []
        (note,) = told(10**6 - 2)
        assert note.endswith("and the NIC alone needs 1 us. Please report this.")
        patch.setattr(f"{module}.slowest", lambda *_: "nic0")
        assert "needs 1 us, over nic0." in told(1)[0]


def test_switches_add_up_for_algorithms_that_say_so() -> None:
    names = {"NVLS Simple": True, "NVLSTree LL": True, "Ring LL": False, "CollNetChain": True}
    assert {name: in_network(name) for name in names} == names


def test_the_largest_and_the_smallest_collectives_are_held_to_their_bounds() -> None:
    def rows(sizes: list[int], kinds: list[str] | None = None) -> list[int]:
        count = len(sizes)
        table = SimpleNamespace(
            group=np.zeros(count, int), kind=kinds or ["x"] * count, size=np.array(sizes),
            dtype=[""] * count,
        )  # fmt: skip
        group = SimpleNamespace(ranks=(0, 1), library="nccl")
        return _largest(SimpleNamespace(collectives=table, groups=[group]))  # type: ignore[arg-type]

    assert rows([5, 7, 5, 9]) == [3, 1, 0]
    assert rows([5, 5], ["a", "b"]) == [0, 1]
    assert rows(list(range(32))) == list(range(31, -1, -1))
    assert rows(list(range(35))) == [*range(34, 18, -1), *range(15, -1, -1)]


@pytest.mark.parametrize(("size", "idle", "above"), [
    (1000, 5000, True), (1000, 4999, False), (500, 3000, True), (500, 2999, False),
    (1001, 10**9, False), (0, 10**9, False),
])  # fmt: skip
def test_a_plan_above_the_line_through_two_bounds_is_above_its_own(
    monkeypatch: pytest.MonkeyPatch, size: int, idle: int, above: bool
) -> None:
    """1000 ps for nothing and 5000 for 1000 bytes: 3000 for the half."""
    module = told_of.__name__.replace("jobs", "guard")
    monkeypatch.setattr(
        f"{module}._bound",
        lambda request, plan, cluster: SimpleNamespace(
            seconds=(1000 + 4 * request.size) / PS_PER_SECOND),
    )  # fmt: skip
    known: dict[Any, Any] = {}
    plan: Any = SimpleNamespace(algorithm="ring", copies_in=(), idle=10**9)
    cluster: Any = None
    assert _plainly_above(Request("x", 1000, (0, 1)), plan, cluster, known)
    plan.idle = idle
    assert _plainly_above(Request("x", size, (0, 1)), plan, cluster, known) is above
    assert not _plainly_above(Request("x", size, (0, 1), splits=((1,),)), plan, cluster, known)
