"""A peer's completion has the tokens that a model writes after a prompt, with tokenizers as of SentencePiece."""

import json

import pytest
from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, trainers

from sapo_node.groups.prompt import Prompt, chat
from sapo_node.learner.encoding import Lead, completion_tokens, lead_of, prompt_tokens
from sapo_node.learner.model import load_tokenizer
from tiny_models import TEMPLATE, write_tokenizer

TEXT = "The sum is 4. <answer>4</answer>"
TURNS = "{% for m in messages %}<|{{ m.role }}|>\n{{ m.content }}</s>\n{% endfor %}"
ZEPHYR = TURNS + "{% if add_generation_prompt %}<|assistant|>\n{% endif %}"
"""Ends with a line break, behind which a model writes no space: TinyLlama has such a template."""
LLAMA2 = (
    "{% for m in messages %}{% if m.role == 'assistant' %} {{ m.content }} </s>{% else %}[INST] {{ m.content }} [/INST]"
    "{% endif %}{% endfor %}"
)
"""Writes a space between the prompt and an answer."""
PHI3 = ZEPHYR.replace("<|assistant|>", "<|end|>")
"""Ends with a special token that takes in the line break behind it, so that an answer begins as a text does."""


@pytest.fixture
def write(tmp_path):
    """Write the tokenizer of a chat template as the converters of Llama 2, Mistral 7B and TinyLlama do."""

    def written(template):
        made = Tokenizer(models.BPE(byte_fallback=True, unk_token="<unk>"))
        made.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
        made.decoder = decoders.Sequence(
            [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
        )
        words = f"{TEXT} What is 2 + 2? \n \n [INST] [/INST] <|user|> <|assistant|>".split(" ") * 20
        special = ["<unk>", "<s>", "</s>"]
        made.train_from_iterator(
            words, trainers.BpeTrainer(vocab_size=200, special_tokens=special, show_progress=False)
        )
        made.add_special_tokens([AddedToken("<|end|>", rstrip=True, special=True)])
        made.save(str(tmp_path / "tokenizer.json"))
        config = {"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": "</s>", "chat_template": template}
        (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))
        return load_tokenizer(tmp_path)

    return written


def as_trained(tokenizer, template):
    """The tokens of an answer in a conversation that is read at once, as chat models are trained."""
    prompt = prompt_tokens(chat(Prompt("2 + 2?")), tokenizer, ends={tokenizer.eos_token_id})
    turns = [*chat(Prompt("2 + 2?")), {"role": "assistant", "content": TEXT}]
    if template:
        text = tokenizer.apply_chat_template(turns, tokenize=False, add_generation_prompt=False)
        # The template of Phi-3 names the turn of an answer as it does the prompt's.
        text = text.replace("<|assistant|>", "<|end|>") if template == PHI3 else text
    else:
        text = "".join(f"{turn['content']}\n" if turn["role"] == "user" else f"{turn['content']}\n\n" for turn in turns)
    tokens = tokenizer(text, add_special_tokens=False)["input_ids"]
    assert tokens[: len(prompt)] == prompt
    return tokens[len(prompt) :]


@pytest.mark.parametrize("template", [ZEPHYR, LLAMA2, PHI3, None], ids=["zephyr", "llama 2", "phi 3", "no template"])
def test_a_peers_completion_has_the_tokens_that_a_model_was_trained_to_write(write, template):
    tokenizer = write(template)
    tokens, _ = completion_tokens(tokenizer, TEXT, lead_of(tokenizer))
    assert as_trained(tokenizer, template)[: len(tokens)] == tokens


@pytest.mark.parametrize("template", [ZEPHYR, LLAMA2, None], ids=["zephyr", "llama 2", "no template"])
def test_each_token_knows_its_characters(write, template):
    tokenizer = write(template)
    tokens, offsets = completion_tokens(tokenizer, TEXT, lead_of(tokenizer))
    assert len(offsets) == len(tokens)
    assert "".join(TEXT[begin:end] for begin, end in offsets) == TEXT


def test_a_text_that_shares_a_token_with_the_lead_is_read_alone(write):
    tokenizer = write(ZEPHYR)
    lead = Lead("T", tuple(tokenizer("T", add_special_tokens=False)["input_ids"]))
    assert completion_tokens(tokenizer, "he sum", lead) == completion_tokens(tokenizer, "he sum", Lead())


@pytest.mark.parametrize("template", [TEMPLATE, None], ids=["template", "no template"])
def test_a_tokenizer_of_bytes_needs_no_lead(tmp_path, template):
    write_tokenizer(tmp_path, template)
    assert lead_of(load_tokenizer(tmp_path)) == Lead()


def test_a_broken_template_leaves_the_text_alone(write):
    assert lead_of(write("{{ 1 // 0 }}")) == Lead()
