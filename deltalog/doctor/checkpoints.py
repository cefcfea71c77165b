"""Checks checkpoints. If the commits determine the state, the checkpoint must match this state; otherwise the
checkpoint supplies the state.

Spec: PROTOCOL.md#checkpoints-1, #v1-spec, #v2-spec, #sidecar-file-information. Defects become findings, never
exceptions.
"""

from __future__ import annotations

import contextlib
import heapq
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from deltalog.doctor.checksums import CheckpointSize
from deltalog.doctor.commit_lines import TYPES, Actions, examine_bytes
from deltalog.doctor.features import has
from deltalog.doctor.file_entries import Rules, examine_add, num_records_of, rules_of
from deltalog.doctor.findings import Finding, found
from deltalog.doctor.live_files import LiveFiles, digest_of, vector_id
from deltalog.doctor.parsed_statistics import examine_parsed
from deltalog.doctor.plain_entries import PlainEntries
from deltalog.doctor.progress import Progress, silent
from deltalog.doctor.tombstones import Key
from deltalog.errors import DeltaLogError, InvalidCommitError, ObjectNotFoundError, StoreError, UnsafePathError
from deltalog.log.checkpoint.footer import check_footer
from deltalog.log.checkpoint.reader import LEAN
from deltalog.log.checkpoint.rows import Wanted, small_actions
from deltalog.log.checksum import differences
from deltalog.log.file_tables import FILES, TOMBSTONES, add_actions
from deltalog.log.reader import LogReader
from deltalog.log.replay import PartialState
from deltalog.log.segment import Checkpoint
from deltalog.parquet.footers import open_parquet
from deltalog.protocol.actions import AddFile, DeletionVector, Sidecar
from deltalog.protocol.paths import LogFileKind, log_path, place_of
from deltalog.protocol.properties import SET_TRANSACTION_RETENTION_MS

_SMALL = ("protocol", "metaData", "txn", "domainMetadata", "sidecar", "checkpointMetadata", "commitInfo", "cdc")
_READ_ERRORS = (pa.ArrowException, OSError, ValueError, LookupError, ArithmeticError, TypeError, DeltaLogError)
_MOST_MISSING = 20
_KEY = pa.schema([TOMBSTONES.field("path"), TOMBSTONES.field("deletion_vector")])


@dataclass(slots=True)
class CheckpointExamination:
    """The check of one checkpoint. ``run`` sets ``is_usable``, ``size``, ``sidecars`` and ``missing`` (the required
    tombstones that the checkpoint lacks). If the state before the checkpoint was unknown, ``run`` also sets ``state``
    and ``files`` to the values from the checkpoint."""

    reader: LogReader
    checkpoint: Checkpoint
    size_of: Callable[[str], int | None]
    progress: Progress = silent
    small: Actions = field(default_factory=Actions)
    others: list[str] = field(default_factory=list)
    sidecars: list[str] = field(default_factory=list)
    state: PartialState = field(default_factory=PartialState)
    files: LiveFiles | None = None
    is_usable: bool = True
    size: CheckpointSize | None = None
    missing: set[Key] = field(default_factory=set)
    _adds: int = 0
    _removes: int = 0
    _strange: set[str] = field(default_factory=set)  # the files in the checkpoint that are not live

    @property
    def _path(self) -> str:
        return log_path(self.checkpoint.names[0])

    def run(
        self, known: PartialState | None, live: LiveFiles | None, tombstones: Collection[Key] = ()
    ) -> Iterator[Finding]:
        """Check the checkpoint against the commits. ``known``: the state according to the commits, or None if unknown;
        ``live``: the live files of that state; ``tombstones``: the tombstones that the checkpoint must contain."""
        version = self.checkpoint.version
        self.missing = set(tombstones)
        for rule, text in self._read_small():
            self.is_usable = self.is_usable and rule != "checkpoint-unreadable"
            yield found(rule, text, version, self._path)
        if not self.is_usable:
            return
        for rule, text in (*self._numbers(), *self._kind()):
            yield found(rule, text, version, self._path)
        if self.small.protocols and self.small.metadatas:
            self.state = PartialState(
                self.small.protocols[-1], self.small.metadatas[-1],
                {each.app_id: each for each in self.small.transactions},
                {each.domain: each for each in self.small.domains if not each.removed},
            )  # fmt: skip
        else:
            self.is_usable = False
        if known is not None:
            for rule, text in _compared(known, self.small):
                yield found(rule, text, version, self._path)
        yield from self._examine_sidecars()
        if self.is_usable:
            yield from self._examine_files(live)
        is_flat = self.checkpoint.kind is not LogFileKind.UUID_CHECKPOINT and not self.small.checkpoint_metadata
        count = self._adds + self._removes + self._small_count() if self.is_usable and is_flat else None
        self.size = CheckpointSize(
            version, len(self.checkpoint.names), count, self._adds if self.is_usable else None
        )  # fmt: skip
        if self.is_usable:
            yield from self._tags()

    def _small_count(self) -> int:
        small = self.small
        lists: tuple[list[Any], ...] = (small.protocols, small.metadatas, small.transactions, small.domains)
        return sum(map(len, lists))

    # --------------------------------------------------------- protocol, metadata and other small actions

    def _read_small(self) -> Iterator[tuple[str, str]]:
        if self.checkpoint.is_json:
            yield from self._read_json()
            return
        for name in self.checkpoint.names:
            try:
                with contextlib.closing(self.reader.store.open_input(log_path(name))) as source:
                    yield from self._small_of(source)
            except _READ_ERRORS as error:
                yield "checkpoint-unreadable", f"{name} cannot be read: {error}"

    def _small_of(self, source: Any) -> Iterator[tuple[str, str]]:
        with open_parquet(source) as file:
            footer, schema = file.metadata, file.schema_arrow
            groups = map(footer.row_group, range(footer.num_row_groups))
            check_footer(schema, footer.num_rows, (group.total_byte_size for group in groups))
            columns = [name for name in _SMALL if name in schema.names]
            for batch in file.iter_batches(LEAN.rows, columns=columns, use_threads=False) if columns else ():
                table = pa.Table.from_batches([batch])
                for key, body in small_actions(table, columns):
                    yield from self._take(key, body)

    def _take(self, key: str, body: dict[str, Any]) -> Iterator[tuple[str, str]]:
        if key == "checkpointMetadata":
            self.small.checkpoint_metadata.append({**body, "tags": dict(body.get("tags") or ())})
        elif key in ("commitInfo", "cdc"):
            if key not in self.others:
                self.others.append(key)
        else:
            for name in ("tags",):
                if isinstance(body.get(name), list):
                    body[name] = dict(body[name])
            try:
                removed = {"removed": False} if key == "domainMetadata" else {}
                self.small.take(TYPES[key].from_json({**removed, **body}))
            except InvalidCommitError as error:
                yield "checkpoint-action-invalid", str(error)

    def _read_json(self) -> Iterator[tuple[str, str]]:
        try:
            data = self.reader.store.get(self._path)
        except (StoreError, ObjectNotFoundError) as error:
            yield "checkpoint-unreadable", str(error)
            return
        for finding in examine_bytes(data, self.checkpoint.version, self._path, self.small):
            if finding.severity == "error":
                yield "checkpoint-unreadable", finding.message
        self.others += ["commitInfo"] * bool(self.small.infos) + ["cdc"] * bool(self.small.cdc)

    def _numbers(self) -> Iterator[tuple[str, str]]:
        if not self.small.protocols:
            yield "checkpoint-protocol-missing", "The checkpoint has no protocol action."
        if not self.small.metadatas:
            yield "checkpoint-metadata-missing", "The checkpoint has no metaData action."
        for kind, times in (("protocol", len(self.small.protocols)), ("metaData", len(self.small.metadatas))):
            if times > 1:
                yield "checkpoint-single-action-twice", f"The checkpoint has {times} {kind} actions."
        for kind, names in (
            ("txn", [each.app_id for each in self.small.transactions]),
            ("domainMetadata", [each.domain for each in self.small.domains]),
        ):
            if len(set(names)) < len(names):
                yield "checkpoint-single-action-twice", f"Two {kind} actions have the same name."
        for each in self.small.domains:
            if each.removed:
                yield "checkpoint-domains-differ", f"The checkpoint contains the removed domain {each.domain}."
        for other in self.others:
            yield "checkpoint-holds-provenance", f"The checkpoint contains {other} actions."

    def _kind(self) -> Iterator[tuple[str, str]]:
        kind, marks = self.checkpoint.kind, self.small.checkpoint_metadata
        protocol = self.small.protocol
        allowed = protocol is not None and has(protocol, "v2Checkpoint")
        if kind is LogFileKind.UUID_CHECKPOINT:
            if protocol is not None and not allowed:
                yield "uuid-checkpoint-without-feature", "The protocol does not list v2Checkpoint."
            if len(marks) != 1:
                yield "checkpoint-metadata-action-missing", f"Expected 1 checkpointMetadata action, found {len(marks)}."
        elif kind is LogFileKind.MULTI_PART_CHECKPOINT:
            rule = "multi-part-checkpoint-with-v2" if allowed else "multi-part-checkpoint"
            yield rule, f"The checkpoint has {len(self.checkpoint.names)} parts."
        if (marks or self.small.sidecars) and not allowed and protocol is not None:
            yield "checkpoint-v2-action-in-v1", "The protocol does not list v2Checkpoint."
        elif len(marks) > 1 or (self.small.sidecars and not marks):
            yield "checkpoint-metadata-action-missing", f"Expected 1 checkpointMetadata action, found {len(marks)}."
        for mark in marks:
            if mark.get("version") != self.checkpoint.version:
                yield "checkpoint-metadata-version-differs", f"The action names version {mark.get('version')!r}."

    def _tags(self) -> Iterator[Finding]:
        for mark in self.small.checkpoint_metadata:
            tags = mark.get("tags") or {}
            total = sum(sidecar.size_in_bytes for sidecar in self.small.sidecars)
            for name, number in (("numOfAddFiles", self._adds), ("sidecarSizeInBytes", total)):
                if isinstance(tags, dict) and tags.get(name) is not None and str(tags[name]) != str(number):
                    text = f"The tag {name} is {tags[name]}; expected {number}."
                    yield found("checkpoint-counts-differ", text, self.checkpoint.version, self._path)

    # -------------------------------------------------------------------------------------- file actions

    def _examine_sidecars(self) -> Iterator[Finding]:
        version = self.checkpoint.version
        for sidecar in self.small.sidecars:
            try:
                _, path = self.reader.files.find_sidecar(sidecar.path)
            except UnsafePathError as error:
                yield found("sidecar-path-invalid", str(error), version, self._path)
                self.is_usable = False
                continue
            self.sidecars.append(path.rpartition("/")[2])
            yield from self._examine_sidecar(sidecar, path)

    def _examine_sidecar(self, sidecar: Sidecar, path: str) -> Iterator[Finding]:
        version = self.checkpoint.version
        try:
            meta = self.reader.store.head(path)
        except StoreError as error:
            self.is_usable = False
            yield found("sidecar-unreadable", str(error), version, self._path)
            return
        if meta is None:
            self.is_usable = False
            yield found("sidecar-missing", f"{path} does not exist.", version, self._path)
        elif meta.size_bytes is not None and meta.size_bytes != sidecar.size_in_bytes:
            text = f"{path} has {meta.size_bytes} bytes; its sidecar action says {sidecar.size_in_bytes}."
            yield found("sidecar-size-differs", text, version, self._path)

    def _pieces(self, wanted: Wanted, convert: Callable[[pa.Table], Any]) -> Iterator[Any]:
        return self.reader.checkpoint(self.checkpoint, checks_number=False).file_pieces(wanted, convert, LEAN)

    def _examine_files(self, live: LiveFiles | None) -> Iterator[Finding]:
        version = self.checkpoint.version
        protocol, metadata = self.state.protocol, self.state.metadata
        assert protocol is not None and metadata is not None
        rules = rules_of(protocol, metadata, self.reader.store.url)
        plain = PlainEntries(rules)
        if live is None:
            self.files = LiveFiles(place_of(self.reader.store.url))
        known = self.files if live is None else live
        assert known is not None
        known.start_round()
        self._strange.clear()
        try:
            for adds in self._pieces(Wanted("add", FILES), add_actions):
                self._adds += len(adds)
                for add in adds:
                    yield from self._examine_file(add, rules, plain, live)
                self.progress(f"files of checkpoint {version}", self._adds, max(self._adds, len(known)))
            # A V2 checkpoint must not split file actions between its top-level file and sidecars.
            if self.small.sidecars and self._has_own_files():
                text = f"{self.checkpoint.names[0]} contains file actions although the checkpoint has sidecars."
                yield found("checkpoint-files-split", text, version, self._path)
            yield from self._examine_tombstones(known)
            yield from self._examine_statistics(rules)
        except _READ_ERRORS as error:
            self.is_usable, self.files = False, None
            rule = "sidecar-unreadable" if self.small.sidecars else "checkpoint-unreadable"
            yield found(rule, str(error), version, self._path)
            return
        if live is not None and live.marked < len(live):
            for path in heapq.nsmallest(_MOST_MISSING, live.unmarked()):
                yield found("checkpoint-file-missing", f"The live file {path} is missing.", version, self._path)

    def _examine_file(
        self, add: AddFile, rules: Rules, plain: PlainEntries, live: LiveFiles | None
    ) -> Iterator[Finding]:
        version, known = self.checkpoint.version, self.files if live is None else live
        assert known is not None
        entry = known.get(add.path)
        if add.path in self._strange or (entry is not None and entry.round == known.round):
            yield found("checkpoint-file-twice", f"{add.path} appears twice.", version, self._path)
        if live is None:
            known.put(add, version)
            known.mark(add.path)
            if not plain.is_plain(add):
                yield from examine_add(add, rules, version)
            return
        if entry is None:
            self._strange.add(add.path)
            yield found("checkpoint-file-extra", f"{add.path} is not live.", version, self._path)
            return
        if entry.round != live.round:
            live.mark(add.path)
        if live.vectors.get(add.path) != vector_id(add.deletion_vector) or entry.digest != digest_of(add):
            text = f"{add.path} differs in size, modification time, partition values, deletion vector or row id."
            yield found("checkpoint-file-differs", text, version, self._path)
        elif add.stats and entry.records >= 0 and num_records_of(add) not in (None, entry.records):
            text = f"{add.path} has {num_records_of(add)} rows in the checkpoint and {entry.records} in its add action."
            yield found("checkpoint-stats-differ", text, version, self._path)

    def _has_own_files(self) -> bool:
        if self.checkpoint.is_json:
            return bool(self.small.adds or self.small.removes)
        for name in self.checkpoint.names:
            with (
                contextlib.closing(self.reader.store.open_input(log_path(name))) as source,
                open_parquet(source) as file,
            ):
                columns = [
                    each for each in ("add.path", "remove.path") if each.partition(".")[0] in file.schema_arrow.names
                ]
                for batch in file.iter_batches(columns=columns, use_threads=False) if columns else ():
                    for column in batch.columns:
                        if any(child.null_count < len(child) for child in column.flatten()):
                            return True
        return False

    def _examine_statistics(self, rules: Rules) -> Iterator[Finding]:
        files = [log_path(name) for name in ([] if self.checkpoint.is_json else self.checkpoint.names)]
        files += [self.reader.files.find_sidecar(each.path)[1] for each in self.small.sidecars]
        for file in files:
            yield from examine_parsed(self.reader.store, file, rules, self.checkpoint.version, self._path)

    def _examine_tombstones(self, known: LiveFiles) -> Iterator[Finding]:
        version = self.checkpoint.version
        for keys in self._pieces(Wanted("remove", _KEY), _keys):
            self._removes += len(keys)
            for path, vector in keys:
                self.missing.discard((path, vector))
                if known.vectors.get(path) == vector and (path in self._strange or known.is_marked(path)):
                    yield found("checkpoint-file-twice", f"{path} is both added and removed.", version, self._path)
        if self.missing:
            text = f"{len(self.missing)} tombstones are missing, for example that of {min(self.missing)[0]}."
            yield found("checkpoint-tombstone-missing", text, version, self._path)


def _keys(table: pa.Table) -> list[tuple[str, str | None]]:
    return [
        (row["path"], None if row["deletion_vector"] is None else DeletionVector(**row["deletion_vector"]).unique_id)
        for row in table.to_pylist()
    ]


def _compared(known: PartialState, small: Actions) -> Iterator[tuple[str, str]]:
    protocol = small.protocol
    metadata = small.metadata
    for name in differences(known, PartialState(protocol, metadata)):
        rule = "checkpoint-protocol-differs" if name == "protocol" else "checkpoint-metadata-differs"
        yield rule, f"The {name} differs from that of the commits."
    listed = {each.app_id: each.version for each in small.transactions}
    expected = {app: each.version for app, each in known.transactions.items()}
    configuration = known.metadata.configuration if known.metadata is not None else {}
    if SET_TRANSACTION_RETENTION_MS.key in configuration:  # Writers omit expired transaction identifiers.
        expected = {app: number for app, number in expected.items() if app in listed}
    if listed != expected:
        text = ", ".join(sorted(app for app in {*listed, *expected} if listed.get(app) != expected.get(app))[:3])
        yield "checkpoint-transactions-differ", f"These application ids differ: {text}."
    domains = {each.domain: each.configuration for each in small.domains if not each.removed}
    expected_domains = {name: each.configuration for name, each in known.domains.items()}
    if domains != expected_domains:
        names = {*domains, *expected_domains}
        text = ", ".join(sorted(name for name in names if domains.get(name) != expected_domains.get(name))[:3])
        yield "checkpoint-domains-differ", f"These domains differ: {text}."


def examine_leftover_sidecars(names: Iterable[str], used: set[str]) -> Iterator[Finding]:
    """Report files in ``_sidecars`` that no checkpoint references."""
    for name in names:
        if name not in used and not name.startswith("."):
            path = f"_delta_log/_sidecars/{name}"
            yield found("sidecar-unreferenced", "No checkpoint in the log references this file.", None, path)
