"""The random scenario of a seed, held to the rules of any run."""

from __future__ import annotations

import json
from typing import Any

import commsim as cs
from helpers.invariants import broken
from helpers.random_scenarios import scenario
from helpers.shrinking import shrunk

__all__ = ["BrokenRuleError", "check", "checked"]


class BrokenRuleError(AssertionError):
    """A run breaks a rule: the seed, what is broken, and the smallest scenario that does."""


def check(seed: int, most: int) -> bool:
    """Run the scenario of a seed on up to `most` GPUs; return whether it ran, not refused.

    Raises:
        BrokenRuleError: it ran and breaks a rule.
    """
    return checked(seed, most) is not None


def checked(seed: int, most: int) -> cs.Result | None:
    """Return the run of a seed's scenario that breaks no rule; none if it was refused.

    Raises:
        BrokenRuleError: it ran and breaks a rule.
    """
    data = scenario(seed, most=most)
    try:
        result = cs.run(data)
        found = broken(result)
    except cs.ScenarioError:
        return None  # what a draw cannot know: Gloo's device memory, NICs that meet nowhere
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
