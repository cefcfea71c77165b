"""Files removed within the retention period, and the versions that need them. Pure.

Spec: PROTOCOL.md#add-file-and-remove-file. Readers of earlier versions need a removed file until its tombstone expires.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from deltalog.doctor.commit_lines import Actions
from deltalog.doctor.live_files import LiveFiles, vector_id
from deltalog.doctor.lost_commits import described_ranges
from deltalog.doctor.tombstones import MOST, Key
from deltalog.errors import InvalidDataFileError, InvalidPropertyError
from deltalog.protocol.actions import DeletionVector
from deltalog.protocol.deletion_vectors import file_of
from deltalog.protocol.retention import tombstone_cutoff_ms


class Span(NamedTuple):
    """A range of versions, ``first`` to ``last``, in which the file ``path`` was live. ``vector``: the file of the data
    file's deletion vector, if any."""

    path: str
    vector: str | None
    first: int
    last: int


@dataclass(slots=True)
class RemovedFiles:
    """The files that commits removed, with their deletion times in ms. ``is_whole``: whether all removed files were
    recorded; False once there are more than ``MOST``."""

    now_ms: int
    spans: dict[Key, list[tuple[Span, int]]] = field(default_factory=dict)
    count: int = 0
    is_whole: bool = True

    def take(self, version: int, actions: Actions, live: LiveFiles, configuration: Mapping[str, str]) -> None:
        """Record the files that a commit removes. ``live``: the live files before the commit. ``configuration``: the
        table properties; tombstones that have expired according to the retention in these properties are ignored."""
        for remove in actions.removes:
            entry, time_ms = live.get(remove.path), remove.deletion_timestamp
            vector = vector_id(remove.deletion_vector)
            if entry is None or time_ms is None or live.vectors.get(remove.path) != vector:
                continue
            if not self._is_young(time_ms, configuration):
                continue
            span = Span(remove.path, _vector_file(remove.deletion_vector), entry.version, version - 1)
            self.spans.setdefault((remove.path, vector), []).append((span, time_ms))
            self.count += 1
        if self.count > MOST:
            self.is_whole = False
            self.spans, self.count = {}, 0

    def forget(self) -> None:
        """Forget all recorded files, because the state of earlier versions is unknown."""
        self.spans, self.count = {}, 0

    def needed(self, configuration: Mapping[str, str], live: LiveFiles) -> list[Span]:
        """For files that versions within the retention period need: the ranges of versions in which these files were
        live. Files that are still live are excluded, because the checks of live files cover them."""
        found = []
        for (path, vector), spans in self.spans.items():
            if path in live.packed and live.vectors.get(path) == vector:
                continue
            found += [span for span, time_ms in spans if self._is_young(time_ms, configuration)]
        return found

    def _is_young(self, time_ms: int, configuration: Mapping[str, str]) -> bool:
        try:
            return time_ms > tombstone_cutoff_ms(configuration, self.now_ms)
        except InvalidPropertyError:
            return False


def _vector_file(vector: DeletionVector | None) -> str | None:
    try:
        return file_of(vector)
    except InvalidDataFileError:
        return None  # checked with its add action


def names_of(spans: Iterable[Span]) -> list[str]:
    """The distinct names of the data files and deletion vector files in ``spans``, exactly as the log contains them."""
    return list(dict.fromkeys(name for span in spans for name in (span.path, span.vector) if name is not None))


def lost(spans: Iterable[Span], gone: set[str]) -> Iterator[Span]:
    """The spans whose data file or deletion vector file is among the missing files."""
    return (span for span in spans if span.path in gone or span.vector in gone)


def described(spans: Iterable[Span]) -> str:
    """The versions in the given spans as text, such as ``3, 5 to 8``."""
    return described_ranges((span.first, span.last) for span in spans)
