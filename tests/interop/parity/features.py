"""Writes to tables with table features; the tables are created by delta-spark or by the engine under test."""

from tests.interop.parity.scenarios import scenario
from tests.interop.parity.tables import Table

FILL = "insert into {t} select /*+ coalesce(1) */ id, 'x' from range(6)"
CLUSTERED = "An overwrite by delta-spark removes the clustering of a table; spark_ext keeps it."


def properties(**given: str) -> str:
    """The statement that creates a table (id, s) with properties ``delta.…``; ``__`` stands for a dot."""
    listed = ", ".join(f"'delta.{name.replace('__', '.')}' = '{value}'" for name, value in given.items())
    return f"create table {{t}} (id bigint, s string) using delta tblproperties ({listed})"


@scenario("deletion vectors: read, append")
def _(t: Table) -> None:
    t.start(properties(enableDeletionVectors="true"), FILL, "delete from {t} where id in (1, 3)")
    t.read()
    t.read(of=lambda df: df.where("id > 2"))
    t.append("select 7L as id, 'y' as s")


@scenario("deletion vectors: all rows of a file deleted")
def _(t: Table) -> None:
    t.start(properties(enableDeletionVectors="true"), FILL, "delete from {t} where id >= 0")
    t.read()


@scenario("column mapping by name, created by SQL, appended")
def _(t: Table) -> None:
    t.start(properties(columnMapping__mode="name"), FILL)
    t.append("select 7L as id, 'y' as s")


@scenario("column mapping by id, created by SQL, appended")
def _(t: Table) -> None:
    t.start(properties(columnMapping__mode="id"), FILL)
    t.append("select 7L as id, 'y' as s")
    t.read(of=lambda df: df.where("s = 'y'"))


@scenario("column mapping: renamed and dropped columns")
def _(t: Table) -> None:
    t.start(
        properties(columnMapping__mode="name"),
        FILL,
        "alter table {t} rename column s to state",
        "alter table {t} add column (extra int)",
        "alter table {t} drop column extra",
    )
    t.append("select 7L as id, 'y' as state")
    t.append("select 7L as id, 'y' as s")


@scenario("column mapping: nested columns, partitions, mergeSchema")
def _(t: Table) -> None:
    t.start(
        "create table {t} (p string, st struct<a: int, ar: array<struct<b: int>>>) using delta partitioned by (p) "
        "tblproperties ('delta.columnMapping.mode' = 'name')",
        "insert into {t} values ('x', named_struct('a', 1, 'ar', array(named_struct('b', 2))))",
    )
    t.append(
        "select 'y' as p, named_struct('a', 3, 'ar', array(named_struct('b', 4))) as st, 5 as extra", mergeSchema=True
    )


@scenario("column mapping: overwriteSchema")
def _(t: Table) -> None:
    t.start(properties(columnMapping__mode="name"), FILL)
    t.overwrite("select 7L as id, 1 as other", overwriteSchema=True)


@scenario("column mapping enabled in a table with files")
def _(t: Table) -> None:
    t.start(
        "create table {t} (id bigint, s string) using delta",
        FILL,
        "alter table {t} set tblproperties ('delta.columnMapping.mode' = 'name')",
        "alter table {t} rename column s to `the state`",
    )
    t.append("select 7L as id, 'y' as `the state`")


@scenario("a V2 checkpoint")
def _(t: Table) -> None:
    t.start(properties(checkpointPolicy="v2", checkpointInterval="2"), FILL, FILL, FILL)
    t.read()
    t.append("select 7L as id, 'y' as s")


@scenario("classic checkpoints, and an append that makes one")
def _(t: Table) -> None:
    t.start(properties(checkpointInterval="2"), FILL, FILL, FILL)
    t.append("select 7L as id, 'y' as s")
    t.rows.append(sorted(file.name for file in (t.path / "_delta_log").glob("*.checkpoint.parquet")))


@scenario(
    "a shallow clone: read",
    "spark_ext reads files outside of the table only if `allowedPaths` contains their location.",
)
def _(t: Table) -> None:
    t.start("create table {t} (id bigint, s string) using delta", FILL)
    source, t.path = t.path, t.path.with_name("clone")
    t.sql(f"create table {{t}} shallow clone delta.`{source}`")
    t.read()
    t.read(allowedPaths=str(source))


@scenario("a shallow clone: append and overwrite")
def _(t: Table) -> None:
    t.start("create table {t} (id bigint, s string) using delta", FILL)
    source, t.path = t.path, t.path.with_name("clone")
    t.sql(f"create table {{t}} shallow clone delta.`{source}`")
    t.append("select 7L as id, 'y' as s")
    t.overwrite("select 8L as id, 'z' as s")


@scenario("widened types: read, append")
def _(t: Table) -> None:
    t.start(
        "create table {t} (a int, b float, c date, d decimal(5,2)) using delta "
        "tblproperties ('delta.enableTypeWidening' = 'true', 'delta.feature.timestampNtz' = 'supported')",
        "insert into {t} values (1, 1.5, date'2026-01-31', 1.25)",
        "alter table {t} alter column a type bigint",
        "alter table {t} alter column b type double",
        "alter table {t} alter column c type timestamp_ntz",
        "alter table {t} alter column d type decimal(10,4)",
    )
    t.read()
    t.append(
        "select 5000000000L as a, 2.5D as b, timestamp_ntz'2026-01-31 10:00:00' as c, "
        "cast(1.2345 as decimal(10,4)) as d"
    )


@scenario("mergeSchema widens a type, where the table allows it")
def _(t: Table) -> None:
    t.start(
        "create table {t} (a int) using delta tblproperties ('delta.enableTypeWidening' = 'true')",
        "insert into {t} values (1)",
    )
    t.append("select 5000000000L as a", mergeSchema=True)


@scenario("a wider type without mergeSchema, where the table allows widening")
def _(t: Table) -> None:
    t.start(
        "create table {t} (a int) using delta tblproperties ('delta.enableTypeWidening' = 'true')",
        "insert into {t} values (1)",
    )
    t.append("select 5L as a")


@scenario(
    "row tracking: append and overwrite", "delta-spark repeats the name of a domain in the domain's configuration."
)
def _(t: Table) -> None:
    t.start(properties(enableRowTracking="true"), FILL)
    t.append("select 7L as id, 'y' as s")
    t.overwrite("select 8L as id, 'z' as s")


@scenario("in-commit timestamps enabled late: append")
def _(t: Table) -> None:
    t.start(
        "create table {t} (id bigint, s string) using delta",
        FILL,
        "alter table {t} set tblproperties ('delta.enableInCommitTimestamps' = 'true')",
    )
    t.append("select 7L as id, 'y' as s")


@scenario("a clustered table: append")
def _(t: Table) -> None:
    t.start("create table {t} (id bigint, s string) using delta cluster by (id)", FILL)
    t.append("select 7L as id, 'y' as s")


@scenario("a clustered table: overwrite", CLUSTERED)
def _(t: Table) -> None:
    t.start("create table {t} (id bigint, s string) using delta cluster by (id)", FILL)
    t.overwrite("select 7L as id, 'y' as s")


@scenario("a clustered table: overwriteSchema", CLUSTERED)
def _(t: Table) -> None:
    t.start("create table {t} (id bigint, s string) using delta cluster by (id)", FILL)
    t.overwrite("select 7L as id, 'y' as other", overwriteSchema=True)


@scenario("an optimized and z-ordered table")
def _(t: Table) -> None:
    t.start("create table {t} (id bigint, s string) using delta", FILL, FILL, "optimize {t} zorder by (id)")
    t.read()
    t.append("select 7L as id, 'y' as s")


@scenario("a table converted from Parquet")
def _(t: Table) -> None:
    t.spark.sql("select id, cast(id % 2 as int) as p from range(4)").write.partitionBy("p").parquet(str(t.path))
    t.spark.sql(f"convert to delta parquet.`{t.path}` partitioned by (p int)")
    t.read()
    t.append("select 7L as id, 1 as p")


@scenario("a variant column: read")
def _(t: Table) -> None:
    t.start(
        "create table {t} (id bigint, v variant) using delta",
        """insert into {t} values (1, parse_json('{"a": [1, null]}'))""",
    )
    t.read()


@scenario("a domain of a user in the log: append")
def _(t: Table) -> None:
    t.start("create table {t} (id bigint) using delta tblproperties ('delta.feature.domainMetadata' = 'supported')")
    t.append("select 1L as id")


@scenario("a table that has a feature of a later version")
def _(t: Table) -> None:
    t.start("create table {t} (id bigint) using delta")
    commit = t.path / "_delta_log" / f"{0:020d}.json"
    later = '"protocol":{"minReaderVersion":3,"minWriterVersion":7,"readerFeatures":["later"],'
    later += '"writerFeatures":["later"]}'
    text = commit.read_text()
    start = text.index('"protocol":{')
    end = text.index("}", text.index("}", start)) + 1
    commit.write_text(text[:start] + later + text[end:])
    for crc in (t.path / "_delta_log").glob("*.crc"):
        crc.unlink()
    t.read()
    t.append("select 1L as id")


@scenario("a table with a feature of a later version for writers")
def _(t: Table) -> None:
    t.start("create table {t} (id bigint) using delta", "insert into {t} values (1)")
    commit = t.path / "_delta_log" / f"{2:020d}.json"
    commit.write_text(
        '{"protocol":{"minReaderVersion":1,"minWriterVersion":7,"writerFeatures":["later"]}}\n'
        '{"commitInfo":{"timestamp":0,"operation":"UPGRADE PROTOCOL"}}\n'
    )
    t.read()
    t.append("select 1L as id")
