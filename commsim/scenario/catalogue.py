"""
The catalogue: scenarios that come with commsim, by name.

A checkout keeps them in scenarios/ next to the package; a wheel carries them inside it.
"""

from __future__ import annotations

from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path

from commsim.cluster import preset_names
from commsim.errors import ScenarioError, did_you_mean
from commsim.scenario.examples import EXAMPLES

__all__ = ["scenario_names", "scenario_summary", "scenario_text"]


def scenario_names() -> list[str]:
    """Return the names in the catalogue, sorted."""
    folder = _folder()
    return sorted(
        entry.name.removesuffix(".yaml")
        for entry in (folder.iterdir() if folder.is_dir() else ())
        if entry.name.endswith(".yaml")
    )


def scenario_text(name: str) -> str:
    """Return the file of a scenario. Raises ScenarioError for an unknown name."""
    known = scenario_names()
    if name not in known:
        if name in preset_names():
            raise ScenarioError(
                f"{name!r} is a cluster, not a scenario. `commsim topo {name}` describes it; in a"
                f" scenario it stands as cluster: {{preset: {name}}}."
            )
        for example in EXAMPLES:
            if example.name == name:
                raise ScenarioError(
                    f"{name!r} is a recording, not a scenario: {example.summary}. Try"
                    f" `{example.command}`."
                )
        raise ScenarioError(
            f"{name!r} is neither a file nor a scenario that comes with commsim."
            f"{did_you_mean(name, known)} `commsim presets scenarios` lists them."
        )
    return (_folder() / f"{name}.yaml").read_text(encoding="utf-8")


def scenario_summary(name: str) -> str:
    """Return the sentence on top of a scenario's file: what to see in it."""
    lines = []
    for line in scenario_text(name).splitlines():
        if not line.startswith("#"):
            break
        lines.append(line.lstrip("# ").strip())
    text = " ".join(lines)
    return text.partition(". ")[0].rstrip(".")


def _folder() -> Traversable:
    packaged = files("commsim") / "_scenarios"
    if packaged.is_dir():
        return packaged
    return Path(str(files("commsim"))).parent / "scenarios"
