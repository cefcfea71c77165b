"""Certificates for tests of TLS: certificate authorities, and the certificates that they sign."""

from __future__ import annotations

import datetime
import ipaddress
import ssl
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

LOCAL = (x509.IPAddress(ipaddress.ip_address("127.0.0.1")), x509.DNSName("localhost"))


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
    subject: Mapping[x509.ObjectIdentifier, str] | None = None,
    alternatives: Sequence[x509.GeneralName] = LOCAL,
) -> Pair:
    """Make a certificate, signed by ``issuer`` or else by itself. ``days``: from when to when it is valid, from now on.
    ``usage``: ``client`` or ``server``; None: both. ``subject``: by default, ``name`` is its common name."""
    key = ec.generate_private_key(ec.SECP256R1())
    attributes = {x509.NameOID.COMMON_NAME: name} if subject is None else subject
    whose = x509.Name([x509.NameAttribute(each, value) for each, value in attributes.items()])
    now = datetime.datetime.now(datetime.timezone.utc)
    builder = (
        x509.CertificateBuilder()
        .subject_name(whose)
        .issuer_name(whose if issuer is None else issuer.certificate.subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now + datetime.timedelta(days=days[0]))
        .not_valid_after(now + datetime.timedelta(days=days[1]))
        .add_extension(x509.BasicConstraints(is_authority, None), True)
    )
    if alternatives:
        builder = builder.add_extension(x509.SubjectAlternativeName(alternatives), False)
    if is_authority:
        signs = x509.KeyUsage(False, False, False, False, False, True, True, False, False)
        builder = builder.add_extension(signs, True)
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


@dataclass(frozen=True)
class Authority:
    """An authority for the certificates of clients and servers, whose files are in a directory."""

    directory: Path
    pair: Pair

    @property
    def file(self) -> Path:
        return self.pair.certificate_file

    def issue(
        self,
        name: str,
        subject: Mapping[x509.ObjectIdentifier, str] | None = None,
        alternatives: Sequence[x509.GeneralName] = (),
        days: float = 1,
    ) -> tuple[Path, Path]:
        """The files of a new certificate and its key. Without ``subject``, it names nobody."""
        made = issue(self.directory, name, self.pair, days=(-1, days), subject=subject or {}, alternatives=alternatives)
        return made.certificate_file, made.key_file

    def client(self, name: str | None = None, **more: Any) -> ssl.SSLContext:
        """What a client uses; without a name it has no certificate."""
        context = ssl.create_default_context(cafile=str(self.file))
        context.verify_flags &= ~getattr(ssl, "VERIFY_X509_STRICT", 0)
        if name is not None:
            context.load_cert_chain(*self.issue(name, **more))
        return context


def authority(directory: Path) -> Authority:
    return Authority(directory, issue(directory, "ca", is_authority=True, alternatives=()))
