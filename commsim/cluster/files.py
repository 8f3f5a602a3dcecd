"""
The room's own data files: GPU tables, presets, defaults. Small YAML, read once each.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from commsim.errors import did_you_mean
from commsim.yaml_file import read_own_yaml

__all__ = ["HERE", "read_mapping", "suggestion"]

HERE = Path(__file__).parent


def read_mapping(path: Path) -> dict[str, Any]:
    """Return the mapping that one of the room's files holds; tests read them all strictly."""
    data: dict[str, Any] = read_own_yaml(path)
    return data


def suggestion(name: str, known: Sequence[str]) -> str:
    """Return " Did you mean 'x'?" for a name of a machine, or the empty string.

    A known name that begins the given one (aws-p5 of aws-p5.48xlarge, the longest), else one
    that it begins (gb200-nvl72 of gb200), or that holds it, the most alike, else one of similar
    spelling.
    """
    low = name.lower()
    begins = sorted((word for word in known if low.startswith(word.lower())), key=len)
    holds = [word for word in known if low and word.lower().startswith(low)]
    holds = holds or [word for word in known if low and low in word.lower()]
    if begins:
        return f" Did you mean {begins[-1]!r}?"
    alike = did_you_mean(low, holds or known)
    return f" Did you mean {holds[0]!r}?" if holds and not alike else alike
