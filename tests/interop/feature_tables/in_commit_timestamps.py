"""Tables whose in-commit timestamps are enabled from version 0, enabled later, or enabled and then disabled."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa

from tests.interop.feature_tables.feature import ICT, created, feature, logged
from tests.support.spark.shapes import batch


@feature("In-commit timestamps from the first version on", "`create(properties=…)`")
def ict_from_the_start(path: Path) -> pa.Table:
    table = created(path, ICT)
    table.append(batch(0))
    table.append(batch(3))
    assert all("inCommitTimestamp" in info for info in logged(path, "commitInfo"))
    return batch(0, 6)


@feature("In-commit timestamps enabled later", "`enable_in_commit_timestamps`")
def ict_enabled_later(path: Path) -> pa.Table:
    table = created(path, data=batch(0))
    table.append(batch(3))
    table.enable_in_commit_timestamps()
    table.append(batch(6))
    assert table.snapshot().metadata.configuration["delta.inCommitTimestampEnablementVersion"] == "2"
    return batch(0, 9)


@feature("In-commit timestamps off again", "`disable_in_commit_timestamps`")
def ict_off_again(path: Path) -> pa.Table:
    table = created(path, data=batch(0))
    table.enable_in_commit_timestamps()
    table.append(batch(3))
    table.disable_in_commit_timestamps()
    table.append(batch(6))
    assert ["inCommitTimestamp" in info for info in logged(path, "commitInfo")] == [False, True, True, False, False]
    return batch(0, 9)
