"""
The JSON files that `run`, `replay` and `bench` write, read back as far as comparisons need them.

What is read is checked here, once: whoever uses a figure need not ask whether it is one.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Annotated, Any

import msgspec

from commsim.errors import TraceError
from commsim.traces.formats import BAD_JSON

__all__ = ["ResultFile", "read_own_json"]

_LEAST = 1e-30
"""Below it a figure is no measure, and what is divided by it would not be finite."""

Amount = Annotated[float, msgspec.Meta(ge=0, le=1e30)]
"""A rate, a share or a cost: finite, and not negative."""

Seconds = Annotated[float, msgspec.Meta(ge=0, le=1e12)]

Count = Annotated[int, msgspec.Meta(ge=0, le=2**62)]

_OWN = re.compile(rb'\s*\{\s*"schema"\s*:')  # what commsim writes first


class _Times(msgspec.Struct):
    compute_s: Seconds
    exposed_transfer_s: Seconds
    exposed_copy_s: Seconds
    waiting_s: Seconds
    host_s: Seconds
    idle_s: Seconds
    comm_s: Seconds = 0.0


class _Rank(msgspec.Struct):
    multiplicity: Annotated[int, msgspec.Meta(ge=1, le=2**31)]


class _Use(msgspec.Struct):
    op: str
    group: str
    exposed_s: Seconds
    count: Count | None = None
    bytes: Count | None = None
    time_s: Seconds | None = None
    wait_s: Seconds | None = None
    busbw_gbs: Amount | None = None


class _Link(msgspec.Struct):
    name: str
    utilization: Amount
    kind: str | None = None
    bytes: Amount | None = None


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
    parameters: Amount | None = None
    gradients: Amount | None = None
    optimizer: Amount | None = None
    activations: Amount | None = None
    buffers: Amount | None = None
    runtime: Amount | None = None
    slack: Amount | None = None
    reserved: Amount | None = None


class _Run(msgspec.Struct):
    """What a comparison takes from the JSON of a run."""

    step_time_s: Seconds
    breakdown: _Times
    scenario: str | None = None
    headline: str | None = None
    ranks: list[_Rank] = []
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

    def __post_init__(self) -> None:
        cost = self.cost or _Cost()
        if not self.step_time_s and (
            self.tokens_per_s or cost.per_1e9_tokens or cost.energy_kwh_per_1e9_tokens
        ):
            raise ValueError("tokens in a step of no time - at `$.step_time_s`")


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

    def __post_init__(self) -> None:
        if not self.results:
            raise ValueError("it holds no row")


class _Keys(msgspec.Struct):
    """The keys by which commsim's own files are told from others."""

    schema: Any = None
    step_time_s: msgspec.Raw = msgspec.Raw(b"")
    results: msgspec.Raw = msgspec.Raw(b"")
    sides: msgspec.Raw = msgspec.Raw(b"")
    measured: msgspec.Raw = msgspec.Raw(b"")


class ResultFile(msgspec.Struct, frozen=True):
    """What a file of commsim's own holds: `kind` is "bench", "result" or "replay".

    `data` has the keys of the file that a comparison reads, with sound figures; null stands for
    what the file does not say.
    """

    kind: str
    data: dict[str, Any]


def read_own_json(data: bytes | bytearray, name: str) -> ResultFile | None:
    """Return what a JSON file that commsim wrote holds; None for any other file.

    Raises:
        TraceError: it is cut, of another schema or a comparison itself, or a figure is missing or
            wrong.
    """
    try:
        keys = msgspec.json.decode(data, type=_Keys)
    except BAD_JSON as error:
        if _OWN.match(data):
            raise TraceError(_not_as_written(name, error, "run|bench")) from None
        return None
    if keys.schema is None or not any(map(bytes, (keys.step_time_s, keys.results, keys.sides))):
        return None
    if keys.schema != 1:
        raise TraceError(
            f"{name}: schema {str(keys.schema)[:20]} is of a newer commsim; this one reads 1."
        )
    if bytes(keys.sides):
        raise TraceError(f"{name}: is a comparison already. Give what it compared.")
    is_bench = bool(bytes(keys.results))
    command = "bench" if is_bench else "run"
    try:
        read = msgspec.json.decode(data, type=_Bench if is_bench else _Run)
    except BAD_JSON as error:
        raise TraceError(_not_as_written(name, error, command)) from None
    held: dict[str, Any] = msgspec.to_builtins(read)
    for where, value in _figures(held):
        if 0 < value < _LEAST:
            raise TraceError(_not_as_written(name, f"{where} is {value:g}", command))
    replayed = bool(bytes(keys.measured))
    return ResultFile("bench" if is_bench else "replay" if replayed else "result", held)


def _not_as_written(name: str, error: object, command: str) -> str:
    if isinstance(error, UnicodeDecodeError):
        error = "its text is not UTF-8"
    elif isinstance(error, RecursionError):
        error = "nested too deeply"
    return f"{name}: not as `commsim {command} --json` writes it: {error}. Write it again."


def _figures(held: Any, where: str = "$") -> Iterator[tuple[str, float]]:
    """Yield the fractional numbers of plain data and where they stand."""
    if isinstance(held, float):
        yield where, held
    elif isinstance(held, dict | list):
        items = held.items() if isinstance(held, dict) else enumerate(held)
        for key, value in items:
            yield from _figures(value, f"{where}.{key}")
