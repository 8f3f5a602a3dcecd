"""The `workload` section of a scenario: exactly one kind of work, and the graph it becomes."""

from __future__ import annotations

from commsim.cluster import Cluster
from commsim.errors import ScenarioError
from commsim.follow import Follow, unfollowed
from commsim.sections import Section
from commsim.units import Duration
from commsim.workload.collectives import CollectiveSection, build_collectives
from commsim.workload.pipeline import PipelineSection, build_pipeline
from commsim.workload.program import ProgramSection, build_program
from commsim.workload.result import Workload
from commsim.workload.training import TrainingSection, build_training

__all__ = ["WorkloadSection", "build_workload", "chosen_kind"]


class WorkloadSection(Section, frozen=True, kw_only=True):
    """What a user writes under `workload`; `graph` and `trace` are paths to files.

    `host_overhead` is how long Python takes to issue an op of a captured graph; without it, as it
    was measured on one host.
    """

    training: TrainingSection | None = None
    pipeline: PipelineSection | None = None
    collectives: tuple[CollectiveSection, ...] | None = None
    program: ProgramSection | None = None
    graph: str | None = None
    trace: str | None = None
    host_overhead: Duration | None = None


_KINDS = tuple(name for name in WorkloadSection.__struct_fields__ if name != "host_overhead")


def chosen_kind(section: WorkloadSection, *, where: str = "workload") -> str:
    """Return which kind of work is given.

    Raises:
        ScenarioError: none or several are, or what belongs to another kind.
    """
    given = [name for name in _KINDS if getattr(section, name) is not None]
    if len(given) != 1:
        found = f"{' and '.join(given)} are given" if given else "nothing is given"
        raise ScenarioError(f"{where}: {found}. Give exactly one of: {', '.join(_KINDS)}.")
    if section.host_overhead is not None and given[0] != "graph":
        raise ScenarioError(
            f"{where}.host_overhead: is of a captured graph. Leave it out for a {given[0]}."
        )
    return given[0]


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
