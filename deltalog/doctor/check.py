"""``check``: examines a table at a location."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from deltalog.addresses import open_log
from deltalog.doctor.examination import Examination, Progress, silent
from deltalog.doctor.findings import CheckReport
from deltalog.environment import Environment
from deltalog.log.reader import LogReader
from deltalog.storage.registry import Location


def check(
    url: Location,
    deep: bool = False,
    *,
    allowed_paths: Sequence[str] = (),
    progress: Progress = silent,
    environment: Environment | None = None,
    **storage_options: Any,
) -> CheckReport:
    """Examine the table at a location, or that of a catalog: its log, its derived files, and its data files.

    A defect is a finding of the report, never an error, also where DeltaTable.open refuses the table. Without
    ``deep``, the existence and size of the live data files are checked, and of at most 10,000 of them the footers; on a
    store over a network only these are checked. With ``deep``, all footers, and all rows against statistics,
    constraints and generated columns. ``allowed_paths``, ``storage_options``: as for DeltaTable.open. ``progress`` is
    called with what is examined, how much is done, and of how much.

    Raises CallError for a location that cannot be one. Cost: 3 LISTs, 1 GET for each file in the log, 1 HEAD for each
    data file, also for those removed within the retention, and 1 GET or more for each footer. Memory: at most about
    1.5 KB for each live file.
    """
    reader = open_log(url, allowed_paths, **storage_options)
    return examine(reader, deep, progress, environment or Environment())


def examine(reader: LogReader, deep: bool, progress: Progress, environment: Environment) -> CheckReport:
    """As ``check``, of the table of a reader."""
    return Examination(reader, environment, deep, progress).run()
