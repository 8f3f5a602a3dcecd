"""Parameters are derived from the shape; published counts judge them."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
import yaml

from commsim.models import (
    ModelShape,
    embedding_tensors,
    head_tensors,
    layer_tensors,
    model_names,
    model_preset,
    parameter_count,
    tensor_total,
)

TINY = ModelShape(
    layers=3, hidden=8, heads=4, kv_heads=2, head_dim=2, ffn=20, vocab=50, max_seq=16,
    gated=True, tied_embeddings=False, norm_has_bias=False, linear_bias=False, qkv_bias=False,
)  # fmt: skip


@pytest.mark.parametrize("name", model_names())
def test_the_derived_count_is_the_published_one(name: str) -> None:
    preset = model_preset(name)
    published = preset.published
    difference = abs(parameter_count(preset.shape) - published.parameters)
    if published.kind == "exact":
        assert difference == 0
    elif name == "gpt3-175b":  # the paper prints 175.0B; every reading of its shape gives 174.6B
        assert difference < 0.003 * published.parameters
    else:
        assert difference <= published.unit / 2


def test_the_presets_that_people_ask_for_are_there() -> None:
    asked = {
        "gpt2-124m", "gpt2-1.5b", "gpt3-6.7b", "gpt3-175b", "llama2-7b", "llama2-70b",
        "llama3-8b", "llama3-70b", "llama3.1-405b",
    }  # fmt: skip
    assert asked <= set(model_names())
    assert len(model_names()) == len(set(model_names()))


@pytest.mark.parametrize("name", ["gpt2-1.5b", "megatron-18.4b", "mpt-7b"])
def test_a_gpt_follows_megatrons_formula(name: str) -> None:
    shape = model_preset(name).shape
    L, h, V, s = shape.layers, shape.hidden, shape.vocab, shape.learned_position_rows
    formula = 12 * L * h * h + 13 * L * h + (V + s) * h + 2 * h
    assert parameter_count(shape) == formula


def test_the_tensors_of_a_small_llama_by_hand() -> None:
    assert [(t.name, t.entries) for t in layer_tensors(TINY)] == [
        ("attention_norm.weight", 8),
        ("attention.qkv.weight", 8 * (4 + 2 * 2) * 2),
        ("attention.out.weight", 8 * 8),
        ("mlp_norm.weight", 8),
        ("mlp.gate.weight", 160),
        ("mlp.up.weight", 160),
        ("mlp.down.weight", 160),
    ]
    assert [t.entries for t in embedding_tensors(TINY)] == [400]
    assert [(t.name, t.entries) for t in head_tensors(TINY)] == [
        ("final_norm.weight", 8),
        ("head.weight", 400),
    ]
    assert parameter_count(TINY) == 400 + 3 * 688 + 408


def test_a_norm_on_queries_and_keys_adds_two_heads_of_weights() -> None:
    with_norm = msgspec.structs.replace(TINY, qk_norm=True)
    more = tensor_total(layer_tensors(with_norm)) - tensor_total(layer_tensors(TINY))
    assert more == 2 * TINY.head_dim


def test_every_preset_says_where_it_is_from() -> None:
    for name in model_names():
        preset = model_preset(name)
        assert preset.published.source, name
        assert preset.sources, name
        assert all(preset.sources), name


def test_the_shapes_are_those_of_the_reference_data(shared_data: Path) -> None:
    reference = yaml.safe_load((shared_data / "models.yaml").read_text())["models"]
    for name in model_names():
        shape = msgspec.structs.asdict(model_preset(name).shape)
        expected = {**reference[name], "qk_norm": reference[name]["qk_norm"] != "none"}
        assert shape == {field: expected[field] for field in shape}, name
