"""Every call of the server, as principals with different rights."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from deltalog.server.access.rules import Rule
from deltalog.server.lakeformation import OPERATIONS, Operation
from deltalog.server.unity.service import Endpoint
from tests.support.server import matrix
from tests.support.server.matrix import CASES, ENDPOINTS, WHO, Who, World


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    made = World(tmp_path_factory.mktemp("matrix"))
    yield made
    made.server.close()


@pytest.mark.parametrize("who", WHO, ids=lambda who: who.title)
def test_every_call_as_every_principal(world: World, who: Who) -> None:
    world.settle(who)
    found = {case.title: world.outcome(case) for case in CASES}
    assert found == {case.title: case.expected(who) for case in CASES}


def test_every_route_and_every_case_of_its_rule_is_in_the_matrix() -> None:
    routes = {name: endpoint.access for name, endpoint in ENDPOINTS.items()}
    routes |= {name: operation.access for name, operation in OPERATIONS.items()}
    wanted = {(name, case) for name, access in routes.items() for case in _cases(access)}
    wanted -= {(f"{name}", "CREATE_TABLE") for name in routes if "/delta/v1/temporary-path" in name}
    assert {(case.route, case.case) for case in CASES} == wanted


def _cases(rule: Rule) -> list[str | None]:
    return [*rule.cases] or [None]


def test_a_route_without_a_rule_cannot_be_made() -> None:
    with pytest.raises(TypeError, match="access"):
        Endpoint("GET", "/new", lambda request: None)  # type: ignore[call-arg, arg-type, return-value]
    with pytest.raises(TypeError, match="access"):
        Operation(lambda given: None, frozenset(), None)  # type: ignore[call-arg, arg-type, return-value]


def test_the_page_is_that_of_the_rules() -> None:
    assert matrix.PAGE.read_text() == matrix.page(), "run python -m tests.support.server.matrix"
