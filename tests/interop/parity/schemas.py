"""Data whose schema differs from the table's: refused, merged, or used to replace it."""

from tests.interop.parity.scenarios import scenario
from tests.interop.parity.tables import Table

FLAT = ("create table {t} (id bigint, s string) using delta", "insert into {t} values (1, 'a')")
NESTED = (
    "create table {t} (id bigint, st struct<a: int>, ar array<struct<a: int>>, m map<string, struct<a: int>>) "
    "using delta",
    "insert into {t} values (1, struct(1), array(struct(2)), map('k', struct(3)))",
)
WIDER = "spark_ext casts a narrower type whenever no value can be lost; delta-spark's `save` casts only byte and short."
VOID = "spark_ext does not add columns of type void, and names the column."


@scenario("append a column that the table does not have")
def _(t: Table) -> None:
    t.start(*FLAT)
    t.append("select 2L as id, 'b' as s, 1 as extra")


@scenario("overwrite with a column that the table does not have")
def _(t: Table) -> None:
    t.start(*FLAT)
    t.overwrite("select 2L as id, 'b' as s, 1 as extra")


@scenario("mergeSchema adds columns at the end")
def _(t: Table) -> None:
    t.start(*FLAT)
    t.append("select 1 as first, 2L as id, 'b' as s, 2D as last", mergeSchema=True)


@scenario("mergeSchema with overwrite")
def _(t: Table) -> None:
    t.start(*FLAT)
    t.overwrite("select 2L as id, 1 as extra", mergeSchema=True)


@scenario("mergeSchema false, given as text")
def _(t: Table) -> None:
    t.start(*FLAT)
    t.append("select 2L as id, 1 as extra", mergeSchema="false")


@scenario("append without a column")
def _(t: Table) -> None:
    t.start(*FLAT)
    t.append("select 2L as id")


@scenario("append with columns in another order")
def _(t: Table) -> None:
    t.start(*FLAT)
    t.append("select 'b' as s, 2L as id")


@scenario("append with names in another case")
def _(t: Table) -> None:
    t.start(*FLAT)
    t.append("select 2L as ID, 'b' as S")


@scenario("mergeSchema with names in another case")
def _(t: Table) -> None:
    t.start(*FLAT)
    t.append("select 2L as ID, 'b' as S, 1 as Extra", mergeSchema=True)


@scenario("data with two columns whose names differ in case")
def _(t: Table) -> None:
    t.write("select 1 as a, 2 as b")
    with t.session(spark__sql__caseSensitive="true"):
        t.append("select 1 as a, 2 as A", mergeSchema=True)


@scenario("mergeSchema adds a field to a struct")
def _(t: Table) -> None:
    t.start(*NESTED)
    t.append("select 2L as id, named_struct('b', 'x', 'a', 4) as st", mergeSchema=True)


@scenario("mergeSchema adds a field to a struct in an array")
def _(t: Table) -> None:
    t.start(*NESTED)
    t.append("select 2L as id, array(named_struct('a', 4, 'b', 'x')) as ar", mergeSchema=True)


@scenario("mergeSchema adds a field to a struct in a map")
def _(t: Table) -> None:
    t.start(*NESTED)
    t.append("select 2L as id, map('k', named_struct('a', 4, 'b', 'x')) as m", mergeSchema=True)


@scenario("a new field of a struct without mergeSchema")
def _(t: Table) -> None:
    t.start(*NESTED)
    t.append("select 2L as id, named_struct('a', 4, 'b', 'x') as st")


@scenario("a struct without one of its fields")
def _(t: Table) -> None:
    t.start("create table {t} (id bigint, st struct<a: int, b: string>) using delta")
    t.append("select 2L as id, named_struct('b', 'x') as st")


@scenario("mergeSchema adds a column of structs")
def _(t: Table) -> None:
    t.start(*FLAT)
    t.append("select 2L as id, named_struct('x', array(1, null)) as st", mergeSchema=True)


@scenario("mergeSchema in a partitioned table")
def _(t: Table) -> None:
    t.start("create table {t} (id bigint, p string) using delta partitioned by (p)", "insert into {t} values (1, 'a')")
    t.append("select 2L as id, 'a' as p, 1 as extra", mergeSchema=True)


@scenario(
    "mergeSchema without rows",
    "delta-spark's `numFiles` includes an empty file that its job wrote but did not commit.",
)
def _(t: Table) -> None:
    t.start(*FLAT)
    t.append("select 2L as id, 1 as extra where false", mergeSchema=True)


@scenario("mergeSchema set in the session")
def _(t: Table) -> None:
    t.start(*FLAT)
    with t.session(spark__databricks__delta__schema__autoMerge__enabled="true"):
        t.append("select 2L as id, 1 as extra")


@scenario("an int into a bigint column", WIDER)
def _(t: Table) -> None:
    t.start(*FLAT)
    t.append("select 2 as id")


@scenario("an int into a bigint column with mergeSchema", WIDER)
def _(t: Table) -> None:
    t.start(*FLAT)
    t.append("select 2 as id", mergeSchema=True)


@scenario("a byte and a short into an int column")
def _(t: Table) -> None:
    t.start("create table {t} (a int, b int) using delta")
    t.append("select cast(1 as byte) as a, cast(2 as short) as b")


@scenario("a bigint into an int column")
def _(t: Table) -> None:
    t.start("create table {t} (id int) using delta")
    t.append("select 2L as id")


@scenario("a bigint into an int column with mergeSchema")
def _(t: Table) -> None:
    t.start("create table {t} (id int) using delta")
    t.append("select 2L as id", mergeSchema=True)


@scenario("a string into a bigint column")
def _(t: Table) -> None:
    t.start(*FLAT)
    t.append("select '2' as id")


@scenario("a bigint into a string column")
def _(t: Table) -> None:
    t.start(*FLAT)
    t.append("select 2L as s")


@scenario("a struct into a string column")
def _(t: Table) -> None:
    t.start(*FLAT)
    t.append("select named_struct('a', 1) as s", mergeSchema=True)


@scenario("a date into a timestamp column")
def _(t: Table) -> None:
    t.start("create table {t} (at timestamp) using delta")
    t.append("select date'2026-01-31' as at")


@scenario("a decimal into one with more digits", WIDER)
def _(t: Table) -> None:
    t.start("create table {t} (d decimal(10,2)) using delta")
    t.append("select cast(1.5 as decimal(5,2)) as d")


@scenario("a decimal into one with fewer digits")
def _(t: Table) -> None:
    t.start("create table {t} (d decimal(5,2)) using delta")
    t.append("select cast(1.5 as decimal(10,2)) as d")


@scenario("a float into a double column", WIDER)
def _(t: Table) -> None:
    t.start("create table {t} (d double) using delta")
    t.append("select cast(1.5 as float) as d")


@scenario("overwriteSchema replaces columns and types")
def _(t: Table) -> None:
    t.start(*FLAT)
    t.overwrite("select 'x' as id, 1 as other", overwriteSchema=True)


@scenario("overwriteSchema with the same schema")
def _(t: Table) -> None:
    t.start(*FLAT)
    t.overwrite("select 2L as id, 'b' as s", overwriteSchema=True)


@scenario("overwriteSchema with append", "spark_ext refuses an option that has no effect in this mode.")
def _(t: Table) -> None:
    t.start(*FLAT)
    t.append("select 'x' as id", overwriteSchema=True)


@scenario(
    "overwriteSchema and mergeSchema together",
    "spark_ext refuses the two options together; in delta-spark, overwriteSchema takes precedence.",
)
def _(t: Table) -> None:
    t.start(*FLAT)
    t.overwrite("select 'x' as id, 1 as other", overwriteSchema=True, mergeSchema=True)


@scenario("overwriteSchema of a table with comments and properties")
def _(t: Table) -> None:
    t.start(
        "create table {t} (id bigint comment 'the key') using delta comment 'a table' "
        "tblproperties ('delta.checkpointInterval' = '7', 'team' = 'one')"
    )
    t.overwrite("select 'x' as id", overwriteSchema=True)


@scenario("a void column in a new table", VOID)
def _(t: Table) -> None:
    t.write("select 1L as id, null as nothing")


@scenario("a void column that the table does not have", VOID)
def _(t: Table) -> None:
    t.start(*FLAT)
    t.append("select 2L as id, null as nothing", mergeSchema=True)


@scenario("a void column for a column of the table")
def _(t: Table) -> None:
    t.start(*FLAT)
    t.append("select 2L as id, null as s")


@scenario("a column that is not nullable in the data")
def _(t: Table) -> None:
    t.write("select id, 1 as one from range(2)")


@scenario("column comments of the data")
def _(t: Table) -> None:
    df = t.spark.sql("select 1L as id")
    t.write(df.withMetadata("id", {"comment": "the key"}))
    t.append(df.withMetadata("id", {"comment": "another"}))


@scenario("column names with blanks and commas")
def _(t: Table) -> None:
    t.write("select 1 as `a b`, 2 as `c,d`")


@scenario("column names with dots, quotes and umlauts")
def _(t: Table) -> None:
    t.write("select 1 as `a.b`, 2 as `c'd`, 3 as `ä-ß`")
    t.append("select 4 as `a.b`")


@scenario("a column named as one of the change data feed")
def _(t: Table) -> None:
    t.write("select 1 as id, 'x' as _change_type")


@scenario("a column named as one of the change data feed, in a table that has the feed")
def _(t: Table) -> None:
    t.start("create table {t} (id int) using delta tblproperties ('delta.enableChangeDataFeed' = 'true')")
    t.append("select 1 as id, 'x' as _change_type", mergeSchema=True)
