"""What all tests share: reference data beside the checkout and a browser, where there are any."""

from __future__ import annotations

import gc
import os
import shutil
import signal
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from helpers.browsing import PATIENCE, Pages, PatientBrowser
from helpers.share import WHOLE
from hypothesis import HealthCheck, settings

# No test depends on time: an example may take as long as a busy machine makes it take.
# Each run draws other examples: a third of them by default, all with --hypothesis-profile=whole.
settings.register_profile("whole", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("third", settings.get_profile("whole"), max_examples=WHOLE // 3)
settings.load_profile("third")

# A shell lets programs in its background ignore Ctrl-C, and they hand that down to what they start.
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# The programs that tests start keep their compiled modules: imports take a third of the time.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome")
FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking"]
_GOLDEN = (5**0.5 - 1) / 2
"""Its multiples, less whole numbers, fill the range from 0 to 1 evenly from the first one on."""
SHARED = Path(__file__).resolve().parents[2] / "shared"


def pytest_collection_finish() -> None:
    """Spare the garbage collector the thousands of tests, which it would look through each time."""
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def _no_time_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Commands never come to two seconds, after which they say how far they are."""
    monkeypatch.setattr("commsim.cli.terminal.progress.clock", lambda: 0.0)


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The reference data that CI has beside the checkout; users do not: skip there."""
    if not (SHARED / "data").is_dir():
        pytest.skip("needs the reference data that only the developers have")
    return SHARED / "data"


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    """A browser that reaches no network; without Chromium the test skips and says so."""
    if CHROMIUM is None:
        pytest.skip("needs chromium (apt-get install chromium)")
    from playwright.sync_api import expect, sync_playwright

    expect.set_options(timeout=PATIENCE)
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(
            executable_path=CHROMIUM, args=FLAGS, timeout=PATIENCE
        )
        yield PatientBrowser(chromium)
        chromium.close()


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Leave cases to `-m long` beyond the part that `@pytest.mark.share(part)` keeps by default.

    Kept are cases spread evenly over a family, the same on each run; the first is among them.
    """
    seen: Counter[str] = Counter()
    for item in items:
        mark = item.get_closest_marker("share")
        if mark is not None and item.get_closest_marker("long") is None:
            family = item.nodeid.partition("[")[0]
            if seen[family] * _GOLDEN % 1 >= mark.args[0]:
                item.add_marker("long")
            seen[family] += 1


@pytest.fixture(scope="session")
def browser_pages(browser: Any) -> Pages:
    """The pages of the browser."""
    return Pages(browser)
