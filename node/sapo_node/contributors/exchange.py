"""Speaks HTTP with a server that the operator names: checks its address, and bounds the bytes and seconds of a reply.

The seconds count for the whole exchange. The time-outs of httpx are for one read each: a server that sends a byte of a
header now and then, or one interim response after another, never reaches them.

The client trusts the certificate authorities of this system, of httpx, and of SSL_CERT_FILE and SSL_CERT_DIR.
"""

import json
import os
import ssl
from collections.abc import Iterator
from functools import cache
from ipaddress import ip_address
from typing import Any
from urllib.parse import urlsplit

import httpx
import trio

from sapo_protocol import LocalError
from sapo_protocol.printable import excerpt, line_of

KEY_VARIABLE = "SAPO_NODE_API_KEY"
CONNECT_SECONDS = 10.0
_FILE, _FOLDERS = "SSL_CERT_FILE", "SSL_CERT_DIR"
_UNKNOWN_ISSUER = {18, 19, 20, 21}
_WRONG_TIME = {9, 10}
"""OpenSSL's numbers of the reasons why it refuses a certificate (X509_V_ERR_*)."""

MAX_SENTENCE = 1000
"""Characters that are shown of the words of a server, at most."""
_SENTENCE_KEYS = ("error", "error_message", "message", "detail", "msg", "errors", "error_description")
"""The keys of an error message in the JSON of servers. The first that holds text counts."""
_MAX_DEPTH = 8
"""Objects and lists around an error message, at most."""


class ReplyTooLong(LocalError):
    """The reply has more bytes than it may have."""


class TLSRefused(httpx.ConnectError):
    """No encrypted connection to this server can be made: a later attempt fails, too."""


def address_of(url: str, option: str) -> httpx.URL:
    """Return the address that `option` gives. Raises LocalError if it is not an HTTP address, or has a fragment."""
    try:
        urlsplit(url)  # refuses an IPv6 address without its closing bracket, which httpx accepts
        address = httpx.URL(url)
        host = address.host  # refuses a name that is no internationalised name
    except (ValueError, httpx.InvalidURL):
        address, host = httpx.URL(""), ""
    if address.scheme not in ("http", "https") or not host:
        raise LocalError(f"{option} is {excerpt(url)!r}; give an address like http://127.0.0.1:8000/v1")
    if address.fragment:
        raise LocalError(f"{option} has the fragment #{excerpt(address.fragment)}, which no server gets; leave it out")
    return address


def place_of(address: httpx.URL) -> str:
    """Return the address for people, without a password that it may hold."""
    return excerpt(f"{address.scheme}://{address.netloc.decode()}{address.path.rstrip('/')}")


def require_safe(key: str | None, address: httpx.URL, option: str) -> None:
    """Raise LocalError unless the key fits into an HTTP header, and the key or a password in the address goes over TLS
    or stays on this machine.
    """
    if key and not (key.isascii() and key.isprintable()):
        raise LocalError(f"{KEY_VARIABLE} has characters that an HTTP header cannot carry; copy the key again")
    if is_private(address):
        return
    if key:
        raise LocalError(
            f"{option} would send the key of {KEY_VARIABLE} unencrypted to {excerpt(address.host)}; "
            f"give an https:// address, or unset {KEY_VARIABLE}"
        )
    if address.userinfo:
        raise LocalError(
            f"{option} would send the password in the address unencrypted to {excerpt(address.host)}; "
            f"give an https:// address"
        )


def is_private(address: httpx.URL) -> bool:
    """Return whether a request there goes over TLS or stays on this machine."""
    return address.scheme == "https" or is_loopback(address.host)


def is_loopback(host: str) -> bool:
    """Return whether the host of a URL is this machine. This decides by the text, without a DNS query."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def client_of(base: httpx.URL, key: str | None, *, seconds: float) -> httpx.AsyncClient:
    """Return a client for the server at `base`, which follows no redirect. Use it as a context.

    Raises LocalError if a variable of the environment for certificates or proxies has a value that cannot be used.
    """
    # Without compression, the limit of a reply bounds the bytes that are kept.
    headers = {"Accept-Encoding": "identity"} | ({"Authorization": f"Bearer {key}"} if key else {})
    try:
        return httpx.AsyncClient(
            base_url=base,
            headers=headers,
            timeout=httpx.Timeout(seconds, connect=CONNECT_SECONDS),
            follow_redirects=False,
            verify=_authorities(os.environ.get(_FILE), os.environ.get(_FOLDERS)),
            # A proxy from the environment may be another machine. What is addressed to this machine does not leave it.
            trust_env=not is_loopback(base.host),
        )
    except (ImportError, ValueError, httpx.InvalidURL) as error:
        raise LocalError(
            f"the proxies in the environment cannot be used ({line_of(error)}); set HTTP_PROXY, HTTPS_PROXY, ALL_PROXY "
            f"and NO_PROXY to http:// addresses and names of hosts, or unset them"
        ) from error


@cache
def _authorities(file: str | None, folders: str | None) -> ssl.SSLContext:
    """Return a context that trusts the authorities of the environment, of this system and of httpx. It takes .2 s."""
    if folders and not any(os.path.isdir(each) for each in folders.split(os.pathsep)):  # noqa: PTH112 - as OpenSSL
        raise LocalError(f"{_FOLDERS} is {excerpt(folders)!r}, which is no folder; give one with certificates")
    try:
        context = httpx.create_ssl_context()
    except OSError as error:
        raise LocalError(
            f"{_FILE} is {excerpt(file or '')!r}, which cannot be read ({excerpt(error.strerror or '')}); give a file "
            f"of certificates in the PEM format"
        ) from error
    context.load_default_certs()
    return context


async def exchange(
    client: httpx.AsyncClient,
    method: str,
    url: httpx.URL | str,
    body: dict[str, Any] | None,
    *,
    seconds: float,
    most: int,
) -> tuple[httpx.Response, bytes]:
    """Send a request, and return the reply and its bytes.

    Raises trio.TooSlowError after these seconds, ReplyTooLong, TLSRefused, and the other errors of httpx.
    """
    data = bytearray()
    try:
        with trio.fail_after(seconds):
            async with client.stream(method, url, json=body) as response:
                async for chunk in response.aiter_raw():
                    data += chunk
                    if len(data) > most:
                        raise ReplyTooLong(f"the reply is longer than {most} bytes")
    except httpx.ConnectError as error:
        if refused := _cause(error):
            raise TLSRefused(_in_words(refused)) from error
        raise
    return response, bytes(data)


def _cause(error: BaseException | None) -> ssl.SSLError | None:
    """Return the error of TLS that led to an error of httpx, whose own text is empty."""
    while error is not None and not isinstance(error, ssl.SSLError):
        error = error.__cause__ or error.__context__
    return error


def _in_words(error: ssl.SSLError) -> str:
    """Return why TLS failed and what to do, in at most 200 characters: errors quote no more."""
    if not isinstance(error, ssl.SSLCertVerificationError):
        if error.reason in {"WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE", "PACKET_LENGTH_TOO_LONG"}:
            return "the server does not speak TLS at this address; give one that begins with http://, or another port"
        return f"TLS failed: {excerpt(error.reason or line_of(error), 80)}"
    if error.verify_code in _UNKNOWN_ISSUER:
        cure = f"if you trust who issued it, give that certificate's file in {_FILE}"
    elif error.verify_code in _WRONG_TIME:
        cure = "renew it on the server, or set the clock of this machine"
    else:
        cure = "give an address with a name that the certificate holds"
    return f"its certificate is refused ({excerpt(error.verify_message, 90)}); {cure}"


def sentence_of(data: bytes) -> str:
    """Return the error message of a reply on one printable line: the message in its JSON, or else its text."""
    text = data.decode("utf-8", "replace")
    try:
        found = "; ".join(_sentences(json.loads(text), _MAX_DEPTH))
    except (ValueError, RecursionError):
        found = ""
    return excerpt(found or text, MAX_SENTENCE)


def _sentences(value: object, depth: int) -> Iterator[str]:
    match value:
        case str(text) if text.strip():
            yield text.strip()
        case list(items) if depth:
            for item in items:
                yield from _sentences(item, depth - 1)
        case dict() if depth:
            found = (list(_sentences(value[key], depth - 1)) for key in _SENTENCE_KEYS if key in value)
            said = next(filter(None, found), [])
            # FastAPI names the field that it refuses beside the sentence.
            field = ".".join(map(str, value["loc"])) if isinstance(value.get("loc"), list) and said else ""
            yield from ([f"{field}: {said[0]}", *said[1:]] if field else said)
