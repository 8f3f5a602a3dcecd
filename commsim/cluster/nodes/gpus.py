"""
What a GPU is: its memory, its speed, its ports; one file per GPU in `gpus/`, with sources.

Each fact in a file carries its confidence: documented (seen in the source it names), derived
(arithmetic in its note) or general (general knowledge; treat as doubtful).
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from types import MappingProxyType
from typing import Any

import msgspec

from commsim.cluster.files import HERE, read_mapping, suggestion
from commsim.errors import ScenarioError

__all__ = ["GpuSpec", "gpu_names", "gpu_spec", "gpu_text"]

_FOLDER = HERE / "gpus"
_NOTHING: Mapping[str, str] = MappingProxyType({})


class GpuSpec(msgspec.Struct, frozen=True):
    """One GPU, or one CPU worker (`device` "cpu").

    `memory_bytes` is what a process can use; bandwidths are bytes/s per direction; `tflops` is
    dense 1e12 FLOP/s by precision, holding only the precisions that the GPU supports.
    `confidence` and `source` say, per field, how sure a value is and where it is from.
    """

    name: str
    memory_bytes: int
    memory_bandwidth: float
    tflops: Mapping[str, float]
    sm_count: int
    compute_capability: str
    device: str = "cuda"
    vendor: str = ""
    arch: str = ""
    nvlink_bandwidth: float = 0.0
    c2c_bandwidth: float = 0.0
    pcie_generation: int = 0
    pcie_width: int = 16
    power_w: float | None = None
    multicast: bool = False
    confidence: Mapping[str, str] = _NOTHING
    source: Mapping[str, str] = _NOTHING

    def __hash__(self) -> int:
        """Return the hash of what can be hashed; mappings cannot."""
        return hash((self.name, self.memory_bytes, self.memory_bandwidth, self.sm_count))

    @property
    def sm(self) -> int:
        """The compute capability as NCCL writes it: 90 for "9.0"; 0 if there is none."""
        digits = self.compute_capability.replace(".", "")
        return int(digits) if digits.isdecimal() and len(digits) < 9 else 0


@cache
def gpu_names() -> tuple[str, ...]:
    """Return the names of all GPUs in the table, sorted."""
    return tuple(sorted(path.stem for path in _FOLDER.glob("*.yaml")))


def gpu_text(name: str) -> str:
    """Return the file of a GPU as it stands. Raises ScenarioError for an unknown name."""
    return (_FOLDER / f"{_known(name)}.yaml").read_text(encoding="utf-8")


@cache
def gpu_spec(name: str) -> GpuSpec:
    """Return a GPU of the table. Raises ScenarioError for an unknown name."""
    name = _known(name)
    return _spec(read_mapping(_FOLDER / f"{name}.yaml"))


def _known(name: str) -> str:
    """Return the name as the table spells it; upper and lower case do not matter."""
    for known in gpu_names():
        if known.lower() == name.lower():
            return known
    hint = suggestion(name, gpu_names())
    raise ScenarioError(f"unknown GPU {name!r}.{hint} Known: {', '.join(gpu_names())}.")


def _spec(data: dict[str, Any]) -> GpuSpec:
    facts = {
        "memory_bytes": data["memory_bytes"],
        "memory_bandwidth": data["memory_bandwidth_gbs"],
        "sm_count": data["sm_count"],
        "compute_capability": data["compute_capability"],
        "nvlink_bandwidth": data["nvlink"]["gbs"],
        "c2c_bandwidth": data["c2c_gbs"],
        "pcie": data["pcie"],
        "power_w": data["power_w"],
        "multicast": data["multicast"],
    } | {f"tflops.{precision}": fact for precision, fact in data["tflops"].items()}
    pcie = data["pcie"]["v"]
    tflops = {p: float(f["v"]) for p, f in data["tflops"].items() if f["v"] is not None}
    return GpuSpec(
        name=data["name"],
        memory_bytes=int(data["memory_bytes"]["v"]),
        memory_bandwidth=data["memory_bandwidth_gbs"]["v"] * 1e9,
        tflops=MappingProxyType(tflops),
        sm_count=data["sm_count"]["v"],
        compute_capability=data["compute_capability"]["v"],
        device="cpu" if data["form"] == "cpu" else "cuda",
        vendor=data["vendor"],
        arch=data["arch"],
        nvlink_bandwidth=(data["nvlink"]["gbs"]["v"] or 0.0) * 1e9,
        c2c_bandwidth=(data["c2c_gbs"]["v"] or 0.0) * 1e9,
        pcie_generation=pcie["gen"],
        pcie_width=pcie["width"],
        power_w=data["power_w"]["v"],
        multicast=bool(data["multicast"]["v"]),
        confidence=MappingProxyType({key: fact["c"] for key, fact in facts.items()}),
        source=MappingProxyType(
            {key: _origin(fact, data["sources"]) for key, fact in facts.items()}
        ),
    )


def _origin(fact: dict[str, Any], sources: dict[str, str]) -> str:
    """Return where a fact is from: its sources' full text, then its note."""
    texts = [sources[key] for key in fact.get("s", ())]
    return "; ".join([*texts, fact["n"]] if "n" in fact else texts)
