"""
`commsim explore`: a page in the browser on which a scenario's settings are chosen and answered.
"""

from __future__ import annotations

import os
import sys
import webbrowser
from threading import Thread

import click

from commsim.cli.terminal import (
    INPUT,
    Console,
    Count,
    GroupedCommand,
    limit_option,
    quiet_option,
    scenarios,
    set_option,
)

__all__ = ["explore"]

START = "llama3-8b"
"""The scenario of the catalogue that the page opens with where none is named."""


@click.command(cls=GroupedCommand)
@click.argument(
    "scenario", type=INPUT, metavar="[SCENARIO|NAME]", default=START, shell_complete=scenarios
)
@set_option
@click.option(
    "--port", type=Count(1, 65535), metavar="N",
    help="Listen here; else on 8417, or any port that is free.",
)  # fmt: skip
@click.option("--no-browser", is_flag=True, help="Print the address, and open nothing.")
@limit_option
@quiet_option
def explore(
    scenario: str, sets: tuple[str, ...], port: int | None, no_browser: bool, quiet: bool
) -> int:
    """Open a page on which model, cluster, layout and library are chosen and answered at once.

    It is served to this machine alone and needs no network. Ctrl-C ends it.
    """
    from commsim.errors import ScenarioError
    from commsim.explore import ExplorerServer
    from commsim.input_files import is_stream

    if is_stream(scenario):  # which the process that simulates does not have
        raise ScenarioError("explore: takes a file or a name, not standard input or a pipe.")
    console = Console(quiet=quiet)
    with ExplorerServer(scenario, sets, port=port) as server:
        serving = Thread(target=server.serve_forever, daemon=True)
        serving.start()
        if scenario == START and not sets:
            _open(server.url, no_browser)  # while the models are loaded
            server.hello()
        else:
            server.hello()
            _open(server.url, no_browser)
        console.show(f"commsim explore: {server.url}")
        console.say("Ctrl-C ends it.")
        try:
            serving.join()
        except KeyboardInterrupt:
            console.say("")
    return 0


def _open(url: str, no_browser: bool) -> None:
    """Open the page where there is a screen; a browser in the terminal would be in the way."""
    screen = sys.platform in ("win32", "darwin") or any(
        os.environ.get(name) for name in ("DISPLAY", "WAYLAND_DISPLAY")
    )
    if screen and not no_browser:
        webbrowser.open(url)
