"""What a dry run of a vacuum lists, file by file: deltalog's beside delta-spark's, with every difference explained."""

from __future__ import annotations

from fnmatch import fnmatchcase
from pathlib import Path

import pytest

from deltalog import DeltaTable
from tests.interop.vacuum_tables import CASES, REASONS, make
from tests.support.spark import DeltaSpark

ROOT = Path(__file__).resolve().parents[2]


def by_delta_spark(delta: DeltaSpark, path: Path, hours: int) -> set[str]:
    """The files; it lists empty directories too."""
    delta.forget()
    delta.spark.conf.set("spark.databricks.delta.retentionDurationCheck.enabled", "false")
    rows = delta.sql(f"VACUUM delta.`{path}` RETAIN {hours} HOURS DRY RUN").collect()
    found = [row["path"].removeprefix("file:").removeprefix(f"{path}/") for row in rows]
    assert len(found) < 1000  # of which it lists no more
    return {name for name in found if not (path / name).is_dir()}


@pytest.mark.sampled(4)
@pytest.mark.parametrize("name", CASES)
def test_both_would_delete_the_same_files(delta: DeltaSpark, tmp_path: Path, name: str) -> None:
    case, path = CASES[name], tmp_path / "t"
    make(name, delta, path)
    ours = set(DeltaTable.open(str(path)).vacuum(case.hours, enforce_retention_duration=False).paths)
    theirs = by_delta_spark(delta, path, case.hours)
    for only, explained in ((ours - theirs, case.ours), (theirs - ours, case.theirs)):
        unexplained = [each for each in only if not any(fnmatchcase(each, pattern) for pattern in explained)]
        unused = [pattern for pattern in explained if not any(fnmatchcase(each, pattern) for each in only)]
        assert (unexplained, unused) == ([], []), (ours, theirs)


def test_the_page_on_maintenance_names_every_difference() -> None:
    page = (ROOT / "docs" / "maintenance.md").read_text()
    used = {why for each in CASES.values() for why in (*each.ours.values(), *each.theirs.values())}
    assert used == set(REASONS) and len(CASES) >= 30
    assert [each for each in REASONS if each not in page] == []
