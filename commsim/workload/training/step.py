"""
A training step as ops, for the ranks that a fold lets stand for themselves and others.

The actions of the pipeline schedule are issued in an order in which each could run. Messages
between stages have a stream per neighbour and direction: a send leaves the compute stream free;
receives from a neighbour are posted in the order in which it sends, when the action before the
previous one has ended, early enough to hide behind that one; compute waits for them.

Forward and backward that run as one (DualPipe) take turns on the compute stream piece by piece,
so that the communication of one runs beside the compute of the other.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from commsim.cluster import Cluster
from commsim.graph import Fold, Graph, GraphBuilder, Tags
from commsim.models import ComputeModel, compute_model
from commsim.workload.layout import divided
from commsim.workload.schedules import PHASE, Step, Work, execution_order
from commsim.workload.training.bucketed import Bucketed
from commsim.workload.training.lanes import RING, Chain, Lane
from commsim.workload.training.memory import with_memory
from commsim.workload.training.pieces import Piece, joined
from commsim.workload.training.plan import TrainingPlan
from commsim.workload.training.replicas import Alone, Place, add_optimizer
from commsim.workload.training.scripts import Scripts
from commsim.workload.training.sharded import Sharded

__all__ = ["Axes", "StepBuilder", "build_steps"]

Ints = npt.NDArray[np.int64]
MERGED_ABOVE = 60_000
"""Ops per step from which the layers of a stage are one op where nothing tells them apart."""


class Axes:
    """The groups and pairs of a layout by name, and the roles of its ranks."""

    def __init__(self, plan: TrainingPlan, cluster: Cluster) -> None:
        layout, section = plan.layout, plan.section
        self.places = layout.places()
        self.groups: dict[str, Ints] = {}
        for axis in ("tp", "cp", "pp"):
            if layout.degree(axis) > 1:
                self.groups[axis] = layout.groups(axis)
        replicas = _both_ends(plan, layout.replicas())
        if plan.sharers > 1:
            self.groups["dp"] = replicas
        if section.parallel.ep > 1:
            self.groups["ep"], same = divided(replicas, section.parallel.ep)
            if same.shape[1] > 1:
                self.groups["edp"] = same
        if section.data_parallel.kind == "hsdp":
            size = int(section.data_parallel.shard or 1)
            self.groups["shard"], self.groups["replicate"] = divided(replicas, size)
        if plan.tied_bytes:
            pipes = layout.groups("pp")
            ends = plan.schedule.pipes[0][0], plan.schedule.pipes[0][-1]
            self.groups["embedding"] = pipes[:, [plan.schedule.home[stage] for stage in ends]]
        self.pairs = _pairs(plan)
        self.gpu = _kinds(cluster)
        expert = self._expert_places(layout.world) if section.parallel.expert_skew > 1 else 0
        self.roles: Ints = (self.places["pp"] * (self.gpu.max() + 1) + self.gpu) * 2 + expert

    def expert_place(self, rank: int) -> int:
        """Return a rank's place in its expert group."""
        return int(np.argwhere(self.groups["ep"] == rank)[0][1])

    def _expert_places(self, world: int) -> Ints:
        """Return 1 for the ranks that hold the busiest experts, the first of each group."""
        busy = np.zeros(world, np.int64)
        busy[self.groups["ep"][:, 0]] = 1
        return busy


def _both_ends(plan: TrainingPlan, replicas: Ints) -> Ints:
    """Join the replicas of devices that hold the same parts (DualPipe's two copies)."""
    if plan.schedule.name != "dualpipe":
        return replicas
    by_device = replicas.reshape(-1, plan.layout.degree("pp"), replicas.shape[1])
    half = by_device.shape[1] // 2
    both = np.concatenate((by_device[:, :half], by_device[:, ::-1][:, :half]), axis=2)
    return both.reshape(-1, both.shape[2])


def _pairs(plan: TrainingPlan) -> dict[str, Ints]:
    """Return who sends to whom: stages by their distance along the pipeline, and the ring."""
    pairs: dict[str, list[Ints]] = {}
    pipes = plan.layout.groups("pp")
    hops = {
        (plan.schedule.home[a], plan.schedule.home[b])
        for pipe in plan.schedule.pipes
        for a, b in zip(pipe, pipe[1:], strict=False)
    }
    for source, target in sorted(hops | {(b, a) for a, b in hops}):
        if source != target:
            pairs.setdefault(hop_name(source, target), []).append(pipes[:, [source, target]])
    found = {name: np.concatenate(rows) for name, rows in pairs.items()}
    if plan.layout.degree("cp") > 1 and plan.section.parallel.context == "ring":
        ring = plan.layout.groups("cp")
        found[RING] = np.stack((ring.ravel(), np.roll(ring, -1, axis=1).ravel()), axis=1)
    return found


def hop_name(source: int, target: int) -> str:
    """Return the name of the pairs of devices that lie as far apart."""
    return f"pp {target - source:+d}"


def _kinds(cluster: Cluster) -> Ints:
    """Return a number per GPU that is equal for equal GPUs."""
    numbers: dict[int, int] = {}
    specs = [cluster.gpu(rank) for rank in range(cluster.world_size)]
    return np.array([numbers.setdefault(id(spec), len(numbers)) for spec in specs], dtype=np.int64)


def build_steps(plan: TrainingPlan, cluster: Cluster, axes: Axes, fold: Fold) -> Graph:
    """Return the graph of all steps, with lanes for the representatives of `fold`."""
    builder = StepBuilder(plan, cluster, axes, fold)
    for step in range(plan.section.steps):
        builder.step(step)
    meta = {"schedule": plan.schedule.name, "steps": plan.section.steps}
    return builder.build.build(meta)


class StepBuilder:
    """Issues the ops of all lanes, step by step."""

    def __init__(self, plan: TrainingPlan, cluster: Cluster, axes: Axes, fold: Fold) -> None:
        self.plan = plan
        self.axes = axes
        self.build = GraphBuilder(fold)
        self.models: dict[int, ComputeModel] = {}
        self.order = list(execution_order(plan.schedule))
        self.lanes: list[list[Lane]] = [[] for _ in range(plan.schedule.devices)]
        self._written: dict[tuple[int, int, bool], tuple[Scripts, Scripts]] = {}
        for rank in fold.representatives:
            lane = self._lane(rank, cluster)
            self.lanes[lane.device].append(lane)
        self.strategy = _strategy(plan, self.build, cluster, axes)
        count = sum(len(lanes) for lanes in self.lanes)
        layers = plan.model.shape.layers // plan.schedule.devices
        self.merges = count * 2 * plan.microbatches * layers > MERGED_ABOVE
        self.posts = _posting_order(self.order)
        self.limits = _limits(self.order)
        self.together = _together(self.order, plan)
        self.received: dict[tuple[int, int, int], int] = {}

    def _lane(self, rank: int, cluster: Cluster) -> Lane:
        device, kind = int(self.axes.places["pp"][rank]), int(self.axes.gpu[rank])
        if kind not in self.models:
            section = self.plan.section
            self.models[kind] = compute_model(
                cluster.gpu(rank), precision=section.precision, section=section.compute,
                where=self.plan.where,
            )  # fmt: skip
        skew, place = self._skew(rank)
        load = skew[place] * len(skew) if skew else 1.0
        written = {
            stage.number: self._scripts(stage.number, kind, load)
            for stage in self.plan.held(device)
        }
        return Lane(
            self.build.lane(rank), rank, device,
            {stage: whole for stage, (whole, _) in written.items()},
            {stage: merged for stage, (_, merged) in written.items()},
            skew, place,
        )  # fmt: skip

    def _skew(self, rank: int) -> tuple[tuple[float, ...], int]:
        """Return the share of tokens of each expert rank, and this rank's place among them."""
        parallel = self.plan.section.parallel
        if parallel.expert_skew == 1 or parallel.ep == 1:
            return (), -1
        busiest = min(1.0, parallel.expert_skew / parallel.ep)
        rest = (1 - busiest) / (parallel.ep - 1)
        return (busiest, *([rest] * (parallel.ep - 1))), self.axes.expert_place(rank)

    def _scripts(self, stage: int, kind: int, load: float) -> tuple[Scripts, Scripts]:
        """Return the scripts of a stage, by unit and with units merged."""
        key = (self.plan.stages[stage].part, kind, load > 1)
        if key not in self._written:
            model = self.models[kind]
            whole = self.plan.author(model, load=load).scripts(self.plan.stages[stage].units)
            whole = with_memory(whole, self.plan, model, self.plan.stages[stage].units)
            self._written[key] = (_map(whole, across=False), _map(whole, across=True))
        return self._written[key]

    def step(self, step: int) -> None:
        """Issue one training step of all lanes."""
        for actions in self.together:
            for lane in self.lanes[actions[0].device]:
                self._perform(lane, actions, step)
                if actions[-1].position == self.limits.final[lane.device]:
                    self._finish(lane, step)

    def _perform(self, lane: Lane, actions: tuple[Step, ...], step: int) -> None:
        """Issue an action, or two that run as one."""
        received = [op for at in actions for op in self._receive(lane, at, step)]
        chains = [
            Chain(self.build, lane, self._tags(at, step), after=[*received, *lane.tail],
                  precision=self.plan.section.precision)
            for at in actions
        ]  # fmt: skip
        running = [
            self._pieces(lane, at, step, chain) for at, chain in zip(actions, chains, strict=True)
        ]
        while running:
            running = [pieces for pieces in running if next(pieces, None) is not None]
        lane.tail = []
        for at, chain in zip(actions, chains, strict=True):
            ends = chain.ends()
            lane.tail += ends[:1] if not chain.on_compute else []
            lane.tail += ends[1:]
            self._send(lane, at, step, ends)
        lane.ends.append(chains[-1].last)

    def _pieces(self, lane: Lane, at: Step, step: int, chain: Chain) -> Iterator[Piece]:
        """Issue the pieces of an action one by one, and tell the strategy of its units."""
        work, stage, _ = at.action
        place = Place(
            at, step, work == Work.F,
            first=at.position == self.limits.first[stage],
            last=at.position == self.limits.last[stage],
        )  # fmt: skip
        yield from self._gather_boundary(lane, at, chain)
        apart = self.strategy.unit_by_unit(place)
        scripts = lane.scripts if apart or not self.merges else lane.merged
        script = getattr(scripts[stage], _SCRIPT[work])
        units = range(len(self.plan.stages[stage].units))
        order = list(units if work == Work.F else reversed(units))
        done: list[int] = []
        for group in [[unit] for unit in order] if apart else [order]:
            if work != Work.W:
                for unit in group:
                    chain.wait(self.strategy.enter(lane, place, unit, done))
            for piece in script:
                if not apart or piece.unit == group[0]:
                    chain.add(piece)
                    yield piece
            if chain.last >= 0:
                done.append(chain.last)
                for unit in group if work != Work.I else ():
                    self.strategy.leave(lane, place, unit, chain.last)

    def _gather_boundary(self, lane: Lane, at: Step, chain: Chain) -> Iterator[Piece]:
        """Gather a boundary of which each rank received its part (scatter-gather)."""
        parallel = self.plan.section.parallel
        if parallel.scatter_gather and parallel.tp > 1 and at.producer is not None:
            whole = self.plan.boundary * parallel.tp
            piece = Piece(-1, "all_gather boundary", -1, "all_gather", axis="tp", size=whole)
            chain.add(piece)
            yield piece

    def _receive(self, lane: Lane, at: Step, step: int) -> list[int]:
        """Post the messages that a neighbour sends up to the one this action needs."""
        for source, position, work in self.posts.get((at.device, at.position), ()):
            hop = hop_name(source, at.device)
            self.received[lane.lane, source, position] = self.build.recv(
                lane.lane, hop, self.plan.boundary,
                group=self.build.orbit("pp", lane.rank), stream=f"{hop} recv",
                after=lane.ends[-2:-1], tags=self._tags(at, step)._replace(phase=PHASE[work]),
            )  # fmt: skip
        if at.producer is None:
            return []
        return [self.received.pop((lane.lane, *at.producer))]

    def _send(self, lane: Lane, at: Step, step: int, after: list[int]) -> None:
        if at.feeds < 0:
            return
        hop = hop_name(at.device, at.feeds)
        self.build.send(
            lane.lane, hop, self.plan.boundary, group=self.build.orbit("pp", lane.rank),
            stream=f"{hop} send", after=after, tags=self._tags(at, step),
        )  # fmt: skip

    def _finish(self, lane: Lane, step: int) -> None:
        """Issue what is left of the reductions, the optimizer, and what follows it."""
        stage = self.plan.held(lane.device)[0].number if self.plan.schedule.stages > 1 else -1
        waits = self.strategy.reduced(lane, step)
        if self.plan.tied_bytes and self._at_an_end(lane.device):
            waits.append(
                self.build.collective(
                    lane.lane, self.build.orbit("embedding", lane.rank), "all_reduce",
                    self.plan.tied_bytes, stream="embedding", name="all_reduce embedding",
                    dtype=self.plan.section.precision, after=waits[-1:] or lane.ends[-1:],
                    tags=Tags(step=step, stage=stage),
                )
            )  # fmt: skip
        optimizer = add_optimizer(
            self.build, lane, self.strategy.optimizer_entries(lane.device),
            self.models[int(self.axes.gpu[lane.rank])], step=step, stage=stage,
            after=[*waits, *lane.tail],
        )  # fmt: skip
        lane.tail = []
        lane.ends.append(optimizer)
        self.strategy.updated(lane, step, optimizer)

    def _at_an_end(self, device: int) -> bool:
        home, pipe = self.plan.schedule.home, self.plan.schedule.pipes[0]
        return device in (home[pipe[0]], home[pipe[-1]])

    def _tags(self, at: Step, step: int) -> Tags:
        work, stage, microbatch = at.action
        staged = self.plan.schedule.stages > 1
        return Tags(PHASE[work], step, microbatch, stage if staged else -1)


_SCRIPT = {Work.F: "forward", Work.B: "backward", Work.I: "input_backward", Work.W: "weight"}


def _together(order: list[Step], plan: TrainingPlan) -> list[tuple[Step, ...]]:
    """Return the actions in order, those that run as one in one tuple."""
    found: list[tuple[Step, ...]] = []
    for at in order:
        joins = at.position > 0 and plan.schedule.is_paired(at.device, at.position - 1)
        if joins:
            found[-1] = (*found[-1], at)
        else:
            found.append((at,))
    return found


class Limits(NamedTuple):
    """Positions: of each device's last action, each stage's first forward and last gradient."""

    final: dict[int, int]
    first: dict[int, int]
    last: dict[int, int]


def _limits(order: list[Step]) -> Limits:
    limits = Limits({}, {}, {})
    for at in order:
        limits.final[at.device] = at.position
        if at.action.work == Work.F:
            limits.first.setdefault(at.action.stage, at.position)
        elif at.action.work != Work.I:
            limits.last[at.action.stage] = at.position
    return limits


def _posting_order(order: list[Step]) -> dict[tuple[int, int], list[tuple[int, int, Work]]]:
    """Return the messages (device, position, work) to post with each action that receives.

    Messages from one neighbour are posted in the order in which it sends them, even where they
    are needed in another.
    """
    sent: dict[tuple[int, int], list[tuple[int, int, Work]]] = {}
    place: dict[tuple[int, int], int] = {}
    for at in order:
        if at.feeds >= 0:
            messages = sent.setdefault((at.device, at.feeds), [])
            place[at.device, at.position] = len(messages)
            messages.append((at.device, at.position, at.action.work))
    posted: dict[tuple[int, int], int] = {}
    posts: dict[tuple[int, int], list[tuple[int, int, Work]]] = {}
    for at in order:
        if at.producer is not None:
            link = (at.producer[0], at.device)
            begin, end = posted.get(link, 0), place[at.producer] + 1
            posts[at.device, at.position] = sent[link][begin:end]
            posted[link] = max(begin, end)
    return posts


def _map(scripts: Scripts, *, across: bool) -> Scripts:
    return Scripts(
        *(
            joined(script, across_units=across)
            for script in (
                scripts.forward, scripts.backward, scripts.input_backward, scripts.weight,
            )
        )
    )  # fmt: skip


def _strategy(plan: TrainingPlan, build: GraphBuilder, cluster: Cluster, axes: Axes) -> Alone:
    """Return how the replicas of a plan keep their parameters equal."""
    data, ep = plan.section.data_parallel, plan.section.parallel.ep
    experts = plan.sharers // ep
    sizes = {False: plan.sharers, True: experts}
    names = {False: "dp"}
    if plan.model.shape.experts is not None and experts > 1:
        names[True] = "edp" if ep > 1 else "dp"
    if plan.sharers == 1:
        return Alone(plan, build)
    if data.kind in ("fsdp", "hsdp") or data.stage == 3:
        if data.kind != "hsdp":
            return Sharded(plan, build, axes=names, sizes=sizes)
        size = int(data.shard or 1)
        between = "replicate" if size < plan.replicas else ""
        return Sharded(
            plan, build, axes={False: "shard", True: "shard"},
            sizes={False: size, True: size}, between=between,
        )  # fmt: skip
    return Bucketed(plan, build, cluster, axes=names, sizes=sizes)
