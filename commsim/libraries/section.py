"""
The `library` section of a scenario, the libraries that it may name, and the settings of each.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from commsim.cluster import Cluster
from commsim.collectives import is_msccl_file, load_msccl
from commsim.errors import ScenarioError, did_you_mean
from commsim.libraries.ideal import Ideal
from commsim.libraries.library import Library
from commsim.registry import Registry
from commsim.sections import DecodesItself, Section, decode

__all__ = [
    "LIBRARIES",
    "LibraryKind",
    "LibrarySection",
    "make_library",
    "register_library",
    "usual_library",
]

_AUTO = "auto"
_MOST_CHANNELS = 1_024  # each is planned by itself, in 2 ms
_MOST_PIECES = 65_536  # 1 GiB in pieces of 16 KiB: more take a minute message by message


class LibraryKind(msgspec.Struct, frozen=True):
    """A library that scenarios can name: its settings, and how to make it of them."""

    name: str
    title: str
    settings: type[Section]
    make: Callable[[Any], Library]


LIBRARIES: Registry[str, LibraryKind] = Registry("library")
"""Every library by its name."""


def register_library(
    name: str, settings: type[Section], title: str = ""
) -> Callable[[Callable[[Any], Library]], Callable[[Any], Library]]:
    """Return a decorator that registers a function from `settings` to a `Library`.

    `settings` is a frozen struct (a subclass of `Section`): scenarios write its fields next to
    `library.name`, and `commsim bench --library NAME` takes its defaults.

    Raises:
        ScenarioError: the name is taken.
    """

    def register(make: Callable[[Any], Library]) -> Callable[[Any], Library]:
        LIBRARIES.add(name, LibraryKind(name, title or name, settings, make))
        return make

    return register


class IdealSettings(Section, frozen=True):
    """The textbook library: a named algorithm, or an MSCCL file, on the cluster's own links.

    `channels`: parallel rings or trees (0: one per NIC). `pieces`: into how many a pipelined
    buffer is cut (0: the number that minimises the time).
    """

    algo: str | None = None
    channels: int = 0
    pieces: int = 0


class GlooSettings(Section, frozen=True):
    """Gloo: `interface` is the NIC of each node that its host name stands for."""

    algo: str | None = None
    interface: int = 0


class NcclSettings(Section, frozen=True):
    """NCCL: its release, NCCL_ variables, and what forces a choice.

    `proto`: LL, LL128 or Simple. `launch`: gpu (a process per GPU) or process (one drives a
    node's GPUs).
    """

    algo: str | None = None
    proto: str | None = None
    version: str | None = None
    env: dict[str, str | int | bool] = {}
    launch: str | None = None


class LibrarySection(DecodesItself):
    """Which library communicates, and its settings. `name` auto: the one that people run there."""

    __slots__ = ("name", "settings")

    def __init__(self, name: str = _AUTO, /, **settings: Any) -> None:
        self.name = name
        given = {setting: value for setting, value in settings.items() if value is not None}
        self.settings: Mapping[str, Any] = given

    def __repr__(self) -> str:
        settings = "".join(f", {setting}={value!r}" for setting, value in self.settings.items())
        return f"LibrarySection({self.name!r}{settings})"

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, LibrarySection)
            and self.name == other.name
            and dict(self.settings) == dict(other.settings)
        )

    def __hash__(self) -> int:
        return hash((self.name, *sorted(self.settings)))  # values may be mappings

    @classmethod
    def decode(cls, data: Any) -> LibrarySection:
        """Return the section of plain data. Raises ValueError: it is no mapping with a name."""
        if isinstance(data, cls):
            return data
        if not isinstance(data, Mapping):
            name = data if isinstance(data, str) and data in LIBRARIES else "nccl"
            raise ValueError(f"write `library: {{name: {name}}}`")
        given = {str(setting): value for setting, value in data.items()}
        name = given.pop("name", _AUTO)
        if not isinstance(name, str):
            raise ValueError(f"library.name is {name!r}, not the name of a library")
        _check_names(name, given)
        return cls(name, **given)

    def get(self, setting: str, default: Any = None) -> Any:
        """Return a setting as it was given."""
        return self.settings.get(setting, default)

    def having(self, **settings: Any) -> LibrarySection:
        """Return the section with other settings; None takes one out."""
        name = settings.pop("name", self.name)
        return LibrarySection(name, **{**self.settings, **settings})


def _check_names(name: str, given: Mapping[str, Any]) -> None:
    """Raise ValueError for a setting that no library has, so that it is named where it stands."""
    kinds = [LIBRARIES.find(each) for each in LIBRARIES]
    known = sorted({setting for kind in kinds if kind for setting in _settings_of(kind)})
    for setting in given:
        if setting not in known:
            raise ValueError(
                f"unknown setting {setting!r}.{did_you_mean(setting, known)}"
                f" Known: name, {', '.join(known)}"
            )


def _settings_of(kind: LibraryKind) -> tuple[str, ...]:
    return tuple(kind.settings.__struct_fields__)


def usual_library(cluster: Cluster | None) -> str:
    """Return the library that people run on a cluster: NCCL between GPUs, Gloo between CPUs."""
    if cluster is None:
        return "ideal"
    return "gloo" if cluster.gpu(0).device == "cpu" else "nccl"


def make_library(
    section: LibrarySection, cluster: Cluster | None = None, *, where: str = ""
) -> Library:
    """Return the library that a section describes, for work on `cluster`.

    `where` is the file (or flag) that errors should name.

    Raises:
        ScenarioError: an unknown library or algorithm, or a setting that means nothing to it.
    """
    try:
        return _made(section, cluster)
    except ScenarioError as error:
        raise type(error)(f"{where}: {error}" if where else str(error)) from None


def _made(section: LibrarySection, cluster: Cluster | None) -> Library:
    if not isinstance(section.name, str):
        raise ScenarioError(f"library.name: {section.name!r} is no name. Give text.")
    auto = section.name == _AUTO
    kind = LIBRARIES.get(usual_library(cluster) if auto else section.name, "library.name")
    for setting, value in section.settings.items():
        if setting not in _settings_of(kind):
            taken = " (taken for this cluster)" if auto else ""
            raise ScenarioError(
                f"library.{setting}: means nothing to library {kind.name}{taken}. Leave it out."
            )
        if isinstance(value, int) and value < 0:
            raise ScenarioError(f"library.{setting}: must not be negative; 0 chooses by itself.")
    return kind.make(decode(dict(section.settings), kind.settings, "", path="library"))


@register_library("ideal", IdealSettings, "the textbook: a named algorithm on the links alone")
def _ideal(settings: IdealSettings) -> Library:
    for setting, most in (("channels", _MOST_CHANNELS), ("pieces", _MOST_PIECES)):
        if getattr(settings, setting) > most:
            raise ScenarioError(
                f"library.{setting}: too many. Give at most {most:,}; 0 chooses by itself."
            )
    return Ideal(settings.algo, channels=settings.channels, pieces=settings.pieces)


@register_library("nccl", NcclSettings, "NCCL between GPUs")
def _nccl(settings: NcclSettings) -> Library:
    """Return NCCL; `algo` and `proto` are other words for NCCL_ALGO and NCCL_PROTO."""
    from commsim.libraries.nccl import Algorithm, Nccl, Protocol, check_list, is_release

    if settings.version is not None and not is_release(settings.version):
        raise ScenarioError(
            f"library.version: {settings.version!r} is not a release of NCCL. Write it like 2.27 or"
            " 2.28.9."
        )
    env = dict(settings.env)
    algo, custom = settings.algo, None
    if algo is not None and is_msccl_file(algo):
        custom = load_msccl(algo)
        algo = None
    for word, variable, value, known in (
        ("algo", "NCCL_ALGO", algo, list(Algorithm)),
        ("proto", "NCCL_PROTO", settings.proto, list(Protocol)),
    ):
        if value is None:
            continue
        if variable in env:
            raise ScenarioError(
                f"library.{word} and library.env.{variable} both choose. Give one of them."
            )
        # NCCL would call it by its variable, which nobody wrote.
        check_list(value, [each.name for each in known], variable=f"library.{word}")
        env[variable] = value
    return Nccl(
        version=settings.version or "2.27", env=env, launch=settings.launch or "gpu", custom=custom
    )


@register_library("gloo", GlooSettings, "Gloo between CPUs, over TCP")
def _gloo(settings: GlooSettings) -> Library:
    from commsim.libraries.gloo import Gloo

    return Gloo(settings.algo, interface=settings.interface)
