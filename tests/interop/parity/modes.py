"""Save modes on missing, existing and empty tables."""

from tests.interop.parity.scenarios import scenario
from tests.interop.parity.tables import Table

ONE = ("create table {t} (id bigint, s string) using delta", "insert into {t} values (1, 'a'), (2, 'b')")
EMPTY = ("create table {t} (id bigint, s string) using delta",)
MORE = "select 3L as id, 'c' as s"
NO_FILE = "delta-spark's `numFiles` includes an empty file that its job wrote but did not commit."


@scenario("the default mode creates a table")
def _(t: Table) -> None:
    t.write("select 1L as id, 'a' as s")


@scenario("the default mode is error")
def _(t: Table) -> None:
    t.start(*ONE)
    t.write(MORE)


@scenario("append creates a table")
def _(t: Table) -> None:
    t.append(MORE)


@scenario("append adds rows")
def _(t: Table) -> None:
    t.start(*ONE)
    t.append(MORE)


@scenario("append to an empty table")
def _(t: Table) -> None:
    t.start(*EMPTY)
    t.append(MORE)


@scenario("overwrite creates a table")
def _(t: Table) -> None:
    t.overwrite(MORE)


@scenario("overwrite replaces all rows")
def _(t: Table) -> None:
    t.start(*ONE)
    t.overwrite(MORE)


@scenario("overwrite of an empty table")
def _(t: Table) -> None:
    t.start(*EMPTY)
    t.overwrite(MORE)


@scenario("ignore creates a table")
def _(t: Table) -> None:
    t.write(MORE, "ignore")


@scenario("ignore leaves a table as it is")
def _(t: Table) -> None:
    t.start(*ONE)
    t.write("select 'other' as columns", "ignore")


@scenario("errorifexists on an empty table")
def _(t: Table) -> None:
    t.start(*EMPTY)
    t.write(MORE, "errorifexists")


@scenario("an unknown mode")
def _(t: Table) -> None:
    t.write(MORE, "upsert")


@scenario("create a table without rows", NO_FILE)
def _(t: Table) -> None:
    t.write("select 1L as id where false")


@scenario("append no rows")
def _(t: Table) -> None:
    t.start(*ONE)
    t.append(f"{MORE} where false")


@scenario("overwrite with no rows", NO_FILE)
def _(t: Table) -> None:
    t.start(*ONE)
    t.overwrite(f"{MORE} where false")


@scenario("overwrite an empty table with no rows")
def _(t: Table) -> None:
    t.start(*EMPTY)
    t.overwrite(f"{MORE} where false")


@scenario("a table without columns")
def _(t: Table) -> None:
    t.write(t.spark.sql("select 1").drop("1"))


@scenario("write into a directory of other files")
def _(t: Table) -> None:
    t.path.mkdir()
    (t.path / "notes.txt").write_text("not a table")
    t.write(MORE)
    t.append(MORE)


@scenario("write into a directory of Parquet files")
def _(t: Table) -> None:
    t.spark.sql(MORE).write.parquet(str(t.path))
    t.write(MORE)
    t.append(MORE)


@scenario("an overwrite with rows of the table itself")
def _(t: Table) -> None:
    t.start(*ONE)
    t.overwrite(t.load().where("id < 2"))


@scenario("an append of rows of the table itself")
def _(t: Table) -> None:
    t.start(*ONE)
    t.append(t.load())


@scenario("an overwrite with an older version")
def _(t: Table) -> None:
    t.start(*ONE, "delete from {t} where id = 1")
    t.overwrite(t.load(versionAsOf=1))


@scenario("several files")
def _(t: Table) -> None:
    t.write("select /*+ repartition(3) */ id from range(10)")
    t.overwrite("select /*+ repartition(2) */ id from range(20)")


@scenario("a path with blanks, percent signs and other special characters")
def _(t: Table) -> None:
    t.path = t.path.with_name("a b%20c#d+e&f,g=h;i'j(k)[l]{m}é")
    t.write(MORE, by=["s"])
    t.append(MORE)


@scenario("a path with a trailing slash")
def _(t: Table) -> None:
    t.write(MORE, to=f"{t.path}/")
    t.append(MORE, to=f"{t.path}//")


@scenario("a path with a scheme")
def _(t: Table) -> None:
    t.write(MORE, to=f"file://{t.path}")
    t.append(MORE, to=f"file:{t.path}")


@scenario("read where there is no table")
def _(t: Table) -> None:
    t.read()


@scenario("read a directory that is no table")
def _(t: Table) -> None:
    t.path.mkdir()
    t.spark.sql(MORE).write.parquet(str(t.path / "data"))
    t.read()
    t.read("/data")


@scenario("read a table without rows")
def _(t: Table) -> None:
    t.start(*EMPTY)
    t.read()


@scenario("read some columns and rows")
def _(t: Table) -> None:
    t.start(*ONE)
    t.read(of=lambda df: df.where("id > 1").select("s"))
    t.read(of=lambda df: df.groupBy().count())


@scenario("read rows whose file is gone")
def _(t: Table) -> None:
    t.start(*ONE)
    for file in t.path.glob("*.parquet"):
        file.unlink()
    t.read()


@scenario(
    "a DataFrame after its table was overwritten",
    "A DataFrame of spark_ext keeps reading the version from which it was loaded.",
)
def _(t: Table) -> None:
    t.start(*ONE)
    df = t.load()
    t.sql("insert overwrite {t} values (9, 'z')")
    t.read(of=lambda _: df)
