"""The output of the commands that read a table: as JSON, and as rich renderables for people."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from deltalog.cli.output import Output, facts_of, fits, plain, table_of
from deltalog.lazy_names import lazy_modules
from deltalog.log.history import LogHistory
from deltalog.presentation.activity import activity_text
from deltalog.presentation.schemas import type_text
from deltalog.presentation.text import bytes_text, count, drift_text, plural
from deltalog.presentation.values import plain_json
from deltalog.protocol.timestamps import describe, to_iso

if TYPE_CHECKING:
    import pyarrow as pa

    from deltalog import Changes, CommitAt, CommitEntry, RestoreResult, Scan, Snapshot, TimestampExplanation
else:
    lazy_modules(__name__, pa="pyarrow")

_CLOCKS = {"in-commit": "in-commit time", "file-modification": "file time"}


# ------------------------------------------------------------------------------------------------- info


def time_of(snapshot: Snapshot) -> CommitAt | None:
    """The time that history *now* shows for the version of a snapshot (an in-commit timestamp or a file time); None if
    the commit file no longer exists. (A version before an enablement may have had a time of the other kind while it was
    the latest version.)"""
    history = LogHistory(snapshot.reader)
    return history.commit_at(snapshot.version) if snapshot.version in history.candidates else None


def info(snapshot: Snapshot) -> dict[str, Any]:
    """The facts about a version."""
    at = time_of(snapshot)
    enablement = snapshot.enablement
    return {
        "table": snapshot.url,
        "version": snapshot.version,
        "timestamp_ms": None if at is None else at.timestamp_ms,
        "timestamp": None if at is None else to_iso(at.timestamp_ms),
        "clock": None if at is None else at.clock,
        "in_commit_timestamps": {
            "enabled": snapshot.in_commit_timestamps_enabled,
            "enablement": None
            if enablement is None
            else {"version": enablement.version, "timestamp_ms": enablement.timestamp_ms},
        },
        "num_files": snapshot.num_files,
        "num_rows": _num_rows(snapshot),
        "size_bytes": snapshot.size_bytes,
        "partition_columns": list(snapshot.partition_columns),
        "schema": json.loads(snapshot.schema.to_json()),
        "protocol": snapshot.protocol.to_json(),
        "metadata": snapshot.metadata.to_json(),
        "set_transactions": [
            {"app_id": t.app_id, "version": t.version, "last_updated": t.last_updated}
            for t in snapshot.set_transactions
        ],
        "domain_metadata": [{"domain": d.domain, "configuration": d.configuration} for d in snapshot.domain_metadata],
    }


def _num_rows(snapshot: Snapshot) -> int | None:
    """The number of rows according to the statistics in the log; None if a file has no statistics."""
    from deltalog.log.file_statistics import live_rows

    return live_rows(snapshot.files())


def _parsed(text: str | None) -> Any:
    if text is None:
        return None
    try:
        return json.loads(text)
    except ValueError:
        return text


def print_info(out: Output, snapshot: Snapshot) -> None:
    facts = info(snapshot)
    metadata, protocol = snapshot.metadata, snapshot.protocol
    rows: list[tuple[str, Any]] = [("Table", facts["table"])]
    if metadata.name:
        rows.append(("Name", metadata.name))
    if metadata.description:
        rows.append(("Description", metadata.description))
    rows.append(("Version", str(facts["version"])))
    if facts["timestamp_ms"] is not None:
        rows.append(("Committed", f"{describe(facts['timestamp_ms'])}, {_CLOCKS[facts['clock']]}"))
    rows.append(("In-commit times", _enablement_text(snapshot)))
    held = f"{plural(facts['num_files'], 'file')}, {bytes_text(facts['size_bytes'])}"
    if facts["num_rows"] is not None:
        held += f", {plural(facts['num_rows'], 'row')}"
    rows.append(("Holds", held))
    rows.append(("Partitioned by", ", ".join(snapshot.partition_columns) or "nothing"))
    features = sorted({*(protocol.reader_features or ()), *(protocol.writer_features or ())})
    versions = f"reader {protocol.min_reader_version}, writer {protocol.min_writer_version}"
    rows.append(("Protocol", versions + (f": {', '.join(features)}" if features else "")))
    rows.append(("Table id", metadata.id))
    for transaction in facts["set_transactions"]:
        rows.append(("Application", f"{transaction['app_id']} has written up to {transaction['version']}"))
    for domain in facts["domain_metadata"]:
        rows.append(("Domain", f"{domain['domain']}: {domain['configuration']}"))
    out.print(facts_of(rows))
    columns = table_of()
    for heading in ("Column", "Type", "Null"):
        columns.add_column(heading, overflow="fold")
    for field in snapshot.schema.fields:
        columns.add_row(
            plain(field.name), plain(type_text(field.data_type), "cyan"), "" if field.nullable else "not null"
        )
    out.print("", columns)
    if metadata.configuration:
        properties = table_of()
        properties.add_column("Property", overflow="fold")
        properties.add_column("Value", overflow="fold")
        for key, value in sorted(metadata.configuration.items()):
            properties.add_row(plain(key), plain(value))
        out.print("", properties)


def _enablement_text(snapshot: Snapshot) -> str:
    if not snapshot.in_commit_timestamps_enabled:
        return "off: file modification times are used, and change when the table is copied"
    enablement = snapshot.enablement
    if enablement is None:
        return "on since version 0"
    return f"on since version {enablement.version}, {describe(enablement.timestamp_ms)}"


# ------------------------------------------------------------------------------------------------- files


def files(snapshot: Snapshot, limit: int | None) -> Iterator[dict[str, Any]]:
    """One document per live file, with parsed statistics."""
    table = snapshot.files()
    for row in (table if limit is None else table.slice(0, limit)).to_pylist():
        row["partition_values"] = dict(row["partition_values"] or ())
        row["tags"] = None if row["tags"] is None else dict(row["tags"])
        row["stats"] = _parsed(row["stats"])
        yield plain_json(row)


def print_files(out: Output, snapshot: Snapshot, limit: int | None) -> None:
    listing = table_of()
    listing.add_column("Path", overflow="fold", ratio=1)
    if snapshot.partition_columns:
        listing.add_column("Partition", overflow="fold")
    for heading in ("Rows", "Size"):
        listing.add_column(heading, justify="right", no_wrap=True)
    listing.add_column("Modified (UTC)", no_wrap=True)
    deleted = snapshot.files()["deletion_vector"].null_count < snapshot.num_files
    if deleted:
        listing.add_column("Deleted", justify="right")
    shown = 0
    for file in files(snapshot, limit):
        shown += 1
        cells = [plain(file["path"])]
        if snapshot.partition_columns:
            cells.append(
                plain(" ".join(f"{k}={'null' if v is None else v}" for k, v in file["partition_values"].items()))
            )
        records = file["stats"].get("numRecords") if isinstance(file["stats"], dict) else None
        cells += [plain(count(records) if isinstance(records, int) else "?"), plain(bytes_text(file["size"]))]
        cells.append(plain(to_iso(file["modification_time"])))
        if deleted:
            vector = file["deletion_vector"]
            cells.append(plain("" if vector is None else count(vector["cardinality"] or 0)))
        listing.add_row(*cells)
    out.print(listing)
    out.print(f"{plural(snapshot.num_files, 'file')}, {bytes_text(snapshot.size_bytes)}, in version {snapshot.version}"
              + _rest(snapshot.num_files - shown))  # fmt: skip


def _rest(remaining: int) -> str:
    return f"; {count(remaining)} more: --limit 0 shows all" if remaining > 0 else ""


# -------------------------------------------------------------------------------------------------- rows


def rows(scan: Scan | Changes, limit: int | None) -> Iterator[dict[str, Any]]:
    """Returns one document per row, reading one file at a time."""
    each = (row for batch in scan.batches() for row in batch.to_pylist(maps_as_pydicts="lossy"))
    for row in itertools.islice(each, limit):
        yield plain_json(row)


def print_rows(out: Output, scan: Scan | Changes, limit: int | None) -> int:
    """Print the rows; returns their number."""
    listing = table_of()
    for field in scan.arrow_schema:
        listing.add_column(plain(field.name), overflow="fold", justify="right" if _is_number(field.type) else "left")
    records = []
    for row in rows(scan, limit):
        cells = [plain("null", "dim") if v is None else plain(_cell(v)) for v in row.values()]
        listing.add_row(*cells)
        records.append(zip(row, cells, strict=True))
    if len(scan.arrow_schema) < 5 or fits(listing):
        out.print(listing)
    else:  # one line per value is more readable than many narrow columns
        for record in records:
            out.print(facts_of(record), "")
    return len(records)


def print_rows_of(out: Output, snapshot: Snapshot, scan: Scan, limit: int | None) -> None:
    """Print rows of a version, and the total number of rows if there are more."""
    shown = print_rows(out, scan, limit)
    total = None if scan.where is not None else _num_rows(snapshot)
    if total is None:
        first = "The first " if shown == limit else ""
        out.print(f"{first}{plural(shown, 'row')} of version {snapshot.version}")
    else:
        out.print(f"{count(shown)} of {plural(total, 'row')} in version {snapshot.version}" + _rest(total - shown))


def _is_number(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind))


def _cell(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


# ------------------------------------------------------------------------------------------------ history


def commits_of(snapshot: Snapshot) -> range:
    """The versions whose commit files still exist. Cost: 1 LIST."""
    listed = snapshot.reader.list_from().commits
    return range(listed[0], listed[-1] + 1) if listed else range(0)


def print_history(out: Output, entries: list[CommitEntry], commits: range) -> None:
    listing = table_of()
    listing.add_column("Version", justify="right", no_wrap=True)
    listing.add_column("Committed (UTC)", no_wrap=True)
    listing.add_column("Clock", no_wrap=True)
    listing.add_column("Drift", justify="right", no_wrap=True)
    listing.add_column("Operation", overflow="fold", min_width=13)
    listing.add_column("Changes, and “user metadata”", overflow="fold")
    for entry in entries:
        ict_ms = entry.in_commit_timestamp_ms
        quoted = f"“{entry.user_metadata}”" if entry.user_metadata else ""
        style = "green" if entry.clock == "in-commit" else "yellow"
        cells = [
            plain(str(entry.version), "bold"),
            plain("missing", "bold red") if entry.timestamp_ms is None else plain(to_iso(entry.timestamp_ms)),
            plain("in-commit" if entry.clock == "in-commit" else "file time", style),
            plain("" if ict_ms is None else drift_text(entry.file_modification_time_ms - ict_ms)),
            plain(entry.operation or "unknown"),
            plain(
                "  ".join(part for part in (activity_text(entry.operation_metrics, entry.operation), quoted) if part)
            ),
        ]
        listing.add_row(*cells)
    out.print(listing)
    out.print(plural(len(commits), "commit") + _rest(len(commits) - len(entries)))


# ------------------------------------------------------------------------------------------------ resolve


def explanation(explained: TimestampExplanation, clamped: CommitAt | None) -> dict[str, Any]:
    """The explanation of a timestamp's resolution as a JSON document. ``clamped``: the commit to which the timestamp
    resolves if --before and --after are applied; None if it resolves to none."""
    return {
        **explained.to_json(),
        "clamped": None
        if clamped is None
        else {
            "version": clamped.version,
            "timestamp_ms": clamped.timestamp_ms,
            "timestamp": to_iso(clamped.timestamp_ms),
            "clock": clamped.clock,
        },
    }


def print_explanation(out: Output, explained: TimestampExplanation, clamped: CommitAt | None) -> None:
    """Print the explanation in two columns. The reason for a refusal is in the error that follows."""
    styles = {"Answer": "bold green" if explained.answer else "bold red", "Clamped": "bold yellow", "Note": "yellow"}
    facts = []
    for label, text in explained.facts():
        if label == "Refused" and clamped is None:
            facts.append(("Answer", plain("none: the instant is refused", styles["Answer"])))
            label, text = _outside(explained)
        elif label == "Refused" and clamped is not None:
            label, text = "Clamped", f"to version {clamped.version}, committed at {describe(clamped.timestamp_ms)}"
        facts.append((label, plain(text, styles.get(label, ""))))
    out.print(facts_of(facts))


def _outside(explained: TimestampExplanation) -> tuple[str, str]:
    """The commit next to a refused instant, and the option that selects it."""
    if explained.requested_ms > explained.latest.timestamp_ms:
        label, at, place, option = "Latest", explained.latest, "before", "--after latest"
    else:
        label, at, place, option = "Earliest", explained.earliest, "after", "--before earliest"
    committed = f"version {at.version}, committed at {describe(at.timestamp_ms)}"
    return label, f"{committed}, which is {place} the instant; {option} selects it"


# --------------------------------------------------------------------------------------------------- restore


def restored(result: RestoreResult) -> dict[str, Any]:
    """The result of a restore, or its plan, as a JSON document."""
    commit = result.commit
    return {
        "restored_version": result.version,
        "version": None if commit is None else commit.version,
        "committed": commit is not None and not commit.skipped,
        "added_files": result.added_files,
        "added_bytes": result.added_bytes,
        "removed_files": result.removed_files,
        "removed_bytes": result.removed_bytes,
        "files_after": result.files_after,
        "bytes_after": result.bytes_after,
        "changes_metadata": result.changes_metadata,
        "missing_files": list(result.missing_files),
    }


def print_restored(out: Output, result: RestoreResult) -> None:
    """Print the result or plan of a restore."""
    commit = result.commit
    if result.changes_nothing:
        out.print(f"The table is already in the state of version {result.version}; there is nothing to commit.")
        return
    would = "would be " if commit is None else ""
    facts = [
        ("Files added", f"{count(result.added_files)}, {bytes_text(result.added_bytes)}"),
        ("Files removed", f"{count(result.removed_files)}, {bytes_text(result.removed_bytes)}"),
        ("Files after", f"{count(result.files_after)}, {bytes_text(result.bytes_after)}"),
        ("Columns and properties", "restored" if result.changes_metadata else "unchanged"),
    ]
    if result.missing_files:
        facts.append(("Missing files", f"{count(len(result.missing_files))}, such as {result.missing_files[0]}"))
    at = "" if commit is None else f" as version {commit.version}"
    out.print(f"Version {result.version} {would}restored{at}.", facts_of(facts))
