"""What the tests share that look at reports in a browser."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

Open = Callable[..., Any]


@pytest.fixture
def opened(browser: Any) -> Iterator[Open]:
    """Open a file of a report and wait for its viewer; any complaint fails the test at its end."""
    contexts, complaints = [], []

    def open_page(path: Path, width: int = 1400, height: int = 900, **settings: Any) -> Any:
        context = browser.new_context(
            viewport={"width": width, "height": height}, bypass_csp=True, **settings
        )
        contexts.append(context)
        page = context.new_page()
        page.on(
            "console",
            # reading pixels back is what these tests do, not the page
            lambda m: (
                complaints.append(m.text)
                if m.type in ("error", "warning") and "willReadFrequently" not in m.text
                else None
            ),
        )
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("request", lambda r: complaints.append(r.url) if r.url.startswith("http") else None)
        page.goto(path.as_uri())
        page.wait_for_selector("#viewer[data-ready]", timeout=120_000)
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert complaints == []
