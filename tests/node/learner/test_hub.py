"""Models by their names on the hub: from the cache without network, downloaded from a hub that speaks like the real."""

import hashlib
import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
import torch
from huggingface_hub import constants

from no_hub import REPLIES, NoHub
from sapo_node.groups.messages import LearnerOptions, is_hub_name
from sapo_node.learner.hub import HubError, cached, fetch
from sapo_node.learner.model import ModelError, load
from tiny_models import write_model

torch.set_num_threads(1)

NAME = "somebody/tiny"
COMMIT = "c" * 40
GATED, UNKNOWN = "somebody/gated", "somebody/unknown"


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = write_model(tmp_path_factory.mktemp("tiny"), "llama")
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """An empty cache, and no hub that could be reached."""
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    reach(monkeypatch, "http://127.0.0.1:9")
    return tmp_path


def reach(monkeypatch, address):
    monkeypatch.setattr(constants, "ENDPOINT", address)
    monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", address + "/{repo_id}/resolve/{revision}/{filename}")


def keep(cache, files, model=NAME):
    """Put a model where the hub's own library would."""
    folder = cache / f"models--{model.replace('/', '--')}"
    snapshot = folder / "snapshots" / COMMIT
    snapshot.mkdir(parents=True)
    (folder / "refs").mkdir()
    (folder / "refs" / "main").write_text(COMMIT)
    for name, content in files.items():
        (snapshot / name).write_bytes(content)
    return snapshot


class Hub(ThreadingHTTPServer):
    """One model that anybody may have, one that is gated, and nothing else."""

    def __init__(self, files):
        super().__init__(("127.0.0.1", 0), Answers)
        self.files = files
        self.asked = []


class Answers(BaseHTTPRequestHandler):
    def log_message(self, *_):
        pass

    def do_HEAD(self):
        self.do_GET()

    def do_GET(self):
        path = self.path.partition("?")[0]
        self.server.asked.append(path)
        if GATED in path:
            self.answer(403, b"", {"X-Error-Code": "GatedRepo"})
        elif NAME not in path:
            self.answer(404, b"", {"X-Error-Code": "RepoNotFound"})
        elif path.startswith("/api/") and "/tree/" in path:
            self.answer(200, json.dumps([self.described(name) for name in self.server.files]).encode())
        elif path.startswith("/api/"):
            siblings = [{"rfilename": name, "size": len(data)} for name, data in self.server.files.items()]
            self.answer(200, json.dumps({"id": NAME, "sha": COMMIT, "siblings": siblings}).encode())
        else:
            content = self.server.files[path.rpartition("/")[2]]
            self.answer(200, content, {"X-Repo-Commit": COMMIT, "ETag": f'"{hashlib.sha256(content).hexdigest()}"'})

    def described(self, name):
        data = self.server.files[name]
        return {"type": "file", "path": name, "size": len(data), "oid": hashlib.sha1(data).hexdigest()}

    def answer(self, status, content, headers=None):
        self.send_response(status)
        for name, value in {"Content-Length": str(len(content)), **(headers or {})}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(content)


@pytest.fixture
def hub(cache, files, monkeypatch):
    server = Hub(dict(files))
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    reach(monkeypatch, f"http://127.0.0.1:{server.server_port}")
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


def options(model):
    return LearnerOptions(checkpoints="", model=model)


def test_a_model_in_the_cache_is_loaded_by_its_name_without_network(cache, files):
    snapshot = keep(cache, files)
    policy = load(options(NAME))
    assert policy.name == NAME
    assert policy.fingerprint == load(options(str(snapshot))).fingerprint


def test_an_old_name_without_an_owner_is_loaded_from_the_cache(cache, files):
    keep(cache, files, "tiny")
    assert load(options("tiny")).name == "tiny"


@pytest.mark.parametrize("name", ["gpt2", "./gpt2"])
def test_what_is_neither_folder_nor_cached_says_how_a_hub_name_looks(hub, name):
    with pytest.raises(ModelError, match=f"no folder {name};.* with its owner, for example openai-community/gpt2"):
        load(options(name))
    assert hub.asked == []


@pytest.mark.parametrize("index", ["[" * 3000 + "]" * 3000, '{"weight_map": {"a": 5}}', '{"weight_map": 5}'])
def test_a_damaged_index_of_weights_is_no_whole_model(cache, files, index):
    keep(cache, {**files, "model.safetensors.index.json": index.encode()})
    assert cached(NAME) is None


def test_the_learner_never_downloads_and_says_what_would(hub):
    with pytest.raises(ModelError, match=f"`sapo-node start --model {NAME}` downloads it"):
        load(options(NAME))
    assert hub.asked == []


def test_a_model_is_downloaded_once_and_told_of_before(hub, cache):
    told = []
    fetch(NAME, told.append)
    [line] = told
    assert line.startswith(f"downloading {NAME} (0.00 GB) from http://127.0.0.1")
    assert str(cache) in line
    assert load(options(NAME)).name == NAME
    asked = len(hub.asked)
    fetch(NAME, told.append)
    assert len(hub.asked) == asked
    assert len(told) == 1


def test_nothing_but_settings_tokenizer_and_safetensors_is_downloaded(hub):
    hub.files["pytorch_model.bin"] = hub.files["modeling_own.py"] = b"x"
    fetch(NAME, lambda _: None)
    folder = cached(NAME)
    assert {path.suffix for path in folder.iterdir()} == {".json", ".safetensors"}


def test_an_interrupted_download_is_taken_up_again(hub, cache, files):
    snapshot = keep(cache, files)
    (snapshot / "model.safetensors").unlink()
    assert cached(NAME) is None
    fetch(NAME, lambda _: None)
    assert cached(NAME) == snapshot


def test_a_missing_part_of_the_weights_is_noticed(cache, files):
    index = {"weight_map": {"a": "model-00001-of-00002.safetensors", "b": "model-00002-of-00002.safetensors"}}
    parts = {"model.safetensors.index.json": json.dumps(index).encode(), "config.json": b"{}"}
    keep(cache, {**parts, "model-00001-of-00002.safetensors": b""})
    assert cached(NAME) is None


def no_safetensors(hub):
    hub.files["pytorch_model.bin"] = hub.files.pop("model.safetensors")


@pytest.mark.parametrize(
    ("name", "spoil", "message"),
    [
        (GATED, lambda _: None, "is gated: accept its terms at http"),
        (UNKNOWN, lambda _: None, "no such model or hides it"),
        (NAME, no_safetensors, "no weights in the safetensors format"),
    ],
)
def test_what_the_hub_does_not_give_is_one_clear_line(hub, name, spoil, message):
    spoil(hub)
    with pytest.raises(HubError, match=message) as caught:
        fetch(name, lambda _: None)
    assert "\n" not in str(caught.value)


def test_without_network_a_missing_model_is_one_clear_line(cache):
    with pytest.raises(HubError, match="cannot be downloaded") as caught:
        fetch(NAME, lambda _: None)
    assert "\n" not in str(caught.value)


def test_a_folder_is_a_folder_even_where_it_looks_like_a_name(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert is_hub_name(NAME)
    (tmp_path / NAME).mkdir(parents=True)
    assert not is_hub_name(NAME)


@pytest.mark.parametrize("model", ["seed", "/some/where", "./here", "a/b/c", "../model"])
def test_a_path_is_no_name(model):
    assert not is_hub_name(model)


@pytest.mark.parametrize("reply", REPLIES.values(), ids=REPLIES)
def test_what_answers_and_is_no_hub_is_one_line(reply, cache, monkeypatch):
    with NoHub(reply) as portal:
        reach(monkeypatch, portal.url)
        with pytest.raises(HubError, match="is no hub") as caught:
            fetch(NAME, lambda _: None)
    assert "HF_ENDPOINT" in str(caught.value)
    assert cached(NAME) is None
