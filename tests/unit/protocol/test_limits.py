"""Limits on the resources needed to read a table, and log content that is refused because it is ambiguous."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from deltalog import CallError, CorruptTableError, DeltaLogError
from deltalog.errors import InvalidCommitError, InvalidDataFileError
from deltalog.expressions.compile import compile_expression
from deltalog.log.checkpoint.last_checkpoint import read_hint
from deltalog.log.checksum import decode_checksum
from deltalog.protocol import limits
from deltalog.protocol.actions import DeletionVector
from deltalog.protocol.codec import decode_commit
from deltalog.protocol.deletion_vectors import from_file, from_inline
from deltalog.protocol.schema import StructType
from tests.support.core import add_action, info_action, metadata_action, protocol_action, remove_action

VECTOR = {"storageType": "i", "pathOrInlineDv": "0" * 40, "sizeInBytes": 32, "cardinality": 1}


def log(*actions: dict[str, Any] | str) -> bytes:
    return b"".join((a if isinstance(a, str) else json.dumps(a)).encode() + b"\n" for a in actions)


def schema(data_type: Any) -> str:
    return json.dumps(
        {"type": "struct", "fields": [{"name": "a", "type": data_type, "nullable": True, "metadata": {}}]}
    )


def nested(depth: int) -> Any:
    return "long" if depth == 0 else {"type": "array", "elementType": nested(depth - 1), "containsNull": True}


COMMIT = log(info_action(1), add_action("a"), add_action("b"))
CAPPED: dict[str, tuple[str, int, type[DeltaLogError], Callable[[], object]]] = {
    "commit": ("MAX_COMMIT_BYTES", len(COMMIT) - 1, InvalidCommitError, lambda: decode_commit(COMMIT, 7)),
    "line": ("MAX_LINE_BYTES", 60, InvalidCommitError, lambda: decode_commit(COMMIT, 7)),
    "schema": ("MAX_SCHEMA_BYTES", 80, CorruptTableError, lambda: StructType.from_json(schema("string"))),
    "depth": ("MAX_SCHEMA_DEPTH", 20, CorruptTableError, lambda: StructType.from_json(schema(nested(20)))),
    "vector": (
        "MAX_VECTOR_BYTES", 31, InvalidDataFileError,
        lambda: from_file(b"\x01" + bytes(100), DeletionVector("u", "x", 32, 1, 1)),
    ),
    "expression": ("MAX_EXPRESSION_CHARS", 8, CallError, lambda: compile_expression("1 + 1 + 1", StructType())),
    "steps": ("MAX_EXPRESSION_STEPS", 4, CallError, lambda: compile_expression("1 + 1 + 1", StructType())),
    "inline vector": (
        "MAX_INLINE_VECTOR_BYTES", 39, InvalidDataFileError, lambda: from_inline(DeletionVector("i", "0" * 40, 32, 1))
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", CAPPED)
def test_what_is_over_a_cap_is_refused_and_the_error_says_how_to_raise_it(
    case: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    cap, low, error, read = CAPPED[case]
    monkeypatch.setattr(limits, cap, low)
    with pytest.raises(error, match=rf"over the cap of {low}; .* set deltalog.protocol.limits.{cap} higher"):
        read()
    monkeypatch.undo()
    try:
        read()
    except DeltaLogError as other:  # without the cap, another error: these bytes are not a deletion vector
        assert cap not in str(other)


@pytest.mark.parametrize("last", [b"", b"\n"])
def test_the_length_of_every_line_counts(last: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "MAX_LINE_BYTES", 40)
    short, long = b'{"new":"' + b"x" * 28 + b'"}\n', b'{"new":"' + b"x" * 40 + b'"}\n'
    decode_commit(short * 100, 1)
    for data in (long + short * 9, short * 9 + long, short * 9 + long.strip() + last):
        with pytest.raises(InvalidCommitError, match="MAX_LINE_BYTES"):
            decode_commit(data, 1)


def test_hints_over_their_cap_are_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    hint = b'{"version":3,"size":1}'
    assert read_hint(hint) == 3
    monkeypatch.setattr(limits, "MAX_HINT_BYTES", len(hint) - 1)
    assert read_hint(hint) is None
    monkeypatch.setattr(limits, "MAX_CHECKSUM_BYTES", 1)
    assert decode_checksum(b"{}") is None


def test_sane_tables_are_far_from_the_caps() -> None:
    """A million files in a checkpoint, 100,000 adds in a commit, 5,000 columns."""
    columns = [{"name": f"a_rather_long_column_name_{i}", "type": "string", "metadata": {"comment": "x" * 200}}
               for i in range(5000)]  # fmt: skip
    text = json.dumps({"type": "struct", "fields": columns})
    assert len(StructType.from_json(text).fields) == 5000
    assert len(text) * 10 < limits.MAX_SCHEMA_BYTES
    statistics = json.dumps({"minValues": {f"a_rather_long_column_name_{i}": "x" * 32 for i in range(5000)}})
    assert 4 * len(statistics) * 10 < limits.MAX_LINE_BYTES
    assert len(log(add_action("x" * 100, stats="x" * 1000))) * 100_000 * 5 < limits.MAX_COMMIT_BYTES
    assert limits.MAX_CHECKPOINT_ROWS > 1_000_000 * 100
    assert limits.MAX_CHECKPOINT_BYTES > 1_000_000 * 5000


# ---------------------------------------------------------------------------------------- ambiguous actions

ADD = '{"add":{"path":"a","partitionValues":{},"size":1,"modificationTime":1,"dataChange":true%s}}'
TWICE = {
    "a path": (ADD % ',"path":"b"', "path twice in one add"),
    "partition values": (ADD % ',"partitionValues":{"p":"1"}', "partitionValues twice in one add"),
    "a vector": (ADD % (2 * f',"deletionVector":{json.dumps(VECTOR)}'), "deletionVector twice in one add"),
    "a vector and none": (
        ADD % f',"deletionVector":{json.dumps(VECTOR)},"deletionVector":null', "deletionVector twice in one add"
    ),
    "two actions on a line": (
        json.dumps({**add_action("a"), **remove_action("b")}), "the actions add and remove"
    ),
    "an action": (
        '{"remove":{"path":"a","dataChange":true},"remove":{"path":"b","dataChange":true}}', "remove and remove"
    ),
    "a protocol version": ('{"protocol":{"minReaderVersion":1,"minReaderVersion":3,"minWriterVersion":2}}', "twice"),
    "a property": (
        json.dumps(metadata_action({"a": "1"})).replace('{"a": "1"}', '{"a": "1", "a": "2"}'), "'a' twice"
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", TWICE)
def test_what_is_said_twice_is_refused(case: str) -> None:
    line, says = TWICE[case]
    data = log(info_action(1), add_action("x"), line)
    with pytest.raises(InvalidCommitError, match=says) as caught:
        decode_commit(data, 7)
    assert "00000000000000000007.json" in str(caught.value)


@pytest.mark.parametrize(
    "actions",
    [
        (add_action("a", partitionValues={"path": "1", "deletionVector": "2"}),),
        (add_action("a", stats='{"minValues":{"path":"a"},"maxValues":{"path":"b"}}'),),
        (add_action("a", deletionVector=None), add_action("b", deletionVector=VECTOR)),
        (remove_action("a", partitionValues=None), remove_action("b")),
        (info_action(1, operationParameters={"path": {"path": 1}}),),
        (metadata_action({"path": "x"}), {"new": {"path": 1, "add": {"path": 2}}}),
    ],
    ids=["partition column", "statistics", "null vector", "null partition values", "commitInfo", "elsewhere"],
)
def test_the_same_words_elsewhere_say_nothing_twice(actions: tuple[dict[str, Any], ...]) -> None:
    decode_commit(log(info_action(1), protocol_action(), *actions), 7)


@pytest.mark.parametrize(
    "line",
    [
        '{"add":{"path":"a","partitionValues":{},"size":-5,"modificationTime":1,"dataChange":true}}',
        '{"txn":{"appId":"a","version":99999999999999999999}}',
        ADD % f',"deletionVector":{json.dumps({**VECTOR, "sizeInBytes": 2**31})}',
        ADD % f',"deletionVector":{json.dumps({**VECTOR, "cardinality": -1})}',
        '{"metaData":{"id":"\\ud800"}}',
        '{"protocol":{"minReaderVersion":NaN,"minWriterVersion":2}}',
        '{"commitInfo":' + "[" * 100_000 + "]" * 100_000 + "}",
    ],
    ids=["negative size", "beyond 64 bits", "vector size", "cardinality", "surrogate", "NaN", "depth"],
)
def test_numbers_texts_and_depths_out_of_range_are_refused(line: str) -> None:
    with pytest.raises(InvalidCommitError):
        decode_commit(log(protocol_action(), line), 7)


@pytest.mark.parametrize("raw", [b'{"protocol":{"a":"\xff"}}', b'{"metaData":{"id":"\xff"}}'])
def test_protocol_and_metadata_that_are_not_utf8_are_refused(raw: bytes) -> None:
    with pytest.raises(InvalidCommitError, match=r"00000000000000000007\.json"):
        decode_commit(raw + b"\n", 7)


def test_a_commit_info_that_is_not_utf8_is_as_good_as_none() -> None:
    assert decode_commit(b'{"commitInfo":{"a":"\xff"}}\n', 7).commit_info is None


@pytest.mark.parametrize(
    "text",
    [
        schema("decimal(99,99)"), schema("decimal(0,0)"), schema("decimal(5,9)"), schema(f"decimal({'9' * 5000},1)"),
        schema("long").replace('"a"', "5"), schema("long").replace("true", '"yes"'),
        schema("long").replace("{}", "[1]"),
        json.dumps({"type": "struct", "fields": json.loads(schema("long"))["fields"] * 2}),
        schema({"type": "array", "elementType": "long", "containsNull": 1}),
    ],
)  # fmt: skip
def test_schemas_that_no_table_can_have_are_refused(text: str) -> None:
    with pytest.raises(CorruptTableError, match="not a Delta schema"):
        StructType.from_json(text)


def test_a_hint_with_text_that_cannot_be_written_is_passed_over() -> None:
    assert read_hint(b'{"version":3,"x":"\\ud800","checksum":"0"}') is None
    assert read_hint(b'{"version":3,"checksum":"0","x":' + b"[" * 900 + b"]" * 900 + b"}") is None
