"""Uses a table as users do, and returns each step's outcome as a value, so that two runs can be compared."""

from __future__ import annotations

import functools
import hashlib
import itertools
import json
import uuid
from collections.abc import Callable
from typing import Any

import pyarrow as pa

from deltalog import DeltaLogError, DeltaTable, Environment, Snapshot
from deltalog.storage.memory import MemoryStore
from tests.fuzz.tables import NOW, Files

_MANY = 10_000
# For each step, the code of a DeltaLogError, or "=" and a digest of the answer.
Outcomes = dict[str, str]
PREDICATES = (
    "TRUE",
    "id = 9",
    "id > 8 AND name IS NOT NULL",
    "name >= 'name-010' OR score < 2.5",
    "day <= DATE '2026-01-09'",
    "moment > TIMESTAMP '2026-01-01T20:00:00.123456Z'",
    "price BETWEEN 0.05 AND 0.11",
    "nest.a IN (4, 5, 19)",
    "name LIKE 'name-01%'",
    "name IS NULL",
    "NOT ok",
    "part = 'p0' AND bucket > 1",
    "bucket = 2 OR score != 1.0",
)


def store_of(files: Files) -> MemoryStore:
    """A store that contains the files, all with one fixed modification time."""
    store = MemoryStore("memory://fuzz", clock_ms=lambda: NOW)
    for path, data in files.items():
        store.put(path, data)
    return store


def environment() -> Environment:
    """An environment that does not depend on the system's clock or randomness."""
    numbers = itertools.count(1)
    return Environment(
        clock_ms=lambda: NOW + 100_000,
        new_uuid=lambda: str(uuid.UUID(int=next(numbers), version=4)),
        sleep=lambda seconds: None,
        random=lambda: 0.5,
    )


def observe(files: Files, predicates: tuple[str, ...] = PREDICATES, *, brief: bool = False) -> Outcomes:
    """Open the table and run all queries on it; with ``brief``, query only the snapshot's state, the files and the
    predicates.

    Raises any error that is not a DeltaLogError.
    """
    outcomes: Outcomes = {}
    store = store_of(files)

    def step(name: str, ask: Callable[[], Any]) -> Any:
        try:
            answer = ask()
        except DeltaLogError as error:
            outcomes[name] = error.code
            str(error)
            return None
        outcomes[name] = _digest(answer)
        return answer

    table = step("open", lambda: DeltaTable.open(store, environment=environment()))
    if table is None:
        return outcomes
    snapshot = table.snapshot()
    step("state", lambda: _state(snapshot))
    step("totals", lambda: [snapshot.num_files, snapshot.size_bytes])
    step("files", lambda: _sorted_files(snapshot))
    step("totals again", lambda: [snapshot.num_files, snapshot.size_bytes])
    for where in predicates:
        step(where, functools.partial(_scanned, snapshot, where))
    if brief:
        return outcomes
    step("rows", lambda: _rows(snapshot.scan().to_arrow()))
    step("history", lambda: [entry.to_json() for entry in table.history()])
    step("version_at", lambda: table.version_at(NOW + 2500, before="earliest", after="latest"))
    step("explain", lambda: _explained(table))
    step("older", lambda: _sorted_files(table.snapshot(max(0, table.version - 1))))
    step("changes", lambda: _rows(table.changes(max(0, table.version - 2)).to_arrow()))
    step("checkpoint", table.checkpoint)
    if outcomes["checkpoint"].startswith("="):
        again = step("open again", lambda: DeltaTable.open(store, environment=environment()).snapshot())
        if again is not None:
            step("files again", lambda: _sorted_files(again))
    return outcomes


def _state(snapshot: Snapshot) -> list[Any]:
    schema = snapshot.schema
    schema.to_arrow()
    str(schema)
    return [
        snapshot.version,
        snapshot.protocol.to_json(),
        snapshot.metadata.to_json(),
        sorted((t.to_json() for t in snapshot.set_transactions), key=str),
        sorted((d.to_json() for d in snapshot.domain_metadata), key=str),
        snapshot.in_commit_timestamp_ms,
        schema.to_json(),
    ]


def _sorted_files(snapshot: Snapshot) -> list[Any]:
    """The files, sorted, without the fields that differ between the log and its checkpoint."""
    files = snapshot.files()
    if files.num_rows > _MANY:
        return [files.num_rows]
    rows: list[Any] = files.drop_columns(["tags"]).to_pylist()
    return sorted(rows, key=lambda row: str(row["path"]))


def _explained(table: DeltaTable) -> list[Any]:
    explanation = table.explain_timestamp(NOW + 2500)
    return [explanation.to_json(), str(explanation)]


def _scanned(snapshot: Snapshot, where: str) -> list[Any]:
    return _rows(snapshot.scan(where=where).to_arrow())


def _rows(table: pa.Table) -> list[Any]:
    table.validate(full=True)
    return sorted(_as_numbers(table).to_pylist(), key=str) if table.num_rows <= _MANY else [table.num_rows]


def _as_numbers(table: pa.Table) -> pa.Table:
    """Times as integers: Python's datetimes end in the year 9999; Arrow's timestamps do not."""
    wide = {"timestamp[us, tz=UTC]": pa.int64(), "timestamp[us]": pa.int64(), "date32[day]": pa.int32()}
    return table.cast(pa.schema([field.with_type(wide.get(str(field.type), field.type)) for field in table.schema]))


def _digest(answer: Any) -> str:
    if isinstance(answer, (DeltaTable, Snapshot, pa.Table)) or answer is None:
        return "="
    text = answer if isinstance(answer, str) else json.dumps(answer, default=repr, sort_keys=True)
    return "=" + hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=6).hexdigest()
