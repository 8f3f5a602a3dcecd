"""
Strict YAML: read a small, untrusted file into plain dicts, lists, text and numbers.

Safe tags only, no key twice, no file over 1 MiB or of more values than anybody writes, no alias
that unpacks to millions of nodes.
Scalars follow YAML 1.2's core schema: `1e9` is a number (a whole one), and `no`, `1:30` and
`2024-01-01` are text, as people mean them.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import yaml

from commsim.errors import ScenarioError
from commsim.input_files import file_problem, readable

__all__ = ["parse_yaml", "read_own_yaml", "read_text", "read_yaml"]

MAX_BYTES = 2**20
MAX_WRITTEN = 50_000  # keys and values: PyYAML takes two seconds for so many
MAX_NODES = 200_000  # with aliases unpacked
MAX_DEPTH = 64
_MOST_DIGITS = 4_000  # more take long to read, and Python refuses 4,300
_EXACT = 2**53  # a float holds every whole number below it


class _Loader(yaml.SafeLoader):
    """SafeLoader with YAML 1.2's scalars (PyYAML's own follow YAML 1.1), for so many values."""

    yaml_implicit_resolvers: dict[str, Any] = {}
    written = 0

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        """Compose the next node; refuse a file of too many while it is read, not after."""
        self.written += 1
        if self.written > MAX_WRITTEN:
            raise _TooManyError(
                problem=f"more than {MAX_WRITTEN:,} keys and values: not a settings file",
                problem_mark=self.peek_event().start_mark,  # type: ignore[no-untyped-call]
            )
        node: yaml.Node | None = super().compose_node(parent, index)
        return node


class _TooManyError(yaml.MarkedYAMLError):
    """More nodes are written than a settings file has."""


_SCALARS = (
    ("null", r"~|null|Null|NULL|", ["~", "n", "N", ""]),
    ("bool", r"true|True|TRUE|false|False|FALSE", list("tTfF")),
    ("int", r"[-+]?[0-9]+", list("-+0123456789")),
    (
        "float",
        r"[-+]?(?:\.[0-9]+|[0-9]+\.[0-9]*)(?:[eE][-+]?[0-9]+)?|[-+]?[0-9]+[eE][-+]?[0-9]+"
        r"|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)",
        list("-+.0123456789"),
    ),
    ("merge", r"<<", ["<"]),
)
for _name, _pattern, _first in _SCALARS:
    _Loader.add_implicit_resolver(
        f"tag:yaml.org,2002:{_name}", re.compile(rf"(?:{_pattern})\Z"), _first
    )


def _decimal(loader: yaml.SafeLoader, node: yaml.ScalarNode) -> int:
    """Read 08 as eight: YAML 1.2 has no octal numbers that start with a zero."""
    text = loader.construct_scalar(node)
    if len(text) > _MOST_DIGITS:
        raise yaml.MarkedYAMLError(
            problem=f"a number of {len(text):,} digits", problem_mark=node.start_mark
        )
    return int(text)


def _number(loader: yaml.SafeLoader, node: yaml.ScalarNode) -> int | float:
    """Read 1e3 as the whole number that people mean by it, where counts are asked for too."""
    number = float(loader.construct_yaml_float(node))
    whole = "e" in node.value.lower() and number.is_integer() and abs(number) < _EXACT
    return int(number) if whole else number


_Loader.add_constructor("tag:yaml.org,2002:int", _decimal)
_Loader.add_constructor("tag:yaml.org,2002:float", _number)


def read_own_yaml(path: Path) -> Any:
    """Return the data in one of the package's own files, by libyaml: ten times as fast.

    PyYAML has it wherever it is installed from a wheel. Tests read these files strictly too.
    """
    return yaml.load(path.read_bytes(), Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))


def read_yaml(path: Path, where: str) -> Any:
    """Return the data in a file; `where` is what errors call it.

    Raises:
        ScenarioError: unreadable, too large, or not YAML (with the line).
    """
    return parse_yaml(read_text(path, where), where)


def read_text(path: Path, where: str) -> str:
    """Return the text of a file or a pipe of at most 1 MiB. Raises ScenarioError."""
    if problem := file_problem(path):
        raise ScenarioError(f"{where}: {problem}.")
    try:
        with readable(path).open("rb") as file:
            raw = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise ScenarioError(f"{where}: cannot be read ({error.strerror}).") from None
    if len(raw) > MAX_BYTES:
        raise ScenarioError(f"{where}: larger than {MAX_BYTES // 2**20} MiB; not a settings file.")
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ScenarioError(f"{where}: not text in UTF-8 (byte {error.start}).") from None


def parse_yaml(text: str, where: str) -> Any:
    """Return the data that `text` holds; None if it is empty. Raises ScenarioError."""
    loader: _Loader | None = None
    try:
        loader = _Loader(text)
        node = loader.get_single_node()
        if node is None:
            return None
        _check(node, where)
        return loader.construct_document(node)
    except yaml.YAMLError as error:
        raise ScenarioError(f"{where}: {_explain(error)}") from None
    except RecursionError:
        raise ScenarioError(f"{where}: nested too deeply.") from None
    except (ValueError, OverflowError) as error:
        raise ScenarioError(f"{where}: a value cannot be read ({error}).") from None
    finally:
        if loader is not None:
            loader.dispose()


def _explain(error: yaml.YAMLError) -> str:
    """Say what is wrong and in which line, without PyYAML's drawing of it."""
    mark = getattr(error, "problem_mark", None)
    problem = getattr(error, "problem", None) or getattr(error, "reason", None) or "not YAML"
    problem = str(problem).replace("\n", " ")
    if isinstance(error, yaml.composer.ComposerError) and "another document" in problem:
        problem = "a second document starts here; one file holds one"
    if "'\\t' that cannot start" in problem:
        problem = "a tab stands here, and YAML is indented with blanks"
    line = f"line {mark.line + 1}, column {mark.column + 1}: " if mark is not None else ""
    return f"{line}{problem}."


def _check(root: yaml.Node, where: str) -> None:
    """Refuse keys that stand twice, cycles, and aliases that unpack to too much."""
    sizes: dict[int, int] = {}
    open_nodes: set[int] = set()

    def size(node: yaml.Node) -> int:
        if id(node) in sizes:
            return sizes[id(node)]
        if id(node) in open_nodes:
            raise ScenarioError(f"{where}: line {_line(node)}: an alias that contains itself.")
        if len(open_nodes) > MAX_DEPTH:
            raise ScenarioError(f"{where}: line {_line(node)}: nested too deeply.")
        open_nodes.add(id(node))
        if isinstance(node, yaml.MappingNode):
            _refuse_duplicates(node, where)
        total = 1 + sum(size(child) for child in _children(node))
        open_nodes.remove(id(node))
        if total > MAX_NODES:
            raise ScenarioError(
                f"{where}: line {_line(node)}: unpacks to more than {MAX_NODES:,} values."
            )
        sizes[id(node)] = total
        return total

    size(root)


def _children(node: yaml.Node) -> list[yaml.Node]:
    if isinstance(node, yaml.MappingNode):
        return [child for pair in node.value for child in pair]
    return list(node.value) if isinstance(node, yaml.SequenceNode) else []


def _refuse_duplicates(node: yaml.MappingNode, where: str) -> None:
    seen: dict[tuple[str, str], int] = {}
    for key, _ in node.value:
        if not isinstance(key, yaml.ScalarNode):
            raise ScenarioError(f"{where}: line {_line(key)}: a key must be a word or a number.")
        same = (key.tag, key.value.lstrip("+0") if key.tag.endswith(":int") else key.value)
        if same in seen:
            raise ScenarioError(
                f"{where}: line {_line(key)}: {key.value!r} stands here a second time (first in"
                f" line {seen[same]}). Keep one."
            )
        seen[same] = _line(key)


def _line(node: yaml.Node) -> int:
    return int(node.start_mark.line) + 1
