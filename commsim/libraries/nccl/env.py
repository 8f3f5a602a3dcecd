"""
NCCL's environment variables: from what a user sets to the knobs that the model follows.

`variables.yaml` lists every variable that commsim knows and what it does with each. A value
that NCCL itself would ignore with a warning (text for a number) is an error here, so that a
typing mistake never passes as the default.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import msgspec
from msgspec.structs import replace

from commsim.errors import ScenarioError, did_you_mean
from commsim.libraries.nccl.shapes import PathType
from commsim.yaml_file import read_own_yaml

__all__ = ["Knobs", "Variable", "knobs_of", "variables"]

_TABLE = Path(__file__).with_name("variables.yaml")
_OLD_LEVELS = (
    PathType.LOC,
    PathType.PIX,
    PathType.PXB,
    PathType.PHB,
    PathType.SYS,
    PathType.SYS,
)
"""NCCL's path types by the numbers that NCCL_P2P_LEVEL and NCCL_NET_GDR_LEVEL once took."""

_NEVER_MERGED = PathType.LOC.name
_MERGE_LEVELS = (_NEVER_MERGED, "PORT", "PIX", "PXB", "P2C", "PHB", "SYS")

Does = Literal["modelled", "not_modelled", "no_effect"]


class Variable(msgspec.Struct, frozen=True):
    """One NCCL variable: what it says, and what commsim does with it.

    `choice_only`: it changes what NCCL chooses, and no predicted time of that.
    """

    name: str
    does: Does
    says: str
    type: str = "text"
    default: int | bool | None = None
    alias: str = ""
    choice_only: bool = False

    @property
    def field(self) -> str:
        """The field of `Knobs` that holds it."""
        return (self.alias or self.name).removeprefix("NCCL_").lower()


class Knobs(msgspec.Struct, frozen=True):
    """The settings of NCCL that the environment makes. None: unset, NCCL decides. Sizes in bytes.

    `algo` and `proto` keep NCCL's own list syntax; `tuning/algo_filter.py` reads it.
    `notes` lists the known variables that are set and not modelled.
    """

    algo: str = ""
    proto: str = ""
    min_nchannels: int | None = None
    max_nchannels: int | None = None
    min_ctas: int | None = None
    max_ctas: int | None = None
    nthreads: int | None = None
    ll128_nthreads: int | None = None
    thread_thresholds: tuple[int, ...] = ()
    buffsize: int = 4 << 20
    ll_buffsize: int = 512 << 10
    ll128_buffsize: int = 4800 << 10
    nvls_enable: int = 2
    nvls_nchannels: int | None = None
    nvls_chunksize: int | None = None
    nvlstree_max_chunksize: int | None = None
    pat_enable: int = 2
    collnet_enable: int = 0
    collnet_node_threshold: int = 2
    net_overhead: int | None = None
    ll128_c2c: bool = True
    cross_nic: int = 2
    p2p_level: PathType | None = None
    p2p_disable: bool = False
    shm_disable: bool = False
    nvb_disable: bool = False
    pxn_disable: bool = False
    pxn_c2c: bool | None = None
    net_gdr_level: PathType | None = None
    net_gdr_read: bool | None = None
    net_gdr_c2c: bool | None = None
    net_disable_intra: bool | None = None
    netdevs_policy: str = ""
    mnnvl_enable: int = 2
    ib_merge_nics: bool = True
    net_merge_level: str = "PORT"
    min_p2p_nchannels: int = 1
    max_p2p_nchannels: int | None = None
    nchannels_per_net_peer: int | None = None
    p2p_net_chunksize: int = 128 << 10
    p2p_pci_chunksize: int = 128 << 10
    p2p_nvl_chunksize: int = 512 << 10
    p2p_ll_threshold: int = 16 << 10
    p2p_per_channel_net_bw: int = 14
    p2p_schedule_group_size: int = 8
    alloc_p2p_net_ll_buffers: bool = False
    notes: tuple[str, ...] = ()


def knobs_of(environment: Mapping[str, str | int | bool]) -> Knobs:
    """Return the knobs that these NCCL variables set.

    Raises:
        ScenarioError: a variable that NCCL does not have, or a value it cannot read.
    """
    fields: dict[str, Any] = {}
    notes = []
    for name, value in environment.items():
        variable = _variable(name)
        text = str(int(value)) if isinstance(value, bool) else str(value).strip()
        if variable.does != "modelled":
            notes.append(_left_out(variable, text))
        elif not text:
            notes.append(f"{name} is empty: NCCL takes it as unset.")
        elif variable.alias and variable.alias in environment:
            notes.append(f"{name}={text} is the older name of {variable.alias}, which is set too.")
        else:
            fields[variable.field] = _READ[variable.type](name, text)
            notes += _beyond_ports(name, fields[variable.field])
            if variable.choice_only:
                notes.append(
                    f"{name}={text} is followed in what NCCL chooses alone: the time of a choice"
                    " does not depend on it here."
                )
    return replace(Knobs(), **fields, notes=tuple(notes))


def _beyond_ports(name: str, value: object) -> list[str]:
    """Say of a level that merges whole NICs that their ports alone are merged."""
    if name != "NCCL_NET_MERGE_LEVEL" or value in (_NEVER_MERGED, "PORT"):
        return []
    return [
        f"{name}={value}: the ports of a NIC are merged, but not several NICs. State those as one"
        " NIC with more ports (cluster: nic.count, nic.ports)."
    ]


@functools.cache
def variables() -> Mapping[str, Variable]:
    """Return every known variable by name, in the order of the table."""
    table = _table()
    sections: tuple[Does, ...] = ("modelled", "not_modelled", "no_effect")
    return {
        name: Variable(name=name, does=does, **row)
        for does in sections
        for name, row in table[does].items()
    }


@functools.cache
def _table() -> dict[str, Any]:
    table: dict[str, Any] = read_own_yaml(_TABLE)
    return table


def families() -> Mapping[str, str]:
    """Return the families of plug-in settings by their prefix."""
    return dict(_table()["families"])


def _variable(name: str) -> Variable:
    known = variables()
    if name in known:
        return known[name]
    for prefix, whose in families().items():
        if name.startswith(prefix):
            return Variable(name=name, does="not_modelled", says=f"a setting of {whose}")
    guess = name if name.startswith("NCCL_") else f"NCCL_{name}".upper()
    raise ScenarioError(
        f"{name}: NCCL has no such variable that commsim knows.{did_you_mean(guess, known)} "
        "docs/reference/nccl-variables.md lists them."
    )


def _left_out(variable: Variable, text: str) -> str:
    if variable.does == "no_effect":
        return f"{variable.name}={text} changes neither choice nor time here ({variable.says})."
    return f"{variable.name}={text} is not modelled ({variable.says})."


def _int(name: str, text: str) -> int:
    """Read a number as C's strtol does: decimal, 0x hexadecimal or 0 octal."""
    try:
        return int(text, 8) if re.fullmatch(r"-?0[0-7]+", text) else int(text, 0)
    except ValueError:
        raise ScenarioError(f"{name}={text}: not a whole number.") from None


def _bool(name: str, text: str) -> bool:
    return _int(name, text) != 0


def _ints(name: str, text: str) -> tuple[int, ...]:
    return tuple(_int(name, part) for part in text.split())


def _text(name: str, text: str) -> str:
    return text


def _level(name: str, text: str) -> PathType:
    """Read a path type, by its name or by the number of older releases."""
    names = [kind.name for kind in PathType if kind < PathType.NET]
    if text.upper() in names:
        return PathType[text.upper()]
    if not re.fullmatch(r"\d{1,9}", text):
        raise ScenarioError(
            f"{name}={text}: not a path type.{did_you_mean(text.upper(), names)} "
            f"Give one of {', '.join(names)}."
        )
    return _OLD_LEVELS[min(int(text), len(_OLD_LEVELS) - 1)]


def _merge_level(name: str, text: str) -> str:
    """Read how near devices are that NCCL merges: LOC is never, PORT a NIC's own ports."""
    if text.upper() not in _MERGE_LEVELS:
        raise ScenarioError(
            f"{name}={text}: not a level.{did_you_mean(text.upper(), _MERGE_LEVELS)} "
            f"Give one of {', '.join(_MERGE_LEVELS)}."
        )
    return text.upper()


_READ = {
    "rules": _text,
    "text": _text,
    "int": _int,
    "bool": _bool,
    "ints": _ints,
    "level": _level,
    "merge_level": _merge_level,
}
