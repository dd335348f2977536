"""Makes TRL's GRPOTrainer a member of a swarm. The node beside it does network, verification and trust.

    sapo-node start --no-train --feed --local 4 --external 4 --max-tokens 256
    python examples/trl_grpo.py MODEL ~/.local/state/sapo-node/SWARM/PEER/feed.json

Each step trains on the local groups of a round and on verified groups of peers, with the node's advantages. With
positive-only, the node's default, the mask leaves out the incorrect completions of peers, and what the filters mask.
"""

import sys
from pathlib import Path

import torch
from datasets import Dataset
from transformers import TrainerCallback
from trl import GRPOConfig, GRPOTrainer

from sapo_node.client import Feed, Row, StepBack, completions_of, mark, newest, prompt_ids, reports_of, rows_of

GROUPS, COMPLETIONS, MAX_TOKENS = 4 + 4, 8, 256  # as the node's --local, --external and --max-tokens


class SwarmTrainer(GRPOTrainer):
    """GRPO with the advantages of the node instead of those that TRL computes of each group."""

    def _generate_and_score_completions(self, inputs):
        output = super()._generate_and_score_completions(inputs)
        advantages = [each["advantage"] for each in inputs]
        return output | {"advantages": torch.tensor(advantages, device=output["advantages"].device)}


class Swarm(TrainerCallback):
    """Samples for the node's prompts, gives TRL the node's batches, and reports what each step did."""

    def __init__(self, feed):
        self.feed, self.saved = feed, 0

    def rollout(self, prompts, trainer):
        tokenizer, size = trainer.processing_class, trainer.max_completion_length

        def sample(asked):
            ids = [prompt_ids(prompt, tokenizer) for prompt in asked.prompts for _ in range(asked.completions)]
            return completions_of(asked, trainer._generate_single_turn(ids, None, {}, asked.completions)[0], tokenizer)

        @torch.no_grad()
        def logprobs(prompt, ids):
            logits = trainer.model(torch.tensor([prompt + ids], device=trainer.model.device)).logits[0]
            return logits[len(prompt) - 1 : -1].float().log_softmax(-1)[range(len(ids)), ids].tolist()

        self.batch = self.feed.next_batch(sample)
        self.rows = rows_of(self.batch, tokenizer, max_tokens=size, logprobs=logprobs)[: len(prompts)]
        empty = Row("", "external", [tokenizer.eos_token_id], [tokenizer.eos_token_id], [0], 0.0, 0.0)
        places = self.rows + [empty] * (len(prompts) - len(self.rows))
        return {
            "prompt_ids": [row.prompt for row in places],
            "completion_ids": [row.completion for row in places],
            "logprobs": None,
            "env_mask": [row.mask for row in places],
            "advantage": [row.advantage for row in places],
            "reward": [row.reward for row in places],
            "source": [row.source for row in places],
        }

    def on_step_end(self, args, state, control, optimizer, **_):
        rate = optimizer.param_groups[0]["lr"]
        self.feed.report(self.batch, reports_of(self.rows), saved=self.saved, learning_rate=rate)

    def on_save(self, args, state, control, **_):
        self.saved = self.batch.step
        mark(Path(args.output_dir) / f"checkpoint-{state.global_step}", self.saved)


def reward(reward, source, log_metric, **_):
    """The node's rewards. Those of this policy alone are a metric of their own: they are its learning curve."""
    local = [each for each, origin in zip(reward, source, strict=True) if origin == "local"]
    log_metric("swarm/local_reward", sum(local) / len(local))
    return reward


def train(model, feed, settings, **options):
    """Train from the newest checkpoint, and from an older one where the node takes steps back."""
    last = None
    while True:
        swarm, places = Swarm(feed), Dataset.from_list([{"prompt": ""}] * GROUPS)
        trainer = SwarmTrainer(
            model, reward, settings, places, rollout_func=swarm.rollout, callbacks=[swarm], **options
        )
        swarm.saved, checkpoint = newest(settings.output_dir, last)
        feed.started(swarm.saved)
        try:
            return trainer.train(resume_from_checkpoint=checkpoint and str(checkpoint))
        except StepBack as back:
            last = back.step


if __name__ == "__main__":
    settings = GRPOConfig(
        output_dir="trl-swarm",
        num_generations=COMPLETIONS,
        per_device_train_batch_size=COMPLETIONS,
        gradient_accumulation_steps=GROUPS,
        max_completion_length=MAX_TOKENS,
        loss_type="dr_grpo",  # a constant denominator, so that groups of unlike lengths compare
        save_steps=10,
        save_total_limit=3,  # the node may ask for the last but one
    )
    train(sys.argv[1], Feed(sys.argv[2]), settings)
