"""Deliberate faults in the real commit code, all of which a useful simulation must detect.

Every mutant replaces a function or a method of the library (or wraps the store) with a version that contains a
realistic bug. Within MAX_SEEDS schedules the mutant must break one of the invariants listed for it, and the unchanged
code must break none in the same schedules.

    seed, violations = find(commit_mutants.MUTANTS[0])

Mutants patch private code, so they must be updated when that code changes.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from deltalog.testing.checker import Violation
from tests.support.simulation.scheduler import ScheduleStuckError
from tests.support.simulation.simulation import ScheduleResult, run_schedule

MAX_SEEDS = 400


@functools.cache
def known_seeds() -> dict[str, list[int]]:
    """For each mutant name, the seeds that have detected it."""
    lines = Path(__file__).with_name("mutant_seeds.txt").read_text().splitlines()
    known: dict[str, list[int]] = {}
    for name, seed in (line.split() for line in lines if not line.startswith("#")):
        known.setdefault(name, []).append(int(seed))
    return known


class Patch:
    """The patched attributes of a mutant, which are restored after the run, and its schedule options."""

    def __init__(self, options: dict[str, Any]) -> None:
        self.options = options
        self._old: list[tuple[Any, str, Any]] = []

    def setattr(self, target: Any, name: str, value: Any) -> None:
        self._old.append((target, name, vars(target)[name]))
        setattr(target, name, value)

    def undo(self) -> None:
        while self._old:
            setattr(*self._old.pop())


@dataclass(frozen=True)
class Mutant:
    """``apply`` installs the defect. ``run`` must report a violation of one of ``invariants``."""

    name: str
    apply: Callable[[Patch], None]
    invariants: frozenset[str]
    options: dict[str, Any] = field(default_factory=dict)
    run: Callable[..., ScheduleResult] = run_schedule

    @contextlib.contextmanager
    def applied(self) -> Iterator[dict[str, Any]]:
        """Install the defect for the duration of the block. Yields the options for the schedules that should detect
        it."""
        patch = Patch(dict(self.options))
        try:
            self.apply(patch)
            yield patch.options
        finally:
            patch.undo()


Apply = Callable[[Patch], None]
Run = Callable[..., ScheduleResult]


def adding_to(mutants: list[Mutant], usual: Run) -> Callable[..., Callable[[Apply], Apply]]:
    """A decorator that adds a mutant to a list: ``@mutant("I1", **options)``; ``run=`` replaces the default function
    that runs a schedule."""

    def mutant(*invariants: str, run: Run = usual, **options: Any) -> Callable[[Apply], Apply]:
        def register(apply: Apply) -> Apply:
            mutants.append(Mutant(apply.__name__, apply, frozenset(invariants), options, run))
            return apply

        return register

    return mutant


def find(each: Mutant, max_seeds: int = MAX_SEEDS) -> tuple[int, list[Violation]] | None:
    """A seed that detects the mutant (the known seed, or else the first that detects it), and the violations found;
    None if no seed detects it."""
    with each.applied() as options:
        for seed in [*known_seeds().get(each.name, ()), *range(max_seeds)]:
            try:
                result = each.run(seed, **options)
            except ScheduleStuckError:
                continue  # the schedule did not finish, which does not count as a violation
            if each.invariants & {violation.invariant for violation in result.violations}:
                return seed, result.violations
    return None
