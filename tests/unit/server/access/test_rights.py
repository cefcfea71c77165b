"""Compares the rights of 500 principals with random owners and grants with a model of ten lines."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from deltalog.catalog.records import ACCESS, access_key
from deltalog.catalog.sqlite import SQLiteCoordinator
from deltalog.errors import EntityNotFoundError
from deltalog.server.access import rules
from deltalog.server.access.denials import PermissionDeniedError
from deltalog.server.access.grants import Grants
from deltalog.server.access.guard import Guard
from deltalog.server.access.principals import Scope
from deltalog.server.access.privileges import GRANTABLE, Kind
from deltalog.server.access.rules import Rule
from deltalog.testing.coordinators import MemoryCoordinator
from deltalog.transactions.unity import documents
from deltalog.transactions.unity.documents import CATALOG_ACCESS_KEY, schema_access_key
from tests.support.server.matrix import ALLOWED, CASES, DENIED, HIDDEN, LEVELS, Who, World, expected

RULES = {name: rule for name, rule in vars(rules).items() if isinstance(rule, Rule) and not rule.cases and not rule.own}
KEYS = {"catalog": CATALOG_ACCESS_KEY, "schema": schema_access_key("s"), "table": access_key("id")}


def anyone(chance: random.Random) -> Who:
    granted = {
        level: tuple(word.value for word in sorted(GRANTABLE[Kind(level)]) if chance.random() < 0.45)
        for level in LEVELS
    }
    owns = tuple(level for level in LEVELS if chance.random() < 0.15)
    scope = chance.choice([Scope.ADMIN, Scope.ADMIN, Scope.WRITE, Scope.READ])
    return Who("anyone", granted, owns, scope, chance.random() < 0.05, chance.random() < 0.3)


def decided(who: Who, rule: Rule, grants: Grants) -> str:
    guard = Guard(who.principal, rule, grants, "main")
    try:
        guard.check_scope()
        if rule.catalog is not None:
            guard.enter("main", None if rule.schema is None else "s")
        return HIDDEN if rule.table is not None and not guard.admits("id", "s.t") else ALLOWED
    except PermissionDeniedError:
        return DENIED
    except EntityNotFoundError:
        return HIDDEN


def test_500_random_principals_may_what_the_model_says() -> None:
    coordinator, chance, told = MemoryCoordinator(), random.Random(36), set()
    differences = []
    for number in range(500):  # also the revision of the documents
        who = anyone(chance)
        changes = [documents.change(ACCESS, KEYS[level], number, who.access(level)) for level in LEVELS]
        assert coordinator.change_documents(changes)
        grants = Grants(coordinator)
        for name, rule in RULES.items():
            found = decided(who, rule, grants)
            told.add((name, found))
            if found != expected(who, rule):
                differences.append((number, who, name, found))
    assert differences == []
    assert len(told) > 2.5 * len(RULES)  # nearly every rule allows, refuses and hides


@pytest.mark.long
def test_500_random_principals_make_every_call(tmp_path: Path) -> None:
    world, chance, differences = World(tmp_path), random.Random(37), []
    for number in range(500):
        who = anyone(chance)
        world.settle(who)
        wrong = {
            each.title: (found, each.expected(who))
            for each in CASES
            if (found := world.outcome(each)) != each.expected(who)
        }
        differences += [(number, who, wrong)] if wrong else []
    world.server.close()
    assert differences == []


def test_a_check_with_fresh_grants_asks_the_catalog_nothing(tmp_path: Path) -> None:
    coordinator = SQLiteCoordinator(tmp_path / "c.db", create=True)
    who = Who("", {"catalog": ("USE CATALOG", "USE SCHEMA", "SELECT")})
    assert coordinator.change_documents([documents.change(ACCESS, KEYS["catalog"], 0, who.access("catalog"))])
    grants = Grants(coordinator, fresh_seconds=1000)

    def check() -> None:
        guard = Guard(who.principal, rules.READ_TABLE, grants, "main")
        guard.enter("main", "s")
        assert guard.admits("id", "s.t")

    check()
    coordinator.document = None  # type: ignore[assignment, method-assign]
    check()
