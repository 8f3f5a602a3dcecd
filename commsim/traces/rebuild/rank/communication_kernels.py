"""
Kernels that communicate without torch.distributed: whose they are, and what they do.

One row per family of kernel names, the first that fits counts. To teach commsim another library,
add a row: a regular expression for the name, the library, and the op as people call it. Names are
those of the public sources of each library (DeepEP, vLLM, TensorRT-LLM, FlashInfer,
TransformerEngine, PyTorch's symmetric memory, NVSHMEM, MSCCL++, Triton-distributed, UCCL).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache

__all__ = ["KernelFamily", "family_of", "looks_like_communication"]


@dataclass(frozen=True, slots=True)
class KernelFamily:
    """Kernels of one `library` that do one `op`; `pattern` is searched in their names."""

    pattern: str
    library: str
    op: str


FAMILIES = (
    KernelFamily(r"get_dispatch_layout", "", ""),  # counts tokens on this GPU alone
    KernelFamily(r"(?:uccl|mscclpp::ep|mori)\b.*dispatch", "UCCL", "dispatch"),
    KernelFamily(r"(?:uccl|mscclpp::ep|mori)\b.*combine", "UCCL", "combine"),
    KernelFamily(r"deep_ep::.*(?:notify|cached)", "DeepEP", "notify"),
    KernelFamily(r"deep_ep::.*dispatch", "DeepEP", "dispatch"),
    KernelFamily(r"deep_ep::.*combine", "DeepEP", "combine"),
    KernelFamily(r"deep_ep::.*barrier", "DeepEP", "barrier"),
    KernelFamily(r"cross_device_reduce_[12]stage", "vLLM custom all-reduce", "all_reduce"),
    KernelFamily(r"quickreduce|allreduce_prototype_twoshot", "QuickReduce", "all_reduce"),
    KernelFamily(
        r"(?:one|two)ShotAllReduceKernel|allreduce_fusion_kernel|lamport_style_one_shot|"
        r"twoshot_allreduce_kernel|oneshotAllreduceFusionKernel",
        "TensorRT-LLM", "all_reduce",
    ),
    KernelFamily(r"moe_?[aA]ll.*dispatch|moeA2ADispatch", "TensorRT-LLM", "dispatch"),
    KernelFamily(r"moe_?[aA]ll.*combine|moeA2ACombine", "TensorRT-LLM", "combine"),
    KernelFamily(r"userbuffers_.*_rs", "TransformerEngine userbuffers", "reduce_scatter"),
    KernelFamily(r"userbuffers_.*_ag", "TransformerEngine userbuffers", "all_gather"),
    KernelFamily(r"userbuffers_.*sum_inplace", "TransformerEngine userbuffers", "all_reduce"),
    KernelFamily(r"kuserbuffers_pull|kuserbuffers_push", "TransformerEngine userbuffers", "copy"),
    KernelFamily(r"multimem_.*all_?reduce", "symmetric memory", "all_reduce"),
    KernelFamily(r"(?:one|two)_shot_all_reduce", "symmetric memory", "all_reduce"),
    KernelFamily(r"multimem_.*all_?gather", "symmetric memory", "all_gather"),
    KernelFamily(r"multimem_.*reduce_?scatter", "symmetric memory", "reduce_scatter"),
    KernelFamily(r"all_to_all_vdev", "symmetric memory", "all_to_all_v"),
    KernelFamily(r"multimem_", "symmetric memory", "unknown"),
    KernelFamily(r"(?:put|wait)_signal_kernel", "symmetric memory", "signal"),
    KernelFamily(r"mscclpp.*all_?reduce", "MSCCL++", "all_reduce"),
    KernelFamily(r"mscclpp.*all_?gather", "MSCCL++", "all_gather"),
    KernelFamily(r"mscclpp", "MSCCL++", "unknown"),
    KernelFamily(r"nvshmem\w*barrier|nvshmem\w*sync_", "NVSHMEM", "barrier"),
    KernelFamily(r"nvshmem|rocshmem", "NVSHMEM", "unknown"),
    KernelFamily(
        r"cp_engine_producer|ring_push|kernel_.*(?:allgather|all_gather)_(?:push|pull)",
        "Triton-distributed", "all_gather",
    ),
    KernelFamily(r"kernel_.*(?:reduce_scatter|reduce_scatter)_", "Triton-distributed",
                 "reduce_scatter"),
    KernelFamily(r"^Memcpy (?:PtoP|P2P)|CopyPeerToPeer", "copy engine", "copy"),
)  # fmt: skip
_COMPILED = tuple((re.compile(family.pattern), family) for family in FAMILIES)
_ANY = re.compile("|".join(f"(?:{family.pattern})" for family in FAMILIES))
_WORDS = re.compile(
    r"all_?reduce|all_?gather|reduce_?scatter|all_?(?:to|2)_?all|send_?recv|broadcast_kernel|"
    r"\bp2p|peer_|_peer|_ipc|shmem|symm_|multicast",
    re.I,
)


@lru_cache(maxsize=4096)
def family_of(name: str) -> KernelFamily | None:
    """Return the family of a kernel or copy by its name, None for what does not communicate."""
    if _ANY.search(name) is None:
        return None
    found = next(family for pattern, family in _COMPILED if pattern.search(name))
    return found if found.library else None


@lru_cache(maxsize=4096)
def looks_like_communication(name: str) -> bool:
    """Say whether a kernel of no known family has the words of communication in its name."""
    return _ANY.search(name) is None and _WORDS.search(name) is not None
