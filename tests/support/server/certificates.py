"""Certificates for tests of TLS: certificate authorities, and the certificates that they sign."""

from __future__ import annotations

import datetime
import ipaddress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec


@dataclass(frozen=True)
class Pair:
    """A certificate and its key, as PEM files and as objects."""

    certificate_file: Path
    key_file: Path
    certificate: Any
    key: Any

    def install(self, certificate_file: Path, key_file: Path) -> None:
        """Write both to files, one after the other."""
        certificate_file.write_bytes(self.certificate_file.read_bytes())
        key_file.write_bytes(self.key_file.read_bytes())


def issue(
    directory: Path,
    name: str,
    issuer: Pair | None = None,
    *,
    days: tuple[float, float] = (-1, 30),
    is_authority: bool = False,
    usage: str | None = None,
) -> Pair:
    """Make a certificate for 127.0.0.1, signed by ``issuer`` or else by itself. ``days``: the beginning and the end of
    its validity, in days from now. ``usage``: ``client`` or ``server``; None: both.
    """
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
    now = datetime.datetime.now(datetime.timezone.utc)
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject if issuer is None else issuer.certificate.subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now + datetime.timedelta(days=days[0]))
        .not_valid_after(now + datetime.timedelta(days=days[1]))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), False)
        .add_extension(x509.BasicConstraints(is_authority, None), True)
    )
    if usage is not None:
        purpose = {
            "client": x509.ExtendedKeyUsageOID.CLIENT_AUTH,
            "server": x509.ExtendedKeyUsageOID.SERVER_AUTH,
        }[usage]
        builder = builder.add_extension(x509.ExtendedKeyUsage([purpose]), False)
    certificate = builder.sign(key if issuer is None else issuer.key, hashes.SHA256())
    files = directory / f"{name}.pem", directory / f"{name}.key"
    files[0].write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    private = serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    files[1].write_bytes(key.private_bytes(serialization.Encoding.PEM, *private))
    files[1].chmod(0o600)
    return Pair(*files, certificate, key)
