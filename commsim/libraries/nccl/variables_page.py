"""
Write the page of NCCL's variables from the table that decides about them.

    python -m commsim.libraries.nccl.variables_page > docs/reference/nccl-variables.md
"""

from __future__ import annotations

import sys

from commsim.libraries.nccl.env import Variable, families, variables

__all__ = ["variables_page"]

_HEAD = """\
# NCCL variables

Set them with `commsim bench --env NCCL_X=Y` or under `library: {name: nccl, env: {NCCL_X: Y}}`.
commsim reads no environment of its own: what is not written there has NCCL's default. A variable
that stands in none of these tables is an error that offers the nearest name.

This page is written by `python -m commsim.libraries.nccl.variables_page` from
`commsim/libraries/nccl/variables.yaml`.
"""
_SECTIONS = {
    "modelled": "## Followed\n\nDefault: what holds when it is unset; a dash where NCCL decides.\n"
    "Choice only: it changes what NCCL chooses, and the time of a choice does not depend on it.\n",
    "not_modelled": "## Known, not modelled\n\nThey may change what NCCL does; a run that sets one "
    "says so in its notes.\n",
    "no_effect": "## Without effect here\n\nThey change neither choice nor time as modelled.\n",
}


def variables_page() -> str:
    """Return the page: one table for each thing commsim does with a variable."""
    parts = [_HEAD]
    for does, head in _SECTIONS.items():
        known = [each for each in variables().values() if each.does == does]
        parts += [head, "\n".join(_table(known, with_default=does == "modelled")) + "\n"]
    listed = [f"| `{prefix}…` | {whose} |" for prefix, whose in families().items()]
    head = "## Settings of plug-ins\n\nKnown by their first letters; none is modelled.\n"
    parts += [head, "\n".join(["| variables | of |", "|---|---|", *listed]) + "\n"]
    return "\n".join(parts)


def _table(known: list[Variable], *, with_default: bool) -> list[str]:
    if not with_default:
        return ["| variable | says |", "|---|---|"] + [
            f"| `{each.name}` | {each.says} |" for each in known
        ]
    return ["| variable | default | says |", "|---|---|---|"] + [
        f"| `{each.name}` | {_default(each)} | {each.says}{_alias(each)}{_choice(each)} |"
        for each in known
    ]


def _default(variable: Variable) -> str:
    default = variable.default
    if default is None:
        return "–"
    return str(int(default))


def _choice(variable: Variable) -> str:
    return " (choice only)" if variable.choice_only else ""


def _alias(variable: Variable) -> str:
    return f" of `{variable.alias}`" if variable.alias else ""


if __name__ == "__main__":
    sys.stdout.write(variables_page())
