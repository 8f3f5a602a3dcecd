"""
Notes of a run as lines on stderr: the few that matter, or with `-v` all of them.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from commsim.cli.terminal.console import Console

__all__ = ["say_notes"]

_FOLDERS = re.compile(r"(?<!\S)/(?:[^/\s:]+/)+")
"""The folders of a path, which would leave no room for what a note says of the file."""
_SHOWN = 5
_WIDTH = 100
_MATTER = (
    "self-check", "cut off", "does not", "not ", "no ", "approximat", "NCCL", "left out",
    "stack:", "compute:", "engine:", "library:", "defaults:",
)  # fmt: skip
"""What a note that matters says, the most telling first: trust, limits, then what was assumed."""


def say_notes(notes: Sequence[str], console: Console, *, verbose: bool) -> None:
    """Narrate `notes`; without `verbose` the five that matter most, cut to one line each."""
    notes = [note for note in notes if not note.startswith("memory: ")]  # stands in the table
    shown = list(notes) if verbose else sorted(notes, key=_rank)[:_SHOWN]
    for note in notes:
        if note in shown:
            console.say(f"note: {note}" if verbose else _line(f"note: {note}"))
    if len(notes) > len(shown):
        more = len(notes) - len(shown)
        console.say(f"{more} more note{'s' * (more > 1)}: -v shows all, in full.")


def _rank(note: str) -> int:
    said = _FOLDERS.sub("", note)
    return next((at for at, word in enumerate(_MATTER) if word in said), len(_MATTER))


def _line(text: str) -> str:
    text = _FOLDERS.sub("", text)
    if len(text) <= _WIDTH:
        return text
    return f"{text[: _WIDTH - 1].rsplit(' ', 1)[0].rstrip(' ,;:(')} …"
