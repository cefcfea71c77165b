"""The id of a request, which the caller may choose. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable

MOST_CHARACTERS = 128
_ID = re.compile(rb"[A-Za-z0-9][A-Za-z0-9._:@/+=-]{0,127}")
_SECRETS = (b"authorization", b"x-amz-security-token", b"cookie")


def given_id(headers: Iterable[tuple[bytes, bytes]]) -> str | None:
    """The id in the header ``x-request-id``. None if the request has no such header or several, or if the id has other
    characters than letters, digits and ``._:@/+=-``, is longer than 128 characters, or is part of a credential.
    """
    found, secrets = [], []
    for name, value in headers:
        lowered = name.lower()
        if lowered == b"x-request-id":
            found.append(value)
        elif lowered in _SECRETS:
            secrets.append(value)
    if len(found) != 1 or not _ID.fullmatch(found[0]):
        return None
    (given,) = found
    # A short id may occur in a credential by chance, and reveals too little of it to matter.
    return None if len(given) >= 8 and any(given in secret for secret in secrets) else given.decode("ascii")
