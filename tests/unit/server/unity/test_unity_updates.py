"""updateTable: commits of other clients, and metadata in lockstep with the log, over HTTP."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from deltalog import TransactionManager
from tests.support.server import served
from tests.support.server.unity import COLUMNS, PROTOCOL, WRITER, Table, Unity, now_ms

INVALID = (400, "InvalidParameterValueException")
BAD = (400, "BadRequestException")
VERSION_CONFLICT = (409, "CommitVersionConflictException")
REQUIREMENT_CONFLICT = (409, "UpdateRequirementConflictException")


@pytest.fixture
def table(unity: Unity) -> Table:
    return unity.new_table()


def published(version: int) -> dict[str, Any]:
    return {"action": "set-latest-backfilled-version", "latest-published-version": version}


def set_properties(**updates: str) -> dict[str, Any]:
    return {"action": "set-properties", "updates": updates}


def remove_properties(*keys: str) -> dict[str, Any]:
    return {"action": "remove-properties", "removals": list(keys)}


def comment(text: str) -> dict[str, Any]:
    return {"action": "set-table-comment", "comment": text}


def info(table: Table) -> Any:
    return table.unity.ok("GET", f"/tables/main.s.{table.name}")


# ------------------------------------------------------------------------------------------------------ shape


@pytest.mark.parametrize(
    ("request_", "error"),
    [
        (b"", BAD),
        (b"[]", BAD),
        (b'{"requirements": 1, "updates": []}', BAD),
        ({"updates": [comment("x")]}, INVALID),
        ({"requirements": []}, INVALID),
        ({"requirements": [], "updates": [comment("x")]}, INVALID),
        ({"requirements": [{"type": "assert-etag", "etag": "x"}], "updates": [comment("x")]}, INVALID),
        ({"requirements": [{"type": "assert-table-uuid"}], "updates": [comment("x")]}, INVALID),
        ({"requirements": [{"type": "assert-nothing"}], "updates": [comment("x")]}, BAD),
    ],
)
def test_a_request_has_a_form(unity: Unity, table: Table, request_: Any, error: tuple[int, str]) -> None:
    assert unity.ask("POST", table.path, request_).error == error


@pytest.mark.parametrize(
    ("updates", "error"),
    [
        ([], INVALID),
        ([{"action": "set-everything"}], BAD),
        ([{"action": "add-commit"}], INVALID),
        ([comment("a"), comment("b")], INVALID),
        ([set_properties(x="1"), set_properties(y="1")], INVALID),
        ([set_properties(x="1"), remove_properties("x")], INVALID),
        ([published(-1)], INVALID),
        ([published(1)], INVALID),  # no such version
        ([set_properties(**{"delta.minReaderVersion": "3"})], INVALID),
        ([remove_properties("delta.feature.catalogManaged")], INVALID),
        ([set_properties(**{"delta.lastUpdateVersion": "9"})], INVALID),
        (
            [
                {"action": "set-domain-metadata", "updates": {"delta.clustering": {"clusteringColumns": []}}},
                {"action": "remove-domain-metadata", "domains": ["delta.clustering"]},
            ],
            INVALID,
        ),
        ([{"action": "update-metadata-snapshot-version", "last-commit-version": 1, "last-commit-timestamp-ms": 1}],
         INVALID),
    ],
)  # fmt: skip
def test_updates_have_rules(table: Table, updates: Any, error: tuple[int, str]) -> None:
    before = table.load()
    assert table.update(*updates).error == error
    assert table.load() == before


def test_a_request_has_all_its_effects_or_none(table: Table) -> None:
    add = table.stage()
    before = table.load()
    for updates in (
        (comment("x"), published(7)),
        (comment("x"), add, published(7)),
        (comment("x"), add, set_properties(y="1")),
        (comment("x" * 70_000), add),
        (set_properties(note="1"), remove_properties("delta.appendOnly")),
    ):
        assert table.update(*updates).error == INVALID
        assert table.load() == before
    assert table.update(comment("x"), add, published(0)).status == 200
    assert info(table)["comment"] == "x"


def test_a_requirement_is_given_once(unity: Unity, table: Table) -> None:
    requirement = {"type": "assert-table-uuid", "uuid": table.id}
    request = {"requirements": [requirement, requirement], "updates": [comment("x")]}
    assert unity.ask("POST", table.path, request).error == INVALID


def test_the_order_has_no_meaning(unity: Unity, table: Table) -> None:
    etag = table.load()["metadata"]["etag"]
    requirements = [{"type": "assert-etag", "etag": etag}, {"type": "assert-table-uuid", "uuid": table.id}]
    request = {"requirements": requirements, "updates": [published(0), comment("x"), table.stage()]}
    assert unity.ok("POST", table.path, request)["latest-table-version"] == 1


@pytest.mark.parametrize("name", ["version", "timestamp", "file-size", "file-modification-timestamp"])
def test_numbers_of_a_commit_are_positive(table: Table, name: str) -> None:
    add = table.stage()
    for value in (0, -1):
        wrong = {**add, "commit": {**add["commit"], name: value}}
        assert table.update(wrong).error == INVALID
    wrong = {**add, "commit": {key: value for key, value in add["commit"].items() if key != name}}
    assert table.update(wrong).error == INVALID
    assert table.update({**add, "commit": {**add["commit"], name: "1"}}).error == BAD
    assert table.update(add).status == 200


# ----------------------------------------------------------------------------------------------- requirements


def test_the_id_must_be_that_of_the_table(table: Table) -> None:
    add = table.stage()
    assert table.update(add, uuid=str(uuid.uuid4())).error == REQUIREMENT_CONFLICT
    assert table.update(add).status == 200


def test_the_etag_must_be_the_current_one(table: Table) -> None:
    etag = table.load()["metadata"]["etag"]
    table.commit()  # rows do not change it
    add = table.stage()
    found = table.update(add, etag=etag)
    assert found.status == 200
    table.version, table.last_ms = 2, add["commit"]["timestamp"]
    changed = table.commit({"metaData": table.metadata(configuration={"x": "1"})})
    assert changed["metadata"]["etag"] != etag
    add = table.stage()
    assert table.update(add, etag=etag).error == REQUIREMENT_CONFLICT
    assert table.update(comment("x"), etag=etag).error == REQUIREMENT_CONFLICT
    assert table.update(add, etag=changed["metadata"]["etag"]).status == 200


def test_the_etag_changes_with_what_only_the_catalog_has(table: Table) -> None:
    etags = [table.load()["metadata"]["etag"]]
    for update in (comment("x"), set_properties(note="1"), remove_properties("note"), {"action": "set-table-comment"}):
        etags.append(table.update(update, etag=etags[-1]).body["metadata"]["etag"])
    assert len(set(etags)) == 3
    assert etags[0] == etags[-1]


# ---------------------------------------------------------------------------------------------------- commits


def test_a_commit_is_ratified_once(table: Table) -> None:
    add = table.stage()
    first = table.update(add)
    assert (first.status, first.body["latest-table-version"]) == (200, 1)
    again = table.update(add)
    assert again.status == 200
    assert again.body == first.body
    other = table.stage(version=1)
    assert table.update(other).error == VERSION_CONFLICT
    assert table.load()["commits"] == [add["commit"]]


def test_a_repeated_request_is_a_whole_no_op(table: Table) -> None:
    etag = table.load()["metadata"]["etag"]
    add = table.stage({"metaData": table.metadata(configuration={"x": "1"})})
    updates = (add, comment("a"), set_properties(x="1"))
    assert table.update(*updates, etag=etag).status == 200
    assert table.update(comment("b")).status == 200
    assert table.update(*updates, etag=etag).status == 200  # it requires the etag from before the commit
    assert info(table)["comment"] == "b"


def test_a_published_commit_is_known_while_its_file_is_there(table: Table) -> None:
    add = table.stage()
    assert table.update(add).status == 200
    name = add["commit"]["file-name"]
    data = (table.log / "_staged_commits" / name).read_bytes()
    table.publish(1, name)
    assert table.update(published(1)).body["commits"] == []
    (table.log / "_staged_commits" / name).write_bytes(data)  # its writer may have written it again
    assert table.update(add).status == 200
    (table.log / "_staged_commits" / name).unlink()
    assert table.update(add).error == VERSION_CONFLICT


def test_a_commit_leaves_no_gap(table: Table) -> None:
    assert table.update(table.stage(version=2)).error == INVALID
    assert table.load()["latest-table-version"] == 0


@pytest.mark.parametrize(
    "name", ["x.json", f"{2:020d}.{uuid.uuid4()}.json", f"../{1:020d}.json", f"{1:020d}.a/b.json", f"{1:020d}.json"]
)
def test_a_staged_file_has_the_name_of_its_version(table: Table, name: str) -> None:
    add = table.stage()
    assert table.update({**add, "commit": {**add["commit"], "file-name": name}}).error == INVALID


def test_a_staged_file_must_be_there_and_be_a_commit(table: Table) -> None:
    add = table.stage()
    file = table.log / "_staged_commits" / add["commit"]["file-name"]
    data = file.read_bytes()
    for wrong in (b"", b"{", b'{"add": 1}\n', b'{"commitInfo":{"inCommitTimestamp":"x"}}\n', data[: len(data) // 2]):
        file.write_bytes(wrong)
        assert table.update(add).error == INVALID
    file.unlink()
    found = table.update(add)
    assert found.error == INVALID
    assert "Write it" in found.body["error"]["message"]
    file.write_bytes(data)
    assert table.update(add).status == 200


@pytest.mark.parametrize(("name", "more"), [("timestamp", 1), ("file-size", 1)])
def test_what_is_said_of_a_file_must_be_true(table: Table, name: str, more: int) -> None:
    add = table.stage()
    wrong = {**add, "commit": {**add["commit"], name: add["commit"][name] + more}}
    assert table.update(wrong).error == INVALID
    assert table.update(add).status == 200


def test_timestamps_increase(table: Table) -> None:
    table.commit()
    for ict_ms in (table.last_ms, table.last_ms - 1):
        assert table.update(table.stage(ict_ms=ict_ms)).error == INVALID
    assert table.update(table.stage(ict_ms=now_ms() + 7_200_000)).error == INVALID  # too far ahead
    assert table.update(table.stage(ict_ms=table.last_ms + 1)).status == 200


def test_a_commit_needs_a_txn_id(table: Table) -> None:
    add = table.stage()
    file = table.log / "_staged_commits" / add["commit"]["file-name"]
    lines = file.read_text().splitlines()
    first = json.loads(lines[0])
    del first["commitInfo"]["txnId"]
    file.write_text("\n".join([json.dumps(first), *lines[1:]]) + "\n")
    wrong = {**add, "commit": {**add["commit"], "file-size": file.stat().st_size}}
    assert table.update(wrong).error == INVALID


def test_a_staged_file_is_not_read_beyond_its_size(table: Table) -> None:
    """The peak memory of the server is counted by the kernel, which has read no more of a sparse file than asked."""
    add = table.stage()
    file = table.log / "_staged_commits" / add["commit"]["file-name"]
    size = file.stat().st_size
    with file.open("r+b") as opened:
        opened.truncate(600_000_000)
    peak = _peak_bytes(table)
    assert table.update(add).error == INVALID
    commit = add["commit"]
    assert table.update({**add, "commit": {**commit, "file-size": 2_000_000_000}}).error == INVALID
    assert table.update({**add, "commit": {**commit, "file-size": 1}}).error == INVALID
    assert table.update({**add, "commit": {**commit, "file-size": -1}}).error == INVALID
    assert _peak_bytes(table) - peak < 100_000_000
    with file.open("r+b") as opened:
        opened.truncate(size)
    assert table.update(add).status == 200


def test_version_0_is_not_read_beyond_a_bound(unity: Unity) -> None:
    path = "/delta/v1/catalogs/main/schemas/s"
    table = Table(unity, "s", "large", unity.ok("POST", f"{path}/staging-tables", {"name": "large"}))
    request = table.first()
    with (table.log / f"{0:020d}.json").open("r+b") as opened:
        opened.truncate((1 << 30) + 1)
    peak = _peak_bytes(table)
    assert unity.ask("POST", f"{path}/tables", request).error == INVALID
    assert _peak_bytes(table) - peak < 100_000_000


def _peak_bytes(table: Table) -> int:
    status = Path(f"/proc/{table.unity.server.process.pid}/status").read_text()
    return 1024 * int(next(line.split()[1] for line in status.splitlines() if line.startswith("VmHWM")))


def test_one_of_many_wins_a_version(unity: Unity, table: Table) -> None:
    adds = [table.stage(version=1) for _ in range(8)]
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(table.update, adds))
    won = [add for add, each in zip(adds, found, strict=True) if each.status == 200]
    assert len(won) == 1
    assert {each.error for each in found} == {(200, None), VERSION_CONFLICT}
    assert table.load()["commits"] == [won[0]["commit"]]


# ------------------------------------------------------------------------------------------------ publication


def test_published_commits_are_forgotten_in_order(table: Table) -> None:
    names = []
    for _ in range(3):
        found = table.commit()
        names.append(found["commits"][0]["file-name"])
    table.publish(1, names[0])
    found = table.update(published(1)).body
    assert [each["version"] for each in found["commits"]] == [3, 2]
    assert table.update(published(1)).body == found  # nothing to do
    assert table.update(published(0)).body == found
    assert table.update(published(4)).error == INVALID


def test_what_is_reported_too_early_is_published(table: Table) -> None:
    """A client that reports a publication which it has not made loses nothing."""
    add = table.stage()
    assert table.update(add).status == 200
    data = (table.log / "_staged_commits" / add["commit"]["file-name"]).read_bytes()
    assert table.update(published(1)).body["commits"] == []
    assert (table.log / f"{1:020d}.json").read_bytes() == data


def test_a_wrong_publication_is_not_accepted(table: Table) -> None:
    add = table.stage()
    assert table.update(add).status == 200
    (table.log / f"{1:020d}.json").write_text('{"commitInfo":{}}\n')
    assert table.update(published(1)).error == INVALID
    assert table.load()["commits"] == [add["commit"]]


def test_a_publication_is_reported_with_the_next_commit(table: Table) -> None:
    first = table.commit()
    table.publish(1, first["commits"][0]["file-name"])
    found = table.commit(updates=[published(1)])
    assert [each["version"] for each in found["commits"]] == [2]
    add = table.stage()
    assert table.update(add, published(3)).error == INVALID  # it is not ratified yet


@pytest.fixture(scope="module")
def small(place: Path) -> Iterator[Unity]:
    """A server that accepts at most 4 unpublished commits of a table, and never runs recovery."""
    options = ("--warehouse", str(place / "small"), "--set=recovery.every_seconds=0", "--set=unity.most_unpublished=4")
    with served(place / "small.db", *options) as made:
        unity = Unity(made)
        unity.ok("POST", "/schemas", {"name": "s", "catalog_name": "main"})
        yield unity


def test_a_client_that_never_publishes_does_not_stop_a_table(small: Unity) -> None:
    table = small.new_table()
    for _ in range(20):
        assert len(table.commit()["commits"]) <= 4
    assert table.load()["latest-table-version"] == 20


def test_a_backlog_is_refused_until_it_is_published(small: Unity) -> None:
    table = small.new_table()
    directory = table.log
    table.commit()
    # A directory in place of the commit keeps the server from publishing.
    (directory / f"{1:020d}.json").mkdir()
    for _ in range(3):
        table.commit()
    add = table.stage()
    found = table.update(add)
    assert found.error == (429, "ResourceExhaustedException")
    assert "Publish" in found.body["error"]["message"]
    commits = table.load()["commits"]
    assert len(commits) == 4
    (directory / f"{1:020d}.json").rmdir()
    for each in reversed(commits):
        table.publish(each["version"], each["file-name"])
    assert table.update(add, published(4)).status == 200


# --------------------------------------------------------------------------------------------------- metadata


def test_metadata_moves_with_its_commit(table: Table) -> None:
    schema = {"type": "struct", "fields": [*COLUMNS["fields"], _field("n")]}
    action = table.metadata(schema=schema, configuration={"x": "1"}, description="a table")
    updates = [{"action": "set-columns", "columns": schema}, set_properties(x="1"), comment("a table")]
    found = table.commit({"metaData": action}, updates=updates)["metadata"]
    assert (found["columns"], found["properties"]["x"], found["last-commit-version"]) == (schema, "1", 1)
    assert found["last-commit-timestamp-ms"] == table.last_ms
    assert found["properties"]["delta.lastUpdateVersion"] == "1"
    assert info(table)["comment"] == "a table"
    table.commit()
    assert table.load()["metadata"]["last-commit-version"] == 1
    action = table.metadata(schema=schema)
    found = table.commit({"metaData": action}, updates=[remove_properties("x")])["metadata"]
    assert "x" not in found["properties"]


def _field(name: str) -> dict[str, Any]:
    return {"name": name, "type": "long", "nullable": True, "metadata": {}}


@pytest.mark.parametrize(
    "update",
    [
        {"action": "set-columns", "columns": {"type": "struct", "fields": [_field("other")]}},
        {"action": "set-columns", "columns": {"type": "struct", "fields": 7}},
        {"action": "set-columns", "columns": {"type": "long"}},
        {"action": "set-partition-columns", "partition-columns": ["id"]},
        {"action": "set-protocol", "protocol": {**PROTOCOL, "writer-features": [*WRITER, "appendOnly"]}},
        set_properties(x="2"),
        set_properties(other="1"),
        remove_properties("x"),
        {"action": "set-domain-metadata", "updates": {"delta.clustering": {"clusteringColumns": [["id"]]}}},
    ],
)
def test_an_update_must_agree_with_its_commit(table: Table, update: dict[str, Any]) -> None:
    add = table.stage({"metaData": table.metadata(configuration={"x": "1"})})
    assert table.update(add, update).error == INVALID
    assert table.load()["latest-table-version"] == 0
    assert table.update(add, set_properties(x="1")).status == 200


def test_an_update_that_the_log_records_needs_a_commit(table: Table) -> None:
    before = table.load()
    for update in (
        {"action": "set-columns", "columns": COLUMNS},
        {"action": "set-partition-columns", "partition-columns": ["day"]},
        {"action": "set-protocol", "protocol": PROTOCOL},
        {"action": "set-domain-metadata", "updates": {}},
        {"action": "remove-domain-metadata", "domains": []},
        set_properties(**{"delta.appendOnly": "true"}),
        set_properties(**{"io.unitycatalog.tableId": "x"}),
        remove_properties("delta.enableInCommitTimestamps"),
    ):
        assert table.update(update).error == INVALID
    assert table.load() == before


def test_what_only_the_catalog_has_needs_no_commit(table: Table) -> None:
    found = table.update(comment("ours"), set_properties(note="1")).body
    assert (found["metadata"]["properties"]["note"], found["latest-table-version"]) == ("1", 0)
    assert info(table)["comment"] == "ours"
    found = table.update(remove_properties("note", "none")).body
    assert "note" not in found["metadata"]["properties"]
    # A property in the log replaces the property of that name that only the catalog had.
    table.update(set_properties(note="1"))
    found = table.commit({"metaData": table.metadata(configuration={"note": "2"})})
    assert found["metadata"]["properties"]["note"] == "2"
    assert table.update(remove_properties("note")).error == INVALID


def test_a_comment_moves_with_a_commit_that_does_not_have_it(table: Table) -> None:
    table.commit(updates=[comment("with rows")])
    assert info(table)["comment"] == "with rows"
    table.commit({"metaData": table.metadata(description="in the log")})
    assert info(table)["comment"] == "in the log"
    add = table.stage(version=2)
    assert table.update(add, comment("lost")).error == VERSION_CONFLICT
    assert info(table)["comment"] == "in the log"


@pytest.mark.parametrize("name", ["catalogManaged", "inCommitTimestamp"])
def test_a_commit_cannot_end_the_contract(table: Table, name: str) -> None:
    features = {"readerFeatures": ["catalogManaged", "vacuumProtocolCheck"], "writerFeatures": list(WRITER)}
    kept = {key: [each for each in names if each != name] for key, names in features.items()}
    add = table.stage({"protocol": {"minReaderVersion": 3, "minWriterVersion": 7, **kept}})
    assert table.update(add).error == INVALID


@pytest.mark.parametrize("key", ["io.unitycatalog.tableId", "delta.enableInCommitTimestamps"])
def test_a_commit_keeps_the_properties_of_the_contract(table: Table, key: str) -> None:
    add = table.stage({"metaData": table.metadata(configuration={key: "false"})})
    assert table.update(add).error == INVALID


def test_a_protocol_and_a_domain_move_with_their_commit(table: Table) -> None:
    features = [*WRITER, "clustering", "domainMetadata"]
    protocol = {
        "minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": PROTOCOL["reader-features"],
        "writerFeatures": features,
    }  # fmt: skip
    clustering = {"clusteringColumns": [["id"]]}
    domain = {"domain": "delta.clustering", "configuration": json.dumps(clustering), "removed": False}
    updates = [
        {"action": "set-protocol", "protocol": {**PROTOCOL, "writer-features": features[::-1]}},
        {"action": "set-domain-metadata", "updates": {"delta.clustering": clustering}},
        {"action": "set-partition-columns", "partition-columns": []},
    ]
    metadata = table.metadata(partitionColumns=[])
    actions = ({"protocol": protocol}, {"metaData": metadata}, {"domainMetadata": domain})
    found = table.commit(*actions, updates=updates, rows=False)["metadata"]
    assert found["properties"]["delta.feature.clustering"] == "supported"
    assert found["properties"]["delta.clusteringColumns"] == '[["id"]]'
    assert found["partition-columns"] == []
    removed = {"domainMetadata": {**domain, "removed": True}}
    gone = {"action": "remove-domain-metadata", "domains": ["delta.clustering"]}
    found = table.commit(removed, updates=[gone], rows=False)["metadata"]
    assert "delta.clusteringColumns" not in found["properties"]


def test_row_tracking_does_not_change_the_etag(table: Table) -> None:
    features = [*WRITER, "rowTracking", "domainMetadata"]
    protocol = {
        "minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": PROTOCOL["reader-features"],
        "writerFeatures": features,
    }  # fmt: skip
    first = table.commit({"protocol": protocol}, rows=False)
    domain = {"domain": "delta.rowTracking", "configuration": '{"rowIdHighWaterMark":5}', "removed": False}
    update = {"action": "set-domain-metadata", "updates": {"delta.rowTracking": {"rowIdHighWaterMark": 5}}}
    found = table.commit({"domainMetadata": domain}, updates=[update], rows=False)
    assert found["metadata"]["properties"]["delta.rowTracking.rowIdHighWaterMark"] == "5"
    assert found["metadata"]["etag"] == first["metadata"]["etag"]
    assert found["metadata"]["last-commit-version"] == 1


# ---------------------------------------------------------------------------------------------------- uniform


def _uniform(table: Table, version: int, base: int | None = None, changes: Any = ()) -> dict[str, Any]:
    iceberg = {
        "metadata-location": f"{table.location}/metadata/v{version}.json", "converted-delta-version": version,
        "converted-delta-timestamp": 5, "base-converted-delta-version": base, **dict(changes),
    }  # fmt: skip
    return {"iceberg": {key: value for key, value in iceberg.items() if value is not None}}


UNIFORM = {"delta.universalFormat.enabledFormats": "iceberg"}


def test_the_conversion_to_iceberg_moves_with_commits(table: Table) -> None:
    enabling = {"metaData": table.metadata(configuration=UNIFORM)}
    add = table.stage(enabling)
    assert table.update(add).error == INVALID  # uniform is missing
    wrong = _uniform(table, 1, changes={"metadata-location": "file:///elsewhere/v1.json"})
    assert table.update({**add, "uniform": wrong}).error == INVALID
    assert table.update({**add, "uniform": _uniform(table, 2)}).error == INVALID
    found = table.update({**add, "uniform": _uniform(table, 1)})
    assert found.status == 200
    assert found.body["uniform"] == table.load()["uniform"] == _uniform(table, 1)
    table.version, table.last_ms = 1, add["commit"]["timestamp"]
    add = table.stage()
    assert table.update(add).error == INVALID
    assert table.update({**add, "uniform": _uniform(table, 2, base=0)}).error == REQUIREMENT_CONFLICT
    assert table.update({**add, "uniform": _uniform(table, 2, base=1)}).status == 200
    table.version, table.last_ms = 2, add["commit"]["timestamp"]
    disabling = table.stage({"metaData": table.metadata()})
    assert table.update({**disabling, "uniform": _uniform(table, 3)}).error == INVALID
    assert "uniform" not in table.update(disabling).body


# ------------------------------------------------------------------------------------- beside other interfaces


def test_a_transaction_over_two_tables_conflicts_with_a_commit(
    unity: Unity, manager: TransactionManager, table: Table
) -> None:
    other = unity.new_table()
    table.commit()
    with manager.transaction() as transaction:
        mine = transaction.table(f"s.{table.name}")
        mine.delete("id = 1")
        transaction.table(f"s.{other.name}").append(mine.snapshot().scan().to_arrow())
        remove = {"path": "x.parquet", "deletionTimestamp": 1, "dataChange": True, "partitionValues": {"day": "mon"}}
        path = next(iter(manager.table(f"s.{table.name}").snapshot().files()["path"].to_pylist()))
        table.commit({"remove": {**remove, "path": path}}, rows=False)
        with pytest.raises(Exception, match="another writer won"):
            transaction.commit()
    assert other.load()["latest-table-version"] == 0


def test_a_commit_loses_against_a_transaction_over_two_tables(
    unity: Unity, manager: TransactionManager, table: Table
) -> None:
    other = unity.new_table()
    rows = manager.table(f"s.{table.name}").snapshot().scan().to_arrow()
    add = table.stage(version=1)
    with manager.transaction() as transaction:
        for each in (table, other):
            transaction.table(f"s.{each.name}").append(rows)
        transaction.commit()
    assert table.update(add).error == VERSION_CONFLICT
    assert table.load()["latest-table-version"] == other.load()["latest-table-version"]
