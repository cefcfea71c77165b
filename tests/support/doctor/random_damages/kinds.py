"""The registry of the kinds of random damages."""

from __future__ import annotations

import random
from collections.abc import Callable, Collection
from dataclasses import dataclass
from pathlib import Path

from deltalog import CheckReport, check
from tests.support.doctor.random_damages.log import Log, NoTargetError
from tests.support.doctor.random_tables import random_table

# Damages a log, and returns the ids of the rules that the check must report.
Damage = Callable[[Log], tuple[str, ...]]


@dataclass(frozen=True)
class Kind:
    """A kind of damage. ``wants``, ``avoids``: what the random table must be, and must not be. ``deep``: whether only a
    deep check can find the damage."""

    name: str
    damage: Damage
    wants: tuple[str, ...] = ()
    avoids: tuple[str, ...] = ()
    deep: bool = False


KINDS: dict[str, Kind] = {}
_ATTEMPTS = 30


def kind(*wants: str, avoids: Collection[str] = (), deep: bool = False) -> Callable[[Damage], Damage]:
    """Register a function as a kind of damage."""

    def register(function: Damage) -> Damage:
        name = function.__name__.replace("_", " ")
        assert name not in KINDS, name
        KINDS[name] = Kind(name, function, wants, tuple(avoids), deep)
        return function

    return register


@dataclass(frozen=True)
class Planted:
    """A damaged random table, and the rules whose violation the check must report."""

    path: Path
    kind: Kind
    rules: tuple[str, ...]
    told: tuple[str, ...]

    def check(self) -> CheckReport:
        return check(self.path, self.kind.deep)


def plant(place: Path, kind: Kind, seed: int) -> Planted:
    """Make a random table that the kind of damage can damage, and damage it."""
    for attempt in range(_ATTEMPTS):
        path = place / f"{seed}-{attempt}"
        number = seed * 1_000 + attempt
        made = random_table(path, number, random.Random(number).randrange(2, 7), kind.wants, kind.avoids)
        try:
            rules = kind.damage(Log(path, random.Random(number)))
        except NoTargetError:
            continue
        return Planted(path, kind, rules, tuple(made.told))
    raise AssertionError(f"no table of {_ATTEMPTS} has what {kind.name!r} damages")
