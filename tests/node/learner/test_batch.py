"""Text discipline: which tokens of local and external groups are trained."""

import math
from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from transformers import GPT2Config, GPT2LMHeadModel, MistralConfig, MistralForCausalLM

from sapo_node.groups.messages import GenerateRequest, LearnerOptions, Refusal, Sampled, TrainGroup
from sapo_node.groups.prompt import Prompt
from sapo_node.learner.batch import Refused, completion_logits, micro_batches, rows_of
from sapo_node.learner.device import AtOnce
from sapo_node.learner.filters import passing
from sapo_node.learner.forward import IMPOSSIBLE, LEAST_PROMPT, LEAST_STEM, SPARED, alike, stems_of
from sapo_node.learner.generate import prompts_of
from sapo_node.learner.model import load

torch.set_num_threads(1)

QUESTION = "What is 2 + 2?"
TINY = {
    "hidden_size": 32,
    "intermediate_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
}


@pytest.fixture(scope="module")
def policy():
    return load(LearnerOptions(checkpoints=""))


def external(*texts, finish="stop"):
    completions = tuple(Sampled(text, finish) for text in texts)
    return TrainGroup("external", QUESTION, 1.0, (1.0,) * len(texts), completions)


def rows(policy, group, max_tokens=80):
    return rows_of(policy, group, max_tokens)


def test_a_completion_that_stops_after_its_answer_is_taught_to_stop(policy):
    [row] = rows(policy, external("so <answer>4</answer>"))
    assert row.completion[-1] == policy.ends[0]


def test_the_end_that_is_taught_is_no_part_of_the_answer(policy):
    [row] = rows(policy, external("so <answer>4</answer>"))
    assert policy.decode([row.completion[place] for place in row.answer]) == "4"
    assert len(row.completion) - 1 not in row.answer


def test_the_end_that_is_taught_may_be_improbable(policy):
    assert filtered(policy, -1) == (1.0, [])


def test_one_improbable_token_before_the_answer_masks_a_completion(policy):
    assert filtered(policy, 0) == (0.0, ["min-token-prob"])


def filtered(policy, improbable):
    """The factor of `min-token-prob` on a completion with one improbable token, and what rejects it."""
    [batch] = micro_batches(policy, rows(policy, external("so <answer>4</answer>")))
    logprobs = torch.full(batch.mask.shape, 0.9).log()
    logprobs[0, improbable] = math.log(1e-4)
    passes, rejected = passing({"min-token-prob"}, batch, logprobs)
    return passes.item(), [name for _, name in rejected]


def test_text_after_the_answer_is_a_part_of_it(policy):
    [row] = rows(policy, external("so <answer>4</answer> 5"))
    assert policy.decode([row.completion[place] for place in row.answer]) == "4 5"


def test_trailing_space_after_the_answer_does_not_hide_the_end(policy):
    [row] = rows(policy, external("so <answer>4</answer>\n"))
    assert row.completion[-1] == policy.ends[0]


def test_a_truncated_completion_is_not_taught_to_stop(policy):
    [row] = rows(policy, external("so <answer>4</answer>", finish="length"))
    assert policy.ends[0] not in row.completion


def test_a_completion_that_stops_elsewhere_is_not_taught_to_stop(policy):
    [row] = rows(policy, external("so <answer>4</answer> or not"))
    assert policy.ends[0] not in row.completion


def test_a_special_token_in_a_peers_text_stays_ordinary_text(policy):
    [row] = rows(policy, external("a <|end|> b", finish="length"))
    assert not policy.specials.intersection(row.completion)
    assert policy.decode(row.completion) == "a <|end|> b"


def test_external_text_survives_the_round_trip(policy):
    text = "Ones first: 7+8=15 carry 1, é漢🙂. So <answer>15</answer>"
    [row] = rows(policy, external(text, finish="length"))
    assert policy.decode(row.completion) == text


def test_an_external_completion_over_the_limit_is_refused_not_cut(policy):
    with pytest.raises(Refused, match=Refusal.TOO_LONG):
        rows(policy, external("xxxxxxxxxx"), max_tokens=9)


def test_an_endless_external_completion_is_refused_before_it_is_encoded(policy):
    with pytest.raises(Refused, match=Refusal.TOO_LONG):
        rows(policy, external("x" * 10_000))


def test_local_groups_train_on_their_own_tokens(policy):
    # Not how the tokenizer would encode the text.
    tokens = tuple(policy.encode_foreign("5")) + tuple(policy.encode_foreign("6"))
    group = TrainGroup("local", QUESTION, 1.0, (1.0,), (Sampled("anything", "length", tokens),))
    [row] = rows(policy, group)
    assert row.completion == tokens


def test_a_token_outside_the_vocabulary_is_refused(policy):
    group = TrainGroup("local", QUESTION, 1.0, (1.0,), (Sampled("x", "length", (policy.vocabulary,)),))
    with pytest.raises(Refused, match=Refusal.OUTSIDE):
        rows(policy, group)


def ended(policy, end):
    """An incorrect completion of this node that ended without an answer."""
    tokens = tuple(policy.encode_foreign("5"))
    return TrainGroup("local", QUESTION, 1.0, (-1.0,), (Sampled("5", "stop", tokens, (-0.5,), end=end),))


def test_an_end_that_was_sampled_is_trained_on_whatever_the_advantage(policy):
    [row] = rows(policy, ended(policy, (policy.ends[0], -0.25)))
    assert row.completion == (*policy.encode_foreign("5"), policy.ends[0])
    assert row.sampled == (-0.5, -0.25)


def test_a_completion_that_ended_by_itself_is_taught_no_second_end(policy):
    tokens = tuple(policy.encode_foreign("<answer>5</answer>"))
    said = Sampled("<answer>5</answer>", "stop", tokens, (-0.5,) * len(tokens), end=(policy.ends[0], -0.25))
    [row] = rows(policy, TrainGroup("local", QUESTION, 1.0, (1.0,), (said,)))
    assert row.completion == (*tokens, policy.ends[0])


def test_an_end_outside_the_vocabulary_is_refused(policy):
    group = replace(ended(policy, (policy.vocabulary, -0.25)), advantages=(1.0,))
    with pytest.raises(Refused, match=Refusal.OUTSIDE):
        rows(policy, group)


def test_a_prompt_that_fills_the_model_is_refused(policy):
    group = TrainGroup("external", "5" * 500, 1.0, (1.0,), (Sampled("x", "stop"),))
    with pytest.raises(Refused, match=Refusal.NO_ROOM):
        rows(policy, group)


def test_a_prompt_that_leaves_just_the_room_that_sampling_needs_is_trained_on_with_the_end(policy):
    config = GPT2Config(n_embd=32, n_layer=2, n_head=2, vocab_size=policy.vocabulary, n_positions=policy.context)
    placed = replace(policy, model=GPT2LMHeadModel(config).eval())
    answer = "so <answer>4</answer>"
    length = len(policy.encode_foreign(answer))
    system = len(policy.prompt_tokens(Prompt("5"))) - 1
    group = replace(external(answer), prompt="5" * (policy.context - length - system))
    assert prompts_of(policy, GenerateRequest((Prompt(group.prompt),), 1, length, 1))
    [batch] = micro_batches(placed, rows(placed, group, max_tokens=length))
    assert completion_logits(placed, batch).shape[1] == length + 1


def test_the_prompt_is_encoded_apart_from_the_completion(policy):
    [row] = rows(policy, external("5"))
    assert list(row.prompt) == policy.prompt_tokens(Prompt(QUESTION))
    assert policy.decode(row.prompt) == QUESTION + "\n"


def short_and_long(policy):
    """Completions of several lengths to two prompts of other lengths, three of them to the same."""
    short = TrainGroup("external", "Why?", 1.0, (1.0,) * 3, tuple(Sampled(t, "length") for t in ("12345", "6", "789")))
    return [*rows(policy, external("7890", finish="length")), *rows(policy, short)]


def test_a_micro_batch_holds_each_distinct_prompt_once(policy):
    for batch in micro_batches(policy, short_and_long(policy)):
        assert len(set(batch.prompts)) == len(batch.prompts)
        assert [batch.prompts[place] for place in batch.prompt_of] == [row.prompt for row in batch.rows]


def test_a_micro_batch_lines_up_all_completions(policy):
    for batch in micro_batches(policy, short_and_long(policy)):
        for row, ids, mask in zip(batch.rows, batch.targets, batch.mask, strict=True):
            assert ids[mask.bool()].tolist() == list(row.completion)
            assert mask[: len(row.completion)].all()


def assert_logits_are_those_of_each_text_alone(policy, found=None):
    for batch in micro_batches(policy, found or short_and_long(policy)):
        for row, logits in zip(batch.rows, completion_logits(policy, batch), strict=True):
            alone = policy.model(input_ids=torch.tensor([[*row.prompt, *row.completion]])).logits[0]
            expected = alone[len(row.prompt) - 1 : -1].index_fill(-1, policy.forbidden, IMPOSSIBLE)
            torch.testing.assert_close(logits[: len(row.completion)], expected, atol=1e-4, rtol=1e-4)


def test_the_logits_after_a_shared_prompt_are_those_of_each_text_alone(policy):
    assert_logits_are_those_of_each_text_alone(policy)


def test_so_they_are_in_a_model_that_counts_places_from_the_start(policy):
    config = GPT2Config(n_embd=32, n_layer=2, n_head=2, vocab_size=policy.vocabulary, n_positions=policy.context)
    assert_logits_are_those_of_each_text_alone(replace(policy, model=GPT2LMHeadModel(config).eval()))


def test_so_they_are_in_a_model_with_a_window_shorter_than_the_text(policy):
    config = MistralConfig(**TINY, vocab_size=policy.vocabulary, sliding_window=4)
    assert_logits_are_those_of_each_text_alone(replace(policy, model=MistralForCausalLM(config).eval()))


def test_padding_is_at_most_half_of_the_tokens_that_are_read(policy):
    many = [row for n in range(1, 60) for row in rows(policy, external("1" * n, finish="length"))]
    for batch in micro_batches(policy, many):
        read = sum(len(prompt) for prompt in batch.prompts)
        assert batch.mask.numel() + read <= 1.5 * (batch.mask.sum() + read)


def test_prompts_that_begin_alike_share_a_stem(policy):
    alike = [(*range(40), last, 7) for last in (1, 2, 3)]
    assert stems_of(policy, [*alike, (9,) * 50]) == dict.fromkeys(alike, 40)


def test_a_short_beginning_is_no_stem(policy):
    assert stems_of(policy, [(*range(LEAST_STEM - 1), 5), (*range(LEAST_STEM - 1), 6)]) == {}


def test_a_beginning_shorter_than_half_of_a_prompt_is_no_stem(policy):
    assert stems_of(policy, [(*range(20), *(5,) * 21), (*range(20), *(6,) * 21)]) == {}


def test_a_prompt_that_continues_another_one_shares_all_but_its_last_token(policy):
    short = tuple(range(30))
    assert stems_of(policy, [short, (*short, 4)]) == {short: 29, (*short, 4): 29}


def test_the_logits_after_a_shared_stem_are_those_of_each_text_alone(policy):
    stem = tuple(range(40, 80))
    found = [replace(row, prompt=(*stem, *row.prompt)) for row in short_and_long(policy)]
    [batch] = micro_batches(policy, found)
    assert set(batch.stems) == set(batch.prompts)
    assert_logits_are_those_of_each_text_alone(policy, found)


def test_prompts_of_unlike_length_are_read_in_batches_with_little_padding():
    prompts = [(0,) * length for length in (300, 20, 240, 230, 25)]
    assert alike(prompts) == [[0, 2], [3], [1, 4]]


def test_many_short_prompts_are_not_read_with_a_longer_one():
    prompts = [(0,) * (20 + SPARED // 2), *[(0,) * 20] * 3]
    assert alike(prompts) == [[0, 1, 2], [3]]


@pytest.mark.parametrize("stem", [(), tuple(range(40, 80))], ids=["no stem", "a stem of two"])
def test_the_logits_after_prompts_of_unlike_length_are_those_of_each_text_alone(policy, stem):
    found = [replace(row, prompt=(*stem, *row.prompt)) for row in short_and_long(policy)]
    lone = replace(found[0], prompt=(*range(30, 30 + 3 * SPARED), *found[0].prompt))
    [batch] = micro_batches(policy, [*found, lone])
    assert len(alike(batch.prompts)) == 2
    assert_logits_are_those_of_each_text_alone(policy, [*found, lone])


def test_so_are_the_logits_after_rests_of_unlike_length_behind_one_stem(policy):
    stem = tuple(range(40, 40 + 2 * SPARED))
    short = short_and_long(policy)
    long = [replace(row, prompt=(*range(30, 30 + SPARED), *row.prompt)) for row in short]
    found = [replace(row, prompt=(*stem, *row.prompt)) for row in (*short, *long)]
    [batch] = micro_batches(policy, found)
    assert {*batch.stems.values()} == {len(stem)}
    assert len(alike([prompt[len(stem) :] for prompt in batch.prompts])) > 1
    assert_logits_are_those_of_each_text_alone(policy, found)


def after_a_long_prompt(found):
    """The same completions after prompts that are so long that completions of one prompt share a lane."""
    return [replace(row, prompt=(*range(40, 40 + LEAST_PROMPT), *row.prompt)) for row in found]


def test_completions_of_one_prompt_share_a_lane_after_a_long_prompt(policy):
    [batch] = micro_batches(policy, after_a_long_prompt(short_and_long(policy)[1:]))
    assert len(batch.lanes.prompt_of) == 1


def test_the_logits_in_a_lane_are_those_of_each_text_alone(policy):
    assert_logits_are_those_of_each_text_alone(policy, after_a_long_prompt(short_and_long(policy)))


def test_so_they_are_in_a_lane_of_a_model_that_counts_places_from_the_start(policy):
    config = GPT2Config(n_embd=32, n_layer=2, n_head=2, vocab_size=policy.vocabulary, n_positions=policy.context)
    other = replace(policy, model=GPT2LMHeadModel(config).eval())
    assert_logits_are_those_of_each_text_alone(other, after_a_long_prompt(short_and_long(policy)))


def test_a_model_with_a_window_has_no_lanes(policy):
    model = MistralForCausalLM(MistralConfig(**TINY, vocab_size=policy.vocabulary, sliding_window=4))
    found = after_a_long_prompt(short_and_long(policy)[1:])
    [batch] = micro_batches(replace(policy, model=model), found)
    assert batch.lanes.size == 1


def test_lanes_of_prompts_with_unlike_numbers_of_completions_hold_little_padding(policy):
    alike = rows(policy, external(*["123456789"] * 8, finish="length"))
    lone = [replace(alike[0], prompt=(*alike[0].prompt, last)) for last in range(20, 25)]
    [batch] = micro_batches(policy, after_a_long_prompt([*alike, *lone]))
    assert batch.lanes.size > 1
    assert batch.lanes.ids.numel() <= 1.5 * sum(len(row.completion) - 1 for row in batch.rows)


def test_micro_batches_hold_every_row_once_within_their_bound(policy):
    many = [row for _ in range(300) for row in rows(policy, external("1234567890", finish="length"))]
    batches = list(micro_batches(policy, many))
    assert sum(len(batch.rows) for batch in batches) == 300
    assert all(batch.targets.numel() <= 4096 for batch in batches)


def completions_of(policy, lengths, prompts):
    """Rows of completions of these lengths to each prompt, the lengths in turn."""
    [row] = rows(policy, external("1", finish="length"))
    text = row.completion[:1]
    return [replace(row, prompt=prompt, completion=text * length) for length in lengths for prompt in prompts]


def test_long_prompts_are_read_once_each_whatever_lengths_their_completions_have(policy):
    bounded = replace(policy, at_once=AtOnce(read=100))
    prompts = [(first, *[5] * 149) for first in range(10, 14)]
    batches = list(micro_batches(bounded, completions_of(policy, [2, 3, 4, 5], prompts)))
    assert [{row.prompt for row in batch.rows} for batch in batches] == [{prompt} for prompt in sorted(prompts)]


def test_completions_of_like_length_are_together_where_prompts_are_short(policy):
    bounded = replace(policy, at_once=AtOnce(read=2000))
    prompts = [(first, 5, 5) for first in range(10, 20)]
    batches = list(micro_batches(bounded, completions_of(policy, [4, 80], prompts)))
    assert [{len(row.completion) for row in batch.rows} for batch in batches] == [{4}, {80}]


def test_one_prompt_and_its_completions_may_have_twice_the_tokens_of_several(policy):
    bounded = replace(policy, at_once=AtOnce(read=100))
    [_] = micro_batches(bounded, completions_of(policy, [20] * 5, [(5,) * 100]))
    assert len(list(micro_batches(bounded, completions_of(policy, [20] * 6, [(5,) * 100])))) == 2


@given(bounds=st.lists(st.integers(0, 40), max_size=12, unique=True))
def test_tokens_overlap_a_span_exactly_where_they_share_a_character(policy, bounds):
    bounds = sorted(bounds)[: len(bounds) // 2 * 2]
    spans = list(zip(bounds[::2], bounds[1::2], strict=True))
    said = "so 12 + 7 = 19, then <answer>19</answer> "
    offsets = policy.tokenizer(said, add_special_tokens=False, return_offsets_mapping=True)["offset_mapping"]
    shared = [bool({*range(*token)} & {at for span in spans for at in range(*span)}) for token in offsets]
    assert policy.overlapping(said, spans) == tuple(place for place, is_shared in enumerate(shared) if is_shared)
