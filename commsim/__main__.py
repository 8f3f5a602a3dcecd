"""`python -m commsim` is `commsim`."""

from commsim.cli import entry

entry()
