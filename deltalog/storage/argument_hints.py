"""Suggestions for an argument that a call does not have: the argument that the caller probably meant. Pure.

Calls that open a table accept storage options as keyword arguments, so a misspelt argument would look like a storage
option.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from deltalog.lazy_names import lazy_modules

if TYPE_CHECKING:
    import difflib
else:
    lazy_modules(__name__, "difflib")

_VERSION = "DeltaTable.open reads the latest version; call snapshot(version=…) or snapshot(timestamp=…) of the table."
_PROPERTIES = 'Pass table properties as properties={"delta.…": "…"}.'
_PARTITIONS = "Pass the names of partition columns as partition_by=[…]."
_WRITE_MODE = (
    "DeltaTable.create only creates. For an existing table call append or overwrite of DeltaTable.open(url), and "
    "DeltaTable.exists(url) first if it may not exist."
)
_SCHEMA_MODE = "The schema is changed by merge_schema=True of append, and by overwrite_schema=True of overwrite."
_OTHERS = {
    "mode": _WRITE_MODE,
    "if_exists": _WRITE_MODE,
    "exist_ok": _WRITE_MODE,
    "overwrite": _WRITE_MODE,
    "schema_mode": _SCHEMA_MODE,
    "overwrite_schema": _SCHEMA_MODE,
    "merge_schema": _SCHEMA_MODE,
    "configuration": _PROPERTIES,
    "config": _PROPERTIES,
    "table_properties": _PROPERTIES,
    "tblproperties": _PROPERTIES,
    "partition_columns": _PARTITIONS,
    "partition_cols": _PARTITIONS,
    "partitioned_by": _PARTITIONS,
    "partitionBy": _PARTITIONS,
    "partitions": _PARTITIONS,
    "cluster_columns": "Pass the names of clustering columns as cluster_by=[…].",
    "clustering_columns": "Pass the names of clustering columns as cluster_by=[…].",
    "comment": "Pass the description of a table as description=….",
    "table_name": "Pass the name of a table as name=….",
    "as_of": _VERSION,
    "versionAsOf": _VERSION,
    "timestampAsOf": _VERSION,
    "timestamp": _VERSION,
    "version": _VERSION,
    "commit_properties": "To describe a commit, pass user_metadata=… to the call that commits.",
    "custom_metadata": "To describe a commit, pass user_metadata=… to the call that commits.",
    "without_files": "DeltaTable.open never reads the list of files; leave without_files out.",
    "log_buffer_size": "DeltaTable.open reads concurrently by itself; leave log_buffer_size out.",
    "raise_if_key_not_exists": (
        "Table properties may have any name outside of delta.*; leave raise_if_key_not_exists out."
    ),
}
_OURS = (
    "allowed_paths",
    "by_location",
    "cluster_by",
    "data",
    "description",
    "environment",
    "exclusive_create",
    "partition_by",
    "properties",
    "schema",
    "storage_options",
    "unsafe_single_writer",
)


def hint_for(name: str) -> str | None:
    """A hint about what to write instead of an unknown argument; None if there is no hint for its name."""
    if name in _OTHERS:
        return f"There is no argument {name}. {_OTHERS[name]}"
    alike = [] if name in _OURS else difflib.get_close_matches(name, _OURS, 1, 0.8)
    return f"There is no argument {name}. Did you mean {alike[0]}?" if alike else None
