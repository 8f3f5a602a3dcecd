"""
Scenarios: strict YAML, changes from the command line, and what comes with commsim by name.

In: a file, a dict or a name, and `--set` changes; recipes of other tools (`recipes`). Out: a
checked `Scenario` with its sections.
"""

from commsim.scenario.catalogue import scenario_names, scenario_summary, scenario_text
from commsim.scenario.examples import EXAMPLES, example_path
from commsim.scenario.goodput import FailureRates, GoodputSection
from commsim.scenario.jobs import JobSection
from commsim.scenario.names import presets
from commsim.scenario.overrides import apply_sets
from commsim.scenario.recipes import TrainingRecipe, is_recipe, read_recipe
from commsim.scenario.schema import scenario_schema, setting_paths
from commsim.scenario.section import (
    Scenario,
    ScenarioFile,
    SweepSection,
    load_scenario,
    option_setting,
    read_scenario,
    scenario_from,
)
from commsim.scenario.starting import TEMPLATES, template_text

__all__ = [
    "EXAMPLES",
    "TEMPLATES",
    "FailureRates",
    "GoodputSection",
    "JobSection",
    "Scenario",
    "ScenarioFile",
    "SweepSection",
    "TrainingRecipe",
    "apply_sets",
    "example_path",
    "is_recipe",
    "load_scenario",
    "option_setting",
    "presets",
    "read_recipe",
    "read_scenario",
    "scenario_from",
    "scenario_names",
    "scenario_schema",
    "scenario_summary",
    "scenario_text",
    "setting_paths",
    "template_text",
]
