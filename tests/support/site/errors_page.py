"""Writes docs/errors.md: each error class and its code, what happened, what to do, and the message of a real call.

``python -m tests.support.site.errors_page`` makes the calls of ``error_examples`` and writes the page.
"""

from __future__ import annotations

import inspect
import re
import tempfile
from collections.abc import Iterator
from pathlib import Path

from deltalog import errors
from deltalog.deltalake import exceptions
from deltalog.errors import DeltaLogError, Outcome
from tests.support.site.error_examples import EXAMPLES, Example, raised_by

PAGE = Path(__file__).resolve().parents[3] / "docs" / "errors.md"
HEAD = """# Errors

<!-- written by python -m tests.support.site.errors_page -->

Every error that deltalog raises on purpose is a `DeltaLogError`. Its message says what happened, where, and what to
do. Programs use its class, its `code`, its attributes, and its `outcome`, which says whether the change of the call was
committed:

```python
import pyarrow as pa
from deltalog import DeltaTable, SchemaMismatchError
from deltalog.errors import Outcome

events = DeltaTable.create("events", pa.schema([("id", pa.int64())]))
try:
    events.append(pa.table({"id": ["one"]}))
except SchemaMismatchError as error:
    print(error.code, error.message)
    assert error.outcome is Outcome.NOTHING_COMMITTED
```

Codes are added, never renamed. With `--json`, `deltalog` prints the
[code and the message](cli.md#for-people-and-for-scripts) of an error. The messages below are those of real calls.

"""
OUTCOMES = {
    Outcome.NOTHING_COMMITTED: "The commit is not in the log and will not be. The call can be repeated.",
    Outcome.UNKNOWN: "The commit may be in the log, or a pending request may still put it there. Determine the outcome "
    "before the call is repeated, and delete no file.",
    Outcome.PARTLY_COMMITTED: "The first commit of the call is in the log. Repeating the call makes the others.",
    Outcome.COMMITTED: "An earlier call committed the change. This call changed nothing.",
}
_WARNINGS = "\n## Warnings\n\nThey are issued with the module `warnings`, and are in `deltalog.errors`.\n\n"
_DELTALAKE = """
## Errors of deltalog.deltalake

[`deltalog.deltalake`](from-deltalake.md) raises the errors of deltalake. Their `__cause__` is the error of deltalog.
Their codes:

"""
_SPARK = """
## Errors of spark_ext

Statements and calls of [`spark_ext`](reference/spark_ext.md) raise the errors above. Where PySpark or delta-spark
raises an error of its own, the error is also of that class.

| Class | Code | What happened | What to do |
| --- | --- | --- | --- |
"""
SPARK_ERRORS = (
    ("ArgumentTypeError", "INVALID_ARGUMENT_TYPE", "An argument has the wrong type.", "Change the call."),
    ("ColumnKindError", "UNSUPPORTED_FEATURE", "`spark_ext` cannot create a column of this kind.", "Leave it out."),
    ("ExistsError", "TABLE_EXISTS", "The location of a new table has a table.", "Use `createOrReplace`."),
    ("ExpressionError", "INVALID_EXPRESSION", "A column does not exist, or types do not match.", "Correct the text."),
    ("JobFailedError", "SPARK_JOB_FAILED", "The job of a write failed. Nothing was committed.", "Repeat the write."),
    ("MissingTableError", "TABLE_NOT_FOUND", "There is no table to replace.", "Create the table."),
    (
        "NameNotRegisteredError", "NAME_NOT_REGISTERED", "The rows are written; the name is not registered.",
        "Call `register_table`, and do not write again.",
    ),
    ("SqlSyntaxError", "INVALID_SYNTAX", "The text is no expression, type or statement.", "Correct the text."),
)  # fmt: skip
TAIL = """
## Codes of the command line

With `--json`, `deltalog` also prints codes that belong to no class:

| Code | What happened | What to do |
| --- | --- | --- |
| `USAGE` | The command, an argument or an option is wrong. | Run the command with `--help`. |
| `INTERRUPTED` | Somebody pressed Ctrl-C. | Run the command again if its work is still wanted. |
| `OS_ERROR` | The operating system refused something, such as writing the output. | Look at the message. |
| `INTERNAL_ERROR` | deltalog has a bug. | Report it, with the traceback that `DELTALOG_TRACEBACK=1` prints. |
"""
#: What to do about each error, for those whose message alone does not say it in all cases.
REMEDIES = {
    "DeltaLogError": "Catch it where any failure is handled in the same way; otherwise catch the classes below.",
    "CallError": "Change the call. The same call on the same table fails again.",
    "InvalidTimestampError": "Pass an aware datetime, milliseconds since the epoch, or ISO text with an offset or `Z`; "
    "or pass `time_zone=`.",
    "InvalidPropertyError": "Use a name and a value from [the table properties](table-properties.md).",
    "SchemaMismatchError": "Convert the data, or change the table: `merge_schema=True` adds columns, "
    "`overwrite_schema=True` replaces them.",
    "ConstraintViolationError": "Remove or correct the rows that the message counts, or drop the constraint.",
    "InvalidActionError": "Correct the program that staged the action or named the file.",
    "FilesCommittedError": "Nothing: the files are in the table. `version` says since when.",
    "UnsafeStoreError": "Use [a store that creates files exclusively](stores.md), or "
    "`unsafe_single_writer=True` if there is only ever one writer.",
    "BlobTableRequiredError": "Write to a table that `DeltaTable.create_for_blobs` created.",
    "RowTableRequiredError": "Write records to a table of rows, and bytes to this one.",
    "MissingRecordsError": "Pass an empty list to write no rows.",
    "UnpartitionedTableRequiredError": "Collect the records in a table and call `append`.",
    "NotFoundError": "Name something that exists.",
    "EntityNotFoundError": "List what the catalog has: `deltalog tables list`, `deltalog txn list`.",
    "CatalogNotFoundError": "Use the name of the catalog that the server serves.",
    "SchemaNotFoundError": "Create the schema, or correct its name.",
    "TableNotFoundError": "Correct the location, or create the table.",
    "EmptyDatasetError": "Write to the dataset first.",
    "VersionNotFoundError": "Choose a version from `earliest` to `latest`. Versions that log clean-up or vacuum "
    "removed cannot be rebuilt.",
    "TimestampOutOfRangeError": "Choose a time within the history, or allow the nearest version: "
    '`version_at(…, before="earliest", after="latest")`.',
    "TableExistsError": "Open the table, or choose another location.",
    "TableReplacedError": "Check that the table that is there now is the intended one, then repeat the call.",
    "RowCountError": "Check that the writer and the committer use the same storage.",
    "UnsupportedFeatureError": "Use a client that supports the `features`, or drop them with such a client.",
    "FeatureDropIncompleteError": "Do what the cause says, then repeat the call.",
    "CorruptTableError": "Run [`deltalog check`](doctor.md), which names the damage and repairs what can be repaired.",
    "InvalidCommitError": "Run [`deltalog check`](doctor.md); restore the file from a copy.",
    "MissingVersionError": "Restore the commit file from a copy; [`deltalog check`](doctor.md) lists what is readable.",
    "InvalidCheckpointError": "Run `deltalog checkpoint` if the commits still exist; otherwise restore the file.",
    "InvalidEnablementError": "Run [`deltalog check`](doctor.md), which says which of the two properties is wrong.",
    "MissingInCommitTimestampError": "Run [`deltalog check`](doctor.md): a writer without support for in-commit "
    "timestamps wrote the commit.",
    "InvalidDataFileError": "Restore the file, or give up its rows: `remove_missing_files`.",
    "UnsafePathError": "Find out who wrote the path. If the files are meant, allow their location: `allowed_paths=`.",
    "CommitConflictError": "Read the table again and plan the change again, as `DeltaTable.retrying` does.",
    "MetadataChangedError": "Read the table again: its columns or properties are different.",
    "ProtocolChangedError": "Read the table again: it needs other features.",
    "ConcurrentAppendError": "Read the rows that were added, and plan the change again.",
    "ConcurrentDeleteReadError": "Read the table again: rows that this change depends on are gone.",
    "ConcurrentDeleteDeleteError": "Read the table again, and plan the change again.",
    "ConcurrentTransactionError": "Check whether another run of the same job committed this batch.",
    "VersionConflictError": "Read the latest version, and decide whether the change is still right.",
    "TransactionStateError": "Describe the transaction: `describe_transaction`.",
    "TransactionCanceledError": "Start another transaction. `conflicts` has the reason, if this call found it.",
    "TransactionAbortedError": "Start another transaction.",
    "TransactionCommittedError": "Nothing: the transaction is committed.",
    "ChangeAfterCommitError": "Start another transaction for this change.",
    "TransactionCommitInProgressError": "Wait until the other call has ended, then describe the transaction.",
    "ConcurrentModificationError": "Repeat the call.",
    "TransactionContentionError": "Repeat the commit: the transaction is still active.",
    "ObjectBeingDeletedError": "Use another name, or wait until the clean-up has ended.",
    "TimestampAheadError": "Correct the clock of the writer. If the table itself is ahead, run "
    "[`deltalog tables restart-timestamps`](commands.md#tables-restart-timestamps).",
    "UnpublishedCommitsError": "Publish the commits of the table, then repeat the commit.",
    "ResourceNotReadyError": "Register the table with the catalog, and give it the features that the message names.",
    "CatalogBehindLogError": "Run [`deltalog tables resync`](commands.md#tables-resync).",
    "CommitAttemptsExhaustedError": "Try again later, or let fewer writers commit at once.",
    "CommitStateUnknownError": "Call `error.resolve()`. Never repeat the commit before its outcome is known.",
    "StoreError": "Check the store: its address, its credentials, and whether it is reachable.",
    "CoordinatorError": "Check the database of the catalog.",
    "CatalogRequestError": "Look at `error_type` and `status`: the server says why it refused.",
    "OperationTimeoutError": "Ask for the outcome of the call before it is repeated: `describe_transaction`, or the "
    "version of the table.",
    "UnansweredRequestError": "Check whether the item in the DynamoDB table has changed.",
    "CommitTableError": "Create the table with `deltalog commit-table create`, or name the right one.",
    "ObjectNotFoundError": "Check the path; if the log names the object, run [`deltalog check`](doctor.md).",
    "PathExistsError": "Choose another path.",
}


def classes() -> list[type[DeltaLogError]]:
    """The error classes, in the order of the module."""
    return [each for each in vars(errors).values() if inspect.isclass(each) and issubclass(each, DeltaLogError)]


def text() -> str:
    with tempfile.TemporaryDirectory() as place:
        messages = {name: raised_by(example, Path(place) / name) for name, example in EXAMPLES.items()}
    outcomes = "".join(f"| {each.value} | {OUTCOMES[each]} |\n" for each in Outcome)
    parts = [HEAD, "| `outcome` | Meaning |\n| --- | --- |\n", outcomes]
    for kind in _ordered(DeltaLogError):
        parts.append(f"\n{_section(kind, messages.get(kind.__name__))}")
    warnings = [f"- `{each.__name__}`: {_described(each)}\n" for each in warning_classes()]
    return "".join([*parts, _WARNINGS, *warnings, _of_deltalake(), _of_spark(), TAIL])


def _ordered(kind: type[DeltaLogError]) -> Iterator[type[DeltaLogError]]:
    """A class, then the classes below it."""
    yield kind
    for each in classes():
        if kind in each.__bases__:
            yield from _ordered(each)


def _section(kind: type[DeltaLogError], message: str | None) -> str:
    is_top = kind is DeltaLogError or DeltaLogError in kind.__bases__
    facts = [f"Code `{kind.code}`"]
    if not is_top:
        parents = [each.__name__ for each in kind.__bases__ if issubclass(each, DeltaLogError)]
        facts.append(f"a [`{parents[0]}`](#{parents[0].lower()})")
    if kind.outcome is not Outcome.NOTHING_COMMITTED:
        facts.append(f"outcome: {kind.outcome.value}")
    parts = [
        f"{'##' if is_top else '###'} {kind.__name__}",
        "; ".join(facts) + ".",
        _described(kind),
        f"**What to do.** {REMEDIES[kind.__name__]}",
    ]
    if message is not None:
        example = EXAMPLES[kind.__name__]
        parts.append(f"{example.when}:\n\n```text\n{message}\n```")
    return "\n\n".join(parts) + "\n"


def _described(kind: type) -> str:
    """The docstring of a class, with a line for each paragraph."""
    paragraphs = re.split(r"\n\s*\n", inspect.cleandoc(kind.__doc__ or ""))
    return "\n\n".join(" ".join(each.split()) for each in paragraphs).replace("``", "`")


def warning_classes() -> list[type[Warning]]:
    return [each for each in vars(errors).values() if inspect.isclass(each) and issubclass(each, Warning)]


def _of_deltalake() -> str:
    """The errors of ``deltalog.deltalake``, which are those of deltalake."""
    kinds = [
        each for each in vars(exceptions).values() if inspect.isclass(each) and issubclass(each, exceptions.DeltaError)
    ]
    return _DELTALAKE + "".join(f"- `{each.__name__}`: `{each.code}`\n" for each in kinds)


def _of_spark() -> str:
    """The errors of ``spark_ext``. The page can be written without PySpark, so a test compares it with the classes."""
    rows = "".join(f"| `{name}` | `{code}` | {what} | {remedy} |\n" for name, code, what, remedy in SPARK_ERRORS)
    return f"{_SPARK}{rows}"


def without_example() -> list[str]:
    """The classes of which the page shows no message: those that only group others need none."""
    groups = {base.__name__ for each in classes() for base in each.__bases__}
    return [each.__name__ for each in classes() if each.__name__ not in EXAMPLES and each.__name__ not in groups]


__all__ = ["EXAMPLES", "PAGE", "REMEDIES", "Example", "classes", "text", "without_example"]

if __name__ == "__main__":
    PAGE.write_text(text(), encoding="utf-8")
