"""Random damages of many kinds to random tables, each with the rules whose violation the doctor must report."""

from __future__ import annotations

from tests.support.doctor.random_damages import checkpoints, commits, derived, files, metadata
from tests.support.doctor.random_damages.kinds import KINDS, Kind, Planted, plant

__all__ = ["KINDS", "MODULES", "Kind", "Planted", "plant"]

#: The modules that register kinds of damages.
MODULES = (checkpoints, commits, derived, files, metadata)
