"""Columns of every type, written and read back."""

from tests.interop.parity.scenarios import scenario
from tests.interop.parity.tables import Table


@scenario("integers")
def _(t: Table) -> None:
    t.write(
        "select cast(-128 as byte) as b, cast(32767 as short) as s, -2147483648 as i, 9223372036854775807L as l "
        "union all select null, null, null, null"
    )


@scenario("floating point numbers, with NaN and infinities")
def _(t: Table) -> None:
    t.write(
        "select cast('NaN' as double) as d, cast('NaN' as float) as f "
        "union all select double('-Infinity'), float('Infinity') union all select -0.0D, float(1e-40)"
    )


@scenario("decimals of every width")
def _(t: Table) -> None:
    t.write(
        "select 1.25BD as a, cast(-12345678901.5 as decimal(18,6)) as b, "
        "cast('-99999999999999999999999999999999999999' as decimal(38,0)) as c, cast(0 as decimal(38,38)) as d"
    )


@scenario("strings")
def _(t: Table) -> None:
    long = "x" * 300
    t.write(f"select '' as s union all select 'ä€😀\\n' union all select '{long}' union all select null")


@scenario("binary values")
def _(t: Table) -> None:
    t.write("select x'00ff' as b union all select x'' union all select null")


@scenario("booleans")
def _(t: Table) -> None:
    t.write("select true as b union all select false union all select null")


@scenario("dates, old and far")
def _(t: Table) -> None:
    t.write("select date'0001-01-01' as d union all select date'1582-10-04' union all select date'9999-12-31'")


@scenario("timestamps, old and far")
def _(t: Table) -> None:
    t.write(
        "select timestamp'0001-01-01 00:00:00' as t union all select timestamp'1883-11-18 12:03:57.5' "
        "union all select timestamp'9999-12-31 23:59:59.999999'"
    )


@scenario("timestamps in a session with a time zone")
def _(t: Table) -> None:
    with t.session(spark__sql__session__timeZone="America/Los_Angeles"):
        t.write("select timestamp'2026-03-08 01:59:59.123456' as t, timestamp_ntz'2026-03-08 02:30:00' as n")
        t.read(of=lambda df: df.selectExpr("cast(t as string)", "cast(n as string)"))


@scenario("timestamps, as the session writes INT96 ones")
def _(t: Table) -> None:
    with t.session(spark__sql__parquet__outputTimestampType="INT96"):
        t.write("select timestamp'2026-01-31 10:00:00.123456' as t")
    t.read(of=lambda df: df.where("t >= '2026-01-31 10:00:00.123456'"))


@scenario("timestamps without a time zone")
def _(t: Table) -> None:
    t.write("select timestamp_ntz'2026-01-31 10:00:00.123456' as n")
    t.append("select timestamp_ntz'1900-01-01 00:00:00' as n")


@scenario(
    "timestamps without a time zone, added to a table",
    "spark_ext adds the feature that such a column needs; delta-spark asks to enable it first.",
)
def _(t: Table) -> None:
    t.start("create table {t} (id bigint) using delta", "insert into {t} values (1)")
    t.append("select 2L as id, timestamp_ntz'2026-01-31 10:00:00' as n", mergeSchema=True)


@scenario("structs in structs, with nulls at every depth")
def _(t: Table) -> None:
    kind = "struct<a: int, s: struct<b: string>>"
    t.write(
        f"select cast(named_struct('a', 1, 's', named_struct('b', 'x')) as {kind}) as st "
        f"union all select cast(named_struct('a', 1, 's', null) as {kind}) union all select cast(null as {kind})"
    )


@scenario("arrays, empty ones and with nulls")
def _(t: Table) -> None:
    t.write("select array(1, null) as a union all select array() union all select null")


@scenario("maps, empty ones and with nulls")
def _(t: Table) -> None:
    t.write("select map('a', 1, 'b', null) as m union all select map() union all select null")


@scenario("arrays of maps of arrays")
def _(t: Table) -> None:
    t.write("select array(map('a', array(named_struct('x', 1), null))) as a")


@scenario("intervals")
def _(t: Table) -> None:
    t.write("select interval '1' day as i")
    t.write("select interval '1' month as i")


@scenario("a variant column")
def _(t: Table) -> None:
    t.write("""select 1L as id, parse_json('{"a": 1}') as v""")
    t.append("select 2L as id, cast(null as variant) as v")
    t.append("select 3L as id")
    t.read(of=lambda df: df.where("v is not null").selectExpr("id", "variant_get(v, '$.a', 'int')"))


@scenario("variants inside of structs, arrays and maps")
def _(t: Table) -> None:
    t.write(
        "select 1L as id, named_struct('v', parse_json('[1]')) as st, array(parse_json('2'), null) as ar, "
        "map('k', parse_json('{}')) as m"
    )


@scenario("variants in rows that are moved")
def _(t: Table) -> None:
    t.start("create table {t} (id bigint, v variant) using delta")
    t.append("select /*+ coalesce(1) */ id, to_variant_object(named_struct('a', id)) as v from range(4)")
    t.overwrite("select 1L as id, parse_json('[]') as v", replaceWhere="id = 1")
    t.sql("delete from {t} where id = 2")


@scenario("a collated string column")
def _(t: Table) -> None:
    t.write("select 'a' collate UTF8_LCASE as s")


@scenario("columns of every type without a value")
def _(t: Table) -> None:
    kinds = ["byte", "long", "decimal(38,10)", "string", "binary", "date", "timestamp", "array<int>", "struct<a: int>"]
    t.write("select " + ", ".join(f"cast(null as {kind}) as c{n}" for n, kind in enumerate(kinds)))
