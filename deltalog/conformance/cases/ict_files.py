"""Cases about in-commit timestamps and the other files of the log: checkpoints, log compaction files, version
checksums, staged commits, and log clean-up."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from deltalog.conformance.builder import ICT_FEATURE, ICT_PROPERTY, PAIR_TIMESTAMP, PAIR_VERSION, TableBuilder
from deltalog.conformance.case import (
    ICT,
    REFERENCE,
    Case,
    Changes,
    History,
    LatestVersion,
    Log,
    MayRefuse,
    Refused,
    Rows,
    Write,
)
from deltalog.conformance.cases.common import (
    CDF,
    FUTURE,
    ICT_READERS,
    ICT_SECTION,
    Build,
    Timeline,
    case_rows,
    ids,
    minute,
)
from deltalog.conformance.cases.ict_reading import AHEAD, ENABLED, FROM_START, LATE, OFF

_COPIED = FROM_START.but(file=[9000] * 5)
_APPEND = Write("append", rows=[{"id": 100}])
_REFERENCE = {"basis": REFERENCE}
_STAGED = "terminology-commits"
_UNIQUE = "7d17ac10-5cc3-401b-bd1a-9c82dd2ea032"


def cases() -> Iterator[Case]:
    yield from case_rows("ict-checkpoint", ICT, ICT_READERS, _checkpoints())
    yield from case_rows("ict-truncated", ICT, ICT_READERS, _truncated())
    yield from case_rows("ict-compaction", ICT, "log-compaction-files", _compactions())
    yield from case_rows("ict-checksum", ICT, "version-checksum-file-schema", _checksums())
    yield from case_rows("ict-staged", ICT, _STAGED, _staged())
    yield from case_rows("ict-cleanup", ICT, "metadata-cleanup", _cleanups())


# ------------------------------------------------------------------------------------------ checkpoints


@dataclass(frozen=True)
class Checkpointed:
    """The table LATE with a checkpoint of version ``at``; the commits before it are deleted. ``kind``: "parts",
    "v2-parquet", "v2-json" or "v2-sidecars"."""

    kind: str
    at: int

    def __call__(self, table: TableBuilder) -> None:
        is_v2 = self.kind.startswith("v2")
        features = ["v2Checkpoint"] if is_v2 else []
        properties = {"delta.enableExpiredLogCleanup": "false", **({"delta.checkpointPolicy": "v2"} if is_v2 else {})}
        for version, at in enumerate(LATE.at):
            actions = [table.add([{"id": version}])]
            if version == 0:
                first = table.protocol(features, features) if is_v2 else table.protocol()
                actions[:0] = [first, table.metadata(configuration=properties)]
            if version == 3:
                pair = {ICT_PROPERTY: "true", PAIR_VERSION: "3", PAIR_TIMESTAMP: str(ENABLED)}
                listed = table.protocol([*features, ICT_FEATURE], features if is_v2 else None)
                actions[:0] = [listed, table.metadata(configuration={**properties, **pair})]
            table.commit(*actions, at_ms=minute(at), ict=version >= 3)
            if version == self.at:
                self._checkpoint(table)
        table.drop_commits(*range(self.at))

    def _checkpoint(self, table: TableBuilder) -> None:
        if self.kind == "parts":
            table.checkpoint()
            table.split_checkpoint(self.at, 3)
        else:
            form = "parquet" if self.kind == "v2-parquet" else "json"
            table.checkpoint(top_level=form, sidecar_rows=2 if self.kind == "v2-sidecars" else 10**6)


def _checkpoints() -> Iterator[tuple[object, ...]]:
    """Logs that begin with a checkpoint of another form than a classic one."""
    forms = {
        "parts": ("a checkpoint in parts", "checkpoints"),
        "v2-parquet": ("a V2 checkpoint in Parquet", "v2-spec"),
        "v2-json": ("a V2 checkpoint in JSON", "v2-spec"),
        "v2-sidecars": ("a V2 checkpoint with sidecars", "v2-spec"),
    }
    for kind, (about, section) in forms.items():
        yield (
            f"{kind}-after-enablement",
            f"Only {about} has the enablement pair: in-commit timestamps are used",
            Checkpointed(kind, 4),
            [Rows(ids(4), at_ms=minute(11)), Rows(ids(4), at_ms=minute(12) - 1), Rows(ids(5), at_ms=minute(12))],
            {"section": section},
        )
    yield (
        "v2-sidecars-at-enablement",
        "The log begins with a V2 checkpoint with sidecars of the enabling commit",
        Checkpointed("v2-sidecars", 3),
        [Rows(ids(3), at_ms=ENABLED), Rows(ids(3), at_ms=minute(11) - 1), Refused(Rows(ids(2), at_ms=ENABLED - 1))],
        {"section": "v2-spec", "basis": REFERENCE},
    )
    yield (
        "v2-json-before-enablement",
        "The log begins with a V2 checkpoint in JSON before the enablement",
        Checkpointed("v2-json", 2),
        [Rows(ids(2), at_ms=ENABLED - 1), Rows(ids(3), at_ms=ENABLED), Rows(ids(2), at_ms=minute(2))],
        {"section": "v2-spec"},
    )


def _truncated() -> Iterator[tuple[object, ...]]:
    """Logs whose first commits are gone, and what remains is not all readable or has other times."""
    orphans = _COPIED.but(checkpoints=(3,), dropped=(0,))
    yield (
        "not-readable",
        "A time of a version that no checkpoint covers is refused, though its commit exists",
        orphans,
        [Refused(Rows(ids(2), at_ms=minute(2))), Rows(ids(3), at_ms=minute(3)), Rows(ids(4))],
        _REFERENCE,
    )

    def incomplete(table: TableBuilder) -> None:
        FROM_START.but(at=(0, 1), file=[9000] * 2)(table)
        table.checkpoint()
        table.split_checkpoint(1, 3, without={2})
        for version in (2, 3, 4):
            table.commit(table.add([{"id": version}]), at_ms=minute(version), ict=True, file_ms=minute(9000))
            if version == 3:
                table.checkpoint()
        table.drop_commits(0)

    yield (
        "incomplete-checkpoint",
        "A time of a version whose checkpoint lacks a part is refused",
        incomplete,
        [Refused(Rows(ids(1), at_ms=minute(1))), Rows(ids(3), at_ms=minute(3)), Rows(ids(4), at_ms=minute(4))],
        _REFERENCE,
    )
    back = LATE.but(file=(5, 3, 4, 10, 11, 12), checkpoints=(1,), dropped=(0,))
    yield (
        "adjusted-from-first-left",
        "File times are adjusted to the first remaining commit, not to one that is gone",
        back,
        [
            Rows(ids(1), at_ms=minute(3)),
            Rows(ids(2), at_ms=minute(4)),
            Refused(Rows(ids(1), at_ms=minute(3) - 1)),
            History({1: minute(3), 2: minute(4), 3: ENABLED}),
        ],
        _REFERENCE,
    )
    gone = LATE.but(file=[9000] * 6, checkpoints=(4,), dropped=(0, 1, 2, 3))
    yield (
        "history",
        "The enabling commit is gone, and the file times of the remaining commits are those of a copy",
        gone,
        [History({4: minute(11), 5: minute(12)})],
    )
    yield (
        "only-latest",
        "Only the latest commit remains",
        LATE.but(file=[9000] * 6, checkpoints=(5,), dropped=(0, 1, 2, 3, 4)),
        [Rows(ids(5), at_ms=minute(12)), Refused(Rows(ids(4), at_ms=minute(12) - 1)), LatestVersion(5)],
        _REFERENCE,
    )
    gap = _COPIED.but(checkpoints=(3,), dropped=(2,))
    yield (
        "gap",
        "A commit between others is gone: times of other versions are right or refused",
        gap,
        [
            MayRefuse(Rows(ids(1), at_ms=minute(1))),
            MayRefuse(Rows(ids(3), at_ms=minute(3))),
            MayRefuse(Rows(ids(4), at_ms=minute(4))),
        ],
        {"section": "delta-log-entries", "rule": "version-gap"},
    )


# ------------------------------------------------------------------------------------------ log compaction


def _compacted(build: Timeline, start: int, end: int) -> Build:
    def made(table: TableBuilder) -> None:
        build(table)
        table.compact(start, end)

    return made


def _compactions() -> Iterator[tuple[object, ...]]:
    """Log compaction files have no commitInfo."""
    yield (
        "over-enablement",
        "A log compaction file of commits before and after the enablement",
        _compacted(LATE.but(file=(0, 1, 2, 9000, 9001, 9002)), 1, 4),
        [
            Rows(ids(1), at_ms=minute(1)),
            Rows(ids(2), at_ms=ENABLED - 1),
            Rows(ids(3), at_ms=ENABLED),
            Rows(ids(5), at_ms=minute(12)),
        ],
    )
    yield (
        "whole-log",
        "A log compaction file of all commits: the timestamps are those in the commits",
        _compacted(_COPIED, 0, 4),
        [Rows(ids(4)), Rows(ids(4), at_ms=minute(4)), History({n: minute(n) for n in range(5)})],
    )
    yield (
        "feed",
        "A change data feed by time over a log compaction file",
        _compacted(LATE.but(properties=CDF), 1, 4),
        [
            Changes(
                [{"id": v, "_change_type": "insert", "_commit_version": v} for v in (2, 3, 4)],
                from_ms=minute(2),
                to_ms=minute(11),
            )
        ],
    )
    yield (
        "append",
        "An append after a log compaction file whose last commit is of the year 2100",
        _compacted(AHEAD, 0, 1),
        [_APPEND, Log("ict-is", 2, FUTURE + 1), Log("commit-info-first")],
        {"section": ICT_SECTION},
    )
    yield (
        "append-late",
        "An append and a property change after a log compaction file over the enablement keep the enablement pair",
        _compacted(LATE, 2, 5),
        [
            _APPEND,
            Write("set_properties", properties={"delta.logRetentionDuration": "interval 9 days"}),
            Log("pair-is", value=["3", str(ENABLED)]),
            Log("ict-requirements"),
        ],
        {"section": ICT_SECTION},
    )


# ------------------------------------------------------------------------------------------ version checksums


def _checked(build: Timeline, ict: int | None, *later: int) -> Build:
    """A table with a version checksum that has the in-commit timestamp ``ict``. ``later``: the in-commit timestamps of
    further commits."""

    def made(table: TableBuilder) -> None:
        build(table)
        table.checksum(ict)
        for ms in later:
            version = table.next_version
            table.commit(table.add([{"id": version}]), at_ms=ms, ict=True, file_ms=minute(9000))

    return made


def _checksums() -> Iterator[tuple[object, ...]]:
    late = LATE.but(file=(0, 1, 2, 9000, 9001, 9002))
    yield (
        "right",
        "A version checksum with the in-commit timestamp and the enablement pair",
        _checked(late, minute(12)),
        [Rows(ids(5), at_ms=minute(12)), Rows(ids(3), at_ms=ENABLED), Rows(ids(2), at_ms=ENABLED - 1)],
    )
    yield (
        "without-timestamp",
        "A version checksum without a timestamp: that of the commit is used",
        _checked(_COPIED, None),
        [
            Rows(ids(4)),
            Rows(ids(4), at_ms=minute(4)),
            Rows(ids(3), at_ms=minute(4) - 1),
            History({3: minute(3), 4: minute(4)}),
        ],
        _REFERENCE,
    )
    yield (
        "without-timestamp-append",
        "An append after a version checksum without a timestamp and a commit of the year 2100",
        _checked(AHEAD, None),
        [_APPEND, Log("ict-is", 2, FUTURE + 1)],
        {"section": ICT_SECTION},
    )
    yield (
        "other-timestamp",
        "A version checksum with another timestamp than the commit: that of the commit is used",
        _checked(_COPIED, minute(90)),
        [Rows(ids(4), at_ms=minute(4)), Refused(Rows(ids(4), at_ms=minute(5))), History({4: minute(4)})],
        _REFERENCE,
    )
    yield (
        "other-timestamp-append",
        "An append after a version checksum with an earlier timestamp than the commit of the year 2100",
        _checked(AHEAD, minute(1)),
        [MayRefuse(_APPEND), Log("ict-increases"), Log("contiguous")],
        {"section": ICT_SECTION, "rule": "ict-not-increasing"},
    )
    yield (
        "of-earlier-version",
        "An append after the version checksum of an earlier version, and a commit of the year 2100 after it",
        _checked(FROM_START.but(at=(0, 1, 2)), minute(2), minute(3), FUTURE),
        [Rows(ids(3), at_ms=minute(3)), _APPEND, Log("ict-is", 5, FUTURE + 1)],
        {"section": ICT_SECTION},
    )
    yield (
        "of-table-without",
        "A version checksum with a timestamp, of a table without in-commit timestamps",
        _checked(OFF.but(file=(0, 5, 6)), minute(2)),
        [Rows(ids(1), at_ms=minute(5)), Rows(ids(2), at_ms=minute(6)), _APPEND, Log("no-ict"), Log("checksum-has-ict")],
    )


# ------------------------------------------------------------------------------------------ staged commits


def _with_leftover(directory: str, version: int, ict_ms: int, build: Timeline = _COPIED) -> Build:
    """A table with a commit of that version in a directory for commits that a coordinator has not published."""

    def made(table: TableBuilder) -> None:
        build(table)
        name = f"{version:020d}"
        published = table.log / f"{min(version, table.next_version - 1):020d}.json"
        content = published.read_text(encoding="utf-8")
        for ms in {minute(each) for each in build.at}:
            content = content.replace(f'"inCommitTimestamp":{ms},', f'"inCommitTimestamp":{ict_ms},')
        table.write_log_file(f"{directory}/{name}.{_UNIQUE}.json", content, minute(9000))

    return made


def _staged() -> Iterator[tuple[object, ...]]:
    """Commits that a coordinator has not published, in a table that has none: the log has only published commits."""
    yield (
        "after-latest",
        "A staged commit after the latest version is not part of the table",
        _with_leftover("_staged_commits", 5, minute(5)),
        [LatestVersion(4), Rows(ids(4), at_ms=minute(4)), Refused(Rows(ids(4), at_ms=minute(5)))],
        _REFERENCE,
    )
    yield (
        "of-published",
        "A staged commit of a published version has another timestamp: that of the published commit is used",
        _with_leftover("_staged_commits", 3, minute(3.5)),
        [Rows(ids(3), at_ms=minute(3)), Rows(ids(2), at_ms=minute(3) - 1), History({3: minute(3)})],
    )
    yield (
        "of-coordinated-commits",
        "A commit that was never published, in the directory of coordinated commits, is not part of the table",
        _with_leftover("_commits", 5, minute(5)),
        [LatestVersion(4), Rows(ids(4), at_ms=minute(4)), History({4: minute(4)})],
    )
    yield (
        "append",
        "An append beside a staged commit of the year 2100 has the next version, and the time of its commit",
        _with_leftover("_staged_commits", 5, FUTURE, FROM_START),
        [_APPEND, Log("latest-version", value=5), Log("ict-is-the-clock"), Log("ict-increases")],
        {"section": ICT_SECTION},
    )


# ------------------------------------------------------------------------------------------ log clean-up


def _cleanups() -> Iterator[tuple[object, ...]]:
    """Log clean-up goes by the times of commits. In the first two tables, all commits are of 2100, so that none has
    expired, and all file times are of 2001."""
    backup = FROM_START.but(
        file=[-24 * 365 * 60 + n for n in range(5)],
        checkpoints=(2,),
        damage={version: {"ict": FUTURE + version} for version in range(5)},
    )
    yield (
        "checkpoint-keeps",
        "A checkpoint deletes no commits that have not expired, though their file times are of 2001",
        backup,
        [Write("checkpoint"), Log("checkpoint", value=4), Log("commits-remain", value=[0, 1, 2, 3, 4])],
    )
    yield (
        "append-keeps",
        "An append that leads to a checkpoint deletes no commits that have not expired",
        backup.but(properties={"delta.checkpointInterval": "5"}),
        [_APPEND, Log("ict-is", 5, FUTURE + 5), Log("commits-remain", value=[0, 1, 2, 3, 4])],
    )
    expired = FROM_START.but(checkpoints=(2,), properties={"delta.checkpointInterval": "5"})
    yield (
        "commit-of-checkpoint",
        "Log clean-up keeps the commit of the first checkpoint, which alone has the timestamp of that version",
        expired,
        [_APPEND, Log("commit-of-first-checkpoint"), MayRefuse(Rows(ids(4), at_ms=minute(4)))],
    )
    yield (
        "newest-expired",
        "Log clean-up keeps the newest commit before the cut-off, whose version was current since then",
        expired,
        [_APPEND, Rows(ids(4), at_ms=minute(4)), Rows([*ids(4), {"id": 100}])],
    )
