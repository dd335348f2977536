"""Checks the address of a server that the operator gives, and the key that goes with its requests."""

from ipaddress import ip_address
from urllib.parse import urlsplit

import httpx

from sapo_protocol import LocalError
from sapo_protocol.printable import excerpt

KEY_VARIABLE = "SAPO_NODE_API_KEY"


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
