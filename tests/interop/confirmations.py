"""Confirms the explanations of other engines' failures in the conformance matrix.

A confirmation writes a small table by hand, without the kit and its adapters, calls the engine, and returns its answer.
The answers are stored with the explanations in tests/interop/conformance/explanations.json;
test_interop_confirmations.py repeats the confirmations. conformance_reports.py makes programs of them, so that they use
nothing of this project.

    python -m tests.interop.confirmations deltalake      # or another engine: prints the current answers
    python -m tests.interop.confirmations polars --keep  # and stores them

An engine with an environment of its own, made by ``deltalog conformance install``, is called there: this file is run by
its path with the Python of that environment, which need not have more than pyarrow and the engine.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

EXPLANATIONS = Path(__file__).with_name("conformance") / "explanations.json"
HOUR_MS = 3_600_000
T = 1_700_000_000_000  # 2023-11-14T22:13:20Z
ICT = "delta.enableInCommitTimestamps"
PAIR = ("delta.inCommitTimestampEnablementVersion", "delta.inCommitTimestampEnablementTimestamp")
Line = dict[str, Any]


# --------------------------------------------------------------------------------------------- tables by hand


def parquet(root: Path, name: str, rows: pa.Table) -> Line:
    """A data file and the add action for it."""
    file = root / name
    file.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(rows, file)
    return {
        "add": {
            "path": name,
            "partitionValues": {},
            "size": file.stat().st_size,
            "modificationTime": T,
            "dataChange": True,
        }
    }


def schema_text(**types: str) -> str:
    fields = [{"name": name, "type": kind, "nullable": True, "metadata": {}} for name, kind in types.items()]
    return json.dumps({"type": "struct", "fields": fields})


def head(
    schema: str, configuration: Mapping[str, str] = {}, partitions: Sequence[str] = (), **protocol: Any
) -> list[Line]:
    """The protocol and the metaData of version 0."""
    return [
        {"protocol": {"minReaderVersion": 1, "minWriterVersion": 2, **protocol}},
        {
            "metaData": {
                "id": "11111111-2222-3333-4444-555555555555",
                "format": {"provider": "parquet", "options": {}},
                "schemaString": schema,
                "partitionColumns": list(partitions),
                "configuration": dict(configuration),
                "createdTime": T,
            }
        },
    ]


def commit(root: Path, version: int, lines: Sequence[Line], time_ms: int | None = None) -> Path:
    """Write a commit. ``time_ms``: the modification time of the commit file."""
    file = root / "_delta_log" / f"{version:020d}.json"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    if time_ms is not None:
        os.utime(file, (time_ms / 1000, time_ms / 1000))
    return file


def numbered(
    root: Path,
    times_ms: Sequence[int],
    icts: Sequence[Any] = (),
    configuration: Mapping[str, str] = {},
    info: Callable[[int], Line | None] = lambda version: {},
    **protocol: Any,
) -> Path:
    """Version n adds the row n. ``times_ms``: the modification times of the commit files; ``icts``: the in-commit
    timestamps."""
    for version, time_ms in enumerate(times_ms):
        body = info(version)
        lines: list[Line] = []
        if body is not None:
            own = {"inCommitTimestamp": icts[version]} if icts else {}
            lines.append({"commitInfo": {**own, "timestamp": time_ms, "operation": "WRITE", **body}})
        lines += head(schema_text(id="long"), configuration, **protocol) if version == 0 else []
        lines.append(parquet(root, f"{version}.parquet", pa.table({"id": pa.array([version], pa.int64())})))
        commit(root, version, lines, time_ms)
    return root


TIMED: dict[str, Any] = {"minWriterVersion": 7, "writerFeatures": ["inCommitTimestamp"]}


FEED: dict[str, Any] = {"minWriterVersion": 7, "writerFeatures": ["changeDataFeed", "inCommitTimestamp"]}
CDF = {"delta.enableChangeDataFeed": "true"}
YEAR_2100 = 4_102_444_800_000


def ended(root: Path) -> None:
    """In-commit timestamps in versions 0 and 1, off in version 2; the files are a day younger."""
    day = T + 24 * HOUR_MS
    numbered(root, [day, day + 1000], [T, T + HOUR_MS], {ICT: "true", **CDF}, **FEED)
    metadata = head(schema_text(id="long"), {ICT: "false", **CDF})[1]
    add = parquet(root, "2.parquet", pa.table({"id": pa.array([2], pa.int64())}))
    commit(root, 2, [{"commitInfo": {"timestamp": T, "operation": "WRITE"}}, metadata, add], day + 2000)


def ahead(root: Path, second_ms: int) -> None:
    """In-commit timestamps T and ``second_ms``."""
    numbered(root, [T, T + HOUR_MS], [T, second_ms], {ICT: "true"}, **TIMED)


def checksum(root: Path, **more: Any) -> None:
    """A version checksum of version 1. ``more``: its in-commit timestamp."""
    files = sorted((root / "_delta_log").glob("*.json"))
    lines = [json.loads(line) for file in files for line in file.read_text().splitlines()]
    metadata = next(line["metaData"] for line in lines if "metaData" in line)
    protocol = next(line["protocol"] for line in lines if "protocol" in line)
    sizes = [line["add"]["size"] for line in lines if "add" in line]
    found = {"tableSizeBytes": sum(sizes), "numFiles": len(sizes), "numMetadata": 1, "numProtocol": 1,
             "metadata": metadata, "protocol": protocol, **more}  # fmt: skip
    (root / "_delta_log" / f"{1:020d}.crc").write_text(json.dumps(found))


def in_commit_timestamps(root: Path) -> list[Any]:
    """Those of all commits, or "the clock"."""
    files = sorted((root / "_delta_log").glob("*.json"))
    lines = [json.loads(line) for file in files for line in file.read_text().splitlines()]
    found = [line["commitInfo"]["inCommitTimestamp"] for line in lines if "commitInfo" in line]
    # The clock, which differs from run to run, is far from T and from 2100.
    return ["the clock" if T + 24 * HOUR_MS < ms < YEAR_2100 else ms for ms in found]


def without_nulls(root: Path) -> None:
    """A column v with arrays of longs that are not null."""
    kind = {"type": "array", "elementType": "long", "containsNull": False}
    field = {"name": "v", "type": kind, "nullable": True, "metadata": {}}
    commit(root, 0, head(json.dumps({"type": "struct", "fields": [field]})))


def clustered_by_a(root: Path) -> None:
    """A table without rows, clustered by a, that has statistics of no column otherwise."""
    features = ["clustering", "domainMetadata"]
    lines = head(schema_text(id="long", a="long"), {"delta.dataSkippingNumIndexedCols": "0"}, minWriterVersion=7,
                 writerFeatures=features)  # fmt: skip
    by_a = {"domain": "delta.clustering", "configuration": '{"clusteringColumns":[["a"]]}', "removed": False}
    commit(root, 0, [{"commitInfo": {"timestamp": T}}, *lines, {"domainMetadata": by_a}])


def three(root: Path) -> Path:
    return numbered(root, [T, T + HOUR_MS, T + 2 * HOUR_MS])


def contradicting(root: Path, **pair: str) -> Path:
    """A table whose in-commit timestamps are an hour apart, and whose files were copied a day later, one file per
    second."""
    day = T + 24 * HOUR_MS
    configuration = {ICT: "true", **pair}
    icts = [T, T + HOUR_MS, T + 2 * HOUR_MS]
    return numbered(root, [day, day + 1000, day + 2000], icts, configuration, **TIMED)


def checkpoint(root: Path, version: int) -> None:
    """Write a classic checkpoint of a version, of a table in which no file was removed."""
    texts = pa.map_(pa.string(), pa.string())
    add = {"path": pa.string(), "partitionValues": texts, "size": pa.int64(), "modificationTime": pa.int64(),
           "dataChange": pa.bool_()}  # fmt: skip
    form = pa.struct([("provider", pa.string()), ("options", texts)])
    metadata = {"id": pa.string(), "format": form, "schemaString": pa.string(), "createdTime": pa.int64(),
                "partitionColumns": pa.list_(pa.string()), "configuration": texts}  # fmt: skip
    protocol = {"minReaderVersion": pa.int32(), "minWriterVersion": pa.int32(),
                "readerFeatures": pa.list_(pa.string()), "writerFeatures": pa.list_(pa.string())}  # fmt: skip
    kinds = {"protocol": protocol, "metaData": metadata, "add": add}
    schema = pa.schema([(name, pa.struct([*kind.items()])) for name, kind in kinds.items()])
    names = [f"{each:020d}.json" for each in range(version + 1)]
    actions = [json.loads(line) for name in names for line in (root / "_delta_log" / name).read_text().splitlines()]
    rows = [line for line in actions if kinds.keys() & line.keys()]
    file = root / "_delta_log" / f"{version:020d}.checkpoint.parquet"
    pq.write_table(pa.Table.from_pylist(json.loads(json.dumps(rows), object_hook=_pairs), schema), file)
    (root / "_delta_log" / "_last_checkpoint").write_text(json.dumps({"version": version, "size": len(rows)}))


def _pairs(value: Line) -> Any:
    """Maps as pairs, as pyarrow takes them."""
    return {key: [*each.items()] if key in ("options", "configuration", "partitionValues") else each
            for key, each in value.items()}  # fmt: skip


def without_commits(root: Path) -> Path:
    """Create a table with a checkpoint of version 1, and delete the commits 0 and 1."""
    numbered(root, [T, T + HOUR_MS])
    checkpoint(root, 1)
    commit(root, 2, [{"commitInfo": {"timestamp": T + 2 * HOUR_MS, "operation": "WRITE"}},
                     parquet(root, "2.parquet", pa.table({"id": pa.array([2], pa.int64())}))])  # fmt: skip
    for version in (0, 1):
        (root / "_delta_log" / f"{version:020d}.json").unlink()
    return root


def with_sidecar(root: Path) -> Path:
    """The path of the only sidecar of a V2 checkpoint of version 0 is percent-encoded; the commit is gone."""
    features = ["v2Checkpoint"]
    lines = head(schema_text(id="long"), minReaderVersion=3, minWriterVersion=7, readerFeatures=features,
                 writerFeatures=features)  # fmt: skip
    add = parquet(root, "0.parquet", pa.table({"id": pa.array([0], pa.int64())}))["add"]
    commit(root, 0, [{"commitInfo": {"timestamp": T}}, *lines, {"add": add}])
    file = root / "_delta_log" / "_sidecars" / "ü b.parquet"
    file.parent.mkdir()
    values = pa.array([[]], pa.map_(pa.string(), pa.string()))
    columns = {key: pa.array([add[key]]) for key in ("path", "size", "modificationTime", "dataChange")}
    adds = pa.StructArray.from_arrays([*columns.values(), values], [*columns, "partitionValues"])
    pq.write_table(pa.table({"add": adds}), file)
    sidecar = {"path": "%C3%BC%20b.parquet", "sizeInBytes": file.stat().st_size, "modificationTime": T}
    actions = [{"checkpointMetadata": {"version": 0}}, *lines, {"sidecar": sidecar}]
    name = f"{0:020d}.checkpoint.0a1b2c3d-0000-0000-0000-000000000000.json"
    (root / "_delta_log" / name).write_text("".join(json.dumps(line) + "\n" for line in actions))
    return root


def with_vector(root: Path) -> Path:
    """Version 0 adds two files: one of three rows, the second of which a deletion vector deletes, and one of a row."""
    features = ["deletionVectors"]
    lines = head(schema_text(id="long"), {"delta.enableDeletionVectors": "true"}, minReaderVersion=3,
                 minWriterVersion=7, readerFeatures=features, writerFeatures=features)  # fmt: skip
    first = parquet(root, "0.parquet", pa.table({"id": pa.array([1, 2, 3], pa.int64())}))
    first["add"]["stats"] = '{"numRecords":3}'
    first["add"]["deletionVector"] = {
        "storageType": "i", "pathOrInlineDv": "^Bg9^0rr910000000000iXQKl0rr91000005c8Xg0rr91", "sizeInBytes": 34,
        "cardinality": 1,
    }  # fmt: skip
    second = parquet(root, "1.parquet", pa.table({"id": pa.array([4], pa.int64())}))
    commit(root, 0, [{"commitInfo": {"timestamp": T, "operation": "WRITE"}}, *lines, first, second])
    return root


def hinted(root: Path) -> Path:
    """_last_checkpoint names a checkpoint of version 2 that does not exist; all commits are there."""
    three(root)
    (root / "_delta_log" / "_last_checkpoint").write_text('{"version":2,"size":5}')
    return root


def partitioned(root: Path, *files: tuple[str, str]) -> Path:
    """A table partitioned by the string column p, with one data file for each pair (path of the file, value of p)."""
    lines = [{"commitInfo": {"timestamp": T, "operation": "WRITE"}}]
    lines += head(schema_text(id="long", p="string"), partitions=["p"])
    for number, (name, value) in enumerate(files):
        add = parquet(root, name, pa.table({"id": pa.array([number], pa.int64())}))
        add["add"]["partitionValues"] = {"p": value}
        lines.append(add)
    commit(root, 0, lines)
    return root


def mapped(name: str, number: int, kind: Any) -> Line:
    """A column whose physical name is its name."""
    metadata = {"delta.columnMapping.id": number, "delta.columnMapping.physicalName": name}
    return {"name": name, "type": kind, "nullable": True, "metadata": metadata}


def without_field_ids(root: Path) -> Path:
    """A table mapped by id, with a file that has no field ids, and the value 7 under the physical name."""
    configuration = {"delta.columnMapping.mode": "id", "delta.columnMapping.maxColumnId": "1"}
    field = {**mapped("col-1", 1, "long"), "name": "id"}
    lines = head(
        json.dumps({"type": "struct", "fields": [field]}), configuration, minReaderVersion=2, minWriterVersion=5
    )
    add = parquet(root, "0.parquet", pa.table({"col-1": pa.array([7], pa.int64())}))
    commit(root, 0, [{"commitInfo": {"timestamp": T, "operation": "WRITE"}}, *lines, add])
    return root


def dropped_field(root: Path, added: Sequence[Line] = ()) -> Path:
    """A map of structs, whose field b was dropped from the schema, and is still in the file. ``added``: fields of the
    struct that were added later."""
    value = {"type": "struct", "fields": [mapped("a", 2, "long"), *added]}
    kind = {"type": "map", "keyType": "string", "valueType": value, "valueContainsNull": True}
    schema = json.dumps({"type": "struct", "fields": [mapped("m", 1, kind)]})
    stored = pa.map_(pa.string(), pa.struct([("a", pa.int64()), ("b", pa.int64())]))
    add = parquet(root, "0.parquet", pa.table({"m": pa.array([[("k", {"a": 1, "b": 2})]], stored)}))
    configuration = {"delta.columnMapping.mode": "name", "delta.columnMapping.maxColumnId": "3"}
    lines = head(schema, configuration, minReaderVersion=2, minWriterVersion=5)
    commit(root, 0, [{"commitInfo": {"timestamp": T, "operation": "WRITE"}}, *lines, add])
    return root


def widened(root: Path) -> Path:
    """A partition column that was widened from date to timestamp without time zone, with a value written as a date."""
    features = ["typeWidening", "timestampNtz"]
    kept = {"delta.typeChanges": [{"fromType": "date", "toType": "timestamp_ntz"}]}
    fields = [{"name": "id", "type": "long", "nullable": True, "metadata": {}},
              {"name": "p", "type": "timestamp_ntz", "nullable": True, "metadata": kept}]  # fmt: skip
    schema = json.dumps({"type": "struct", "fields": fields})
    lines = head(schema, {"delta.enableTypeWidening": "true"}, ["p"], minReaderVersion=3, minWriterVersion=7,
                 readerFeatures=features, writerFeatures=features)  # fmt: skip
    add = parquet(root, "0.parquet", pa.table({"id": pa.array([0], pa.int64())}))
    add["add"]["partitionValues"] = {"p": "2025-01-15"}
    commit(root, 0, [{"commitInfo": {"timestamp": T, "operation": "WRITE"}}, *lines, add])
    return root


def broken(root: Path, shorter: int) -> Path:
    """The data file of version 0 is not a Parquet file, and is ``shorter`` bytes smaller than the log says."""
    numbered(root, [T])
    (root / "0.parquet").write_bytes(b"x" * ((root / "0.parquet").stat().st_size - shorter))
    return root


def said(call: Callable[..., Any], *arguments: Any) -> str:
    """The result of a call, or its error, as a string."""
    try:
        return str(call(*arguments))
    except BaseException as error:
        if isinstance(error, (KeyboardInterrupt, SystemExit)):
            raise
        message = str(getattr(error, "java_exception", error))
        text = re.sub(r"(?:file:)?/\S*/table\b/?", "TABLE/", message.strip().split("\n")[0])
        text = re.sub(r"\x1b\[\d+m|Id\(\d+\)(?:, )?", "", text)
        return f"{type(error).__name__}: {text[:140]}"


def iso(ms: int) -> str:
    at = datetime.datetime.fromtimestamp(ms / 1000, datetime.timezone.utc)
    return at.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def sorted_ids(rows: Any) -> list[Any]:
    return sorted(pa.table(rows).column("id").to_pylist(), key=str)


# ------------------------------------------------------------------------------------------------- deltalake


class Deltalake:
    """Gets deltalake's answers for the confirmations. Each explanation has a case pattern, and the first word of the
    pattern is the name of a method here."""

    def version_at(self, root: Path, ms: int) -> int:
        import deltalake

        table = deltalake.DeltaTable(str(root))
        table.load_as_version(iso(ms))
        return int(table.version())

    def rows(self, root: Path, version: int | None = None) -> pa.Table:
        import deltalake

        table = deltalake.DeltaTable(str(root), version=version)
        return pa.table(deltalake.QueryBuilder().register("t", table).execute("SELECT * FROM t").read_all())

    def clamped(self, root: Path) -> str:
        three(root)
        before, after = (said(self.version_at, root, ms) for ms in (T - 1, T + 9 * HOUR_MS))
        return f"an hour apart: version {before} for 1 ms before the first, version {after} for hours after the last"

    def equal_times(self, root: Path) -> str:
        numbered(root / "a", [T, T, T])
        numbered(root / "b", [T + 2 * HOUR_MS, T + HOUR_MS, T])
        equal = said(lambda: self.version_at(root / "a", T))
        back = said(lambda: self.version_at(root / "b", T + 2 * HOUR_MS))
        return f"version {equal} at the time of three equal files, version {back} at the largest of three that run back"

    def history_of_writers(self, root: Path) -> str:
        import deltalake

        numbered(root, [T, T + HOUR_MS], info=lambda version: {"timestamp": 7 + version})
        times = {each["version"]: each.get("timestamp") for each in deltalake.DeltaTable(str(root)).history()}
        return f"commitInfo.timestamp 7 and 8, other file times: the history has {dict(sorted(times.items()))}"

    def history_without_info(self, root: Path) -> str:
        import deltalake

        icts = [T, T + HOUR_MS, T + 2 * HOUR_MS]
        numbered(root, icts, icts, {ICT: "true"}, lambda v: None if v == 1 else {"operation": f"V{v}"}, **TIMED)
        found = {each["version"]: each.get("operation") for each in deltalake.DeltaTable(str(root)).history()}
        return f"versions 0 to 2, the middle one without commitInfo: the history has {dict(sorted(found.items()))}"

    def checkpoint_only(self, root: Path) -> str:
        without_commits(root)
        by_number = said(lambda: sorted_ids(self.rows(root, 1)))
        by_time = said(lambda: self.version_at(root, T + 3 * HOUR_MS))
        return f"version 1 has {by_number}; at the time of version 2: {by_time}"

    def pair(self, root: Path) -> str:
        contradicting(root, **{PAIR[0]: "77", PAIR[1]: "5"})
        found = said(lambda: self.version_at(root, T + 24 * HOUR_MS + 500))
        return f"a pair that names version 77 after the latest, 2; file times alone say version 0: {found}"

    def file_times(self, root: Path) -> str:
        contradicting(root)
        found = said(lambda: self.version_at(root, T + 24 * HOUR_MS + 500))
        return f"in-commit timestamps say version 2, file times version 0: {found}"

    def empty_text(self, root: Path) -> str:
        partitioned(root, ("a.parquet", ""))
        return said(lambda: self.rows(root).to_pylist())

    def removed_with_vector(self, root: Path) -> str:
        import deltalake

        features = ["deletionVectors"]
        lines = head(
            schema_text(id="long"), {"delta.enableChangeDataFeed": "true", "delta.enableDeletionVectors": "true"},
            minReaderVersion=3, minWriterVersion=7, readerFeatures=features,
            writerFeatures=[*features, "changeDataFeed"],
        )  # fmt: skip
        file = parquet(root, "0.parquet", pa.table({"id": pa.array([1, 2, 3], pa.int64())}))["add"]
        # The second of the three rows.
        vector = {"storageType": "i", "pathOrInlineDv": "^Bg9^0rr910000000000iXQKl0rr91000005c8Xg0rr91",
                  "sizeInBytes": 34, "cardinality": 1}  # fmt: skip
        left = {**file, "deletionVector": vector, "stats": '{"numRecords":3}'}
        info = {"timestamp": T, "operation": "DELETE"}
        gone = {"path": file["path"], "deletionTimestamp": T, "dataChange": True, "extendedFileMetadata": True,
                "partitionValues": {}, "size": file["size"]}  # fmt: skip
        commit(root, 0, [{"commitInfo": info}, *lines, {"add": file}])
        commit(root, 1, [{"commitInfo": info}, {"remove": gone}, {"add": left}])
        # The file is removed with its deletion vector, and no change data file is written.
        commit(root, 2, [{"commitInfo": info}, {"remove": {**gone, "deletionVector": vector}}])
        feed = deltalake.DeltaTable(str(root)).load_cdf(starting_version=2)
        return "rows 1 and 3 were left: the feed of their removal has " + said(lambda: sorted_ids(feed.read_all()))

    def append_after_remove(self, root: Path) -> str:
        import deltalake

        three(root)
        opened = deltalake.DeltaTable(str(root))
        remove = {"path": "0.parquet", "deletionTimestamp": T, "dataChange": True}
        commit(root, 3, [{"commitInfo": {"timestamp": T, "operation": "DELETE"}}, {"remove": remove}])
        rows = pa.table({"id": pa.array([9], pa.int64())})
        return said(lambda: deltalake.write_deltalake(opened, rows, mode="append"))

    def hint(self, root: Path) -> str:
        return said(lambda: sorted_ids(self.rows(hinted(root))))

    def ids_only(self, root: Path) -> str:
        field = {"name": "id", "type": "long", "nullable": True,
                 "metadata": {"delta.columnMapping.id": 1, "delta.columnMapping.physicalName": "col-1"}}  # fmt: skip
        schema = json.dumps({"type": "struct", "fields": [field]})
        configuration = {"delta.columnMapping.mode": "id", "delta.columnMapping.maxColumnId": "1"}
        stored = pa.schema([pa.field("other", pa.int64(), metadata={"PARQUET:field_id": "1"})])
        add = parquet(root, "0.parquet", pa.table({"other": [7]}, stored))
        lines = head(schema, configuration, minReaderVersion=2, minWriterVersion=5)
        commit(root, 0, [{"commitInfo": {"timestamp": T, "operation": "WRITE"}}, *lines, add])
        return "the file has 7 under another name and the right field id: " + said(lambda: self.rows(root).to_pylist())

    def dropped_in_map(self, root: Path) -> str:
        dropped_field(root, [{**mapped("new", 4, "long"), "name": "b"}])
        found = said(lambda: self.rows(root).to_pylist())
        return f"the field b of the struct in the map, 2 in the file, was dropped and added again: {found}"

    def without_ids(self, root: Path) -> str:
        without_field_ids(root)
        found = said(lambda: self.rows(root).to_pylist())
        return f"the file has 7 under the physical name, and no field ids: {found}"

    def widened_partition(self, root: Path) -> str:
        widened(root)
        return f"the partition value 2025-01-15 was written as a date: {said(lambda: self.rows(root).to_pylist())}"

    def append(self, root: Path, rows: pa.Table) -> None:
        import deltalake

        deltalake.write_deltalake(str(root), rows, mode="append")

    def null_in_array(self, root: Path) -> str:
        field = {"name": "b", "type": "long", "nullable": False, "metadata": {}}
        kind = {"type": "array", "elementType": {"type": "struct", "fields": [field]}, "containsNull": True}
        column = {"name": "v", "type": kind, "nullable": True, "metadata": {}}
        schema = json.dumps({"type": "struct", "fields": [column]})
        commit(root, 0, [{"commitInfo": {"timestamp": T}}, *head(schema)])
        rows = pa.table({"v": pa.array([[{"b": None}]], pa.list_(pa.struct([("b", pa.int64())])))})
        appended = said(lambda: self.append(root, rows))
        return f"an append of null to the required field b of a struct in an array: {appended}"

    def only_void(self, root: Path) -> str:
        commit(root, 0, [{"commitInfo": {"timestamp": T}}, *head(schema_text(v="void"))])
        appended = said(lambda: self.append(root, pa.table({"v": pa.nulls(1)})))
        return f"an append to a table whose only column has the type void: {appended}"

    def restored(self, root: Path) -> str:
        import deltalake

        numbered(root, [T, T + HOUR_MS], configuration={"delta.appendOnly": "true"})
        done = said(lambda: deltalake.DeltaTable(str(root)).restore(0)["numRemovedFile"])
        return f"a restore of version 0 of an append-only table removes files: {done}"

    CASES: Mapping[str, str] = {
        "feature-mapping-*-map-dropped": "dropped_in_map",
        "feature-mapping-id-no-ids": "without_ids",
        "invariant-required-field-in-array-null": "null_in_array",
        "void-only-refused": "only_void",
        "append-only-restore": "restored",
        "widening-partition-*": "widened_partition",
        "travel-time-before-first": "clamped",
        "travel-time-equal": "equal_times",
        "travel-time-history-back": "history_of_writers",
        "ict-damage-*-history": "history_without_info",
        "ict-cleaned-commit-of-checkpoint-gone": "checkpoint_only",
        "ict-pair-*": "pair",
        "ict-*": "file_times",
        "read-partition-empty-text": "empty_text",
        "feed-vector-removed": "removed_with_vector",
        "conflict-append-remove": "append_after_remove",
        "checkpoint-hint-missing": "hint",
        "feature-mapping-id-only": "ids_only",
    }


# ---------------------------------------------------------------------------------------------------- polars


class Polars(Deltalake):
    def rows(self, root: Path, version: Any = None) -> pa.Table:
        import polars

        return polars.read_delta(str(root), version=version).to_arrow()

    def version_at(self, root: Path, ms: int) -> int:
        """Version n has the rows 0 to n."""
        return self.rows(root, datetime.datetime.fromtimestamp(ms / 1000, datetime.timezone.utc)).num_rows - 1

    def _listed(self, root: Path) -> list[Any]:
        return self.rows(root).to_pylist()

    def directories(self, root: Path) -> str:
        partitioned(root / "a", ("x.parquet", "x"))
        partitioned(root / "b", ("p=y/x.parquet", "x"))
        one, other = (said(self._listed, root / name) for name in "ab")
        return f"the value is x: {one} for a file outside of directories, {other} in p=y"

    def partly(self, root: Path) -> str:
        partitioned(root, ("p=x/x.parquet", "x"), ("y.parquet", "y"))
        return said(lambda: self.rows(root).to_pylist())

    def damaged(self, root: Path) -> str:
        whole, short = (said(self._listed, broken(root / str(shorter), shorter)) for shorter in (0, 100))
        return f"of the size in the log: {whole}; 100 bytes shorter: {short}"

    def append(self, root: Path, rows: pa.Table) -> None:
        import polars

        polars.DataFrame(rows).write_delta(str(root), mode="append")

    CASES: Mapping[str, str] = {
        "invariant-required-field-in-array-null": "null_in_array",
        "widening-partition-*": "widened_partition",
        "read-partition-*": "directories",
        "write-append-partition*": "partly",
        "read-damaged-file": "damaged",
        "checkpoint-hint-missing": "hint",
        "travel-time-before-first": "clamped",
        "travel-time-equal": "equal_times",
        "ict-cleaned-commit-of-checkpoint-gone": "checkpoint_only",
        "ict-pair-*": "pair",
        "ict-*": "file_times",
    }


# ----------------------------------------------------------------------------------------------- delta-spark


class DeltaSpark:
    """The confirmations for delta-spark, in a session with delta-spark's jars."""

    def __init__(self, spark: Any) -> None:
        self.spark = spark

    def rows(self, root: Path, **options: Any) -> list[Any]:
        return sorted(row["id"] for row in self.spark.read.format("delta").options(**options).load(str(root)).collect())

    def configuration(self, root: Path) -> dict[str, str]:
        files = sorted((root / "_delta_log").glob("*.json"))
        lines = [json.loads(line) for file in files for line in file.read_text().splitlines()]
        found: dict[str, str] = [line["metaData"] for line in lines if "metaData" in line][-1]["configuration"]
        return {key: value for key, value in sorted(found.items()) if "nCommitTimestamp" in key}

    def checkpoint_only(self, root: Path) -> str:
        without_commits(root)
        return f"the latest version has {self.rows(root)}; version 1: {said(lambda: self.rows(root, versionAsOf=1))}"

    def half_pair(self, root: Path) -> str:
        sql = f"CREATE TABLE delta.`{root}` (id LONG) USING delta TBLPROPERTIES ('{ICT}' = 'true', '{PAIR[0]}' = '7')"
        return said(lambda: (self.spark.sql(sql), self.configuration(root))[1])

    def disabled(self, root: Path) -> str:
        three(root)
        for value in ("true", "false"):
            self.spark.sql(f"ALTER TABLE delta.`{root}` SET TBLPROPERTIES ('{ICT}' = '{value}')")
        return "the properties that are left: " + ", ".join(self.configuration(root))

    def short_name(self, root: Path) -> str:
        numbered(root, [T, T + HOUR_MS])
        add = parquet(root, "2.parquet", pa.table({"id": pa.array([2], pa.int64())}))
        (root / "_delta_log" / "2.json").write_text(json.dumps(add) + "\n")
        return f"versions 0 and 1 have the rows 0 and 1: {said(lambda: self.rows(root))}"

    def empty_text(self, root: Path) -> str:
        partitioned(root, ("a.parquet", ""))
        frame = self.spark.read.format("delta").load(str(root))
        return said(lambda: [row.asDict() for row in frame.collect()])

    def no_feature(self, root: Path) -> str:
        numbered(root, [T, T + HOUR_MS], [T, T + HOUR_MS], {ICT: "true"}, minWriterVersion=7, writerFeatures=[])
        return said(lambda: self.rows(root))

    def _property_only(self, root: Path) -> Path:
        day = T + 24 * HOUR_MS
        return numbered(root, [day, day + 1000], [T, T + HOUR_MS], {ICT: "true"})

    def property_reads(self, root: Path) -> str:
        self._property_only(root)
        frame = self.spark.sql(f"DESCRIBE HISTORY delta.`{root}`").selectExpr("version", "unix_millis(timestamp) AS ms")
        found = {row["version"]: row["ms"] - T for row in frame.collect()}
        return f"ms since the first in-commit timestamp, of files that are a day younger: {dict(sorted(found.items()))}"

    def property_writes(self, root: Path) -> str:
        configuration = {ICT: "true"}
        numbered(root, [T], configuration=configuration)
        return said(lambda: self.spark.sql(f"INSERT INTO delta.`{root}` VALUES (5L)").count())

    def text(self, root: Path) -> str:
        numbered(root, [T, T + HOUR_MS], [T, str(T + HOUR_MS) + "x"], {ICT: "true"}, **TIMED)
        return said(lambda: self.rows(root))

    def feed_times(self, root: Path, start: int, end: int) -> dict[int, int]:
        """By version, the ms since T of its changes."""
        retention = "spark.databricks.delta.vacuum.enforceTimeTravelWithinDeletedFileRetentionDuration"
        self.spark.conf.set(retention, "false")
        options = {"readChangeFeed": True, "startingVersion": start, "endingVersion": end}
        frame = self.spark.read.format("delta").options(**options).load(str(root))
        found = frame.selectExpr("_commit_version AS v", "unix_millis(_commit_timestamp) AS ms").collect()
        return dict(sorted((row["v"], row["ms"] - T) for row in found))

    def off_in_feed(self, root: Path) -> str:
        ended(root)
        times = said(lambda: self.feed_times(root, 0, 2))
        return f"in-commit timestamps T and T + 1 h, then off; the files are a day younger. ms since T: {times}"

    def missing_in_feed(self, root: Path) -> str:
        day = T + 24 * HOUR_MS
        numbered(root, [day, day + 1000, day + 2000], [T, T + HOUR_MS, T + 2 * HOUR_MS], {ICT: "true", **CDF}, **FEED)
        file = root / "_delta_log" / f"{1:020d}.json"
        file.write_text(file.read_text().replace(f'"inCommitTimestamp": {T + HOUR_MS}, ', ""))
        os.utime(file, ((day + 1000) / 1000, (day + 1000) / 1000))
        times = said(lambda: self.feed_times(root, 1, 1))
        return f"version 1 has no in-commit timestamp, and its file is a day younger than the others say: {times}"

    def checksum_other(self, root: Path) -> str:
        ahead(root, YEAR_2100)
        checksum(root, inCommitTimestampOpt=T)
        self.spark.sql(f"INSERT INTO delta.`{root}` VALUES (9L)").collect()
        found = in_commit_timestamps(root)
        return f"in-commit timestamps after an append, version 1 being of 2100, but its checksum of T = {T}: {found}"

    def cloned(self, root: Path) -> str:
        three(root / "source")
        self.spark.sql(f"ALTER TABLE delta.`{root}/source` SET TBLPROPERTIES ('{ICT}' = 'true')")
        self.spark.sql(f"CREATE TABLE delta.`{root}/clone` SHALLOW CLONE delta.`{root}/source`")
        return "the properties of version 0 of the clone: " + ", ".join(self.configuration(root / "clone"))

    def restored_pair(self, root: Path) -> str:
        three(root)
        for value in ("true", "false", "true"):
            self.spark.sql(f"ALTER TABLE delta.`{root}` SET TBLPROPERTIES ('{ICT}' = '{value}')")
        self.spark.sql(f"RESTORE TABLE delta.`{root}` TO VERSION AS OF 3")
        found = self.configuration(root)[PAIR[0]]
        return f"on in version 3, off in 4, on in 5, and 3 restored: the enablement version is {found}"

    def append_only(self, root: Path) -> str:
        kept = {"delta.deletedFileRetentionDuration": "interval 5000 weeks"}
        numbered(root, [T, T + HOUR_MS], configuration={"delta.appendOnly": "true", **kept})
        self.spark.sql(f"RESTORE TABLE delta.`{root}` TO VERSION AS OF 0")
        return f"rows 0 and 1 before the restore of version 0, after it {said(lambda: self.rows(root))}"

    def void_array(self, root: Path) -> str:
        kind = {"type": "array", "elementType": "void", "containsNull": True}
        fields = [{"name": name, "type": each, "nullable": True, "metadata": {}}
                  for name, each in (("id", "long"), ("v", kind))]  # fmt: skip
        commit(root, 0, head(json.dumps({"type": "struct", "fields": fields})))
        self.spark.sql("SELECT 1L AS id").write.format("delta").mode("append").save(str(root))
        return f"an append to a table with an array of void: the rows {said(lambda: self.rows(root))}"

    def collation(self, root: Path) -> str:
        field = {"name": "s", "type": "string", "nullable": True, "metadata": {"__COLLATIONS": {"s": "ICU.de_DE"}}}
        schema = json.dumps({"type": "struct", "fields": [field]})
        listed: Line = {
            "minReaderVersion": 1,
            "minWriterVersion": 7,
            "writerFeatures": ["collations", "domainMetadata"],
        }
        commit(root, 0, [*head(schema, **listed), parquet(root, "0.parquet", pa.table({"s": ["a"]}))])
        frame = self.spark.read.format("delta")
        return said(lambda: [row["s"] for row in frame.load(str(root)).collect()])

    def left_after_inserts(self, root: Path) -> list[int]:
        """The versions whose commits are left after three inserts, of which two write checkpoints."""
        for number in (4, 5, 6):
            self.spark.sql(f"INSERT INTO delta.`{root}` VALUES ({number}L)").collect()
        return sorted(int(file.stem) for file in (root / "_delta_log").glob("*.json") if file.stem.isdigit())

    def cleaned(self, root: Path) -> str:
        configuration = {ICT: "true", "delta.checkpointInterval": "2"}
        numbered(root, [T + n for n in range(4)], [YEAR_2100 + n for n in range(4)], configuration, **TIMED)
        left = self.left_after_inserts(root)
        return f"in-commit timestamps of 2100, file times of 2023; the commits that are left of 0 to 6: {left}"

    def expired(self, root: Path) -> str:
        times = [T + n for n in range(4)]
        numbered(root, times, times, {ICT: "true", "delta.checkpointInterval": "2"}, **TIMED)
        left = self.left_after_inserts(root)
        return f"commits 0 to 3 are of 2023, 4 to 6 of today; the ones that are left: {left}"

    def required_element(self, root: Path) -> str:
        without_nulls(root)
        self.spark.sql("SELECT array(CAST(NULL AS LONG)) AS v").write.format("delta").mode("append").save(str(root))
        found = said(lambda: [row.asDict() for row in self.spark.read.format("delta").load(str(root)).collect()])
        return f"a null element, where the schema allows none: {found}"

    def clustered_append(self, root: Path) -> str:
        clustered_by_a(root)
        self.spark.sql("SELECT 1L AS id, 2L AS a").write.format("delta").mode("append").save(str(root))
        lines = (root / "_delta_log" / f"{1:020d}.json").read_text().splitlines()
        stats = next(line["add"]["stats"] for line in map(json.loads, lines) if "add" in line)
        return f"clustered by a, and delta.dataSkippingNumIndexedCols is 0; the statistics of a new file: {stats}"

    def clustered_overwrite(self, root: Path) -> str:
        clustered_by_a(root)
        self.spark.sql("SELECT 1L AS id, 2L AS a").write.format("delta").mode("overwrite").save(str(root))
        lines = (root / "_delta_log" / f"{1:020d}.json").read_text().splitlines()
        found = [line["domainMetadata"]["configuration"] for line in map(json.loads, lines) if "domainMetadata" in line]
        return f"clustered by a; the domain delta.clustering after an overwrite: {', '.join(found)}"

    def sidecar(self, root: Path) -> str:
        with_sidecar(root)
        return said(self.rows, root)

    def parameters(self, root: Path) -> str:
        info = {"operationParameters": {"a": {"b": 1}}}
        numbered(root, [T, T + HOUR_MS], info=lambda version: info)
        found = str(said(lambda: self.spark.sql(f"DESCRIBE HISTORY delta.`{root}`").count()))
        return f"an operation parameter is an object; the history: {'an error' if 'Job aborted' in found else found}"

    def negative(self, root: Path) -> str:
        day = T + 24 * HOUR_MS
        icts = [T, T + HOUR_MS, -5, T + 3 * HOUR_MS, T + 4 * HOUR_MS]
        kept = {"delta.deletedFileRetentionDuration": "interval 5000 weeks"}
        numbered(root, [day] * 5, icts, {ICT: "true", **kept}, **TIMED)
        found = said(lambda: self.rows(root, timestampAsOf=iso(icts[1])))
        return f"version 2 has the timestamp -5: at that of version 1, the rows {found}"

    def largest(self, root: Path) -> str:
        ahead(root, 2**63 - 1)
        self.spark.sql(f"INSERT INTO delta.`{root}` VALUES (9L)").collect()
        return f"in-commit timestamps after an append: {in_commit_timestamps(root)}"

    CASES: Mapping[str, str] = {
        "ict-cleaned-commit-of-checkpoint-gone": "checkpoint_only",
        "ict-create-half-pair": "half_pair",
        "ict-disable-no-pair": "disabled",
        "read-stray-short-name": "short_name",
        "read-partition-empty-text": "empty_text",
        "ict-active-no-feature": "no_feature",
        "ict-active-no-features": "property_reads",
        "ict-write-property-only": "property_writes",
        "ict-damage-text-*-rows": "text",
        "ict-feed-timestamps-off": "off_in_feed",
        "ict-feed-timestamps-missing": "missing_in_feed",
        "ict-checksum-other-timestamp-append": "checksum_other",
        "ict-cleanup-checkpoint-keeps": "cleaned",
        "ict-cleanup-newest-expired": "expired",
        "ict-info-decoys": "parameters",
        "ict-broken-negative": "negative",
        "ict-cloned-shallow": "cloned",
        "ict-clock-largest": "largest",
        "ict-restore-first-period": "restored_pair",
        "checkpoint-v2-sidecar-encoded": "sidecar",
        "void-array-refused": "void_array",
        "feature-collations*-reads": "collation",
        "invariant-required-element-null": "required_element",
        "append-only-restore": "append_only",
        "clustering-append-no-statistics": "clustered_append",
        "clustering-overwrite-keeps": "clustered_overwrite",
    }


# ------------------------------------------------------------------------------------- engines on the Rust kernel


# An inline deletion vector of the row 0.
VECTOR = "^Bg9^0rr910000000000iXQKl0rr91000005c8Xg00000"


class RustKernel(Deltalake):
    """The confirmations that several engines on the Rust kernel share."""

    def changes(self, root: Path, start: int, end: int) -> pa.Table:
        raise NotImplementedError

    def feed_times(self, root: Path, end: int) -> dict[int, int]:
        """By version, the ms since T of its changes."""
        rows = self.changes(root, 0, end).select(["_commit_version", "_commit_timestamp"]).to_pylist()
        return dict(
            sorted((row["_commit_version"], round(row["_commit_timestamp"].timestamp() * 1000) - T) for row in rows)
        )

    def equal_in_feed(self, root: Path) -> str:
        numbered(root, [T, T, T], configuration=CDF, **FEED)
        return f"ms since T, of three files with the time T: {said(lambda: self.feed_times(root, 2))}"

    def off_in_feed(self, root: Path) -> str:
        ended(root)
        times = said(lambda: self.feed_times(root, 2))
        return f"in-commit timestamps T and T + 1 h, then off; the files are a day younger. ms since T: {times}"

    def annotated(self, root: Path) -> str:
        field = {"name": "id", "type": "long", "nullable": True,
                 "metadata": {"delta.columnMapping.id": 1, "delta.columnMapping.physicalName": "col-1"}}  # fmt: skip
        schema = json.dumps({"type": "struct", "fields": [field]})
        lines = head(schema, {"delta.columnMapping.mode": "none"}, minReaderVersion=2, minWriterVersion=5)
        add = parquet(root, "0.parquet", pa.table({"id": pa.array([7], pa.int64())}))
        commit(root, 0, [{"commitInfo": {"timestamp": T, "operation": "WRITE"}}, *lines, add])
        return "the column is id in the file: " + said(lambda: self.rows(root).to_pylist())

    def append(self, root: Path, ids: Sequence[int]) -> Any:
        raise NotImplementedError

    def _then_appended(self, root: Path) -> Any:
        """By version, the in-commit timestamp as ms since T, after an append of an engine."""
        self.append(root, [9])
        return in_commit_timestamps(root)

    def checksum_without(self, root: Path) -> str:
        ahead(root, YEAR_2100)
        checksum(root)
        return f"an append after a version checksum without a timestamp: {said(lambda: self._then_appended(root))}"

    def checksum_other(self, root: Path) -> str:
        ahead(root, YEAR_2100)
        checksum(root, inCommitTimestampOpt=T)
        found = said(lambda: self._then_appended(root))
        return f"in-commit timestamps after an append, version 1 being of 2100, but its checksum of T = {T}: {found}"

    def largest(self, root: Path) -> str:
        ahead(root, 2**63 - 1)
        return f"in-commit timestamps after an append: {said(lambda: self._then_appended(root))}"

    def mapped_partition(self, root: Path) -> str:
        names = {"id": ("long", 1), "p": ("string", 2)}
        fields = [{"name": name, "type": kind, "nullable": True,
                   "metadata": {"delta.columnMapping.id": number, "delta.columnMapping.physicalName": f"col-{number}"}}
                  for name, (kind, number) in names.items()]  # fmt: skip
        schema = json.dumps({"type": "struct", "fields": fields})
        configuration = {"delta.columnMapping.mode": "name", "delta.columnMapping.maxColumnId": "2"}
        lines = head(schema, configuration, ["p"], minReaderVersion=2, minWriterVersion=5)
        stored = pa.schema([pa.field("col-1", pa.int64(), metadata={"PARQUET:field_id": "1"})])
        add = parquet(root, "0.parquet", pa.table({"col-1": [7]}, stored))
        add["add"]["partitionValues"] = {"col-2": "x"}
        commit(root, 0, [{"commitInfo": {"timestamp": T, "operation": "WRITE"}}, *lines, add])
        return "the partition value is x: " + said(lambda: self.rows(root).to_pylist())

    def map_rows(self, root: Path) -> str:
        kind = {"type": "map", "keyType": "string", "valueType": "long", "valueContainsNull": True}
        field = {"name": "v", "type": kind, "nullable": True, "metadata": {}}
        lines = head(json.dumps({"type": "struct", "fields": [field]}))
        rows = pa.table({"v": pa.array([[("a", 1)]], pa.map_(pa.string(), pa.int64()))})
        commit(
            root, 0, [{"commitInfo": {"timestamp": T, "operation": "WRITE"}}, *lines, parquet(root, "0.parquet", rows)]
        )
        return "a map from a to 1: " + said(lambda: self.rows(root).to_pylist())

    def _of(self, root: Path, schema: str, rows: pa.Table, features: Sequence[str] = ()) -> None:
        """A table with one file."""
        listed: Line = {"minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": [*features],
                  "writerFeatures": [*features]}  # fmt: skip
        lines = head(schema, **(listed if features else {}))
        commit(
            root, 0, [{"commitInfo": {"timestamp": T, "operation": "WRITE"}}, *lines, parquet(root, "0.parquet", rows)]
        )

    def nulls(self, root: Path) -> str:
        kind = {"type": "array", "elementType": "long", "containsNull": True}
        schema = json.dumps(
            {"type": "struct", "fields": [{"name": "v", "type": kind, "nullable": True, "metadata": {}}]}
        )
        self._of(root, schema, pa.table({"v": pa.array([None], pa.list_(pa.int64()))}))
        return "a null array: " + said(lambda: self.rows(root).to_pylist())

    def without_zone(self, root: Path) -> str:
        rows = pa.table({"t": pa.array([T * 1000], pa.timestamp("us"))})
        self._of(root, schema_text(t="timestamp_ntz"), rows, ["timestampNtz"])
        return f"the type of a column of the type timestamp_ntz: {said(lambda: self.rows(root).schema.field('t').type)}"

    def mapped_array(self, root: Path) -> str:
        def field(name: str, number: int, kind: Any) -> Line:
            metadata = {"delta.columnMapping.id": number, "delta.columnMapping.physicalName": f"col-{number}"}
            return {"name": name, "type": kind, "nullable": True, "metadata": metadata}

        element = {"type": "struct", "fields": [field("b", 2, "long")]}
        kind = {"type": "array", "elementType": element, "containsNull": True}
        schema = json.dumps({"type": "struct", "fields": [field("s", 1, kind)]})
        configuration = {"delta.columnMapping.mode": "name", "delta.columnMapping.maxColumnId": "2"}
        lines = head(schema, configuration, minReaderVersion=2, minWriterVersion=5)
        inner = pa.struct([pa.field("col-2", pa.int64(), metadata={"PARQUET:field_id": "2"})])
        stored = pa.schema([pa.field("col-1", pa.list_(inner), metadata={"PARQUET:field_id": "1"})])
        add = parquet(root, "0.parquet", pa.table({"col-1": [[{"col-2": 7}]]}, stored))
        commit(root, 0, [{"commitInfo": {"timestamp": T, "operation": "WRITE"}}, *lines, add])
        return "an array of one struct with b = 7: " + said(lambda: self.rows(root).to_pylist())

    def _widened(
        self,
        root: Path,
        name: str,
        old: Any,
        new: Any,
        partitions: Sequence[str],
        add: Line,
        steps: Sequence[str] = (),
        changes: Sequence[Line] = (),
    ) -> None:
        """A column whose type was changed, by default in one step. The files are of the old type."""
        protocol: Line = {"minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": ["typeWidening"],
                    "writerFeatures": ["typeWidening"]}  # fmt: skip
        columns = [{"name": "id", "type": "long", "nullable": True, "metadata": {}},
                   {"name": name, "type": old, "nullable": True, "metadata": {}}]  # fmt: skip
        lines = head(json.dumps({"type": "struct", "fields": columns}), {}, partitions, **protocol)
        commit(root, 0, [{"commitInfo": {"timestamp": T, "operation": "WRITE"}}, *lines, add])
        pairs = zip(steps or (old,), steps[1:] or (new,), strict=False)
        changes = changes or [{"fromType": before, "toType": after} for before, after in pairs]
        columns[1] |= {"type": new, "metadata": {"delta.typeChanges": changes}}
        metadata = head(json.dumps({"type": "struct", "fields": columns}), {}, partitions)[1]
        commit(root, 1, [{"commitInfo": {"timestamp": T, "operation": "CHANGE COLUMN"}}, metadata])

    def forbidden(self, root: Path) -> str:
        rows = pa.table({"id": pa.array([0], pa.int64()), "v": pa.array([2**40], pa.int64())})
        self._widened(root, "v", "long", "integer", (), parquet(root, "0.parquet", rows))
        return "2^40 in a column that was changed from long to integer: " + said(lambda: self.rows(root).to_pylist())

    def forbidden_among(self, root: Path) -> str:
        rows = pa.table({"id": pa.array([0], pa.int64()), "v": pa.array([7], pa.int8())})
        steps = ("byte", "short", "string", "long")
        self._widened(root, "v", "byte", "long", (), parquet(root, "0.parquet", rows), steps)
        return "a change from short to string among the recorded ones: " + said(lambda: self.rows(root).to_pylist())

    def widened_element(self, root: Path) -> str:
        old, new = ({"type": "array", "elementType": kind, "containsNull": True} for kind in ("integer", "long"))
        rows = pa.table({"id": pa.array([0], pa.int64()), "v": pa.array([[1]], pa.list_(pa.int32()))})
        change = {"fromType": "integer", "toType": "long", "fieldPath": "element"}
        self._widened(root, "v", old, new, (), parquet(root, "0.parquet", rows), changes=[change])
        return "an array of 1 whose elements were widened from integer to long: " + said(self._listed, root)

    def no_ids(self, root: Path) -> str:
        field = {"name": "id", "type": "long", "nullable": True,
                 "metadata": {"delta.columnMapping.id": 1, "delta.columnMapping.physicalName": "col-1"}}  # fmt: skip
        configuration = {"delta.columnMapping.mode": "id", "delta.columnMapping.maxColumnId": "1"}
        schema = json.dumps({"type": "struct", "fields": [field]})
        lines = head(schema, configuration, minReaderVersion=2, minWriterVersion=5)
        commit(root, 0, [*lines, parquet(root, "0.parquet", pa.table({"col-1": pa.array([7], pa.int64())}))])
        return "mode id, and the file has no field ids: " + said(self._listed, root)

    def _listed(self, root: Path) -> list[Any]:
        return self.rows(root).to_pylist()

    def widened_decimal(self, root: Path) -> str:
        rows = pa.table({"id": pa.array([0], pa.int64()), "v": pa.array([7], pa.int32())})
        self._widened(root, "v", "integer", "decimal(10,0)", (), parquet(root, "0.parquet", rows))
        return "7 in a column widened from integer to decimal(10,0): " + said(self._listed, root)

    def shredded(self, root: Path) -> str:
        kind = pa.struct([pa.field("metadata", pa.binary(), nullable=False), ("value", pa.binary()),
                          ("typed_value", pa.int64())])  # fmt: skip
        rows = pa.table({"v": pa.array([{"metadata": bytes([1, 0, 0]), "value": None, "typed_value": 7}], kind)})
        self._of(root, schema_text(v="variant"), rows, ["variantType", "variantShredding"])
        return "a variant 7 that is shredded: " + said(self._listed, root)

    def mapped_struct(self, root: Path) -> str:
        def field(name: str, number: int, kind: Any) -> Line:
            metadata = {"delta.columnMapping.id": number, "delta.columnMapping.physicalName": f"col-{number}"}
            return {"name": name, "type": kind, "nullable": True, "metadata": metadata}

        schema = json.dumps({"type": "struct", "fields": [field("s", 1, {"type": "struct", "fields": [
            field("b", 2, "long")]})]})  # fmt: skip
        configuration = {"delta.columnMapping.mode": "id", "delta.columnMapping.maxColumnId": "2"}
        lines = head(schema, configuration, minReaderVersion=2, minWriterVersion=5)
        inner = pa.struct([pa.field("other", pa.int64(), metadata={"PARQUET:field_id": "2"})])
        stored = pa.schema([pa.field("any", inner, metadata={"PARQUET:field_id": "1"})])
        add = parquet(root, "0.parquet", pa.table({"any": [{"other": 7}]}, stored))
        commit(root, 0, [*lines, add])
        return "mode id, a struct with b = 7 under other names: " + said(self._listed, root)

    def widened_partition(self, root: Path) -> str:
        add = parquet(root, "0.parquet", pa.table({"id": pa.array([0], pa.int64())}))
        add["add"]["partitionValues"] = {"p": "7"}
        self._widened(root, "p", "integer", "decimal(12,2)", ["p"], add)
        return "the partition value 7, of an integer: " + said(lambda: self.rows(root).to_pylist())


class KernelRs(RustKernel):
    def _opened(self, root: Path) -> tuple[Any, Any]:
        import delta_kernel_rust_sharing_wrapper as kernel

        place = root.as_uri() + "/"
        return kernel.Table(place), kernel.PythonInterface(place)

    def rows(self, root: Path, version: int | None = None) -> pa.Table:
        import delta_kernel_rust_sharing_wrapper as kernel

        table, interface = self._opened(root)
        return kernel.ScanBuilder(table.snapshot(interface)).build().execute(interface).read_all()

    def changes(self, root: Path, start: int, end: int) -> pa.Table:
        import delta_kernel_rust_sharing_wrapper as kernel

        table, interface = self._opened(root)
        return kernel.TableChangesScanBuilder(table, interface, start, end).build().execute(interface).read_all()

    CASES: Mapping[str, str] = {
        "checkpoint-hint-missing": "hint",
        "feature-mapping-none": "annotated",
        "feature-mapping-id-no-ids": "no_ids",
        "widening-refuses-among": "forbidden_among",
        "widening-partition-*": "widened_partition",
        "widening-nested-element*": "widened_element",
        "ict-feed-timestamps-equal*": "equal_in_feed",
        "ict-feed-timestamps-off": "off_in_feed",
    }


class PolarsDeltalake(RustKernel):
    def rows(self, root: Path, version: int | None = None) -> pa.Table:
        import polars_deltalake

        return polars_deltalake.read_delta(str(root), version=version).to_arrow()

    def changes(self, root: Path, start: int, end: int) -> pa.Table:
        import polars_deltalake

        return polars_deltalake.read_cdf(str(root), start_version=start, end_version=end).to_arrow()

    CASES: Mapping[str, str] = {
        "read-type-map": "map_rows",
        "read-partition-empty-text": "empty_text",
        "checkpoint-hint-missing": "hint",
        "feature-mapping-id-only": "ids_only",
        "feature-mapping-id-no-ids": "no_ids",
        "widening-refuses-*": "forbidden_among",
        "widening-partition-*": "widened_partition",
        "widening-*": "widened_decimal",
        "variant-shredded-*": "shredded",
        "ict-feed-timestamps-equal*": "equal_in_feed",
        "ict-feed-timestamps-off": "off_in_feed",
    }


class DuckDB(RustKernel):
    def connect(self) -> Any:
        import duckdb
        import duckdb_extension_delta

        (extension,) = Path(duckdb_extension_delta.__path__[0]).glob(f"extensions/v{duckdb.__version__}/*")
        connection = duckdb.connect()
        connection.execute(f"LOAD '{extension}'")
        return connection

    def rows(self, root: Path, version: int | None = None) -> pa.Table:
        at = "" if version is None else f", version => {version}"
        with self.connect() as connection:
            return connection.execute(f"FROM delta_scan('{root}'{at})").to_arrow_table()

    def append(self, root: Path, ids: Sequence[int]) -> Any:
        with self.connect() as connection:
            connection.execute(f"ATTACH '{root}' AS t (TYPE delta)")
            connection.execute(f"INSERT INTO t BY NAME SELECT unnest({list(ids)}) AS id")

    def statement(self, root: Path, text: str) -> Any:
        with self.connect() as connection:
            connection.execute(f"ATTACH '{root}' AS t (TYPE delta)")
            return connection.execute(text).fetchall()

    def left_out(self, root: Path) -> str:
        commit(root, 0, head(schema_text(id="long", v="string")))
        return said(lambda: self.statement(root, "INSERT INTO t (id) VALUES (1)"))

    def required_element(self, root: Path) -> str:
        without_nulls(root)
        found = said(lambda: (self.statement(root, "INSERT INTO t SELECT [NULL::BIGINT]"), self._listed(root))[1])
        return f"a null element, where the schema allows none: {found}"

    def removed_domain(self, root: Path) -> str:
        domain = {"domain": "a", "configuration": "", "removed": False}
        protocol: Line = {"minWriterVersion": 7, "writerFeatures": ["domainMetadata"]}
        commit(root, 0, [*head(schema_text(id="long"), **protocol), {"domainMetadata": domain}])
        commit(root, 1, [{"domainMetadata": {**domain, "removed": True}}])

        def found() -> list[Any]:
            self.statement(root, "CHECKPOINT t")
            rows = pq.read_table(root / "_delta_log" / f"{1:020d}.checkpoint.parquet").to_pylist()
            return [row["domainMetadata"] for row in rows if row.get("domainMetadata")]

        return f"the checkpoint after the removal of a domain has {said(found)}"

    def clustered(self, root: Path) -> str:
        metadata = {"delta.columnMapping.id": 1, "delta.columnMapping.physicalName": "col-a"}
        field = {"name": "id", "type": "long", "nullable": True, "metadata": metadata}
        configuration = {"delta.columnMapping.mode": "name", "delta.columnMapping.maxColumnId": "1"}
        protocol: Line = {"minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": ["columnMapping"],
                    "writerFeatures": ["columnMapping", "clustering", "domainMetadata"]}  # fmt: skip
        lines = head(json.dumps({"type": "struct", "fields": [field]}), configuration, **protocol)
        columns = '{"clusteringColumns":[["col-a"]]}'
        domain = {"domainMetadata": {"domain": "delta.clustering", "configuration": columns, "removed": False}}
        commit(root, 0, [*lines, domain])
        return said(lambda: self.append(root, [1]))

    def appended_variant(self, root: Path) -> str:
        features: Line = {"minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": ["variantType"],
                    "writerFeatures": ["variantType"]}  # fmt: skip
        commit(root, 0, head(schema_text(v="variant"), **features))

        def found() -> list[str]:
            self.statement(root, "INSERT INTO t SELECT 7::VARIANT")
            (file,) = root.glob("*.parquet")
            return sorted(field.name for field in pq.read_schema(file).field("v").type)

        return f"the feature variantShredding is not there; the columns of a new variant: {said(found)}"

    def two_partitions(self, root: Path) -> str:
        partitioned(root, ("a.parquet", "a"))
        with self.connect() as connection:
            connection.execute(f"ATTACH '{root}' AS t (TYPE delta)")
            return said(lambda: connection.execute("INSERT INTO t VALUES (1, 'a'), (2, 'b')").fetchall())

    def replaced_schema(self, root: Path) -> str:
        three(root)
        with self.connect() as connection:
            connection.execute(f"ATTACH '{root}' AS t (TYPE delta)")
            connection.execute("BEGIN TRANSACTION")
            connection.execute("SELECT count(*) FROM t").fetchall()
            removed = [
                {"remove": {"path": f"{n}.parquet", "deletionTimestamp": T, "dataChange": True}} for n in range(3)
            ]
            metadata = head(schema_text(other="string"))[1]
            commit(root, 3, [{"commitInfo": {"timestamp": T, "operation": "WRITE"}}, metadata, *removed])

            def inserted() -> int:
                connection.execute("INSERT INTO t BY NAME SELECT 9 AS id")
                connection.execute("COMMIT")
                return len([*(root / "_delta_log").glob("*.json")]) - 1

            version = said(inserted)
            return f"an insert of id = 9 commits version {version}, after version 3 had replaced the column id by other"

    CASES: Mapping[str, str] = {
        "write-append-partition*": "two_partitions",
        "conflict-append-schema": "replaced_schema",
        "checkpoint-hint-missing": "hint",
        "feature-mapping-name-partition": "mapped_partition",
        "feature-mapping-id-only": "ids_only",
        "feature-mapping-none": "annotated",
        "feature-mapping-id-no-ids": "no_ids",
        "invariant-required-absent": "left_out",
        "invariant-required-element-null": "required_element",
        "domain-checkpoint-removed*": "removed_domain",
        "clustering-mapped": "clustered",
        "widening-refuses-*": "forbidden_among",
        "widening-partition-*": "widened_partition",
        "variant-append*": "appended_variant",
        "ict-checksum-without-timestamp-append": "checksum_without",
        "ict-checksum-other-timestamp-append": "checksum_other",
        "ict-clock-largest": "largest",
    }


class Chdb(RustKernel):
    def rows(self, root: Path, version: int | None = None) -> pa.Table:
        return self._read(root, "" if version is None else f" SETTINGS delta_lake_snapshot_version = {version}")

    def changes(self, root: Path, start: int, end: int) -> pa.Table:
        names = (f"delta_lake_snapshot_{name}_version" for name in ("start", "end"))
        return self._read(root, " SETTINGS {} = {}, {} = {}".format(*sum(zip(names, (start, end), strict=True), ())))

    def _read(self, root: Path, settings: str) -> pa.Table:
        import chdb

        os.chdir("/")  # ClickHouse opens only files below the working directory
        text = f"SELECT * FROM deltaLakeLocal('{root}'){settings}"
        return pa.ipc.open_stream(chdb.query(text, "ArrowStream").bytes()).read_all()

    def write(self, *texts: str) -> str:
        from chdb.session import Session

        os.chdir("/")
        with Session() as session:
            session.query("SET allow_delta_lake_writes = 1, allow_delta_lake_create_table = 1")
            for text in texts:
                session.query(text)
        return "no error"

    def append(self, root: Path, ids: Sequence[int]) -> Any:
        self.write(f"INSERT INTO FUNCTION deltaLakeLocal('{root}') (id) SELECT arrayJoin({list(ids)}) AS id")

    def created_again(self, root: Path) -> str:
        three(root)
        text = f"CREATE TABLE t (id Nullable(Int64)) ENGINE = DeltaLakeLocal('{root}', Parquet)"
        return "CREATE TABLE where one exists: " + said(self.write, text)

    def statistics(self, root: Path) -> str:
        three(root)

        def found() -> str:
            self.append(root, [7, 8])
            lines = (root / "_delta_log" / f"{3:020d}.json").read_text().splitlines()
            return str(next(line["add"]["stats"] for line in map(json.loads, lines) if "add" in line))

        return f"statistics of a file with two rows: {said(found)}"

    def materialized(self, root: Path) -> str:
        protocol: Line = {"minWriterVersion": 7, "writerFeatures": ["materializePartitionColumns"]}
        commit(root, 0, head(schema_text(id="long", p="string"), {}, ["p"], **protocol))

        def found() -> list[str]:
            self.write(f"INSERT INTO FUNCTION deltaLakeLocal('{root}') (id, p) SELECT 1 AS id, 'x' AS p")
            (file,) = root.glob("**/*.parquet")
            return list(pq.read_schema(file).names)

        return f"the columns of a new file, where p belongs into files: {said(found)}"

    def wrong_type(self, root: Path) -> str:
        three(root)

        def found() -> list[Any]:
            pq.write_table(pa.table({"id": ["seven"]}), root.parent / "seven.parquet")
            file = f"file('{root.parent / 'seven.parquet'}', Parquet)"
            self.write(f"INSERT INTO FUNCTION deltaLakeLocal('{root}') (id) SELECT id FROM {file}")
            return sorted_ids(self.rows(root))

        return f"rows 0, 1 and 2, and 'seven' was inserted: {said(found)}"

    CASES: Mapping[str, str] = {
        "read-type-array*": "nulls",
        "write-create-exists": "created_again",
        "write-append-statistics": "statistics",
        "write-append-wrong-type": "wrong_type",
        "checkpoint-hint-missing": "hint",
        "feature-mapping-id-only": "ids_only",
        "feature-mapping-none": "annotated",
        "feature-timestamp-ntz*": "without_zone",
        "feature-mapping-id-no-ids": "no_ids",
        "feature-mapping-*": "mapped_array",
        "feature-materialized-partitions": "materialized",
        "widening-refuses-*": "forbidden",
        "widening-partition-*": "widened_partition",
        "ict-feed-timestamps-equal*": "equal_in_feed",
        "ict-feed-timestamps-off": "off_in_feed",
        "ict-checksum-without-timestamp-append": "checksum_without",
        "ict-checksum-other-timestamp-append": "checksum_other",
        "ict-clock-largest": "largest",
    }


class Daft(Polars, RustKernel):
    def rows(self, root: Path, version: Any = None) -> pa.Table:
        import daft

        return daft.read_deltalake(str(root), version=version).to_arrow()

    def append(self, root: Path, ids: Sequence[int]) -> Any:
        import daft

        daft.from_pydict({"id": list(ids)}).write_deltalake(str(root), mode="append")

    def broken_constraint(self, root: Path) -> str:
        configuration = {"delta.constraints.positive": "id > 0"}
        commit(root, 0, head(schema_text(id="long"), configuration, minWriterVersion=3))

        def found() -> list[Any]:
            self.append(root, [-5])
            return sorted_ids(self.rows(root))

        return f"-5 was appended, where CHECK id > 0: {said(found)}"

    def mapped_append(self, root: Path) -> str:
        self.mapped_partition(root)

        def found() -> Any:
            import daft

            return daft.from_pydict({"id": [1], "p": ["y"]}).write_deltalake(str(root), mode="append")

        return said(found)

    def void(self, root: Path) -> str:
        commit(root, 0, head(schema_text(v="void")))
        return "a table whose only column has the type void: " + said(self._listed, root)

    def variant_count(self, root: Path) -> str:
        kind = pa.struct([pa.field("metadata", pa.binary(), nullable=False), ("value", pa.binary())])
        rows = pa.table({"v": pa.array([{"metadata": bytes([1, 0, 0]), "value": bytes([12, 7])}, None], kind)})
        self._of(root, schema_text(v="variant"), rows, ["variantType"])

        def found() -> str:
            import daft

            daft.from_arrow(rows).write_deltalake(str(root), mode="append")
            lines = (root / "_delta_log" / f"{1:020d}.json").read_text().splitlines()
            return str(next(line["add"]["stats"] for line in map(json.loads, lines) if "add" in line))

        return f"statistics of an appended variant and a null: {said(found)}"

    def column_in_file(self, root: Path) -> str:
        lines = head(schema_text(id="long", p="string"), partitions=["p"])
        add = parquet(root, "0.parquet", pa.table({"id": pa.array([0], pa.int64()), "p": ["stale"]}))
        add["add"]["partitionValues"] = {"p": "right"}
        commit(root, 0, [*lines, add])
        return "the partition value is right, and the file has stale: " + said(self._listed, root)

    def vector_without_property(self, root: Path) -> str:
        features = ["deletionVectors"]
        protocol: Line = {"minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": features,
                    "writerFeatures": features}  # fmt: skip
        add = parquet(root, "0.parquet", pa.table({"id": pa.array([0, 1], pa.int64())}))
        vector = {"storageType": "i", "pathOrInlineDv": VECTOR, "sizeInBytes": 34, "cardinality": 1}
        add["add"] |= {"deletionVector": vector, "stats": '{"numRecords":2}'}
        commit(root, 0, [*head(schema_text(id="long"), **protocol), add])
        return "row 0 of the rows 0 and 1 is deleted: " + said(lambda: sorted_ids(self.rows(root)))

    CASES: Mapping[str, str] = {
        "read-partition-column-in-file": "column_in_file",
        "checkpoint-hint-missing": "hint",
        "feature-vector-property-off": "vector_without_property",
        "write-check-broken": "broken_constraint",
        "feature-mapping-*-append-*": "mapped_append",
        "feature-mapping-*": "mapped_array",
        "void-only-refused": "void",
        "widening-refuses-*": "forbidden",
        "widening-partition-*": "widened_partition",
        "variant-mapped": "no_ids",
        "variant-shredded-*": "shredded",
        "variant-append-null-count": "variant_count",
        "travel-time-before-first": "clamped",
        "travel-time-equal": "equal_times",
        "ict-cleaned-commit-of-checkpoint-gone": "checkpoint_only",
        "ict-pair-*": "pair",
        "ict-*": "file_times",
    }


class DaskDeltatable(Daft):
    def rows(self, root: Path, version: Any = None, at: str | None = None) -> pa.Table:
        import dask_deltatable
        import pandas

        types = {"types_mapper": pandas.ArrowDtype}
        frame = dask_deltatable.read_deltalake(str(root), version=version, datetime=at, pyarrow_to_pandas=types)
        return pa.Table.from_pandas(frame.compute(), preserve_index=False)

    def version_at(self, root: Path, ms: int) -> int:
        """Version n has the rows 0 to n."""
        return len(self.rows(root, at=iso(ms))) - 1

    def mapped(self, root: Path) -> str:
        field = {"name": "id", "type": "long", "nullable": True,
                 "metadata": {"delta.columnMapping.id": 1, "delta.columnMapping.physicalName": "col-1"}}  # fmt: skip
        configuration = {"delta.columnMapping.mode": "name", "delta.columnMapping.maxColumnId": "1"}
        schema = json.dumps({"type": "struct", "fields": [field]})
        lines = head(schema, configuration, minReaderVersion=2, minWriterVersion=5)
        stored = pa.schema([pa.field("col-1", pa.int64(), metadata={"PARQUET:field_id": "1"})])
        commit(root, 0, [*lines, parquet(root, "0.parquet", pa.table({"col-1": [7]}, stored))])
        return "the column id has 7 under its physical name: " + said(self._listed, root)

    def times(self, root: Path) -> str:
        return "; ".join([self.clamped(root / "a"), self.equal_times(root / "b"), self.file_times(root / "c")])

    CASES: Mapping[str, str] = {
        "read-partition-*": "directories",
        "checkpoint-hint-missing": "hint",
        "feature-vector-*": "vector_without_property",
        "feature-mapping-*": "mapped",
        "widening-refuses-*": "forbidden_among",
        "widening-partition-*-to-decimal-*": "widened_partition",
        "variant-shredded-*": "shredded",
        "ict-*": "times",
    }


# ------------------------------------------------------------------------------------------------------ Sail


class Sail(DeltaSpark):
    """Sail's server runs in this process; PySpark's client of Spark Connect calls it."""

    def rows(self, root: Path, **options: Any) -> list[Any]:
        return sorted(row["id"] for row in self.spark.read.format("delta").options(**options).load(str(root)).collect())

    def version_at(self, root: Path, ms: int) -> int:
        """Version n has the rows 0 to n."""
        return len(self.rows(root, timestampAsOf=iso(ms))) - 1

    def listed(self, root: Path) -> list[Any]:
        return [row.asDict(recursive=True) for row in self.spark.read.format("delta").load(str(root)).collect()]

    def append(self, root: Path, sql: str) -> None:
        self.spark.sql(f"SELECT {sql}").write.format("delta").mode("append").save(str(root))

    def alter(self, root: Path, change: str) -> None:
        """ALTER TABLE takes tables of the catalog only."""
        self.spark.sql(f"CREATE TABLE t USING delta LOCATION '{root}'").collect()
        try:
            self.spark.sql(f"ALTER TABLE t {change}").collect()
        finally:
            self.spark.sql("DROP TABLE t").collect()

    def last_time(self, root: Path) -> int:
        """The in-commit timestamp of the latest commit."""
        commit = sorted((root / "_delta_log").glob("*.json"))[-1]
        lines = [json.loads(line) for line in commit.read_text().splitlines()]
        return int(next(line["commitInfo"]["inCommitTimestamp"] for line in lines if "commitInfo" in line))

    def changes(self, root: Path) -> str:
        numbered(root, [T, T + HOUR_MS], configuration={"delta.enableChangeDataFeed": "true"}, minWriterVersion=4)
        options = {"readChangeFeed": "true", "startingVersion": "1"}
        frame = self.spark.read.format("delta").options(**options).load(str(root))
        return "version 1 inserts the row 1: " + said(lambda: [row.asDict() for row in frame.collect()])

    def unknown(self, root: Path) -> str:
        numbered(root, [T])
        commit(root, 1, [{"commitInfo": {}}, {"newAction": {"a": 1}}])
        return said(lambda: self.rows(root))

    def null_members(self, root: Path) -> str:
        lines = [*head(schema_text(id="long")), parquet(root, "0.parquet", pa.table({"id": pa.array([0], pa.int64())}))]
        commit(root, 0, [{"commitInfo": None, "txn": None, **line} for line in lines])
        return said(lambda: self.rows(root))

    def before_checkpoint(self, root: Path) -> str:
        numbered(root, [T + version * HOUR_MS for version in range(5)])
        checkpoint(root, 4)
        found = said(lambda: self.rows(root, versionAsOf=2))
        return f"all commits are there, and a checkpoint of version 4: version 2 has {found}"

    def after_last(self, root: Path) -> str:
        three(root)
        return f"hours after the last version, 2: version {said(lambda: self.version_at(root, T + 9 * HOUR_MS))}"

    def equal_times(self, root: Path) -> str:
        numbered(root / "a", [T, T, T])
        numbered(root / "b", [T + 2 * HOUR_MS, T + HOUR_MS, T])
        equal = said(lambda: self.version_at(root / "a", T))
        back = said(lambda: self.version_at(root / "b", T + 2 * HOUR_MS))
        return f"version {equal} at the time of three equal files, version {back} at the largest of three that run back"

    def turned_off(self, root: Path) -> str:
        day = T + 24 * HOUR_MS
        numbered(root, [day, day + 1000], [T, T + HOUR_MS], {ICT: "true"}, **TIMED)
        off = head(schema_text(id="long"), {ICT: "false"})[1]
        row = parquet(root, "2.parquet", pa.table({"id": pa.array([2], pa.int64())}))
        commit(root, 2, [{"commitInfo": {"timestamp": T, "operation": "WRITE"}}, off, row], day + 2000)
        early, late = (said(self.version_at, root, ms) for ms in (T + HOUR_MS, day + 500))
        return f"a day before all file times: version {early}; half a second after that of version 0: version {late}"

    def pair(self, root: Path) -> str:
        contradicting(root, **{PAIR[0]: "1"})
        found = said(self.version_at, root, T + HOUR_MS)
        return f"a pair without its timestamp: at the in-commit timestamp of version 1, version {found}"

    def in_capitals(self, root: Path) -> str:
        day = T + 24 * HOUR_MS
        numbered(root, [day, day + 1000], [T, T + HOUR_MS], {ICT: "TRUE"}, **TIMED)
        found = said(self.version_at, root, T + HOUR_MS)
        return f"the property is TRUE; at the in-commit timestamp of version 1: {found}"

    def missing(self, root: Path) -> str:
        infos: list[Line | None] = [{}, None, {}]
        icts = [T, T + HOUR_MS, T + 2 * HOUR_MS]
        numbered(root, icts, icts, {ICT: "true"}, lambda version: infos[version], **TIMED)
        return f"version 1 has no commitInfo: {said(self.rows, root)}"

    def checkpoint_only(self, root: Path) -> str:
        icts = [T, T + HOUR_MS, T + 2 * HOUR_MS]
        numbered(root, icts, icts, {ICT: "true"}, **TIMED)
        checkpoint(root, 1)
        for version in (0, 1):
            (root / "_delta_log" / f"{version:020d}.json").unlink()
        return f"versions 1 and 2 are left; at the time of version 2: {said(self.version_at, root, T + 2 * HOUR_MS)}"

    def commit_of_checkpoint(self, root: Path) -> str:
        icts = [T + version * HOUR_MS for version in range(5)]
        numbered(root, icts, icts, {ICT: "true"}, **TIMED)
        checkpoint(root, 3)
        found = [said(self.version_at, root, ms) for ms in icts]
        return f"all commits are there, and a checkpoint of version 3: the times of versions 0 to 4 yield {found}"

    def checkpoint_in_json(self, root: Path) -> str:
        numbered(root, [T, T + HOUR_MS, T + 2 * HOUR_MS])
        log = root / "_delta_log"
        lines = [json.loads(line) for name in (0, 1) for line in (log / f"{name:020d}.json").read_text().splitlines()]
        kept = [line for line in lines if "commitInfo" not in line]
        features: Line = {"minReaderVersion": 3, "minWriterVersion": 7}
        features |= {"readerFeatures": ["v2Checkpoint"], "writerFeatures": ["v2Checkpoint"]}
        kept = [{"protocol": features} if "protocol" in line else line for line in kept]
        name = f"{1:020d}.checkpoint.0a1b2c3d-0000-0000-0000-000000000000.json"
        kept.insert(0, {"checkpointMetadata": {"version": 1}})
        (log / name).write_text("".join(json.dumps(line) + "\n" for line in kept))
        for version in (0, 1):
            (log / f"{version:020d}.json").unlink()
        by_time = said(self.version_at, root, T + 2 * HOUR_MS)
        return f"a V2 checkpoint of version 1 and commit 2: {said(self.rows, root)}; by time: {by_time}"

    def compacted(self, root: Path) -> str:
        contradicting(root)
        log = root / "_delta_log"
        lines = [line for name in (0, 1, 2) for line in (log / f"{name:020d}.json").read_text().splitlines()]
        kept = [line for line in lines if "commitInfo" not in json.loads(line)]
        (log / f"{0:020d}.{2:020d}.compacted.json").write_text("".join(f"{line}\n" for line in kept))
        found = [said(self.version_at, root, T + hours * HOUR_MS) for hours in (0, 1, 2)]
        return f"a log compaction file of all commits: the times of versions 0, 1 and 2 yield {found}"

    def checksum(self, root: Path) -> str:
        later = T + 1_000_000 * HOUR_MS
        numbered(root, [T], [later], {ICT: "true"}, **TIMED)
        lines = [json.loads(line) for line in (root / "_delta_log" / f"{0:020d}.json").read_text().splitlines()]
        found = {key: value for line in lines for key, value in line.items() if key in ("protocol", "metaData")}
        size = next(line["add"]["size"] for line in lines if "add" in line)
        text = {"tableSizeBytes": size, "numFiles": 1, "numMetadata": 1, "numProtocol": 1, "inCommitTimestampOpt": T}
        crc = {**text, "metadata": found["metaData"], "protocol": found["protocol"]}
        (root / "_delta_log" / f"{0:020d}.crc").write_text(json.dumps(crc))
        self.append(root, "1L AS id")
        order = "later" if self.last_time(root) > later else "earlier"
        return f"the checksum has an earlier timestamp than its commit: that of an append is {order} than the commit's"

    def largest(self, root: Path) -> str:
        numbered(root, [T], [2**63 - 1], {ICT: "true"}, **TIMED)
        self.append(root, "1L AS id")
        order = "later" if self.last_time(root) > 2**63 - 1 else "not later"
        return f"after 2^63 - 1, the timestamp of an append is {order}"

    def not_last(self, root: Path) -> str:
        day = T + 24 * HOUR_MS
        icts = [T, T + HOUR_MS, T + 2 * HOUR_MS, T + HOUR_MS]
        numbered(root, [day, day, day, day], icts, {ICT: "true"}, **TIMED)
        found = said(self.version_at, root, icts[1])
        return f"the latest, version 3, has the timestamp of version 1: at that time version {found}"

    def negative(self, root: Path) -> str:
        icts = [T, T + HOUR_MS, -5, T + 3 * HOUR_MS, T + 4 * HOUR_MS]
        numbered(root, [T] * 5, icts, {ICT: "true"}, **TIMED)
        found = said(self.version_at, root, T + HOUR_MS)
        return f"version 2 has the timestamp -5: at that of version 1, version {found}"

    def half_pair(self, root: Path) -> str:
        root.rmdir()
        properties = f"'{ICT}' = 'true', '{PAIR[0]}' = '7'"
        sql = f"CREATE TABLE t (id BIGINT) USING delta LOCATION '{root}' TBLPROPERTIES ({properties})"
        found = said(lambda: (self.spark.sql(sql).collect(), self.configuration(root))[1])
        self.spark.sql("DROP TABLE IF EXISTS t").collect()
        return found

    def disabled(self, root: Path) -> str:
        three(root)
        for value in ("true", "false"):
            self.alter(root, f"SET TBLPROPERTIES ('{ICT}' = '{value}')")
        return "the properties that are left: " + ", ".join(self.configuration(root))

    def unset(self, root: Path) -> str:
        numbered(root, [T], configuration={"mine": "1"})
        found = said(self.alter, root, "UNSET TBLPROPERTIES ('mine')")
        return re.sub(r"'t\w*'$", "'t'", found)

    def other_type(self, root: Path) -> str:
        numbered(root, [T])
        self.append(root, "'x' AS id")
        return f"after an append of the text x to the column of longs: {said(self.listed, root)}"

    def unmapped(self, root: Path) -> str:
        field = {"name": "id", "type": "long", "nullable": True,
                 "metadata": {"delta.columnMapping.id": 1, "delta.columnMapping.physicalName": "col-1"}}  # fmt: skip
        schema = json.dumps({"type": "struct", "fields": [field]})
        add = parquet(root, "0.parquet", pa.table({"id": pa.array([7], pa.int64())}))
        lines = head(schema, {"delta.columnMapping.mode": "none"}, minReaderVersion=2, minWriterVersion=5)
        commit(root, 0, [{"commitInfo": {"timestamp": T, "operation": "WRITE"}}, *lines, add])
        return f"the mode is none, and the file has 7 under the name of the column: {said(self.listed, root)}"

    def sidecar(self, root: Path) -> str:
        with_sidecar(root)
        return said(self.rows, root)

    def default(self, root: Path) -> str:
        rule = {"CURRENT_DEFAULT": "'it''s'"}
        fields = [{"name": "id", "type": "long", "nullable": True, "metadata": {}},
                  {"name": "v", "type": "string", "nullable": True, "metadata": rule}]  # fmt: skip
        schema = json.dumps({"type": "struct", "fields": fields})
        features = ["allowColumnDefaults"]
        commit(root, 0, [{"commitInfo": {}}, *head(schema, minWriterVersion=7, writerFeatures=features)])
        self.append(root, "1L AS id")
        return f"the default is 'it''s': {self.listed(root)}"

    def void(self, root: Path) -> str:
        add = parquet(root, "0.parquet", pa.table({"id": pa.array([0], pa.int64())}))
        commit(root, 0, [{"commitInfo": {}}, *head(schema_text(id="long", nothing="void")), add])
        return said(self.listed, root)

    def nested_invariant(self, root: Path) -> str:
        rule = {"delta.invariants": json.dumps({"expression": {"expression": "s.b > 0"}})}
        inner = {"type": "struct", "fields": [{"name": "b", "type": "long", "nullable": True, "metadata": rule}]}
        schema = {"type": "struct", "fields": [{"name": "s", "type": inner, "nullable": True, "metadata": {}}]}
        commit(root, 0, [{"commitInfo": {}}, *head(json.dumps(schema))])
        self.append(root, "named_struct('b', -1L) AS s")
        return f"s.b must be > 0: {self.listed(root)}"

    def generated_null(self, root: Path) -> str:
        rule = {"delta.generationExpression": "a + 1"}
        fields = [{"name": "a", "type": "long", "nullable": True, "metadata": {}},
                  {"name": "g", "type": "long", "nullable": True, "metadata": rule}]  # fmt: skip
        schema = json.dumps({"type": "struct", "fields": fields})
        commit(root, 0, [{"commitInfo": {}}, *head(schema, minWriterVersion=4)])
        self.append(root, "5L AS a, CAST(NULL AS BIGINT) AS g")
        return f"g is a + 1, and null was given: {self.listed(root)}"

    CASES: Mapping[str, str] = {
        "ict-cleanup-newest-expired": "before_checkpoint",
        "ict-feed-*": "changes",
        "read-unknown-actions": "unknown",
        "read-null-members": "null_members",
        "ict-damage-text-*": "text",
        "ict-off-*": "turned_off",
        "ict-pair-*": "pair",
        "travel-time-after-last": "after_last",
        "travel-time-equal": "equal_times",
        "ict-state-property-in-capitals": "in_capitals",
        "ict-damage-no-*": "missing",
        "ict-cleaned-commit-of-checkpoint-gone": "checkpoint_only",
        "ict-cleaned-checkpoint-kept-commits": "commit_of_checkpoint",
        "ict-checkpoint-v2-json-before-enablement": "checkpoint_in_json",
        "ict-compaction-*": "compacted",
        "ict-checksum-other-timestamp-append": "checksum",
        "ict-clock-largest": "largest",
        "ict-broken-latest-is-not-last": "not_last",
        "ict-broken-negative": "negative",
        "ict-create-half-pair": "half_pair",
        "ict-disable-no-pair": "disabled",
        "write-property-removed": "unset",
        "write-append-wrong-type": "other_type",
        "feature-mapping-none": "unmapped",
        "checkpoint-v2-sidecar-encoded": "sidecar",
        "default-string": "default",
        "void-reads*": "void",
        "invariant-nested-broken": "nested_invariant",
        "generated-null-missing": "generated_null",
    }


class KernelJava:
    """The Java kernel, through a JVM that Python drives."""

    def __init__(self, jvm: Any) -> None:
        self.jvm = jvm

    def engine(self) -> Any:
        settings = self.jvm.org.apache.hadoop.conf.Configuration()
        return self.jvm.io.delta.kernel.defaults.engine.DefaultEngine.create(settings)

    def load(self, root: Path, ms: int | None = None) -> Any:
        builder = self.jvm.io.delta.kernel.TableManager.loadSnapshot(str(root))
        if ms is not None:
            builder = builder.atTimestamp(ms, self.load(root))
        return builder.build(self.engine())

    def version_at(self, root: Path, ms: int) -> int:
        return int(self.load(root, ms).getVersion())

    def listed(self, root: Path) -> list[Any]:
        """The rows; longs and texts only."""
        kernel, engine = self.jvm.io.delta.kernel, self.engine()
        scan = self.load(root).getScanBuilder().build()
        state = scan.getScanState(engine)
        physical = kernel.internal.data.ScanStateRow.getPhysicalDataReadSchema(state)
        utils, none = kernel.internal.util.Utils, self.jvm.java.util.Optional.empty()
        found = []
        files = utils.intoRows(scan.getScanFiles(engine))
        while files.hasNext():
            file = files.next()
            status = utils.singletonCloseableIterator(kernel.internal.InternalScanFileUtils.getAddFileStatus(file))
            read = engine.getParquetHandler().readParquetFiles(status, physical, none)
            while read.hasNext():
                data = utils.singletonCloseableIterator(read.next().getData())
                rows = utils.intoRows(kernel.Scan.transformPhysicalData(engine, state, file, data))
                while rows.hasNext():
                    row = rows.next()
                    fields = [(each.getName(), str(each.getDataType())) for each in row.getSchema().fields()]
                    get = {"long": row.getLong, "string": row.getString}
                    found.append({name: None if row.isNullAt(n) else get.get(kind, row.getLong)(n)
                                  for n, (name, kind) in enumerate(fields)})  # fmt: skip
        return found

    def rows(self, root: Path) -> list[Any]:
        return sorted(row["id"] for row in self.listed(root))

    def commits(self, root: Path) -> Any:
        start = self.jvm.io.delta.kernel.CommitRangeBuilder.CommitBoundary.atVersion(0)
        return self.jvm.io.delta.kernel.TableManager.loadCommitRange(str(root), start)

    def times(self, root: Path) -> dict[int, int]:
        """The timestamps of all commits, in ms since T."""
        commits = self.commits(root).build(self.engine()).getCommitActions(self.engine(), self.jvm.java.util.HashSet())
        times = {}
        while commits.hasNext():
            each = commits.next()
            times[int(each.getVersion())] = int(each.getTimestamp()) - T
        return times

    def change(self, root: Path, properties: Mapping[str, str] = {}) -> None:
        """Commit without files, and write the checksum that the kernel then asks for."""
        operation = self.jvm.io.delta.kernel.Operation.MANUAL_UPDATE
        builder = self.load(root).buildUpdateTableTransaction("a confirmation", operation)
        if properties:
            builder = builder.withTablePropertiesAdded(dict(properties))
        self.end(builder.build(self.engine()))

    def create(self, root: Path, properties: Mapping[str, str]) -> None:
        kernel = self.jvm.io.delta.kernel
        schema = kernel.internal.types.DataTypeJsonSerDe.deserializeStructType(schema_text(id="long"))
        builder = kernel.TableManager.buildCreateTableTransaction(str(root), schema, "a confirmation")
        self.end(builder.withTableProperties(dict(properties)).build(self.engine()))

    def end(self, transaction: Any) -> None:
        empty = self.jvm.io.delta.kernel.utils.CloseableIterable.emptyIterable()
        for hook in transaction.commit(self.engine(), empty).getPostCommitHooks():
            hook.threadSafeInvoke(self.engine())

    def append(self, root: Path) -> None:
        """Append one row, in a file that is written here."""
        kernel, engine = self.jvm.io.delta.kernel, self.engine()
        builder = self.load(root).buildUpdateTableTransaction("a confirmation", kernel.Operation.WRITE)
        transaction = builder.build(engine)
        state = transaction.getTransactionState(engine)
        file = parquet(root, "new.parquet", pa.table({"id": pa.array([9], pa.int64())}))["add"]
        counts = kernel.statistics.DataFileStatistics(1, {}, {}, {}, self.jvm.java.util.Optional.empty())
        found = self.jvm.java.util.Optional.of(counts)
        status = kernel.utils.DataFileStatus(str(root / file["path"]), file["size"], T, found)
        files = kernel.internal.util.Utils.singletonCloseableIterator(status)
        context = kernel.Transaction.getWriteContext(engine, state, {})
        actions = kernel.Transaction.generateAppendActions(engine, state, files, context)
        transaction.commit(engine, kernel.utils.CloseableIterable.inMemoryIterable(actions))

    def last(self, root: Path, kind: str) -> dict[str, Any]:
        """An action of the latest commit."""
        commit = sorted((root / "_delta_log").glob("0*.json"))[-1]
        lines = [json.loads(line) for line in commit.read_text().splitlines()]
        return dict(next(line[kind] for line in lines if kind in line))

    def properties(self, root: Path) -> dict[str, str]:
        found = dict(self.load(root).getTableProperties())
        return {key: value for key, value in sorted(found.items()) if "nCommitTimestamp" in key}

    def empty_text(self, root: Path) -> str:
        partitioned(root, ("a.parquet", ""))
        return said(self.listed, root)

    def short_name(self, root: Path) -> str:
        numbered(root, [T, T + HOUR_MS])
        add = parquet(root, "2.parquet", pa.table({"id": pa.array([2], pa.int64())}))
        (root / "_delta_log" / "2.json").write_text(json.dumps(add) + "\n")
        return f"versions 0 and 1 have the rows 0 and 1: {said(self.rows, root)}"

    def staged_name(self, root: Path) -> str:
        numbered(root, [T, T + HOUR_MS])
        name = f"{2:020d}.0a1b2c3d-0000-0000-0000-000000000000.json"
        (root / "_delta_log" / name).write_text('{"commitInfo":{}}\n')
        return f"versions 0 and 1 have the rows 0 and 1: {said(self.rows, root)}"

    def times_back(self, root: Path) -> str:
        numbered(root, [T + 2000, T, T + 1000, T + 9000])
        found = [said(self.version_at, root, T + 2000 + ms) for ms in (0, 1, 2)]
        return f"the commits have the times {self.times(root)}; 2000, 2001 and 2002 yield the versions {found}"

    def own_times(self, root: Path) -> str:
        day = T + 24 * HOUR_MS
        numbered(root, [day, day + 1000], [T, T + HOUR_MS], {ICT: "false"}, **TIMED)
        found = said(self.version_at, root, day + 500)
        return f"in-commit timestamps are off: the times are {self.times(root)}; a day later: version {found}"

    def checkpoint_only(self, root: Path) -> str:
        without_commits(root)
        return f"a checkpoint of version 1, and commit 2: {said(self.rows, root)}"

    def checksum_of_vectors(self, root: Path) -> str:
        with_vector(root)
        found = said(self.change, root, {"mine": "1"})
        return f"version {self.load(root).getVersion()} is committed; its checksum: {found}"

    def property_reads(self, root: Path) -> str:
        day = T + 24 * HOUR_MS
        numbered(root, [day, day + 1000], [T, T + HOUR_MS], {ICT: "true"})
        return f"file times count, and say version 0: {said(self.version_at, root, day + 500)}"

    def property_writes(self, root: Path) -> str:
        numbered(root, [T], configuration={ICT: "true"})
        return said(self.change, root, {"mine": "1"})

    def missing_times(self, root: Path) -> str:
        day = T + 24 * HOUR_MS
        infos: list[Line | None] = [{}, None, {}]
        numbered(root, [day, day, day], [T, T + 1000, T + 2000], {ICT: "true"}, lambda v: infos[v], **TIMED)
        return f"version 1 has no commitInfo, and the files are a day younger: the times are {self.times(root)}"

    def checksum_time(self, root: Path) -> str:
        self.create(root, {ICT: "true"})
        found = json.loads((root / "_delta_log" / f"{0:020d}.crc").read_text())
        return f"in-commit timestamps are on: the checksum has {', '.join(sorted(found))}"

    def half_pair(self, root: Path) -> str:
        def created() -> dict[str, str]:
            self.create(root, {ICT: "true", PAIR[0]: "7"})
            return self.properties(root)

        return said(created)

    def to_after_last(self, root: Path) -> str:
        three(root)
        end = self.jvm.io.delta.kernel.CommitRangeBuilder.CommitBoundary.atTimestamp(T + 9 * HOUR_MS, self.load(root))
        found = said(lambda: self.commits(root).withEndBoundary(end).build(self.engine()).getEndVersion())
        return f"a range to hours after the latest version, 2: it ends at version {found}"

    def info_without_timestamp(self, root: Path) -> str:
        numbered(root, [T, T + HOUR_MS])
        metadata = head(schema_text(id="long"), {ICT: "true"})[1]
        protocol = {"protocol": {"minReaderVersion": 1, **TIMED}}
        lines = [{"commitInfo": {"inCommitTimestamp": T, "operation": "WRITE"}}, protocol, metadata]
        commit(root, 0, [*lines, parquet(root, "0.parquet", pa.table({"id": pa.array([0], pa.int64())}))])
        (root / "_delta_log" / f"{1:020d}.json").unlink()
        return f"commitInfo has an inCommitTimestamp and no timestamp; by time: {said(self.version_at, root, T)}"

    def not_increasing(self, root: Path) -> str:
        day = T + 24 * HOUR_MS
        icts = [T, T + HOUR_MS, -5, T + 3 * HOUR_MS, T + 4 * HOUR_MS]
        numbered(root, [day] * 5, icts, {ICT: "true"}, **TIMED)
        return f"version 2 has the timestamp -5: at that of version 1, version {said(self.version_at, root, icts[1])}"

    def largest(self, root: Path) -> str:
        numbered(root, [T], [2**63 - 1], {ICT: "true"}, **TIMED)
        self.change(root, {"mine": "1"})
        time_ms = self.load(root).getTimestamp(self.engine())
        return f"after 2^63 - 1, the timestamp of a commit is {'earlier' if time_ms < 2**63 - 1 else 'not earlier'}"

    def sidecar(self, root: Path) -> str:
        with_sidecar(root)
        return said(self.rows, root)

    def without_ids(self, root: Path) -> str:
        without_field_ids(root)
        return f"the file has 7 under the physical name, and no field ids: {said(self.listed, root)}"

    def dropped_in_map(self, root: Path) -> str:
        dropped_field(root)
        return f"the field b of the struct in the map was dropped: {said(self.listed, root)}"

    def policy(self, root: Path) -> str:
        numbered(root, [T], configuration={"delta.checkpointPolicy": "v2"}, minReaderVersion=3, minWriterVersion=7,
                 readerFeatures=["v2Checkpoint"], writerFeatures=["v2Checkpoint"])  # fmt: skip
        self.load(root).writeCheckpoint(self.engine())
        [file] = (root / "_delta_log").glob("0*.checkpoint*")
        return f"delta.checkpointPolicy is v2; the checkpoint {file.name} has {', '.join(pq.read_schema(file).names)}"

    def suspended(self, root: Path) -> str:
        configuration = {"delta.rowTrackingSuspended": "true"}
        features = ["rowTracking", "domainMetadata"]
        numbered(root, [T], configuration=configuration, minWriterVersion=7, writerFeatures=features)
        self.append(root)
        found = self.last(root, "add").get("baseRowId")
        return f"row tracking is suspended: an append adds a file with baseRowId {found}"

    def clustered(self, root: Path) -> str:
        clustered_by_a(root)
        kernel, engine = self.jvm.io.delta.kernel, self.engine()
        builder = self.load(root).buildUpdateTableTransaction("a confirmation", kernel.Operation.WRITE)
        transaction = builder.build(engine)
        context = kernel.Transaction.getWriteContext(engine, transaction.getTransactionState(engine), {})
        columns = [str(each) for each in context.getStatisticsColumns()]
        return f"clustered by a, and delta.dataSkippingNumIndexedCols is 0: statistics are wanted of {columns}"

    def forbidden_change(self, root: Path) -> str:
        changes = [{"fromType": "byte", "toType": "string"}, {"fromType": "string", "toType": "long"}]
        field = {"name": "id", "type": "long", "nullable": True, "metadata": {"delta.typeChanges": changes}}
        schema = json.dumps({"type": "struct", "fields": [field]})
        features = ["typeWidening"]
        lines = head(schema, {"delta.enableTypeWidening": "true"}, minReaderVersion=3, minWriterVersion=7,
                     readerFeatures=features, writerFeatures=features)  # fmt: skip
        add = parquet(root, "0.parquet", pa.table({"id": pa.array([7], pa.int64())}))
        commit(root, 0, [{"commitInfo": {"timestamp": T, "operation": "WRITE"}}, *lines, add])
        return f"the changes are byte to string, and string to long: {said(self.rows, root)}"

    def widened_partition(self, root: Path) -> str:
        widened(root)
        return f"the partition value 2025-01-15 was written as a date: {said(self.listed, root)}"

    CASES: Mapping[str, str] = {
        "read-partition-empty-text": "empty_text",
        "read-stray-short-name": "short_name",
        "read-stray-uuid-json": "staged_name",
        "travel-time-history-back": "times_back",
        "ict-state-timestamps-before": "own_times",
        "checkpoint-without-commit": "checkpoint_only",
        "feature-vector-append": "checksum_of_vectors",
        "ict-active-no-feature*": "property_reads",
        "ict-write-property-only": "property_writes",
        "ict-damage-*-history": "missing_times",
        "ict-write-append-info": "checksum_time",
        "ict-create-half-pair": "half_pair",
        "ict-feed-to-after-last": "to_after_last",
        "ict-info-*": "info_without_timestamp",
        "ict-broken-negative": "not_increasing",
        "ict-clock-largest": "largest",
        "checkpoint-v2-sidecar-encoded": "sidecar",
        "feature-mapping-id-no-ids": "without_ids",
        "feature-mapping-*-map-dropped": "dropped_in_map",
        "checkpoint-v2-write*": "policy",
        "widening-refuses-among": "forbidden_change",
        "rows-append-suspended": "suspended",
        "clustering-append-no-statistics": "clustered",
        "widening-partition-date-to-timestamp-ntz": "widened_partition",
    }


def kernel_jvm() -> Any:
    """A JVM with io.delta:delta-kernel-defaults and the jars that it needs, which are in the directory KERNEL_JARS.
    pyspark contains py4j."""
    import glob

    import pyspark
    from py4j.java_gateway import GatewayParameters, JavaGateway, launch_gateway

    [py4j] = glob.glob(os.path.join(os.path.dirname(pyspark.__file__), "jars", "py4j-*.jar"))
    port, token = launch_gateway(
        jarpath=py4j,
        classpath=os.pathsep.join(glob.glob(os.path.join(os.environ["KERNEL_JARS"], "*.jar"))),
        javaopts=[f"--add-opens=java.base/java.util{name}=ALL-UNNAMED" for name in ("", ".stream")],
        die_on_exit=True,
        redirect_stderr=subprocess.DEVNULL,
        enable_auth=True,
    )
    parameters = GatewayParameters(port=port, auth_token=token, auto_convert=True, auto_field=True)
    return JavaGateway(gateway_parameters=parameters).jvm


def sail_session() -> Any:
    from pysail.spark import SparkConnectServer
    from pyspark.sql import SparkSession

    server = SparkConnectServer("127.0.0.1", 0)
    server.start(background=True)
    session = SparkSession.builder.remote(f"sc://127.0.0.1:{server.listening_address[1]}").getOrCreate()
    session.conf.set("spark.sql.session.timeZone", "UTC")
    session.sail_server = server  # the server ends with the object
    return session


def confirm(engine: Any, place: Path) -> dict[str, str]:
    """The engine's answers, one for each explanation, keyed by the first case pattern of the explanation."""
    return {
        pattern: getattr(engine, method)(_made(place / f"{number}-{method}" / "table"))
        for number, (pattern, method) in enumerate(engine.CASES.items())
    }


def _made(path: Path) -> Path:
    path.mkdir(parents=True)
    return path


# By name of the engine.
CLASSES: Mapping[str, type[Any]] = {
    "deltalake": Deltalake,
    "polars": Polars,
    "delta-spark": DeltaSpark,
    "polars-deltalake": PolarsDeltalake,
    "kernel-rs": KernelRs,
    "duckdb": DuckDB,
    "chdb": Chdb,
    "daft": Daft,
    "dask-deltatable": DaskDeltatable,
    "sail": Sail,
    "kernel-java": KernelJava,
}
# Those that are in the environment of the tests.
_HERE = ("deltalake", "polars", "delta-spark")


def engine_of(name: str) -> Any:
    """The engine with this name; for delta-spark, it uses the Spark session of the tests."""
    if name == "sail":
        return Sail(sail_session())
    if name == "kernel-java":
        return KernelJava(kernel_jvm())
    if name != "delta-spark":
        return CLASSES[name]()
    from tests.support.spark import delta_session

    return DeltaSpark(delta_session())


def python_of(name: str) -> Path | None:
    """The Python that calls the engine: that of the engine's own environment, or this one for a program in Java. None
    if the engine has no environment, or is not installed."""
    from deltalog.conformance.environments import RECIPES, cache_directory, description_of, environment_of

    place = environment_of(name, cache_directory())
    if description_of(place) is None:
        return None
    if RECIPES[name].jars:
        os.environ["KERNEL_JARS"] = str(place / "jars")  # for `kernel_jvm`, also in a child process
        return Path(sys.executable)
    return place / "bin" / "python"


def answers(name: str) -> dict[str, str]:
    """The current answers of an engine, from its own environment if it has one. Raises LookupError if it is not
    installed."""
    if name in _HERE:
        with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as place:
            return confirm(engine_of(name), Path(place))
    python = python_of(name)
    if python is None:
        raise LookupError(f"{name} is not installed")
    return dict(json.loads(run_there(python, [str(Path(__file__)), name, "--there"]).splitlines()[-1]))


def run_there(python: Path, arguments: Sequence[str]) -> str:
    """Run a program with the Python of an engine's environment, and return what it prints."""
    command = [str(python), "-I", "-X", "utf8", *arguments]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=600)
    if done.returncode:
        raise RuntimeError(f"{arguments[0]}: {done.stderr[-2000:]}")
    return done.stdout


def main(name: str, keep: bool) -> None:
    found = answers(name)
    for pattern, answer in found.items():
        print(f"{pattern}: {answer}")
    if keep:
        kept = json.loads(EXPLANATIONS.read_text(encoding="utf-8"))
        for entry in kept[name]:
            entry["confirmed"] = found[entry["cases"].split()[0]]
        EXPLANATIONS.write_text(json.dumps(kept, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def main_there(name: str) -> None:
    """Print the answers as JSON, on one line."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as place:
        print(json.dumps(confirm(engine_of(name), Path(place))))
    sys.stdout.flush()
    os._exit(0)  # threads of an engine need not end


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m tests.interop.confirmations")
    parser.add_argument("engine", choices=[*CLASSES])
    parser.add_argument("--keep", action="store_true", help="keep the answers in explanations.json")
    parser.add_argument("--there", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.there:
        main_there(given.engine)
    else:
        main(given.engine, given.keep)
