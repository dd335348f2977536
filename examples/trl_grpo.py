"""TRL's GRPOTrainer as a member of a swarm. The node beside it does network, verification and trust.

    sapo-node start --no-train --feed --local 4 --external 4 --max-tokens 256
    python examples/trl_grpo.py MODEL ~/.local/state/sapo-node/SWARM/PEER/feed.json

MODEL is a folder, a name on the hub, or `seed` for the model in the package.
"""

import sys

import torch
from trl import GRPOConfig

from sapo_node.client import Feed
from sapo_node.trl import train

LOCAL, EXTERNAL, COMPLETIONS = 4, 4, 8  # as --local and --external of the node, and G of the swarm

if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    settings = GRPOConfig(
        output_dir="trl-swarm",
        num_generations=COMPLETIONS,
        per_device_train_batch_size=COMPLETIONS,
        gradient_accumulation_steps=LOCAL + EXTERNAL,
        max_completion_length=256,  # as --max-tokens of the node
        learning_rate=1e-4,  # for the model in the package; a large model takes less
        lr_scheduler_type="constant",
        loss_type="dr_grpo",  # a constant denominator, so that groups of unlike lengths compare
        max_steps=1_000,
        save_steps=10,
        save_total_limit=3,  # the node may ask for the last but one
        use_cpu=not torch.accelerator.is_available(),
        bf16=torch.cuda.is_available(),
    )
    train(sys.argv[1], Feed(sys.argv[2]), settings)
