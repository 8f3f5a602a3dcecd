"""
Commented scenarios to start from, one per kind of question.
"""

from __future__ import annotations

from importlib.resources import files

from commsim.errors import ScenarioError, did_you_mean

__all__ = ["TEMPLATES", "template_text"]

TEMPLATES = ("training", "pipeline", "bench", "program", "cluster")


def template_text(kind: str) -> str:
    """Return a commented YAML file of a kind. Raises ScenarioError for an unknown kind."""
    if kind not in TEMPLATES:
        raise ScenarioError(
            f"no template {kind!r}.{did_you_mean(kind, TEMPLATES)} Known: {', '.join(TEMPLATES)}."
        )
    return (files("commsim.scenario") / "templates" / f"{kind}.yaml").read_text(encoding="utf-8")
