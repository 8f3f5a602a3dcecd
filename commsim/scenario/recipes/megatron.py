"""
Megatron's arguments (megatron/training/arguments.py), as a script gives them and as YAML has them.

`--tensor-model-parallel-size 8` in a script, `tensor_model_parallel_size: 8` somewhere in a YAML of
NeMo or Megatron-Bridge: the same names, whatever section they stand in. Of a script only literal
assignments are followed (`TP=8`, `${TP:-8}`); a value that a program computes is asked for.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from commsim.errors import ScenarioError
from commsim.models import RECOMPUTE_MODULES
from commsim.scenario.recipes.draft import BEYOND, Draft

__all__ = ["draft_of_script", "draft_of_yaml"]

_MODEL = {
    "num_layers": "layers", "hidden_size": "hidden", "num_attention_heads": "heads",
    "num_query_groups": "kv_heads", "ffn_hidden_size": "ffn", "kv_channels": "head_dim",
    "vocab_size": "vocab", "max_position_embeddings": "max_seq",
}  # fmt: skip
_DEGREES = {
    "tensor_model_parallel_size": "tp", "pipeline_model_parallel_size": "pp",
    "context_parallel_size": "cp", "expert_model_parallel_size": "ep",
    "expert_tensor_parallel_size": "etp",
}  # fmt: skip
_NUMBERS = frozenset(
    (*_MODEL, *_DEGREES, "seq_length", "encoder_seq_length", "micro_batch_size",
     "global_batch_size", "num_experts", "num_moe_experts", "moe_router_topk",
     "moe_ffn_hidden_size", "moe_shared_expert_intermediate_size",
     "num_layers_per_virtual_pipeline_stage", "virtual_pipeline_model_parallel_size",
     "num_virtual_stages_per_pipeline_rank", "recompute_num_layers", "nnodes", "num_nodes")
)  # fmt: skip
_SWITCHES = frozenset(
    ("sequence_parallel", "use_distributed_optimizer", "recompute_activations", "swiglu", "bf16",
     "overlap_grad_reduce", "overlap_param_gather", "overlap_grad_sync", "overlap_param_sync",
     "grad_reduce_in_bf16", "grad_reduce_in_fp32", "accumulate_allreduce_grads_in_fp32", "bias",
     "ub_tp_comm_overlap",
     "fp16", "untie_embeddings_and_output_weights", "disable_bias_linear", "add_qkv_bias",
     "qk_layernorm", "tp_comm_overlap", "group_query_attention", "gated_linear_unit",
     "share_embeddings_and_output_weights", "add_bias_linear", "use_torch_fsdp2",
     "use_megatron_fsdp", "moe_shared_expert_overlap", "overlap_moe_expert_parallel_comm",
     "fp8_param_gather", "fp8_param")
)  # fmt: skip
_WORDS = frozenset(
    ("recompute_granularity", "recompute_method", "fp8", "fp8_format", "fp8_recipe",
     "position_embedding_type", "normalization", "precision", "activation_func", "activation",
     "activations_checkpoint_granularity", "activations_checkpoint_method", "grad_sync_dtype",
     "optimizer_name",
     "moe_token_dispatcher_type", "moe_flex_dispatcher_backend", "moe_expert_capacity_factor")
)  # fmt: skip
_LISTS = frozenset(("recompute_modules",))
_DISPATCHERS = {"alltoall": "alltoall", "flex": "deepep"}
"""Megatron's dispatchers that are modelled; flex is DeepEP if no other backend is named."""
_ASSIGNED = re.compile(
    r"^\s*(?:export\s+)?([A-Za-z_]\w*)=(\"[^\"]*\"|'[^']*'|[^\s;#()]*)\s*(?:#.*)?$"
)
_VARIABLE = re.compile(r"\$\{?([A-Za-z_]\w*)(?::-([^}]*))?\}?")
_TRUTHS = ("true", "false", "1", "0", "yes", "no")
_GATED = ("swiglu", "geglu", "reglu")
"""Activations with a gate, "fast-" before them or not (NeMo)."""

_SHARDED = ("distributed_fused_adam", "mcore_distributed_optim")
"""NeMo's optimizers that divide their state over replicas, as ZeRO-1 does."""

_DEPTH = 20


def draft_of_script(text: str, where: str) -> Draft:
    """Return what the arguments in a script, or in a file of arguments, say.

    Raises:
        ScenarioError: it has none of Megatron's arguments, or a value that is no number.
    """
    given: dict[str, Any] = {}
    known = _variables(text)
    words = _words(text, known)
    for at, word in enumerate(words):
        if not word.startswith("--"):
            continue
        name, equals, value = word[2:].partition("=")
        key = name.replace("-", "_")
        after = words[at + 1] if at + 1 < len(words) else "--"
        if not equals:
            value = "" if after.startswith("--") else after
            if key in _SWITCHES and value.lower() not in _TRUTHS:
                value = ""  # what stands behind a switch is the next command, not its value
        given[key] = _until_next(words[at + 1 :]) if key in _LISTS else value if value else True
    if not {*_DEGREES, *_MODEL} & set(given):
        raise ScenarioError(
            f"{where}: has none of Megatron's arguments (--num-layers,"
            " --tensor-model-parallel-size, ...): no recipe."
        )
    return _draft(given, where, "Megatron's arguments", dashes=True)


def draft_of_yaml(data: Mapping[str, Any], where: str) -> Draft:
    """Return what a YAML of NeMo or Megatron-Bridge says.

    Raises:
        ScenarioError: it has none of Megatron's names, or a value that is no number.
    """
    given: dict[str, Any] = {}
    for path, value in _leaves(data, "", 0):
        given.setdefault(
            "optimizer_name" if path.endswith("optim.name") else path.rsplit(".", 1)[-1], value
        )
    if not {*_DEGREES, *_MODEL} & set(given):
        raise ScenarioError(
            f"{where}: has none of Megatron's names (num_layers, tensor_model_parallel_size, ...):"
            " no recipe of NeMo or Megatron-Bridge."
        )
    return _draft(given, where, "YAML of NeMo or Megatron-Bridge", dashes=False)


def _variables(text: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for line in text.splitlines():
        match = _ASSIGNED.match(line)
        if match:
            value = match[2].strip("\"'")
            default = _VARIABLE.fullmatch(value)
            found[match[1]] = default[2] if default and default[2] else value
    return found


def _words(text: str, known: Mapping[str, str]) -> list[str]:
    """Return the words of all lines, comments and line ends taken out, variables put in."""

    def put(match: re.Match[str]) -> str:
        return known.get(match[1], match[2] or match[0])

    found: list[str] = []
    joined = re.sub(r"\\\s*\n", " ", text)
    for line in joined.splitlines():
        for _ in range(3):  # a variable may hold others
            line = _VARIABLE.sub(put, line)
        bare = line.strip()
        if bare.startswith("#"):
            continue
        bare = re.sub(r"^[A-Za-z_]\w*\+?=\(?", "", bare).strip("\"'()")
        try:
            found += shlex.split(bare, comments=True)
        except ValueError:
            found += bare.split()
    return found


def _leaves(data: Any, path: str, depth: int) -> Iterator[tuple[str, Any]]:
    if isinstance(data, Mapping) and depth < _DEPTH:
        for key, value in data.items():
            yield from _leaves(value, f"{path}.{key}".lstrip("."), depth + 1)
    elif not isinstance(data, list | tuple) or path.rsplit(".", 1)[-1] in _LISTS:
        yield path, data


def _draft(given: Mapping[str, Any], where: str, source: str, *, dashes: bool) -> Draft:
    numbers: dict[str, int] = {}
    for key in sorted(_NUMBERS & set(given)):
        value = _number(key, given[key], where)
        if value is not None:
            numbers[key] = value
    on = {key: _is_on(given[key]) for key in _SWITCHES & set(given)}
    words = {key: str(given[key]).lower() for key in _WORDS & set(given)}
    modules = _modules(given.get("recompute_modules"), where)
    nemo = "optimizer_name" in words or "encoder_seq_length" in numbers
    draft = Draft(source, training={"compute": {"stack": "nemo" if nemo else "megatron"}})
    _model(draft, numbers, on, words, dashes=dashes)
    _layout(draft, numbers, on)
    _replicas(draft, on, words, dashes=dashes)
    _expert_layout(draft, numbers, on, words)
    _training(draft, on, words, modules)
    first = words.get("recompute_method") == "block" and numbers.get("recompute_num_layers")
    if first and draft.training.get("recompute") == "full":
        draft.training["recompute_first"] = first
    draft.seq_len = numbers.get("seq_length", numbers.get("encoder_seq_length", 0))
    draft.micro = numbers.get("micro_batch_size", 0)
    draft.global_batch = numbers.get("global_batch_size", 0)
    draft.nodes = numbers.get("nnodes", numbers.get("num_nodes", 0))
    mapped = {*numbers, *on, *words, *_LISTS}
    draft.unmapped = [
        f"--{key.replace('_', '-')}" if dashes else key for key in given if key not in mapped
    ]
    return draft


def _number(key: str, value: Any, where: str) -> int | None:
    if value is None or str(value).strip().lower() in ("null", "none", ""):
        return None
    try:
        number = float(str(value))
    except ValueError:
        raise ScenarioError(
            f"{where}: {key.replace('_', '-')}: {value!r} is no number, and what a program computes"
            " is not known here. Write the number in its place."
        ) from None
    if not number.is_integer() or not 0 <= number < BEYOND:
        raise ScenarioError(f"{where}: {key}: {value!r} is no count.")
    return int(number)


def _is_on(value: Any) -> bool:
    return value is True or str(value).lower() in ("true", "1", "yes")


def _model(
    draft: Draft,
    numbers: Mapping[str, int],
    on: Mapping[str, bool],
    words: Mapping[str, str],
    *,
    dashes: bool,
) -> None:
    shape: dict[str, Any] = {name: numbers[key] for key, name in _MODEL.items() if numbers.get(key)}
    named = any(one in words.get("activation_func", words.get("activation", "")) for one in _GATED)
    if on.get("swiglu", on.get("gated_linear_unit", named)):
        shape["gated"] = True
        if "ffn" not in shape and "hidden" in shape:
            shape["ffn"] = int(4 * shape["hidden"] * 2 / 3 / 64) * 64  # arguments.py: swiglu
    if dashes and not on.get("group_query_attention"):
        shape.pop("kv_heads", None)  # without it --num-query-groups is not read
    tied = on.get("share_embeddings_and_output_weights")
    if tied is None:
        tied = not on.get("untie_embeddings_and_output_weights", False)
    shape["tied_embeddings"] = tied
    if on.get("disable_bias_linear") or on.get("add_bias_linear", on.get("bias")) is False:
        shape["linear_bias"] = False
        shape["qkv_bias"] = on.get("add_qkv_bias", False)
    if on.get("qk_layernorm"):
        shape["qk_norm"] = True
    if "rms" in words.get("normalization", ""):
        shape["norm_has_bias"] = False
    if words.get("position_embedding_type", "learned_absolute") == "learned_absolute":
        rows = numbers.get("max_position_embeddings")
        if rows:
            shape["learned_position_rows"] = rows
    experts = numbers.get("num_experts", numbers.get("num_moe_experts", 0))
    if experts:
        width = numbers.get("moe_ffn_hidden_size", numbers.get("ffn_hidden_size", 0))
        shape["experts"] = {
            "experts": experts,
            "top_k": numbers.get("moe_router_topk", 2),
            "expert_ffn": width,
            "shared_expert_ffn": numbers.get("moe_shared_expert_intermediate_size", 0),
        }
    draft.model = shape


def _layout(draft: Draft, numbers: Mapping[str, int], on: Mapping[str, bool]) -> None:
    parallel: dict[str, Any] = {
        axis: numbers[key] for key, axis in _DEGREES.items() if numbers.get(key, 1) > 1
    }
    stages = parallel.get("pp", 1)
    virtual = numbers.get(
        "num_virtual_stages_per_pipeline_rank",
        numbers.get("virtual_pipeline_model_parallel_size", 0),
    )
    per_stage = numbers.get("num_layers_per_virtual_pipeline_stage", 0)
    if per_stage and numbers.get("num_layers"):
        virtual = numbers["num_layers"] // (stages * per_stage)
    if stages > 1 and virtual > 1:
        parallel |= {"schedule": "interleaved_1f1b", "virtual_stages": virtual}
    if parallel.get("tp", 1) > 1:
        if on.get("sequence_parallel"):
            parallel["sequence_parallel"] = True
        if on.get("tp_comm_overlap") or on.get("ub_tp_comm_overlap"):
            parallel["tp_overlap"] = "ring"
    draft.parallel = parallel


def _replicas(
    draft: Draft, on: Mapping[str, bool], words: Mapping[str, str], *, dashes: bool
) -> None:
    """Add how replicas keep equal. A script that says nothing of overlap has none (arguments.py);
    a YAML overlaps as its recipes do.
    """
    if on.get("use_torch_fsdp2") or on.get("use_megatron_fsdp"):
        draft.data_parallel = {"kind": "fsdp"}
        return
    sharded = words.get("optimizer_name") in _SHARDED
    chosen: dict[str, Any] = {"kind": "ddp"}
    if on.get("use_distributed_optimizer", sharded):
        chosen = {"kind": "zero", "stage": 1}
    silent = False if dashes else None
    overlap = on.get("overlap_grad_reduce", on.get("overlap_grad_sync", silent))
    if overlap is not None:
        chosen["overlap"] = overlap
    gathers = on.get("overlap_param_gather", on.get("overlap_param_sync", silent))
    if gathers is not None and chosen["kind"] == "zero":
        chosen["prefetch"] = gathers
    narrow = "bf16" in words.get("grad_sync_dtype", "") or on.get("grad_reduce_in_fp32") is False
    if on.get("grad_reduce_in_bf16") or narrow:
        chosen["gradients"] = "bf16"
    elif on.get("grad_reduce_in_fp32") or on.get("accumulate_allreduce_grads_in_fp32"):
        chosen["gradients"] = "fp32"
    draft.data_parallel = chosen


def _expert_layout(
    draft: Draft, numbers: Mapping[str, int], on: Mapping[str, bool], words: Mapping[str, str]
) -> None:
    """Add how experts are divided and reached. Megatron divides them as the rest, if not told."""
    parallel = draft.parallel
    parallel.pop("etp", None)
    if parallel.get("ep", 1) == 1:
        return
    if parallel.get("tp", 1) > 1 and numbers.get("expert_tensor_parallel_size"):
        parallel["etp"] = numbers["expert_tensor_parallel_size"]
    shared = draft.model.get("experts", {}).get("shared_expert_ffn")
    if on.get("moe_shared_expert_overlap") and shared:
        parallel["shared_overlap"] = True
    if on.get("overlap_moe_expert_parallel_comm"):
        parallel["expert_overlap"] = True
    dispatcher = _DISPATCHERS.get(words.get("moe_token_dispatcher_type", ""))
    if dispatcher:
        parallel["dispatcher"] = dispatcher
    try:
        capacity = float(words.get("moe_expert_capacity_factor", "none"))
    except ValueError:
        return
    if capacity > 0:
        parallel["expert_capacity"] = capacity


def _modules(given: Any, where: str) -> tuple[str, ...]:
    """Return the modules that `recompute_modules` lists.

    Raises:
        ScenarioError: one that is not known here.
    """
    if given is None or given is True:
        return ()
    listed = given if isinstance(given, Sequence) and not isinstance(given, str) else [given]
    names = dict.fromkeys(str(name) for name in listed)
    for name in names:
        if name not in RECOMPUTE_MODULES:
            raise ScenarioError(
                f"{where}: recompute_modules: {name!r} is none of {', '.join(RECOMPUTE_MODULES)}."
                " Leave it out, or name one of these."
            )
    return tuple(names)


def _until_next(words: Sequence[str]) -> list[str]:
    """Return the words up to the next argument."""
    found: list[str] = []
    for word in words:
        if word.startswith("--"):
            break
        found += [part for part in re.split(r"[\s,]+", word.strip("[]\"'")) if part]
    return found


def _training(
    draft: Draft, on: Mapping[str, bool], words: Mapping[str, str], modules: tuple[str, ...]
) -> None:
    granularity = words.get(
        "recompute_granularity", words.get("activations_checkpoint_granularity", "")
    )
    if granularity == "selective" and modules and modules != ("core_attn",):
        draft.training["recompute"] = list(modules)
    elif granularity in ("full", "selective"):
        draft.training["recompute"] = granularity
    elif on.get("recompute_activations"):
        draft.training["recompute"] = "selective"
    fp8 = words.get("fp8", words.get("fp8_format", "none"))
    recipe = words.get("fp8_recipe", "")
    by_recipe = {
        "tensorwise": "fp8-cs", "blockwise": "fp8-block", "mxfp8": "mxfp8", "delayed": "fp8",
    }  # fmt: skip
    if fp8 not in ("none", "null", "false"):
        draft.training["precision"] = by_recipe.get(recipe, "fp8")
        if draft.data_parallel["kind"] == "zero" and (
            on.get("fp8_param_gather") or on.get("fp8_param")
        ):
            draft.data_parallel["parameters"] = "fp8"
    elif on.get("fp16"):
        draft.training["precision"] = "fp16"
