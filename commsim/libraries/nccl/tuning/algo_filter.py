"""
NCCL_ALGO and NCCL_PROTO: which algorithms and protocols the environment leaves to an operation.

`[operation:]name,name;operation:^name`: a list names what is allowed, with ^ in front what is
not; a list without an operation holds for all and can only stand first. NCCL reads operations
since 2.24; before, there is one list.

Follows parseList (src/graph/tuning.cc, NCCL 2.18 to 2.30).
"""

from __future__ import annotations

from collections.abc import Iterable

from commsim.errors import ScenarioError, did_you_mean

__all__ = ["FUNCTIONS", "allowed", "check_list"]

FUNCTIONS = {
    "broadcast": "Broadcast",
    "reduce": "Reduce",
    "all_gather": "AllGather",
    "reduce_scatter": "ReduceScatter",
    "all_reduce": "AllReduce",
}
"""NCCL's names of the operations that its tuner decides about, by commsim's."""


def allowed(
    text: str, names: Iterable[str], *, op: str, variable: str, per_function: bool
) -> frozenset[str] | None:
    """Return which of `names` the list leaves to `op`; None if it says nothing of it.

    Raises:
        ScenarioError: an unknown name or operation, or a second list without an operation.
    """
    known = {name.lower(): name for name in names}
    left: frozenset[str] | None = None
    entries = [entry for entry in text.split(";") if entry]
    for position, entry in enumerate(entries):
        prefix, colon, listed = entry.rpartition(":")
        if colon and not per_function:
            raise ScenarioError(
                f"{variable}={text}: this release of NCCL reads no lists per operation; they came "
                "with 2.24. Leave the operation out, or choose a newer version."
            )
        if position and not colon:
            raise ScenarioError(
                f"{variable}={text}: only the first list can stand without an operation. "
                f"Write the operation before {entry!r}, like allreduce:{entry}."
            )
        chosen = _chosen(listed, known, variable=variable, text=text)
        if not colon or _function(prefix, variable=variable, text=text) == FUNCTIONS[op]:
            left = chosen
    return left


def check_list(text: str, names: Iterable[str], *, variable: str) -> None:
    """Raise ScenarioError for an unknown name or operation; `variable` is what errors name."""
    allowed(text, names, op="all_reduce", variable=variable, per_function=True)


def _chosen(listed: str, known: dict[str, str], *, variable: str, text: str) -> frozenset[str]:
    named = set()
    for word in listed.removeprefix("^").split(","):
        if word and word.strip().lower() not in known:
            raise ScenarioError(
                f"{variable}={text}: {word!r} is none of {', '.join(known.values())}."
                f"{did_you_mean(word, known.values())}"
            )
        if word:
            named.add(known[word.strip().lower()])
    return frozenset(known.values()) - named if listed.startswith("^") else frozenset(named)


def _function(prefix: str, *, variable: str, text: str) -> str:
    known = {name.lower(): name for name in FUNCTIONS.values()}
    if prefix.strip().lower() not in known:
        raise ScenarioError(
            f"{variable}={text}: {prefix!r} is none of NCCL's operations "
            f"{', '.join(known.values())}.{did_you_mean(prefix, known.values())}"
        )
    return known[prefix.strip().lower()]
