from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deltalog.engine import AddFile
from deltalog.errors import InvalidCommitError
from deltalog.protocol import codec
from deltalog.protocol.actions import Action, CommitInfo, UnknownAction
from tests.support.core import NOW, add_action, info_action, metadata_action, protocol_action, remove_action
from tests.unit.protocol.test_actions import BODIES, JSON, TEXT

INFO = {"inCommitTimestamp": NOW, "timestamp": NOW, "operation": "WRITE", "txnId": "t"}


def commit(*actions: dict[str, Any]) -> bytes:
    return b"".join(json.dumps(each).encode() + b"\n" for each in actions)


@st.composite
def _lines(draw: st.DrawFn) -> dict[str, Any]:
    kind = draw(st.sampled_from([*BODIES, None]))
    if kind is None:
        names = TEXT.filter(lambda key: key not in {k.KEY for k in BODIES} | {"commitInfo", "cdc", "sidecar"})
        return draw(st.dictionaries(names, JSON, min_size=1, max_size=2))
    extra = draw(st.dictionaries(TEXT.map(lambda name: f"future{name}"), JSON, max_size=1))
    return {kind.KEY: {**draw(BODIES[kind]), **extra}}


@given(st.lists(_lines(), max_size=5))
def test_every_line_survives_unknown_fields_and_actions_too(given_lines: list[dict[str, Any]]) -> None:
    data = commit({"commitInfo": {**INFO, "new": {"a": [1]}}}, *given_lines)
    first, *rest = codec.decode_actions(data)
    assert isinstance(first, CommitInfo)
    written = codec.encode_commit(first.body, rest)  # type: ignore[arg-type]
    assert [json.loads(line) for line in written.splitlines()] == [json.loads(line) for line in data.splitlines()]
    assert codec.decode_actions(written) == [first, *rest]


@given(st.lists(_lines(), max_size=5))
def test_both_decoders_agree(given_lines: list[dict[str, Any]]) -> None:
    single = [line for i, line in enumerate(given_lines) if not _repeats(given_lines[:i], line)]
    data = commit({"commitInfo": INFO}, *single)
    grouped = codec.decode_commit(data, 3)
    all_actions = codec.decode_actions(data)
    for kind, found in (
        ("add", grouped.adds), ("remove", grouped.removes), ("txn", grouped.transactions),
        ("domainMetadata", grouped.domains), ("metaData", [grouped.metadata]), ("protocol", [grouped.protocol]),
    ):  # fmt: skip
        expected = [a for a in all_actions if isinstance(a, Action) and kind == a.KEY]
        known = [_without_extra(a) for a in expected]
        assert [_without_extra(a) for a in found if a is not None] == known
    assert (grouped.version, grouped.commit_info, grouped.commit_info_first) == (3, CommitInfo(INFO), True)


def _repeats(before: list[dict[str, Any]], line: dict[str, Any]) -> bool:
    key = next(iter(line))
    return key in ("metaData", "protocol") and any(key in each for each in before)


def _without_extra(action: Action) -> dict[str, Any]:
    return {key: value for key, value in action.to_json().items() if not key.startswith("future")}


def test_commit_info_is_written_first() -> None:
    add = AddFile(path="x", partition_values={"p": None}, size=1, modification_time=2, data_change=True)
    data = codec.encode_commit(INFO, [add, UnknownAction({"new": 1})])
    assert data.endswith(b"\n") and data.count(b"\n") == 3
    assert [next(iter(json.loads(line))) for line in data.splitlines()] == ["commitInfo", "add", "new"]
    assert json.loads(data.splitlines()[1])["add"]["partitionValues"] == {"p": None}


@pytest.mark.parametrize("body", [{"x": object()}, {"x": "\ud800"}, {"x": {1j: 2}}])
def test_what_json_has_not_is_refused(body: dict[str, Any]) -> None:
    with pytest.raises(InvalidCommitError, match="commitInfo cannot be written as JSON"):
        codec.encode_commit(body, [])


@pytest.mark.parametrize("data", [b"", b" ", b"\n", b"\r\n \n"])
def test_an_empty_commit(data: bytes) -> None:
    with pytest.raises(InvalidCommitError, match=r"00000000000000000007\.json is empty.*Restore it") as caught:
        codec.decode_commit(data, 7)
    assert caught.value.version == 7


def test_every_truncation_within_a_line_is_noticed() -> None:
    whole = commit(info_action(NOW), protocol_action(), metadata_action(), add_action("a"), remove_action("b"))
    ends = {i + 1 for i, byte in enumerate(whole) if byte == 10} | {i for i, byte in enumerate(whole) if byte == 10}
    for length in range(1, len(whole)):
        if length in ends:
            continue  # only complete lines at the end of the file are missing; no reader can detect this
        with pytest.raises(InvalidCommitError) as caught:
            codec.decode_commit(whole[:length], 7)
        assert "00000000000000000007.json" in str(caught.value)


def test_a_torn_last_line_is_called_torn() -> None:
    with pytest.raises(InvalidCommitError, match="is torn: its last line ends early"):
        codec.decode_commit(commit(info_action(NOW)) + b'{"add":{"path":"x', 7)


@pytest.mark.parametrize(
    ("bad", "says"),
    [
        (b"not json", "line 2"),
        (b"[]", "line 2"),
        (b"7", "line 2"),
        (b'"add"', "line 2"),
        (b'{"add":7}', "line 2.*add"),
        (b'{"add":{"path":"x"}}', "line 2.*partitionValues"),
        (
            b'{"add":{"path":"x","partitionValues":{},"size":"1","modificationTime":1,"dataChange":true}}',
            "line 2.*size",
        ),
        (b'{"add":{}}{"add":{}}', "line 2"),
        (b"\xff\xfe", "line 2"),
        (b'{"add":{"path":"\xff"}}', "line 2"),
        (b'{"txn":{"appId":"a","version":99999999999999999999}}', "line 2"),
        (b'{"x":' + b"[" * 100_000 + b"]" * 100_000 + b"}", "line 2"),
        (b"\x00" * 100, "line 2"),
    ],
)
def test_a_line_that_is_not_an_action_is_named(bad: bytes, says: str) -> None:
    with pytest.raises(InvalidCommitError, match=rf"00000000000000000007\.json.*{says}") as caught:
        codec.decode_commit(commit(info_action()) + bad + b"\n" + commit(add_action("a")), 7)
    assert caught.value.version == 7
    assert caught.value.path == "00000000000000000007.json"


@pytest.mark.parametrize("twice", [metadata_action(), protocol_action()])
def test_two_of_what_can_be_there_once(twice: dict[str, Any]) -> None:
    key = next(iter(twice))
    with pytest.raises(InvalidCommitError, match=rf"0007\.json has 2 {key} actions; at most one"):
        codec.decode_commit(commit(info_action(), twice, add_action("a"), twice), 7)


def test_a_byte_order_mark_before_the_first_line_is_passed_over() -> None:
    data = commit(info_action(NOW), add_action("x"))
    marked = b"\xef\xbb\xbf" + data
    assert codec.decode_commit(marked, 3) == codec.decode_commit(data, 3)
    assert codec.decode_actions(marked) == codec.decode_actions(data)
    with pytest.raises(InvalidCommitError, match="is empty"):
        codec.decode_commit(b"\xef\xbb\xbf\n", 3)
    with pytest.raises(InvalidCommitError, match="line 2"):
        codec.decode_commit(data.replace(b"\n", b"\n\xef\xbb\xbf", 1), 3)


def test_a_long_commit_is_decoded_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """The decoder holds the interpreter's lock, so that one call of it stops all other threads."""
    sizes: list[int] = []

    class Watched:
        def decode_lines(self, data: bytes) -> list[codec._Line]:
            sizes.append(len(data))
            return lines.decode_lines(data)

    lines = codec._lines
    monkeypatch.setattr(codec, "_lines", Watched())
    data = commit({"commitInfo": INFO}, *(add_action(f"f{number}") for number in range(5_000)))
    assert [each.path for each in codec.decode_commit(data, 7).adds] == [f"f{number}" for number in range(5_000)]
    assert sum(sizes) == len(data) > 3 * max(sizes)
    over_lines = data.replace(b'"path"', b'\n"path"')
    assert len(codec.decode_commit(over_lines, 7).adds) == 5_000
    monkeypatch.undo()
    with pytest.raises(InvalidCommitError, match="line 4000"):
        codec.decode_commit(data.replace(b'{"add": {"path": "f3998"', b'{"add": {"path": 7'), 7)


def test_harmless_oddities_are_read() -> None:
    data = b'\n{"commitInfo":{"operation":"x"}}\r\n\n  {"add":null,"txn":{"appId":"a","version":1}}\n{"cdc":null}'
    data += b'\n{"new":1}'
    found = codec.decode_commit(data, 0)
    assert found.commit_info == CommitInfo({"operation": "x"})
    assert [t.app_id for t in found.transactions] == ["a"] and not found.adds


@pytest.mark.parametrize("body", ["7", "[]", '"x"', "true"])
def test_commit_info_that_is_no_object_is_as_good_as_absent(body: str) -> None:
    found = codec.decode_commit(f'{{"commitInfo":{body}}}\n'.encode() + commit(add_action("a")), 0)
    assert found.commit_info is None and len(found.adds) == 1


def test_commit_info_that_is_not_first_is_told() -> None:
    assert codec.decode_commit(commit(add_action("a"), info_action(5)), 0).commit_info_first is False
    assert codec.decode_commit(commit(info_action(5), add_action("a")), 0).commit_info_first is True


def test_commit_info_from_the_head_of_a_file() -> None:
    data = commit(info_action(5), add_action("a"))
    first = data.index(b"\n")
    assert codec.first_commit_info(data[: first + 1], whole=False) == CommitInfo(info_action(5)["commitInfo"])
    assert codec.first_commit_info(data[:first], whole=True) is not None
    assert codec.first_commit_info(data[:first], whole=False) is None  # the line may go on
    assert codec.first_commit_info(data[: first - 3], whole=True) is None
    assert codec.first_commit_info(commit(add_action("a"), info_action(5)), whole=True) is None
    assert codec.first_commit_info(b"", whole=True) is None


@pytest.mark.parametrize("bad", [b"7\n", b"x\n", b"[]\n"])
def test_the_careful_decoder_refuses_what_is_no_object(bad: bytes) -> None:
    with pytest.raises(InvalidCommitError):
        codec.decode_actions(bad)
