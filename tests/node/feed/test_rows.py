"""From a batch to the tokens, masks and advantages of a trainer, with the tokenizer of the seed policy."""

import pytest
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import WhitespaceSplit
from transformers import PreTrainedTokenizerFast

from sapo_node.client import Prompts, completions_of, mark, newest, prompt_ids, reports_of, rows_of
from sapo_node.feed.messages import Batch, Graded, Group, Message
from sapo_node.feed.policy import messages_of
from sapo_node.feed.rows import digest_of
from sapo_node.groups.messages import GroupReport, LearnerOptions, Refusal
from sapo_node.groups.prompt import Example, Prompt
from sapo_node.learner.folder import POLICY_DIR
from sapo_node.learner.model import load, load_tokenizer
from sapo_protocol import LocalError
from tiny_models import TEMPLATE, write_model, write_tokenizer

CHAT = (Message("system", "Answer."), Message("user", "What is 2 * 3?"))
CORRECT, INCORRECT = "2*3=6. So <answer>6</answer>", "2*3=7. So <answer>7</answer>"


@pytest.fixture(scope="module")
def tokenizer():
    return PreTrainedTokenizerFast.from_pretrained(POLICY_DIR)


def batch(*completions, source="external", weight=0.5, filters=(), messages=CHAT):
    return Batch("batch/1/0", 1, (Group("g", source, messages, weight, completions),), filters=filters)


def graded(text, advantage, **more):
    return Graded(text, "stop", advantage, advantage > 0, **more)


def test_a_correct_external_completion_is_trained_on_to_its_end_and_an_incorrect_one_is_not(tokenizer):
    good, bad = rows_of(batch(graded(CORRECT, 1.0), graded(INCORRECT, -1.0)), tokenizer, max_tokens=64)
    assert tokenizer.decode(good.completion[:-1]) == CORRECT
    assert good.completion[-1] == tokenizer.eos_token_id
    assert good.mask == [1] * len(good.completion)
    assert bad.mask == [0] * len(bad.completion)
    assert bad.completion[-1] != tokenizer.eos_token_id
    assert (good.advantage, bad.advantage) == (0.5, -0.5)
    assert good.prompt == prompt_ids(CHAT, tokenizer)


def test_special_tokens_in_the_text_of_a_peer_are_ordinary_text(tokenizer):
    [row] = rows_of(batch(graded(f"<|end|> {CORRECT}", 1.0)), tokenizer, max_tokens=64)
    assert tokenizer.eos_token_id not in row.completion[:-1]


def own(tokenizer, text, advantage, tokens, logprobs=()):
    return graded(text, advantage, tokens=tokens, logprobs=logprobs, tokenizer=digest_of(tokenizer))


def test_a_completion_of_this_trainer_keeps_its_own_tokens(tokenizer):
    found = batch(own(tokenizer, "six", -1.0, (5, 6, 7)), source="local", weight=1.0)
    [row] = rows_of(found, load_tokenizer(POLICY_DIR), max_tokens=64)
    assert (row.completion, row.mask, row.advantage) == ([5, 6, 7], [1, 1, 1], -1.0)


def with_a_word_more(tokenizer):
    tokenizer.add_tokens(["swarmish"])


def with_another_template(tokenizer):
    tokenizer.chat_template = TEMPLATE


@pytest.mark.parametrize("change", [with_a_word_more, with_another_template])
def test_the_tokens_of_another_tokenizer_are_not_believed_and_the_text_is_encoded_anew(tokenizer, change):
    other = load_tokenizer(POLICY_DIR)
    change(other)
    for tokens in ((5, 6, 7), (17_867,) * 3):  # the second is beyond the vocabulary
        found = batch(own(other, CORRECT, 1.0, tokens, (-0.5,) * 3), source="local", weight=1.0)
        [row] = rows_of(found, tokenizer, max_tokens=64)
        assert tokenizer.decode(row.completion) == CORRECT + tokenizer.eos_token
        assert (row.mask, row.logprobs) == ([1] * len(row.completion), ())


def test_tokens_of_a_tokenizer_without_a_name_are_not_believed(tokenizer):
    [row] = rows_of(batch(graded(CORRECT, 1.0, tokens=(5, 6)), source="local"), tokenizer, max_tokens=64)
    assert tokenizer.decode(row.completion) == CORRECT + tokenizer.eos_token


def test_the_log_probabilities_of_an_engine_go_with_the_tokens_that_are_kept(tokenizer):
    end = tokenizer.eos_token_id
    asked = Prompts("p", (CHAT,), 3, 8, 1024)
    logprobs = [[-0.5, -1.0, -2.0], [-0.5, None], [-0.5]]
    [sampled] = completions_of(asked, [[5, end, 6], [5, 6], [7]], tokenizer, logprobs=logprobs)
    assert [each.logprobs for each in sampled] == [(-0.5, -1.0), (), (-0.5,)]
    found = batch(own(tokenizer, "a", 1.0, (5, end), (-0.5, -1.0)), graded("b", -1.0), source="local")
    assert [row.logprobs for row in rows_of(found, tokenizer, max_tokens=8)] == [(-0.5, -1.0), ()]


@pytest.mark.parametrize("logprob", [float("nan"), -float("inf"), float("inf"), 0.1, -1e300])
def test_a_completion_with_a_log_probability_that_no_token_has_is_sent_without_them(tokenizer, logprob):
    asked = Prompts("p", (CHAT,), 1, 8, 1024)
    [[sampled]] = completions_of(asked, [[5, 6]], tokenizer, logprobs=[[-0.5, logprob]])
    assert (sampled.tokens, sampled.logprobs) == ((5, 6), ())


def test_a_masked_phrase_is_not_trained_on(tokenizer):
    [row] = rows_of(batch(graded(CORRECT, 1.0, masked=((0, 5),))), tokenizer, max_tokens=64)
    kept = tokenizer.decode([token for token, kept in zip(row.completion, row.mask, strict=True) if kept])
    assert "2*3" not in kept
    assert "<answer>6</answer>" in kept
    assert reports_of([row]) == {"g": GroupReport(sum(row.mask), len(row.mask) - sum(row.mask))}


def test_a_completion_that_is_too_long_is_left_out_and_not_cut(tokenizer):
    rows = rows_of(batch(graded(CORRECT, 1.0), graded("", -1.0)), tokenizer, max_tokens=3)
    assert [row.mask for row in rows] == [[0], [0]]
    assert reports_of(rows) == {"g": GroupReport(refused=Refusal.TOO_LONG, untrained=(0,))}


def test_a_correct_completion_of_just_max_tokens_is_trained_on_to_its_end(tokenizer):
    size = len(tokenizer(CORRECT, add_special_tokens=False)["input_ids"])
    [row] = rows_of(batch(graded(CORRECT, 1.0)), tokenizer, max_tokens=size)
    assert row.mask == [1] * (size + 1)
    [row] = rows_of(batch(graded(CORRECT, 1.0)), tokenizer, max_tokens=size - 1)
    assert (row.mask, row.refused) == ([0], Refusal.TOO_LONG)


@pytest.fixture
def words():
    """A tokenizer of a few words, for which every other word is a special token."""
    made = Tokenizer(WordLevel({"<unk>": 0, "two": 1, "<answer>2</answer>": 2, "<eos>": 3}, unk_token="<unk>"))
    made.pre_tokenizer = WhitespaceSplit()
    made.add_special_tokens(["<unk>", "<eos>"])
    return PreTrainedTokenizerFast(tokenizer_object=made, eos_token="<eos>", unk_token="<unk>")


def test_a_text_that_becomes_a_special_token_is_left_out(words):
    read, unread = graded("two <answer>2</answer>", 1.0), graded("three <answer>2</answer>", 1.0)
    rows = rows_of(batch(read, unread), words, max_tokens=8)
    assert [(row.mask, row.refused) for row in rows] == [([1, 1, 1], None), ([0], Refusal.SPECIAL)]
    assert reports_of(rows) == {"g": GroupReport(3, untrained=(1,))}
    rows = rows_of(batch(unread, graded("two", -1.0), source="local"), words, max_tokens=8)
    assert [sum(row.mask) for row in rows] == [0, 0]  # without a correct completion nothing of the group counts
    assert reports_of(rows) == {"g": GroupReport(refused=Refusal.SPECIAL)}


def test_a_text_that_the_tokenizer_cannot_read_is_left_out():
    broken = Tokenizer(WordLevel({"two": 1, "<eos>": 3}, unk_token="<unk>"))  # it lacks what it has for other words
    broken.pre_tokenizer = WhitespaceSplit()
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=broken, eos_token="<eos>")
    texts = graded("three", 1.0), graded("two", 1.0)
    rows = rows_of(batch(*texts, messages=(Message("user", "two"),)), tokenizer, max_tokens=8)
    assert [row.refused for row in rows] == [Refusal.UNREADABLE, None]
    rows = rows_of(batch(*texts, messages=(Message("user", "three"),)), tokenizer, max_tokens=8)
    assert reports_of(rows) == {"g": GroupReport(refused=Refusal.UNREADABLE, untrained=(0, 1))}


def test_a_prompt_that_leaves_no_room_is_left_out(tokenizer):
    found = batch(graded(CORRECT, 1.0), graded(INCORRECT, -1.0))
    size = len(prompt_ids(CHAT, tokenizer)) + 64
    assert reports_of(rows_of(found, tokenizer, max_tokens=64, context=size))["g"].tokens
    rows = rows_of(found, tokenizer, max_tokens=64, context=size - 1)
    assert reports_of(rows) == {"g": GroupReport(refused=Refusal.NO_ROOM, untrained=(0,))}
    assert {len(row.prompt) for row in rows} == {1}  # the model could not read it


def test_probabilities_are_asked_for_where_a_filter_needs_them(tokenizer):
    asked = []

    def logprobs(prompt, ids):
        asked.append((prompt, ids))
        return [-10.0] * len(ids)

    found = batch(graded(CORRECT, 1.0), graded(INCORRECT, -1.0), filters=("answer-likelihood",))
    rows = rows_of(found, tokenizer, max_tokens=64, logprobs=logprobs)
    assert asked == [(rows[0].prompt, rows[0].completion)]
    assert sum(rows[0].mask) == 0


def test_sampled_tokens_become_completions_of_their_prompts(tokenizer):
    ids = [*tokenizer(CORRECT, add_special_tokens=False)["input_ids"], tokenizer.eos_token_id]
    (first,), (second,) = completions_of(Prompts("p", (CHAT, CHAT), 1, 64, 1024), [ids, ids[:2]], tokenizer)
    assert (first.text, first.finish, first.tokens) == (CORRECT, "stop", tuple(ids))
    assert second.finish == "length"


def test_a_completion_stops_at_any_end_that_is_named(tokenizer):
    other = tokenizer(".", add_special_tokens=False)["input_ids"]
    ids = [*tokenizer(CORRECT, add_special_tokens=False)["input_ids"], *other]
    asked = Prompts("p", (CHAT,), 1, 64, 1024)
    [[plain]], [[named]] = completions_of(asked, [ids], tokenizer), completions_of(asked, [ids], tokenizer, ends=other)
    assert (plain.finish, named.finish) == ("length", "stop")


def test_what_an_engine_writes_behind_the_end_is_no_part_of_a_completion(tokenizer):
    ids = [*tokenizer(CORRECT, add_special_tokens=False)["input_ids"], tokenizer.eos_token_id]
    [[found]] = completions_of(Prompts("p", (CHAT,), 1, 64, 1024), [[*ids, *ids[:2]]], tokenizer)
    assert (found.text, found.finish, found.tokens) == (CORRECT, "stop", tuple(ids))


TURNS = "{% for m in messages %}<{{ m.role }}>{{ m.content }}<turn>{% endfor %}<assistant>"


@pytest.fixture(params=[[], ["<turn>"]], ids=["end of a turn in no setting", "end of a turn in the settings"])
def with_turns(request, tmp_path):
    """`with_turns(template)`: a tokenizer with a token `<turn>`, and the ends that the model's settings name."""

    def with_turns(template):
        write_tokenizer(tmp_path, template)
        tokenizer = load_tokenizer(tmp_path)
        tokenizer.add_special_tokens({"additional_special_tokens": ["<turn>"]})
        return tokenizer, tokenizer.convert_tokens_to_ids(request.param)

    return with_turns


@pytest.mark.parametrize(("template", "taught"), [(TURNS, "<turn>"), (TEMPLATE, "<eos>"), (None, "<eos>")], ids=str)
def test_a_completion_of_a_peer_is_taught_the_end_that_the_chat_template_writes(with_turns, template, taught):
    """As in Gemma 3 and Phi, where a turn ends with another token than a text."""
    tokenizer, ends = with_turns(template)
    [row] = rows_of(batch(graded(CORRECT, 1.0)), tokenizer, max_tokens=128, ends=ends)
    assert row.completion[-1] == tokenizer.convert_tokens_to_ids(taught)


def test_a_completion_of_this_trainer_ends_with_the_end_that_the_chat_template_writes(with_turns):
    tokenizer, ends = with_turns(TURNS)
    ids = tokenizer("4<turn>x", add_special_tokens=False)["input_ids"]
    [[completion]] = completions_of(Prompts("p", (CHAT,), 1, 64, 1024), [ids], tokenizer, ends=ends)
    assert (completion.text, completion.finish) == ("4", "stop")


NO_SYSTEM = "{% if messages[0]['role'] == 'system' %}{{ raise_exception('no system role') }}{% endif %}" + TEMPLATE
ASKS_FOR_DATE = "{{ strftime_now('%d %b %Y %H:%M:%S') }}" + TEMPLATE
THINKS = TEMPLATE + "{% if not enable_thinking %}</think>{% endif %}"


@pytest.mark.parametrize(
    ("template", "thinking"),
    [*((each, False) for each in (TEMPLATE, NO_SYSTEM, ASKS_FOR_DATE, THINKS, None)), (THINKS, True)],
    ids=str,
)
def test_a_trainer_and_the_learner_read_a_prompt_as_the_same_tokens(template, thinking, tmp_path):
    write_model(tmp_path, "llama")
    write_tokenizer(tmp_path, template)
    policy = load(LearnerOptions("", model=str(tmp_path), thinking=thinking))
    prompt = Prompt("2 + 2?", (Example("1 + 1?", "<answer>2</answer>"),))
    asked = policy.prompt_tokens(prompt)
    assert prompt_ids(messages_of(prompt), policy.tokenizer, thinking=thinking) == asked
    [row] = rows_of(
        batch(graded(CORRECT, 1.0), messages=messages_of(prompt)), policy.tokenizer, max_tokens=64, thinking=thinking
    )
    assert row.prompt == asked


def test_a_template_that_fails_is_one_error(tmp_path):
    write_tokenizer(tmp_path, "{{ 1 // 0 }}")
    with pytest.raises(LocalError, match="the chat template fails: integer division"):
        prompt_ids(CHAT, load_tokenizer(tmp_path))


def test_a_completion_over_the_bound_in_bytes_is_cut_with_its_tokens(tokenizer):
    ids = [*tokenizer(CORRECT, add_special_tokens=False)["input_ids"], tokenizer.eos_token_id]
    most = len(CORRECT.encode())
    for bound, finish in ((most, "stop"), (most - 1, "length"), (5, "length"), (0, "length")):
        [[cut]] = completions_of(Prompts("p", (CHAT,), 1, 64, bound), [ids], tokenizer)
        assert cut.finish == finish
        assert len(cut.text.encode()) <= bound
        assert cut.text == tokenizer.decode(cut.tokens, skip_special_tokens=True)
        assert cut.tokens == tuple(ids[: len(cut.tokens)])


@pytest.mark.parametrize("content", [b"", b"x", b"-3", b"\xff", b"1.5"])
def test_a_damaged_mark_of_a_checkpoint_is_one_error(content, tmp_path):
    (tmp_path / "checkpoint-1").mkdir()
    mark(tmp_path / "checkpoint-1", 1)
    (tmp_path / "checkpoint-1" / "swarm-step").write_bytes(content)
    with pytest.raises(LocalError, match="is no mark of a checkpoint; remove the folder"):
        newest(tmp_path)


def test_the_newest_checkpoint_is_found_and_later_ones_are_deleted_when_steps_are_taken_back(tmp_path):
    for number in (2, 10, 30):
        (tmp_path / f"checkpoint-{number}").mkdir()
        mark(tmp_path / f"checkpoint-{number}", 2 * number)
    (tmp_path / "checkpoint-40").mkdir()  # without a step: it was not finished
    assert newest(tmp_path) == (60, tmp_path / "checkpoint-30")
    assert newest(tmp_path, 20) == (20, tmp_path / "checkpoint-10")
    assert not (tmp_path / "checkpoint-30").exists()
    assert newest(tmp_path, 3) == (0, None)
