"""What a command says of a missing extra works from where the package was installed."""

import shlex

import pytest

from sapo_node.processes import extras

ORIGINS = {
    "clone": ({"url": "file:///home/me/my%20clone", "dir_info": {"editable": True}}, "/home/me/my clone[gguf]"),
    "wheel": ({"url": "file:///tmp/sapo_node-1-py3-none-any.whl"}, "/tmp/sapo_node-1-py3-none-any.whl[gguf]"),
    "repository": (
        {"url": "https://example.org/s.git", "vcs_info": {"vcs": "git", "commit_id": "abc"}},
        "sapo-node[gguf] @ git+https://example.org/s.git@abc",
    ),
    "archive": ({"url": "https://example.org/s.tar.gz"}, "sapo-node[gguf] @ https://example.org/s.tar.gz"),
    "index": ({}, "sapo-node[gguf]"),
}


@pytest.mark.parametrize(("origin", "requirement"), ORIGINS.values(), ids=ORIGINS)
def test_the_command_names_the_place_again(monkeypatch, origin, requirement):
    monkeypatch.setattr(extras, "_origin", lambda: origin)
    *_, last = shlex.split(extras.command_for("gguf"))
    assert last == requirement
