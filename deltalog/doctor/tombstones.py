"""The unexpired tombstones (remove actions) that a checkpoint must contain. Pure.

Spec: PROTOCOL.md#add-file-and-remove-file, #checkpoints-1, #action-reconciliation. VACUUM uses the tombstones to keep
the files that readers of earlier versions need.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from deltalog.doctor.commit_lines import Actions
from deltalog.doctor.live_files import vector_id
from deltalog.errors import InvalidPropertyError
from deltalog.protocol.retention import tombstone_cutoff_ms

Key = tuple[str, str | None]
# With more tombstones than this, the check is skipped to bound memory. One takes about 200 bytes.
MOST = 1_000_000


@dataclass(slots=True)
class Tombstones:
    """The remove actions since the last gap in the log, with their deletion times in ms."""

    times: dict[Key, int] = field(default_factory=dict)
    is_known: bool = True

    def take(self, actions: Actions) -> None:
        """Apply a commit to the tombstones."""
        if not actions.is_whole:
            self.forget()
        for remove in actions.removes:
            if remove.deletion_timestamp is not None:
                self.times[remove.path, vector_id(remove.deletion_vector)] = remove.deletion_timestamp
        for add in actions.adds:
            self.times.pop((add.path, vector_id(add.deletion_vector)), None)
        self.is_known = self.is_known and len(self.times) <= MOST
        if not self.is_known:
            self.times.clear()

    def forget(self) -> None:
        """Discard all tombstones: some actions are missing, so some of the removed files may have been added again."""
        self.times.clear()

    def required(self, configuration: Mapping[str, str], written_ms: int) -> set[Key]:
        """The tombstones that a checkpoint written at ``written_ms`` must contain. Expired ones are dropped.

        If the checkpoint was copied, its modification time is too late, and fewer tombstones are required.
        """
        try:
            cutoff_ms = tombstone_cutoff_ms(configuration, written_ms)
        except InvalidPropertyError:
            return set()
        self.times = {key: time_ms for key, time_ms in self.times.items() if time_ms > cutoff_ms}
        return set(self.times)

    def drop(self, keys: Iterable[Key]) -> None:
        """Drop tombstones that a checkpoint lacks. Later checkpoints are built on the incomplete checkpoint, so they
        would repeat the finding."""
        for key in keys:
            self.times.pop(key, None)
