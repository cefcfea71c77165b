"""What is measured, on which tables, and what each comparison leaves unequal."""

from __future__ import annotations

from dataclasses import dataclass, field

OURS = "deltalog"
PEERS = ("deltalake", "delta-spark")
FLOOR = "floor"


@dataclass(frozen=True)
class Measurement:
    """One row group. ``tables``: the table of each system that takes part. ``call``: see worker.CALLS."""

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
    "deltalog leaves statistics as text; deltalake parses them always; delta-spark counts allFiles (files are "
    "replayed and cached in the JVM, no row reaches Python).",
    "floor: pyarrow reads the same columns, nothing is checked or filtered.",
)


def plan(quick: bool) -> list[Measurement]:
    """The measurements, in the order of the report."""
    lengths = ("10", "100") if quick else ("10", "100", "1k", "10k")
    logs = ("ict100",) if quick else ("ict10k", "ict100k")
    copied = "ict100-copied" if quick else "ict10k-copied"
    without_checksums = "ict100-nocrc" if quick else "ict10k-nocrc"
    files = "files2k" if quick else "files100k"
    found = []
    for call, title, notes in (
        ("commit", "commit, open handle", _COMMIT_NOTES),
        ("open+commit", "open and commit", _OPEN_NOTES),
    ):
        for length in lengths:
            ict, plain = f"ict{length}", f"noict{length}"
            tables = {OURS: ict, "deltalake": plain, FLOOR: ict}
            if length in ("10", "10k") and call == "commit":
                tables["delta-spark"] = ict
            found.append(Measurement(f"{call}:{length}", f"{title}, {length} commits", call, tables, notes))
    for name in logs:
        tables = dict.fromkeys((OURS, *PEERS, FLOOR), name)
        title = f"TIMESTAMP AS OF, resolve, {name}"
        found.append(Measurement(f"resolve:{name}", title, "resolve", tables, _RESOLVE_NOTES))
    for name in (*logs, copied):
        tables = dict.fromkeys((OURS, *PEERS), name)
        notes = _COPIED_NOTES if name == copied else _LOAD_NOTES
        title = f"TIMESTAMP AS OF, resolve and load, {name}"
        found.append(Measurement(f"resolve+load:{name}", title, "resolve+load", tables, notes))
    found.append(
        Measurement(
            f"resolve:{without_checksums}", f"TIMESTAMP AS OF, resolve, {without_checksums}", "resolve",
            {OURS: without_checksums}, _NOCRC_NOTES,
        )
    )  # fmt: skip
    tables = dict.fromkeys((OURS, *PEERS, FLOOR), files)
    title = f"snapshot with its files, {files}"
    found.append(Measurement(f"files:{files}", title, "files", tables, _FILES_NOTES))
    return found
