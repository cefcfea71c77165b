"""Time travel by version, by timestamp and by path suffix."""

from tests.interop.parity.scenarios import scenario
from tests.interop.parity.tables import Table

# Without this property, delta-spark refuses to read versions that are older than seven days.
KEPT = (
    "tblproperties ('delta.deletedFileRetentionDuration' = 'interval 36500 days', "
    "'delta.logRetentionDuration' = 'interval 36500 days')"
)
THREE = (
    f"create table {{t}} (id bigint) using delta {KEPT}",
    "insert into {t} values (1)",
    "insert into {t} values (2)",
    "delete from {t} where id = 1",
)
TIMES = ("2026-01-01T00:00:00", "2026-01-02T00:00:00", "2026-01-03T12:00:00.500", "2026-01-04T00:00:00")


def three(t: Table) -> None:
    t.start(*THREE, times=TIMES)


@scenario("versionAsOf, as a number and as text")
def _(t: Table) -> None:
    three(t)
    for version in (0, 1, "2", 3):
        t.read(versionAsOf=version)


@scenario(
    "versions that are older than the retention of deleted files",
    "delta-spark refuses them by their age; spark_ext reads them as long as their files exist.",
)
def _(t: Table) -> None:
    t.start("create table {t} (id bigint) using delta", "insert into {t} values (1)", "delete from {t}", times=TIMES)
    t.read(versionAsOf=1)
    t.read(timestampAsOf=TIMES[1])


@scenario("versionAsOf after the last version")
def _(t: Table) -> None:
    three(t)
    t.read(versionAsOf=4)


@scenario("versionAsOf that is negative, or no number")
def _(t: Table) -> None:
    three(t)
    t.read(versionAsOf=-1)
    t.read(versionAsOf="one")
    t.read(versionAsOf="1.5")


@scenario("timestampAsOf, between commits and at them")
def _(t: Table) -> None:
    three(t)
    for time in ("2026-01-01 00:00:00", "2026-01-02 13:00:00", "2026-01-03 12:00:00.499", "2026-01-03 12:00:00.500"):
        t.read(timestampAsOf=time)


@scenario("timestampAsOf at the last commit")
def _(t: Table) -> None:
    three(t)
    t.read(timestampAsOf="2026-01-04 00:00:00")


@scenario("timestampAsOf after the last commit")
def _(t: Table) -> None:
    three(t)
    t.read(timestampAsOf="2026-01-04 00:00:00.001")


@scenario("timestampAsOf before the first commit")
def _(t: Table) -> None:
    three(t)
    t.read(timestampAsOf="2025-12-31 23:59:59.999")


@scenario("timestampAsOf as a date")
def _(t: Table) -> None:
    three(t)
    t.read(timestampAsOf="2026-01-03")


@scenario("timestampAsOf with T and a zone")
def _(t: Table) -> None:
    three(t)
    for time in ("2026-01-02T00:00:00Z", "2026-01-02T05:30:00+05:30", "2026-01-02 00:00:00 Europe/Paris"):
        t.read(timestampAsOf=time)


@scenario("timestampAsOf as year, or as year and month")
def _(t: Table) -> None:
    three(t)
    t.read(timestampAsOf="2026")
    t.read(timestampAsOf="2026-01")


@scenario("timestampAsOf with blanks and single digits")
def _(t: Table) -> None:
    three(t)
    t.read(timestampAsOf=" 2026-1-2 3:4 ")


@scenario("timestampAsOf in the time zone of the session")
def _(t: Table) -> None:
    three(t)
    with t.session(spark__sql__session__timeZone="America/New_York"):
        t.read(timestampAsOf="2026-01-01 19:00:00")
        t.read(timestampAsOf="2026-01-01 18:59:59")


@scenario("timestampAsOf that is no time")
def _(t: Table) -> None:
    three(t)
    t.read(timestampAsOf="yesterday evening")
    t.read(timestampAsOf="2026-13-01")


@scenario("timestampAsOf as seconds since 1970")
def _(t: Table) -> None:
    three(t)
    t.read(timestampAsOf="1767312000")


@scenario(
    "timestampAsOf without a date",
    "delta-spark uses the current day; spark_ext refuses such a value.",
)
def _(t: Table) -> None:
    three(t)
    t.read(timestampAsOf="T10:00:00")


@scenario("timestampAsOf now")
def _(t: Table) -> None:
    three(t)
    t.read(timestampAsOf="now")


@scenario("timestampAsOf within the millisecond of a commit")
def _(t: Table) -> None:
    three(t)
    t.read(timestampAsOf="2026-01-02 23:59:59.999999")
    t.read(timestampAsOf="2026-01-03 12:00:00.500999")


@scenario("versionAsOf and timestampAsOf together")
def _(t: Table) -> None:
    three(t)
    t.read(versionAsOf=1, timestampAsOf="2026-01-02")


@scenario("@v in the path")
def _(t: Table) -> None:
    three(t)
    t.read("@v1")
    t.read("@V1")
    t.read("@v9")


@scenario("@ and a time in the path")
def _(t: Table) -> None:
    three(t)
    t.read("@20260102000000000")
    t.read("@20260101235959999")
    t.read("@20250101000000000")


@scenario("@ and a time in the path, in the time zone of the session")
def _(t: Table) -> None:
    three(t)
    with t.session(spark__sql__session__timeZone="America/New_York"):
        t.read("@20260101190000000")


@scenario("@ and something else in the path")
def _(t: Table) -> None:
    three(t)
    t.read("@latest")
    t.read("@2026")


@scenario("@v in the path and versionAsOf")
def _(t: Table) -> None:
    three(t)
    t.read("@v1", versionAsOf=1)


@scenario("a directory whose name ends in @v1")
def _(t: Table) -> None:
    t.path = t.path.with_name("t@v1")
    t.write("select 1 as id")
    t.read()


@scenario("time travel over a change of the schema")
def _(t: Table) -> None:
    t.start(*THREE, "alter table {t} add column (s string)", "insert into {t} values (5, 'x')")
    t.read(versionAsOf=2)
    t.read(versionAsOf=5)


@scenario("time travel over a change of the partitions")
def _(t: Table) -> None:
    t.start("create table {t} (id bigint, p string) using delta partitioned by (p)", "insert into {t} values (1, 'a')")
    t.overwrite("select 2L as id, 'b' as p", by=["id"], overwriteSchema=True)
    t.read(versionAsOf=1)
    t.read(versionAsOf=2)


@scenario("commits whose files are out of order in time")
def _(t: Table) -> None:
    t.start(*THREE, times=("2026-01-01T00:00:00", "2026-01-05T00:00:00", "2026-01-03T00:00:00", "2026-01-06T00:00:00"))
    for time in ("2026-01-03 00:00:00", "2026-01-05 00:00:00", "2026-01-05 00:00:00.001", "2026-01-05 00:00:00.002"):
        t.read(timestampAsOf=time)


@scenario("time travel with in-commit timestamps that were enabled late")
def _(t: Table) -> None:
    t.start(
        *THREE[:2],
        "alter table {t} set tblproperties ('delta.enableInCommitTimestamps' = 'true')",
        "insert into {t} values (2)",
        times=TIMES[:2],
    )
    t.read(timestampAsOf="2026-01-01 12:00:00")
    t.read(timestampAsOf="2026-01-02 12:00:00")
    t.read(timestampAsOf="2025-01-01")


@scenario("a version whose commits were deleted after a checkpoint")
def _(t: Table) -> None:
    t.start(
        "create table {t} (id bigint) using delta tblproperties ('delta.checkpointInterval' = '2')",
        *(f"insert into {{t}} values ({n})" for n in range(3)),
    )
    for version in (0, 1):
        for file in (t.path / "_delta_log").glob(f"*{version:020d}*"):
            file.unlink()
    t.read()
    t.read(versionAsOf=2)
    t.read(versionAsOf=1)


@scenario("a version whose files were vacuumed")
def _(t: Table) -> None:
    t.start(*THREE)
    with t.session(spark__databricks__delta__retentionDurationCheck__enabled="false"):
        t.sql("vacuum {t} retain 0 hours")
    t.read()
    t.read(versionAsOf=2)


@scenario("a restored table")
def _(t: Table) -> None:
    t.start(*THREE, "restore table {t} to version as of 2")
    t.read()
    t.append("select 9L as id")
    t.read(versionAsOf=3)
