"""Tables that other writers make in ways that deltalog does not: the doctor has no error for them."""

from __future__ import annotations

import datetime
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from deltalog import CheckReport, DeltaTable, check
from deltalog.protocol.schema import PrimitiveType
from tests.support.doctor.damaged_tables import (
    Line,
    append_commit,
    commit,
    edit_action,
    edit_schema,
    edit_stats,
    log,
    read,
    write,
)

UTC = datetime.timezone.utc


def assert_no_error(path: Path) -> CheckReport:
    for deep in (False, True):
        report = check(path, deep=deep)
        assert report.ok, str(report)
    return report


def without_derived(path: Path) -> None:
    for file in log(path).glob("*.crc"):
        file.unlink()


def action(path: Path, version: int, kind: str) -> Line:
    return dict(next(line[kind] for line in read(commit(path, version)) if kind in line))


# ------------------------------------------------------------------------------------------ whole tables replaced


@pytest.mark.parametrize("was_append_only", [False, True])
def test_a_replaced_table_that_becomes_append_only(tmp_path: Path, was_append_only: bool) -> None:
    """CREATE OR REPLACE TABLE … TBLPROPERTIES ('delta.appendOnly' = 'true') removes the rows of the earlier table."""
    properties = {"delta.appendOnly": "true"} if was_append_only else {}
    table = DeltaTable.create(tmp_path, pa.schema([("id", pa.int64())]), data=pa.table({"id": [1]}))
    table.set_properties({"delta.enableChangeDataFeed": "false", **properties})
    table.flush()
    add, metadata = action(tmp_path, 0, "add"), action(tmp_path, 1, "metaData")
    metadata["configuration"] = {"delta.appendOnly": "true"}
    remove = {name: add[name] for name in ("path", "dataChange")}
    append_commit(
        {"commitInfo": {"operation": "CREATE OR REPLACE TABLE"}},
        {"metaData": metadata},
        {"remove": {**remove, "deletionTimestamp": add["modificationTime"]}},
    )(tmp_path)
    assert ("append-only-violated" in check(tmp_path).rules) == was_append_only
    assert check(tmp_path).ok == (not was_append_only)


# ----------------------------------------------------------------------------------------------------- widening


@pytest.mark.parametrize("before", [pa.int8(), pa.int16()])
@pytest.mark.parametrize("feature", [False, True])
def test_integers_widened_by_schema_merging(tmp_path: Path, before: pa.DataType, feature: bool) -> None:
    """Without the feature typeWidening, delta-spark widens byte and short to integer in a write with mergeSchema, and
    does not record it; with the feature, it must record it."""
    properties = {"delta.enableTypeWidening": "true"} if feature else {}
    rows = pa.table({"n": pa.array([1, 2], before)})
    DeltaTable.create(tmp_path, rows.schema, data=rows, properties=properties).flush()
    metadata = action(tmp_path, 0, "metaData")
    schema = json.loads(metadata["schemaString"])
    schema["fields"][0]["type"] = "integer"
    append_commit(
        {"commitInfo": {"operation": "WRITE"}}, {"metaData": {**metadata, "schemaString": json.dumps(schema)}}
    )(tmp_path)
    if feature:
        assert "type-change-unrecorded" in check(tmp_path).rules
    else:
        assert_no_error(tmp_path)


# ------------------------------------------------------------------------------------------- times out of range

OFFSETS = [
    "1870-01-01 00:00:00+00:19:32",
    "0001-01-01 00:00:00+00:19:32",
    "1850-06-01T10:11:12.123456-07:52:58",
    "0000-12-31T23:40:28.000000Z",
    "9999-12-31 23:59:59.999999-07:52:58",
    "+10000-01-01T07:52:57.999999Z",
]


@pytest.mark.parametrize("text", OFFSETS)
def test_partition_values_of_local_mean_time(tmp_path: Path, text: str) -> None:
    """The first and the last day in a time zone are outside the years 1 to 9999 in UTC."""
    at = datetime.datetime(2026, 1, 1, tzinfo=UTC)
    rows = pa.table({"id": [1], "at": pa.array([at], pa.timestamp("us", "UTC"))})
    DeltaTable.create(tmp_path, rows.schema, data=rows, partition_by=["at"]).flush()
    edit_action(0, "add", lambda add: add.update(partitionValues={"at": text}))(tmp_path)
    without_derived(tmp_path)
    assert_no_error(tmp_path)


@pytest.mark.parametrize("text", ["2026-01-01T25:00:00Z", "yesterday", "2026-02-30 00:00:00", "-1", "0000"])
def test_partition_values_that_are_no_time(tmp_path: Path, text: str) -> None:
    at = datetime.datetime(2026, 1, 1, tzinfo=UTC)
    rows = pa.table({"id": [1], "at": pa.array([at], pa.timestamp("us", "UTC"))})
    DeltaTable.create(tmp_path, rows.schema, data=rows, partition_by=["at"]).flush()
    edit_action(0, "add", lambda add: add.update(partitionValues={"at": text}))(tmp_path)
    assert "partition-value-invalid" in check(tmp_path).rules


@pytest.mark.parametrize("text", OFFSETS)
def test_statistics_of_local_mean_time(tmp_path: Path, text: str) -> None:
    at = datetime.datetime(2026, 1, 1, tzinfo=UTC)
    rows = pa.table({"id": [1], "at": pa.array([at], pa.timestamp("us", "UTC"))})
    DeltaTable.create(tmp_path, rows.schema, data=rows).flush()

    def change(stats: Line) -> None:
        stats["minValues"]["at"] = text if text < "2026" and text[0] != "+" else stats["minValues"]["at"]
        stats["maxValues"]["at"] = text if text > "2026" or text[0] == "+" else stats["maxValues"]["at"]
        stats["tightBounds"] = False

    edit_stats(0, change)(tmp_path)
    without_derived(tmp_path)
    assert_no_error(tmp_path)


# ------------------------------------------------------------------------------------ the time zone of a session


def zoned(path: Path) -> None:
    """A generated column and a constraint that are right in the time zone of the writer, which is west of UTC."""
    at = datetime.datetime(2026, 1, 2, 3, 0, tzinfo=UTC)
    rows = pa.table({"at": pa.array([at], pa.timestamp("us", "UTC")), "day": pa.array([at.date()], pa.date32())})
    DeltaTable.create(path, rows.schema, data=rows.set_column(1, "day", pa.array([datetime.date(2026, 1, 1)]))).flush()
    features = {"minReaderVersion": 1, "minWriterVersion": 7}
    names = ["appendOnly", "invariants", "generatedColumns", "checkConstraints"]
    edit_action(0, "protocol", lambda protocol: protocol.update(**features, writerFeatures=names))(path)
    generated = {"delta.generationExpression": "CAST(at AS DATE)"}
    edit_schema(0, lambda schema: schema["fields"][1]["metadata"].update(generated))(path)
    constraint = {"delta.constraints.early": "at < '2026-01-02 00:00:00'"}
    edit_action(0, "metaData", lambda metadata: metadata["configuration"].update(constraint))(path)
    without_derived(path)


def test_expressions_that_depend_on_the_time_zone_of_the_writer(tmp_path: Path) -> None:
    zoned(tmp_path)
    report = assert_no_error(tmp_path)
    found = [each for each in report.findings if each.rule == "value-depends-on-time-zone"]
    assert {each.message for each in found} == {"day: 1 of 1 rows.", "early: 1 of 1 rows."}
    assert {each.severity for each in found} == {"warning"}


def test_other_expressions_do_not_depend_on_it(tmp_path: Path) -> None:
    zoned(tmp_path)
    edit_schema(0, lambda schema: schema["fields"][0].update(type="timestamp_ntz"))(tmp_path)
    names = ["timestampNtz"]
    edit_action(
        0,
        "protocol",
        lambda p: p.update(minReaderVersion=3, readerFeatures=names, writerFeatures=[*p["writerFeatures"], *names]),
    )(tmp_path)
    assert {"generated-value-wrong", "constraint-violated"} <= set(check(tmp_path, deep=True).rules)


# -------------------------------------------------------------------------------------------- files of other writers


def rewritten(path: Path, rows: pa.Table, **options: Any) -> None:
    """Replace the data file of version 0 by one with the same values."""
    add = action(path, 0, "add")
    pq.write_table(rows, path / add["path"], **options)
    edit_action(0, "add", lambda body: body.update(size=(path / add["path"]).stat().st_size))(path)
    without_derived(path)


@pytest.mark.parametrize(
    "kind", [pa.list_(pa.int64(), 2), pa.large_list(pa.int64()), pa.list_view(pa.int64())], ids=str
)
def test_lists_of_every_kind(tmp_path: Path, kind: pa.DataType) -> None:
    rows = pa.table({"tags": pa.array([[1, 2], [3, 4]], pa.list_(pa.int64()))})
    DeltaTable.create(tmp_path, rows.schema, data=rows).flush()
    try:
        rewritten(tmp_path, pa.table({"tags": pa.array([[1, 2], [3, 4]], kind)}))
    except pa.ArrowNotImplementedError:
        pytest.skip("this version of Arrow does not write them")
    assert_no_error(tmp_path)


def test_files_with_the_julian_calendar(tmp_path: Path) -> None:
    """Spark's setting for older programs: the days in the file are counted in the Julian calendar."""
    day = datetime.date(1500, 1, 1)
    rows = pa.table({"day": pa.array([day], pa.date32()), "id": [1]})
    DeltaTable.create(tmp_path, rows.schema, data=rows).flush()
    julian = pa.table({"day": pa.array([day + datetime.timedelta(days=9)], pa.date32()), "id": [1]})
    rewritten(tmp_path, julian)
    assert "stats-contradict-footer" in check(tmp_path).rules
    rewritten(tmp_path, julian.replace_schema_metadata({"org.apache.spark.legacyDateTime": ""}))
    assert_no_error(tmp_path)


@pytest.mark.parametrize("year", [1, 1500, 2026, 9999])
def test_parsed_statistics_as_int96(tmp_path: Path, year: int) -> None:
    at = datetime.datetime(year, 6, 1, 10, 11, 12, 123_000, tzinfo=UTC)
    rows = pa.table({"at": pa.array([at], pa.timestamp("us", "UTC"))})
    properties = {"delta.checkpoint.writeStatsAsStruct": "true", "delta.checkpoint.writeStatsAsJson": "true"}
    table = DeltaTable.create(tmp_path, rows.schema, data=rows, properties=properties)
    table.append(rows)
    table.checkpoint()
    table.flush()
    [file] = log(tmp_path).glob("*.checkpoint.parquet")
    stored = pq.read_table(file)
    assert "stats_parsed" in {field.name for field in stored.schema.field("add").type}
    pq.write_table(stored, file, use_deprecated_int96_timestamps=True)
    assert "INT96" in {
        pq.ParquetFile(file).schema.column(n).physical_type for n in range(len(pq.ParquetFile(file).schema))
    }
    assert "checkpoint-stats-differ" not in check(tmp_path).rules
    assert_no_error(tmp_path)


# ------------------------------------------------------------------------------------------------ decoding in bulk


def large_commit(path: Path, files: int) -> list[Line]:
    """A commit of more than 1 MiB, which is decoded in bulk."""
    add = action(path, 1, "add")
    return [{"add": {**add, "path": f"part-{number:06d}.parquet"}} for number in range(files)]


def test_a_large_commit_has_the_findings_of_a_small_one(tmp_path: Path) -> None:
    rows = pa.table({"id": [1, 2]})
    table = DeltaTable.create(tmp_path, rows.schema)
    table.append(rows)
    table.flush()
    add = action(tmp_path, 1, "add")
    odd: list[str] = [
        json.dumps({"add": {**add, "path": "odd-1.parquet", "novelty": 1}}),
        json.dumps({"add": {**add, "path": "odd-2.parquet", "size": -1}}),
        json.dumps({"add": {**add, "path": "odd-3.parquet"}, "txn": {"appId": "a", "version": 1}}),
        json.dumps({"add": {**add, "path": "odd-4.parquet", " extra": {"a": 1}}}),
        json.dumps({"add": {**add, "path": "odd-5.parquet", "stats": '{"numRecords":-5}'}}),
        '{"add":{"path":"odd-6.parquet",}}',
        json.dumps({"add": {**add, "path": "odd-7.parquet", "partitionValues": {"x": "1"}}}),
    ]
    found: dict[int, set[tuple[str, str]]] = {}
    for number in (10, 6_000):
        lines = [json.dumps(line) for line in large_commit(tmp_path, number)]
        for at, text in enumerate(odd):
            lines.insert(at, text)
        info = json.dumps({"commitInfo": {"operation": "WRITE"}})
        commit(tmp_path, 2).write_text("\n".join([info, *lines, ""]))
        assert (commit(tmp_path, 2).stat().st_size > 1 << 20) == (number > 10)
        report = check(tmp_path)
        named = [each for each in report.findings if "part-" not in (each.path or "")]
        found[number] = {(each.rule, each.message) for each in named if each.version == 2}
        assert "data-file-missing" not in report.rules  # a line cannot be read, so the live files are not known
    assert found[10] == found[6_000]
    assert {"field-unknown", "action-invalid", "commit-line-not-an-action", "stats-count-invalid"} <= {
        rule for rule, _ in found[10]
    }


def test_actions_on_several_lines_of_a_large_commit(tmp_path: Path) -> None:
    rows = pa.table({"id": [1, 2]})
    table = DeltaTable.create(tmp_path, rows.schema)
    table.append(rows)
    table.flush()
    lines = large_commit(tmp_path, 6_000)
    write(commit(tmp_path, 2), [{"commitInfo": {"operation": "WRITE"}}, *lines])
    text = commit(tmp_path, 2).read_text()
    commit(tmp_path, 2).write_text(text.replace('"partitionValues": {}', '"partitionValues":\n{}', 1))
    report = check(tmp_path)
    assert "commit-json-multiline" in report.rules
    assert report.of_rules["data-file-missing"] == 6_000 and report.examined.live_files == 6_001


def test_a_widened_column_is_read(tmp_path: Path) -> None:
    """The widening that deltalog itself records."""
    rows = pa.table({"n": pa.array([1], pa.int8())})
    table = DeltaTable.create(tmp_path, rows.schema, data=rows, properties={"delta.enableTypeWidening": "true"})
    table.set_column("n", data_type=PrimitiveType("integer"))
    table.append(pa.table({"n": pa.array([2**20], pa.int32())}))
    assert_no_error(tmp_path)
