"""How much is computed at once: a CPU has fixed bounds, a GPU takes what a share of its memory allows."""

import pytest
import torch
from transformers import GPT2Config, LlamaConfig, MambaConfig

from sapo_node.learner.device import READ, ROWS, at_once

GIB = 2**30
SMOLLM2 = LlamaConfig(hidden_size=576, num_hidden_layers=30, num_attention_heads=9, num_key_value_heads=3)
LARGE = LlamaConfig(hidden_size=4096, num_hidden_layers=32, num_attention_heads=32, num_key_value_heads=8)
TOKENS = 900
VOCABULARY = 49_152


def bounds(config, device, gib, trained_layers=10):
    return at_once(config, torch.bfloat16, device, gib * GIB, trained_layers=trained_layers)


def test_a_cpu_samples_no_more_completions_at_once_with_more_memory():
    assert bounds(SMOLLM2, "cpu", 512).rows(TOKENS, VOCABULARY) == ROWS


def test_a_cpu_reads_no_larger_micro_batches_with_more_memory():
    assert bounds(SMOLLM2, "cpu", 512).read == READ


def test_a_large_gpu_samples_64_groups_of_8_completions_of_a_small_model_at_once():
    assert bounds(SMOLLM2, "cuda", 139).rows(TOKENS, VOCABULARY) >= 512


def test_a_large_gpu_reads_larger_micro_batches_of_a_small_model():
    assert bounds(SMOLLM2, "cuda", 139).read > 4 * READ


def test_the_cache_of_sampling_takes_an_eighth_of_a_gpu_at_most():
    rows = bounds(SMOLLM2, "cuda", 139).rows(TOKENS, VOCABULARY)
    keys_and_values = 2 * 3 * 64 * 30
    assert rows * TOKENS * keys_and_values * torch.bfloat16.itemsize <= 139 * GIB / 8


def test_the_logits_of_a_token_bound_what_is_sampled_at_once():
    assert bounds(SMOLLM2, "cuda", 139).rows(1, 2**20) == 2**30 // 2**20


def test_a_gpu_never_takes_smaller_batches_than_a_cpu():
    small = bounds(LARGE, "cuda", 2, trained_layers=32)
    assert (small.rows(TOKENS, VOCABULARY), small.read) == (ROWS, READ)


def test_fewer_trained_layers_allow_larger_micro_batches():
    assert bounds(SMOLLM2, "cuda", 139, trained_layers=10).read > bounds(SMOLLM2, "cuda", 139, trained_layers=30).read


@pytest.mark.parametrize("config", [GPT2Config(), MambaConfig()], ids=["other names", "no attention"])
def test_bounds_of_every_kind_of_model_are_known(config):
    assert bounds(config, "cuda", 24).read >= READ
