"""INSERT, CREATE TABLE and REPLACE TABLE in SQL."""

from tests.interop.parity.deletes import BY_P, COLUMNS, DEEP, FEED, PLAIN
from tests.interop.parity.scenarios import statements

DEFAULTS = (
    "create table {t} (id bigint, s string default 'none', n int default 1 + 1) using delta "
    "tblproperties ('delta.feature.allowColumnDefaults' = 'supported')",
)

RESOLVED = (
    "delta-spark reports that the column cannot be resolved, spark_ext that it does not fit the columns of the table."
)
TWICE = "delta-spark reports that the column already exists, spark_ext that the statement names it twice."
DIFFERS = {
    "INSERT INTO with a column that is not there": RESOLVED,
    "CREATE TABLE partitioned by a column that is not there": RESOLVED,
    "INSERT INTO with a column twice": TWICE,
    "INSERT INTO with text that is no number": (
        "delta-spark raises the cast error unchanged; spark_ext converts it to an error of its own."
    ),
    "INSERT INTO with a struct whose fields are in another order": (
        "If a struct has the table's fields in another order, delta-spark matches them by position or, if all columns "
        "of the query have the table's names and types, by name; spark_ext refuses such a struct unless BY NAME is "
        "given."
    ),
    "INSERT INTO by name with a struct of other types and in another order": (
        "delta-spark matches fields by position as soon as a type differs; spark_ext matches them by name."
    ),
    "MERGE with DEFAULT": "delta-spark does not support DEFAULT in MERGE.",
    "CREATE TABLE with a default": "In the history, only spark_ext records the property that adds the feature.",
    "CREATE OR REPLACE TABLE": (
        "delta-spark does not replace a table given by path with a table that has other columns."
    ),
}

statements(
    PLAIN,
    {
        "INSERT INTO with VALUES": "insert into {t} values (5, 'e', 'z')",
        "INSERT INTO with a query": "insert into {t} select id + 10, s, p from {t} where id < 3",
        "INSERT INTO with a CTE": "with q as (select 5L, 'e', 'z') insert into {t} select * from q",
        "INSERT INTO by position": "insert into {t} select 5L as a, 's' as p, 'p' as s",
        "INSERT INTO with columns": "insert into {t} (p, id, s) values ('z', 5, 'e')",
        "INSERT INTO with some columns": "insert into {t} (id) values (5)",
        "INSERT INTO by name": "insert into {t} by name select 'z' as p, 'e' as s, 5L as id",
        "INSERT INTO with too few values": "insert into {t} values (5)",
        "INSERT INTO with too many values": "insert into {t} values (5, 'e', 'z', 1)",
        "INSERT INTO with a column that is not there": "insert into {t} (id, nope) values (5, 1)",
        "INSERT INTO with a column twice": "insert into {t} (id, id) values (5, 1)",
        "INSERT INTO with text that is no number": "insert into {t} values ('x', 'e', 'z')",
        "INSERT OVERWRITE": "insert overwrite {t} values (5, 'e', 'z')",
        "INSERT INTO with REPLACE WHERE": "insert into {t} replace where id < 3 values (1, 'e', 'z')",
        "INSERT INTO with REPLACE WHERE and another row": "insert into {t} replace where id < 3 values (7, 'e', 'z')",
    },
)
statements(
    BY_P,
    {
        "INSERT INTO a partition": "insert into {t} partition (p = 'z') values (5, 'e')",
        "INSERT INTO partitions by their values": "insert into {t} partition (p) values (5, 'e', 'z')",
        "INSERT OVERWRITE of a partition": "insert overwrite {t} partition (p = 'x') values (5, 'e')",
        "INSERT OVERWRITE of all partitions": "insert overwrite {t} values (5, 'e', 'z')",
        "INSERT INTO with REPLACE WHERE of a partition": "insert into {t} replace where p = 'x' values (5, 'e', 'x')",
    },
)
statements(
    DEEP,
    {
        "INSERT INTO with structs by position": "insert into {t} values (5, struct('6', 7), array(struct(8, 9L)), "
        "map('k', struct(1, 2)), null)",
        "INSERT INTO with a struct whose fields have other names": "insert into {t} (st, id) values (struct(6 as q, "
        "'z' as a), 5)",
        "INSERT INTO with a struct whose fields are in another order": "insert into {t} (id, st) values (5, struct('6' "
        "as b, '7' as a))",
        "INSERT INTO with a struct without one of its fields": "insert into {t} (id, st) values (5, struct(6 as a))",
        "INSERT INTO with a struct with another field": "insert into {t} (id, st) values (5, struct(6, 'z', 7))",
        "INSERT INTO by names in another case": "insert into {t} by name select struct(6 as a, 'z' as b) as ST, 5L as "
        "ID",
        "INSERT INTO with columns in another case": "insert into {t} (ST, Id) values (struct(6, 'z'), 5)",
        "INSERT INTO by name with a struct of other types and in another order": "insert into {t} by name select 5 as "
        "id, struct('7' as b, '6' as a) as st",
        "INSERT INTO by name with a struct without one of its fields": "insert into {t} by name select 5L as id, "
        "struct(6 as a) as st",
        "INSERT INTO by name with a column twice, in another case": "insert into {t} by name select 5L as id, 6L as ID",
    },
)
statements(FEED, {"INSERT OVERWRITE with a change data feed": "insert overwrite {t} values (5, 'e', 'z')"})
statements(
    DEFAULTS,
    {
        "INSERT INTO with DEFAULT": "insert into {t} values (1, default, default), (2, 'b', default)",
        "INSERT INTO without columns that have defaults": "insert into {t} (id) values (1)",
        "UPDATE with DEFAULT": ("insert into {t} values (1, 'a', 7)", "update {t} set s = default, n = default"),
        "MERGE with DEFAULT": "merge into {t} t using (select 1L as id) s on t.id = s.id when not matched then "
        "insert (id, s) "
        "values (s.id, default)",
    },
)
statements(
    (),
    {
        "CREATE TABLE": f"create table {{t}} {COLUMNS} using delta",
        "CREATE TABLE with comments": "create table {t} (id bigint comment 'key') using delta comment 'a table'",
        "CREATE TABLE with partitions": f"create table {{t}} {COLUMNS} using delta partitioned by (p)",
        "CREATE TABLE with properties": f"create table {{t}} {COLUMNS} using delta tblproperties ('own' = 'x', "
        "'delta.appendOnly' = 'true')",
        "CREATE TABLE with NOT NULL": "create table {t} (id bigint not null) using delta",
        "CREATE TABLE with a generated column": "create table {t} (n int, twice int generated always as (n * 2)) "
        "using delta",
        "CREATE TABLE with a default": DEFAULTS[0],
        "CREATE TABLE twice": (PLAIN[0], PLAIN[0]),
        "CREATE TABLE IF NOT EXISTS twice": (PLAIN[0], "create table if not exists {t} (n int) using delta"),
        "CREATE OR REPLACE TABLE": (*PLAIN, "create or replace table {t} (n int) using delta"),
        "REPLACE TABLE where there is none": "replace table {t} (n int) using delta",
        "CREATE TABLE AS": "create table {t} using delta as select 1L as id, 'a' as s",
        "CREATE TABLE AS with partitions": "create table {t} using delta partitioned by (p) as select 1L as id, 'x' "
        "as p",
        "CREATE OR REPLACE TABLE AS": (*PLAIN, "create or replace table {t} using delta as select 1 as n"),
        "CREATE TABLE AS where a table already exists": (PLAIN[0], "create table {t} using delta as select 1 as n"),
        "CREATE TABLE with an unknown property": "create table {t} (n int) using delta tblproperties ('delta.nope' "
        "= '1')",
        "CREATE TABLE partitioned by a column that is not there": "create table {t} (n int) using delta partitioned "
        "by (m)",
        "CREATE TABLE with a column twice": "create table {t} (n int, N int) using delta",
    },
)
