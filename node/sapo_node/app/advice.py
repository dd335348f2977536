"""Advice for an operator whose model learns nothing from its own completions."""

from sapo_node.app.config import Config
from sapo_node.app.recipe import recipe_of
from sapo_node.groups.prompt import MAX_EXAMPLES

EASY_SWARM = "smollm2-easy"
"""The shipped swarm with the easiest tasks."""
FEW_EXAMPLES = 3
"""Worked examples that teach most models to use the answer tags."""
MANY_CUT = 0.5
"""Share of completions cut at the limit from which a higher limit may help."""
BYTES_PER_TOKEN = 3
"""Bytes of English text in one token, at least. Most tokenizers have 3 to 4."""


def too_long_for(config: Config, max_bytes: int) -> str:
    """Return a notice if completions of `max_tokens` tokens hardly fit into the `max_bytes` that a swarm keeps of each.
    Raises ModelError.
    """
    max_tokens = recipe_of(config).max_tokens
    if not config.train or BYTES_PER_TOKEN * max_tokens <= max_bytes:
        return ""
    return (
        f"the swarm keeps {max_bytes:,} bytes of a completion, and {max_tokens:,} tokens have about "
        f"{BYTES_PER_TOKEN * max_tokens:,} or more: an answer after the first {max_bytes:,} bytes is lost. Give at "
        f"most --max-tokens {max_bytes // BYTES_PER_TOKEN}, or a swarm that keeps more"
    )


def for_too_hard(
    config: Config, *, cut: float, over_bytes: float, max_bytes: int, without_room: float = 0.0
) -> list[str]:
    """Return what may help if a model earns no reward. `cut` is the share of its completions cut at the limit,
    `over_bytes` the share cut at the `max_bytes` that the swarm keeps, and `without_room` the share of prompts that did
    not fit into the model together with a completion.
    """
    recipe = recipe_of(config)
    is_over = cut >= MANY_CUT and over_bytes > cut / 2
    found = []
    if without_room:
        # More tokens or more examples would leave room for still fewer prompts.
        ways = "fewer --examples, or a lower --max-tokens" if recipe.examples else "a lower --max-tokens"
        found.append(f"give {ways}, because {without_room:.0%} of the prompts do not fit into the model")
    elif is_over:
        ways = "a lower --max-tokens, no --thinking," if config.thinking else "a lower --max-tokens"
        found.append(
            f"give {ways} or a swarm that keeps more of a completion than {max_bytes:,} bytes, because "
            f"{over_bytes:.0%} of the completions are cut there"
        )
    elif cut >= MANY_CUT:
        found.append(f"raise --max-tokens, because {cut:.0%} of the completions are cut at {recipe.max_tokens} tokens")
    if recipe.examples < MAX_EXAMPLES and not without_room:
        more = MAX_EXAMPLES if recipe.examples >= FEW_EXAMPLES else FEW_EXAMPLES
        found.append(f"show the model more worked examples than {recipe.examples}: --examples {more}")
    # The easy swarm keeps the fewest bytes.
    if config.swarm != EASY_SWARM and not is_over:
        found.append(f"join a swarm with easier tasks: --swarm {EASY_SWARM}")
    return [*found, "give a larger model"]


def for_too_easy() -> list[str]:
    """Return what may help if a model is always correct."""
    return ["join a swarm with harder tasks"]
