"""
The command line: parse, call the study, print. Nothing is computed here.

In: arguments. Out: text, files and an exit code. A module per command; `console` prints, `outputs`
writes files, `main` turns errors into exit codes.
"""

from commsim.cli.main import entry

__all__ = ["entry"]
