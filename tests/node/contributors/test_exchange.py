"""Which servers both HTTP clients of a node trust, for `contribute --endpoint` and for `start --generate`."""

import re

import pytest
import trio

from certificates import HASHED, write_certificate
from chat_server import ChatServer
from sapo_node.contributors.endpoint import endpoint
from sapo_node.groups.prompt import Prompt
from sapo_node.learner.server.connection import Connection
from sapo_protocol import LocalError

ENVIRONMENT = "SSL_CERT_FILE SSL_CERT_DIR HTTP_PROXY HTTPS_PROXY ALL_PROXY NO_PROXY"


def by_endpoint(url):
    async def ask():
        async with endpoint(url, model="m", key=None, temperature=1.0, max_bytes=99) as answerer:
            await answerer.generate([Prompt("?")], completions=2, max_tokens=9, seed=1)

    trio.run(ask)


def by_generate(url):
    Connection(url, None).post("/v1/chat/completions", {"n": 2, "messages": [{"content": "?"}]}, most=9999)


@pytest.fixture(params=[by_endpoint, by_generate])
def reach(request, monkeypatch):
    """Reaches the server at an address by one of the clients, in an environment that names no certificates."""
    for name in ENVIRONMENT.split():
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)
    return request.param


def refusal(reach, url):
    with pytest.raises(LocalError) as caught:
        reach(url)
    (line,) = str(caught.value).splitlines()
    return line


def test_an_authority_of_the_environment_is_trusted(reach, tmp_path, monkeypatch):
    file, tls = write_certificate(tmp_path)
    (tmp_path / "hashed").mkdir()
    (tmp_path / "hashed" / HASHED).symlink_to(file)
    with ChatServer(tls=tls) as server:
        with monkeypatch.context() as environment:
            environment.setenv("SSL_CERT_FILE", str(file))
            reach(server.url)
        monkeypatch.setenv("SSL_CERT_DIR", f"{file}:{tmp_path / 'hashed'}")
        reach(server.url)
    assert len(server.requests) == 2


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({}, r"\(self-signed certificate\); if you trust who issued it, .* SSL_CERT_FILE"),
        ({"host": "example.org"}, r"\(Hostname mismatch.* with a name that the certificate holds"),
        ({"days": (-3, -2)}, r"\(certificate has expired\); renew it on the server"),
        ({"days": (2, 3)}, r"\(certificate is not yet valid\); .*set the clock"),
    ],
)
def test_a_refused_certificate_is_told_with_what_to_do(reach, settings, words, tmp_path, monkeypatch):
    file, tls = write_certificate(tmp_path, **settings)
    if settings:
        monkeypatch.setenv("SSL_CERT_FILE", str(file))
    with ChatServer(tls=tls) as server:
        line = refusal(reach, server.url)
    assert "its certificate is refused" in line
    assert server.requests == []
    assert re.search(words, line), line


def test_a_server_that_does_not_speak_tls_is_told(reach):
    with ChatServer() as server:
        line = refusal(reach, server.url.replace("http://127.0.0.1", "https://localhost"))
    assert "does not speak TLS at this address; give one that begins with http://" in line


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("SSL_CERT_FILE", f"{__file__}.pem", "No such file"),
        ("SSL_CERT_FILE", __file__, "PEM"),
        ("SSL_CERT_FILE", "/", "folder|directory|PEM"),
        ("SSL_CERT_DIR", __file__, "no folder"),
        ("ALL_PROXY", "socks5://127.0.0.1:1", "socks"),
        ("ALL_PROXY", "nonsense://127.0.0.1:1", "nonsense"),
        ("NO_PROXY", "fd00::/8", "port"),
    ],
)
def test_an_environment_that_no_client_can_use_is_refused_by_its_name(reach, name, value, words, monkeypatch):
    monkeypatch.setenv(name, value)
    line = refusal(reach, "https://192.0.2.1/v1")
    assert name in line
    assert re.search(words, line), line
