"""
`commsim capture`: a training script's work and communication, without a GPU.
"""

from __future__ import annotations

from pathlib import Path

import click

from commsim.cli.terminal import INPUT, Console, Count, GroupedCommand, OutputFile, quiet_option
from commsim.errors import ScenarioError

__all__ = ["capture"]


@click.command(cls=GroupedCommand, context_settings={"ignore_unknown_options": True})
@click.argument("script", type=INPUT, metavar="SCRIPT.py")
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED, metavar="[-- ARGUMENTS...]")
@click.option("--world-size", type=Count(), required=True, help="How many ranks the job has.")
@click.option(
    "--ranks",
    metavar="0,8,...",
    help="Ranks with parts of their own; found by themselves where messages tell stages apart.",
)
@click.option("--gpus-per-node", type=Count(), default=8, show_default=True)
@click.option(
    "--step",
    type=Count(),
    default=2,
    show_default=True,
    help="Which step of the optimizer to record.",
)
@click.option(
    "-o",
    "output",
    type=OutputFile(),
    metavar="FILE",
    help="The workload graph; SCRIPT.graph.npz by default.",
)
@quiet_option
def capture(
    script: str,
    arguments: tuple[str, ...],
    world_size: int,
    ranks: str | None,
    gpus_per_node: int,
    step: int,
    output: Path | None,
    quiet: bool,
) -> None:
    """Run a training script under fake tensors, and write its step as a workload graph.

    The script is what torchrun would start: it reads RANK and WORLD_SIZE. Run the graph with a
    scenario: `workload: {graph: FILE}`. Needs torch: pip install 'commsim[torch]'.
    """
    from commsim.graph import save_graph
    from commsim.study.run import captured_summary
    from commsim.traces import capture as run_capture

    console = Console(quiet=quiet, json_only=False)
    output = output or Path(f"{Path(script).stem}.graph.npz")
    if not output.parent.is_dir():
        raise ScenarioError(f"-o {output}: there is no folder {output.parent} to write to.")
    graph = run_capture(
        script,
        world_size=world_size,
        ranks=_numbers(ranks),
        arguments=arguments,
        gpus_per_node=gpus_per_node,
        step=step,
        say=console.say,
    )
    save_graph(graph, output)
    for line in captured_summary(graph):
        console.show(line)
    for note in graph.meta["capture"]["notes"]:
        console.say(f"note: {note}")
    console.show(f"graph: {output}")


def _numbers(text: str | None) -> tuple[int, ...]:
    if not text:
        return ()
    try:
        return tuple(sorted({int(part) for part in text.split(",")}))
    except ValueError:
        raise ScenarioError(f"--ranks {text}: give numbers with commas, like 0,8.") from None
