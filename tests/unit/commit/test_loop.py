"""The commit loop, and the in-commit timestamp rules for writers."""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

from deltalog import CommitStateUnknownError, DeltaTable, RetryPolicy, StoreError
from deltalog.errors import (
    ClockDriftWarning,
    CommitAttemptsExhaustedError,
    InvalidCommitError,
    MetadataChangedError,
    MissingInCommitTimestampError,
    ProtocolChangedError,
)
from deltalog.log.reader import LogReader
from deltalog.protocol.paths import commit_path
from deltalog.storage import LogStore
from deltalog.storage.memory import MemoryStore
from deltalog.testing.stores import CountingStore, Fault, FaultyStore, nth
from deltalog.write.input_streams import as_reader
from tests.support.core import (
    ICT,
    NOW,
    SCHEMA,
    TIMESTAMP_KEY,
    VERSION_KEY,
    Clock,
    action,
    add_action,
    configuration,
    environment,
    ids,
    info,
    info_action,
    lines,
    memory,
    metadata_action,
    objects,
    overtaken,
    pair,
    protocol_action,
    put_commit,
    rows,
)


def create(store: LogStore, clock: Clock, *, ict: bool = True) -> DeltaTable:
    return DeltaTable.create(store, SCHEMA, properties=ICT if ict else {}, environment=environment(clock))


def icts(store: LogStore) -> list[int | None]:
    """The in-commit timestamp of every commit."""
    return [info(store, v).get("inCommitTimestamp") for v in LogReader(store).list_from().commits]


def rival(store: LogStore, clock: Clock, act: Callable[[DeltaTable], object]) -> Callable[[], object]:
    """Another writer of the same table, with its own clock."""
    return lambda: act(DeltaTable.open(store, environment=environment(clock)))


# --------------------------------------------------------------------------------------- what a commit looks like


def test_commit_info_comes_first_and_its_times_agree() -> None:
    clock = Clock()
    store = memory(clock)
    table = create(store, clock)
    clock.now_ms += 5
    result = table.append(rows(1), user_metadata="because")
    body = info(store, 1)
    assert body["inCommitTimestamp"] == body["timestamp"] == NOW + 5
    assert (body["txnId"], body["readVersion"], body["operation"]) == (result.txn_id, 0, "WRITE")
    assert (body["isolationLevel"], body["isBlindAppend"], body["userMetadata"]) == ("Serializable", True, "because")
    assert all(isinstance(v, str) for v in {**body["operationParameters"], **body["operationMetrics"]}.values())
    assert (result.version, result.timestamp_ms, result.in_commit_timestamp_ms) == (1, NOW + 5, NOW + 5)
    assert result.attempts == 1 and not result.skipped
    assert next(iter(body)) == "inCommitTimestamp"
    assert store.get(commit_path(1)).endswith(b"}\n")


def test_without_in_commit_timestamps_there_is_none() -> None:
    clock = Clock()
    store = memory(clock)
    result = create(store, clock, ict=False).append(rows(1))
    assert "inCommitTimestamp" not in info(store, 1)
    assert result.in_commit_timestamp_ms is None and result.timestamp_ms == NOW


def test_every_transaction_has_an_id_of_its_own() -> None:
    clock = Clock()
    store = memory(clock)
    table = create(store, clock)
    found = {info(store, 0)["txnId"], *(table.append(rows(i)).txn_id for i in range(3))}
    assert len(found) == 4


# --------------------------------------------------------------------------------------------- enabling at 0


def test_enabled_at_version_0_there_is_no_pair_ever() -> None:
    clock = Clock()
    store = memory(clock)
    table = create(store, clock)
    assert action(store, 0, "protocol") == {
        "minReaderVersion": 1, "minWriterVersion": 7,
        "writerFeatures": action(store, 0, "protocol")["writerFeatures"],  # type: ignore[index]
    }  # fmt: skip
    assert "inCommitTimestamp" in action(store, 0, "protocol")["writerFeatures"]  # type: ignore[index]
    assert configuration(store, 0) == ICT
    assert info(store, 0)["inCommitTimestamp"] == NOW
    table.set_properties({"delta.appendOnly": "true"})
    assert pair(configuration(store, 1)) == (None, None)
    assert table.snapshot().enablement is None


def test_the_first_timestamp_is_the_clocks() -> None:
    clock = Clock(5)
    store = memory(clock)
    assert create(store, clock).snapshot().in_commit_timestamp_ms == 5


# ---------------------------------------------------------- enabling in-commit timestamps in an existing table


def test_enabled_later_the_pair_is_stamped_as_text() -> None:
    clock = Clock()
    store = memory(clock)
    table = create(store, clock, ict=False)
    table.append(rows(1))
    clock.now_ms += 100
    result = table.enable_in_commit_timestamps()
    assert result.version == 2 and result.in_commit_timestamp_ms == NOW + 100
    assert configuration(store, 2) == {**ICT, VERSION_KEY: "2", TIMESTAMP_KEY: str(NOW + 100)}
    assert info(store, 2)["inCommitTimestamp"] == info(store, 2)["timestamp"] == NOW + 100
    protocol = action(store, 2, "protocol")
    assert protocol is not None and protocol["minWriterVersion"] == 7 and protocol["minReaderVersion"] == 1
    assert sorted(protocol["writerFeatures"]) == ["appendOnly", "inCommitTimestamp", "invariants"]
    assert icts(store) == [None, None, NOW + 100]
    table.append(rows(2))
    assert icts(store)[-1] == NOW + 101 and action(store, 3, "metaData") is None
    enabled = table.snapshot().enablement
    assert enabled is not None and (enabled.version, enabled.timestamp_ms) == (2, NOW + 100)


@pytest.mark.parametrize("behind", [0, 1, 10**9])
def test_the_enabling_commit_is_later_than_every_file_time_before_it(behind: int) -> None:
    """The timestamp must also be later than the file times of earlier versions, after readers have adjusted these times
    to be strictly increasing."""
    clock, files = Clock(), Clock()
    store = memory(files)
    table = create(store, clock, ict=False)
    for i in range(3):
        table.append(rows(i))  # four commits within one millisecond: readers see NOW … NOW + 3
    clock.now_ms = NOW - behind
    result = table.enable_in_commit_timestamps()
    assert result.in_commit_timestamp_ms == NOW + 4
    assert [e.timestamp_ms for e in table.history()] == [NOW + 4, NOW + 3, NOW + 2, NOW + 1, NOW]
    assert table.version_at(NOW + 3).version == 3


def test_enabling_by_property_is_the_same() -> None:
    clock = Clock()
    store = memory(clock)
    table = create(store, clock, ict=False)
    table.set_properties({"delta.enableInCommitTimestamps": "true", "delta.appendOnly": "true"})
    assert configuration(store, 1) == {
        **ICT, "delta.appendOnly": "true", VERSION_KEY: "1", TIMESTAMP_KEY: str(NOW + 1),
    }  # fmt: skip


def test_enabling_twice_commits_once() -> None:
    clock = Clock()
    store = memory(clock)
    table = create(store, clock, ict=False)
    first, second = table.enable_in_commit_timestamps(), table.enable_in_commit_timestamps()
    assert (first.skipped, second.skipped, second.version, second.attempts) == (False, True, 1, 0)
    assert LogReader(store).list_from().commits == (0, 1)


def test_later_changes_of_properties_keep_the_pair() -> None:
    clock = Clock()
    store = memory(clock)
    table = create(store, clock, ict=False)
    table.enable_in_commit_timestamps()
    stamped = pair(configuration(store, 1))
    table.set_properties({"delta.appendOnly": "true"})
    table.unset_properties(["delta.appendOnly"])
    table.overwrite(rows(1).append_column("x", [[1]]), overwrite_schema=True)
    assert [pair(configuration(store, v)) for v in (2, 3, 4)] == [stamped] * 3
    assert all(ict is not None for ict in icts(store)[1:])


# ---------------------------------------------------------------------------------------------- disabling


def test_disabling_takes_the_pair_away_and_carries_no_timestamp() -> None:
    clock = Clock()
    store = memory(clock)
    table = create(store, clock, ict=False)
    table.enable_in_commit_timestamps()
    result = table.disable_in_commit_timestamps()
    assert result.in_commit_timestamp_ms is None
    assert configuration(store, 2) == {"delta.enableInCommitTimestamps": "false"}
    assert "inCommitTimestamp" not in info(store, 2)
    table.append(rows(1))
    assert "inCommitTimestamp" not in info(store, 3)
    assert "inCommitTimestamp" in (table.snapshot().protocol.writer_features or ())  # features are never dropped
    assert table.disable_in_commit_timestamps().skipped


def test_disabling_by_unsetting_the_property() -> None:
    clock = Clock()
    store = memory(clock)
    table = create(store, clock, ict=False)
    table.enable_in_commit_timestamps()
    table.unset_properties(["delta.enableInCommitTimestamps"])
    assert configuration(store, 2) == {} and "inCommitTimestamp" not in info(store, 2)


def test_enabling_again_stamps_a_new_pair() -> None:
    clock = Clock()
    store = memory(clock)
    table = create(store, clock)
    table.disable_in_commit_timestamps()
    table.append(rows(1))
    clock.now_ms += 1000
    table.enable_in_commit_timestamps()
    assert pair(configuration(store, 3)) == ("3", str(NOW + 1000))
    table.disable_in_commit_timestamps()
    clock.now_ms -= 5000  # the new timestamp must also be later than the file times
    result = table.enable_in_commit_timestamps()
    assert pair(configuration(store, 5)) == ("5", str(result.in_commit_timestamp_ms))
    assert result.in_commit_timestamp_ms == NOW + 1002  # versions 3 and 4 were both stored at NOW + 1000


# ------------------------------------------------------------------------------------- monotonic timestamps


def test_timestamps_increase_whatever_the_clock_does() -> None:
    clock = Clock()
    store = memory(clock)
    table = create(store, clock)
    shown = [NOW, NOW, NOW - 10, NOW + 50, NOW + 49, 0, -(10**12), NOW + 10**7, NOW + 60, NOW + 10**7 + 5]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ClockDriftWarning)
        for i, now in enumerate(shown):
            clock.now_ms = now
            table.append(rows(i))
    assert icts(store) == [
        NOW, NOW + 1, NOW + 2, NOW + 3, NOW + 50, NOW + 51, NOW + 52, NOW + 53,
        NOW + 10**7, NOW + 10**7 + 1, NOW + 10**7 + 5,
    ]  # fmt: skip
    assert all(info(store, v)["timestamp"] == ict for v, ict in enumerate(icts(store)))


def test_a_table_far_ahead_of_the_clock_is_reported_and_written() -> None:
    clock = Clock()
    store = memory(clock)
    table = create(store, clock)
    clock.now_ms = NOW - 3_600_000
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        table.append(rows(1))  # an hour ahead is within the limit, and the commit adds 1 ms
    clock.now_ms = NOW - 3_600_000
    with pytest.warns(ClockDriftWarning, match=r"version 1 is 3600001 ms ahead of this machine's clock") as caught:
        result = table.append(rows(2))
    assert store.url in str(caught[0].message)
    assert result.in_commit_timestamp_ms == NOW + 2


def test_the_limit_of_the_drift_can_be_set() -> None:
    clock = Clock()
    store = memory(clock)
    create(store, clock)
    clock.now_ms -= 11
    strict = DeltaTable.open(store, environment=environment(clock, drift_warning_ms=10))
    with pytest.warns(ClockDriftWarning):
        strict.append(rows(1))


def test_drift_turned_into_an_error_leaves_nothing_behind() -> None:
    clock = Clock()
    store = memory(clock)
    table = create(store, clock)
    before = objects(store)
    clock.now_ms = 0
    with warnings.catch_warnings():
        warnings.simplefilter("error", ClockDriftWarning)
        with pytest.raises(ClockDriftWarning):
            table.append(rows(1))
    assert objects(store) == before


# -------------------------------------------------------------------------------------------- retries and rebases


def test_the_timestamp_is_made_anew_for_every_attempt() -> None:
    clock, other = Clock(), Clock()
    store = memory()
    create(store, clock)

    def first(table: DeltaTable) -> None:
        other.now_ms = NOW + 50
        table.append(rows(1))
        clock.now_ms = NOW + 20  # time passes while the other writer commits

    def second(table: DeltaTable) -> None:
        other.now_ms = NOW + 60
        table.append(rows(2))
        clock.now_ms = NOW + 500

    mine = overtaken(store, rival(store, other, first), rival(store, other, second))
    result = DeltaTable.open(mine, environment=environment(clock)).append(rows(3))
    assert (result.version, result.attempts, result.in_commit_timestamp_ms) == (3, 3, NOW + 500)
    tried = [json.loads(put.data.splitlines()[0])["commitInfo"] for put in mine.puts if put.call.path.endswith(".json")]
    assert [body["inCommitTimestamp"] for body in tried] == [NOW + 1, NOW + 51, NOW + 500]
    assert [body["readVersion"] for body in tried] == [0, 1, 2]
    assert len({body["txnId"] for body in tried}) == 1
    assert icts(store) == [NOW, NOW + 50, NOW + 60, NOW + 500]


def test_a_winner_ahead_of_our_clock_is_passed_by_one() -> None:
    clock, other = Clock(), Clock(NOW + 900)
    store = memory()
    create(store, clock)
    mine = overtaken(store, rival(store, other, lambda t: t.append(rows(1))))
    result = DeltaTable.open(mine, environment=environment(clock)).append(rows(2))
    assert result.in_commit_timestamp_ms == NOW + 901


@pytest.mark.parametrize("winners", [1, 2, 5])
def test_an_enabling_commit_that_is_rebased_is_stamped_anew(winners: int) -> None:
    clock, other = Clock(), Clock()
    files = Clock()
    store = memory(files)
    create(store, clock, ict=False)

    def append(table: DeltaTable) -> None:
        files.now_ms += 1000
        table.append(rows(1))

    mine = overtaken(store, *[rival(store, other, append)] * winners)
    result = DeltaTable.open(mine, environment=environment(clock)).enable_in_commit_timestamps()
    assert result.version == winners + 1
    assert result.in_commit_timestamp_ms == NOW + 1000 * winners + 1  # after the file time of the last winning commit
    assert pair(configuration(store, result.version)) == (str(result.version), str(result.in_commit_timestamp_ms))
    table = DeltaTable.open(store)
    enabled = table.snapshot().enablement
    assert enabled is not None and enabled.version == result.version
    assert [e.clock for e in table.history()] == ["in-commit", *["file-modification"] * (winners + 1)]


def test_an_enabling_commit_passes_winners_within_one_millisecond() -> None:
    """The winning commits have equal file times, which readers adjust to be strictly increasing."""
    clock = Clock()
    store = memory(clock)
    create(store, clock, ict=False)
    append = rival(store, clock, lambda t: t.append(rows(1)))
    mine = overtaken(store, append, append, append)
    result = DeltaTable.open(mine, environment=environment(clock)).enable_in_commit_timestamps()
    assert result.version == 4 and result.in_commit_timestamp_ms == NOW + 4


def test_an_append_adopts_the_timestamps_that_a_winner_enabled() -> None:
    clock, other = Clock(), Clock(NOW + 100)
    store = memory()
    create(store, clock, ict=False)
    mine = overtaken(store, rival(store, other, lambda t: t.enable_in_commit_timestamps()))
    result = DeltaTable.open(mine, environment=environment(clock)).append(rows(1))
    assert (result.version, result.in_commit_timestamp_ms) == (2, NOW + 101)
    assert info(store, 2)["inCommitTimestamp"] == NOW + 101
    assert action(store, 2, "metaData") is None and action(store, 2, "protocol") is None
    table = DeltaTable.open(store)
    enabled = table.snapshot().enablement
    assert enabled is not None and enabled.version == 1
    assert table.version_at(NOW + 101).version == 2


def test_an_append_goes_on_adopting_over_several_winners() -> None:
    clock, other = Clock(), Clock(NOW + 100)
    store = memory()
    create(store, clock, ict=False)
    mine = overtaken(
        store,
        rival(store, other, lambda t: t.enable_in_commit_timestamps()),
        rival(store, other, lambda t: t.append(rows(7))),
    )
    table = DeltaTable.open(mine, environment=environment(clock))
    result = table.append(rows(1))
    assert (result.version, result.in_commit_timestamp_ms) == (3, NOW + 102)
    assert table.append(rows(2)).in_commit_timestamp_ms == NOW + 103
    assert ids(DeltaTable.open(store)) == [1, 2, 7]


def test_two_that_enable_at_once() -> None:
    clock = Clock()
    store = memory()
    create(store, clock, ict=False)
    mine = overtaken(store, rival(store, clock, lambda t: t.enable_in_commit_timestamps()))
    with pytest.raises(ProtocolChangedError) as caught:
        DeltaTable.open(mine, environment=environment(clock)).enable_in_commit_timestamps()
    assert caught.value.winning_version == 1
    assert LogReader(store).list_from().commits == (0, 1)


def test_a_winner_that_disabled_is_a_conflict() -> None:
    clock = Clock()
    store = memory()
    create(store, clock)
    mine = overtaken(store, rival(store, clock, lambda t: t.disable_in_commit_timestamps()))
    before = set(objects(store))
    with (
        DeltaTable.open(mine, environment=environment(clock)).transaction() as transaction,
        pytest.raises(MetadataChangedError, match=r"delta\.enableInCommitTimestamps from true to false"),
    ):
        transaction.write(as_reader(rows(1)))
        transaction.commit()
    assert set(objects(store)) - before == {commit_path(1), commit_path(1).replace("json", "crc")}


@pytest.mark.parametrize(
    ("change", "error"),
    [
        (lambda t: t.disable_in_commit_timestamps(), None),
        (lambda t: t.set_properties({"delta.enableChangeDataFeed": "true"}), None),
        (lambda t: t.append(rows(7).append_column("new", pa.array([1])), merge_schema=True), None),
        (lambda t: t.overwrite(pa.table({"y": [1]}), overwrite_schema=True), MetadataChangedError),
    ],
)
def test_an_append_is_planned_again_when_its_files_still_fit(change: Any, error: type[Exception] | None) -> None:
    clock = Clock()
    store = memory()
    create(store, clock)
    mine = CountingStore(overtaken(store, rival(store, clock, change)))
    table = DeltaTable.open(mine, environment=environment(clock))
    with mine.counted() as calls:
        if error is not None:
            with pytest.raises(error):
                table.append(rows(1))
            return
        result = table.append(rows(1))
    assert calls.of("open_output") == 1  # the rows are written once
    snapshot = DeltaTable.open(store).snapshot()
    assert (result.version, snapshot.version) == (2, 2)
    assert (result.in_commit_timestamp_ms is None) == (not snapshot.in_commit_timestamps_enabled)
    assert rows(1)["id"][0].as_py() in snapshot.scan(["id"]).to_arrow()["id"].to_pylist()


def test_a_disabling_commit_that_is_rebased_stays_without_a_pair() -> None:
    clock = Clock()
    store = memory()
    create(store, clock, ict=False).enable_in_commit_timestamps()
    mine = overtaken(store, rival(store, clock, lambda t: t.append(rows(1))))
    result = DeltaTable.open(mine, environment=environment(clock)).disable_in_commit_timestamps()
    assert result.version == 3 and result.in_commit_timestamp_ms is None
    assert pair(configuration(store, 3)) == (None, None)


def test_another_property_that_is_rebased_keeps_the_old_pair() -> None:
    clock = Clock()
    store = memory()
    create(store, clock, ict=False).enable_in_commit_timestamps()
    stamped = pair(configuration(store, 1))
    mine = overtaken(store, rival(store, clock, lambda t: t.append(rows(1))))
    DeltaTable.open(mine, environment=environment(clock)).set_properties({"delta.appendOnly": "true"})
    assert pair(configuration(store, 3)) == stamped


@pytest.mark.parametrize("body", [None, {}, {"inCommitTimestamp": "x"}])
def test_a_winner_that_should_carry_a_timestamp_and_does_not(body: dict[str, Any] | None) -> None:
    """The file time of the winning commit is not used instead of its missing in-commit timestamp, and the files written
    for our commit are deleted."""
    clock = Clock()
    store = memory()
    create(store, clock)
    broken = [] if body is None else [{"commitInfo": body}]
    mine = overtaken(store, lambda: put_commit(store, 1, *broken, add_action("a")))
    before = set(objects(store))
    with pytest.raises(MissingInCommitTimestampError, match="version 1") as caught:
        DeltaTable.open(mine, environment=environment(clock)).append(rows(1))
    assert caught.value.version == 1
    assert set(objects(store)) - before == {commit_path(1)}


def test_a_base_that_should_carry_a_timestamp_and_does_not() -> None:
    store = memory()
    put_commit(store, 0, info_action(None), protocol_action("inCommitTimestamp"), metadata_action(ICT))
    before = set(objects(store))
    with pytest.raises(MissingInCommitTimestampError, match="version 0"):
        DeltaTable.open(store, environment=environment()).append(rows(1))
    assert set(objects(store)) == before


# --------------------------------------------------------------- odd combinations of version, feature and property


def test_the_property_without_the_feature_writes_no_timestamp() -> None:
    store = memory()
    put_commit(store, 0, info_action(), protocol_action(), metadata_action(ICT))
    table = DeltaTable.open(store, environment=environment())
    table.append(rows(1))
    assert "inCommitTimestamp" not in info(store, 1)
    assert action(store, 1, "protocol") is None
    result = table.enable_in_commit_timestamps()
    assert result.version == 2 and not result.skipped
    assert pair(configuration(store, 2)) == ("2", str(result.in_commit_timestamp_ms))
    assert "inCommitTimestamp" in action(store, 2, "protocol")["writerFeatures"]  # type: ignore[index]


def test_the_feature_without_the_property_writes_no_timestamp() -> None:
    store = memory()
    put_commit(store, 0, info_action(), protocol_action("inCommitTimestamp"), metadata_action())
    table = DeltaTable.open(store, environment=environment())
    table.append(rows(1))
    assert "inCommitTimestamp" not in info(store, 1)
    table.enable_in_commit_timestamps()
    assert action(store, 2, "protocol") is None and pair(configuration(store, 2))[0] == "2"


def test_a_stale_pair_is_replaced_when_they_are_enabled() -> None:
    """delta-spark keeps the enablement properties when it disables in-commit timestamps."""
    store = memory()
    stale = {"delta.enableInCommitTimestamps": "false", VERSION_KEY: "0", TIMESTAMP_KEY: "5"}
    put_commit(store, 0, info_action(), protocol_action("inCommitTimestamp"), metadata_action(stale))
    table = DeltaTable.open(store, environment=environment())
    table.append(rows(1))
    result = table.enable_in_commit_timestamps()
    assert pair(configuration(store, 2)) == ("2", str(result.in_commit_timestamp_ms))


def test_the_largest_timestamp_is_not_passed() -> None:
    """An in-commit timestamp cannot exceed 2^63 - 1, so no commit can follow one with this timestamp: a commit with an
    overflowing timestamp could not be read."""
    store = memory()
    put_commit(store, 0, info_action(2**63 - 1), protocol_action("inCommitTimestamp"), metadata_action(ICT))
    table = DeltaTable.open(store, environment=environment())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ClockDriftWarning)
        try:
            table.append(rows(1))
        except Exception as error:
            from deltalog import DeltaLogError

            assert isinstance(error, DeltaLogError)
    assert DeltaTable.open(store).snapshot().in_commit_timestamp_ms is not None


# ------------------------------------------------------------------------------- resolving unknown outcomes


@pytest.mark.parametrize("fault", [Fault.LOST_ACK, Fault.OWN_EXISTS, Fault.UNKNOWN_NOT_WRITTEN, Fault.LATE])
@pytest.mark.parametrize("ict", [True, False])
def test_an_answer_that_is_lost_makes_one_commit(fault: Fault, ict: bool) -> None:
    clock = Clock()
    inner = memory()
    create(inner, clock, ict=ict)
    store = FaultyStore(inner, nth(1, fault, method="put_if_absent", path="*.json"))
    result = DeltaTable.open(store, environment=environment(clock)).append(rows(1))
    store.land()
    assert store.injected[fault] == 1
    assert (result.version, result.attempts) == (1, 1)
    assert LogReader(inner).list_from().commits == (0, 1)
    assert ids(DeltaTable.open(inner)) == [1]
    tried = {put.data for put in store.puts if put.call.path == commit_path(1)}
    assert len(tried) == 1  # each attempt writes the same bytes, although the clock has advanced


def test_an_unknown_outcome_that_another_writer_settles() -> None:
    clock = Clock()
    inner = memory()
    create(inner, clock)
    seen = list[Any]()

    def decide(call: Any) -> Fault | None:
        if call.method == "put_if_absent" and call.path == commit_path(1) and not seen:
            seen.append(call)
            DeltaTable.open(inner, environment=environment(clock)).append(rows(7))
            return Fault.LOST_ACK  # the outcome was UNKNOWN; the rival has created the version
        return None

    result = DeltaTable.open(FaultyStore(inner, decide), environment=environment(clock)).append(rows(1))
    assert (result.version, result.attempts) == (2, 2)
    assert ids(DeltaTable.open(inner)) == [1, 7]


class Silent(MemoryStore):
    """A store that does not answer calls for commits once ``deaf`` is set."""

    deaf = False

    def put_if_absent(self, path: str, data: bytes) -> Any:
        outcome = super().put_if_absent(path, data)
        if path.endswith("0001.json"):
            self.deaf = True
            from deltalog.storage.base import PutOutcome

            return PutOutcome.UNKNOWN
        return outcome

    def get(self, path: str, length: int | None = None) -> bytes:
        if self.deaf and path.endswith("0001.json"):
            raise StoreError("no answer", path=path)
        return super().get(path, length)


def test_what_cannot_be_settled_is_told_and_deletes_nothing() -> None:
    clock = Clock()
    store = Silent("memory://silent")
    table = create(store, clock)
    with pytest.raises(CommitStateUnknownError, match=r"version 1.*call resolve\(\)|Call resolve\(\)") as caught:
        table.append(rows(1))
    error = caught.value
    assert error.version == 1 and error.txn_id in str(error)
    assert len([path for path in objects(store) if path.endswith(".parquet")]) == 1
    with pytest.raises(StoreError):
        error.resolve()
    store.deaf = False
    resolved = error.resolve()
    assert resolved is not None and (resolved.version, resolved.txn_id) == (1, error.txn_id)
    assert ids(DeltaTable.open(store)) == [1]


def test_resolving_finds_another_writers_commit_or_none() -> None:
    clock = Clock()
    store = Silent("memory://silent-2")
    table = create(store, clock)
    with pytest.raises(CommitStateUnknownError) as caught:
        table.append(rows(1))
    store.deaf = False
    store.delete(commit_path(1))
    assert caught.value.resolve() is None
    put_commit(store, 1, info_action(NOW + 5, txnId="other"))
    assert caught.value.resolve() is None


def test_attempts_end() -> None:
    clock = Clock()
    store = memory()
    create(store, clock)
    append = rival(store, clock, lambda t: t.append(rows(1)))
    mine = overtaken(store, *[append] * 10)
    table = DeltaTable.open(mine, environment=environment(clock, retry=RetryPolicy(max_attempts=3)))
    before = set(objects(store))
    with pytest.raises(CommitAttemptsExhaustedError, match="3 versions in a row"):
        table.append(rows(2))
    assert ids(DeltaTable.open(store)) == [1, 1, 1]
    new_data = [path for path in set(objects(store)) - before if path.endswith(".parquet")]
    assert len(new_data) == 3  # only the rivals' files remain; ours were deleted


def test_a_torn_winner_is_named() -> None:
    clock = Clock()
    store = memory()
    create(store, clock)
    mine = overtaken(store, lambda: store.put(commit_path(1), b'{"commitInfo":{"inCommi'))
    before = set(objects(store))
    with pytest.raises(InvalidCommitError, match=r"00000000000000000001\.json"):
        DeltaTable.open(mine, environment=environment(clock)).append(rows(1))
    assert set(objects(store)) - before == {commit_path(1)}


def test_waiting_grows_and_is_random() -> None:
    clock = Clock()
    store = memory()
    create(store, clock)
    append = rival(store, clock, lambda t: t.append(rows(1)))
    slept: list[float] = []
    retry = RetryPolicy(immediate=1, retry_base_delay_ms=10, retry_max_delay_ms=50, race_max_delay_ms=50)
    table = DeltaTable.open(
        overtaken(store, *[append] * 6),
        environment=environment(clock, sleep=slept.append, random=lambda: 1.0, retry=retry),
    )
    assert table.append(rows(2)).attempts == 7
    assert slept == sorted(slept) and max(slept) == 0.05 and len(slept) >= 3


def test_who_lost_many_races_waits_no_longer_than_others_and_looks_after_the_wait() -> None:
    clock = Clock()
    store = memory()
    create(store, clock)
    append = rival(store, clock, lambda t: t.append(rows(1)))
    waits: list[float] = []

    def sleep(seconds: float) -> None:
        waits.append(seconds)
        append()  # commits that other writers make during the wait do not cause another attempt

    table = DeltaTable.open(
        overtaken(store, *[append] * 6), environment=environment(clock, sleep=sleep, random=lambda: 1.0)
    )
    result = table.append(rows(2))
    assert len(waits) >= 4 and set(waits) == {0.005}
    assert (result.attempts, result.version) == (7, 6 + len(waits) + 1)


# ------------------------------------------------------------------------------------------------ the costs


def test_the_cost_of_an_uncontended_commit_does_not_grow() -> None:
    clock = Clock()
    store = CountingStore(memory())
    table = create(store, clock)
    for i in range(25):
        with store.counted() as calls:
            table.append(rows(i))
        checkpoint = (i + 1) % 10 == 0
        assert calls.of("put_if_absent", "*.json") == 1 and calls.of("put", "*.crc") == 1
        assert calls.of("open_output") == 1 and calls.of("head") == 2 + 1 + 2 + 2 * checkpoint
        if not checkpoint:
            assert calls.of() == 8


def test_the_cost_of_a_lost_race() -> None:
    clock = Clock()
    store = memory()
    create(store, clock)
    append = rival(store, clock, lambda t: t.append(rows(1)))
    counting = CountingStore(overtaken(store, append))
    table = DeltaTable.open(counting, environment=environment(clock))
    with counting.counted() as calls:
        table.append(rows(2))
    assert calls.of("put_if_absent") == 2 and calls.of("get") == 1 and calls.of("list_from") == 0


def test_many_winners_are_passed_by_one_listing() -> None:
    clock = Clock()
    store = memory()
    create(store, clock)

    def burst() -> None:
        other = DeltaTable.open(store, environment=environment(clock))
        for i in range(30):
            other.append(rows(100 + i))

    counting = CountingStore(overtaken(store, burst))
    table = DeltaTable.open(counting, environment=environment(clock))
    with counting.counted() as calls:
        result = table.append(rows(1))
    assert result.version == 31 and result.attempts <= 3
    assert calls.of("list_from") <= 1
    assert lines(store, 31)
