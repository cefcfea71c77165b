"""The data files in a table's directory that no version in its log names."""

from __future__ import annotations

from deltalog.environment import Environment
from deltalog.errors import DeltaLogError
from deltalog.log.history import LogHistory
from deltalog.log.reader import LogReader
from deltalog.maintenance.vacuum.decisions import VacuumRules, decide, sift
from deltalog.maintenance.vacuum.needed_files import named_files
from deltalog.maintenance.vacuum.plan import plan


def unnamed_data_files(reader: LogReader, environment: Environment) -> list[str] | None:
    """The paths of the Parquet files below the table root that neither a version nor a tombstone names, sorted; None if
    the log or the directory cannot be read. Cost: the commits, the checkpoint, and a listing of the table."""
    try:
        history = LogHistory(reader)
        latest = history.latest
        # With a cut-off in 1970, each named file is needed, and each other file is too young to be deleted.
        rules = VacuumRules(0, environment.clock_ms(), latest.metadata.partition_columns)
        named = named_files(history, rules.cutoff_ms)
        parts = decide(sift(reader.store.walk_parts(rules.enters), named.needed), named, rules, reader.store.entries)
        return sorted(path for path in plan(parts, named.needed, {}, rules).young if path.endswith(".parquet"))
    except (DeltaLogError, OSError):
        return None
