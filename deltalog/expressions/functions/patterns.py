"""Translates Java regular expressions to RE2, and refuses those that RE2 would match differently. Pure.

RE2 matches any pattern in time proportional to the length of the string.
"""

from __future__ import annotations

import re

import pyarrow as pa

from deltalog.expressions.functions.nodes import Node, apply_kernel, fits
from deltalog.expressions.functions.types import BOOLEAN, STRING, refuse
from deltalog.lazy_arrow import pc

_MOST_CHARS = 1000
# The line breaks that . and $ recognise in Java.
_BREAKS = r"\n\r\x{85}\x{2028}\x{2029}"
_CLASSES = {"d": "0-9", "w": "a-zA-Z0-9_", "s": r"\t\n\x{0B}\f\r "}
_COUNT = re.compile(r"\{(\d{1,3})(?:,(\d{0,3}))?\}")


def regex_like(node: Node, pattern: Node) -> Node:
    """RLIKE with a literal as the pattern. Raises CallError for a pattern that may mean something else in Java."""
    if not (fits(node, STRING) and pattern.is_literal and isinstance(pattern.value, str)):
        raise refuse("RLIKE of anything but a string and a literal pattern")
    regex = _translated(pattern.value)
    try:
        pc.match_substring_regex(pa.nulls(0, pa.string()), regex)
    except pa.ArrowInvalid:
        raise refuse(f"RLIKE with the pattern {pattern.value[:100]!r}") from None
    return apply_kernel(BOOLEAN, lambda values: pc.match_substring_regex(values, regex), node)


def _translated(pattern: str) -> str:
    """The pattern for RE2. Supports literal characters, ``.``, character sets, groups, ``|``, repetition, and ``^`` and
    ``$`` at the start and end of the pattern."""
    if len(pattern) > _MOST_CHARS:
        raise refuse(f"RLIKE with a pattern of {len(pattern)} characters")
    found: list[str] = []
    at, depth, can_repeat = 0, 0, False
    while at < len(pattern):
        char = pattern[at]
        at += 1
        if char == "\\":
            escape = pattern[at : at + 1]
            at += 1
            if escape in _CLASSES and escape:
                found.append(f"[{_CLASSES[escape]}]")
            elif escape and not escape.isalnum() and escape.isascii():
                found.append(re.escape(escape))
            else:
                raise _unknown(f"\\{escape}", pattern)
            can_repeat = True
        elif char == "[":
            at, part = _set(pattern, at)
            found.append(part)
            can_repeat = True
        elif char == ".":
            found.append(f"[^{_BREAKS}]")
            can_repeat = True
        elif char == "(":
            if pattern.startswith("?", at) and not pattern.startswith("?:", at):
                raise _unknown(f"({pattern[at : at + 2]}", pattern)
            at += 2 if pattern.startswith("?:", at) else 0
            found.append("(?:")
            depth, can_repeat = depth + 1, False
        elif char == ")":
            if depth == 0 or found[-1] in ("(?:", "|"):
                raise _unknown(")", pattern)
            found.append(")")
            depth, can_repeat = depth - 1, True
        elif char == "|":
            found.append("|")
            can_repeat = False
        elif char == "^" and depth == 0 and found[-1:] in ([], ["|"]):
            found.append(r"\A")
            can_repeat = False
        elif char == "$" and depth == 0 and pattern[at : at + 1] in ("", "|"):
            # In Java, $ also matches before a final line break.
            found.append(rf"(?:\r\n|[{_BREAKS}])?\z")
            can_repeat = False
        elif char in "*+?{":
            count = _COUNT.match(pattern, at - 1) if char == "{" else None
            if not can_repeat or (char == "{" and count is None):
                raise _unknown(char, pattern)
            found.append(char if count is None else count[0])
            at = at if count is None else count.end()
            if pattern.startswith("?", at):
                found.append("?")
                at += 1
            can_repeat = False
        elif char in "^$}]":
            raise _unknown(char, pattern)
        else:
            found.append(re.escape(char) if char.isascii() else char)
            can_repeat = True
    if depth:
        raise _unknown("(", pattern)
    return "".join(found)


def _set(pattern: str, at: int) -> tuple[int, str]:
    """Translate a character set, starting after its opening bracket; it can contain characters, ranges and classes."""
    end = at
    parts = ["["]
    if pattern.startswith("^", end):
        parts.append("^")
        end += 1
    start = end
    while pattern[end : end + 1] != "]":
        char = pattern[end : end + 1]
        if char == "\\":
            escape = pattern[end + 1 : end + 2]
            if escape in _CLASSES and escape:
                parts.append(_CLASSES[escape])
            elif escape and not escape.isalnum() and escape.isascii():
                parts.append(f"\\{escape}")
            else:
                raise _unknown(f"\\{escape}", pattern)
            end += 2
            continue
        if not char or char in "[&^~" or (char == "-" and end == start):
            raise _unknown(char or "[", pattern)
        parts.append(char)
        end += 1
    if end == start:
        raise _unknown("[]", pattern)
    return end + 1, "".join([*parts, "]"])


def _unknown(what: str, pattern: str) -> Exception:
    return refuse(f"RLIKE with {what} in the pattern {pattern[:100]!r}")
