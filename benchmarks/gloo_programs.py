"""
Small training programs on torch.distributed: what `record_gloo.py` records.

Each function of PROGRAMS sets a rank up and returns its training step. A layer holds its thread
for some milliseconds beside its matrix products, as work on a device would, so that a busy
machine records nearly the same as an idle one.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.pipelining import (
    PipelineStage,
    Schedule1F1B,
    ScheduleGPipe,
    ScheduleInterleaved1F1B,
)
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    RowwiseParallel,
    parallelize_module,
)

__all__ = ["PROGRAMS", "Step"]

Step = Callable[[], None]
WIDTH, ROWS, MICROBATCHES = 128, 32, 4
FORWARD, BACKWARD = 0.004, 0.008


class Held(torch.autograd.Function):
    """The identity, which takes its time in both directions."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        time.sleep(FORWARD)
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Tensor:
        time.sleep(BACKWARD)
        return grads[0]


class Block(nn.Module):
    """Two products, with time in between."""

    def __init__(self) -> None:
        super().__init__()
        self.up = nn.Linear(WIDTH, 2 * WIDTH)
        self.down = nn.Linear(2 * WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = x + self.down(torch.relu(Held.apply(self.up(x))))
        return out


def model(layers: int) -> nn.Sequential:
    """Return blocks with the same weights on every rank."""
    torch.manual_seed(0)
    return nn.Sequential(*(Block() for _ in range(layers)))


def training_step(net: nn.Module) -> Step:
    """Return forward, backward and an update of `net`."""
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-3)

    def step() -> None:
        x = torch.ones(ROWS, WIDTH)
        net(x).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()

    return step


def ddp() -> Step:
    """Data parallel: buckets of about a layer, reduced under the backward."""
    return training_step(nn.parallel.DistributedDataParallel(model(3), bucket_cap_mb=0.3))


def ddp_join() -> Step:
    """Data parallel with a batch more on every further rank: who is done shadows the others."""
    net = nn.parallel.DistributedDataParallel(model(2), bucket_cap_mb=0.3)
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-3)

    def step() -> None:
        with net.join():
            for _ in range(1 + dist.get_rank()):
                net(torch.ones(ROWS, WIDTH)).square().mean().backward()
                optimizer.step()
                optimizer.zero_grad()

    return step


def ddp_real() -> Step:
    """Data parallel without held time: wide layers, so that the products take the time."""
    torch.manual_seed(0)
    layers = [nn.Linear(512, 512) for _ in range(6)]
    net = nn.parallel.DistributedDataParallel(nn.Sequential(*layers), bucket_cap_mb=2)
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-3)

    def step() -> None:
        net(torch.ones(256, 512)).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()

    return step


def fsdp2() -> Step:
    """Fully sharded by layer."""
    mesh = init_device_mesh("cpu", (dist.get_world_size(),), mesh_dim_names=("dp",))
    net = model(2)
    for block in net:
        fully_shard(block, mesh=mesh)
    return training_step(fully_shard(net, mesh=mesh))


def tp() -> Step:
    """Tensor parallel: an all-reduce behind every block, each way."""
    mesh = init_device_mesh("cpu", (dist.get_world_size(),), mesh_dim_names=("tp",))
    net = model(2)
    for block in net:
        parallelize_module(block, mesh, {"up": ColwiseParallel(), "down": RowwiseParallel()})
    return training_step(net)


def fsdp2_tp() -> Step:
    """Fully sharded over pairs of tensor-parallel pairs."""
    mesh = init_device_mesh("cpu", (dist.get_world_size() // 2, 2), mesh_dim_names=("dp", "tp"))
    net = model(2)
    for block in net:
        parallelize_module(block, mesh["tp"], {"up": ColwiseParallel(), "down": RowwiseParallel()})
        fully_shard(block, mesh=mesh["dp"])
    return training_step(fully_shard(net, mesh=mesh["dp"]))


def pipeline(make: Callable[..., Any], chunks: int = 1) -> Step:
    """Return a step of a pipeline with `chunks` stages per rank."""
    rank, world = dist.get_rank(), dist.get_world_size()
    parts = model(world * chunks)
    stages, parameters = [], []
    for number in range(rank, world * chunks, world):
        ends = {
            "input_args": torch.empty(ROWS // MICROBATCHES, WIDTH, requires_grad=number > 0),
            "output_args": torch.empty(ROWS // MICROBATCHES, WIDTH, requires_grad=True),
        }
        device = torch.device("cpu")
        stages.append(PipelineStage(parts[number], number, world * chunks, device, **ends))
        parameters += list(parts[number].parameters())
    held = stages if chunks > 1 else stages[0]
    schedule = make(held, MICROBATCHES, loss_fn=nn.functional.mse_loss)
    optimizer = torch.optim.SGD(parameters, lr=1e-3)

    def step() -> None:
        x = torch.ones(ROWS, WIDTH)
        target = {"target": x} if rank == world - 1 else {}
        schedule.step(*((x,) if rank == 0 else ()), **target)
        optimizer.step()
        optimizer.zero_grad()

    return step


def p2p() -> Step:
    """A ring of isend and irecv, a batch both ways, and a broadcast from rank 1."""
    rank, world = dist.get_rank(), dist.get_world_size()
    after, before = (rank + 1) % world, (rank - 1) % world

    def step() -> None:
        mine, theirs = torch.ones(64, 1024), torch.empty(64, 1024)
        got, sent = dist.irecv(theirs, before), dist.isend(mine, after)
        time.sleep(0.005 * (rank + 1))
        for work in (got, sent):
            work.wait()
        forth, back = torch.empty(32, 1024), torch.empty(32, 1024)
        ops = [
            dist.P2POp(dist.isend, mine[:32], after), dist.P2POp(dist.isend, mine[:32], before),
            dist.P2POp(dist.irecv, forth, before), dist.P2POp(dist.irecv, back, after),
        ]  # fmt: skip
        for work in dist.batch_isend_irecv(ops):
            work.wait()
        time.sleep(0.01)
        dist.broadcast(mine, src=1)
        halves = torch.empty_like(mine)
        dist.all_to_all_single(halves, theirs)
        time.sleep(0.005)
        dist.all_reduce(halves)

    return step


PROGRAMS: dict[str, Callable[[], Step]] = {
    "ddp": ddp,
    "ddp-join": ddp_join,
    "ddp-real": ddp_real,
    "fsdp2": fsdp2,
    "tp": tp,
    "fsdp2-tp": fsdp2_tp,
    "gpipe": lambda: pipeline(ScheduleGPipe),
    "1f1b": lambda: pipeline(Schedule1F1B),
    "interleaved": lambda: pipeline(ScheduleInterleaved1F1B, chunks=2),
    "p2p": p2p,
}
