"""Certificates for the tests: an authority, and certificates of servers and clients."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

_VALID = timedelta(days=2)


@dataclass(frozen=True, slots=True)
class Certificate:
    """A certificate and its key, as files in PEM.

    Attributes:
        certificate: What is shown to others.
        key: Not encrypted, in PKCS#8.
        both: The two in one file, as Java reads them.
    """

    certificate: Path
    key: Path
    both: Path


class Authority:
    """An authority that only those trust who are given its file.

    Args:
        folder: Where the files are put.
        name: Of the authority, and of its files.

    Attributes:
        file: Its certificate.
    """

    def __init__(self, folder: Path, name: str = "authority") -> None:
        self._folder = folder
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
        builder = _unsigned(self._name, self._name, self._key).add_extension(
            x509.BasicConstraints(ca=True, path_length=0), critical=True
        )
        self.file = folder / f"{name}.pem"
        signed = builder.sign(self._key, hashes.SHA256())
        self.file.write_bytes(signed.public_bytes(serialization.Encoding.PEM))

    def sign(self, name: str, *, address: str | None = "127.0.0.1") -> Certificate:
        """Make a certificate for a server at *address*, or for a client."""
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
        builder = _unsigned(subject, self._name, key)
        if address is not None:
            names = [x509.IPAddress(ipaddress.ip_address(address))]
            builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
        signed = builder.sign(self._key, hashes.SHA256())
        shown = signed.public_bytes(serialization.Encoding.PEM)
        hidden = key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
        made = Certificate(*(self._folder / f"{name}.{end}" for end in ("crt", "key", "pem")))
        made.certificate.write_bytes(shown)
        made.key.write_bytes(hidden)
        made.both.write_bytes(hidden + shown)
        return made


def _unsigned(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey
) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    return x509.CertificateBuilder(
        issuer_name=issuer,
        subject_name=subject,
        public_key=key.public_key(),
        serial_number=x509.random_serial_number(),
        not_valid_before=now - _VALID,
        not_valid_after=now + _VALID,
    )
