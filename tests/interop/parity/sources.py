"""Streams that read a table: start positions, batch sizes, and commits that change rows."""

from tests.interop.parity.scenarios import scenario
from tests.interop.parity.streams import read
from tests.interop.parity.tables import Table

COLUMNS = "(id bigint, p string)"
FILES = tuple(f"insert into {{t}} values ({number}, '{'ab'[number % 2]}')" for number in range(1, 5))
PLAIN = (f"create table {{t}} {COLUMNS} using delta", *FILES)
BY_P = (f"create table {{t}} {COLUMNS} using delta partitioned by (p)", "insert into {t} values (1, 'a'), (2, 'b')")
FEED = (PLAIN[0] + " tblproperties ('delta.enableChangeDataFeed' = true)", *FILES[:2])
MAPPED = (PLAIN[0] + " tblproperties ('delta.columnMapping.mode' = 'name')", *FILES[:2])
TIMES = [f"2026-01-0{day}" for day in range(1, 6)]
MORE = "insert into {t} values (9, 'c')"


def _stream(name: str, *start: str, differs: str | None = None, times: list[str] | None = None, **options: str) -> None:
    """A scenario with a query that reads a table while nobody changes it."""

    @scenario(name, differs)
    def _(t: Table) -> None:
        if start:
            t.start(*start, times=times or ())
        read(t, **options)


def _changed(name: str, start: tuple[str, ...], *changes: str, differs: str | None = None, **options: str) -> None:
    """A scenario with a query that reads a table, continues after the table has changed, and is restarted once if it
    fails."""

    @scenario(name, differs)
    def _(t: Table) -> None:
        t.start(*start)
        read(t, **options)
        t.sql(*changes)
        read(t, **options)
        if t.errors[-1] != "ok":
            read(t, **options)


_stream("stream: the rows of a table", *PLAIN)
_stream("stream: an empty table", PLAIN[0])
_stream("stream: partitions", *BY_P)
_stream("startingVersion", *PLAIN, startingVersion="3")
_stream("startingVersion is no version", *PLAIN, startingVersion="x")
_stream("startingTimestamp", *PLAIN, times=TIMES, startingTimestamp="2026-01-03 12:00:00")
_stream("startingVersion and startingTimestamp", *PLAIN, startingVersion="1", startingTimestamp="2026-01-01")
_stream("maxFilesPerTrigger", *PLAIN, maxFilesPerTrigger="3")
_stream("maxFilesPerTrigger: 0", *PLAIN, maxFilesPerTrigger="0")
_stream("maxBytesPerTrigger of less than a file", *PLAIN, maxBytesPerTrigger="1b")
_stream("maxBytesPerTrigger is no size", *PLAIN, maxBytesPerTrigger="x")
_stream("stream: the change data feed since a version", *FEED, readChangeFeed="true", startingVersion="1")

_changed("stream, then a DELETE of a partition", BY_P, "delete from {t} where p = 'a'", MORE)
_changed(
    "ignoreDeletes, then a DELETE of a partition", BY_P, "delete from {t} where p = 'a'", MORE, ignoreDeletes="true"
)
_changed(
    "skipChangeCommits, then an UPDATE",
    BY_P,
    "update {t} set id = 7 where id = 1",
    MORE,
    skipChangeCommits="true",
)
_changed("stream, then ADD COLUMN", PLAIN, "alter table {t} add column n int", "insert into {t} values (9, 'c', 1)")
