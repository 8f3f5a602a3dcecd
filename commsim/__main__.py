"""`python -m commsim` is `commsim`."""

from commsim.cli.main import entry

entry()
