"""The measurements, the tables in which they are reported, and notes on the remaining differences between the engines
in each comparison."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

OURS = "deltalog"
PEERS = ("deltalake", "delta-spark")
FLOOR = "floor"


@dataclass(frozen=True)
class Measurement:
    """A measurement; its results form one group of rows in the report. ``tables``: for each system that takes part,
    its table. ``call``: see worker.System."""

    key: str
    title: str
    call: str
    tables: dict[str, str]
    notes: tuple[str, ...] = field(default=())
    amount: int = 0  # the number of commits in one run, or the number of actions in one commit
    writers: int = 0  # concurrent writers

    @property
    def writes(self) -> bool:
        return self.call in _WRITING

    @property
    def counts_requests(self) -> bool:
        """Whether deltalog's call is repeated on a store that counts requests. This is done for calls that only read
        and for ``appends``."""
        return (not self.writes and self.call != "checkpoint") or self.call == "appends"

    @property
    def in_runs(self) -> bool:
        """Whether each measured call runs separately, on a fresh copy of the table."""
        return self.call in ("appends", "writers", "adds")


_WRITING = ("commit", "open+commit", "append", "open+append", "appends", "writers", "adds")


_COMMIT_NOTES = (
    "deltalog: in-commit timestamps, fsync of file and directory, conflict check, .crc written. deltalake: a table "
    "without in-commit timestamps (it refuses to write tables that have them), no fsync, no .crc; updating its handle "
    "(update_incremental) between commits is not counted. delta-spark: OptimisticTransaction called directly, so "
    "without DataFrame and data file; .crc written.",
    "floor: fsync the bytes, link them and fsync the directory; the log is not read.",
    "No system writes a checkpoint (delta.checkpointInterval is 1,000,000).",
)
_OPEN_NOTES = ("Like commit, but with opening the table included: each repeat opens it again.",)
_APPEND_NOTES = (
    "Batches of 100 rows of three columns, each written as one Parquet file and one commit, through one handle; ms are "
    "per commit. deltalog: in-commit timestamps, data file, commit and their directories fsynced, conflict checks, "
    ".crc written. deltalake: write_deltalake with an open DeltaTable, no in-commit timestamps, no fsync, no .crc. "
    "delta-spark: DataFrame.write.save, .crc written, no fsync; a tenth of the commits in each run.",
    "floor: fsync and link the bytes of the same data file and of a commit, and fsync both directories.",
    "checkpoints: with delta.checkpointInterval = 10 for all systems; otherwise no checkpoint is due.",
)
_WRITERS_NOTES = (
    "Like appends, by this number of concurrent processes, which are warmed up first: total wall time per commit. "
    "Every acknowledged commit is then looked up in the log. deltalake gives up after 15 lost races; the append is "
    "repeated, and the repetition counts. delta-spark: threads of one JVM, because its log store for local disks is "
    "safe only within one JVM.",
    "floor: if a name is taken, link to the next one; the winner's commit is not read.",
)
_ADDS_NOTES = (
    "One commit of this number of add actions with statistics of eight columns, passed as each system's own objects, "
    "which are created beforehand: Transaction.add, create_write_transaction, OptimisticTransaction.commit.",
    "floor: fsync and link the bytes of the same actions, which are created beforehand.",
)
_LOG_APPEND_NOTES = ("Like commit and open+commit, with 100 rows written to a data file.",)
_RESOLVE_NOTES = (
    "deltalog: open and version_at. deltalake: DeltaTable(without_files=True) and load_as_version, its nearest "
    "equivalent, which uses file modification times and also loads that version's protocol and metadata. "
    "delta-spark: DeltaHistoryManager.getActiveCommitAtTime after DeltaLog.forTable.",
    "floor: one listing, sorted.",
)
_VERSION_AT_NOTES = (
    "Like resolve, with a handle that is already open; deltalake's call also loads the version. ict1m is 5 GB on disk.",
)
_LOAD_NOTES = (
    "deltalog: open, snapshot(timestamp=…).files(), statistics left as text. deltalake: DeltaTable, load_as_version, "
    "get_add_actions, statistics parsed, by file modification times. delta-spark: timestampAsOf and inputFiles.",
)
_COPIED_NOTES = (
    "The same log after a copy, so file modification times are useless. This measures whether the "
    "answers are right, not the time.",
)
_NOCRC_NOTES = (
    "The same log without .crc files: protocol and metadata then come from the checkpoint and the commits after it, "
    "and these reads are counted too.",
)
_FILES_NOTES = (
    "Raw statistics: deltalog leaves them as JSON text; deltalake always parses them. delta-spark counts allFiles and "
    "adds up their sizes (files are replayed and cached in the JVM, and no row of allFiles reaches Python).",
    "floor: pyarrow reads the same columns of the checkpoint, or without a checkpoint the bytes of the commits; "
    "nothing is checked, replayed or filtered.",
)
_STATISTICS_NOTES = (
    "All statistics parsed, the same work for all systems: min, max and null count of all columns as Arrow columns. "
    "delta-spark parses and hashes them in the JVM.",
    "floor: pyarrow reads the columns, and its JSON parser reads the text (it infers the types, and leaves "
    "timestamps in whole seconds); if the checkpoint has the struct, only the struct's columns.",
)
_PRUNE_NOTES = (
    "The files that may hold ids of a range. deltalog: snapshot().scan(where=…).files(). deltalake lists files by "
    "partition only, so get_add_actions(flatten=True) is filtered with pyarrow. delta-spark: a filtered DataFrame's "
    "inputFiles.",
)
_PROTOCOL_NOTES = (
    "deltalog: open, snapshot().protocol and metadata. deltalake: DeltaTable(without_files=True). delta-spark: "
    "DeltaLog.forTable and update.",
)
_CHECKPOINT_NOTES = (
    "Open the table and write a checkpoint of its latest version, from the last checkpoint (statistics as JSON text) "
    "and three commits. deltalog: statistics as text and as structs, zstd, fsync, read back. deltalake: "
    "create_checkpoint, uncompressed, no fsync. delta-spark: DeltaLog.checkpoint, snappy.",
)
_HISTORY_NOTES = ("Every commit with its time and operation. floor: the first 4 KiB of each commit.",)


def plan(quick: bool) -> list[Measurement]:
    """The measurements, in the order of the report."""
    return [
        *_commits(quick),
        *_appends(quick),
        *_writers(quick),
        *_adds(quick),
        *_checkpoints(quick),
        *_time_travel(quick),
        *_history(quick),
        *_live_files(quick),
    ]


def growth(quick: bool) -> list[list[str]]:
    """Groups of measurement keys; within a group, each table is twice as large as the one before."""
    tables = (
        (("files2k", "files4k"), ("commits20", "commits40"))
        if quick
        else (("files250k", "files500k", "files1m"), ("commits1k", "commits2k", "commits4k"))
    )
    return [[f"files:{name}" for name in names] for names in tables]


def _commits(quick: bool) -> Iterator[Measurement]:
    lengths = ("10", "100") if quick else ("10", "100", "1k", "10k")
    for call, title, notes in (
        ("commit", "commit, open handle", _COMMIT_NOTES),
        ("open+commit", "open and commit", _OPEN_NOTES),
    ):
        for length in lengths:
            ict, plain = f"ict{length}", f"noict{length}"
            tables = {OURS: ict, "deltalake": plain, FLOOR: ict}
            if length in ("10", "10k") and call == "commit":
                tables["delta-spark"] = ict
            yield Measurement(f"{call}:{length}", f"{title}, {length} commits", call, tables, notes)


def _appends(quick: bool) -> Iterator[Measurement]:
    amount = 20 if quick else 200
    for suffix, title in (("", ""), ("-checkpoints", ", a checkpoint each 10")):
        yield Measurement(
            f"appends:{amount}{suffix}", f"{amount} appends{title}", "appends", _new(suffix), _APPEND_NOTES, amount
        )
    length = "100" if quick else "10k"
    tables = {OURS: f"ict{length}", "deltalake": f"noict{length}", FLOOR: f"ict{length}"}
    if not quick:
        tables["delta-spark"] = f"ict{length}"
    for call, title in (("append", "append, open handle"), ("open+append", "open and append")):
        yield Measurement(f"{call}:{length}", f"{title}, {length} commits", call, tables, _LOG_APPEND_NOTES)


def _writers(quick: bool) -> Iterator[Measurement]:
    for count in (2,) if quick else (2, 4, 8):
        amount = 20 if quick else 240
        title = f"{count} writers, {amount} appends"
        yield Measurement(f"writers:{count}", title, "writers", _new(""), _WRITERS_NOTES, amount, count)


def _adds(quick: bool) -> Iterator[Measurement]:
    tables = {**_everyone("ict1"), "deltalake": "noict1"}
    for amount in (1, 1_000) if quick else (1, 1_000, 100_000):
        yield Measurement(f"adds:{amount}", f"commit of {amount:,} adds", "adds", tables, _ADDS_NOTES, amount)


def _new(suffix: str) -> dict[str, str]:
    return {**_everyone(f"new{suffix}"), "deltalake": f"new-noict{suffix}"}


def _checkpoints(quick: bool) -> Iterator[Measurement]:
    for name, files in (("files2k", 2_000),) if quick else (("files100k", 100_000), ("files1m", 1_000_000)):
        title = f"checkpoint of {files:,} files"
        yield Measurement(f"checkpoint:{name}", title, "checkpoint", _peers_only(name), _CHECKPOINT_NOTES)


def _time_travel(quick: bool) -> Iterator[Measurement]:
    logs = ("ict100",) if quick else ("ict10k", "ict100k")
    copied, without_checksums = f"{logs[0]}-copied", f"{logs[0]}-nocrc"
    for name in logs:
        title = f"TIMESTAMP AS OF, resolve, {name}"
        yield Measurement(f"resolve:{name}", title, "resolve", _everyone(name), _RESOLVE_NOTES)
    for name in (logs[-1], *(() if quick else ("ict1m",))):
        title = f"TIMESTAMP AS OF, resolve on an open handle, {name}"
        tables = _peers_only(name) if name == logs[-1] else {OURS: name, "deltalake": name}
        yield Measurement(f"version_at:{name}", title, "version_at", tables, _VERSION_AT_NOTES)
    for name in (*logs, copied):
        notes = _COPIED_NOTES if name == copied else _LOAD_NOTES
        title = f"TIMESTAMP AS OF, resolve and load, {name}"
        yield Measurement(f"resolve+load:{name}", title, "travel", _peers_only(name), notes)
    title = f"TIMESTAMP AS OF, resolve, {without_checksums}"
    yield Measurement(f"resolve:{without_checksums}", title, "resolve", {OURS: without_checksums}, _NOCRC_NOTES)


def _history(quick: bool) -> Iterator[Measurement]:
    name = "ict100" if quick else "ict10k"
    yield Measurement(f"history:{name}", f"history, {name}", "history", _everyone(name), _HISTORY_NOTES)


def _live_files(quick: bool) -> Iterator[Measurement]:
    size = "2k" if quick else "1m"
    layouts = [f"files{size}{layout}" for layout in ("", "-sidecars", "-parts", "-deltalog")]
    small = [] if quick else ["files100k"]
    grown = [key.removeprefix("files:") for keys in growth(quick) for key in keys]
    changes = "changes100" if quick else "changes10k"
    for name in dict.fromkeys((*layouts, *small, *grown, changes)):
        yield Measurement(f"files:{name}", f"snapshot, raw statistics, {name}", "files", _everyone(name), _FILES_NOTES)
    for name in (layouts[0], layouts[-1]):
        title = f"snapshot, all statistics parsed, {name}"
        yield Measurement(f"statistics:{name}", title, "statistics", _everyone(name), _STATISTICS_NOTES)
    for name in (layouts[0], layouts[-1]):
        yield Measurement(f"prune:{name}", f"ids in ten files, {name}", "prune", _peers_only(name), _PRUNE_NOTES)
    for name in (layouts[0], f"files{size}-nocrc"):
        title = f"protocol and metadata, {name}"
        yield Measurement(f"protocol:{name}", title, "protocol", _peers_only(name), _PROTOCOL_NOTES)


def _everyone(table: str) -> dict[str, str]:
    return dict.fromkeys((OURS, *PEERS, FLOOR), table)


def _peers_only(table: str) -> dict[str, str]:
    return dict.fromkeys((OURS, *PEERS), table)
