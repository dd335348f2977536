"""One learner in one process: a round per line on standard input, its figures as JSON on standard output.

Both learners get the same model, prompts, completions a group, longest completion and one thread. The learning rate is
0: all work is done, and the policy, and with it the lengths, stay the same in every round.

On a CPU the clock counts CPU-seconds of the process, and on CUDA seconds until the GPU has finished.
"""

import json
import random
import resource
import sys
import time
from contextlib import contextmanager
from dataclasses import dataclass, replace

import torch

from sapo_adversary.scoring import SharedScorer
from sapo_node.groups.advantage import advantages
from sapo_node.groups.messages import GenerateRequest, LearnerOptions, TrainGroup, TrainRequest
from sapo_node.learner.generate import generate
from sapo_node.learner.grpo import CLIP_HIGH, CLIP_LOW
from sapo_node.learner.model import load
from sapo_node.learner.trainer import Trainer
from sapo_node.tasks import build_task, score
from sapo_node.verification.catalogue import example_requests, examples_from
from sapo_protocol import load_manifest

COMPLETIONS = 8
MODELS = {
    "seed": ("starter", LearnerOptions(checkpoints="", learning_rate=0.0)),
    "smollm2": (
        "smollm2-easy",
        LearnerOptions(
            checkpoints="",
            learning_rate=0.0,
            model="smollm2",
            lora=16,
            dtype="auto",
            max_tokens=32,
        ),
    ),
}
"""By model: the swarm whose tasks it answers, and what a node chooses for it."""
EXAMPLES = {"seed": 0, "smollm2": 3}
TRL_ROWS = {"seed": 64, "smollm2": 16}
"""Completions in one of TRL's micro-batches on a CPU: with all 64 completions of SmolLM2 at once it needs over 16 GB.
Ours cuts micro-batches by itself."""
MOST_ROWS = 64
"""The same on a GPU."""
MOST_BYTES = 64
"""Of a token: more than any of these tokenizers has."""
MARK = "@"
"""Begins the lines that are meant for the bench; libraries print others."""


@dataclass(frozen=True)
class Item:
    dataset: str
    task: object


@dataclass(frozen=True)
class Setting:
    """What both learners do in each round."""

    model: str
    rewards: str
    rounds: int
    device: str
    groups: int
    tokens: int | None
    """Most tokens of a completion; None takes what a node chooses for the model."""

    @property
    def options(self):
        """What a node chooses for the model on that device. No text is cut: TRL cuts none."""
        chosen = MODELS[self.model][1]
        tokens = self.tokens or chosen.max_tokens
        return replace(chosen, device=self.device, max_tokens=tokens, max_completion_bytes=MOST_BYTES * tokens)

    @property
    def trl_rows(self):
        """How many completions one of TRL's micro-batches has."""
        most = TRL_ROWS[self.model] if self.device == "cpu" else MOST_ROWS
        return min(most, self.groups * COMPLETIONS)


def items_of(model, groups, number):
    """Return a round's items, the same for every learner."""
    rng = random.Random(number)
    specs = rng.choices(load_manifest(MODELS[model][0]).tasks, k=groups)
    return [Item(spec.dataset, build_task(spec.dataset, spec.config, rng.randrange(2**31))) for spec in specs]


def examples_of(model):
    """Return the worked examples of the model's swarm."""
    manifest, scorer = load_manifest(MODELS[model][0]), SharedScorer()
    requests = example_requests(manifest, EXAMPLES[model])
    return examples_from(manifest, [scorer.result(each) for each in requests], EXAMPLES[model])


def rewards_of(item, texts, rewards):
    """Return one group's rewards: by the task's own scorer, or one winner in every group, so that none is flat."""
    if rewards == "one-in-each-group":
        return [float(place == 0) for place in range(len(texts))]
    return [float(score(item.task, text)) for text in texts]


class Stopwatch:
    """Seconds of one round by phase."""

    def __init__(self, device):
        self._clock = time.process_time if device == "cpu" else on_gpu
        self.begin()

    def begin(self):
        self.phases = dict.fromkeys(("generate", "score", "forward_backward", "optimizer", "other"), 0.0)
        self._started, self._wall = self._clock(), time.perf_counter()

    @contextmanager
    def phase(self, name):
        before = self._clock()
        yield
        self.phases[name] += self._clock() - before

    def report(self, lengths, flat):
        seconds = self._clock() - self._started
        self.phases["other"] = seconds - sum(value for name, value in self.phases.items() if name != "other")
        figures = {"seconds": seconds, "wall": time.perf_counter() - self._wall, "tokens": sum(lengths), "flat": flat}
        tell({**figures, "longest": max(lengths), "phases": self.phases})


def on_gpu():
    torch.cuda.synchronize()
    return time.perf_counter()


def tell(figures):
    sys.stdout.write(MARK + json.dumps(figures) + "\n")
    sys.stdout.flush()


def peak_mib(device):
    """Return the most memory of the device that the process held: on CUDA what torch allocated."""
    if device == "cpu":
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return torch.cuda.max_memory_allocated() / 2**20


def run_ours(setting):
    options, examples = setting.options, examples_of(setting.model)
    trainer, watch = Trainer(load(options), options), Stopwatch(setting.device)
    step = trainer.optimizer.step

    def timed_step():
        with watch.phase("optimizer"):
            step()

    trainer.optimizer.step = timed_step
    tell({"peak_mib": peak_mib(setting.device)})
    for number in range(setting.rounds):
        sys.stdin.readline()
        items = items_of(setting.model, setting.groups, number)
        prompts = tuple(examples.prompt(item.dataset, item.task.prompt) for item in items)
        watch.begin()
        with watch.phase("generate"):
            request = GenerateRequest(prompts, COMPLETIONS, options.max_tokens, number)
            groups = generate(trainer.policy, request, options.max_completion_bytes)
        with watch.phase("score"):
            scored = [
                rewards_of(item, [each.text for each in group], setting.rewards)
                for item, group in zip(items, groups, strict=True)
            ]
        with watch.phase("forward_backward"):
            batch = tuple(
                TrainGroup("local", prompt.text, 1.0, advantages(values), group, examples=prompt.examples)
                for prompt, values, group in zip(prompts, scored, groups, strict=True)
            )
            trainer.train(TrainRequest(number + 1, batch))
        watch.phases["forward_backward"] -= watch.phases["optimizer"]
        lengths = [len(c.tokens) + (c.finish == "stop") for group in groups for c in group]
        watch.report(lengths, sum(len(set(values)) == 1 for values in scored))
    tell({"peak_mib": peak_mib(setting.device)})


def run_trl(setting):
    from datasets import Dataset
    from transformers import PrinterCallback, TrainerCallback
    from trl import GRPOTrainer

    options, examples = setting.options, examples_of(setting.model)
    policy = load(options)
    watch = Stopwatch(setting.device)
    items = [item for number in range(setting.rounds) for item in items_of(setting.model, setting.groups, number)]
    tokens = [policy.prompt_tokens(examples.prompt(item.dataset, item.task.prompt)) for item in items]
    prompts = [policy.tokenizer.decode(each) for each in tokens]
    assert [policy.tokenizer(prompt)["input_ids"] for prompt in prompts] == tokens
    seen = {}

    def reward(completions, place, completion_ids, **_):
        groups = range(0, len(completions), COMPLETIONS)
        scored = [rewards_of(items[place[i]], completions[i : i + COMPLETIONS], setting.rewards) for i in groups]
        seen["lengths"] = [len(ids) for ids in completion_ids]
        seen["flat"] = sum(len(set(values)) == 1 for values in scored)
        return [value for values in scored for value in values]

    class Timed(GRPOTrainer):
        def _generate(self, *args):
            with watch.phase("generate"):
                return super()._generate(*args)

        def _calculate_rewards(self, *args):
            with watch.phase("score"):
                return super()._calculate_rewards(*args)

        def compute_loss(self, *args, **options):
            with watch.phase("forward_backward"):
                return super().compute_loss(*args, **options)

    class Rounds(TrainerCallback):
        def on_step_begin(self, *_, **__):
            sys.stdin.readline()
            watch.begin()

        def on_step_end(self, *_, **__):
            watch.report(**seen)

    dataset = Dataset.from_list([{"prompt": prompt, "place": place} for place, prompt in enumerate(prompts)])
    trainer = Timed(policy.model, reward, trl_settings(setting), dataset, processing_class=policy.tokenizer)
    trainer.remove_callback(PrinterCallback)
    trainer.add_callback(Rounds())
    time_backward_and_optimizer(trainer, watch)
    tell({"peak_mib": peak_mib(setting.device)})
    trainer.train()
    tell({"peak_mib": peak_mib(setting.device)})


def time_backward_and_optimizer(trainer, watch):
    backward, create = trainer.accelerator.backward, trainer.create_optimizer

    def timed_backward(*args, **options):
        with watch.phase("forward_backward"):
            backward(*args, **options)

    def create_timed(*args):
        optimizer = create(*args)
        step = optimizer.step

        def timed_step(*given):
            with watch.phase("optimizer"):
                return step(*given)

        optimizer.step = timed_step
        return optimizer

    trainer.accelerator.backward, trainer.create_optimizer = timed_backward, create_timed


def trl_settings(setting):
    """Return what a user of TRL would set for speed; recomputation and everything that writes is off."""
    from trl import GRPOConfig

    return GRPOConfig(
        output_dir="unused",
        use_cpu=setting.device == "cpu",
        bf16=False,
        gradient_checkpointing=False,
        save_strategy="no",
        logging_strategy="no",
        report_to="none",
        disable_tqdm=True,
        log_completions=False,
        optim="adamw_torch_fused",
        weight_decay=0.0,
        learning_rate=0.0,
        max_grad_norm=1.0,
        loss_type="dr_grpo",
        beta=0.0,
        epsilon=CLIP_LOW,
        epsilon_high=CLIP_HIGH,
        temperature=1.0,
        scale_rewards="group",
        num_iterations=1,
        num_generations=COMPLETIONS,
        per_device_train_batch_size=setting.trl_rows,
        gradient_accumulation_steps=setting.groups * COMPLETIONS // setting.trl_rows,
        max_completion_length=setting.options.max_tokens,
        max_steps=setting.rounds,
        shuffle_dataset=False,
    )


if __name__ == "__main__":
    torch.set_num_threads(1)
    torch.set_flush_denormal(True)
    {"ours": run_ours, "trl": run_trl}[sys.argv[1]](Setting(**json.loads(sys.argv[2])))
