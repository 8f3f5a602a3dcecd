"""
The process that simulates for the page: `python -m commsim.explore.worker`.

Lines of JSON come in and go out. The first line in says which scenario, and how much memory a run
may take; the first one out is {"kind": "hello"} with its controls, or {"kind": "failed"} with an
error. Then each {"id", "ask", "chosen"} is answered by lines of that id, the last of which has the
kind "end". {"stop": id} ends the answer of that id.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Callable, Iterator, Mapping
from threading import Thread
from typing import Any, TextIO

from msgspec.structs import replace

from commsim.charts import live_assets
from commsim.errors import CommsimError, ScenarioError
from commsim.explore.controls import check_choices, controls_of, has_experts
from commsim.explore.request_queue import Answer, RequestQueue, write
from commsim.explore.settings import command_line, with_choices
from commsim.limits import limited_to
from commsim.models import model_names
from commsim.scenario import read_scenario, scenario_from

__all__ = ["OPS", "Exploration", "main"]

OPS = ("all_reduce", "all_gather", "reduce_scatter", "broadcast", "all_to_all")
"""The collectives whose curves can be asked for."""

_WHERE = "the scenario"
_KEPT = 24  # answers of some 100 kB that a slider may come back to


class Exploration:
    """A scenario, and what becomes of it under the choices of the page.

    Raises:
        ScenarioError: the scenario is none, or has nothing to choose.
    """

    def __init__(self, source: str, sets: tuple[str, ...] = ()) -> None:
        self._source = source
        self._file, where, self._folder, self._default = read_scenario(source)
        self._base: Answer = read_scenario(source, sets)[0]
        scenario = scenario_from(self._base, where, folder=self._folder, default_name=self._default)
        self.name = scenario.name
        self.controls = controls_of(self._base)
        if not self.controls:
            raise ScenarioError(
                f"{where}: has neither a cluster nor a pipeline, so there is nothing to choose on a"
                " page. `commsim run` runs it."
            )
        self._latest: tuple[Answer, Any] | None = None
        self._hardware: Any = None
        self._known: dict[str, Answer] = {}

    def hello(self) -> Answer:
        """Return what the page is made from."""
        style, viewer = live_assets()
        return {
            "style": style,
            "viewer": viewer,
            "name": self.name,
            "source": self._source,
            "controls": [control.as_dict() for control in self.controls],
            "ops": list(OPS),
            "experts": [name for name in model_names() if has_experts(name)],
        }

    def data(self, chosen: Mapping[str, Any]) -> Answer:
        """Return the scenario with what was chosen, as plain data. Raises ScenarioError."""
        return with_choices(self._base, check_choices(self.controls, chosen))

    def command(self, data: Answer) -> str:
        """Return the command line that runs a scenario of this page."""
        return command_line(self._source, self._file, data)

    def run(self, chosen: Mapping[str, Any], say: Callable[[str], None]) -> Iterator[Answer]:
        """Yield what the page shows of the scenario with what was chosen: the step first, then
        all of it. Raises CommsimError.
        """
        from commsim.explore.answers import run_answer, step_answer

        data = self.data(chosen)
        key = json.dumps(data, sort_keys=True)
        if key not in self._known:
            result = self._result(data, say)
            step = step_answer(result, data, self.command(data))
            yield {"kind": "step", **step}
            say("finding what limits it")
            self._known[key] = step | run_answer(result)
            if len(self._known) > _KEPT:
                del self._known[next(iter(self._known))]
        yield {"kind": "run", **self._known[key]}

    def curves(self, chosen: Mapping[str, Any], op: str) -> Iterator[Answer]:
        """Yield busbw of each algorithm of `op` on the cluster chosen. Raises CommsimError."""
        from commsim.explore.answers import bench_answer, bench_of

        if op not in OPS:
            raise ScenarioError(f"{op[:40]!r} is not among the collectives of this page.")
        data = self.data(chosen)
        yield {"kind": "curves", **bench_answer(bench_of(data, op), op)}

    def report(self, chosen: Mapping[str, Any], say: Callable[[str], None]) -> Iterator[Answer]:
        """Yield the report of the scenario chosen, as a page. Raises CommsimError."""
        from commsim.explore.answers import report_html

        yield {"kind": "report", "html": report_html(self._result(self.data(chosen), say))}

    def _result(self, data: Answer, say: Callable[[str], None]) -> Any:
        """Return the run of a scenario; the latest one is kept."""
        from commsim.study.run import KeptHardware, run

        if self._latest is None or self._latest[0] != data:
            scenario = scenario_from(data, _WHERE, folder=self._folder, default_name=self._default)
            self._latest = None
            self._hardware = self._hardware or KeptHardware()
            with self._hardware:
                result = replace(run(scenario, progress=say), command=self.command(data))
            self._latest = data, result
        return self._latest[1]

    def forget(self) -> None:
        """Forget all answers; what libraries know of the latest cluster is kept."""
        self._latest, self._known = None, {}

    def error(self, problem: CommsimError) -> Answer:
        """Return an error as a sentence, with the controls that it is about.

        They are those whose setting it names; the longest path, where one is within another.
        """
        text = str(problem)
        named = {
            control.key: max((len(path) for path in control.paths if path in text), default=0)
            for control in self.controls
        }
        most = max(named.values())
        about = [key for key, length in named.items() if length == most > 0]
        return {"kind": "error", "message": text.removeprefix(f"{_WHERE}: "), "controls": about}

    def answers(self, request: Mapping[str, Any], say: Callable[[str], None]) -> Iterator[Answer]:
        """Yield the answers to a request of the page. Raises CommsimError."""
        chosen, ask = request["chosen"], request["ask"]
        if ask == "run":
            return self.run(chosen, say)
        if ask == "report":
            return self.report(chosen, say)
        return self.curves(chosen, request["op"])


def main() -> None:
    """Answer on standard output what is asked on standard input."""
    out = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # what anything else prints is no message
    first = json.loads(sys.stdin.readline())
    with limited_to(first["limit"]):
        _answer(first, out)


def _answer(first: dict[str, Any], out: TextIO) -> None:
    try:
        exploration = Exploration(first["source"], tuple(first["sets"]))
    except (CommsimError, OSError) as problem:
        code = problem.exit_code if isinstance(problem, CommsimError) else 2
        write(out, {"kind": "failed", "message": str(problem), "exit_code": code})
        return
    requests = RequestQueue(exploration, out)
    signal.signal(signal.SIGINT, requests.interrupt)
    write(out, {"kind": "hello", **exploration.hello()})
    import commsim.explore.answers  # noqa: F401  (while the browser opens)

    Thread(target=requests.listen, args=(sys.stdin,), daemon=True).start()
    requests.work()


if __name__ == "__main__":
    main()
