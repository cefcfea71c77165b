"""What is measured, on which tables, and what each comparison leaves unequal."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

OURS = "deltalog"
PEERS = ("deltalake", "delta-spark")
FLOOR = "floor"


@dataclass(frozen=True)
class Measurement:
    """One row group. ``tables``: the table of each system that takes part. ``call``: see worker.System."""

    key: str
    title: str
    call: str
    tables: dict[str, str]
    notes: tuple[str, ...] = field(default=())

    @property
    def writes(self) -> bool:
        return self.call in ("commit", "open+commit")


_COMMIT_NOTES = (
    "deltalog: in-commit timestamps, fsync of file and directory, conflict check, .crc written. deltalake: a "
    "table without in-commit timestamps (it refuses the others), no fsync, no .crc; bringing its handle up to date "
    "(update_incremental) between commits is not counted. delta-spark: OptimisticTransaction called directly, so "
    "without DataFrame and data file; .crc written.",
    "floor: the bytes fsynced and linked, the directory fsynced; no log is read or understood.",
    "No checkpoint is due in any of them (delta.checkpointInterval is 1,000,000).",
)
_OPEN_NOTES = ("As commit, with opening the table in the time; each repeat opens it anew.",)
_RESOLVE_NOTES = (
    "deltalog: open and version_at. deltalake: DeltaTable(without_files=True) and load_as_version, its nearest "
    "equivalent; it goes by file modification times and loads that version's protocol and metadata too. "
    "delta-spark: DeltaHistoryManager.getActiveCommitAtTime after DeltaLog.forTable.",
    "floor: one listing, sorted.",
)
_LOAD_NOTES = (
    "deltalog: open, snapshot(timestamp=…).files(), statistics left as text. deltalake: DeltaTable, load_as_version, "
    "get_add_actions, statistics parsed, by file modification times. delta-spark: timestampAsOf and inputFiles.",
)
_COPIED_NOTES = (
    "The same log after a copy: file modification times say nothing. Wrong answers are the point, not the time.",
)
_NOCRC_NOTES = (
    "The same log without .crc files: protocol and metadata then come from the checkpoint and the commits after it, "
    "and these reads are counted too.",
)
_FILES_NOTES = (
    "Raw statistics: deltalog leaves them as the text that they are in the log; deltalake parses them always. "
    "delta-spark counts allFiles and adds up their sizes (files are replayed and cached in the JVM, no row of theirs "
    "reaches Python).",
    "floor: pyarrow reads the same columns of the checkpoint, or the bytes of the commits where there is none; "
    "nothing is checked, replayed or filtered.",
)
_STATISTICS_NOTES = (
    "All statistics parsed, equal work: minima, maxima and null counts of all columns as Arrow columns. delta-spark "
    "parses them in the JVM and hashes them there.",
    "floor: pyarrow reads the columns, and its JSON parser reads the text (it infers the types, and leaves "
    "timestamps to the second); the columns of the struct alone where the checkpoint has it.",
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
_HISTORY_NOTES = ("Every commit with its time and operation. floor: the first 4 KiB of each commit.",)


def plan(quick: bool) -> list[Measurement]:
    """The measurements, in the order of the report."""
    return [*_commits(quick), *_time_travel(quick), *_history(quick), *_live_files(quick)]


def growth(quick: bool) -> list[list[str]]:
    """Keys of measurements, each of twice the size of the one before."""
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


def _time_travel(quick: bool) -> Iterator[Measurement]:
    logs = ("ict100",) if quick else ("ict10k", "ict100k")
    copied, without_checksums = f"{logs[0]}-copied", f"{logs[0]}-nocrc"
    for name in logs:
        title = f"TIMESTAMP AS OF, resolve, {name}"
        yield Measurement(f"resolve:{name}", title, "resolve", _everyone(name), _RESOLVE_NOTES)
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
    for name in dict.fromkeys((*layouts, *small, *grown)):
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
