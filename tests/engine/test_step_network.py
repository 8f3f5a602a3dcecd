"""Message by message: flows and messages share one network, and members start before they end."""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any

import numpy as np
import pytest
from helpers.link_use import ps_over
from helpers.star import Star
from msgspec.structs import replace
from simpy.events import Event

from commsim.cluster import Cluster
from commsim.engine import simulate, step_network
from commsim.engine.clock import Clock
from commsim.engine.core import Engine
from commsim.engine.recorder import Recorder
from commsim.engine.step_network import MessageProgress, StepNetwork
from commsim.graph import GraphBuilder
from commsim.libraries import (
    Ideal,
    LibrarySection,
    Plan,
    PlanPhase,
    Request,
    RoutedProgram,
    make_library,
)
from commsim.libraries.expansion import waves
from commsim.timeline import Timeline

MS = 10**9
MIB = 1 << 20


def run(cluster: Cluster, name: str, *ops: tuple[str, int], network: str = "steps") -> Timeline:
    """Start collectives of everybody at once, each on a stream and a group of its own."""
    build = GraphBuilder()
    lanes = [build.lane(rank) for rank in range(cluster.world_size)]
    for number, (op, size) in enumerate(ops):
        group = build.group(f"g{number}", range(cluster.world_size))
        for rank in range(cluster.world_size):
            root = 0 if op in ("reduce", "broadcast") else -1
            build.collective(lanes[rank], group, op, size, stream=f"s{number}", root=root)
    library = make_library(LibrarySection(name), cluster)
    return simulate(build.build(), cluster, library=library, network=network)


def phase(link: int, size: float, idle: int = MS) -> PlanPhase:
    return PlanPhase(idle, np.array([link]), np.array([size]), np.ones(1))


def ends(*work: tuple[int, PlanPhase | float]) -> list[int]:
    """Return when flows (phases) and messages (bytes over link 0), started at some times, end."""
    env, star = Clock(), Star(2, 1e9, 0)
    network = StepNetwork(env, star.links, Recorder(GraphBuilder().build()))
    found = [0] * len(work)

    def go(number: int, start: int, what: PlanPhase | float) -> Any:
        yield env.timeout(start)
        if isinstance(what, PlanPhase):
            yield network.start(what).reach(1.0)
        else:
            one = np.zeros(1, np.int64)
            messages = RoutedProgram(
                one, one + 1, np.array([what]), one, (star.local_route(0, 1),),
                np.zeros(2, np.int64), one[:0],
            )  # fmt: skip
            yield network.send(MessageProgress(messages, lambda _: None), [])[1]
        found[number] = env.now

    for number, (start, what) in enumerate(work):
        env.process(go(number, start, what))
    env.run()
    return found


def test_a_flow_alone_takes_its_idle_time() -> None:
    assert ends((0, phase(0, 1e5))) == [MS]
    assert ends((5, phase(0, 1e6))) == [MS + 5]


def test_a_flow_leaves_messages_what_it_does_not_need() -> None:
    """The flow needs a quarter of the link for 1 ms: beside the first slice of it, the message
    has the rest, then all; the slices behind it find room enough to end in time.
    """
    flow, message = ends((0, phase(0, 0.25e6)), (0, 0.75e6))
    assert flow == MS
    assert message == pytest.approx(0.75 * MS + 0.25 * MS / 64, rel=1e-6)


def test_a_flow_that_needs_all_of_a_link_and_a_message_take_the_time_of_both() -> None:
    flow, message = ends((0, phase(0, 1e6)), (0, 0.5e6))
    assert max(flow, message) == pytest.approx(1.5 * MS, rel=1e-6)
    assert message < 0.6 * MS  # it waits for a slice, not for the whole flow


def test_two_flows_share_a_link() -> None:
    assert max(ends((0, phase(0, 1e6)), (0, phase(0, 1e6)))) == pytest.approx(2 * MS, rel=1e-6)


@pytest.mark.parametrize("op", ["all_to_all", "all_gather"])
def test_flows_and_messages_of_nccl_share_every_link(op: str) -> None:
    cluster = Cluster.preset("aws-p3dn", nodes=2)
    work = (("all_reduce", 64 * MIB), (op, 64 * MIB))
    links = run(cluster, "nccl", *work).links
    for link in np.flatnonzero(links.link_bytes()).tolist():
        assert ps_over(*links.segments(link), float(links.bandwidth[link])) <= 3
    fluid = run(cluster, "nccl", *work, network="fluid").links
    assert links.link_bytes() == pytest.approx(fluid.link_bytes(), rel=1e-3, abs=1.0)


def test_a_collective_without_a_program_is_named() -> None:
    cluster = Cluster.preset("dgx-h100", nodes=2, fabric={"sharp": True})
    settings = {"NCCL_ALGO": "NVLS", "NCCL_COLLNET_ENABLE": 1, "NCCL_PROTO": "Simple"}
    build = GraphBuilder()
    group = build.group("g", range(16))
    for rank in range(16):
        build.collective(build.lane(rank), group, "all_gather", MIB, stream="s")
    library = make_library(LibrarySection("nccl", env=settings), cluster)
    found = simulate(build.build(), cluster, library=library, network="steps")
    assert any("all_gather" in note and "no program of messages" in note for note in found.notes)
    for name in ("nccl", "ideal"):
        notes = run(Cluster.preset("dgx-h100"), name, ("all_to_all", MIB)).notes
        assert not any("no program" in note for note in notes)


@pytest.mark.share(0.5)
@pytest.mark.parametrize("op", ["reduce", "broadcast", "scatter", "gather"])
@pytest.mark.parametrize("late", [None, 0, 2])
def test_members_that_come_at_once_start_before_they_end(op: str, late: int | None) -> None:
    """Whoever of them comes first, and whether one is late."""
    for name, cluster in (
        ("gloo", Cluster.preset("cpu-ethernet", nodes=4)),
        ("ideal", Cluster.preset("dgx-h100")),
    ):
        if op in ("scatter", "gather") and name == "gloo":
            continue
        build = GraphBuilder()
        group = build.group("g", range(cluster.world_size))
        for rank in reversed(range(cluster.world_size)):
            lane = build.lane(rank)
            if rank == late:
                build.compute(lane, 3 * MS, name="c", stream="s")
            build.collective(lane, group, op, MIB, stream="s", root=1)
        library = make_library(LibrarySection(name), cluster)
        found = simulate(build.build(), cluster, library=library, network="steps")
        assert (found.arrive <= found.start).all()
        assert (found.start <= found.end).all()
        spans = found.communicates
        if late is None:
            assert (found.start[spans] == found.arrive[spans]).all()


def test_of_nothing_sent_nothing_has_arrived() -> None:
    env, star = Clock(), Star(2, 1e9, 0)
    network = StepNetwork(env, star.links, Recorder(GraphBuilder().build()))
    assert network.share_arrived() == 0.0
    network.start(phase(0, 1e6)).reach(1.0)
    assert network.share_arrived() == 0.0
    env.run()
    assert network.share_arrived() == 1.0


def test_messages_that_have_arrived_count_as_work_done() -> None:
    """Of two all-reduces at once, which are all that there is to do."""
    cluster = Cluster.preset("dgx-h100")
    build = GraphBuilder()
    for ranks in (range(4), range(4, 8)):
        group = build.group(f"of {ranks}", ranks)
        for rank in ranks:
            build.collective(build.lane(rank), group, "all_reduce", 64 * MIB, stream="s")
    library = make_library(LibrarySection("ideal", algo="ring"), cluster)
    graph, asked, seen = build.build(), list[Callable[[], float]](), list[float]()
    whole = simulate(graph, cluster, library=library, network="steps").end_time

    def looks(engine: Engine) -> Generator[Event, Any, None]:
        for _ in range(4):
            seen.append(asked[0]())
            yield engine.env.timeout(whole // 4)

    again = simulate(
        graph, cluster, library=library, network="steps", extensions=[looks], follow=asked.append
    )
    assert again.end_time == whole
    assert seen == pytest.approx([0, 1 / 6, 2 / 6, 4 / 6], abs=0.01)  # of a ring of 4, in 6 steps
    assert asked[0]() == 1.0


def random_work(seed: int) -> tuple[Cluster, Timeline]:
    """Run rings of random groups that begin at random times, and messages between some ranks."""
    rng = np.random.default_rng(seed)
    n = 12
    cluster = Cluster.preset(
        "dgx-h100", nodes=n,
        overrides={"gpu": {"count": 1}, "nic": {"count": 1}}, fabric={"kind": "single_switch"},
    )  # fmt: skip
    build = GraphBuilder()
    lanes = [build.lane(rank) for rank in range(n)]
    for number in range(int(rng.integers(1, 5))):
        members = sorted(rng.choice(n, int(rng.integers(8, n + 1)), replace=False).tolist())
        group, size = build.group(f"g{number}", members), int(rng.integers(1, 1 << 24))
        begins = int(rng.integers(0, 3 * MS))
        for rank in members:
            stream = f"s{number}"
            build.compute(lanes[rank], begins, name="before", stream=stream)
            build.collective(lanes[rank], group, "all_reduce", size, stream=stream)
            build.compute(lanes[rank], 1000, name="after", stream=stream)
    library = make_library(LibrarySection("ideal", algo="ring"), cluster)
    return cluster, simulate(build.build(), cluster, library=library, network="steps")


def test_programs_that_are_alone_for_a_while_run_as_message_by_message(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Alone, then not: graphs of one to four rings give the same timelines."""
    monkeypatch.setattr(waves, "_LEAST", 1)
    ended: list[object] = []
    end = StepNetwork._end_solitude

    def heard(network: StepNetwork) -> None:
        ended.append(network._lone)
        end(network)

    monkeypatch.setattr(StepNetwork, "_end_solitude", heard)
    found = [random_work(seed) for seed in range(20)]
    assert sum(lone is not None for lone in ended) > 4  # some were no longer alone
    monkeypatch.setattr(step_network, "waves_of", lambda *_: None)
    for seed, (_, mine) in enumerate(found):
        theirs = random_work(seed)[1]
        for name in ("arrive", "start", "end"):
            assert np.abs(getattr(mine, name) - getattr(theirs, name)).max() <= 1, (seed, name)
        assert mine.links.link_bytes() == pytest.approx(theirs.links.link_bytes(), rel=1e-6)


class WithoutMessages(Ideal):
    """The ideal library, whose plans have no programs of messages."""

    def plan(self, request: Request, cluster: Cluster | None) -> Plan:
        return replace(super().plan(request, cluster), programs=())


def test_without_messages_members_start_when_the_data_reaches_them() -> None:
    """As in the fluid network, of which the plan is a flow; the root comes last."""
    cluster, build = Star(4), GraphBuilder()
    lanes, group = [build.lane(rank) for rank in range(4)], build.group("g", range(4))
    build.compute(lanes[0], MS, name="late", stream="s")
    for lane in lanes:
        build.collective(lane, group, "broadcast", MIB, stream="s", root=0)
    fluid, steps = (
        simulate(build.build(), cluster, library=WithoutMessages(), network=network)
        for network in ("fluid", "steps")
    )
    assert steps.start.tolist() == fluid.start.tolist()
    assert MS == fluid.start[1] < fluid.start[3] < fluid.start[4]
