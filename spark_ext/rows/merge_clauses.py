"""A MERGE, as its caller describes it: source, condition and clauses."""

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
    """A WHEN clause. ``sets``: the assignments; None assigns all columns."""

    group: Group
    action: Action
    condition: Expression | None
    sets: Mapping[str, Expression] | None = None

    @property
    def entry(self) -> dict[str, str]:
        """The clause in the operation parameters, as delta-spark records it."""
        condition = {} if self.condition is None else {"predicate": text_of(self.condition)}
        return {**condition, "actionType": self.action}


@dataclass(frozen=True)
class Merge:
    """A MERGE. ``evolves``: whether schema evolution is enabled."""

    source: DataFrame
    condition: Expression
    clauses: Sequence[Clause] = field(default=())
    evolves: bool = False

    def clauses_of(self, group: Group) -> list[tuple[int, Clause]]:
        """The clauses of a group, each with its index among all clauses of the merge."""
        return [(number, clause) for number, clause in enumerate(self.clauses) if clause.group == group]

    def check(self) -> None:
        """Raise CallError if there is no clause, or if a clause can never apply."""
        if not self.clauses:
            raise deltalog.CallError("The merge has no clause. Add whenMatchedUpdate(…), whenNotMatchedInsert(…), ….")
        for group in ("matched", "not matched", "not matched by source"):
            clauses = [clause for _, clause in self.clauses_of(group)]
            if any(clause.condition is None for clause in clauses[:-1]):
                raise deltalog.CallError(
                    f"Only the last of the clauses for rows that are {group} may lack a condition: clauses after it "
                    "would never apply."
                )

    @property
    def may_match_several(self) -> bool:
        """Whether several source rows may match one row of the table; they may only if no clause uses a value of the
        source."""
        matched = [clause for _, clause in self.clauses_of("matched")]
        return not matched or (len(matched) == 1 and matched[0].action == "delete" and matched[0].condition is None)

    @property
    def parameters(self) -> dict[str, str]:
        """The operation parameters of the commit, as delta-spark records them."""

        def entries(group: Group) -> str:
            return json.dumps([clause.entry for _, clause in self.clauses_of(group)])

        return {
            "predicate": json.dumps([text_of(self.condition)]),
            "matchedPredicates": entries("matched"),
            "notMatchedPredicates": entries("not matched"),
            "notMatchedBySourcePredicates": entries("not matched by source"),
        }
