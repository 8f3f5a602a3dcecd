"""
Kernels that communicate: those of NCCL and RCCL by name, and those of every other library.

One row per family of kernel names, the first that fits counts. To teach commsim another library,
add a row: a regular expression for the name, the library, and the op as people call it. Names are
those of the public sources, each named above its rows; profilers write them with or without their
namespace, and JIT-compiled ones have none.
"""

from __future__ import annotations

import re
from functools import lru_cache

import msgspec

__all__ = ["KernelFamily", "family_of", "is_nccl", "looks_like_communication"]


class KernelFamily(msgspec.Struct, frozen=True):
    """Kernels of one `library` that do one `op`; `pattern` is searched in their names."""

    pattern: str
    library: str
    op: str


FAMILIES = (
    # DeepEP (deepseek-ai, csrc/kernels; NVIDIA's hybrid-ep branch) and ports of it
    KernelFamily(r"get_dispatch_layout", "", ""),  # counts tokens on this GPU alone
    KernelFamily(r"hybrid_ep::dispatch_kernel", "HybridEP", "dispatch"),
    KernelFamily(r"hybrid_ep::combine_kernel", "HybridEP", "combine"),
    KernelFamily(r"hybrid_ep::device_sync_kernel", "HybridEP", "barrier"),
    KernelFamily(r"\b(?:uccl|mscclpp::ep)\b.*dispatch", "UCCL", "dispatch"),
    KernelFamily(r"\b(?:uccl|mscclpp::ep)\b.*combine", "UCCL", "combine"),
    KernelFamily(r"\buccl::", "UCCL", "unknown"),
    KernelFamily(r"deep_ep::.*(?:notify|cached)", "DeepEP", "notify"),
    KernelFamily(r"deep_ep::.*dispatch", "DeepEP", "dispatch"),
    KernelFamily(r"deep_ep::.*combine", "DeepEP", "combine"),
    KernelFamily(r"deep_ep::.*barrier", "DeepEP", "barrier"),
    # mori (ROCm, src/ops/dispatch_combine), pplx-kernels and pplx-garden (Perplexity, a2a)
    KernelFamily(r"EpDispatch\w*Kernel", "mori", "dispatch"),
    KernelFamily(r"EpCombine\w*Kernel", "mori", "combine"),
    KernelFamily(r"a2a_dispatch_(?:send|recv)_kernel", "pplx", "dispatch"),
    KernelFamily(r"a2a_combine_(?:send|recv)_kernel", "pplx", "combine"),
    # vLLM and SGLang (csrc/custom_all_reduce.cuh, quickreduce; sgl-kernel), aiter (ROCm)
    KernelFamily(r"cross_device_reduce_[12]stage", "vLLM custom all-reduce", "all_reduce"),
    KernelFamily(r"all_reduce_(?:one|two)_shot_(?:push|pull)", "SGLang custom all-reduce",
                 "all_reduce"),
    KernelFamily(r"reduce_scatter_cross_device_store", "aiter", "reduce_scatter"),
    KernelFamily(r"quickreduce|allreduce_prototype_(?:one|two)shot", "QuickReduce", "all_reduce"),
    # TensorRT-LLM (cpp/tensorrt_llm/kernels: customAllReduceKernels, communicationKernels,
    # fusedMoeCommKernels) and FlashInfer, which has taken them over
    KernelFamily(
        r"(?:one|two)ShotAllReduceKernel|allreduce_fusion_kernel|lamport_style_one_shot|"
        r"twoshot_allreduce_kernel|(?:one|two)shotAllreduceFusionKernel",
        "TensorRT-LLM", "all_reduce",
    ),
    KernelFamily(r"moeAllToAllKernel", "TensorRT-LLM", "all_to_all_v"),
    KernelFamily(r"moeA2A\w*Dispatch", "TensorRT-LLM", "dispatch"),
    KernelFamily(r"moeA2A\w*Combine", "TensorRT-LLM", "combine"),
    # TransformerEngine (common/comm_gemm_overlap/userbuffers)
    KernelFamily(r"userbuffers_.*_rs", "TransformerEngine userbuffers", "reduce_scatter"),
    KernelFamily(r"userbuffers_.*_ag", "TransformerEngine userbuffers", "all_gather"),
    KernelFamily(r"userbuffers_.*sum_inplace", "TransformerEngine userbuffers", "all_reduce"),
    KernelFamily(r"kuserbuffers_(?:pull|push)", "TransformerEngine userbuffers", "copy"),
    # Triton-distributed (ByteDance Seed, python/triton_dist/kernels), whose names are functions'
    KernelFamily(r"kernel_dispatch_token", "Triton-distributed", "dispatch"),
    KernelFamily(r"kernel_combine_token", "Triton-distributed", "combine"),
    KernelFamily(r"all_?reduce_(?:one|two)_shot_\w*kernel", "Triton-distributed", "all_reduce"),
    KernelFamily(
        r"cp_engine_producer|ring_push|kernel_.*(?:allgather|all_gather)_(?:push|pull)",
        "Triton-distributed", "all_gather",
    ),
    KernelFamily(r"kernel_.*reduce_scatter_|kernel_ring_reduce", "Triton-distributed",
                 "reduce_scatter"),
    # PyTorch (torch/csrc/distributed/c10d/symm_mem: CUDASymmetricMemoryOps, nvshmem_extension)
    KernelFamily(r"multimem_.*all_?reduce", "symmetric memory", "all_reduce"),
    KernelFamily(r"(?:one|two)_shot_all_reduce", "symmetric memory", "all_reduce"),
    KernelFamily(r"multimem_.*all_?gather", "symmetric memory", "all_gather"),
    KernelFamily(r"multimem_.*reduce_?scatter", "symmetric memory", "reduce_scatter"),
    KernelFamily(r"all_to_all_vdev|\ballToAllV", "symmetric memory", "all_to_all_v"),
    KernelFamily(r"\bmultimem_", "symmetric memory", "unknown"),
    KernelFamily(r"(?:put|wait)_signal_kernel", "symmetric memory", "signal"),
    # XLA (stream_executor/gpu/all_reduce_kernel), apex (contrib/csrc/peer_memory)
    KernelFamily(r"stream_executor::gpu::AllReduceKernel", "XLA", "all_reduce"),
    KernelFamily(r"push_pull_halos", "apex peer memory", "copy"),
    # MSCCL++ (Microsoft, src/ext/collectives, src/core/executor)
    KernelFamily(r"mscclpp.*all_?reduce", "MSCCL++", "all_reduce"),
    KernelFamily(r"mscclpp.*all_?gather", "MSCCL++", "all_gather"),
    KernelFamily(r"mscclpp", "MSCCL++", "unknown"),
    # NVSHMEM (src/include/internal/non_abi/nvshmemi_h_to_d_coll_defs.cuh) and rocSHMEM
    KernelFamily(r"(?:barrier|sync)(?:_all)?_on_stream_kernel|nvshmem\w*(?:barrier|sync_)",
                 "NVSHMEM", "barrier"),
    KernelFamily(r"alltoall_on_stream_kernel", "NVSHMEM", "all_to_all"),
    KernelFamily(r"fcollect_on_stream_kernel", "NVSHMEM", "all_gather"),
    KernelFamily(r"broadcast_on_stream_kernel", "NVSHMEM", "broadcast"),
    KernelFamily(r"reducescatter_on_stream_kernel", "NVSHMEM", "reduce_scatter"),
    KernelFamily(r"(?:rdxn|reduce)_on_stream_kernel", "NVSHMEM", "all_reduce"),
    KernelFamily(r"nvshmem|rocshmem", "NVSHMEM", "unknown"),
    # copies between GPUs, as CUPTI (torch.profiler, nsys) and ROCm name them
    KernelFamily(r"^Memcpy (?:PtoP|P2P)|CopyPeerToPeer", "copy engine", "copy"),
)  # fmt: skip
_NCCL = re.compile(r"^(?:void )?(?:nccl\w*Kernel|ncclSym|rccl|msccl(?!pp)\w*Kernel)")
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
def is_nccl(name: str) -> bool:
    """Say whether a kernel is one of NCCL or RCCL, by its name in any release.

    `ncclDevKernel_AllReduce_Sum_f32_RING_LL` (2.19), `ncclKernel_AllReduce_RING_LL_Sum_float`,
    `ncclAllReduceRingLLKernel_sum_f32` (2.4), `ncclSymkDevKernel_AllGather_LL` (2.28, symmetric
    memory); RCCL's `ncclDevKernel_Generic_1`, and `mscclKernel_Sum_half_Simple_false`.
    """
    return _NCCL.search(name) is not None


@lru_cache(maxsize=4096)
def looks_like_communication(name: str) -> bool:
    """Say whether a kernel of no known family has the words of communication in its name."""
    return _ANY.search(name) is None and _WORDS.search(name) is not None
