"""
A scenario: one strict file that says which work runs on which cluster, by whose rules.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

from commsim.cluster import ClusterSection
from commsim.engine import EngineSection, FaultsSection
from commsim.errors import ScenarioError
from commsim.libraries import LibrarySection
from commsim.scenario.catalogue import scenario_names, scenario_text
from commsim.scenario.goodput import GoodputSection
from commsim.scenario.jobs import JobSection
from commsim.scenario.overrides import apply_sets, merge_settings
from commsim.sections import Section, decode
from commsim.setting_names import foreign_config, setting_for
from commsim.workload import WorkloadSection
from commsim.yaml_file import parse_yaml, read_yaml

__all__ = [
    "Scenario",
    "ScenarioFile",
    "SweepSection",
    "load_scenario",
    "option_setting",
    "read_scenario",
    "scenario_from",
]


_FOREIGN = (
    "{}, not a scenario.{} `commsim presets show ddp` prints one to start from: the model, the"
    " parallel degrees and the batch go under workload.training."
)
_OF_CLUSTERS = frozenset(ClusterSection.__struct_fields__)
_CONVERTED = " `commsim convert {} scenario.yaml` makes one of it."


class SweepSection(Section, frozen=True):
    """What `commsim sweep` varies: values by path, all combinations.

    `zip`: all side by side, or lists of paths that go side by side.
    """

    vary: dict[str, list[Any] | str]
    zip: bool | list[list[str]] = False


class ScenarioFile(Section, frozen=True):
    """What stands in a scenario file; each room reads its own section."""

    workload: WorkloadSection = WorkloadSection()
    name: str | None = None
    cluster: ClusterSection | None = None
    library: LibrarySection = LibrarySection()
    torch: str | None = None
    engine: EngineSection = EngineSection()
    sweep: SweepSection | None = None
    faults: FaultsSection | None = None
    jobs: tuple[JobSection, ...] | None = None
    goodput: GoodputSection | None = None


class Scenario(Section, frozen=True):
    """A scenario that has been read: its sections, where it is from, and how errors call it."""

    name: str
    where: str
    folder: str
    file: ScenarioFile

    def __repr__(self) -> str:
        work = self.file.workload
        kinds = [name for name in work.__struct_fields__ if getattr(work, name) is not None]
        return f"Scenario({self.name!r}, {', '.join(kinds)})"

    @staticmethod
    def load(source: str | Path | Mapping[str, Any], **settings: Any) -> Scenario:
        """Read a file, a name of the catalogue or a dict, with `settings` laid over it.

        `Scenario.load("quickstart", cluster={"nodes": 4})`; a key may be a path, as in
        `Scenario.load("quickstart", **{"cluster.nodes": 4})`.

        Raises:
            ScenarioError: no such file or name, or a setting that is wrong.
        """
        if isinstance(source, Mapping):
            return scenario_from(source, "the scenario", settings=settings)
        return load_scenario(source, settings=settings)


def load_scenario(
    name: str | Path, sets: Iterable[str] = (), settings: Mapping[str, Any] = MappingProxyType({})
) -> Scenario:
    """Read a scenario file, or one of the catalogue by name, with changes.

    `settings` are plain data laid over the file's, `sets` changes as "key.path=value".

    Raises:
        ScenarioError: no such file or name, not YAML, or a setting that is wrong.
    """
    data, where, folder, default = read_scenario(name)
    return scenario_from(
        data, where, sets=sets, settings=settings, folder=folder, default_name=default
    )


def read_scenario(
    source: str | Path | Mapping[str, Any], sets: Iterable[str] = ()
) -> tuple[Any, str, str, str]:
    """Return a scenario's plain data, how errors call it, its folder and its name.

    `source` is a file, a name of the catalogue, "-" for standard input, or plain data.

    Raises:
        ScenarioError: no such file or name, not YAML, or another tool's file.
    """
    if isinstance(source, Mapping):
        return _changed(source, sets), "the scenario", ".", "the scenario"
    data, where, folder, default = _read(source)
    return _changed(data, sets), where, folder, default


def _changed(data: Any, sets: Iterable[str]) -> Any:
    """Return plain data with changes, whose paths begin at the top: users leave that away."""
    sets = tuple(sets)
    for text in sets:
        path = text.partition("=")[0].strip()
        words = path.split(".")
        if words[0] in ScenarioFile.__struct_fields__:
            continue
        from commsim.setting_search import settings_meant

        if meant := settings_meant(ScenarioFile, words, data):
            told = " or ".join(f"--set {one}{text[len(path) :].strip()}" for one in meant)
            raise ScenarioError(
                f"--set {text}: paths begin at the top of a scenario. Write {told}."
            )
    return apply_sets(data, sets)


_OPTIONS: Mapping[str, str] = MappingProxyType(
    {
        "cluster": "cluster.preset", "model": "workload.training.model.preset",
        "library": "library.name", "nccl_version": "library.version", "algo": "library.algo",
        "proto": "library.proto", "launch": "library.launch", "network": "engine.network",
    }
)  # fmt: skip


def option_setting(name: str) -> str:
    """Return the path of the setting that an option ("nodes", "tp") stands for, "" for none."""
    from commsim.setting_search import settings_meant

    words = (setting_for(name) or name).split(".")
    meant = settings_meant(ScenarioFile, words, {})
    return _OPTIONS.get(name) or (meant[0] if len(meant) == 1 else "")


def _read(name: str | Path) -> tuple[Any, str, str, str]:
    if not isinstance(name, str | Path):
        raise ScenarioError(
            "a scenario is a file, a name of the catalogue or a dict, not of type"
            f" {type(name).__name__}."
        )
    path = Path(name)
    if str(name) == "-":
        where = "standard input"
        return read_yaml(path, where), where, ".", where
    if os.path.isdir(path):  # unlike pathlib's, for a name of any length
        raise ScenarioError(
            f"{path}: is a folder. Give a scenario file; a folder of traces is for"
            f" `commsim replay {path}`."
        )
    if path.suffix == ".toml":
        told = _FOREIGN.format("a TOML file, as torchtitan reads", _CONVERTED.format(path))
        raise ScenarioError(f"{path}: {told}")
    there, named_yaml = os.path.lexists(path), path.suffix in (".yaml", ".yml")
    if named_yaml and not there and path.stem in scenario_names():
        raise ScenarioError(
            f"{path}: there is no such file. {path.stem!r}, without {path.suffix}, is a scenario"
            " that comes with commsim."
        )
    if named_yaml or there:
        data, where, folder = read_yaml(path, str(path)), str(path), str(path.parent)
    else:
        where, folder = f"{name}.yaml", "."
        data = parse_yaml(scenario_text(str(name)), where)
    return data, where, folder, path.stem


def scenario_from(
    data: Any,
    where: str,
    *,
    sets: Iterable[str] = (),
    settings: Mapping[str, Any] = MappingProxyType({}),
    folder: str = ".",
    default_name: str = "",
) -> Scenario:
    """Return the scenario that plain data describes, with changes. Raises ScenarioError."""
    data = _changed(merge_settings(data, settings) if settings else data, sets)
    if data is None:
        raise ScenarioError(f"{where}: the file is empty. `commsim presets scenarios` lists some.")
    if not isinstance(data, dict):
        raise ScenarioError(
            f"{where}: is no scenario, which is a mapping (name:, cluster:, workload:). Traces are"
            " for `commsim replay`, tables of nccl-tests for `commsim check`."
        )
    if other := foreign_config(data):
        how = "" if "DeepSpeed" in other else _CONVERTED.format(where)
        raise ScenarioError(f"{where}: {_FOREIGN.format(f'looks like {other}', how)}")
    if data and all(isinstance(key, str) and key in _OF_CLUSTERS for key in data):
        raise ScenarioError(
            f"{where}: is a cluster file, not a scenario. Write `cluster:` above it and add a"
            " workload; `commsim topo` and `bench --cluster` take it as it is."
        )
    file = decode(data, ScenarioFile, where)
    _check_work(data, file, where)
    if file.torch is not None:
        raise ScenarioError(
            f"{where}: torch: versions of torch are not told apart yet. Leave it out."
        )
    return Scenario(name=file.name or default_name or where, where=where, folder=folder, file=file)


def _check_work(data: Mapping[str, Any], file: ScenarioFile, where: str) -> None:
    """Refuse a scenario without work, and one whose jobs stand next to work or faults."""
    if file.jobs is None and "workload" not in data:
        raise ScenarioError(
            f"{where}: workload is missing: say what is to run, or list several jobs."
        )
    for other in ("workload", "faults"):
        if file.jobs is not None and other in data:
            raise ScenarioError(f"{where}: {other}: means nothing beside jobs. Leave out one.")
