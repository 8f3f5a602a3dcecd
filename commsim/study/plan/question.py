"""
What was asked of `plan`: the model, tokens, days, money, and the kinds of nodes.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from copy import deepcopy
from decimal import Decimal
from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import replace

from commsim.cluster import build_cluster, preset_names
from commsim.errors import ScenarioError, did_you_mean
from commsim.input_files import is_stream
from commsim.scenario import Scenario, apply_sets, scenario_from
from commsim.yaml_file import read_yaml

__all__ = [
    "NodeKind",
    "PlanQuestion",
    "node_counts",
    "node_kinds",
    "odd_part",
    "read_seconds",
    "read_tokens",
    "with_rack_parts",
]

_DAY = 86400.0
_SECONDS = {"h": 3600.0, "d": _DAY, "w": 7 * _DAY}
_TOKENS = {"": 1, "M": 10**6, "B": 10**9, "T": 10**12}
_QUARTERS = (4, 5, 6, 7)


class NodeKind(msgspec.Struct, frozen=True):
    """A kind of cluster to size: its name, and its section in plain data without `nodes`.

    Of every `rack` nodes (those of an NVLink domain) `used` train; all are paid for.
    """

    name: str
    data: Mapping[str, Any]
    rack: int = 1
    used: int = 1

    def paid(self, nodes: int) -> int:
        """Return how many nodes are paid for if so many train: racks are whole."""
        return nodes + nodes // self.used * (self.rack - self.used)


class PlanQuestion(msgspec.Struct, frozen=True):
    """A training to be done: `seconds` and `budget` are None if they do not bind."""

    model: str
    tokens: float
    seconds: float | None
    budget: float | None
    kinds: tuple[NodeKind, ...]
    sequence: int
    batch_tokens: int
    most_gpus: int
    sets: tuple[str, ...]

    @property
    def steps(self) -> float:
        """How many optimizer steps it takes."""
        return self.tokens / (self.sequences * self.sequence)

    @property
    def sequences(self) -> int:
        """Sequences in a step."""
        return max(1, round(self.batch_tokens / self.sequence))

    def data(self, kind: NodeKind, nodes: int) -> dict[str, Any]:
        """Return the scenario of so many nodes, as `sets` change it; its layout is left open."""
        data: dict[str, Any] = {
            "name": f"{self.model} on {nodes} {kind.name}",
            "cluster": {**deepcopy(dict(kind.data)), "nodes": nodes},
            "workload": {
                "training": {
                    "model": {"preset": self.model, "seq_len": self.sequence},
                    "parallel": {},
                    "batch": {"global": self.sequences, "micro": 1},
                }
            },
        }
        changed: dict[str, Any] = apply_sets(data, self.sets)
        return changed

    def scenario(self, kind: NodeKind, nodes: int) -> Scenario:
        """Return that scenario, read. Raises ScenarioError for what cannot be."""
        return scenario_from(self.data(kind, nodes), f"plan --on {kind.name}")


def with_rack_parts(question: PlanQuestion) -> PlanQuestion:
    """Return the question with 16 of 18 nodes of a rack in use, where the batch asks for that.

    Degrees divide the batch and the layers. Where the sequences of a step have no factor 9, racks
    of 72 GPUs have hardly any layout, and people train on 64 of them.
    """
    kinds = tuple(_rack_part(question, kind) for kind in question.kinds)
    return replace(question, kinds=kinds)


def _rack_part(question: PlanQuestion, kind: NodeKind) -> NodeKind:
    one = question.scenario(kind, 1)
    assert one.file.cluster is not None
    rack = build_cluster(one.file.cluster, one.where).specs[0].domain_nodes
    if question.sequences % odd_part(rack) == 0:
        return kind
    used = 1 << (rack.bit_length() - 1)
    data = deepcopy(dict(kind.data))
    data.setdefault("overrides", {}).setdefault("nvlink", {})["domain_nodes"] = used
    return replace(kind, data=data, rack=rack, used=used)


def odd_part(number: int) -> int:
    """Return what is left of a number without its factors of two: 9 of 72."""
    return number // (number & -number)


def read_tokens(text: str | float) -> float:
    """Read 2e12 or "2T": a whole number. Raises ScenarioError."""
    found = re.fullmatch(r"\s*(\d[\d_]*(?:\.\d+)?(?:[eE][+]?\d{1,3})?)\s*([MBT]?)\s*", str(text))
    value = Decimal(found[1].replace("_", "")) * _TOKENS[found[2]] if found else Decimal(0)
    if not 0 < value < 10**18:
        raise ScenarioError(f"--tokens {text}: give a count of tokens, like 2e12 or 2T.")
    if value % 1:
        raise ScenarioError(f"--tokens {text}: give a whole number of tokens, like 2e12 or 2T.")
    return float(value)


def read_seconds(text: str | float) -> float:
    """Read "30d", "2w" or "12h"; a plain number is in days. Raises ScenarioError."""
    found = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([hdw]?)\s*", str(text))
    value = float(found[1]) * _SECONDS[found[2] or "d"] if found else 0.0
    if not 0 < value < 1e11:
        raise ScenarioError(f"--in {text}: give a time, like 30d, 4w or 12h.")
    return value


def node_kinds(names: Iterable[str]) -> tuple[NodeKind, ...]:
    """Return the kinds of preset names and cluster files (with prices, a fabric, overrides).

    Raises:
        ScenarioError: none, one twice, no such preset or file, or a file that lists several kinds.
    """
    names = [name.strip() for name in names if name.strip()]
    if not names:
        raise ScenarioError("--on: give presets or cluster files, like --on dgx-h100,aws-p6-b200.")
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise ScenarioError(f"--on {twice}: stands there twice.")
    return tuple(_kind(name) for name in names)


def _kind(name: str) -> NodeKind:
    if Path(name).suffix not in (".yaml", ".yml") and not is_stream(name):
        if name not in preset_names():
            raise ScenarioError(
                f"--on {name}: no such preset.{did_you_mean(name, preset_names())}"
                " `commsim presets clusters` lists them; a cluster file ends in .yaml."
            )
        return NodeKind(name, {"preset": name})
    data = read_yaml(Path(name), name)
    if isinstance(data, dict) and isinstance(data.get("cluster"), dict):
        data = data["cluster"]
    if not isinstance(data, dict) or isinstance(data.get("nodes"), list):
        raise ScenarioError(
            f"--on {name}: give a cluster file with one kind of node: `preset` or `node`, and"
            " with it `fabric`, `overrides`, `prices`."
        )
    kept = {key: value for key, value in data.items() if key not in ("nodes", "name")}
    return NodeKind(Path(name).stem, kept)


def node_counts(unit: int, most: int) -> Iterator[int]:
    """Yield counts of nodes by quarters of powers of two, in whole `unit`s beyond the first.

    1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16, 20, ... Steps of 14 to 25 %, whose factors layouts have.
    """
    small = (count for count in (1, 2, 3) if unit == 1)
    parts = (count for count in range(1, unit) if unit % count == 0)
    for count in (*small, *(parts if unit > 1 else ())):
        if count <= most:
            yield count
    for count in (1, 2, 3) if unit > 1 else ():
        if count * unit <= most:
            yield count * unit
    scale = 1
    while _QUARTERS[0] * scale * unit <= most:
        yield from (q * scale * unit for q in _QUARTERS if q * scale * unit <= most)
        scale *= 2
