"""The confirmations for the Java kernel and for Sail; see tests/interop/confirmations.py."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from deltalog.conformance.environments import cache_directory, environment_of
from tests.interop.confirmations import (
    HOUR_MS,
    ICT,
    PAIR,
    TIMED,
    T,
    commit,
    contradicting,
    head,
    iso,
    numbered,
    parquet,
    partitioned,
    said,
    schema_text,
    three,
    without_commits,
)
from tests.support.unity_clients.jvm import Jvm
from tests.support.unity_clients.kernel import Kernel, KernelSnapshot


class KernelJava:
    """The confirmations for the Java kernel, in a JVM that Python drives."""

    def __init__(self) -> None:
        self._jvm = Jvm()
        self._kernel = Kernel(self._jvm, "http://127.0.0.1:1")  # the address of a catalog, which is not used
        self._manager = self._jvm.classes.io.delta.kernel.TableManager

    def close(self) -> None:
        self._jvm.stop()

    def load(self, root: Path, version: int | None = None, ms: int | None = None) -> KernelSnapshot:
        builder = self._manager.loadSnapshot(str(root))
        with self._jvm.errors():
            if version is not None:
                builder = builder.atVersion(version)
            if ms is not None:
                builder = builder.atTimestamp(ms, self._manager.loadSnapshot(str(root)).build(self._kernel.engine))
            return KernelSnapshot(self._kernel, builder.build(self._kernel.engine))

    def rows(self, root: Path, version: int | None = None) -> list[Any]:
        return sorted(row["id"] for row in self.load(root, version).rows())

    def listed(self, root: Path) -> list[Any]:
        return self.load(root).rows()

    def version_at(self, root: Path, ms: int) -> int:
        return self.load(root, ms=ms).version

    def times(self, root: Path) -> dict[int, int]:
        """The timestamps of all commits in ms since T."""
        classes = self._jvm.classes
        start = classes.io.delta.kernel.CommitRangeBuilder.CommitBoundary.atVersion(0)
        with self._jvm.errors():
            found = self._manager.loadCommitRange(str(root), start).build(self._kernel.engine)
            commits = found.getCommitActions(self._kernel.engine, classes.java.util.HashSet())
            times = {}
            while commits.hasNext():
                each = commits.next()
                times[int(each.getVersion())] = int(each.getTimestamp()) - T
            commits.close()
        return times

    def commit(self, root: Path, properties: Mapping[str, str] = {}) -> None:
        """Commit without files, and write the checksum that the kernel then asks for."""
        kernel = self._jvm.classes.io.delta.kernel
        with self._jvm.errors():
            snapshot = self._manager.loadSnapshot(str(root)).build(self._kernel.engine)
            builder = snapshot.buildUpdateTableTransaction("a confirmation", kernel.Operation.MANUAL_UPDATE)
            if properties:
                builder = builder.withTablePropertiesAdded(self._jvm.map(properties))
            self._end(builder.build(self._kernel.engine))

    def create(self, root: Path, properties: Mapping[str, str]) -> None:
        schema = self._kernel.schema(pa.schema([("id", pa.int64())]))
        with self._jvm.errors():
            builder = self._manager.buildCreateTableTransaction(str(root), schema, "a confirmation")
            self._end(builder.withTableProperties(self._jvm.map(properties)).build(self._kernel.engine))

    def _end(self, transaction: Any) -> None:
        empty = self._jvm.classes.io.delta.kernel.utils.CloseableIterable.emptyIterable()
        for hook in transaction.commit(self._kernel.engine, empty).getPostCommitHooks():
            hook.threadSafeInvoke(self._kernel.engine)

    def empty_text(self, root: Path) -> str:
        partitioned(root, ("a.parquet", ""))
        return said(lambda: self.listed(root))

    def short_name(self, root: Path) -> str:
        numbered(root, [T, T + HOUR_MS])
        add = parquet(root, "2.parquet", pa.table({"id": pa.array([2], pa.int64())}))
        (root / "_delta_log" / "2.json").write_text(json.dumps(add) + "\n")
        return f"versions 0 and 1 have the rows 0 and 1: {said(lambda: self.rows(root))}"

    def staged_name(self, root: Path) -> str:
        numbered(root, [T, T + HOUR_MS])
        name = f"{2:020d}.0a1b2c3d-0000-0000-0000-000000000000.json"
        (root / "_delta_log" / name).write_text('{"commitInfo":{}}\n')
        return f"versions 0 and 1 have the rows 0 and 1: {said(lambda: self.rows(root))}"

    def times_back(self, root: Path) -> str:
        numbered(root, [T + 2000, T, T + 1000])
        found = {ms: said(lambda ms=ms: self.version_at(root, T + ms)) for ms in (2000, 2001, 2002)}
        return f"the range of commits has the times {self.times(root)} ms; time travel finds versions at {found}"

    def checkpoint_only(self, root: Path) -> str:
        without_commits(root)
        return f"versions 1 and 2 can be read from the log; version 2: {said(lambda: self.rows(root))}"

    def checksum_of_vectors(self, root: Path) -> str:
        features = ["deletionVectors"]
        lines = head(schema_text(id="long"), {"delta.enableDeletionVectors": "true"}, minReaderVersion=3,
                     minWriterVersion=7, readerFeatures=features, writerFeatures=features)  # fmt: skip
        add = parquet(root, "0.parquet", pa.table({"id": pa.array([1, 2, 3], pa.int64())}))
        # The second of the three rows.
        add["add"]["deletionVector"] = {
            "storageType": "i", "pathOrInlineDv": "^Bg9^0rr910000000000iXQKl0rr91000005c8Xg0rr91", "sizeInBytes": 34,
            "cardinality": 1,
        }  # fmt: skip
        add["add"]["stats"] = '{"numRecords":3}'
        commit(root, 0, [{"commitInfo": {"timestamp": T, "operation": "DELETE"}}, *lines, add])
        made = said(lambda: self.commit(root, {"mine": "1"}))
        return f"rows {self.rows(root)}, version {self.load(root).version} is committed; the hook: {made}"

    def property_reads(self, root: Path) -> str:
        day = T + 24 * HOUR_MS
        numbered(root, [day, day + 1000], [T, T + HOUR_MS], {ICT: "true"})
        found = said(lambda: self.version_at(root, day + 500))
        return f"the file times say version 0 for half a second after the first: {found}"

    def missing_times(self, root: Path) -> str:
        day = T + 24 * HOUR_MS
        infos: list[dict[str, Any] | None] = [{}, None, {}]
        numbered(root, [day, day, day], [T, T + 1000, T + 2000], {ICT: "true"}, lambda v: infos[v], **TIMED)
        return f"version 1 has no commitInfo, and files that are a day younger: {self.times(root)}"

    def checksum_time(self, root: Path) -> str:
        self.create(root, {ICT: "true"})
        log = root / "_delta_log"
        lines = [json.loads(line) for line in (log / f"{0:020d}.json").read_text().splitlines()]
        info = next(line["commitInfo"] for line in lines if "commitInfo" in line)
        checksum = json.loads((log / f"{0:020d}.crc").read_text())
        return (
            f"commitInfo.inCommitTimestamp is {'there' if 'inCommitTimestamp' in info else 'missing'}; "
            f"the checksum has {', '.join(sorted(checksum))}"
        )

    def half_pair(self, root: Path) -> str:
        return said(lambda: (self.create(root, {ICT: "true", PAIR[0]: "7"}), self._pair(root))[1])

    def changed_pair(self, root: Path) -> str:
        numbered(root, [T])
        self.commit(root, {ICT: "true"})
        before = self._pair(root)
        self.commit(root, {PAIR[0]: "7"})
        after = self._pair(root)
        kept = before.get(PAIR[1]) == after.get(PAIR[1])
        return (
            f"the version was {before[PAIR[0]]}, and is {after[PAIR[0]]} after it was set; "
            f"the timestamp is {'the same' if kept else 'another'}"
        )

    def _pair(self, root: Path) -> dict[str, str]:
        return {key: value for key, value in sorted(self.load(root).properties.items()) if "nCommitTimestamp" in key}

    def property_writes(self, root: Path) -> str:
        numbered(root, [T], configuration={ICT: "true"})
        return said(lambda: self.commit(root, {"mine": "1"}))

    CASES: Mapping[str, str] = {
        "read-partition-empty-text": "empty_text",
        "read-stray-short-name": "short_name",
        "read-stray-uuid-json": "staged_name",
        "travel-time-history-back": "times_back",
        "checkpoint-*": "checkpoint_only",
        "feature-vector-append": "checksum_of_vectors",
        "ict-active-no-feature*": "property_reads",
        "ict-damage-*-history": "missing_times",
        "ict-create-half-pair": "half_pair",
        "ict-enable-half-pair-*": "changed_pair",
        "ict-write-property-only": "property_writes",
        "ict-*": "checksum_time",
    }


class Sail:
    """The confirmations for Sail, in a session that runs in Sail's environment."""

    def __init__(self) -> None:
        python = environment_of("sail", cache_directory()) / "bin" / "python"
        script = Path(__file__).with_name("sail_session.py")
        self._process = subprocess.Popen(
            [str(python), "-I", str(script)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )

    def close(self) -> None:
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait(60)
        self._process.stdout.close()

    def ask(self, **question: Any) -> list[dict[str, Any]]:
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(json.dumps(question) + "\n")
        self._process.stdin.flush()
        answer = json.loads(self._process.stdout.readline())
        if "error" in answer:
            raise SailError(answer["error"])
        return list(answer["rows"])

    def rows(self, root: Path, **options: Any) -> list[Any]:
        given = {key: str(value) for key, value in options.items()}
        return sorted(row["id"] for row in self.ask(read=str(root), options=given))

    def version_at(self, root: Path, ms: int) -> int:
        """Version n has the rows 0 to n."""
        return len(self.rows(root, timestampAsOf=iso(ms))) - 1

    CASES: Mapping[str, str] = {}


class SailError(Exception):
    pass
