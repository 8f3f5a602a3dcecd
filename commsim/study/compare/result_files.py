"""
The JSON files that `run`, `replay` and `bench` write, read back as far as comparisons need them.
"""

from __future__ import annotations

from typing import Annotated, Any

import msgspec

from commsim.errors import TraceError

__all__ = ["own_json", "what_it_holds"]


Amount = Annotated[float, msgspec.Meta(ge=0, le=1e30)]
"""A time, a rate or a cost: finite, and not negative."""

Count = Annotated[int, msgspec.Meta(ge=0, le=2**62)]


class _Times(msgspec.Struct):
    compute_s: Amount
    exposed_transfer_s: Amount
    exposed_copy_s: Amount
    waiting_s: Amount
    host_s: Amount
    idle_s: Amount
    comm_s: Amount = 0.0


class _Use(msgspec.Struct):
    op: str
    group: str
    exposed_s: Amount


class _Link(msgspec.Struct):
    name: str
    utilization: Amount


class _Cost(msgspec.Struct):
    currency: str | None = None
    per_hour: Amount | None = None
    per_step: Amount | None = None
    per_1e9_tokens: Amount | None = None
    power_w: Amount | None = None
    energy_j_per_step: Amount | None = None
    energy_kwh_per_1e9_tokens: Amount | None = None
    capital: Amount | None = None
    sources: list[str] = []


class _Memory(msgspec.Struct):
    peak: Amount
    fits: bool


class _Run(msgspec.Struct):
    """What a comparison takes from the JSON of a run."""

    step_time_s: Amount
    breakdown: _Times
    collectives: list[_Use] = []
    links: list[_Link] = []
    cost: _Cost | None = None
    memory_gib: _Memory | None = None
    tokens_per_s: Amount | None = None
    tokens_per_s_per_gpu: Amount | None = None
    tflops_per_gpu: Amount | None = None
    mfu: Amount | None = None
    hfu: Amount | None = None
    bubble_fraction: Amount | None = None
    notes: list[str] = []


class _ResultRow(msgspec.Struct):
    op: str
    size: Count
    type: str
    time_us: Amount
    busbw_gbs: Amount | None
    algo: str
    proto: str | None
    chosen: bool = False


class _System(msgspec.Struct):
    gpus: Count = 0
    nodes: Count = 0


class _Bench(msgspec.Struct):
    """What a comparison takes from the JSON of a bench."""

    results: list[_ResultRow]
    system: _System = msgspec.field(default_factory=_System)


class _Keys(msgspec.Struct):
    """The keys by which commsim's own files are told from others."""

    schema: int | None = None
    step_time_s: msgspec.Raw = msgspec.Raw(b"")
    results: msgspec.Raw = msgspec.Raw(b"")
    sides: msgspec.Raw = msgspec.Raw(b"")


def own_json(data: bytes | bytearray) -> dict[str, Any] | None:
    """Return the content of a JSON file that commsim wrote; None for any other."""
    try:
        keys = msgspec.json.decode(data, type=_Keys)
        if keys.schema is None or not any(map(bytes, (keys.step_time_s, keys.results, keys.sides))):
            return None
        held: dict[str, Any] = msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    return held


def what_it_holds(held: dict[str, Any], name: str) -> str:
    """Return "result" or "bench" for what `own_json` returned.

    Raises:
        TraceError: it is of another schema, a comparison itself, or a figure is missing or wrong.
    """
    if held["schema"] != 1:
        raise TraceError(
            f"{name}: schema {held['schema']} is of a newer commsim; this one reads 1."
        )
    if "sides" in held:
        raise TraceError(f"{name}: is a comparison already. Give what it compared.")
    kind, needed = ("bench", _Bench) if "results" in held else ("result", _Run)
    try:
        msgspec.convert(held, needed)
    except msgspec.ValidationError as error:
        command = "bench" if kind == "bench" else "run"
        raise TraceError(
            f"{name}: not as `commsim {command} --json` writes it: {error}. Write it again."
        ) from None
    if kind == "bench" and not held["results"]:
        raise TraceError(f"{name}: holds no row.")
    return kind
