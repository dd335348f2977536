"""What own answers say to others': the learner's measure of it, and the filter that goes by it."""

from dataclasses import replace

import pytest
import torch

from sapo_node.groups.messages import GroupReport, LearnerOptions, Sampled, TrainGroup, TrainRequest
from sapo_node.groups.types import VerifiedGroup
from sapo_node.learner.model import load
from sapo_node.learner.trainer import Trainer
from sapo_node.sampling.filters import Filters, Offered
from sapo_node.sampling.filters.gradient_agreement import LEAST, WINDOW, GradientAgreementFilter
from sapo_node.sampling.filters.interface import GradientVote
from sapo_node.sampling.pass_rates import PassRates
from sapo_node.sampling.sampler import WeightedGroup
from sapo_node.training.round import TrainedGroup, heard
from sapo_protocol import Completion, Finish

torch.set_num_threads(1)

OPTIONS = LearnerOptions(checkpoints="", groups=2, completions=2, filters=("gradient-agreement",), learning_rate=2e-4)
QUESTION = "What is 2 + 2?"
PAYS, FAILS = "Column by column: 2+2=4. So <answer>4</answer>", "Adding up digits: 2+2=5. So <answer>5</answer>"


def learner(**changes):
    options = replace(OPTIONS, **changes)
    return Trainer(load(options), options)


def own(trainer):
    """A question of which one own answer was right and one was wrong."""
    said = [Sampled(text, "stop", tuple(trainer.policy.encode_foreign(text))) for text in (PAYS, FAILS)]
    return TrainGroup("local", QUESTION, 1.0, (1.0, -1.0), tuple(said))


def others(*texts, advantages, silent=()):
    return TrainGroup(
        "external", QUESTION, 1.0, advantages, tuple(Sampled(text, "stop", None, silent) for text in texts)
    )


def trained(trainer, rounds=3):
    """One whose own answers have said for some rounds what pays."""
    for _ in range(rounds):
        trainer.train(TrainRequest(trainer.step + 1, (own(trainer),)))
    return trainer


def weights(trainer):
    return [value.detach().clone() for value in trainer.policy.model.parameters()]


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_own_learning_speaks_for_what_pays_here_and_against_what_does_not(dtype):
    trainer = trained(learner(dtype=dtype))
    group = others(PAYS, FAILS, advantages=(1.0, 1.0))
    report = trainer.train(TrainRequest(trainer.step + 1, (own(trainer), group)))
    assert report.groups["1"].agreement == {0: True, 1: False}


def test_nothing_is_asked_of_wrong_answers():
    trainer = trained(learner())
    group = others(PAYS, FAILS, advantages=(1.0, -1.0))
    report = trainer.train(TrainRequest(trainer.step + 1, (own(trainer), group), "on-policy"))
    assert report.groups["1"].agreement == {0: True}


def test_words_that_are_not_taught_are_not_asked_about():
    trainer = trained(learner())
    whole = others(FAILS, FAILS, advantages=(1.0, -1.0))
    only_the_end = others(FAILS, FAILS, advantages=(1.0, -1.0), silent=((0, len(FAILS)),))
    report = trainer.train(TrainRequest(trainer.step + 1, (own(trainer), whole, only_the_end)))
    assert (report.groups["1"].agreement, report.groups["2"].agreement) == ({0: False}, {0: True})


def test_before_own_answers_taught_anything_nothing_is_said():
    trainer = learner()
    group = others(PAYS, FAILS, advantages=(1.0, 1.0))
    assert trainer.train(TrainRequest(1, (own(trainer), group))).groups["1"].agreement == {}


def test_to_ask_whether_own_learning_is_known_leaves_the_optimizer_as_it_was():
    trainer = learner()
    trainer._own.observe()
    assert not trainer._own.known
    assert not trainer.optimizer.state


def test_without_the_filter_nothing_is_said():
    trainer = trained(learner(filters=()))
    group = others(PAYS, FAILS, advantages=(1.0, 1.0))
    assert trainer.train(TrainRequest(trainer.step + 1, (own(trainer), group))).groups["1"].agreement == {}


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_asking_leaves_every_weight_as_it_would_have_been(dtype):
    asking, silent = trained(learner(dtype=dtype)), trained(learner(dtype=dtype, filters=()))
    for trainer in (asking, silent):
        group = others(PAYS, FAILS, advantages=(1.0, 1.0))
        trainer.train(TrainRequest(trainer.step + 1, (own(trainer), group)))
    assert all(torch.equal(a, b) for a, b in zip(weights(asking), weights(silent), strict=True))


def test_a_gradient_that_is_not_finite_is_not_learnt_from():
    trainer = trained(learner())
    trainer.parameters[0].grad = torch.full_like(trainer.parameters[0], torch.nan)
    trainer._own.observe()
    trainer.optimizer.zero_grad()
    group = others(PAYS, FAILS, advantages=(1.0, 1.0))
    report = trainer.train(TrainRequest(trainer.step + 1, (own(trainer), group)))
    assert report.groups["1"].agreement == {0: True, 1: False}


def said(against, *, of=LEAST, peer="a", dataset="products"):
    return [GradientVote(peer, dataset, agrees=number >= against) for number in range(of)]


def after(*rounds):
    filter_name = GradientAgreementFilter()
    for each in rounds:
        filter_name.observe([], each)
    return filter_name


def test_a_peer_most_of_whose_answers_are_spoken_against_is_not_taught():
    assert not after(said(10)).admits("a", "products")


def test_half_is_not_most():
    assert after(said(50, of=100)).admits("a", "products")


def test_few_answers_say_nothing():
    assert after(said(LEAST - 1, of=LEAST - 1)).admits("a", "products")


def test_answers_of_several_rounds_count_together():
    assert not after(said(6, of=6), said(6, of=6)).admits("a", "products")


def test_other_tasks_of_that_peer_are_taught():
    assert after(said(12)).admits("a", "chain_sum")


def test_other_peers_are_taught_in_that_task():
    assert after(said(12)).admits("b", "products")


def test_who_was_not_heard_for_a_while_is_heard_again():
    assert not after(said(12), *[[]] * (WINDOW - 1)).admits("a", "products")
    assert after(said(12), *[[]] * WINDOW).admits("a", "products")


def group_of(peer, rewards=(True, False)):
    completions = tuple(Completion(text, Finish.STOP) for text in (PAYS, FAILS))
    return VerifiedGroup(peer, 10, 0, 0, "products", QUESTION, completions, rewards)


def test_a_group_that_is_spoken_against_makes_room_for_others():
    filters = Filters(["gradient-agreement"], PassRates())
    filters.observe([], said(12))
    good, bad = group_of("b"), group_of("a")
    assert filters.offer([bad, good]) == ([Offered(good)], [(bad, "gradient-agreement")])


def test_what_the_learner_says_of_an_answer_is_said_of_its_peer_and_task():
    trained = [
        TrainedGroup(WeightedGroup(group_of(peer), 1.0, (1.0, -1.0)), GroupReport(agreement={0: agrees}))
        for peer, agrees in (("a", True), ("b", False))
    ]
    assert list(heard(trained)) == [GradientVote("a", "products", True), GradientVote("b", "products", False)]
