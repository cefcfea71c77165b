"""Makes, lists and revokes tokens and access keys, which are documents of a catalog.

The catalog stores no secrets. It stores the hash of each token, and a salt for each access key; the secret of an access
key is derived from the salt and the server's key.
"""

from __future__ import annotations

import datetime
import re
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field

import msgspec

from deltalog.catalog.coordinator import Coordinator
from deltalog.catalog.records import Document, DocumentChange
from deltalog.errors import CallError, ConcurrentModificationError, CorruptTableError, EntityNotFoundError
from deltalog.server.access import token_text
from deltalog.server.access.principals import NAME_LENGTH, Principal, Scope, is_name, is_principal_name

CREDENTIAL, AUTHENTICATION, REQUIRED = "credential", "authentication", "required"
MIN_KEY_LENGTH = 32
_MOST_GROUPS, _LABEL_LENGTH = 100, 255
_PAGE = 1000
_DURATION = re.compile(r"([0-9]{1,6})(s|m|h|d)")
_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days"}


class Credential(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A token or an access key. Its id is the key of its document in the catalog. A token has a ``digest``, an access
    key has a ``salt``. ``label``: what it is for.
    """

    principal: str
    groups: tuple[str, ...] = ()
    scope: str
    is_admin: bool = False
    label: str = ""
    digest: str | None = None
    salt: str | None = None
    created_ms: int
    expires_ms: int | None = None

    def is_expired(self, now_ms: int) -> bool:
        return self.expires_ms is not None and now_ms >= self.expires_ms

    def identity(self, id_: str) -> Principal:
        kind = "token" if self.salt is None else "access key"
        return Principal(
            self.principal, frozenset(self.groups), Scope[self.scope], self.is_admin, credential=f"{kind} {id_}"
        )


@dataclass(frozen=True, slots=True)
class Issued:
    """A credential that was just made, or that is listed. ``secret``: the token, or the secret access key; None if it
    is listed.
    """

    id: str
    credential: Credential
    secret: str | None = field(default=None, repr=False)


def issue(
    coordinator: Coordinator,
    principal: str,
    *,
    groups: Sequence[str] = (),
    scope: Scope = Scope.WRITE,
    is_admin: bool = False,
    label: str = "",
    expires: datetime.timedelta | None = None,
    server_key: bytes | None = None,
    clock_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
) -> Issued:
    """Make a token, or with ``server_key`` an access key. From then on, servers of the catalog refuse callers who do
    not authenticate, even after all tokens have been revoked.

    Raises CallError. Cost: two calls of the coordinator."""
    if not is_principal_name(principal) or not all(map(is_name, groups)):
        raise CallError(
            f"The name of a principal or a group must have 1 to {NAME_LENGTH} printable characters, without "
            "spaces at its ends; the name of a principal must not begin with group:."
        )
    if len(groups) > _MOST_GROUPS:
        raise CallError(f"A principal may have at most {_MOST_GROUPS} groups, not {len(groups)}.")
    if len(label) > _LABEL_LENGTH or not label.isprintable():
        raise CallError(f"A label has at most {_LABEL_LENGTH} printable characters.")
    if expires is not None and expires <= datetime.timedelta():
        raise CallError("A token must expire in the future.")
    now_ms = clock_ms()
    expires_ms = None if expires is None else now_ms + int(expires.total_seconds() * 1000)
    digest = salt = None
    if server_key is None:
        token = token_text.new_token()
        id_, secret, digest = token.id, token.text, token_text.digest_of(token.text)
    else:
        id_, salt = token_text.new_access_key_id(), token_text.new_salt()
        secret = token_text.secret_access_key(server_key, id_, salt)
    made = Credential(
        principal=principal, groups=tuple(sorted(set(groups))), scope=scope.name, is_admin=is_admin, label=label,
        digest=digest, salt=salt, created_ms=now_ms, expires_ms=expires_ms,
    )  # fmt: skip
    changes = [DocumentChange(CREDENTIAL, id_, 0, msgspec.json.encode(made).decode())]
    if not are_required(coordinator):
        changes.append(DocumentChange(AUTHENTICATION, REQUIRED, 0, "{}"))
    # The first attempt fails if another process makes the first token at the same moment.
    if not (coordinator.change_documents(changes) or coordinator.change_documents(changes[:1])):
        raise ConcurrentModificationError("The token was not made, because another token has the same id. Try again.")
    return Issued(id_, made, secret)


def are_required(coordinator: Coordinator) -> bool:
    """Whether callers must authenticate: the catalog has, or once had, tokens. Cost: one call of the coordinator."""
    return coordinator.document(AUTHENTICATION, REQUIRED) is not None


def find(coordinator: Coordinator, id_: str) -> Credential | None:
    """The token or access key with this id; it may be expired. Cost: one call of the coordinator."""
    document = coordinator.document(CREDENTIAL, id_)
    return None if document is None else _decoded(document)


def issued(coordinator: Coordinator) -> Iterator[Issued]:
    """All tokens and access keys, ordered by id. Cost: one call of the coordinator per 1000."""
    after = ""
    while page := coordinator.documents(CREDENTIAL, after, _PAGE):
        yield from (Issued(each.key, _decoded(each)) for each in page)
        after = page[-1].key


def revoke(
    coordinator: Coordinator, ids: Collection[str] = (), *, principal: str | None = None, expired_ms: int | None = None
) -> list[Issued]:
    """Revoke the tokens and access keys with these ids, all those of ``principal``, and all those that have expired at
    ``expired_ms``. Servers refuse them within ``TokenSettings.cache_seconds``.

    Raises EntityNotFoundError if one of the ids is unknown; the others are revoked nevertheless. Cost: two calls of the
    coordinator per token, and a listing for ``principal`` or ``expired_ms``."""
    wanted = dict.fromkeys(ids)
    if principal is not None or expired_ms is not None:
        for each in issued(coordinator):
            is_over = expired_ms is not None and each.credential.is_expired(expired_ms)
            if is_over or (principal is not None and each.credential.principal == principal):
                wanted[each.id] = None
    done, missing = [], []
    for id_ in wanted:
        found = _delete(coordinator, id_)
        if found is not None:
            done.append(found)
        elif id_ in ids:
            missing.append(id_)
    if missing:
        shown = ", ".join(each if _is_id(each) else "(no id)" for each in missing)
        raise EntityNotFoundError(
            f"The catalog {coordinator.url} has no token {shown}. 'deltalog tokens list' shows the ids of its tokens."
        )
    return done


def _delete(coordinator: Coordinator, id_: str) -> Issued | None:
    if not _is_id(id_):
        return None
    while (document := coordinator.document(CREDENTIAL, id_)) is not None:
        if coordinator.change_documents([DocumentChange(CREDENTIAL, id_, document.revision, None)]):
            return Issued(id_, _decoded(document))
    return None


def _is_id(text: str) -> bool:
    return token_text.is_token_id(text) or token_text.is_access_key_id(text)


def duration_of(text: str) -> datetime.timedelta:
    """A duration such as ``90d``, ``12h``, ``30m`` or ``45s``. Raises CallError."""
    found = _DURATION.fullmatch(text)
    if found is None:
        raise CallError(f"{text!r} is not a duration: write a number and d, h, m or s, such as 90d.")
    return datetime.timedelta(**{_UNITS[found[2]]: int(found[1])})


def check_server_key(text: str) -> bytes:
    """The bytes of the server's key, from which the secrets of access keys are derived. Raises CallError if the key is
    too short or has other characters than printable ASCII.
    """
    if len(text) < MIN_KEY_LENGTH or not text.isascii() or not text.isprintable():
        raise CallError(
            f"The key for AWS signatures must have at least {MIN_KEY_LENGTH} printable ASCII characters. "
            "Create one with 'openssl rand -hex 32'."
        )
    return text.encode()


def _decoded(document: Document) -> Credential:
    try:
        found = msgspec.json.decode(document.content, type=Credential)
    except msgspec.MsgspecError:
        found = None
    if found is None or found.scope not in Scope.__members__ or (found.digest is None) == (found.salt is None):
        raise CorruptTableError(f"The catalog's document of the token {document.key} cannot be read.")
    return found


# msgspec builds the decoder of a class at its first use. If threads do so at the same moment, the process can crash.
msgspec.json.Decoder(Credential)
