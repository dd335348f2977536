"""Ed25519 signatures (SIG-1 to SIG-4): accepts exactly libsodium's strict set.

Libraries disagree on small-order keys, mixed-order points and non-canonical encodings; OpenSSL, for example, accepts
the identity as a public key. All code therefore uses this one verifier. It refuses S >= L, and small-order and
non-canonical A and R. It checks the equation without the cofactor.
"""

from nacl.exceptions import CryptoError
from nacl.signing import VerifyKey

PUBLIC_KEY_BYTES = 32
SIGNATURE_BYTES = 64


def verify_signature(public_key: bytes, message: bytes, signature: bytes) -> bool:
    """Return whether `signature` (64 bytes) of `message` under `public_key` (32 bytes) is accepted. Never raises."""
    if len(public_key) != PUBLIC_KEY_BYTES or len(signature) != SIGNATURE_BYTES:
        return False
    try:
        VerifyKey(public_key).verify(message, signature)
    except CryptoError:
        return False
    return True
