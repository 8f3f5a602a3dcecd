"""
Recipes that people have, as scenarios: torchtitan's TOML, Megatron's command line, YAML of NeMo.

In: a file, and the cluster that it ran on. Out: a `Recipe`: a scenario in plain data, and every key
that has no place in it. `megatron` and `torchtitan` hold what their keys mean.
"""

from commsim.scenario.recipes.recipe import Recipe, is_recipe, read_recipe

__all__ = ["Recipe", "is_recipe", "read_recipe"]
