"""
Which algorithms and protocols NCCL considers for an operation: hardware, defaults, environment.

What the environment asks for and the hardware cannot do is left out, as NCCL leaves it out, and
noted. If nothing is left, older releases fall back to Ring; newer ones stop with an error.

Follows ncclTopoTuneModel (src/graph/tuning.cc) and updateCollCostTable (src/enqueue.cc), NCCL
2.18 to 2.30.
"""

from __future__ import annotations

from commsim.errors import ScenarioError
from commsim.libraries.nccl.env import Knobs
from commsim.libraries.nccl.shapes import Algorithm, Communicator, PathType, Protocol
from commsim.libraries.nccl.tuning.algo_filter import FUNCTIONS, allowed
from commsim.libraries.nccl.tuning.model import GRAPH
from commsim.libraries.nccl.tuning.reduction import Reduction
from commsim.libraries.nccl.tuning.tables import Tables
from commsim.libraries.nccl.tuning.terms import COLLNET, GATHERING, NVLS
from commsim.ops import REDUCING

__all__ = ["enabled"]

Pair = tuple[Algorithm, Protocol]

_PROTOCOLS = {
    Algorithm.Tree: tuple(Protocol),
    Algorithm.Ring: tuple(Protocol),
}
"""Everything but Ring and Tree knows Simple only."""
_MOST_COLLNET_RANKS = 8  # of a node: NCCL_MAX_DIRECT_ARITY + 1
_MOST_NVLS_RANKS = 32  # of a node: NCCL_MAX_NVLS_ARITY


def enabled(
    comm: Communicator, tables: Tables, knobs: Knobs, op: str, reduction: Reduction
) -> tuple[tuple[Pair, ...], tuple[str, ...]]:
    """Return the (algorithm, protocol) pairs in NCCL's order of scanning, and notes.

    Raises:
        ScenarioError: nothing that the environment allows works here (2.24 and later), or a
            reduction of 8-bit floats on GPUs before sm90.
    """
    _check(comm, op, reduction)
    if comm.n_ranks == 1:
        return ((Algorithm.Ring, Protocol.Simple),), ()
    asked = _listed(knobs.algo, [each.name for each in Algorithm], op, "NCCL_ALGO", tables)
    protocols = _listed(knobs.proto, [each.name for each in Protocol], op, "NCCL_PROTO", tables)
    algorithms = _algorithms_allowed(comm, tables, op, asked)
    obstacles = {
        each: _obstacle(comm, tables, knobs, op, each) or _cannot_reduce(op, each, reduction)
        for each in algorithms
    }
    pairs = [
        (algorithm, protocol)
        for algorithm in algorithms
        if obstacles[algorithm] is None
        for protocol in _PROTOCOLS.get(algorithm, (Protocol.Simple,))
        if _protocol_enabled(comm, tables, knobs, algorithm, protocol, protocols)
    ]
    notes = _notes(op, asked, obstacles) if asked is not None else []
    if not pairs:
        pairs = _fallback(comm, tables, knobs, op, protocols)
        notes.append(f"{_settings_text(knobs)} leaves nothing for {op}: NCCL falls back to Ring.")
    return tuple(pairs), tuple(notes)


def _check(comm: Communicator, op: str, reduction: Reduction) -> None:
    if op in REDUCING and reduction.is_float8 and comm.min_compute_capability < 90:
        raise ScenarioError(
            f"{op} of {reduction.dtype}: NCCL reduces 8-bit floats on sm90 and later only, "
            f"and this is sm{comm.min_compute_capability}. Choose a wider type."
        )


def _cannot_reduce(op: str, algorithm: Algorithm, reduction: Reduction) -> str | None:
    """Return why the algorithm cannot do this reduction, or None."""
    if op not in REDUCING:
        return None
    what = f"{reduction.redop or 'sum'} of {reduction.type}"
    if algorithm in NVLS and not reduction.in_switches:
        return f"{algorithm.name} cannot do a {what}"
    if algorithm is Algorithm.PAT and reduction.kind == "scaled":
        return f"PAT cannot do a {what}"
    return None


def _listed(
    text: str, names: list[str], op: str, variable: str, tables: Tables
) -> frozenset[str] | None:
    per_function = tables.rules == "functions"
    return allowed(text, names, op=op, variable=variable, per_function=per_function)


def _algorithms_allowed(
    comm: Communicator, tables: Tables, op: str, asked: frozenset[str] | None
) -> list[Algorithm]:
    """Return the algorithms that the environment leaves, in NCCL's order."""
    if asked is None:
        return list(Algorithm)
    left = [each for each in Algorithm if each.name in asked]
    if tables.collnet_fallback and not _without_collnet(comm, left):
        left = [Algorithm.Tree, Algorithm.Ring, *left]
    if tables.ring_kept and op != "all_reduce":
        left = sorted({*left, Algorithm.Ring})
    return left


def _without_collnet(comm: Communicator, left: list[Algorithm]) -> bool:
    """Say whether one of Ring, Tree and NVLS is left, or CollNet exists."""
    usable = {Algorithm.Ring, Algorithm.Tree}
    usable.add(Algorithm.NVLS if comm.n_nodes == 1 else Algorithm.NVLSTree)
    return comm.collnet_support or not usable.isdisjoint(left)


def _obstacle(
    comm: Communicator, tables: Tables, knobs: Knobs, op: str, algorithm: Algorithm
) -> str | None:
    """Return why the algorithm cannot run `op` here, or None."""
    if not _implements(tables, op, algorithm):
        return f"NCCL has no {algorithm.name} for {op}"
    if GRAPH[algorithm] not in comm.graphs or not comm.graphs[GRAPH[algorithm]].channels:
        return f"{algorithm.name} finds no channels on this hardware"
    if algorithm in COLLNET:
        return _collnet_obstacle(comm, tables, knobs, op, algorithm)
    if algorithm in NVLS:
        return _nvls_obstacle(comm, tables, knobs, op, algorithm)
    if algorithm is Algorithm.PAT:
        return _pat_obstacle(comm, knobs)
    return None


def _implements(tables: Tables, op: str, algorithm: Algorithm) -> bool:
    if op in ("broadcast", "reduce"):
        return algorithm is Algorithm.Ring
    if op in GATHERING:
        return algorithm.name in tables.gathering
    return algorithm is not Algorithm.PAT


def _collnet_obstacle(
    comm: Communicator, tables: Tables, knobs: Knobs, op: str, algorithm: Algorithm
) -> str | None:
    if not comm.collnet_support or not knobs.collnet_enable:
        return f"{algorithm.name} needs SHARP in the fabric and NCCL_COLLNET_ENABLE=1"
    if comm.n_nodes < max(2, knobs.collnet_node_threshold):
        return f"{algorithm.name} needs more nodes (NCCL_COLLNET_NODE_THRESHOLD)"
    if algorithm is Algorithm.CollNetDirect and not comm.nvswitch:
        return "CollNetDirect needs an NVSwitch"
    if max(comm.local_ranks) > _MOST_COLLNET_RANKS:
        return f"{algorithm.name} stops at {_MOST_COLLNET_RANKS} ranks of a node"
    return _head_obstacle(comm, op, algorithm)


def _nvls_obstacle(
    comm: Communicator, tables: Tables, knobs: Knobs, op: str, algorithm: Algorithm
) -> str | None:
    if not comm.nvls_support:
        return f"{algorithm.name} needs NVLink switches that reduce (sm90 and later)"
    if not knobs.nvls_enable:
        return "NCCL_NVLS_ENABLE=0 switches NVLS off"
    if max(comm.local_ranks) < tables.nvls_least_ranks:
        return f"NVLS needs {tables.nvls_least_ranks} ranks of a node"
    if tables.nvls_bandwidth == "efficiency" and comm.graphs["nvls"].n_channels < 2:
        return f"{algorithm.name} needs two channels"
    if algorithm is Algorithm.NVLSTree:
        return None if comm.n_nodes > 1 else "NVLSTree is for several nodes"
    if op in GATHERING and max(comm.local_ranks) > _MOST_NVLS_RANKS:
        return f"NVLS stops at {_MOST_NVLS_RANKS} ranks of a node"
    if comm.n_nodes == 1:
        return None
    if not comm.collnet_support or not knobs.collnet_enable:
        return "NVLS between nodes needs SHARP in the fabric and NCCL_COLLNET_ENABLE=1"
    return _head_obstacle(comm, op, algorithm)


def _head_obstacle(comm: Communicator, op: str, algorithm: Algorithm) -> str | None:
    """All-gather and reduce-scatter through switches need a NIC for each rank of a node."""
    graph = comm.graphs.get("collnet_direct")
    if op in GATHERING and (graph is None or max(comm.local_ranks) > graph.n_heads):
        return f"{algorithm.name} needs a NIC for each rank of a node"
    return None


def _pat_obstacle(comm: Communicator, knobs: Knobs) -> str | None:
    if comm.min_compute_capability < 60 or not knobs.pat_enable:
        return "NCCL_PAT_ENABLE=0, or GPUs before sm60"
    if knobs.pat_enable == 2 and comm.n_nodes != comm.n_ranks:
        return "PAT is for one rank per node"
    return None


def _protocol_enabled(
    comm: Communicator,
    tables: Tables,
    knobs: Knobs,
    algorithm: Algorithm,
    protocol: Protocol,
    asked: frozenset[str] | None,
) -> bool:
    if asked is not None:
        return protocol.name in asked
    return protocol is not Protocol.LL128 or _ll128(comm, tables, knobs, algorithm)


def _ll128(comm: Communicator, tables: Tables, knobs: Knobs, algorithm: Algorithm) -> bool:
    """Is LL128 on by default? It needs stores of 128 bytes that stay whole on the way."""
    graph, lowest = comm.graphs[GRAPH[algorithm]], comm.min_compute_capability
    mixed = lowest != comm.max_compute_capability
    if mixed and not (tables.ll128_mixed and lowest >= 90):
        return False
    if lowest < 70 or (tables.ll128_capabilities and lowest not in tables.ll128_capabilities):
        return False
    limit = tables.ll128_limit(lowest, c2c=knobs.ll128_c2c)
    return graph.type_intra <= PathType[tables.ll128_intra] and graph.type_inter <= limit


def _fallback(
    comm: Communicator, tables: Tables, knobs: Knobs, op: str, asked: frozenset[str] | None
) -> list[Pair]:
    ring = [
        (Algorithm.Ring, protocol)
        for protocol in Protocol
        if _protocol_enabled(comm, tables, knobs, Algorithm.Ring, protocol, asked)
    ]
    if tables.no_algorithm == "ring" and ring:
        return ring
    raise ScenarioError(
        f"NCCL {comm.version}: no algorithm for {op} is left by {_settings_text(knobs)} on this"
        f" hardware; NCCL stops here too. Allow Ring and Simple for it, like "
        f"NCCL_ALGO=...;{FUNCTIONS[op].lower()}:ring."
    )


def _notes(
    op: str, asked: frozenset[str] | None, obstacles: dict[Algorithm, str | None]
) -> list[str]:
    """Return a note on each algorithm that an explicit list names and that cannot run."""
    return [
        f"NCCL_ALGO: {reason}; left out."
        for algorithm, reason in obstacles.items()
        if reason and len(obstacles) < len(Algorithm) - 1
    ]


def _settings_text(knobs: Knobs) -> str:
    named = [("NCCL_ALGO", knobs.algo), ("NCCL_PROTO", knobs.proto)]
    return " and ".join(f"{name}={text}" for name, text in named if text) or "the environment"
