"""Chat templates: every message is in the prompt, and the end of a turn is an end."""

import json

import pytest
from tokenizers import AddedToken, Tokenizer

from sapo_node.groups.messages import LearnerOptions
from sapo_node.groups.prompt import SYSTEM, Example, Prompt, chat
from sapo_node.learner.encoding import TemplateFailed, answer_end_first, prompt_tokens
from sapo_node.learner.model import ModelError, load, load_tokenizer
from sapo_node.learner.trial import require_trainable
from tiny_models import TEMPLATE, write_model, write_tokenizer

QUESTION = 'Is "a" < b & c?\nSay YES or no.'
PLAIN = Prompt(QUESTION)
BEHIND_EXAMPLES = Prompt(QUESTION, (Example("1 + 1?", "So <answer>2</answer>"),))
TURN = "[{{ m.role }}] {{ m.content }}\n"
IN_PARTS = "[{{ m.role }}] {% for p in m.content if p.type == 'text' %}{{ p.text }}{% endfor %}{{ '\n' }}"
EACH = "{% for m in messages %}"
END = "{% endfor %}[assistant] "
FAIL = "{{ raise_exception('no') }}"
EARLIER = "[user] 1 + 1?\n[assistant] So <answer>2</answer>\n"
AS_IT_IS = f"[system] {SYSTEM}\n[user] {QUESTION}\n[assistant] "
IN_USER = f"[user] {SYSTEM}\n\n{QUESTION}\n[assistant] "
ALL_IN_ONE = f"[user] {SYSTEM}\n\n1 + 1?\nSo <answer>2</answer>\n\n{QUESTION}\n[assistant] "
AFTER_EXAMPLES = f"[system] {SYSTEM}\n{EARLIER}[user] {QUESTION}\n[assistant] "


@pytest.fixture
def tokenizer(tmp_path):
    """`tokenizer(template, *special)`: that of bytes, with a chat template and more special tokens."""

    def tokenizer(template, *special, plain=(), **settings):
        write_tokenizer(tmp_path, template)
        made = Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
        made.add_special_tokens(list(special))
        made.add_tokens([AddedToken(each, normalized=False) for each in plain])
        made.save(str(tmp_path / "tokenizer.json"))
        path = tmp_path / "tokenizer_config.json"
        path.write_text(json.dumps({**json.loads(path.read_text()), **settings}))
        return load_tokenizer(tmp_path)

    return tokenizer


def read(tokenizer, prompt):
    return tokenizer.decode(prompt_tokens(chat(prompt), tokenizer, ends=()))


@pytest.mark.parametrize(
    ("template", "prompt", "text"),
    [
        pytest.param(EACH + IN_PARTS + END, PLAIN, AS_IT_IS, id="content in parts"),
        pytest.param(EACH + IN_PARTS + END, BEHIND_EXAMPLES, AFTER_EXAMPLES, id="examples in parts"),
        pytest.param(EACH + "{% if m.role != 'system' %}" + TURN + "{% endif %}" + END, PLAIN, IN_USER, id="no system"),
        pytest.param(
            EACH + "{% if m.role != 'system' %}" + IN_PARTS + "{% endif %}" + END,
            PLAIN,
            IN_USER,
            id="no system in parts",
        ),
        pytest.param(
            "{% if messages[0].role == 'system' %}" + FAIL + "{% endif %}" + EACH + TURN + END,
            BEHIND_EXAMPLES,
            f"[user] {SYSTEM}\n\n{EARLIER[7:]}[user] {QUESTION}\n[assistant] ",
            id="system refused",
        ),
        pytest.param(
            "[system] Be helpful\n" + EACH + "{% if m.role != 'system' %}" + TURN + "{% endif %}" + END,
            PLAIN,
            f"[system] Be helpful\n{IN_USER}",
            id="a system text of its own",
        ),
        pytest.param(
            "{% set m = messages[-1] %}" + TURN + "[assistant] ", BEHIND_EXAMPLES, ALL_IN_ONE, id="last turn alone"
        ),
        pytest.param(
            "{# question alone #}{{ messages[-1].content }}", BEHIND_EXAMPLES, QUESTION, id="last turn alone on purpose"
        ),
        pytest.param(
            EACH + "{% if m.role == 'assistant' %}" + FAIL + "{% endif %}" + TURN + END,
            BEHIND_EXAMPLES,
            ALL_IN_ONE,
            id="answers refused",
        ),
        pytest.param(
            EACH + "{% if m.role != 'assistant' %}" + TURN + "{% endif %}" + END,
            BEHIND_EXAMPLES,
            ALL_IN_ONE,
            id="answers left out",
        ),
        pytest.param(TEMPLATE.replace("'] }}", "'] | trim }}"), BEHIND_EXAMPLES, AFTER_EXAMPLES, id="spaces removed"),
        pytest.param(EACH + TURN + "{% endfor %}", PLAIN, AS_IT_IS, id="no beginning of an answer"),
        pytest.param(EACH + IN_PARTS + "{% endfor %}", PLAIN, AS_IT_IS, id="no beginning of an answer, in parts"),
        pytest.param(
            EACH + "{% if m.role == 'user' %}[INST] {{ m.content }} [/INST]{% else %} {{ m.content }} {% endif %}"
            "{% endfor %}",
            PLAIN,
            f" {SYSTEM} [INST] {QUESTION} [/INST]",
            id="an answer without a header",
        ),
    ],
)
def test_each_message_is_in_the_prompt(tokenizer, template, prompt, text):
    assert read(tokenizer(template), prompt) == text


@pytest.mark.parametrize(
    ("template", "message"),
    [
        (EACH + "{% if m.role == 'system' %}" + TURN + "{% endif %}" + END, "leaves out the text of the user"),
        (EACH + TURN.replace("content", "content | lower") + END, "leaves out the system text, or changes it"),
        (EACH + TURN.replace("content", "content | e") + END, "leaves out the system text, or changes it"),
        (EACH + TURN.replace("content", "content | tojson") + END, "leaves out the system text, or changes it"),
        (EACH + TURN.replace("content", "content[:9]") + END, "leaves out the system text, or changes it"),
        ("Hello", "leaves out the system text"),
        ("{{ 1 // 0 }}", "the chat template fails: .*zero"),
    ],
    ids=["no question", "small letters", "escaped", "as JSON", "cut", "no message", "broken"],
)
def test_a_template_that_loses_a_message_is_refused_in_one_line(tokenizer, template, message):
    with pytest.raises(TemplateFailed, match=message) as caught:
        read(tokenizer(template), PLAIN)
    assert "\n" not in str(caught.value)


def test_a_folder_with_such_a_template_is_refused(tokenizer, tmp_path):
    write_model(tmp_path, "llama")
    tokenizer("Hello")
    with pytest.raises(ModelError, match=r"the chat template leaves out the system text.*; correct the template, or"):
        require_trainable(load(LearnerOptions(checkpoints="", model=str(tmp_path))))


CHATML = "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
ASKS = "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
ROLES = "{% for m in messages %}<|{{ m.role }}|>\n{{ m.content }}\n{% endfor %}"
INST = "{% for m in messages %}{% if m.role == 'user' %}[INST] {{ m.content }} [/INST]{% elif m.role == 'system' %}"
INST += "{{ m.content }}\n{% else %} {{ m.content }} <turn>{% endif %}{% endfor %}"
LAST = "{% for m in messages %}<{{ m.role }}>{{ m.content }}{{ '<eos>' if loop.last else '<turn>' }}{% endfor %}"


@pytest.mark.parametrize(
    ("template", "ends"),
    [
        pytest.param(CHATML + ASKS, ["<|im_end|>", "<eos>"], id="a line break behind the end"),
        pytest.param(CHATML + "<|im_start|>assistant\n", ["<|im_end|>", "<eos>"], id="always asks"),
        pytest.param(CHATML, ["<|im_end|>", "<eos>"], id="never asks"),
        pytest.param(
            "<|im_start|>system\nBe helpful<|im_end|>\n" + CHATML + ASKS,
            ["<|im_end|>", "<eos>"],
            id="its own system text",
        ),
        pytest.param(
            CHATML.replace("m.content", "m.content[0].text") + ASKS, ["<|im_end|>", "<eos>"], id="content in parts"
        ),
        pytest.param(
            CHATML.replace("<|im_end|>", "\n<|im_end|>") + ASKS, ["<|im_end|>", "<eos>"], id="a line break before"
        ),
        pytest.param(CHATML.replace("<|im_end|>", "<|im_end|><eos>") + ASKS, ["<|im_end|>", "<eos>"], id="two tokens"),
        pytest.param(
            CHATML.replace("<|im_end|>", "<plain>") + ASKS, ["<plain>", "<eos>"], id="a token that is not special"
        ),
        pytest.param(INST, ["<turn>", "<eos>"], id="no header"),
        pytest.param(LAST + "{% if add_generation_prompt %}<assistant>{% endif %}", ["<eos>", "<turn>"], id="two ends"),
        pytest.param(ROLES + "<|assistant|>\n", ["<eos>"], id="no end"),
        pytest.param(ROLES + "{% if add_generation_prompt %}<|assistant|>\n{% endif %}", ["<eos>"], id="no end, asks"),
        pytest.param(CHATML.replace("<|im_end|>", "\n### End") + ASKS, ["<eos>"], id="a text as end"),
        pytest.param("{% set m = messages[-1] %}" + TURN, ["<eos>"], id="last turn alone"),
        pytest.param("{{ 1 // 0 }}", ["<eos>"], id="broken"),
        pytest.param(None, ["<eos>"], id="no template"),
    ],
)
def test_the_end_of_a_turn_is_the_first_end(tokenizer, template, ends):
    special = (
        "<|im_start|>",
        "<|im_end|>",
        "<turn>",
        "<user>",
        "<assistant>",
        "<|user|>",
        "<|assistant|>",
        "<|system|>",
    )
    made = tokenizer(template, *special, plain=["<plain>"])
    assert made.convert_ids_to_tokens(answer_end_first([made.eos_token_id], made)) == ends


@pytest.mark.parametrize("pad", ["<eos>", "<|im_end|>"])
def test_the_end_of_a_turn_may_be_sampled_and_no_peer_may_write_it(tokenizer, tmp_path, pad):
    write_model(tmp_path, "llama")
    made = tokenizer(CHATML + ASKS, "<|im_start|>", "<|im_end|>", pad_token=pad)
    policy = load(LearnerOptions(checkpoints="", model=str(tmp_path)))
    end = made.convert_tokens_to_ids("<|im_end|>")
    assert policy.ends[0] == end
    assert end not in policy.forbidden
    assert end in policy.specials


def test_a_switch_for_thinking_has_either_name_and_without_one_thinking_is_refused(tokenizer, tmp_path):
    write_model(tmp_path, "llama")

    def ending(template, *, thinking):
        tokenizer(template)
        policy = load(LearnerOptions(checkpoints="", model=str(tmp_path), thinking=thinking))
        return policy.decode(policy.prompt_tokens(PLAIN)).rpartition(" ")[2]

    for switch in ("enable_thinking", "thinking"):
        template = TEMPLATE + "{{ '<think>' if " + switch + " else '</think>' }}"
        assert [ending(template, thinking=each) for each in (False, True)] == ["</think>", "<think>"]
    assert ending(TEMPLATE + "<think>", thinking=True) == "<think>"
    for template in (TEMPLATE, None):
        with pytest.raises(ModelError, match=r"--thinking changes no prompt of .*; leave out --thinking"):
            ending(template, thinking=True)
