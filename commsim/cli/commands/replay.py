"""
`commsim replay`: understand a recorded run, and run it again.
"""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING

import click
from msgspec.structs import replace

from commsim.cli.commands.bench import open_cluster
from commsim.cli.commands.outputs import Outputs, output_options
from commsim.cli.terminal import (
    INPUT,
    GroupedCommand,
    cluster_option,
    columns,
    limit_option,
    nodes_option,
    set_option,
    working,
)
from commsim.cli.terminal import traces as complete_traces
from commsim.units import PS_PER_SECOND

if TYPE_CHECKING:
    from commsim.cluster import Cluster
    from commsim.study.replay import Replay

__all__ = ["replay"]


_ONE_CHANGE = (
    "--what-if: a recording is replayed with one change at a time. Write it as a setting: --comm"
    " modelled --cluster dgx-h100 --set scale.nic=2 (or compute.scale=0.5, data_parallel.size=64),"
    " and `commsim compare` the JSON of both."
)


@click.command(cls=GroupedCommand)
@click.argument(
    "traces",
    type=INPUT,
    nargs=-1,
    required=True,
    metavar="TRACE...",
    shell_complete=complete_traces,
)
@cluster_option
@nodes_option
@click.option(
    "--comm",
    type=click.Choice(["recorded", "modelled"]),
    default="recorded",
    show_default=True,
    help="Take each collective's measured transfer time, or ask the library.",
)
@set_option
@click.option("--what-if", "axes", multiple=True, hidden=True)
@limit_option
@output_options
def replay(
    traces: tuple[str, ...],
    cluster: str | None,
    nodes: int | None,
    comm: str,
    sets: tuple[str, ...],
    axes: tuple[str, ...],
    outputs: Outputs,
) -> int:
    """Replay recorded traces: align clocks, tell waiting from transfer, run the step again.

    With --comm modelled on any cluster: --set compute.scale=0.5 (twice as fast), library.name,
    library.version or library.algo, data_parallel.size, and every setting of a cluster.
    """
    from commsim.study.replay import replay as study_replay
    from commsim.study.replay import split_sets

    if axes:
        raise click.UsageError(_ONE_CHANGE)
    console = outputs.console()
    change, others = split_sets(sets)
    place = open_cluster(cluster, nodes, others) if cluster is not None or others else None
    with working("reading traces", quiet=outputs.quiet) as told:

        def read(done: int, of: int) -> None:
            told.count(done, of)
            if done == of:
                told.say("replaying")

        found = study_replay(
            [Path(trace) for trace in traces],
            cluster=place,
            comm=comm,
            what_if=change,
            progress=read,
            follow=told.follow,
        )
    modelled = comm == "modelled" and found.measured is not None
    below = [_modelled(found, place, as_recorded=not change.changes_work)] if modelled else []
    below += [f"{'the recording itself: ' * modelled}{found.headline}"] if found.headline else []
    for heading, rows in found.tables.items():
        title = f"{heading}, as recorded" if modelled else heading
        below.append(f"{title}:\n{columns(rows, right=range(len(rows[0])))}")
    command = _command(traces, cluster, nodes, comm, sets)
    return outputs.finish(replace(found.result, command=command), console, below=below)


def _modelled(found: Replay, cluster: Cluster | None, *, as_recorded: bool) -> str:
    """Say what the modelled communication made of the step, and what it left as it was."""
    from commsim.metrics import short_time

    name = cluster.name if cluster is not None else "the cluster"
    assert found.measured is not None
    steps = found.result.metrics.step_time_s, found.measured.step_time_s
    new, old = (short_time(step * PS_PER_SECOND) for step in steps)
    told = f"communication modelled over {name}: {new}, recorded {old}."
    if not as_recorded:
        return told
    return (
        f"{told} GPUs and hosts compute as recorded; --set compute.scale=0.5 makes them twice as"
        " fast."
    )


def _command(
    traces: tuple[str, ...],
    cluster: str | None,
    nodes: int | None,
    comm: str,
    sets: tuple[str, ...],
) -> str:
    """Return the command line that replays the traces again."""
    words = ["commsim", "replay", *traces]
    words += ["--cluster", cluster] if cluster is not None else []
    words += ["--nodes", str(nodes)] if nodes is not None else []
    words += ["--comm", comm] if comm != "recorded" else []
    return shlex.join([*words, *(word for one in sets for word in ("--set", one))])
