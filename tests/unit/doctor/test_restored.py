"""A restore is not a defect, whatever changed between the restored version and the latest; a wrong restore is a
defect."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from deltalog import CheckReport, DeltaTable, check
from deltalog.protocol.schema import PrimitiveType
from tests.support.doctor.damaged_tables import ICT, append_commit, edit_schema


def nested(number: int) -> pa.Table:
    """Two structs that have a field of the same name but with different types."""
    one, other = [{"same": number}], [{"same": str(number)}]
    return pa.table({"id": [number], "part": ["p"], "one": one, "other": other})


def start_mapping(table: DeltaTable) -> None:
    table.set_properties({"delta.columnMapping.mode": "name"})
    table.append(nested(10))
    table.rename_column("id", "number")
    table.add_columns(pa.schema([("late", pa.int32())]))


def widen(table: DeltaTable) -> None:
    table.set_properties({"delta.enableTypeWidening": "true"})
    table.set_column("small", data_type=PrimitiveType("long"))


def small(number: int) -> pa.Table:
    return pa.table({"small": pa.array([number], pa.int16())})


def assert_healthy(path: Path) -> CheckReport:
    report = check(path, deep=True)
    assert report.ok and not report.counts["warning"], str(report)
    return report


@pytest.mark.parametrize("partition_by", [[], ["part"]])
def test_across_the_start_of_column_mapping(tmp_path: Path, partition_by: list[str]) -> None:
    table = DeltaTable.create(tmp_path, nested(1).schema, data=nested(1), partition_by=partition_by)
    table.append(nested(2))
    start_mapping(table)
    mapped = table.version
    assert_healthy(tmp_path)
    for version, number in ((1, 3), (mapped, 4), (0, 5), (mapped, 6)):
        table.restore(version)
        assert_healthy(tmp_path)
        rows = nested(number)
        table.append(rows if "id" in table.schema.names else rows.rename_columns(["number", "part", "one", "other"]))
        assert_healthy(tmp_path)


def test_across_a_widening(tmp_path: Path) -> None:
    table = DeltaTable.create(tmp_path, small(1).schema, data=small(1))
    table.append(small(2))
    widen(table)
    table.append(pa.table({"small": [2**40]}))
    wide = table.version
    for version in (1, wide, 0, wide):
        table.restore(version)
        table.append(small(3))
        assert_healthy(tmp_path)


def test_by_a_timestamp(tmp_path: Path) -> None:
    table = DeltaTable.create(tmp_path, small(1).schema, data=small(1), properties=ICT)
    widen(table)
    table.append(pa.table({"small": [2**40]}))
    table.restore(timestamp=table.history()[-1].timestamp_ms)
    assert table.history(1)[0].operation == "RESTORE"
    assert_healthy(tmp_path)


def restoring(parameters: Any) -> dict[str, Any]:
    return {"commitInfo": {"operation": "RESTORE", "operationParameters": parameters}}


@pytest.mark.parametrize(
    "parameters", [{"version": 0}, {"version": "0"}, {"version": None, "timestamp": "x"}, None, [1]]
)
def test_a_restore_to_a_type_that_no_version_had_is_found(tmp_path: Path, parameters: Any) -> None:
    DeltaTable.create(tmp_path, small(1).schema, data=small(1))
    metadata = first_metadata(tmp_path)
    metadata["schemaString"] = metadata["schemaString"].replace('"short"', '"string"')
    append_commit(restoring(parameters), {"metaData": metadata})(tmp_path)
    assert "column-type-changed" in check(tmp_path).rules


def test_a_restore_is_compared_with_the_version_that_it_names(tmp_path: Path) -> None:
    """The restore commit names version 3, in which the column has the wider type, but its own metadata contains the
    type of version 0."""
    table = DeltaTable.create(tmp_path, small(1).schema, data=small(1))
    old = first_metadata(tmp_path)
    widen(table)
    new = json.loads((tmp_path / "_delta_log" / f"{2:020d}.json").read_text().splitlines()[1])["metaData"]
    assert old["schemaString"] != new["schemaString"]
    table.append(pa.table({"small": [2**40]}))
    append_commit(restoring({"version": 3}), {"metaData": {**new, "schemaString": old["schemaString"]}})(tmp_path)
    assert "column-type-changed" in check(tmp_path).rules


def test_a_physical_name_that_files_from_before_the_mapping_lack_is_found(tmp_path: Path) -> None:
    table = DeltaTable.create(tmp_path, nested(1).schema, data=nested(1))
    table.set_properties({"delta.columnMapping.mode": "name"})
    assert_healthy(tmp_path)
    key = "delta.columnMapping.physicalName"
    edit_schema(1, lambda schema: schema["fields"][0]["metadata"].update({key: "col-1"}))(tmp_path)
    assert "column-mapping-column-changed" in check(tmp_path).rules


def first_metadata(path: Path) -> dict[str, Any]:
    lines = (path / "_delta_log" / f"{0:020d}.json").read_text().splitlines()
    [found] = [json.loads(line)["metaData"] for line in lines if "metaData" in line]
    return dict(found)
