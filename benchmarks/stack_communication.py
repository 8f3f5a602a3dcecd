"""How the software stack of a published row communicates (`stack_communication.yaml`)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from pathlib import Path

import yaml

__all__ = ["StackCommunication", "stack_communication"]


@dataclass(frozen=True, slots=True)
class StackCommunication:
    """The NCCL of a stack ("" for commsim's own), whether gradients overlap, entries per bucket."""

    nccl: str = ""
    overlap: bool = False
    bucket: int | None = None


def stack_communication(stack: str) -> StackCommunication:
    """Return what is known of a stack; one that is not in the file reduces after the backward."""
    return _table().get(stack, StackCommunication())


@cache
def _table() -> dict[str, StackCommunication]:
    text = Path(__file__).with_suffix(".yaml").read_text()
    return {stack: StackCommunication(**entry) for stack, entry in yaml.safe_load(text).items()}
