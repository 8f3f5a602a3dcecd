"""
Scenarios: strict YAML, changes from the command line, and the catalogue that comes along.
"""

from commsim.scenario.catalogue import scenario_names, scenario_summary, scenario_text
from commsim.scenario.overrides import apply_sets
from commsim.scenario.section import Scenario, ScenarioFile, load_scenario, scenario_from

__all__ = [
    "Scenario",
    "ScenarioFile",
    "apply_sets",
    "load_scenario",
    "scenario_from",
    "scenario_names",
    "scenario_summary",
    "scenario_text",
]
