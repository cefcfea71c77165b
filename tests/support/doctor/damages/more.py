"""Functions that damage tables in ways that the other modules do not cover."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa

from tests.support.doctor.damaged_tables import (
    Damage,
    Line,
    add_line,
    again,
    append_commit,
    both,
    case,
    checkpointed,
    commit,
    configure,
    copy,
    delete,
    edit,
    edit_action,
    edit_schema,
    edit_stats,
    first_add,
    ict_of,
    mapped,
    partitioned,
    partitioned_by_number,
    plain,
    rename,
    rewrite_rows,
    timed_late,
    tracked,
    vector_field,
    with_vectors,
    without,
)
from tests.support.doctor.damages.lines import INFO, NAME, metadata_at, protocol

_CLUSTERING = protocol(minWriterVersion=7, writerFeatures=["clustering", "domainMetadata", "appendOnly", "invariants"])


def _column(**fields: Any) -> Callable[[Path], None]:
    """Damage: change members of the first column's JSON object in the schema."""
    return edit_schema(0, lambda schema: schema["fields"][0].update(fields))


def _of_column(number: int, key: str, value: Any) -> Callable[[Path], None]:
    return edit_schema(0, lambda schema: schema["fields"][number]["metadata"].update({key: value}))


def _later_schema(change: Callable[[Line], object]) -> Callable[[Path], None]:
    """Damage a table: append a metaData action with a changed schema."""

    def damage(path: Path) -> None:
        schema = json.loads(metadata_at(path)["metaData"]["schemaString"])
        change(schema)
        append_commit(INFO, metadata_at(path, schemaString=json.dumps(schema)))(path)

    return damage


def _later_property(key: str, value: str) -> Callable[[Path], None]:
    def damage(path: Path) -> None:
        configuration = {**metadata_at(path)["metaData"]["configuration"], key: value}
        append_commit(INFO, metadata_at(path, configuration=configuration))(path)

    return damage


def _after_the_enablement(path: Path) -> None:
    """Damage: set the file time of the commit before the enabling commit to a minute after the enabling commit."""
    seconds = ict_of(path, 4) / 1000 + 60
    os.utime(commit(path, 3), (seconds, seconds))


def _clustered_by(*names: list[str]) -> Line:
    configuration = json.dumps({"clusteringColumns": list(names)})
    return {"domainMetadata": {"domain": "delta.clustering", "configuration": configuration, "removed": False}}


MORE: list[Damage] = [
    case("enabled before the file time", timed_late, _after_the_enablement, "ict-enablement-not-after-file-time"),
    case(
        "checkpoint of a short name",
        checkpointed,
        copy("*.checkpoint.parquet", "5.checkpoint.parquet"),
        "checkpoint-name-malformed",
    ),
    case(
        "checkpoint in parts",
        checkpointed,
        rename("*.checkpoint.parquet", f"{4:020d}.checkpoint.0000000001.0000000001.parquet"),
        "multi-part-checkpoint",
    ),
    case("one checksum missing", plain, delete(f"_delta_log/{NAME}.crc"), "crc-missing"),
    case(
        "old commits gone",
        checkpointed,
        delete(*(f"_delta_log/{version:020d}.json" for version in range(4))),
        "log-begins-later",
    ),
    case("first commit gone", checkpointed, delete(f"_delta_log/{0:020d}.json"), "cleanup-without-checkpoint"),
    case("no commitInfo without timestamps", plain, edit(1, without("commitInfo")), "commit-info-absent"),
    case(
        "metadata without configuration",
        plain,
        edit_action(0, "metaData", lambda m: m.pop("configuration")),
        "action-field-missing",
    ),
    case(
        "partition column of an array",
        partitioned,
        edit_schema(
            0,
            lambda s: s["fields"][2].update(type={"type": "array", "elementType": "string", "containsNull": True}),
        ),
        "partition-column-type",
    ),
    case(
        "column with a space",
        plain,
        edit_schema(0, lambda s: s["fields"].append({**s["fields"][0], "name": "a b"})),
        "schema-column-name",
    ),
    case("comment that is a number", plain, _of_column(0, "comment", 5), "schema-key-invalid"),
    case("invariant that is no JSON", plain, _of_column(0, "delta.invariants", "{"), "invariant-invalid"),
    case(
        "generated column that cannot be parsed",
        plain,
        _of_column(1, "delta.generationExpression", "f("),
        "generated-column-invalid",
    ),
    case(
        "generated values of another expression",
        plain,
        _of_column(1, "delta.generationExpression", "'x'"),
        "generated-value-wrong",
        deep=True,
    ),
    case(
        "highest column id goes down",
        mapped,
        _later_property("delta.columnMapping.maxColumnId", "1"),
        "column-mapping-max-id-decreased",
        "column-mapping-max-id-low",
    ),
    case(
        "mapping mode changes",
        mapped,
        _later_property("delta.columnMapping.mode", "id"),
        "column-mapping-mode-changed",
    ),
    case(
        "column id changes",
        mapped,
        _later_schema(lambda s: s["fields"][0]["metadata"].update({"delta.columnMapping.id": 2, "a": 1})),
        "column-mapping-column-changed",
        "column-mapping-id-twice",
    ),
    case(
        "change of type to a narrower one",
        plain,
        _of_column(0, "delta.typeChanges", [{"fromType": "long", "toType": "integer"}]),
        "type-change-invalid",
    ),
    case(
        "wider type that is not recorded",
        plain,
        _later_schema(lambda s: s["fields"][0].update(type="decimal(20,0)")),
        "type-change-unrecorded",
    ),
    case(
        "partition value that is NULL",
        partitioned_by_number,
        both(_column(nullable=False), edit_action(0, "add", lambda add: add.update(partitionValues={"id": None}))),
        "partition-value-null",
    ),
    case(
        "NULLs counted in a required column",
        plain,
        both(_column(nullable=False), edit_stats(1, lambda s: s["nullCount"].update(id=1))),
        "stats-null-in-required-column",
    ),
    case(
        "NULLs in a required column",
        plain,
        both(
            _column(nullable=False),
            rewrite_rows(lambda t: t.set_column(0, "id", pa.array([None] * t.num_rows, pa.int64()))),
        ),
        "data-null-in-required-column",
        deep=True,
    ),
    case("file elsewhere", plain, append_commit(INFO, add_line("s3://bucket/x.parquet")), "data-file-not-checked"),
    case("vector of no row", with_vectors, vector_field(cardinality=0), "vector-empty"),
    case("vector while they are off", with_vectors, configure(0, delta_enableDeletionVectors=None), "vector-while-off"),
    case(
        "other row id for the same file",
        tracked,
        lambda path: append_commit(INFO, again(first_add(path), baseRowId=500))(path),
        "row-id-changed",
    ),
    case("row tracking suspended", tracked, configure(0, delta_rowTrackingSuspended="true"), "row-tracking-suspended"),
    case("clustering without its domain", plain, append_commit(INFO, _CLUSTERING), "clustering-domain-missing"),
    case(
        "clustering with partitions",
        partitioned,
        append_commit(INFO, _CLUSTERING, _clustered_by(["id"])),
        "clustering-with-partitions",
    ),
    case(
        "clustering by no column",
        plain,
        append_commit(INFO, _CLUSTERING, _clustered_by(["nowhere"])),
        "clustering-column-unknown",
    ),
]
