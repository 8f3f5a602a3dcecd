"""Groups that no file names: inferred from streams, order and times; and kernels of others."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

import pytest
from helpers.captured import DATA
from helpers.counting import python_calls
from helpers.kineto_writer import Recording
from helpers.optional import present

from commsim.graph import OpKind
from commsim.metrics import measure
from commsim.study.replay import replay
from commsim.traces import Trace, load_trace
from commsim.traces.rebuild.communicators import _fit, inferred_groups
from commsim.traces.rebuild.rank import CollectiveCall
from commsim.traces.rebuild.rank.communication_kernels import family_of, looks_like_communication


def rows(trace: Trace) -> list[tuple[object, ...]]:
    return [(r.op, r.ranks, r.size, r.transfer, r.last_arriver) for r in trace.collectives]


@pytest.mark.parametrize("run", ["fsdp2-tp-4", "fsdp2-4", "tp-2"])
def test_subgroups_of_gloo_are_found_without_a_flight_recorder(run: str, tmp_path: Path) -> None:
    """Every row, its ranks, its transfer and who came last, as with the dumps."""
    for file in (DATA / "gloo_runs" / run).glob("rank?.json.gz"):
        shutil.copy(file, tmp_path)
    assert rows(load_trace(tmp_path)) == rows(load_trace(DATA / "gloo_runs" / run))


@pytest.mark.parametrize(("cut", "group"), [(False, "two"), (True, "all")])
def test_a_group_with_a_member_that_made_no_such_call_is_tried_last(cut: bool, group: str) -> None:
    """Ranks 0 and 1 reduce, rank 2 never does: it is in "all", unless its file ends too early."""
    listed = {"all": (0, 1, 2), "two": (0, 1)}
    calls = {
        rank: [(0, CollectiveCall(rank, "all_reduce", 0, 10, 20, 5, size=64, library="gloo"))]
        for rank in (0, 1)
    }
    found = inferred_groups(
        {**calls, 2: []},
        {0: listed, 1: listed, 2: {"all": (0, 1, 2)}},
        dict.fromkeys(range(3), 0),
        (0, 1, 2),
        {0, 1} if cut else {0, 1, 2},
    )
    assert {name: set(of) for (_, name), of in found.items()} == {group: {0, 1}}


def test_streams_that_overlap_are_communicators_of_their_own(shared_data: Path) -> None:
    """Rank 0 of 16 A100, three NCCL streams: the union of the recording, not 189 ms of waits."""
    found = replay(shared_data / "traces_2/dev_hta_a100_rank0of16")
    assert {row.group for row in present(found.trace).collectives} >= {"stream 84", "stream 285"}
    for times in (present(found.measured).breakdown, found.result.metrics.breakdown):
        assert times.exposed_transfer_s == pytest.approx(30.58e-3, abs=5e-6)
        assert times.comm_s == pytest.approx(31.08e-3, abs=5e-6)
        assert times.compute_s == pytest.approx(35.72e-3, abs=5e-6)


def test_two_ranks_of_many_share_only_what_agrees(shared_data: Path) -> None:
    """Ranks 0 and 1 of 128: 16 of 20 kernels are of groups that the other is not in."""
    found = replay(shared_data / "traces_2/dev_hta_pair_of_128")
    alone = [row for row in present(found.trace).collectives if len(row.waits) == 1]
    assert len(alone) == 16
    assert all(abs(rank["step_time"]) < 1e-3 for rank in found.result.extra["error"]["ranks"])


def nccl(record: Recording, stream: int, at: float, dur: float, op: str = "AllReduce") -> None:
    name = f"ncclKernel_{op}_RING_LL_Sum_float(ncclWorkElem)"
    record.kernel(name, at - 20, at, dur, stream=stream)


def test_calls_that_never_end_together_are_of_different_groups(tmp_path: Path) -> None:
    """Both ranks run three all-reduces; their ends differ by 0, 300 and 900 ms."""
    for rank, steps in ((0, (1e5, 2e5, 3e5)), (1, (1e5, 5e5, 12e5))):
        record = Recording(rank, world=4)
        record.note("ProfilerStep#1", 0, 2e6)
        for at in steps:
            nccl(record, 20, at, 100)
        record.save(tmp_path)
    found = load_trace(tmp_path).collectives
    assert len(found) == 6
    assert all(len(row.waits) == 1 for row in found)


@pytest.mark.parametrize(
    ("name", "library", "op"),
    [
        ("void deep_ep::internode::dispatch<false, 4, true>(int4*, float*)", "DeepEP", "dispatch"),
        ("void deep_ep::internode::combine<4, __nv_bfloat16>(int4*)", "DeepEP", "combine"),
        ("void deep_ep::internode::notify_dispatch<false, 4>(int const*)", "DeepEP", "notify"),
        ("void uccl::internode::dispatch<false, 2>(int4*)", "UCCL", "dispatch"),
        ("void vllm::cross_device_reduce_2stage<nv_bfloat16, 8>(vllm::RankData*)",
         "vLLM custom all-reduce", "all_reduce"),
        ("void flashinfer::trtllm_allreduce_fusion::allreduce_fusion_kernel_oneshot_lamport<1>()",
         "TensorRT-LLM", "all_reduce"),
        ("void c10d::symmetric_memory::multimem_all_reduce_kernel<c10::BFloat16, 16>(c10::BF*)",
         "symmetric memory", "all_reduce"),
        ("userbuffers_fp16_sum_inplace_gpu_rr_rs_oop(int, int)",
         "TransformerEngine userbuffers", "reduce_scatter"),
        ("Memcpy PtoP (Device -> Device)", "copy engine", "copy"),
        ("void hybrid_ep::dispatch_kernel<4>(hybrid_ep::dispatch_kernel_param_t)", "HybridEP",
         "dispatch"),
        ("EpDispatchIntraNodeKernel_bf16", "mori", "dispatch"),
        ("void mori::moe::EpCombineIntraNodeKernel<hip_bfloat16>()", "mori", "combine"),
        ("void a2a_combine_recv_kernel<true, 16>(unsigned long)", "pplx", "combine"),
        ("void all_reduce_one_shot_push_kernel<__nv_bfloat16, 4u, true>()",
         "SGLang custom all-reduce", "all_reduce"),
        ("void aiter::cross_device_reduce_2stage<bf16,8,false>()", "vLLM custom all-reduce",
         "all_reduce"),
        ("void aiter::reduce_scatter_cross_device_store<bf16,8>()", "aiter", "reduce_scatter"),
        ("void tensorrt_llm::kernels::moeAllToAllKernel<true>()", "TensorRT-LLM", "all_to_all_v"),
        ("tensorrt_llm::kernels::moe_comm::moeA2APrepareDispatchKernel(int*)", "TensorRT-LLM",
         "dispatch"),
        ("void flashinfer::trtllm_mnnvl_allreduce::oneshotAllreduceFusionKernel<8>()",
         "TensorRT-LLM", "all_reduce"),
        ("kernel_dispatch_token_intra_node", "Triton-distributed", "dispatch"),
        ("allreduce_two_shot_multimem_intra_node_kernel", "Triton-distributed", "all_reduce"),
        ("kernel_ring_reduce_non_tma", "Triton-distributed", "reduce_scatter"),
        ("void (anonymous namespace)::two_shot_all_reduce_kernel_inplace<c10::BFloat16, 16, 2>()",
         "symmetric memory", "all_reduce"),
        ("allToAllV_2d(void*, void*, long*)", "symmetric memory", "all_to_all_v"),
        ("void stream_executor::gpu::AllReduceKernelImpl<float>()", "XLA", "all_reduce"),
        ("void mscclpp::collective::allreduceAllPairs<(Op)0, float>()", "MSCCL++", "all_reduce"),
        ("void mscclpp::executionKernel<float>(int)", "MSCCL++", "unknown"),
        ("void barrier_on_stream_kernel_threadgroup<(threadgroup_t)1>(int, int)", "NVSHMEM",
         "barrier"),
        ("void fcollect_on_stream_kernel<float>(int)", "NVSHMEM", "all_gather"),
    ],
)  # fmt: skip
def test_kernels_of_other_libraries_are_known(name: str, library: str, op: str) -> None:
    family = family_of(name)
    assert family is not None
    assert (family.library, family.op) == (library, op)


@pytest.mark.parametrize(
    "name",
    ["void deep_ep::get_dispatch_layout<256>(long const*)", "volta_sgemm_128x64_nn",
     "Memcpy DtoH (Device -> Pageable)", "void at::native::vectorized_elementwise_kernel<4>()",
     "void cub::DeviceReduceKernel<float>()", "triton_red_fused__to_copy_add_mean_2",
     "void at::native::multi_tensor_apply_kernel<>()", "kernel_attention_dispatch"],
)  # fmt: skip
def test_compute_is_not_taken_for_communication(name: str) -> None:
    assert family_of(name) is None
    assert not looks_like_communication(name)


@pytest.mark.parametrize(
    ("name", "op"),
    [
        ("ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)", "all_reduce"),
        ("ncclKernel_AllGather_RING_LL_Sum_int8_t(ncclWorkElem)", "all_gather"),
        ("void ncclAllReduceRingLLKernel_sum_f32(ncclColl)", "all_reduce"),
        ("ncclSymkDevKernel_ReduceScatter_LL_sum_f8e4m3(ncclSymkDevWorkArgs4K)", "reduce_scatter"),
        ("ncclDevKernel_Generic_1(ncclDevKernelArgsStorage<4096ul>)", "unknown"),
        ("mscclKernel_Sum_half_Simple_false(ncclDevComm*, mscclAlgo*)", "unknown"),
    ],
)
def test_kernels_of_every_release_of_nccl_and_rccl(tmp_path: Path, name: str, op: str) -> None:
    record = Recording(0)
    record.note("ProfilerStep#1", 0, 1000)
    record.kernel(name, 20, 130, 400, stream=30)
    record.save(tmp_path)
    assert [(row.op, row.transfer) for row in load_trace(tmp_path).collectives] == [(op, 4 * 10**8)]


def strange(rank: int, folder: Path, spans: Sequence[tuple[float, float]], name: str) -> None:
    record = Recording(rank)
    record.note("ProfilerStep#1", 0, 5000)
    for start, end in spans:
        record.kernel(name, start - 20, start, end - start)
    record.save(folder)


def test_an_unknown_kernel_that_waits_for_the_other_rank_is_suspicious(tmp_path: Path) -> None:
    """Ranks come up to 150 us apart and leave together, by clocks that are 40 s apart."""
    late = [0, 80, 150, 20, 110, 60]
    ends = [500 + 600 * at for at in range(6)]
    for rank in (0, 1):
        clock = 4e7 * rank
        spans = [
            (clock + end - 40 - (shift if rank == 0 else 0), clock + end + rank)
            for shift, end in zip(late, ends, strict=True)
        ]
        strange(rank, tmp_path, spans, "_Z9mystery_kPf")
    (note,) = [n for n in load_trace(tmp_path).notes if "_Z9mystery_kPf" in n]
    assert "the 6 kernels" in note
    assert "end together on ranks 0, 1 and begin up to" in note


@pytest.mark.parametrize("what", ["uneven alike", "uneven apart", "even"])
def test_compute_is_not_suspicious(tmp_path: Path, what: str) -> None:
    """Shapes that differ take other times on both ranks alike; data may move both ends."""
    lengths = [40, 300, 80, 200, 60, 120]
    for rank in (0, 1):
        spans = []
        for at, length in enumerate(lengths):
            start = 100 + 600 * at + (rank * 37 * (at % 3) if what == "uneven alike" else 0)
            other = lengths[(at + 2) % 6] if what == "uneven apart" and rank else length
            spans.append((start, start + (100 if what == "even" else other)))
        strange(rank, tmp_path, spans, "_Z9mystery_kPf")
    assert not any("mystery" in note for note in load_trace(tmp_path).notes)


def test_a_dispatch_of_deepep_is_communication_and_not_compute(tmp_path: Path) -> None:
    record = Recording(0, world=2)
    record.note("ProfilerStep#1", 0, 1000)
    record.kernel("volta_sgemm", 10, 20, 100)
    record.kernel("void deep_ep::internode::dispatch<false, 4>(int4*)", 20, 130, 400, stream=30)
    record.kernel("my_allreduce_kernel", 30, 600, 50)
    record.save(tmp_path)
    trace = load_trace(tmp_path)
    times = measure(trace.timeline()).breakdown
    assert times.exposed_transfer_s == pytest.approx(400e-6)
    assert times.compute_s == pytest.approx(150e-6)
    assert [(row.op, row.group) for row in trace.collectives] == [("dispatch", "DeepEP")]
    assert any("my_allreduce_kernel" in note for note in trace.notes)
    assert OpKind.COLLECTIVE in trace.graph().kind


def gloo_calls(*spans: tuple[int, int]) -> list[tuple[int, CollectiveCall]]:
    """Return all-reduces of some (start, end)."""
    return [
        (at, CollectiveCall(0, "all_reduce", 0, start, end, 5, size=64, library="gloo"))
        for at, (start, end) in enumerate(spans)
    ]


@pytest.mark.parametrize(
    ("calls", "fit"),
    [
        ({0: gloo_calls((0, 10)), 1: gloo_calls((5, 12))}, (0.0, 2)),
        ({0: gloo_calls((0, 10), (20, 30)), 1: gloo_calls((5, 12), (31, 40))}, (0.5, 2)),
        ({0: gloo_calls((0, 10), (20, 30)), 1: gloo_calls((5, 12))}, (1.0, 0)),  # one made more
        ({0: gloo_calls((0, 10))}, (1.0, 0)),  # nobody to make it with
        ({0: gloo_calls((0, 10)), 1: gloo_calls((5, 12)), 2: gloo_calls((5, 17))}, (0.0, 7)),
    ],
)
def test_how_well_calls_are_of_one_group(
    calls: dict[int, list[tuple[int, CollectiveCall]]], fit: tuple[float, int]
) -> None:
    """Nobody leaves before another came; the ends of those that can be one lie close together."""
    assert _fit(((0, 1, 2), "g"), calls, dict.fromkeys(range(3), 0)) == fit


def test_one_communicator_of_many_ranks_is_found_rank_by_rank() -> None:
    """Twice the ranks are twice the work."""

    def found(ranks: int) -> None:
        calls = {
            rank: [(0, CollectiveCall(rank, "all_reduce", 0, 10, 20, 5, size=64, library="gloo"))]
            for rank in range(ranks)
        }
        world, zeros = tuple(range(ranks)), dict.fromkeys(range(ranks), 0)
        ((key, of),) = inferred_groups(calls, {}, zeros, world).items()
        assert key == (world, "world")
        assert len(of) == ranks

    few = python_calls(lambda: found(100))
    assert python_calls(lambda: found(200)) <= 2.1 * few
