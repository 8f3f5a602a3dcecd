"""Random libraries as few set them: variables of NCCL, old releases, forced algorithms, pieces."""

from __future__ import annotations

import random
from typing import Any

__all__ = ["rare_library"]

Data = dict[str, Any]

RELEASES = (
    "2.4.8", "2.7.8", "2.10.3", "2.12.12", "2.16.5", "2.20.5", "2.22.3", "2.25.1", "2.26.2",
    "2.28.3", "2.29.2",
)  # fmt: skip
VARIABLES: dict[str, tuple[int | str, ...]] = {
    "NCCL_ALGO": ("Ring", "Ring,Tree", "^Tree"),
    "NCCL_PROTO": ("LL,Simple", "^LL128", "Simple"),
    "NCCL_P2P_DISABLE": (1,),
    "NCCL_SHM_DISABLE": (1,),
    "NCCL_PXN_DISABLE": (1,),
    "NCCL_MIN_NCHANNELS": (1, 8, 32),
    "NCCL_MAX_NCHANNELS": (1, 2, 5),
    "NCCL_BUFFSIZE": (65536, 16777216),
    "NCCL_LL_BUFFSIZE": (16384,),
    "NCCL_NTHREADS": (64, 512),
    "NCCL_THREAD_THRESHOLDS": ("8 8 64 1 1 1",),
    "NCCL_CROSS_NIC": (0, 1),
    "NCCL_NETDEVS_POLICY": ("ALL", "MAX:1"),
    "NCCL_IB_MERGE_NICS": (0,),
    "NCCL_NET_GDR_LEVEL": ("LOC", "SYS"),
    "NCCL_P2P_LEVEL": ("LOC", "NVL", "SYS"),
    "NCCL_MNNVL_ENABLE": (0,),
    "NCCL_NVLS_ENABLE": (0,),
    "NCCL_NVLS_NCHANNELS": (4,),
    "NCCL_COLLNET_ENABLE": (1,),
    "NCCL_COLLNET_NODE_THRESHOLD": (1,),
    "NCCL_PAT_ENABLE": (0, 1),
    "NCCL_MIN_P2P_NCHANNELS": (8,),
    "NCCL_MAX_P2P_NCHANNELS": (1, 4),
    "NCCL_NCHANNELS_PER_NET_PEER": (1, 4),
    "NCCL_P2P_NET_CHUNKSIZE": (16384,),
    "NCCL_P2P_LL_THRESHOLD": (0,),
}
FORCED = ("Ring", "Tree", "CollnetDirect", "CollnetChain", "NVLS", "NVLSTree", "PAT")
IDEAL = (
    "bcube", "binomial", "bruck", "direct", "dissemination", "double_tree", "halving_doubling",
    "hierarchical", "pairwise", "ring", "ring_chunked", "server", "sharp", "torus", "tree",
)  # fmt: skip


def rare_library(rng: random.Random) -> Data:
    """Return a library with settings that are rarely given."""
    draw = rng.random()
    if draw < 0.55:
        return _nccl(rng)
    if draw < 0.85:
        return _ideal(rng)
    made: Data = {"name": "gloo"}
    if rng.random() < 0.3:
        made["interface"] = 0
    if rng.random() < 0.3:
        made["algo"] = rng.choice(("ring", "bcube", "ring_chunked"))
    return made


def _nccl(rng: random.Random) -> Data:
    made: Data = {"name": "nccl"}
    if rng.random() < 0.5:
        made["version"] = rng.choice(RELEASES)
    if rng.random() < 0.6:
        names = rng.sample(sorted(VARIABLES), rng.randint(1, 3))
        made["env"] = {name: rng.choice(VARIABLES[name]) for name in names}
    env = made.get("env", {})
    if rng.random() < 0.15 and "NCCL_ALGO" not in env:
        made["algo"] = rng.choice(FORCED)
    if rng.random() < 0.15 and "NCCL_PROTO" not in env:
        made["proto"] = rng.choice(("LL", "LL128", "Simple"))
    if rng.random() < 0.1:
        made["launch"] = "process"
    return made


def _ideal(rng: random.Random) -> Data:
    made: Data = {"name": "ideal"}
    if rng.random() < 0.7:
        made["algo"] = rng.choice(IDEAL)
    if rng.random() < 0.4:
        made["channels"] = rng.randint(1, 5)
    if rng.random() < 0.3:
        made["pieces"] = rng.randint(1, 9)
    return made
