"""
The vocabulary of communication: collectives, reduce ops and element types, by all their names.

One name for each thing is ours (torch's, in snake case); `op_of`, `reduce_op_of` and
`element_type` find it from what torch, NCCL, nccl-tests, PARAM, Chakra or a scenario calls it.

n  members          S  the op's size in bytes, as nccl-tests counts it (its PERFORMANCE.md):
all_reduce, broadcast, reduce: the buffer; all_gather: what a rank ends with; reduce_scatter,
all_to_all: what a rank starts with; scatter, gather: the root's full buffer; all_to_all_v: the
largest sum that a rank sends. algbw = S/t; busbw = algbw times the bus factor, which makes it
comparable with the speed of the links.
"""

from __future__ import annotations

import msgspec

from commsim.errors import ScenarioError, did_you_mean

__all__ = [
    "COLLECTIVES",
    "DEALT",
    "ELEMENT_TYPES",
    "NCCL_TESTS_TYPES",
    "NCCL_TYPES",
    "PAIRED",
    "REDUCE_OPS",
    "REDUCING",
    "ROOTED",
    "Collective",
    "ElementType",
    "bus_factor",
    "element_bytes",
    "element_type",
    "op_of",
    "reduce_op_of",
]


class Collective(msgspec.Struct, frozen=True):
    """A collective op.

    `rooted`: one member is its root. `reducing`: it adds up. `dealt`: S falls into one part per
    member, `paired`: into one per pair of members. `spellings`: other names, in lower case
    without underscores.
    """

    name: str
    rooted: bool = False
    reducing: bool = False
    dealt: bool = False
    paired: bool = False
    spellings: tuple[str, ...] = ()


COLLECTIVES = {
    each.name: each
    for each in (
        Collective("all_reduce", reducing=True, spellings=("allreducesparse",)),
        Collective("reduce", rooted=True, reducing=True, spellings=("reduceoop",)),
        Collective("broadcast", rooted=True, spellings=("broadcastoop", "bcast")),
        Collective("scatter", rooted=True, dealt=True),
        Collective("gather", rooted=True, dealt=True),
        Collective(
            "all_gather",
            dealt=True,
            spellings=(
                "allgatherbase",
                "allgatherintotensor",
                "allgatherintotensorout",
                "allgatherp",
            ),
        ),
        Collective(
            "reduce_scatter",
            reducing=True,
            dealt=True,
            spellings=("reducescatterbase", "reducescattertensor", "reducescatterblock"),
        ),
        Collective("all_to_all", paired=True, spellings=("alltoallbase", "alltoallsingle")),
        Collective("all_to_all_v", paired=True),
        Collective("barrier", dealt=True, spellings=("monitoredbarrier",)),
    )
}

ROOTED = frozenset(each.name for each in COLLECTIVES.values() if each.rooted)
REDUCING = frozenset(each.name for each in COLLECTIVES.values() if each.reducing)
DEALT = frozenset(each.name for each in COLLECTIVES.values() if each.dealt)
PAIRED = frozenset(each.name for each in COLLECTIVES.values() if each.paired)
_WHOLE = frozenset({"broadcast", "reduce", "send_recv"})  # every byte passes every rank once

_MESSAGES = {
    "send": "send",
    "isend": "send",
    "recv": "recv",
    "irecv": "recv",
    "recvanysource": "recv",
}
_OP_SPELLINGS = _MESSAGES | {
    spelling: op.name
    for op in COLLECTIVES.values()
    for spelling in (op.name.replace("_", ""), *op.spellings)
}


def bus_factor(op: str, n: int) -> float:
    """Return busbw / algbw for `n` members; a barrier moves nothing and has factor 0."""
    if op == "barrier" or n < 2:
        return 0.0
    if op == "all_reduce":
        return 2 * (n - 1) / n
    return 1.0 if op in _WHOLE else (n - 1) / n


def op_of(name: object) -> str:
    """Return the op that `name` stands for ("allreduce_coalesced_", "_allgather_base"), else ""."""
    plain = str(name)[:200].lower().rsplit(":", 1)[-1].replace("_coalesced", "").replace("_", "")
    return _OP_SPELLINGS.get(plain.split(" ")[0], "")


REDUCE_OPS = ("sum", "avg", "min", "max", "product", "premul_sum", "band", "bor", "bxor")
"""torch.distributed.ReduceOp in lower case."""
_REDUCE_SPELLINGS = {"prod": "product", "mulsum": "premul_sum", "average": "avg"}


def reduce_op_of(name: str) -> str:
    """Return the reduce op that `name` stands for ("prod", "ReduceOp.SUM"), else ""."""
    plain = name.lower().rsplit(".", 1)[-1]
    plain = _REDUCE_SPELLINGS.get(plain, plain)
    return plain if plain in REDUCE_OPS else ""


class ElementType(msgspec.Struct, frozen=True):
    """A type of elements.

    `name` is torch's (torch.bfloat16); `bytes` per element. `kind`: int, float or complex.
    `nccl` is the type as which torch hands it to NCCL, None if torch refuses to
    (ProcessGroupNCCL.cpp, `getNcclDataType`; complex numbers go as twice as many floats).
    `peak` names it in a GPU's table of peaks.
    """

    name: str
    bytes: int
    kind: str
    spellings: tuple[str, ...] = ()
    nccl: str | None = None
    peak: str | None = None


_E4M3 = ("fp8", "f8e4m3", "fp8_e4m3", "float8e4m3")
_E5M2 = ("f8e5m2", "fp8_e5m2", "float8e5m2")

ELEMENT_TYPES = {
    each.name: each
    for each in (
        ElementType("float32", 4, "float", ("float", "fp32", "f32", "tf32"), "float32", "fp32"),
        ElementType("float64", 8, "float", ("double", "fp64", "f64"), "float64", "fp64"),
        ElementType("float16", 2, "float", ("half", "fp16", "f16"), "float16", "fp16"),
        ElementType("bfloat16", 2, "float", ("bf16",), "bfloat16", "bf16"),
        ElementType("float8_e4m3fn", 1, "float", _E4M3, "float8", "fp8"),
        ElementType("float8_e5m2", 1, "float", _E5M2, "float8", "fp8"),
        ElementType("float8_e4m3fnuz", 1, "float", (), "float8", "fp8"),
        ElementType("float8_e5m2fnuz", 1, "float", (), "float8", "fp8"),
        ElementType("float8_e8m0fnu", 1, "float"),
        ElementType("float4_e2m1fn_x2", 1, "float", ("fp4", "nvfp4", "mxfp4"), None, "fp4"),
        ElementType("int8", 1, "int", ("char", "signed char", "i8"), "int8", "int8"),
        ElementType("uint8", 1, "int", ("byte", "unsigned char", "u8"), "uint8"),
        ElementType("bool", 1, "int", (), "uint8"),
        ElementType("int16", 2, "int", ("short",)),
        ElementType("uint16", 2, "int"),
        ElementType("int32", 4, "int", ("int", "i32"), "int32"),
        ElementType("uint32", 4, "int", ("u32", "uint"), "uint32"),
        ElementType("int64", 8, "int", ("long", "long int", "i64"), "int64"),
        ElementType("uint64", 8, "int", ("u64",), "uint64"),
        ElementType("complex32", 4, "complex", ("complexhalf", "chalf"), "float16"),
        ElementType("complex64", 8, "complex", ("complexfloat", "cfloat"), "float32"),
        ElementType("complex128", 16, "complex", ("complexdouble", "cdouble"), "float64"),
    )
}
_TYPE_SPELLINGS = {
    spelling: each for each in ELEMENT_TYPES.values() for spelling in (each.name, *each.spellings)
}


def element_type(name: object) -> ElementType | None:
    """Return the element type that `name` stands for ("torch.bfloat16", "half"), else None."""
    plain = str(name)[:100].lower().removeprefix("torch.").removeprefix("c10::")
    return _TYPE_SPELLINGS.get(plain)


def element_bytes(dtype: str) -> int:
    """Return the bytes of an element; an op that names no type ("") has those of float32.

    Raises:
        ScenarioError: there is no such type.
    """
    known = element_type(dtype or "float32")
    if known is None:
        raise ScenarioError(
            f"unknown element type {dtype!r}.{did_you_mean(dtype, ELEMENT_TYPES)}"
            f" Known: {', '.join(ELEMENT_TYPES)}."
        )
    return known.bytes


NCCL_TYPES = (
    "int8", "uint8", "int32", "uint32", "int64", "uint64", "float16", "float32", "float64",
    "bfloat16", "float8_e4m3fn", "float8_e5m2",
)  # fmt: skip
"""Our names in the order of ncclDataType_t (nccl.h), which NCCL's logs give as a number."""

NCCL_TESTS_TYPES = {
    name: element_bytes(name)
    for name in (
        "int8",
        "uint8",
        "int32",
        "uint32",
        "int64",
        "uint64",
        "half",
        "float",
        "double",
        "bfloat16",
        "f8e4m3",
        "f8e5m2",
    )
}
"""Bytes of an element by nccl-tests' own name of its type (src/common.cu, `test_typenames`)."""
