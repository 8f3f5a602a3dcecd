"""
The tree of an MSCCL file's XML, which may come from anybody.

On its own because Python's reader of XML takes 10 ms to load, which runs without such a file save.
"""

from __future__ import annotations

import xml.etree.ElementTree as ET
from pathlib import Path

from commsim.errors import ScenarioError
from commsim.input_files import file_problem, readable

__all__ = ["read_tree"]

_LARGEST_FILE = 64 << 20  # bytes


def read_tree(path: Path) -> ET.Element:
    """Return the root element of a file of at most 64 MiB without a DOCTYPE.

    Raises:
        ScenarioError: no such file, too large, or not XML.
    """
    if problem := file_problem(path):
        raise ScenarioError(f"{path}: {problem}.")
    content = readable(path)
    if content.stat().st_size > _LARGEST_FILE:
        raise ScenarioError(f"{path}: larger than {_LARGEST_FILE >> 20} MiB, too large to read.")
    parser = ET.XMLParser(target=_NoDoctype())
    try:
        parser.feed(content.read_bytes())
        root: ET.Element = parser.close()
    except _DoctypeError:
        raise ScenarioError(f"{path}: a DOCTYPE is not allowed in an MSCCL file.") from None
    except (ET.ParseError, ValueError, LookupError) as error:
        raise ScenarioError(f"{path}: not XML ({error}).") from None
    return root


class _DoctypeError(Exception):
    """A file begins with a DOCTYPE."""


class _NoDoctype(ET.TreeBuilder):
    """Builds the tree; refuses a DOCTYPE, which could define entities without bound."""

    def doctype(self, name: str, pubid: str | None, system: str | None) -> None:
        """Refuse."""
        raise _DoctypeError
