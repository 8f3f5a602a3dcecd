"""
`commsim presets`: what comes with commsim to start from.
"""

from __future__ import annotations

import click

from commsim.cli.terminal import GroupedCommand, columns, presets_of, silent_option
from commsim.errors import ScenarioError, did_you_mean

__all__ = ["presets"]

_KINDS = ("clusters", "gpus", "models", "scenarios")


@click.command(cls=GroupedCommand)
@click.argument("what", default="all", metavar="[clusters|gpus|models|scenarios|show]")
@click.argument("words", nargs=-1, metavar="[WORD...|NAME]", shell_complete=presets_of)
@silent_option
def presets(what: str, words: tuple[str, ...]) -> None:
    """List what comes with commsim; `presets show NAME` prints a file to start from.

    With words, only rows that hold them all: `presets clusters h100 usd`.
    """
    if what == "show":
        if len(words) != 1:
            raise click.UsageError("give one name to show: commsim presets show dgx-h100.")
        click.echo(_text(words[0]), nl=False)
        return
    if what not in ("all", *_KINDS):
        hint = did_you_mean(what, (*_KINDS, "show"))
        if what in _names():
            hint = f" `commsim presets show {what}` prints that one."
        raise click.UsageError(
            f"no presets {what!r}.{hint} Use one of {', '.join(_KINDS)}, show NAME."
        )
    for kind in _KINDS if what == "all" else (what,):
        _list(kind, words, headed=what == "all")


def _list(kind: str, words: tuple[str, ...], *, headed: bool) -> None:
    """Print the rows of a kind that hold all words."""
    head, rows = _rows(kind)
    found = [row for row in rows if all(word.lower() in " ".join(row).lower() for word in words)]
    if not found and words and not headed:
        raise ScenarioError(f"no row of {kind} holds {' and '.join(map(repr, words))}.")
    if headed:
        click.echo(f"{kind}:")
    shown = [head, *found] if head else found
    click.echo(columns([(f"  {row[0]}" if headed else row[0], *row[1:]) for row in shown]))


def _rows(kind: str) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """Return the heads of the columns (none for two plain ones) and the rows."""
    if kind == "scenarios":
        from commsim.scenario import scenario_names, scenario_summary

        return (), [(name, scenario_summary(name)) for name in scenario_names()]
    if kind == "models":
        from commsim.models import model_names

        return (), [(name, _model(name)) for name in model_names()]
    if kind == "gpus":
        from commsim.cluster import gpu_names

        return (), [(name, _gpu(name)) for name in gpu_names()]
    from commsim.cluster import preset_names

    head = ("name", "GPUs of a node", "NICs of a node", "a GPU-hour", "what it is")
    return head, [_cluster(name) for name in preset_names()]


def _cluster(name: str) -> tuple[str, ...]:
    """Return the row of a cluster; an empty cell is what it has none of, or no price of."""
    from commsim.cluster import Cluster, preset_text
    from commsim.units import format_bandwidth

    cluster = Cluster.preset(name)
    spec, prices = cluster.specs[0], cluster.prices[0]
    gpus = f"{spec.gpus} {spec.gpu.name}"
    nics = ""
    if spec.nic is not None and spec.nic.count:
        nics = f"{spec.nic.count} of {format_bandwidth(spec.nic.wire.bandwidth)}"
    rent = prices.gpu_hour if prices is not None else None
    price = "" if prices is None or rent is None else f"{rent.price:g} {prices.currency or 'USD'}"
    return name, gpus, nics, price, preset_text(name).splitlines()[0].lstrip("# ")


def _model(name: str) -> str:
    from commsim.models import model_preset

    preset = model_preset(name)
    shape, every = preset.shape, preset.published.parameters
    experts = f", {shape.experts.experts} experts" if shape.experts else ""
    return f"{every / 1e9:.4g}e9 parameters, {shape.layers} layers of {shape.hidden}{experts}"


def _gpu(name: str) -> str:
    from commsim.cluster import gpu_spec
    from commsim.units import format_bandwidth, format_size

    spec = gpu_spec(name)
    memory = f"{format_size(spec.memory_bytes)} at {format_bandwidth(spec.memory_bandwidth)}"
    name = "xGMI" if spec.vendor == "amd" else "NVLink"
    nvlink = f", {name} {format_bandwidth(spec.nvlink_bandwidth)}" if spec.nvlink_bandwidth else ""
    return f"{spec.arch}, {memory}{nvlink}"


def _text(name: str) -> str:
    """Return the file of a cluster, a GPU or a scenario, or the entry of a model."""
    from commsim.cluster import gpu_names, gpu_text, preset_names, preset_text, suggestion
    from commsim.models import model_names, model_text
    from commsim.scenario import scenario_names, scenario_text

    if name.lower() in preset_names():
        return preset_text(name)
    if name in scenario_names():
        return scenario_text(name)
    if name.lower() in (gpu.lower() for gpu in gpu_names()):
        return gpu_text(name)
    if name.lower() in model_names():
        return model_text(name.lower())
    raise ScenarioError(
        f"no preset {name!r} to show.{suggestion(name, _names())} `commsim presets` lists them."
    )


def _names() -> list[str]:
    """Return the name of every preset: clusters, scenarios, GPUs and models."""
    from commsim.cluster import gpu_names, preset_names
    from commsim.models import model_names
    from commsim.scenario import scenario_names

    return [*preset_names(), *scenario_names(), *gpu_names(), *model_names()]
