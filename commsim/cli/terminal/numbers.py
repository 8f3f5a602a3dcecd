"""
Parameter types of numbers: counts, shares, sizes and versions, whose errors name the option.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import click

from commsim.errors import CommsimError

__all__ = ["Checked", "Count", "NcclVersion", "Number", "Percent"]

_MOST = 10**12  # more than there are of anything; what fewer are too many for says so itself
_SHORTENED = re.compile(r"\d+(?:\.\d+)?\s*[kKMGBT]i?")
_SHARE = re.compile(r"(\d+(?:\.\d*)?|\.\d+)\s*(%?)")


class Count(click.ParamType[int]):
    """A whole number from `least` to `most`."""

    name = "integer"

    def __init__(self, least: int = 1, most: int = _MOST) -> None:
        self._least, self._most = least, most

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Return the number, or fail as a usage error."""
        text = str(value)
        digits = re.fullmatch(r"[+-]?\d{1,18}", text)
        if digits and self._least <= int(text) <= self._most:
            return int(text)
        too_large = int(text) > self._most if digits else re.fullmatch(r"\+?\d+", text)
        bounds = f"from {self._least:,} to {self._most:,}"
        if self._most == _MOST and not too_large:
            bounds = f"of {self._least:,} or more"
        written = ", without letters" if _SHORTENED.fullmatch(text) else ""
        self.fail(f"{text!r}: give a whole number {bounds}{written}.", param, ctx)


class Number(click.ParamType[float]):
    """A number written out, with a decimal point or an exponent; `like` is an example."""

    name = "number"

    def __init__(self, like: str) -> None:
        self._like = like

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """Return the number, or fail as a usage error."""
        try:
            return float(value)
        except ValueError:
            self.fail(f"{value!r}: give a number, like {self._like}.", param, ctx)


class Percent(click.ParamType[float]):
    """A share as people write it, 5% or 0.05, of at most the whole."""

    name = "share"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """Return the fraction, or fail as a usage error."""
        found = _SHARE.fullmatch(str(value).strip())
        if not found:
            self.fail(f"{value!r}: give a share such as 5% or 0.05.", param, ctx)
        number = float(found[1]) / (100 if found[2] else 1)
        if number > 1:
            meant = not found[2] and number <= 100
            hint = f"did you mean {value}%?" if meant else "give a share of at most 100%."
            self.fail(f"{value!r}: {hint}", param, ctx)
        return number


class Checked(click.ParamType[str]):
    """Text that a function can read: what that refuses is refused by the option's name."""

    name = "text"

    def __init__(self, read: Callable[[str], object]) -> None:
        self._read = read

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Return the text, or fail as a usage error."""
        try:
            self._read(str(value))
        except CommsimError as error:
            self.fail(str(error), param, ctx)
        return str(value)


class NcclVersion(click.ParamType[str]):
    """A release of NCCL, as 2.27 or 2.28.9."""

    name = "text"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Return the text, or fail as a usage error."""
        from commsim.libraries.nccl import is_release

        if not is_release(str(value)):
            self.fail(f"{value!r}: give a release of NCCL, like 2.27 or 2.28.9.", param, ctx)
        return str(value)
