"""Manifests of the live files, for engines that cannot read the log."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from deltalog import CallError, DeltaTable
from deltalog.errors import UnsafePathError

DIRECTORY = "_symlink_format_manifest"


def manifests(path: Path) -> dict[str, list[str]]:
    """The lines of each manifest, keyed by the manifest's path below the manifest directory."""
    root = path / DIRECTORY
    return {each.relative_to(root).as_posix(): each.read_text().splitlines() for each in root.rglob("manifest")}


def locations(table: DeltaTable, path: Path) -> list[str]:
    return sorted(f"file:{path}/{name}" for name in table.snapshot().files(["path"])["path"].to_pylist())


def test_a_table_without_partitions_has_one(tmp_path: Path) -> None:
    table = DeltaTable.create(tmp_path, pa.schema([("x", pa.int64())]))
    assert table.generate() == (f"{DIRECTORY}/manifest",)
    assert manifests(tmp_path) == {"manifest": []}
    table.append(pa.table({"x": [1]}))
    table.append(pa.table({"x": [2]}))
    table.generate("symlink_format_manifest")
    assert manifests(tmp_path) == {"manifest": locations(table, tmp_path)}
    table.overwrite(pa.table({"x": [3]}))
    table.generate()
    assert manifests(tmp_path) == {"manifest": locations(table, tmp_path)}
    assert table.version == 3


def test_each_partition_has_one_and_those_that_are_gone_have_none(tmp_path: Path) -> None:
    rows = pa.table({"x": [1, 2, 3], "p": ["a b", "c/d", None]})
    table = DeltaTable.create(tmp_path, rows.schema, partition_by=["p"], data=rows)
    assert table.generate() == tuple(sorted(f"{DIRECTORY}/{name}" for name in manifests(tmp_path)))
    assert set(manifests(tmp_path)) == {
        "p=a%20b/manifest", "p=c%2Fd/manifest", "p=__HIVE_DEFAULT_PARTITION__/manifest",
    }  # fmt: skip
    for lines in manifests(tmp_path).values():
        (line,) = lines
        assert Path(line.removeprefix("file:")).exists(), "not percent-encoded"
    table.delete("p = 'c/d' OR p IS NULL")
    table.generate()
    assert set(manifests(tmp_path)) == {"p=a%20b/manifest"}
    assert [each.name for each in (tmp_path / DIRECTORY).iterdir()] == ["p=a%20b"]


def test_files_elsewhere_are_named_where_they_are(tmp_path: Path) -> None:
    source = DeltaTable.create(tmp_path / "s", pa.schema([("x", pa.int64())]), data=pa.table({"x": [1]}))
    clone = source.clone(tmp_path / "c", shallow=True)
    clone.generate()
    assert manifests(tmp_path / "c") == {"manifest": locations(source, tmp_path / "s")}


def test_tables_that_such_readers_read_wrongly_are_refused(tmp_path: Path) -> None:
    rows = pa.table({"x": [1, 2, 3]})
    vectors = DeltaTable.create(
        tmp_path / "v", rows.schema, data=rows, properties={"delta.enableDeletionVectors": "true"}
    )
    vectors.generate()
    vectors.delete("x = 1")
    with pytest.raises(CallError, match=r"1 files with deletion vectors.*purge\(\)"):
        vectors.generate()
    vectors.optimize.purge()
    vectors.generate()
    assert manifests(tmp_path / "v") == {"manifest": locations(vectors, tmp_path / "v")}
    mapped = DeltaTable.create(tmp_path / "m", rows.schema, data=rows, properties={"delta.columnMapping.mode": "name"})
    with pytest.raises(CallError, match="column mapping"):
        mapped.generate()
    with pytest.raises(CallError):
        vectors.generate("symlink")  # type: ignore[arg-type]


def test_nothing_is_written_through_a_link(tmp_path: Path) -> None:
    table = DeltaTable.create(tmp_path / "t", pa.schema([("x", pa.int64())]), data=pa.table({"x": [1]}))
    (tmp_path / "outside").mkdir()
    (tmp_path / "t" / DIRECTORY).symlink_to(tmp_path / "outside")
    with pytest.raises(UnsafePathError, match="symbolic link"):
        table.generate()
    assert list((tmp_path / "outside").iterdir()) == []
