"""Compiled functions: what there is without numba, without its cache, and with it."""

from __future__ import annotations

import importlib.util
import logging
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from helpers.paths import ROOT

from commsim import compiled as room
from commsim.compiled import NOTE, can_compile, compiled

RUN = """
import numpy as np
from commsim.engine.fair_share import Sharers, sharers
sharers.COMPILED_FROM = 0
shared = Sharers(np.array([1.0, 2.0]))
for links in ([0], [0, 1], [1]):
    shared.add(links, [1.0] * len(links), float("inf"))
print(shared.share_again()[1].tolist(), type(shared.columns.share).__name__)
"""
SHARES = "[0.5, 0.5, 1.5]"
needs_numba = pytest.mark.skipif(
    importlib.util.find_spec("numba") is None, reason="needs numba (extra fast)"
)


def in_a_process(*, before: str = "", **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", before + RUN], capture_output=True, text=True, check=True,
        env={**os.environ, "PYTHONPATH": str(ROOT), **environment},
    )  # fmt: skip


def test_without_numba_the_interpreter_does_it() -> None:
    done = in_a_process(before="import sys; sys.modules['numba'] = None\n")
    assert done.stdout.split("] ") == [SHARES[:-1], "list\n"]
    assert not done.stderr


def test_a_numba_that_does_not_fit_is_none(tmp_path: Path) -> None:
    (tmp_path / "numba.py").write_text("raise ImportError('Numba needs NumPy 2.3 or less')")
    done = in_a_process(before=f"import sys; sys.path.insert(0, {str(tmp_path)!r})\n")
    assert done.stdout.split("] ") == [SHARES[:-1], "list\n"]


@needs_numba
@pytest.mark.long
def test_without_a_cache_that_can_be_written_it_compiles_each_time() -> None:
    """The locators of numba's cache find no folder."""
    no_folder = """
import errno
from numba.core import caching

def refuse(locator):
    raise OSError(errno.EROFS, "Read-only file system")

caching._CacheLocator.ensure_cache_path = refuse
"""
    done = in_a_process(before=no_folder)
    assert done.stdout.split("] ") == [SHARES[:-1], "ndarray\n"]
    assert NOTE in done.stderr


@needs_numba
@pytest.mark.long
def test_it_says_once_that_it_compiles(tmp_path: Path) -> None:
    first, second = (in_a_process(NUMBA_CACHE_DIR=str(tmp_path)) for _ in range(2))
    assert first.stdout == second.stdout == f"{SHARES} ndarray\n"
    assert NOTE in first.stderr
    assert not second.stderr


def double(x: float) -> float:
    return 2 * x


def sum_of_doubles(values: list[float]) -> float:
    total = 0.0
    for value in values:
        total += double(value)
    return total


class FakeNumba:
    """What `compiled` uses of numba; its cache has no folder."""

    class Stats:
        cache_path = None

    @classmethod
    def njit(cls, function: object = None, *, cache: bool = False, **inner: bool) -> object:
        if inner:  # of what only compiled code calls
            return cls.njit
        if cache:

            def refuse(_: object) -> object:
                raise RuntimeError("cannot cache function: no locator available")

            return refuse

        class Compiled:
            stats, py_func = cls.Stats, function

            def __call__(self, *args: object) -> object:
                return function(*args)  # type: ignore[operator]

        return Compiled()


def test_functions_call_those_compiled_before_them(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setitem(sys.modules, "numba", FakeNumba)
    monkeypatch.setattr(room, "_made", {})
    with caplog.at_level(logging.WARNING, logger="commsim"):
        made = compiled((double, sum_of_doubles))
        assert made is compiled((double, sum_of_doubles))
    assert caplog.messages == [NOTE]
    assert made(np.array([1.0, 2.5])) == 7.0
    called = made.py_func.__globals__["double"]  # type: ignore[attr-defined]
    assert called is not double
    assert called.py_func.__name__ == "double"


def test_whether_it_can_compile_is_whether_numba_is_there() -> None:
    assert can_compile() is (importlib.util.find_spec("numba") is not None)
