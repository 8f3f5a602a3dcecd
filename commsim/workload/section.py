"""The `workload` section of a scenario: exactly one kind of work, and the graph it becomes."""

from __future__ import annotations

from commsim.cluster import Cluster
from commsim.errors import ScenarioError
from commsim.follow import Follow, unfollowed
from commsim.sections import Section
from commsim.workload.collectives import CollectiveSection, build_collectives
from commsim.workload.pipeline import PipelineSection, build_pipeline
from commsim.workload.program import ProgramSection, build_program
from commsim.workload.result import Workload
from commsim.workload.training import TrainingSection, build_training

__all__ = ["WorkloadSection", "build_workload", "chosen_kind"]


class WorkloadSection(Section, frozen=True, kw_only=True):
    """What a user writes under `workload`; `graph` and `trace` are paths to files."""

    training: TrainingSection | None = None
    pipeline: PipelineSection | None = None
    collectives: tuple[CollectiveSection, ...] | None = None
    program: ProgramSection | None = None
    graph: str | None = None
    trace: str | None = None


def chosen_kind(section: WorkloadSection, *, where: str = "workload") -> str:
    """Return which of the fields is given. Raises ScenarioError unless it is exactly one."""
    fields = WorkloadSection.__struct_fields__
    given = [name for name in fields if getattr(section, name) is not None]
    if len(given) == 1:
        return given[0]
    found = f"{' and '.join(given)} are given" if given else "nothing is given"
    raise ScenarioError(f"{where}: {found}. Give exactly one of: {', '.join(fields)}.")


def build_workload(
    section: WorkloadSection,
    *,
    cluster: Cluster | None = None,
    library: str = "",
    where: str = "workload",
    folder: str = ".",
    fold: bool = False,
    shorten: bool = False,
    follow: Follow = unfollowed,
) -> Workload:
    """Return the graph of a synthetic workload: any kind but graph and trace, which are files.

    `shorten`: of training steps, those that are not measured may be shorter.
    `library` is that of the groups of a program which name none. `folder` is where the files
    that a section names are looked for. `follow` gets to know which share is built.

    Raises:
        ScenarioError: not exactly one kind, a training without a cluster, or what the kind
            itself refuses.
    """
    kind = chosen_kind(section, where=where)
    world = None if cluster is None else cluster.world_size
    where = f"{where}.{kind}"
    if section.pipeline is not None:
        return build_pipeline(section.pipeline, where=where, folder=folder)
    if section.collectives is not None:
        return build_collectives(section.collectives, world_size=world, where=where, follow=follow)
    if section.program is not None:
        return build_program(
            section.program, world_size=world, library=library, where=where, follow=follow
        )
    if section.training is not None:
        if cluster is None:
            raise ScenarioError(f"{where}: needs a cluster, like cluster: {{preset: dgx-h100}}.")
        return build_training(
            section.training,
            cluster,
            where=where,
            folder=folder,
            fold=fold,
            shorten=shorten,
            follow=follow,
        )
    raise ScenarioError(f"{where}: is a file to load, not work to build.")
