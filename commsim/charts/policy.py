"""
What a page may do: run the scripts that it was written with, and ask nobody for anything.

A content security policy (W3C CSP level 3) in the head of each page. Scripts are named by their
hashes, so text that were to slip into a page as a script, or as a handler of an element, would not
run; nothing is loaded but what the page holds (pictures may be `data:` or `blob:`).
"""

from __future__ import annotations

import re
from base64 import b64encode
from functools import cache
from hashlib import sha256

__all__ = ["policy", "scripts_of"]

_SCRIPT = re.compile(r"<script>(.*?)</script>", re.DOTALL)


def policy(*scripts: str) -> str:
    """Return the element that allows a page these scripts: each all that is between its tags."""
    hashes = " ".join(dict.fromkeys(map(_hash, scripts))) or "'none'"
    return (
        '<meta http-equiv="Content-Security-Policy" content="'
        f"default-src 'none'; script-src {hashes}; style-src 'unsafe-inline';"
        " img-src data: blob:; font-src data:; base-uri 'none'; form-action 'none'\">"
    )


def scripts_of(template: str) -> list[str]:
    """Return the scripts of a template of ours, before anything is filled in."""
    return _SCRIPT.findall(template)


@cache
def _hash(script: str) -> str:
    return f"'sha256-{b64encode(sha256(script.encode()).digest()).decode()}'"
