"""
Recipes that people have, as scenarios: torchtitan's TOML, Megatron's command line, YAML of NeMo.

In: a file, and the cluster that it ran on. Out: a `TrainingRecipe`: a scenario in plain
data, and every key that has no place in it. `megatron` and `torchtitan` hold what their keys mean.
"""

from commsim.scenario.recipes.recipe import TrainingRecipe, is_recipe, read_recipe

__all__ = ["TrainingRecipe", "is_recipe", "read_recipe"]
