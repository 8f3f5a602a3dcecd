"""
Other names for settings and values, and what went wrong with a value in plain words.

Users know these from Megatron-LM, torchtitan, DeepSpeed and NeMo; here each leads to the setting
that commsim has for it.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from types import MappingProxyType
from typing import Any

__all__ = [
    "bound_text",
    "foreign_config",
    "setting_for",
    "short_for",
    "type_error_text",
    "value_hint",
]

_AXES: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "dp": ("data", "data_parallel", "data_parallel_size", "data_parallel_replicate_degree"),
        "tp": (
            "tensor",
            "tensor_parallel",
            "tensor_parallel_size",
            "tensor_model_parallel_size",
            "tensor_parallel_degree",
        ),
        "pp": (
            "pipeline",
            "pipeline_parallel",
            "pipeline_parallel_size",
            "pipeline_model_parallel_size",
            "pipeline_parallel_degree",
        ),
        "cp": ("context_parallel", "context_parallel_size", "context_parallel_degree"),
        "ep": ("expert", "expert_parallel", "expert_model_parallel_size", "expert_parallel_degree"),
    }
)
_SETTINGS: Mapping[str, str] = MappingProxyType(
    {other: axis for axis, others in _AXES.items() for other in others}
    | {
        "global_batch_size": "batch.global",
        "micro_batch_size": "batch.micro",
        "seq_length": "model.seq_len",
        "sequence_length": "model.seq_len",
        "num_nodes": "cluster.nodes",
        "virtual_pipeline_model_parallel_size": "parallel.virtual_stages",
        "activation_checkpointing": "recompute",
        "sp": "parallel.sequence_parallel",
        "fp8": "precision: fp8",
        "float8": "precision: fp8-cs",
        "enable_float8": "precision: fp8-cs",
    }
)
_SHORT: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "bw": ("bandwidth",),
        "speed": ("bandwidth",),
        "lat": ("latency",),
        "size": ("bytes", "memory"),
        "type": ("kind", "op", "dtype"),
        "collective": ("op",),
    }
)
_VALUES: Mapping[str, str] = MappingProxyType(
    {
        **{f"zero{n}": f"kind: zero, stage: {n}" for n in (1, 2, 3)},
        **{f"zero-{n}": f"kind: zero, stage: {n}" for n in (1, 2, 3)},
        "fsdp1": "kind: fsdp",
        "fsdp2": "kind: fsdp",
        "fully_shard": "kind: fsdp",
        "hybrid_shard": "kind: hsdp",
        "ps": "kind: parameter_server",
        "dp": "kind: dataparallel",
        "bfloat16": "bf16",
        "float16": "fp16",
        "float32": "fp32",
        "float8": "fp8-cs",
        "tensorwise": "fp8-cs",
        "rowwise": "fp8-row",
    }
)
_FORMATS: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("a NeMo configuration", ("trainer", "exp_manager")),
    ("a NeMo or Megatron configuration", ("tensor_model_parallel_size", "micro_batch_size")),
    ("a torchtitan configuration", ("parallelism", "training", "activation_checkpoint", "job")),
    ("a DeepSpeed configuration", ("zero_optimization", "train_micro_batch_size_per_gpu")),
)
_TYPES: Mapping[str, str] = MappingProxyType(
    {
        "int": "a whole number",
        "float": "a number",
        "str": "text",
        "bool": "true or false",
        "object": "a mapping, such as {key: value}",
        "array": "a list",
        "null": "",
    }
)
_SHOWN = 40  # characters of a value that messages show
_PERCENT = re.compile(r"(\d+(?:\.\d+)?) ?%")
_RATIO = re.compile(r"(\d+(?:\.\d+)?):1")


def short_for(name: str, known: Collection[str]) -> str:
    """Return the setting, of those that are known in a section, that `name` is another word for."""
    return next((one for one in _SHORT.get(name.lower(), ()) if one in known), "")


def setting_for(name: str) -> str:
    """Return the setting that commsim has for another tool's `name`, "" for none."""
    return _SETTINGS.get(name.lower(), "")


def value_hint(value: str) -> str:
    """Return what to write instead of another tool's `value`, "" if nothing is known."""
    known = _VALUES.get(value.lower(), "")
    if not known:
        return ""
    return f" Write {{{known}}}." if ":" in known else f" Write {known}."


def foreign_config(data: Any) -> str:
    """Return whose configuration file `data` looks like, "" for none that is known."""
    if not isinstance(data, Mapping) or "workload" in data:
        return ""
    return next((name for name, keys in _FORMATS if any(key in data for key in keys)), "")


def type_error_text(expected: str, value: Any, fields: Collection[str] = ()) -> str:
    """Return a sentence on `value`, which is none of the `expected` types ("int | null").

    `fields` are the settings of the section that is expected, if one is.
    """
    words = [_TYPES.get(one.strip(), one.strip()) for one in expected.split("|")]
    wanted = " or ".join(word for word in words if word)
    ratio = _RATIO.fullmatch(value) if isinstance(value, str) and "number" in wanted else None
    hint = f" Did you mean {ratio[1]}?" if ratio else ""
    if isinstance(value, str) and "a number" in words and (percent := _PERCENT.fullmatch(value)):
        hint = f" Did you mean {float(percent[1]) / 100:.12g}?"
    if isinstance(value, str) and "mapping" in wanted:
        word = next((each for each in ("preset", "kind", "name") if each in fields), "")
        if word and re.fullmatch(r"[\w.-]+", value):
            hint = f" Did you mean {{{word}: {value}}}?"
        elif fields:
            hint = f" It has: {', '.join(fields)}."
    if wanted == "text" and isinstance(value, int | float) and not isinstance(value, bool):
        hint = f" Write it in quotes: '{value}' (behind --set in two kinds: \"'{value}'\")."
    if isinstance(value, float) and value.is_integer() and "a whole number" in words:
        return f"{value} is written as a fraction. Write {_cut(f'{value:.0f}')}."
    if "list" in wanted and isinstance(value, Mapping) and all(_is_place(key) for key in value):
        hint = f" Write the whole list: {_cut(_flow(list(value.values())))}." if value else ""
    elif "list" in wanted and isinstance(value, Mapping):
        hint = f" Write a list: {_cut(_flow([value]))}." if value else ""
    if value is None:
        return f"is empty. Give {wanted}."
    return f"{_shown(value)} is not {wanted}.{hint}"


def bound_text(how: str, bound: float, value: Any) -> str:
    """Return a sentence on a number that is beyond a bound: `how` is ">=", ">", "<=" or "<"."""
    number = f"{bound:,.12g}"
    wanted = {
        ">=": f"{number} or more",
        ">": f"more than {number}",
        "<=": f"at most {number}",
        "<": f"less than {number}",
    }
    return f"{_shown(value)}: give {wanted[how]}."


def _is_place(key: Any) -> bool:
    """Return whether a key is how `--set` names a place in a list."""
    return str(key).isdecimal()


def _shown(value: Any) -> str:
    return _cut(repr(value) if isinstance(value, str) else _flow(value))


def _cut(text: str) -> str:
    return text if len(text) <= _SHOWN else f"{text[: _SHOWN - 3]}..."


def _flow(value: Any) -> str:
    """Return a value as YAML has it on one line: {compute: 5ms}."""
    if value is None:
        return "nothing"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{_flow(key)}: {_flow(each)}" for key, each in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(_flow(each) for each in value) + "]"
    return str(value)
