"""
The parts of a model: units, how they are divided over stages, and what each has to learn.

A unit is the embedding, one layer, or the head (final norm and output matrix). The embedding
belongs to the first part, the head to the last.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import msgspec

from commsim.errors import ScenarioError
from commsim.models import (
    ModelShape,
    Tensor,
    embedding_tensors,
    head_tensors,
    is_moe_layer,
    layer_tensors,
    tensor_total,
)

__all__ = [
    "EMBEDDING",
    "HEAD",
    "LAYER",
    "Stage",
    "Unit",
    "divide_layers",
    "make_parts",
    "unit_kinds",
]

EMBEDDING, LAYER, HEAD = "embedding", "layer", "head"
_EMBEDDING_LAYERS = _HEAD_LAYERS = 1  # torchtitan's input_weight and output_weight


class Unit(NamedTuple):
    """An item of the model; `layer` is its number, -1 for the embedding and the head.

    `tensors` are the parameters that one rank holds of it. `again`: recompute is for it too.
    """

    kind: str
    layer: int
    tensors: tuple[Tensor, ...]
    again: bool = True

    @property
    def name(self) -> str:
        """What ops and messages call it."""
        return f"layer {self.layer}" if self.kind == LAYER else self.kind

    def entries(self, *, expert: bool) -> int:
        """Return the parameters per rank: those of experts, or all others."""
        return sum(tensor.entries for tensor in self.tensors if tensor.expert == expert)


class Stage(msgspec.Struct, frozen=True):
    """A part of the model on a device; `number` counts virtual stages and copies."""

    number: int
    device: int
    part: int
    units: tuple[Unit, ...]

    @property
    def parameters(self) -> int:
        """The parameters that each of its ranks holds."""
        return sum(tensor_total(unit.tensors) for unit in self.units)


def make_parts(
    shape: ModelShape,
    layers: tuple[range, ...],
    *,
    tp: int,
    ep: int,
    copied: bool,
    etp: int | None = None,
    again: Callable[[int, int], bool] = lambda layer, place: True,
) -> tuple[tuple[Unit, ...], ...]:
    """Return the units of each part in forward order, for the layers that it holds.

    `copied`: the head's matrix is the token table, but another device holds that. `etp` divides
    experts; without it, `tp` does. `again` says of a layer, and its place in its part, whether it
    is recomputed.
    """
    made: dict[bool, tuple[Tensor, ...]] = {}
    parts: list[list[Unit]] = []
    for own in layers:
        parts.append([])
        for place, layer in enumerate(own):
            kind = is_moe_layer(shape, layer)
            if kind not in made:
                made[kind] = layer_tensors(shape, layer=layer, tp=tp, ep=ep, etp=etp)
            parts[-1].append(Unit(LAYER, layer, made[kind], again(layer, place)))
    parts[0].insert(0, Unit(EMBEDDING, -1, embedding_tensors(shape, tp=tp)))
    head = head_tensors(shape, tp=tp)
    if copied:
        table = embedding_tensors(shape, tp=tp)[0]
        head = (*head, Tensor("head.weight (copy)", table.entries))
    parts[-1].append(Unit(HEAD, -1, head))
    return tuple(tuple(units) for units in parts)


def unit_kinds(shape: ModelShape, units: tuple[Unit, ...]) -> tuple[str | bool, ...]:
    """Return what of some units decides their work: parts of equal kinds do the same."""
    return tuple(_layer_kind(shape, unit) if unit.kind == LAYER else unit.kind for unit in units)


def _layer_kind(shape: ModelShape, unit: Unit) -> str | bool:
    moe = is_moe_layer(shape, unit.layer)
    return moe if unit.again else f"kept {moe}"


def divide_layers(
    layers: int, pp: int, virtual: int, listed: tuple[int, ...] | None, *, where: str
) -> tuple[range, ...]:
    """Return the layers of each part: pp x virtual of them, evenly if they divide.

    Otherwise the embedding and the head count as a layer each, and the first parts hold the rest,
    as torchtitan splits a model (`generate_llm_fqn_per_model_part` with weights of 1; Megatron's
    account_for_embedding_in_pipeline_split and account_for_loss_in_pipeline_split count alike):
    126 layers on 16 stages are 7 + 14 x 8 + 7.

    Raises:
        ScenarioError: the list does not add up, or a stage has nothing.
    """
    parts = pp * virtual
    if listed is None and layers + _EMBEDDING_LAYERS + _HEAD_LAYERS < parts:
        stages = f"{pp} stages" + (f" × {virtual} virtual stages" if virtual > 1 else "")
        raise ScenarioError(
            f"{where}.pp: {layers} layers are too few for {stages}: only the"
            " first (embedding) and the last (head) can do without. Lower pp."
        )
    counts = listed if listed is not None else _spread(layers, parts)
    if len(counts) == pp < parts and all(count % virtual == 0 for count in counts):
        counts = tuple(count // virtual for count in counts) * virtual
    if len(counts) != parts or sum(counts) != layers:
        wanted = f"pp is {pp}" + (f" × {virtual} virtual stages" if virtual > 1 else "")
        raise ScenarioError(
            f"{where}.layers_per_stage: {' + '.join(str(n) for n in counts)} = {sum(counts)} layers"
            f" on {len(counts)} stages, the model has {layers} layers and {wanted}."
        )
    empty = [part for part, count in enumerate(counts[1:-1], 1) if not count]
    if empty:
        raise ScenarioError(
            f"{where}.layers_per_stage: stage {empty[0]} has no layer. Only the first (embedding)"
            " and the last (head) can do without: give each other stage one, or lower pp."
        )
    starts = [sum(counts[:part]) for part in range(parts)]
    return tuple(range(start, start + n) for start, n in zip(starts, counts, strict=True))


def _spread(layers: int, parts: int) -> tuple[int, ...]:
    """Return the layers of each part, for parts that are not listed."""
    if layers % parts == 0:
        return (layers // parts,) * parts
    each, more = divmod(layers + _EMBEDDING_LAYERS + _HEAD_LAYERS, parts)
    counts = [each + (part < more) for part in range(parts)]
    counts[0] -= _EMBEDDING_LAYERS
    counts[-1] -= _HEAD_LAYERS
    return tuple(counts)
