"""What an operator can do if a model learns nothing from its own completions."""

from sapo_node.app.config import Config
from sapo_node.app.recipe import recipe_of
from sapo_node.groups.prompt import MAX_EXAMPLES

EASY_SWARM = "smollm2-easy"
"""The shipped swarm with the easiest tasks."""
FEW_EXAMPLES = 3
"""Worked examples that teach most models to use the answer tags."""
MANY_CUT = 0.5
"""Share of completions cut at the limit from which a higher limit may help."""


def for_too_hard(config: Config, *, cut: float, without_room: float = 0.0) -> list[str]:
    """Return what may help if a model earns no reward. `cut` is the share of its completions cut at the limit, and
    `without_room` the share of prompts that did not fit into the model together with a completion.
    """
    recipe = recipe_of(config)
    found = []
    if without_room:
        # More tokens or more examples would leave room for still fewer prompts.
        ways = "fewer --examples, or a lower --max-tokens" if recipe.examples else "a lower --max-tokens"
        found.append(f"give {ways}, because {without_room:.0%} of the prompts do not fit into the model")
    elif cut >= MANY_CUT:
        found.append(f"raise --max-tokens, because {cut:.0%} of the completions are cut at {recipe.max_tokens} tokens")
    if recipe.examples < MAX_EXAMPLES and not without_room:
        more = MAX_EXAMPLES if recipe.examples >= FEW_EXAMPLES else FEW_EXAMPLES
        found.append(f"show the model more worked examples than {recipe.examples}: --examples {more}")
    if config.swarm != EASY_SWARM:
        found.append(f"join a swarm with easier tasks: --swarm {EASY_SWARM}")
    return [*found, "give a larger model"]


def for_too_easy() -> list[str]:
    """Return what may help if a model is always correct."""
    return ["join a swarm with harder tasks"]
