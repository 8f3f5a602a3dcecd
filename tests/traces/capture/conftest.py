"""Captures of these tests: torch is loaded once for all of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from helpers.forked_captures import forking

from commsim.traces.capture import processes


@pytest.fixture(scope="session")
def forked() -> Callable[..., object]:
    """What starts a captured process."""
    return forking()


@pytest.fixture(autouse=True)
def _one_torch(request: pytest.FixtureRequest, forked: Callable[..., object]) -> Iterator[None]:
    """Fork captured processes, but where a test is marked to start them as users do."""
    with pytest.MonkeyPatch.context() as patch:
        if request.node.get_closest_marker("own_interpreter") is None:
            patch.setattr(processes, "_worker", forked)
        yield
