"""What a rank exchanges with the others, and splits that cannot be."""

from __future__ import annotations

import pytest

from commsim.errors import ScenarioError
from commsim.models import (
    Split,
    check_split,
    context_ring_bytes,
    expert_all_to_all_bytes,
    hidden_bytes,
    model_preset,
    tensor_parallel_bytes,
    ulysses_bytes,
)

LLAMA = model_preset("llama3-8b").shape  # h 4096, 32 heads of 128, 8 key/value heads
MIXTRAL = model_preset("mixtral-8x7b").shape
DEEPSEEK = model_preset("deepseek-v3").shape


def test_the_hidden_state_is_divided_by_context_and_by_sequence_parallelism() -> None:
    assert hidden_bytes(LLAMA, Split(2, 8192), width=2) == 2 * 2 * 8192 * 4096
    assert hidden_bytes(LLAMA, Split(2, 8192, cp=4), width=2) == 2 * 2 * 2048 * 4096
    sharded = Split(2, 8192, tp=8, sequence_parallel=True)
    assert hidden_bytes(LLAMA, sharded, width=2) == 2 * 2 * 1024 * 4096
    assert tensor_parallel_bytes(LLAMA, sharded, width=2) == 2 * 2 * 8192 * 4096
    assert hidden_bytes(LLAMA, Split(2, 8192, tp=8), width=2) == 2 * 2 * 8192 * 4096


def test_a_dispatch_sends_a_token_to_each_of_its_experts() -> None:
    assert expert_all_to_all_bytes(MIXTRAL, Split(1, 4096, ep=8), width=2) == 2 * 4096 * 4096 * 2
    assert expert_all_to_all_bytes(DEEPSEEK, Split(1, 4096, ep=8), width=1) == 4096 * 7168 * 8
    with pytest.raises(ValueError, match="without experts"):
        expert_all_to_all_bytes(LLAMA, Split(1, 4096), width=2)


def test_a_ring_step_passes_keys_and_values() -> None:
    split = Split(1, 8192, tp=2, cp=4)
    assert context_ring_bytes(LLAMA, split, width=2) == 2 * 2048 * 2 * 4 * 128
    latent = context_ring_bytes(DEEPSEEK, Split(1, 4096, cp=2), width=2)
    assert latent == 2 * 2048 * 128 * (192 + 128)


def test_ulysses_exchanges_by_tensor() -> None:
    split = Split(1, 8192, cp=4)
    queries = ulysses_bytes(LLAMA, split, width=2, tensor="q")
    assert queries == 2 * 2048 * 4096 == ulysses_bytes(LLAMA, split, width=2, tensor="o")
    assert ulysses_bytes(LLAMA, split, width=2, tensor="k") == queries // 4
    assert ulysses_bytes(LLAMA, split, width=2, tensor="v") == queries // 4


@pytest.mark.parametrize(
    ("name", "split", "words"),
    [
        ("llama3-8b", Split(1, 8192, tp=3), ["p.tp", "32 heads", "tp = 3"]),
        ("gpt2-1.5b", Split(1, 1024, tp=2), ["p.tp", "25 heads"]),
        ("llama3-8b", Split(1, 8192, ep=2), ["p.ep", "no experts"]),
        ("mixtral-8x7b", Split(1, 8192, ep=3), ["p.ep", "8 experts", "ep = 3"]),
        ("llama3-8b", Split(1, 8190, cp=4), ["p.cp", "8190 tokens", "2 x cp = 8"]),
        (
            "llama3-8b",
            Split(1, 8190, tp=4, sequence_parallel=True),
            ["p.sequence_parallel", "8190 tokens", "tp = 4"],
        ),
    ],
)
def test_what_does_not_divide_is_refused(name: str, split: Split, words: list[str]) -> None:
    with pytest.raises(ScenarioError) as caught:
        check_split(model_preset(name).shape, split, where="p")
    for word in words:
        assert word in str(caught.value)


@pytest.mark.parametrize("tp", [1, 2, 4, 8, 16, 32])
def test_key_value_heads_may_be_copied(tp: int) -> None:
    check_split(LLAMA, Split(1, 8192, tp=tp))
