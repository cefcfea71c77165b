"""Formats the lines of the audit log and of the access log.

A line is ASCII: all other characters are escaped, so that text from a caller cannot start a new line or control a
terminal.
"""

from __future__ import annotations

import datetime
import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from deltalog.metrics import Upkeep
from deltalog.server.exchange import Exchange

SERVER = "server"
# Errors that mean that the effect of a call is unknown.
UNKNOWN_ERRORS = frozenset({"CommitStateUnknownException", "OperationTimeoutException"})
_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
FEWEST_LINE_BYTES = 2048
# The limits to which texts are shortened, in bytes: the first one that makes the line short enough is used. A shortened
# # text ends with its original length.
_LONGEST_TEXTS = (512, 256, 128, 64, 40)
_MOST_MEMBERS = 32
_PART_BYTES = 32
_UNSAFE = re.compile(r"[^ !#-\[\]-~]")


def outcome_of(exchange: Exchange) -> str:
    """``allowed``: the call took effect. ``denied``: the caller is not permitted to make it. ``failed``: it had no
    effect. ``unknown``: it may have taken effect.
    """
    if exchange.status in (401, 403) or exchange.is_hidden:
        return "denied"
    if 200 <= exchange.status < 400:
        return "allowed"
    if exchange.in_doubt or (exchange.error in UNKNOWN_ERRORS and not only_reads(exchange)):
        return "unknown"
    return "allowed" if exchange.versions else "failed"


def only_reads(exchange: Exchange) -> bool:
    """Whether a call can change nothing."""
    name = exchange.route or ""
    return exchange.method in ("GET", "HEAD") or name.startswith(("Get", "List", "Describe"))


def of_exchange(exchange: Exchange, now_ms: int, server: str, event: str = "call") -> dict[str, Any]:
    """The record of a request."""
    outcome = outcome_of(exchange)
    principal, credential = _caller(exchange)
    known = exchange.tables
    found: dict[str, Any] = {
        "time": timestamp(now_ms),
        "event": event,
        "server": server,
        "request_id": exchange.request_id,
        "principal": principal,
        "credential": credential,
        "address": exchange.caller,
        "method": exchange.method,
        "path": exchange.path,
        "call": exchange.route,
        "table": exchange.table or None,
        "table_id": next((id_ for id_, name in known.items() if name == exchange.table), None),
        "transaction": exchange.transaction_id,
        "outcome": outcome,
        "status": exchange.status,
        "error": exchange.error,
        "duration_ms": round(exchange.seconds * 1000, 3),
    }
    if exchange.rejected is not None:
        found["reason"] = exchange.rejected.reason
    if exchange.names:
        found["names"] = dict(exchange.names)
    for member, versions in (("versions", exchange.versions), ("in_doubt", exchange.in_doubt)):
        if versions:
            found[member] = [_version(exchange, id_, version) for id_, version in sorted(versions.items())]
    return found


def _caller(exchange: Exchange) -> tuple[str | None, str | None]:
    """The name of the principal and the credential, also of a request that was refused because of its credential."""
    if exchange.principal is not None:
        return exchange.principal.name, exchange.principal.credential
    rejected = exchange.rejected
    return (None, None) if rejected is None else (rejected.principal, rejected.credential)


def _version(exchange: Exchange, table_id: str, version: int) -> dict[str, Any]:
    found: dict[str, Any] = {"table": exchange.tables.get(table_id), "table_id": table_id, "version": version}
    if exchange.commits.get(table_id, 1) > 1:
        found["commits"] = exchange.commits[table_id]
    return found


def of_upkeep(event: Upkeep, now_ms: int, server: str, exchange: Exchange | None) -> dict[str, Any]:
    """The record of work that the server did of its own accord, or as a consequence of a request."""
    principal = None if exchange is None or exchange.principal is None else exchange.principal
    return {
        "time": timestamp(now_ms),
        "event": event.kind,
        "server": server,
        "request_id": None if exchange is None else exchange.request_id,
        "principal": SERVER if principal is None else principal.name,
        "object": event.subject,
        "done": dict(event.done),
        "outcome": "allowed" if event.error is None else "failed",
        "error": event.error,
        "duration_ms": round(event.seconds * 1000, 3),
    }


def of_event(event: str, now_ms: int, server: str, principal: str | None = SERVER) -> dict[str, Any]:
    """The record of anything else; its caller adds members."""
    return {"time": timestamp(now_ms), "event": event, "server": server, "principal": principal}


def lines(record: Mapping[str, Any], most_bytes: int) -> list[bytes]:
    """A record as lines of at most ``most_bytes``, each a JSON object. Long texts are shortened. Lists that do not fit
    are continued in further lines, so that no item is lost; these repeat the other members and have a number
    ``"part"``.
    """
    for longest in _LONGEST_TEXTS:
        shortened = _shortened(record, longest)
        whole = _encoded(shortened)
        if len(whole) <= most_bytes:
            return [whole]
        lists = {name: value for name, value in shortened.items() if isinstance(value, list)}
        rest = {name: value for name, value in shortened.items() if name not in lists}
        widest = max((len(_encoded(item)) for items in lists.values() for item in items), default=0)
        # The items get at least half of a line.
        if lists and len(_encoded(rest)) + max(widest, most_bytes // 2) + _PART_BYTES <= most_bytes:
            return _parts(rest, lists, most_bytes)
    rest.pop("names", None)
    return _parts(rest, lists, most_bytes)


def _parts(rest: Mapping[str, Any], lists: Mapping[str, Sequence[Any]], most_bytes: int) -> list[bytes]:
    found = list[bytes]()

    def add(name: str, some: Sequence[Any]) -> None:
        found.append(_encoded({**rest, "part": len(found) + 1, name: some}))

    for name, items in lists.items():
        some, room = list[Any](), most_bytes - len(_encoded(rest)) - len(name) - _PART_BYTES
        left = room
        for item in items:
            size = len(_encoded(item)) + 1
            if some and size > left:
                add(name, some)
                some, left = [], room
            some.append(item)
            left -= size
        add(name, some)
    return found or [_encoded(rest)]


def _shortened(value: Any, longest: int) -> Any:
    """A value whose texts take at most ``longest`` bytes."""
    if isinstance(value, str):
        return _cut(value, longest)
    if isinstance(value, Mapping):
        return {_cut(str(name), 64): _shortened(each, longest) for name, each in list(value.items())[:_MOST_MEMBERS]}
    if isinstance(value, Sequence):
        return [_shortened(each, longest) for each in value]
    return value


def _cut(text: str, longest: int) -> str:
    kept = text[:longest]
    while (size := len(json.dumps(kept))) > longest + 2:
        kept = kept[: len(kept) * longest // size]
    return text if kept == text else f"{kept}...{len(text)}"


def _encoded(record: Any) -> bytes:
    return json.dumps(record, ensure_ascii=True, separators=(",", ":")).encode("ascii") + b"\n"


def access_line(exchange: Exchange, most_bytes: int = 8192) -> bytes:
    """A line in the common log format, followed by the duration in seconds and the id of the request."""
    when = _utc(exchange.started_ms)
    date = f"{when.day:02}/{_MONTHS[when.month - 1]}/{when:%Y:%H:%M:%S} +0000"
    principal = "-" if exchange.principal is None else _token(exchange.principal.name)
    request = _escaped(f"{exchange.method} {exchange.path}"[: most_bytes // 8])
    return (
        f'{_token(exchange.caller or "-")} - {principal} [{date}] "{request} HTTP/1.1" {exchange.status} '
        f"{exchange.response_bytes} {exchange.seconds:.6f} {exchange.request_id}\n"
    ).encode("ascii")


def timestamp(ms: int) -> str:
    """``2026-11-27T10:00:00.250Z``."""
    return f"{_utc(ms):%Y-%m-%dT%H:%M:%S}.{ms % 1000:03}Z"


def _utc(ms: int) -> datetime.datetime:
    return datetime.datetime.fromtimestamp(ms // 1000, datetime.timezone.utc)


def _escaped(text: str) -> str:
    def escape(found: re.Match[str]) -> str:
        code = ord(found[0])
        return f"\\x{code:02x}" if code < 256 else f"\\u{code:04x}"

    return _UNSAFE.sub(escape, text)


def _token(text: str) -> str:
    """A text without spaces, for a field that is delimited by spaces."""
    return _escaped(text[:256]).replace(" ", "\\x20") or "-"
