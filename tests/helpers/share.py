"""A share of the cases by default; all of them when asked: tests that look wide in little time."""

from __future__ import annotations

import random
from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import settings

WHOLE = 100
"""Examples of a property under the profile `whole`, which stands for what a test asks for."""


def share(cases: Iterable[Any], part: float, *, seed: int = 0) -> list[Any]:
    """Return all cases, those outside a drawn part (0 to 1) marked `long`; one at least stays.

    A case that is a tuple stands for several arguments, as in `pytest.mark.parametrize`.
    """
    every = list(cases)
    kept = set(random.Random(seed).sample(range(len(every)), max(1, round(part * len(every)))))
    return [case if at in kept else later(case) for at, case in enumerate(every)]


def share_of_each(
    kinds: Iterable[tuple[Any, ...]], values: Iterable[tuple[Any, ...]], part: float
) -> list[Any]:
    """Return every kind with every value; of each kind another draw of values is not `long`."""
    every = list(values)
    return [
        case
        for seed, kind in enumerate(kinds)
        for case in share([(*kind, *value) for value in every], part, seed=seed)
    ]


def later(case: Any) -> Any:
    """Return a case that only `-m long` runs; it may be a `pytest.param`."""
    if hasattr(case, "marks"):
        return pytest.param(*case.values, marks=(*case.marks, pytest.mark.long), id=case.id)
    return pytest.param(*(case if type(case) is tuple else (case,)), marks=pytest.mark.long)


def examples(count: int) -> settings:
    """Return the settings of a property that `--hypothesis-profile=whole` tries so often.

    The default profile tries a part of that, five at least.
    """
    part = settings().max_examples / WHOLE
    return settings(max_examples=max(min(count, 5), round(count * part)))
