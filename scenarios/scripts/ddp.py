"""Data parallel training (DDP): every rank holds the model, gradients are reduced in buckets.

torchrun --nproc-per-node 8 ddp.py        commsim capture ddp.py --world-size 64 -- --model 1b
"""

from __future__ import annotations

import argparse
import os

import torch
import torch.distributed as dist
from llama import SHAPES, Llama, loss, random_tokens
from torch.nn.parallel import DistributedDataParallel


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", choices=SHAPES, default="1b")
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--length", type=int, default=2048)
    parser.add_argument("--steps", type=int, default=10)
    options = parser.parse_args()

    dist.init_process_group("nccl")
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    shape = SHAPES[options.model]
    model = DistributedDataParallel(Llama(shape).to("cuda", torch.bfloat16))
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
    for step in range(options.steps):
        tokens = random_tokens(shape, options.batch, options.length)
        value = loss(model(tokens), tokens)
        value.backward()
        optimizer.step()
        optimizer.zero_grad()
        if step % 10 == 9 and dist.get_rank() == 0:
            print(f"step {step}: loss {value.item():.3f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
