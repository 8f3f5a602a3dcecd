"""
What a shell completes: names of scenarios and clusters, paths of settings, and files.
"""

from __future__ import annotations

from collections.abc import Iterable

import click
from click.shell_completion import CompletionItem

__all__ = ["clusters", "presets_of", "scenarios", "settings", "traces"]


def scenarios(_: click.Context, __: click.Parameter, begun: str) -> list[CompletionItem]:
    """Complete a scenario: names of the catalogue, then files."""
    from commsim.scenario import scenario_names

    return _items(scenario_names(), begun)


def clusters(_: click.Context, __: click.Parameter, begun: str) -> list[CompletionItem]:
    """Complete a cluster: names of presets, then files."""
    from commsim.cluster import preset_names

    return _items(preset_names(), begun)


def traces(_: click.Context, __: click.Parameter, begun: str) -> list[CompletionItem]:
    """Complete a trace: names of examples, then files."""
    from commsim.scenario import EXAMPLES

    return _items((example.name for example in EXAMPLES), begun)


def presets_of(_: click.Context, __: click.Parameter, begun: str) -> list[CompletionItem]:
    """Complete the name of anything that comes along."""
    from commsim.scenario import presets

    kinds = ("clusters", "gpus", "models", "scenarios")
    names = [name for kind in kinds for name in presets(kind) if name.startswith(begun)]
    return [CompletionItem(name) for name in names]


def settings(_: click.Context, __: click.Parameter, begun: str) -> list[CompletionItem]:
    """Complete the path of a setting for --set, up to its "="."""
    from commsim.scenario import setting_paths

    return [CompletionItem(f"{path}=") for path in setting_paths() if path.startswith(begun)]


def _items(names: Iterable[str], begun: str) -> list[CompletionItem]:
    found = [CompletionItem(name) for name in names if name.startswith(begun)]
    return [*found, CompletionItem(begun, type="file")]
