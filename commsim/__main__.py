"""
`commsim` and `python -m commsim`: the way in, which imports nothing before it can be stopped.

Ctrl-C or SIGTERM while the program is still imported ends it at once, with one line: nothing is
open yet, and an exception in the middle of an import is swallowed or turned into another by some.
"""

from __future__ import annotations

import os
import signal

__all__ = ["entry"]

_STOPPED = {signal.SIGINT: b"commsim: interrupted.\n", signal.SIGTERM: b"commsim: terminated.\n"}


def entry() -> None:
    """Import the command line, run it and exit with its code."""
    for number in _STOPPED:
        if signal.getsignal(number) != signal.SIG_IGN:
            signal.signal(number, _stop)
    from commsim.cli import entry as run_commands

    run_commands()


def _stop(number: int, _: object) -> None:
    try:
        os.write(2, _STOPPED[signal.Signals(number)])
    finally:  # where stderr is closed too
        os._exit(128 + number)


if __name__ == "__main__":
    entry()
