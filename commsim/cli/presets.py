"""
`commsim presets`: what comes with commsim to start from.
"""

from __future__ import annotations

import click

from commsim.cli.help import GroupedCommand
from commsim.cli.params import silent_option
from commsim.cli.summary import columns

__all__ = ["presets"]

_KINDS = ("clusters", "gpus", "models", "scenarios")


@click.command(cls=GroupedCommand)
@click.argument("what", default="all", metavar="[clusters|gpus|models|scenarios|show]")
@click.argument("name", default="")
@silent_option
def presets(what: str, name: str) -> None:
    """List what comes with commsim; `presets show NAME` prints a file to start from."""
    if what == "show":
        click.echo(_text(name), nl=False)
        return
    if what not in ("all", *_KINDS) or name:
        raise click.UsageError(f"no presets {what!r}. Use one of {', '.join(_KINDS)}, show NAME.")
    for kind in _KINDS if what == "all" else (what,):
        rows = _rows(kind)
        if what == "all":
            click.echo(f"{kind}:")
        click.echo(columns([(f"  {a}" if what == "all" else a, b) for a, b in rows]))


def _rows(kind: str) -> list[tuple[str, str]]:
    if kind == "scenarios":
        from commsim.scenario import scenario_names, scenario_summary

        return [(name, scenario_summary(name)) for name in scenario_names()]
    if kind == "models":
        from commsim.models import model_names

        return [(name, _model(name)) for name in model_names()]
    if kind == "gpus":
        from commsim.cluster import gpu_names

        return [(name, _gpu(name)) for name in gpu_names()]
    from commsim.cluster import preset_names, preset_text

    return [(name, preset_text(name).splitlines()[0].lstrip("# ")) for name in preset_names()]


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
    from commsim.errors import ScenarioError
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
    known = [*preset_names(), *scenario_names(), *gpu_names(), *model_names()]
    raise ScenarioError(
        f"no preset {name!r} to show.{suggestion(name, known)} `commsim presets` lists them."
    )
