"""UPDATE in SQL: values, types, structs, rules of the table."""

from tests.interop.parity.deletes import BY_P, DEEP, FEED, NESTED, PLAIN, TAGS, TRACKED, VECTORS
from tests.interop.parity.scenarios import statements

FILES = (
    "If a table has a change data feed or rules, spark_ext writes the changed and the unchanged rows of a file to "
    "separate files; delta-spark writes them to one."
)
VECTOR = (
    "A file that only gets another deletion vector counts as a removed file in the metrics of delta-spark's UPDATE."
)
DIFFERS = {
    **dict.fromkeys(
        (
            "UPDATE with a change data feed",
            "UPDATE computes a generated column",
        ),
        FILES,
    ),
    "UPDATE with deletion vectors": VECTOR,
    "UPDATE and DELETE with deletion vectors": VECTOR,
    "UPDATE with row tracking": TAGS,
    "UPDATE with a query as the value": (
        "spark_ext refuses a subquery in a value: use MERGE with the query as its source."
    ),
    "UPDATE of a list of lists of structs whose fields are in another order": (
        "delta-spark matches these fields by position, although it matches others by name; spark_ext matches all "
        "fields by name."
    ),
}

statements(
    PLAIN,
    {
        "UPDATE without a condition": "update {t} set s = 'z'",
        "UPDATE of one row": "update {t} set s = 'z' where id = 1",
        "UPDATE of no row": "update {t} set s = 'z' where id = 9",
        "UPDATE of several columns": "update {t} set s = 'z', id = id + 10 where id < 3",
        "UPDATE that swaps columns": "update {t} set s = p, p = s",
        "UPDATE to null": "update {t} set s = null where id = 1",
        "UPDATE where a value is null": "update {t} set s = 'z' where s is null",
        "UPDATE with CASE": "update {t} set s = case when id = 1 then 'one' when id = 2 then 'two' else s end",
        "UPDATE with an alias": "update {t} as target set target.s = 'z' where target.id = 2",
        "UPDATE with a narrower type": "update {t} set id = 7 where id = 1",
        "UPDATE with text that is a number": "update {t} set id = '7' where id = 1",
        "UPDATE with text that is no number": "update {t} set id = 'x' where id = 1",
        "UPDATE with a number for text": "update {t} set s = 5 where id = 1",
        "UPDATE with a fraction for a whole number": "update {t} set id = 7.0 where id = 1",
        "UPDATE that sets a column that does not exist": "update {t} set nope = 1",
        "UPDATE with a condition on a column that does not exist": "update {t} set s = 'z' where nope = 1",
        "UPDATE of a column twice": "update {t} set s = 'y', S = 'z'",
        "UPDATE in another case": "UPDATE {t} SET S = 'z' WHERE ID = 1",
        "UPDATE with a query as the value": "update {t} set s = (select 'z')",
        "UPDATE with a query in the condition": "update {t} set s = 'z' where id in (select 1)",
        "UPDATE with an aggregate": "update {t} set id = max(id)",
        "UPDATE with DEFAULT for a column without a default": "update {t} set s = default where id = 1",
        "UPDATE twice": ("update {t} set s = 'y' where id = 1", "update {t} set s = 'z' where s = 'y'"),
    },
)
statements(
    VECTORS,
    {
        "UPDATE with deletion vectors": "update {t} set s = 'z' where id = 1",
        "UPDATE of all rows of a table with deletion vectors": "update {t} set s = 'z'",
        "UPDATE and DELETE with deletion vectors": (
            "update {t} set s = 'z' where id = 1",
            "delete from {t} where s = 'z'",
        ),
    },
)
statements(
    BY_P,
    {
        "UPDATE of a partition": "update {t} set s = 'z' where p = 'x'",
        "UPDATE that moves rows to another partition": "update {t} set p = 'y' where id = 1",
        "UPDATE that moves rows to the null partition": "update {t} set p = null where p = 'x'",
    },
)
statements(FEED, {"UPDATE with a change data feed": "update {t} set s = 'z' where id = 1"})
statements(TRACKED, {"UPDATE with row tracking": "update {t} set s = 'z' where id = 1"})
statements(
    NESTED,
    {
        "UPDATE of a field of a struct": "update {t} set st.b = 'z' where id = 1",
        "UPDATE of a field of a struct that is null": "update {t} set st.b = 'z' where id = 3",
        "UPDATE of a whole struct": "update {t} set st = struct(9 as a, 'z' as b) where id = 1",
        "UPDATE of a struct and its field": "update {t} set st = struct(9, 'z'), st.a = 1",
        "UPDATE of a list": "update {t} set l = array(7, 8) where id = 1",
        "UPDATE of an element of a list": "update {t} set l[0] = 7",
    },
)
statements(
    DEEP,
    {
        "UPDATE of a struct without one of its fields": "update {t} set st = struct(9 as a)",
        "UPDATE of a struct with another field": "update {t} set st = struct(9 as a, 'z' as b, 1 as c)",
        "UPDATE of a struct whose fields are in another order": "update {t} set st = struct('z' as B, 9L as a)",
        "UPDATE of a list of structs without one of their fields": "update {t} set l = array(struct(9 as x))",
        "UPDATE of a map of structs without one of their fields": "update {t} set m = map('k', struct(9 as x))",
        "UPDATE of a list of lists of structs whose fields are in another order": "update {t} set ll = "
        "array(array(struct(8 as y, 9 as x)))",
    },
)
statements(
    (
        "create table {t} (id bigint not null, n int, twice int generated always as (n * 2)) using delta",
        "alter table {t} add constraint small check (n < 10)",
        "insert into {t} (id, n) values (1, 1), (2, 2)",
    ),
    {
        "UPDATE computes a generated column": "update {t} set n = 3 where id = 1",
        "UPDATE of a generated column with a wrong value": "update {t} set twice = 3 where id = 1",
        "UPDATE against a constraint": "update {t} set n = 30 where id = 1",
        "UPDATE against NOT NULL": "update {t} set id = null where id = 1",
    },
)
