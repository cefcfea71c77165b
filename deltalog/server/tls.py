"""TLS of the server: SSL contexts from PEM files, which can be replaced while connections are open."""

from __future__ import annotations

import ssl
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from deltalog.errors import CallError

_SOON_SECONDS = 14 * 24 * 3600
_STEPS = 16
_DAY_SECONDS = 24 * 3600


@dataclass(frozen=True, slots=True)
class Tls:
    """PEM files. ``client_ca``: the certificate authority that must have signed the certificates of callers."""

    certificate: Path
    key: Path
    client_ca: Path | None = None


class ServerContext(ssl.SSLContext):
    """The context of a listener. New connections use ``current``, which can be replaced; open connections keep the
    context that they have.
    """

    current: ssl.SSLContext

    def wrap_bio(self, *arguments: Any, **named: Any) -> ssl.SSLObject:
        return self.current.wrap_bio(*arguments, **named)


def listening(tls: Tls, *, needs_certificate: bool = True) -> ServerContext:
    """The context of a listener. Raises CallError."""
    context = ServerContext(ssl.PROTOCOL_TLS_SERVER)
    context.current = context_of(tls, needs_certificate=needs_certificate)
    return context


def context_of(tls: Tls, *, needs_certificate: bool = True) -> ssl.SSLContext:
    """The context of new connections. ``needs_certificate``: if there is a ``client_ca``, whether clients without a
    certificate are refused. Raises CallError if a file cannot be read, if it does not contain the expected kind of PEM,
    or if the key does not belong to the certificate."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    _load_certificate(context, tls)
    if tls.client_ca is not None:
        context.verify_mode = ssl.CERT_REQUIRED if needs_certificate else ssl.CERT_OPTIONAL
        _load_authorities(context, tls.client_ca)
    return context


def problems_of(tls: Tls) -> tuple[list[str], list[str]]:
    """What is wrong with the files, and warnings: checks whether the certificate is a server certificate, whether it is
    valid now, and when it expires. Raises CallError as ``context_of`` does.
    """
    context_of(tls)
    try:
        certificate = _own_certificate(tls)
    except ssl.SSLCertVerificationError as error:
        return [f"{tls.certificate}: the certificate is not valid: {error.verify_message}"], []
    except ssl.SSLError as error:
        return [f"{tls.certificate}: no handshake succeeds with this certificate: {error.reason}"], []
    left_seconds = ssl.cert_time_to_seconds(certificate["notAfter"]) - time.time()
    if left_seconds < _SOON_SECONDS:
        days = int(left_seconds // _DAY_SECONDS)
        return [], [f"{tls.certificate}: the certificate expires in {days} days, at {certificate['notAfter']}."]
    return [], []


def _load_certificate(context: ssl.SSLContext, tls: Tls) -> None:
    for file in (tls.certificate, tls.key):
        _check_readable(file)

    def no_password() -> str:
        raise CallError(f"{tls.key}: the key is encrypted with a password. Provide the key without encryption.")

    try:
        context.load_cert_chain(tls.certificate, tls.key, no_password)
    except ssl.SSLError as error:
        if error.reason == "KEY_VALUES_MISMATCH":
            raise CallError(f"{tls.key} is not the private key of the certificate in {tls.certificate}.") from None
        raise CallError(
            f"{tls.certificate} and {tls.key} are not a certificate and its private key in PEM ({error.reason})."
        ) from None
    except OSError as error:
        raise CallError(f"{tls.certificate} or {tls.key} cannot be read: {error.strerror}.") from None


def _load_authorities(context: ssl.SSLContext, file: Path) -> None:
    _check_readable(file)
    try:
        context.load_verify_locations(file)
    except (ssl.SSLError, OSError):
        raise CallError(f"{file} has no certificates of certificate authorities in PEM.") from None


def _check_readable(file: Path) -> None:
    try:
        with file.open("rb") as opened:
            opened.read(1)
    except OSError as error:
        raise CallError(f"{file} cannot be read: {error.strerror}.") from None


def _own_certificate(tls: Tls) -> dict[str, Any]:
    """The certificate, as seen by a client that trusts only this certificate. Raises ssl.SSLError."""
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    _load_certificate(server, tls)
    client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    client.check_hostname = False
    client.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    client.load_verify_locations(tls.certificate)
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = (client.wrap_bio(to_client, to_server), server.wrap_bio(to_server, to_client, server_side=True))
    for _ in range(_STEPS):
        for end in ends:
            try:
                end.do_handshake()
            except ssl.SSLWantReadError:
                continue
        if ends[0].version() is not None and (found := ends[0].getpeercert()):
            return found
    raise ssl.SSLError("the handshake does not finish")
