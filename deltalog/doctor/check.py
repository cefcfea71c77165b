"""``check``: the entry point of the doctor."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from deltalog.addresses import open_log
from deltalog.doctor.examination import Examination
from deltalog.doctor.findings import CheckReport
from deltalog.doctor.progress import Progress, silent
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
    """Check the log, the derived files and the data files of a table, which is given by its location or by its name in
    a catalog.

    A defect becomes a finding in the report, never an exception, even if DeltaTable.open refuses the table. Without
    ``deep``, the check covers the existence and size of all live data files and the footers of at most 10,000 of them;
    on a remote store it covers only those 10,000 files. With ``deep``, the check reads all footers, and compares all
    rows with the statistics, constraints and generated columns. ``allowed_paths`` and ``storage_options``: as for
    DeltaTable.open. ``progress`` is called with the name of the current step, the number of items done, and their
    total.

    Raises CallError if the location is malformed. Cost: 3 LISTs, 1 GET per file in the log, 1 HEAD per data file
    (including files removed within the retention period), and at least 1 GET per footer. Memory: about 0.5 KB per
    live file.
    """
    reader = open_log(url, allowed_paths, **storage_options)
    return examine(reader, deep, progress, environment or Environment())


def examine(reader: LogReader, deep: bool, progress: Progress, environment: Environment) -> CheckReport:
    """Run ``check`` on the table of an open LogReader."""
    return Examination(reader, environment, deep, progress).run()
