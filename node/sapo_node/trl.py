"""Makes TRL's GRPOTrainer a member of a swarm, through the feed of a node that runs beside it. Needs TRL.

    settings = GRPOConfig(num_generations=8, generation_batch_size=(4 + 4) * 8, ...)   # (local + external) * G
    train(MODEL, Feed("~/.local/state/sapo-node/.../feed.json"), settings)

Where the node has `replay = true`, a round has up to (2 * local + external) * G completions.

The swarm has the tasks, the prompts and the rewards, and the node says which tokens are trained on. An option of TRL
for one of these would have no effect, so it is refused by its name.

Each step trains on the local groups of a round and on verified groups of peers, with the advantages of the node. With
positive-only, the node's default, the mask leaves out the incorrect completions of peers, and what the filters mask.
TRL calls `rollout_func` experimental. This module was written for TRL 1.16; it overrides one private method of
GRPOTrainer and calls another.
"""

import gc
import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from datasets import Dataset
from transformers import TrainerCallback
from trl import GRPOConfig, GRPOTrainer

from sapo_node.client import Feed, Row, StepBack, completions_of, mark, newest, prompt_ids, reports_of, rows_of
from sapo_node.feed.messages import Completion, Prompts
from sapo_node.learner.folder import POLICY_DIR
from sapo_node.learner.model import load_tokenizer
from sapo_protocol import LocalError

_OPTIONS = (
    "args",
    "reward_funcs",
    "reward_processing_classes",
    "train_dataset",
    "eval_dataset",
    "rollout_func",
    "tools",
    "environment_factory",
)
"""Arguments of GRPOTrainer that the swarm or the node decides."""
_SETTINGS: Mapping[str, Any] = {
    "reward_weights": None,
    "scale_rewards": "group",
    "multi_objective_aggregation": "sum_then_normalize",
    "mask_truncated_completions": False,
    "top_entropy_quantile": 1.0,
    "off_policy_mask_threshold": None,
    "shuffle_dataset": True,
    "num_generations_eval": None,
    "do_eval": False,
    "eval_on_start": False,
    "eval_strategy": "no",
    "max_tool_calling_iterations": None,
}
"""Settings of GRPOConfig that the swarm or the node decides, with TRL's defaults."""
_TEMPLATE_KEYS = {"enable_thinking"}
"""Keys of `chat_template_kwargs` that the prompts of a node use."""


class SwarmTrainer(GRPOTrainer):  # type: ignore[misc]  # TRL has no types
    """GRPO with the advantages of the node instead of those that TRL computes of each group."""

    def __init__(self, model: Any, feed: Feed, settings: GRPOConfig, **options: Any) -> None:
        """`options` are those of GRPOTrainer. Raises LocalError for an option or a setting that a swarm has no use for,
        and for settings that no round of a node fits.
        """
        _require_of_trainer(settings, options)
        _require_one_step(settings)
        swarm = Swarm(feed)
        groups = settings.generation_batch_size // settings.num_generations
        places = Dataset.from_list([{"prompt": ""}] * groups)  # the node has the prompts
        options["callbacks"] = [swarm, *(options.get("callbacks") or ())]
        super().__init__(model, _reward, settings, train_dataset=places, rollout_func=swarm.rollout, **options)
        self.swarm = swarm
        switches = settings.chat_template_kwargs or {}
        self.thinking = bool(switches.get("enable_thinking", switches.get("thinking", False)))
        """As in a node, a model such as Qwen3 thinks only if it is set to."""

    def sample(self, asked: Prompts) -> list[list[Completion]]:
        """Sample G completions of each prompt, with the engine that TRL is set to. Raises LocalError for settings that
        do not fit those of the node.
        """
        if self.num_generations != asked.completions:
            raise LocalError(
                f"num_generations is {self.num_generations}, and the swarm has {asked.completions} completions of each "
                f"prompt: set num_generations={asked.completions}"
            )
        if self.max_completion_length > asked.max_tokens:
            raise LocalError(
                f"max_completion_length is {self.max_completion_length}, and the node takes {asked.max_tokens} tokens: "
                f"set max_completion_length={asked.max_tokens}, or start the node with "
                f"--max-tokens {self.max_completion_length}"
            )
        tokenizer = self.processing_class
        prompts = [prompt_ids(prompt, tokenizer, thinking=self.thinking) for prompt in asked.prompts]
        ids = [prompt for prompt in prompts for _ in range(asked.completions)]
        with _without_dropout(self.model):
            sampled, logprobs = self._generate_single_turn(ids, None, {}, asked.completions)
        return completions_of(asked, sampled, tokenizer, ends=self.eos_token_ids, logprobs=logprobs)

    def _generate_and_score_completions(self, inputs: list[dict[str, Any]]) -> dict[str, Any]:
        output: dict[str, Any] = super()._generate_and_score_completions(inputs)
        advantages = [each["advantage"] for each in inputs]
        return output | {"advantages": torch.tensor(advantages, device=output["advantages"].device)}


class Swarm(TrainerCallback):  # type: ignore[misc]  # nor has transformers
    """Samples for the node's prompts, gives TRL the node's batches, and reports what each step did."""

    def __init__(self, feed: Feed) -> None:
        self.feed = feed
        self.saved = 0
        """The newest step whose weights are in a checkpoint."""

    def rollout(self, prompts: Sequence[Any], trainer: SwarmTrainer) -> dict[str, Any]:
        """Play the node's next round, and return its batch as TRL wants it: one place for each of `prompts`."""
        tokenizer = trainer.processing_class
        self.batch = self.feed.next_batch(trainer.sample)
        with _without_dropout(trainer.model):
            self.rows = rows_of(
                self.batch,
                tokenizer,
                max_tokens=trainer.max_completion_length,
                ends=trainer.eos_token_ids,
                context=getattr(trainer.model.config.get_text_config(), "max_position_embeddings", None),
                logprobs=lambda prompt, ids: _logprobs(trainer, prompt, ids),
                thinking=trainer.thinking,
            )
        if len(self.rows) > len(prompts):
            raise LocalError(
                f"the node's batch has {len(self.rows)} completions, and TRL has {len(prompts)} places: "
                "set generation_batch_size to (local + external) * num_generations, and where the node has "
                "`replay = true` to (2 * local + external) * num_generations"
            )
        end = tokenizer.eos_token_id
        empty = Row("", "external", prompt=[end], completion=[end], mask=[0], advantage=0.0, reward=0.0)
        places = self.rows + [empty] * (len(prompts) - len(self.rows))
        return {
            "prompt_ids": [row.prompt for row in places],
            "completion_ids": [row.completion for row in places],
            # With vLLM TRL corrects for what it sampled with; else it takes the probabilities of the step itself.
            "logprobs": [_sampled(row) for row in places] if trainer.use_vllm else None,
            "env_mask": [row.mask for row in places],
            "advantage": [row.advantage for row in places],
            "reward": [row.reward for row in places],
            "source": [row.source for row in places],
        }

    def on_pre_optimizer_step(self, args: Any, state: Any, control: Any, optimizer: Any, **_: Any) -> None:  # noqa: ARG002
        """Note the learning rate of the step: at its end the optimizer has that of the next one."""
        self.rate = optimizer.param_groups[0]["lr"]

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:  # noqa: ARG002
        """Tell the node which tokens the step trained on."""
        self.feed.report(self.batch, reports_of(self.rows), saved=self.saved, learning_rate=self.rate)

    def on_save(self, args: Any, state: Any, control: Any, **_: Any) -> None:  # noqa: ARG002 - transformers names them
        """Write into TRL's new checkpoint which step of the node it is of."""
        self.saved = self.batch.step
        mark(Path(args.output_dir) / f"checkpoint-{state.global_step}", self.saved)


def train(model: Any, feed: Feed, settings: GRPOConfig, **options: Any) -> Any:
    """Train from the newest checkpoint in `output_dir`, and from an older one if the node takes steps back.

    `model` is what GRPOTrainer takes, or `seed`: the model in the package. The tokenizer of a local folder is its
    tokenizer.json unchanged, unless `options` name another `processing_class`.

    A model object holds the weights before the first step. `train` keeps a copy of them for steps back: as many bytes
    of CPU memory as the weights have. A name or a folder needs no copy, because the model is loaded anew. Raises
    LocalError where steps are taken back and a `peft_config` has changed a model object for good.
    """
    model = str(POLICY_DIR) if model == "seed" else model
    if isinstance(model, str) and (Path(model) / "tokenizer.json").is_file():
        options.setdefault("processing_class", load_tokenizer(Path(model)))
    start = None if isinstance(model, str) else _Start(model)
    last = None
    while True:
        trainer = SwarmTrainer(model, feed, settings, **options)
        trainer.swarm.saved, checkpoint = newest(settings.output_dir, last)
        try:
            feed.started(trainer.swarm.saved)
            return trainer.train(resume_from_checkpoint=checkpoint and str(checkpoint))
        except StepBack as back:
            last = back.step
            if start:
                start.restore(trainer.model)
        # The next trainer needs the memory of this one. Its parts refer to each other.
        del trainer
        gc.collect()


class _Start:
    """The weights of a model object before the first step, in the memory of the CPU."""

    def __init__(self, model: Any) -> None:
        self._model = model
        self._weights = {name: value.detach().to("cpu", copy=True) for name, value in model.named_parameters()}

    @torch.no_grad()
    def restore(self, trained: Any) -> None:
        """Give the model object its first weights, without the adapters that TRL put into it.

        `trained` is the model of the trainer: the object itself, or peft's wrapper of it. Raises LocalError if the
        object has other weights than at the start.
        """
        if trained is not self._model and hasattr(trained, "unload"):
            trained.unload()
        values = dict(self._model.named_parameters())
        if _shapes(values) != _shapes(self._weights):
            raise LocalError(
                "the node takes steps back, and the model object cannot lose its adapters: give `train` the name or "
                "the folder of the model instead, and start again"
            )
        for name, value in values.items():
            value.copy_(self._weights[name])


def _shapes(weights: Mapping[str, torch.Tensor]) -> dict[str, torch.Size]:
    return {name: value.shape for name, value in weights.items()}


def _require_of_trainer(settings: GRPOConfig, options: Mapping[str, Any]) -> None:
    """Raises LocalError for what TRL is given and the swarm or the node decides."""
    given = [name for name in _OPTIONS if options.get(name) is not None]
    given += [name for name, default in _SETTINGS.items() if getattr(settings, name) != default]
    given += [
        f"chat_template_kwargs[{name!r}]" for name in settings.chat_template_kwargs or () if name not in _TEMPLATE_KEYS
    ]
    if given:
        raise LocalError(
            f"leave out {', '.join(given)}: the tasks, prompts and rewards of the swarm apply, and the node computes "
            "the advantages and says which tokens are trained on"
        )
    if settings.max_completion_length is None:
        raise LocalError("max_completion_length is None: give the --max-tokens of the node")
    if settings.max_steps <= 0:
        raise LocalError("a swarm has no dataset, and so no epochs: set max_steps, the rounds to train for")


def _require_one_step(settings: GRPOConfig) -> None:
    """Raises LocalError unless one process takes one step for each batch: the node counts steps."""
    if settings.world_size > 1:
        raise LocalError(f"{settings.world_size} processes: only one process may talk to the feed")
    if settings.num_iterations != 1 or settings.steps_per_generation != settings.gradient_accumulation_steps:
        raise LocalError(
            "the node counts one step for each batch: leave num_iterations at 1, and let "
            "per_device_train_batch_size * gradient_accumulation_steps be generation_batch_size"
        )


@contextmanager
def _without_dropout(model: Any) -> Iterator[None]:
    """Within this context the model drops nothing out, as in a node: TRL asks for a batch while the model trains."""
    training = model.training
    model.eval()
    try:
        yield
    finally:
        model.train(training)


def _sampled(row: Row) -> list[float]:
    """Return the log-probabilities with which the tokens were sampled; TRL makes no correction for NaN."""
    return list(row.logprobs) or [math.nan] * len(row.completion)


@torch.no_grad()
def _logprobs(trainer: SwarmTrainer, prompt: list[int], ids: list[int]) -> list[float]:
    """Return the log-probabilities of the tokens under the policy that samples and trains: at the same temperature."""
    model = trainer.model
    logits = model(torch.tensor([prompt + ids], device=model.device)).logits[0, len(prompt) - 1 : -1].float()
    found: list[float] = (logits / trainer.temperature).log_softmax(-1)[range(len(ids)), ids].tolist()
    return found


def _reward(reward: list[float], source: list[str], log_metric: Any, **_: Any) -> list[float]:
    """Return the node's rewards. Those of this policy alone are a metric of their own: they are its learning curve."""
    local = [each for each, origin in zip(reward, source, strict=True) if origin == "local"]
    log_metric("swarm/local_reward", sum(local) / len(local))
    return reward
