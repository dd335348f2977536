"""Names the settings that have no effect on a node because it does not train."""

from dataclasses import fields

from sapo_node.app.config import Config

OF_LEARNER = (
    *("generate", "lora", "lora_layers", "dtype", "thinking", "gradient_checkpointing", "device", "threads"),
    *("learning_rate", "warmup", "decay_rounds", "replay", "checkpoint_every", "eval_every"),
)
"""Settings of the learner. A trainer of another program has settings of its own."""
OF_ROUNDS = ("external_objective", "selection", "filters", "log_to")
"""Settings of rounds that train, by this node or by a trainer of another program."""
OF_GROUPS = ("local", "model", "max_tokens", "examples")
"""Settings of the groups that a node shares."""


def unused_settings(config: Config, *, contributes: bool) -> list[str]:
    """Return the settings that the operator chose and this node does not use. `contributes`: whether the node shares
    completions of a contributor.
    """
    if config.train:
        return []
    of_rounds = () if config.fed else OF_ROUNDS
    of_groups = () if config.fed or contributes else OF_GROUPS
    defaults = {each.name: each.default for each in fields(Config)}
    return [name for name in (*OF_LEARNER, *of_rounds, *of_groups) if getattr(config, name) != defaults[name]]
