"""Faulty engines: deltalog with one realistic bug each. The conformance kit must detect all of these mutants."""

from __future__ import annotations

import json
import os
import re
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from deltalog import DeltaTable
from deltalog.conformance import Engine
from deltalog.conformance.builder import ICT_PROPERTY, PAIR_TIMESTAMP, PAIR_VERSION
from deltalog.conformance.engines.deltalog import DeltalogEngine
from deltalog.errors import CorruptTableError

Action = dict[str, Any]
# For each mutant, patterns that select cases; the mutant must fail at least one of these cases.
MUTANTS: dict[type[Engine], str] = {}


def caught_by(patterns: str) -> Callable[[type[Engine]], type[Engine]]:
    def register(mutant: type[Engine]) -> type[Engine]:
        MUTANTS[mutant] = patterns
        return mutant

    return register


def log_of(path: str) -> Path:
    return Path(path, "_delta_log")


def commits(path: str) -> list[Path]:
    return sorted(file for file in log_of(path).iterdir() if file.suffix == ".json" and file.stem.isdigit())


def file_ms(file: Path) -> int:
    return file.stat().st_mtime_ns // 1_000_000


def actions_of(file: Path) -> list[Action]:
    return [json.loads(line) for line in file.read_text().splitlines() if line.strip()]


def write_actions(file: Path, actions: list[Action]) -> None:
    before = file.stat().st_mtime_ns
    file.write_text("".join(json.dumps(action) + "\n" for action in actions))
    os.utime(file, ns=(before, before))


# -------------------------------------------------------------------------- mutants of time travel


@caught_by("ict-time-travel-copied-* travel-time-*")
class TravelsByFileTime(DeltalogEngine):
    def rows(self, path: str, version: int | None = None, timestamp_ms: int | None = None) -> Any:
        if timestamp_ms is not None:
            version = max((n for n, file in enumerate(commits(path)) if file_ms(file) <= timestamp_ms), default=0)
        return super().rows(path, version)


@caught_by("ict-time-travel-* travel-time-*")
class ClampsAtTheEnd(DeltalogEngine):
    def rows(self, path: str, version: int | None = None, timestamp_ms: int | None = None) -> Any:
        if timestamp_ms is not None:
            version = DeltaTable.open(path).version_at(timestamp_ms, after="latest").version
        return super().rows(path, version)


@caught_by("ict-time-travel-* travel-time-*")
class ClampsAtTheBeginning(DeltalogEngine):
    def rows(self, path: str, version: int | None = None, timestamp_ms: int | None = None) -> Any:
        if timestamp_ms is not None:
            version = DeltaTable.open(path).version_at(timestamp_ms, before="earliest").version
        return super().rows(path, version)


@caught_by("ict-damage-other-timestamp travel-time-commit-info ict-late-*")
class TravelsByCommitInfo(DeltalogEngine):
    """Uses commitInfo.timestamp, which the writer sets from its own clock without any check."""

    def rows(self, path: str, version: int | None = None, timestamp_ms: int | None = None) -> Any:
        if timestamp_ms is not None:
            infos = [next(a["commitInfo"] for a in actions_of(file) if "commitInfo" in a) for file in commits(path)]
            version = max((n for n, info in enumerate(infos) if info["timestamp"] <= timestamp_ms), default=0)
        return super().rows(path, version)


@caught_by("ict-time-travel-kept-*")
class FindsTheVersionBefore(DeltalogEngine):
    """Time travel excludes a commit at exactly the requested time."""

    def rows(self, path: str, version: int | None = None, timestamp_ms: int | None = None) -> Any:
        return super().rows(path, version, None if timestamp_ms is None else timestamp_ms - 1)


@caught_by("ict-time-travel-* ict-spacing-*")
class RoundsToSeconds(DeltalogEngine):
    def rows(self, path: str, version: int | None = None, timestamp_ms: int | None = None) -> Any:
        return super().rows(path, version, None if timestamp_ms is None else timestamp_ms // 1000 * 1000)


@caught_by("ict-late-*")
class IgnoresTheEnablement(DeltalogEngine):
    """Searches all commits, by their in-commit timestamp if they have one, and otherwise by file time."""

    def rows(self, path: str, version: int | None = None, timestamp_ms: int | None = None) -> Any:
        if timestamp_ms is not None:
            found = []
            for number, file in enumerate(commits(path)):
                info = next(a["commitInfo"] for a in actions_of(file) if "commitInfo" in a)
                found.append((info.get("inCommitTimestamp", file_ms(file)), number))
            version = max((number for ms, number in found if ms <= timestamp_ms), default=0)
        return super().rows(path, version)


@caught_by("ict-history-*")
class ShowsFileTimes(DeltalogEngine):
    def history(self, path: str) -> Mapping[int, int | None]:
        return {int(file.stem): file_ms(file) for file in commits(path)}


@caught_by("ict-active-*")
class TrustsTheFieldAlone(DeltalogEngine):
    """Uses in-commit timestamps even if the table feature is not enabled."""

    def rows(self, path: str, version: int | None = None, timestamp_ms: int | None = None) -> Any:
        return IgnoresTheEnablement().rows(path, version, timestamp_ms)


@caught_by("ict-off-*")
class TrustsAStalePair(DeltalogEngine):
    """Uses in-commit timestamps even after they were disabled."""

    def rows(self, path: str, version: int | None = None, timestamp_ms: int | None = None) -> Any:
        return IgnoresTheEnablement().rows(path, version, timestamp_ms)


@caught_by("ict-damage-*-history")
class InventsTimestamps(DeltalogEngine):
    def history(self, path: str) -> Mapping[int, int | None]:
        found = super().history(path)
        return {version: file_ms(commits(path)[version]) if ms is None else ms for version, ms in found.items()}


# ------------------------------------------------------------------------------------------- reading


class Edited(DeltalogEngine):
    """Reads a copy of the table in which actions are changed."""

    def edit(self, action: Action, root: Path) -> Action | None:
        raise NotImplementedError

    @contextmanager
    def copy(self, path: str) -> Iterator[str]:
        with tempfile.TemporaryDirectory() as scratch:
            copied = Path(shutil.copytree(path, Path(scratch, "table")))
            for file in commits(str(copied)):
                try:
                    actions = actions_of(file)
                except ValueError:
                    continue
                write_actions(file, [found for action in actions if (found := self.edit(action, copied)) is not None])
            yield str(copied)

    def rows(self, path: str, version: int | None = None, timestamp_ms: int | None = None) -> Any:
        with self.copy(path) as copied:
            return super().rows(copied, version, timestamp_ms)

    def changes(self, path: str, *range_: Any, **named: Any) -> Any:
        with self.copy(path) as copied:
            return super().changes(copied, *range_, **named)


@caught_by("feature-vector-*")
class IgnoresVectors(Edited):
    def edit(self, action: Action, root: Path) -> Action | None:
        for kind in ("add", "remove"):
            if kind in action:
                action[kind].pop("deletionVector", None)
        return action


@caught_by("read-partition-*")
class IgnoresPartitionValues(Edited):
    def edit(self, action: Action, root: Path) -> Action | None:
        if "add" in action:
            action["add"]["partitionValues"] = dict.fromkeys(action["add"]["partitionValues"])
        return action


@caught_by("read-removed read-replaced travel-before-overwrite")
class ReadsRemovedFiles(Edited):
    def edit(self, action: Action, root: Path) -> Action | None:
        return None if "remove" in action else action


@caught_by("feature-mapping-*")
class IgnoresMapping(Edited):
    def edit(self, action: Action, root: Path) -> Action | None:
        if "metaData" in action:
            action["metaData"]["configuration"].pop("delta.columnMapping.mode", None)
        return action


@caught_by("feature-mapping-id-only")
class MapsByNameAlone(Edited):
    def edit(self, action: Action, root: Path) -> Action | None:
        if action.get("metaData", {}).get("configuration", {}).get("delta.columnMapping.mode") == "id":
            action["metaData"]["configuration"]["delta.columnMapping.mode"] = "name"
        return action


@caught_by("feature-unknown-* feature-version-*")
class ReadsUnknownFeatures(Edited):
    def edit(self, action: Action, root: Path) -> Action | None:
        return {"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}} if "protocol" in action else action


@caught_by("read-path-missing travel-vacuumed")
class LeavesOutMissingFiles(Edited):
    def edit(self, action: Action, root: Path) -> Action | None:
        missing = "add" in action and not (root / action["add"]["path"]).exists()
        return None if missing else action


@caught_by("read-path-*")
class DoesNotDecodePaths(Edited):
    def edit(self, action: Action, root: Path) -> Action | None:
        if "add" in action:
            action["add"]["path"] = action["add"]["path"].replace("%", "%25")
        return action


@caught_by("read-torn-* read-not-json")
class StopsAtATornCommit(DeltalogEngine):
    """Treats the version before an unreadable commit as the latest."""

    def rows(self, path: str, version: int | None = None, timestamp_ms: int | None = None) -> Any:
        with tempfile.TemporaryDirectory() as scratch:
            copied = Path(shutil.copytree(path, Path(scratch, "table")))
            for file in reversed(commits(str(copied))):
                try:
                    return super().rows(str(copied), version, timestamp_ms)
                except self.refusals:
                    file.unlink()
            return super().rows(path, version, timestamp_ms)


@caught_by("checkpoint-hint-stale")
class TrustsTheHint(DeltalogEngine):
    """Treats the version in ``_last_checkpoint`` as the latest."""

    def rows(self, path: str, version: int | None = None, timestamp_ms: int | None = None) -> Any:
        hint = log_of(path) / "_last_checkpoint"
        return super().rows(path, json.loads(hint.read_text())["version"] if version is None else version)


@caught_by("read-column-added read-field-added travel-old-schema")
class HasTheLatestSchema(DeltalogEngine):
    """Reads old versions with the latest schema."""

    def rows(self, path: str, version: int | None = None, timestamp_ms: int | None = None) -> Any:
        rows, latest = super().rows(path, version, timestamp_ms), super().rows(path)
        for field in latest.schema:
            if field.name not in rows.column_names:
                rows = rows.append_column(field, pa.nulls(rows.num_rows, field.type))
        return rows


# ------------------------------------------------------------------------------------------- change feeds


@caught_by("feed-update feed-merge feed-delete-rows")
class IgnoresChangeFiles(Edited):
    def edit(self, action: Action, root: Path) -> Action | None:
        return None if "cdc" in action else action


@caught_by("feed-optimize")
class IgnoresDataChange(Edited):
    def edit(self, action: Action, root: Path) -> Action | None:
        for kind in ("add", "remove"):
            if kind in action:
                action[kind]["dataChange"] = True
        return action


@caught_by("feed-range-*")
class LeavesOutTheEnd(DeltalogEngine):
    def changes(
        self,
        path: str,
        from_version: int | None = None,
        to_version: int | None = None,
        from_timestamp_ms: int | None = None,
        to_timestamp_ms: int | None = None,
    ) -> Any:
        end = to_version - 1 if to_version else DeltaTable.open(path).version - 1
        return super().changes(path, from_version, end, from_timestamp_ms)


@caught_by("ict-changes-*")
class FeedsFileTimes(DeltalogEngine):
    def changes(self, path: str, *range_: Any, **named: Any) -> Any:
        found = super().changes(path, *range_, **named)
        times = [file_ms(log_of(path) / f"{version:020d}.json") for version in found["_commit_version"].to_pylist()]
        at = found.column_names.index("_commit_timestamp")
        return found.set_column(at, "_commit_timestamp", pa.array(times, pa.timestamp("ms", "UTC")))


# -------------------------------------------------------------------------------- mutants of writing


class Rewriting(DeltalogEngine):
    """Changes each new commit that deltalog writes, before the conformance kit reads it."""

    def rewrite(self, actions: list[Action], version: int, path: str) -> list[Action]:
        raise NotImplementedError

    def _after(self, path: str, known: set[str]) -> None:
        for file in commits(path):
            if file.name not in known:
                write_actions(file, self.rewrite(actions_of(file), int(file.stem), path))
                file.with_suffix(".crc").unlink(missing_ok=True)

    def _known(self, path: str) -> set[str]:
        return {file.name for file in commits(path)} if log_of(path).is_dir() else set()

    def create(self, path: str, *arguments: Any) -> None:
        super().create(path, *arguments)
        self._after(path, set())

    def append(self, path: str, rows: pa.Table) -> None:
        known = self._known(path)
        super().append(path, rows)
        self._after(path, known)

    def overwrite(self, path: str, rows: pa.Table) -> None:
        known = self._known(path)
        super().overwrite(path, rows)
        self._after(path, known)

    def set_properties(self, path: str, properties: Mapping[str, str | None]) -> None:
        known = self._known(path)
        super().set_properties(path, properties)
        self._after(path, known)

    def delete(self, path: str, where: str) -> None:
        known = self._known(path)
        super().delete(path, where)
        self._after(path, known)

    def restore(self, path: str, version: int) -> None:
        known = self._known(path)
        super().restore(path, version)
        self._after(path, known)


def info_of(actions: list[Action]) -> Action:
    found: Action = next(action["commitInfo"] for action in actions if "commitInfo" in action)
    return found


@caught_by("ict-write-append-* ict-create-*")
class PutsCommitInfoLast(Rewriting):
    def rewrite(self, actions: list[Action], version: int, path: str) -> list[Action]:
        return [*actions[1:], actions[0]]


@caught_by("ict-write-append-* ict-create-*")
class WritesNoTimestamp(Rewriting):
    def rewrite(self, actions: list[Action], version: int, path: str) -> list[Action]:
        info_of(actions).pop("inCommitTimestamp", None)
        return actions


@caught_by("ict-write-*")
class WritesTheClock(Rewriting):
    """The mutant uses its clock even if the timestamp of the previous commit is later."""

    def rewrite(self, actions: list[Action], version: int, path: str) -> list[Action]:
        if "inCommitTimestamp" in info_of(actions):
            info_of(actions)["inCommitTimestamp"] = file_ms(commits(path)[-1])
        return actions


@caught_by("ict-write-*")
class RepeatsTheTimestampBefore(Rewriting):
    def rewrite(self, actions: list[Action], version: int, path: str) -> list[Action]:
        if version and "inCommitTimestamp" in info_of(actions):
            info_of(actions)["inCommitTimestamp"] = info_of(actions_of(commits(path)[version - 1])).get(
                "inCommitTimestamp"
            )
        return actions


@caught_by("ict-write-*")
class OnlyAddsOne(Rewriting):
    """Uses the previous timestamp plus a millisecond, and ignores its clock."""

    def rewrite(self, actions: list[Action], version: int, path: str) -> list[Action]:
        if version and "inCommitTimestamp" in info_of(actions):
            before = info_of(actions_of(commits(path)[version - 1])).get("inCommitTimestamp", 0)
            info_of(actions)["inCommitTimestamp"] = before + 1
        return actions


@caught_by("ict-write-* ict-create-*")
class WritesText(Rewriting):
    def rewrite(self, actions: list[Action], version: int, path: str) -> list[Action]:
        if "inCommitTimestamp" in info_of(actions):
            info_of(actions)["inCommitTimestamp"] = str(info_of(actions)["inCommitTimestamp"])
        return actions


class RewritingProperties(Rewriting):
    def configure(self, configuration: dict[str, str], version: int, ict_ms: int | None) -> None:
        raise NotImplementedError

    def rewrite(self, actions: list[Action], version: int, path: str) -> list[Action]:
        for action in actions:
            if "metaData" in action:
                ict_ms = info_of(actions).get("inCommitTimestamp")
                self.configure(action["metaData"]["configuration"], version, ict_ms)
        return actions


@caught_by("ict-enable-* ict-write-set-properties-*")
class LosesThePair(RewritingProperties):
    def configure(self, configuration: dict[str, str], version: int, ict_ms: int | None) -> None:
        configuration.pop(PAIR_VERSION, None)
        configuration.pop(PAIR_TIMESTAMP, None)


@caught_by("ict-enable-*")
class NamesTheVersionBefore(RewritingProperties):
    def configure(self, configuration: dict[str, str], version: int, ict_ms: int | None) -> None:
        if PAIR_VERSION in configuration:
            configuration[PAIR_VERSION] = str(version - 1)


@caught_by("ict-enable-*")
class PairsWithAnotherTime(RewritingProperties):
    def configure(self, configuration: dict[str, str], version: int, ict_ms: int | None) -> None:
        if PAIR_TIMESTAMP in configuration:
            configuration[PAIR_TIMESTAMP] = str(int(configuration[PAIR_TIMESTAMP]) + 1)


@caught_by("ict-write-set-properties-*")
class PairsAgain(RewritingProperties):
    """Writes new enablement properties with every property change."""

    def configure(self, configuration: dict[str, str], version: int, ict_ms: int | None) -> None:
        if PAIR_VERSION in configuration:
            configuration[PAIR_VERSION], configuration[PAIR_TIMESTAMP] = str(version), str(ict_ms)


@caught_by("ict-create-*")
class PairsAtVersionZero(RewritingProperties):
    def configure(self, configuration: dict[str, str], version: int, ict_ms: int | None) -> None:
        if version == 0 and ICT_PROPERTY in configuration:
            configuration[PAIR_VERSION], configuration[PAIR_TIMESTAMP] = "0", str(ict_ms)


@caught_by("ict-disable-*")
class LeavesThePairBehind(RewritingProperties):
    def configure(self, configuration: dict[str, str], version: int, ict_ms: int | None) -> None:
        if configuration.get(ICT_PROPERTY) == "false":
            configuration[PAIR_VERSION], configuration[PAIR_TIMESTAMP] = "3", "1736943000000"


@caught_by("ict-enable-*")
class ListsNoFeature(Rewriting):
    def rewrite(self, actions: list[Action], version: int, path: str) -> list[Action]:
        return [action for action in actions if version == 0 or "protocol" not in action]


@caught_by("write-append-statistics")
class CountsWrong(Rewriting):
    def rewrite(self, actions: list[Action], version: int, path: str) -> list[Action]:
        for action in actions:
            if "add" in action:
                action["add"]["stats"] = json.dumps({"numRecords": 1})
        return actions


@caught_by("write-overwrite*")
class OverwritesNothing(DeltalogEngine):
    """Appends instead of overwriting."""

    def overwrite(self, path: str, rows: pa.Table) -> None:
        self.append(path, rows)


@caught_by("write-check* write-not-null write-generated-* feature-unknown-* ict-write-append-*")
class WritesWithoutChecks(DeltalogEngine):
    """Adds a file without checking constraints and table features, and without a timestamp."""

    def append(self, path: str, rows: pa.Table) -> None:
        version = int(commits(path)[-1].stem) + 1
        name = f"careless-{version}.parquet"
        pq.write_table(rows, Path(path, name))
        size = Path(path, name).stat().st_size
        add = {"path": name, "partitionValues": {}, "size": size, "modificationTime": 0, "dataChange": True}
        (log_of(path) / f"{version:020d}.json").write_text(json.dumps({"add": add}) + "\n")


class Pending(Engine):
    """An engine's open transaction whose commit contains a deliberate defect."""

    def __init__(self, write: Callable[[str, pa.Table], None]) -> None:
        self.append = write  # type: ignore[assignment, method-assign]


@caught_by("conflict-append-append conflict-winner-stays")
class OverwritesTheWinner(DeltalogEngine):
    def begin(self, path: str) -> Engine:
        version = DeltaTable.open(path).version + 1

        def append(path: str, rows: pa.Table) -> None:
            name = f"blind-{version}.parquet"
            pq.write_table(rows, Path(path, name))
            size = Path(path, name).stat().st_size
            add = {"path": name, "partitionValues": {}, "size": size, "modificationTime": 0, "dataChange": True}
            (log_of(path) / f"{version:020d}.json").write_text(json.dumps({"add": add}) + "\n")

        return Pending(append)


@caught_by("conflict-append-append")
class DropsTheLoser(DeltalogEngine):
    """Drops an append that lost a race, and reports success."""

    def begin(self, path: str) -> Engine:
        return Pending(lambda path, rows: None)


@caught_by("ict-conflict-*")
class KeepsItsTimestamp(DeltalogEngine):
    """Keeps the timestamp of the first attempt, even if the timestamp of the winning commit is later."""

    def begin(self, path: str) -> Engine:
        def append(path: str, rows: pa.Table) -> None:
            self.append(path, rows)
            newest = commits(path)[-1]
            actions = actions_of(newest)
            if "inCommitTimestamp" in info_of(actions):
                info_of(actions)["inCommitTimestamp"] = file_ms(newest)
            write_actions(newest, actions)
            newest.with_suffix(".crc").unlink(missing_ok=True)

        return Pending(append)


@caught_by("checkpoint-write-hint")
class HintsAtAnotherVersion(DeltalogEngine):
    def checkpoint(self, path: str) -> None:
        super().checkpoint(path)
        hint = log_of(path) / "_last_checkpoint"
        found = json.loads(hint.read_text())
        hint.write_text(json.dumps({**found, "version": found["version"] - 1}))


@caught_by("checkpoint-write*")
class LosesFilesInCheckpoints(DeltalogEngine):
    def checkpoint(self, path: str) -> None:
        super().checkpoint(path)
        (file,) = log_of(path).glob("*.checkpoint.parquet")
        found = pq.read_table(file)
        keep = [row["add"] is None or not row["add"]["path"].startswith("part-00000") for row in found.to_pylist()]
        pq.write_table(found.filter(pa.array(keep)), file)


@caught_by("checkpoint-write-txn checkpoint-write-domain")
class ForgetsInCheckpoints(DeltalogEngine):
    """Omits transaction identifiers and domain metadata from checkpoints."""

    def checkpoint(self, path: str) -> None:
        super().checkpoint(path)
        (file,) = log_of(path).glob("*.checkpoint.parquet")
        found = pq.read_table(file)
        keep = [row.get("txn") is None and row.get("domainMetadata") is None for row in found.to_pylist()]
        pq.write_table(found.filter(pa.array(keep)), file)


# ----------------------------------------------------------- mutants of in-commit timestamps in rare places


def configuration_of(path: str, version: int) -> dict[str, str]:
    """The configuration in the newest metaData up to a version."""
    found: dict[str, str] = {}
    for file in commits(path):
        for action in actions_of(file) if int(file.stem) <= version else ():
            found = action.get("metaData", {}).get("configuration", found)
    return found


def now_ms() -> int:
    return time.time_ns() // 1_000_000


@caught_by("ict-us-*")
class RoundsMicroseconds(DeltalogEngine):
    """Rounds a time in microseconds to the nearest millisecond, which may be after that time."""

    def rows_at_us(self, path: str, timestamp_us: int) -> Any:
        return super().rows(path, None, round(timestamp_us / 1000))


@caught_by("ict-at-*")
class HasFileTimesInSeconds(Edited):
    """Gets file times without their fraction of a second, as from a header Last-Modified."""

    def edit(self, action: Action, root: Path) -> Action | None:
        return action

    @contextmanager
    def copy(self, path: str) -> Iterator[str]:
        with super().copy(path) as copied:
            for file in commits(copied):
                seconds = file_ms(file) // 1000
                os.utime(file, (seconds, seconds))
            yield copied


@caught_by("ict-at-*")
class LeavesOutTheEnablement(DeltalogEngine):
    """After the enablement timestamp, only later versions than the enabling one are searched."""

    def rows(self, path: str, version: int | None = None, timestamp_ms: int | None = None) -> Any:
        if timestamp_ms is not None:
            found = DeltaTable.open(path)
            pair = found.snapshot().enablement
            at = found.version_at(timestamp_ms)
            if pair is not None and at.version == pair.version and timestamp_ms > pair.timestamp_ms:
                version, timestamp_ms = pair.version - 1, None
        return super().rows(path, version, timestamp_ms)


@caught_by("ict-info-*")
class FindsTheFieldByText(Edited):
    """Searches the first 4 KiB of a commit for the name of the field, instead of parsing JSON."""

    def edit(self, action: Action, root: Path) -> Action | None:
        return action

    @contextmanager
    def copy(self, path: str) -> Iterator[str]:
        with super().copy(path) as copied:
            for file, original in zip(commits(copied), commits(path), strict=True):
                found = re.search(rb'"inCommitTimestamp":(\d+)', original.read_bytes()[:4096])
                try:
                    actions = actions_of(file)
                except ValueError:
                    continue
                for info in (action["commitInfo"] for action in actions if "commitInfo" in action):
                    if "inCommitTimestamp" in info:
                        info["inCommitTimestamp"] = int(found[1]) if found else None
                write_actions(file, actions)
            yield copied


@caught_by("ict-search-*")
class SearchesTooShort(DeltalogEngine):
    """Guesses the version from evenly spaced commits, and gives up after three steps from there."""

    def version_at(self, path: str, timestamp_ms: int) -> int:
        at = super().version_at(path, timestamp_ms)
        table = DeltaTable.open(path)
        snapshot = table.snapshot()
        if not snapshot.in_commit_timestamps_enabled or snapshot.enablement is not None or table.version < 10:
            return at
        first, last = (table.history()[n].timestamp_ms or 0 for n in (-1, 0))
        guess = (timestamp_ms - first) * table.version // max(last - first, 1)
        return min(max(at, guess - 3), guess + 3)


@caught_by("ict-shown-*")
class AdjustsAcrossTheEnablement(DeltalogEngine):
    """Makes all times of the history increase, in-commit timestamps too."""

    def history(self, path: str) -> Mapping[int, int | None]:
        found, last = dict[int, int | None](), None
        for version, ms in sorted(super().history(path).items()):
            adjusted = ms if ms is None or last is None else max(ms, last + 1)
            last = last if adjusted is None else adjusted
            found[version] = adjusted
        return found


@caught_by("ict-shown-integers")
class ReadsNumbersAsDoubles(DeltalogEngine):
    def history(self, path: str) -> Mapping[int, int | None]:
        return {version: None if ms is None else int(float(ms)) for version, ms in super().history(path).items()}


@caught_by("ict-feed-late-*")
class StartsFeedsBeforeTheEnablement(DeltalogEngine):
    """For a start before the enablement, the version at that time is taken even if it is earlier than the start."""

    def changes(
        self,
        path: str,
        from_version: int | None = None,
        to_version: int | None = None,
        from_timestamp_ms: int | None = None,
        to_timestamp_ms: int | None = None,
    ) -> Any:
        table = DeltaTable.open(path)
        pair = table.snapshot().enablement
        if pair is not None and from_timestamp_ms is not None and from_timestamp_ms < pair.timestamp_ms:
            at = table.version_at(from_timestamp_ms, before="earliest")
            if at.version == pair.version - 1:
                from_version, from_timestamp_ms = at.version, None
        return super().changes(path, from_version, to_version, from_timestamp_ms, to_timestamp_ms)


@caught_by("ict-feed-timestamps-*")
class ShowsEveryTimestampInFeeds(DeltalogEngine):
    """The feed shows the in-commit timestamp of every commit that has one, even if it is not in effect."""

    def changes(self, path: str, *range_: Any, **named: Any) -> Any:
        found = super().changes(path, *range_, **named)
        times = []
        files = {int(file.stem): file for file in commits(path)}
        versions, shown = (found[name].to_pylist() for name in ("_commit_version", "_commit_timestamp"))
        for version, at in zip(versions, shown, strict=True):
            infos = [a["commitInfo"] for a in actions_of(files[version]) if "commitInfo" in a]
            own = infos[0].get("inCommitTimestamp") if infos else None
            times.append(own if isinstance(own, int) else int(at.timestamp() * 1000))
        column = pa.array([ms * 1000 for ms in times], pa.int64()).cast(pa.timestamp("us", "UTC"))
        return found.set_column(found.column_names.index("_commit_timestamp"), "_commit_timestamp", column)


@caught_by("ict-checksum-*")
class TrustsTheChecksum(Rewriting):
    """Takes the timestamp of the previous commit from the newest version checksum, without reading that commit."""

    def rewrite(self, actions: list[Action], version: int, path: str) -> list[Action]:
        checksums = sorted(file for file in log_of(path).glob("*.crc") if int(file.stem) < version)
        if checksums and "inCommitTimestamp" in info_of(actions):
            before = json.loads(checksums[-1].read_text()).get("inCommitTimestampOpt", 0)
            info_of(actions)["inCommitTimestamp"] = max(now_ms(), before + 1)
        return actions


@caught_by("ict-staged-*")
class ReadsStagedCommits(Edited):
    """Reads staged commits of a table that has no coordinator."""

    def edit(self, action: Action, root: Path) -> Action | None:
        return action

    @contextmanager
    def copy(self, path: str) -> Iterator[str]:
        with super().copy(path) as copied:
            for file in log_of(copied).glob("_staged_commits/*.json"):
                shutil.copy2(file, log_of(copied) / f"{file.name[:20]}.json")
            yield copied


@caught_by("ict-cleanup-*")
class CleansUpByFileTime(DeltalogEngine):
    """Deletes the commits before an earlier checkpoint if their files are older than 30 days."""

    def checkpoint(self, path: str) -> None:
        earlier = sorted(int(file.name[:20]) for file in log_of(path).glob("*.checkpoint*.parquet"))
        super().checkpoint(path)
        for file in commits(path):
            if earlier and int(file.stem) < earlier[-1] and file_ms(file) < now_ms() - 30 * 86_400_000:
                file.unlink()


@caught_by("ict-cleanup-*")
class DeletesTheCommitOfTheCheckpoint(DeltalogEngine):
    """Log clean-up also deletes the commit of the first checkpoint that it keeps."""

    def append(self, path: str, rows: pa.Table) -> None:
        begins = int(commits(path)[0].stem)
        super().append(path, rows)
        first = int(commits(path)[0].stem)
        if first != begins and any(log_of(path).glob(f"{first:020d}.checkpoint*")):
            commits(path)[0].unlink()


@caught_by("ict-cloned-*")
class ClonesThePair(DeltalogEngine):
    """Copies the properties of the source as they are."""

    def clone(self, path: str, target: str, shallow: bool, version: int | None = None) -> None:
        super().clone(path, target, shallow, version)
        (file,) = commits(target)
        actions = actions_of(file)
        for action in actions:
            if "metaData" in action:
                latest = int(commits(path)[-1].stem) if version is None else version
                action["metaData"]["configuration"] = configuration_of(path, latest)
        write_actions(file, actions)


@caught_by("ict-restore-*")
class RestoresThePair(Rewriting):
    """Restores the properties of the version as they are, the enablement pair too."""

    restored: int | None = None

    def restore(self, path: str, version: int) -> None:
        known = self._known(path)
        super().restore(path, version)
        self.restored = version
        self._after(path, known)
        self.restored = None

    def rewrite(self, actions: list[Action], version: int, path: str) -> list[Action]:
        if self.restored is None:
            return actions
        earlier = [action for file in commits(path)[:version] for action in actions_of(file)]
        metadata = [action for action in (*earlier, *actions) if "metaData" in action][-1]
        configuration = configuration_of(path, self.restored)
        metadata["metaData"]["configuration"] = configuration
        info = info_of(actions)
        if configuration.get(ICT_PROPERTY) != "true":
            info.pop("inCommitTimestamp", None)
        elif "inCommitTimestamp" not in info:
            actions[0] = {"commitInfo": {"inCommitTimestamp": now_ms(), **info}}
        return [*(action for action in actions if "metaData" not in action), metadata]


@caught_by("ict-turn-on-*")
class PairsFromTheStart(RewritingProperties):
    """Writes a pair with the first property change, though all commits have in-commit timestamps."""

    def configure(self, configuration: dict[str, str], version: int, ict_ms: int | None) -> None:
        if version and configuration.get(ICT_PROPERTY) == "true" and PAIR_VERSION not in configuration:
            configuration[PAIR_VERSION], configuration[PAIR_TIMESTAMP] = str(version), str(ict_ms)


@caught_by("ict-turn-on-*")
class KeepsAStalePair(Rewriting):
    """Enabling keeps a pair that is already there."""

    def rewrite(self, actions: list[Action], version: int, path: str) -> list[Action]:
        before = configuration_of(path, version - 1)
        for action in actions:
            if "metaData" in action and PAIR_VERSION in before and before.get(ICT_PROPERTY) != "true":
                kept = {key: before[key] for key in (PAIR_VERSION, PAIR_TIMESTAMP)}
                action["metaData"]["configuration"].update(kept)
        return actions


@caught_by("ict-clock-largest")
class OverflowsAtTheEnd(DeltalogEngine):
    """After the largest timestamp, commits with the time of its clock."""

    def append(self, path: str, rows: pa.Table) -> None:
        try:
            super().append(path, rows)
        except CorruptTableError:
            version = int(commits(path)[-1].stem) + 1
            info = {"commitInfo": {"inCommitTimestamp": now_ms()}}
            (log_of(path) / f"{version:020d}.json").write_text(json.dumps(info) + "\n")


@caught_by("ict-race-*")
class StampsAfterDisabling(DeltalogEngine):
    """Keeps the timestamp of its first attempt, even if the winner turned in-commit timestamps off."""

    def begin(self, path: str) -> Engine:
        enabled = DeltaTable.open(path).snapshot().in_commit_timestamps_enabled

        def append(path: str, rows: pa.Table) -> None:
            self.append(path, rows)
            newest = commits(path)[-1]
            actions = actions_of(newest)
            if enabled and "inCommitTimestamp" not in info_of(actions):
                actions[0] = {"commitInfo": {"inCommitTimestamp": now_ms(), **info_of(actions)}}
                write_actions(newest, actions)
                newest.with_suffix(".crc").unlink(missing_ok=True)

        return Pending(append)
