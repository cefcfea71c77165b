"""Named checks of the log that an engine wrote. The checks read the log's JSON directly and return a message on
failure. ``deltalog.conformance.checks`` runs them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from deltalog.conformance import values
from deltalog.conformance.builder import ICT_FEATURE, ICT_PROPERTY, PAIR_TIMESTAMP, PAIR_VERSION
from deltalog.conformance.log_view import COMMIT, Checks, LogView, by_checkpoint
from deltalog.table import DeltaTable

# The tolerated difference between the clock of the test machine and that of its file system.
_SLACK_MS = 5_000
CHECKS = Checks()
_check = CHECKS.named


# --------------------------------------------------------------------------------------------- commits


@_check("latest-version")
def _latest_version(view: LogView, version: int, value: Any) -> str | None:
    """The latest commit has version ``value``."""
    return None if view.latest() == value else f"the latest commit is version {view.latest()}, not {value}"


@_check("contiguous")
def _contiguous(view: LogView, version: int, value: Any) -> str | None:
    """No version is missing between the first commit and the latest."""
    found = view.versions()
    return None if found == list(range(found[0], found[-1] + 1)) else f"the versions are {found}"


@_check("commit-info-first")
def _commit_info_first(view: LogView, version: int, value: Any) -> str | None:
    """The first action of the commit is commitInfo."""
    kinds = [next(iter(action)) for action in view.actions(version)]
    return None if kinds[:1] == ["commitInfo"] else f"version {version} begins with {kinds[:1]}, not with commitInfo"


@_check("one-commit-info")
def _one_commit_info(view: LogView, version: int, value: Any) -> str | None:
    """The commit has one commitInfo."""
    number = len(view.of_kind(version, "commitInfo"))
    return None if number == 1 else f"version {version} has {number} commitInfo actions"


@_check("actions")
def _actions(view: LogView, version: int, value: Any) -> str | None:
    """For each kind of action, the commit contains the number of actions given in ``value``."""
    found = {kind: len(view.of_kind(version, kind)) for kind in value}
    return None if found == value else f"version {version} has {found}, not {value}"


@_check("statistics-count-rows")
def _statistics(view: LogView, version: int, value: Any) -> str | None:
    """The numRecords values of the files that the commit adds sum to ``value``."""
    counts = [json.loads(add.get("stats") or "{}").get("numRecords") for add in view.of_kind(version, "add")]
    total = sum(count or 0 for count in counts)
    return (
        None
        if None not in counts and total == value
        else f"numRecords of the files is {counts}, the number of rows {value}"
    )


@_check("partition-values")
def _partition_values(view: LogView, version: int, value: Any) -> str | None:
    """The files added by the commit have these partition values, in any order."""
    found = sorted((add["partitionValues"] for add in view.of_kind(version, "add")), key=str)
    wanted = sorted(value, key=str)
    return None if found == wanted else f"the partition values are {found}, not {wanted}"


@_check("paths-are-relative-and-there")
def _paths(view: LogView, version: int, value: Any) -> str | None:
    """The files that the commit added have relative paths, exist, and have the size that the log records."""
    import urllib.parse

    for add in view.of_kind(version, "add"):
        file = view.root / urllib.parse.unquote(add["path"])
        if not file.is_file():
            return f"the added file {add['path']} is not below the table"
        if file.stat().st_size != add["size"]:
            return f"{add['path']} has {file.stat().st_size} bytes; the log says {add['size']}"
    return None


# --------------------------------------------------------------------------------------------- rows


@_check("rows")
def _rows(view: LogView, version: int, value: Any) -> str | None:
    """The rows of the version, read by deltalog, are ``value``."""
    found = values.rows_of(DeltaTable.open(str(view.root)).snapshot(version).scan().to_arrow())
    return values.difference(found, values.canonical_rows(value))


@_check("rows-among")
def _rows_among(view: LogView, version: int, value: Any) -> str | None:
    """The rows of the version are the rows in ``value``, or all of them except the last, in case the write of the last
    row was refused."""
    return _rows(view, version, value) and _rows(view, version, value[:-1])


@_check("rows-one-of")
def _rows_one_of(view: LogView, version: int, value: Any) -> str | None:
    """The rows of the version equal one of the lists of rows in ``value``."""
    found = [_rows(view, version, each) for each in value]
    return None if None in found else found[-1]


@_check("no-column-lost")
def _no_column_lost(view: LogView, version: int, value: Any) -> str | None:
    """Version 3 contains the column ``value`` or does not exist."""
    fields = json.loads(view.latest_of("metaData")["schemaString"])["fields"]
    names = [field["name"] for field in fields]
    return None if value in names or view.latest() < 3 else f"rows were written without the column {value}"


# ------------------------------------------------------------------------------------------ metadata and protocol


@_check("property")
def _property(view: LogView, version: int, value: Any) -> str | None:
    """The latest metaData has these properties; null means that the property must be absent."""
    configuration = view.configuration()
    found = {key: configuration.get(key) for key in value}
    return None if found == value else f"the properties are {found}, not {value}"


@_check("supports-writer-feature")
def _supports(view: LogView, version: int, value: Any) -> str | None:
    """The protocol lists the writer feature, at writer version 7."""
    protocol = view.latest_of("protocol")
    listed = value in (protocol.get("writerFeatures") or ())
    return None if listed and protocol.get("minWriterVersion") == 7 else f"the protocol {protocol} lacks {value}"


@_check("lists-no-reader-feature")
def _no_reader_feature(view: LogView, version: int, value: Any) -> str | None:
    """The writer-only feature ``value`` is not in readerFeatures."""
    protocol = view.latest_of("protocol")
    listed = value in (protocol.get("readerFeatures") or ())
    return f"the protocol lists the writer feature {value} as a reader feature" if listed else None


# --------------------------------------------------------------------------------------------- in-commit timestamps


@_check("has-ict")
def _has_ict(view: LogView, version: int, value: Any) -> str | None:
    """The commit has an integer in-commit timestamp."""
    found = view.ict(version)
    good = isinstance(found, int) and not isinstance(found, bool)
    return None if good else f"the inCommitTimestamp of version {version} is {found!r}, not an integer"


@_check("no-ict")
def _no_ict(view: LogView, version: int, value: Any) -> str | None:
    """The commit has no in-commit timestamp."""
    found = view.ict(version)
    return (
        None
        if found is None
        else f"version {version} has the inCommitTimestamp {found} although in-commit timestamps are off"
    )


@_check("ict-increases")
def _ict_increases(view: LogView, version: int, value: Any) -> str | None:
    """Since version ``value`` (default: the first), every commit has a greater in-commit timestamp than the previous
    one."""
    above = None
    for each in view.versions():
        if each < (value or 0):
            continue
        found = view.ict(each)
        if not isinstance(found, int):
            return f"version {each} has no inCommitTimestamp"
        if above is not None and found <= above:
            return f"the inCommitTimestamp {found} of version {each} is not after that of the previous version, {above}"
        above = found
    return None


@_check("ict-increases-where-present")
def _ict_increases_where_present(view: LogView, version: int, value: Any) -> str | None:
    """The in-commit timestamps increase from commit to commit; commits without one are skipped."""
    found = [stamp for each in view.versions() if isinstance(stamp := view.ict(each), int)]
    return None if found == sorted(set(found)) else f"the in-commit timestamps are {found}"


@_check("ict-agrees")
def _ict_agrees(view: LogView, version: int, value: Any) -> str | None:
    """The latest commit has an in-commit timestamp if and only if in-commit timestamps are on; the enablement pair, if
    present, names a commit and its in-commit timestamp."""
    if _ict_active(view, version, True) is not None:
        return _no_ict(view, version, value)
    return _has_ict(view, version, value) or _pair_agrees(view, version, value)


@_check("pair-agrees")
def _pair_agrees(view: LogView, version: int, value: Any) -> str | None:
    """The enablement properties contain the version and the in-commit timestamp of a commit. Passes if in-commit
    timestamps are off."""
    named = view.configuration().get(PAIR_VERSION)
    if _ict_active(view, version, True) is not None:
        return None
    return "there is no enablement pair" if named is None else _pair(view, version, int(named))


@_check("ict-is")
def _ict_is(view: LogView, version: int, value: Any) -> str | None:
    """The commit's in-commit timestamp is exactly ``value``."""
    found = view.ict(version)
    return None if found == value else f"the inCommitTimestamp of version {version} is {found}, not {value}"


@_check("ict-is-the-clock")
def _ict_is_the_clock(view: LogView, version: int, value: Any) -> str | None:
    """The in-commit timestamp of the commit lies between the start time and the end time of the case."""
    found = view.ict(version)
    if isinstance(found, int) and view.began_ms - _SLACK_MS <= found <= view.ended_ms + _SLACK_MS:
        return None
    return f"the inCommitTimestamp of version {version} is {found}; the commit was made from {view.began_ms} to " + str(
        view.ended_ms
    )


@_check("ict-after-file-time-before")
def _ict_after_file_time(view: LogView, version: int, value: Any) -> str | None:
    """The in-commit timestamp of the commit is greater than the file time of the previous commit."""
    before = view.root / "_delta_log" / f"{version - 1:020d}.json"
    file_ms, found = before.stat().st_mtime_ns // 1_000_000, view.ict(version)
    if isinstance(found, int) and found > file_ms:
        return None
    return f"the inCommitTimestamp {found} of version {version} is not after the previous file time {file_ms}"


@_check("ict-active")
def _ict_active(view: LogView, version: int, value: Any) -> str | None:
    """According to protocol and properties, in-commit timestamps are on if ``value`` is true, and off if it is
    false."""
    protocol, listed = view.latest_of("protocol"), False
    listed = protocol.get("minWriterVersion") == 7 and ICT_FEATURE in (protocol.get("writerFeatures") or ())
    active = listed and view.configuration().get(ICT_PROPERTY) == "true"
    return None if active is value else f"in-commit timestamps are {'on' if active else 'off'}"


@_check("pair")
def _pair(view: LogView, version: int, value: Any) -> str | None:
    """The enablement properties name the version ``value`` and that commit's in-commit timestamp, both as strings."""
    configuration = view.configuration()
    found = (configuration.get(PAIR_VERSION), configuration.get(PAIR_TIMESTAMP))
    wanted = (str(value), str(view.ict(value)))
    return None if found == wanted else f"the enablement pair is {found}, not {wanted}"


@_check("pair-is")
def _pair_is(view: LogView, version: int, value: Any) -> str | None:
    """The enablement version and the enablement timestamp are those in ``value``, a pair of strings."""
    configuration = view.configuration()
    found = [configuration.get(PAIR_VERSION), configuration.get(PAIR_TIMESTAMP)]
    return None if found == list(value) else f"the enablement pair is {found}, not {value}"


@_check("no-pair")
def _no_pair(view: LogView, version: int, value: Any) -> str | None:
    """There is no enablement pair."""
    found = sorted({PAIR_VERSION, PAIR_TIMESTAMP} & view.configuration().keys())
    return f"the table has {', '.join(found)}" if found else None


@_check("ict-requirements")
def _ict_requirements(view: LogView, version: int, value: Any) -> str | None:
    """If in-commit timestamps are on, every commit since the enablement begins with commitInfo and has a greater
    in-commit timestamp than the previous commit; the first such timestamp is greater than the file time before it and
    is in the enablement pair. Without a pair, every commit must have an in-commit timestamp."""
    if _ict_active(view, version, True) is not None:
        return None
    configuration = view.configuration()
    pair = configuration.get(PAIR_VERSION), configuration.get(PAIR_TIMESTAMP)
    if None in pair and pair != (None, None):
        return f"the enablement pair is {pair}"
    first = 0 if pair[0] is None else int(pair[0])
    since = [each for each in view.versions() if each >= first]
    if pair[0] is not None and first in since and pair[1] != str(view.ict(first)):
        return f"the enablement pair is {pair}, and version {first} has the inCommitTimestamp {view.ict(first)}"
    if pair[0] is not None and first - 1 in view.versions() and (wrong := _ict_after_file_time(view, first, None)):
        return wrong
    first_actions = (_commit_info_first(view, each, None) for each in since)
    return next((wrong for wrong in first_actions if wrong), None) or _ict_increases(view, version, first)


@_check("checksum-has-ict")
def _checksum(view: LogView, version: int, value: Any) -> str | None:
    """The ``.crc`` of the commit, if there is one, has the same in-commit timestamp as the commit; if the commit has
    none, neither does the ``.crc``."""
    file = view.root / "_delta_log" / f"{version:020d}.crc"
    if not file.exists():
        return None
    found = json.loads(file.read_text(encoding="utf-8")).get("inCommitTimestampOpt")
    wanted = view.ict(version)
    return None if found == wanted else f"the .crc of version {version} has {found}, the commit has {wanted}"


# --------------------------------------------------------------------------------------------- checkpoints


@_check("checkpoint")
def _checkpoint(view: LogView, version: int, value: Any) -> str | None:
    """There is a checkpoint of version ``value``."""
    found = view.checkpoints()
    return None if value in found else f"there are checkpoints of versions {found}, but none of version {value}"


@_check("checkpoint-without-commit-info")
def _checkpoint_actions(view: LogView, version: int, value: Any) -> str | None:
    """The classic checkpoint of version ``value`` contains no commitInfo and no cdc action."""
    import pyarrow.parquet as pq

    for file in sorted((view.root / "_delta_log").glob(f"{value:020d}.checkpoint*.parquet")):
        found = pq.read_table(file)
        for kind in {"commitInfo", "cdc"} & set(found.column_names):
            if found[kind].null_count < found.num_rows:
                return f"{file.name} contains a {kind} action"
    return None


@_check("checkpoint-has-txn")
def _checkpoint_txn(view: LogView, version: int, value: Any) -> str | None:
    """A reader that reads only the checkpoint finds the transaction identifier ``value``: an application id and its
    version."""
    with by_checkpoint(view) as snapshot:
        found = snapshot.transaction_version(value[0])
    return None if found == value[1] else f"the version of {value[0]} is {found}, not {value[1]}"


@_check("checkpoint-has-domain")
def _checkpoint_domain(view: LogView, version: int, value: Any) -> str | None:
    """The checkpoint alone is enough to read the metadata domain ``value``."""
    with by_checkpoint(view) as snapshot:
        found = [domain.domain for domain in snapshot.domain_metadata]
    return None if value in found else f"the metadata domains are {found}"


@_check("commits-remain")
def _commits_remain(view: LogView, version: int, value: Any) -> str | None:
    """The commits of all versions in ``value`` are still in the log."""
    gone = sorted(set(value) - set(view.versions()))
    return f"the commits of versions {gone} are gone" if gone else None


@_check("commit-of-first-checkpoint")
def _commit_of_first_checkpoint(view: LogView, version: int, value: Any) -> str | None:
    """The log still has the commit of its first checkpoint, unless it still has the commit of version 0."""
    first = min(view.checkpoints(), default=0)
    if 0 in view.versions() or first in view.versions():
        return None
    return f"the first checkpoint is of version {first}, whose commit is gone"


@_check("last-checkpoint")
def _last_checkpoint(view: LogView, version: int, value: Any) -> str | None:
    """``_last_checkpoint`` names version ``value``."""
    file = view.root / "_delta_log" / "_last_checkpoint"
    found = json.loads(file.read_text(encoding="utf-8")).get("version") if file.exists() else None
    return None if found == value else f"_last_checkpoint names version {found}, not {value}"


@_check("rows-by-checkpoint")
def _rows_by_checkpoint(view: LogView, version: int, value: Any) -> str | None:
    """Without the commits up to the newest checkpoint, the rows of the latest version are still ``value``."""
    with by_checkpoint(view) as snapshot:
        found = values.rows_of(snapshot.scan().to_arrow())
    return values.difference(found, values.canonical_rows(value))


def unchanged(before: dict[str, bytes], root: Path) -> str | None:
    """Check that existing commits are unchanged. Commits that log clean-up has deleted are ignored."""
    for name, content in before.items():
        file = root / "_delta_log" / name
        if file.exists() and file.read_bytes() != content:
            return f"{name} was changed"
    return None


def commits_of(root: Path) -> dict[str, bytes]:
    """The contents of the commits, keyed by file name."""
    log = root / "_delta_log"
    files: Iterator[Path] = iter(log.iterdir()) if log.is_dir() else iter(())
    return {file.name: file.read_bytes() for file in files if COMMIT.fullmatch(file.name)}
