"""
Registries: one record per thing that a name stands for, built in or brought by a plugin.

A package brings things of its own by an entry point of the group `commsim.plugins`, which names
a function without arguments that registers them. Plugins are loaded when a name is not known,
or all names are asked for: they cost nothing if built-in names suffice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from commsim.errors import ScenarioError, did_you_mean

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

__all__ = ["PLUGINS", "Registry", "load_plugins"]

PLUGINS = "commsim.plugins"
"""The group of entry points."""

K = TypeVar("K")
T = TypeVar("T")


@cache
def load_plugins() -> None:
    """Load every plugin that is installed, once.

    Raises:
        ScenarioError: a plugin fails; the message names it and what it says.
    """
    from importlib.metadata import entry_points  # here, since it imports email and sockets

    for plugin in entry_points(group=PLUGINS):
        _run(plugin)


def _run(plugin: EntryPoint) -> None:
    try:
        register: Callable[[], Any] = plugin.load()
        register()
    except Exception as error:  # a plugin may fail in any way
        raise ScenarioError(
            f"plugin {plugin.name!r} ({plugin.value}): {type(error).__name__}: {error}."
            " Mend it or uninstall its package."
        ) from error


class Registry(Generic[K, T]):
    """Records by name, in the order of registration; `what` they are called in messages."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._records: dict[K, T] = {}

    def add(self, key: K, record: T) -> None:
        """Register a record.

        Raises:
            ScenarioError: the name is taken.
        """
        if key in self._records:
            raise ScenarioError(f"{self._what} {_text(key)} exists already. Choose another name.")
        self._records[key] = record

    def find(self, key: K) -> T | None:
        """Return the record of a name, None if there is none, plugins included."""
        if key not in self._records:
            load_plugins()
        return self._records.get(key)

    def get(self, key: K, where: str) -> T:
        """Return the record of a name.

        Raises:
            ScenarioError: there is none; `where` names the setting.
        """
        found = self.find(key)
        if found is None:
            known = [_text(each) for each in self._records]
            raise ScenarioError(
                f"{where}: unknown {self._what} {_text(key)!r}."
                f"{did_you_mean(_text(key), known)} Available: {', '.join(known)}."
            )
        return found

    def remove(self, key: K) -> None:
        """Take a record out again."""
        del self._records[key]

    def records(self) -> tuple[T, ...]:
        """Return every record, plugins' after ours."""
        load_plugins()
        return tuple(self._records.values())

    def __iter__(self) -> Iterator[K]:
        load_plugins()
        return iter(tuple(self._records))

    def __contains__(self, key: K) -> bool:
        return self.find(key) is not None


def _text(key: object) -> str:
    return " ".join(map(str, key)) if isinstance(key, tuple) else str(key)
