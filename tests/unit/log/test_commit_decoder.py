"""Decoding commits as columns gives the same result as decoding them as actions; unusual lines are decoded as
actions."""

from __future__ import annotations

import gc
import json
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from deltalog.errors import InvalidCommitError
from deltalog.log import commit_decoder
from deltalog.log.commit_decoder import decode_commits
from deltalog.log.replay import Commits, tail
from deltalog.protocol.codec import CommitActions, decode_commit, first_commit_info, first_commit_infos
from tests.support.core import metadata_action, protocol_action
from tests.support.core.strategies import examples

INFO = {"commitInfo": {"timestamp": 1, "operation": "WRITE"}}


def add(path: str, **fields: Any) -> dict[str, Any]:
    body = {"path": path, "partitionValues": {"p": "1"}, "size": 3, "modificationTime": 4, "dataChange": True}
    return {"add": {**body, **fields}}


def remove(path: str, **fields: Any) -> dict[str, Any]:
    body = {"path": path, "deletionTimestamp": 9, "dataChange": True, "extendedFileMetadata": True}
    return {"remove": {**body, "partitionValues": {"p": "1"}, "size": 3, **fields}}


VECTOR = {
    "storageType": "u",
    "pathOrInlineDv": "ab^-aqEH.-t@S}K{vb[*k^",
    "offset": 1,
    "sizeInBytes": 36,
    "cardinality": 2,
}


def lines(*actions: dict[str, Any] | str) -> bytes:
    texts = (a if isinstance(a, str) else json.dumps(a, separators=(",", ":")) for a in (INFO, *actions))
    return "".join(text + "\n" for text in texts).encode()


def log(odd: bytes | None = None, commits: int = 40) -> list[bytes]:
    data = [lines(*(add(f"{v}-{i}", stats='{"numRecords":1}') for i in range(5))) for v in range(commits)]
    return data if odd is None else [*data[:20], odd, *data[20:]]


@pytest.fixture(autouse=True)
def small_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(commit_decoder, "_MIN_BYTES", 1)
    monkeypatch.setattr(commit_decoder, "_BLOCK_BYTES", 4000)


def one_by_one(data: list[bytes]) -> Commits:
    return Commits([decode_commit(each, version) for version, each in enumerate(data)])


def files(commits: Commits) -> list[dict[str, Any]]:
    rows = sorted(tail(commits).files.to_pylist(), key=lambda row: row["path"])
    # A missing partition value is null.
    return [{**row, "partition_values": _present(row["partition_values"])} for row in rows]


def tombstones(commits: Commits) -> list[dict[str, Any]]:
    rows = sorted(tail(commits).removed.to_pylist(), key=lambda row: row["path"])
    return [{**row, "partition_values": _present(row["partition_values"])} for row in rows]


def _present(values: list[tuple[str, str | None]] | None) -> dict[str, str] | None:
    return None if values is None else {k: v for k, v in values if v is not None}


def small(commits: Commits) -> list[CommitActions]:
    """The commits without their add and remove actions."""
    return [msgspec.structs.replace(each, adds=[], removes=[]) for each in commits.actions]


PLAIN = '{"add":{"path":"x","partitionValues":{"p":"1"},"size":1,"modificationTime":1,"dataChange":true}}'

ODD = {
    "none": None,
    "a file again": lines(add("3-1", size=9), add("3-2", size=10)),
    "a file twice in one commit": lines(add("same", size=1), add("same", size=2)),
    "added, then removed in one commit": lines(add("x"), {"remove": {"path": "x", "dataChange": True}}),
    "a whole remove": lines(remove("3-1"), remove("elsewhere"), add("3-2", size=5)),
    "no partition values in a remove": lines({"remove": {"path": "3-1", "dataChange": False}}, remove("3-2")),
    "partition values null in a remove": lines(remove("3-1", partitionValues=None)),
    "data change left out": lines({"remove": {"path": "3-1"}}),
    "statistics and tags in a remove": lines(remove("3-1", stats="{}", tags={"a": None})),
    "row tracking in a remove": lines(remove("3-1", baseRowId=7, defaultRowCommitVersion=-1)),
    "a deletion vector replaced": lines(
        remove("3-1"), add("3-1", deletionVector=VECTOR), add("3-2", deletionVector={**VECTOR, "offset": 7})
    ),
    "protocol and metadata": lines(protocol_action(), metadata_action(), remove("3-1")),
    "a domain": lines({"domainMetadata": {"domain": "d", "configuration": "{}", "removed": False}}, remove("3-1")),
    "change files": lines({"cdc": {"path": "c", "partitionValues": {}, "size": 1, "dataChange": False}}, add("x")),
    "a path in commitInfo": b'{"commitInfo":{"path":"x","deletionVector":null}}\n'
    + lines(add("x")).partition(b"\n")[2],
    "commitInfo last": b"".join(lines(add("x"), remove("3-1")).splitlines(keepends=True)[::-1]),
    "two commitInfo": lines(INFO, add("x")),
    "an unknown action": lines({"future": {"path": "x"}}, add("x")),
    "an empty action": lines("{}", add("x")),
    "carriage returns": lines(add("x"), remove("3-1")).replace(b"\n", b"\r\n"),
    "a byte order mark": b"\xef\xbb\xbf" + lines(add("x")),
    "an action on two lines": lines('{"txn":\n{"appId":"a","version":1}}', add("x")),
    "two small actions on a line": lines(
        '{"txn":{"appId":"a","version":1}}{"txn":{"appId":"b","version":1}}', add("x")
    ),
    "another order of fields": lines(
        '{"add":{"size":1,"path":"x","partitionValues":{},"modificationTime":1,"dataChange":true}}'
    ),
    "a key with an escape": lines(PLAIN.replace('"path"', '"p\\u0061th"')),
    "a file removed": lines({"remove": {"path": "3-1", "dataChange": True}}),
    "removed, then added in one commit": lines({"remove": {"path": "x", "dataChange": True}}, add("x")),
    "tags": lines(add("tagged", tags={"a": "b"})),
    "an unknown field": lines(add("known", future=[1, {"x": None}])),
    "row tracking": lines(add("tracked", baseRowId=7, defaultRowCommitVersion=3, clusteringProvider="z")),
    "a deletion vector": lines(
        add("dv", deletionVector={"storageType": "i", "pathOrInlineDv": "x", "sizeInBytes": 1, "cardinality": 1})
    ),
    "no partition values": lines(add("bare", partitionValues={})),
    "other partition values": lines(add("other", partitionValues={"q": "1", "p": None})),
    "statistics null": lines(add("null", stats=None)),
    "text beyond ASCII": lines(json.dumps(add("é", partitionValues={"p": "☃"}), ensure_ascii=False)),
    "escapes": lines(add('q"\\\n', partitionValues={"p": "\t"})),
    "blank lines": lines("", add("after a blank")),
    "spaces": lines(json.dumps(add("spaced"))),
    "no line feed at the end": lines(add("last")).rstrip(b"\n"),
    "a transaction": lines({"txn": {"appId": "a", "version": 1}}, add("with txn")),
    "two actions on a line": lines(PLAIN + PLAIN.replace('"x"', '"y"')),
    "no actions": lines(),
}


@pytest.mark.parametrize("name", ODD)
def test_the_files_are_those_of_the_actions(name: str) -> None:
    data = log(ODD[name])
    commits = decode_commits(range(len(data)), data)
    assert commits.runs  # ordinary lines become columns
    check_same(commits, one_by_one(data))


def check_same(commits: Commits, expected: Commits) -> None:
    assert files(commits) == files(expected)
    assert tombstones(commits) == tombstones(expected)
    assert tail(commits).keys == tail(expected).keys
    assert small(commits) == small(expected)


COLUMNS = [
    "a file removed",
    "removed, then added in one commit",
    "added, then removed in one commit",
    "a whole remove",
    "a transaction",
    "a deletion vector",
    "a deletion vector replaced",
    "protocol and metadata",
    "commitInfo last",
    "blank lines",
    "no partition values in a remove",
]


@pytest.mark.parametrize("name", COLUMNS)
def test_these_are_columns(name: str) -> None:
    data = log(ODD[name])
    commits = decode_commits(range(len(data)), data)
    assert not any(each.adds or each.removes for each in commits.actions)


def test_one_odd_commit_leaves_the_others_as_columns() -> None:
    data = log(ODD["tags"])
    commits = decode_commits(range(len(data)), data)
    assert [each.version for each in commits.actions if each.adds] == [20]


@pytest.mark.parametrize("names", [[], ["p"], ["a", "b", "c"]])
def test_partition_values_of_any_number_of_columns(names: list[str]) -> None:
    data = [
        lines(*(add(f"{v}-{i}", partitionValues={n: f"{n}{i}" for n in names}) for i in range(5))) for v in range(40)
    ]
    commits = decode_commits(range(40), data)
    assert commits.runs and files(commits) == files(one_by_one(data))


@pytest.mark.parametrize(
    "line",
    [
        PLAIN.replace(',"size":1', ""),
        PLAIN.replace('"size":1', '"size":-1'),
        PLAIN.replace('"size":1', '"size":1.5'),
        PLAIN.replace('"size":1', '"size":"1"'),
        PLAIN.replace('"size":1', '"size":99999999999999999999'),
        PLAIN.replace('"size":1', '"size":null'),
        PLAIN.replace("true", "1"),
        PLAIN.replace('{"p":"1"}', "null"),
        PLAIN.replace('{"p":"1"}', '{"p":1}'),
        PLAIN.replace('"size":1', '"path":"y","size":1'),
        PLAIN.replace('"x"', '"\\ud800"'),
        PLAIN.replace('"x"', '"\x01"'),
        PLAIN + " x",
        PLAIN[:-2],
    ],
)
def test_what_is_wrong_is_refused_as_it_is_alone(line: str) -> None:
    odd = lines(line)
    with pytest.raises(InvalidCommitError) as alone:
        decode_commit(odd, 20)
    with pytest.raises(InvalidCommitError) as among_many:
        decode_commits(range(41), log(odd))
    assert str(among_many.value) == str(alone.value)


@pytest.mark.parametrize("change", [
    {"storageType": "x"}, {"storageType": None}, {"pathOrInlineDv": None}, {"sizeInBytes": -1}, {"sizeInBytes": 2**31},
    {"offset": -1}, {"offset": 2**31}, {"cardinality": -1}, {"cardinality": None}, {"maxRowIndex": "1"},
])  # fmt: skip
@pytest.mark.parametrize("action", [add, remove])
def test_a_wrong_deletion_vector_is_refused_as_it_is_alone(action: Any, change: dict[str, Any]) -> None:
    odd = lines(action("x", deletionVector={**VECTOR, **change}))
    with pytest.raises(InvalidCommitError) as alone:
        decode_commit(odd, 20)
    with pytest.raises(InvalidCommitError) as among_many:
        decode_commits(range(41), log(odd))
    assert str(among_many.value) == str(alone.value)


WRONG: list[dict[str, Any] | str] = [
    {"remove": {"path": None}}, {"remove": {}}, {"remove": {"path": "x", "dataChange": None}},
    {"remove": {"path": "x", "size": "1"}}, {"remove": {"path": "x", "partitionValues": {"p": 1}}},
    {"protocol": {"minReaderVersion": "1"}}, {"txn": {"appId": 1, "version": 1}}, {"metaData": []},
]  # fmt: skip


@pytest.mark.parametrize("odd", [lines(each) for each in WRONG] + [lines(protocol_action(), protocol_action())])
def test_a_wrong_action_is_refused_as_it_is_alone(odd: bytes) -> None:
    with pytest.raises(InvalidCommitError) as alone:
        decode_commit(odd, 20)
    with pytest.raises(InvalidCommitError) as among_many:
        decode_commits(range(41), log(odd))
    assert str(among_many.value) == str(alone.value)


ORDINARY = [
    add("a"), add("b", stats='{"numRecords":1}'), add("a", size=7), add("a", deletionVector=VECTOR), remove("a"),
    remove("b", size=None), remove("a", deletionVector=VECTOR), {"txn": {"appId": "t", "version": 3}},
]  # fmt: skip
MUTATIONS = [
    b'"',
    b"{",
    b"}",
    b"\n",
    b" ",
    b",",
    b"null",
    b"1",
    b"-",
    b".5",
    b"\\u0061",
    b"\xff",
    b'"path":"z",',
    b"p",
    b"",
]


@st.composite
def _mutated(draw: st.DrawFn) -> list[bytes]:
    commits = st.lists(st.lists(st.sampled_from(ORDINARY), max_size=4), min_size=2, max_size=8)
    data = [lines(*actions) for actions in draw(commits)]
    for _ in range(draw(st.integers(0, 2))):
        which = draw(st.integers(0, len(data) - 1))
        at = draw(st.integers(0, len(data[which])))
        cut = draw(st.integers(0, 3))
        data[which] = data[which][:at] + draw(st.sampled_from(MUTATIONS)) + data[which][at + cut :]
    return data


@pytest.mark.slow
@settings(max_examples=examples(1000), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(_mutated())
def test_any_bytes_mean_what_they_mean_commit_by_commit(data: list[bytes]) -> None:
    try:
        expected = one_by_one(data)
    except InvalidCommitError as error:
        with pytest.raises(InvalidCommitError) as among_many:
            decode_commits(range(len(data)), data)
        assert str(among_many.value) == str(error)
    else:
        check_same(decode_commits(range(len(data)), data), expected)


def test_bytes_that_are_no_text_are_refused() -> None:
    with pytest.raises(InvalidCommitError, match="00000000000000000020"):
        decode_commits(range(41), log(lines(PLAIN).replace(b'"x"', b'"\xff"')))


HEADS = {
    "commitInfo": lines(add("x")),
    "nothing else": b'{"commitInfo":{"a":1}}',
    "empty": b"",
    "an add": lines(add("x")).partition(b"\n")[2],
    "null": b'{"commitInfo":null}\n',
    "no object": b'{"commitInfo":[1]}\n',
    "two": b'{"commitInfo":{"a":1}}{"commitInfo":{"a":2}}\n',
    "with a transaction": b'{"commitInfo":{"a":1},"txn":{"appId":"a","version":1}}\n',
    "spaces": b'{ "commitInfo": {"a": 1} }\n{}',
    "torn": b'{"commitInfo":{"a":{}}',
    "cut": b'{"commitInfo":{"a":"' + b"x" * 200,
    "no text": b'{"commitInfo":{"a":"\xff"}}\n',
}


@pytest.mark.parametrize("name", HEADS)
def test_heads_together_are_those_one_by_one(name: str) -> None:
    heads = [HEADS["commitInfo"], HEADS[name][:100], HEADS["commitInfo"]]
    expected = [first_commit_info(head, len(head) < 100) for head in heads]
    assert first_commit_infos(heads, 100) == expected


def test_the_collector_is_left_as_it_was() -> None:
    with commit_decoder.garbage_collection_paused():
        assert not gc.isenabled()
        with commit_decoder.garbage_collection_paused():
            pass
        assert not gc.isenabled()
    assert gc.isenabled()
    with pytest.raises(InvalidCommitError):
        decode_commits([0], [b"{"])
    assert gc.isenabled()
    gc.disable()
    try:
        with commit_decoder.garbage_collection_paused():
            pass
        assert not gc.isenabled()
    finally:
        gc.enable()
