"""Other models than the seed: families, adapters, templates, and folders that cannot be used."""

import json
import shutil

import pytest
import torch
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer
from transformers import GenerationConfig

from sapo_node.groups.advantage import advantages
from sapo_node.groups.messages import GenerateRequest, LearnerOptions, TrainGroup, TrainRequest
from sapo_node.groups.prompt import Prompt
from sapo_node.learner import checkpoint
from sapo_node.learner.batch import completion_logits, micro_batches, rows_of
from sapo_node.learner.device import set_up
from sapo_node.learner.generate import generate
from sapo_node.learner.model import ModelError, load
from sapo_node.learner.trainer import Trainer
from sapo_node.learner.trial import require_trainable
from tiny_models import ENCODER, FAMILIES, MIXTURE, ROUTED, TEMPLATE, Folders, each_of, write_model, write_tokenizer

torch.set_num_threads(1)

QUESTION = "What is 2 + 2?"


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    return Folders(tmp_path_factory)


def options(folder, **changes):
    return LearnerOptions(checkpoints="", model=str(folder), groups=1, completions=4, **changes)


def sampled(policy, temperature=1.0):
    [group] = generate(policy, GenerateRequest((Prompt(QUESTION),), 4, 16, 1, temperature), 1024)
    return group


def take_a_step(trainer):
    group = TrainGroup("local", QUESTION, 1.0, advantages([1, 0, 0, 0]), sampled(trainer.policy))
    return trainer.train(TrainRequest(trainer.step + 1, (group,)))


def weights(trainer):
    return [value.detach().clone() for value in trainer.parameters]


def equal(left, right):
    return all(torch.equal(a, b) for a, b in zip(left, right, strict=True))


WAYS = [
    {},
    {"lora": 2},
    {"dtype": "bfloat16"},
    {"lora": 2, "dtype": "bfloat16", "gradient_checkpointing": True, "warmup": 3},
]


@pytest.mark.parametrize("way", WAYS, ids=str)
@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.slow
def test_a_model_learns_and_resumes_bit_for_bit(folders, tmp_path, family, way):
    chosen = options(folders[family], **way)
    straight = Trainer(load(chosen), chosen)
    before = weights(straight)
    assert take_a_step(straight).skipped is None
    assert not equal(before, weights(straight))
    checkpoint.save(straight, tmp_path)
    take_a_step(straight)
    resumed = Trainer(load(chosen), chosen)
    assert checkpoint.restore(resumed, tmp_path) is None
    take_a_step(resumed)
    assert equal(weights(straight), weights(resumed))


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.slow
def test_gradient_checkpointing_changes_no_gradient(folders, family):
    norms, trained = [], []
    for on in (False, True):
        chosen = options(folders[family], gradient_checkpointing=on)
        trainer = Trainer(load(chosen), chosen)
        norms.append(take_a_step(trainer).grad_norm)
        trained.append(weights(trainer))
    assert norms[0] == norms[1]
    assert equal(*trained)


def test_gradient_checkpointing_keeps_fewer_activations(folders):
    kept = []
    for on in (False, True):
        policy = load(options(folders["llama"], gradient_checkpointing=on))
        group = TrainGroup("local", QUESTION, 1.0, advantages([1, 0, 0, 0]), sampled(policy))
        [batch] = micro_batches(policy, rows_of(policy, group, 80))
        held = []
        with torch.autograd.graph.saved_tensors_hooks(lambda value, held=held: held.append(value), lambda _: None):
            completion_logits(policy, batch)
        kept.append(sum(value.nbytes for value in held))
    assert kept[1] < kept[0] / 4


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("family", each_of(FAMILIES, "llama", "gpt2", "gemma3_with_images"))
def test_sampling_training_and_reading_without_a_cache_give_the_same_probabilities(folders, family, dtype):
    require_trainable(load(options(folders[family], dtype=dtype)))


@pytest.mark.parametrize(
    ("family", "message"),
    [("openai-gpt", "'NoneType' object is not subscriptable"), ("git", "sampling with a cache differs by 0")],
)
def test_a_model_that_cannot_be_sampled_with_a_cache_is_refused_in_one_line(tmp_path, family, message):
    policy = load(options(write_model(tmp_path, family)))
    with pytest.raises(ModelError, match=f"cannot be trained by this node: .*{message}.*; give another") as caught:
        require_trainable(policy)
    assert "\n" not in str(caught.value)


def test_a_model_that_no_gradient_reaches_is_refused(folders):
    policy = load(options(folders["llama"], lora=2))
    for _, value in policy.trainable():
        value.data.zero_()  # of a product of two zeros neither factor has a gradient
    with pytest.raises(ModelError, match="no gradient reaches the trained weights"):
        require_trainable(policy)


def test_a_trial_changes_nothing(folders):
    policy = load(options(folders["llama"], lora=2))
    before = [value.detach().clone() for _, value in policy.trainable()]
    state = torch.get_rng_state()
    require_trainable(policy)
    assert equal(before, [value for _, value in policy.trainable()])
    assert all(value.grad is None for value in policy.model.parameters())
    assert torch.equal(state, torch.get_rng_state())


@pytest.mark.parametrize("layers", [0, 1])
@pytest.mark.parametrize("family", ROUTED)
def test_routers_of_experts_have_no_adapters(tmp_path, family, layers):
    policy = load(options(write_model(tmp_path, family), lora=2, lora_layers=layers))
    require_trainable(policy)
    adapted = {name.split(".lora_")[0].rpartition(".")[2] for name, _ in policy.trainable()}
    assert "q_proj" in adapted
    assert "router" not in adapted


def test_an_update_smaller_than_the_last_bit_of_bfloat16_is_not_lost(folders):
    chosen = options(folders["llama"], dtype="bfloat16", learning_rate=1e-6)
    trainer = Trainer(load(chosen), chosen)
    take_a_step(trainer)
    rounded = dict(trainer.policy.trainable())
    assert all(value.dtype == torch.float32 for value in trainer.parameters)
    assert all(value.dtype == torch.bfloat16 for value in rounded.values())
    assert all(torch.equal(held.to(torch.bfloat16), rounded[name]) for name, held in trainer.trained.items())
    assert any(not torch.equal(held, rounded[name].float()) for name, held in trainer.trained.items())


def test_adapters_compute_in_the_format_of_the_model_and_are_trained_in_float32(folders):
    chosen = options(folders["llama"], lora=2, dtype="bfloat16")
    policy = load(chosen)
    assert {value.dtype for value in policy.model.parameters()} == {torch.bfloat16}
    assert {value.dtype for value in Trainer(policy, chosen).parameters} == {torch.float32}


@pytest.mark.parametrize("way", [{}, {"lora": 2}, {"lora": 2, "lora_layers": 1}], ids=str)
def test_of_a_model_that_reads_images_only_what_computes_text_is_trained(folders, way):
    chosen = options(folders["gemma3_with_images"], **way)
    trainer = Trainer(load(chosen), chosen)
    take_a_step(trainer)
    assert all("language_model" in name for name in trainer.trained)
    assert all(value in trainer.optimizer.state for value in trainer.parameters)


def test_adapters_of_some_layers_are_those_next_to_the_output(folders):
    policy = load(options(folders["llama"], lora=2, lora_layers=1))
    assert {name.split(".layers.")[1][0] for name, _ in policy.trainable()} == {"1"}


def test_a_tokenizer_with_merges_gives_back_the_text_it_was_given(folders, tmp_path):
    shutil.copytree(folders["llama"], tmp_path / "m")
    write_tokenizer(tmp_path / "m", texts=["the answer is four", "so <answer>4</answer>"] * 8)
    policy = load(options(tmp_path / "m"))
    text = "the answer is <answer>4</answer>"
    tokens = policy.encode_foreign(text)
    assert len(tokens) < len(text)
    assert policy.decode(tokens) == text


def test_adapters_alone_are_trained(folders):
    policy = load(options(folders["llama"], lora=2))
    assert all("lora_" in name for name, _ in policy.trainable())


def test_adapters_start_the_same_each_time(folders):
    one, two = (load(options(folders["llama"], lora=2)).trainable() for _ in range(2))
    assert all(torch.equal(a, b) for (_, a), (_, b) in zip(one, two, strict=True))


def test_the_fingerprint_tells_adapters_and_models_apart(folders):
    chosen = [options(folders["llama"]), options(folders["llama"], lora=2), options(folders["qwen2"])]
    assert len({load(each).fingerprint for each in chosen}) == 3


def test_layers_without_adapters_change_no_fingerprint(folders):
    chosen = [options(folders["llama"]), options(folders["llama"], lora_layers=1)]
    assert len({load(each).fingerprint for each in chosen}) == 1


def test_without_a_template_the_prompt_asks_for_answer_tags(folders):
    policy = load(options(folders["llama"]))
    prompt = policy.decode(policy.prompt_tokens(Prompt(QUESTION)))
    assert "<answer>" in prompt
    assert QUESTION in prompt


@pytest.fixture
def prompt_by(folders, tmp_path):
    """`prompt_by(template)`: the prompt that a model with this chat template reads."""

    def prompt_by(template):
        shutil.copytree(folders["llama"], tmp_path / "m")
        write_tokenizer(tmp_path / "m", template)
        policy = load(options(tmp_path / "m"))
        return policy.decode(policy.prompt_tokens(Prompt(QUESTION)))

    return prompt_by


def test_a_chat_template_is_used_with_a_system_text(prompt_by):
    prompt = prompt_by(TEMPLATE)
    assert prompt.startswith("[system] ")
    assert "<answer>" in prompt
    assert prompt.endswith(f"[user] {QUESTION}\n[assistant] ")


def test_a_chat_template_in_a_file_of_its_own_is_used(folders, tmp_path):
    shutil.copytree(folders["llama"], tmp_path / "m")
    (tmp_path / "m" / "chat_template.jinja").write_text(TEMPLATE)
    policy = load(options(tmp_path / "m"))
    assert policy.decode(policy.prompt_tokens(Prompt(QUESTION))).endswith("[assistant] ")


def test_a_template_without_a_system_role_still_gets_the_request_for_tags(prompt_by):
    refuse = "{% if messages[0]['role'] == 'system' %}{{ raise_exception('no system role') }}{% endif %}"
    prompt = prompt_by(refuse + TEMPLATE)
    assert prompt.startswith("[user] ")
    assert "<answer>" in prompt


def test_a_template_that_asks_for_the_date_makes_the_same_prompt_on_every_day(prompt_by):
    asking = "\n{% macro today() %}{{ strftime_now('%d %b %Y %H:%M:%S') }}{% endmacro %}  {{ today() }}"
    assert prompt_by(asking + TEMPLATE).startswith("\n  26 Jul 2024 00:00:00[system] ")


def corrupt_weights(folder):
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:1000])


def pickled_weights(folder):
    weights = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    torch.save(weights, folder / "pytorch_model.bin")


def no_tokenizer(folder):
    (folder / "tokenizer.json").unlink()


def broken_tokenizer(folder):
    (folder / "tokenizer.json").write_text("{}")


def no_end(folder):
    (folder / "tokenizer_config.json").write_text("{}")
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "eos_token_id": None}))
    (folder / "generation_config.json").unlink(missing_ok=True)


def code_of_its_own(folder):
    config = json.loads((folder / "config.json").read_text())
    own = {"auto_map": {"AutoConfig": "x.C", "AutoModelForCausalLM": "x.M"}, "model_type": "own"}
    (folder / "config.json").write_text(json.dumps({**config, **own}))
    (folder / "x.py").write_text("raise SystemExit('ran')")


def changed(folder, name, value, part=slice(None)):
    weights = load_file(folder / "model.safetensors")
    weights[name][part] = value
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})


def no_number(folder):
    changed(folder, "model.layers.1.mlp.up_proj.weight", float("nan"), (3, 5))


def an_infinite_embedding(folder):
    """That of a token which the model is not asked when it is loaded."""
    changed(folder, "model.embed_tokens.weight", float("-inf"), -1)


def too_large_a_weight(folder):
    changed(folder, "model.norm.weight", 3e38)


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (corrupt_weights, "corrupt"),
        (pickled_weights, r"no weights in the safetensors format, .*; to convert pytorch_model\.bin, load"),
        (no_tokenizer, "has no tokenizer.json"),
        (broken_tokenizer, "tokenizer of .* is broken"),
        (no_end, "no end-of-text token"),
        (no_number, r"values in model\.layers\.1\.mlp\.up_proj\.weight that are infinite or no numbers; copy"),
        (an_infinite_embedding, r"values in model\.embed_tokens\.weight that are infinite or no numbers; copy"),
        (too_large_a_weight, "the output of Qwen2ForCausalLM is not finite, although its weights are; give another"),
        (code_of_its_own, "auto_map, which chooses code"),
    ],
)
def test_a_folder_that_cannot_be_used_is_one_clear_line(folders, tmp_path, spoil, message):
    folder = tmp_path / "m"
    shutil.copytree(folders["qwen2"], folder)
    spoil(folder)
    with pytest.raises(ModelError, match=message) as caught:
        load(options(folder))
    assert "\n" not in str(caught.value)


def test_an_encoder_is_refused(tmp_path):
    with pytest.raises(ModelError, match=r"BertLMHeadModel sees later tokens .*; give a decoder"):
        load(options(write_model(tmp_path, ENCODER)))


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_decoder_whose_experts_round_differently_is_taken(tmp_path, dtype):
    load(options(write_model(tmp_path, MIXTURE), dtype=dtype))


TWO_ENDS = "{% for m in messages %}<{{ m.role }}>{{ m.content }}<turn>{% endfor %}<assistant>"


@pytest.mark.parametrize(("template", "taught"), [(TWO_ENDS, "<turn>"), (TEMPLATE, "<eos>"), (None, "<eos>")], ids=str)
def test_the_end_that_is_taught_is_that_of_an_answer_in_the_chat_template(tmp_path, template, taught):
    """As in Gemma 3 and Phi, where a turn ends with another token than a text."""
    write_model(tmp_path, "llama")
    write_tokenizer(tmp_path, template)
    tokenizer = Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    tokenizer.add_special_tokens(["<turn>"])
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    ends = [tokenizer.token_to_id(name) for name in ("<eos>", "<turn>")]
    GenerationConfig(eos_token_id=ends, pad_token_id=ends[0]).save_pretrained(tmp_path)
    policy = load(options(tmp_path))
    assert set(policy.ends) == set(ends)
    assert policy.ends[0] == tokenizer.token_to_id(taught)


def test_a_missing_folder_says_so(tmp_path):
    with pytest.raises(ModelError, match="there is no folder"):
        load(options(tmp_path / "none"))


@pytest.fixture
def torch_settings(monkeypatch):
    """Lets a test change the settings of torch for the whole process, and puts them back."""
    before, planned = torch.are_deterministic_algorithms_enabled(), torch.backends.cuda.cudnn_sdp_enabled()
    monkeypatch.setattr(torch.utils.deterministic, "fill_uninitialized_memory", True)
    monkeypatch.delenv("CUBLAS_WORKSPACE_CONFIG", raising=False)
    yield
    torch.use_deterministic_algorithms(before)
    torch.backends.cuda.enable_cudnn_sdp(planned)


@pytest.mark.usefixtures("torch_settings")
@pytest.mark.parametrize(("name", "expected"), [("cuda", True), ("cpu", False)])
def test_cuda_is_asked_for_repeatable_kernels_and_a_cpu_has_them(name, expected):
    set_up(torch.device(name))
    assert torch.are_deterministic_algorithms_enabled() == expected


@pytest.mark.usefixtures("torch_settings")
def test_attention_on_cuda_is_not_planned_anew_for_each_shape_of_a_batch():
    torch.backends.cuda.enable_cudnn_sdp(True)
    set_up(torch.device("cuda"))
    assert not torch.backends.cuda.cudnn_sdp_enabled()
