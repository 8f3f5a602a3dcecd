"""
Commands for the first minutes: `examples`, `new`, `schema`, `completion`.
"""

from __future__ import annotations

from pathlib import Path

import click
from click.shell_completion import get_completion_class

from commsim.cli.terminal import GroupedCommand, OutputFile, columns, silent_option

__all__ = ["completion", "examples", "new", "schema"]

_SCHEMA_NAME = "commsim.schema.json"


@click.command(cls=GroupedCommand)
@silent_option
def examples() -> None:
    """List recordings of real runs that come along, each with a command to try."""
    from commsim.scenario import EXAMPLES, example_path

    rows = [(example.name, example.summary, example.command) for example in EXAMPLES]
    click.echo(columns([("name", "what ran", "try"), *rows]))
    click.echo()
    click.echo(
        columns(
            [("name", "its files"), *((one.name, str(example_path(one.name))) for one in EXAMPLES)]
        )
    )


@click.command(cls=GroupedCommand)
@click.argument("kind", metavar="[training|pipeline|bench|program|cluster]")
@click.option(
    "-o",
    "output",
    type=OutputFile(".yaml", ".yml"),
    metavar="F.yaml",
    help="Write it there; else it is printed. A file that exists is never overwritten.",
)
@silent_option
def new(kind: str, output: Path | None) -> None:
    """Write a commented scenario, or a cluster, to start from."""
    from commsim.errors import ScenarioError
    from commsim.files import write_aside
    from commsim.scenario import template_text

    text = template_text(kind)
    if output is None:
        click.echo(text, nl=False)
        return
    if output.exists():
        raise ScenarioError(f"{output}: exists already. Give another name with -o.")
    lines = text
    if kind != "cluster":
        lines = f"# yaml-language-server: $schema={_SCHEMA_NAME}\n{text}"
    write_aside(output, lambda aside: _write(aside, lines))
    click.echo(f"wrote  {output}")


def _write(path: Path, text: str) -> None:
    path.write_text(text, encoding="utf-8")


@click.command(cls=GroupedCommand)
@click.option(
    "-o",
    "output",
    type=OutputFile(".json"),
    metavar="F.json",
    help="Write it there; else it is printed.",
)
@silent_option
def schema(output: Path | None) -> None:
    """Print the JSON schema of a scenario, by which editors complete and check.

    `commsim schema -o commsim.schema.json` next to files that `commsim new -o` wrote is all that an
    editor with the YAML language server needs.
    """
    from commsim.files import json_bytes, write_json
    from commsim.scenario import scenario_schema

    if output is None:
        click.echo(json_bytes(scenario_schema()).decode(), nl=False)
        return
    write_json(scenario_schema(), output)
    click.echo(f"wrote  {output}")


@click.command(cls=GroupedCommand)
@click.argument("shell", type=click.Choice(("bash", "zsh", "fish")))
@silent_option
@click.pass_context
def completion(context: click.Context, shell: str) -> None:
    """Print the script that completes commands, presets, scenarios and settings in a shell.

    bash: `eval "$(commsim completion bash)"` in ~/.bashrc; zsh likewise; fish: into
    ~/.config/fish/completions/commsim.fish.
    """
    made = get_completion_class(shell)
    assert made is not None  # click has all three
    click.echo(made(context.find_root().command, {}, "commsim", "_COMMSIM_COMPLETE").source())
