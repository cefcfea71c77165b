"""The tables of a catalog in PostgreSQL, their versions, and the names that its database schema may have. Pure.

All text is compared by its bytes (``COLLATE "C"``), because listings are ordered by code points, whatever the collation
of the database. The tables have no foreign keys, which would take more locks than those that ``postgresql`` describes.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from deltalog.errors import CallError

SCHEMA_VERSION = 1
DEFAULT_SCHEMA = "deltalog"
# PostgreSQL cuts longer names without an error, so that two catalogs would become one.
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_$-]{0,62}")
_RESERVED = re.compile(r"pg_.*|information_schema", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class PostgresSettings:
    """Limits of a catalog in PostgreSQL.

    ``connections``: the maximum number of connections of a process. ``connect_seconds``: the time limit for connecting
    to each host; ``connect_timeout`` in the URL has priority. ``lock_seconds``: how long a call waits for the locks of
    other writers, or for a free connection. ``statement_seconds``: PostgreSQL's time limit for a statement.
    ``answer_seconds``: how long a call waits while PostgreSQL sends nothing. ``idle_seconds``: if a process is stopped
    in the middle of a change, PostgreSQL ends its transaction after this time, so that others get its locks."""

    connections: int = 20
    connect_seconds: int = 5
    lock_seconds: float = 10.0
    statement_seconds: float = 30.0
    answer_seconds: float = 40.0
    idle_seconds: float = 10.0


# ``marks``: the highest number that was ever given to a marking, even if that marking was deleted. ``root``: the URL
# with one slash at its end, for the search for nested tables. A part that is larger than a piece has several rows.
_VERSION_1 = (
    """CREATE TABLE {schema}.catalog (
        catalog_id text NOT NULL,
        schema_version integer NOT NULL
    )""",
    """CREATE TABLE {schema}.tables (
        table_id text COLLATE "C" PRIMARY KEY,
        name text COLLATE "C" NOT NULL UNIQUE,
        url text COLLATE "C" NOT NULL,
        root text COLLATE "C" NOT NULL UNIQUE,
        created_ms bigint NOT NULL,
        version bigint NOT NULL,
        metadata_version bigint,
        metadata_ms bigint,
        marks bigint NOT NULL DEFAULT 0
    )""",
    """CREATE TABLE {schema}.commits (
        table_id text COLLATE "C" NOT NULL,
        version bigint NOT NULL,
        file text NOT NULL,
        in_commit_timestamp_ms bigint NOT NULL,
        size_bytes bigint NOT NULL,
        txn_id text NOT NULL,
        modified_ms bigint,
        changes_metadata boolean NOT NULL,
        PRIMARY KEY (table_id, version)
    )""",
    """CREATE TABLE {schema}.markings (
        table_id text COLLATE "C" NOT NULL,
        number bigint NOT NULL,
        marking text NOT NULL,
        PRIMARY KEY (table_id, number)
    )""",
    """CREATE TABLE {schema}.documents (
        kind text COLLATE "C" NOT NULL,
        key text COLLATE "C" NOT NULL,
        revision bigint NOT NULL,
        content text NOT NULL,
        PRIMARY KEY (kind, key)
    )""",
    """CREATE TABLE {schema}.transactions (
        id text COLLATE "C" PRIMARY KEY,
        status text COLLATE "C" NOT NULL,
        start_ms bigint NOT NULL,
        revision bigint NOT NULL,
        record text NOT NULL
    )""",
    "CREATE INDEX transactions_by_status ON {schema}.transactions (status, start_ms, id)",
    """CREATE TABLE {schema}.parts (
        transaction_id text COLLATE "C" NOT NULL,
        digest bytea NOT NULL,
        piece integer NOT NULL,
        key bytea NOT NULL,
        data bytea NOT NULL,
        PRIMARY KEY (transaction_id, digest, piece)
    )""",
)
#: The statements that lead to each version of the schema from the one before it.
STEPS: Mapping[int, tuple[str, ...]] = {1: _VERSION_1}


def check_schema_name(name: str) -> str:
    """The name of the database schema of a catalog. Raises CallError unless it is an ASCII name of 1 to 63 characters
    that PostgreSQL does not reserve."""
    if not _NAME.fullmatch(name) or _RESERVED.fullmatch(name):
        raise CallError(
            f"{name!r} cannot be the PostgreSQL schema of a catalog. The name must have 1 to 63 letters, "
            "digits, '_', '-' or '$', begin with a letter or '_', and not begin with pg_. It is "
            "case-sensitive."
        )
    return name


def statements(schema: str, version: int) -> list[str]:
    """The statements that upgrade a schema from ``version`` (0: none) to SCHEMA_VERSION, without the one that sets the
    version number.
    """
    return [
        statement.format(schema=f'"{schema}"')
        for number in sorted(STEPS)
        if version < number <= SCHEMA_VERSION
        for statement in STEPS[number]
    ]


def root_of(url: str) -> str:
    """The canonical root of a table, with one slash at its end."""
    return f"{url.rstrip('/')}/"


def roots_around(root: str) -> list[str]:
    """A root, and the roots of all directories that contain it."""
    return [root[: end + 1] for end, character in enumerate(root) if character == "/"]
