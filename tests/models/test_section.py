"""The model section: presets, replaced figures, shapes written out, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest

from commsim.errors import ScenarioError
from commsim.models import Model, ModelSection, build_model, model_preset
from commsim.sections import decode


def model(**settings: Any) -> Model:
    return build_model(decode(settings, ModelSection, "x.yaml"), where="x.yaml: model")


def refusal(**settings: Any) -> str:
    with pytest.raises(ScenarioError) as caught:
        model(**settings)
    return str(caught.value)


def test_a_preset_brings_its_longest_sequence_and_says_so() -> None:
    built = model(preset="llama3-8b")
    assert built.seq_len == 8192
    assert built.notes == ("model.seq_len: 8192, the longest that llama3-8b was made for",)
    assert model(preset="llama3-8b", seq_len=4096).seq_len == 4096


def test_a_figure_beside_a_preset_replaces_it() -> None:
    built = model(preset="llama3-8b", seq_len=4096, layers=16)
    assert built.shape.layers == 16
    assert built.shape.ffn == 14336
    assert built.notes == ("model: llama3-8b with layers=16",)


def test_a_shape_written_out_is_a_gpt() -> None:
    built = model(
        layers=12, hidden=768, heads=12, vocab=50257, seq_len=1024, learned_position_rows=1024
    )
    assert built.shape == model_preset("gpt2-124m").shape
    silent = "model: as GPT has it: two-matrix MLP (gated: false), tied embeddings, biases"
    assert built.notes[-1] == silent


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"preset": "gpt2-1.5"}, ["x.yaml: model.preset", "did you mean 'gpt2-1.5b'"]),
        ({"layers": 4, "hidden": 64}, ["model: heads, vocab, seq_len missing", "preset"]),
        (
            {"layers": 4, "hidden": 65, "heads": 4, "vocab": 9, "seq_len": 8},
            ["model.heads", "4 heads do not divide hidden 65"],
        ),
        ({"preset": "gpt2-1.5b", "seq_len": 2048}, ["model.seq_len", "2048", "1024 learned"]),
        ({"preset": "gpt2-1.5b", "kv_heads": 7}, ["7 kv_heads do not divide 25 heads"]),
        ({"preset": "gpt2-1.5b", "layers": 0}, ["layers: 0: give 1 or more"]),
        ({"preset": "gpt2-1.5b", "seq_length": 8}, ["seq_length", "model.seq_len"]),
    ],
)
def test_what_cannot_be_is_refused_with_its_path(
    settings: dict[str, Any], words: list[str]
) -> None:
    message = refusal(**settings).lower()
    for word in words:
        assert word.lower() in message
