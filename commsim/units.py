"""
Quantities with units: "400Gbps", "25GiB", "3us" to numbers, and back to text for people.

Inside commsim a time is an integer number of picoseconds, a size is in bytes, and a
bandwidth is in bytes per second. Decimal prefixes are powers of 1000 (kB, MB, GB), binary
ones powers of 1024 (KiB, MiB, GiB); a small "b" is a bit and only appears in "bps".
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from commsim.errors import UnitError

__all__ = [
    "GIB",
    "LEAST_BANDWIDTH",
    "MIB",
    "MOST_BANDWIDTH",
    "MOST_BYTES",
    "MOST_PICOSECONDS",
    "PS_PER_MS",
    "PS_PER_NS",
    "PS_PER_SECOND",
    "PS_PER_US",
    "Bandwidth",
    "Duration",
    "Size",
    "format_bandwidth",
    "format_size",
    "format_time",
    "parse_bandwidth",
    "parse_duration",
    "parse_nccl_size",
    "parse_size",
    "to_picoseconds",
]

PS_PER_NS = 10**3
PS_PER_US = 10**6
PS_PER_MS = 10**9
PS_PER_SECOND = 10**12
"""Time is integer picoseconds."""
MIB, GIB = 2**20, 2**30
MOST_BYTES = 2**62
MOST_PICOSECONDS = 2**62
"""53 days: of times below it, the sum of two and every difference fit in 64 bits."""
_WRITTEN_OUT = 1e300  # no float holds every larger integer
_ZERO = (0, "0")  # of any unit
_SHOWN = 48  # characters of a quantity that messages show

_DURATION = {"s": 10**12, "ms": 10**9, "us": 10**6, "µs": 10**6, "ns": 10**3, "ps": 1}
_DECIMAL = {"": 1, "k": 10**3, "K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12}
_BINARY = {"Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40}
_SIZE = {p + "B": f for p, f in (_DECIMAL | _BINARY).items()}
_BANDWIDTH = (
    {p + "bps": f / 8 for p, f in _DECIMAL.items()}
    | {p + "bit/s": f / 8 for p, f in _DECIMAL.items()}
    | {p + "B/s": float(f) for p, f in (_DECIMAL | _BINARY).items()}
)
_WORDS = {
    "seconds": "s", "second": "s", "secs": "s", "sec": "s", "milli": "m", "micro": "u",
    "nano": "n", "bits": "bit", "bytes": "b", "byte": "b",
}  # fmt: skip
_NUMBER = re.compile(r"\s*([+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)\s*(\S*)\s*\Z")


LEAST_BANDWIDTH = 1 / 8
"""Bytes per second of the slowest link, a bit per second: times on it are finite."""
MOST_BANDWIDTH = 1e18
"""Bytes per second of the fastest: sums of bandwidths, and a few factors on them, are finite."""


class Duration(int):
    """A time in integer picoseconds, as read from text with a unit."""


class Size(int):
    """A size in bytes, as read from text with a unit."""


class Bandwidth(float):
    """A bandwidth in bytes per second, as read from text with a unit."""


def parse_duration(text: Any) -> Duration:
    """Read "3us" as 3,000,000 picoseconds. Zero is allowed; negative raises UnitError."""
    value = _parse(text, _DURATION, "a time", "ms", parse_duration) if text not in _ZERO else 0.0
    if value > MOST_PICOSECONDS:
        raise _too_long(_shown(text))
    return Duration(round(value))


def parse_size(text: Any) -> Size:
    """Read "25MiB" as bytes; a fraction of a byte raises UnitError, as does a negative size."""
    value = _parse(text, _SIZE, "a size", "MiB", parse_size) if text not in _ZERO else 0.0
    if value > MOST_BYTES:
        raise UnitError(f"{_shown(text)} is larger than commsim can hold (4 EiB).")
    whole = round(value)  # "8.2GB" is a whole number of bytes, though not one in binary floats
    if abs(value - whole) > 1e-9 * max(1.0, value):
        raise UnitError(f"{_shown(text)} is {value} bytes: give a whole number of bytes.")
    return Size(whole)


def parse_bandwidth(text: Any) -> Bandwidth:
    """Read "400Gbps" as 50e9 bytes per second; UnitError below 1 bps and above 1e18 bytes/s."""
    value = _parse(text, _BANDWIDTH, "a bandwidth", "Gbps", parse_bandwidth)
    if value <= 0:
        raise UnitError(f"{_shown(text)}: a bandwidth must be above zero.")
    if value < LEAST_BANDWIDTH:
        raise UnitError(f"{_shown(text)} is less than a bit per second.")
    if value > MOST_BANDWIDTH:
        raise UnitError(f"{_shown(text)} is more than 1,000,000,000 GB/s.")
    return Bandwidth(value)


def parse_nccl_size(text: str) -> int:
    """Read a size as nccl-tests does: 8, 128K, 1M, 8G, the letters being powers of 1024.

    Units with a B ("1MiB", "1GB") are read like everywhere else in commsim.
    """
    match = _NUMBER.match(text)
    letters = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}
    if match and match[2].upper() in letters:
        value = float(match[1]) * letters[match[2].upper()]
        if not 0 <= value <= MOST_BYTES or value != int(value):
            raise UnitError(f"{_shown(text)} is not a whole number of bytes from 0 to 4 EiB.")
        return int(value)
    return int(parse_size(text))


def to_picoseconds(seconds: float, what: str) -> int:
    """Round the time in seconds of `what` to integer ps; more than 53 days raise UnitError."""
    if not seconds * PS_PER_SECOND <= MOST_PICOSECONDS:
        raise _too_long(f"{what}: {seconds:.4g} s")
    return round(seconds * PS_PER_SECOND)


def _too_long(what: str) -> UnitError:
    return UnitError(f"{what} is longer than commsim can hold ({format_time(MOST_PICOSECONDS)}).")


def _parse(
    text: Any, units: dict[str, Any], what: str, likely: str, read: Callable[[Any], object]
) -> float:
    """Return the value in base units, or raise UnitError naming a spelling that `read` takes."""
    shown, known = _shown(text), _listing(units)
    wrong = UnitError(f"{shown} is not {what}. Write a number and a unit, like '1{likely}'.")
    impossible = UnitError(f"{shown}: {what} cannot be negative or infinite.")
    if isinstance(text, bool) or not isinstance(text, str | int | float):
        raise wrong
    if not isinstance(text, str):
        if not -_WRITTEN_OUT < text < _WRITTEN_OUT:
            raise wrong
        text = f"{text:.12g}"
    match = _NUMBER.match(text)
    if not match:
        raise wrong
    number, unit = float(match[1]), match[2]
    if number < 0:
        raise impossible
    if not unit:
        hint = _hint([f"{match[1]}{likely}"], read)
        raise UnitError(f"{shown} has no unit.{hint} Units: {known}.")
    if unit not in units:
        fold = _otherwise(unit, units) or _begun(unit.replace("bit", "b"), units)
        hint = _hint([f"{match[1]}{one}" for one in fold[:2]], read)
        raise UnitError(f"{shown}: unknown unit {_shown(unit)}.{hint} Units: {known}.")
    value = number * float(units[unit])
    if not math.isfinite(value):
        raise impossible
    return value


def _hint(spellings: list[str], read: Callable[[Any], object]) -> str:
    """Ask whether one of some spellings is meant: those that would be taken."""
    taken = []
    for one in spellings:
        with suppress(UnitError):
            read(one)
            taken += [f"'{one}'"] if len(one) <= _SHOWN else []
    return f" Did you mean {' or '.join(taken)}?" if taken else ""


def _otherwise(unit: str, units: dict[str, Any]) -> list[str]:
    """Return the units that are written otherwise: "gbps", "Gb/s" (of bits?), "usec"."""
    plain = unit.lower()
    for word, short in _WORDS.items():
        plain = plain.replace(word, short)
    bits, whole = plain.replace("b/s", "bps"), plain.replace("bps", "b/s")
    forms = [whole, bits] if "B" in unit or "byte" in unit else [bits, whole]
    if plain == forms[0]:  # else a small b says bits, and "/s" bytes: either may be meant
        forms = forms[:1]
    return [each for one in forms for each in units if each.lower() == one]


def _begun(unit: str, units: dict[str, Any]) -> list[str]:
    """Return the units that go on where an unfinished one stops: "G" is Gbps or GB/s."""
    return [known for known in units if known.startswith(unit) and "bit" not in known]


def _shown(text: Any) -> str:
    """Return what was written, cut if it is so long that it would hide the message."""
    told = repr(text)
    return told if len(told) <= _SHOWN else f"{told[:_SHOWN]}..."


def _listing(units: dict[str, Any]) -> str:
    return ", ".join(u for u in units if not u.startswith(("K", "T", "Ti")) and "bit" not in u)


def format_time(picoseconds: float) -> str:
    """Write a time with three or four digits in the unit that fits it: "12.3 ms"."""
    if picoseconds == 0:
        return "0 s"
    for unit in ("s", "ms", "us", "ns", "ps"):
        if abs(picoseconds) >= _DURATION[unit]:
            return f"{_digits(picoseconds / _DURATION[unit])} {unit}"
    return f"{picoseconds:.3g} ps"


def format_size(size: float) -> str:
    """Write a size in binary units: "25 MiB"."""
    for unit in ("TiB", "GiB", "MiB", "KiB"):
        if abs(size) >= _SIZE[unit]:
            return f"{_digits(size / _SIZE[unit])} {unit}"
    return f"{size:.4g} B"


def format_bandwidth(bytes_per_second: float) -> str:
    """Write a bandwidth in decimal bytes per second: "50 GB/s"."""
    for unit in ("TB/s", "GB/s", "MB/s", "kB/s"):
        if abs(bytes_per_second) >= _BANDWIDTH[unit]:
            return f"{_digits(bytes_per_second / _BANDWIDTH[unit])} {unit}"
    return f"{bytes_per_second:.4g} B/s"


def _digits(value: float) -> str:
    return f"{value:.4g}" if abs(value) < 1000 else f"{value:.0f}"
