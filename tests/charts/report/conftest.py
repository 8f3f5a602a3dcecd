"""What the tests share that look at reports in a browser."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from helpers.browsing import Pages
from helpers.viewer_pages import Open


@pytest.fixture
def opened(browser_pages: Pages) -> Iterator[Open]:
    """Open a file of a report and wait for its viewer; any complaint fails the test at its end."""
    complaints: list[str] = []
    with ExitStack() as stack:

        def open_page(path: Path, width: int = 1400, height: int = 900, **settings: Any) -> Any:
            view = {"width": width, "height": height}
            lent = browser_pages.page(complaints.append, viewport=view, bypass_csp=True, **settings)
            page = stack.enter_context(lent)
            page.goto(path.as_uri())
            page.wait_for_selector("#viewer[data-ready]")
            return page

        yield open_page
    assert complaints == []


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("reports")
