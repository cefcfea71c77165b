"""Commits decoded as columns mean what they mean as actions; what is odd is left to the actions."""

from __future__ import annotations

import gc
import json
from typing import Any

import pytest

from deltalog.errors import InvalidCommitError
from deltalog.log import commit_decoder
from deltalog.log.commit_decoder import decode_commits
from deltalog.log.replay import Commits, tail
from deltalog.protocol.codec import decode_commit

INFO = {"commitInfo": {"timestamp": 1, "operation": "WRITE"}}


def add(path: str, **fields: Any) -> dict[str, Any]:
    body = {"path": path, "partitionValues": {"p": "1"}, "size": 3, "modificationTime": 4, "dataChange": True}
    return {"add": {**body, **fields}}


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
    # A partition value that is not there is null.
    return [{**row, "partition_values": {k: v for k, v in row["partition_values"] if v is not None}} for row in rows]


PLAIN = '{"add":{"path":"x","partitionValues":{"p":"1"},"size":1,"modificationTime":1,"dataChange":true}}'

ODD = {
    "none": None,
    "a file again": lines(add("3-1", size=9), add("3-2", size=10)),
    "a file twice in one commit": lines(add("same", size=1), add("same", size=2)),
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
    assert files(commits) == files(one_by_one(data))
    assert commits.added  # the ordinary ones are columns
    assert [c.version for c in commits.actions] == list(range(len(data)))
    assert [c.commit_info for c in commits.actions] == [c.commit_info for c in one_by_one(data).actions]
    assert [c.removes for c in commits.actions] == [c.removes for c in one_by_one(data).actions]


@pytest.mark.parametrize("names", [[], ["p"], ["a", "b", "c"]])
def test_partition_values_of_any_number_of_columns(names: list[str]) -> None:
    data = [
        lines(*(add(f"{v}-{i}", partitionValues={n: f"{n}{i}" for n in names}) for i in range(5))) for v in range(40)
    ]
    commits = decode_commits(range(40), data)
    assert commits.added and files(commits) == files(one_by_one(data))


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


def test_bytes_that_are_no_text_are_refused() -> None:
    with pytest.raises(InvalidCommitError, match="00000000000000000020"):
        decode_commits(range(41), log(lines(PLAIN).replace(b'"x"', b'"\xff"')))


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
