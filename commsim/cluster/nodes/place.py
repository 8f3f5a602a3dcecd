"""
Where a setting stands in what the user wrote, so that an error can name it.
"""

from __future__ import annotations

import msgspec

from commsim.cluster.nodes.node import NodeSection
from commsim.errors import ScenarioError

__all__ = ["NodePlace", "field_path"]


def field_path(*parts: str) -> str:
    """Join the parts of a path by dots, leaving out empty ones."""
    return ".".join(part for part in parts if part)


class NodePlace(msgspec.Struct, frozen=True):
    """A node's place: the file (or flag), the path of its base, and of its overrides."""

    where: str
    base: str
    overrides: str
    changed: NodeSection | None = None

    def path(self, field: str) -> str:
        """Return the path of a field ("nic.count"): under the overrides if they set it."""
        value: object = self.changed
        for name in field.split("."):
            value = getattr(value, name, None)
        return field_path(self.overrides if value not in (None, {}) else self.base, field)

    def error(self, field: str, message: str) -> ScenarioError:
        """Return the error that `message` is about `field`."""
        return ScenarioError(f"{self.where}: {self.path(field)}: {message}")
