"""The modules that each entry point imports: a short program must not import modules that it does not need.

Each entry point runs in a fresh process, which prints the modules that it has loaded.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest

from deltalog import DeltaTable

# Modules that importing deltalog or its entry points must not load: SQL parsers, other frameworks, and slow modules of
# the standard library.
NEVER = (
    "sqlglot",
    "pandas",
    "polars",
    "deltalake",
    "pyarrow.dataset",
    "asyncio",
    "multiprocessing",
    "botocore",
    "s3fs",
)
# The modules of verbs that an entry point below does not call, and the modules that only these verbs use.
OTHER_VERBS = (
    *("deltalog.alter", "deltalog.create", "deltalog.dataset", "deltalog.doctor", "deltalog.maintenance"),
    *("deltalog.rows.merge", "deltalog.rows.update", "deltalog.rows.delete", "deltalog.rows.overwrite"),
    *("deltalog.write_contract", "deltalog.transactions", "deltalog.catalog", "deltalog.server", "deltalog.storage.s3"),
    *("deltalog.storage.dynamodb", "deltalog.storage.fsspec_store", "deltalog.storage.obstore_store"),
    *("deltalog.log.cleanup", "deltalog.log.compaction", "deltalog.log.checkpoint.writer", "deltalog.read.changes"),
    *("deltalog.read.table_stream", "deltalog.read.stream_offsets", "deltalog.log.checkpoint.schema"),
)
EXPRESSIONS = (
    *("deltalog.expressions.bind", "deltalog.expressions.bound", "deltalog.expressions.evaluate"),
    *("deltalog.expressions.compile", "deltalog.expressions.sql", "deltalog.expressions.functions"),
)
WRITING = ("deltalog.write.transaction", "deltalog.write.row_writer", "deltalog.commit.loop", "deltalog.rows")
READING = ("deltalog.read.scan", "deltalog.parquet", "deltalog.log.checkpoint.reader")
ARROW = ("pyarrow", "numpy", "deltalog.arrow_arrays", "deltalog.log.file_tables", "ssl")
# Modules of the standard library that few calls need.
STANDARD = ("concurrent.futures", "tempfile", "logging", "difflib")
TABLE = "table = DeltaTable.open(sys.argv[1])"

ENTRANCES: dict[str, tuple[str, tuple[str, ...]]] = {
    "the package": ("import deltalog", ("pyarrow", "numpy", "msgspec", "deltalog.table", "deltalog.log")),
    "the command's version": (
        "from deltalog.cli.main import main; sys.argv = ['deltalog', '--version']; run(main)",
        ("pyarrow", "numpy", "typer", "rich", "deltalog.cli.commands", "deltalog.table"),
    ),
    "the class": (
        "from deltalog import DeltaTable",
        (
            *(*OTHER_VERBS, *EXPRESSIONS, *WRITING, *READING, *ARROW, *STANDARD, "deltalog.log", "deltalog.read"),
            *("deltalog.commit_result", "hashlib", "urllib.parse"),
        ),
    ),
    "open": (
        f"from deltalog import DeltaTable; {TABLE}; assert table.version == 1 and table.schema.names == ['id', 'name']",
        (*OTHER_VERBS, *EXPRESSIONS, *WRITING, *READING, *ARROW, *STANDARD, "deltalog.log.history", "hashlib"),
    ),
    "open without a checksum": (
        "import pathlib; [each.unlink() for each in pathlib.Path(sys.argv[1], '_delta_log').glob('*.crc')]\n"
        f"from deltalog import DeltaTable; {TABLE}; assert table.version == 1 and table.snapshot().protocol",
        (*OTHER_VERBS, *EXPRESSIONS, *WRITING, *READING, *ARROW, *STANDARD, "deltalog.log.history"),
    ),
    "a version and a timestamp": (
        f"from deltalog import DeltaTable; {TABLE}; first = table.snapshot(0)\n"
        "assert table.version_at(table.history()[0].timestamp_ms).version == 1\n"
        "assert table.snapshot(timestamp=table.history()[0].timestamp_ms).metadata == first.metadata",
        (*OTHER_VERBS, *EXPRESSIONS, *WRITING, *READING, *ARROW, *STANDARD),
    ),
    "append": (
        f"from deltalog import DeltaTable; {TABLE}; assert table.append(rows()).version == 2",
        (
            *(*OTHER_VERBS, *EXPRESSIONS, "pyarrow.compute", "pyarrow.json", "deltalog.read.scan"),
            *("deltalog.read.data_skipping", "deltalog.commit.conflicts", "deltalog.write.added_files"),
            *("deltalog.write.task_files", "deltalog.log.checkpoint.reader", "deltalog.protocol.variant", "pyroaring"),
            *("deltalog.log.commit_columns", "difflib", "tempfile"),
        ),
    ),
    "scan": (
        f"from deltalog import DeltaTable; {TABLE}; assert table.to_pyarrow_table().num_rows == 4",
        (*OTHER_VERBS, *WRITING, "deltalog.expressions.sql", "deltalog.expressions.bind", "deltalog.protocol.variant"),
    ),
    "scan with a condition in Python": (
        f"from deltalog import DeltaTable, col; {TABLE}; where = (col('id') == 1) & ~col('name').is_null()\n"
        "where = where & col('name').isin(['a', 'b']) | (col('id') > col('id'))\n"
        "assert table.snapshot().scan(where=where).to_arrow().num_rows == 2",
        (
            *(*OTHER_VERBS, *WRITING, "deltalog.protocol.variant", "deltalog.expressions.compile"),
            *("deltalog.expressions.sql", "deltalog.expressions.syntax", "deltalog.expressions.tokens"),
            *("deltalog.expressions.functions.dates", "deltalog.expressions.functions.registry"),
            *("deltalog.expressions.functions.patterns", "deltalog.expressions.functions.conditional"),
        ),
    ),
    "the command's history": (
        "from deltalog.cli.main import main; sys.argv = ['deltalog', 'history', sys.argv[1]]; run(main)",
        (*OTHER_VERBS, *EXPRESSIONS, *WRITING, *READING, *ARROW),
    ),
}
PROGRAM = """
import sys, io, contextlib
def run(main):
    with contextlib.suppress(SystemExit), contextlib.redirect_stdout(io.StringIO()):
        main()
def rows():
    import pyarrow as pa
    ids = pa.Array.from_buffers(pa.int64(), 1, [None, pa.py_buffer((7).to_bytes(8, "little"))])
    return pa.RecordBatch.from_arrays([ids, pa.nulls(1, pa.string())], ["id", "name"])
%s
print(*sorted(name for name, module in sys.modules.items() if module is not None))
"""


@pytest.fixture
def table(tmp_path: Path) -> str:
    """A plain table of two data files."""
    url = str(tmp_path / "t")
    rows = pa.table({"id": pa.array([1, 2], pa.int64()), "name": ["a", "b"]})
    DeltaTable.create(url, rows.schema, data=rows).append(rows)
    return url


@pytest.mark.parametrize("entrance", ENTRANCES)
def test_an_entrance_loads_only_what_it_needs(entrance: str, table: str) -> None:
    statements, refused = ENTRANCES[entrance]
    loaded = modules_after(statements, table)
    assert "deltalog" in loaded
    assert sorted(each for each in loaded if is_below(each, (*NEVER, *refused))) == []


def test_a_module_that_an_entrance_loads_besides_is_noticed(table: str) -> None:
    statements, refused = ENTRANCES["open"]
    loaded = modules_after(statements + "; table.delete('id = 1')", table)
    found = {each for each in loaded if is_below(each, (*NEVER, *refused))}
    assert {"sqlglot", "deltalog.rows.delete", "deltalog.expressions.bind", "pyarrow.compute"} <= found


def modules_after(statements: str, table: str) -> list[str]:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM % statements, table], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


def is_below(module: str, packages: tuple[str, ...]) -> bool:
    return any(module == each or module.startswith(f"{each}.") for each in packages)
