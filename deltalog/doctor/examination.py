"""Walks a log from the first version to the last in bounded memory and collects the findings of all checks.

The walk also handles tables that DeltaTable.open refuses: anything unreadable becomes a finding. Memory: the live
files, the reconciled actions of the range of a log compaction file, and a few commits at a time.
"""

from __future__ import annotations

import itertools
from array import array
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from deltalog.arrow_arrays import strings
from deltalog.doctor.catalog_state import examine_shown, list_log
from deltalog.doctor.checkpoints import CheckpointExamination, examine_leftover_sidecars
from deltalog.doctor.checksums import CheckpointSize, KnownState, examine_checksum, examine_hint, read_hint
from deltalog.doctor.commit_lines import Actions, examine_bytes, examine_numbers
from deltalog.doctor.commit_times import CommitTimes
from deltalog.doctor.commits import examine_commit
from deltalog.doctor.compactions import Window, examine_compaction
from deltalog.doctor.data_files import Counts, DataExamination
from deltalog.doctor.features import (
    examine_lowering,
    examine_needs,
    examine_properties,
    examine_protocol,
    has,
    is_on,
)
from deltalog.doctor.file_entries import ENTRY_RULES, Rules, examine_add, rules_of
from deltalog.doctor.findings import CheckReport, Collector, Examined, Finding, found
from deltalog.doctor.iceberg import changed_partitions
from deltalog.doctor.listing import (
    LogFiles,
    describe_lost,
    examine_names,
    examine_orphans,
    examine_segment,
    examine_staged,
    later_files,
    log_files,
)
from deltalog.doctor.live_files import LiveFiles, apply, digest_of, examine_row_ids
from deltalog.doctor.lost_commits import UNKNOWN_MS, examine_reach
from deltalog.doctor.lost_versions import RemovedFiles, described, lost, names_of
from deltalog.doctor.plain_entries import PlainEntries
from deltalog.doctor.presence import AT_ONCE, FilePresence, parts
from deltalog.doctor.progress import Progress, silent
from deltalog.doctor.staged_commits import examine_published, examine_ratified
from deltalog.doctor.table_metadata import EarlierMetadata, examine_change, examine_domains, examine_metadata, schema_of
from deltalog.doctor.tombstones import MOST, Key, Tombstones
from deltalog.doctor.unnamed_files import unnamed_data_files
from deltalog.environment import Environment
from deltalog.errors import DeltaLogError, InvalidPropertyError, ObjectNotFoundError, StoreError
from deltalog.lazy_arrow import pc
from deltalog.log.checkpoint.reader import LEAN
from deltalog.log.checkpoint.rows import Wanted
from deltalog.log.file_tables import FILES, add_actions
from deltalog.log.reader import LogReader
from deltalog.log.replay import PartialState, advance
from deltalog.log.segment import Checkpoint
from deltalog.protocol.actions import AddFile, Metadata, Protocol
from deltalog.protocol.features import CATALOG_MANAGED
from deltalog.protocol.paths import (
    LAST_CHECKPOINT,
    LOG_DIRECTORY,
    SIDECARS_DIRECTORY,
    STAGED_COMMITS_DIRECTORY,
    checksum_path,
    commit_path,
    log_path,
    place_of,
)
from deltalog.protocol.retention import log_cutoff_ms
from deltalog.protocol.row_tracking import DOMAIN, high_water_mark
from deltalog.protocol.timestamps import LARGEST_MS
from deltalog.storage.base import FileMeta

if TYPE_CHECKING:
    import pyarrow as pa

# Unless ``deep`` is set, a check reads this many footers. On a remote store, a check without ``deep`` also does not
# verify that the remaining data files exist.
FOOTERS = 10_000
_AT_ONCE, _AT_ONCE_BYTES = 64, 8 << 20


@dataclass
class Examination:
    """One check of one table. ``progress``: called with the name of the step, the number of items done, and their
    total."""

    reader: LogReader
    environment: Environment
    deep: bool = False
    progress: Progress = silent
    collector: Collector = field(default_factory=Collector)
    state: PartialState = field(default_factory=PartialState)
    live: LiveFiles | None = None  # None if not all live files are known
    latest: int | None = None
    checkpoints: dict[int, list[CheckpointSize]] = field(default_factory=dict)
    _base: tuple[Checkpoint, int] | None = None  # the newest readable checkpoint and its version
    _unusable: list[Checkpoint] = field(default_factory=list)
    _sidecars: set[str] = field(default_factory=set)
    _windows: list[Window] = field(default_factory=list)
    _tombstones: Tombstones = field(default_factory=Tombstones)
    _current: list[Finding] = field(default_factory=list)
    _rules: Rules | None = None
    _plain: PlainEntries | None = None
    _earlier: EarlierMetadata = field(default_factory=EarlierMetadata)
    _examined: Examined = field(default_factory=Examined)
    _commit_ms: array[int] = field(default_factory=lambda: array("q"))  # of each commit, if known
    _created_ms: int | None = None  # of the table, according to the first metaData in the log

    def run(self) -> CheckReport:
        """Run the check. Raises only the store's error if the store is unreachable at the first listing."""
        files = log_files(self._listed(LOG_DIRECTORY))
        self.latest = files.latest
        self._times = CommitTimes(self.environment.clock_ms())
        self._removed = RemovedFiles(self.environment.clock_ms())
        self.live = LiveFiles(place_of(self.reader.store.url)) if files.listing.commits[:1] == (0,) else None
        self.collector.take(examine_names(files))
        self._walk(files)
        self.collector.take(examine_segment(files, self._unusable))
        self._finish(files)
        counts = Counts()
        is_known = False
        if self.live is not None and self.state.protocol is not None and self.state.metadata is not None:
            is_known = True
            self._examined = replace(self._examined, live_files=len(self.live))
            self._examine_removed(self.state.metadata)
            counts = self._examine_data(files)
        examined = replace(self._examined, footers=counts.footers, rows=counts.rows)
        return CheckReport(
            self.reader.store.url,
            self.latest,
            self.deep,
            self.collector.sorted(),
            dict(self.collector.of_rules),
            examined,
            is_readable=is_known,
        )

    def _listed(self, directory: str) -> list[FileMeta]:
        try:
            if directory == LOG_DIRECTORY:
                metas, findings = list_log(self.reader.store)
                self.collector.take(findings)
                return metas
            return self.reader.store.list_from(directory)
        except StoreError as error:
            self.collector.one("log-unreadable", f"{directory} cannot be listed: {error}", None, directory)
            return []

    # --------------------------------------------------------------------------- walking through the log

    def _walk(self, files: LogFiles) -> None:
        listing = files.listing
        by_version: dict[int, list[Checkpoint]] = {}
        for checkpoint in listing.checkpoints:
            by_version.setdefault(checkpoint.version, []).append(checkpoint)
        commits = set(listing.commits)
        versions = sorted(commits | by_version.keys())
        starts: dict[int, list[Window]] = {}
        for file in files.compactions:
            if file.end_version is not None and file.end_version > file.version:
                starts.setdefault(file.version, []).append(Window(file))
        reading = self._commits(listing.commits, files)
        previous: int | None = None
        for number, version in enumerate(versions):
            if previous is not None and version != previous + 1 and version in commits:
                self._lose()
            elif previous is None and version > 0:
                self._times.skip()
            self._windows += starts.pop(version, [])
            if version in commits:
                data = next(reading)
                self._commit(version, data, files)
                previous = version
            elif version in by_version:
                self._lose()
                previous = version
            for checkpoint in by_version.get(version, ()):
                self._checkpoint(checkpoint, files)
            self._end_windows(version)
            if number % 100 == 0:
                self.progress("versions", number, len(versions))
        self._windows += [window for windows in starts.values() for window in windows]
        self._end_windows(None)
        self.progress("versions", len(versions), len(versions))

    def _commits(self, versions: Sequence[int], files: LogFiles) -> Iterator[bytes | str]:
        """The bytes of each commit, or the reason why it cannot be read."""
        batch: list[int] = []
        size = 0
        for version in versions:
            meta = files.listing.metas.get(version)
            batch.append(version)
            size += (meta.size_bytes if meta is not None else None) or 0
            if len(batch) >= _AT_ONCE or size >= _AT_ONCE_BYTES:
                yield from self._gets([commit_path(each) for each in batch])
                batch, size = [], 0
        yield from self._gets([commit_path(each) for each in batch])

    def _gets(self, paths: list[str]) -> Iterator[bytes | str]:
        try:
            yield from self.reader.store.get_many(paths)
            return
        except (StoreError, OSError):
            pass
        for path in paths:
            try:
                yield self.reader.store.get(path)
            except (StoreError, OSError) as error:
                yield str(error)

    def _lose(self) -> None:
        """Discard the state of the table, because commits before the next version are missing."""
        self.live = None
        self._tombstones.forget()
        self._removed.forget()
        self._times.skip()

    def _commit(self, version: int, data: bytes | str, files: LogFiles) -> None:
        path, actions = commit_path(version), Actions()
        if isinstance(data, str):
            actions.is_whole = False
            self.collector.one("commit-unreadable", data, version, path)
        else:
            self.collector.take(examine_bytes(data, version, path, actions))
        self._examined = replace(self._examined, commits=self._examined.commits + 1)
        self.collector.take(examine_numbers(actions, version, path))
        before = self.state
        self.state = advance(self.state, [actions])
        protocol, metadata = self.state.protocol, self.state.metadata
        for kind, action in (("protocol", protocol), ("metadata", metadata)):
            if (
                action is None
                and self.live is not None
                and actions.is_whole
                and not self.collector.has(f"{kind}-missing")
            ):
                self.collector.one(f"{kind}-missing", f"No {kind} action up to version {version}.", version, path)
        if (actions.protocols or actions.metadatas) and protocol is not None and metadata is not None:
            self._use(protocol, metadata)
        known = self._rules if protocol is not None and metadata is not None else None
        first = not self.collector.has("commit-info-absent")
        self.collector.take(
            finding
            for finding in examine_commit(actions, version, known, before, self.live is not None)
            if first or finding.rule != "commit-info-absent"
        )
        if known is not None:
            assert self._plain is not None
            for add in actions.adds:
                if not self._plain.is_plain(add):
                    self.collector.take(examine_add(add, known, version))
        for file in actions.cdc:
            self._change_file(file.path, version)
        older = self.live is not None and self._has_older_files(actions)
        if self.live is not None and metadata is not None:
            self._removed.take(version, actions, self.live, metadata.configuration)
        if self.live is not None:
            self.collector.take(apply(self.live, actions, version, known, actions.is_whole))
        if actions.protocols or actions.metadatas:
            self._state_changed(before, actions, version, older)
        for window in self._windows:
            window.take(actions)
        if files.listing.checkpoints and version <= files.listing.checkpoints[-1].version:
            self._tombstones.take(actions)
        meta = files.listing.metas.get(version)
        active = is_on(protocol, metadata) if protocol is not None and metadata is not None else None
        file_ms = None if meta is None else meta.modification_time_ms
        # A commit that is not whole may have lost its commitInfo, so that it is missing is no finding of its own.
        is_read = not isinstance(data, str) and (actions.is_whole or bool(actions.infos))
        self._times.take(version, actions, active, file_ms, is_read)
        self._commit_ms.append(_time_of(actions, active, file_ms))
        if not actions.is_whole:
            self.live = None
        if version in files.listing.checksums:
            self._checksum(version, actions, active)

    def _use(self, protocol: Protocol, metadata: Metadata) -> None:
        self._rules = rules_of(protocol, metadata, self.reader.store.url)
        self._plain = PlainEntries(self._rules)

    def _change_file(self, named: str, version: int) -> None:
        """Check that a change data file exists."""
        try:
            store, path = self.reader.files.find(named)
            if store.head(path) is None:
                self.collector.one("cdc-file-missing", "The file does not exist.", version, named)
        except (DeltaLogError, OSError):
            pass  # the file is outside the table, or the store is unreachable: whether the file exists is unknown

    def _has_older_files(self, actions: Actions) -> bool:
        """Whether any file that was live before a commit is still live after it."""
        assert self.live is not None
        if len(self.live) > len(actions.removes):
            return True
        return bool(self.live.packed.keys() - {remove.path for remove in actions.removes})

    def _state_changed(self, before: PartialState, actions: Actions, version: int, older: bool) -> None:
        protocol, metadata, path = self.state.protocol, self.state.metadata, commit_path(version)
        operation = actions.info.operation if actions.info is not None else None
        if before.protocol is not None and protocol is not None:
            self.collector.take(examine_lowering(before.protocol, protocol, operation, version, path))
        if before.metadata is not None and metadata is not None and actions.metadatas:
            restored = self._earlier.restored_by(actions.info)
            records_types = protocol is None or has(protocol, "typeWidening")
            self.collector.take(
                examine_change(before.metadata, metadata, version, path, older, restored, records_types)
            )
            if protocol is not None and self.live is not None:
                self.collector.take(
                    found(rule, text, version, path)
                    for rule, text in changed_partitions(protocol, before.metadata, metadata)
                )
        if metadata is not None and actions.metadatas:
            self._take_metadata(version, metadata)
        self._examine_state(version, path)

    def _take_metadata(self, version: int, metadata: Metadata) -> None:
        self._earlier.take(version, metadata)
        if self._created_ms is None:
            self._created_ms = metadata.created_time

    def _examine_state(self, version: int, path: str) -> None:
        """Check the protocol and metadata as of this version. A defect that a later version corrects is reported as a
        warning."""
        now = list(_of_state(self.state.protocol, self.state.metadata, version, path))
        rules = {finding.rule for finding in now}
        for finding in self._current:
            if finding.rule not in rules:
                corrected = replace(finding, severity="warning") if finding.severity == "error" else finding
                self.collector.take([corrected])
        self._current = now

    def _checksum(self, version: int, actions: Actions, active: bool | None) -> None:
        path = checksum_path(version)
        try:
            data = self.reader.store.get(path)
        except (StoreError, OSError) as error:
            self.collector.one("crc-unreadable", str(error), version, path)
            return
        self._examined = replace(self._examined, checksums=self._examined.checksums + 1)
        known = KnownState(self.state, self.live, active) if self.live is not None else None
        self.collector.take(examine_checksum(data, version, actions, known))

    def _checkpoint(self, checkpoint: Checkpoint, files: LogFiles) -> None:
        def size_of(name: str) -> int | None:
            meta = files.metas.get(name)
            return None if meta is None else meta.size_bytes

        examination = CheckpointExamination(self.reader, checkpoint, size_of, self.progress)
        known = self.state if self.live is not None else None
        times = [files.metas[name].modification_time_ms for name in checkpoint.names if name in files.metas]
        written_ms = max((each for each in times if each is not None), default=None)
        metadata = self.state.metadata
        required: set[Key] = set()
        if metadata is not None and written_ms is not None:
            required = self._tombstones.required(metadata.configuration, written_ms)
        self.collector.take(examination.run(known, self.live, required))
        self._tombstones.drop(examination.missing)
        self._examined = replace(self._examined, checkpoints=self._examined.checkpoints + 1)
        self._sidecars.update(examination.sidecars)
        size = examination.size or CheckpointSize(checkpoint.version, len(checkpoint.names))
        self.checkpoints.setdefault(checkpoint.version, []).append(size)
        if not examination.is_usable:
            self._unusable.append(checkpoint)
            return
        self._base = (checkpoint, checkpoint.version)
        if self.live is None and examination.files is not None:
            self.live = examination.files
            changed = (self.state.protocol, self.state.metadata) != (
                examination.state.protocol,
                examination.state.metadata,
            )
            self.state = examination.state
            assert self.state.protocol is not None and self.state.metadata is not None
            self._use(self.state.protocol, self.state.metadata)
            self._take_metadata(checkpoint.version, self.state.metadata)
            if changed:
                self._examine_state(checkpoint.version, log_path(checkpoint.names[0]))

    def _end_windows(self, version: int | None) -> None:
        for window in self._windows:
            if version is not None and window.file.end_version != version:
                continue
            path = log_path(window.file.name)
            try:
                data = self.reader.store.get(path)
            except (StoreError, OSError) as error:
                self.collector.one("compaction-unreadable", str(error), window.file.version, path)
                continue
            self._examined = replace(self._examined, compactions=self._examined.compactions + 1)
            self.collector.take(examine_compaction(data, window))
        self._windows = [
            window for window in self._windows if version is not None and window.file.end_version != version
        ]

    # ------------------------------------------------------------------------------------------- the end

    def _finish(self, files: LogFiles) -> None:
        latest = self.latest
        if latest is None:
            return
        protocol, metadata, path = self.state.protocol, self.state.metadata, commit_path(latest)
        self.collector.take(self._current)
        if self.live is not None:
            self.collector.lower(ENTRY_RULES, self.live.packed, self.live.vectors)
        if metadata is not None:
            last_commit = files.listing.commits[-1] if files.listing.commits else latest
            self.collector.take(self._times.finish(metadata.configuration, last_commit))
            self.collector.take(self._examine_reach(files, metadata))
        managed = protocol is not None and CATALOG_MANAGED in (protocol.writer_features or ())
        if protocol is not None and metadata is not None:
            self.collector.take(examine_domains(protocol, metadata, self.state.domains, latest, path))
            if self.live is not None and self._rules is not None and self._rules.tracks_rows:
                is_enabled = metadata.configuration.get("delta.enableRowTracking", "").lower() == "true"
                self.collector.take(examine_row_ids(self.live, self._mark(), latest, is_enabled))
        if managed and self.reader.authority.catalog is None:
            self.collector.one("catalog-not-consulted", "The log was read without the catalog.", latest)
        self._hint()
        self._lost_commits(files, managed)
        without = len(set(files.listing.commits) - files.listing.checksums)
        if without and files.listing.checksums:
            self.collector.one("crc-missing", f"{without} of {len(files.listing.commits)} versions have no .crc.")
        names = (meta.name for meta in self._listed(SIDECARS_DIRECTORY))
        self.collector.take(examine_leftover_sidecars(names, self._sidecars))
        staged = [meta.name for meta in self._listed(STAGED_COMMITS_DIRECTORY)]
        self.collector.take(examine_staged(staged, latest, managed))
        if managed:
            self.collector.take(examine_ratified(self.reader.store))
            self.collector.take(examine_published(self.reader.store, staged))
            if protocol is not None and metadata is not None:
                domains = self.state.domains.values()
                self.collector.take(examine_shown(self.reader.store, latest, protocol, metadata, domains))
        self._gone(files)

    def _lost_commits(self, files: LogFiles, is_managed: bool) -> None:
        """Report ``.crc`` files without a commit, and commits that are missing at the end of the log. Cost: 1 HEAD; if
        commits are missing, 1 GET, a listing of the table and the commits again."""
        last = files.listing.commits[-1] if files.listing.commits else None
        later = [] if last is None or is_managed else later_files(files, last)
        if later and self._exists(commit_path(later[0][0])):
            later = []  # a writer has committed since the log was listed
        lost = {version for version, _ in later}
        self.collector.take(examine_orphans(files, lost))
        if not later or last is None:
            return
        first, path = later[0]
        checksum = self.reader.checksum(first) if path == checksum_path(first) else None
        counted = None if checksum is None else checksum.totals.num_files
        live = None if self.live is None else len(self.live)
        unnamed = unnamed_data_files(self.reader, self.environment)
        text = describe_lost(last, [path for _, path in later], counted, live, unnamed)
        self.collector.one("latest-commit-missing", text, first, path)

    def _exists(self, path: str) -> bool:
        try:
            return self.reader.store.head(path) is not None
        except (StoreError, OSError):
            return False

    def _examine_reach(self, files: LogFiles, metadata: Metadata) -> Iterator[Finding]:
        try:
            cutoff_ms = log_cutoff_ms(metadata.configuration, self.environment.clock_ms())
        except InvalidPropertyError:
            return
        unusable = set(self._unusable)
        usable = [each.version for each in files.listing.checkpoints if each not in unusable]
        yield from examine_reach(files.listing.commits, self._commit_ms, usable, self._created_ms, cutoff_ms)

    def _gone(self, files: LogFiles) -> None:
        """Report commits that are missing although time travel by timestamp needs them."""
        first = self._times.first_active
        commits = files.listing.commits
        if first is None or not commits:
            return
        for before, after in itertools.pairwise(commits):
            if after > before + 1 and after > first:
                text = f"In-commit timestamps are on, but version {before + 1} has no commit."
                self.collector.one("ict-commit-gone", text, before + 1, commit_path(before + 1))

    def _mark(self) -> int | None:
        try:
            domain = self.state.domains.get(DOMAIN)
            return None if domain is None else high_water_mark([domain])
        except DeltaLogError:
            return None

    def _hint(self) -> None:
        path = log_path(LAST_CHECKPOINT)
        try:
            data: bytes | None = self.reader.store.get(path)
        except ObjectNotFoundError:
            data = None
        except (StoreError, OSError) as error:
            self.collector.one("last-checkpoint-unreadable", str(error), None, path)
            return
        named = None if data is None else (read_hint(data) or {}).get("version")
        if isinstance(named, int) and named not in self.checkpoints and self._has_checkpoint(named):
            return  # a writer has written the checkpoint since the log was listed
        self.collector.take(examine_hint(data, self.checkpoints))

    def _has_checkpoint(self, version: int) -> bool:
        try:
            return any(each.version == version for each in self.reader.list_from(version).checkpoints)
        except (DeltaLogError, OSError):
            return False

    # --------------------------------------------------------------------------------------- data files

    def _live_adds(self, files: LogFiles, wanted: Collection[str] | None) -> Iterator[AddFile]:
        """Yield the add actions of the live files, or of those of them that are ``wanted``: first those in the newest
        checkpoint, then those in later commits. Removes every yielded file from ``live``."""
        assert self.live is not None
        start = 0
        names = None if wanted is None else strings(list(wanted))

        def adds_of(rows: pa.Table) -> list[AddFile]:
            return add_actions(rows if names is None else rows.filter(pc.is_in(rows["path"], value_set=names)))

        if self._base is not None:
            checkpoint, version = self._base
            start = version + 1
            try:
                for adds in self.reader.checkpoint(checkpoint).file_pieces(Wanted("add", FILES), adds_of, LEAN):
                    yield from self._still_live(adds)
            except (DeltaLogError, OSError):
                start = 0
        rest = [version for version in files.listing.commits if version >= start]
        for version, data in zip(rest, self._commits(rest, files), strict=True):
            if isinstance(data, bytes):
                actions = Actions()
                for _ in examine_bytes(data, version, commit_path(version), actions):
                    pass  # the findings of this commit were reported before
                yield from self._still_live(add for add in actions.adds if wanted is None or add.path in wanted)

    def _still_live(self, adds: Iterable[AddFile]) -> Iterator[AddFile]:
        assert self.live is not None
        for add in adds:
            entry = self.live.get(add.path)
            if entry is not None and entry.digest == digest_of(add):
                del self.live.packed[add.path]
                yield add

    def _examine_removed(self, metadata: Metadata) -> None:
        """Check that files removed within the retention period still exist. Cost: 1 HEAD per file, on a remote store
        for at most the last ``FOOTERS`` files."""
        assert self.live is not None
        spans = self._removed.needed(metadata.configuration, self.live)
        names = names_of(reversed(spans))
        if not self._removed.is_whole:
            text = f"More than {MOST} files were removed within the retention period."
            self.collector.one("data-file-not-checked", text, self.latest)
        if self.reader.store.is_remote and not self.deep and len(names) > FOOTERS:
            text = f"Only the last {FOOTERS} of the {len(names)} files that earlier versions need were looked for."
            self.collector.one("data-file-not-checked", text, self.latest)
            names = names[:FOOTERS]
        presence = FilePresence(self.reader.files, self.live.place)
        gone = presence.missing(names, lambda done: self.progress("removed files", done, len(names)))
        affected = list(lost(spans, gone))
        if affected:
            first = min(affected, key=lambda span: span.first)
            path = first.path if first.path in gone else first.vector
            text = f"Missing files: {len(gone)}. Unreadable versions: {described(affected)}."
            self.collector.one("version-lost", text, max(span.last for span in affected), path)

    def _examine_data(self, files: LogFiles) -> Counts:
        assert self.live is not None and self._rules is not None and self.latest is not None
        live, total = self.live, len(self.live)
        examination = DataExamination(self.reader.files, self._rules, self.latest)
        every = 1 if self.deep else max(1, -(-total // FOOTERS))
        chosen = None if every == 1 else set(itertools.islice(live.packed, 0, None, every))
        is_sampled = chosen is not None and self.reader.store.is_remote
        for number, some in enumerate(parts(chosen if chosen is not None and is_sampled else live.packed)):
            self.progress("data files", number * AT_ONCE, len(chosen) if chosen is not None and is_sampled else total)
            self.collector.take(examination.examine_presence(live.sizes(some)))
        wanted = chosen
        if chosen is not None and not is_sampled:
            wanted = None if examination.identities else {*chosen, *live.vectors}
        number = total if wanted is None else len(wanted)
        for done, add in enumerate(self._live_adds(files, wanted)):
            if add.path not in examination.absent:
                footer = chosen is None or add.path in chosen
                self.collector.take(examination.examine(add, footer, self.deep))
            if done % 100 == 0:
                self.progress("footers", done, number)
        if every > 1:
            text = f"Footers were read for one in {every} of {total} files."
            self.collector.one("data-file-not-checked", text, self.latest)
        self.progress("footers", number, number)
        return examination.counts


def _time_of(actions: Actions, is_ict_on: bool | None, file_ms: int | None) -> int:
    """The time of a commit in ms since 1970, or UNKNOWN_MS."""
    ict_ms = actions.info.in_commit_timestamp_ms if is_ict_on and actions.info is not None else None
    time_ms = file_ms if ict_ms is None else ict_ms
    return UNKNOWN_MS if time_ms is None or not 0 <= time_ms <= LARGEST_MS else time_ms


def _of_state(protocol: Protocol | None, metadata: Metadata | None, version: int, path: str) -> Iterator[Finding]:
    if protocol is not None:
        yield from examine_protocol(protocol, version, path)
    if metadata is None:
        return
    has_unknown = protocol is not None and any(
        finding.rule == "feature-unknown" for finding in examine_protocol(protocol, version, path)
    )
    for finding in examine_metadata(protocol, metadata, version, path):
        # A table feature unknown to deltalog may define the unknown type.
        is_open = has_unknown and finding.rule in ("schema-type-unknown", "metadata-schema-invalid")
        yield replace(finding, severity="warning") if is_open else finding
    if protocol is not None:
        yield from examine_properties(protocol, metadata, version, path)
        schema = schema_of(metadata)
        if schema is not None:
            yield from examine_needs(protocol, metadata, schema, version, path)
