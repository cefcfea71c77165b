"""NOT NULL, CHECK, char and varchar, generated columns, defaults, identity, append-only."""

from tests.interop.parity.scenarios import scenario
from tests.interop.parity.tables import Table

REQUIRED = ("create table {t} (id bigint not null, s string) using delta", "insert into {t} values (1, 'a')")
CHECKED = ("create table {t} (id bigint, s string) using delta", "alter table {t} add constraint small check (id < 10)")
GENERATED = ("create table {t} (id bigint, twice bigint generated always as (id * 2)) using delta",)
BY_DAY = (
    "create table {t} (at timestamp, day date generated always as (cast(at as date))) using delta partitioned by (day)",
)
DEFAULTS = (
    "create table {t} (id bigint, s string default 'none', n int default 1 + 1) using delta "
    "tblproperties ('delta.feature.allowColumnDefaults' = 'supported')",
)
SIZED = ("create table {t} (id bigint, c char(3), v varchar(3)) using delta",)
IDENTITY = (
    "create table {t} (id bigint generated always as identity, s string) using delta",
    "insert into {t} (s) values ('a')",
)
NO_IDENTITY = "spark_ext does not generate the values of identity columns."
MARK_MOVES = "In spark_ext, an explicit value moves the high-water mark, so that the value is not generated again."


@scenario("NOT NULL with values")
def _(t: Table) -> None:
    t.start(*REQUIRED)
    t.append("select 2L as id, 'b' as s")


@scenario("NOT NULL with a null")
def _(t: Table) -> None:
    t.start(*REQUIRED)
    t.append("select cast(null as bigint) as id, 'b' as s")


@scenario("NOT NULL without the column")
def _(t: Table) -> None:
    t.start(*REQUIRED)
    t.append("select 'b' as s")


@scenario("NOT NULL in a partition column, with an empty string")
def _(t: Table) -> None:
    t.start("create table {t} (id bigint, p string not null) using delta partitioned by (p)")
    t.append("select 1L as id, '' as p")


@scenario("NOT NULL inside of a struct")
def _(t: Table) -> None:
    t.start("create table {t} (id bigint, st struct<a: int not null, b: int>) using delta")
    t.append("select 1L as id, named_struct('a', 1, 'b', 2) as st")
    t.append("select 1L as id, named_struct('a', cast(null as int), 'b', 2) as st")


@scenario("NOT NULL inside of a struct that is null")
def _(t: Table) -> None:
    t.start("create table {t} (id bigint, st struct<a: int not null, b: int>) using delta")
    t.append("select 1L as id, cast(null as struct<a: int, b: int>) as st")
    t.append("select id, if(id > 0, named_struct('a', 1, 'b', 2), null) as st from range(2)")
    t.append("select 1L as id")


@scenario("NOT NULL below two structs, of which one is null")
def _(t: Table) -> None:
    t.start("create table {t} (id bigint, st struct<a: int, b: struct<c: int not null>>) using delta")
    t.append("select 1L as id, named_struct('a', 1, 'b', cast(null as struct<c: int>)) as st")
    t.append("select 1L as id, cast(null as struct<a: int, b: struct<c: int>>) as st")
    t.append("select 1L as id, named_struct('a', 1, 'b', named_struct('c', 1)) as st")


@scenario("NOT NULL of a struct with a null in it")
def _(t: Table) -> None:
    t.start("create table {t} (id bigint, st struct<a: int, b: struct<c: int> not null>) using delta")
    t.append("select 1L as id, named_struct('a', 1, 'b', named_struct('c', cast(null as int))) as st")
    t.append("select 1L as id, cast(null as struct<a: int, b: struct<c: int>>) as st")


@scenario("overwriteSchema of a NOT NULL column")
def _(t: Table) -> None:
    t.start(*REQUIRED)
    t.overwrite("select cast(null as bigint) as id", overwriteSchema=True)


@scenario("CHECK with rows that meet it, and nulls")
def _(t: Table) -> None:
    t.start(*CHECKED)
    t.append("select 2L as id, 'b' as s union all select null, 'c'")


@scenario("CHECK with a row that violates it")
def _(t: Table) -> None:
    t.start(*CHECKED)
    t.append("select 2L as id, 'b' as s union all select 12L, 'c'")


@scenario("CHECK with an overwrite")
def _(t: Table) -> None:
    t.start(*CHECKED)
    t.overwrite("select 12L as id, 'c' as s")


@scenario("CHECK over fields of structs")
def _(t: Table) -> None:
    t.start(
        "create table {t} (st struct<a: int, b: string>) using delta",
        "alter table {t} add constraint named check (st.a > 0 and length(st.b) between 1 and 3)",
    )
    t.append("select named_struct('a', 1, 'b', 'xyz') as st")
    t.append("select named_struct('a', 1, 'b', 'wxyz') as st")


@scenario("CHECK without the column")
def _(t: Table) -> None:
    t.start(*CHECKED)
    t.append("select 'b' as s")


@scenario(
    "overwriteSchema without the column of a CHECK",
    "Both refuse: spark_ext since it cannot evaluate the condition without the column.",
)
def _(t: Table) -> None:
    t.start(*CHECKED)
    t.overwrite("select 'b' as s", overwriteSchema=True)


@scenario("a generated column is filled")
def _(t: Table) -> None:
    t.start(*GENERATED)
    t.append("select 2L as id")


@scenario("a generated column with the right value")
def _(t: Table) -> None:
    t.start(*GENERATED)
    t.append("select 2L as id, 4L as twice")


@scenario("a generated column with a wrong value")
def _(t: Table) -> None:
    t.start(*GENERATED)
    t.append("select 2L as id, 5L as twice")


@scenario(
    "a generated column with a narrower type",
    "spark_ext casts a narrower type whenever no value can be lost; delta-spark's `save` casts only byte and short.",
)
def _(t: Table) -> None:
    t.start(*GENERATED)
    t.append("select 2L as id, 4 as twice")


@scenario("a generated partition column")
def _(t: Table) -> None:
    t.start(*BY_DAY)
    t.append("select timestamp'2026-01-31 23:30:00' as at")
    with t.session(spark__sql__session__timeZone="Asia/Tokyo"):
        t.append("select timestamp'2026-02-01 08:00:00' as at")


@scenario("default values for columns that the data lacks")
def _(t: Table) -> None:
    t.start(*DEFAULTS)
    t.append("select 1L as id")


@scenario("a null where there is a default")
def _(t: Table) -> None:
    t.start(*DEFAULTS)
    t.append("select 1L as id, cast(null as string) as s, 3 as n")


@scenario("char and varchar with short values")
def _(t: Table) -> None:
    t.start(*SIZED)
    t.append("select 1L as id, 'a' as c, 'b' as v union all select 2L, 'abc', 'abc' union all select 3L, null, null")
    t.read(of=lambda df: df.where("c = 'a'"))


@scenario(
    "char and varchar with blanks at the end",
    "spark_ext removes trailing blanks beyond the declared length, as Spark's INSERT does; delta-spark's `save` "
    "refuses them.",
)
def _(t: Table) -> None:
    t.start(*SIZED)
    t.append("select 1L as id, 'ab   ' as c, 'ab   ' as v")


@scenario("char with a long value")
def _(t: Table) -> None:
    t.start(*SIZED)
    t.append("select 1L as id, 'abcd' as c, 'b' as v")


@scenario("varchar with a long value")
def _(t: Table) -> None:
    t.start(*SIZED)
    t.append("select 1L as id, 'a' as c, 'abcd' as v")


@scenario("a new table with char and varchar columns")
def _(t: Table) -> None:
    t.start(*SIZED, "insert into {t} values (1, 'a', 'b')")
    copy = t.path.with_name("copy")
    source = t.load()
    t.path = copy
    t.write(source)


@scenario("append to an append-only table")
def _(t: Table) -> None:
    t.start("create table {t} (id bigint) using delta tblproperties ('delta.appendOnly' = 'true')")
    t.append("select 1L as id")


@scenario("overwrite an append-only table")
def _(t: Table) -> None:
    t.start("create table {t} (id bigint) using delta tblproperties ('delta.appendOnly' = 'true')")
    t.append("select 1L as id")
    t.overwrite("select 2L as id")


@scenario(
    "an identity column is filled",
    NO_IDENTITY,
)
def _(t: Table) -> None:
    t.start(*IDENTITY)
    t.append("select 'b' as s")


@scenario("an identity column with values, generated always")
def _(t: Table) -> None:
    t.start(*IDENTITY)
    t.append("select 7L as id, 'b' as s")


@scenario(
    "an identity column with values, generated by default",
    MARK_MOVES,
)
def _(t: Table) -> None:
    t.start("create table {t} (id bigint generated by default as identity, s string) using delta")
    t.append("select 7L as id, 'b' as s")


@scenario("read a table with an identity column")
def _(t: Table) -> None:
    t.start(*IDENTITY)
    t.read()
