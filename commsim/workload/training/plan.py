"""
A training section, checked and computed for a cluster: layout, parts, schedule, widths.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path

import msgspec
from msgspec.structs import replace

from commsim.cluster import Cluster
from commsim.errors import ScenarioError
from commsim.models import (
    ComputeModel,
    Model,
    Split,
    build_model,
    check_split,
    compute_model,
    hidden_bytes,
    recipe_of,
    stack_constants,
)
from commsim.workload.layout import Layout, check_world, make_layout
from commsim.workload.schedules import (
    Schedule,
    StageTimes,
    check_virtual,
    home_of,
    is_laid_out,
    is_schedule_file,
    load_schedule,
    make_schedule,
    paired,
)
from commsim.workload.training.checks import check_context, check_experts, check_settings
from commsim.workload.training.defaults import StackDefaults, with_defaults
from commsim.workload.training.section import (
    WIDTH,
    DataParallelSection,
    TrainingSection,
    whole_experts,
)
from commsim.workload.training.stage_compiler import StageCompiler
from commsim.workload.training.stages import Stage, Unit, divide_layers, make_parts
from commsim.workload.training.times import Estimate

__all__ = ["TrainingPlan", "plan_shared_as", "plan_training", "schedule_of"]


class TrainingPlan(msgspec.Struct, frozen=True):
    """What a step consists of. Widths are bytes per entry; `boundary` those of a message."""

    section: TrainingSection
    given: DataParallelSection
    """What the section itself says of data parallelism."""
    taken: StackDefaults
    where: str
    model: Model
    layout: Layout
    split: Split
    schedule: Schedule
    stages: tuple[Stage, ...]
    microbatches: int
    width: int
    gradient_width: int
    boundary: int
    tied_bytes: int
    """Gradient bytes of a token table that two devices hold, else 0."""

    @property
    def replicas(self) -> int:
        """The ranks with the same (dense) parameters, dp x cp."""
        return self.layout.degree("dp") * self.layout.degree("cp")

    @property
    def sharers(self) -> int:
        """The ranks that reduce one gradient: replicas, times the copies of a part (DualPipe)."""
        return self.replicas * len(self.schedule.pipes)

    @property
    def expert_sharers(self) -> int:
        """The ranks that reduce one gradient of an expert."""
        spread = self.layout.degree("tp") if self.split.whole_experts else 1
        return self.sharers * spread // self.section.parallel.ep

    @property
    def recomputed(self) -> float:
        """The share of layers that recompute is for."""
        parts = {stage.part: stage.units for stage in self.stages}.values()
        layers = [unit.again for units in parts for unit in units if unit.layer >= 0]
        return sum(layers) / max(1, len(layers))

    @property
    def agree_at_the_end(self) -> bool:
        """Whether copies of a part run it in different orders, so that they reduce at the end."""
        return len(self.schedule.pipes) > 1

    @property
    def reduces_every_microbatch(self) -> bool:
        """Whether buckets of gradients are reduced in every microbatch, not in the last alone."""
        data = self.section.data_parallel
        every = data.stage == 2 if data.no_sync is None else not data.no_sync
        return every and not self.agree_at_the_end

    @property
    def overlaps_reductions(self) -> bool:
        """Whether buckets are reduced during the backward."""
        return self.section.data_parallel.overlap is not False and not self.agree_at_the_end

    def gathers_ahead(self, *, forward: bool) -> int:
        """Return how many units of sharded parameters are gathered before a pass needs them."""
        prefetch = self.section.data_parallel.prefetch
        if prefetch is not None:
            return int(prefetch)
        stack = stack_constants(str(self.section.compute.stack))
        return stack.forward_gathers_ahead if forward else stack.gathers_ahead

    @property
    def reshards_once(self) -> bool:
        """Whether a stage's sharded parameters stay whole from its first forward to its last
        backward."""
        return self.section.data_parallel.reshard == "step"

    @property
    def adds_up_whole(self) -> bool:
        """Whether gradients of sharded parameters are whole until the last microbatch."""
        data = self.section.data_parallel
        return data.kind in ("fsdp", "hsdp") and bool(data.no_sync) and self.microbatches > 1

    @property
    def parameter_gathers(self) -> int:
        """How often a step gathers sharded parameters."""
        if self.reshards_once:
            return 1
        keeps = self.section.data_parallel.shard == "grad_op"
        return self.microbatches * (1 if keeps else 2)

    @property
    def gradient_reductions(self) -> int:
        """How often a step reduces the gradients of sharded parameters."""
        return 1 if self.adds_up_whole else self.microbatches

    @property
    def communicators(self) -> int:
        """How many groups a rank talks in: one per axis that is split, and one of all replicas."""
        parallel = self.section.parallel
        axes = (parallel.tp, parallel.cp, parallel.pp, parallel.ep, self.sharers)
        return sum(degree > 1 for degree in axes)

    @property
    def dtype(self) -> str:
        """The type of activations and parameters in collectives: recipes keep them in bf16."""
        precision = self.section.precision
        return "bf16" if recipe_of(precision).quantised else precision

    @property
    def gradient_dtype(self) -> str:
        """The type of gradients in collectives."""
        return self.section.data_parallel.gradients or self.dtype

    @property
    def sequences(self) -> int:
        """The sequences of a step over all ranks."""
        return self.section.batch.global_

    def held(self, device: int) -> tuple[Stage, ...]:
        """Return the stages of a device."""
        return tuple(stage for stage in self.stages if stage.device == device)

    def compiler(self, model: ComputeModel, *, load: float = 1.0) -> StageCompiler:
        """Return what compiles stages into work items for the GPUs of `model`."""
        parallel = self.section.parallel
        return StageCompiler(
            self.model.shape,
            self.split,
            model,
            self.width,
            self.section.recompute,
            parallel.tp_overlap or "none",
            parallel.context,
            load,
            parallel.expert_skew > 1,
        )


def plan_training(
    section: TrainingSection, cluster: Cluster, *, where: str, folder: str = "."
) -> TrainingPlan:
    """Check `section` against `cluster` and work out stages, microbatches and widths.

    Raises:
        ScenarioError: settings that do not go together, degrees that do not make the cluster's
            size, a batch or layers that do not divide, a precision that a GPU lacks.
    """
    check_settings(section, where=where)
    given = section.data_parallel
    section, taken = with_defaults(section, where=where)
    parallel, at = section.parallel, f"{where}.parallel"
    degrees = {axis: getattr(parallel, axis) for axis in ("tp", "cp", "dp", "pp")}
    layout = make_layout(degrees, parallel.order, where=at)
    check_world(layout, cluster.world_size, where=at)
    model = build_model(section.model, where=f"{where}.model")
    split = Split(
        section.batch.micro,
        model.seq_len,
        parallel.tp,
        parallel.sequence_parallel,
        parallel.cp,
        parallel.ep,
        stack_constants(str(section.compute.stack)).loss_parallel,
        parallel.expert_capacity or 0.0,
        parallel.dispatcher or "alltoall",
        _expert_nodes(layout, cluster, section),
        parallel.context == "ulysses",
        whole_experts(parallel),
        parallel.shared_overlap,
    )
    check_split(model.shape, split, where=at)
    check_context(section, model, where=at)
    check_experts(section, model, where=where)
    microbatches = _microbatches(section, where)
    compute = compute_model(
        cluster.gpu(0),
        precision=section.precision,
        section=section.compute,
        where=where,
        gpus=cluster.world_size,
    )
    width = WIDTH[section.precision]
    schedule, parts = _schedule(
        section, model, split, compute, microbatches, layout, cluster, where=at, folder=folder
    )
    stages = tuple(
        Stage(number, device, schedule.part(number), parts[schedule.part(number)])
        for number, device in enumerate(schedule.home)
    )
    return TrainingPlan(
        section=section,
        given=given,
        taken=taken,
        where=where,
        model=model,
        layout=layout,
        split=split,
        schedule=schedule,
        stages=stages,
        microbatches=microbatches,
        width=width,
        gradient_width=WIDTH[section.data_parallel.gradients or section.precision],
        boundary=_boundary(section, model, split),
        tied_bytes=_tied_bytes(section, model, schedule),
    )


def plan_shared_as(plan: TrainingPlan, section: TrainingSection) -> TrainingPlan:
    """Return a plan whose replicas are kept equal as `section` says, otherwise the same."""
    section, taken = with_defaults(section, where=plan.where)
    width = WIDTH[section.data_parallel.gradients or section.precision]
    return replace(
        plan, section=section, given=section.data_parallel, taken=taken, gradient_width=width
    )


def _expert_nodes(layout: Layout, cluster: Cluster, section: TrainingSection) -> int:
    """Return the NVLink domains that the first expert-parallel group lies on."""
    holders = layout.holders(layout.replicas(), whole=whole_experts(section.parallel))
    return len(set(cluster.domains[holders[0, : section.parallel.ep]].tolist()))


def _microbatches(section: TrainingSection, where: str) -> int:
    dp, batch = section.parallel.dp, section.batch
    what = f"dp={dp}"
    if section.data_parallel.kind == "parameter_server":
        servers = section.data_parallel.servers or 1
        if servers >= dp:
            raise ScenarioError(
                f"{where}.data_parallel.servers: {servers} servers of dp={dp} ranks leave no"
                " worker. Give fewer servers or more ranks."
            )
        dp, what = dp - servers, f"workers={dp - servers}"
    count, left = divmod(batch.global_, dp * batch.micro)
    if left:
        raise ScenarioError(
            f"{where}.batch: global {batch.global_} does not divide by {what} ×"
            f" micro={batch.micro} = {dp * batch.micro} sequences. Give a multiple of"
            f" {dp * batch.micro}, or change parallel.dp or batch.micro."
        )
    return count


def _schedule(
    section: TrainingSection,
    model: Model,
    split: Split,
    compute: ComputeModel,
    microbatches: int,
    layout: Layout,
    cluster: Cluster,
    *,
    where: str,
    folder: str,
) -> tuple[Schedule, tuple[tuple[Unit, ...], ...]]:
    """Return the schedule, and the units of each part of the model."""
    parallel, shape = section.parallel, model.shape
    name, pp = parallel.schedule, parallel.pp
    read = None
    if is_schedule_file(name):
        read = load_schedule(Path(folder) / name, where=f"{where}.schedule")
        _check_read(read, pp, microbatches, f"{where}.schedule")
        check_virtual(read, parallel.virtual_stages, where=f"{where}.schedule")
        home, items = read.home, read.parts // pp
    else:
        home = home_of(name, pp, parallel.virtual_stages, where=f"{where}.schedule")
        items = 1 if name == "dualpipe" else len(home) // pp
    layers = divide_layers(shape.layers, pp, items, parallel.layers_per_stage, where=where)
    copied = shape.tied_embeddings and name != "dualpipe" and home[0] != home[len(layers) - 1]
    parts = make_parts(
        shape,
        layers,
        tp=parallel.tp,
        ep=parallel.ep,
        copied=copied,
        etp=split.expert_tp,
        again=partial(_runs_again, section),
    )
    if read is not None:
        return read, parts
    times = None
    if is_laid_out(name):
        compiler = StageCompiler(
            shape,
            split,
            compute,
            WIDTH[section.precision],
            section.recompute,
            parallel.tp_overlap or "none",
            parallel.context,
        )
        times = Estimate(layout, cluster, split).stages(
            parts, home, compiler=compiler, boundary=_boundary(section, model, split), tied=copied
        )
    return schedule_of(section, microbatches, where=where, times=times), parts


def _runs_again(section: TrainingSection, layer: int, place: int) -> bool:
    """Return whether recompute is for a layer that is at `place` of its part."""
    if section.recompute_first is not None:
        return place < section.recompute_first
    return (layer + 1) % (section.recompute_every or 1) == 0


def schedule_of(
    section: TrainingSection, microbatches: int, *, where: str, times: StageTimes | None = None
) -> Schedule:
    """Return the schedule of `microbatches` that the section names, in pairs if it says so."""
    parallel = section.parallel
    schedule = make_schedule(
        parallel.schedule,
        parallel.pp,
        microbatches,
        where=f"{where}.schedule",
        virtual=parallel.virtual_stages,
        times=times,
    )
    return paired(schedule, where=f"{where}.schedule") if parallel.expert_overlap else schedule


def _boundary(section: TrainingSection, model: Model, split: Split) -> int:
    """Return the bytes of a message from stage to stage."""
    whole = hidden_bytes(model.shape, split, width=WIDTH[section.precision])
    return whole // section.parallel.tp if section.parallel.scatter_gather else whole


def _check_read(schedule: Schedule, pp: int, microbatches: int, where: str) -> None:
    found = 1 + max(action.microbatch for row in schedule.actions for action in row)
    if schedule.devices != pp or found != microbatches or schedule.parts % pp:
        raise ScenarioError(
            f"{where}: {schedule.name} has {schedule.devices} ranks, {schedule.parts} stages and"
            f" {found} microbatches; the layout has pp={pp} and {microbatches} microbatches."
        )


def _tied_bytes(section: TrainingSection, model: Model, schedule: Schedule) -> int:
    """Return what is all-reduced between the ends; with DualPipe both ends hold both."""
    first, last = schedule.pipes[0][0], schedule.pipes[0][-1]
    together = schedule.home[first] == schedule.home[last] or len(schedule.pipes) > 1
    if not model.shape.tied_embeddings or together:
        return 0
    width = WIDTH[section.data_parallel.gradients or section.precision]
    return -(-model.shape.vocab // section.parallel.tp) * model.shape.hidden * width
