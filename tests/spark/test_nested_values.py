"""New values of structs, lists and maps, with missing or extra fields, or with fields in another order, case or
type."""

from __future__ import annotations

from typing import Any

import pytest

import deltalog
import spark_ext
from tests.spark.tables import rows, versions

START = (
    "SELECT id, named_struct('a', id, 'b', concat('b', id), 'deep', named_struct('u', 1, 'v', 2)) AS s, "
    "array(named_struct('x', 1, 'y', 2)) AS l, map('k', named_struct('x', 1, 'y', 2)) AS m FROM range(1, 4)"
)
FEED = {"delta.enableChangeDataFeed": "true"}
VECTORS = {"delta.enableDeletionVectors": "true"}
SHAPES: tuple[dict[str, str], ...] = ({}, FEED, VECTORS)


def made(spark: Any, table: str, query: str = START, **properties: str) -> spark_ext.DeltaTable:
    writer = spark_ext.write(spark.sql(query).coalesce(1))
    for key, value in properties.items():
        writer = writer.option(key, value)
    writer.save(table)
    return spark_ext.DeltaTable.forPath(spark, table)


def merging(table: spark_ext.DeltaTable, source: Any) -> Any:
    return table.alias("t").merge(source.alias("src"), "t.id = src.id")


def values(table: str, spark: Any, *columns: str) -> list[tuple[Any, ...]]:
    return rows(
        spark_ext.read(spark).load(table).selectExpr(*(columns or ("id", "to_json(s)", "to_json(l)", "to_json(m)")))
    )


@pytest.mark.parametrize("properties", SHAPES, ids=["plain", "feed", "vectors"])
def test_update_all_keeps_the_fields_that_the_source_lacks(spark: Any, table: str, properties: dict[str, str]) -> None:
    """Fields are kept even if the source's struct is null. Structs in lists and maps are replaced as a whole, so they
    lose the fields that the new value lacks."""
    target = made(spark, table, **properties)
    source = spark.sql(
        "SELECT id, if(id = 2, NULL, named_struct('deep', named_struct('V', 20), 'A', id * 10)) AS S, "
        "array(named_struct('y', 5)) AS l, map('n', named_struct('y', 6)) AS m FROM range(1, 3)"
    )
    merging(target, source).withSchemaEvolution().whenMatchedUpdateAll().execute()
    assert values(table, spark) == [
        (1, '{"a":10,"b":"b1","deep":{"u":1,"v":20}}', '[{"y":5}]', '{"n":{"y":6}}'),
        (2, '{"b":"b2","deep":{"u":1}}', '[{"y":5}]', '{"n":{"y":6}}'),
        (3, '{"a":3,"b":"b3","deep":{"u":1,"v":2}}', '[{"x":1,"y":2}]', '{"k":{"x":1,"y":2}}'),
    ]


def test_a_struct_that_is_null_on_both_sides_stays_null(spark: Any, table: str) -> None:
    target = made(spark, table, "SELECT 1L AS id, CAST(NULL AS struct<a: int, b: int>) AS s")
    source = spark.sql("SELECT 1L AS id, CAST(NULL AS struct<a: int>) AS s")
    merging(target, source).withSchemaEvolution().whenMatchedUpdateAll().execute()
    assert values(table, spark, "id", "s") == [(1, None)]


def test_evolution_without_all_columns_makes_missing_fields_null(spark: Any, table: str) -> None:
    target = made(spark, table)
    source = spark.sql("SELECT id, named_struct('a', id * 10) AS s FROM range(2, 5)")
    merge = merging(target, source).withSchemaEvolution().whenMatchedUpdate(set={"s": "src.s"})
    merge = merge.whenNotMatchedInsert(values={"id": "src.id", "s": "src.s"})
    merge.whenNotMatchedBySourceUpdate(set={"s": "named_struct('b', 'alone')"}).execute()
    assert values(table, spark, "id", "to_json(s)") == [
        (1, '{"b":"alone"}'), (2, '{"a":20}'), (3, '{"a":30}'), (4, '{"a":40}'),
    ]  # fmt: skip


LESS, MORE = "named_struct('a', 1L, 'b', 'x')", "named_struct('a', 1L, 'b', 'x', 'deep', s.deep, 'more', 1)"
REFUSED = {
    "a field less": (f"UPDATE {{}} SET s = {LESS}", "column s lacks the field deep"),
    "a field more": (f"UPDATE {{}} SET s = {MORE}", "has the field more, which the column does not have"),
    "a field less, deeper": ("UPDATE {} SET s.deep = named_struct('u', 1)", "column s.deep lacks the field v"),
    "in a list": ("UPDATE {} SET l = array(named_struct('x', 1))", "column l.element lacks the field y"),
    "in a map": ("UPDATE {} SET m = map('k', named_struct('x', 1))", "column m.value lacks the field y"),
    "a field twice": ("UPDATE {} SET s.deep = named_struct('u', 1, 'v', 2, 'U', 3)", "field 'u' more than once"),
    "a number for a struct": ("UPDATE {} SET s = 1", "the new value of column s is int, and the column is struct"),
    "a cast that there is not": ("UPDATE {} SET s.deep.u = date'2020-01-01'", "do not fit the table"),
    "all columns without evolution": (
        f"MERGE INTO {{}} t USING (SELECT 1L id, {LESS} s, array(named_struct('x', 1, 'y', 2)) l, map('k', "
        "named_struct('x', 1, 'y', 2)) m) src ON t.id = src.id WHEN MATCHED THEN UPDATE SET *",
        "column s lacks the field deep",
    ),
    "inserts without evolution": (
        f"MERGE INTO {{}} t USING (SELECT 9L id, {LESS} s) src ON t.id = src.id WHEN NOT MATCHED THEN INSERT (id, s) "
        "VALUES (src.id, src.s)",
        "column s lacks the field deep",
    ),
    "rows without a source": (
        "MERGE INTO {} t USING (SELECT 9L id) src ON t.id = src.id WHEN NOT MATCHED BY SOURCE THEN UPDATE SET "
        f"s = {LESS}",
        "column s lacks the field deep",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_a_struct_without_its_fields_is_refused(spark: Any, table: str, case: str) -> None:
    made(spark, table)
    statement, reason = REFUSED[case]
    with pytest.raises(deltalog.SchemaMismatchError, match=reason):
        spark_ext.sql(spark, statement.format(f"delta.`{table}`"))
    assert versions(table) == [0]


def test_fields_are_found_by_name_and_cast_at_every_depth(spark: Any, table: str) -> None:
    made(
        spark,
        table,
        "SELECT 1L AS id, array(array(named_struct('x', 1, 'y', 2))) AS l, map(1, named_struct('X', 1S)) AS m",
    )
    spark_ext.sql(
        spark,
        f"UPDATE delta.`{table}` SET l = array(array(named_struct('Y', '5', 'x', 6L)), NULL), "
        "m = map(7L, named_struct('x', 8L))",
    )
    assert values(table, spark, "to_json(l)", "to_json(m)") == [('[[{"x":6,"y":5}],null]', '{"7":{"X":8}}')]
    with pytest.raises(
        deltalog.SchemaMismatchError, match=r"column l.element.element.y is not one of its type, integer"
    ):
        spark_ext.sql(spark, f"UPDATE delta.`{table}` SET l = array(array(named_struct('x', 1, 'y', 3000000000)))")
    with pytest.raises(deltalog.SchemaMismatchError, match=r"column m.key is not one of its type, integer"):
        spark_ext.sql(spark, f"UPDATE delta.`{table}` SET m = map(3000000000, named_struct('x', 1S))")


@pytest.mark.parametrize("properties", SHAPES, ids=["plain", "feed", "vectors"])
def test_merge_adds_nested_fields_and_rewrites_old_rows(spark: Any, table: str, properties: dict[str, str]) -> None:
    """Fields are added in structs, lists, lists of lists and maps. The added fields are null in the other rows of the
    file."""
    struct = "named_struct('a', 1)"
    query = f"SELECT id, {struct} AS s, array(array({struct})) AS l, map('k', {struct}) AS m"
    target = made(spark, table, f"{query} FROM range(1, 3)", **properties)
    new = query.replace("'a', 1", "'a', 9, 'c', 7")
    merge = merging(target, spark.sql(f"{new} FROM range(2, 4)")).withSchemaEvolution()
    merge.whenMatchedUpdateAll().whenNotMatchedInsertAll().execute()
    with_c = ('{"a":9,"c":7}', '[[{"a":9,"c":7}]]', '{"k":{"a":9,"c":7}}')
    assert values(table, spark) == [(1, '{"a":1}', '[[{"a":1}]]', '{"k":{"a":1}}'), (2, *with_c), (3, *with_c)]
    if properties == FEED:
        changed = spark_ext.read_changes(spark, table, 1).selectExpr("_change_type", "id", "s.c")
        assert rows(changed) == [("insert", 3, 7), ("update_postimage", 2, 7), ("update_preimage", 2, None)]


def test_a_field_that_only_a_clause_names_is_added(spark: Any, table: str) -> None:
    """Existing types are kept, and values are cast to them."""
    target = made(spark, table, "SELECT 1L AS id, 1 AS n, named_struct('a', 1) AS s")
    source = spark.sql("SELECT 1L AS id, 7L AS n, named_struct('z', 5, 'other', 6) AS s, 'unused' AS more")
    merge = merging(target, source).withSchemaEvolution()
    merge.whenMatchedUpdate(set={"t.s.z": "src.s.z", "n": "src.n"}).execute()
    found = spark_ext.read(spark).load(table)
    assert found.schema.simpleString() == "struct<id:bigint,n:int,s:struct<a:int,z:int>>"
    assert [row.asDict(True) for row in found.collect()] == [{"id": 1, "n": 7, "s": {"a": 1, "z": 5}}]


NESTED = (
    "SELECT 1 AS id, 'a' AS v, named_struct('x', 1, 'y', 2) AS s, array(map('k', named_struct('x', 1, 'y', 2))) AS l"
)


def test_fields_that_must_not_be_null_are_checked(spark: Any, table: str) -> None:
    spark_ext.sql(spark, f"CREATE TABLE delta.`{table}` (id BIGINT, s STRUCT<a: INT NOT NULL, b: INT>) USING delta")
    spark_ext.sql(spark, f"INSERT INTO delta.`{table}` VALUES (1, struct(1, 2)), (2, struct(3, 4))")
    source = spark.sql("SELECT 1L AS id, named_struct('b', 5) AS s")
    evolving = merging(spark_ext.DeltaTable.forPath(spark, table), source).withSchemaEvolution()
    evolving.whenMatchedUpdateAll().execute()
    assert values(table, spark, "id", "s.a", "s.b") == [(1, 1, 5), (2, 3, 4)]
    with pytest.raises(deltalog.SchemaMismatchError, match="column a is NOT NULL"):
        evolving.whenMatchedUpdate("src.id = 1", {"s": "src.s"}).execute()
    with pytest.raises(deltalog.SchemaMismatchError, match="column a is NOT NULL"):
        spark_ext.sql(spark, f"UPDATE delta.`{table}` SET s.a = NULL WHERE id = 2")


def test_nulls_without_a_type_are_nulls_of_the_column(spark: Any, table: str) -> None:
    made(spark, table, "SELECT 1L AS id, 'a' AS v, named_struct('a', 1, 'b', 2) AS s")
    evolving = "SELECT 1L AS id, NULL AS v, named_struct('a', NULL, 'b', 5) AS s"
    target = spark_ext.DeltaTable.forPath(spark, table)
    merging(target, spark.sql(evolving)).withSchemaEvolution().whenMatchedUpdateAll().execute()
    assert values(table, spark, "id", "v", "to_json(s)") == [(1, None, '{"b":5}')]
    merging(target, spark.sql("SELECT 1L AS id, 'b' AS v, NULL AS s")).whenMatchedUpdateAll().execute()
    assert values(table, spark, "id", "v", "s") == [(1, "b", None)]


def test_insert_takes_columns_by_names_of_any_case(spark: Any, table: str) -> None:
    made(spark, table, NESTED)
    for statement in (
        "INSERT INTO {} BY NAME SELECT 2 AS ID, 'b' AS V",
        "INSERT INTO {} (ID, V) VALUES (3, 'c')",
        "INSERT INTO {} BY NAME SELECT named_struct('Y', 5L, 'X', 6L) AS S, 4 AS id",
    ):
        spark_ext.sql(spark, statement.format(f"delta.`{table}`"))
    found = values(table, spark, "id", "v", "to_json(s)")
    assert found == [(1, "a", '{"x":1,"y":2}'), (2, "b", None), (3, "c", None), (4, None, '{"x":6,"y":5}')]
    with pytest.raises(deltalog.SchemaMismatchError, match="has the column ID more than once"):
        spark_ext.sql(spark, f"INSERT INTO delta.`{table}` BY NAME SELECT 2 AS id, 'b' AS v, 5 AS ID")


def test_insert_takes_fields_by_their_positions(spark: Any, table: str) -> None:
    made(spark, table, NESTED)
    for statement in (
        "INSERT INTO {} VALUES (2, 'b', struct(5, 6), array(map('k', struct('7', 8L))))",
        "INSERT INTO {} (v, s, id, l) VALUES ('c', named_struct('p', 5, 'x', 6), 3, NULL)",
        "INSERT INTO {} SELECT 4, 'd', NULL, array(map('k', named_struct('X', 7, 'Y', 8)))",
    ):
        spark_ext.sql(spark, statement.format(f"delta.`{table}`"))
    assert values(table, spark, "id", "to_json(s)", "to_json(l)")[1:] == [
        (2, '{"x":5,"y":6}', '[{"k":{"x":7,"y":8}}]'), (3, '{"x":5,"y":6}', None), (4, None, '[{"k":{"x":7,"y":8}}]'),
    ]  # fmt: skip
    spark_ext.sql(
        spark,
        f"INSERT WITH SCHEMA EVOLUTION INTO delta.`{table}` VALUES "
        "(5, 'e', named_struct('p', 1, 'q', 2, 'z', 3), NULL)",
    )
    assert values(table, spark, "id", "to_json(s)")[-1] == (5, '{"x":1,"y":2,"z":3}')


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (
            "named_struct('y', 5, 'x', 6)",
            "column s has the fields of the column in another order: y, x instead of x, y",
        ),
        ("named_struct('x', 5)", r"column s has 2 fields \(x, y\), and the value has 1"),
        ("named_struct('x', 5, 'y', 6, 'z', 7)", "s.z is integer in the data and does not exist"),
        ("struct(1, 3000000000)", "column s.y is not one of its type, integer"),
    ],
)
def test_insert_refuses_fields_whose_places_are_not_clear(spark: Any, table: str, value: str, reason: str) -> None:
    made(spark, table, NESTED)
    for statement in ("INSERT INTO {} VALUES (4, 'c', {}, NULL)", "INSERT INTO {} (id, v, s) SELECT 4, 'c', {}"):
        with pytest.raises(deltalog.SchemaMismatchError, match=reason):
            spark_ext.sql(spark, statement.format(f"delta.`{table}`", value))
    assert versions(table) == [0]


def test_insert_by_name_refuses_structs_without_their_fields(spark: Any, table: str) -> None:
    made(spark, table, NESTED)
    with pytest.raises(deltalog.SchemaMismatchError, match="column s lacks the field x"):
        spark_ext.sql(spark, f"INSERT INTO delta.`{table}` BY NAME SELECT 4 AS id, named_struct('y', 5) AS s")


def test_rows_of_an_older_version_conflict_with_the_sessions_own_commit(spark: Any, table: str) -> None:
    target = made(spark, table, "SELECT id, 'a' AS v FROM range(3)")
    held = spark_ext.read(spark).load(table)
    merge = merging(target, held).whenMatchedUpdate(set={"v": "concat(src.v, 'x')"})
    assert merge.execute().committed
    with pytest.raises(deltalog.CommitConflictError, match=r"another transaction \(possibly in this session\) after"):
        merge.execute()
    again = merging(target, spark_ext.read(spark).load(table)).whenMatchedUpdate(set={"v": "concat(src.v, 'x')"})
    assert again.execute().committed
    assert values(table, spark, "v") == [("axx",)] * 3


@pytest.mark.parametrize("number", [1, 9], ids=["a row", "no row"])
@pytest.mark.parametrize(
    ("clause", "columns"),
    [
        ("WHEN MATCHED THEN UPDATE SET s = src.s", "id:bigint,s:struct<a:int,z:int>"),
        ("WHEN MATCHED THEN UPDATE SET s.z = src.s.z", "id:bigint,s:struct<a:int,z:int>"),
        ("WHEN MATCHED AND src.x > 9 THEN UPDATE SET x = src.x", "id:bigint,s:struct<a:int>,x:int"),
        ("WHEN NOT MATCHED AND src.x > 9 THEN INSERT *", "id:bigint,s:struct<a:int,z:int>,x:int"),
    ],
)
def test_evolution_adds_columns_also_where_no_row_changes(
    spark: Any, table: str, clause: str, columns: str, number: int
) -> None:
    made(spark, table, "SELECT 1L AS id, named_struct('a', 1) AS s")
    merge = (
        f"MERGE WITH SCHEMA EVOLUTION INTO delta.`{table}` t USING "
        f"(SELECT {number}L AS id, named_struct('a', 2, 'z', 3) AS s, 5 AS x) src ON t.id = src.id {clause}"
    )
    spark_ext.sql(spark, merge)
    found = spark_ext.read(spark).load(table)
    assert (found.schema.simpleString(), found.count()) == (f"struct<{columns}>", 1)
    spark_ext.sql(spark, merge)
    assert versions(table) == ([0, 1] if number == 9 or ">" in clause else [0, 1, 2])
