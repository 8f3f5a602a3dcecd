"""The command line: parse, call the study, print. Nothing is computed here."""

from commsim.cli.main import entry

__all__ = ["entry"]
