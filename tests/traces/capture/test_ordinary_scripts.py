"""What ordinary scripts do: print, load data by workers, copy, save, hook, ignore and join."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import pytest

from commsim.errors import CommsimError
from commsim.graph import Graph
from commsim.traces import capture

if find_spec("torch") is None:  # importing it takes seconds, of every test run
    pytest.skip("capture needs torch", allow_module_level=True)

BEGIN = """
import torch, torch.distributed as dist, torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP
dist.init_process_group("gloo")
"""
STEPS = """
opt = torch.optim.SGD(net.parameters(), lr=0.1)
for i in range(3):
    net(torch.ones(4, 64)).sum().backward(); opt.step(); opt.zero_grad()
"""
MESH = """
from torch.distributed.device_mesh import init_device_mesh
net = DDP(nn.Linear(64, 64), device_mesh=init_device_mesh("cuda", (4,)))
"""
LAYER = 4 * (64 * 64 + 64)  # bytes of a layer's gradients


def captured(tmp_path: Path, script: str) -> Graph:
    path = tmp_path / "train.py"
    path.write_text(BEGIN + script, encoding="utf-8")
    return capture(path, world_size=4)


def sizes(graph: Graph) -> list[int]:
    table = graph.collectives
    return [int(s) for kind, s in zip(table.kind, table.size, strict=True) if kind == "all_reduce"]


def test_prints_workers_hooks_and_ignored_layers_in_one_script(tmp_path: Path) -> None:
    """Two layers, one ignored; the other's gradients are reduced as bfloat16."""
    graph = captured(
        tmp_path,
        """
import copy
import numpy as np
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import bf16_compress_hook
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset
data = TensorDataset(torch.ones(64, 64))
loader = DataLoader(data, batch_size=4, num_workers=2, sampler=DistributedSampler(data))
model = nn.Sequential(nn.Linear(64, 64), nn.Linear(64, 64))
DDP._set_params_and_buffers_to_ignore_for_model(model, ["1.weight", "1.bias"])
net = DDP(model)
net.register_comm_hook(None, bf16_compress_hook)
opt = torch.optim.SGD(net.parameters(), lr=0.1)
ema = copy.deepcopy(net.module)
assert isinstance(ema[0].weight, nn.Parameter) and ema[0].weight is not model[0].weight
assert torch.cuda.get_device_properties(0).total_memory > 0 and torch.Generator("cuda")
scores = [None] * dist.get_world_size()
def has_overflow(tensor):
    return bool(torch.isinf(tensor).float().max().item())
for (x,) in loader:
    out = net(x)
    loss = out.sum()
    loss.backward(); opt.step(); opt.zero_grad()
    dist.all_gather_object(scores, {"rank": dist.get_rank()})
    assert scores[3] is not None and not has_overflow(loss)
    if dist.get_rank() == 0:
        print("loss", loss.item(), f"{loss:.3f}", out.tolist()[0], np.asarray(out.detach()).mean())
        torch.save(net.module.state_dict(), "never.pt")
""",
    )
    assert sizes(graph) == [LAYER // 2]
    said = str(dict(graph.meta))
    assert all(word in said for word in ("DataLoader", "checkpoints", "Python objects"))
    assert not Path("never.pt").exists()


@pytest.mark.long
def test_a_script_that_dies_says_how(tmp_path: Path) -> None:
    with pytest.raises(CommsimError, match="rank 0: its process ended by SIGSEGV"):
        captured(tmp_path, "import os, signal\nos.kill(os.getpid(), signal.SIGSEGV)")


@pytest.mark.long
def test_join_sends_its_two_words_per_step(tmp_path: Path) -> None:
    graph = captured(
        tmp_path, "net = DDP(nn.Linear(64, 64))\nwith net.join():" + STEPS.replace("\n", "\n    ")
    )
    assert sorted(sizes(graph)) == [4, 4, LAYER]


@pytest.mark.long
def test_an_error_of_the_script_keeps_its_causes(tmp_path: Path) -> None:
    with pytest.raises(CommsimError) as caught:
        captured(
            tmp_path,
            """
try:
    raise KeyError("the first")
except KeyError as error:
    raise RuntimeError("the second") from error
""",
        )
    message = str(caught.value)
    assert "RuntimeError: the second" in message
    assert "caused by KeyError: 'the first'" in message


def test_batch_norm_over_ranks_sends_its_statistics(tmp_path: Path) -> None:
    """Forward mean, deviation and count of 32 channels are gathered, backward two sums reduced."""
    graph = captured(
        tmp_path,
        """
net = nn.Sequential(nn.Conv2d(3, 32, 3), nn.BatchNorm2d(32))
net = DDP(nn.SyncBatchNorm.convert_sync_batchnorm(net).cuda())
opt = torch.optim.SGD(net.parameters(), lr=0.1)
for i in range(3):
    net(torch.ones(4, 3, 8, 8, device="cuda")).sum().backward(); opt.step(); opt.zero_grad()
net.eval()(torch.ones(4, 3, 8, 8))
""",
    )
    table = graph.collectives
    calls = [(kind, int(size)) for kind, size in zip(table.kind, table.size, strict=True)]
    assert ("all_gather", 4 * 4 * (2 * 32 + 1)) in calls
    assert ("all_reduce", 4 * 2 * 32) in calls
    gradients = 4 * (32 * 3 * 9 + 3 * 32)
    assert sum(size for kind, size in calls if kind == "all_reduce") == gradients + 4 * 2 * 32


def test_the_forward_settles_what_a_backward_reduces(tmp_path: Path) -> None:
    """Accumulation whose backward stands behind `no_sync` reduces once per step, as torch does."""
    graph = captured(
        tmp_path,
        """
net = DDP(nn.Linear(64, 64))
opt = torch.optim.SGD(net.parameters(), lr=0.1)
for i in range(3):
    with net.no_sync():
        loss = net(torch.ones(4, 64)).sum()
    loss.backward()
    net(torch.ones(4, 64)).sum().backward()
    net.module(torch.ones(4, 64)).sum().backward()
    opt.step(); opt.zero_grad()
""",
    )
    assert sum(sizes(graph)) == LAYER


def test_a_mesh_makes_the_world_of_a_script_that_did_not(tmp_path: Path) -> None:
    path = tmp_path / "train.py"
    text = BEGIN.replace('dist.init_process_group("gloo")', MESH) + STEPS
    path.write_text(text, encoding="utf-8")
    assert sizes(capture(path, world_size=4)) == [LAYER]


def test_batches_cut_at_random_places_keep_their_length(tmp_path: Path) -> None:
    """As nanoGPT cuts them from one array: three products of 4 x 16 tokens per step."""
    graph = captured(
        tmp_path,
        """
import numpy as np
data = np.zeros(1000, dtype=np.uint16)
def batch():
    at = torch.randint(len(data) - 16, (4,))
    assert all(1 <= int(i) < len(data) - 16 for i in at)
    return torch.stack([torch.from_numpy(data[i : i + 16].astype(np.int64)) for i in at])
net = DDP(nn.Sequential(nn.Embedding(50, 64), nn.Linear(64, 64)))
opt = torch.optim.SGD(net.parameters(), lr=0.1)
for i in range(3):
    net(batch().pin_memory().to("cuda")).sum().backward(); opt.step(); opt.zero_grad()
""",
    )
    tokens = 4 * 16
    # Forward, and backward by the weights and by the embedding's output: 2 m n k each.
    assert graph.meta["capture"]["hardware_flops"] == 4 * 3 * 2 * tokens * 64 * 64
