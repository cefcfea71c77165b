"""The commands `convert`, `clone` and `generate`."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from deltalog import DeltaTable
from tests.support.cli import Cli


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    for number in (1, 2):
        (tmp_path / "d" / f"n={number}").mkdir(parents=True)
        pq.write_table(pa.table({"id": [number]}), tmp_path / "d" / f"n={number}" / "x.parquet")
    return tmp_path / "d"


def test_convert(cli: Cli, directory: Path) -> None:
    ran = cli("convert", directory, "--property", "delta.enableInCommitTimestamps=true")
    assert (ran.status, ran.err) == (0, "")
    assert ran.out.startswith(f"{directory} is now a table of 2 files, ") and "partitioned by n." in ran.out
    table = DeltaTable.open(directory)
    assert str(table.schema.field("n").data_type) == "integer" and table.snapshot().in_commit_timestamps_enabled
    again = cli("convert", directory, "--json")
    assert again.status == 1 and json.loads(again.err)["code"] == "TABLE_EXISTS"


@pytest.mark.parametrize(
    ("given", "kind"),
    [("n", "integer"), ("n:string", "string"), ("n:INT", "integer"), ("n:decimal(5,1)", "decimal(5,1)")],
)
def test_partition_columns_with_and_without_types(cli: Cli, directory: Path, given: str, kind: str) -> None:
    ran = cli("convert", directory, "--partition-by", given, "--json")
    assert (ran.status, ran.err) == (0, "")
    found = json.loads(ran.out)
    assert (found["version"], found["num_files"], found["partition_columns"]) == (0, 2, ["n"])
    assert str(DeltaTable.open(directory).schema.field("n").data_type) == kind


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--partition-by", "n:nope"], "NAME:TYPE"),
        (["--partition-by", "n:int", "--partition-by", "m"], "NAME:TYPE"),
        (["--property", "x"], "KEY=VALUE"),
    ],
)
def test_wrong_options_of_convert(cli: Cli, directory: Path, arguments: list[str], told: str) -> None:
    ran = cli("convert", directory, *arguments)
    assert ran.status == 2 and told in ran.err and not (directory / "_delta_log").exists()


@pytest.mark.parametrize("shallow", [[], ["--shallow"]])
def test_clone(cli: Cli, late: Path, tmp_path: Path, shallow: list[str]) -> None:
    ran = cli("clone", late, tmp_path / "c", "--version", "3", "--property", "owner=me", *shallow)
    assert (ran.status, ran.err) == (0, "")
    kind = "shallow" if shallow else "deep"
    assert f"{tmp_path / 'c'} is now a {kind} clone of 2 files" in ran.out
    clone = DeltaTable.open(tmp_path / "c", allowed_paths=[str(late)])
    assert sorted(clone.to_pyarrow_table()["id"].to_pylist()) == [1, 2, 3, 4, 5]
    assert clone.snapshot().metadata.configuration["owner"] == "me"
    assert bool(list((tmp_path / "c").glob("*.parquet"))) is not bool(shallow)
    ran = cli("clone", late, tmp_path / "c", "--json", *shallow)
    assert ran.status == 1 and json.loads(ran.err)["code"] == "TABLE_EXISTS"
    assert json.loads(cli("clone", late, tmp_path / "d", "--json", *shallow).out)["version"] == 0


def test_generate(cli: Cli, late: Path) -> None:
    ran = cli("generate", late)
    assert (ran.status, ran.out) == (0, "1 manifest written below _symlink_format_manifest.\n")
    assert json.loads(cli("generate", late, "--json").out) == {"path": "_symlink_format_manifest/manifest"}
