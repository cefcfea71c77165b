"""MERGE in SQL: clauses, sources, errors, schema evolution."""

from tests.interop.parity.deletes import BY_P, FEED, NESTED, PLAIN, TAGS, TRACKED, VECTORS
from tests.interop.parity.scenarios import statements

SOURCE = "(select * from values (1L, 'A', 'x'), (3L, 'C', 'y'), (9L, 'I', 'z') as v(id, s, p)) s"
INTO = f"merge into {{t}} t using {SOURCE} on t.id = s.id "
UPSERT = INTO + "when matched then update set * when not matched then insert *"

ROWS = (
    "spark_ext writes new rows, and in some tables also rows that change and rows that stay, into separate files, "
    "delta-spark into one."
)
DIFFERS = {
    **dict.fromkeys(
        (
            *("MERGE that updates and inserts all", "MERGE with conditions", "MERGE twice"),
            "MERGE with all kinds of clauses",
            "MERGE with a condition on the table",
            "MERGE with schema evolution",
            "MERGE with deletion vectors",
            "MERGE with a change data feed",
        ),
        ROWS,
    ),
    "MERGE with row tracking": f"{ROWS} {TAGS}",
    "MERGE where a key is null": (
        "`numSourceRows`: delta-spark counts the rows that its plan reads, which leaves out the one whose key is null."
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
        "MERGE of a source with another column": "merge into {t} t using (select 1L as id, 'z' as s, 'x' as p, 5 as "
        "n) s on "
        "t.id = s.id when matched then update set *",
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
statements(
    (PLAIN[0] + " tblproperties ('delta.appendOnly' = true)", PLAIN[1]),
    {
        "MERGE into an append-only table that inserts": INTO + "when not matched then insert *",
        "MERGE into an append-only table that updates": UPSERT,
    },
)
