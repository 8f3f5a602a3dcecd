"""
The `library` section of a scenario, and the library it names.
"""

from __future__ import annotations

import msgspec

from commsim.cluster import Cluster
from commsim.collectives import load_msccl
from commsim.errors import ScenarioError, did_you_mean
from commsim.libraries.ideal import Ideal
from commsim.libraries.library import Library
from commsim.sections import Section

__all__ = ["LIBRARIES", "LibrarySection", "make_library", "usual_library"]

LIBRARIES = ("ideal", "nccl", "gloo")
_SETTINGS = {
    "ideal": ("algo", "channels", "pieces"),
    "nccl": ("algo", "proto", "version", "env", "launch"),
    "gloo": ("algo", "interface"),
}


class LibrarySection(Section, frozen=True):
    """Which library communicates, and how. `name` auto: the one that people run there.

    `algo`: an algorithm of the library, for the ops that have it; left out, the usual one of each
    op. ideal: `channels`: parallel rings or trees (0: one per NIC). `pieces`: into how many a
    pipelined buffer is cut (0: the number that minimises the time). gloo: `interface`: the NIC of
    each node that its host name stands for. nccl: `version`; `env`: NCCL_ variables; `proto`: LL,
    LL128 or Simple; `launch`: gpu (a process per GPU) or process (one drives a node's GPUs).
    """

    name: str = "auto"
    algo: str | None = None
    channels: int = 0
    pieces: int = 0
    interface: int = 0
    proto: str | None = None
    version: str | None = None
    env: dict[str, str | int | bool] = {}
    launch: str | None = None


def usual_library(cluster: Cluster | None) -> str:
    """Return the library that people run on a cluster: NCCL between GPUs, Gloo between CPUs."""
    if cluster is None:
        return "ideal"
    return "gloo" if cluster.gpu(0).device == "cpu" else "nccl"


def make_library(section: LibrarySection, cluster: Cluster | None = None) -> Library:
    """Return the library that a section describes, for work on `cluster`.

    Raises:
        ScenarioError: an unknown library or algorithm, one that is not built yet, or a setting
            that means nothing to it.
    """
    name = usual_library(cluster) if section.name == "auto" else section.name
    if name not in LIBRARIES:
        raise ScenarioError(
            f"library.name: unknown library {name!r}.{did_you_mean(name, LIBRARIES)}"
            f" Available: {', '.join(LIBRARIES)}."
        )
    unset, taken = LibrarySection(), " (taken for this cluster)" if section.name == "auto" else ""
    for field in LibrarySection.__struct_fields__[1:]:
        value = getattr(section, field)
        if isinstance(value, int) and value < 0:
            raise ScenarioError(f"library.{field}: must not be negative; 0 chooses by itself.")
        if value != getattr(unset, field) and field not in _SETTINGS[name]:
            raise ScenarioError(
                f"library.{field}: means nothing to library {name}{taken}. Leave it out."
            )
    if name == "nccl":
        return _nccl(section)
    if name == "gloo":
        from commsim.libraries.gloo import Gloo

        return Gloo(section.algo, interface=section.interface)
    return Ideal(section.algo, channels=section.channels, pieces=section.pieces)


def _nccl(section: LibrarySection) -> Library:
    """Return NCCL; `algo` and `proto` are other words for NCCL_ALGO and NCCL_PROTO."""
    from commsim.libraries.nccl.plans import Nccl

    env = dict(section.env)
    custom = None
    if section.algo is not None and section.algo.endswith(".xml"):
        custom = load_msccl(section.algo)
        section = msgspec.structs.replace(section, algo=None)
    for field, variable in (("algo", "NCCL_ALGO"), ("proto", "NCCL_PROTO")):
        value = getattr(section, field)
        if value is None:
            continue
        if variable in env:
            raise ScenarioError(
                f"library.{field} and library.env.{variable} both choose. Give one of them."
            )
        env[variable] = value
    return Nccl(
        version=section.version or "2.27",
        env=env,
        launch=section.launch or "gpu",
        custom=custom,
    )
