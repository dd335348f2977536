"""Who asks for more tokens than the swarm keeps bytes for is told so before any is sampled."""

import pytest

from sapo_node.app.advice import too_long_for
from sapo_node.app.config import Config
from sapo_protocol import load_manifest


def told(swarm, **settings):
    return too_long_for(Config(swarm=swarm, **settings), load_manifest(swarm).max_completion_bytes)


@pytest.mark.parametrize(("swarm", "tokens"), [("smollm2-easy", 85), ("starter", 341), ("paper-nine", 1365)])
def test_one_token_more_than_hardly_fits_is_said(swarm, tokens):
    assert told(swarm, max_tokens=tokens) == ""
    assert f"Give at most --max-tokens {tokens}," in told(swarm, max_tokens=tokens + 1)


def test_the_notice_names_the_bytes_that_the_swarm_keeps():
    assert told("starter", max_tokens=2048).startswith(
        "the swarm keeps 1,024 bytes of a completion, and 2,048 tokens have about 6,144 or more"
    )


@pytest.mark.parametrize(("swarm", "tokens"), [("starter", "auto"), ("smollm2-easy", "auto"), ("smollm2-easy", 32)])
def test_the_defaults_of_the_shipped_models_say_nothing(swarm, tokens):
    assert told(swarm, max_tokens=tokens) == ""


def test_a_node_that_does_not_train_has_no_tokens_to_save():
    assert told("starter", max_tokens=2048, train=False) == ""
