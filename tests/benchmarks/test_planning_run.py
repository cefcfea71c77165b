"""The planning benchmark runs on small tables, and every system finds the expected files."""

from __future__ import annotations

from pathlib import Path

import pytest

from deltalog import check
from tests.benchmarks.livefiles import IDS
from tests.benchmarks.planning import CONDITIONS, FORMS, SYSTEMS, PlanTable, build, compare

_FORMS = [pytest.param(form, marks=[] if form == "both" else pytest.mark.long) for form in FORMS]


@pytest.mark.parametrize("form", _FORMS)
def test_each_condition_leaves_the_right_files(tmp_path: Path, form: str) -> None:
    table = PlanTable(3_000, form, sidecar_rows=700)
    systems, conditions = (SYSTEMS, CONDITIONS) if form == "both" else (("deltalog",), ("region",))
    found = list(compare(tmp_path, table, systems, conditions, 1))
    assert [(each["condition"], each["system"]) for each in found] == [
        (condition, system) for condition in conditions for system in systems
    ]
    assert all(each["files"] == table.right(each["condition"])["files"] > 5 for each in found)
    assert found[-1]["peak_mib"] > 10


def test_the_conditions_ask_for_files_that_commits_have_changed() -> None:
    table = PlanTable(3_000)
    for condition in CONDITIONS:
        low, high = table.ids(condition)
        assert low <= table.middle * IDS < (table.middle + 2 * table.changed) * IDS <= high
    assert table.right("region")["vectors"] == 1


@pytest.mark.parametrize("form", _FORMS)
def test_its_tables_lack_only_their_data_files_and_the_beginning_of_their_log(tmp_path: Path, form: str) -> None:
    build(tmp_path / form, PlanTable(1_000, form, sidecar_rows=300))
    assert {finding.rule for finding in check(tmp_path / form).findings} == {
        "data-file-missing",
        "log-begins-later",
        "crc-missing",
        "version-lost",
        "version-unreachable",
    }
