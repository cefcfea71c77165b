"""`schema`, `properties`, `diff`, `changes`, `explain`; `rows --where`, `cleanup --retention`."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from deltalog import DeltaTable
from deltalog.schema import StructField, StructType
from tests.support.cli import Cli, Ran, set_file_time


def lines(ran: Ran) -> list[Any]:
    assert (ran.status, ran.err) == (0, "")
    return [json.loads(line) for line in ran.out.splitlines()]


def text(ran: Ran) -> str:
    assert (ran.status, ran.err) == (0, "")
    return " ".join(ran.out.split())


@pytest.fixture
def table(tmp_path: Path) -> Path:
    schema = pa.schema([("id", pa.int64()), ("s", pa.struct([("x", pa.int32())])), ("p", pa.string())])
    made = DeltaTable.create(
        tmp_path / "t", schema, partition_by=["p"],
        properties={"owner": "me", "delta.enableChangeDataFeed": "true"},
        data=pa.table({"id": [1, 2], "s": [{"x": 1}, None], "p": ["a", "b"]}, schema),
    )  # fmt: skip
    made.set_column("id", comment="the key")
    made.add_columns(StructType.from_arrow(pa.schema([("more", pa.float64())])))
    made.set_properties({"owner": "you", "delta.enableRowTracking": "false"})
    made.delete("id = 1")
    return tmp_path / "t"


def test_schema(cli: Cli, table: Path) -> None:
    shown = text(cli("schema", table))
    for part in ("id long the key", "s struct", "s.x integer", "p string partition column", "more double"):
        assert part in shown
    (document,) = lines(cli("schema", table, "--version", "0", "--json"))
    assert [field["name"] for field in document["fields"]] == ["id", "s", "p"]


def test_properties(cli: Cli, table: Path) -> None:
    assert lines(cli("properties", table, "--json")) == [
        {"delta.enableChangeDataFeed": "true", "delta.enableRowTracking": "false", "owner": "you"}
    ]
    version = DeltaTable.open(table).version
    assert text(cli("properties", table)).endswith("owner you") and DeltaTable.open(table).version == version
    ran = cli(
        "properties", table, "--set", "owner=us=all", "--set", "a=", "--unset", "delta.enableRowTracking", "--json"
    )
    assert lines(ran) == [{"a": "", "delta.enableChangeDataFeed": "true", "owner": "us=all"}]
    assert cli("properties", table, "--set", "owner").status == 2
    refused = cli("properties", table, "--set", "delta.nope=1", "--json")
    assert refused.status == 1 and json.loads(refused.err)["error"] == "InvalidPropertyError"


def test_diff(cli: Cli, table: Path) -> None:
    (found,) = lines(cli("diff", table, "--from", "0", "--json"))
    assert (found["from"], found["to"], found["num_files"], found["num_rows"]) == (0, 4, [2, 1], [2, 1])
    assert [file["path"].split("/")[0] for file in found["files_removed"]] == ["p=a"] and found["files_added"] == []
    assert found["columns"] == {"more": [None, "double"]}
    assert found["properties"] == {"delta.enableRowTracking": [None, "false"], "owner": ["me", "you"]}
    assert found["features"] == {}
    shown = text(cli("diff", table, "--from", "0", "--to", "4"))
    for part in (
        "Versions 0 → 4",
        "Files 2 → 1",
        "Rows 2 → 1",
        "+ column more: double",
        "~ property owner: me → you",
        "- p=a/",
    ):
        assert part in shown
    (back,) = lines(cli("diff", table, "--from", "4", "--to", "0", "--json"))
    assert back["files_added"] == found["files_removed"] and back["columns"] == {"more": ["double", None]}
    assert "unchanged" in text(cli("diff", table, "--from", "4"))
    assert cli("diff", table, "--from", "9").status == 1


def test_diff_shows_deletion_vectors(cli: Cli, tmp_path: Path) -> None:
    rows = pa.table({"id": [1, 2]})
    made = DeltaTable.create(tmp_path, rows.schema, data=rows, properties={"delta.enableDeletionVectors": "true"})
    made.delete("id = 1")
    (found,) = lines(cli("diff", tmp_path, "--from", "0", "--json"))
    assert [file["has_deletion_vector"] for file in found["files_added"] + found["files_removed"]] == [True, False]
    assert found["num_rows"] == [2, 1]


def test_changes(cli: Cli, table: Path) -> None:
    (change,) = lines(cli("changes", table, "--from", "4", "--json"))
    assert (change["id"], change["_change_type"], change["_commit_version"]) == (1, "delete", 4)
    assert len(lines(cli("changes", table, "--from", "0", "--to", "3", "--json"))) == 2
    assert "1 changed row" in text(cli("changes", table, "--from", "4"))
    assert cli("changes", table, "--from", "9").status == 1


def test_explain(cli: Cli, table: Path) -> None:
    (found,) = lines(cli("explain", table, "--json"))
    assert (found["version"], found["checkpoint"], found["commits"]) == (4, None, [0, 1, 2, 3, 4])
    assert found["calls"]["files"]["get"] == sum("json" in path for path in found["read"]["files"])
    DeltaTable.open(table).checkpoint()
    (after,) = lines(cli("explain", table, "--json"))
    assert after["checkpoint"] == [f"{4:020d}.checkpoint.parquet"] and after["commits"] == []
    assert any(path.endswith("checkpoint.parquet") for path in after["read"]["files"])
    (old,) = lines(cli("explain", table, "--version", "1", "--json"))
    assert (old["version"], old["commits"]) == (1, [0, 1])
    assert "Checkpoint" in text(cli("explain", table))


def test_explain_names_a_checkpoint_that_cannot_be_read(cli: Cli, table: Path) -> None:
    opened = DeltaTable.open(table)
    opened.checkpoint()
    opened.append(pa.table({"id": [7], "s": [None], "p": ["a"], "more": [None]}, opened.snapshot().schema.to_arrow()))
    opened.flush()
    checkpoint = table / "_delta_log" / f"{4:020d}.checkpoint.parquet"
    checkpoint.write_bytes(checkpoint.read_bytes()[:100])
    for _ in range(2):  # with the .crc, only the list of files needs the checkpoint; without it, the state too
        (found,) = lines(cli("explain", table, "--json"))
        assert found["unreadable_checkpoints"] == [checkpoint.name]
        assert f"Unreadable {checkpoint.name}: an older checkpoint or the commits" in text(cli("explain", table))
        (table / "_delta_log" / f"{5:020d}.crc").unlink(missing_ok=True)


def test_explain_counts_the_files_itself(cli: Cli, table: Path) -> None:
    crc = table / "_delta_log" / f"{4:020d}.crc"
    body = json.loads(crc.read_text())
    number = body["numFiles"]
    (found,) = lines(cli("explain", table, "--json"))
    assert (found["num_files"], found["num_files_by_checksum"]) == (number, number)
    crc.write_text(json.dumps({**body, "numFiles": number + 100}))
    assert "present, but not used: it contradicts itself" in text(cli("explain", table))
    body.pop("fileSizeHistogram")
    crc.write_text(json.dumps({**body, "numFiles": number - 1}))
    (found,) = lines(cli("explain", table, "--json"))
    assert (found["num_files"], found["num_files_by_checksum"]) == (number, number - 1)
    assert "present, but counts 0 files" in text(cli("explain", table)) and number == 1


def test_rows_of_a_condition(cli: Cli, late: Path) -> None:
    found = lines(cli("rows", late, "--version", "3", "--where", "id > 2 AND what IS NOT NULL", "--json"))
    assert sorted(row["id"] for row in found) == [3, 5]
    assert "2 rows of version 3" in text(cli("rows", late, "--version", "3", "--where", "id < 3"))
    assert "The first 1 row of version 3" in text(
        cli("rows", late, "--version", "3", "--where", "id < 3", "--limit", "1")
    )
    refused = cli("rows", late, "--where", "nope = 1", "--json")
    assert refused.status == 1 and json.loads(refused.err)["error"] == "CallError"


def test_cleanup_with_another_retention_needs_a_yes(cli: Cli, tmp_path: Path) -> None:
    made = DeltaTable.create(tmp_path, pa.schema([("id", pa.int64())]))
    made.append(pa.table({"id": [1]}))
    made.checkpoint()
    now_ms = int(time.time() * 1000)
    for version, days in ((0, 10), (1, 5)):
        set_file_time(tmp_path, version, now_ms - days * 86_400_000)
    names = {each.name for each in (tmp_path / "_delta_log").iterdir()}
    (shown,) = lines(cli("cleanup", tmp_path, "--retention", "3 days", "--json"))
    assert shown["dry_run"] and {each.name for each in (tmp_path / "_delta_log").iterdir()} == names
    assert "Nothing was deleted. --yes" in cli("cleanup", tmp_path, "--retention", "3 days").out
    (done,) = lines(cli("cleanup", tmp_path, "--retention", "3 days", "--yes", "--json"))
    assert not done["dry_run"] and f"{0:020d}.json" not in {each.name for each in (tmp_path / "_delta_log").iterdir()}
    assert cli("cleanup", tmp_path, "--retention", "soon").status == 2


def test_a_struct_field_of_a_name_with_a_dot(cli: Cli, tmp_path: Path) -> None:
    schema = StructType((StructField("a.b", StructType.from_arrow(pa.schema([("c", pa.int64())]))),))
    DeltaTable.create(tmp_path, schema, properties={"delta.columnMapping.mode": "name"})
    assert "a.b.c long" in text(cli("schema", tmp_path))
