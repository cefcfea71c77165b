"""The OpenAPI description: it is valid, contains every call, and is served to everyone who may use the server."""

from __future__ import annotations

import json
import re
import runpy
from typing import Any

import pytest
from openapi_spec_validator import OpenAPIV31SpecValidator

from deltalog.server.lakeformation import OPERATIONS
from deltalog.server.openapi.calls import LAKE_FORMATION, OWN, UNITY
from deltalog.server.openapi.document import document
from deltalog.server.unity import administration
from deltalog.server.unity.errors import TYPES
from deltalog.server.unity.router import ROUTERS
from deltalog.unity import messages
from tests.support.server import Served

ROUTES = [(root, each) for root, router in ROUTERS.items() for each in router.endpoints]


@pytest.fixture(scope="module")
def described() -> dict[str, Any]:
    return document()


def test_the_document_is_valid(described: dict[str, Any]) -> None:
    OpenAPIV31SpecValidator(described).validate()
    ids = [each["operationId"] for path in described["paths"].values() for each in path.values()]
    assert len(ids) == len(set(ids)) == len(ROUTES) + len(OPERATIONS) + 4


@pytest.mark.parametrize(("root", "route"), ROUTES, ids=[each.name for _, each in ROUTES])
def test_every_route_is_described(described: dict[str, Any], root: str, route: Any) -> None:
    operation = described["paths"][root + route.path][route.method.lower()]
    assert operation["summary"]
    named = {each["name"] for each in operation.get("parameters", ()) if each["in"] == "path"}
    assert named == set(re.findall(r"\{(\w+)\}", route.path))
    assert {"400", "401", "403", "429", "500"} <= operation["responses"].keys()


def test_no_call_is_described_that_is_not_served() -> None:
    of = {root: {each.name for each in router.endpoints} for root, router in ROUTERS.items()}
    assert of[messages.ROOT] == UNITY.keys()
    assert of[administration.ROOT] == OWN.keys()
    assert OPERATIONS.keys() == LAKE_FORMATION.keys()


def test_a_route_without_a_description_is_no_document(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "deltalog.server.openapi.document.OPERATIONS", {**OPERATIONS, "New": OPERATIONS["StartTransaction"]}
    )
    with pytest.raises(KeyError, match="New"):
        document()


def test_every_error_has_a_call_that_gives_it() -> None:
    given = {kind for call in (*UNITY.values(), *OWN.values()) for kind in call.errors}
    of_all = {"BadRequestException", "NotAuthorizedException", "PermissionDeniedException", "TooManyRequestsException",
              "InternalServerErrorException"}  # fmt: skip
    assert given | of_all == TYPES.keys() - {"NotImplementedException"}


def test_every_component_is_used(described: dict[str, Any]) -> None:
    text = json.dumps(described)
    for name in described["components"]["schemas"]:
        assert f'"#/components/schemas/{name}"' in text, name


def test_it_is_served_and_printed(
    server: Served, described: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    assert server.ask("GET", "/openapi.json") == (200, json.loads(json.dumps(described)))
    assert server.ask("POST", "/openapi.json", {})[0] == 404
    runpy.run_module("deltalog.server.openapi", run_name="__main__")
    assert json.loads(capsys.readouterr().out) == json.loads(json.dumps(described))
