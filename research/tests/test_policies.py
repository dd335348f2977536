"""Prepared policies: of every kind in tiny recipes, whole or not there, and the same bytes from the same recipe."""

import hashlib
import json
import re
import shutil
from dataclasses import replace

import pytest
import torch
from click.testing import CliRunner

from research.policies import POLICIES, make, meta_of, networks, prepare
from research.policies.__main__ import policies as command
from research.policies.catalogue import SEED, Reinforced, TrainedGroup
from research.seed import build, measure
from research.seed.recipe import Lessons
from sapo_node.groups.messages import GenerateRequest, LearnerOptions, TrainGroup, TrainRequest
from sapo_node.groups.prompt import Prompt
from sapo_node.learner.folder import POLICY_DIR
from sapo_node.learner.generate import generate
from sapo_node.learner.model import load
from sapo_node.learner.trainer import Trainer
from sapo_protocol import LocalError, load_manifest

pytestmark = pytest.mark.slow


torch.set_num_threads(1)

SPECS = load_manifest("starter").tasks
CONFIGS = {spec.dataset: spec.config for spec in SPECS}
SHORT = replace(SEED, hidden=8, layers=1, heads=2, feed_forward=8, teach_steps=2, bury_steps=2, batch=16)
TINY = {
    "weak": TrainedGroup("", SHORT, network="qwen2"),
    "scarce-8": TrainedGroup("", replace(SEED, seed=2, teach_steps=0, bury_steps=1, batch=8)),
    "llama": TrainedGroup("", replace(SHORT, vocabulary=300), network="llama", tokens="pieces"),
    "neox": TrainedGroup("", replace(SHORT, vocabulary=258), network="gpt_neox", tokens="bytes"),
    "strong": Reinforced("", reward=1.0, most_rounds=1),
}


def silent(_share, _doing):
    pass


@pytest.fixture(scope="module", autouse=True)
def one_question_and_opening_each():
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(make, "QUESTIONS", 1)
        one_each = {name: replace(each, common=each.common[:1]) for name, each in measure.CAREFUL_OPENING.items()}
        patched.setattr(measure, "CAREFUL_OPENING", one_each)
        yield


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    """The folder of a tiny policy, built once for all tests, which change nothing in it."""
    folder = tmp_path_factory.mktemp("tiny")
    return lambda name: prepare(name, folder, silent, policies=TINY)


@pytest.fixture
def build_tiny(tmp_path):
    """Builds a policy for one test."""

    def build_one(name, folder="policies", progress=silent, making=None):
        return prepare(name, tmp_path / folder, progress, policies={**TINY, name: making or TINY[name]})

    return build_one


def digests(folder):
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in sorted(folder.iterdir())}


@pytest.mark.parametrize("name", TINY)
def test_a_prepared_policy_loads_generates_and_trains(tiny, name):
    options = LearnerOptions(checkpoints="", device="cpu", model=str(tiny(name)))
    policy = load(options)
    prompt = measure.heldout(SPECS, 1)[0].prompt
    [pair] = generate(policy, GenerateRequest((Prompt(prompt),), 2, 8, seed=1), 1024)
    before = [value.clone() for _, value in policy.trainable()]
    report = Trainer(policy, options).train(
        TrainRequest(1, (TrainGroup("local", prompt, 1.0, (1.0, -1.0), tuple(pair)),))
    )
    assert report.skipped is None
    assert any(not torch.equal(old, value) for old, (_, value) in zip(before, policy.trainable(), strict=True))


@pytest.mark.parametrize("name", ["weak", "llama", "neox"])
def test_the_same_recipe_gives_the_same_bytes(tiny, build_tiny, name):
    assert digests(tiny(name)) == digests(build_tiny(name))


@pytest.mark.parametrize(
    ("name", "architecture"),
    [("llama", "LlamaForCausalLM"), ("neox", "GPTNeoXForCausalLM"), ("weak", "Qwen2ForCausalLM")],
)
def test_a_policy_has_the_architecture_it_names(tiny, name, architecture):
    assert json.loads((tiny(name) / "config.json").read_text())["architectures"] == [architecture]


def test_a_policy_that_goes_on_from_the_package_keeps_its_tokenizer(tiny):
    assert (tiny("scarce-8") / "tokenizer.json").read_bytes() == (POLICY_DIR / "tokenizer.json").read_bytes()


class Interrupted(Exception):
    pass


def test_an_interrupted_build_is_not_taken_for_whole_and_goes_on_to_the_same_bytes(
    tiny, build_tiny, monkeypatch, tmp_path
):
    straight = digests(tiny("weak"))
    monkeypatch.setattr(build, "SAVE_EVERY", 1)
    told = []

    def stop_at_the_third(_share, doing):
        told.append(doing)
        if doing.startswith("step 3"):
            raise Interrupted

    with pytest.raises(Interrupted):
        build_tiny("weak", progress=stop_at_the_third)
    assert not (tmp_path / "policies" / "weak").exists()
    assert digests(build_tiny("weak", progress=stop_at_the_third)) == straight
    assert [doing[:6] for doing in told] == ["step 1", "step 2", "step 3", "step 4", "measur"]


def test_another_recipe_takes_nothing_from_an_interrupted_build(build_tiny, monkeypatch):
    monkeypatch.setattr(build, "SAVE_EVERY", 1)

    def stop(_share, doing):
        if doing.startswith("step 3"):
            raise Interrupted

    with pytest.raises(Interrupted):
        build_tiny("weak", progress=stop)
    wider = replace(TINY["weak"], recipe=replace(SHORT, hidden=16))
    assert json.loads((build_tiny("weak", making=wider) / "config.json").read_text())["hidden_size"] == 16


def test_what_is_there_is_not_built_again_whatever_its_description(tiny):
    folder = tiny("weak")
    told = []
    for making in (TINY["weak"], replace(TINY["weak"], about="in other words")):
        again = prepare("weak", folder.parent, lambda *args: told.append(args), policies={"weak": making})
        assert again == folder
    assert not told


def test_two_processes_do_not_build_one_policy_at_once(build_tiny):
    refusals = []

    def meanwhile(_share, _doing):
        if not refusals:
            with pytest.raises(LocalError) as refused:
                build_tiny("weak")
            refusals.append(str(refused.value))

    build_tiny("weak", progress=meanwhile)
    assert "another process is building weak" in refusals[0]


def test_a_changed_recipe_is_built_again(tiny, build_tiny, tmp_path):
    before = meta_of(shutil.copytree(tiny("weak"), tmp_path / "policies" / "weak"))
    after = meta_of(build_tiny("weak", making=replace(TINY["weak"], recipe=replace(SHORT, seed=9))))
    assert after["digest"] != before["digest"]
    assert after["recipe"]["seed"] == 9


@pytest.mark.parametrize("name", ["llama", "neox"])
def test_the_longest_honest_text_fits(tiny, name):
    folder = tiny(name)
    policy = load(LearnerOptions(checkpoints="", device="cpu", model=str(folder)))
    unseen = Lessons(replace(SEED, seed=3), CONFIGS)
    texts = [lesson.text for step in range(4) for lesson in unseen.step(step)]
    longest = max(len(policy.encode_foreign(text)) for text in texts)
    assert longest < meta_of(folder)["max_tokens"]


def test_the_byte_policy_reads_the_last_line_of_a_question(tiny):
    policy = load(LearnerOptions(checkpoints="", device="cpu", model=str(tiny("neox"))))
    assert policy.decode(policy.prompt_tokens(Prompt("many words\n\nHow many?\n"))) == "How many?\n"


def test_pieces_are_words_and_single_digits():
    making = TINY["llama"]
    lessons = networks.lessons_for(making, CONFIGS)
    tokenizer = networks.new_tokenizer(replace(making, recipe=replace(SHORT, vocabulary=512)), lessons)
    assert tokenizer.encode("answer 1234").tokens == ["answer", "Ġ", "1", "2", "3", "4"]


def test_an_unknown_policy_is_one_line_with_the_closest_name(tmp_path):
    with pytest.raises(LocalError) as refusal:
        prepare("scarce-3", tmp_path, silent)
    assert re.fullmatch(r"no policy 'scarce-3'; did you mean scarce-\d\?", str(refusal.value))


def test_an_unknown_name_is_refused_before_anything_is_built(tmp_path):
    result = CliRunner().invoke(command, ["weak", "scarce-3", "--folder", str(tmp_path)])
    assert isinstance(result.exception, LocalError)
    assert not list(tmp_path.iterdir())


def test_the_list_has_every_policy_and_what_was_measured(tiny, tmp_path):
    meta = meta_of(shutil.copytree(tiny("weak"), tmp_path / "policies" / "weak"))
    listed = json.loads(CliRunner().invoke(command, ["--json", "--folder", str(tmp_path / "policies")]).stdout)
    assert [row["name"] for row in listed] == list(POLICIES)
    assert {row["name"]: row["start"] for row in listed if "start" in row} == {"weak": meta["start"]}


@pytest.mark.parametrize("text", ["", "{", "[]", "[" * 3_000])
def test_a_damaged_policy_is_refused_by_its_file(text, tmp_path):
    (tmp_path / "llama").mkdir()
    (tmp_path / "llama" / "meta.json").write_text(text)
    with pytest.raises(LocalError, match=r"meta\.json is damaged"):
        meta_of(tmp_path / "llama")
