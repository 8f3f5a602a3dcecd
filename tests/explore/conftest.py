"""What the tests of the page share: one server for all, with its worker, and pages that ask."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from threading import Thread

import pytest

from commsim.explore import ExplorerServer
from commsim.explore.process import Question

PAGES = count()


@pytest.fixture(scope="session")
def server() -> Iterator[ExplorerServer]:
    """A running server of a small training, on a port that is free."""
    made = ExplorerServer("llama3-8b", port=0)
    serving = Thread(target=made.serve_forever)
    serving.start()
    yield made
    made.shutdown()
    serving.join()
    made.server_close()


@pytest.fixture
def questions() -> Iterator[Question]:
    """The questions of a new page."""
    page = f"page {next(PAGES)}"
    return (Question(page, number) for number in count(1))
