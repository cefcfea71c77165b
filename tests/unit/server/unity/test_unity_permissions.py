"""The calls of the general API that show and change grants."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from deltalog.server.access.principals import Principal
from tests.support.server.in_process import InProcess
from tests.support.server.unity import Unity

INVALID = (400, "InvalidParameterValueException")
DENIED = (403, "PermissionDeniedException")
OWNER, READER = Principal("owner"), Principal("reader")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[InProcess]:
    made = InProcess(tmp_path_factory.mktemp("permissions"))
    admin = made.unity()
    admin.ok("POST", "/schemas", {"name": "s", "catalog_name": "main"})
    admin.new_table("t")
    patch(admin, "catalog/main", change("owner", "USE CATALOG", "CREATE SCHEMA"), change("reader", "USE CATALOG"))
    yield made
    made.close()


@pytest.fixture(scope="module")
def admin(server: InProcess) -> Unity:
    return server.unity()


def change(principal: str, *add: str, remove: tuple[str, ...] = ()) -> Any:
    return {"principal": principal, "add": list(add), "remove": list(remove)}


def patch(unity: Unity, path: str, *changes: Any) -> Any:
    return unity.ok("PATCH", f"/permissions/{path}", {"changes": list(changes)})["privilege_assignments"]


def shown(unity: Unity, path: str) -> Any:
    return {
        each["principal"]: each["privileges"]
        for each in unity.ok("GET", f"/permissions/{path}")["privilege_assignments"]
    }


def test_privileges_are_given_and_taken(admin: Unity) -> None:
    given = patch(admin, "table/main.s.t", change("a", "SELECT", "MODIFY"), change("group:b", "SELECT"))
    assert given == [
        {"principal": "a", "privileges": ["MODIFY", "SELECT"]},
        {"principal": "group:b", "privileges": ["SELECT"]},
    ]
    taken = patch(admin, "table/main.s.t", change("a", "SELECT", remove=("MODIFY", "SELECT")))
    assert taken == []
    assert shown(admin, "table/main.s.t") == {"group:b": ["SELECT"]}
    assert patch(admin, "table/main.s.t", change("group:b", remove=("SELECT",))) == []


@pytest.mark.parametrize(
    ("path", "word"),
    [("catalog/main", "CREATE SCHEMA"), ("schema/main.s", "USE SCHEMA"), ("table/main.s.t", "SELECT")],
)
def test_each_kind_of_object_has_permissions(admin: Unity, path: str, word: str) -> None:
    name = uuid.uuid4().hex
    assert patch(admin, path, change(name, word)) == [{"principal": name, "privileges": [word]}]
    found = admin.ok("GET", f"/permissions/{path}?principal={name}")
    assert found == {"privilege_assignments": [{"principal": name, "privileges": [word]}]}
    assert name in shown(admin, path)


def test_owners_see_all_grants_and_others_their_own(server: InProcess, admin: Unity) -> None:
    owner = server.unity(OWNER)
    owner.ok("POST", "/schemas", {"name": "mine", "catalog_name": "main"})
    patch(owner, "schema/main.mine", change("reader", "USE SCHEMA"), change("someone", "SELECT"))
    assert shown(owner, "schema/main.mine") == {"reader": ["USE SCHEMA"], "someone": ["SELECT"]}
    assert shown(server.unity(READER), "schema/main.mine") == {"reader": ["USE SCHEMA"]}
    body = {"changes": [change("reader", "SELECT")]}
    assert server.unity(READER).ask("PATCH", "/permissions/schema/main.mine", body).error == DENIED
    assert server.unity(READER).ask("GET", "/permissions/schema/main.s").error == (404, "NoSuchSchemaException")


def test_changes_are_all_made_or_none(admin: Unity) -> None:
    before = shown(admin, "table/main.s.t")
    wrong = {"changes": [change("a", "SELECT"), change("b", "CREATE TABLE")]}
    assert admin.ask("PATCH", "/permissions/table/main.s.t", wrong).error == INVALID
    assert shown(admin, "table/main.s.t") == before


@pytest.mark.parametrize(
    ("path", "body", "error"),
    [
        ("table/main.s.t", {"changes": [change("a", "READ VOLUME")]}, INVALID),
        ("table/main.s.t", {"changes": [change("", "SELECT")]}, INVALID),
        ("table/main.s.t", {"changes": [change("a\nb", "SELECT")]}, INVALID),
        ("table/main.s.t", {"changes": [change("group:", "SELECT")]}, INVALID),
        ("table/main.s.t", {"changes": [change("a" * 256, "SELECT")]}, INVALID),
        ("table/main.s.t", {"changes": [change("a")] * 101}, (400, "BadRequestException")),
        ("table/main.s.t", {}, (400, "BadRequestException")),
        ("table/main.s.none", {"changes": []}, (404, "NoSuchTableException")),
        ("schema/main.none", {"changes": []}, (404, "NoSuchSchemaException")),
        ("catalog/none", {"changes": []}, (404, "NoSuchCatalogException")),
        ("table/main.s", {"changes": []}, (400, "BadRequestException")),
        ("volume/main.s.v", {"changes": []}, (404, "NotFoundException")),
        ("metastore/x", {"changes": []}, (404, "NotFoundException")),
    ],
)  # fmt: skip
def test_permissions_refuse(admin: Unity, path: str, body: Any, error: tuple[int, str]) -> None:
    assert admin.ask("PATCH", f"/permissions/{path}", body).error == error
    if body.get("changes") == []:
        assert admin.ask("GET", f"/permissions/{path}").error == error


def test_an_object_has_a_thousand_grants_at_most(admin: Unity) -> None:
    admin.ok("POST", "/schemas", {"name": "many", "catalog_name": "main"})
    for first in range(0, 1000, 100):
        patch(
            admin,
            "schema/main.many",
            *(
                change(f"{number:0255}", "SELECT", "MODIFY", "USE SCHEMA", "CREATE TABLE")
                for number in range(first, first + 100)
            ),
        )
    refused = admin.ask("PATCH", "/permissions/schema/main.many", {"changes": [change("one more", "SELECT")]})
    assert refused.error == INVALID
    assert len(shown(admin, "schema/main.many")) == 1000


def test_whoever_creates_a_table_owns_it(server: InProcess, admin: Unity) -> None:
    patch(admin, "schema/main.s", change("owner", "USE SCHEMA", "CREATE TABLE"))
    table = server.unity(OWNER).new_table()
    path = f"table/main.s.{table.name}"
    assert patch(server.unity(OWNER), path, change("reader", "SELECT")) == [
        {"principal": "reader", "privileges": ["SELECT"]}
    ]
    assert server.unity(READER).ask("GET", f"/tables/main.s.{table.name}").status == 404  # no USE SCHEMA
    patch(admin, "schema/main.s", change("reader", "USE SCHEMA"))
    assert server.unity(READER).ask("GET", f"/tables/main.s.{table.name}").status == 200
    server.unity(OWNER).ok("DELETE", f"/tables/main.s.{table.name}")


def test_grants_are_in_the_catalog(server: InProcess, admin: Unity, tmp_path: Path) -> None:
    name = uuid.uuid4().hex
    patch(admin, "catalog/main", change(name, "USE CATALOG"))
    second = InProcess(server.place)
    assert shown(second.unity(), "catalog/main")[name] == ["USE CATALOG"]
    second.close()
