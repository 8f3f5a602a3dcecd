"""
`commsim convert`: between trace formats.
"""

from __future__ import annotations

from pathlib import Path

import click

from commsim.cli.terminal import (
    INPUT,
    Console,
    Count,
    GroupedCommand,
    OutputFile,
    columns,
    is_stdout,
    quiet_option,
    set_option,
    working,
)

__all__ = ["convert"]

_TO = ("graph", "goal", "chakra", "chakra-json", "param", "csv")


@click.command(cls=GroupedCommand)
@click.argument("source", type=INPUT, metavar="IN")
@click.argument("target", type=OutputFile(stem=True), metavar="OUT", required=False)
@click.option("-o", "--output", type=OutputFile(stem=True), metavar="OUT", help="The same as OUT.")
@click.option(
    "--to",
    type=click.Choice(_TO),
    default=None,
    help="What to write; by default what OUT's suffix says (.npz, .goal, .et, .csv).",
)
@click.option("--cluster", metavar="PRESET", help="Of a recipe: what it ran on.")
@click.option("--nodes", type=Count(), metavar="N", help="Of a recipe: on how many.")
@click.option("--model", metavar="PRESET", help="Of a recipe: the preset that its model is like.")
@set_option
@quiet_option
def convert(
    source: str,
    target: Path | None,
    output: Path | None,
    to: str | None,
    cluster: str | None,
    nodes: int | None,
    model: str | None,
    sets: tuple[str, ...],
    quiet: bool,
) -> None:
    """Convert a trace, or a recipe into a scenario: IN becomes OUT.

    A recipe is a torchtitan TOML, a script or file of Megatron's arguments, or a YAML of NeMo or
    Megatron-Bridge; OUT then ends in .yaml. Keys that have no place in a scenario are named.

    Read are Kineto, PyTorch Execution Traces, flight recorder dumps, Chakra, PARAM comms, NCCL
    logs, GOAL, pipeline schedules (.csv) and commsim's graphs (.npz). What OUT's format cannot
    carry is listed.
    """
    from commsim.export import convert as export_convert

    if (target is None) == (output is None):
        raise click.UsageError("give OUT once: `commsim convert IN OUT`, or -o OUT.")
    target = target or output
    assert target is not None
    console = Console(quiet=quiet, json_only=is_stdout(target))
    if target.suffix in (".yaml", ".yml"):
        _recipe(source, target, cluster or "", nodes, model or "", sets, console)
        return
    recipes = {"--cluster": cluster, "--nodes": nodes, "--model": model, "--set": sets or None}
    for option, given in recipes.items():
        if given is not None:
            raise click.UsageError(
                f"{option}: is of a recipe that becomes a scenario: OUT then ends in .yaml."
            )
    with working(f"reading {source}", quiet=quiet) as told:

        def read(done: int, of: int) -> None:
            told.count(done, of)
            if done == of:
                told.say(f"converting {source}")

        done = export_convert(source, target, to=to or "", progress=read)
    for note in done.notes:
        console.say(f"note: {note}")
    first, rest = done.written[:4], done.written[4:]
    graph = done.graph
    rows = [
        ("from", done.source),
        ("ranks", f"{len(graph.lane_rank):,}"),
        ("ops", f"{len(graph):,}"),
        ("collectives", f"{len(graph.collectives):,}"),
        ("messages", f"{len(graph.messages):,}"),
        *(("wrote", str(path)) for path in first),
    ]
    if rest:
        rows.append(("", f"and {len(rest)} more files"))
    console.show(columns(rows))


def _recipe(
    source: str,
    target: Path,
    cluster: str,
    nodes: int | None,
    model: str,
    sets: tuple[str, ...],
    console: Console,
) -> None:
    """Write the scenario of a recipe, with what it could not hold as a comment on top."""
    import textwrap

    import yaml

    from commsim.files import write_text
    from commsim.scenario import read_recipe

    found = read_recipe(source, cluster=cluster, nodes=nodes, model=model, sets=sets)
    lines = [f"From {Path(source).name} ({found.source})."]
    lines += [f"{note}." for note in found.notes]
    if found.unmapped:
        lines.append(f"No place here have: {', '.join(found.unmapped)}.")
    head = [
        f"# {part}" for line in lines for part in textwrap.wrap(line, 98, break_long_words=False)
    ]
    body = yaml.safe_dump(found.data, sort_keys=False, width=100)
    write_text(target, "\n".join(head) + "\n" + body)
    for note in found.notes:
        console.say(f"note: {note}")
    if found.unmapped:
        console.say(f"no place in a scenario: {', '.join(found.unmapped)}")
    console.show(columns([("from", found.source), ("wrote", str(target))]))
