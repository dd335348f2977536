"""Certificates that sign themselves, for TLS servers on loopback: valid, out of date, or of another host."""

import ssl
from datetime import UTC, datetime, timedelta

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

HASHED = "6aff7f5b.0"
"""The name of each of these certificates in a folder for OpenSSL: `openssl x509 -subject_hash`."""
_SUBJECT = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "sapo-node test")])


def write_certificate(folder, *, host="localhost", days=(-1, 1)):
    """Write a certificate that is valid from one day to another, and return its file and a context for a server."""
    key = ec.generate_private_key(ec.SECP256R1())
    first, last = (datetime.now(UTC) + timedelta(each) for each in days)
    made = (
        x509.CertificateBuilder()
        .subject_name(_SUBJECT)
        .issuer_name(_SUBJECT)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(first)
        .not_valid_after(last)
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(host)]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, SHA256())
    )
    file = folder / "certificate.pem"
    file.write_bytes(made.public_bytes(Encoding.PEM))
    private = folder / "private.pem"
    private.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(file, private)
    return file, context
