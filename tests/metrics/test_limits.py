"""The headline names the bottleneck that was planted, and a limit what removing it is worth."""

from __future__ import annotations

from typing import Any

import pytest
from helpers.hand_made import timeline
from msgspec.structs import replace

from commsim.graph import Device, GraphBuilder, Tags
from commsim.metrics import Limit, finding, limit_remarks, limits, measure
from commsim.study.run import Result, run
from commsim.timeline import Cause

MODEL = {"layers": 8, "hidden": 2048, "heads": 16, "vocab": 32000, "seq_len": 1024}
BOX = {"preset": "dgx-h100"}


def training(cluster: dict[str, Any], batch: tuple[int, int], **settings: Any) -> dict[str, Any]:
    """Return a scenario of a small model; `batch` is (global, micro)."""
    work = {"model": MODEL, "batch": {"global": batch[0], "micro": batch[1]}, **settings}
    return {"cluster": cluster, "workload": {"training": work}}


def overridden(nodes: int = 1, **overrides: Any) -> dict[str, Any]:
    return {**BOX, "nodes": nodes, "overrides": overrides}


def pipeline(microbatches: int, forward: Any, backward: Any) -> dict[str, Any]:
    work = {"stages": 4, "microbatches": microbatches, "schedule": "1f1b"}
    return {"workload": {"pipeline": {**work, "forward": forward, "backward": backward}}}


def program(ranks: dict[Any, Any], **cluster: Any) -> dict[str, Any]:
    return {"cluster": {**BOX, **cluster}, "workload": {"program": {"ranks": ranks}}}


SLOW_NIC = {"nic": {"bandwidth": "10Gbps"}}
SPINE = {"fabric": {"kind": "fat_tree", "oversubscription": 32, "nodes_per_leaf": 1}}
SMALL = [{"all_reduce": {"bytes": "1KiB"}}, {"compute": "5us"}] * 50

PLANTED: dict[str, tuple[dict[str, Any], str]] = {
    "slow NICs": (
        training(overridden(2, **SLOW_NIC), (64, 1), parallel={"dp": 16}),
        r"all-reduce on dp over the NICs .*; twice that bandwidth would save \d",
    ),
    "slow NVLink": (
        training(
            overridden(nvlink={"bandwidth": "20GB/s"}),
            (16, 2),
            parallel={"tp": 8, "sequence_parallel": True},
        ),
        r"(all-gather|reduce-scatter).* on tp over NVLink .*; twice that bandwidth",
    ),
    "compute": (training(BOX, (128, 8), parallel={"dp": 8}), r"9\d\.\d% of it compute\.$"),
    "few microbatches": (pipeline(4, "1ms", "2ms"), r"\(the bubble\); without that, 42\.9% less"),
    "a slow stage": (
        pipeline(64, ["1ms", "1ms", "3ms", "1ms"], ["2ms", "2ms", "6ms", "2ms"]),
        r"the others wait for stage 2, which computes 2 times the mean",
    ),
    "a slow rank": (
        program(
            {
                "all": [{"compute": "1ms"}, {"all_reduce": {"bytes": "1MiB"}}],
                3: [{"compute": "4ms"}, {"all_reduce": {"bytes": "1MiB"}}],
            }
        ),
        r"the others wait for rank 3, which computes 2\.91 times the mean",
    ),
    "an offloaded optimizer": (
        training(
            {"preset": "dgx-a100"},
            (8, 1),
            parallel={"dp": 8},
            data_parallel={"kind": "zero", "stage": 2, "offload": "cpu"},
        ),
        r"the GPUs wait for their host; CPUs twice as fast would save 3\d",
    ),
    "copies": (
        program({0: [{"compute": "1ms"}, {"copy_to_host": {"bytes": "1GiB"}}]}),
        r"copies to and from host memory; twice as fast",
    ),
    "latency": (program({"all": SMALL}), r"the latency of all-reduce on world over NVLink"),
    "an oversubscribed spine": (
        training({**overridden(8), **SPINE}, (64, 1), parallel={"dp": 64}),
        r"over the switches of the network .*; twice that bandwidth",
    ),
    "one server": (
        training(BOX, (28, 4), parallel={"dp": 8}, data_parallel={"kind": "parameter_server"}),
        r"send-recv on ps over NVLink \(node0/(nvswitch->gpu0|gpu0->nvswitch)\)",
    ),
}


@pytest.mark.share(0.6)
@pytest.mark.parametrize("name", PLANTED)
def test_the_headline_names_the_planted_bottleneck(name: str) -> None:
    scenario, words = PLANTED[name]
    import re

    assert re.search(words, run(scenario).headline)


def test_the_headline_names_a_host_that_launches_too_late() -> None:
    """The twelfth: a recording in which each kernel of 10 us waits for a launch of 30 us."""
    build = GraphBuilder()
    lane, times, causes = build.lane(0), [], {}
    for at in range(20):
        launch = build.compute(lane, 30, name="launch", stream="cpu", device=Device.CPU)
        kernel = build.compute(lane, 10, name="kernel", stream="gpu", after=[(launch, 2)])
        times += [(30 * at, 30 * (at + 1)), (30 * (at + 1) + 2, 30 * (at + 1) + 12)]
        causes[kernel] = (launch, Cause.DEPENDENCY)
        if at:
            causes[launch] = (launch - 2, Cause.STREAM)
    line = timeline(build, times, causes=causes)
    found = limits(line)
    assert "the GPUs wait for their host" in finding(line, measure(line), found)
    assert found[0].removed_s == pytest.approx((612 - 200) * 1e-12)  # only the kernels are left


def halved(scenario: dict[str, Any], kind: str) -> tuple[float, float]:
    """Return what a limit promises for twice the bandwidth, as a share, and the step (s)."""
    result = run(scenario)
    step = result.metrics.step_time_s
    most = next(one for one in result.limits if one.kind == kind)
    assert most.halved_s is not None
    return most.halved_s / step, step


def test_what_bandwidth_promises_is_what_a_run_with_twice_of_it_gains() -> None:
    """A closed form of its own: the ring is all bandwidth, so half of its time goes."""
    ideal = {"library": {"name": "ideal", "algo": "ring"}}
    promised, step = halved({**PLANTED["slow NICs"][0], **ideal}, "bandwidth")
    fast = training(overridden(2, nic={"bandwidth": "20Gbps"}), (64, 1), parallel={"dp": 16})
    gained = 1 - run({**fast, **ideal}).metrics.step_time_s / step
    assert promised == pytest.approx(gained, abs=0.01)


@pytest.mark.parametrize(("uplinks", "named"), [(0.04, "NVLink"), (0.062, "network")])
def test_the_headline_advises_what_twice_of_it_saves(uplinks: float, named: str) -> None:
    """NVLink costs most, but only the library's own limit is left of it; twice the uplinks would
    save more. Where that is little more, the larger part stays the finding."""
    ran = run(training(BOX, (32, 4), parallel={"dp": 8}))
    step = float(ran.metrics.step_time_s)
    nvlink = Limit("bandwidth", "nvlink", "all-gather on tp", None, 0.12 * step, 0.032 * step)
    fabric = Limit("bandwidth", "fabric", "all-reduce on dp", None, 0.08 * step, uplinks * step)
    assert named in finding(ran.timeline, ran.metrics, (nvlink, fabric)).partition("rest")[2]


def test_twice_the_nics_promise_no_more_than_what_pcie_leaves() -> None:
    """Snellius has 25 GB/s of NIC on PCIe 4, which is 82 % full by then: little is to be had."""
    cluster = {"preset": "snellius-a100", "nodes": 4}
    scenario = training(cluster, (64, 2), parallel={"dp": 4, "tp": 4})
    promised, step = halved(scenario, "bandwidth")
    fast = training({**cluster, "scale": {"nic": 2}}, (64, 2), parallel={"dp": 4, "tp": 4})
    gained = 1 - run(fast).metrics.step_time_s / step
    assert promised == pytest.approx(gained, rel=0.2)


def test_twice_the_uplinks_promise_no_more_than_what_the_nics_leave() -> None:
    """Uplinks of four fifths of the NICs: with faster ones the NICs fill up next."""
    fabric = {"kind": "fat_tree", "oversubscription": 1.25, "nodes_per_leaf": 1}
    cluster = {**overridden(4, **SLOW_NIC), "fabric": fabric}
    ideal = {"library": {"name": "ideal", "algo": "ring"}}
    scenario = {**training(cluster, (32, 1), parallel={"dp": 32}), **ideal}
    result = run(scenario)
    most = next(one for one in result.limits if one.resource == "fabric")
    assert most.halved_s is not None
    step = result.metrics.step_time_s
    cluster["scale"] = {"uplinks": 2}
    fast = run({**training(cluster, (32, 1), parallel={"dp": 32}), **ideal})
    gained = 1 - fast.metrics.step_time_s / step
    assert gained < 0.3
    assert most.halved_s / step == pytest.approx(gained, abs=0.01)


def test_ranks_that_never_communicate_wait_for_nobody() -> None:
    """Two jobs beside each other: the longer one is no imbalance of the shorter one."""
    pair = [{"compute": "1ms"}, {"all_reduce": {"bytes": "1MiB", "group": "a"}}]
    other = [{"compute": "9ms"}, {"all_reduce": {"bytes": "1MiB", "group": "b"}}]

    def limits_of(ranks: dict[Any, Any]) -> tuple[Limit, ...]:
        scenario = program(ranks)
        scenario["workload"]["program"]["groups"] = {"a": [0, 1], "b": [2, 3]}
        return run(scenario).limits

    apart = limits_of({0: pair, 1: pair, 2: other, 3: other})
    assert not any(one.kind == "imbalance" for one in apart)
    late = [{"compute": "3ms"}, *other[1:]]
    uneven = limits_of({0: pair, 1: pair, 2: other, 3: late})
    (found,) = (one for one in uneven if one.kind == "imbalance")
    assert found.where == "rank 2"
    assert found.ratio == pytest.approx(9 / 6)


def test_no_host_saves_what_its_gpu_is_busy() -> None:
    """Launches that stand where their kernels begin, as in files that commsim writes itself."""
    build = GraphBuilder()
    lane, times, causes = build.lane(0), [], {}
    for at in range(20):
        launch = build.compute(lane, 10, name="launch", stream="cpu", device=Device.CPU)
        kernel = build.compute(lane, 10, name="kernel", stream=f"gpu{at % 2}", after=[(launch, 0)])
        times += [(10 * at, 10 * (at + 1)), (10 * (at + 1), 10 * (at + 2))]
        causes[kernel] = (launch, Cause.DEPENDENCY)
        if at:
            causes[launch] = (launch - 2, Cause.STREAM)
    (host,) = (one for one in limits(timeline(build, times, causes=causes)) if one.kind == "host")
    assert host.removed_s == pytest.approx(10e-12)  # the first launch


def test_a_slow_stage_promises_the_run_of_equal_stages() -> None:
    slow, even = PLANTED["a slow stage"][0], pipeline(64, "1.5ms", "3ms")
    result = run(slow)
    promised = next(one for one in result.limits if one.kind == "imbalance").removed_s
    gained = result.metrics.step_time_s - run(even).metrics.step_time_s
    assert promised == pytest.approx(gained, rel=1e-9)


def test_a_share_of_ranks_that_end_apart_is_of_their_mean() -> None:
    """Ranks that take 2 ms each in the mean of a step that takes the last of them 3 ms."""
    ran = run(program({0: [{"compute": "2ms"}], 1: [{"compute": "2ms"}]}))
    apart = replace(ran.metrics, step_time_s=1.5 * ran.metrics.step_time_s)
    told = [finding(ran.timeline, one, ()).replace("\xa0", " ") for one in (ran.metrics, apart)]
    assert told == [
        "The run takes 2 ms, 100.0% of it compute.",
        "The run takes 3 ms, 2 ms in the mean of the ranks, 100.0% of that compute.",
    ]


def test_nothing_ran_nothing_limits() -> None:
    assert limits(timeline(GraphBuilder(), [])) == ()


def test_the_json_carries_headline_and_limits() -> None:
    result: Result = run("1f1b")
    found = result.to_dict()
    assert found["headline"] == result.headline
    assert [one["kind"] for one in found["limits"]] == ["compute", "pipeline"]


def test_jobs_that_share_nothing_wait_for_nobody() -> None:
    """What another job computes is no imbalance; a slow rank of a job still is."""

    def job(name: str, first: int, *, slow: str) -> dict[str, Any]:
        ops = [{"compute": "1ms"}, {"all_reduce": {"bytes": "1MiB"}}]
        late = [{"compute": slow}, {"all_reduce": {"bytes": "1MiB"}}]
        ranks = [first, first + 1]
        return {"name": name, "ranks": ranks, "workload": {"program": {"ranks": {0: ops, 1: late}}}}

    alike = [job("short", 0, slow="1ms"), job("long", 2, slow="1ms")]
    alike[1]["workload"]["program"]["ranks"] = {
        "all": [{"compute": "9ms"}, {"all_reduce": {"bytes": "1MiB"}}]
    }
    assert not [
        one for one in run({"cluster": BOX, "jobs": alike}).limits if one.kind == "imbalance"
    ]
    uneven = [alike[0], job("long", 2, slow="9ms")]
    found = [one for one in run({"cluster": BOX, "jobs": uneven}).limits if one.kind == "imbalance"]
    assert [one.where for one in found] == ["rank 3"]
    assert found[0].ratio == pytest.approx(1.8)


def test_what_travels_between_stages_is_told_from_their_bubble() -> None:
    """1F1B without p2p takes (m + p - 1)(f + b) = 33 ms, and the stages alone m (f + b) = 24."""
    plain = pipeline(8, "1ms", "2ms")
    plain["workload"]["pipeline"]["p2p"] = "1ms"
    found = run(plain)
    step = found.metrics.step_time_s
    saved = {one.kind: one.removed_s for one in found.limits}
    assert saved["p2p"] == pytest.approx(step - 33e-3)
    assert saved["pipeline"] == pytest.approx(step - 24e-3)
    parts = found.metrics.breakdown
    assert parts.exposed_transfer_s > 0
    assert parts.exposed_transfer_s + parts.waiting_s == pytest.approx(step - 24e-3)
    assert f"({1 - 33e-3 / step:.1%} if p2p took no time)" in found.headline


def test_remarks_say_why_twice_a_link_is_less_than_half_of_it() -> None:
    def of(resource: str, halved: float) -> Limit:
        return Limit("bandwidth", resource, "all-reduce on dp", None, 1.0, halved)

    assert limit_remarks([of("nvlink", 0.5), of("network", 0.45)]) == []
    (inside,) = limit_remarks([of("nvlink", 0.1), of("network", 0.5)])
    assert inside.startswith("twice NVLink is not twice as fast")
    (outside,) = limit_remarks([of("network", 0.1), Limit("copy", "pcie", "", None, 1.0, 0.1)])
    assert outside.startswith("twice the NICs are not twice as fast")
    (latency,) = limit_remarks([Limit("latency", "network", "", None, 1.0, 0.5)])
    assert latency.startswith("latency: ")


def uneven(spent: list[int], stages: list[int]) -> Limit | None:
    """Ranks that compute so long (ps), each on its stage, and then meet; what evenness saves."""
    build = GraphBuilder()
    world = build.group("world", range(len(spent)))
    times: list[tuple[int, ...]] = []
    causes = {}
    for rank, (work, stage) in enumerate(zip(spent, stages, strict=True)):
        lane = build.lane(rank)
        own = build.compute(lane, work, name="work", tags=Tags(stage=stage))
        met = build.collective(lane, world, "all_reduce", 8, stream="comm", after=[(own, 0)])
        causes[met] = (own, Cause.DEPENDENCY)
        times += [(0, work), (work, max(spent), max(spent) + 1000)]
    found = limits(timeline(build, times, causes=causes))
    return next((one for one in found if one.kind == "imbalance"), None)


@pytest.mark.parametrize(
    ("spent", "stages", "where", "saved"),
    [
        ([110_000, 100_000], [-1, -1], "rank 0", 5_000),
        ([100_000, 110_000], [-1, -1], "rank 1", 5_000),
        ([110_000, 100_000], [0, 1], "stage 0", 5_000),
        ([100_000, 110_000], [0, 1], "stage 1", 5_000),
        # a rank that is over 2 % longer than its stage is named instead
        ([120_000, 119_000, 80_000, 81_000], [0, 0, 1, 1], "stage 0", 20_000),
        ([120_000, 117_000, 80_000, 83_000], [0, 0, 1, 1], "rank 0", 20_000),
    ],
)
def test_who_computes_longest(spent: list[int], stages: list[int], where: str, saved: int) -> None:
    found = uneven(spent, stages)
    assert found is not None
    mean = sum(spent) / len(spent)
    assert found.where == where
    assert found.ratio == pytest.approx(max(spent) / mean)
    assert found.removed_s == pytest.approx(saved * 1e-12)
    assert found.halved_s is None


@pytest.mark.parametrize(
    ("spent", "there"),
    # two percent over the mean of 100,000 are equal
    [([102_000, 98_000], False), ([102_100, 97_900], True), ([101_000, 100_000], False)],
)
def test_two_percent_over_the_mean_are_no_imbalance(spent: list[int], there: bool) -> None:
    assert (uneven(spent, [-1, -1]) is not None) is there


def test_a_rank_that_computes_nothing_is_not_in_the_mean() -> None:
    found = uneven([120_000, 100_000, 0], [-1] * 3)
    assert found is not None
    assert found.ratio == pytest.approx(120 / 110)


@pytest.mark.parametrize(
    ("preset", "aside", "found"),
    [
        (
            "pcie-a100",
            False,
            ["bandwidth pcie all-reduce on world, copies to and from host memory"],
        ),
        ("pcie-a100", True, ["bandwidth pcie all-reduce on world"]),  # the path has no copy
        ("dgx-h100", False, ["copy pcie ", "bandwidth nvlink all-reduce on world"]),
    ],
)
def test_copies_are_weighed_with_the_transfers_over_their_links(
    preset: str, aside: bool, found: list[str]
) -> None:
    """What copies and collectives both take is one limit; copies that hide are none."""
    copy: dict[str, Any] = {"bytes": "1MiB", "stream": "aside"} if aside else {"bytes": "256MiB"}
    ops = [{"copy_to_host": copy}, {"all_reduce": {"bytes": "256MiB"}}]
    result = run({"cluster": {"preset": preset}, "workload": {"program": {"ranks": {"all": ops}}}})
    assert [f"{one.kind} {one.resource} {one.where}" for one in result.limits] == found
    for one in result.limits:
        if one.resource == "pcie":  # large, so that twice the bandwidth is half of the time
            assert one.halved_s == pytest.approx(one.removed_s / 2, rel=0.01)
