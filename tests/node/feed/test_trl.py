"""TRL's GRPOTrainer, and the loop on the page, are members of a swarm: the seed policy, real steps, and a real feed."""

import importlib
import math
import re
import sys
import weakref
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import peft
import pytest
import torch
import trio
import trio.testing
from transformers import AutoModelForCausalLM, PreTrainedTokenizerFast

from fed_node import FedNode, external, in_thread
from sapo_node.client import Feed, StepBack, newest
from sapo_node.feed.messages import GoBack, Message, Prompts
from sapo_node.learner.folder import POLICY_DIR
from sapo_node.training.batch_log import trained_per_peer
from sapo_protocol import LocalError

trl = pytest.importorskip("trl", reason="TRL is pinned, and asks for newer libraries than a node does")

ROOT = Path(__file__).parents[3]
MAX_TOKENS = 48


@pytest.fixture
def swarm_trl(monkeypatch):
    monkeypatch.setenv("TRL_EXPERIMENTAL_SILENCE", "1")
    return importlib.import_module("sapo_node.trl")


@pytest.fixture
def settings(tmp_path):
    return partial(
        trl.GRPOConfig,
        output_dir=str(tmp_path / "trl"),
        use_cpu=True,
        bf16=False,
        gradient_checkpointing=False,
        report_to="none",
        disable_tqdm=True,
        num_generations=8,
        per_device_train_batch_size=16,
        gradient_accumulation_steps=1,
        max_completion_length=MAX_TOKENS,
        loss_type="dr_grpo",
        learning_rate=1e-4,
        save_steps=1,
        save_total_limit=3,
        max_steps=1,
    )


def seed_policy():
    tokenizer = PreTrainedTokenizerFast.from_pretrained(POLICY_DIR)
    return AutoModelForCausalLM.from_pretrained(POLICY_DIR, dtype=torch.float32), tokenizer


class Alarmed(Feed):
    """A feed whose node takes back the steps after `last`, once, when the first step is reported."""

    alarms = 1
    last = 1

    def next_batch(self, sample):
        if self._reported.id and self.alarms:
            self.alarms -= 1
            raise StepBack(GoBack(f"go-back/{self.last}/0", self.last))
        return super().next_batch(sample)


class Watched(Alarmed):
    """Takes back all steps. Keeps what a model object computes whenever the node is told which steps it holds."""

    last = 0

    def watch(self, model):
        self.model = model
        self.told = []
        self.computed = self._compute()

    def started(self, step):
        self.told.append((step, self._compute()))
        super().started(step)

    def next_batch(self, sample):
        if self._reported.id and self.alarms:
            self.trained = self._compute()
        return super().next_batch(sample)

    @torch.no_grad()
    def _compute(self):
        return self.model.eval()(torch.arange(8)[None]).logits


async def test_trl_trains_on_verified_groups_and_goes_back_to_its_checkpoint(swarm_trl, settings, tmp_path, manifest):
    node = FedNode(tmp_path, manifest, local=1, external=1, filters=())
    async with node.running():
        node.offer(0)
        model, tokenizer = seed_policy()
        before = {name: value.clone() for name, value in model.state_dict().items()}
        feed = Alarmed(node.file, patience=20)
        await in_thread(partial(swarm_trl.train, model, feed, settings(max_steps=2), processing_class=tokenizer))
        assert feed.alarms == 0
        assert any(not torch.equal(value, before[name]) for name, value in model.state_dict().items())
        text = external(0).completions[1].text
        tokens = len(tokenizer(text, add_special_tokens=False)["input_ids"]) + 1  # it is taught to end there
        assert trained_per_peer(node.database)["peer"] == (1, 4 * tokens)
        assert newest(settings().output_dir) == (2, Path(settings().output_dir) / "checkpoint-2")


@pytest.mark.parametrize(
    "adapters", [{}, {"bias": "lora_only"}, {"init_lora_weights": "pissa"}], ids=["none", "lora", "pissa"]
)
async def test_a_model_object_without_a_checkpoint_goes_back_to_its_first_weights(
    swarm_trl, settings, tmp_path, manifest, adapters
):
    node = FedNode(tmp_path, manifest, local=1, external=1, filters=())
    async with node.running():
        node.offer(0)
        model, tokenizer = seed_policy()
        feed = Watched(node.file, patience=20)
        feed.watch(model)
        options = {"peft_config": peft.LoraConfig(target_modules="all-linear", **adapters)} if adapters else {}
        chosen = settings(max_steps=2, save_strategy="no", learning_rate=1e-2)
        await in_thread(partial(swarm_trl.train, model, feed, chosen, processing_class=tokenizer, **options))
        assert not torch.allclose(feed.trained, feed.computed, atol=1e-2)
        for step, computed in feed.told:
            assert step == 0
            torch.testing.assert_close(computed, feed.computed, atol=1e-3, rtol=0)
        assert len(feed.told) == 2


async def test_steps_back_free_the_model_before_another_one_is_loaded(
    swarm_trl, settings, tmp_path, manifest, monkeypatch
):
    models, alive = [], []

    class Trainer(swarm_trl.SwarmTrainer):
        def __init__(self, *args, **options):
            alive.append(sum(model() is not None for model in models))
            super().__init__(*args, **options)
            models.append(weakref.ref(self.model))

    monkeypatch.setattr(swarm_trl, "SwarmTrainer", Trainer)
    node = FedNode(tmp_path, manifest, local=1, external=0, filters=())
    async with node.running():
        feed = Alarmed(node.file, patience=20)
        await in_thread(swarm_trl.train, "seed", feed, settings(per_device_train_batch_size=8, max_steps=2))
    assert alive == [0, 0]


async def test_a_model_object_that_cannot_lose_its_adapters_is_refused_when_steps_are_taken_back(
    swarm_trl, settings, tmp_path, manifest
):
    node = FedNode(tmp_path, manifest, local=1, external=0, filters=())
    async with node.running():
        model, tokenizer = seed_policy()
        model = peft.get_peft_model(model, peft.LoraConfig(target_modules=["q_proj"]))
        # For a reference TRL adds a second adapter to a model that has one.
        chosen = settings(per_device_train_batch_size=8, max_steps=2, save_strategy="no", beta=0.1)
        train = partial(swarm_trl.train, model, Alarmed(node.file, patience=20), chosen, processing_class=tokenizer)
        with pytest.raises(LocalError, match="give `train` the name or the folder of the model"):
            await in_thread(train)


class Engine:
    """Samples in the place of vLLM, and says with which log-probabilities, as TRL asks it to."""

    def __init__(self, trainer):
        self.trainer = trainer

    def sync_weights(self):
        pass

    @torch.no_grad()
    def generate(self, prompts, **_):
        model = self.trainer.model
        found = []
        for prompt in prompts:
            tokens = model.generate(torch.tensor([prompt]), generation_config=self.trainer.generation_config)[0]
            logprobs = model(tokens[None]).logits[0, len(prompt) - 1 : -1].log_softmax(-1)
            found.append((tokens[len(prompt) :].tolist(), logprobs.gather(1, tokens[len(prompt) :, None]).tolist()))
        ids, logprobs = zip(*found, strict=True)
        return None, list(ids), list(logprobs), None


async def test_trl_corrects_for_the_probabilities_of_vllm_where_this_policy_sampled_alone(
    swarm_trl, settings, tmp_path, manifest, monkeypatch
):
    made = []

    class Trainer(swarm_trl.SwarmTrainer):
        def __init__(self, *args, **options):
            super().__init__(*args, **options)
            self.use_vllm, self.vllm_generation, self._last_loaded_step = True, Engine(self), -1

        def _generate_and_score_completions(self, inputs):
            made.append(super()._generate_and_score_completions(inputs))
            return made[-1]

    monkeypatch.setattr(swarm_trl, "SwarmTrainer", Trainer)
    node = FedNode(tmp_path, manifest, local=1, external=1, filters=())
    async with node.running(rounds=1):
        node.offer(0)
        chosen = settings(max_steps=1, save_strategy="no", vllm_importance_sampling_mode="token_mask")
        await in_thread(swarm_trl.train, "seed", Feed(node.file, patience=20), chosen)
        await node.finished.wait()
    [output] = made
    local, other = output["sampling_per_token_logps"].split(8)
    assert not local.isnan().any()
    assert other[output["tool_mask"][8:].bool() & output["completion_mask"][8:].bool()].isnan().all()
    ratio = output["importance_sampling_ratio"]
    assert (ratio[output["completion_mask"].bool()] - 1).abs().max() < 1e-3


async def test_trl_samples_and_filters_without_dropout_and_trains_with_it(swarm_trl, settings, tmp_path, manifest):
    model, tokenizer = seed_policy()
    adapters = peft.LoraConfig(target_modules="all-linear", lora_dropout=0.3)
    read = []
    model.register_forward_pre_hook(
        lambda model, _, given: read.append((model.training, torch.is_grad_enabled())), with_kwargs=True
    )
    node = FedNode(tmp_path, manifest, local=1, external=1, filters=("min-token-prob",))
    async with node.running(rounds=1):
        node.offer(0)
        chosen = settings(max_steps=1, save_strategy="no")
        train = partial(swarm_trl.train, model, Feed(node.file, patience=20), chosen)
        await in_thread(partial(train, processing_class=tokenizer, peft_config=adapters))
        await node.finished.wait()
    assert set(read) == {(False, False), (True, True)}


def test_trl_stops_at_every_end_of_the_model(swarm_trl, settings):
    model, tokenizer = seed_policy()
    [tag] = tokenizer("</answer>", add_special_tokens=False)["input_ids"]
    model.generation_config.eos_token_id = [tokenizer.eos_token_id, tag]
    trainer = swarm_trl.SwarmTrainer(model, None, settings(), processing_class=tokenizer)
    [completions] = trainer.sample(Prompts("p", ((Message("user", "What is 2 * 3?"),),), 8, MAX_TOKENS, 1024))
    assert {each.finish for each in completions if each.tokens[-1] == tag} == {"stop"}


async def test_trl_that_starts_again_while_steps_are_taken_back_goes_back(swarm_trl, settings, tmp_path, manifest):
    node = FedNode(tmp_path, manifest, local=1, external=0, filters=())
    train = partial(swarm_trl.train, "seed", Feed(node.file, patience=20))
    async with node.running(rounds=2), trio.open_nursery() as nursery:
        await in_thread(train, settings(per_device_train_batch_size=8, max_steps=2))
        await node.finished.wait()
        nursery.start_soon(node.policy.restore, 1)
        await trio.testing.wait_all_tasks_blocked()
        await in_thread(train, settings(per_device_train_batch_size=8, max_steps=1))
        assert node.policy.step == 1
        assert newest(settings().output_dir)[0] == 1


async def test_the_node_is_told_the_learning_rate_of_each_step(swarm_trl, settings, tmp_path, manifest):
    node = FedNode(tmp_path, manifest, local=1, external=0, filters=())
    chosen = settings(per_device_train_batch_size=8, max_steps=2, save_strategy="no", lr_scheduler_type="linear")
    async with node.running(rounds=2):
        await in_thread(swarm_trl.train, "seed", Feed(node.file, patience=20), chosen)
        await node.finished.wait()
    assert [report.training.learning_rate for report in node.reports] == [1e-4, 5e-5]


async def test_a_batch_that_trl_has_no_places_for_ends_the_training(swarm_trl, settings, tmp_path, manifest):
    node = FedNode(tmp_path, manifest, local=2, external=0, filters=())
    async with node.running():
        train = partial(swarm_trl.train, "seed", Feed(node.file, patience=20), settings(per_device_train_batch_size=8))
        with pytest.raises(LocalError, match="16 completions, and TRL has 8 places"):
            await in_thread(train)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"num_iterations": 2}, "one step for each batch"),
        ({"steps_per_generation": 2}, "one step for each batch"),
    ],
)
def test_settings_that_take_several_steps_of_one_batch_are_refused(swarm_trl, settings, change, reason):
    with pytest.raises(LocalError, match=reason):
        swarm_trl.SwarmTrainer("seed", None, settings(**change))


def read_rewards(completions, **_):
    return [1.0] * len(completions)


@pytest.mark.parametrize(
    "option",
    [
        {"reward_funcs": read_rewards},
        {"reward_funcs": []},
        {"reward_processing_classes": []},
        {"train_dataset": [{"prompt": "My own question?"}]},
        {"eval_dataset": [{"prompt": "My own question?"}]},
        {"rollout_func": print},
        {"tools": [print]},
        {"environment_factory": object},
        {"args": object()},
    ],
    ids=lambda option: next(iter(option)),
)
def test_an_option_for_what_the_swarm_decides_is_refused_by_its_name(swarm_trl, settings, option):
    [name] = option
    with pytest.raises(LocalError, match=f"leave out {name}: the tasks, prompts and rewards of the swarm apply"):
        swarm_trl.train("seed", None, settings(), **option)


@pytest.mark.parametrize(
    "change",
    [
        {"reward_weights": [2.0]},
        {"scale_rewards": "batch"},
        {"multi_objective_aggregation": "normalize_then_sum"},
        {"mask_truncated_completions": True},
        {"top_entropy_quantile": 0.2},
        {"off_policy_mask_threshold": 0.5},
        {"shuffle_dataset": False},
        {"num_generations_eval": 8},
        {"do_eval": True},
        {"eval_on_start": True},
        {"eval_strategy": "steps"},
        {"max_tool_calling_iterations": 3},
        {"chat_template_kwargs": {"documents": []}},
    ],
    ids=lambda change: next(iter(change)),
)
def test_a_setting_that_a_swarm_has_no_use_for_is_refused_by_its_name(swarm_trl, settings, change):
    [name] = change
    with pytest.raises(LocalError, match=f"leave out .*{name}"):
        swarm_trl.train("seed", None, settings(**change))


@pytest.mark.parametrize(
    ("change", "reason"), [({"max_steps": -1}, "set max_steps"), ({"max_completion_length": None}, "--max-tokens")]
)
def test_a_setting_that_the_swarm_cannot_do_without_is_asked_for(swarm_trl, settings, change, reason):
    with pytest.raises(LocalError, match=reason):
        swarm_trl.train("seed", None, settings(**change))


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"num_generations": 4}, "set num_generations=8"),
        ({"max_completion_length": 81}, "set max_completion_length=80, or start the node with --max-tokens 81"),
    ],
)
def test_settings_that_differ_from_those_of_the_node_are_refused_before_anything_is_sampled(
    swarm_trl, settings, change, reason
):
    trainer = swarm_trl.SwarmTrainer(str(POLICY_DIR), None, settings(**change), processing_class=seed_policy()[1])
    with pytest.raises(LocalError, match=reason):
        trainer.sample(Prompts("p", ((Message("user", "What is 2 * 3?"),),), 8, 80, 1024))


def test_the_filters_read_probabilities_at_the_temperature_of_the_trainer(swarm_trl):
    model, _ = seed_policy()
    found = [swarm_trl._logprobs(SimpleNamespace(model=model, temperature=each), [5, 6], [7, 8]) for each in (1.0, 1e6)]
    assert found[0] != found[1]
    assert found[1] == pytest.approx([-math.log(model.config.vocab_size)] * 2, abs=1e-3)


async def test_the_loop_on_the_page_trains_on_verified_groups(tmp_path, manifest, monkeypatch):
    page = (ROOT / "docs/start/your-trainer.md").read_text()
    [program] = re.findall(r"^```python\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    node = FedNode(tmp_path, manifest, local=1, external=1, filters=(), max_tokens=MAX_TOKENS)
    monkeypatch.setattr(sys, "argv", ["trainer", str(POLICY_DIR), str(node.file), "1"])
    async with node.running():
        node.offer(0)
        await in_thread(exec, program, {})
        assert trained_per_peer(node.database)["peer"][0] == 1
