"""Runs mutants: in forks of one process that has collected the tests, or of one that has not.

Most mutants change a function. For them the tests are collected once; a fork gets the changed
function's code in place of its own, and runs the tests that reach the changed line. What a module
does when it is imported is changed in a fork that has imported nothing yet.
"""

from __future__ import annotations

import functools
import gc
import importlib.util
import os
import resource
import signal
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from importlib.machinery import ModuleSpec, SourceFileLoader
from pathlib import Path
from types import CodeType, FunctionType

import pytest
from mutant_places import ROOT, Mutant
from reach import Reach

__all__ = ["Collected", "in_new_process", "run_collected"]

MEMORY = 6 << 30  # bytes of address space: a mutant may ask for anything
WORDS = ("-q", "--tb=no", "-p", "no:cacheprovider", "--hypothesis-seed=0", "--capture=sys")
OWN = ("commsim", "helpers", "tests")  # modules whose caches a mutant's fork forgets
COLLECTING = 60  # seconds of processor time to import and collect a few files

CUSTOM = '''"""Loads one module as a mutant has it."""
import importlib.util, sys
from importlib.machinery import SourceFileLoader

class Planted(SourceFileLoader):
    def find_spec(self, name, *_):
        if name == {name!r}:
            return importlib.util.spec_from_file_location(name, {path!r}, loader=self)

    def get_code(self, fullname):
        return compile(open({changed!r}, encoding="utf-8").read(), {path!r}, "exec")

sys.meta_path.insert(0, Planted({name!r}, {path!r}))
'''


class Planted(SourceFileLoader):
    """Finds one module and loads it as a mutant has it."""

    def __init__(self, one: Mutant) -> None:
        super().__init__(one.module, str(one.path))
        self.changed = one.code()

    def find_spec(self, name: str, *_: object) -> ModuleSpec | None:
        """Return what loads the changed module, nothing for others."""
        if name != self.name:
            return None
        return importlib.util.spec_from_file_location(name, self.path, loader=self)

    def get_code(self, fullname: str) -> CodeType:
        """Return the changed code; what is kept beside the file is the module as it was."""
        return self.changed


def plant(one: Mutant, folder: Path) -> None:
    """Have this process load the changed module, and the interpreters that its tests start."""
    sys.meta_path.insert(0, Planted(one))
    (folder / "changed.py").write_text(one.source, encoding="utf-8")
    (folder / "sitecustomize.py").write_text(
        CUSTOM.format(name=one.module, path=str(one.path), changed=str(folder / "changed.py")),
        encoding="utf-8",
    )
    os.environ["PYTHONPATH"] = os.pathsep.join([str(folder), str(ROOT)])


class Budget:
    """Processor time of a fork: in all, and for each test by what it usually takes."""

    def __init__(self, reach: Reach, seconds: float, log: int) -> None:
        self.times, self.seconds, self.log = reach.seconds, seconds, log
        self.began = spent()

    def begins(self, nodeid: str) -> bool:
        """Note the test that begins and bound its time; say whether there is time left."""
        used = spent()
        if used - self.began > self.seconds:
            return False
        os.pwrite(self.log, nodeid.encode().ljust(400)[:400], 0)
        most = int(used + 5 + 10 * self.times.get(nodeid, 1.0))
        resource.setrlimit(resource.RLIMIT_CPU, (most, resource.RLIM_INFINITY))
        return True


def spent() -> float:
    """Return the processor time of this process so far, in s."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


class Fork:
    """A child process in which the tests of one mutant run, and what it says of them."""

    def __init__(self, work: Callable[[int, Path], int]) -> None:
        self.log = tempfile.TemporaryFile()  # noqa: SIM115  (closed by `verdict`)
        self.folder = tempfile.TemporaryDirectory()
        self.pid = os.fork()
        if self.pid == 0:
            status = 70
            try:
                os.environ["PYTEST_DEBUG_TEMPROOT"] = self.folder.name
                status = work(self.log.fileno(), Path(self.folder.name))
            finally:
                os._exit(status)

    def verdict(self, status: int) -> str:
        """Return what noticed the mutant, nothing if no test did; `status` is as of os.wait."""
        at = os.pread(self.log.fileno(), 400, 0).decode().strip() or "collecting"
        self.log.close()
        self.folder.cleanup()
        if os.WIFSIGNALED(status):
            hangs = os.WTERMSIG(status) == signal.SIGXCPU
            return f"{'hangs' if hangs else 'dies'} in {at}"
        return at if os.WEXITSTATUS(status) else ""


def _quiet() -> None:
    nowhere = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(nowhere, stream)
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))


def _into_project() -> None:
    os.chdir(ROOT)
    sys.path.insert(0, str(ROOT))
    os.environ["NUMBA_DISABLE_JIT"] = "1"  # its cache would stand for the changed source


class Chosen:
    """Keeps the tests that are named, in that order, and ends when the time is used up."""

    def __init__(self, tests: Sequence[str], budget: Budget) -> None:
        self.place = {name: at for at, name in enumerate(tests)}
        self.budget = budget

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        named = [item for item in items if item.nodeid in self.place]
        items[:] = sorted(named, key=lambda item: self.place[item.nodeid])

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        if not self.budget.begins(nodeid):
            pytest.exit("its time is used up", returncode=0)


def in_new_process(one: Mutant | None, tests: Sequence[str], reach: Reach, seconds: float) -> str:
    """Run tests in a fork that imports the changed module anew; return what noticed it."""

    def work(log: int, folder: Path) -> int:
        if one is not None:
            plant(one, folder)
        _quiet()
        _into_project()
        resource.setrlimit(resource.RLIMIT_CPU, (COLLECTING, resource.RLIM_INFINITY))
        files = dict.fromkeys(test.partition("::")[0] for test in tests)
        chosen = Chosen(tests, Budget(reach, seconds + COLLECTING, log))
        status = int(pytest.main([*WORDS, "-x", *files], plugins=[chosen]))
        return 0 if status == pytest.ExitCode.NO_TESTS_COLLECTED else status

    fork = Fork(work)
    return fork.verdict(os.waitpid(fork.pid, 0)[1])


class Collected:
    """All tests, collected once; `judge` is asked for mutants and told what noticed them."""

    def __init__(
        self,
        mutants: Iterable[tuple[int, Mutant, Sequence[str]]],
        tell: Callable[[int, Mutant, str], None],
        reach: Reach,
        seconds: float,
        jobs: int,
    ) -> None:
        self.mutants, self.tell, self.reach = mutants, tell, reach
        self.seconds, self.jobs = seconds, jobs
        self.functions: dict[str, list[FunctionType]] = {}
        self.caches: list[functools._lru_cache_wrapper[object]] = []

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """Judge the mutants, in place of pytest's own loop over the tests."""
        items = {item.nodeid: item for item in session.items}
        for found in gc.get_objects():
            # isinstance() would ask objects of torch, which warn
            if type(found) is FunctionType:
                self.functions.setdefault(found.__code__.co_filename, []).append(found)
            elif type(found) is functools._lru_cache_wrapper and found.__module__.startswith(OWN):
                self.caches.append(found)
        gc.collect()
        gc.freeze()
        running: dict[int, tuple[int, Mutant, Fork]] = {}
        for number, one, tests in self.mutants:
            named = [items[test] for test in tests if test in items]
            running_fork = Fork(functools.partial(self._child, session, one, named))
            running[running_fork.pid] = (number, one, running_fork)
            if len(running) >= self.jobs:
                self._one_ended(running)
        while running:
            self._one_ended(running)
        return True

    def _one_ended(self, running: dict[int, tuple[int, Mutant, Fork]]) -> None:
        pid, status = os.wait()
        number, one, fork = running.pop(pid)
        self.tell(number, one, fork.verdict(status))

    def _child(
        self,
        session: pytest.Session,
        one: Mutant,
        items: Sequence[pytest.Item],
        log: int,
        folder: Path,
    ) -> int:
        _quiet()
        plant(one, folder)
        self._change(one)
        budget = Budget(self.reach, self.seconds, log)
        for item, following in zip(items, [*items[1:], None], strict=True):
            if not budget.begins(item.nodeid):
                break
            item.ihook.pytest_runtest_protocol(item=item, nextitem=following)
            if session.testsfailed:
                return 1
        return 0

    def _change(self, one: Mutant) -> None:
        """Give the functions of a module the mutant's code, and forget what they returned."""
        changed = {(code.co_qualname, code.co_firstlineno): code for code in _codes(one.code())}
        for function in self.functions.get(str(one.path), []):
            known = function.__code__
            new = changed.get((known.co_qualname, known.co_firstlineno))
            if new is not None and new != known:
                function.__code__ = new
        for held in self.caches:
            held.cache_clear()


def _codes(code: CodeType) -> Iterator[CodeType]:
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            yield inner
            yield from _codes(inner)


def run_collected(judge: Collected, tests: Sequence[str]) -> None:
    """Collect the files of tests in a fork of this process and judge mutants there."""
    child = os.fork()
    if child == 0:
        _into_project()
        os.environ["PYTHONPATH"] = str(ROOT)
        try:
            pytest.main([*WORDS, *tests], plugins=[judge])
        finally:
            os._exit(0)
    os.waitpid(child, 0)
