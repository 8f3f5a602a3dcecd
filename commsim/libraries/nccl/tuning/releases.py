"""
NCCL releases outside the tuner's tables: what they choose is guessed, what they cost is not.
"""

from __future__ import annotations

import re

from commsim.libraries.nccl.tuning.tables import versions

__all__ = ["OLDEST", "is_release", "release_of", "starts_channels_slowly"]

OLDEST = "2.18"
"""The first release whose graph search and tuning model commsim follows."""
_RELEASE = re.compile(r"\d{1,3}\.\d{1,3}(\.\d{1,3})?([+-].*)?")
_FIRST = (2, 18)
_FAST_START = (2, 12)
"""From here on the time of a launch no longer grows with the channels (measured tables)."""


def is_release(version: str) -> bool:
    """Return whether a text names a release: "2.27", "2.28.9", or "2.28.9+cuda13.0" of logs."""
    return _RELEASE.fullmatch(version) is not None


def release_of(version: str) -> tuple[str, tuple[str, ...]]:
    """Return the release whose rules choose for `version`, and a note if it is another."""
    number = _number(version)
    last = _number(versions()[-1])
    assert last is not None
    if number is not None and number > last:
        newest = ".".join(map(str, last))
        return newest, (
            f"NCCL {version} is newer than {newest}, the newest that commsim knows: it chooses as"
            f" {newest} does.",
        )
    if number is None or number >= _FIRST:
        return version, ()
    return OLDEST, (
        f"NCCL {version} is older than {OLDEST}: it chooses as {OLDEST} does, which is a guess.",
    )


def starts_channels_slowly(version: str) -> bool:
    """Return whether a release pays for each channel that it starts."""
    number = _number(version)
    return number is not None and number < _FAST_START


def _number(version: str) -> tuple[int, int] | None:
    found = re.match(r"(\d{1,9})\.(\d{1,9})", version.strip())
    return (int(found[1]), int(found[2])) if found else None
