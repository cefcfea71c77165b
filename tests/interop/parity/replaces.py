"""replaceWhere, and overwriting the partitions that occur in the data."""

from tests.interop.parity.scenarios import scenario
from tests.interop.parity.tables import Table

PARTS = (
    "create table {t} (id bigint, p string) using delta partitioned by (p)",
    "insert into {t} values (1, 'a'), (2, 'b'), (3, 'c')",
)
TWO = (
    "create table {t} (id bigint, d date, p string) using delta partitioned by (d, p)",
    "insert into {t} values (1, date'2026-01-01', 'a'), (2, date'2026-01-02', 'a'), (3, date'2026-01-02', 'b')",
)
FLAT = ("create table {t} (id bigint, s string) using delta", "insert into {t} values (1, 'a'), (2, 'b'), (3, 'c')")
NO_EFFECT = "spark_ext refuses an option that has no effect in this mode."
DYNAMIC = {"partitionOverwriteMode": "dynamic"}


@scenario("replaceWhere on a partition column")
def _(t: Table) -> None:
    t.start(*PARTS)
    t.overwrite("select 9L as id, 'b' as p", replaceWhere="p = 'b'")


@scenario("replaceWhere on two partition columns")
def _(t: Table) -> None:
    t.start(*TWO)
    t.overwrite(
        "select 9L as id, date'2026-01-02' as d, 'z' as p", replaceWhere="d >= '2026-01-02' and p in ('a', 'z')"
    )


@scenario("replaceWhere with rows outside of the condition")
def _(t: Table) -> None:
    t.start(*PARTS)
    t.overwrite("select 9L as id, 'a' as p", replaceWhere="p = 'b'")


@scenario("replaceWhere with rows outside of the condition, not checked")
def _(t: Table) -> None:
    t.start(*PARTS)
    with t.session(spark__databricks__delta__replaceWhere__constraintCheck__enabled="false"):
        t.overwrite("select 9L as id, 'a' as p", replaceWhere="p = 'b'")


@scenario("replaceWhere that matches nothing")
def _(t: Table) -> None:
    t.start(*PARTS)
    t.overwrite("select 9L as id, 'z' as p", replaceWhere="p = 'z'")


@scenario(
    "replaceWhere with no rows", "If no row is written, only spark_ext records `numOutputRows` and `numCopiedRows`."
)
def _(t: Table) -> None:
    t.start(*PARTS)
    t.overwrite("select 9L as id, 'b' as p where false", replaceWhere="p = 'b'")


@scenario("replaceWhere that is always true")
def _(t: Table) -> None:
    t.start(*PARTS)
    t.overwrite("select 9L as id, 'b' as p", replaceWhere="true")


@scenario("replaceWhere with a null partition")
def _(t: Table) -> None:
    t.start(*PARTS, "insert into {t} values (4, null)")
    t.overwrite("select 9L as id, cast(null as string) as p", replaceWhere="p is null")


@scenario("replaceWhere on a column of data")
def _(t: Table) -> None:
    t.start(*FLAT)
    t.overwrite("select 2L as id, 'new' as s", replaceWhere="id >= 2")


@scenario("replaceWhere on a column of data with rows outside")
def _(t: Table) -> None:
    t.start(*FLAT)
    t.overwrite("select 1L as id, 'new' as s", replaceWhere="id >= 2")


@scenario("replaceWhere on a column of data and one of partitions")
def _(t: Table) -> None:
    t.start(*PARTS)
    t.overwrite("select 9L as id, 'b' as p", replaceWhere="p = 'b' and id > 1")


@scenario("replaceWhere on a column of data, with the change data feed")
def _(t: Table) -> None:
    t.start(FLAT[0] + " tblproperties ('delta.enableChangeDataFeed' = 'true')", FLAT[1])
    t.overwrite("select 2L as id, 'new' as s", replaceWhere="id >= 2")
    t.changes(startingVersion=2, of=lambda df: df.drop("_commit_timestamp"))


@scenario("replaceWhere on a column that the table does not have")
def _(t: Table) -> None:
    t.start(*PARTS)
    t.overwrite("select 9L as id, 'b' as p", replaceWhere="other = 1")


@scenario("replaceWhere that is no condition")
def _(t: Table) -> None:
    t.start(*PARTS)
    t.overwrite("select 9L as id, 'b' as p", replaceWhere="p = = 'b'")


@scenario("replaceWhere with append", NO_EFFECT)
def _(t: Table) -> None:
    t.start(*PARTS)
    t.append("select 9L as id, 'b' as p", replaceWhere="p = 'b'")


@scenario("replaceWhere where there is no table", "Only spark_ext records that no file was removed.")
def _(t: Table) -> None:
    t.overwrite("select 9L as id, 'b' as p", by=["p"], replaceWhere="p = 'b'")


@scenario("replaceWhere with mergeSchema")
def _(t: Table) -> None:
    t.start(*PARTS)
    t.overwrite("select 9L as id, 'b' as p, 1 as extra", replaceWhere="p = 'b'", mergeSchema=True)


@scenario(
    "replaceWhere with overwriteSchema",
    "spark_ext refuses to replace the schema when only some of the rows are replaced.",
)
def _(t: Table) -> None:
    t.start(*PARTS)
    t.overwrite("select 9L as id, 'b' as p", replaceWhere="p = 'b'", overwriteSchema=True)


@scenario("replaceWhere with another partitionBy")
def _(t: Table) -> None:
    t.start(*PARTS)
    t.overwrite("select 9L as id, 'b' as p", by=["id"], replaceWhere="p = 'b'")


@scenario("replaceWhere with a subquery")
def _(t: Table) -> None:
    t.start(*PARTS)
    t.overwrite("select 9L as id, 'b' as p", replaceWhere="p = (select 'b')")


@scenario("replaceWhere in a session that replaces partitions dynamically")
def _(t: Table) -> None:
    t.start(*PARTS)
    with t.session(spark__sql__sources__partitionOverwriteMode="dynamic"):
        t.overwrite("select 9L as id, 'b' as p", replaceWhere="p in ('b', 'c')")


@scenario("replaceWhere and partitionOverwriteMode together")
def _(t: Table) -> None:
    t.start(*PARTS)
    t.overwrite("select 9L as id, 'b' as p", replaceWhere="p in ('b', 'c')", **DYNAMIC)


@scenario("replace the partitions of the data")
def _(t: Table) -> None:
    t.start(*PARTS)
    t.overwrite("select 8L as id, 'b' as p union all select 9L, 'new'", **DYNAMIC)


@scenario("replace the partitions of the data, two columns")
def _(t: Table) -> None:
    t.start(*TWO)
    t.overwrite("select 9L as id, date'2026-01-02' as d, 'a' as p", **DYNAMIC)


@scenario("replace the null partition")
def _(t: Table) -> None:
    t.start(*PARTS, "insert into {t} values (4, null)")
    t.overwrite("select 9L as id, cast(null as string) as p union all select 10L, ''", **DYNAMIC)


@scenario("replace the partitions of no rows")
def _(t: Table) -> None:
    t.start(*PARTS)
    t.overwrite("select 9L as id, 'b' as p where false", **DYNAMIC)


@scenario("replace the partitions of the data in a table without partitions")
def _(t: Table) -> None:
    t.start(*FLAT)
    t.overwrite("select 9L as id, 'b' as s", **DYNAMIC)


@scenario("replace the partitions of the data where there is no table")
def _(t: Table) -> None:
    t.overwrite("select 9L as id, 'b' as p", by=["p"], **DYNAMIC)


@scenario("replace the partitions of the data by the session's setting")
def _(t: Table) -> None:
    t.start(*PARTS)
    with t.session(spark__sql__sources__partitionOverwriteMode="dynamic"):
        t.overwrite("select 9L as id, 'b' as p")


@scenario("partitionOverwriteMode static against the session's setting")
def _(t: Table) -> None:
    t.start(*PARTS)
    with t.session(spark__sql__sources__partitionOverwriteMode="dynamic"):
        t.overwrite("select 9L as id, 'b' as p", partitionOverwriteMode="static")


@scenario("replace the partitions of the data where the session forbids it")
def _(t: Table) -> None:
    t.start(*PARTS)
    with t.session(spark__databricks__delta__dynamicPartitionOverwrite__enabled="false"):
        t.overwrite("select 9L as id, 'b' as p", **DYNAMIC)


@scenario("partitionOverwriteMode with append", NO_EFFECT)
def _(t: Table) -> None:
    t.start(*PARTS)
    t.append("select 9L as id, 'b' as p", **DYNAMIC)


@scenario("partitionOverwriteMode with an unknown value")
def _(t: Table) -> None:
    t.start(*PARTS)
    t.overwrite("select 9L as id, 'b' as p", partitionOverwriteMode="some")


@scenario("partitionOverwriteMode with overwriteSchema")
def _(t: Table) -> None:
    t.start(*PARTS)
    t.overwrite("select 9L as id, 'b' as p", overwriteSchema=True, by=["p"], **DYNAMIC)


@scenario("replace the partitions of the data, with the change data feed")
def _(t: Table) -> None:
    t.start(PARTS[0] + " tblproperties ('delta.enableChangeDataFeed' = 'true')", PARTS[1])
    t.overwrite("select 9L as id, 'b' as p", **DYNAMIC)
    t.changes(startingVersion=2, of=lambda df: df.drop("_commit_timestamp"))


@scenario("overwrite a table with deletion vectors")
def _(t: Table) -> None:
    t.start(
        FLAT[0] + " tblproperties ('delta.enableDeletionVectors' = 'true')",
        "insert into {t} select /*+ coalesce(1) */ id, 'x' from range(5)",
        "delete from {t} where id = 1",
    )
    t.overwrite("select 9L as id, 'b' as s")
