"""Pipes and devices in place of a table's files cause an error immediately; no reader blocks forever."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest

from deltalog import DeltaTable

pytestmark = pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs pipes")

SCHEMA = pa.schema([("id", pa.int64())])
# A time limit ends a child process that hangs; the test checks the child's output.
READ = """
import sys, deltalog, pyarrow as pa
from deltalog import DeltaTable
url = sys.argv[1]
def added():
    with DeltaTable.open(url).transaction() as transaction:
        transaction.add_parquet_files([("pipe.parquet", {})])
steps = {
    "open": lambda: DeltaTable.open(url),
    "rows": lambda: DeltaTable.open(url).snapshot().scan().to_arrow().num_rows,
    "delete": lambda: DeltaTable.open(url).delete("id = 1"),
    "statistics": lambda: DeltaTable.open(url).compute_statistics(),
    "check": lambda: deltalog.check(url, True),
    "history": lambda: [str(entry) for entry in DeltaTable.open(url).history()],
    "clone": lambda: DeltaTable.open(url).clone(url + "-clone"),
    "add": added,
    "convert": lambda: DeltaTable.convert(url + "-files"),
}
for name, step in steps.items():
    try:
        step()
        print(name, "ok")
    except deltalog.DeltaLogError as error:
        print(name, error.code)
"""


def make_special(path: Path, kind: str) -> None:
    path.unlink(missing_ok=True)
    if kind == "pipe":
        os.mkfifo(path)
    else:
        path.symlink_to("/dev/zero")


@pytest.mark.sampled(2)
@pytest.mark.parametrize("kind", ["pipe", "device"])
@pytest.mark.parametrize(
    "name", ["00000000000000000001.json", "00000000000000000002.checkpoint.parquet", "00000000000000000002.crc",
             "_last_checkpoint", "00000000000000000003.json", "data", "vector"],
)  # fmt: skip
def test_nothing_waits_for_a_pipe_or_reads_a_device_to_its_end(name: str, kind: str, tmp_path: Path) -> None:
    root = tmp_path / "table"
    table = DeltaTable.create(root, SCHEMA, properties={"delta.enableDeletionVectors": "true"})
    table.append(pa.table({"id": [1, 2, 3]}, SCHEMA))
    table.delete("id = 2")
    table.checkpoint()
    kinds = {"data": "*.parquet", "vector": "*.bin"}
    path = next(root.glob(kinds[name])) if name in kinds else root / "_delta_log" / name
    make_special(path, kind)
    make_special(root / "pipe.parquet", kind)
    (tmp_path / "table-files").mkdir()
    make_special(tmp_path / "table-files" / "pipe.parquet", kind)
    limits = "import resource; resource.setrlimit(resource.RLIMIT_AS, (4 << 30, 4 << 30))\n"
    done = subprocess.run(
        [sys.executable, "-c", limits + READ, str(root)], capture_output=True, text=True, timeout=240, check=False
    )
    assert done.returncode == 0, done.stderr
    answers = dict(line.split() for line in done.stdout.splitlines())
    assert answers["add"] != "ok" and answers["convert"] != "ok", answers
    if name in kinds:
        assert answers["rows"] != "ok", answers


def test_a_job_of_spark_with_a_pipe_in_it(tmp_path: Path) -> None:
    pytest.importorskip("pyspark")
    from spark_ext.reading.bounded_footers import schema_of

    os.mkfifo(tmp_path / "part-00000-x.parquet")
    with pytest.raises(OSError, match="is not a file"):
        schema_of(str(tmp_path / "part-00000-x.parquet"))
