"""A server with a table of each kind, and its OpenAPI description with the names of existing objects, so that generated
requests get past the checks of names.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
from jsonschema import Draft202012Validator

from deltalog import DeltaTable, TransactionManager
from tests.support.server import SCHEMA, Served, add
from tests.support.server.unity import Table, Unity

_NESTED = {"items", "anyOf", "allOf", "oneOf", "prefixItems", "additionalProperties"}
_UNKNOWN = {str: ("unknown",), int: (7,)}
ROWS = pa.table({"id": [1, 2], "day": ["mon", "tue"]})


@dataclass(frozen=True)
class World:
    """``known``: names and ids of existing objects, by the names of the members and parameters that take them.
    ``managed``: a table that has an unpublished commit, and ``staged``: its next one. ``lake``: where callers may
    register tables.
    """

    known: Mapping[str, list[Any]]
    managed: Table
    staged: Mapping[str, Any]
    lake: Path


def populate(server: Served, place: Path, headers: Mapping[str, str] | None = None) -> World:
    """Make schemas, tables of each kind and transactions. ``place``: a directory with ``catalog.db`` and ``lake``,
    where callers may register tables."""
    unity = Unity(server, headers)
    unity.ok(
        "POST", "/schemas", {"name": "s", "catalog_name": "main", "comment": "all kinds", "properties": {"a": "b"}}
    )
    managed = unity.new_table("managed")
    managed.commit()
    spare = unity.new_table("spare")
    staged = unity.ok("POST", "/delta/v1/catalogs/main/schemas/s/staging-tables", {"name": "staged"})
    for name, kind in (("csv", "CSV"), ("delta", "DELTA")):
        DeltaTable.create(str(place / "external" / name), ROWS)
        unity.ok(
            "POST",
            "/tables",
            {
                "name": name, "catalog_name": "main", "schema_name": "s", "table_type": "EXTERNAL",
                "data_source_format": kind, "columns": [], "storage_location": str(place / "external" / name),
            },
        )  # fmt: skip
    manager = TransactionManager(str(place / "catalog.db"))
    manager.create_table("bank.a", str(place / "bank"), SCHEMA, partition_by=["day"])
    for number in range(2):
        DeltaTable.create(str(place / "lake" / f"t{number}"), ROWS)
    location = str(place / "lake" / "t0")
    registered = server.ask("POST", "/api/deltalog/v1/tables", {"name": "s.registered", "location": location}, headers)
    assert registered[0] == 200, registered
    transactions = [manager.start_transaction() for _ in range(2)] + [manager.start_transaction("READ_ONLY")]
    manager.cancel_transaction(transactions[1])
    added = add(place / "bank", "day=mon/x.parquet", 1)["AddObject"]
    names = ["managed", "spare", "csv", "delta", "registered", "staged", "new"]
    locations = [staged["location"], managed.location, location, str(place / "lake" / "t1"), "/etc"]
    locations += [f"s3://b/t{number}" for number in range(6)]
    ids = [managed.id, spare.id, staged["table-id"], registered[1]["table_id"]]
    staged_commit = managed.stage()
    commit = staged_commit["commit"]
    request = spare.first(write=False)
    columns = [{"name": "id", "type_text": "bigint", "type_name": "LONG", "type_json": '"long"', "position": 0}]
    updates = [
        [staged_commit],
        [staged_commit, {"action": "set-latest-backfilled-version", "latest-published-version": 1}],
        [{"action": "set-latest-backfilled-version", "latest-published-version": 1}],
        [{"action": "set-table-comment", "comment": "c"}, {"action": "set-properties", "updates": {"a": "b"}}],
        [{"action": "set-columns", "columns": request["columns"]}],
        [{"action": "update-metadata-snapshot-version", "last-commit-version": 3, "last-commit-timestamp-ms": 4}],
    ]
    return World(
        {
            "catalog": ["main"], "catalog_name": ["main"], "schema": ["s", "bank"], "schema_name": ["s", "bank"],
            "table": names, "full_name": ["main.s", "main.bank", *(f"main.s.{name}" for name in names)],
            "name": [*(f"s.{name}" for name in names), "bank.a", *names, "main", "s"], "new-name": names,
            "location": locations, "storage_location": locations, "table_uri": locations, "url": locations,
            "table_id": ids, "table-id": ids, "uuid": ids, "protocol-versions": ["1.0", "2.0"],
            "TransactionId": transactions, "DatabaseName": ["bank", "s"], "TableName": ["a", *names],
            "CatalogId": [manager.coordinator.catalog_id], "Uri": [added["Uri"]], "ETag": [added["ETag"]],
            "Size": [added["Size"]], "PartitionValues": [["mon"]], "QueryAsOfTime": [1e9, 2e9],
            "PartitionPredicate": ["day = 'mon'", "day >"], "file-name": [commit["file-name"]],
            "file_name": [commit["file-name"]], "version": [2, 1], "timestamp": [commit["timestamp"]],
            "file-size": [commit["file-size"]], "file_size": [commit["file-size"]], "dry_run": [True],
            "latest-published-version": [1, 2], "latest_backfilled_version": [1, 2],
            "table_type": ["MANAGED", "EXTERNAL"],
            "requirements": [[{"type": "assert-table-uuid", "uuid": each}] for each in ids], "updates": updates,
            "columns": [columns], "page_token": [], "NextToken": [], "protocol": [request["protocol"]],
            "partition-columns": [["day"]], "last-commit-timestamp-ms": [spare.last_ms],
            "table-type": ["MANAGED", "EXTERNAL"],
            "operation": ["READ", "READ_WRITE", "PATH_READ", "PATH_CREATE_TABLE"],
        },
        managed,
        staged_commit,
        place / "lake",
    )  # fmt: skip


def with_known(document: Mapping[str, Any], world: World) -> dict[str, Any]:
    """A description in which members of requests that ``known`` names have a known value or an unknown one. Those whose
    known values are structures may have any other value too; those for which ``known`` has an empty list are left out.
    """
    made = copy.deepcopy(dict(document))
    components = made["components"]["schemas"]
    given: dict[str, Any] = {}

    def narrowed(name: str, schema: Any) -> Any:
        values = world.known.get(name)
        if values is None:
            return narrow(schema)
        known = {"enum": [*values, *_UNKNOWN.get(type(values[0]), ())]}
        return {"anyOf": [known, narrow(schema)]} if isinstance(values[0], list) else known

    def narrow(schema: Any) -> Any:
        """The schema with known values. The components that it refers to are copied, because responses use them too."""
        if isinstance(schema, list):
            return [narrow(each) for each in schema]
        if not isinstance(schema, dict):
            return schema
        if isinstance(reference := schema.get("$ref"), str):
            name = reference.rpartition("/")[2]
            if name not in given:
                given[name] = {}
                given[name] = narrow(components[name])
            return {"$ref": f"#/components/schemas/given.{name}"}
        found = {
            key: narrow(each) if key in _NESTED else each for key, each in schema.items() if key != "discriminator"
        }
        if "properties" in schema:
            members = {name: each for name, each in schema["properties"].items() if world.known.get(name) != []}
            found["properties"] = {name: narrowed(name, each) for name, each in members.items()}
        return found

    for path in made["paths"].values():
        for operation in path.values():
            parameters = operation.get("parameters", [])
            operation["parameters"] = [each for each in parameters if world.known.get(each["name"]) != []]
            for each in operation["parameters"]:
                each["schema"] = narrowed(each["name"], each["schema"])
            if "requestBody" in operation:
                content = operation["requestBody"]["content"]["application/json"]
                content["schema"] = narrow(content["schema"])
    components.update({f"given.{name}": schema for name, schema in given.items()})
    return made


class Answers:
    """Checks responses against a description."""

    def __init__(self, document: Mapping[str, Any]) -> None:
        self._document = document
        self._validators: dict[tuple[str, str, int], Draft202012Validator | None] = {}

    def problems(self, method: str, template: str, status: int, body: Any) -> list[str]:
        """The problems of a response. ``template``: the path in the description."""
        key = method, template, status
        if key not in self._validators:
            responses = self._document["paths"][template][method.lower()]["responses"]
            if str(status) not in responses:
                return [f"the status {status} is not described: {body}"]
            response = responses[str(status)]
            if "$ref" in response:
                response = self._document["components"]["responses"][response["$ref"].rpartition("/")[2]]
            self._validators[key] = self._validator(response)
        validator = self._validators[key]
        if validator is None:
            return [] if body is None else ["a body is not described"]
        return [f"{each.message} in {body}" for each in validator.iter_errors(body)]

    def _validator(self, response: Mapping[str, Any]) -> Draft202012Validator | None:
        if "content" not in response:
            return None
        schema = response["content"]["application/json"]["schema"]
        return Draft202012Validator({"allOf": [schema], "components": self._document["components"]})
