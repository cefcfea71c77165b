"""Violations of writer requirements: tombstones, row ids, identity columns, Iceberg, staged commits, nested
statistics."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from deltalog import DeltaTable
from tests.support.doctor.damaged_tables import (
    ICT,
    SCHEMA,
    Damage,
    Line,
    append_commit,
    both,
    case,
    checkpointed,
    commit,
    configure,
    edit_action,
    edit_checkpoint,
    edit_schema,
    edit_stats,
    first_add,
    log,
    plain,
    rewrite_rows,
    rows,
    tracked,
)
from tests.support.doctor.damages.lines import INFO, metadata_at, protocol

MARK = "delta.identity.highWaterMark"
UNIQUE = "12345678-1234-1234-1234-123456789abc"


def _edited(table: DeltaTable, path: Path, *edits: Callable[[Path], None]) -> DeltaTable:
    """Edit the first commit of a table, so that it contains something that deltalog never writes, and delete the
    version checksums."""
    table.flush()
    for each in edits:
        each(path)
    for file in log(path).glob("*.crc"):
        file.unlink()
    return table


def _features(*names: str, readers: tuple[str, ...] = ()) -> Callable[[Path], None]:
    def change(action: Line) -> None:
        action.update(minReaderVersion=3, minWriterVersion=7)
        for key, more in (("readerFeatures", readers), ("writerFeatures", (*names, *readers))):
            action[key] = list(dict.fromkeys([*(action.get(key) or ()), *more]))

    return edit_action(0, "protocol", change)


def _of_column(number: int, **metadata: Any) -> Callable[[Path], None]:
    """Damage: change the metadata of a column. Underscores in the names of ``metadata`` stand for dots."""
    values = {key.replace("_", "."): value for key, value in metadata.items()}
    return edit_schema(0, lambda schema: schema["fields"][number]["metadata"].update(values))


def identified(path: Path) -> DeltaTable:
    """An identity column that starts at 1 in steps of 1; its last value is 31."""
    return _edited(
        plain(path),
        path,
        _features("identityColumns"),
        _of_column(
            0,
            delta_identity_start=1,
            delta_identity_step=1,
            delta_identity_highWaterMark=31,
            delta_identity_allowExplicitInsert=False,
        ),
    )


def identified_backwards(path: Path) -> DeltaTable:
    """An identity column that starts at 31 in steps of -1; its last value is 1."""
    return _edited(
        plain(path),
        path,
        _features("identityColumns"),
        _of_column(0, delta_identity_start=31, delta_identity_step=-1, delta_identity_highWaterMark=1),
    )


def nested(path: Path) -> DeltaTable:
    schema = pa.schema([("s", pa.struct([("a", pa.int64()), ("t", pa.struct([("b", pa.string())]))]))])
    table = DeltaTable.create(path, schema)
    table.append(pa.table({"s": [{"a": 1, "t": {"b": "x"}}, {"a": 5, "t": None}, None]}, schema=schema))
    return table


def _iceberg(number: int) -> Callable[[Path], DeltaTable]:
    def build(path: Path) -> DeltaTable:
        table = plain(path, **{"delta.columnMapping.mode": "name"})
        feature = f"icebergCompatV{number}"
        return _edited(table, path, _features(feature), _on(number))

    build.__name__ = f"iceberg_{number}"
    return build


def _on(number: int) -> Callable[[Path], None]:
    return edit_action(
        0, "metaData", lambda m: m["configuration"].update({f"delta.enableIcebergCompatV{number}": "true"})
    )


def mapped_and_partitioned(path: Path) -> DeltaTable:
    table = DeltaTable.create(
        path, SCHEMA, data=rows(1, 2), partition_by=["day"], properties={"delta.columnMapping.mode": "name"}
    )
    return table


iceberg_1, iceberg_2 = _iceberg(1), _iceberg(2)


def managed(path: Path) -> DeltaTable:
    """A catalog-managed table whose version 2 also has a staged commit."""
    table = _edited(
        plain(path, **ICT), path, _features("inCommitTimestamp", readers=("catalogManaged", "vacuumProtocolCheck"))
    )
    log(path, "_staged_commits").mkdir()
    shutil.copy2(commit(path, 2), _staged(path, 2))
    return table


def _staged(path: Path, version: int) -> Path:
    return log(path, f"_staged_commits/{version:020d}.{UNIQUE}.json")


def _other_staged(path: Path) -> None:
    _staged(path, 2).write_bytes(commit(path, 3).read_bytes())


def with_type(kind: Any) -> Callable[[Path], None]:
    """Damage: add a column with a type, an id and a physical name."""
    column = {
        "name": "more", "type": kind, "nullable": True,
        "metadata": {"delta.columnMapping.id": 9, "delta.columnMapping.physicalName": "col-more"},
    }  # fmt: skip
    return both(
        edit_schema(0, lambda schema: schema["fields"].append(column)),
        configure(0, delta_columnMapping_maxColumnId="9"),
    )


def _list(kind: str) -> Line:
    return {"type": "array", "elementType": kind, "containsNull": True}


def _int96(path: Path) -> None:
    """Damage: store timestamps in data files as INT96."""
    with_type("timestamp")(path)
    for file in sorted(each for each in path.rglob("*.parquet") if "_delta_log" not in each.parts):
        table = pq.read_table(file)
        more = pa.array([0] * table.num_rows, pa.timestamp("us", "UTC"))
        table = table.append_column(pa.field("col-more", more.type, metadata={"PARQUET:field_id": "9"}), more)
        pq.write_table(table, file, use_deprecated_int96_timestamps=True)


def _enabled_without_ids(path: Path) -> None:
    line = metadata_at(path)
    line["metaData"]["configuration"] = {
        "delta.enableRowTracking": "true",
        "delta.rowTracking.materializedRowIdColumnName": "_row-id-1",
        "delta.rowTracking.materializedRowCommitVersionColumnName": "_row-commit-version-1",
    }
    features = ["domainMetadata", "rowTracking", "appendOnly", "invariants"]
    append_commit(INFO, protocol(minWriterVersion=7, writerFeatures=features), line)(path)


def _removed_without_ids(path: Path) -> None:
    remove = {"path": first_add(path)["add"]["path"], "dataChange": True, "deletionTimestamp": 1}
    append_commit(INFO, {"remove": remove})(path)


def _first_tombstone_gone(values: list[Any]) -> list[Any]:
    first = next(number for number, value in enumerate(values) if value)
    return [None if number == first else value for number, value in enumerate(values)]


def _changed_identity(**metadata: Any) -> Callable[[Path], None]:
    """Damage: append a metaData action that changes the column metadata of ``id``."""

    def damage(path: Path) -> None:
        line = metadata_at(path)
        schema = json.loads(line["metaData"]["schemaString"])
        schema["fields"][0]["metadata"].update({key.replace("_", "."): value for key, value in metadata.items()})
        append_commit(INFO, metadata_at(path, schemaString=json.dumps(schema)))(path)

    return damage


WRITERS: list[Damage] = [
    case(
        "checkpoint lacks a tombstone",
        checkpointed,
        edit_checkpoint("remove", _first_tombstone_gone),
        "checkpoint-tombstone-missing",
    ),
    case(
        "row commit version of the past",
        tracked,
        edit_action(2, "add", lambda add: add.update(defaultRowCommitVersion=1)),
        "row-commit-version-wrong",
    ),
    case(
        "no row commit version",
        tracked,
        edit_action(2, "add", lambda add: add.pop("defaultRowCommitVersion")),
        "row-id-missing",
    ),
    case("row tracking enabled without ids", plain, _enabled_without_ids, "row-id-missing"),
    case("remove without row ids", tracked, _removed_without_ids, "remove-row-id-differs"),
    case("identity mark too low", identified, _of_column(0, delta_identity_highWaterMark=30), "identity-mark-low"),
    case(
        "identity mark missing",
        identified,
        edit_schema(0, lambda s: s["fields"][0]["metadata"].pop(MARK)),
        "identity-mark-low",
    ),
    case(
        "identity mark too high in steps down",
        identified_backwards,
        _of_column(0, delta_identity_highWaterMark=2),
        "identity-mark-low",
    ),
    case(
        "identity mark low in the rows",
        identified,
        both(
            rewrite_rows(lambda t: t.set_column(0, t.schema.field(0), pa.array([99] * t.num_rows, pa.int64()))),
            edit_action(1, "add", lambda add: add.pop("stats")),
        ),
        "identity-mark-low",
        deep=True,
    ),
    case(
        "identity mark between the steps",
        identified,
        _of_column(0, delta_identity_step=2, delta_identity_highWaterMark=32),
        "identity-mark-invalid",
        "identity-value-wrong",
    ),
    case("identity of step 0", identified, _of_column(0, delta_identity_step=0), "identity-invalid"),
    case("identity of another start", identified, _changed_identity(delta_identity_start=0), "identity-changed"),
    case(
        "identity mark goes back",
        identified,
        _changed_identity(delta_identity_highWaterMark=5),
        "identity-mark-decreased",
        "identity-mark-low",
    ),
    case(
        "nested maximum too low",
        nested,
        edit_stats(1, lambda s: s["maxValues"]["s"].update(a=4)),
        "stats-contradict-footer",
    ),
    case(
        "nested minimum of text too high",
        nested,
        edit_stats(1, lambda s: (s["minValues"]["s"]["t"].update(b="y"), s["maxValues"]["s"]["t"].update(b="z"))),
        "stats-contradict-footer",
    ),
    case(
        "nested NULLs too few",
        nested,
        edit_stats(1, lambda s: s["nullCount"]["s"]["t"].update(b=0)),
        "stats-contradict-footer",
    ),
    case("Iceberg 1 with an array", iceberg_1, with_type(_list("long")), "iceberg-v1-violated"),
    case("Iceberg 1 with a void", iceberg_1, with_type("void"), "iceberg-v1-violated"),
    case(
        "Iceberg 1 with vectors",
        iceberg_1,
        _features(readers=("deletionVectors",)),
        "iceberg-v1-violated",
    ),
    case("Iceberg 1 without mapping", iceberg_1, configure(0, delta_columnMapping_mode=None), "iceberg-v1-violated"),
    case(
        "Iceberg 1 without a number of rows",
        iceberg_1,
        edit_stats(1, lambda s: s.pop("numRecords")),
        "iceberg-v1-violated",
    ),
    case("Iceberg 2 without mapping", iceberg_2, configure(0, delta_columnMapping_mode="none"), "iceberg-v2-violated"),
    case(
        "Iceberg 2 with vectors",
        iceberg_2,
        both(_features(readers=("deletionVectors",)), configure(0, delta_enableDeletionVectors="true")),
        "iceberg-v2-violated",
    ),
    case("Iceberg 2 and 1", iceberg_2, both(_features("icebergCompatV1"), _on(1)), "iceberg-v2-violated"),
    case("Iceberg 2 with an array without ids", iceberg_2, with_type(_list("long")), "iceberg-v2-violated"),
    case(
        "Iceberg 2 with an id twice",
        iceberg_2,
        both(
            with_type(_list("long")),
            edit_schema(
                0,
                lambda s: s["fields"][-1]["metadata"].update(
                    {"delta.columnMapping.nested.ids": {"col-more.element": 1}}
                ),
            ),
        ),
        "iceberg-v2-violated",
    ),
    case("Iceberg 2 with a variant", iceberg_2, with_type("variant"), "iceberg-v2-violated"),
    case(
        "Iceberg 2 with a type change that Iceberg does not support",
        iceberg_2,
        edit_schema(
            0,
            lambda s: s["fields"][0]["metadata"].update(
                {"delta.typeChanges": [{"fromType": "integer", "toType": "double"}]}
            ),
        ),
        "iceberg-v2-violated",
    ),
    case("Iceberg 2 with timestamps as INT96", iceberg_2, _int96, "iceberg-file-violated"),
    case(
        "Iceberg 1 without partition columns in the files",
        mapped_and_partitioned,
        both(_features("icebergCompatV1"), _on(1)),
        "iceberg-file-violated",
    ),
    case(
        "Iceberg 2 without partition columns in the files",
        mapped_and_partitioned,
        both(_features("icebergCompatV2"), _on(2)),
        "iceberg-file-violated",
    ),
    case(
        "Iceberg 2 with changed partition columns",
        mapped_and_partitioned,
        both(
            _features("icebergCompatV2"),
            _on(2),
            lambda path: append_commit(INFO, metadata_at(path, partitionColumns=["name"]))(path),
        ),
        "iceberg-v2-violated",
    ),
    case("staged commit of other actions", managed, _other_staged, "staged-commit-differs"),
]
