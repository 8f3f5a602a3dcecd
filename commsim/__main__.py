"""Run the command line: `python -m commsim`."""

from __future__ import annotations

from commsim.cli.main import entry

if __name__ == "__main__":
    entry()
