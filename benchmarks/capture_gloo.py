"""
Run a program of `gloo_programs` as a script: what `commsim capture` is compared with recordings on.

    commsim capture benchmarks/capture_gloo.py --world-size 4 -- fsdp2-tp
"""

from __future__ import annotations

import sys

import torch.distributed as dist
from gloo_programs import PROGRAMS


def main() -> None:
    """Run as many steps as a capture needs; a program without an optimizer once."""
    dist.init_process_group("gloo")
    step = PROGRAMS[sys.argv[1]]()
    for _ in range(1 if sys.argv[1] == "p2p" else 3):
        dist.barrier()
        step()


if __name__ == "__main__":
    main()
