"""Writes checkpoints. A checkpoint contains the whole state of a version, so that readers need not replay the commits
before it.

Spec: PROTOCOL.md#checkpoints-1, #v1-spec, #v2-spec, #checkpoint-specs, #v2-checkpoint-table-feature,
#allowed-combinations-for-checkpoint-spec---checkpoint-file-naming. File actions from the last checkpoint and from the
commits after it are streamed into the new checkpoint, one row group at a time. All file actions are in memory at once
only if the table is small.
"""

from __future__ import annotations

import contextlib
import itertools
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, BinaryIO, Literal, get_args

import pyarrow as pa

from deltalog.arrow_arrays import empty
from deltalog.errors import CallError, InvalidCheckpointError, StoreError, TableReplacedError
from deltalog.lazy_arrow import pq
from deltalog.log.checkpoint.last_checkpoint import encode_hint
from deltalog.log.checkpoint.reader import LEAN, THREADS
from deltalog.log.checkpoint.schema import CheckpointSchema, json_lines, widened, with_dictionary
from deltalog.log.file_cache import FEW_FILES, NewCheckpoint
from deltalog.log.file_tables import TOMBSTONES
from deltalog.log.segment import Checkpoint
from deltalog.log.snapshot import LogSnapshot
from deltalog.log.table_totals import NO_FILES, Totals, totals_of
from deltalog.parallel import mapped
from deltalog.parquet.footers import open_parquet
from deltalog.protocol import features
from deltalog.protocol.actions import Metadata, Protocol, Sidecar
from deltalog.protocol.paths import (
    LAST_CHECKPOINT,
    LogFileKind,
    checkpoint_path,
    commit_path,
    log_path,
    new_sidecar_path,
)
from deltalog.protocol.properties import CHECKPOINT_POLICY, SIDECAR_ROWS
from deltalog.protocol.retention import tombstone_cutoff_ms
from deltalog.storage.base import LogStore, PutOutcome

TopLevel = Literal["parquet", "json"]
_GROUP_ROWS = 65_536


def write_checkpoint(
    snapshot: LogSnapshot,
    clock_ms: int,
    *,
    new_uuid: Callable[[], str] = lambda: str(uuid.uuid4()),
    top_level: TopLevel = "parquet",
    sidecar_rows: int = SIDECAR_ROWS,
) -> NewCheckpoint:
    """Write the checkpoint of a snapshot, read it back, and write ``_last_checkpoint``.

    If delta.checkpointPolicy is v2 and the protocol has the feature, the checkpoint is a UUID-named file in the format
    ``top_level``; if there are more than ``sidecar_rows`` file actions, they are written to sidecars of at most
    ``sidecar_rows`` each. Without this policy and feature, the checkpoint is a classic checkpoint. ``clock_ms``, in
    milliseconds since 1970: tombstones and transactions that have expired by then are left out. Raises CallError,
    StoreError, InvalidCheckpointError; TableReplacedError if the table was deleted or replaced meanwhile; the
    checkpoint is then deleted. Cost: reads the live files and tombstones; 2 PUTs, a HEAD and a ranged GET, and a PUT
    and a GET for each sidecar. Memory: a few hundred thousand file actions, and the finished file on stores that
    inherit ``put_stream_if_absent``. Spec: PROTOCOL.md#checkpoints-1.
    """
    if top_level not in get_args(TopLevel):
        raise CallError(f"top_level must be one of {', '.join(get_args(TopLevel))}; got {top_level!r}.")
    if sidecar_rows < 1:
        raise CallError(f"sidecar_rows must be a positive number of rows; got {sidecar_rows!r}.")
    while True:
        writing = _Writing(snapshot, clock_ms, new_uuid)
        try:
            written = writing.v2(top_level, sidecar_rows) if writing.is_v2 else writing.classic()
            break
        except InvalidCheckpointError as error:  # the checkpoint from which the snapshot itself was read
            snapshot = snapshot.without_checkpoint(error)
    writing.confirm(written)
    writing.check(written)
    writing.write_hint(written)
    return NewCheckpoint(written.checkpoint, writing.counted, writing.tombstones)


def uses_v2(protocol: Protocol, metadata: Metadata) -> bool:
    """Whether a table's protocol and properties require UUID-named V2 checkpoints."""
    listed = set(features.reader_features(protocol)) & set(features.writer_features(protocol))
    return "v2Checkpoint" in listed and CHECKPOINT_POLICY.read(metadata.configuration) == "v2"


class _Written:
    """A checkpoint in the store.

    ``expected``: the number of rows of each file, by path. ``is_foreign``: another writer wrote the top-level file, so
    its number of rows is unknown. ``num_actions``: the number of actions in all files.
    """

    def __init__(self, checkpoint: Checkpoint) -> None:
        self.checkpoint = checkpoint
        self.expected: dict[str, int] = {}
        self.is_foreign = False
        self.top_level_bytes = 0
        self.num_actions = 0
        self.sidecars: list[Sidecar] = []

    @property
    def path(self) -> str:
        return log_path(self.checkpoint.names[0])

    @property
    def size_bytes(self) -> int:
        return self.top_level_bytes + sum(sidecar.size_in_bytes for sidecar in self.sidecars)


class _Writing:
    """Writes one checkpoint: call ``classic`` or ``v2``, then ``check``, then ``write_hint``."""

    def __init__(self, snapshot: LogSnapshot, clock_ms: int, new_uuid: Callable[[], str]) -> None:
        self._snapshot = snapshot
        self._store: LogStore = snapshot.reader.store
        self._clock_ms = clock_ms
        self._new_uuid = new_uuid
        self.is_v2 = uses_v2(snapshot.protocol, snapshot.metadata)
        self._schema = CheckpointSchema(snapshot.state, clock_ms, v2=self.is_v2)
        self.counted: Totals | None = None
        self.tombstones: pa.Table | None = None  # None for more than FEW_FILES

    # ----------------------------------------------------------------------------- rows of the checkpoint

    def _file_actions(self) -> Iterator[pa.Table]:
        """Checkpoint rows for the live files, then for the tombstones. Sets ``counted`` and ``tombstones`` after the
        last row."""
        self.counted = self.tombstones = None
        counted = NO_FILES
        schema = self._schema
        known = self._snapshot.cache.known_totals
        few = known is not None and known.num_files <= FEW_FILES
        if few:
            self._snapshot.cache.files()  # keeps the commits in memory for the next checkpoint
        pieces = self._snapshot.cache.stream_files(lambda files: files, schema.file_columns, schema.leaves, LEAN)
        # One thread reads the add actions (schema LEAN), and other threads parse their statistics. For few files,
        # starting threads takes longer than parsing.
        threads = 0 if few else THREADS
        for rows, totals in mapped(pieces, lambda files: (schema.adds(files), totals_of(files)), threads, 0):
            counted += totals
            yield rows
        cutoff_ms = tombstone_cutoff_ms(self._snapshot.metadata.configuration, self._clock_ms)
        kept: list[pa.Table] | None = []
        for tombstones in self._snapshot.cache.stream_tombstones(cutoff_ms):
            kept = _kept(kept, tombstones)
            yield schema.removes(tombstones)
        self.counted = counted
        self.tombstones = None if kept is None else pa.concat_tables([empty(TOMBSTONES), *kept])

    # --------------------------------------------------------------------------------------------- forms

    def classic(self) -> _Written:
        path = checkpoint_path(self._snapshot.version)
        name = path.rsplit("/", 1)[-1]
        written = _Written(Checkpoint(self._snapshot.version, LogFileKind.CLASSIC_CHECKPOINT, (name,)))

        def write(file: BinaryIO) -> None:
            small = self._schema.small(self._snapshot.version)
            groups = _row_groups(itertools.chain([small], self._file_actions()), self._schema.whole, _GROUP_ROWS)
            written.expected[path] = write_parquet(file, self._schema.whole, groups)
            written.top_level_bytes = file.tell()

        outcome = self._store.put_stream_if_absent(path, write)
        if outcome is not PutOutcome.COMMITTED:
            # An existing file may have been written by another writer; it contains the same state and is kept.
            written.expected[path], written.is_foreign = 0, True
        self._settle(written, outcome)
        return written

    def v2(self, top_level: TopLevel, sidecar_rows: int) -> _Written:
        version = self._snapshot.version
        name = f"{checkpoint_path(version).rsplit('/', 1)[-1].removesuffix('parquet')}{self._new_uuid()}.{top_level}"
        written = _Written(Checkpoint(version, LogFileKind.UUID_CHECKPOINT, (name,)))
        groups = _row_groups(self._file_actions(), self._schema.file_actions, min(_GROUP_ROWS, sidecar_rows))
        first = list(itertools.islice(groups, 1 + sidecar_rows // min(_GROUP_ROWS, sidecar_rows)))
        inline = first if sum(group.num_rows for group in first) <= sidecar_rows else []
        try:
            if not inline:
                self._write_sidecars(written, itertools.chain(first, groups), sidecar_rows)
            del first
            rows = self._top_level(written, inline)
        except Exception:
            self._discard(written.sidecars)  # no checkpoint names them
            raise
        outcome = self._put_top_level(written, rows, top_level)
        self._settle(written, outcome)
        return written

    def _top_level(self, written: _Written, inline: Sequence[pa.Table]) -> list[pa.Table]:
        assert self.counted is not None
        tags = {"numOfAddFiles": str(self.counted.num_files)}
        if written.sidecars:
            tags["sidecarNumActions"] = str(written.num_actions)
            tags["sidecarSizeInBytes"] = str(sum(sidecar.size_in_bytes for sidecar in written.sidecars))
        small = self._schema.small(self._snapshot.version, written.sidecars, tags)
        return [widened(rows, self._schema.whole) for rows in (small, *inline)]

    def _put_top_level(self, written: _Written, rows: Sequence[pa.Table], top_level: TopLevel) -> PutOutcome:
        written.num_actions += sum(group.num_rows for group in rows)
        if top_level == "json":
            data = b"".join(line + b"\n" for group in rows for line in json_lines(group))
            written.expected[written.path] = written.num_actions - sum(written.expected.values())
            written.top_level_bytes = len(data)
            return self._store.put_if_absent(written.path, data)

        def write(file: BinaryIO) -> None:
            written.expected[written.path] = write_parquet(file, self._schema.whole, rows)
            written.top_level_bytes = file.tell()

        return self._store.put_stream_if_absent(written.path, write)

    def _write_sidecars(self, written: _Written, groups: Iterator[pa.Table], rows: int) -> None:
        schema = self._schema.file_actions
        for first in groups:
            path = new_sidecar_path(self._new_uuid())
            some = itertools.chain([first], _while_below(groups, rows - first.num_rows))
            with self._store.open_output(path) as file:
                # Record the sidecar before it is complete, so that it is also deleted if the write fails.
                written.sidecars.append(Sidecar(path=path, size_in_bytes=0, modification_time=self._clock_ms))
                written.expected[path] = write_parquet(file, schema, some)
                size_bytes = file.tell()
            name = path.rsplit("/", 1)[-1]
            written.sidecars[-1] = Sidecar(path=name, size_in_bytes=size_bytes, modification_time=self._clock_ms)
            written.num_actions += written.expected[path]

    def _discard(self, sidecars: Iterable[Sidecar]) -> None:
        for sidecar in sidecars:
            with contextlib.suppress(StoreError):
                self._store.delete(new_sidecar_path(sidecar.path.rsplit("/", 1)[-1].removesuffix(".parquet")))

    # --------------------------------------------------------------------------- after the files are written

    def _settle(self, written: _Written, outcome: PutOutcome) -> None:
        """If the PUT was not acknowledged, check that the top-level file exists. Raises StoreError. Cost: 1 HEAD."""
        if outcome is PutOutcome.COMMITTED:
            return
        meta = self._store.head(written.path)
        if meta is None:
            raise StoreError(
                f"{self._store.location(written.path)} was not written: the store answered {outcome.value}, and the "
                "file does not exist.",
                path=written.path,
            )
        written.top_level_bytes = meta.size_bytes or 0

    def check(self, written: _Written) -> None:
        """Read every written file again (only the footer if it is a Parquet file) and compare the row counts. Raises
        InvalidCheckpointError."""
        for path, expected in written.expected.items():
            rows = self._rows_in(path)
            if rows != expected and not (path == written.path and written.is_foreign):
                raise InvalidCheckpointError(
                    f"{self._store.location(path)} has {rows} rows instead of {expected}. _last_checkpoint does not "
                    "name it; delete it and write the checkpoint again.",
                    version=self._snapshot.version,
                )
            if not self.is_v2:
                written.num_actions = rows

    def _rows_in(self, path: str) -> int:
        if path.endswith(".json"):
            return self._store.get(path).count(b"\n")
        try:
            with open_parquet(self._store.open_input(path)) as file:
                return int(file.metadata.num_rows)
        except StoreError:
            raise
        except (pa.ArrowException, OSError, ValueError) as error:
            raise InvalidCheckpointError(
                f"{self._store.location(path)} cannot be read back: {error}. _last_checkpoint does not name it; "
                "delete it and write the checkpoint again.",
                version=self._snapshot.version,
            ) from error

    def confirm(self, written: _Written) -> None:
        """Delete the checkpoint and raise TableReplacedError if the log lost the commit of this version while the
        checkpoint was written: readers of a new table at this location would use the checkpoint as if it belonged to
        that table. Cost: 1 HEAD."""
        if self._snapshot.is_in_log():
            return
        version = self._snapshot.version
        with contextlib.suppress(StoreError):
            # Even a file that seems to be another writer's may be our own: a retried request finds the file that the
            # first try created.
            if not written.is_foreign or self._store.head(commit_path(version)) is None:
                self._store.delete(written.path)
                self._discard(written.sidecars)
        raise TableReplacedError(
            f"{self._store.url}: the table was deleted or replaced while a checkpoint of version {version} was "
            "written. The checkpoint was deleted.",
            version=version,
        )

    def write_hint(self, written: _Written) -> None:
        """Write ``_last_checkpoint``. Cost: 1 PUT."""
        num_add_files = None if self.counted is None else self.counted.num_files
        v2: dict[str, Any] | None = None
        if self.is_v2:
            v2 = {
                "path": written.checkpoint.names[0],
                "sizeInBytes": written.top_level_bytes,
                "modificationTime": self._clock_ms,
            }
        hint = encode_hint(self._snapshot.version, written.num_actions, written.size_bytes, num_add_files, v2)
        self._store.put(log_path(LAST_CHECKPOINT), hint)


def _kept(pieces: list[pa.Table] | None, piece: pa.Table) -> list[pa.Table] | None:
    """The list of ``pieces`` with ``piece`` appended; None once the pieces together exceed FEW_FILES rows."""
    if pieces is None or sum(each.num_rows for each in pieces) + piece.num_rows > FEW_FILES:
        return None
    return [*pieces, piece]


# --------------------------------------------------------------------------------------------- Parquet


def write_parquet(file: BinaryIO, schema: pa.Schema, groups: Iterable[pa.Table]) -> int:
    """Write row groups to a Parquet file and return the number of rows.

    Uses zstd at level 1, and dictionaries for columns with few distinct values. Of the settings that were measured,
    zstd at level 1 with these dictionaries gives the smallest files and the shortest write time (docs/log-files.md).
    """
    dictionary: Any = with_dictionary(path for field in schema for path in _leaves(field.type, field.name)) or False
    rows = 0
    with pq.ParquetWriter(
        file, schema, compression="zstd", use_dictionary=dictionary, write_page_checksum=True
    ) as writer:
        for group in groups:
            writer.write_table(group, row_group_size=max(group.num_rows, 1))
            rows += group.num_rows
    return rows


def _leaves(kind: pa.DataType, path: str) -> Iterator[str]:
    """The dotted paths of the Parquet columns that make up a type."""
    if pa.types.is_struct(kind):
        for field in kind.fields:
            yield from _leaves(field.type, f"{path}.{field.name}")
    elif pa.types.is_map(kind):
        yield from (f"{path}.key_value.key", f"{path}.key_value.value")
    else:
        yield f"{path}.list.element" if pa.types.is_list(kind) else path


def _row_groups(pieces: Iterable[pa.Table], schema: pa.Schema, size: int) -> Iterator[pa.Table]:
    """The rows of all pieces as tables of ``size`` rows (the last may be smaller) with the columns of ``schema``."""
    waiting: list[pa.Table] = []
    free = size
    for piece in pieces:
        while piece.num_rows >= free:
            waiting.append(piece.slice(0, free))
            piece, free = piece.slice(free), size
            yield _joined(waiting, schema)
        if piece.num_rows:
            waiting.append(piece)
            free -= piece.num_rows
    if waiting:
        yield _joined(waiting, schema)


def _joined(waiting: list[pa.Table], schema: pa.Schema) -> pa.Table:
    rows = pa.concat_tables([widened(rows, schema) for rows in waiting])
    waiting.clear()
    return rows


def _while_below(groups: Iterator[pa.Table], rows: int) -> Iterator[pa.Table]:
    """Take row groups until they contain at least ``rows`` rows."""
    while rows > 0 and (group := next(groups, None)) is not None:
        rows -= group.num_rows
        yield group
