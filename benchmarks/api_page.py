"""
Write docs/reference/python.md: what `import commsim` offers, from its signatures and docstrings.

    python benchmarks/api_page.py

The tests hold the page to what this would write.
"""

from __future__ import annotations

import inspect
import re
from pathlib import Path

import commsim

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs/reference/python.md"
HEAD = """# Python

`import commsim as cs` offers these names. They load at first use, so importing commsim is quick.
Written by `python benchmarks/api_page.py` from signatures and docstrings.
"""


def page() -> str:
    """Return the page."""
    public = [name for name in commsim.__all__ if not name.startswith("_")]
    functions = [name for name in public if inspect.isfunction(getattr(commsim, name))]
    errors = [name for name in public if name.endswith("Error")]
    classes = [name for name in public if name not in (*functions, *errors)]
    parts = [HEAD]
    for title, names in (("Functions", functions), ("Classes", classes), ("Errors", errors)):
        parts.append(f"## {title}\n")
        parts += [_entry(name) for name in sorted(names, key=str.lower)]
    return "\n".join(parts)


def _entry(name: str) -> str:
    thing = getattr(commsim, name)
    text = inspect.cleandoc(thing.__doc__ or "")
    members = "" if inspect.isfunction(thing) or name.endswith("Error") else _members(thing)
    return f"### `{name}{_signature(thing)}`\n\n```text\n{text}\n```\n{members}"


def _signature(thing: object) -> str:
    if isinstance(thing, type):
        return ""
    text = str(inspect.signature(thing))  # type: ignore[arg-type]
    return re.sub(r"<function .*? at 0x[0-9a-f]+>", "...", text).replace("'", "")


def _members(kind: type) -> str:
    """Return the public methods and properties of a class, a line each."""
    lines = []
    for name, member in vars(kind).items():
        if name.startswith("_") or not (callable(member) or isinstance(member, property)):
            continue
        text = inspect.getdoc(member) or ""
        first = " ".join(text.split("\n\n")[0].split())
        if first and "Protocol" not in first:
            called = "" if isinstance(member, property) else "()"
            lines.append(f"- `{name}{called}`: {first}")
    return "\n".join(["", *lines, ""]) if lines else ""


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
