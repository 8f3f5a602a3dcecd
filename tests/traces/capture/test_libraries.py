"""Training libraries drive the captured steps; those that are not installed have small stand-ins.

What Lightning, Accelerate and Trainer send below they also sent in runs by Gloo on four ranks.
"""

from __future__ import annotations

from collections import Counter
from importlib.util import find_spec
from pathlib import Path

import pytest

from commsim.graph import Graph
from commsim.traces import capture

if find_spec("torch") is None:  # importing it takes seconds, of every test run
    pytest.skip("capture needs torch", allow_module_level=True)

WORLD = 4
NET = """
import os, torch, torch.nn as nn
from torch.utils.data import DataLoader, TensorDataset
net = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 10))
data = TensorDataset(torch.randn(512, 64), torch.randint(0, 10, (512,)))
loader = DataLoader(data, batch_size=8, shuffle=True)
"""
ENTRIES = 64 * 256 + 256 + 256 * 10 + 10
GRADIENTS = 4 * ENTRIES


def captured(tmp_path: Path, script: str) -> Graph:
    path = tmp_path / "train.py"
    path.write_text(script, encoding="utf-8")
    return capture(path, world_size=WORLD)


def sent(graph: Graph) -> Counter[tuple[str, int]]:
    """Return how often what was sent, in bytes, of what does more than a few words."""
    table = graph.collectives
    calls = zip(table.kind, table.size.tolist(), strict=True)
    return Counter((kind, size) for kind, size in calls if size > 100)


def package(folder: Path, name: str, text: str) -> None:
    """Write a module of a library that is not there, next to the script."""
    *path, last = name.split(".")
    for part in path:
        folder /= part
        folder.mkdir(exist_ok=True)
        (folder / "__init__.py").touch()
    (folder / f"{last}.py").write_text(text, encoding="utf-8")


def test_checks_that_need_a_gpu_or_all_ranks_pass(tmp_path: Path) -> None:
    """As Lightning looks at its device, and ZeRO-3 compares its lists with those of rank 0."""
    package(
        tmp_path,
        "lightning.fabric.accelerators.cuda",
        """
class CUDAAccelerator:
    def setup_device(self, device):
        if device.type != "cuda":
            raise ValueError("Device should be CUDA")
""",
    )
    package(
        tmp_path,
        "deepspeed.runtime.zero.utils",
        """
import torch, torch.distributed as dist
def assert_lst_len_same_as_other_ranks(lst):
    length = torch.tensor(len(lst) if dist.get_rank() == 0 else -1, device="cuda")
    dist.broadcast(length, src=0)
    if length.cpu().item() != len(lst):
        raise RuntimeError("another length")
def get_lst_from_rank0(lst):
    sent = torch.tensor(lst if dist.get_rank() == 0 else [-1] * len(lst), device="cuda")
    dist.broadcast(sent, src=0)
    return [t.item() for t in sent.cpu()]
""",
    )
    graph = captured(
        tmp_path,
        """
import torch, torch.distributed as dist
dist.init_process_group("nccl")
from lightning.fabric.accelerators.cuda import CUDAAccelerator
from deepspeed.runtime.zero import utils
CUDAAccelerator().setup_device(torch.device("cuda", 0))
order = list(range(40))
utils.assert_lst_len_same_as_other_ranks(order)
assert utils.get_lst_from_rank0(order) == order
""",
    )
    assert sent(graph) == {("broadcast", 40 * 8): 1}


def test_known_numbers_first_fsdp_and_cuda_in_backwards(tmp_path: Path) -> None:
    """A flag of the program's own stays known when reduced; a hook finds "cuda"; static graphs."""
    graph = captured(
        tmp_path,
        """
import os, torch, torch.nn as nn, torch.distributed as dist
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.nn.parallel import DistributedDataParallel as DDP
dist.init_process_group("nccl")
world = dist.get_world_size()
assert int(os.environ["LOCAL_WORLD_SIZE"]) == torch.cuda.device_count() == world
def agreed(value, op=dist.ReduceOp.SUM):
    told = torch.tensor(value, device="cuda")
    dist.all_reduce(told, op=op)
    return told.item()
assert agreed(0) == 0 and agreed(3) == 3 * world and agreed(2.5, dist.ReduceOp.MAX) == 2.5
left = torch.tensor(7.0)
left += torch.randn(())
assert left.item() == 1.0  # made up: something unknown was added
plain = DDP(nn.Linear(64, 64).cuda(), find_unused_parameters=True)
plain._set_static_graph()
assert plain.static_graph and not plain._get_ddp_logging_data().get("can_set_static_graph")
net = FSDP(nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 10)).cuda())
def keep(p):
    torch.empty(64, device="cuda:0").copy_(p.grad)
plain.module.bias.register_post_accumulate_grad_hook(keep)
opt = torch.optim.SGD([*net.parameters(), *plain.parameters()], lr=0.1)
for i in range(3):
    x = torch.randn(4, 64).cuda(non_blocking=True)
    x.record_stream(torch.cuda.current_stream())
    net(plain(x)).sum().backward(); opt.step(); opt.zero_grad()
""",
    )
    flat = -(-ENTRIES // WORLD) * WORLD * 4
    assert sent(graph) == {
        ("all_gather", flat): 1, ("reduce_scatter", flat): 1, ("all_reduce", 4 * 65 * 64): 1,
    }  # fmt: skip


FABRIC = (
    NET
    + """
from lightning.fabric import Fabric
fabric = Fabric(accelerator="{0}", devices=int(os.environ["LOCAL_WORLD_SIZE"]), strategy="{1}")
fabric.launch()
net, opt = fabric.setup(net, torch.optim.AdamW(net.parameters(), lr=1e-3))
for i, (x, y) in enumerate(fabric.setup_dataloaders(loader)):
    half = i % 2 == 0
    with fabric.no_backward_sync(net, enabled=half):
        loss = nn.functional.cross_entropy(net(x), y)
        fabric.backward(loss)
    if not half:
        fabric.clip_gradients(net, opt, max_norm=1.0)
        opt.step(); opt.zero_grad()
    fabric.all_reduce(loss.detach(), reduce_op="mean")
"""
)
LIGHTNING = (
    NET
    + """
import lightning
class Model(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = net
    def training_step(self, batch, i):
        loss = nn.functional.cross_entropy(self.net(batch[0]), batch[1])
        self.log("loss", loss, sync_dist=True, prog_bar=True)
        return loss
    def validation_step(self, batch, i):
        self.log("val", nn.functional.cross_entropy(self.net(batch[0]), batch[1]), sync_dist=True)
    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=1e-3)
trainer = lightning.Trainer(
    devices=int(os.environ["WORLD_SIZE"]), strategy="{0}", max_steps=4, logger=False)
trainer.fit(Model(), loader, loader)
"""
)
ACCELERATE = (
    NET
    + """
from accelerate import Accelerator
accelerator = Accelerator(gradient_accumulation_steps=2)
net, opt, loader = accelerator.prepare(net, torch.optim.AdamW(net.parameters()), loader)
for x, y in loader:
    with accelerator.accumulate(net):
        loss = nn.functional.cross_entropy(net(x), y)
        accelerator.backward(loss)
        if accelerator.sync_gradients:
            accelerator.clip_grad_norm_(net.parameters(), 1.0)
        opt.step(); opt.zero_grad()
    accelerator.print(accelerator.gather(loss.detach()).mean().item())
"""
)
TRAINER = (
    NET
    + """
from transformers import Trainer, TrainingArguments
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = net
    def forward(self, x, labels):
        out = self.net(x)
        return {{"loss": nn.functional.cross_entropy(out, labels), "logits": out}}
how = TrainingArguments(output_dir="never", per_device_train_batch_size=4, max_steps=4,
    logging_steps=1, gradient_accumulation_steps=2, eval_strategy="steps", eval_steps=2,
    report_to=[], remove_unused_columns=False)
rows = [{{"x": x, "labels": y}} for x, y in data]
Trainer(model=Model(), args=how, train_dataset=rows, eval_dataset=rows).train()
"""
)
DEEPSPEED = (
    NET
    + """
import deepspeed
engine, opt, _, _ = deepspeed.initialize(model=net, model_parameters=net.parameters(), config={{
    "train_micro_batch_size_per_gpu": 4, "gradient_accumulation_steps": 2,
    "optimizer": {{"type": "AdamW", "params": {{"lr": 1e-3, "torch_adam": True}}}},
    "bf16": {{"enabled": True}}, "zero_optimization": {{"stage": {0}}}}})
for i in range(6):
    x = torch.randn(4, 64, device=engine.device, dtype=torch.bfloat16)
    y = torch.zeros(4, dtype=torch.long, device=engine.device)
    engine.backward(nn.functional.cross_entropy(engine(x).float(), y))
    engine.step()
"""
)
REDUCED = {("all_reduce", GRADIENTS): 1}
SHARDED = {
    ("all_gather", GRADIENTS + 8): 1, ("reduce_scatter", GRADIENTS + 8): 1,
}  # fmt: skip


@pytest.mark.long
@pytest.mark.own_interpreter
@pytest.mark.parametrize(
    ("library", "script", "choices", "expected"),
    [
        ("lightning", FABRIC, ("auto", "ddp"), REDUCED),
        ("lightning", FABRIC, ("gpu", "ddp"), REDUCED),
        ("lightning", LIGHTNING, ("ddp",), REDUCED),
        ("lightning", LIGHTNING, ("fsdp",), SHARDED),
        ("accelerate", ACCELERATE, (), REDUCED),
        ("transformers", TRAINER, (), REDUCED),
        # bfloat16: ZeRO-2 and 3 reduce in each of two microbatches.
        ("deepspeed", DEEPSPEED, (1,), {"all_gather": 1, "all_reduce": 1}),
        ("deepspeed", DEEPSPEED, (2,), {"all_gather": 1, "all_reduce": 2}),
        ("deepspeed", DEEPSPEED, (3,), {"all_gather": 1, "reduce_scatter": 2}),
    ],
)
def test_libraries_send_what_they_should(
    library: str,
    script: str,
    choices: tuple[object, ...],
    expected: dict[object, int],
    tmp_path: Path,
) -> None:
    if find_spec(library) is None:
        pytest.skip(f"{library} is not installed")
    found = sent(captured(tmp_path, script.format(*choices)))
    if library != "deepspeed":
        assert found == expected
        return
    total: Counter[str] = Counter()
    for (kind, size), count in found.items():
        total[kind] += size * count
    half = GRADIENTS // 2
    assert total.keys() == expected.keys()
    for what, times in expected.items():
        assert total[str(what)] == pytest.approx(times * half, rel=2e-3)
