"""Times of captured ops: what each kind of op takes on a GPU, in closed form."""

from __future__ import annotations

from types import MappingProxyType

import pytest
from msgspec.structs import replace

from commsim.cluster import Cluster
from commsim.cluster.nodes.gpus import gpu_spec
from commsim.errors import ScenarioError
from commsim.graph import Graph, GraphBuilder
from commsim.models.constants import gpu_constants
from commsim.models.fused_attention import fused_share
from commsim.models.matmul import Machine, Matmul, matmul_seconds
from commsim.models.roofline import OpShape, op_seconds, precision_of, resolve_durations

H100 = gpu_spec("H100-SXM5-80GB")
CONSTANTS = gpu_constants(H100)
LAUNCH = CONSTANTS.launch_us * 1e-6


def test_bytes_at_the_memory_bandwidth() -> None:
    seconds = op_seconds(H100, None, flops=0.0, traffic=3e9)
    bandwidth = H100.memory_bandwidth * CONSTANTS.memory_efficiency
    assert seconds == pytest.approx(3e9 / bandwidth + LAUNCH)


def test_op_without_bytes_is_a_launch() -> None:
    assert op_seconds(H100, None, flops=0.0, traffic=0.0) == pytest.approx(LAUNCH)


def test_product_by_its_shape() -> None:
    shape = OpShape("matmul", 4096, 11008, 4096, 1, "bfloat16")
    flops = 2.0 * 4096 * 11008 * 4096
    machine = Machine(989e12, H100.memory_bandwidth, H100.sm_count, CONSTANTS)
    expected = matmul_seconds(
        Matmul(4096, 11008, 4096), machine, efficiency=CONSTANTS.matmul_efficiency
    )
    seconds = op_seconds(H100, shape, flops=flops, traffic=1e6)
    assert seconds == pytest.approx(expected + LAUNCH)
    assert 0.5 < flops / 989e12 / seconds < 0.8  # of the peak


def test_fp8_product_ramps_over_twice_the_k() -> None:
    shape, flops = OpShape("matmul", 4096, 4096, 512, 1, "float8_e4m3fn"), 2.0 * 4096**2 * 512
    machine = Machine(1979e12, H100.memory_bandwidth, H100.sm_count, CONSTANTS, ramp=1979 / 989)
    expected = matmul_seconds(
        Matmul(4096, 4096, 512), machine, efficiency=CONSTANTS.fp8_efficiency, width=1
    )
    seconds = op_seconds(H100, shape, flops=flops, traffic=1e6)
    assert seconds == pytest.approx(expected + LAUNCH)


def test_narrow_product_takes_its_bytes() -> None:
    shape = OpShape("matmul", 1, 11008, 4096, 1, "bfloat16")
    bandwidth = H100.memory_bandwidth * CONSTANTS.memory_efficiency
    seconds = op_seconds(H100, shape, flops=2.0 * 11008 * 4096, traffic=2e8)
    assert seconds == pytest.approx(2e8 / bandwidth + LAUNCH)


@pytest.mark.parametrize(
    ("dtype", "precision"), [("float32", "fp32"), ("tf32", "tf32"), ("float16", "fp16")]
)
def test_precision_of_the_product_decides(dtype: str, precision: str) -> None:
    shape = OpShape("other", 0, 0, 0, 0, dtype)
    rate = H100.tflops[precision] * 1e12 * CONSTANTS.matmul_efficiency
    assert op_seconds(H100, shape, flops=1e12, traffic=0.0) == pytest.approx(1e12 / rate + LAUNCH)


def test_attention_under_a_causal_mask_skips_half() -> None:
    full = OpShape("attention", 4096, 4096, 128, 32, "bfloat16")
    causal = replace(full, causal=True)
    times = [op_seconds(H100, s, flops=1e12, traffic=0.0) - LAUNCH for s in (full, causal)]
    kernel, waits = CONSTANTS.flash.cudnn.forward, 128 * 132 / (32 * 4096)
    late = (1 + kernel.half_keys / 4096) * (1 + kernel.tail * waits)
    assert times[0] == pytest.approx(1e12 * late / (989e12 * kernel.share))
    later = (1 + 2 * kernel.tail * waits) / (1 + kernel.tail * waits)  # a tile of twice the mean
    assert times[1] == pytest.approx(times[0] / 2 * later)


def test_attention_over_few_keys_takes_its_bytes() -> None:
    shape = OpShape("attention", 1, 4096, 128, 32, "bfloat16")
    bandwidth = H100.memory_bandwidth * CONSTANTS.memory_efficiency
    seconds = op_seconds(H100, shape, flops=1e6, traffic=3e9)
    assert seconds == pytest.approx(3e9 / bandwidth + LAUNCH)


def test_batched_products_reach_less() -> None:
    flops = 2.0 * 8 * 2048**3
    one = OpShape("matmul", 8 * 2048, 2048, 2048, 1, "bfloat16")
    many = OpShape("matmul", 2048, 2048, 2048, 8, "bfloat16")
    single, batched = (op_seconds(H100, s, flops=flops, traffic=0.0) - LAUNCH for s in (one, many))
    ratio = CONSTANTS.matmul_efficiency / CONSTANTS.batched_efficiency
    assert batched == pytest.approx(single * ratio)


def test_attention_backward_and_narrow_heads() -> None:
    backward = OpShape("attention_backward", 4096, 4096, 64, 32, "bfloat16")
    kernel = CONSTANTS.flash.cudnn.backward
    late = (1 + kernel.half_keys / 4096) * (1 + kernel.tail * 128 * 132 / (32 * 4096))
    rate = 989e12 * kernel.share * kernel.narrow / late
    seconds = op_seconds(H100, backward, flops=1e12, traffic=0.0)
    assert seconds == pytest.approx(1e12 / rate + LAUNCH)


@pytest.mark.parametrize(
    ("gpu", "width", "dtype", "kernel"),
    [
        ("H100-SXM5-80GB", 128, "bfloat16", "cudnn"),
        ("H100-SXM5-80GB", 256, "bfloat16", "fa2"),
        ("H100-SXM5-80GB", 128, "tf32", "fa2"),
        ("A100-SXM4-80GB", 128, "float16", "fa2"),
    ],
)
def test_attention_is_the_kernel_that_torch_takes(
    gpu: str, width: int, dtype: str, kernel: str
) -> None:
    """cuDNN's on Hopper, for heads of up to 128 in 16 bits."""
    spec = gpu_spec(gpu)
    constants = gpu_constants(spec)
    share = fused_share(
        getattr(constants.flash, kernel).forward,
        width=width,
        keys=4096,
        rows=32 * 4096,
        sms=spec.sm_count,
        causal=False,
    )
    rate = spec.tflops[precision_of(dtype)] * 1e12 * share
    seconds = op_seconds(
        spec, OpShape("attention", 4096, 4096, width, 32, dtype), flops=1e12, traffic=0.0
    )
    assert seconds == pytest.approx(1e12 / rate + constants.launch_us * 1e-6)


def test_each_kernel_of_an_op_is_launched() -> None:
    one, many = (op_seconds(H100, None, flops=0.0, traffic=3e9, launches=n) for n in (1, 58))
    assert many - one == pytest.approx(57 * LAUNCH)


def graph(
    *, rank: int = 0, kind: str = "other", dtype: str = "bfloat16", flops: float = 1e12
) -> Graph:
    build = GraphBuilder()
    lane = build.lane(rank)
    build.compute(lane, 5, name="timed", flops=1e15)
    build.compute(lane, -1, name="mm", flops=flops, traffic=0.0)
    build.compute(lane, -1, name="add", flops=0.0, traffic=3e9)
    product = [kind, 0, 0, 0, 0, dtype, False]
    return build.build(MappingProxyType({"capture": {"products": {"mm": product}}}))


def test_only_what_has_no_duration_gets_one() -> None:
    cluster = Cluster.preset("dgx-h100", nodes=1)
    timed, product, added = resolve_durations(graph(), cluster).duration.tolist()
    gpu = cluster.gpu(0)
    assert timed == 5
    shape = OpShape("other", 0, 0, 0, 0, "bfloat16")
    assert product == round(1e12 * op_seconds(gpu, shape, flops=1e12, traffic=0.0))
    assert added == round(1e12 * op_seconds(gpu, None, flops=0.0, traffic=3e9))


def test_ops_of_one_name_have_times_of_their_own() -> None:
    build = GraphBuilder()
    lane = build.lane(0)
    for traffic in (3e9, 6e9):
        build.compute(lane, -1, name="add", flops=0.0, traffic=traffic)
    timed = resolve_durations(build.build(), Cluster.preset("dgx-h100", nodes=1)).duration
    assert timed[1] > 1.9 * timed[0]


def test_slower_gpu_takes_longer() -> None:
    fast = resolve_durations(graph(), Cluster.preset("dgx-h100", nodes=1)).duration
    slow = resolve_durations(graph(), Cluster.preset("dgx-a100", nodes=1)).duration
    assert (slow[1:] > fast[1:]).all()


def test_rank_that_is_not_there() -> None:
    with pytest.raises(ScenarioError, match="rank 8, the cluster has 8 GPUs"):
        resolve_durations(graph(rank=8), Cluster.preset("dgx-h100", nodes=1))


def test_precision_that_the_gpu_has_not() -> None:
    with pytest.raises(ScenarioError, match="multiplies in float64"):
        resolve_durations(graph(dtype="float64"), Cluster.preset("dgx-h100", nodes=1))


@pytest.mark.parametrize("kind", ["matmul", "attention", "attention_backward"])
def test_flops_of_a_product_without_a_shape(kind: str) -> None:
    cluster = Cluster.preset("dgx-h100", nodes=1)
    with pytest.raises(ScenarioError, match="'mm' has FLOPs, but a length of its product is 0"):
        resolve_durations(graph(kind=kind), cluster)
    assert resolve_durations(graph(kind=kind, flops=0.0), cluster).duration.min() > 0


def test_time_that_no_clock_holds_names_the_op() -> None:
    with pytest.raises(ScenarioError, match="graph: compute 'mm'.*longer than commsim can hold"):
        resolve_durations(graph(flops=1e30), Cluster.preset("dgx-h100", nodes=1))


def test_gpu_of_unknown_speed_is_told_what_helps() -> None:
    """A captured graph has no section `compute` to give an efficiency in."""
    with pytest.raises(ScenarioError, match="cpu computes is not known here. Take a cluster of"):
        resolve_durations(graph(), Cluster.preset("cpu-ethernet", nodes=1))
