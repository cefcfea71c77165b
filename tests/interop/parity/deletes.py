"""DELETE in SQL: conditions, partitions, deletion vectors, the change data feed."""

from tests.interop.parity.scenarios import statements

COLUMNS = "(id bigint, s string, p string)"
ROWS = "insert into {t} values (1, 'a', 'x'), (2, 'b', 'x'), (3, null, 'y'), (4, 'd', null)"
PLAIN = (f"create table {{t}} {COLUMNS} using delta", ROWS)
VECTORS = (PLAIN[0] + " tblproperties ('delta.enableDeletionVectors' = true)", ROWS)
BY_P = (PLAIN[0] + " partitioned by (p)", ROWS)
FEED = (PLAIN[0] + " tblproperties ('delta.enableChangeDataFeed' = true)", ROWS)
TRACKED = (PLAIN[0] + " tblproperties ('delta.enableRowTracking' = true)", ROWS)
NESTED = (
    "create table {t} (id bigint, st struct<a: int, b: string>, l array<int>) using delta",
    "insert into {t} values (1, struct(1, 'a'), array(1)), (2, struct(2, 'b'), array(2, 3)), (3, null, null)",
)

DEEP = (
    "create table {t} (id bigint, st struct<a: int, b: string>, l array<struct<x: int, y: int>>, "
    "m map<string, struct<x: int, y: int>>, ll array<array<struct<x: int, y: int>>>) using delta",
    "insert into {t} select id, struct(1, 'a'), array(struct(1, 2)), map('k', struct(1, 2)), "
    "array(array(struct(1, 2))) from range(1, 4)",
)

TAGS = (
    "delta-spark tags a commit that keeps row ids, and repeats the name of the domain in its configuration; spark_ext "
    "does neither."
)
DIFFERS = {"DELETE with row tracking": TAGS}

statements(
    PLAIN,
    {
        "DELETE without a condition": "delete from {t}",
        "DELETE of one row": "delete from {t} where id = 1",
        "DELETE of no row": "delete from {t} where id = 9",
        "DELETE where a value is null": "delete from {t} where s is null",
        "DELETE where a comparison is null": "delete from {t} where s <> 'a'",
        "DELETE with a null-safe comparison": "delete from {t} where s <=> null",
        "DELETE with IN": "delete from {t} where id in (1, 3, 9)",
        "DELETE with BETWEEN": "delete from {t} where id between 2 and 3",
        "DELETE with LIKE": "delete from {t} where s like 'a%' or s like '_'",
        "DELETE with NOT": "delete from {t} where not (id < 3 and s is not null)",
        "DELETE with functions": "delete from {t} where upper(s) = 'A' or length(p) + id = 4",
        "DELETE with an alias": "delete from {t} as target where target.id = 2",
        "DELETE with TRUE": "delete from {t} where true",
        "DELETE with FALSE": "delete from {t} where false",
        "DELETE with NULL": "delete from {t} where null",
        "DELETE with a condition on a column that does not exist": "delete from {t} where nope = 1",
        "DELETE with a condition that is not boolean": "delete from {t} where id + 1",
        "DELETE with IN and a query": "delete from {t} where id in (select 1)",
        "DELETE with EXISTS": "delete from {t} where exists (select 1)",
        "DELETE with a scalar subquery": "delete from {t} where id = (select max(id) from {t})",
        "DELETE with an aggregate": "delete from {t} where max(id) = 1",
        "DELETE twice": ("delete from {t} where id = 1", "delete from {t} where id = 1", "delete from {t}"),
        "DELETE in upper and lower case": "DELETE FROM {t} WHERE S = 'a' AND ID = 1",
    },
)
statements(
    VECTORS,
    {
        "DELETE by deletion vectors": "delete from {t} where id = 1",
        "DELETE by deletion vectors, twice": ("delete from {t} where id = 1", "delete from {t} where id = 2"),
        "DELETE of all rows of a file with deletion vectors": (
            "delete from {t} where id < 3",
            "delete from {t} where id > 2",
        ),
    },
)
statements(
    BY_P,
    {
        "DELETE of a partition": "delete from {t} where p = 'x'",
        "DELETE of the null partition": "delete from {t} where p is null",
        "DELETE by partition and value": "delete from {t} where p = 'x' and id = 2",
        "DELETE of all partitions": "delete from {t} where p is null or p is not null",
        "DELETE of a partition that is not there": "delete from {t} where p = 'z'",
    },
)
statements(FEED, {"DELETE with a change data feed": ("delete from {t} where id = 1", "delete from {t}")})
statements(TRACKED, {"DELETE with row tracking": "delete from {t} where id = 1"})
statements(
    NESTED,
    {
        "DELETE by a field of a struct": "delete from {t} where st.a = 1",
        "DELETE by an element of a list": "delete from {t} where l[0] = 2",
        "DELETE with IS NULL on a struct": "delete from {t} where st is null",
    },
)
statements(
    (PLAIN[0] + " tblproperties ('delta.appendOnly' = true)", ROWS),
    {"DELETE from an append-only table": "delete from {t} where id = 1"},
)
statements((), {"DELETE where there is no table": "delete from {t} where id = 1"})
