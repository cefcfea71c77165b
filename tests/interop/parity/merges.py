"""MERGE in SQL: clauses, sources, errors, schema evolution."""

from tests.interop.parity.deletes import BY_P, DEEP, FEED, NESTED, PLAIN, TAGS, TRACKED, VECTORS
from tests.interop.parity.scenarios import statements

SOURCE = "(select * from values (1L, 'A', 'x'), (3L, 'C', 'y'), (9L, 'I', 'z') as v(id, s, p)) s"
INTO = f"merge into {{t}} t using {SOURCE} on t.id = s.id "
UPSERT = INTO + "when matched then update set * when not matched then insert *"

ROWS = (
    "spark_ext writes new rows, and in some tables also changed and unchanged rows, to separate files; delta-spark "
    "writes them to one."
)
DIFFERS = {
    **dict.fromkeys(
        (
            *("MERGE that updates and inserts all", "MERGE with conditions", "MERGE twice"),
            "MERGE with all kinds of clauses",
            "MERGE with a condition on the table",
            "MERGE with schema evolution",
            "MERGE with schema evolution adds fields",
            "MERGE with schema evolution adds a field that it names",
            "MERGE with deletion vectors",
            "MERGE with a change data feed",
        ),
        ROWS,
    ),
    "MERGE with row tracking": f"{ROWS} {TAGS}",
    "MERGE twice with one view of the table": (
        "A view of spark_ext keeps reading the version from which it was created. The second MERGE would overwrite the"
        " changes of the first one with rows of that version, so it fails with a conflict: read the table again. "
        "delta-spark reads the latest version."
    ),
    "MERGE with schema evolution adds a field in lists of lists": (
        "delta-spark cannot cast structs in lists of lists to structs with an additional field."
    ),
    "MERGE where a key is null": (
        "`numSourceRows`: delta-spark counts the rows that its plan reads, which exclude the row whose key is null."
    ),
}

statements(
    PLAIN,
    {
        "MERGE that updates and inserts all": UPSERT,
        "MERGE that only updates": INTO + "when matched then update set s = s.s",
        "MERGE that only deletes": INTO + "when matched then delete",
        "MERGE that only inserts": INTO + "when not matched then insert *",
        "MERGE that inserts some columns": INTO + "when not matched then insert (id, s) values (s.id, 'new')",
        "MERGE with conditions": INTO + "when matched and s.s = 'A' then delete when matched and t.s is null then "
        "update set t.s = concat(s.s, '!') when not matched and s.id > 5 then insert *",
        "MERGE with conditions that are never true": INTO + "when matched and false then delete",
        "MERGE whose clauses apply in order": INTO
        + "when matched and s.id < 5 then update set s = 'first' when matched "
        "then update set s = 'second'",
        "MERGE with several inserts": INTO
        + "when not matched and s.id = 1 then insert (id) values (100) when not matched "
        "then insert (id, s) values (s.id, 'other')",
        "MERGE deletes what the source lacks": INTO + "when not matched by source then delete",
        "MERGE updates what the source lacks": INTO
        + "when not matched by source and t.id = 2 then update set s = 'gone'",
        "MERGE with all kinds of clauses": INTO
        + "when matched then update set s = s.s when not matched by target then "
        "insert * when not matched by source and t.p is null then delete when not matched by source then "
        "update set p = 'left'",
        "MERGE where no row matches": INTO.replace("t.id = s.id", "false") + "when matched then delete",
        "MERGE with ON FALSE inserts all": INTO.replace("t.id = s.id", "false") + "when not matched then insert *",
        "MERGE with ON TRUE and several matches": INTO.replace("t.id = s.id", "true")
        + "when matched then update set s = s.s",
        "MERGE with several matches and a delete": INTO.replace("t.id = s.id", "true") + "when matched then delete",
        "MERGE with several matches and a delete with a condition": INTO.replace("t.id = s.id", "true")
        + "when matched and s.id < 9 then delete",
        "MERGE where a key is null": "merge into {t} t using (select cast(null as string) as s) q on t.s = q.s when "
        "matched "
        "then delete when not matched then insert (s) values (q.s)",
        "MERGE with a null-safe key": "merge into {t} t using (select cast(null as string) as s) q on t.s <=> q.s when "
        "matched then delete",
        "MERGE with a condition on the table": INTO.replace("t.id = s.id", "t.id = s.id and t.p = 'x'")
        + "when matched then update set s = 'z' when not matched then insert *",
        "MERGE with the table itself": "merge into {t} t using {t} s on t.id = s.id when matched then update set s "
        "= s.p",
        "MERGE with an earlier version of the table": "merge into {t} t using (select * from {t} version as of 1) s on "
        "t.id = s.id when matched then delete",
        "MERGE without a clause": INTO,
        "MERGE with a clause after one without a condition": INTO
        + "when matched then delete when matched then update set "
        "s = 'a'",
        "MERGE with a column that is not there": INTO + "when matched then update set nope = 1",
        "MERGE with a source column that is not there": INTO + "when matched then update set s = s.nope",
        "MERGE that sets a column twice": INTO + "when matched then update set s = 'a', s = 'b'",
        "MERGE that inserts a column twice": INTO + "when not matched then insert (id, id) values (1, 2)",
        "MERGE with fewer values than columns": INTO + "when not matched then insert (id, s) values (1)",
        "MERGE with a query in the condition": INTO.replace("t.id = s.id", "t.id in (select 1)")
        + "when matched then delete",
        "MERGE with names without their table": INTO + "when matched then update set s = id",
        "MERGE of a source that lacks a column": "merge into {t} t using (select 1L as id, 'z' as s) s on t.id = "
        "s.id when "
        "matched then update set *",
        "MERGE of a source with an additional column": "merge into {t} t using (select 1L as id, 'z' as s, 'x' as p, "
        "5 as n) s on t.id = s.id when matched then update set *",
        "MERGE with schema evolution": "merge with schema evolution into {t} t using (select 1L as id, 'z' as s, "
        "'x' as p, "
        "5 as n) s on t.id = s.id when matched then update set *",
        "MERGE with schema evolution and inserts": "merge with schema evolution into {t} t using (select 8L as id, "
        "5 as n) s "
        "on t.id = s.id when matched then update set * when not matched then insert *",
        "MERGE with types that are cast": "merge into {t} t using (select 1 as id, 5 as s) s on t.id = s.id when "
        "matched "
        "then update set s = s.s",
        "MERGE twice": (UPSERT, UPSERT),
        "MERGE twice with one view of the table": (
            "create or replace temporary view held as select * from {t}",
            *("merge into {t} t using held h on t.id = h.id when matched then update set s = concat(h.s, 'x')",) * 2,
        ),
    },
)
statements(
    VECTORS,
    {
        "MERGE with deletion vectors": UPSERT,
        "MERGE that deletes with deletion vectors": INTO + "when matched then delete",
    },
)
statements(
    BY_P,
    {
        "MERGE into partitions": UPSERT,
        "MERGE by a partition": INTO.replace("t.id = s.id", "t.p = s.p and t.id = s.id") + "when matched then delete",
        "MERGE that moves rows to another partition": INTO + "when matched then update set p = 'moved'",
    },
)
statements(FEED, {"MERGE with a change data feed": UPSERT + " when not matched by source and t.id = 2 then delete"})
statements(TRACKED, {"MERGE with row tracking": UPSERT})
statements(
    NESTED,
    {
        "MERGE that updates a field of a struct": "merge into {t} t using (select 1L as id) s on t.id = s.id when "
        "matched then "
        "update set st.b = 'z'",
        "MERGE that inserts a struct": "merge into {t} t using (select 7L as id, struct(7 as a, 'g' as b) as st) s "
        "on t.id = "
        "s.id when not matched then insert (id, st) values (s.id, s.st)",
    },
)
LESS = "(select 1L as id, struct(9 as a) as st, array(struct(9 as y)) as l, map('n', struct(9 as y)) as m) s"
MORE = "(select 2L as id, struct(9 as a, 'z' as b, 7 as c) as st, {} as m, id as other from range(1)) s"
EVOLVING = "merge with schema evolution into {t} t using "
statements(
    DEEP,
    {
        "MERGE with schema evolution of a source whose structs lack fields": f"{EVOLVING}{LESS} on t.id = s.id "
        "when matched then update set *",
        "MERGE with schema evolution inserts structs that lack fields": f"{EVOLVING}{LESS} on t.id = s.id + 9 "
        "when not matched then insert *",
        "MERGE with schema evolution of a struct that is null": f"{EVOLVING}(select 1L as id, cast(null as "
        "struct<a: int>) as st) s on t.id = s.id when matched then update set *",
        "MERGE with schema evolution sets a struct that lacks a field": f"{EVOLVING}{LESS} on t.id = s.id "
        "when matched then update set st = s.st when not matched by source and t.id = 2 then update set st = struct(8 "
        "as a)",
        "MERGE of a source whose structs lack fields": f"merge into {{t}} t using {LESS} on t.id = s.id "
        "when matched then update set t.st = s.st",
        "MERGE with schema evolution adds fields": EVOLVING
        + MORE.format("map('n', struct(7 as z, 9 as y))")
        + " on t.id = s.id when matched then update set *",
        "MERGE with schema evolution adds a field that it names": EVOLVING
        + MORE.format("1")
        + " on t.id = s.id when matched then update set st.c = s.st.c",
        "MERGE with schema evolution adds a field in lists of lists": f"{EVOLVING}(select 1L as id, array(array(struct("
        "7 as z, 9 as y))) as ll) s on t.id = s.id when matched then update set *",
    },
)
statements(
    (PLAIN[0] + " tblproperties ('delta.appendOnly' = true)", PLAIN[1]),
    {
        "MERGE that inserts rows into an append-only table": INTO + "when not matched then insert *",
        "MERGE that updates rows of an append-only table": UPSERT,
    },
)
