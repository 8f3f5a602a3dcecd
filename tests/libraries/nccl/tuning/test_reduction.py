"""What a reduction and its data type leave of NCCL's algorithms."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from msgspec.structs import replace

from commsim.errors import ScenarioError
from commsim.libraries.nccl.env import Knobs
from commsim.libraries.nccl.shapes import Algorithm, Communicator, Protocol
from commsim.libraries.nccl.tuning.choose import FLOAT_SUM, Tuner
from commsim.libraries.nccl.tuning.reduction import Reduction

Make = Callable[[str], Communicator]
NVLS = (Algorithm.NVLS, Protocol.Simple)


@pytest.mark.parametrize(
    ("dtype", "redop", "able"),
    [
        ("", "", True),
        ("float32", "sum", True),
        ("float", "max", False),
        ("float32", "avg", False),
        ("bf16", "sum", True),
        ("bfloat16", "max", True),
        ("half", "avg", False),
        ("int32", "min", True),
        ("int64", "prod", False),
        ("int8", "sum", False),
        ("uint64", "sum", True),
        ("fp8", "sum", False),
        ("float64", "sum", True),
        ("float64", "min", False),
        ("bfloat16", "premul_sum", False),
        ("bfloat16", "something", False),
    ],
)
def test_what_switches_can_do(dtype: str, redop: str, able: bool, recorded: Make) -> None:
    reduction = Reduction(dtype, redop)
    assert reduction.in_switches is able
    tuner = Tuner(recorded("dgx_h100_1"))
    assert (NVLS in tuner.costs("all_reduce", reduction)) is able
    assert (NVLS in tuner.costs("reduce_scatter", reduction)) is able


def test_gathering_takes_any_type(recorded: Make) -> None:
    tuner = Tuner(recorded("dgx_h100_1"))
    assert NVLS in tuner.costs("all_gather", Reduction("int8", ""))


def test_an_average_of_a_large_buffer_runs_as_a_ring(recorded: Make) -> None:
    tuner = Tuner(recorded("dgx_h100_1"))
    assert tuner.choose("all_reduce", 1 << 30).algorithm is Algorithm.NVLS
    average = tuner.choose("all_reduce", 1 << 30, reduction=Reduction("float32", "avg"))
    assert average.algorithm is Algorithm.Ring


def test_pat_does_no_average(recorded: Make) -> None:
    comm = recorded("pcie4_sw_100g_2")
    tuner = Tuner(replace(comm, node_of=tuple(range(8)), local_ranks=(1,) * 8))
    pat = (Algorithm.PAT, Protocol.Simple)
    assert pat in tuner.costs("reduce_scatter", Reduction("float32", "max"))
    assert pat not in tuner.costs("reduce_scatter", Reduction("float32", "avg"))
    assert pat in tuner.costs("all_gather", Reduction("float32", "avg"))


def test_long_rings_of_8_bit_floats_are_shunned(recorded: Make) -> None:
    tuner = Tuner(recorded("dgx_h100_2"))
    wide = tuner.candidates("all_reduce", [1 << 30])
    narrow = tuner.candidates("all_reduce", [1 << 30], dtype_size=1, reduction=Reduction("fp8"))
    ring, tree = (Algorithm.Ring, Protocol.Simple), (Algorithm.Tree, Protocol.Simple)
    assert narrow[ring][0].selection_us == pytest.approx(1024 * wide[ring][0].selection_us)
    assert narrow[tree][0].selection_us == wide[tree][0].selection_us
    chosen = tuner.choose("all_reduce", 1 << 30, dtype_size=1, reduction=Reduction("fp8"))
    assert chosen.algorithm is Algorithm.Tree


def test_eight_ranks_may_ring_8_bit_floats(recorded: Make) -> None:
    tuner = Tuner(recorded("dgx_h100_1"))
    ring = (Algorithm.Ring, Protocol.Simple)
    assert (
        tuner.candidates("all_reduce", [1 << 30], reduction=Reduction("fp8"))[ring]
        == tuner.candidates("all_reduce", [1 << 30], reduction=FLOAT_SUM)[ring]
    )


def test_8_bit_floats_need_hopper(recorded: Make) -> None:
    tuner = Tuner(recorded("dgx_a100_1"))
    with pytest.raises(
        ScenarioError, match="8-bit floats on sm90 and later only, and this is sm80"
    ):
        tuner.choose("all_reduce", 1 << 20, reduction=Reduction("f8e4m3", "sum"))
    assert tuner.choose("all_gather", 1 << 20, reduction=Reduction("f8e4m3")).channels > 0


def test_a_list_that_asks_for_an_average_in_switches_stops(recorded: Make) -> None:
    tuner = Tuner(recorded("dgx_h100_1"), Knobs(algo="NVLS"))
    with pytest.raises(ScenarioError, match="no algorithm for all_reduce"):
        tuner.choose("all_reduce", 1 << 20, reduction=Reduction("float32", "avg"))
