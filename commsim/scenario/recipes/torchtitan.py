"""
torchtitan's TOML: the keys of its job config (torchtitan/config/job_config.py, 2024 to 2025).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from commsim.errors import ScenarioError
from commsim.scenario.recipes.draft import BEYOND, Draft

__all__ = ["draft_of"]

_SCHEDULES = {
    "1f1b": "1f1b", "gpipe": "gpipe", "interleaved1f1b": "interleaved_1f1b",
    "interleavedzerobubble": "zb_h1", "zbvzerobubble": "zb_v", "dualpipev": "dualpipev",
}  # fmt: skip
_NAMES = {"llama3_ft": "llama3", "llama3_simple_fsdp": "llama3", "deepseek_v3": "deepseek-v3"}
_HANDLED = frozenset(
    f"{table}.{key}"
    for table, keys in {
        "model": ("name", "flavor", "converters"),
        "training": (
            "local_batch_size", "batch_size", "global_batch_size", "seq_len",
            "data_parallel_replicate_degree", "data_parallel_shard_degree",
            "tensor_parallel_degree", "mixed_precision_param", "mixed_precision_reduce", "compile",
        ),
        "parallelism": (
            "data_parallel_replicate_degree", "data_parallel_shard_degree",
            "tensor_parallel_degree", "pipeline_parallel_degree", "context_parallel_degree",
            "expert_parallel_degree", "expert_tensor_parallel_degree", "pipeline_parallel_schedule",
            "pipeline_parallel_microbatch_size", "enable_async_tensor_parallel",
            "fsdp_reshard_after_forward",
        ),
        "experimental": (
            "pipeline_parallel_degree", "pipeline_parallel_schedule", "context_parallel_degree",
            "enable_async_tensor_parallel",
        ),
        "activation_checkpoint": ("mode", "selective_ac_option"),
        "float8": ("recipe_name", "enable_float8_linear"),
        "compile": ("enable",),
    }.items()
    for key in keys
)  # fmt: skip


def draft_of(data: Mapping[str, Any], where: str) -> Draft:
    """Return what a TOML says.

    Raises:
        ScenarioError: it is not torchtitan's, or a value is not what the key takes.
    """
    if not {"training", "parallelism", "model"} & set(data):
        raise ScenarioError(
            f"{where}: has neither [training], [parallelism] nor [model]: no recipe."
        )
    read = _Reader(data, where)
    compiled = read.get("enable", "compile", default=read.get("compile", "training", default=False))
    stack = "torchtitan" if compiled is True else "torchtitan-eager"  # off by default there
    draft = Draft("torchtitan", training={"compute": {"stack": stack}})
    _model(draft, read)
    _degrees(draft, read)
    _batch(draft, read)
    _rest(draft, read)
    draft.unmapped = [
        f"{table}.{key}"
        for table, keys in data.items()
        for key in (keys if isinstance(keys, Mapping) else ())
        if f"{table}.{key}" not in _HANDLED
    ]
    return draft


class _Reader:
    """Looks keys up in the tables where versions of torchtitan had them."""

    def __init__(self, data: Mapping[str, Any], where: str) -> None:
        self._data, self._where = data, where

    def get(self, key: str, *tables: str, default: Any = None) -> Any:
        for table in tables:
            found = self._data.get(table)
            if isinstance(found, Mapping) and key in found:
                return found[key]
        return default

    def count(self, key: str, *tables: str, default: int) -> int:
        value = self.get(key, *tables, default=default)
        if (
            isinstance(value, int)
            and not isinstance(value, bool)
            and value
            and -1 <= value < BEYOND
        ):
            return value
        raise ScenarioError(f"{self._where}: {tables[0]}.{key}: {value!r} is not a degree.")


def _model(draft: Draft, read: _Reader) -> None:
    name = str(read.get("name", "model", default=""))
    flavor = str(read.get("flavor", "model", default="")).lower()
    name = _NAMES.get(name, name)
    if name == "deepseek-v3" and flavor == "671b":
        flavor = ""
    draft.model = {"preset": f"{name}-{flavor}".strip("-")}


def _degrees(draft: Draft, read: _Reader) -> None:
    old = ("parallelism", "training", "experimental")
    tp = read.count("tensor_parallel_degree", *old, default=1)
    pp = read.count("pipeline_parallel_degree", *old, default=1)
    cp = read.count("context_parallel_degree", *old, default=1)
    ep = read.count("expert_parallel_degree", *old, default=1)
    replicate = read.count("data_parallel_replicate_degree", *old, default=1)
    shard = read.count("data_parallel_shard_degree", *old, default=-1)
    draft.parallel = {
        axis: degree for axis, degree in (("tp", tp), ("pp", pp), ("cp", cp), ("ep", ep))
        if degree > 1
    }  # fmt: skip
    if tp > 1 and ep > 1:  # one if not given: experts stay whole
        etp = read.count("expert_tensor_parallel_degree", *old, default=1)
        draft.parallel["etp"] = etp
    if tp > 1:
        draft.parallel["sequence_parallel"] = True
        if read.get("enable_async_tensor_parallel", *old, default=False):
            draft.parallel["tp_overlap"] = "ring"
    if pp > 1:
        given = str(read.get("pipeline_parallel_schedule", *old, default="1F1B"))
        schedule = _SCHEDULES.get(given.lower())
        if schedule is None:
            draft.notes.append(f"schedule: {given} is not known here; 1f1b is taken")
        draft.parallel["schedule"] = schedule or "1f1b"
        if schedule == "interleaved_1f1b":
            draft.parallel["virtual_stages"] = 2
            draft.notes.append("virtual_stages: 2, torchtitan's own for such schedules")
    if replicate > 0 and shard > 0:
        draft.replicas = replicate * shard
    if shard == 1:
        draft.data_parallel = {"kind": "ddp"}
    elif replicate > 1:
        if shard > 0:
            # Context parallelism shards parameters too.
            draft.data_parallel = {"kind": "hsdp", "shard": shard * cp}
        else:
            draft.notes.append(
                "data_parallel: fsdp over all, as the recipe leaves the shards of each copy open"
            )
            draft.data_parallel = {"kind": "fsdp"}
    else:
        draft.data_parallel = {"kind": "fsdp"}
    reshard = read.get("fsdp_reshard_after_forward", "parallelism", default="default")
    if draft.data_parallel["kind"] == "fsdp" and (
        reshard == "never" or (reshard == "default" and pp > 1)
    ):
        draft.data_parallel["shard"] = "grad_op"  # parameters stay gathered between microbatches


def _batch(draft: Draft, read: _Reader) -> None:
    draft.seq_len = read.count("seq_len", "training", default=2048)
    local = read.count(
        "local_batch_size", "training", default=read.count("batch_size", "training", default=8)
    )
    whole = read.count("global_batch_size", "training", default=-1)
    stages = draft.parallel.get("pp", 1)
    if stages > 1:
        draft.micro = read.count("pipeline_parallel_microbatch_size", "parallelism", default=1)
    else:
        draft.micro = local
    draft.global_batch = whole if whole > 0 else 0
    if whole <= 0:
        draft.local_batch = local


def _rest(draft: Draft, read: _Reader) -> None:
    mode = str(read.get("mode", "activation_checkpoint", default="selective"))
    option = str(read.get("selective_ac_option", "activation_checkpoint", default="2"))
    every = int(option) if mode == "selective" and option.isdecimal() and len(option) < 9 else 0
    draft.training["recompute"] = {"none": "none", "full": "full"}.get(
        mode, "full" if every else "selective_op"
    )
    if every > 1:
        draft.training["recompute_every"] = every
    converters = read.get("converters", "model", default=[])
    listed = [str(one) for one in converters] if isinstance(converters, list) else []
    on = read.get("enable_float8_linear", "float8", default=False)
    if on or any("float8" in one for one in listed):
        row = read.get("recipe_name", "float8", default="") == "rowwise"
        draft.training["precision"] = "fp8-row" if row else "fp8"
