"""Faults put into the real commit code on purpose: what does not find them proves little.

Every mutant replaces a function or a method of the library (or wraps the store) in a way that a writer of such code
might have got wrong, and that real ones have. It must be found within MAX_SEEDS schedules, by an invariant that says
what is wrong, and the same schedules of the unchanged code must be clean.

    seed, violations = find(commit_mutants.MUTANTS[0])

They reach into the library's inside, so they belong to one version of it.
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
    """By name of a mutant, the seeds that have found it."""
    lines = Path(__file__).with_name("mutant_seeds.txt").read_text().splitlines()
    known: dict[str, list[int]] = {}
    for name, seed in (line.split() for line in lines if not line.startswith("#")):
        known.setdefault(name, []).append(int(seed))
    return known


class Patch:
    """Attributes that are put back, and what the schedules of this mutant are run with."""

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
    """``apply`` makes the change; ``invariants``: any of these must be found broken, in schedules that ``run`` runs."""

    name: str
    apply: Callable[[Patch], None]
    invariants: frozenset[str]
    options: dict[str, Any] = field(default_factory=dict)
    run: Callable[..., ScheduleResult] = run_schedule

    @contextlib.contextmanager
    def applied(self) -> Iterator[dict[str, Any]]:
        """The library with this defect, inside the block; what schedules are to be run with."""
        patch = Patch(dict(self.options))
        try:
            self.apply(patch)
            yield patch.options
        finally:
            patch.undo()


Apply = Callable[[Patch], None]
Run = Callable[..., ScheduleResult]


def adding_to(mutants: list[Mutant], usual: Run) -> Callable[..., Callable[[Apply], Apply]]:
    """A decorator that adds a mutant to a list: ``@mutant("I1", **options)``, with ``run=`` where its schedules are not
    the usual ones."""

    def mutant(*invariants: str, run: Run = usual, **options: Any) -> Callable[[Apply], Apply]:
        def register(apply: Apply) -> Apply:
            mutants.append(Mutant(apply.__name__, apply, frozenset(invariants), options, run))
            return apply

        return register

    return mutant


def find(each: Mutant, max_seeds: int = MAX_SEEDS) -> tuple[int, list[Violation]] | None:
    """A seed that finds the mutant and what it finds: the known one, else the first; None when none does."""
    with each.applied() as options:
        for seed in [*known_seeds().get(each.name, ()), *range(max_seeds)]:
            try:
                result = each.run(seed, **options)
            except ScheduleStuckError:
                continue  # it hangs, but nothing is known to be wrong yet
            if each.invariants & {violation.invariant for violation in result.violations}:
                return seed, result.violations
    return None
