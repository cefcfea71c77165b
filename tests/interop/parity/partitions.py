"""Partition columns, and the permitted partition values."""

from tests.interop.parity.scenarios import scenario
from tests.interop.parity.tables import Table

PARTS = (
    "create table {t} (id bigint, p string) using delta partitioned by (p)",
    "insert into {t} values (1, 'a'), (2, 'b'), (3, null)",
)


@scenario("create a table with a partition column")
def _(t: Table) -> None:
    t.write("select id, cast(id % 3 as int) as p from range(6)", by=["p"])


@scenario("create a table with two partition columns, in another order than the data's")
def _(t: Table) -> None:
    t.write("select 1L as id, 'x' as a, 2 as b", by=["b", "a"])


@scenario(
    "partitionBy in another case than the column",
    "spark_ext records the column's name in the history as it is spelled in the table.",
)
def _(t: Table) -> None:
    t.write("select 1L as id, 'x' as Part", by=["pART"])


@scenario("partitionBy a column that the data lacks")
def _(t: Table) -> None:
    t.write("select 1L as id", by=["p"])


@scenario("partitionBy all columns")
def _(t: Table) -> None:
    t.write("select 1L as id, 'x' as p", by=["id", "p"])


@scenario("partitionBy one column twice")
def _(t: Table) -> None:
    t.write("select 1L as id, 'x' as p", by=["p", "p"])


@scenario("partitionBy a struct")
def _(t: Table) -> None:
    t.write("select 1L as id, named_struct('a', 1) as p", by=["p"])


@scenario("append without partitionBy to a partitioned table")
def _(t: Table) -> None:
    t.start(*PARTS)
    t.append("select 4L as id, 'a' as p")


@scenario("append with the table's own partitionBy")
def _(t: Table) -> None:
    t.start(*PARTS)
    t.append("select 4L as id, 'c' as p", by=["p"])


@scenario("append with another partitionBy")
def _(t: Table) -> None:
    t.start(*PARTS)
    t.append("select 4L as id, 'c' as p", by=["id"])


@scenario("append with partitionBy to a table without partitions")
def _(t: Table) -> None:
    t.start("create table {t} (id bigint, p string) using delta")
    t.append("select 4L as id, 'c' as p", by=["p"])


@scenario("overwrite with another partitionBy")
def _(t: Table) -> None:
    t.start(*PARTS)
    t.overwrite("select 4L as id, 'c' as p", by=["id"])


@scenario("overwriteSchema with another partitionBy")
def _(t: Table) -> None:
    t.start(*PARTS)
    t.overwrite("select 4L as id, 'c' as p", by=["id"], overwriteSchema=True)


@scenario("overwriteSchema without partitionBy")
def _(t: Table) -> None:
    t.start(*PARTS)
    t.overwrite("select 4L as id, 'c' as p", overwriteSchema=True)


@scenario(
    "append without the partition column",
    "spark_ext fills every nullable column that the data lacks with null, partition columns too.",
)
def _(t: Table) -> None:
    t.start(*PARTS)
    t.append("select 4L as id")


@scenario("null and empty partition values")
def _(t: Table) -> None:
    t.write("select 1L as id, cast(null as string) as p union all select 2L, '' union all select 3L, ' '", by=["p"])


@scenario("partition values with special characters")
def _(t: Table) -> None:
    values = [
        "a b",
        "a/b",
        "a=b",
        "a%20b",
        "a:b",
        "a+b",
        "ä€",
        "a'b",
        'a"b',
        "a\\b",
        "a\nb",
        "{a}",
        "[a]",
        "?",
        "#",
        ".",
    ]
    t.write(t.spark.createDataFrame([(n, p) for n, p in enumerate(values)], "id long, p string"), by=["p"])


@scenario(
    "a partition value that is Hive's name of null",
    "In a path, this value cannot be distinguished from null, so spark_ext refuses it; delta-spark stores null.",
)
def _(t: Table) -> None:
    t.write("select 1L as id, '__HIVE_DEFAULT_PARTITION__' as p", by=["p"])


@scenario("a partition column with special characters in its name")
def _(t: Table) -> None:
    t.write("select 1L as id, 'x' as `p-q.r:s`", by=["p-q.r:s"])


@scenario("partition values of type timestamp")
def _(t: Table) -> None:
    t.write("select 1L as id, timestamp'2026-01-31 10:00:00.123456' as p union all select 2L, null", by=["p"])


@scenario("partition values of type timestamp in a session with a time zone")
def _(t: Table) -> None:
    with t.session(spark__sql__session__timeZone="America/New_York"):
        t.write("select 1L as id, timestamp'2026-01-31 10:00:00' as p", by=["p"])
        t.read()


@scenario("partition values of type timestamp_ntz")
def _(t: Table) -> None:
    t.write("select 1L as id, timestamp_ntz'2026-01-31 10:00:00.5' as p", by=["p"])


@scenario("partition values of type date")
def _(t: Table) -> None:
    t.write(
        "select 1L as id, date'2026-01-31' as p union all select 2L, date'0031-01-01' union all select 3L, null",
        by=["p"],
    )


@scenario("partition values of type decimal")
def _(t: Table) -> None:
    t.write(
        "select 1L as id, cast(-1.50 as decimal(10,3)) as p union all select 2L, cast(0 as decimal(10,3))", by=["p"]
    )


@scenario("partition values of type boolean, byte and short")
def _(t: Table) -> None:
    t.write("select 1L as id, true as a, cast(-3 as byte) as b, cast(300 as short) as c", by=["a", "b", "c"])


@scenario("partition values of type double and float")
def _(t: Table) -> None:
    t.write(
        "select 1L as id, 1.0D as a, cast(-0.5 as float) as b union all select 2L, 1e300, cast('NaN' as float)",
        by=["a", "b"],
    )


@scenario(
    "partition values of type binary",
    "Delta implementations disagree on how binary partition values are written, so partition columns of type binary "
    "are refused.",
)
def _(t: Table) -> None:
    t.write("select 1L as id, cast('ab' as binary) as p", by=["p"])


@scenario("a filter on a partition column")
def _(t: Table) -> None:
    t.start(*PARTS)
    t.read(of=lambda df: df.where("p = 'a'"))
    t.read(of=lambda df: df.where("p is null or p > 'a'"))
    t.read(of=lambda df: df.where("p = 'a'").groupBy("p").count())


@scenario("a column of data between partition columns keeps its place")
def _(t: Table) -> None:
    t.write("select 'x' as a, 1L as id, 'y' as b", by=["a", "b"])
