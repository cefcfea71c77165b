"""ALTER TABLE and RESTORE in SQL."""

from tests.interop.parity.deletes import BY_P, NESTED, PLAIN
from tests.interop.parity.scenarios import scenario, statements
from tests.interop.parity.tables import Table

MAPPED = (PLAIN[0] + " tblproperties ('delta.columnMapping.mode' = 'name')", PLAIN[1])

RESOLVED = "delta-spark reports that the column cannot be resolved, spark_ext that the table has no such column."
FEATURES = "spark_ext adds the table feature; delta-spark raises the writer version to one that includes it."
RESTORED = (
    "delta-spark records the version as a number, and writes metadata and protocol even if they do not change; only "
    "spark_ext counts `numOutputRows`."
)
NOTHING = "delta-spark commits a version that changes nothing."
VIEWS = "delta-spark changes the table behind a view that selects all of its rows; spark_ext requires the table itself."
DIFFERS = {
    **dict.fromkeys(
        (
            "RESTORE of deleted rows",
            "RESTORE of an empty table",
            "RESTORE of an old schema",
            "RESTORE of old properties",
            "RESTORE before a RESTORE",
        ),
        RESTORED,
    ),
    "ALTER COLUMN that is not there": RESOLVED,
    "DROP COLUMN that is not there": RESOLVED,
    "ADD COLUMN that is NOT NULL": (
        "delta-spark does not support NOT NULL here; spark_ext reports why it is impossible."
    ),
    "ALTER COLUMN to NOT NULL": (
        "delta-spark does not support the statement; spark_ext refuses it, since rows may contain nulls."
    ),
    "UNSET TBLPROPERTIES that is not there": (
        "delta-spark behaves as if IF EXISTS were given; spark_ext refuses the statement."
    ),
    "UNSET TBLPROPERTIES IF EXISTS": "Both commit; delta-spark repeats the unchanged metadata.",
    "ADD CONSTRAINT": FEATURES,
    "ADD CONSTRAINT twice": FEATURES,
    "DROP CONSTRAINT": FEATURES,
    "DROP CONSTRAINT IF EXISTS": NOTHING,
    "ADD COLUMN AFTER one that is not there": RESOLVED,
    "ALTER COLUMN AFTER one that is not there": RESOLVED,
    "DELETE from a view": VIEWS,
    "UPDATE of a view": VIEWS,
    "MERGE into a view": VIEWS,
    "DROP TABLE by path": (
        "delta-spark drops nothing and raises no error; spark_ext refuses the statement, since a path is not a name."
    ),
    "DESCRIBE EXTENDED": "In delta-spark's result, the columns have comments and the location has no scheme.",
    "ALTER COLUMN to a wider type": "spark_ext records the column in the history with its new metadata.",
}

statements(
    PLAIN,
    {
        "ADD COLUMN": "alter table {t} add column n int",
        "ADD COLUMNS with comments": "alter table {t} add columns (n int comment 'a', m string comment 'b')",
        "ADD COLUMN that is there": "alter table {t} add column S int",
        "ADD COLUMN that is NOT NULL": "alter table {t} add column n int not null",
        "ADD COLUMN FIRST": ("alter table {t} add column n int first", "insert into {t} values (1, 5, 'e', 'z')"),
        "ADD COLUMNS AFTER others": "alter table {t} add columns (n int after id, m int after n)",
        "ADD COLUMN AFTER one that is not there": "alter table {t} add column n int after nope",
        "ALTER COLUMN FIRST": ("alter table {t} alter column s first", "insert into {t} values ('e', 5, 'z')"),
        "ALTER COLUMN AFTER": "alter table {t} alter column id after p",
        "ALTER COLUMN AFTER one that is not there": "alter table {t} alter column id after nope",
        "CHANGE COLUMN with a name and a type": "alter table {t} change column s s string comment 'x' first",
        "TRUNCATE TABLE": "truncate table {t}",
        "DESCRIBE EXTENDED": ("describe extended {t}", "describe formatted {t}"),
        "DESCRIBE of a column": "describe {t} s",
        "SHOW TBLPROPERTIES": "show tblproperties {t}",
        "SHOW TBLPROPERTIES of one": "show tblproperties {t} ('delta.minReaderVersion')",
        "SHOW PARTITIONS": "show partitions {t}",
        "SHOW CREATE TABLE": "show create table {t}",
        "VACUUM of a path as text": "vacuum '{path}' retain 200 hours dry run",
        "DROP TABLE by path": "drop table {t}",
        "DELETE from a view": ("create or replace temporary view v as select * from {t}", "delete from v where id = 1"),
        "UPDATE of a view": ("create or replace temporary view v as select * from {t}", "update v set s = 'x'"),
        "INSERT into a view": (
            "create or replace temporary view v as select * from {t}",
            "insert into v values (5, 'e', 'z')",
        ),
        "MERGE into a view": (
            "create or replace temporary view v as select * from {t}",
            "merge into v using (select 1 as id) x on v.id = x.id when matched then delete",
        ),
        "ADD COLUMN and rows": ("alter table {t} add column n int", "insert into {t} values (5, 'e', 'z', 1)"),
        "RENAME COLUMN without column mapping": "alter table {t} rename column s to z",
        "DROP COLUMN without column mapping": "alter table {t} drop column s",
        "ALTER COLUMN with a comment": "alter table {t} alter column s comment 'text'",
        "ALTER COLUMN to NOT NULL": "alter table {t} alter column id set not null",
        "ALTER COLUMN to a type without type widening": "alter table {t} alter column id type string",
        "ALTER COLUMN that is not there": "alter table {t} alter column nope comment 'x'",
        "SET TBLPROPERTIES": "alter table {t} set tblproperties ('own' = 'x', 'delta.appendOnly' = 'true')",
        "SET TBLPROPERTIES with an unknown property": "alter table {t} set tblproperties ('delta.nope' = 'x')",
        "SET TBLPROPERTIES with a wrong value": "alter table {t} set tblproperties ('delta.appendOnly' = 'x')",
        "UNSET TBLPROPERTIES": (
            "alter table {t} set tblproperties ('own' = 'x')",
            "alter table {t} unset tblproperties ('own')",
        ),
        "UNSET TBLPROPERTIES that is not there": "alter table {t} unset tblproperties ('own')",
        "UNSET TBLPROPERTIES IF EXISTS": "alter table {t} unset tblproperties if exists ('own')",
        "ADD CONSTRAINT": ("alter table {t} add constraint c check (id > 0)", "insert into {t} values (0, 'e', 'z')"),
        "ADD CONSTRAINT that rows violate": "alter table {t} add constraint c check (id > 1)",
        "ADD CONSTRAINT twice": ("alter table {t} add constraint c check (id > 0)",) * 2,
        "DROP CONSTRAINT": (
            "alter table {t} add constraint c check (id > 0)",
            "alter table {t} drop constraint c",
            "insert into {t} values (0, 'e', 'z')",
        ),
        "DROP CONSTRAINT that is not there": "alter table {t} drop constraint c",
        "DROP CONSTRAINT IF EXISTS": "alter table {t} drop constraint if exists c",
    },
)
statements(
    MAPPED,
    {
        "RENAME COLUMN": ("alter table {t} rename column s to z", "delete from {t} where z = 'a'"),
        "RENAME COLUMN to a name that is there": "alter table {t} rename column s to ID",
        "DROP COLUMN": ("alter table {t} drop column s", "insert into {t} values (5, 'z')"),
        "DROP COLUMNS": "alter table {t} drop columns (s, p)",
        "DROP COLUMN that is not there": "alter table {t} drop column nope",
    },
)
statements(BY_P, {"SHOW PARTITIONS of a partitioned table": "show partitions {t}"})
statements(NESTED, {"ADD COLUMN to a struct FIRST": "alter table {t} add column st.c int first"})
statements(NESTED, {"ALTER COLUMN of a struct AFTER": "alter table {t} alter column st.a after b"})
statements(NESTED, {"ADD COLUMN to a struct": "alter table {t} add column st.c int"})
statements(
    (
        "create table {t} (id int) using delta tblproperties ('delta.enableTypeWidening' = true)",
        "insert into {t} values (1)",
    ),
    {
        "ALTER COLUMN to a wider type": "alter table {t} alter column id type bigint",
        "ALTER COLUMN to a narrower type": "alter table {t} alter column id type smallint",
    },
)


def _restored(name: str, *steps: str) -> None:
    @scenario(name, DIFFERS.get(name))
    def _(t: Table) -> None:
        t.start(*PLAIN)
        t.run(*steps, keeps=False)


_restored("RESTORE of deleted rows", "delete from {t} where id = 1", "restore table {t} to version as of 1")
_restored("RESTORE of an empty table", "restore table {t} to version as of 0")
_restored("RESTORE of the version that is there", "restore table {t} to version as of 1")
_restored("RESTORE of a version that is not there", "restore table {t} to version as of 9")
_restored("RESTORE of an old schema", "alter table {t} add column n int", "restore table {t} to version as of 1")
_restored(
    "RESTORE of old properties", "alter table {t} set tblproperties ('own' = 'x')", "restore {t} to version as of 1"
)
_restored(
    "RESTORE before a RESTORE", "delete from {t}", "restore {t} to version as of 1", "restore {t} to version as of 2"
)
_restored("RESTORE to a time before the table existed", "restore table {t} to timestamp as of '2001-01-01'")
_restored("RESTORE to a time after the latest commit", "restore table {t} to timestamp as of '2101-01-01'")
