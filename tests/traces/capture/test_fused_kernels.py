"""What a GPU has as one kernel and a CPU composes: captured as on a GPU."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import pytest

from commsim.traces.capture.processes import record_ranks
from commsim.traces.capture.records import CapturedWork

pytestmark = pytest.mark.skipif(find_spec("torch") is None, reason="needs torch")

ATTENTION = """
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.functional import scaled_dot_product_attention

dist.init_process_group("nccl")
project = nn.Linear(64, 192, device="cuda", dtype=torch.bfloat16)
optimizer = torch.optim.SGD(project.parameters(), lr=0.1)
for _ in range(2):
    x = torch.randn(2, 128, 64, dtype=torch.bfloat16, device="cuda")
    q, k, v = project(x).view(2, 128, 3, 4, 16).permute(2, 0, 3, 1, 4)
    scaled_dot_product_attention(query=q, key=k, value=v, dropout_p=0.1).sum().backward()
    optimizer.step()
"""
SCRIPT = """
import torch
import torch.distributed as dist
from torch import nn

dist.init_process_group("nccl")
norm, drop = nn.RMSNorm(64).to("cuda", torch.bfloat16), nn.Dropout({p})
optimizer = torch.optim.SGD(norm.parameters(), lr=0.1)
for _ in range(2):
    x = torch.randn(4, 8, 64, dtype=torch.bfloat16, device="cuda", requires_grad=True)
    drop(norm(x)).mul(2).sum().backward()
    optimizer.step()
"""


def captured(folder: Path, script: str) -> dict[str, int]:
    """Return what the forward and backward run, with the bytes that they move."""
    (folder / "script.py").write_text(script)
    records = record_ranks(folder / "script.py", [0], world=1)[0].records
    return {r.op: r.traffic for r in records if isinstance(r, CapturedWork) and r.phase in (1, 2)}


def test_a_norm_and_dropout_are_a_kernel_each_way(tmp_path: Path) -> None:
    """2,048 entries of 2 bytes and 32 rows; a mask of a byte each."""
    moved = captured(tmp_path, SCRIPT.format(p=0.1))
    assert moved["_fused_rms_norm"] == 2 * (2 * 2048 + 64) + 4 * 32
    assert moved["_fused_rms_norm_backward"] == 2 * (5 * 2048 + 2 * 64) + 4 * 32
    assert moved["native_dropout"] == moved["native_dropout_backward"] == 2 * 2 * 2048 + 2048
    assert not {"pow", "rsqrt", "bernoulli_", "_to_copy"} & set(moved)


def test_dropout_of_nothing_is_none(tmp_path: Path) -> None:
    assert not [op for op in captured(tmp_path, SCRIPT.format(p=0.0)) if "dropout" in op]


def test_attention_with_dropout_keeps_no_scores(tmp_path: Path) -> None:
    """One fused kernel each way; scores would be products of batches."""
    ops = captured(tmp_path, ATTENTION)
    assert "_scaled_dot_product_flash_attention_for_cpu" in ops
    assert "_scaled_dot_product_flash_attention_for_cpu_backward" in ops
    assert not {"bmm", "_safe_softmax", "bernoulli_"} & set(ops)
