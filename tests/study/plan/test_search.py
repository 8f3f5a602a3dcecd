"""Where the search for a plan begins, and what it says of the sizes that it simulated."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from commsim.study.plan.search import PlanSearch

KIND: Any = SimpleNamespace(name="k")
SIZES = [1, 2, 4, 8, 16, 32]


@pytest.mark.parametrize(
    ("deadline", "first"), [(1.0, 5), (1.9, 5), (2.0, 4), (5.0, 3), (9.0, 2), (99.0, 2), (0.5, 5)]
)
def test_the_first_size_that_may_make_the_deadline_is_found(deadline: float, first: int) -> None:
    """One node and two hold no layout; the others take 9, 5, 2 and 1 days at least. The last is
    tried in any case.
    """
    days = [None, None, 9.0, 5.0, 2.0, 1.0]

    def size(kind: Any, nodes: int) -> Any:
        found = days[SIZES.index(nodes)]
        return None if nodes == 1 else SimpleNamespace(bound_days=lambda: found)

    search: Any = SimpleNamespace(_size=size, deadline=deadline, at_least={})
    assert PlanSearch._from(search, KIND, SIZES) == first
    for (name, nodes), least in search.at_least.items():
        assert name == "k"
        assert least == days[SIZES.index(nodes)]
        assert least > deadline


def sized(best: str | None, share: float, *remarks: str) -> Any:
    return SimpleNamespace(best=best, causal_share=share, remarks=remarks, stack="megatron")


def test_only_sizes_that_were_simulated_say_something() -> None:
    search: Any = PlanSearch.__new__(PlanSearch)
    search._sized = {("k", 1): None, ("k", 2): sized(None, 0.9, "a")}
    assert search.causal_share is None
    assert (search.options, search.remarks) == ([], ())
    search._sized |= {("k", 4): sized("x", 0.5, "b", "c"), ("k", 8): sized("y", 0.7, "c", "d")}
    assert search.causal_share == 0.5
    assert search.options == ["x", "y"]
    assert search.remarks == ("b", "c", "d")
