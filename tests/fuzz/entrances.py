"""Passes a foreign Parquet file to every call of deltalog and spark_ext that reads one, and returns the outcome of each
step as a value."""

from __future__ import annotations

import contextlib
import functools
import io
import json
import tempfile
import uuid
from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa

from deltalog import DeltaLogError, DeltaTable, Environment, check
from deltalog.environment import RetryPolicy
from deltalog.storage.memory import MemoryStore, named_store
from deltalog.testing.coordinators import MemoryCoordinator
from deltalog.transactions.manager import TransactionManager
from deltalog.transactions.table_objects import AddObject
from tests.fuzz.tables import DATA_SCHEMA, NOW, Files, data_rows, parquet
from tests.fuzz.usage import Outcomes, store_of

FOREIGN = "foreign.parquet"
CHECKPOINT = f"_delta_log/{1:020d}.checkpoint.parquet"


@functools.cache
def foreign(kind: str) -> bytes:
    """A valid Parquet file with the columns of the fuzzed tables."""
    rows = pa.concat_tables([data_rows(0), data_rows(4)])
    options: dict[str, dict[str, Any]] = {
        "plain": {},
        "groups": {"row_group_size": 2, "data_page_version": "2.0"},
        "bare": {"store_schema": False, "write_statistics": False},
        "int96": {"use_deprecated_int96_timestamps": True, "store_schema": False},
    }
    return parquet(rows, **options[kind])


@functools.cache
def _table(has_foreign: bool) -> Files:
    """A table of two commits; with ``has_foreign`` its last file is FOREIGN, which has no statistics in the log."""
    store = MemoryStore("memory://made", clock_ms=lambda: NOW)
    table = DeltaTable.create(store, DATA_SCHEMA, data=data_rows(0), environment=_environment(1))
    if not has_foreign:
        table.append(data_rows(4))
    else:
        store.put(FOREIGN, foreign("plain"))
        with table.transaction() as transaction:
            transaction.add_parquet_files([(FOREIGN, {})])
            transaction.commit("WRITE")
        path = f"_delta_log/{1:020d}.json"
        rows = [json.loads(row) for row in store.get(path).splitlines()]
        for row in rows:
            row.get("add", {}).pop("stats", None)
        store.put(path, "".join(json.dumps(row) + "\n" for row in rows).encode())
    return {path: data for path, (data, _) in store._objects.items() if not path.endswith(".crc")}


def with_foreign(kind: str) -> tuple[Files, list[str]]:
    """A table and, next to it, the file to damage."""
    return {**_table(has_foreign=False), FOREIGN: foreign(kind)}, [FOREIGN]


@functools.cache
def with_checkpoint() -> tuple[Files, list[str]]:
    """A table with a checkpoint; the checkpoint is the file to damage."""
    store = store_of(_table(has_foreign=False))
    DeltaTable.open(store, environment=_environment(2)).checkpoint()
    return {path: data for path, (data, _) in store._objects.items()}, [CHECKPOINT]


def enter(files: Files, predicates: Sequence[str] = (), *, brief: bool = False) -> Outcomes:
    """Pass the foreign file, or a table with a foreign checkpoint, to every call that accepts files of other writers.
    Raises any error that is not a DeltaLogError."""
    outcomes: Outcomes = {}

    def step(name: str, ask: Callable[[], Any]) -> None:
        try:
            ask()
        except DeltaLogError as error:
            outcomes[name] = error.code
            f"{error} {error!r}".encode()
        else:
            outcomes[name] = "="

    with contextlib.ExitStack() as stack:
        if FOREIGN in files:
            _enter_files(files[FOREIGN], files, step, stack)
        else:
            _enter_log(files, step)
    return outcomes


def _enter_files(data: bytes, files: Files, step: Any, stack: contextlib.ExitStack) -> None:
    def opened(has_foreign: bool) -> DeltaTable:
        there = {**_table(has_foreign), FOREIGN: data}
        if has_foreign:  # the log records the actual size of the file
            path = f"_delta_log/{1:020d}.json"
            there[path] = there[path].replace(b'"size": %d' % len(foreign("plain")), b'"size": %d' % len(data))
        return DeltaTable.open(store_of(there), environment=_environment())

    def add() -> None:
        with opened(False).transaction() as transaction:
            transaction.add_parquet_files([(FOREIGN, {})])
            transaction.commit("WRITE")

    step("add_parquet_files", add)
    step("convert", lambda: DeltaTable.convert(store_of({FOREIGN: data}), environment=_environment()))
    step("read", lambda: _first_rows(opened(True)))
    step("where", lambda: opened(True).snapshot().scan(where="id = 3").to_arrow())
    step("update", lambda: opened(True).update({"name": "'x'"}, "id = 5"))
    step("delete", lambda: opened(True).delete("id = 5"))
    step("compute_statistics", lambda: opened(True).compute_statistics())
    step("optimize", lambda: opened(True).optimize.compact())
    step("row tracking", lambda: opened(True).set_properties({"delta.enableRowTracking": "true"}))
    step("check", lambda: check(opened(True).snapshot().reader.store, True, environment=_environment()))
    step("update_table_objects", lambda: _update_objects(data))
    _enter_spark(data, step, stack)


def _first_rows(table: DeltaTable) -> None:
    """Read only the first rows, because a footer may claim any number of rows."""
    left = 100_000
    for batch in table.snapshot().scan().batches():
        batch.validate()
        left -= batch.num_rows
        if left < 0:
            return


def _enter_log(files: Files, step: Any) -> None:
    def opened() -> DeltaTable:
        return DeltaTable.open(store_of(files), environment=_environment())

    step("open", opened)
    step("read", lambda: opened().snapshot().scan().to_arrow())
    step("drop_feature", lambda: opened().drop_feature("v2Checkpoint"))
    step("clean_up", lambda: opened().cleanup_log())
    step("check", lambda: check(store_of(files), True, environment=_environment()))
    step("checkpoint", lambda: opened().checkpoint())


def _update_objects(data: bytes) -> None:
    manager = TransactionManager(MemoryCoordinator(), environment=_environment())
    root = f"memory://{uuid.uuid4()}"
    manager.create_table("a.b", root, DATA_SCHEMA)
    store = named_store(root)
    store.put(FOREIGN, data)
    manager.update_table_objects("a.b", [AddObject(f"{root}/{FOREIGN}", store.etag(FOREIGN) or "", len(data), ())])


def _enter_spark(data: bytes, step: Any, stack: contextlib.ExitStack) -> None:
    """The parts of spark_ext that read on the driver without a session."""
    from pyspark.sql import types

    from spark_ext.reading.file_schema import Layout, read_schemas
    from spark_ext.writing import job_files

    schema = types.StructType(
        [types.StructField("id", types.LongType()), types.StructField("name", types.StringType())]
    )
    layout = Layout(schema, schema, (), "none")
    step("spark_ext schemas", lambda: read_schemas(layout, [FOREIGN], lambda path: io.BytesIO(data)))
    directory = Path(stack.enter_context(tempfile.TemporaryDirectory()))
    (directory / "part-00000-x.parquet").write_bytes(data)
    table = DeltaTable.open(store_of(_table(has_foreign=False)), environment=_environment())
    step("spark_ext job", lambda: job_files.collect(str(directory), table.schema, (), ()))


def _environment(seed: int | None = None) -> Environment:
    """An environment whose UUIDs depend only on ``seed``, so that a case gives the same result in every process."""
    random = Random(seed)
    return Environment(
        clock_ms=lambda: NOW,
        sleep=lambda seconds: None,
        new_uuid=lambda: str(uuid.UUID(int=random.getrandbits(128), version=4)),
        retry=RetryPolicy(),
    )
