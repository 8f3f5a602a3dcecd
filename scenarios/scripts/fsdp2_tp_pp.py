"""Three kinds of parallelism: a 1F1B pipeline of stages that are tensor parallel and fully sharded.

torchrun --nproc-per-node 8 fsdp2_tp_pp.py --model tiny --tp 2 --pp 2
commsim capture fsdp2_tp_pp.py --world-size 1024 -- --model 70b --tp 8 --pp 8
"""

from __future__ import annotations

import argparse
import os

import torch
import torch.distributed as dist
from llama import SHAPES, Block, Llama, Shape, loss, random_tokens
from torch import Tensor
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.pipelining import PipelineStage, Schedule1F1B
from torch.distributed.tensor import Replicate, Shard
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    PrepareModuleInput,
    RowwiseParallel,
    SequenceParallel,
    parallelize_module,
)


def split_tensors(model: Llama, mesh: DeviceMesh) -> None:
    """Split every layer over the ranks of a mesh; between layers they share the sequence."""
    gather = {"input_layouts": (Shard(1),), "desired_input_layouts": (Replicate(),)}
    for layer in model.layers:
        assert isinstance(layer, Block)
        plan = {
            "attention_norm": SequenceParallel(),
            "attention": PrepareModuleInput(**gather),
            "attention.wq": ColwiseParallel(),
            "attention.wk": ColwiseParallel(),
            "attention.wv": ColwiseParallel(),
            "attention.wo": RowwiseParallel(output_layouts=Shard(1)),
            "mlp_norm": SequenceParallel(),
            "mlp": PrepareModuleInput(**gather),
            "mlp.w1": ColwiseParallel(),
            "mlp.w3": ColwiseParallel(),
            "mlp.w2": RowwiseParallel(output_layouts=Shard(1)),
        }
        parallelize_module(layer, mesh, plan)
    ends = {}
    if model.embedding is not None:
        ends["embedding"] = RowwiseParallel(input_layouts=Replicate(), output_layouts=Shard(1))
    if model.head is not None:
        ends["norm"] = SequenceParallel()
        ends["head"] = ColwiseParallel(input_layouts=Shard(1), output_layouts=Replicate())
    if ends:
        parallelize_module(model, mesh, ends)


def ends_of(shape: Shape, options: argparse.Namespace, first: bool, last: bool) -> list[Tensor]:
    """Return what goes into a stage and what comes out, per microbatch, on the meta device."""
    length = options.length // options.tp
    hidden = torch.empty(
        options.batch, length, shape.hidden, dtype=torch.bfloat16, device="meta", requires_grad=True
    )
    tokens = torch.empty(options.batch, options.length, dtype=torch.long, device="meta")
    logits = torch.empty(
        options.batch, options.length, shape.vocab, dtype=torch.bfloat16, device="meta",
        requires_grad=True,
    )  # fmt: skip
    return [tokens if first else hidden, logits if last else hidden]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", choices=SHAPES, default="7b")
    parser.add_argument("--tp", type=int, default=2)
    parser.add_argument("--pp", type=int, default=2)
    parser.add_argument("--batch", type=int, default=1, help="of one microbatch")
    parser.add_argument("--microbatches", type=int, default=8)
    parser.add_argument("--length", type=int, default=4096)
    parser.add_argument("--steps", type=int, default=10)
    options = parser.parse_args()

    dist.init_process_group("nccl")
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    dp = dist.get_world_size() // (options.tp * options.pp)
    mesh = init_device_mesh("cuda", (options.pp, dp, options.tp), mesh_dim_names=("pp", "dp", "tp"))
    shape = SHAPES[options.model]
    stage = mesh["pp"].get_local_rank()
    first, last = stage == 0, stage == options.pp - 1
    with torch.device("meta"):
        model = Llama(shape, shape.layers // options.pp, first=first, last=last)
    split_tensors(model, mesh["tp"])
    precision = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    keep = {"mesh": mesh["dp"], "mp_policy": precision, "reshard_after_forward": False}
    for layer in model.layers:
        fully_shard(layer, **keep)
    fully_shard(model, **keep)
    model.to_empty(device="cuda")

    inputs, outputs = ends_of(shape, options, first, last)
    part = PipelineStage(
        model, stage, options.pp, torch.device("cuda"), group=mesh["pp"].get_group(),
        input_args=(inputs,), output_args=(outputs,),
    )  # fmt: skip
    schedule = Schedule1F1B(part, options.microbatches, loss_fn=loss)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
    for _ in range(options.steps):
        tokens = random_tokens(shape, options.batch * options.microbatches, options.length)
        schedule.step(*((tokens,) if first else ()), **({"target": tokens} if last else {}))
        optimizer.step()
        optimizer.zero_grad()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
