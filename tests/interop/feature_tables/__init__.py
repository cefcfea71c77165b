"""A table for each feature that deltalog writes, created with its public API. The module `matrix` reads these tables
with the other engines.

A builder creates the table, asserts that the log contains the feature, and returns the expected rows.
"""

from __future__ import annotations

from tests.interop.feature_tables import (
    change_feeds,
    in_commit_timestamps,
    log_files,
    mapped_columns,
    row_changes,
    row_tracking,
    rows,
    rules,
    table_state,
)
from tests.interop.feature_tables.feature import REGISTERED, Feature

__all__ = ["FEATURES", "Feature"]

_IN_ORDER = (
    rows, row_changes, in_commit_timestamps, rules, change_feeds, mapped_columns, row_tracking, table_state, log_files,
)  # fmt: skip

#: The features, keyed by name, in the order of docs/feature-matrix.md.
FEATURES: dict[str, Feature] = {
    name: feature
    for module in _IN_ORDER
    for name, feature in REGISTERED.items()
    if feature.build.__module__ == module.__name__
}
assert FEATURES.keys() == REGISTERED.keys(), "a module of tables is missing in _IN_ORDER"
