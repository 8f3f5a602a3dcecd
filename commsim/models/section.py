"""The `model` section of a scenario: a preset by name, or a shape written out."""

from __future__ import annotations

from types import MappingProxyType

import msgspec

from commsim.errors import ScenarioError
from commsim.models.catalogue import model_preset
from commsim.models.shape import Count, Experts, LatentAttention, ModelShape
from commsim.sections import Section, decode

__all__ = ["Model", "ModelSection", "build_model"]

_SHAPE_FIELDS = tuple(field.name for field in msgspec.structs.fields(ModelShape))
_NEEDED = ("layers", "hidden", "heads", "vocab")
_MOST_LAYERS = 100_000  # a thousand times the deepest; each is looked at before work is estimated

_AS_GPT = MappingProxyType(
    {
        "gated": "two-matrix MLP (gated: false)",
        "tied_embeddings": "tied embeddings",
        "linear_bias": "biases",
    }
)
"""What a model that is written out is without a word, by field."""


class ModelSection(Section, frozen=True, kw_only=True):
    """What a user writes under `model`.

    With `preset`, any further field replaces that figure of the preset. Without one, layers,
    hidden, heads, vocab and seq_len are needed and the rest follows GPT: kv_heads = heads,
    head_dim = hidden / heads, ffn = 4 hidden, two-matrix MLP, biases, tied embeddings.
    """

    preset: str | None = None
    seq_len: Count | None = None
    layers: Count | None = None
    hidden: Count | None = None
    heads: Count | None = None
    kv_heads: Count | None = None
    head_dim: Count | None = None
    ffn: Count | None = None
    vocab: Count | None = None
    max_seq: Count | None = None
    gated: bool | None = None
    tied_embeddings: bool | None = None
    learned_position_rows: int | None = None
    norm_has_bias: bool | None = None
    linear_bias: bool | None = None
    qkv_bias: bool | None = None
    qk_norm: bool | None = None
    embedding_norm: bool | None = None
    experts: Experts | None = None
    latent: LatentAttention | None = None


class Model(msgspec.Struct, frozen=True):
    """A shape with the sequence length that it is trained at."""

    name: str
    shape: ModelShape
    seq_len: int
    notes: tuple[str, ...] = ()


def build_model(section: ModelSection, *, where: str = "model") -> Model:
    """Return the model that `section` describes.

    Raises:
        ScenarioError: an unknown preset, a missing figure, figures that do not go together, or
            a sequence longer than the table of learned positions.
    """
    given = {f: getattr(section, f) for f in _SHAPE_FIELDS if getattr(section, f) is not None}
    if section.preset is None:
        model = _written_out(section, given, where)
    else:
        model = _from_preset(section, section.preset, given, where)
    if model.shape.layers > _MOST_LAYERS:
        raise ScenarioError(
            f"{where}.layers: {model.shape.layers} layers; {_MOST_LAYERS} are the most."
        )
    rows = model.shape.learned_position_rows
    if 0 < rows < model.seq_len:
        raise ScenarioError(
            f"{where}.seq_len: {model.seq_len} tokens, but the model has {rows} learned"
            " positions. Shorten seq_len or set learned_position_rows."
        )
    return model


def _from_preset(section: ModelSection, name: str, given: dict[str, object], where: str) -> Model:
    preset = model_preset(name, where=f"{where}.preset").shape
    shape = decode({**msgspec.structs.asdict(preset), **given}, ModelShape, where)
    notes = [f"model: {name} with {field}={value}" for field, value in given.items()]
    if section.seq_len is None:
        notes.append(f"model.seq_len: {shape.max_seq}, the longest that {name} was made for")
    return Model(name, shape, section.seq_len or shape.max_seq, tuple(notes))


def _written_out(section: ModelSection, given: dict[str, object], where: str) -> Model:
    missing = [f for f in (*_NEEDED, "seq_len") if getattr(section, f) is None]
    hidden, heads, seq_len = section.hidden, section.heads, section.seq_len
    if missing or hidden is None or heads is None or seq_len is None:
        raise ScenarioError(
            f"{where}: {', '.join(missing)} missing. Name a preset, like preset: gpt2-1.5b, or"
            f" give {', '.join(_NEEDED)} and seq_len."
        )
    if section.head_dim is None and hidden % heads:
        raise ScenarioError(
            f"{where}.heads: {heads} heads do not divide hidden {hidden}. Give head_dim."
        )
    defaults = {
        "kv_heads": heads,
        "head_dim": hidden // heads,
        "ffn": 4 * hidden,
        "max_seq": seq_len,
    }
    used = {field: value for field, value in defaults.items() if field not in given}
    notes = tuple(f"model.{field}: {value}" for field, value in used.items() if field != "max_seq")
    shape = decode({**used, **given}, ModelShape, where)
    left = [words for field, words in _AS_GPT.items() if field not in given]
    if left:
        notes = (*notes, f"model: as GPT has it: {', '.join(left)}")
    return Model("written out", shape, seq_len, notes)
