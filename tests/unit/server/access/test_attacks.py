"""Attempts to get around the rules of authorisation, none of which may succeed."""

from __future__ import annotations

import collections
import hashlib
import itertools
import sqlite3
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from deltalog.catalog.records import ACCESS, EXTERNAL, DocumentChange, TransactionStatus, access_key
from deltalog.server.access import rules
from deltalog.server.access.grants import GrantChange, Grants
from deltalog.server.access.guard import Guard
from deltalog.server.access.principals import Principal, Scope
from deltalog.server.access.privileges import Kind, Privilege
from deltalog.server.unity.credentials import Static
from deltalog.transactions.unity.documents import CATALOG_ACCESS_KEY, ExternalTable, schema_access_key
from deltalog.transactions.unity.external import ExternalTables
from deltalog.transactions.unity.tables import UnityTables
from tests.support.server import add
from tests.support.server.in_process import InProcess
from tests.support.server.matrix import CASES, WHO, World
from tests.support.server.unity import ROOT, Table, Unity

ALICE, BOB = Principal("alice"), Principal("bob", frozenset({"team"}))
USE = ["USE CATALOG", "USE SCHEMA"]
D = "/delta/v1/catalogs/main/schemas/s"
_NUMBERS = itertools.count()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[InProcess]:
    """A server on which Alice and Bob may use the schemas and create tables."""
    rules = [Static(prefix="s3://lake", config={"s3.access-key-id": "key", "s3.secret-access-key": "secret"})]
    made = InProcess(tmp_path_factory.mktemp("attacks"), list(rules))
    made.unity().ok("POST", "/schemas", {"name": "s", "catalog_name": "main"})
    for name in ("alice", "bob"):
        grant(made, "catalog", "main", name, *USE, "CREATE TABLE", "CREATE EXTERNAL TABLE")
    yield made
    made.close()


def grant(server: InProcess, kind: str, name: str, principal: str, *words: str, as_: Principal | None = None) -> Any:
    asked = server.unity() if as_ is None else server.unity(as_)
    body = {"changes": [{"principal": principal, "add": list(words), "remove": []}]}
    return asked.ok("PATCH", f"/permissions/{kind}/{name}", body)


def revoke(server: InProcess, kind: str, name: str, principal: str, *words: str) -> None:
    body = {"changes": [{"principal": principal, "add": [], "remove": list(words)}]}
    server.unity().ok("PATCH", f"/permissions/{kind}/{name}", body)


def external(unity: Unity, name: str = "", location: str = "") -> str:
    """The name of a new external table."""
    name = name or f"x{next(_NUMBERS)}"
    body = {
        "name": name, "catalog_name": "main", "schema_name": "s", "table_type": "EXTERNAL",
        "data_source_format": "DELTA", "storage_location": location or f"s3://lake/{name}", "columns": [],
    }  # fmt: skip
    unity.ok("POST", "/tables", body)
    return name


def access_documents(server: InProcess) -> dict[str, str]:
    return {each.key: each.content for each in server.manager.coordinator.documents(ACCESS)}


# ------------------------------------------------------------------------------------------- what READ changes


def _state(place: Path, own: set[str]) -> tuple[list[str], dict[str, str]]:
    """The content of the catalog except these transactions, and all files except those of SQLite."""
    connection = sqlite3.connect(place / "catalog.db")
    rows = [line for line in connection.iterdump() if not any(id_ in line for id_ in own)]
    connection.close()
    files = sorted(each for each in place.rglob("*") if each.is_file() and ".db" not in each.name)
    return rows, {str(each): hashlib.sha256(each.read_bytes()).hexdigest() for each in files}


@pytest.mark.parametrize("who", [each for each in WHO if each.scope is Scope.READ], ids=lambda who: who.title)
def test_a_credential_of_the_scope_read_changes_nothing_by_any_call(tmp_path: Path, who: Any) -> None:
    world = World(tmp_path)
    world.settle(who)
    requests = [(case, *case.request(world)) for case in CASES]
    coordinator = world.server.manager.coordinator
    every = coordinator.transactions(frozenset(TransactionStatus))
    own = {each.id for each in every if each.type.value == "READ_ONLY"}
    before = _state(tmp_path, own)
    count = len(every)
    for _, method, path, body in requests:
        status, received, _ = world.server.send(who.principal, method, path, body)
        assert status < 500
        if path == "/StartTransaction" and status == 200:
            own.add(received["TransactionId"])
    after = _state(tmp_path, own)
    world.server.close()
    assert after == before
    assert count > 10
    assert before[1]


# -------------------------------------------------------------------------------------- names, ids and renames


def test_grants_go_along_with_a_rename_and_end_with_a_drop(server: InProcess) -> None:
    admin, alice = server.unity(), server.unity(ALICE)
    for name in (external(admin), admin.new_table().name):
        grant(server, "table", f"main.s.{name}", "alice", "SELECT")
        assert alice.ask("GET", f"/tables/main.s.{name}").status == 200
        admin.ok("POST", f"{D}/tables/{name}/rename", {"new-name": f"{name}_new"})
        assert alice.ask("GET", f"/tables/main.s.{name}").status == 404
        assert alice.ask("GET", f"/tables/main.s.{name}_new").status == 200
        before = access_documents(server)
        admin.ok("DELETE", f"/tables/main.s.{name}_new")
        assert len(access_documents(server)) == len(before) - 1
        external(admin, f"{name}_new", f"s3://lake/{name}_again")
        assert alice.ask("GET", f"/tables/main.s.{name}_new").status == 404


def test_a_drop_by_another_program_ends_grants_too(server: InProcess) -> None:
    table = server.unity().new_table()
    grant(server, "table", f"main.s.{table.name}", "alice", "SELECT")
    assert access_key(table.id) in access_documents(server)
    server.manager.drop_table(f"s.{table.name}")
    assert access_key(table.id) not in access_documents(server)


def test_a_schema_takes_its_grants_along(server: InProcess) -> None:
    admin = server.unity()
    for name in ("gone", "gone"):
        admin.ok("POST", "/schemas", {"name": name, "catalog_name": "main"})
        assert schema_access_key(name) not in access_documents(server)
        grant(server, "schema", f"main.{name}", "carol", "USE SCHEMA")
        admin.ok("DELETE", f"/schemas/main.{name}")


def test_a_schema_with_grants_stays_when_its_last_table_goes(server: InProcess, tmp_path: Path) -> None:
    from tests.support.server import SCHEMA

    server.manager.create_table("implied.t", str(tmp_path / "t"), SCHEMA)
    grant(server, "schema", "main.implied", "alice", "SELECT")
    server.manager.drop_table("implied.t")
    assert server.unity(ALICE).ask("GET", "/schemas/main.implied").status == 200
    server.unity().ok("DELETE", "/schemas/main.implied")
    assert schema_access_key("implied") not in access_documents(server)


@pytest.mark.parametrize(
    "path", ["/tables/main.S.{}", "/tables/MAIN.s.{}", "/tables/main.s.{}%00", "/tables/main.s.%2E{}"]
)
def test_other_forms_of_a_name_are_other_names(server: InProcess, path: str) -> None:
    name = external(server.unity())
    grant(server, "table", f"main.s.{name}", "bob", "SELECT")
    assert server.unity(BOB).ask("GET", path.format(name)).status in (400, 404)
    encoded = "".join(f"%{ord(each):02x}" for each in name)
    assert server.unity(BOB).ask("GET", f"/tables/main.s.{encoded}").status == 200
    assert server.unity(ALICE).ask("GET", f"/tables/main.s.{encoded}").status == 404


def test_a_table_that_takes_the_name_during_a_call_is_not_the_one_dropped(
    server: InProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    mine, secret = external(server.unity(ALICE)), server.unity().new_table()
    own = server.unity(ALICE).new_table()
    admits = Guard.admits

    def swapped(guard: Guard, table_id: str | None, name: str) -> bool:
        found = admits(guard, table_id, name)
        monkeypatch.undo()
        server.manager.coordinator.rename(own.id, f"s.{own.name}_moved")
        server.manager.coordinator.rename(secret.id, f"s.{own.name}")
        return found

    monkeypatch.setattr(Guard, "admits", swapped)
    server.unity(ALICE).ok("DELETE", f"/tables/main.s.{own.name}")
    assert server.manager.coordinator.table_with_id(own.id) is None
    assert server.manager.coordinator.table_with_id(secret.id) is not None
    assert server.unity(ALICE).ask("GET", f"/tables/main.s.{mine}").status == 200


def test_a_schema_that_takes_the_name_during_a_call_gets_no_grants(
    server: InProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    grant(server, "catalog", "main", "bob", "CREATE SCHEMA")
    server.unity(BOB).ok("POST", "/schemas", {"name": "taken", "catalog_name": "main"})
    give = Grants.grant

    def swapped(*arguments: Any) -> Any:
        monkeypatch.undo()
        server.tables.delete_schema("taken")
        server.tables.create_schema("taken", None, {}, Guard(ALICE, rules.CREATE_SCHEMA, server.grants, "main"))
        return give(*arguments)

    monkeypatch.setattr(Grants, "grant", swapped)
    body = {"changes": [{"principal": "bob", "add": ["SELECT"], "remove": []}]}
    assert server.unity(BOB).ask("PATCH", "/permissions/schema/main.taken", body).status == 404
    assert access_documents(server)[schema_access_key("taken")] == '{"owner":"alice"}'


@pytest.mark.parametrize("how", ["drop", "rename"])
@pytest.mark.parametrize("call", ["DELETE", "POST", "rename"])
def test_an_external_table_that_takes_the_name_during_a_call_is_not_changed(
    server: InProcess, monkeypatch: pytest.MonkeyPatch, how: str, call: str
) -> None:
    name = external(server.unity(ALICE))
    other = external(server.unity())
    update = {
        "requirements": [{"type": "assert-table-uuid", "uuid": server.tables.table_id(f"s.{name}")}],
        "updates": [{"action": "set-table-comment", "comment": "changed"}],
    }
    get, theirs = ExternalTables.get, server.tables.table_id(f"s.{other}")

    def swapped(*arguments: Any) -> Any:
        found = get(*arguments)
        monkeypatch.undo()
        if how == "drop":
            server.tables.drop(f"s.{name}")
        else:
            server.tables.rename(f"s.{name}", f"s.{name}_moved")
        table = msgspec.structs.replace(server.tables.found(f"s.{other}"), name=f"s.{name}")  # type: ignore[type-var]
        content = msgspec.json.encode(table).decode()
        assert server.manager.coordinator.change_documents([DocumentChange(EXTERNAL, f"s.{name}", 0, content)])
        return found

    monkeypatch.setattr(ExternalTables, "get", swapped)
    alice, path = server.unity(ALICE), f"{D}/tables/{name}"
    if call == "rename":
        found = alice.ask("POST", f"{path}/rename", {"new-name": f"{name}_other"})
    else:
        found = alice.ask(call, path, update if call == "POST" else None)
    assert found.error == (404, "NoSuchTableException")
    left = server.tables.found(f"s.{name}")
    assert (left.table_id, left.comment) == (theirs, None)  # type: ignore[union-attr]


def test_a_table_that_takes_a_name_during_a_listing_is_not_listed(
    server: InProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    mine, secret = server.unity(ALICE).new_table(), server.unity().new_table()
    names_after = UnityTables.names_after

    def swapped(*arguments: Any) -> list[str]:
        found = names_after(*arguments)
        monkeypatch.undo()
        server.manager.coordinator.rename(mine.id, f"s.{mine.name}_moved")
        server.manager.coordinator.rename(secret.id, f"s.{mine.name}")
        return found

    monkeypatch.setattr(UnityTables, "names_after", swapped)
    listed = server.unity(ALICE).ok("GET", "/tables?catalog_name=main&schema_name=s")["tables"]
    assert secret.id not in {each["table_id"] for each in listed}


# -------------------------------------------------------------------------------------------- no oracle


def _hidden_and_missing(server: InProcess) -> list[Any]:
    """Pairs of equal requests: for a table that Bob may not see, and for one that does not exist. Each is given with
    the word in which it differs from the other.
    """
    admin = server.unity()
    hidden, managed = external(admin), admin.new_table()
    ids = {hidden: admin.ok("GET", f"/tables/main.s.{hidden}")["table_id"], managed.name: managed.id}
    found: list[Any] = []
    for name, id_ in ids.items():
        update = {"requirements": [{"type": "assert-table-uuid", "uuid": id_}], "updates": []}
        missing = f"missing{len(found)}"
        for method, path, body in (
            ("GET", "/tables/main.s.{}", None),
            ("DELETE", "/tables/main.s.{}", None),
            ("GET", f"{D}/tables/{{}}", None),
            ("HEAD", f"{D}/tables/{{}}", None),
            ("POST", f"{D}/tables/{{}}", update),
            ("DELETE", f"{D}/tables/{{}}", None),
            ("POST", f"{D}/tables/{{}}/rename", {"new-name": "other"}),
            ("GET", f"{D}/tables/{{}}/credentials?operation=READ", None),
            ("POST", f"{D}/tables/{{}}/metrics", {"table-id": id_}),
            ("GET", "/permissions/table/main.s.{}", None),
            ("PATCH", "/permissions/table/main.s.{}", {"changes": []}),
        ):
            found.append([(each, (method, f"{ROOT}{path.format(each)}", body)) for each in (name, missing)])
        others = [id_, str(uuid.uuid4())]
        found += [
            [(each, (method, f"{ROOT}{path}", {"table_id": each, **more})) for each in others]
            for method, path, more in (
                ("POST", "/temporary-table-credentials", {"operation": "READ"}),
                ("GET", "/delta/preview/commits", {"start_version": 0, "table_uri": managed.location}),
            )
        ]
    writes = {"WriteOperations": [add(managed.root, "n.parquet", 1)]}
    lake: Any = (("GetTableObjects", {}), ("UpdateTableObjects", writes))
    for operation, more in lake:
        body = {"DatabaseName": "s", **more}
        names = (managed.name, "missing")
        found.append([(each, ("POST", f"/{operation}", {**body, "TableName": each})) for each in names])
    return found


def test_what_a_caller_may_not_see_is_answered_as_what_is_missing(server: InProcess) -> None:
    differences, count = [], 0
    for pair in _hidden_and_missing(server):
        told = []
        for word, request in pair:
            server.grants.forget()
            calls = _counted(server)
            status, body, _ = server.send(BOB, *request)
            told.append((status, str(body).replace(word, "NAME"), calls()))
        assert told[0][0] in (400, 404)
        differences += [(pair[0], told)] if told[0] != told[1] else []
        count += 1
    assert differences == []
    assert count == 28


def _counted(server: InProcess) -> Any:
    """A function that returns how often each method of the coordinator was called since this call."""
    coordinator, counts = server.manager.coordinator, collections.Counter[str]()
    names = ("table", "table_with_id", "document", "documents", "tables", "head")

    def counting(name: str) -> Any:
        method = getattr(type(coordinator), name)

        def call(*arguments: Any, **more: Any) -> Any:
            counts["all"] += 1
            return method(coordinator, *arguments, **more)

        return call

    for name in names:
        setattr(coordinator, name, counting(name))

    def end() -> int:
        for name in names:
            delattr(coordinator, name)
        return counts["all"]

    return end


def test_a_schema_that_a_caller_may_not_see_is_answered_as_one_that_is_missing(server: InProcess) -> None:
    unity = server.unity()
    unity.ok("POST", "/schemas", {"name": "empty", "catalog_name": "main"})
    grant(server, "catalog", "main", "clerk", "USE CATALOG")
    unity.new_table()
    told = []
    for name in ("s", "empty", "none"):
        server.grants.forget()
        calls = _counted(server)
        for path in (f"/schemas/main.{name}", f"/tables?catalog_name=main&schema_name={name}"):
            found = server.unity(Principal("clerk")).ask("GET", path)
            assert found.status == 404
            told.append(str(found.body).replace(f" {name}.", " NAME."))
        told.append(str(calls()))
    assert told[:3] == told[3:6] == told[6:]


def test_nobody_without_use_is_told_which_schemas_and_catalogs_there_are(server: InProcess) -> None:
    stranger = server.unity(Principal("stranger"))
    told = {stranger.ask("GET", f"/catalogs/{name}").body["message"].replace(name, "NAME") for name in ("main", "none")}
    assert told == {"There is no catalog NAME for stranger."}
    grant(server, "catalog", "main", "guest", "USE CATALOG")
    guest = server.unity(Principal("guest"))
    told = {
        guest.ask("GET", f"{D[:-1]}{name}/tables/t").body["message"].replace(f" {name}.", " NAME.")
        for name in ("s", "none")
    }
    assert told == {"The catalog main has no schema NAME."}
    assert guest.ok("GET", "/schemas?catalog_name=main")["schemas"] == []


def test_pages_have_what_the_caller_may_see_and_tokens_name_nothing_else(server: InProcess) -> None:
    admin, reader = server.unity(), Principal("reader")
    admin.ok("POST", "/schemas", {"name": "pages", "catalog_name": "main"})
    grant(server, "catalog", "main", "reader", *USE)
    seen = []
    for number in range(25):
        body = {
            "name": f"p{number:02}", "catalog_name": "main", "schema_name": "pages", "table_type": "EXTERNAL",
            "data_source_format": "DELTA", "storage_location": f"s3://lake/pages/{number}", "columns": [],
        }  # fmt: skip
        admin.ok("POST", "/tables", body)
        if number % 4 == 1:
            grant(server, "table", f"main.pages.p{number:02}", "reader", "SELECT")
            seen.append(f"p{number:02}")
    found, token, pages = [], "", 0
    while True:
        page = server.unity(reader).ok("GET", f"/tables?catalog_name=main&schema_name=pages&max_results=2{token}")
        found += [each["name"] for each in page["tables"]]
        pages += 1
        if page["next_page_token"] is None:
            break
        assert len(page["tables"]) == 2
        import base64

        text = page["next_page_token"]
        assert f"pages.{found[-1]}" in base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)).decode()
        token = f"&page_token={text}"
    assert (found, pages) == (seen, 3)
    # The page token of another principal is only a position in a listing, and reveals nothing else.
    admins = admin.ok("GET", "/tables?catalog_name=main&schema_name=pages&max_results=3")["next_page_token"]
    page = server.unity(reader).ok("GET", f"/tables?catalog_name=main&schema_name=pages&page_token={admins}")
    assert [each["name"] for each in page["tables"]] == [each for each in seen if each > "p02"]


# -------------------------------------------------------------------------------------- what belongs to whom


def test_a_staged_table_of_another_cannot_be_created_or_opened(server: InProcess) -> None:
    staged = server.unity(ALICE).ok("POST", f"{D}/staging-tables", {"name": "mine"})
    request = Table(server.unity(ALICE), "s", "mine", staged).first()
    bob, admin = server.unity(BOB), server.unity()
    refused = bob.ask("POST", f"{D}/tables", request)
    nothing = bob.ask("POST", f"{D}/tables", {**request, "location": f"{staged['location'][:-1]}0"})
    assert refused.error == nothing.error == (404, "NoSuchTableException")
    general = {
        "name": "mine",
        "catalog_name": "main",
        "schema_name": "s",
        "table_type": "MANAGED",
        "storage_location": staged["location"],
    }
    assert bob.ask("POST", "/tables", {**general, "columns": []}).status == 404
    for operation in ("READ", "READ_WRITE"):
        body = {"table_id": staged["table-id"], "operation": operation}
        assert bob.ask("POST", "/temporary-table-credentials", body).status == 404
        assert server.unity(ALICE).ask("POST", "/temporary-table-credentials", body).status == 200
    server.unity(ALICE).ok("POST", f"{D}/tables", request)
    assert bob.ask("POST", f"{D}/tables", request).error == (
        404,
        "NoSuchTableException",
    )  # another principal repeats the request
    assert server.unity(ALICE).ask("POST", f"{D}/tables", request).status == 200
    assert bob.ask("GET", f"/delta/v1/staging-tables/{staged['table-id']}/credentials").status == 404
    assert '"owner":"alice"' in access_documents(server)[access_key(staged["table-id"])]
    assert admin.ask("GET", f"{D}/tables/mine").status == 200


def test_what_stands_in_the_way_of_new_tables_is_not_named_to_everybody(tmp_path: Path) -> None:
    """The external table was registered before this was the warehouse."""
    made = InProcess(tmp_path)
    made.unity().ok("POST", "/schemas", {"name": "s", "catalog_name": "main"})
    grant(made, "catalog", "main", "alice", *USE, "CREATE TABLE")
    table = ExternalTable(table_id=str(uuid.uuid4()), name="s.secret", url=str(tmp_path), created_ms=0, updated_ms=0)
    content = msgspec.json.encode(table).decode()
    assert made.manager.coordinator.change_documents([DocumentChange(EXTERNAL, "s.secret", 0, content)])
    body = {"name": "t", "catalog_name": "main", "schema_name": "s"}
    for asked, is_named in ((made.unity(), True), (made.unity(ALICE), False)):
        found = asked.ask("POST", "/staging-tables", body)
        assert found.error == (400, "InvalidParameterValueException")
        assert ("secret" in str(found.body)) is is_named
    made.close()


def test_an_external_table_gives_no_keys_for_the_files_of_another(server: InProcess) -> None:
    external(server.unity(), "theirs", "s3://lake/team/theirs")
    bob = server.unity(BOB)
    own = external(bob, location="s3://lake/bob/own")
    for location in (
        "s3://lake/team/theirs",
        "s3://lake/team/theirs/part",
        "s3://lake/team",
        "s3a://lake/team/theirs/",
        "s3n://lake/team/theirs",
        "s3n://lake/bob/own",
        "s3://lake/bob/own/x",
    ):
        body = {
            "name": "grab",
            "catalog_name": "main",
            "schema_name": "s",
            "table_type": "EXTERNAL",
            "storage_location": location,
        }
        assert bob.ask("POST", "/tables", {**body, "data_source_format": "DELTA"}).error == (
            400,
            "InvalidParameterValueException",
        )
    for location in (
        "s3://lake/team/theirs",
        "s3://lake/team/theirs/part",
        "s3://lake/team",
        "s3a://lake/team/theirs/",
        "s3n://lake/team/theirs",
        "s3://lake",
    ):
        for operation in ("PATH_READ", "PATH_READ_WRITE", "PATH_CREATE_TABLE"):
            found = bob.ask("POST", "/temporary-path-credentials", {"url": location, "operation": operation})
            assert found.error == (403, "PermissionDeniedException"), (location, operation)
            assert "key" not in str(found.body["error"].get("aws_temp_credentials"))
    for location in ("s3://lake/bob/own", "s3://lake/bob/own/part"):
        found = bob.ask("POST", "/temporary-path-credentials", {"url": location, "operation": "PATH_READ_WRITE"})
        assert found.body["aws_temp_credentials"]["access_key_id"] == "key"
    assert bob.ok("GET", f"{D}/tables/{own}/credentials?operation=READ_WRITE")["storage-credentials"]


def test_tables_registered_at_the_same_moment_do_not_share_their_files(
    server: InProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    all_ = ExternalTables.all

    def raced(tables: ExternalTables) -> Iterator[Any]:
        found = list(all_(tables))
        monkeypatch.undo()
        guard = Guard(ALICE, rules.CREATE_EXTERNAL, server.grants, "main")
        server.tables.register_external("s.first", "s3://lake/raced", "DELTA", None, {}, [], None, (), guard)
        return iter(found)

    monkeypatch.setattr(ExternalTables, "all", raced)
    body = {
        "name": "second", "catalog_name": "main", "schema_name": "s", "table_type": "EXTERNAL",
        "data_source_format": "DELTA", "storage_location": "s3://lake/raced/part",
    }  # fmt: skip
    assert server.unity(BOB).ask("POST", "/tables", body).error == (400, "InvalidParameterValueException")
    assert "s.second" not in server.tables.names_after("s", "", 10)


def test_transactions_belong_to_whom_they_were_started_for(server: InProcess) -> None:
    table = server.unity(ALICE).new_table()
    mine = server.lake(ALICE, "StartTransaction", {})[1]["TransactionId"]
    grant(server, "table", f"main.s.{table.name}", "bob", "SELECT", "MODIFY")
    new = mine.partition(".")[0]
    body = {"DatabaseName": "s", "TableName": table.name}
    writes: Any = {"WriteOperations": [add(table.root, "f.parquet", 1)]}
    for forged in (mine, new, f"{new}.", f"{new}.{'0' * 32}", str(uuid.uuid4())):
        for operation, more in (
            ("CommitTransaction", {}), ("CancelTransaction", {}), ("ExtendTransaction", {}),
            ("DescribeTransaction", {}), ("GetTableObjects", body), ("UpdateTableObjects", {**body, **writes}),
            ("DeleteObjectsOnCancel", {**body, "Objects": [{"Uri": str(table.root / "f.parquet")}]}),
        ):  # fmt: skip
            status, answer = server.lake(BOB, operation, {"TransactionId": forged, **more})
            assert (status, answer["__type"]) == (400, "EntityNotFoundException"), (operation, answer)
            assert answer["Message"].replace(forged, "ID").endswith("has no transaction ID.")
    assert server.lake(BOB, "ListTransactions", {})[1] == {"Transactions": []}
    assert mine in str(server.lake(ALICE, "ListTransactions", {"MaxResults": 1000})[1])
    assert server.lake(ALICE, "CommitTransaction", {"TransactionId": mine})[0] == 200


def test_pages_of_transactions_have_only_the_callers(server: InProcess) -> None:
    lister = Principal("lister")
    own = []
    for number in range(12):
        id_ = server.lake(lister if number % 3 == 0 else ALICE, "StartTransaction", {})[1]["TransactionId"]
        own += [id_] if number % 3 == 0 else []
    found: list[str] = []
    token: dict[str, str] = {}
    while True:
        page = server.lake(lister, "ListTransactions", {"MaxResults": 2, **token})[1]
        found += [each["TransactionId"] for each in page["Transactions"]]
        if "NextToken" not in page:
            break
        token = {"NextToken": page["NextToken"]}
    assert sorted(found) == sorted(own)


def test_a_commit_needs_what_was_taken_away_meanwhile(server: InProcess) -> None:
    table = server.unity().new_table()
    grant(server, "table", f"main.s.{table.name}", "bob", "MODIFY")
    id_ = server.lake(BOB, "StartTransaction", {})[1]["TransactionId"]
    body = {"DatabaseName": "s", "TableName": table.name, "TransactionId": id_}
    write = {"WriteOperations": [add(table.root, "day=mon/f.parquet", 1)]}
    assert server.lake(BOB, "UpdateTableObjects", {**body, **write})[0] == 200
    revoke(server, "table", f"main.s.{table.name}", "bob", "MODIFY")
    status, answer = server.lake(BOB, "CommitTransaction", {"TransactionId": id_})
    assert (status, answer["__type"]) == (403, "AccessDeniedException")
    assert table.load()["latest-table-version"] == 0
    grant(server, "table", f"main.s.{table.name}", "bob", "MODIFY")
    assert server.lake(BOB, "CommitTransaction", {"TransactionId": id_})[1] == {"TransactionStatus": "COMMITTED"}
    assert table.load()["latest-table-version"] == 1


def test_a_read_credential_of_the_same_principal_ends_no_transaction(server: InProcess) -> None:
    id_ = server.lake(ALICE, "StartTransaction", {})[1]["TransactionId"]
    reading = Principal("alice", scope=Scope.READ)
    for operation in ("CommitTransaction", "CancelTransaction", "ExtendTransaction"):
        assert server.lake(reading, operation, {"TransactionId": id_})[0] == 403
    described = server.lake(reading, "DescribeTransaction", {"TransactionId": id_})[1]["TransactionDescription"]
    assert described["TransactionStatus"] == "ACTIVE"


def test_the_id_of_another_catalog_opens_nothing(server: InProcess) -> None:
    table = server.unity().new_table()
    body = {"DatabaseName": "s", "TableName": table.name}
    for catalog in (server.manager.coordinator.catalog_id, str(uuid.uuid4())):
        assert (
            server.lake(BOB, "GetTableObjects", {**body, "CatalogId": catalog})[1]["__type"]
            == "EntityNotFoundException"
        )


def test_principals_with_names_of_groups_are_no_groups(server: InProcess) -> None:
    name = external(server.unity())
    grant(server, "table", f"main.s.{name}", "group:team", "SELECT")
    grant(server, "catalog", "main", "group:team", *USE)
    for taken in (
        Principal("team"),
        Principal("group:team"),
        Principal("x", frozenset({"group:team", "TEAM", "team "})),
    ):
        grant(server, "catalog", "main", "team", *USE)
        assert server.unity(taken).ask("GET", f"/tables/main.s.{name}").status == 404
    assert server.unity(BOB).ask("GET", f"/tables/main.s.{name}").status == 200


def test_properties_change_no_owner(server: InProcess) -> None:
    table = server.unity().new_table()
    grant(server, "table", f"main.s.{table.name}", "bob", "MODIFY")
    before = access_documents(server)
    update = {
        "requirements": [{"type": "assert-table-uuid", "uuid": table.id}],
        "updates": [{"action": "set-properties", "updates": {"owner": "bob", "grants": "{}"}}],
    }
    server.unity(BOB).ask("POST", table.path, update)
    assert access_documents(server) == before
    assert server.unity(BOB).ask("DELETE", table.path).status == 403


# ---------------------------------------------------------------------------------------------------- freshness


def test_a_change_is_seen_at_once_here_and_soon_elsewhere(server: InProcess) -> None:
    now = [0.0]
    here, there = (Grants(server.manager.coordinator, 2.0, lambda: now[0]) for _ in range(2))
    for grants in (here, there):
        assert grants.of_schema("fresh").grants == {}
    here.grant(Kind.SCHEMA, schema_access_key("fresh"), [GrantChange("x", frozenset({Privilege.SELECT}))])
    assert set(here.of_schema("fresh").grants) == {"x"}
    now[0] = 1.9
    assert there.of_schema("fresh").grants == {}
    now[0] = 2.0
    assert set(there.of_schema("fresh").grants) == {"x"}


def test_what_was_read_before_a_change_is_not_kept_after_it(server: InProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    coordinator = server.manager.coordinator
    grants = Grants(coordinator, 1000)
    key = schema_access_key("raced")
    grants.grant(Kind.SCHEMA, key, [GrantChange("x", frozenset({Privilege.SELECT}))])
    read = type(coordinator).document

    def late(kind: str, asked: str) -> Any:
        found = read(coordinator, kind, asked)
        monkeypatch.undo()
        grants.grant(Kind.SCHEMA, key, [GrantChange("x", remove=frozenset({Privilege.SELECT}))])
        return found

    monkeypatch.setattr(coordinator, "document", late)
    grants.of_schema("raced")
    assert grants.of_schema("raced").grants == {}


def test_administrators_look_nothing_up(server: InProcess) -> None:
    table = server.unity().new_table()
    coordinator, asked = server.manager.coordinator, []
    read = type(coordinator).document

    def noted(kind: str, key: str) -> Any:
        asked.append(kind)
        return read(coordinator, kind, key)

    coordinator.document = noted  # type: ignore[method-assign]
    try:
        server.unity().ok("GET", table.path)
        server.lake(Principal("root", is_admin=True), "GetTableObjects", {"DatabaseName": "s", "TableName": table.name})
    finally:
        del coordinator.document
    assert ACCESS not in asked
    assert CATALOG_ACCESS_KEY not in asked
