"""The version on which an attempt builds. Pure.

Spec: PROTOCOL.md#in-commit-timestamps, #row-tracking.
"""

from __future__ import annotations

from dataclasses import dataclass

from deltalog.protocol import features
from deltalog.protocol.actions import Metadata, Protocol


@dataclass(frozen=True, slots=True)
class Base:
    """The version on which an attempt builds.

    ``version``: the version, or -1 if the table does not exist yet; in that case ``protocol`` and ``metadata`` are
    None. ``previous_ms``: the time that the next in-commit timestamp must exceed, in milliseconds since 1970: the
    in-commit timestamp of ``version``, or the monotonised file time of ``version`` if the attempt enables in-commit
    timestamps; None if the attempt writes no in-commit timestamp. ``row_id_high_water_mark``: the highest row id
    assigned so far, or -1 if none has been assigned.
    """

    version: int
    protocol: Protocol | None
    metadata: Metadata | None
    previous_ms: int | None
    row_id_high_water_mark: int = -1

    @property
    def is_ict_active(self) -> bool:
        if self.protocol is None or self.metadata is None:
            return False
        return features.is_ict_active(self.protocol, self.metadata)
