"""Commits to a Unity Catalog: lost answers, conflicts, the limit of unpublished commits, clients that die at each step.

Spec: UC Delta API 1.0, ManagedTablesSpec.md#commit-recovery, #create-recovery, #publishing-and-backfill.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from deltalog import CommitStateUnknownError, DeltaTable, Environment, RetryPolicy, TableNotFoundError
from deltalog.errors import (
    CatalogRequestError,
    CoordinatorError,
    CorruptTableError,
    DeltaLogError,
    MetadataChangedError,
    SchemaNotFoundError,
    TableExistsError,
    TableReplacedError,
    UnsupportedFeatureError,
)
from deltalog.protocol.paths import commit_name
from deltalog.storage.s3.connections import Connections, NotConnectedError
from deltalog.unity import http, messages
from deltalog.unity.calls import DeltaCalls
from deltalog.unity.committer import UnityCommitter
from deltalog.unity.rules import check_no_uniform
from tests.support.unity.http import Fault, Faults, UnityServer
from tests.support.unity.model import ModelTable

ADDRESS = "uc://main.s.events"
QUICK = Environment(sleep=lambda seconds: None, retry=RetryPolicy(settle_attempts=4))


def rows(*ids: int) -> pa.Table:
    return pa.table({"id": pa.array(ids, pa.int64())})


def ids(table: DeltaTable) -> list[int]:
    return sorted(table.to_pyarrow_table()["id"].to_pylist())


@pytest.fixture
def table(server: UnityServer, options: dict[str, Any]) -> DeltaTable:
    return DeltaTable.create(ADDRESS, rows(1), environment=QUICK, **options)


@pytest.fixture(autouse=True)
def short_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "_ANSWER_SECONDS", 0.5)


@pytest.fixture
def made(server: UnityServer, table: DeltaTable) -> ModelTable:
    return server.model.tables["main", "s", "events"]


def opened(options: dict[str, Any], **more: Any) -> DeltaTable:
    return DeltaTable.open(ADDRESS, environment=QUICK, **options, **more)


def at(fault: Fault, method: str, number: int = 1, *, ends: str = "/tables/events", until: int | None = None) -> Faults:
    """A fault at the n-th request to a path, or at all requests to it from the n-th to ``until``."""
    seen = [0]

    def faults(given: str, path: str) -> Fault | None:
        if given != method or not path.endswith(ends):
            return None
        seen[0] += 1
        return fault if number <= seen[0] <= (number if until is None else until) else None

    return faults


FOREVER = 10**6


@pytest.mark.parametrize("fault", Fault)
def test_a_commit_whose_answer_is_lost_is_committed_once(
    server: UnityServer, options: dict[str, Any], table: DeltaTable, made: ModelTable, fault: Fault
) -> None:
    server.faults = at(fault, "POST")
    assert table.append(rows(2)).version == 1
    server.faults = lambda method, path: None
    assert made.latest == 1
    assert ids(opened(options)) == [1, 2]
    table.append(rows(3))
    assert made.commits == []
    assert server.model.violations == []


@pytest.mark.parametrize("fault", [Fault.LOST, Fault.FAILED_AFTER, Fault.UNAVAILABLE_AFTER])
def test_a_replay_that_is_refused_is_told_apart_by_the_name_of_its_file(
    server: UnityServer, table: DeltaTable, made: ModelTable, fault: Fault
) -> None:
    """As the specification says: a commit that is sent again is a conflict, and only the name of the file says whose
    commit has the version."""
    made.accepted = _Forgetful()
    server.faults = at(fault, "POST")
    assert table.append(rows(2)).version == 1
    assert made.latest == 1
    assert ids(table) == [1, 2]


class _Forgetful(dict[int, str]):
    def get(self, key: int, default: Any = None) -> Any:
        return default


def test_an_unknown_outcome_is_reported_as_unknown_and_resolved_later(
    server: UnityServer, options: dict[str, Any], table: DeltaTable, made: ModelTable
) -> None:
    lost = at(Fault.LOST, "POST")

    def faults(method: str, path: str) -> Fault | None:
        return lost(method, path) or (Fault.DROPPED if method == "GET" and made.latest == 1 else None)

    server.faults = faults
    with pytest.raises(CommitStateUnknownError) as raised:
        table.append(rows(2))
    server.faults = lambda method, path: None
    result = raised.value.resolve()
    assert result is not None
    assert result.version == 1
    assert ids(opened(options)) == [1, 2]


def test_an_unknown_outcome_of_a_commit_that_never_arrived(
    server: UnityServer, options: dict[str, Any], table: DeltaTable, made: ModelTable
) -> None:
    server.faults = at(Fault.DROPPED, "POST", until=FOREVER)
    with pytest.raises(CommitStateUnknownError) as raised:
        table.append(rows(2))
    server.faults = lambda method, path: None
    assert raised.value.resolve() is None
    assert made.latest == 0
    assert ids(opened(options)) == [1]


def test_nothing_is_committed_if_the_server_cannot_be_reached(
    monkeypatch: pytest.MonkeyPatch, options: dict[str, Any], table: DeltaTable, made: ModelTable
) -> None:
    exchange = Connections.exchange

    def refused(self: Connections, method: str, *arguments: Any, **named: Any) -> Any:
        if method == "POST":
            raise NotConnectedError("Could not connect: refused.")
        return exchange(self, method, *arguments, **named)

    with monkeypatch.context() as patched:
        patched.setattr(Connections, "exchange", refused)
        with pytest.raises(CoordinatorError, match="Nothing was changed") as raised:
            table.append(rows(2))
    assert raised.value.outcome.name == "NOTHING_COMMITTED"
    assert made.latest == 0
    assert list((Path(table.url) / "_delta_log" / "_staged_commits").iterdir()) == []


def test_two_writers_rebase_or_conflict_by_our_rules(
    server: UnityServer, options: dict[str, Any], table: DeltaTable, made: ModelTable
) -> None:
    other = opened(options)
    with table.transaction() as transaction:
        other.append(rows(2))
        transaction.set_properties({"owner": "me"})
        transaction.commit("SET TBLPROPERTIES")
    other.append(rows(3))
    assert made.latest == 3
    assert ids(opened(options)) == [1, 2, 3]
    assert server.model.violations == []


def test_a_conflict_is_raised(server: UnityServer, options: dict[str, Any], table: DeltaTable) -> None:
    other, scanned = opened(options), table.snapshot().scan()
    other.overwrite(rows(5))
    with pytest.raises(DeltaLogError) as raised:
        table.overwrite(rows(6), expected_version=0)
    assert raised.value.outcome.name == "NOTHING_COMMITTED"
    assert scanned.to_arrow()["id"].to_pylist() == [1]
    assert ids(opened(options)) == [5]


def test_a_table_that_was_replaced_is_not_written(
    server: UnityServer, options: dict[str, Any], table: DeltaTable
) -> None:
    server.model.delete("main", "s", "events")
    with pytest.raises(TableNotFoundError):
        table.append(rows(2))
    DeltaTable.create(ADDRESS, rows(7), environment=QUICK, **options)
    with pytest.raises(TableReplacedError):
        table.append(rows(2))
    assert ids(opened(options)) == [7]


def test_metadata_that_changed_in_the_catalog_only_is_a_conflict(
    server: UnityServer, options: dict[str, Any], table: DeltaTable, made: ModelTable
) -> None:
    def changed() -> None:
        server.model.update("main", "s", "events", _comment(made.uuid, "of another"))

    with pytest.raises(MetadataChangedError), table.transaction() as transaction:
        transaction.set_properties({"owner": "me"})
        changed()
        transaction.commit("SET TBLPROPERTIES")
    assert made.latest == 0
    changed()
    table.set_properties({"owner": "me"})
    assert made.properties["owner"] == "me"
    changed()
    table.append(rows(2))  # a commit of rows does not depend on the catalog's metadata
    assert made.latest == 2


def _comment(uuid: str, comment: str) -> messages.UpdateTable:
    return messages.UpdateTable(
        requirements=(messages.AssertTableUuid(uuid=uuid),), updates=(messages.SetTableComment(comment=comment),)
    )


def answered_otherwise(
    monkeypatch: pytest.MonkeyPatch, server: UnityServer, answer: Callable[[Callable[[], Any]], Any], until: int = 1
) -> None:
    """The first proposals are answered by 200 and what ``answer`` returns; it gets a function that handles them."""
    update, seen = server.model.update, [0]

    def otherwise(catalog: str, schema: str, name: str, request: messages.UpdateTable) -> Any:
        if any(isinstance(each, messages.AddCommit) for each in request.updates):
            seen[0] += 1
            if seen[0] <= until:
                return answer(lambda: update(catalog, schema, name, request))
        return update(catalog, schema, name, request)

    monkeypatch.setattr(server.model, "update", otherwise)


def test_an_acceptance_that_does_not_show_the_commit_is_not_believed(
    monkeypatch: pytest.MonkeyPatch, server: UnityServer, options: dict[str, Any], table: DeltaTable, made: ModelTable
) -> None:
    before = server.model.load("main", "s", "events")
    answered_otherwise(monkeypatch, server, lambda handle: before)
    assert table.append(rows(2)).version == 1
    assert ids(opened(options)) == [1, 2]
    answered_otherwise(monkeypatch, server, lambda handle: (handle(), before)[1])
    assert table.append(rows(3)).version == 2
    assert made.latest == 2
    assert ids(opened(options)) == [1, 2, 3]
    answered_otherwise(monkeypatch, server, lambda handle: before, FOREVER)
    with pytest.raises(CommitStateUnknownError):
        table.append(rows(4))
    assert ids(opened(options)) == [1, 2, 3]


def test_an_acceptance_that_shows_another_commit_is_a_lost_race(
    monkeypatch: pytest.MonkeyPatch, server: UnityServer, options: dict[str, Any], table: DeltaTable, made: ModelTable
) -> None:
    with table.transaction() as transaction:
        opened(options).append(rows(7))
        answered_otherwise(monkeypatch, server, lambda handle: server.model.load("main", "s", "events"))
        transaction.set_properties({"owner": "me"})
        assert transaction.commit("SET TBLPROPERTIES").version == 2
    assert made.latest == 2
    assert made.properties["owner"] == "me"
    assert ids(opened(options)) == [1, 7]


def test_an_acceptance_by_another_table_is_not_believed(
    monkeypatch: pytest.MonkeyPatch, server: UnityServer, options: dict[str, Any], table: DeltaTable, made: ModelTable
) -> None:
    DeltaTable.create("uc://main.s.other", rows(7), environment=QUICK, **options)
    answered_otherwise(monkeypatch, server, lambda handle: server.model.load("main", "s", "other"))
    assert table.append(rows(2)).version == 1
    assert ids(opened(options)) == [1, 2]


def test_a_creation_that_is_answered_by_another_table_is_not_believed(
    monkeypatch: pytest.MonkeyPatch, server: UnityServer, options: dict[str, Any], table: DeltaTable
) -> None:
    create = server.model.create_table
    monkeypatch.setattr(server.model, "create_table", lambda *_: server.model.load("main", "s", "events"))
    with pytest.raises(CommitStateUnknownError):
        DeltaTable.create("uc://main.s.other", rows(7), environment=QUICK, **options)
    assert ("main", "s", "other") not in server.model.tables
    other = server.model.load("main", "s", "events")
    monkeypatch.setattr(server.model, "create_table", lambda *request: (create(*request), other)[1])
    made = DeltaTable.create("uc://main.s.other", rows(7), environment=QUICK, **options)
    assert ids(made) == [7]


# ----------------------------------------------------------------------------------------------- publication


def unpublished(monkeypatch: pytest.MonkeyPatch, options: dict[str, Any], *values: int) -> None:
    """Append rows, each by a client that dies before it publishes."""
    with monkeypatch.context() as patched:
        patched.setattr(UnityCommitter, "_after", lambda self, commit, attempt: None)
        for value in values:
            opened(options).append(rows(value))


def test_the_next_writer_publishes_what_others_left(
    monkeypatch: pytest.MonkeyPatch, server: UnityServer, options: dict[str, Any], table: DeltaTable, made: ModelTable
) -> None:
    unpublished(monkeypatch, options, 2, 3)
    assert [commit.version for commit in made.commits] == [1, 2]
    log = Path(table.url) / "_delta_log"
    assert not (log / commit_name(1)).exists()
    assert ids(opened(options)) == [1, 2, 3]
    table.append(rows(4))
    assert made.commits == []
    assert [(log / commit_name(version)).exists() for version in (1, 2, 3)] == [True] * 3
    assert server.model.violations == []


def test_the_limit_of_unpublished_commits_does_not_stop_a_writer(
    monkeypatch: pytest.MonkeyPatch, server: UnityServer, options: dict[str, Any], table: DeltaTable, made: ModelTable
) -> None:
    unpublished(monkeypatch, options, 2, 3, 4)
    server.model.most_unpublished = 3
    assert table.append(rows(5)).version == 4
    assert made.commits == []
    assert ids(opened(options)) == [1, 2, 3, 4, 5]
    assert server.model.violations == []


def test_a_limit_that_publication_does_not_lift_is_an_error(
    server: UnityServer, table: DeltaTable, made: ModelTable
) -> None:
    server.model.most_unpublished = 0
    with pytest.raises(CatalogRequestError) as raised:
        table.append(rows(5))
    assert raised.value.error_type == "ResourceExhaustedException"
    assert made.latest == 0
    staged = Path(table.url) / "_delta_log" / "_staged_commits"
    assert list(staged.iterdir()) == []


def test_what_could_not_be_published_is_not_reported(
    monkeypatch: pytest.MonkeyPatch, server: UnityServer, options: dict[str, Any], table: DeltaTable, made: ModelTable
) -> None:
    with monkeypatch.context() as patched:
        patched.setattr("deltalog.unity.committer.copy_to_log", _fails)
        assert table.append(rows(2)).version == 1
    assert [commit.version for commit in made.commits] == [1]
    assert made.backfilled == 0
    assert ids(opened(options)) == [1, 2]
    table.append(rows(3))
    assert made.backfilled == 2
    assert server.model.violations == []


def _fails(*_: object) -> None:
    raise CoordinatorError("the store fails", path="here")


def test_a_report_that_fails_goes_with_the_next_commit(
    server: UnityServer, table: DeltaTable, made: ModelTable
) -> None:
    server.faults = at(Fault.FAILED, "POST", 2, until=FOREVER)
    assert table.append(rows(2)).version == 1
    assert made.backfilled == 0
    server.faults = lambda method, path: None
    before = server.of("POST")
    table.append(rows(3))
    assert made.backfilled == 2
    assert server.of("POST") - before == 2
    assert server.model.violations == []


# ------------------------------------------------------------------------------------------------ the catalog rules


def test_the_commit_that_the_catalog_names_beats_a_published_file(
    monkeypatch: pytest.MonkeyPatch, options: dict[str, Any], table: DeltaTable, made: ModelTable
) -> None:
    unpublished(monkeypatch, options, 2)
    log = Path(table.url) / "_delta_log"
    (log / commit_name(1)).write_bytes((log / commit_name(0)).read_bytes())
    assert ids(opened(options)) == [1, 2]


def test_nothing_beyond_the_catalogs_latest_version_is_read(
    options: dict[str, Any], table: DeltaTable, made: ModelTable
) -> None:
    table.append(rows(2))
    log = Path(table.url) / "_delta_log"
    (log / commit_name(2)).write_bytes((log / commit_name(1)).read_bytes())
    with pytest.warns(UserWarning, match="knows versions up to 1 only"):
        found = opened(options)
    assert found.version == 1


@pytest.mark.parametrize(
    "broken",
    [
        lambda commits: commits[:1],
        lambda commits: [commits[1], commits[1]],
        lambda commits: [*commits[:1], messages.Commit(**{**_members(commits[1]), "file_name": "../../x.json"})],
        lambda commits: [*commits[:1], messages.Commit(**{**_members(commits[1]), "file_size": 0})],
    ],
    ids=["gap", "twice", "elsewhere", "empty"],
)
def test_an_answer_that_contradicts_itself_is_refused(
    monkeypatch: pytest.MonkeyPatch,
    options: dict[str, Any],
    table: DeltaTable,
    made: ModelTable,
    broken: Callable[[Any], Any],
) -> None:
    unpublished(monkeypatch, options, 2, 3)
    made.commits = list(broken(made.commits))
    with pytest.raises(CatalogRequestError):
        opened(options)


def _members(commit: messages.Commit) -> dict[str, Any]:
    return {name: getattr(commit, name) for name in commit.__struct_fields__}


def test_a_table_that_is_converted_to_iceberg_is_not_written(table: DeltaTable) -> None:
    metadata = table.snapshot().metadata
    check_no_uniform(metadata, "t")
    converted = metadata.with_configuration({"delta.universalFormat.enabledFormats": "hudi, iceberg"})
    with pytest.raises(UnsupportedFeatureError, match="Nothing was committed"):
        check_no_uniform(converted, "t")


# ---------------------------------------------------------------------------------------------------- creation


@pytest.mark.parametrize("fault", Fault)
def test_a_creation_whose_answer_is_lost_happens_once(
    server: UnityServer, options: dict[str, Any], fault: Fault
) -> None:
    server.faults = at(fault, "POST", ends="/schemas/s/tables")
    table = DeltaTable.create(ADDRESS, rows(1), environment=QUICK, **options)
    server.faults = lambda method, path: None
    assert (
        server.model.tables["main", "s", "events"].uuid
        == table.snapshot().metadata.configuration["io.unitycatalog.tableId"]
    )
    table.append(rows(2))
    assert ids(opened(options)) == [1, 2]


def test_the_name_of_another_table_is_taken(server: UnityServer, options: dict[str, Any], table: DeltaTable) -> None:
    with pytest.raises(TableExistsError):
        DeltaTable.create(ADDRESS, rows(5), environment=QUICK, **options)
    assert ids(opened(options)) == [1]


def test_a_table_that_another_client_created_meanwhile_is_not_taken_for_ours(
    server: UnityServer, options: dict[str, Any]
) -> None:
    with DeltaTable.create_transaction(ADDRESS, rows(1).schema, environment=QUICK, **options) as transaction:
        DeltaTable.create(ADDRESS, rows(5), environment=QUICK, **options)
        with pytest.raises(TableExistsError):
            transaction.commit("CREATE TABLE")
    assert ids(opened(options)) == [5]


def test_an_unknown_creation_is_resolved_later(server: UnityServer, options: dict[str, Any]) -> None:
    server.faults = lambda method, path: (
        (Fault.LOST if method == "POST" else Fault.DROPPED) if "/schemas/s/tables" in path else None
    )
    with pytest.raises(CommitStateUnknownError) as raised:
        DeltaTable.create(ADDRESS, rows(1), environment=QUICK, **options)
    server.faults = lambda method, path: None
    assert raised.value.resolve() is not None
    assert ids(opened(options)) == [1]


def test_a_schema_that_does_not_exist(options: dict[str, Any]) -> None:
    with pytest.raises(SchemaNotFoundError, match=r"main\.none"):
        DeltaTable.create("uc://main.none.t", rows(1), environment=QUICK, **options)


def test_what_a_client_generates_is_generated(server: UnityServer, options: dict[str, Any]) -> None:
    names = ("delta.rowTracking.materializedRowIdColumnName", "delta.columnMapping.maxColumnId")
    server.model.required_properties.update(
        {"delta.enableRowTracking": "true", "delta.columnMapping.mode": "name", **dict.fromkeys(names)}
    )
    DeltaTable.create(ADDRESS, rows(1), environment=QUICK, **options)
    assert all(server.model.tables["main", "s", "events"].properties[name] for name in names)


def test_a_requirement_that_cannot_be_met_is_refused_before_anything_is_written(
    server: UnityServer, options: dict[str, Any], tmp_path: Path
) -> None:
    server.model.required_properties["custom.generated"] = None
    with pytest.raises(UnsupportedFeatureError, match=r"custom\.generated"):
        DeltaTable.create(ADDRESS, rows(1), environment=QUICK, **options)
    assert not server.model.tables
    assert not list(tmp_path.rglob("*.json"))


# ------------------------------------------------------------------------------------------- clients that die


class Death(BaseException):
    """The client's process ends here."""


STEPS = ["before the proposal", "after the proposal", "before publishing", "after publishing", "after the report"]


@pytest.mark.parametrize("step", STEPS)
def test_a_client_that_dies_leaves_a_table_that_others_continue(
    monkeypatch: pytest.MonkeyPatch,
    server: UnityServer,
    options: dict[str, Any],
    table: DeltaTable,
    made: ModelTable,
    step: str,
) -> None:
    with monkeypatch.context() as patched:
        _die_at(patched, step)
        with pytest.raises(Death):
            table.append(rows(2))
    accepted = step != STEPS[0]
    assert made.latest == int(accepted)
    assert ids(opened(options)) == [1, 2][: 1 + accepted]
    other = opened(options)
    other.append(rows(3))
    assert ids(opened(options)) == sorted([1, 3, *([2] if accepted else [])])
    assert made.commits == []
    assert server.model.violations == []


def _die_at(patched: pytest.MonkeyPatch, step: str) -> None:
    update, publish, report = DeltaCalls.update, UnityCommitter._publish, UnityCommitter._report

    def dying(function: Callable[..., Any], before: bool) -> Callable[..., Any]:
        def call(*arguments: Any, **named: Any) -> Any:
            if not before:
                function(*arguments, **named)
            raise Death

        return call

    if step in STEPS[:2]:
        patched.setattr(DeltaCalls, "update", dying(update, step == STEPS[0]))
    elif step in STEPS[2:4]:
        patched.setattr(UnityCommitter, "_publish", dying(publish, step == STEPS[2]))
    else:
        patched.setattr(UnityCommitter, "_report", dying(report, False))


@pytest.mark.parametrize("before", [True, False])
def test_a_client_that_dies_while_it_creates_a_table(
    monkeypatch: pytest.MonkeyPatch, server: UnityServer, options: dict[str, Any], before: bool
) -> None:
    create = DeltaCalls.create

    def dies(self: DeltaCalls, request: messages.CreateTable) -> messages.LoadedTable:
        if not before:
            create(self, request)
        raise Death

    with monkeypatch.context() as patched:
        patched.setattr(DeltaCalls, "create", dies)
        with pytest.raises(Death):
            DeltaTable.create(ADDRESS, rows(1), environment=QUICK, **options)
    if before:
        with pytest.raises(TableNotFoundError):
            opened(options)
        DeltaTable.create(ADDRESS, rows(1), environment=QUICK, **options)
    assert ids(opened(options)) == [1]


# ---------------------------------------------------------------------------------------------------- another table


@pytest.mark.parametrize("act", [ids, lambda table: table.append(rows(9))], ids=["read", "append"])
def test_the_log_of_another_table_is_not_taken_for_this_one(
    options: dict[str, Any], server: UnityServer, table: DeltaTable, made: ModelTable, act: Callable[[DeltaTable], Any]
) -> None:
    other = DeltaTable.create("uc://main.s.other", rows(7), environment=QUICK, **options)
    other.append(rows(8))
    made.location, made.latest = server.model.tables["main", "s", "other"].location, 1
    with pytest.raises(CorruptTableError, match="of the table") as raised:
        act(opened(options))
    assert made.uuid in str(raised.value)
    assert len(list((Path(other.url) / "_delta_log" / "_staged_commits").iterdir())) == 1
    assert len(list(Path(other.url).glob("**/*.parquet"))) == 2
    assert ids(other) == [7, 8]


def test_versions_before_the_registration_may_name_another_table(
    monkeypatch: pytest.MonkeyPatch, options: dict[str, Any], table: DeltaTable, made: ModelTable
) -> None:
    """A table that was dropped and registered again has a new id."""
    new = "11111111-2222-3333-4444-555555555555"
    log = Path(table.url) / "_delta_log"
    first = (log / commit_name(0)).read_text()
    table.append(rows(2))
    metadata = next(line for line in first.splitlines() if "metaData" in line).replace(made.uuid, new)
    with (log / commit_name(1)).open("a") as commit:
        commit.write(metadata + "\n")
    (log / f"{1:020}.crc").unlink(missing_ok=True)
    made.uuid = new
    again = opened(options)
    assert ids(again) == [1, 2]
    assert again.snapshot(version=0).metadata.configuration["io.unitycatalog.tableId"] != new
