"""
Draw docs/images/explore.png: the page of `commsim explore` as it opens, after a click on "Pin".

    python benchmarks/explore_picture.py

Needs Chromium and playwright (extra `test`).
"""

from __future__ import annotations

import shutil
from pathlib import Path
from threading import Thread

from playwright.sync_api import sync_playwright

from commsim.explore import ExplorerServer

PICTURE = Path(__file__).resolve().parents[1] / "docs/images/explore.png"
CHANGED = "#pp=4&microbatches=16&schedule=%22zb_h1%22"


def main() -> None:
    """Open the page, pin it, choose, and keep what is to be seen."""
    chromium = shutil.which("chromium") or shutil.which("google-chrome")
    server = ExplorerServer("llama3-8b", port=0)
    Thread(target=server.serve_forever, daemon=True).start()
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 1280, "height": 960})
        page.goto(server.url)
        page.wait_for_selector("body[data-settled]", timeout=60_000)
        page.click("#pin")
        page.evaluate(f"location.hash = '{CHANGED}'")
        page.wait_for_selector("body[data-settled='2']", timeout=60_000)
        page.wait_for_timeout(500)  # the canvas
        page.screenshot(path=PICTURE)
        browser.close()
    server.shutdown()
    server.server_close()


if __name__ == "__main__":
    main()
