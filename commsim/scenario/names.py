"""
Names of what comes with commsim: clusters, GPUs, models, scenarios.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from commsim.cluster import gpu_names, preset_names
from commsim.errors import ScenarioError, did_you_mean
from commsim.models import model_names
from commsim.scenario.catalogue import scenario_names

__all__ = ["presets"]


def presets(kind: str = "clusters") -> tuple[str, ...]:
    """Return the names of all "clusters", "gpus", "models" or "scenarios" that come along.

    Raises:
        ScenarioError: another kind.
    """
    names: dict[str, Callable[[], Iterable[str]]] = {
        "clusters": preset_names,
        "gpus": gpu_names,
        "models": model_names,
        "scenarios": scenario_names,
    }
    if kind not in names:
        raise ScenarioError(
            f"presets of {kind!r}.{did_you_mean(kind, names)} Known: {', '.join(names)}."
        )
    return tuple(names[kind]())
