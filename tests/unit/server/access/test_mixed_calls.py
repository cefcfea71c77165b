"""A principal has rights on one of two tables only. It creates tables by Unity Catalog's calls, writes them in
transactions of Lake Formation's calls, reads them, and releases them.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from deltalog import DeltaTable
from deltalog.catalog.records import ACCESS, access_key
from deltalog.server.access.principals import Principal
from tests.support.server import SCHEMA, add
from tests.support.server.in_process import InProcess

ANN = Principal("ann")


@pytest.fixture
def server(tmp_path: Path) -> Iterator[InProcess]:
    made = InProcess(tmp_path)
    admin = made.unity()
    admin.ok("POST", "/schemas", {"name": "s", "catalog_name": "main"})
    for kind, name, words in (
        ("catalog", "main", ["USE CATALOG"]),
        ("schema", "main.s", ["USE SCHEMA", "CREATE TABLE"]),
    ):
        body = {"changes": [{"principal": "ann", "add": words, "remove": []}]}
        admin.ok("PATCH", f"/permissions/{kind}/{name}", body)
    yield made
    made.close()


def _named(name: str) -> dict[str, str]:
    return {"DatabaseName": "s", "TableName": name}


def _ok(found: tuple[int, Any]) -> Any:
    assert found[0] == 200, found
    return found[1]


def test_a_table_of_one_api_in_the_other(server: InProcess) -> None:
    ann, admin = server.unity(ANN), server.unity()
    own = ann.new_table("own")  # ann owns it
    other = admin.new_table("other")
    body = {"changes": [{"principal": "ann", "add": ["SELECT"], "remove": []}]}
    admin.ok("PATCH", "/permissions/table/main.s.other", body)
    hidden = admin.new_table("hidden")

    id_ = _ok(server.lake(ANN, "StartTransaction", {}))["TransactionId"]
    for table, name, expected in ((own, "own", 200), (other, "other", 403), (hidden, "hidden", 400)):
        operations = [add(table.root, "day=mon/lake.parquet", 1, 2)]
        request = {**_named(name), "TransactionId": id_, "WriteOperations": operations}
        status, received = server.lake(ANN, "UpdateTableObjects", request)
        assert status == expected, received
        gone = {**_named(name), "TransactionId": id_, "Objects": [{"Uri": str(table.root / "gone.parquet")}]}
        assert server.lake(ANN, "DeleteObjectsOnCancel", gone)[0] == expected
        read = server.lake(ANN, "GetTableObjects", {**_named(name), "TransactionId": id_})[0]
        assert read == (400 if name == "hidden" else 200)
    assert server.lake(Principal("bob"), "CommitTransaction", {"TransactionId": id_})[0] == 400
    assert _ok(server.lake(ANN, "CommitTransaction", {"TransactionId": id_})) == {"TransactionStatus": "COMMITTED"}

    # Unity Catalog's calls see the transaction's commit as the next version, and their commits follow it.
    loaded = ann.ok("GET", own.path)
    assert loaded["latest-table-version"] == 1
    assert admin.ok("GET", other.path)["latest-table-version"] == 0
    own.version = 1
    assert own.commit()["latest-table-version"] == 2
    objects = _ok(server.lake(ANN, "GetTableObjects", _named("own")))["Objects"]
    assert sum(len(each["Objects"]) for each in objects) == 2

    # Releasing the table for access by its path: only its owner may do so.
    for name, expected in (("other", 403), ("hidden", 404), ("own", 200)):
        status, received, _ = server.send(ANN, "POST", f"/api/deltalog/v1/tables/s.{name}/release")
        assert status == expected, received
    assert ann.ask("GET", own.path).error == (404, "NoSuchTableException")
    assert DeltaTable.open(str(own.root)).version == 3
    listed = server.send(ANN, "GET", "/api/deltalog/v1/tables")[1]["tables"]
    assert [each["name"] for each in listed] == ["s.other"]


def test_a_transaction_is_not_committed_after_the_right_is_gone(server: InProcess) -> None:
    ann, admin = server.unity(ANN), server.unity()
    table = admin.new_table("lent")
    words = {"principal": "ann", "add": ["SELECT", "MODIFY"], "remove": []}
    admin.ok("PATCH", "/permissions/table/main.s.lent", {"changes": [words]})
    id_ = _ok(server.lake(ANN, "StartTransaction", {}))["TransactionId"]
    request = {**_named("lent"), "TransactionId": id_}
    writes = [add(table.root, "day=mon/lent.parquet", 1)]
    _ok(server.lake(ANN, "UpdateTableObjects", {**request, "WriteOperations": writes}))
    change = {"principal": "ann", "add": [], "remove": ["MODIFY"]}
    admin.ok("PATCH", "/permissions/table/main.s.lent", {"changes": [change]})
    assert server.lake(ANN, "CommitTransaction", {"TransactionId": id_})[0] == 403
    assert ann.ok("GET", table.path)["latest-table-version"] == 0
    _ok(server.lake(ANN, "CancelTransaction", {"TransactionId": id_}))


def test_who_registers_a_table_owns_it(server: InProcess) -> None:
    root = server.place / "warehouse" / "mine"
    DeltaTable.create(str(root), pa.table({"id": [1]}))
    request = {"name": "s.mine", "location": str(root)}
    path = "/api/deltalog/v1/tables"
    assert server.send(ANN, "POST", path, request)[0] == 403  # without CREATE EXTERNAL TABLE
    change = {"principal": "ann", "add": ["CREATE EXTERNAL TABLE"], "remove": []}
    server.unity().ok("PATCH", "/permissions/catalog/main", {"changes": [change]})
    assert server.send(ANN, "POST", path, {**request, "take_over": True})[0] == 403
    assert server.send(ANN, "POST", path, request)[0] == 200
    _ok(server.lake(ANN, "GetTableObjects", _named("mine")))
    assert server.send(Principal("bob"), "GET", f"{path}/s.mine")[0] == 404
    assert server.send(ANN, "DELETE", f"{path}/s.mine")[0] == 200
    # The error about a location with a table that the caller may not see does not name the table.
    secret = server.place / "warehouse" / "secret"
    server.manager.create_table("s.nobody_knows", str(secret), pa.schema([("id", pa.int64())]))
    for location in (secret, secret / "below"):
        status, refused, _ = server.send(ANN, "POST", path, {"name": "s.there", "location": str(location)})
        assert (status, refused["error"]["type"]) == (409, "AlreadyExistsException")
        assert "nobody_knows" not in str(refused)
    # The owner was removed with the table; the principal who registers it again owns it.
    assert server.send(Principal("root", is_admin=True), "POST", path, request)[0] == 200
    assert server.send(ANN, "GET", f"{path}/s.mine")[0] == 404


def test_a_log_with_the_id_of_another_table_gives_no_rights_on_that_table(server: InProcess) -> None:
    """Who registers a table has written its log. External tables and staged ones have ids too."""
    admin, eve = server.unity(), Principal("eve")
    words = ["USE CATALOG", "USE SCHEMA", "CREATE TABLE", "CREATE EXTERNAL TABLE"]
    change = {"principal": "eve", "add": words, "remove": []}
    admin.ok("PATCH", "/permissions/catalog/main", {"changes": [change]})
    body = {
        "name": "theirs", "catalog_name": "main", "schema_name": "s", "table_type": "EXTERNAL",
        "data_source_format": "DELTA", "storage_location": "s3://lake/theirs", "columns": [],
    }  # fmt: skip
    external = admin.ok("POST", "/tables", body)["table_id"]
    staged = admin.ok("POST", "/delta/v1/catalogs/main/schemas/s/staging-tables", {"name": "soon"})["table-id"]
    for number, wanted in enumerate((external, staged)):
        root = server.place / "warehouse" / f"eves{number}"
        own = server.manager.create_table(f"s.eves{number}", str(root), SCHEMA)
        made = own.snapshot().metadata.configuration["io.unitycatalog.tableId"]
        server.manager.drop_table(f"s.eves{number}")
        first = root / "_delta_log" / f"{0:020d}.json"
        first.write_text(first.read_text().replace(made, wanted))
        for name in ("00000000000000000000.crc", "_last_checkpoint"):
            (root / "_delta_log" / name).unlink(missing_ok=True)
        request = {"name": f"s.eve{number}", "location": str(root)}
        status, found, _ = server.send(eve, "POST", "/api/deltalog/v1/tables", request)
        assert status == 200, found
        assert found["table_id"] not in (wanted, made)
        assert server.manager.coordinator.document(ACCESS, access_key(wanted)) is None
    assert server.unity(eve).ask("DELETE", "/tables/main.s.theirs").error[0] == 404


def test_keys_for_an_external_table_open_no_managed_table_that_lies_in_it(server: InProcess) -> None:
    """Other programs may create tables anywhere."""
    admin = server.unity()
    body = {
        "name": "outer", "catalog_name": "main", "schema_name": "s", "table_type": "EXTERNAL",
        "data_source_format": "PARQUET", "storage_location": f"file://{server.place}/outer", "columns": [],
    }  # fmt: skip
    table_id = admin.ok("POST", "/tables", body)["table_id"]
    admin.ok("PATCH", "/permissions/table/main.s.outer", {"changes": [{"principal": "ann", "add": ["SELECT"]}]})
    ann, path = server.unity(ANN), "/delta/v1/catalogs/main/schemas/s/tables/outer/credentials?operation=READ"
    asked = {"table_id": table_id, "operation": "READ"}
    assert ann.ask("GET", path).status == ann.ask("POST", "/temporary-table-credentials", asked).status == 200
    server.manager.create_table("s.secret", str(server.place / "outer" / "secret"), SCHEMA)
    for found in (ann.ask("GET", path), ann.ask("POST", "/temporary-table-credentials", asked)):
        assert found.error == (400, "InvalidParameterValueException")
        assert "secret" not in str(found.body)
