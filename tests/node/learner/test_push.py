"""An exported folder goes to a hub that speaks like the real one, through its own library; and what it refuses."""

import base64
import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from huggingface_hub import constants

from no_hub import REPLIES, NoHub
from sapo_node.cli.main import main
from sapo_node.learner.hub import HubError
from sapo_node.learner.push import push
from sapo_node.rollouts.export import CARD, GROUPS, SWARM

NAME = "somebody/learnt"
FOREIGN = "another/learnt"
PREUPLOADS, COMMITS = (
    {f"{kind}/{NAME}/{call}/main" for kind in ("models", "datasets")} for call in ("preupload", "commit")
)


class Hub(ThreadingHTTPServer):
    """Takes the files of one account."""

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Answers)
        self.files = {}
        self.created = None
        self.is_there = False


class Answers(BaseHTTPRequestHandler):
    def log_message(self, *_):
        pass

    def do_GET(self):
        self.answer(404, {})

    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"])).decode()
        if self.path == "/api/repos/create":
            self.create(json.loads(body))
        elif self.path.removeprefix("/api/") in PREUPLOADS:
            names = [each["path"] for each in json.loads(body)["files"]]
            files = [{"path": name, "uploadMode": "regular", "shouldIgnore": False} for name in names]
            self.answer(200, {"files": files})
        elif self.path.removeprefix("/api/") in COMMITS:
            for line in map(json.loads, body.splitlines()):
                if line["key"] == "file":
                    self.server.files[line["value"]["path"]] = base64.b64decode(line["value"]["content"])
            self.answer(200, {"commitUrl": f"{constants.ENDPOINT}/{NAME}/commit/abc", "commitOid": "a" * 40})
        else:
            self.answer(200, {})

    def create(self, asked):
        if asked.get("organization") != "somebody":
            self.answer(403, {"error": "no write permission"})
            return
        if self.server.is_there:
            self.answer(409, {"error": "You already created this repo", "url": f"{constants.ENDPOINT}/datasets/{NAME}"})
            return
        self.server.created = asked
        place = NAME if asked.get("type", "model") == "model" else f"{asked['type']}s/{NAME}"
        self.answer(200, {"url": f"{constants.ENDPOINT}/{place}"})

    def answer(self, status, body):
        content = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "learnt").mkdir()
    (tmp_path / "learnt" / "README.md").write_text("---\nlibrary_name: transformers\n---\n")
    (tmp_path / "learnt" / "model.safetensors").write_bytes(b"weights")
    return tmp_path / "learnt"


@pytest.fixture
def hub(monkeypatch):
    server = Hub()
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    monkeypatch.setattr(constants, "ENDPOINT", f"http://127.0.0.1:{server.server_port}")
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


def test_all_files_arrive_in_a_private_repository(hub, folder):
    assert push(folder, NAME, message="Round 7") == f"{constants.ENDPOINT}/{NAME}"
    assert hub.files == {path.name: path.read_bytes() for path in folder.iterdir()}
    # Older versions of the library say `private`.
    assert hub.created.get("visibility") == "private" or hub.created.get("private") is True


def test_a_data_set_arrives_as_one(hub, folder):
    address = push(folder, NAME, message="Exported by sapo-node", kind="dataset")
    assert address == f"{constants.ENDPOINT}/datasets/{NAME}"
    assert hub.created["type"] == "dataset"
    assert hub.files.keys() == {path.name for path in folder.iterdir()}


def test_of_a_folder_that_others_made_only_the_named_files_are_uploaded(hub, folder, tmp_path):
    (tmp_path / "secret").write_text("key")
    (folder / "notes.txt").symlink_to(tmp_path / "secret")
    push(folder, NAME, message="m", kind="dataset", only=("README.md",))
    assert hub.files.keys() == {"README.md"}


def test_a_data_set_that_was_there_is_not_said_to_be_private(hub, folder, run_here):
    for name in (GROUPS, SWARM, CARD):
        (folder / name).write_text("")
    hub.is_there = True
    status, said = run_here(main, "rollouts", "push", folder, NAME)
    assert (status, hub.created) == (0, None)
    assert "a new repository is private, and one that was public still is" in said.out


def refusal(folder, name):
    with pytest.raises(HubError) as caught:
        push(folder, name, message="Round 7")
    assert "\n" not in str(caught.value)
    assert f"the folder {folder} is complete: `hf upload {name} {folder}` sends it later" in str(caught.value)
    return str(caught.value)


def test_another_account_is_refused_with_the_command_that_logs_in(hub, folder):
    assert f"the hub refused {FOREIGN} (HTTP 403); log in with `hf auth login`" in refusal(folder, FOREIGN)
    assert hub.files == {}


def test_without_network_the_folder_stays_and_the_error_says_so(folder, monkeypatch):
    monkeypatch.setattr(constants, "ENDPOINT", "http://127.0.0.1:9")
    assert "the hub at http://127.0.0.1:9 cannot be reached" in refusal(folder, NAME)
    assert len(list(folder.iterdir())) == 2


def test_a_library_that_is_told_to_stay_offline_sends_nothing(hub, folder, monkeypatch):
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    assert "cannot be reached" in refusal(folder, NAME)
    assert hub.files == {}


def test_a_name_that_the_hub_cannot_have_is_refused(folder):
    assert "is not the name of a repository; give owner/name" in refusal(folder, "a/b/c")


@pytest.mark.parametrize("reply", REPLIES.values(), ids=REPLIES)
def test_what_answers_and_is_no_hub_is_one_line(reply, folder, monkeypatch):
    monkeypatch.setenv("HF_TOKEN", "hf_test")
    with NoHub(reply) as portal:
        monkeypatch.setattr(constants, "ENDPOINT", portal.url)
        with pytest.raises(HubError, match="is no hub") as caught:
            push(folder, NAME, message="m")
    assert "hf upload" in str(caught.value)
