"""
What can be chosen on the page: every control lists its values, and nothing else is taken.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Literal

import msgspec

from commsim.cluster import preset_names, preset_text
from commsim.errors import ScenarioError
from commsim.models import RECOMPUTE, model_names, model_preset
from commsim.workload.schedules import SCHEDULES

__all__ = ["AS_WRITTEN", "Control", "Value", "check_choices", "controls_of", "has_experts"]

Value = str | int | float | bool
AS_WRITTEN = "as in the file"
"""What a control shows whose setting the scenario writes in a way that the page does not offer."""

_POWERS = tuple(2**k for k in range(12))
_NODES = tuple(sorted({*_POWERS, *(3 * 2**k for k in range(9)), 10, 20, 40, 100, 200, 400, 1000}))
_DEGREES = (1, 2, 3, 4, 5, 6, 8, 10, 12, 16, 20, 24, 32, 64)
_FACTORS = (0.1, 0.25, 0.5, 0.75, 1.0, 1.25, 1.5, 2.0, 3.0, 4.0, 10.0)
_DATA_PARALLEL = (
    ("ddp", "DDP"), ("zero1", "ZeRO-1"), ("zero2", "ZeRO-2"), ("zero3", "ZeRO-3"),
    ("fsdp", "FSDP"), ("grad_op", "FSDP, parameters kept"),
)  # fmt: skip
_PRECISIONS = ("bf16", "fp8", "mxfp8", "nvfp4", "fp16", "tf32", "fp32")
_SCALES = (
    ("nic", "NIC bandwidth"), ("nvlink", "NVLink bandwidth"), ("compute", "GPU FLOP/s"),
    ("hbm", "GPU memory bandwidth"), ("network_latency", "network latency"),
)  # fmt: skip


class Control(msgspec.Struct, frozen=True):
    """One setting on the page: its values with what they are called, and the one in force.

    `paths` are the settings of the scenario that it stands for, by which an error finds its place.
    `needs` is another control that must be above 1 (or "experts": a model with experts) for this
    one to mean anything.
    """

    key: str
    label: str
    group: str
    look: Literal["list", "slider", "switch"]
    values: tuple[tuple[Value, str], ...]
    value: Value
    paths: tuple[str, ...]
    hint: str = ""
    needs: str = ""

    def as_dict(self) -> dict[str, Any]:
        """Return the control as plain data for the page."""
        return msgspec.structs.asdict(self)


def controls_of(data: Mapping[str, Any]) -> tuple[Control, ...]:
    """Return the controls that a scenario's plain data has a use for."""
    work = _at(data, "workload") or {}
    found: list[Control] = []
    if "training" in work:
        found += [*_model(data), *_cluster(data), *_layout(data), *_batch(data)]
    elif "pipeline" in work:
        return tuple(_pipeline(data))
    else:
        found += _cluster(data)
    return (*found, *_library(data), *_what_if(data)) if data.get("cluster") else ()


def check_choices(controls: Iterable[Control], chosen: Mapping[str, Any]) -> dict[str, Value]:
    """Return the choices that differ from what is in force, in the order of the controls.

    Raises:
        ScenarioError: a control that there is not, or a value that it does not offer.
    """
    known = {control.key: control for control in controls}
    for key in chosen:
        if key not in known:
            raise ScenarioError(f"there is no control {key[:40]!r} on this page.")
    found: dict[str, Value] = {}
    for key, control in known.items():
        value = _offered(control, chosen.get(key, control.value))
        if value != control.value:
            found[key] = value
    return found


def _offered(control: Control, value: Any) -> Value:
    """Return the value of a control that equals what came from the page."""
    for one, _ in control.values:
        # 1 == True, so kinds must agree too; 2 and 2.0 are one number, in JSON as well
        if one == value and isinstance(one, bool) == isinstance(value, bool):
            return one
    raise ScenarioError(f"{control.label}: {str(value)[:40]!r} is not among its values.")


def _at(data: Any, path: str) -> Any:
    """Return what stands at a path of plain data; None where nothing does."""
    for step in path.split("."):
        data = data.get(step) if isinstance(data, Mapping) else None
    return data


def _list(
    key: str, label: str, group: str, values: Iterable[tuple[Value, str]], value: Value,
    *paths: str, hint: str = "", needs: str = "",
) -> Control:  # fmt: skip
    offered = list(values)
    if value not in [one for one, _ in offered]:
        offered.insert(0, (value, str(value)))
    return Control(key, label, group, "list", tuple(offered), value, paths, hint, needs)


def _slider(
    key: str, label: str, group: str, values: Iterable[int | float], value: int | float,
    *paths: str, unit: str = "", hint: str = "", needs: str = "",
) -> Control:  # fmt: skip
    steps = sorted({*values, value})
    named = tuple((one, f"{unit}{one:,g}" if unit else f"{one:,}") for one in steps)
    return Control(key, label, group, "slider", named, value, paths, hint, needs)


def _words(names: Iterable[str]) -> list[tuple[Value, str]]:
    return [(name, name) for name in names]


def _model(data: Mapping[str, Any]) -> list[Control]:
    at = "workload.training"
    model = _at(data, f"{at}.model") or {}
    preset = model.get("preset")
    plain = preset is not None and set(model) <= {"preset", "seq_len"}
    named = [(name, f"{name} ({_parameters(name)})") for name in model_names()]
    shown = str(preset) if plain else AS_WRITTEN
    length = model.get("seq_len") or (model_preset(preset).shape.max_seq if preset else 2048)
    precision = _at(data, f"{at}.precision") or "bf16"
    recompute = _at(data, f"{at}.recompute") or "none"
    return [
        _list("model", "model", "Model", named, shown, f"{at}.model"),
        _slider("seq_len", "sequence length", "Model", [2**k for k in range(9, 18)], length,
                f"{at}.model.seq_len"),
        _list("precision", "precision", "Model", _words(_PRECISIONS), precision, f"{at}.precision"),
        _list("recompute", "recompute", "Model", _words(RECOMPUTE), recompute, f"{at}.recompute"),
    ]  # fmt: skip


def _parameters(name: str) -> str:
    count = model_preset(name).published.parameters / 1e9
    return f"{count:.3g} B" if count >= 1 else f"{count * 1e3:.3g} M"


def has_experts(name: str) -> bool:
    """Say whether a model preset has experts."""
    return model_preset(name).shape.experts is not None


def _cluster(data: Mapping[str, Any]) -> list[Control]:
    section = data.get("cluster")
    if not isinstance(section, Mapping):
        return []
    plain = set(section) <= {"preset", "nodes", "scale", "fabric"} and "preset" in section
    named = [(name, name) for name in preset_names()]
    preset = str(section["preset"]).lower() if plain else AS_WRITTEN
    text = preset_text(preset).splitlines()[0].lstrip("# ") if plain else ""
    nodes = section.get("nodes", 1)
    found = [
        _list("cluster", "nodes of", "Cluster", named, preset, "cluster.preset", "cluster.node",
              "cluster.prices", hint=text)
    ]  # fmt: skip
    if isinstance(nodes, int):
        found.append(
            _slider(
                "nodes",
                "how many",
                "Cluster",
                _NODES,
                nodes,
                "cluster.nodes",
                "workload.training.parallel:",
            )
        )
    return found


def _layout(data: Mapping[str, Any]) -> list[Control]:
    at = "workload.training.parallel"
    parallel = _at(data, at) or {}
    schedules = [(name, SCHEDULES.get(name, at).title) for name in SCHEDULES]

    def degree(key: str, label: str, hint: str, **more: str) -> Control:
        steps = [one for one in _DEGREES if key == "pp" or one & (one - 1) == 0]
        paths = (f"{at}.{key}", f"{at}:") if key in ("tp", "pp", "cp") else (f"{at}.{key}",)
        return _slider(key, label, "Layout", steps, parallel.get(key, 1), *paths, hint=hint, **more)

    sequence = bool(parallel.get("sequence_parallel", False))
    return [
        degree("tp", "tensor", "GPUs that share each layer"),
        Control("sequence_parallel", "sequence parallel", "Layout", "switch",
                ((False, "off"), (True, "on")), sequence, (f"{at}.sequence_parallel",),
                "norms and dropout divided too", "tp"),
        degree("pp", "pipeline", "stages one after another"),
        _list("schedule", "schedule", "Layout", schedules, parallel.get("schedule", "1f1b"),
              f"{at}.schedule", needs="pp"),
        _slider("virtual_stages", "virtual stages", "Layout", (1, 2, 3, 4, 5, 6, 8, 10),
                parallel.get("virtual_stages", 1), f"{at}.virtual_stages", needs="pp",
                hint="of interleaved schedules, per GPU"),
        degree("cp", "context", "GPUs that share each sequence"),
        degree("ep", "expert", "GPUs that share the experts", needs="experts"),
        _list("data_parallel", "replicas", "Layout", _DATA_PARALLEL, _replicas(data),
              "workload.training.data_parallel"),
    ]  # fmt: skip


def _replicas(data: Mapping[str, Any]) -> str:
    """Return which of the kinds on the page a scenario's data parallelism is."""
    section = dict(_at(data, "workload.training.data_parallel") or {})
    kind, stage, shard = (section.pop(name, None) for name in ("kind", "stage", "shard"))
    if kind == "zero" and shard is None and stage in (1, 2, 3) and not section:
        return f"zero{stage}"
    if kind == "fsdp" and stage is None and not section and shard in (None, "full", "grad_op"):
        return "grad_op" if shard == "grad_op" else "fsdp"
    return "ddp" if kind in (None, "ddp") and not section else AS_WRITTEN


def _batch(data: Mapping[str, Any]) -> list[Control]:
    at = "workload.training"
    batch, parallel = _at(data, f"{at}.batch") or {}, _at(data, f"{at}.parallel") or {}
    micro = batch.get("micro", 1)
    each = max(1, batch.get("global", 1) // max(1, micro * parallel.get("dp", 1)))
    return [
        _slider("microbatches", "microbatches", "Batch", _POWERS[:10], each, f"{at}.batch.global",
                hint="of each replica in a step"),
        _slider("micro", "sequences in one", "Batch", _POWERS[:7], micro, f"{at}.batch.micro"),
    ]  # fmt: skip


def _pipeline(data: Mapping[str, Any]) -> list[Control]:
    at = "workload.pipeline"
    section = _at(data, at) or {}
    schedules = [(name, SCHEDULES.get(name, at).title) for name in SCHEDULES]
    return [
        _list("schedule", "schedule", "Pipeline", schedules, section.get("schedule", "1f1b"),
              f"{at}.schedule"),
        _slider("stages", "stages", "Pipeline", (2, 3, 4, 6, 8, 12, 16, 24, 32),
                section.get("stages", 1), f"{at}.stages", f"{at}.forward", f"{at}.backward"),
        _slider("pipeline_microbatches", "microbatches", "Pipeline",
                (1, 2, 4, 6, 8, 12, 16, 24, 32, 48, 64, 128), section.get("microbatches", 1),
                f"{at}.microbatches"),
        _slider("pipeline_virtual", "virtual stages", "Pipeline", (1, 2, 3, 4, 6, 8),
                section.get("virtual_stages", 1), f"{at}.virtual_stages"),
    ]  # fmt: skip


def _library(data: Mapping[str, Any]) -> list[Control]:
    section = data.get("library") or {}
    name = section.get("name", "auto")
    names = [("auto", "the usual one"), ("nccl", "NCCL"), ("gloo", "Gloo"), ("ideal", "textbook")]
    algo = str(section.get("algo", "auto")).lower()
    algorithms = _words(("auto", "ring", "tree", "nvls", "nvlstree"))
    return [
        _list("library", "library", "Library", names, name, "library.name", "library.env"),
        _list("algo", "algorithm", "Library", algorithms, algo, "library.algo", "NCCL_ALGO"),
    ]


def _what_if(data: Mapping[str, Any]) -> list[Control]:
    scale = _at(data, "cluster.scale") or {}
    thin = _at(data, "cluster.fabric.oversubscription") or 1
    found = [
        _slider(key, label, "What if", _FACTORS, float(scale.get(key, 1.0)), f"cluster.scale.{key}",
                unit="× ")
        for key, label in _SCALES
    ]  # fmt: skip
    found.append(
        _slider("oversubscription", "oversubscription", "What if", (1, 1.5, 2, 3, 4, 8), thin,
                "cluster.fabric", unit="1 : ", hint="of leaves; nothing where all hang on one")
    )  # fmt: skip
    return found
