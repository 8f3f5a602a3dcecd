"""
A recipe as a scenario: its layout as it stands, the cluster from the user, replicas from both.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec

from commsim.cluster import ClusterSection, build_cluster
from commsim.errors import ScenarioError
from commsim.input_files import file_problem, is_stream, readable
from commsim.models import model_names
from commsim.scenario.overrides import apply_sets, merge_settings
from commsim.scenario.recipes import megatron, torchtitan
from commsim.scenario.recipes.draft import Draft
from commsim.scenario.section import scenario_from
from commsim.sections import decode
from commsim.yaml_file import parse_yaml

__all__ = ["TrainingRecipe", "is_recipe", "read_recipe"]

_NEEDED = ("layers", "hidden", "heads", "vocab", "seq_len")
_MOST_BYTES = 2**22
_SUFFIXES = (".toml", ".sh", ".yaml", ".yml", ".args", ".txt")


class TrainingRecipe(msgspec.Struct, frozen=True):
    """A scenario in plain data. `unmapped` are the keys that have no place in it, `notes` what was
    taken if the recipe is silent. `source`: whose format it was."""

    data: dict[str, Any]
    source: str
    unmapped: tuple[str, ...]
    notes: tuple[str, ...]


def is_recipe(path: Path) -> bool:
    """Say whether a file may be a recipe, by its name."""
    return path.suffix in _SUFFIXES and path.is_file()


def read_recipe(
    path: str | Path,
    *,
    cluster: str = "",
    nodes: int | None = None,
    model: str = "",
    sets: Iterable[str] = (),
) -> TrainingRecipe:
    """Return the scenario of a recipe: a torchtitan TOML, a script or file of Megatron's
    arguments, or a YAML of NeMo or Megatron-Bridge.

    `cluster` is a preset, `nodes` how many (else the recipe's). `model` is a preset that stands for
    one that the recipe only names. `sets` change the scenario.

    Raises:
        ScenarioError: not a recipe, no cluster, degrees that do not fit it, or a figure that
            neither the recipe nor the caller gives.
    """
    path = Path(path)
    draft = _draft(path)
    if not cluster:
        raise ScenarioError(
            f"{path}: a recipe does not say on what it ran. Give --cluster PRESET and --nodes N"
            " (`commsim presets clusters` lists them)."
        )
    count = nodes or draft.nodes or 1
    world = _world(cluster, count, path)
    training = _training(draft, world, model, path)
    data = {
        "name": path.stem,
        "cluster": {"preset": cluster, "nodes": count},
        "workload": {"training": training},
    }
    data = apply_sets(data, sets)
    scenario_from(data, str(path))
    _check_model(data["workload"]["training"]["model"], path)
    if nodes is None and not draft.nodes:
        draft.notes.append("nodes: 1, as nobody says how many (--nodes)")
    return TrainingRecipe(data, draft.source, tuple(draft.unmapped), tuple(draft.notes))


def _draft(path: Path) -> Draft:
    if problem := file_problem(path):
        raise ScenarioError(f"{path}: {problem}.")
    content = readable(path)
    if content.stat().st_size > _MOST_BYTES:
        raise ScenarioError(f"{path}: is larger than any recipe.")
    text = content.read_text(encoding="utf-8", errors="replace")
    suffix = _suffix_of(text) if is_stream(path) else path.suffix
    if suffix == ".toml":
        import tomllib

        try:
            return torchtitan.draft_of(tomllib.loads(text), str(path))
        except tomllib.TOMLDecodeError as error:
            raise ScenarioError(f"{path}: is not TOML: {error}.") from None
    if suffix in (".yaml", ".yml"):
        data = parse_yaml(text, str(path))
        if not isinstance(data, Mapping):
            raise ScenarioError(f"{path}: a recipe is a mapping (model:, train:, ...).")
        return megatron.draft_of_yaml(data, str(path))
    return megatron.draft_of_script(text, str(path))


def _suffix_of(text: str) -> str:
    """Return the suffix that a file would have: a pipe's name tells none."""
    import tomllib

    try:
        tomllib.loads(text)
    except tomllib.TOMLDecodeError:
        with suppress(ScenarioError):
            return ".yaml" if isinstance(parse_yaml(text, ""), Mapping) else ".sh"
        return ".sh"
    return ".toml"


def _check_model(shape: Mapping[str, Any], path: Path) -> None:
    """Ask for what a recipe leaves to a tokenizer or a checkpoint."""
    missing = [name for name in _NEEDED if not shape.get(name)]
    if "preset" not in shape and missing:
        sets = " ".join(f"--set workload.training.model.{name}=N" for name in missing)
        raise ScenarioError(
            f"{path}: says nothing of the model's {' and '.join(missing)} (a tokenizer or a"
            f" checkpoint does). Give {sets}, or --model PRESET for a model like it."
        )


def _world(cluster: str, nodes: int, path: Path) -> int:
    section = decode({"preset": cluster, "nodes": nodes}, ClusterSection, str(path))
    return build_cluster(section, str(path)).world_size


def _training(draft: Draft, world: int, model: str, path: Path) -> dict[str, Any]:
    parallel = dict(draft.parallel)
    each = 1
    for axis in ("tp", "pp", "cp"):
        each *= int(parallel.get(axis, 1))
    dp, left = divmod(world, each)
    if left or not dp:
        raise ScenarioError(
            f"{path}: tp x pp x cp = {each} does not divide the {world} GPUs of the cluster. Give"
            " the --nodes that it ran on."
        )
    if draft.replicas and draft.replicas != dp:
        raise ScenarioError(
            f"{path}: has {draft.replicas} replicas of {each} GPUs, which are"
            f" {draft.replicas * each:,}, and the cluster has {world:,}. Give other --nodes."
        )
    micro = draft.micro or 1
    local = draft.local_batch or micro * int(parallel.get("pp", 1))
    batch = draft.global_batch or local * dp
    if not draft.global_batch and not draft.local_batch:
        draft.notes.append(f"batch.global: {batch}, as the recipe names none")
    shape: dict[str, Any] = {"preset": model} if model else dict(draft.model)
    preset = shape.get("preset")
    if preset is not None and preset not in model_names():
        raise ScenarioError(
            f"{path}: the model {preset!r} is no preset. Give --model with one that is like it"
            " (`commsim presets models`)."
        )
    if draft.seq_len:
        shape["seq_len"] = draft.seq_len
    data_parallel = {key: value for key, value in draft.data_parallel.items() if value is not None}
    if data_parallel.get("kind") == "hsdp" and data_parallel.get("shard") == dp:
        data_parallel = {"kind": "fsdp"}
    training: dict[str, Any] = merge_settings(
        {
            "model": shape,
            "parallel": {"dp": dp, **parallel},
            "data_parallel": data_parallel,
            "batch": {"global": batch, "micro": micro},
        },
        draft.training,
    )
    return training
