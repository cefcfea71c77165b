"""Runs the operations of one system in a separate process: ``python -m tests.benchmarks.latency.worker SPEC.json``.

The specification names the system, the endpoint and the operations; the answer contains, for each phase, the result of
the phase and the times at which it began and ended (in seconds of time.monotonic, which the proxy also uses).
"""

from __future__ import annotations

import datetime
import json
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

KEY, SECRET, REGION = "testing-key-id", "testing-secret-key", "us-east-1"

Phases = Iterator[tuple[str, Callable[[], Any]]]
"""The name and function of each phase of an operation, in order; the functions' results are compared."""


class Deltalog:
    """deltalog, by its public names. It is imported before the measurement, with everything that all tables need, but
    without its S3 client."""

    def __init__(self, endpoint: str) -> None:
        import pyarrow as pa

        import deltalog

        self.deltalog, self.pa = deltalog, pa
        deltalog.DeltaTable  # noqa: B018 - public names are imported at their first use
        self.options: dict[str, Any] = {
            "key": KEY, "secret": SECRET, "endpoint_url": endpoint, "client_kwargs": {"region_name": REGION},
        }  # fmt: skip
        self.table: Any = None

    def row(self) -> Any:
        return self.pa.table({"id": self.pa.array([1], self.pa.int64())})

    def _open(self, url: str) -> int:
        self.table = self.deltalog.DeltaTable.open(url, **self.options)
        return int(self.table.version)

    def open(self, url: str) -> Phases:
        yield "open", lambda: self._open(url)
        yield "again", lambda: self._open(url)

    def resolve(self, url: str, at_ms: int) -> Phases:
        yield "open", lambda: self._open(url)
        yield "call", lambda: self.table.version_at(at_ms).version
        yield "again", lambda: self.table.version_at(at_ms + 1).version

    def load(self, url: str, at_ms: int) -> Phases:
        yield "open", lambda: self._open(url)
        yield "call", lambda: self.table.snapshot(timestamp=at_ms).files().num_rows

    def history(self, url: str, limit: int) -> Phases:
        yield "open", lambda: self._open(url)
        yield "call", lambda: [entry.version for entry in self.table.history(limit)]

    def append(self, url: str) -> Phases:
        # Created before the first measured phase, because creating the first row of a process imports pandas.
        row = self.row()
        yield "open", lambda: self._open(url)
        for name in ("call", "again", "third"):
            yield name, lambda: self.table.append(row).version

    def scan(self, url: str) -> Phases:
        def get_snapshot() -> int:
            self.snapshot = self.table.snapshot()
            return int(self.snapshot.version)

        yield "open", lambda: self._open(url)
        yield "snapshot", get_snapshot
        yield "call", lambda: self.snapshot.scan().to_arrow().num_rows

    def transaction(self, catalog: str, names: list[str]) -> Phases:
        def begin() -> int:
            self.manager = self.deltalog.TransactionManager(catalog, **self.options)
            return len([self.manager.table(name) for name in names])

        def change() -> int:
            self.transaction_now = self.manager.transaction()
            for name in names:
                self.transaction_now.table(name).append(self.row())
            return len(names)

        def commit() -> int:
            self.transaction_now.commit()
            return len(names)

        yield "open", begin
        for again in ("", " again"):
            yield f"change{again}", change
            yield f"commit{again}", commit

    # ------------------------------------------------------------------------ preparing the measurements

    def prepare(self, catalog: str, many: dict[str, bool], files: int, tables: list[str], place: str) -> Phases:
        """Create tables with real data files, and tables in a catalog."""
        yield "prepare", lambda: self._prepare(catalog, many, files, tables, place)

    def _prepare(self, catalog: str, many: dict[str, bool], files: int, tables: list[str], place: str) -> int:
        """``many``: the tables that have one commit of ``files`` small files, and whether they have in-commit
        timestamps."""
        schema = self.pa.schema([("part", self.pa.int64()), ("id", self.pa.int64())])
        rows = self.pa.table({"part": list(range(files)), "id": list(range(files))}, schema=schema)
        for url, ict in many.items():
            properties = {"delta.enableInCommitTimestamps": "true"} if ict else {}
            table = self.deltalog.DeltaTable.create(
                url, schema, partition_by=["part"], properties=properties, **self.options
            )
            table.append(rows)
        self.deltalog.storage.create_commit_table(catalog.partition(":")[2], "catalog", **self.options)
        manager = self.deltalog.TransactionManager(catalog, **self.options)
        for name in tables:
            manager.create_table(
                name, f"{place}/{name}", schema.remove(0), properties={"delta.checkpointInterval": "1000000"}
            )
        return len(tables)


class Deltalake:
    """delta-rs. ``without_files``, its fastest way to open a table, is used if the call does not need the files."""

    def __init__(self, endpoint: str) -> None:
        import pyarrow as pa
        from deltalake import DeltaTable, write_deltalake

        self.pa, self.type, self.write = pa, DeltaTable, write_deltalake
        self.options = {
            "AWS_ACCESS_KEY_ID": KEY, "AWS_SECRET_ACCESS_KEY": SECRET, "AWS_ENDPOINT_URL": endpoint,
            "AWS_REGION": REGION, "AWS_ALLOW_HTTP": "true", "aws_conditional_put": "etag",
        }  # fmt: skip
        self.table: Any = None

    def _open(self, url: str, **how: Any) -> int:
        self.table = self.type(url, storage_options=self.options, **how)
        return int(self.table.version())

    def open(self, url: str) -> Phases:
        yield "open", lambda: self._open(url, without_files=True)
        yield "again", lambda: self._open(url, without_files=True)

    def _travel(self, at_ms: int) -> int:
        self.table.load_as_version(datetime.datetime.fromtimestamp(at_ms / 1000, datetime.timezone.utc))
        return int(self.table.version())

    def resolve(self, url: str, at_ms: int) -> Phases:
        yield "open", lambda: self._open(url, without_files=True)
        yield "call", lambda: self._travel(at_ms)
        yield "again", lambda: self._travel(at_ms + 1)

    def load(self, url: str, at_ms: int) -> Phases:
        def call() -> int:
            self._travel(at_ms)
            return int(self.pa.table(self.table.get_add_actions()).num_rows)

        yield "open", lambda: self._open(url)
        yield "call", call

    def history(self, url: str, limit: int) -> Phases:
        yield "open", lambda: self._open(url, without_files=True)
        yield "call", lambda: [entry["version"] for entry in self.table.history(limit)]

    def append(self, url: str) -> Phases:
        row = self.pa.table({"id": self.pa.array([1], self.pa.int64())})  # not measured, as above

        def call() -> int:
            self.write(self.table, row, mode="append")
            return int(self.table.version())

        yield "open", lambda: self._open(url)
        for name in ("call", "again", "third"):
            yield name, call

    def scan(self, url: str) -> Phases:
        def call() -> int:
            return int(self.table.to_pyarrow_table().num_rows)

        yield "open", lambda: self._open(url)
        yield "call", call


SYSTEMS = {"deltalog": Deltalog, "deltalake": Deltalake}


def main() -> None:
    path = Path(sys.argv[1])
    spec = json.loads(path.read_text())
    system = SYSTEMS[spec["system"]](spec["endpoint"])
    answers = []
    for operation in spec["operations"]:
        phases = {}
        for name, work in getattr(system, operation["call"])(**operation["arguments"]):
            begun_s = time.monotonic()
            try:
                got, failure = work(), None
            except Exception as error:
                got, failure = None, f"{type(error).__name__}: {error}"[:300]
            phases[name] = {"begun_s": begun_s, "ended_s": time.monotonic(), "got": got, "failure": failure}
            if failure:
                break
        answers.append(phases)
    path.with_suffix(".out").write_text(json.dumps(answers))


if __name__ == "__main__":
    main()
