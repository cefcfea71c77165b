"""The version that an attempt follows. Pure.

Spec: PROTOCOL.md#in-commit-timestamps, #row-tracking.
"""

from __future__ import annotations

from dataclasses import dataclass

from deltalog.protocol import features
from deltalog.protocol.actions import Metadata, Protocol


@dataclass(frozen=True, slots=True)
class Base:
    """The version that an attempt follows.

    ``version`` is -1 before a table exists. ``previous_ms``: what the next in-commit timestamp must exceed:
    the in-commit timestamp of ``version``, or its monotonised file time when ``prepared`` is to enable them;
    None where no in-commit timestamp will be written. ``row_id_high_water_mark``: the highest row id given out, -1
    before the first.
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
