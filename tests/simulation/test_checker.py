"""For each way to break an invariant, there is a history that breaks the invariant in this way, and the checker must
detect it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from deltalog.testing.checker import check, fold, parse_commit, replay
from deltalog.testing.history import Attempt, History, Operation, Read, Sighting

ENABLE = "delta.enableInCommitTimestamps"
PAIR = ("delta.inCommitTimestampEnablementVersion", "delta.inCommitTimestampEnablementTimestamp")
PLAIN = {"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}}
WITH_ICT = {"protocol": {"minReaderVersion": 1, "minWriterVersion": 7, "writerFeatures": ["inCommitTimestamp"]}}


def info(token=None, txn=None, ict=None, **more):
    body = {"timestamp": 1, "operation": "WRITE", "txnId": txn or f"txn-{token}", **more}
    if token is not None:
        body["userMetadata"] = token
    if ict is not None:
        body["inCommitTimestamp"] = ict
    return {"commitInfo": body}


def metadata(**configuration):
    configuration = {key.replace("__", "."): value for key, value in configuration.items()}
    return {"metaData": {"id": "1", "schemaString": "{}", "partitionColumns": [], "configuration": configuration}}


def settings(configuration):
    return {"metaData": {"id": "1", "schemaString": "{}", "partitionColumns": [], "configuration": configuration}}


def add(path, data_change=True):
    return {"add": {"path": path, "partitionValues": {}, "size": 1, "modificationTime": 1, "dataChange": data_change}}


def remove(path):
    return {"remove": {"path": path, "dataChange": True}}


def app(name, version):
    return {"txn": {"appId": name, "version": version}}


def commit(*actions):
    return b"".join(json.dumps(action).encode() + b"\n" for action in actions)


def operation(token, version=None, outcome="ok", **facts):
    facts = {"client": "w", "kind": "append", "invoked": 1, "returned": 2, "txn_id": f"txn-{token}", **facts}
    return Operation(token, outcome=outcome, version=version, **facts)


def good(**changes):
    """A plain table: a, b and c added by one operation each; then a removed and d added by one commit."""
    log = {
        0: commit(info("o0"), PLAIN, metadata(), add("a")),
        1: commit(info("o1"), add("b")),
        2: commit(info("o2"), add("c")),
        3: commit(info("o3"), remove("a"), add("d")),
    }
    operations = [
        operation("o0", 0, adds=["a"], removes=[], invoked=0, returned=1),
        operation("o1", 1, adds=["b"], removes=[], invoked=2, returned=5),
        operation("o2", 2, adds=["c"], removes=[], invoked=3, returned=6),
        operation("o3", 3, adds=["d"], removes=["a"], invoked=7, returned=8),
    ]
    sightings = [Sighting(at, version, log[version]) for version, at in enumerate([1, 4, 5, 8])]
    attempts = [
        Attempt(1, "w0", 0, log[0]),
        Attempt(4, "w1", 1, log[1]),
        Attempt(4.5, "w2", 1, log[2]),
        Attempt(5, "w2", 2, log[2]),
        Attempt(8, "w1", 3, log[3]),
    ]
    reads = [
        Read("r", 0.5, 9, 0, frozenset("a")),
        Read("r", 6, 9, 2, frozenset("abc")),
        Read("r", 9, 9, 3, frozenset("bcd")),
        Read("r", 9, 9, 1, frozenset("ab"), latest=False),
    ]
    history: dict[str, Any] = {
        "log": log,
        "operations": operations,
        "sightings": sightings,
        "attempts": attempts,
        "reads": reads,
        "data_files": frozenset("abcd"),
    }
    history.update(changes)
    return History(**history)


def timed(**changes):
    """A table whose file times are out of order, with in-commit timestamps enabled at version 2."""
    enabled = {ENABLE: "true", PAIR[0]: "2", PAIR[1]: "1003"}
    log = {
        0: commit(info("o0"), PLAIN, metadata()),
        1: commit(info("o1"), add("a")),
        2: commit(info("o2", ict=1003), WITH_ICT, settings(enabled)),
        3: commit(info("o3", ict=1004), add("b")),
        4: commit(info("o4", ict=5000), add("c")),
    }
    log.update(changes.pop("log", {}))
    operations = [
        operation("o2", 2, properties={ENABLE: "true"}, ict_ms=1003, clock_ms=[10, 20]),
        operation("o3", 3, ict_ms=1004, clock_ms=[900]),
        operation("o4", 4, ict_ms=5000, clock_ms=[4000, 5000]),
    ]
    history: dict[str, Any] = {
        "log": log,
        "operations": operations,
        "modification_times_ms": {0: 1001, 1: 500, 2: 1, 3: 1, 4: 1},
        "initial": 2,
    }
    history.update(changes)
    return History(**history)


def test_good_histories_are_good():
    assert check(good()) == []
    assert check(timed()) == []
    assert check(timed(reads=[Read("r", 9, 9, 4, is_opened=True)])) == []  # its time is not known
    assert check(History({})) == []
    again = changed(good(), o2={"adds": ["c", "b"]})
    again = with_log(again, v2=commit(info("o2"), add("c"), add("b", data_change=False)))
    assert check(again) == []  # the commit adds a live file again, with other statistics
    states = replay(good().log)
    assert [sorted(states[v].files) for v in range(4)] == [["a"], ["a", "b"], ["a", "b", "c"], ["b", "c", "d"]]
    assert [replay(timed().log)[v].ict_ms for v in range(5)] == [None, None, 1003, 1004, 5000]


def changed(history, **operation_changes):
    """The history with some fields of its operations replaced. ``operation_changes``: the new field values of each
    operation, keyed by its token."""
    for each in history.operations:
        for name, value in operation_changes.get(each.token, {}).items():
            setattr(each, name, value)
    return history


def with_log(history, **versions):
    """The history with other bytes in the log. The watcher's sightings, the writers' attempts and the reads are
    removed, because they would not match these bytes."""
    log = {**history.log, **{int(name[1:]): data for name, data in versions.items()}}
    history.log, history.sightings, history.attempts, history.reads = log, [], [], []
    return history


DUPLICATE = commit(info("o1", "txn-o1"), add("b2"))
OPERATION_TWICE = commit(info("o1", "txn-other"), add("b"))
INFO_LATE = commit({"add": json.loads(commit(add("b")))["add"]}, info("o3", ict=1004))

BAD = {
    # name: (the invariant, a history that breaks it, a part of the expected message)
    "a commit changes": (
        "I1",
        lambda: good(sightings=[*good().sightings, Sighting(9, 2, good().log[1])]),
        "changed after",
    ),
    "a commit changes at the end": (
        "I1",
        lambda: good(sightings=[Sighting(1, 0, commit(info("x"), PLAIN, metadata()))]),
        "differs from its first reading",
    ),
    "a commit goes away": (
        "I1",
        lambda: good(sightings=[*good().sightings, Sighting(9, 4, good().log[1])]),
        "has disappeared",
    ),
    "a gap": ("I2", lambda: History({0: good().log[0], 2: good().log[2]}, exact=False), "missing"),
    "no version 0": ("I2", lambda: History({1: good().log[0]}, exact=False), "does not begin"),
    "a version before the one below": (
        "I2",
        lambda: good(sightings=[Sighting(v, v, good().log[v]) for v in (0, 1)] + [Sighting(1.5, 3, good().log[3])]),
        "before the previous version",
    ),
    "a torn commit": ("I3", lambda: with_log(good(), v1=good().log[1][:-20]), "is invalid"),
    "an empty commit": ("I3", lambda: with_log(good(), v1=b""), "is empty"),
    "half a commit, at a line's end": (
        "I3",
        lambda: good(log={**good().log, 3: commit(info("o3"), remove("a"))}, sightings=[], reads=[]),
        "no writer sent",
    ),
    "a commit that was torn when seen": (
        "I3",
        lambda: good(sightings=[Sighting(0.5, 0, good().log[0][:-5])]),
        "a reader saw",
    ),
    "invalid UTF-8": ("I3", lambda: with_log(good(), v1=b'{"add":"\xff"}'), "is invalid"),
    "two actions in a line": (
        "I3",
        lambda: with_log(good(), v1=json.dumps({**info("o1"), **add("b")}).encode()),
        "not a single action",
    ),
    "a key twice": ("I3", lambda: with_log(good(), v1=b'{"add":{"path":"b","path":"c"}}'), "duplicate"),
    "two commitInfos": ("I3", lambda: with_log(good(), v1=commit(info("o1"), info("o1"), add("b"))), "more than one"),
    "an unknown action": ("I3", lambda: with_log(good(), v1=commit(info("o1"), {"ad": {}})), "not a known action"),
    "an acknowledged commit is lost": (
        "I4",
        lambda: good(operations=[*good().operations, operation("o9", 4)]),
        "not in the log",
    ),
    "acknowledged as another version": ("I4", lambda: changed(good(), o1={"version": 2}), "but it is in"),
    "acknowledged with another txnId": ("I4", lambda: changed(good(), o1={"txn_id": "other"}), "got txnId"),
    "acknowledged with another time": ("I4", lambda: changed(timed(), o3={"ict_ms": 1}), "in-commit timestamp"),
    "an added file is lost": ("I4", lambda: changed(good(), o1={"adds": ["b", "e"]}), "adds"),
    "a removed file is kept": ("I4", lambda: changed(good(), o3={"removes": ["a", "b"]}), "removes"),
    "a data file does not exist": ("I4", lambda: good(data_files=frozenset("abd")), "does not exist"),
    "a later operation has an earlier version": (
        "I4",
        lambda: changed(good(), o1={"invoked": 6.5, "returned": 7}),
        "was acknowledged",
    ),
    "reported as failed, but there": ("I5", lambda: changed(good(), o1={"outcome": "failed"}), "reported as failed"),
    "a commit of nobody": ("I5", lambda: good(operations=good().operations[:3]), "no known operation"),
    "a txnId twice": ("I6", lambda: with_log(good(), v4=DUPLICATE), "txnId txn-o1 is in versions"),
    "an operation twice": ("I6", lambda: with_log(good(), v4=OPERATION_TWICE), "o1 is in versions"),
    "an unknown operation twice": (
        "I6",
        lambda: with_log(changed(good(), o1={"outcome": "unknown"}), v4=OPERATION_TWICE),
        "is in versions",
    ),
    "no txnId": (
        "I6",
        lambda: with_log(good(), v1=commit({"commitInfo": {"userMetadata": "o1"}}, add("b"))),
        "no txnId",
    ),
    "another txnId at each attempt": (
        "I6",
        lambda: good(attempts=[*good().attempts, Attempt(4.2, "w2", 1, commit(info("o2", "txn-x"), add("c")))]),
        "different txnIds",
    ),
    "leaves a free version": (
        "I7",
        lambda: good(
            attempts=[*good().attempts, Attempt(3, "w1", 2, good().log[1]), Attempt(2, "w1", 1, good().log[1])]
        ),
        "while version 1 was free",
    ),
    "leaves its own version": (
        "I7",
        lambda: good(attempts=[*good().attempts, Attempt(6, "w1", 2, good().log[1])]),
        "before it was known",
    ),
    "timestamps stand still": (
        "I8",
        lambda: timed(log={3: commit(info("o3", ict=1003), add("b"))}),
        "is not after 1003",
    ),
    "timestamps go back": ("I8", lambda: timed(log={4: commit(info("o4", ict=1000), add("c"))}), "is not after 1004"),
    "no timestamp": ("I8", lambda: timed(log={3: commit(info("o3"), add("b"))}), "no in-commit timestamp"),
    "a timestamp that is text": (
        "I8",
        lambda: timed(log={3: commit(info("o3", ict="1004"), add("b"))}),
        "no in-commit timestamp",
    ),
    "commitInfo is not first": ("I8", lambda: timed(log={3: INFO_LATE}), "not the first action"),
    "a timestamp while they are off": (
        "I8",
        lambda: timed(log={1: commit(info("o1", ict=5), add("a"))}),
        "although they are off",
    ),
    "the pair names another version": (
        "I8",
        lambda: timed(
            log={2: commit(info("o2", ict=1003), WITH_ICT, settings({ENABLE: "true", PAIR[0]: "1", PAIR[1]: "1003"}))}
        ),
        "with the pair",
    ),
    "the pair names another time": (
        "I8",
        lambda: timed(
            log={2: commit(info("o2", ict=1003), WITH_ICT, settings({ENABLE: "true", PAIR[0]: "2", PAIR[1]: "1002"}))}
        ),
        "with the pair",
    ),
    "half a pair": (
        "I8",
        lambda: timed(log={2: commit(info("o2", ict=1003), WITH_ICT, settings({ENABLE: "true", PAIR[0]: "2"}))}),
        "with the pair",
    ),
    "the pair is no text": (
        "I8",
        lambda: timed(
            log={2: commit(info("o2", ict=1003), WITH_ICT, settings({ENABLE: "true", PAIR[0]: 2, PAIR[1]: 1003}))}
        ),
        "with the pair",
    ),
    "a pair at version 0": (
        "I8",
        lambda: History(
            {0: commit(info("o0", ict=5), WITH_ICT, settings({ENABLE: "true", PAIR[0]: "0", PAIR[1]: "5"}))},
            exact=False,
        ),
        "version 0 has",
    ),
    "the pair changes later": (
        "I8",
        lambda: timed(
            log={4: commit(info("o4", ict=5000), settings({ENABLE: "true", PAIR[0]: "4", PAIR[1]: "5000"}), add("c"))}
        ),
        "changes the enablement pair",
    ),
    "the pair stays when they are off": (
        "I8",
        lambda: timed(
            log={4: commit(info("o4"), settings({ENABLE: "false", PAIR[0]: "2", PAIR[1]: "1003"}), add("c"))}
        ),
        "although in-commit timestamps are off",
    ),
    "enabled before the file times": (
        "I8",
        lambda: timed(modification_times_ms={0: 1001, 1: 1003}),
        "not after the earlier file times",
    ),
    "enabled before a time that was made to increase": (
        "I8",
        lambda: timed(modification_times_ms={0: 1002, 1: 500}),
        "not after the earlier file times",
    ),
    "a timestamp out of the air": (
        "I8",
        lambda: timed(log={4: commit(info("o4", ict=4999), add("c"))}),
        "no reading of the clock",
    ),
    "an application goes back": (
        "I9",
        lambda: with_log(
            good(), v1=commit(info("o1"), add("b"), app("a", 5)), v2=commit(info("o2"), add("c"), app("a", 5))
        ),
        "application 'a' goes from 5 to 5",
    ),
    "removes what is not live": (
        "I10",
        lambda: with_log(good(), v2=commit(info("o2"), add("c"), remove("z"))),
        "removes z",
    ),
    "removes twice": ("I10", lambda: with_log(good(), v2=commit(info("o2"), add("c"), remove("a"))), "removes a"),
    "adds what is live": ("I10", lambda: with_log(good(), v2=commit(info("o2"), add("c"), add("b"))), "adds b"),
    "adds twice in one commit": (
        "I10",
        lambda: with_log(good(), v2=commit(info("o2"), add("c"), add("c"))),
        "same file",
    ),
    "an overwrite leaves files": (
        "I11",
        lambda: changed(good(), o3={"removes": None, "removes_all": True}),
        "leaves ['b', 'c']",
    ),
    "a property is lost": (
        "I12",
        lambda: with_log(
            changed(good(), o1={"properties": {"x": "1"}}, o2={"properties": {"y": "1"}}),
            v1=commit(info("o1"), add("b"), metadata(x="1")),
            v2=commit(info("o2"), add("c"), metadata(y="1")),
        ),
        "properties ['x']",
    ),
    "a property is not set": ("I12", lambda: changed(good(), o1={"properties": {"x": "1"}}), "properties ['x']"),
    "the schema changes": (
        "I12",
        lambda: with_log(
            good(), v1=commit(info("o1"), add("b"), {"metaData": {**metadata()["metaData"], "schemaString": "[]"}})
        ),
        "metaData.schemaString",
    ),
    "the protocol changes": (
        "I12",
        lambda: with_log(good(), v1=commit(info("o1"), add("b"), WITH_ICT)),
        "the protocol",
    ),
    "a feature is dropped": (
        "I12",
        lambda: timed(log={4: commit(info("o4"), PLAIN, settings({}), add("c"))}),
        "drops the features",
    ),
    "no protocol": ("I12", lambda: History({0: commit(info("o0"), metadata())}, exact=False), "no protocol"),
    "a read misses a file": (
        "I14",
        lambda: good(reads=[Read("r", 9, 9, 3, frozenset("bc"))]),
        "read files that differ",
    ),
    "a read sees too much": (
        "I14",
        lambda: good(reads=[Read("r", 9, 9, 3, frozenset("abcd"))]),
        "read files that differ",
    ),
    "a read of nothing": ("I14", lambda: good(reads=[Read("r", 9, 9, 7, frozenset())]), "not in the log"),
    "a stale read": ("I14", lambda: good(reads=[Read("r", 9, 9, 2, frozenset("abc"))]), "was acknowledged"),
    "a stale handle": ("I14", lambda: good(reads=[Read("r", 9, 9, 2, is_opened=True)]), "was acknowledged"),
    "a reader goes back": (
        "I14",
        lambda: good(reads=[Read("r", 5.5, 6, 2, frozenset("abc")), Read("r", 5.7, 6, 1, frozenset("ab"))]),
        "had read version 2",
    ),
    "a read with another time": (
        "I14",
        lambda: timed(reads=[Read("r", 9, 9, 4, None, 4999)]),
        "in-commit timestamp 4999",
    ),
    "a read with other properties": (
        "I14",
        lambda: good(reads=[Read("r", 9, 9, 3, None, None, {"x": "1"})]),
        "read properties that differ",
    ),
    "an error that nobody declared": (
        "I16",
        lambda: changed(good(), o1={"outcome": "crashed", "error": "KeyError: 'x'"}),
        "KeyError",
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_finds(name):
    invariant, history, words = BAD[name]
    violations = check(history())
    assert any(v.invariant == invariant and words in v.message for v in violations), violations


def test_every_invariant_is_broken_once():
    assert {invariant for invariant, _, _ in BAD.values()} == {f"I{n}" for n in (*range(1, 13), 14, 16)}


@pytest.mark.parametrize("outcome", ["unknown", "killed"])
def test_what_is_unknown_may_be_there_or_not(outcome):
    there = changed(good(), o1={"outcome": outcome, "version": None, "returned": None})
    assert check(there) == []
    absent = good(operations=[*good().operations, operation("o9", None, outcome)])
    assert check(absent) == []


def test_what_failed_may_be_absent():
    assert check(good(operations=[*good().operations, operation("o9", None, "failed")])) == []


def test_a_file_may_come_back():
    log = {**good().log, 4: commit(info("o4"), add("a")), 5: commit(info("o5"), remove("a"), add("a"))}
    assert check(History(log, exact=False)) == []


def test_a_deletion_vector_makes_another_file():
    vector = {"storageType": "u", "pathOrInlineDv": "x", "offset": 1}
    with_vector = {"add": {**add("a")["add"], "deletionVector": vector}}
    assert check(History({**good().log, 4: commit(info("o4"), remove("b"), with_vector)}, exact=False)) == []
    found = fold(check(History({**good().log, 4: commit(info("o4"), {"remove": with_vector["add"]})}, exact=False)))
    assert found == {"I10": 1}


def test_operations_survive_a_file():
    for each in [*good().operations, *timed().operations]:
        assert Operation.from_json(each.to_json()) == each
        assert "\n" not in each.to_json()


def test_a_commit_without_a_last_newline_is_whole():
    assert len(parse_commit(1, good().log[1].rstrip(b"\n")).actions) == 2
