"""Runs one measurement of one system in a separate process: ``python -m tests.benchmarks.worker SPEC.json``.

The specification names the system, the measurement, the table and the number of repeats; the result is a JSON file in
the same directory: seconds to import (or start) the system, the first call, the repeats, and the answers. Only the
standard library is imported before the clock runs.
"""

from __future__ import annotations

import importlib
import json
import math
import os
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

from tests.benchmarks import writing
from tests.benchmarks.checkpoints import checkpoints

Answer = Callable[[], Any]
"""Converts the result of a call to a form that can be compared, outside the measured time."""


class System(Protocol):
    """The calls of a measured system. A call for which a system has no method is not measured for this system.

    ``open`` returns a handle on the latest version; ``refresh`` brings it up to date, outside the measured time if the
    system does not do it itself; ``commit`` adds one file. The other methods open the table themselves: ``resolve``
    finds the version that was current at a time (``version_at`` with a handle of ``open_to_travel``), ``travel`` loads
    its files; ``files`` loads the files of the latest version, ``statistics`` the same with all statistics parsed,
    ``prune`` only files that may hold ids of a range; ``protocol`` loads only protocol and metadata, ``history`` every
    commit with its time and operation; ``checkpoint`` writes one of the latest version.

    ``rows`` are the rows of tables.small_batch as the system's own objects, ``rows_of_log`` those of tables.log_batch;
    ``append`` commits them with a string that identifies the commit, and raises one of the errors in ``gave_up`` after
    too many lost races against other writers. ``adds`` converts the bodies of add actions to the form that
    ``commit_adds`` commits.
    """

    gave_up: tuple[type[Exception], ...]

    def open(self, root: str) -> Any: ...
    def refresh(self, handle: Any) -> None: ...
    def commit(self, handle: Any, add: Any) -> int: ...
    def add(self, body: dict[str, Any]) -> Any: ...
    def adds(self, bodies: list[dict[str, Any]]) -> Any: ...
    def commit_adds(self, handle: Any, adds: Any) -> None: ...
    def rows(self) -> Any: ...
    def rows_of_log(self) -> Any: ...
    def append(self, handle: Any, rows: Any, tag: str) -> None: ...
    def resolve(self, root: str, timestamp_ms: int) -> Answer: ...
    def open_to_travel(self, root: str) -> Any: ...
    def version_at(self, handle: Any, timestamp_ms: int) -> Answer: ...
    def travel(self, root: str, timestamp_ms: int) -> Answer: ...
    def files(self, root: str) -> Answer: ...
    def statistics(self, root: str) -> Answer: ...
    def prune(self, root: str, low: int, high: int) -> Answer: ...
    def protocol(self, root: str) -> Answer: ...
    def history(self, root: str) -> Answer: ...
    def checkpoint(self, root: str) -> None: ...
    def peak_mib(self) -> float: ...
    def close(self) -> None: ...


class Deltalog:
    """deltalog, by its public names."""

    def __init__(self, call: str) -> None:
        import deltalog
        from deltalog.engine import AddFile  # noqa: F401 (imported here, before the measured first call)

        self.deltalog = deltalog
        self.gave_up = (deltalog.CommitConflictError,)

    def open(self, root: str) -> Any:
        return self.deltalog.DeltaTable.open(root)

    def refresh(self, handle: Any) -> None:
        """Does nothing, because each transaction loads the latest version itself, within the measured time."""

    def add(self, body: dict[str, Any]) -> Any:
        return self.deltalog.engine.AddFile(
            path=body["path"],
            partition_values=body["partitionValues"],
            size=body["size"],
            modification_time=body["modificationTime"],
            data_change=True,
            stats=body["stats"],
        )

    def commit(self, handle: Any, add: Any) -> int:
        with handle.transaction() as transaction:
            transaction.add(add)
            version: int = transaction.commit("WRITE", {"mode": "Append"}).version
        return version

    def adds(self, bodies: list[dict[str, Any]]) -> Any:
        return [self.add(body) for body in bodies]

    def commit_adds(self, handle: Any, adds: Any) -> None:
        with handle.transaction() as transaction:
            transaction.add(*adds)
            transaction.commit("WRITE", {"mode": "Append"})

    def rows(self) -> Any:
        return _small_batch()

    def rows_of_log(self) -> Any:
        return _log_batch()

    def append(self, handle: Any, rows: Any, tag: str) -> None:
        handle.append(rows, user_metadata=tag)

    def resolve(self, root: Any, timestamp_ms: int) -> Answer:
        return self.version_at(self.open(root), timestamp_ms)

    def open_to_travel(self, root: Any) -> Any:
        return self.open(root)

    def version_at(self, handle: Any, timestamp_ms: int) -> Answer:
        found = handle.version_at(timestamp_ms)
        return lambda: found.version

    def travel(self, root: Any, timestamp_ms: int) -> Answer:
        return _summary(self.open(root).snapshot(timestamp=timestamp_ms).files())

    def files(self, root: Any) -> Answer:
        return _summary(self.open(root).snapshot().files(), "size")

    def statistics(self, root: Any) -> Answer:
        snapshot = self.open(root).snapshot()
        # The JSON text of the statistics is left out, because the other systems do not return it either.
        files = snapshot.files(["path", "partition_values", "size", "modification_time"])
        statistics = snapshot.statistics()
        return lambda: {**_summary(files, "size")(), **_records(statistics, "num_records")}

    def prune(self, root: Any, low: int, high: int) -> Answer:
        column = self.deltalog.col("id")
        scan = self.open(root).snapshot().scan(where=(column >= low) & (column < high))
        return _summary(scan.files(), "size")

    def protocol(self, root: Any) -> Answer:
        snapshot = self.open(root).snapshot()
        protocol, metadata = snapshot.protocol, snapshot.metadata
        return lambda: {"writer": protocol.min_writer_version, "id": metadata.id}

    def history(self, root: Any) -> Answer:
        entries = self.open(root).history()
        return lambda: {"commits": len(entries), "newest": entries[0].version}

    def checkpoint(self, root: str) -> None:
        self.open(root).checkpoint()

    def peak_mib(self) -> float:
        return _peak_mib(os.getpid())

    def requests(self, spec: dict[str, Any], ask: list[Any]) -> dict[str, dict[str, int]]:
        """The store requests sent for opening the table and for the call itself; for appends, those of each append."""
        call, root = spec["call"], spec["root"]
        if call == "appends":
            return writing.requests_of_appends(spec)
        from deltalog.storage.fs import LocalStore
        from deltalog.testing import CountingStore
        from tests.benchmarks.requests import by_kind

        store = CountingStore(LocalStore(root))
        with store.counted() as opening:
            handle = self.open(store)  # type: ignore[arg-type]
        with store.counted() as both:
            getattr(self, call)(handle if call == "version_at" else store, *ask)
        return {"opening": by_kind(opening), "call": by_kind(both if call == "version_at" else both - opening)}

    def close(self) -> None:
        pass


class Deltalake:
    """delta-rs, by the names of its Python package. Statistics are always parsed; there is no fsync."""

    def __init__(self, call: str) -> None:
        if call == "prune":
            importlib.import_module(
                "pyarrow.compute"
                # Only a filter needs this part of pyarrow; importing it here keeps its memory out of the measurements
                # of other calls.
            )
        from deltalake import CommitProperties, DeltaTable, Schema, write_deltalake
        from deltalake.exceptions import CommitFailedError
        from deltalake.transaction import AddAction

        self.table, self.schema_type, self.add_action = DeltaTable, Schema, AddAction
        self.write, self.properties = write_deltalake, CommitProperties
        self.gave_up = (CommitFailedError,)
        self.schema: Any = None

    def open(self, root: str) -> Any:
        return self.table(root)

    def refresh(self, handle: Any) -> None:
        """Update the handle: after its own commit, a deltalake handle still refers to the version before that commit,
        and would then check its own commits for conflicts. Not measured."""
        handle.update_incremental()

    def add(self, body: dict[str, Any]) -> Any:
        if self.schema is None:
            from tests.benchmarks.tables import arrow_schema

            self.schema = self.schema_type.from_arrow(arrow_schema())
        return self.add_action(
            body["path"], body["size"], body["partitionValues"], body["modificationTime"], True, body["stats"]
        )

    def commit(self, handle: Any, add: Any) -> int:
        self.commit_adds(handle, [add])
        return -1

    def adds(self, bodies: list[dict[str, Any]]) -> Any:
        return [self.add(body) for body in bodies]

    def commit_adds(self, handle: Any, adds: Any) -> None:
        handle.create_write_transaction(adds, "append", self.schema, partition_by=["date"])

    def rows(self) -> Any:
        return _small_batch()

    def rows_of_log(self) -> Any:
        return _log_batch()

    def append(self, handle: Any, rows: Any, tag: str) -> None:
        self.write(handle, rows, mode="append", commit_properties=self.properties(custom_metadata={"tag": tag}))

    def resolve(self, root: str, timestamp_ms: int) -> Answer:
        return self.version_at(self.open_to_travel(root), timestamp_ms)

    def open_to_travel(self, root: str) -> Any:
        return self.table(root, without_files=True)

    def version_at(self, handle: Any, timestamp_ms: int) -> Answer:
        handle.load_as_version(_iso(timestamp_ms))
        return lambda: handle.version()

    def travel(self, root: str, timestamp_ms: int) -> Answer:
        table = self.table(root)
        table.load_as_version(_iso(timestamp_ms))
        return _summary(table.get_add_actions())

    def files(self, root: str) -> Answer:
        return _summary(self.table(root).get_add_actions(), "size_bytes")

    def statistics(self, root: str) -> Answer:
        actions = self.table(root).get_add_actions()
        return lambda: {**_summary(actions, "size_bytes")(), **_records(actions, "num_records")}

    def prune(self, root: str, low: int, high: int) -> Answer:
        """deltalake lists files by partition only; pyarrow filters by statistics."""
        import pyarrow as pa
        import pyarrow.compute as pc

        actions = pa.table(self.table(root).get_add_actions(flatten=True))
        return _summary(actions.filter((pc.field("max.id") >= low) & (pc.field("min.id") < high)), "size_bytes")

    def protocol(self, root: str) -> Answer:
        table = self.table(root, without_files=True)
        protocol, metadata = table.protocol(), table.metadata()
        return lambda: {"writer": protocol.min_writer_version, "id": metadata.id}

    def history(self, root: str) -> Answer:
        entries = self.table(root).history()
        return lambda: {"commits": len(entries), "newest": entries[0]["version"]}

    def checkpoint(self, root: str) -> None:
        self.table(root).create_checkpoint()

    def peak_mib(self) -> float:
        return _peak_mib(os.getpid())

    def close(self) -> None:
        pass


class DeltaSpark:
    """delta-spark in a JVM of this process. Its caches are emptied before each call that reads.

    Commits use its OptimisticTransaction, so no DataFrame is planned and no data file is written.
    """

    def __init__(self, call: str) -> None:
        from tests.benchmarks.sessions import with_delta_spark
        from tests.support.spark.session import stop_sessions

        self.spark = with_delta_spark(**{"spark.driver.memory": "8g"})
        self.stop = stop_sessions
        self.jvm = self.spark._jvm
        self.delta = self.jvm.org.apache.spark.sql.delta
        self.none = getattr(self.jvm.scala, "None$").__getattr__("MODULE$")
        self.gave_up = ()

    def open(self, root: str) -> Any:
        self.delta.DeltaLog.clearCache()
        return self.delta.DeltaLog.forTable(self.spark._jsparkSession, root)

    def refresh(self, handle: Any) -> None:
        """Does nothing, because each transaction loads the latest version itself, within the measured time."""

    def add(self, body: dict[str, Any]) -> Any:
        action = self.delta.actions.Action.fromJson(json.dumps({"add": body}))
        actions = self.jvm.java.util.ArrayList()
        actions.add(action)
        return self.jvm.scala.jdk.javaapi.CollectionConverters.asScala(actions).toSeq()

    def commit(self, handle: Any, add: Any) -> int:
        operation = getattr(self.delta, "DeltaOperations$ManualUpdate$").__getattr__("MODULE$")
        version: int = handle.startTransaction(self.none, self.none).commit(add, operation)
        return version

    def adds(self, bodies: list[dict[str, Any]]) -> Any:
        """Write a log and let Delta decode it, because passing the actions to the JVM one by one would take minutes."""
        from tests.benchmarks.actions import SmallActions
        from tests.benchmarks.tables import COLUMNS

        small = SmallActions("adds", COLUMNS, "date", ict=False)
        versions = [[{"protocol": small.protocol()}, {"metaData": small.metadata()}], [{"add": b} for b in bodies]]
        with tempfile.TemporaryDirectory() as scratch:
            log = Path(scratch) / "_delta_log"
            log.mkdir()
            for version, actions in enumerate(versions):
                (log / f"{version:020d}.json").write_text("".join(json.dumps(action) + "\n" for action in actions))
            return self.open(scratch).getChanges(1, self.none, False).next()._2()

    def commit_adds(self, handle: Any, adds: Any) -> None:
        self.commit(handle, adds)

    def rows(self) -> Any:
        return self.spark.createDataFrame(_small_batch()).coalesce(1)

    def rows_of_log(self) -> Any:
        return self.spark.createDataFrame(_log_batch()).coalesce(1)

    def append(self, handle: Any, rows: Any, tag: str) -> None:
        root = handle.dataPath().toString()
        rows.write.format("delta").mode("append").option("userMetadata", tag).save(root)

    def resolve(self, root: str, timestamp_ms: int) -> Answer:
        return self.version_at(self.open(root), timestamp_ms)

    def open_to_travel(self, root: str) -> Any:
        return self.open(root)

    def version_at(self, handle: Any, timestamp_ms: int) -> Answer:
        at = self.jvm.java.sql.Timestamp(timestamp_ms)
        found = handle.history().getActiveCommitAtTime(at, self.none, True, True, False)
        return lambda: found.version()

    def travel(self, root: str, timestamp_ms: int) -> Answer:
        self.delta.DeltaLog.clearCache()
        at = _iso(timestamp_ms).replace("T", " ").removesuffix("Z")
        files = self.spark.read.format("delta").option("timestampAsOf", at).load(root).inputFiles()
        return lambda: {"files": len(files)}

    def files(self, root: str) -> Answer:
        return self._totals(self._latest(root).allFiles().toDF(), {"files": "count(*)", "bytes": "sum(size)"})

    def statistics(self, root: str) -> Answer:
        """The hash forces delta-spark to parse all statistics; the optimizer would drop other expressions."""
        wanted = {"files": "count(*)", "bytes": "sum(size)", "records": "sum(stats.numRecords)"}
        return self._totals(self._latest(root).withStats(), {**wanted, "hash": "bit_xor(xxhash64(stats))"})

    def prune(self, root: str, low: int, high: int) -> Answer:
        self.delta.DeltaLog.clearCache()
        rows = self.spark.read.format("delta").load(root).where(f"id >= {low} AND id < {high}")
        files = rows.inputFiles()
        return lambda: {"files": len(files)}

    def protocol(self, root: str) -> Answer:
        latest = self._latest(root)
        protocol, metadata = latest.protocol(), latest.metadata()
        return lambda: {"writer": protocol.minWriterVersion(), "id": metadata.id()}

    def history(self, root: str) -> Answer:
        from delta.tables import DeltaTable

        self.delta.DeltaLog.clearCache()
        rows = DeltaTable.forPath(self.spark, root).history().select("version", "timestamp", "operation").collect()
        return lambda: {"commits": len(rows), "newest": rows[0].version}

    def checkpoint(self, root: str) -> None:
        self.open(root).checkpoint()

    def _latest(self, root: str) -> Any:
        return self.open(root).update(False, self.none, self.none)

    def _frame(self, jvm_frame: Any) -> Any:
        from pyspark.sql import DataFrame

        return DataFrame(jvm_frame, self.spark)

    def _totals(self, jvm_frame: Any, wanted: dict[str, str]) -> Answer:
        row = self._frame(jvm_frame).selectExpr(*(f"{what} AS {name}" for name, what in wanted.items())).first()
        return lambda: {name: row[name] for name in wanted if name != "hash"}

    def peak_mib(self) -> float:
        return _peak_mib(int(self.jvm.java.lang.ProcessHandle.current().pid()))

    def close(self) -> None:
        self.stop()


class Floor:
    """The minimum time that the machine allows: I/O without interpreting the log. Not a competitor."""

    def __init__(self, call: str) -> None:
        import pyarrow.compute
        import pyarrow.json
        import pyarrow.parquet

        self.arrow = pyarrow
        self.gave_up = ()

    def open(self, root: str) -> Any:
        log = f"{root}/_delta_log"
        return [log, sum(name.endswith(".json") for name in os.listdir(log))]

    def refresh(self, handle: Any) -> None:
        pass

    def add(self, body: dict[str, Any]) -> Any:
        return (json.dumps({"commitInfo": {"filler": "x" * 400}}) + "\n" + json.dumps({"add": body}) + "\n").encode()

    def commit(self, handle: Any, add: Any) -> int:
        """Write the bytes to a hidden name, fsync them, link them to the final name and fsync the directory. If the
        final name exists, the commit uses the next version's name."""
        log, version = handle
        hidden = f"{log}/.{os.getpid()}.tmp"
        _durable(hidden, add)
        while True:
            try:
                os.link(hidden, f"{log}/{version:020d}.json")
                break
            except FileExistsError:
                version += 1
        os.unlink(hidden)
        _fsync_directory(log)
        handle[1] = version + 1
        return int(version)

    def adds(self, bodies: list[dict[str, Any]]) -> Any:
        return b"".join(json.dumps({"add": body}).encode() + b"\n" for body in bodies)

    def commit_adds(self, handle: Any, adds: Any) -> None:
        self.commit(handle, adds)

    def rows(self) -> Any:
        return self._parquet(_small_batch())

    def rows_of_log(self) -> Any:
        return self._parquet(_log_batch())

    def _parquet(self, table: Any) -> bytes:
        sink = self.arrow.BufferOutputStream()
        self.arrow.parquet.write_table(table, sink)
        return bytes(sink.getvalue())

    def append(self, handle: Any, rows: Any, tag: str) -> None:
        """Write the bytes of a Parquet file, and the bytes of a commit."""
        root = os.path.dirname(handle[0])
        _durable(f"{root}/{tag}.parquet", rows)
        _fsync_directory(root)
        self.commit(handle, self.add({"path": f"{tag}.parquet", "stats": "x" * 200}))

    def resolve(self, root: str, timestamp_ms: int) -> Answer:
        """One listing, sorted. Returns no answer."""
        sorted(os.listdir(f"{root}/_delta_log"))
        return lambda: None

    def files(self, root: str) -> Answer:
        """Read the add columns of the checkpoint with pyarrow, without conversion; if there is no checkpoint, read the
        bytes of the commits."""
        chunks = self._adds(root, "stats")
        return _rows(chunks) if chunks else self._commits(root, -1)

    def statistics(self, root: str) -> Answer:
        """Like ``files``, but also parse the statistics with pyarrow's JSON parser or, if the statistics are a struct,
        read the columns of this struct."""
        chunks = self._adds(root, "stats_parsed")
        if chunks and any(field.name == "stats_parsed" for field in chunks[0].type):
            return _rows(chunks)
        chunks = self._adds(root, "stats")
        compute = self.arrow.compute
        parsed = []
        for chunk in chunks:
            texts = chunk.filter(chunk.is_valid()).field("stats")
            offsets = self.arrow.array([0, len(texts)], self.arrow.int32())
            joined = compute.binary_join(self.arrow.ListArray.from_arrays(offsets, texts), "\n")
            parsed.append(self.arrow.json.read_json(self.arrow.BufferReader(joined[0].as_buffer())))
        return lambda: {"files": sum(table.num_rows for table in parsed)}

    def history(self, root: str) -> Answer:
        """Read the first 4 KiB of each commit."""
        return self._commits(root, 4096)

    def _commits(self, root: str, length: int) -> Answer:
        log = f"{root}/_delta_log"
        read = []
        for name in os.listdir(log):
            if name.endswith(".json"):
                with open(f"{log}/{name}", "rb", buffering=0) as file:
                    read.append(file.read(length))
        return lambda: {"commits": len(read)}

    def _adds(self, root: str, statistics: str) -> list[Any]:
        """The chunks of the add column from all files of the checkpoint."""
        log = Path(root) / "_delta_log"
        paths = [*(log / "_sidecars").glob("*.parquet")] or [*log.glob("*.checkpoint*.parquet")]
        leaves = ("path", "partitionValues", "size", "modificationTime", statistics)
        columns = [f"add.{leaf}" for leaf in leaves]
        tables = [self.arrow.parquet.ParquetFile(path).read(columns=columns) for path in paths]
        return [chunk for table in tables for chunk in table.column("add").chunks]

    def peak_mib(self) -> float:
        return _peak_mib(os.getpid())

    def close(self) -> None:
        pass


def _durable(path: str, data: bytes) -> None:
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o666)
    os.write(file, data)
    os.fsync(file)
    os.close(file)


def _fsync_directory(path: str) -> None:
    directory = os.open(path, os.O_RDONLY)
    os.fsync(directory)
    os.close(directory)


def _small_batch() -> Any:
    from tests.benchmarks.tables import small_batch

    return small_batch()


def _log_batch() -> Any:
    from tests.benchmarks.tables import log_batch

    return log_batch()


SYSTEMS: dict[str, Any] = {
    "deltalog": Deltalog,
    "deltalake": Deltalake,
    "delta-spark": DeltaSpark,
    "floor": Floor,
}


def _summary(files: Any, size: str | None = None) -> Answer:
    """The number of files in an Arrow table or batch, and their total bytes."""
    if size is None:
        return lambda: {"files": files.num_rows}
    return lambda: {"files": files.num_rows, "bytes": _sum(files, size)}


def _records(statistics: Any, column: str) -> dict[str, int]:
    return {"records": _sum(statistics, column)}


def _sum(table: Any, column: str) -> int:
    import pyarrow as pa
    import pyarrow.compute as pc

    total: int = pc.sum(pa.table(table)[column]).as_py()
    return total


def _rows(chunks: list[Any]) -> Answer:
    return lambda: {"files": sum(len(chunk) - chunk.null_count for chunk in chunks)}


def _peak_mib(process: int) -> float:
    """The peak memory of a process so far; nan if the system is not Linux.

    ru_maxrss is not used, because its initial value is the peak of the parent process.
    """
    status = Path(f"/proc/{process}/status")
    if not status.exists():
        return math.nan
    peak = next(line for line in status.read_text().splitlines() if line.startswith("VmHWM"))
    return int(peak.split()[1]) / 1024


def _iso(timestamp_ms: int) -> str:
    import datetime

    at = datetime.datetime(1970, 1, 1) + datetime.timedelta(milliseconds=timestamp_ms)
    return at.isoformat(timespec="milliseconds") + "Z"


class Clock:
    """Collects the wall and CPU seconds of calls. CPU seconds are those of this process and its threads, not of a
    JVM."""

    def __init__(self) -> None:
        self.wall: list[float] = []
        self.cpu: list[float] = []
        self.first_mib: float | None = None
        self.details: list[dict[str, float]] = []  # further figures of each call

    def __enter__(self) -> None:
        self._cpu, self._wall = time.process_time(), time.perf_counter()

    def __exit__(self, *error: object) -> None:
        self.wall.append(time.perf_counter() - self._wall)
        self.cpu.append(time.process_time() - self._cpu)

    def share(self, amount: int) -> None:
        """Divide the time of the last call by the number of operations in this call."""
        self.wall[-1] /= amount
        self.cpu[-1] /= amount

    def remember(self, system: System) -> None:
        """Record the peak memory of the first call."""
        if self.first_mib is None:
            self.first_mib = system.peak_mib()


def measure(spec: dict[str, Any]) -> dict[str, Any]:
    """Run a specification. ``first``: the first call in this process; ``warm``: the calls after it, as many as
    requested, but none that begins after ``budget_s``."""
    started = time.perf_counter()
    system: System = SYSTEMS[spec["system"]](spec["call"])
    start_s = time.perf_counter() - started
    clock = Clock()
    try:
        measured = WRITES.get(spec["call"], _ask_questions)
        answers = measured(system, spec, clock)
        # The kernel's counter can lag by a few pages, so the value recorded at the first call may be larger.
        peak_mib = max(system.peak_mib(), clock.first_mib or 0.0)
        ask = spec["questions"][0]["ask"] if spec["questions"] else []
        counted = system if spec["requests"] and isinstance(system, Deltalog) else None
        requests = counted.requests(spec, ask) if counted else None
    finally:
        system.close()
    return {
        "start_s": start_s,
        "first_s": clock.wall[0],
        "first_cpu_s": clock.cpu[0],
        "warm_s": clock.wall[1:],
        "warm_cpu_s": clock.cpu[1:],
        "answers": answers,
        "first_mib": clock.first_mib,
        "peak_mib": peak_mib,
        "requests": requests,
        "details": clock.details,
    }


def _commits(system: System, spec: dict[str, Any], clock: Clock) -> list[Any]:
    """Add one file through an open handle."""
    adds = _new_adds(system, spec)
    handle = system.open(spec["root"])
    for number, add in enumerate(adds):
        if number:
            system.refresh(handle)
        with clock:
            system.commit(handle, add)
        clock.remember(system)
    return []


def _open_commits(system: System, spec: dict[str, Any], clock: Clock) -> list[Any]:
    """Open the table and add one file to it."""
    for add in _new_adds(system, spec):
        with clock:
            system.commit(system.open(spec["root"]), add)
        clock.remember(system)
    return []


def _new_adds(system: System, spec: dict[str, Any]) -> list[Any]:
    from tests.benchmarks.tables import new_add

    return [system.add(new_add(number)) for number in range(1 + spec["repeats"])]


def _ask_questions(system: System, spec: dict[str, Any], clock: Clock) -> list[Any]:
    """Run the measured read for each of the questions, one after another."""
    questions, answers = spec["questions"], []
    subject = system.open_to_travel(spec["root"]) if spec["call"] == "version_at" else spec["root"]
    begun = time.perf_counter()
    for number in range(1 + spec["repeats"]):
        if number and time.perf_counter() - begun > spec["budget_s"]:
            break
        question = questions[number % len(questions)]
        call = getattr(system, spec["call"])
        try:
            with clock:
                answer = call(subject, *question["ask"])
            clock.remember(system)
            got = answer()
            del answer  # frees the memory of the result before the next call
        except Exception as error:  # an error counts as a wrong answer
            got = f"{type(error).__name__}: {str(error).strip().splitlines()[0][:160]}"
        answers.append({"right": question["right"], "got": got})
    return answers


WRITES: dict[str, Any] = {"commit": _commits, "open+commit": _open_commits, **writing.CALLS, "checkpoint": checkpoints}


if __name__ == "__main__":
    target = Path(sys.argv[1])
    result = measure(json.loads(target.read_text()))
    target.with_suffix(".out").write_text(json.dumps(result))
