"""What a caller asks of a MERGE: its source, its condition and its clauses, in their order."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from pyspark.sql import DataFrame

import deltalog
from spark_ext.writing.assignments import Expression, text_of

Group = Literal["matched", "not matched", "not matched by source"]
Action = Literal["update", "delete", "insert"]


@dataclass(frozen=True)
class Clause:
    """A clause as it was called. ``sets``: None for all columns."""

    group: Group
    action: Action
    condition: Expression | None
    sets: Mapping[str, Expression] | None = None

    @property
    def entry(self) -> dict[str, str]:
        """What the commit says of it, in delta-spark's names."""
        condition = {} if self.condition is None else {"predicate": text_of(self.condition)}
        return {**condition, "actionType": self.action}


@dataclass(frozen=True)
class Merge:
    """What a caller asks for."""

    source: DataFrame
    condition: Expression
    clauses: Sequence[Clause] = field(default=())
    evolves: bool = False

    def of(self, group: Group) -> list[tuple[int, Clause]]:
        """The clauses of a group, with their numbers among all."""
        return [(number, clause) for number, clause in enumerate(self.clauses) if clause.group == group]

    def check(self) -> None:
        """Raise CallError where there is no clause, or one that can never apply."""
        if not self.clauses:
            raise deltalog.CallError("The merge has no clause. Add whenMatchedUpdate(…), whenNotMatchedInsert(…), ….")
        for group in ("matched", "not matched", "not matched by source"):
            clauses = [clause for _, clause in self.of(group)]
            if any(clause.condition is None for clause in clauses[:-1]):
                raise deltalog.CallError(
                    f"Of the clauses for rows that are {group}, only the last one may be without a condition: those "
                    "after it would never apply."
                )

    @property
    def may_match_several(self) -> bool:
        """Whether a row of the target may have several rows of the source: none of their values is used."""
        matched = [clause for _, clause in self.of("matched")]
        return not matched or (len(matched) == 1 and matched[0].action == "delete" and matched[0].condition is None)

    @property
    def parameters(self) -> dict[str, str]:
        """What the commit says of it, in delta-spark's names."""

        def entries(group: Group) -> str:
            return json.dumps([clause.entry for _, clause in self.of(group)])

        return {
            "predicate": json.dumps([text_of(self.condition)]),
            "matchedPredicates": entries("matched"),
            "notMatchedPredicates": entries("not matched"),
            "notMatchedBySourcePredicates": entries("not matched by source"),
        }
