"""The tombstones that a checkpoint must have: remove actions whose retention has not passed. Pure.

Spec: PROTOCOL.md#add-file-and-remove-file, #checkpoints-1, #action-reconciliation. By them VACUUM knows
which files readers of earlier versions still need.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from deltalog.doctor.commit_lines import Actions
from deltalog.doctor.live_files import vector_id
from deltalog.errors import InvalidPropertyError
from deltalog.protocol.retention import tombstone_cutoff_ms

Key = tuple[str, str | None]
# More than this many are not compared, so that memory stays bounded. One takes about 200 bytes.
MOST = 1_000_000


@dataclass(slots=True)
class Tombstones:
    """The remove actions since the last version of which not all actions are known, with their times in ms."""

    times: dict[Key, int] = field(default_factory=dict)
    is_known: bool = True

    def take(self, actions: Actions) -> None:
        """Change the tombstones as a commit does."""
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
        """Actions are missing: files that were removed earlier may have been added again."""
        self.times.clear()

    def required(self, configuration: Mapping[str, str], written_ms: int) -> set[Key]:
        """Those that a checkpoint must have that was written at a time; those that have expired by then are dropped.

        A later time than the true one, as a copied file has it, requires fewer.
        """
        try:
            cutoff_ms = tombstone_cutoff_ms(configuration, written_ms)
        except InvalidPropertyError:
            return set()
        self.times = {key: time_ms for key, time_ms in self.times.items() if time_ms > cutoff_ms}
        return set(self.times)

    def drop(self, keys: Iterable[Key]) -> None:
        """Forget those that a checkpoint lacks: later checkpoints are built on it, and are not reported for them."""
        for key in keys:
            self.times.pop(key, None)
