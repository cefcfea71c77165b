"""The text of tokens and access keys: how they are made, recognised and hashed.

A token is ``dlog_<id>_<secret><checksum>``: an id of 12 characters by which the catalog finds it, 256 random bits, and
a CRC-32. Scanners for leaked secrets recognise it by ``dlog_[0-9A-Za-z]{12}_[0-9A-Za-z]{49}``, and can check it offline
by the checksum.

The catalog stores the SHA-256 of a token. A slow hash would not be safer: it protects passwords, which can be guessed,
but 256 random bits cannot be guessed at any speed. It would slow down every call, and callers could load the server
with wrong tokens.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import secrets
import zlib
from dataclasses import dataclass, field

_PREFIX = "dlog_"
_ID, _SECRET, _CHECKSUM = 12, 43, 6  # 62 ** 43 > 2 ** 256, and 62 ** 6 > 2 ** 32
_LENGTH = len(_PREFIX) + _ID + 1 + _SECRET + _CHECKSUM
_DIGITS = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
_KEY_PREFIX = "DLAK"
_KEY_LENGTH = 20
_BASE32 = "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567"
_PURPOSE = b"deltalog aws secret access key\0"


@dataclass(frozen=True, slots=True)
class Token:
    """A new token. ``text``: the token itself, which is shown once."""

    id: str
    text: str = field(repr=False)


def new_token() -> Token:
    id_ = "".join(secrets.choice(_DIGITS) for _ in range(_ID))
    secret = _base62(secrets.randbits(256), _SECRET)
    text = f"{_PREFIX}{id_}_{secret}"
    return Token(id_, text + _checksum(text))


def looks_like_token(text: str) -> bool:
    """Whether a text has the prefix of the catalog's tokens."""
    return text.startswith(_PREFIX)


def id_of(text: str) -> str | None:
    """The id in a token; None if the text does not have the form of a token, or its checksum is wrong."""
    if len(text) != _LENGTH or not text.startswith(_PREFIX) or text[len(_PREFIX) + _ID] != "_":
        return None
    id_, secret = text[len(_PREFIX) : len(_PREFIX) + _ID], text[len(_PREFIX) + _ID + 1 :]
    if not (is_token_id(id_) and set(secret) <= set(_DIGITS)):
        return None
    return id_ if text[-_CHECKSUM:] == _checksum(text[:-_CHECKSUM]) else None


def digest_of(text: str) -> str:
    """The hash that the catalog stores for a token."""
    return hashlib.sha256(text.encode()).hexdigest()


def is_token_id(text: str) -> bool:
    return len(text) == _ID and set(text) <= set(_DIGITS)


def new_access_key_id() -> str:
    return _KEY_PREFIX + "".join(secrets.choice(_BASE32) for _ in range(_KEY_LENGTH - len(_KEY_PREFIX)))


def is_access_key_id(text: str) -> bool:
    return len(text) == _KEY_LENGTH and text.startswith(_KEY_PREFIX) and set(text) <= set(_BASE32)


def new_salt() -> str:
    return secrets.token_hex(16)


def secret_access_key(server_key: bytes, access_key_id: str, salt: str) -> str:
    """The secret of an access key: 256 bits that can be computed only with the server's key."""
    message = _PURPOSE + f"{access_key_id}\0{salt}".encode()
    made = hmac.new(server_key, message, hashlib.sha256).digest()
    return base64.b64encode(made).decode().rstrip("=")


def _checksum(text: str) -> str:
    return _base62(zlib.crc32(text.encode()), _CHECKSUM)


def _base62(number: int, digits: int) -> str:
    found = ""
    for _ in range(digits):
        number, digit = divmod(number, 62)
        found = _DIGITS[digit] + found
    return found
