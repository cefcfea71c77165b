"""Makes SQLite catalogs as earlier versions of deltalog made them, with data. The statements are those of these
versions; do not change them.
"""

from __future__ import annotations

import sqlite3
from pathlib import Path

VERSIONS = (1, 2)
TABLES, COMMITS, PARTS = 3, 4, 5

_STRICT = "STRICT" if sqlite3.sqlite_version_info >= (3, 37) else ""
_VERSION_1 = (
    f"CREATE TABLE catalog (catalog_id TEXT NOT NULL) {_STRICT}",
    f"""CREATE TABLE tables (
        table_id TEXT NOT NULL PRIMARY KEY,
        name TEXT NOT NULL UNIQUE,
        url TEXT NOT NULL UNIQUE,
        created_ms INTEGER NOT NULL,
        version INTEGER NOT NULL
    ) {_STRICT}""",
    f"""CREATE TABLE commits (
        table_id TEXT NOT NULL REFERENCES tables,
        version INTEGER NOT NULL,
        file TEXT NOT NULL,
        in_commit_timestamp_ms INTEGER NOT NULL,
        size_bytes INTEGER NOT NULL,
        txn_id TEXT NOT NULL,
        PRIMARY KEY (table_id, version)
    ) WITHOUT ROWID{_STRICT and ", " + _STRICT}""",
    f"""CREATE TABLE transactions (
        id TEXT NOT NULL PRIMARY KEY,
        status TEXT NOT NULL,
        start_ms INTEGER NOT NULL,
        revision INTEGER NOT NULL,
        record BLOB NOT NULL
    ) {_STRICT}""",
    "CREATE INDEX transactions_by_status ON transactions (status, start_ms, id)",
    f"""CREATE TABLE parts (
        transaction_id TEXT NOT NULL,
        key TEXT NOT NULL,
        part BLOB NOT NULL,
        PRIMARY KEY (transaction_id, key)
    ) {_STRICT}""",
)
_VERSION_2 = (
    f"CREATE TABLE marks (table_id TEXT NOT NULL PRIMARY KEY, last INTEGER NOT NULL) {_STRICT}",
    f"""CREATE TABLE markings (
        table_id TEXT NOT NULL,
        number INTEGER NOT NULL,
        marking BLOB NOT NULL,
        PRIMARY KEY (table_id, number)
    ) {_STRICT}""",
)
# How programs of versions 1 and 2 ratify a commit.
RATIFY = ("UPDATE tables SET version = ? WHERE table_id = ?", "INSERT INTO commits VALUES (?, ?, ?, ?, ?, ?)")


def make(path: Path, version: int) -> None:
    """Make a catalog: ``TABLES`` tables, of which the first has ``COMMITS`` unpublished commits; an active transaction
    with ``PARTS`` parts, and a committed one; from version 2 on, a marking."""
    database = sqlite3.connect(path, isolation_level=None)
    database.execute("PRAGMA journal_mode = WAL")
    for statement in (*_VERSION_1, *(_VERSION_2 if version >= 2 else ())):
        database.execute(statement)
    database.execute("INSERT INTO catalog VALUES ('the id')")
    for number in range(1, TABLES + 1):
        table = (f"id-{number}", f"sales.t{number}", f"file:///data/t{number}", 5, COMMITS if number == 1 else 0)
        database.execute("INSERT INTO tables VALUES (?, ?, ?, ?, ?)", table)
    for number in range(1, COMMITS + 1):
        commit = ("id-1", number, f"{number:020d}.x.json", 10 * number, 100 * number, f"txn-{number}")
        database.execute(RATIFY[1], commit)
    for id_, status, more in (
        ("active", "ACTIVE", '"pins":{"id-1":3}'),
        ("done", "COMMITTED", '"end_ms":2000,"versions":{"id-1":4}'),
    ):
        record = f'{{"id":"{id_}","type":"READ_AND_WRITE","status":"{status}","start_ms":1000,"last_activity_ms":1500'
        transaction = (id_, status, f"{record},{more}}}".encode())
        database.execute("INSERT INTO transactions VALUES (?, ?, 1000, 0, ?)", transaction)
    for number in range(PARTS):
        database.execute("INSERT INTO parts VALUES ('active', ?, ?)", (f"part-{number}", bytes([number]) * 1000))
    if version >= 2:
        database.execute("INSERT INTO marks VALUES ('id-1', 7)")
        marking = b'{"transaction_id":"t","made_ms":1,"deleting":["a"]}'
        database.execute("INSERT INTO markings VALUES ('id-1', 7, ?)", (marking,))
    database.execute("PRAGMA application_id = 1682129236")
    database.execute(f"PRAGMA user_version = {version}")
    database.close()
