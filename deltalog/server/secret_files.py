"""Secrets in files, which an operator names in the configuration. No message has a secret."""

from __future__ import annotations

from pathlib import Path

from deltalog.errors import CallError

MIN_TOKEN_LENGTH = 16
_MOST_BYTES = 64 << 10


def secret_in(file: Path) -> str:
    """The secret in a file, without blanks around it. Raises CallError."""
    try:
        with file.open("rb") as opened:
            return opened.read(_MOST_BYTES).decode().strip()
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "it is not UTF-8 text"
        raise CallError(f"{file} cannot be read: {reason}.") from None


def check_secret(secret: str, least: int, what: str) -> None:
    """Raises CallError unless a secret can be sent in a header and has a length. ``what``: names it in the message."""
    if len(secret) < least or not secret.isascii() or not secret.isprintable():
        raise CallError(
            f"{what} must have at least {least} printable ASCII characters. Create one with openssl rand -hex 32."
        )
