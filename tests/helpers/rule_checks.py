"""The random scenario of a seed, common or rare, held to the rules of any run."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import commsim as cs
from helpers.invariants import broken
from helpers.random_scenarios import scenario
from helpers.shrinking import shrunk

__all__ = ["BrokenRuleError", "check", "checked"]

Draw = Callable[..., dict[str, Any]]
"""`helpers.random_scenarios.scenario`, or what draws others by a seed and the most GPUs."""


class BrokenRuleError(AssertionError):
    """A run breaks a rule: the seed, what is broken, and the smallest scenario that does."""


def check(seed: int, most: int, draw: Draw = scenario) -> bool:
    """Run the scenario that a seed draws on up to `most` GPUs; return whether it ran, not refused.

    Raises:
        BrokenRuleError: it ran and breaks a rule.
    """
    return checked(seed, most, draw) is not None


def checked(seed: int, most: int, draw: Draw = scenario) -> cs.Result | None:
    """Return the run of a seed's scenario that breaks no rule; none if it was refused.

    Raises:
        BrokenRuleError: it ran and breaks a rule.
    """
    data = draw(seed, most=most)
    try:
        result = cs.run(data)
    except cs.ScenarioError:
        return None  # what a draw cannot know: Gloo's device memory, NICs that meet nowhere
    found = broken(result)
    if found:
        rule, text = found[0]
        least = shrunk(data, lambda smaller: rule in _rules_broken(smaller))
        raise BrokenRuleError(f"seed {seed}, most {most}: {rule}: {text}\n{json.dumps(least)}")
    return result


def _rules_broken(data: Any) -> set[str]:
    """Return the rules that a scenario breaks; none if it is not valid."""
    try:
        return {rule for rule, _ in broken(cs.run(data))}
    except cs.CommsimError:
        return set()
