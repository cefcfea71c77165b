"""The cases, by area. The modules contain only data: tables built with ``TableBuilder``, steps, and expected outcomes.

``SUITE_VERSION`` is the version of the set of cases. Its first number changes if the outcome of a case changes or a
case is deleted, and its second number if cases are added.
"""

from __future__ import annotations

import functools
import itertools

from deltalog.conformance.case import Case
from deltalog.conformance.cases import (
    change_feeds,
    checkpoints,
    column_rules,
    conflicts,
    domains,
    feature_rules,
    features,
    ict_feeds,
    ict_files,
    ict_instants,
    ict_logs,
    ict_reading,
    ict_states,
    ict_transitions,
    ict_writing,
    managed,
    reading,
    reading_types,
    row_tracking,
    time_travel,
    type_widening,
    variants,
    writing,
)

SUITE_VERSION = "1.2"
_MODULES = (
    reading_types,
    reading,
    time_travel,
    change_feeds,
    writing,
    conflicts,
    checkpoints,
    features,
    feature_rules,
    column_rules,
    domains,
    row_tracking,
    type_widening,
    variants,
    ict_reading,
    ict_logs,
    ict_writing,
    ict_instants,
    ict_feeds,
    ict_files,
    ict_states,
    ict_transitions,
    managed,
)


@functools.cache
def all_cases() -> tuple[Case, ...]:
    """Every case, in a fixed order."""
    found = tuple(itertools.chain.from_iterable(module.cases() for module in _MODULES))
    assert len({case.id for case in found}) == len(found), "two cases have the same id"
    return found
