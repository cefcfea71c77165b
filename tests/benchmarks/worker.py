"""One measurement of one system in a process of its own: ``python -m tests.benchmarks.worker SPEC.json``.

The specification names the system, the measurement, the table and the number of repeats; the answer is a JSON
file beside it: seconds to import (or start) the system, the first call, the repeats, and what was answered.
Nothing but the standard library is imported before the clock runs.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any, Protocol


class System(Protocol):
    """What a measured system can do. A method that is missing is not measured.

    ``open`` gives a handle on the latest version; ``refresh`` brings it up to date, outside the measured time
    where the system does not do it itself; ``commit`` adds one file; ``resolve`` gives the version that was
    current at a time; ``travel`` the number of files of that version, loaded; ``files`` that of the latest.
    """

    def open(self, root: str) -> Any: ...
    def refresh(self, handle: Any) -> None: ...
    def commit(self, handle: Any, add: Any) -> int: ...
    def add(self, body: dict[str, Any]) -> Any: ...
    def resolve(self, root: str, timestamp_ms: int) -> int: ...
    def travel(self, root: str, timestamp_ms: int) -> int: ...
    def files(self, root: str) -> int: ...
    def facts(self, root: str, timestamp_ms: int) -> dict[str, Any]: ...
    def close(self) -> None: ...


class Deltalog:
    """deltalog, by its public names."""

    def __init__(self) -> None:
        import deltalog

        self.deltalog = deltalog

    def open(self, root: str) -> Any:
        return self.deltalog.DeltaTable.open(root)

    def refresh(self, handle: Any) -> None:
        """A transaction begins with the latest version: part of the measured time."""

    def add(self, body: dict[str, Any]) -> Any:
        return self.deltalog.AddFile(
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

    def resolve(self, root: str, timestamp_ms: int) -> int:
        version: int = self.open(root).version_at(timestamp_ms).version
        return version

    def travel(self, root: str, timestamp_ms: int) -> int:
        rows: int = self.open(root).snapshot(timestamp=timestamp_ms).files().num_rows
        return rows

    def files(self, root: str) -> int:
        rows: int = self.open(root).snapshot().files().num_rows
        return rows

    def facts(self, root: str, timestamp_ms: int) -> dict[str, Any]:
        """Requests to the store, counted, of: opening; resolving on the open handle."""
        from tests.benchmarks.counting import CountingStore

        store = CountingStore(root)
        table = self.open(store)  # type: ignore[arg-type]
        opening = store.taken()
        version = table.version_at(timestamp_ms).version
        resolving = store.taken()
        table.snapshot(timestamp=timestamp_ms)
        return {"version": version, "opening": opening, "resolving": resolving, "travelling": store.taken()}

    def close(self) -> None:
        pass


class Deltalake:
    """delta-rs, by the names of its Python package. Statistics are always parsed; there is no fsync."""

    def __init__(self) -> None:
        from deltalake import DeltaTable, Schema
        from deltalake.transaction import AddAction

        self.table, self.schema_type, self.add_action = DeltaTable, Schema, AddAction
        self.schema: Any = None

    def open(self, root: str) -> Any:
        return self.table(root)

    def refresh(self, handle: Any) -> None:
        """A handle stays at its version after a commit of its own, and would then check its own commits for
        conflicts. Not measured."""
        handle.update_incremental()

    def add(self, body: dict[str, Any]) -> Any:
        if self.schema is None:
            from tests.benchmarks.tables import arrow_schema

            self.schema = self.schema_type.from_arrow(arrow_schema())
        return self.add_action(
            body["path"], body["size"], body["partitionValues"], body["modificationTime"], True, body["stats"]
        )

    def commit(self, handle: Any, add: Any) -> int:
        handle.create_write_transaction([add], "append", self.schema, partition_by=["date"])
        return -1

    def resolve(self, root: str, timestamp_ms: int) -> int:
        table = self.table(root, without_files=True)
        table.load_as_version(_iso(timestamp_ms))
        version: int = table.version()
        return version

    def travel(self, root: str, timestamp_ms: int) -> int:
        table = self.table(root)
        table.load_as_version(_iso(timestamp_ms))
        rows: int = table.get_add_actions().num_rows
        return rows

    def files(self, root: str) -> int:
        rows: int = self.table(root).get_add_actions().num_rows
        return rows

    def close(self) -> None:
        pass


class DeltaSpark:
    """delta-spark in a JVM of this process's own. Its caches are emptied before each call that reads.

    Commits go through its OptimisticTransaction, so no DataFrame is planned and no data file written.
    """

    def __init__(self) -> None:
        from tests.spark_env.session import delta_session, stop_sessions

        self.spark = delta_session()
        self.stop = stop_sessions
        self.jvm = self.spark._jvm
        self.delta = self.jvm.org.apache.spark.sql.delta
        self.none = getattr(self.jvm.scala, "None$").__getattr__("MODULE$")

    def open(self, root: str) -> Any:
        self.delta.DeltaLog.clearCache()
        return self.delta.DeltaLog.forTable(self.spark._jsparkSession, root)

    def refresh(self, handle: Any) -> None:
        """A transaction begins with the latest version: part of the measured time."""

    def add(self, body: dict[str, Any]) -> Any:
        action = self.delta.actions.Action.fromJson(json.dumps({"add": body}))
        actions = self.jvm.java.util.ArrayList()
        actions.add(action)
        return self.jvm.scala.jdk.javaapi.CollectionConverters.asScala(actions).toSeq()

    def commit(self, handle: Any, add: Any) -> int:
        operation = getattr(self.delta, "DeltaOperations$ManualUpdate$").__getattr__("MODULE$")
        version: int = handle.startTransaction(self.none, self.none).commit(add, operation)
        return version

    def resolve(self, root: str, timestamp_ms: int) -> int:
        at = self.jvm.java.sql.Timestamp(timestamp_ms)
        history = self.open(root).history()
        version: int = history.getActiveCommitAtTime(at, self.none, True, True, False).version()
        return version

    def travel(self, root: str, timestamp_ms: int) -> int:
        self.delta.DeltaLog.clearCache()
        at = _iso(timestamp_ms).replace("T", " ").removesuffix("Z")
        frame = self.spark.read.format("delta").option("timestampAsOf", at).load(root)
        return len(frame.inputFiles())

    def files(self, root: str) -> int:
        log = self.open(root)
        rows: int = log.update(False, self.none, self.none).allFiles().count()
        return rows

    def close(self) -> None:
        self.stop()


class Floor:
    """The least that the machine can do: no log is understood. Not a competitor."""

    def __init__(self) -> None:
        import os

        self.os = os

    def open(self, root: str) -> Any:
        log = f"{root}/_delta_log"
        return [log, sum(name.endswith(".json") for name in self.os.listdir(log))]

    def refresh(self, handle: Any) -> None:
        pass

    def add(self, body: dict[str, Any]) -> Any:
        return (json.dumps({"commitInfo": {"filler": "x" * 400}}) + "\n" + json.dumps({"add": body}) + "\n").encode()

    def commit(self, handle: Any, add: Any) -> int:
        """The bytes to a hidden name, fsynced, linked to the final name; the directory fsynced."""
        os, (log, version) = self.os, handle
        hidden = f"{log}/.{version:020d}.tmp"
        file = os.open(hidden, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
        os.write(file, add)
        os.fsync(file)
        os.close(file)
        os.link(hidden, f"{log}/{version:020d}.json")
        os.unlink(hidden)
        directory = os.open(log, os.O_RDONLY)
        os.fsync(directory)
        os.close(directory)
        handle[1] += 1
        return int(version)

    def resolve(self, root: str, timestamp_ms: int) -> int:
        """One listing, sorted. The answer is none."""
        sorted(self.os.listdir(f"{root}/_delta_log"))
        return -1

    def files(self, root: str) -> int:
        """The checkpoint's add columns through pyarrow, in whatever form they come."""
        import pyarrow.parquet as pq

        log = f"{root}/_delta_log"
        name = max(name for name in self.os.listdir(log) if name.endswith(".checkpoint.parquet"))
        columns = [f"add.{leaf}" for leaf in ("path", "partitionValues", "size", "modificationTime", "stats")]
        column = pq.ParquetFile(f"{log}/{name}").read(columns=columns).column("add")
        return len(column) - column.null_count

    def close(self) -> None:
        pass


SYSTEMS: dict[str, Any] = {
    "deltalog": Deltalog,
    "deltalake": Deltalake,
    "delta-spark": DeltaSpark,
    "floor": Floor,
}


def _iso(timestamp_ms: int) -> str:
    import datetime

    at = datetime.datetime(1970, 1, 1) + datetime.timedelta(milliseconds=timestamp_ms)
    return at.isoformat(timespec="milliseconds") + "Z"


class Clock:
    """Collects the wall and CPU seconds of calls; CPU is of this process with its threads, not of a JVM."""

    def __init__(self) -> None:
        self.wall: list[float] = []
        self.cpu: list[float] = []

    def __enter__(self) -> None:
        self._cpu, self._wall = time.process_time(), time.perf_counter()

    def __exit__(self, *error: object) -> None:
        self.wall.append(time.perf_counter() - self._wall)
        self.cpu.append(time.process_time() - self._cpu)


def measure(spec: dict[str, Any]) -> dict[str, Any]:
    """Run a specification. ``first`` is the first call in this process, ``warm`` are those after it: as many as
    asked for, or as begin within ``budget_s``."""
    started = time.perf_counter()
    system: System = SYSTEMS[spec["system"]]()
    start_s = time.perf_counter() - started
    clock = Clock()
    try:
        answers = CALLS[spec["call"]](system, spec, clock)
        facts = system.facts(spec["root"], spec["questions"][0]["timestamp_ms"]) if spec.get("facts") else None
    finally:
        system.close()
    return {
        "start_s": start_s,
        "first_s": clock.wall[0],
        "first_cpu_s": clock.cpu[0],
        "warm_s": clock.wall[1:],
        "warm_cpu_s": clock.cpu[1:],
        "answers": answers,
        "facts": facts,
    }


def _commits(system: System, spec: dict[str, Any], clock: Clock) -> list[Any]:
    """One add to a handle that is open."""
    adds = _new_adds(system, spec)
    handle = system.open(spec["root"])
    for number, add in enumerate(adds):
        if number:
            system.refresh(handle)
        with clock:
            system.commit(handle, add)
    return []


def _open_commits(system: System, spec: dict[str, Any], clock: Clock) -> list[Any]:
    """Open the table and add one file to it."""
    for add in _new_adds(system, spec):
        with clock:
            system.commit(system.open(spec["root"]), add)
    return []


def _new_adds(system: System, spec: dict[str, Any]) -> list[Any]:
    from tests.benchmarks.tables import new_add

    return [system.add(new_add(number)) for number in range(1 + spec["repeats"])]


def _resolves(system: System, spec: dict[str, Any], clock: Clock) -> list[Any]:
    return _asked(spec, clock, lambda at_ms: system.resolve(spec["root"], at_ms), lambda version: version)


def _travels(system: System, spec: dict[str, Any], clock: Clock) -> list[Any]:
    # Each version adds one file, so the number of files tells the version.
    return _asked(spec, clock, lambda at_ms: system.travel(spec["root"], at_ms), lambda rows: rows - 1)


def _asked(spec: dict[str, Any], clock: Clock, ask: Any, version_of: Any) -> list[Any]:
    questions, answers = spec["questions"], []
    begun = time.perf_counter()
    for number in range(1 + spec["repeats"]):
        if number and time.perf_counter() - begun > spec["budget_s"]:
            break
        question = questions[number % len(questions)]
        try:
            with clock:
                found = ask(question["timestamp_ms"])
            answer = version_of(found)
        except Exception as error:  # a refusal is an answer, and a wrong one here
            answer = f"{type(error).__name__}: {str(error).strip().splitlines()[0][:160]}"
        answers.append({"right": question["version"], "got": answer})
    return answers


def _files(system: System, spec: dict[str, Any], clock: Clock) -> list[Any]:
    answers = []
    for _ in range(1 + spec["repeats"]):
        with clock:
            rows = system.files(spec["root"])
        answers.append({"right": spec["rows"], "got": rows})
    return answers


CALLS: dict[str, Any] = {
    "commit": _commits,
    "open+commit": _open_commits,
    "resolve": _resolves,
    "resolve+load": _travels,
    "files": _files,
}


if __name__ == "__main__":
    target = Path(sys.argv[1])
    result = measure(json.loads(target.read_text()))
    target.with_suffix(".out").write_text(json.dumps(result))
