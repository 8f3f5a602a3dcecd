"""Pages of one browser, used again and again: a new one takes half a second of CPU."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

__all__ = ["PATIENCE", "Pages", "PatientBrowser"]

PATIENCE = 300_000
"""Milliseconds to wait for a page: a busy machine takes tens of seconds, one that hangs longer."""
Complain = Callable[[str], None]
_FORGET = "try { localStorage.clear() } catch (error) { /* a page from disk may have none */ }"


class PatientBrowser:
    """A browser whose pages wait for what is asked of them as long as a busy machine needs."""

    def __init__(self, browser: Any) -> None:
        self._browser = browser

    def new_context(self, **settings: Any) -> Any:
        """Return a context as Playwright's own, but patient."""
        context = self._browser.new_context(**settings)
        context.set_default_timeout(PATIENCE)
        return context

    def new_page(self, **settings: Any) -> Any:
        """Return a page as Playwright's own, but patient."""
        page = self._browser.new_page(**settings)
        page.set_default_timeout(PATIENCE)
        return page


class Pages:
    """Pages that nobody uses now, by the settings of their context."""

    def __init__(self, browser: Any) -> None:
        self._browser = browser
        self._idle: dict[str, list[Any]] = {}

    @contextmanager
    def page(self, complain: Complain, **settings: Any) -> Iterator[Any]:
        """Lend an empty page; `complain` hears its warnings, errors and requests to the network."""
        idle = self._idle.setdefault(json.dumps(settings, sort_keys=True), [])
        page = idle.pop() if idle else self._browser.new_context(**settings).new_page()
        hear = {
            # reading pixels back is what tests do, not the page
            "console": lambda m: (
                complain(m.text)
                if m.type in ("error", "warning") and "willReadFrequently" not in m.text
                else None
            ),
            "pageerror": lambda error: complain(str(error)),
            "request": lambda r: complain(r.url) if r.url.startswith("http") else None,
        }
        for event, listener in hear.items():
            page.on(event, listener)
        yield page
        for event, listener in hear.items():
            page.remove_listener(event, listener)
        page.evaluate(_FORGET)
        page.goto("about:blank")
        page.mouse.move(0, 0)
        page.set_viewport_size(settings["viewport"])
        page.emulate_media(media="null", color_scheme=settings.get("color_scheme", "null"))
        idle.append(page)
