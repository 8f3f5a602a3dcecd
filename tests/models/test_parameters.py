"""Parameters are derived from the shape; published counts judge them."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
import yaml

from commsim.models import (
    ModelShape,
    active_parameter_count,
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
    later = {"gpt-oss-20b", "gpt-oss-120b"}  # by OpenAI's model card alone
    assert set(model_names()) - set(reference) == later
    for name in set(model_names()) - later:
        shape = msgspec.structs.asdict(model_preset(name).shape)
        expected = {**reference[name], "qk_norm": reference[name]["qk_norm"] != "none"}
        experts, latent = shape.pop("experts"), shape.pop("latent")
        limited = {"deepseek-v3": (8, 4)}  # config_671B.json; the reference data has no groups
        if experts:
            assert (experts.groups, experts.top_groups) == limited.get(name, (1, 0))
            experts = msgspec.structs.replace(experts, groups=1, top_groups=0)
        assert shape == {field: expected[field] for field in shape}, name
        assert (experts is None) == (expected["moe"] is None), name
        for field, value in (msgspec.structs.asdict(experts) if experts else {}).items():
            if "groups" not in field:
                assert value == expected["moe"][field], (name, field)
        assert (latent is not None) == (expected["attention"]["kind"] == "mla"), name
        for field, value in (msgspec.structs.asdict(latent) if latent else {}).items():
            assert value == expected["attention"][field], (name, field)


@pytest.mark.parametrize(
    "name", [name for name in model_names() if model_preset(name).active is not None]
)
def test_a_token_meets_the_published_active_parameters(name: str) -> None:
    preset = model_preset(name)
    assert preset.active is not None
    counted, published = active_parameter_count(preset.shape), preset.active.parameters
    table = preset.shape.vocab * preset.shape.hidden  # DeepSeek and OpenAI count one of the two
    shapes = (counted, counted - table)
    # Mixtral's 39B is two digits; DeepSeek's 36.7B has one table in full, another in part.
    assert any(published - preset.active.unit / 2 <= count <= 1.024 * published for count in shapes)


@pytest.mark.parametrize("name", ["gpt3-175b", "llama3-70b", "mixtral-8x7b", "deepseek-v3"])
@pytest.mark.parametrize("tp", [2, 8])
def test_tensor_parallel_ranks_hold_all_parameters_together(name: str, tp: int) -> None:
    """Whole on each rank: norms, the biases of the second matrices, router, latent projections."""
    shape = model_preset(name).shape
    whole = ("norm", "out.bias", "down.bias", "router", "q_down", "kv_down")
    layer = shape.layers - 1
    for full, part in zip(
        layer_tensors(shape, layer=layer), layer_tensors(shape, layer=layer, tp=tp), strict=True
    ):
        copies = 1 if any(word in full.name for word in whole) else tp
        assert part.entries * copies == full.entries, full.name


def test_expert_parallel_ranks_hold_their_share_of_the_experts() -> None:
    shape = model_preset("mixtral-8x7b").shape
    full, part = layer_tensors(shape), layer_tensors(shape, ep=4)
    routed = [sum(t.entries for t in tensors if t.expert) for tensors in (full, part)]
    rest = [sum(t.entries for t in tensors if not t.expert) for tensors in (full, part)]
    assert routed[0] == 4 * routed[1] == 8 * 3 * 4096 * 14336
    assert rest[0] == rest[1]


def test_the_first_layers_of_deepseek_are_dense() -> None:
    shape = model_preset("deepseek-v3").shape
    assert not any(tensor.expert for tensor in layer_tensors(shape, layer=2))
    assert sum(tensor.expert for tensor in layer_tensors(shape, layer=3)) == 3 * 256


def test_key_value_heads_are_copied_where_there_are_too_few() -> None:
    shape = model_preset("llama3-70b").shape
    (qkv,) = [t for t in layer_tensors(shape, tp=16) if "qkv" in t.name]
    assert qkv.entries == 8192 * (64 // 16 + 2) * 128
