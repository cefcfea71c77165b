"""Random healthy tables of many kinds, written by deltalog's own verbs."""

from __future__ import annotations

import datetime
import random
from collections.abc import Callable, Collection, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa

from deltalog import DeltaLogError, DeltaTable
from deltalog.protocol.schema import PrimitiveType

UTC = datetime.timezone.utc
_TEXTS = ("", "a", "it's", "x" * 40, "é/%=:", "日本", None, "\u00a0", "b" * 32 + "\U0001f600")
_DAYS = ("a", "b c", "ä/ö", "50%", None, "2026-01-01")
# Each column that a table may have besides id, name and day, with its Arrow type and a function that makes a value.
_COLUMNS: dict[str, tuple[pa.DataType, Callable[[random.Random], Any]]] = {
    "price": (pa.float64(), lambda chance: chance.choice((0.0, -0.0, 1.5, float("nan"), 1e300, -7.25, None))),
    "amount": (pa.decimal128(12, 3), lambda chance: Decimal(chance.randrange(-(10**8), 10**8)).scaleb(-3)),
    "small": (pa.int16(), lambda chance: chance.choice((None, chance.randrange(-(2**15), 2**15)))),
    "flag": (pa.bool_(), lambda chance: chance.choice((True, False, None))),
    "born": (
        pa.date32(),
        lambda chance: datetime.date(1, 1, 1) + datetime.timedelta(days=chance.randrange(3_652_000)),
    ),
    "at": (
        pa.timestamp("us", "UTC"),
        lambda chance: (
            datetime.datetime(2, 1, 1, tzinfo=UTC)
            + datetime.timedelta(days=chance.randrange(3_650_000), microseconds=chance.randrange(86_400_000_000))
        ),
    ),
    "wall": (
        pa.timestamp("us"),
        lambda chance: (
            datetime.datetime(1800, 1, 1)
            + datetime.timedelta(days=chance.randrange(100_000), microseconds=chance.randrange(86_400_000_000))
        ),
    ),
    "blob": (pa.binary(), lambda chance: chance.choice((b"", b"\0\xff", None))),
    "inner": (
        pa.struct([("a", pa.int32()), ("b", pa.string())]),
        lambda chance: chance.choice((None, {"a": chance.randrange(100), "b": chance.choice(_TEXTS)})),
    ),
    "tags": (pa.list_(pa.string()), lambda chance: chance.choice((None, [], ["a", None]))),
}
_PROPERTIES = {
    "timed": {"delta.enableInCommitTimestamps": "true"},
    "vectors": {"delta.enableDeletionVectors": "true"},
    "mapped": {"delta.columnMapping.mode": "name"},
    "tracked": {"delta.enableRowTracking": "true"},
    "changes": {"delta.enableChangeDataFeed": "true"},
    "v2": {"delta.checkpointPolicy": "v2"},
    "widening": {"delta.enableTypeWidening": "true"},
}
# What a table may be, and how likely it is. ``timed_late``: in-commit timestamps are turned on later.
LIKELY = {
    "timed": 0.5, "timed_late": 0.3, "vectors": 0.4, "mapped": 0.3, "tracked": 0.3, "changes": 0.3, "v2": 0.3,
    "widening": 0.2, "partitioned": 0.4, "checkpointed": 0.5, "compacted": 0.2, "wide": 0.6,
}  # fmt: skip


class RandomTable:
    """A random table at ``path``. ``wants``, ``avoids``: what the table must be, and must not be (see LIKELY)."""

    def __init__(
        self, path: Path, chance: random.Random, wants: Collection[str] = (), avoids: Collection[str] = ()
    ) -> None:
        self.path, self.chance = path, chance
        drawn = {name for name, likely in LIKELY.items() if chance.random() < likely}
        self.traits = (drawn | {*wants}) - {*avoids}
        if "timed" in self.traits and "timed_late" in self.traits:
            self.traits.discard("timed" if "timed_late" in wants else "timed_late")
        self.told: list[str] = [", ".join(sorted(self.traits))]
        more = [name for name in _COLUMNS if "wide" in self.traits and chance.random() < 0.6]
        self._fields = [("id", pa.int64()), ("name", pa.string()), ("day", pa.string())]
        self._fields += [(name, _COLUMNS[name][0]) for name in more]
        self._next_id = 0
        properties = {key: value for name in sorted(self.traits) for key, value in _PROPERTIES.get(name, {}).items()}
        self._partition_by = ["day"] if "partitioned" in self.traits else []
        self.table = DeltaTable.create(
            path, pa.schema(self._fields), data=self._rows(4), partition_by=self._partition_by, properties=properties
        )

    def _rows(self, number: int, narrow: bool = False) -> pa.Table:
        made: list[dict[str, Any]] = []
        for _ in range(number):
            self._next_id += 1
            row: dict[str, Any] = {"id": self._next_id, "name": self.chance.choice(_TEXTS)}
            row["day"] = self.chance.choice(_DAYS[:3])
            for name, _ in self._fields[3:]:
                row[name] = _COLUMNS[name][1](self.chance) if name in _COLUMNS else self.chance.randrange(100)
            made.append(row)
        return pa.Table.from_pylist(made, pa.schema(self._fields))

    def grow(self, verbs: int) -> RandomTable:
        """Change the table by random verbs, so that it is what it must be."""
        for name in ("append", "append", "delete", "append"):
            self._do(name)
        for _ in range(verbs):
            self._do(self.chance.choice(_VERBS))
        if "timed_late" in self.traits:
            self._do("enable_timestamps")
            self._do("append")
        if "checkpointed" in self.traits:
            self._do("checkpoint")
        for name in ("append", "append"):
            self._do(name)
        if "compacted" in self.traits:
            self._do("compact")
        self.table.flush()
        return self

    def _do(self, name: str) -> None:
        self.told.append(name)
        try:
            getattr(self, f"_{name}")()
        except DeltaLogError as error:  # for example because the table does not allow the verb
            self.told[-1] += f" (refused: {error.code})"

    # ------------------------------------------------------------------------------------------------ verbs

    def _some_id(self) -> int:
        return self.chance.randrange(1, self._next_id + 1)

    def _append(self) -> None:
        self.table.append(self._rows(self.chance.randrange(1, 5)))

    def _append_in_order(self) -> None:
        self.table.append(self._rows(2), txn=("job", self.table.version))

    def _delete(self) -> None:
        self.table.delete(f"id = {self._some_id()}")

    def _delete_many(self) -> None:
        self.table.delete(f"id % 3 = {self.chance.randrange(3)}")

    def _update(self) -> None:
        self.table.update({"name": "'new'"}, where=f"id <= {self._some_id()} AND id % 2 = 0")

    def _merge(self) -> None:
        source = self._rows(2)
        merge = self.table.merge(source, "t.id = s.id", target_alias="t", source_alias="s")
        merge.when_matched_update_all().when_not_matched_insert_all().execute()

    def _overwrite(self) -> None:
        self.table.overwrite(self._rows(3))

    def _optimize(self) -> None:
        self.table.optimize.compact()

    def _restore(self) -> None:
        self.table.restore(self.chance.randrange(self.table.version + 1))
        self._fields = [each for each in self._fields if each[0] in self.table.schema.names]

    def _checkpoint(self) -> None:
        if "v2" in self.traits:
            self.table.checkpoint(top_level=self.chance.choice(("json", "parquet")), sidecar_rows=2)
        else:
            self.table.checkpoint()

    def _compact(self) -> None:
        last = self.table.version
        self.table.compact_log(self.chance.randrange(max(1, last - 3)), last)

    def _set_property(self) -> None:
        self.table.set_properties({"delta.checkpointInterval": str(self.chance.randrange(2, 12))})

    def _add_column(self) -> None:
        name = f"more{self._next_id}"
        self.table.add_columns(pa.schema([(name, pa.int32())]))
        self._fields.append((name, pa.int32()))

    def _rename(self) -> None:
        """Only possible with column mapping."""
        at = self.chance.randrange(3, len(self._fields)) if len(self._fields) > 3 else 0
        old, kind = self._fields[at]
        if at and old not in _COLUMNS:
            self.table.rename_column(old, f"{old}x")
            self._fields[at] = (f"{old}x", kind)

    def _widen(self) -> None:
        if "small" in dict(self._fields):
            self.table.set_column("small", data_type=PrimitiveType("long"))
            self._fields = [(name, pa.int64() if name == "small" else kind) for name, kind in self._fields]

    def _constrain(self) -> None:
        self.table.add_constraint(f"positive{self._next_id}", "id > 0")

    def _domain(self) -> None:
        self.table.set_domain_metadata("of.tests", str(self._next_id))

    def _enable_timestamps(self) -> None:
        self.table.enable_in_commit_timestamps()

    def _empty(self) -> None:
        self.table.delete("true")


_VERBS: Sequence[str] = (
    "append", "append", "append", "append_in_order", "delete", "delete", "delete_many", "update", "update", "merge",
    "overwrite", "optimize", "restore", "checkpoint", "compact", "set_property", "add_column", "rename", "widen",
    "constrain", "domain", "empty",
)  # fmt: skip


def random_table(
    path: Path, seed: int, verbs: int = 6, wants: Collection[str] = (), avoids: Collection[str] = ()
) -> RandomTable:
    """A healthy random table; the same seed gives the same kinds of changes."""
    return RandomTable(path, random.Random(seed), wants, avoids).grow(verbs)
