"""
From choices to a scenario, and from a scenario to the command line that runs it.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import yaml

from commsim.cluster import ClusterSection, build_cluster
from commsim.errors import ScenarioError
from commsim.explore.controls import AS_WRITTEN, Value, has_experts
from commsim.sections import decode

__all__ = ["command_line", "scenario_yaml", "with_choices"]

Data = dict[str, Any]

_PARALLEL = ("tp", "pp", "cp", "ep", "sequence_parallel", "schedule", "virtual_stages")
_SCALES = ("nic", "nvlink", "compute", "hbm", "network_latency")
_RESHAPES = ("cluster", "nodes", "tp", "pp", "cp", "microbatches", "micro")
_DATA_PARALLEL: Mapping[str, Data] = {
    "ddp": {"kind": "ddp"},
    **{f"zero{stage}": {"kind": "zero", "stage": stage} for stage in (1, 2, 3)},
    "fsdp": {"kind": "fsdp"},
    "grad_op": {"kind": "fsdp", "shard": "grad_op"},
}


def with_choices(base: Mapping[str, Any], chosen: Mapping[str, Value]) -> Data:
    """Return a scenario's plain data with what was chosen in place of what it says.

    `chosen` are values that the controls of `base` offer. Replicas are as many as the GPUs allow.

    Raises:
        ScenarioError: a replica's GPUs do not divide the cluster's.
    """
    data: Data = _apart(base)
    for key, value in chosen.items():
        if value != AS_WRITTEN:
            change = _HOW[key] if key in _HOW else _plain(key)
            change(data, value)
    training = data.get("workload", {}).get("training")
    if training is not None:
        _drop_what_means_nothing(training, chosen)
        if any(key in chosen for key in _RESHAPES):
            _fill_with_replicas(base, data, chosen)
    if chosen:
        data.pop("name", None)  # it says what was
    return data


def command_line(source: str, base: Mapping[str, Any], data: Mapping[str, Any]) -> str:
    """Return the command that runs `data` by what it changes of the scenario `source`."""
    named = {"name": base["name"], **data} if "name" in base else data
    sets = (word for one in _changes(base, named, "") for word in ("--set", one))
    return shlex.join(["commsim", "run", source, *sets])


def scenario_yaml(data: Mapping[str, Any], command: str) -> str:
    """Return the file that `commsim run` takes, with the command that says the same on top."""
    body = yaml.safe_dump(_apart(data), sort_keys=False, allow_unicode=True, width=100,
                          default_flow_style=None)  # fmt: skip
    told = "\n".join(f"# {line}" for line in ("From `commsim explore`; the same as:", command))
    return f"{told}\n{body}"


def _apart(data: Any) -> Any:
    """Return a copy of plain data that shares nothing with it."""
    if isinstance(data, Mapping):
        return {key: _apart(value) for key, value in data.items()}
    return [_apart(value) for value in data] if isinstance(data, list | tuple) else data


def _place(data: Data, path: str) -> Data:
    """Return the mapping at a path, made where it is missing."""
    for step in path.split("."):
        if not isinstance(data.get(step), dict):
            data[step] = {}
        data = data[step]
    return data


def _plain(key: str) -> Callable[[Data, Value], None]:
    """Return how a control sets one setting of its own name."""
    path, name = _WHERE[key]
    return lambda data, value: _place(data, path).__setitem__(name, value)


_TRAINING = "workload.training"
_WHERE: Mapping[str, tuple[str, str]] = {
    "seq_len": (f"{_TRAINING}.model", "seq_len"),
    "precision": (_TRAINING, "precision"),
    "recompute": (_TRAINING, "recompute"),
    "nodes": ("cluster", "nodes"),
    "micro": (f"{_TRAINING}.batch", "micro"),
    "stages": ("workload.pipeline", "stages"),
    "pipeline_microbatches": ("workload.pipeline", "microbatches"),
    "pipeline_virtual": ("workload.pipeline", "virtual_stages"),
    "oversubscription": ("cluster.fabric", "oversubscription"),
    **{key: (f"{_TRAINING}.parallel", key) for key in _PARALLEL},
    **{key: ("cluster.scale", key) for key in _SCALES},
}


def _model(data: Data, value: Value) -> None:
    """Take a preset whole; a length chosen beside it is set after this."""
    training = _place(data, _TRAINING)
    length = training["model"].get("seq_len")
    training["model"] = {"preset": value} | ({"seq_len": length} if length else {})


def _cluster(data: Data, value: Value) -> None:
    """Take a preset's node and fabric; how many, and the factors on it, stay."""
    old = data["cluster"]
    nodes = old.get("nodes", 1)
    count = nodes if isinstance(nodes, int) else sum(one.get("count", 1) for one in nodes)
    scale = {"scale": old["scale"]} if "scale" in old else {}
    data["cluster"] = {"preset": value, "nodes": count, **scale}


def _data_parallel(data: Data, value: Value) -> None:
    _place(data, _TRAINING)["data_parallel"] = dict(_DATA_PARALLEL[str(value)])


def _schedule(data: Data, value: Value) -> None:
    work = data["workload"]
    place = work["pipeline"] if "pipeline" in work else _place(data, f"{_TRAINING}.parallel")
    place["schedule"] = value


def _library(data: Data, value: Value) -> None:
    """Take a library; what the file says of another means nothing to it."""
    data["library"] = {"name": value}


def _algo(data: Data, value: Value) -> None:
    section = _place(data, "library")
    section.pop("algo", None)
    if value != "auto":
        section["algo"] = value


def _later(data: Data, value: Value) -> None:
    """Leave it to `_fill_with_replicas`."""


_HOW: Mapping[str, Callable[[Data, Value], None]] = {
    "model": _model,
    "cluster": _cluster,
    "data_parallel": _data_parallel,
    "schedule": _schedule,
    "library": _library,
    "algo": _algo,
    "microbatches": _later,
}


def _drop_what_means_nothing(training: Data, chosen: Mapping[str, Value]) -> None:
    """Take out what only another choice gave a meaning: the page shows these controls as idle."""
    parallel = training.get("parallel")
    if parallel is None:
        return
    if parallel.get("tp", 1) == 1:
        parallel.pop("sequence_parallel", None)
    if parallel.get("pp", 1) == 1:
        for name in ("schedule", "virtual_stages"):
            parallel.pop(name, None)
    preset = training["model"].get("preset")
    if "model" in chosen and preset is not None and not has_experts(preset):
        parallel.pop("ep", None)
    if {"model", "pp", "virtual_stages"} & set(chosen):
        parallel.pop("layers_per_stage", None)


def _fill_with_replicas(base: Mapping[str, Any], data: Data, chosen: Mapping[str, Value]) -> None:
    """Set `dp` so that the layout fills the cluster, and the batch so that replicas keep theirs."""
    training = data["workload"]["training"]
    parallel, batch = training.setdefault("parallel", {}), training["batch"]
    section = decode(data["cluster"], ClusterSection, "the scenario: cluster")
    world = build_cluster(section, "the scenario").world_size
    sizes = {axis: parallel.get(axis, 1) for axis in ("tp", "pp", "cp")}
    replica = sizes["tp"] * sizes["pp"] * sizes["cp"]
    if world % replica:
        told = " × ".join(f"{axis} {size}" for axis, size in sizes.items() if size > 1)
        raise ScenarioError(
            f"workload.training.parallel: a replica of {replica} GPUs ({told}) does not divide the"
            f" {world} GPUs of the cluster. Choose degrees or nodes that do."
        )
    before = base["workload"]["training"]
    was = before["batch"].get("micro", 1) * before.get("parallel", {}).get("dp", 1)
    each = chosen.get("microbatches", max(1, before["batch"]["global"] // was))
    parallel["dp"] = world // replica
    batch["global"] = int(each) * batch.get("micro", 1) * parallel["dp"]


def _changes(base: Any, data: Any, path: str) -> Iterator[str]:
    """Yield "key.path=value" for what differs; a mapping that lost a key is given as a whole."""
    if isinstance(base, Mapping) and isinstance(data, Mapping) and set(base) <= set(data):
        for key, value in data.items():
            yield from _changes(base.get(key), value, f"{path}.{key}".lstrip("."))
    elif base != data:
        yield f"{path}={_flow(data)}"


def _flow(value: Any) -> str:
    """Write a value as YAML on one line."""
    text = yaml.safe_dump(value, default_flow_style=True, width=float("inf"), sort_keys=False)
    return text.removesuffix("\n").removesuffix("\n...").strip()
