"""Options of a write, settings of the session, and properties of new tables."""

from tests.interop.parity.scenarios import scenario
from tests.interop.parity.tables import Table

FLAT = ("create table {t} (id bigint, s string) using delta", "insert into {t} values (1, 'a')")
MORE = "select 2L as id, 'b' as s"
PARTS = ("create table {t} (id bigint, p string) using delta partitioned by (p)", "insert into {t} values (1, 'a')")


@scenario("txnAppId and txnVersion: a repeated write does nothing")
def _(t: Table) -> None:
    t.start(*FLAT)
    for version in (5, 5, 4, 6):
        t.append(MORE, txnAppId="job", txnVersion=version)


@scenario("txnVersion for two applications")
def _(t: Table) -> None:
    t.start(*FLAT)
    t.append(MORE, txnAppId="one", txnVersion=1)
    t.overwrite(MORE, txnAppId="two", txnVersion=1)


@scenario("txnVersion when the table is created")
def _(t: Table) -> None:
    t.append(MORE, txnAppId="job", txnVersion=1)
    t.append(MORE, txnAppId="job", txnVersion=1)


@scenario(
    "txnVersion without rows",
    "delta-spark's `numFiles` includes an empty file that its job wrote but did not commit.",
)
def _(t: Table) -> None:
    t.start(*FLAT)
    t.append(f"{MORE} where false", txnAppId="job", txnVersion=1)


@scenario("txnVersion without txnAppId")
def _(t: Table) -> None:
    t.start(*FLAT)
    t.append(MORE, txnVersion=1)


@scenario("txnAppId without txnVersion")
def _(t: Table) -> None:
    t.start(*FLAT)
    t.append(MORE, txnAppId="job")


@scenario("txnVersion that is no number, or negative")
def _(t: Table) -> None:
    t.start(*FLAT)
    t.append(MORE, txnAppId="job", txnVersion="one")
    t.append(MORE, txnAppId="job", txnVersion=-1)


@scenario("txnVersion in the session")
def _(t: Table) -> None:
    t.start(*FLAT)
    key = "spark__databricks__delta__write__"
    with t.session(**{key + "txnAppId": "job", key + "txnVersion": "3"}):
        t.append(MORE)
        t.append(MORE)


@scenario("userMetadata")
def _(t: Table) -> None:
    t.start(*FLAT)
    t.append(MORE, userMetadata='{"why": "a \\"test\\""}')


@scenario("userMetadata in the session, and of a write")
def _(t: Table) -> None:
    t.start(*FLAT)
    with t.session(spark__databricks__delta__commitInfo__userMetadata="of the session"):
        t.append(MORE)
        t.overwrite(MORE, userMetadata="of the write")


@scenario("maxRecordsPerFile")
def _(t: Table) -> None:
    t.write("select /*+ coalesce(1) */ id from range(10)", maxRecordsPerFile=4)


@scenario("maxRecordsPerFile with partitions")
def _(t: Table) -> None:
    t.write("select /*+ coalesce(1) */ id, id % 2 as p from range(10)", by=["p"], maxRecordsPerFile=2)


@scenario("maxRecordsPerFile in the session")
def _(t: Table) -> None:
    with t.session(spark__sql__files__maxRecordsPerFile="3"):
        t.write("select /*+ coalesce(1) */ id from range(5)")


@scenario("maxRecordsPerFile that is no number")
def _(t: Table) -> None:
    t.write("select 1L as id", maxRecordsPerFile="many")


@scenario("compression")
def _(t: Table) -> None:
    for codec in ("gzip", "zstd", "none"):
        t.append(MORE, compression=codec)
    names = sorted(file.name.partition(".")[2].replace("c000.", "") for file in t.path.glob("**/*.parquet"))
    t.rows.append(names)


@scenario("a compression that does not exist")
def _(t: Table) -> None:
    t.write(MORE, compression="zip")


@scenario("optimizeWrite joins small files")
def _(t: Table) -> None:
    with t.session(spark__sql__adaptive__enabled="true"):
        t.write("select /*+ repartition(4) */ id, 'x' as p from range(8)", by=["p"], optimizeWrite=True)


@scenario("optimizeWrite by the session and by the table")
def _(t: Table) -> None:
    t.start(PARTS[0] + " tblproperties ('delta.autoOptimize.optimizeWrite' = 'true')")
    with t.session(spark__sql__adaptive__enabled="true"):
        t.append("select /*+ repartition(4) */ id, 'x' as p from range(8)")
        with t.session(spark__databricks__delta__optimizeWrite__enabled="false"):
            t.append("select /*+ repartition(4) */ id, 'x' as p from range(8)")


@scenario(
    "an unknown option of a write",
    "delta-spark ignores unknown options; spark_ext refuses them.",
)
def _(t: Table) -> None:
    t.write(MORE, mergeschemas=True)


@scenario(
    "an unknown option of a read",
    "delta-spark ignores unknown options; spark_ext refuses them.",
)
def _(t: Table) -> None:
    t.start(*FLAT)
    t.read(versionAs=0)


@scenario("options in another case")
def _(t: Table) -> None:
    t.start(*FLAT)
    t.append("select 2L as id, 1 as extra", MERGESCHEMA="TRUE", USERMETADATA="note")
    t.read(VERSIONASOF=1)


@scenario("an option with a value that it cannot have")
def _(t: Table) -> None:
    t.start(*FLAT)
    t.append(MORE, mergeSchema="maybe")


@scenario("properties of a new table")
def _(t: Table) -> None:
    t.write(MORE, delta__enableChangeDataFeed="true", delta__checkpointInterval="5")


@scenario("a property of a new table with an invalid value")
def _(t: Table) -> None:
    t.write(MORE, delta__checkpointInterval="never")


@scenario("a property of a new table that does not exist")
def _(t: Table) -> None:
    t.write(MORE, delta__checkpointIntervall="5")


@scenario(
    "a property in an append to a table",
    "delta-spark ignores property options when it writes to an existing table; spark_ext refuses them.",
)
def _(t: Table) -> None:
    t.start(*FLAT)
    t.append(MORE, delta__checkpointInterval="5")


@scenario("a new table with in-commit timestamps")
def _(t: Table) -> None:
    t.write(MORE, delta__enableInCommitTimestamps="true")
    t.append(MORE)


@scenario(
    "a new table with column mapping",
    "spark_ext names column mapping among the features for readers; delta-spark keeps reader version 2.",
)
def _(t: Table) -> None:
    t.write("select 1 as `a b`, 'x' as p", by=["p"], delta__columnMapping__mode="name")
    t.append("select 2 as `a b`, 'y' as p")


@scenario(
    "a new table with deletion vectors and row tracking",
    "delta-spark repeats the name of a domain in the domain's configuration.",
)
def _(t: Table) -> None:
    t.write(MORE, delta__enableDeletionVectors="true", delta__enableRowTracking="true")
    t.append(MORE)


@scenario("default properties in the session")
def _(t: Table) -> None:
    key = "spark__databricks__delta__properties__defaults__"
    with t.session(**{key + "appendOnly": "true", key + "checkpointInterval": "7"}):
        t.write(MORE, delta__checkpointInterval="9")


@scenario("a default property in the session that is not valid")
def _(t: Table) -> None:
    with t.session(spark__databricks__delta__properties__defaults__checkpointInterval="x"):
        t.write(MORE)


@scenario("a default feature in the session")
def _(t: Table) -> None:
    with t.session(spark__databricks__delta__properties__defaults__feature__deletionVectors="supported"):
        t.write(MORE)


@scenario(
    "dataChange false with an overwrite of the same rows",
    "delta-spark trusts the caller that no row changes; spark_ext refuses the option, and only its OPTIMIZE makes such"
    " commits.",
)
def _(t: Table) -> None:
    t.start(*FLAT)
    t.overwrite(t.load(), dataChange="false")


@scenario("bucketBy")
def _(t: Table) -> None:
    t.write(MORE, how=lambda writer: writer.bucketBy(2, "id"))


@scenario("sortBy without bucketBy")
def _(t: Table) -> None:
    t.write(MORE, how=lambda writer: writer.sortBy("id"))


@scenario(
    "clusterBy a column",
    "delta-spark ignores `clusterBy` in `save`; spark_ext clusters the table that it creates.",
)
def _(t: Table) -> None:
    t.write(MORE, how=lambda writer: writer.clusterBy("id"))


@scenario("another format")
def _(t: Table) -> None:
    t.write(MORE, how=lambda writer: writer.format("no_such_format"))


@scenario("dataChange true", differs=None)
def _(t: Table) -> None:
    t.overwrite("select 1 id", dataChange="true")
