"""The change data feed, for ranges of versions and of timestamps."""

from tests.interop.parity.scenarios import scenario
from tests.interop.parity.tables import Table

# Without a long retention, delta-spark refuses to read versions that are older than seven days.
FEED = (
    "'delta.enableChangeDataFeed' = 'true', 'delta.deletedFileRetentionDuration' = 'interval 36500 days', "
    "'delta.logRetentionDuration' = 'interval 36500 days'"
)
WATCHED = (
    f"create table {{t}} (id bigint, s string) using delta tblproperties ({FEED})",
    "insert into {t} select /*+ coalesce(1) */ id, 'old' from range(4)",
    "update {t} set s = 'new' where id = 1",
    "delete from {t} where id = 2",
)
TIMES = ("2026-01-01T00:00:00", "2026-01-02T00:00:00", "2026-01-03T00:00:00", "2026-01-04T00:00:00")


def watched(t: Table) -> None:
    t.start(*WATCHED, times=TIMES)


@scenario("changes from a version on")
def _(t: Table) -> None:
    watched(t)
    t.changes(startingVersion=0)
    t.changes(startingVersion="2")


@scenario("changes of a range of versions")
def _(t: Table) -> None:
    watched(t)
    t.changes(startingVersion=1, endingVersion=2)
    t.changes(startingVersion=3, endingVersion=3)


@scenario("changes that end before they start")
def _(t: Table) -> None:
    watched(t)
    t.changes(startingVersion=2, endingVersion=1)


@scenario("changes that start after the last version")
def _(t: Table) -> None:
    watched(t)
    t.changes(startingVersion=4)
    t.changes(startingVersion=5)


@scenario("changes that start after the last version, where the session allows it")
def _(t: Table) -> None:
    watched(t)
    with t.session(spark__databricks__delta__changeDataFeed__timestampOutOfRange__enabled="true"):
        t.changes(startingVersion=4)
        t.changes(startingTimestamp="2027-01-01")
        t.changes(startingVersion=1, endingTimestamp="2027-01-01")


@scenario(
    "changes that end after the last version",
    "delta-spark reads up to the last version, but refuses an end timestamp after it; spark_ext refuses both unless "
    "`allowOutOfRange` is given.",
)
def _(t: Table) -> None:
    watched(t)
    t.changes(startingVersion=2, endingVersion=9)


@scenario("changes without a start")
def _(t: Table) -> None:
    watched(t)
    t.changes()
    t.changes(endingVersion=1)


@scenario("changes between times")
def _(t: Table) -> None:
    watched(t)
    t.changes(startingTimestamp="2026-01-02 00:00:00", endingTimestamp="2026-01-03 00:00:00")
    t.changes(startingTimestamp="2026-01-01 00:00:00.001", endingTimestamp="2026-01-03 23:59:59")


@scenario("changes from a time on")
def _(t: Table) -> None:
    watched(t)
    t.changes(startingTimestamp="2026-01-03")


@scenario("changes from before the first commit")
def _(t: Table) -> None:
    watched(t)
    t.changes(startingTimestamp="2025-01-01", endingTimestamp="2026-01-02")


@scenario("changes until before the first commit")
def _(t: Table) -> None:
    watched(t)
    t.changes(startingTimestamp="2025-01-01", endingTimestamp="2025-02-01")


@scenario("changes from after the last commit")
def _(t: Table) -> None:
    watched(t)
    t.changes(startingTimestamp="2026-01-04 00:00:01")


@scenario("changes until after the last commit")
def _(t: Table) -> None:
    watched(t)
    t.changes(startingVersion=2, endingTimestamp="2026-02-01")
    t.changes(startingVersion=2, endingTimestamp="2026-01-04 00:00:00")
    t.changes(startingVersion=2, endingTimestamp="2026-01-04 00:00:00.001")


@scenario("changes between two commits")
def _(t: Table) -> None:
    watched(t)
    t.changes(startingTimestamp="2026-01-02 10:00:00", endingTimestamp="2026-01-02 11:00:00")


@scenario(
    "changes by a version and a time together",
    "delta-spark uses the version and ignores the timestamp; spark_ext refuses two starts or two ends.",
)
def _(t: Table) -> None:
    watched(t)
    t.changes(startingVersion=1, startingTimestamp="2026-01-02")
    t.changes(startingVersion=1, endingVersion=2, endingTimestamp="2026-01-02")
    t.changes(startingVersion=1, endingTimestamp="2026-01-03")


@scenario("changes with a time that is none")
def _(t: Table) -> None:
    watched(t)
    t.changes(startingTimestamp="soon")


@scenario("changes in the time zone of the session")
def _(t: Table) -> None:
    watched(t)
    with t.session(spark__sql__session__timeZone="Asia/Tokyo"):
        t.changes(startingTimestamp="2026-01-03 09:00:00", endingTimestamp="2026-01-04 09:00:00")


@scenario("changes of a table without the feed")
def _(t: Table) -> None:
    t.start("create table {t} (id bigint) using delta", "insert into {t} values (1)")
    t.changes(startingVersion=0)


@scenario("changes from before the feed was enabled")
def _(t: Table) -> None:
    t.start(
        "create table {t} (id bigint) using delta",
        "insert into {t} values (1)",
        "alter table {t} set tblproperties ('delta.enableChangeDataFeed' = 'true')",
        "insert into {t} values (2)",
    )
    t.changes(startingVersion=0)
    t.changes(startingVersion=2)


@scenario("changes of written, overwritten and merged data")
def _(t: Table) -> None:
    t.start(*WATCHED)
    t.append("select 7L as id, 'x' as s")
    t.overwrite("select 8L as id, 'y' as s")
    t.changes(startingVersion=4, of=lambda df: df.drop("_commit_timestamp"))
    t.sql("merge into {t} old using (select 8L as id) new on old.id = new.id when matched then update set s = 'z'")
    t.changes(startingVersion=6, of=lambda df: df.drop("_commit_timestamp"))


@scenario("changes with deletion vectors")
def _(t: Table) -> None:
    t.start(
        f"create table {{t}} (id bigint, s string) using delta tblproperties "
        f"({FEED}, 'delta.enableDeletionVectors' = 'true')",
        *WATCHED[1:],
        times=TIMES,
    )
    t.changes(startingVersion=0)


@scenario("changes of partitioned data, filtered")
def _(t: Table) -> None:
    t.start(
        f"create table {{t}} (id bigint, p string) using delta partitioned by (p) tblproperties ({FEED})",
        "insert into {t} values (1, 'a'), (2, 'b')",
        "delete from {t} where p = 'a'",
        times=TIMES[:3],
    )
    t.changes(startingVersion=1, of=lambda df: df.where("_change_type = 'delete'"))
    t.changes(startingVersion=1, of=lambda df: df.where("p = 'b'").select("id", "_commit_version"))


@scenario("changes after a column was added")
def _(t: Table) -> None:
    t.start(
        *WATCHED, "alter table {t} add column (extra int)", "insert into {t} values (9, 'x', 1)", times=(*TIMES, *TIMES)
    )
    t.changes(startingVersion=1, of=lambda df: df.drop("_commit_timestamp"))
    t.changes(startingVersion=1, endingVersion=3)


@scenario("changes across a change of a type")
def _(t: Table) -> None:
    t.start(
        "create table {t} (id int) using delta tblproperties ('delta.enableChangeDataFeed' = 'true')",
        "insert into {t} values (1)",
    )
    t.overwrite("select 'x' as id", overwriteSchema=True)
    t.append("select 'y' as id")
    t.changes(startingVersion=0, of=lambda df: df.drop("_commit_timestamp"))
    t.changes(startingVersion=3, of=lambda df: df.drop("_commit_timestamp"))


@scenario("changes with column mapping")
def _(t: Table) -> None:
    t.start(
        f"create table {{t}} (id bigint, s string) using delta tblproperties "
        f"({FEED}, 'delta.columnMapping.mode' = 'name')",
        *WATCHED[1:],
        times=TIMES,
    )
    t.changes(startingVersion=0)


@scenario("changes of a restored table")
def _(t: Table) -> None:
    t.start(*WATCHED, "restore table {t} to version as of 2")
    t.changes(startingVersion=4, of=lambda df: df.drop("_commit_timestamp"))


@scenario("readChangeFeed false")
def _(t: Table) -> None:
    watched(t)
    t.read(readChangeFeed="false")


@scenario("changes and versionAsOf together")
def _(t: Table) -> None:
    watched(t)
    t.changes(startingVersion=0, versionAsOf=1)
