"""Damages bytes, and the structure of JSON. All choices come from the ``Random`` argument."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable
from random import Random
from typing import Any

# ---------------------------------------------------------------------------------------------------- bytes


def damage_bytes(data: bytes, random: Random, start: int = 0, end: int | None = None) -> bytes:
    """Apply one to four random mutations to ``data[start:end]``."""
    end = len(data) if end is None else end
    middle = data[start:end]
    for _ in range(random.choice((1, 1, 1, 2, 4))):
        middle = random.choice(_BYTE_MUTATIONS)(middle, random)
    return data[:start] + middle + data[end:]


def _span(data: bytes, random: Random) -> tuple[int, int]:
    start = random.randrange(len(data) + 1)
    return start, min(len(data), start + random.choice((1, 2, 4, 8, 16, 64, 256, 4096)))


def _flip(data: bytes, random: Random) -> bytes:
    out = bytearray(data)
    for _ in range(random.choice((1, 1, 2, 8))):
        if out:
            out[random.randrange(len(out))] ^= 1 << random.randrange(8)
    return bytes(out)


def _overwrite(data: bytes, random: Random) -> bytes:
    start, end = _span(data, random)
    fill = random.choice((b"\0", b"\xff", b"\x80", b" ", b'"', b"{", b"[", b"\n"))
    return data[:start] + fill * (end - start) + data[end:]


def _noise(data: bytes, random: Random) -> bytes:
    start, end = _span(data, random)
    return data[:start] + random.randbytes(end - start) + data[end:]


def _number(data: bytes, random: Random) -> bytes:
    """A wrong value for a length, count or offset."""
    code = random.choice(("<i", ">i", "<q", ">q", "<H", ">I"))
    size = struct.calcsize(code)
    value = random.choice((0, 1, -1, 127, 128, 255, 65535, 2**31 - 1, -(2**31), 2**63 - 1, -(2**63), len(data)))
    packed = struct.pack(code.lower().replace("h", "q").replace("i", "q"), value)
    start = random.randrange(len(data) + 1)
    return data[:start] + packed[:size] + data[start + size :]


def _truncate(data: bytes, random: Random) -> bytes:
    return data[: random.randrange(len(data) + 1)]


def _cut(data: bytes, random: Random) -> bytes:
    start, end = _span(data, random)
    return data[:start] + data[end:]


def _double(data: bytes, random: Random) -> bytes:
    start, end = _span(data, random)
    return data[:end] + data[start:end] * random.choice((1, 1, 2, 50)) + data[end:]


def _splice(data: bytes, random: Random) -> bytes:
    (a, b), c = _span(data, random), random.randrange(len(data) + 1)
    return data[:c] + data[a:b] + data[c:]


def _swap(data: bytes, random: Random) -> bytes:
    a, b, c = sorted(random.randrange(len(data) + 1) for _ in range(3))
    return data[:a] + data[b:c] + data[a:b] + data[c:]


_BYTE_MUTATIONS: tuple[Callable[[bytes, Random], bytes], ...] = (
    _flip, _flip, _flip, _overwrite, _noise, _number, _number, _truncate, _cut, _double, _splice, _swap
)  # fmt: skip


# ----------------------------------------------------------------------------------------------------- JSON


class Raw(str):
    """Text that is inserted into the JSON unchanged."""


class Pairs(list[tuple[str, Any]]):
    """A JSON object that may have duplicate keys."""


def dump(value: Any) -> str:
    """The JSON text of a tree that may contain Raw and Pairs."""
    if isinstance(value, Raw):
        return str(value)
    if isinstance(value, dict):
        value = Pairs(value.items())
    if isinstance(value, Pairs):
        return "{" + ",".join(f"{json.dumps(key)}:{dump(item)}" for key, item in value) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(dump, value)) + "]"
    return json.dumps(value, default=str)


def _deep(opening: str, closing: str, core: str = "1") -> Callable[[Random], Raw]:
    def make(random: Random) -> Raw:
        depth = random.choice((100, 130, 900, 1100, 20_000, 100_000))
        return Raw(opening * depth + core + closing * depth)

    return make


def _many_keys(random: Random) -> Raw:
    count = random.choice((1000, 100_000))
    return Raw("{" + ",".join(f'"k{i}":{i % 7}' for i in range(count)) + "}")


_ODD: tuple[Any, ...] = (
    None, True, False, "", " ", "null", "true", "0", "-1", 0, -1, 1, 3, 7, 1.0, 1.5, [], {}, [None], {"": None}, [[]],
    {"a": 1}, {"a": "b"}, [1, "a"], 2**31 - 1, 2**31, -(2**31), 2**53, 2**63 - 1, 2**63, -(2**63), -(2**63) - 1,
    2**64,
    10**30, Raw("1" * 5000), Raw("-0"), Raw("-0.0"), Raw("1e2"), Raw("1e400"), Raw("-1e400"), Raw("1E+19"),
    Raw("0x10"),
    Raw("01"), Raw("+1"), Raw("1."), Raw(".5"), Raw("1_0"), Raw("NaN"), Raw("Infinity"), Raw("-Infinity"), Raw("nan"),
    Raw("undefined"), Raw("'x'"), Raw('"\\ud800"'), Raw('"\\udc00\\ud800"'), Raw('"\\u0000"'), Raw('"\\x41"'),
    Raw('"a'), Raw('"\x01"'), Raw("[1,]"), Raw('{"a":1,}'), Raw('{"a"}'), Raw("/*c*/1"), Raw(""), "NaN",
    "Infinity", "-Infinity",
    "../../etc/passwd", "%2e%2e/x", "/etc/passwd", "file:///etc/passwd", "http://127.0.0.1:1/x", "s3://b/k", "a\\b",
    "a\u0000b", "a\r\nb", "%", "%zz", "%ff", "\u202e", "\U0001f600", "ſ", "İ", "9999-12-31", "10000-01-01",
    "0000-00-00", "-0001-01-01", "2026-02-30", "2026-01-01T00:00:00.000Z", "2026-01-01T25:00:00Z",
    "2026-01-01T00:00:00.9999999Z", "2026-01-01T00:00:00+23:59", "0001-01-01T00:00:00+14:00",
    "9999-12-31T23:59:59.999Z", "1_0", "٣", "1e999", "9" * 5000, "9" * 400, "9" * 40, "1e-400", "0x1", " 5 ",
    "x" * 100_000, "delta.x", "struct",
    "decimal(99,99)", "decimal(0,0)", "decimal(5,9)", f"decimal({'9' * 5000},1)", "array", "map", "void", "interval",
)  # fmt: skip
_GROWN: tuple[Callable[[Random], Any], ...] = (
    _deep("[", "]"),
    _deep('{"a":', "}"),
    _deep('{"type":"array","containsNull":true,"elementType":', "}", '"long"'),
    _deep("[{", "}]", ""),
    _many_keys,
)


def odd_value(random: Random) -> Any:
    """A value that is rarely valid."""
    if random.random() < 0.03:
        return random.choice(_GROWN)(random)
    return random.choice(_ODD)


def mutate_tree(value: Any, random: Random) -> Any:
    """A copy of the tree with one change, which may be inside a string that contains JSON."""
    places = _places(value)
    if not places:
        return odd_value(random)
    container, key = random.choice(places)
    container = _copy_on_path(value, container)
    _mutate_place(container[1], key, random)
    return container[0]


def _places(value: Any) -> list[tuple[Any, Any]]:
    found: list[tuple[Any, Any]] = []
    todo = [value]
    while todo:
        node = todo.pop()
        if isinstance(node, dict):
            found += [(node, key) for key in node]
            todo += node.values()
        elif isinstance(node, list):
            found += [(node, index) for index in range(len(node))]
            todo += node
    return found


def _copy_on_path(root: Any, target: Any) -> tuple[Any, Any]:
    """Returns a deep copy of ``root``, and the node in that copy that corresponds to ``target``."""
    copies: list[Any] = []

    def copy(node: Any) -> Any:
        if isinstance(node, dict):
            made: Any = {key: copy(item) for key, item in node.items()}
        elif isinstance(node, list):
            made = [copy(item) for item in node]
        else:
            return node
        if node is target:
            copies.append(made)
        return made

    return copy(root), copies[0]


def _mutate_place(container: Any, key: Any, random: Random) -> None:
    value = container[key]
    draw = random.random()
    if isinstance(value, str) and value[:1] in ("{", "[") and draw < 0.75:
        container[key] = mutate_json_text(value, random)
    elif draw < 0.45:
        container[key] = odd_value(random)
    elif draw < 0.60:
        container[key] = _near(value, random)
    elif draw < 0.70:
        del container[key]
    elif draw < 0.85 and isinstance(container, dict):
        _mutate_keys(container, key, random)
    else:
        others = list(container.values()) if isinstance(container, dict) else container
        container[key] = random.choice((random.choice(others), [value], {"a": value}, [value] * 3))


def _mutate_keys(container: dict[str, Any], key: str, random: Random) -> None:
    """Rename the key, add another key, or make the key occur twice (by a ``Raw`` value)."""
    value = container[key]
    draw = random.random()
    if draw < 0.5:
        twin = random.choice((value, odd_value(random)))
        container[key] = Raw(f"{dump(value)},{json.dumps(key)}:{dump(twin)}")
    elif draw < 0.8:
        del container[key]
        container[random.choice((key.upper(), key + "x", key[1:], "", key + "\0", " " + key))] = value
    else:
        container[random.choice(("extra", "é", "\ud800", "__proto__", "path", "size"))] = odd_value(random)


def _near(value: Any, random: Random) -> Any:
    if isinstance(value, bool) or value is None:
        return not value
    if isinstance(value, int):
        return random.choice((value + 1, value - 1, -value, value * 1000, value + 2**32, float(value), str(value)))
    if isinstance(value, float):
        return random.choice((-value, value * 1e10, int(value), str(value)))
    if isinstance(value, str) and value:
        at = random.randrange(len(value))
        other = random.choice('aZ09/%.:-\\"\n\0é')
        return random.choice(
            (value[:at] + other + value[at + 1 :], value[:at], value[at:], value * 2, value.upper(), value + other)
        )
    return [value]


def mutate_json_text(text: str, random: Random) -> str:
    """JSON text in which one value was changed or random bytes were damaged."""
    if random.random() < 0.15:
        return damage_bytes(text.encode(), random).decode("utf-8", "replace")
    try:
        return dump(mutate_tree(json.loads(text), random))
    except (ValueError, RecursionError):
        return damage_bytes(text.encode("utf-8", "replace"), random).decode("utf-8", "replace")


def mutate_json_lines(data: bytes, random: Random) -> bytes:
    """A file of JSON lines, or with a single JSON document, in which the structure, the text or random bytes are
    damaged."""
    draw = random.random()
    if draw < 0.25:
        return damage_bytes(data, random)
    if draw < 0.40:
        return random.choice(_FILE_MUTATIONS)(data, random)
    rows = data.splitlines()
    if not rows:
        return damage_bytes(data, random)
    for _ in range(random.choice((1, 1, 1, 2, 3))):
        at = random.randrange(len(rows))
        rows[at] = mutate_json_text(rows[at].decode("utf-8", "replace"), random).encode("utf-8", "surrogatepass")
    return b"\n".join(rows) + (b"\n" if data.endswith(b"\n") else b"")


def _rows_moved(data: bytes, random: Random) -> bytes:
    rows = data.splitlines(keepends=True)
    draw = random.random()
    if draw < 0.3:
        random.shuffle(rows)
    elif draw < 0.6:
        rows.insert(random.randrange(len(rows) + 1), random.choice(rows or [b"{}"]))
    elif rows:
        del rows[random.randrange(len(rows))]
    return b"".join(rows)


_FILE_MUTATIONS: tuple[Callable[[bytes, Random], bytes], ...] = (
    lambda data, random: b"\xef\xbb\xbf" + data,
    lambda data, random: data.replace(b"\n", b"\r\n"),
    lambda data, random: data.replace(b"\n", b"\r"),
    lambda data, random: data.replace(b"\n", b" "),
    lambda data, random: data.replace(b"\n", b"\n\n \n"),
    lambda data, random: data.replace(b",", b",\n", 1),
    lambda data, random: data.decode("utf-8", "replace").encode("utf-16"),
    lambda data, random: data.replace(b"a", random.choice((b"\xff", b"\xc0\xaf", b"\xed\xa0\x80", b"\x00")), 3),
    lambda data, random: (
        data + random.choice((b"{}", b"null\n", b"[]\n", b"1\n", b'{"add":null}\n', b"\0" * 512, data))
    ),
    lambda data, random: random.choice((b"", b"\n", b"{", b"{}", b"null", b"[]", b"\0", b'{"a":' * 50_000)),
    lambda data, random: b"[" + data.replace(b"\n", b",") + b"]",
    _rows_moved,
    _rows_moved,
)
