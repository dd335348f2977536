"""Parts of the cases of kind `envelope`."""

from collections.abc import Mapping

from cases import ACCEPT, Case
from wire import ALICE, EXAMPLE, ROLLOUT_DOMAIN, Key, bstr, envelope, protected_header, sha256, sig_structure

PAYLOAD = b"\x00"
KEY = bstr(ALICE.public)
PROTECTED = protected_header(ALICE.public)
ALG, KID = bytes.fromhex("01 32"), b"\x04" + KEY
NETWORK = EXAMPLE.network_id


def assembled(
    header: bytes = PROTECTED, content: bytes = PAYLOAD, *, signed: bytes | None = None, **parts: bytes
) -> bytes:
    """An envelope of ALICE. The signature covers its content, or `signed`; `parts` replaces encoded parts."""
    signature = ALICE.sign(signed or sig_structure(header, content, network_id=NETWORK))
    whole = {
        "start": bytes.fromhex("d2 84"),
        "protected": bstr(header),
        "unprotected": b"\xa0",
        "payload": bstr(content),
        "signature": bstr(signature),
        "end": b"",
    }
    return b"".join((whole | parts).values())


def _input(data: bytes, network_id: bytes = NETWORK, domain: str = ROLLOUT_DOMAIN) -> Mapping[str, object]:
    return {"network_id": network_id, "domain": domain, "bytes": data}


def passes(
    name: str,
    rule: str,
    payload: bytes,
    *,
    key: Key = ALICE,
    network_id: bytes = NETWORK,
    domain: str = ROLLOUT_DOMAIN,
    note: str = "",
    data: bytes | None = None,
) -> Case:
    data = data or envelope(payload, key, network_id=network_id, domain=domain)
    signed = sig_structure(protected_header(key.public), payload, network_id=network_id, domain=domain)
    output = {"issuer": key.public, "envelope_id": sha256(signed), "payload": payload}
    return Case(name, rule, "envelope", _input(data, network_id, domain), ACCEPT, output, note, grammar=True)


def fails(
    name: str, rule: str, data: bytes, *, layer: str = "envelope", grammar: bool | None = False, note: str = ""
) -> Case:
    return Case(name, rule, "envelope", _input(data), layer, note=note, grammar=grammar)
