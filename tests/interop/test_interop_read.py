"""deltalog reads uncommon tables of delta-spark: shredded variants, row tracking, old calendars, void columns."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from deltalog import DeltaTable
from deltalog.schema import variant_to_python
from tests.support.spark import DeltaSpark, plain_rows

VARIANTS = """
SELECT * FROM VALUES
  (1, parse_json('{"a": 1, "b": "x", "c": {"d": 1.25, "e": ["p", null, 3]}, "z": [1, {"q": null}]}')),
  (2, parse_json('[1, 2.5, {"a": 1}, [], {}]')), (3, parse_json('null')), (4, NULL),
  (5, parse_json('{"a": "text", "c": null}')), (6, parse_json('{}')),
  (7, to_variant_object(named_struct('a', 5, 'b', repeat('long', 30), 't', TIMESTAMP'1960-01-02 03:04:05.678901',
      'dt', DATE'0001-01-01', 'f', float(1.1), 'g', double('NaN'), 'h', true, 'i', X'00ff', 'j', 9223372036854775807,
      'k', tinyint(-3), 'l', smallint(300), 'n', TIMESTAMP_NTZ'9999-12-31 23:59:59.999999',
      'o', CAST(1.5 AS DECIMAL(5, 1)),
      'm', CAST('123456789012345678901234567890.12345' AS DECIMAL(38, 5)), 'zz', TIMESTAMP'2020-01-01 00:00:00.5'))),
  (8, parse_json('"just text"')), (9, parse_json('1e300')),
  (10, parse_json('{"a": 2147483648, "c": {"d": 1.256, "e": "no", "x": [[[]]]}, "b": 7, "h": false}'))
AS rows(id, v)
"""
OBJECT = (
    "a int, b string, c struct<d: decimal(10,2), e: array<string>>, t timestamp, dt date, f float, g double, "
    "h boolean, i binary, j bigint, k tinyint, l smallint, m decimal(38,5), n timestamp_ntz, o decimal(5,1)"
)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("shredded", ["", OBJECT, "array<int>", "array<struct<a: int>>", "string", "bigint"])
def test_variants_however_they_are_shredded(delta: DeltaSpark, tmp_path: Path, shredded: str) -> None:
    path = tmp_path / "table"
    delta.sql(
        f"CREATE TABLE delta.`{path}` (id INT, v VARIANT, deep STRUCT<list: ARRAY<VARIANT>>) USING delta "
        "TBLPROPERTIES ('delta.enableVariantShredding'='true')"
    )
    conf = {
        "spark.sql.variant.writeShredding.enabled": "true",
        "spark.sql.variant.inferShreddingSchema": "false",
        "spark.sql.variant.forceShreddingSchemaForTest": shredded,
    }
    with settings(delta, conf):
        delta.sql(f"INSERT INTO delta.`{path}` SELECT id, v, struct(array(v, NULL)) FROM ({VARIANTS})")
    snapshot = DeltaTable.open(str(path)).snapshot()
    (file,) = snapshot.files()["path"].to_pylist()
    assert ("typed_value" in str(pq.read_schema(path / file).field("v").type)) == bool(shredded)

    theirs = delta.sql(f"SELECT id, to_json(v) AS v, to_json(deep.list[0]) AS d FROM delta.`{path}`").toArrow()
    expected = {row["id"]: row["v"] for row in theirs.to_pylist()}
    assert {row["id"]: row["d"] for row in theirs.to_pylist()} == expected
    texts = snapshot.scan(variants="json").to_arrow()
    assert texts.schema.field("v").type == pa.string()
    assert {row["id"]: parsed(row["v"]) for row in texts.to_pylist()} == {i: parsed(v) for i, v in expected.items()}
    for row, plain in zip(texts.to_pylist(), snapshot.scan().to_arrow().to_pylist(), strict=True):
        assert row["deep"]["list"] == [row["v"], None]
        value = variant_to_python(plain["v"])
        assert repr(value) == repr(variant_to_python(plain["deep"]["list"][0]))
        assert (value is None) == (row["v"] in (None, "null"))


def parsed(text: str | None) -> Any:
    return None if text is None else json.loads(text, parse_float=float)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("mapping", ["none", "name"])
def test_row_ids_and_commit_versions_of_every_version(delta: DeltaSpark, tmp_path: Path, mapping: str) -> None:
    path = tmp_path / "table"
    t = f"delta.`{path}`"
    statements = [
        f"CREATE TABLE {t} (k BIGINT, v STRING) USING delta TBLPROPERTIES ('delta.enableRowTracking'='true', "
        f"'delta.enableDeletionVectors'='true', 'delta.columnMapping.mode'='{mapping}')",
        f"INSERT INTO {t} SELECT id, 'a' FROM range(0, 6, 1, 1)",
        f"INSERT INTO {t} SELECT id, 'b' FROM range(6, 9, 1, 1)",
        f"UPDATE {t} SET v = 'u' WHERE k IN (1, 7)",
        f"DELETE FROM {t} WHERE k = 2",
        f"OPTIMIZE {t}",
        f"MERGE INTO {t} t USING (SELECT explode(sequence(8, 10)) AS k) s ON t.k = s.k "
        "WHEN MATCHED THEN UPDATE SET v = 'm' WHEN NOT MATCHED THEN INSERT (k, v) VALUES (s.k, 'n')",
    ]
    for statement in statements:
        delta.sql(statement)
    names = ["k", "_metadata.row_id", "v", "_metadata.row_commit_version"]
    for version in range(1, len(statements)):
        frame = delta.spark.read.format("delta").option("versionAsOf", version).load(str(path)).select(*names)
        snapshot = DeltaTable.open(str(path)).snapshot(version)
        ours = snapshot.scan(names).to_arrow()
        assert ours.schema.names == names
        assert plain_rows(ours) == plain_rows(frame.toArrow()), version
        some = snapshot.scan(["_metadata.row_id"], where="k > 5").to_arrow()
        assert plain_rows(some) == plain_rows(frame.where("k > 5").select("row_id").toArrow()), version


def test_row_ids_after_a_backfill(delta: DeltaSpark, tmp_path: Path) -> None:
    path = tmp_path / "table"
    t = f"delta.`{path}`"
    delta.sql(f"CREATE TABLE {t} (k BIGINT) USING delta")
    delta.sql(f"INSERT INTO {t} SELECT id FROM range(0, 4, 1, 2)")
    delta.sql(f"ALTER TABLE {t} SET TBLPROPERTIES ('delta.enableRowTracking'='true')")
    delta.sql(f"INSERT INTO {t} VALUES (9)")
    names = ["k", "_metadata.row_id", "_metadata.row_commit_version"]
    theirs = delta.spark.read.format("delta").load(str(path)).select(*names).toArrow()
    assert plain_rows(DeltaTable.open(str(path)).snapshot().scan(names).to_arrow()) == plain_rows(theirs)


EDGES = """
SELECT * FROM VALUES (DATE'0001-01-01', TIMESTAMP'0001-01-01 00:00:00.000001'),
  (DATE'0100-03-01', TIMESTAMP'0100-02-28 23:59:59.999999'), (DATE'1500-02-28', TIMESTAMP'1500-03-01 01:00:00'),
  (DATE'1582-10-04', TIMESTAMP'1582-10-04 23:59:59.999999'), (DATE'1582-10-15', TIMESTAMP'1582-10-15 00:00:00'),
  (DATE'1899-12-31', TIMESTAMP'1899-12-31 23:00:00'), (DATE'9999-12-31', TIMESTAMP'9999-12-31 23:59:59.999999'),
  (NULL, NULL) AS rows(d, t)
"""


@pytest.mark.sampled(2)
@pytest.mark.parametrize("kind", ["INT96", "TIMESTAMP_MICROS", "TIMESTAMP_MILLIS"])
@pytest.mark.parametrize("calendar", ["LEGACY", "CORRECTED"])
def test_dates_and_timestamps_of_all_years_and_calendars(
    delta: DeltaSpark, tmp_path: Path, kind: str, calendar: str
) -> None:
    path = tmp_path / "table"
    conf = {
        "spark.sql.parquet.outputTimestampType": kind,
        "spark.sql.parquet.datetimeRebaseModeInWrite": calendar,
        "spark.sql.parquet.int96RebaseModeInWrite": calendar,
    }
    with settings(delta, conf):
        delta.sql(f"CREATE TABLE delta.`{path}` USING delta AS SELECT d, t, array(struct(d, t)) AS deep FROM ({EDGES})")
    (file,) = DeltaTable.open(str(path)).snapshot().files()["path"].to_pylist()
    assert (b"org.apache.spark.legacyDateTime" in pq.read_metadata(path / file).metadata) == (calendar == "LEGACY")
    columns = "unix_date(d) AS d, unix_micros(t) AS t, unix_date(deep[0].d) AS dd, unix_micros(deep[0].t) AS dt"
    theirs = delta.sql(f"SELECT {columns} FROM delta.`{path}`").toArrow()
    found = DeltaTable.open(str(path)).snapshot().scan().to_arrow()
    deep = pa.chunked_array([chunk.flatten() for chunk in found["deep"].chunks]).combine_chunks()
    ours = pa.table(
        {
            "d": found["d"].cast(pa.int32()),
            "t": found["t"].cast(pa.int64()),
            "dd": deep.field("d").cast(pa.int32()),
            "dt": deep.field("t").cast(pa.int64()),
        }
    )
    assert plain_rows(ours) == plain_rows(theirs)


def test_void_columns(delta: DeltaSpark, tmp_path: Path) -> None:
    path = tmp_path / "table"
    delta.sql(f"CREATE TABLE delta.`{path}` (k INT, n VOID, s STRUCT<a: INT, n: VOID>) USING delta")
    delta.sql(f"INSERT INTO delta.`{path}` VALUES (1, NULL, named_struct('a', 2, 'n', NULL)), (3, NULL, NULL)")
    found = DeltaTable.open(str(path)).snapshot().scan().to_arrow()
    assert found.schema.field("n").type == pa.null()
    assert found.sort_by("k").to_pylist() == [
        {"k": 1, "n": None, "s": {"a": 2, "n": None}},
        {"k": 3, "n": None, "s": None},
    ]


def test_what_a_table_says_of_itself_besides_columns(delta: DeltaSpark, tmp_path: Path) -> None:
    path = tmp_path / "table"
    delta.sql(
        f"CREATE TABLE delta.`{path}` (id BIGINT GENERATED ALWAYS AS IDENTITY (START WITH 5 INCREMENT BY 2), "
        "day DATE, year INT GENERATED ALWAYS AS (year(day)), v STRING DEFAULT 'none') USING delta CLUSTER BY (day) "
        "TBLPROPERTIES ('delta.feature.allowColumnDefaults'='supported')"
    )
    delta.sql(f"ALTER TABLE delta.`{path}` ADD CONSTRAINT sane CHECK (year > 1900)")
    delta.sql(f"INSERT INTO delta.`{path}` (day) VALUES (DATE'2026-01-01')")
    snapshot = DeltaTable.open(str(path)).snapshot()
    assert snapshot.scan(["id", "year", "v"]).to_arrow().to_pylist() == [{"id": 5, "year": 2026, "v": "none"}]
    identity = snapshot.schema.field("id").metadata
    assert (identity["delta.identity.start"], identity["delta.identity.step"]) == (5, 2)
    assert snapshot.schema.field("year").metadata["delta.generationExpression"] == "year(day)"
    assert snapshot.schema.field("v").metadata["CURRENT_DEFAULT"] == "'none'"
    assert snapshot.metadata.configuration["delta.constraints.sane"] == "year > 1900"
    domains = {d.domain: json.loads(d.configuration) for d in snapshot.domain_metadata}
    assert domains["delta.clustering"]["clusteringColumns"] == [["day"]]
    assert snapshot.clustering_columns == (("day",),)


@contextlib.contextmanager
def settings(delta: DeltaSpark, conf: dict[str, str]) -> Iterator[None]:
    """Apply settings to the session during the block."""
    for key, value in conf.items():
        delta.spark.conf.set(key, value)
    try:
        yield
    finally:
        for key in conf:
            delta.spark.conf.unset(key)
