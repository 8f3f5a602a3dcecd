"""Fully sharded training (FSDP2): parameters are gathered layer by layer, ahead of their use.

torchrun --nproc-per-node 8 fsdp2.py      commsim capture fsdp2.py --world-size 1024 -- --model 7b
"""

from __future__ import annotations

import argparse
import os

import torch
import torch.distributed as dist
from llama import SHAPES, Llama, loss, random_tokens
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", choices=SHAPES, default="7b")
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--length", type=int, default=4096)
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--recompute", action="store_true", help="activation checkpointing")
    options = parser.parse_args()

    dist.init_process_group("nccl")
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    mesh = init_device_mesh("cuda", (dist.get_world_size(),), mesh_dim_names=("dp",))
    shape = SHAPES[options.model]
    with torch.device("meta"):
        model = Llama(shape)
    if options.recompute:
        for at, layer in enumerate(model.layers):
            model.layers[at] = checkpoint_wrapper(layer)
    precision = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    for layer in model.layers:
        fully_shard(layer, mesh=mesh, mp_policy=precision)
    fully_shard(model, mesh=mesh, mp_policy=precision)
    model.to_empty(device="cuda")
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
    for _ in range(options.steps):
        tokens = random_tokens(shape, options.batch, options.length)
        loss(model(tokens), tokens).backward()
        optimizer.step()
        optimizer.zero_grad()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
