"""
NCCL's topology files (NCCL_TOPO_FILE, NCCL_TOPO_DUMP_FILE) as plain elements, read and written.

What comes from outside may be hostile: no document type (so no entities), and bounds on size,
depth and number of elements. What the elements mean is `topology_build`'s matter.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from xml.parsers import expat

from commsim.errors import ScenarioError

__all__ = ["MAX_BYTES", "Element", "read_xml", "write_xml"]

MAX_BYTES = 16 << 20
_MAX_DEPTH = 64
_MAX_ELEMENTS = 1 << 16
_ESCAPED = str.maketrans(
    {
        "&": "&amp;",
        "<": "&lt;",
        ">": "&gt;",
        '"': "&quot;",
        "\n": "&#10;",
        "\r": "&#13;",
        "\t": "&#9;",
    }
)
"""What may not stand in an attribute; `xml.sax.saxutils` has it too, but imports urllib and ssl."""


@dataclass(slots=True)
class Element:
    """One element: its tag, its attributes, what it holds, and the line it stands on."""

    tag: str
    attributes: dict[str, str] = field(default_factory=dict)
    inside: list[Element] = field(default_factory=list)
    line: int = field(default=0, compare=False)

    def add(self, tag: str, /, **attributes: object) -> Element:
        """Append an element with these attributes, and return it."""
        below = Element(tag, {name: str(value) for name, value in attributes.items()})
        self.inside.append(below)
        return below

    def all(self, tag: str) -> Iterator[Element]:
        """Yield the elements of one tag directly inside."""
        return (below for below in self.inside if below.tag == tag)


def read_xml(text: str, source: str) -> Element:
    """Return the root of an NCCL topology; `source` names the file in errors.

    Raises:
        ScenarioError: not XML, not a topology, too large, or with a document type.
    """
    if len(text) > MAX_BYTES:
        raise ScenarioError(f"{source}: {len(text) >> 20} MiB are too much for an NCCL topology.")
    builder = _ElementBuilder(source)
    try:
        root = builder.parse(text)
    except expat.ExpatError as error:
        raise ScenarioError(
            f"{source}:{error.lineno}: not XML: {expat.ErrorString(error.code)}. Give a file that"
            " NCCL wrote with NCCL_TOPO_DUMP_FILE."
        ) from None
    if root is None or root.tag != "system":
        found = f"<{root.tag}>" if root is not None else "nothing"
        raise ScenarioError(f"{source}: holds {found}; an NCCL topology is one <system> element.")
    return root


def write_xml(root: Element) -> str:
    """Return the text of a topology, two spaces per level, as NCCL writes it."""
    return "".join(_lines(root, ""))


def _lines(element: Element, indent: str) -> Iterator[str]:
    attributes = "".join(
        f' {name}="{value.translate(_ESCAPED)}"' for name, value in element.attributes.items()
    )
    if not element.inside:
        yield f"{indent}<{element.tag}{attributes}/>\n"
        return
    yield f"{indent}<{element.tag}{attributes}>\n"
    for below in element.inside:
        yield from _lines(below, indent + "  ")
    yield f"{indent}</{element.tag}>\n"


class _ElementBuilder:
    """Builds elements from the parser's calls, and stops at the first thing that is too much."""

    def __init__(self, source: str) -> None:
        self._source = source
        self._open: list[Element] = []
        self._count = 0
        self._root: Element | None = None
        self._parser = expat.ParserCreate()
        self._parser.StartElementHandler = self._start
        self._parser.EndElementHandler = self._end
        self._parser.StartDoctypeDeclHandler = self._refuse

    def parse(self, text: str) -> Element | None:
        self._parser.Parse(text, True)
        return self._root

    def _start(self, tag: str, attributes: dict[str, str]) -> None:
        self._count += 1
        if len(self._open) >= _MAX_DEPTH or self._count > _MAX_ELEMENTS:
            raise self._error(
                f"more than {_MAX_DEPTH} levels or {_MAX_ELEMENTS} elements are no machine."
            )
        element = Element(tag, attributes, line=self._parser.CurrentLineNumber)
        if self._open:
            self._open[-1].inside.append(element)
        else:
            self._root = element
        self._open.append(element)

    def _end(self, tag: str) -> None:
        self._open.pop()

    def _refuse(self, *_: object) -> None:
        raise self._error("a document type (<!DOCTYPE>) has no place in a topology. Remove it.")

    def _error(self, what: str) -> ScenarioError:
        return ScenarioError(f"{self._source}:{self._parser.CurrentLineNumber}: {what}")
