"""Programs and libraries that import deltalake run with ``deltalog.deltalake`` instead, and get the results that
deltalake would return.

Each program runs in a process of its own, because libraries keep the modules that they import.
"""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pyarrow as pa
import pytest

import deltalog.deltalake as door
from deltalog import DeltaTable as OwnTable

ROOT = Path(__file__).resolve().parents[3]
INSTALL = "import deltalog.deltalake\ndeltalog.deltalake.install()\n"
ROWS = pa.table({"id": [1, 2, 3], "day": ["a", "a", "b"], "x": [1.5, None, 2.0]})


def run(program: str, directory: Path, on_door: bool = True) -> str:
    directory.mkdir(exist_ok=True)
    source = (INSTALL if on_door else "") + textwrap.dedent(program)
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", source], cwd=directory, timeout=300,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-4000:]
    return done.stdout


USUAL = """
import datetime, json
import pandas as pd
import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Field, Schema, WriterProperties, write_deltalake
from deltalake.exceptions import CommitFailedError, DeltaError, TableNotFoundError

answers = []
def say(*values): answers.append(json.loads(json.dumps(values, default=str)))
def rows(table): say(sorted(table.to_pandas().fillna(-1).astype(str).values.tolist()))
OF_FILES = ("file", "copied", "output")  # they depend on which rows share a file
def counts(metrics): say({k: v for k, v in metrics.items() if k[:3] == "num" and not any(w in k for w in OF_FILES)})

df = pd.DataFrame({"id": [1, 2, 3], "day": ["a", "a", "b"]})
write_deltalake("t", df)
write_deltalake("t", df, mode="append")
write_deltalake("t", df.assign(x=1.5), mode="append", schema_mode="merge")
table = DeltaTable("t")
say(table.version(), table.schema().to_json(), table.metadata().partition_columns, table.protocol()[:2])
rows(table)
say(len(table.file_uris()), table.count(), table.history(1)[0]["operation"], table.history(1)[0]["version"])
write_deltalake("t", df.assign(x=2.5)[df.day == "a"], mode="overwrite", predicate="day = 'a'")
table.update_incremental()
rows(table)
say(table.to_pandas(filters=[("day", "=", "b")], columns=["id"]).sort_values("id").values.tolist())
say(table.to_pyarrow_table(filters=[("id", ">", 2)]).num_rows)
say(sum(row["num_records"] for row in pa.table(table.get_add_actions()).to_pylist()))
counts(table.delete("id = 1"))
rows(table)
counts(table.update(updates={"day": "'z'"}, predicate="id = 2"))
counts(table.update(new_values={"x": 9.0}, predicate='"day" = \\'z\\''))
rows(table)
source = pd.DataFrame({"id": [3, 4], "day": ["m", "n"], "x": [0.5, 0.25]})
merger = table.merge(source, "t.id = s.id", source_alias="s", target_alias="t")
counts(merger.when_matched_update_all().when_not_matched_insert_all().execute())
rows(table)
merger = table.merge(source, "target.id = source.id", "source", "target")
merger = merger.when_matched_delete(predicate="source.x > 0.3")
counts(merger.when_not_matched_by_source_update({"x": "target.x + 1"}, predicate="target.id = 2").execute())
rows(table)
table.optimize.compact()
say(table.optimize.z_order(["id"])["numFilesAdded"], len(table.file_uris()))
say(table.vacuum(), len(table.vacuum(0, enforce_retention_duration=False)) > 0)
table.load_as_version(0)
rows(table)
table.load_as_version(datetime.datetime.now(datetime.timezone.utc) + datetime.timedelta(days=1))
say(table.restore(1)["numRestoredFile"])
rows(table)
table.alter.add_constraint({"positive": "id > 0"})
table.alter.set_table_properties({"delta.appendOnly": "false"})
table.alter.add_columns([Field("more", "string")])
say(table.schema().to_arrow().names, sorted(table.metadata().configuration.items()))
def refused(action):
    try:
        action()
    except Exception as error:
        say(next(kind.__name__ for kind in (CommitFailedError, TableNotFoundError, DeltaError, ValueError)
                 if isinstance(error, kind)))
    else:
        say(None)
wrong = pd.DataFrame({"id": [-1], "day": ["a"], "x": [1.0], "more": ["m"]})
refused(lambda: write_deltalake("t", wrong, mode="append"))
refused(lambda: write_deltalake("t", df))
refused(lambda: DeltaTable("nothing"))
refused(lambda: table.update())
refused(lambda: table.delete("nope = 1"))
options = {"delta.enableChangeDataFeed": "true"}
write_deltalake("c", df, partition_by=["day"], configuration=options, name="n", description="d",
                commit_properties=CommitProperties(custom_metadata={"who": "me"}),
                writer_properties=WriterProperties(compression="ZSTD"))
changed = DeltaTable("c")
changed.delete("id = 2")
feed = pa.table(changed.load_cdf(starting_version=0)).to_pylist()
say(sorted((row["id"], row["_change_type"], row["_commit_version"]) for row in feed))
say(sorted(map(str, changed.partitions())), changed.metadata().name, changed.history()[-1]["who"])
say(sorted(changed.file_uris([("day", "=", "b")])[0].split("day=")[1][:1]), DeltaTable.is_deltatable("c"))
changed.create_checkpoint()
changed.cleanup_metadata()
say(changed.transaction_version("app"), changed.to_pyarrow_dataset().count_rows())
made = DeltaTable.create("made", Schema([Field("id", "long", nullable=False)]), mode="overwrite")
say(made.version(), made.schema().fields[0].nullable, made.to_pyarrow_table().num_rows)
print(json.dumps(answers))
"""


def test_a_usual_program_gets_the_answers_that_deltalake_gives(tmp_path) -> None:
    pytest.importorskip("deltalake", minversion="1.6")
    ours = json.loads(run(USUAL, tmp_path / "ours"))
    theirs = json.loads(run(USUAL, tmp_path / "theirs", on_door=False))
    assert len(ours) == len(theirs) > 30
    for number, (one, other) in enumerate(zip(ours, theirs, strict=True)):
        assert one == other, f"answer {number}"


def test_polars_reads_and_writes(tmp_path) -> None:
    answer = run(
        """
        import json
        import polars as pl
        import deltalake
        assert deltalake.__name__ == "deltalog.deltalake"
        df = pl.DataFrame({"id": [1, 2, 3], "day": ["a", "b", "a"], "x": [1.5, None, 2.0]})
        df.write_delta("t", delta_write_options={"partition_by": ["day"]})
        df.write_delta("t", mode="append")
        assert pl.read_delta("t").height == 6 and pl.read_delta("t", version=0).height == 3
        few = pl.scan_delta("t").filter(pl.col("id") > 2).select("x", "day").collect()
        assert few.rows() == [(2.0, "a"), (2.0, "a")], few
        assert pl.scan_delta("t", use_pyarrow=True).filter(pl.col("day") == "b").collect().height == 2
        options = {"predicate": "s.id = t.id", "source_alias": "s", "target_alias": "t"}
        merger = df.with_columns(x=pl.lit(7.0)).write_delta("t", mode="merge", delta_merge_options=options)
        merger.when_matched_update_all().execute()
        assert pl.read_delta("t")["x"].to_list() == [7.0] * 6
        table = deltalake.DeltaTable("t")
        table.alter.set_table_properties({"delta.enableDeletionVectors": "true"})
        table.delete("id = 1")
        assert table.deletion_vectors().read_all().num_rows > 0
        assert sorted(pl.read_delta(table)["id"].to_list()) == [2, 2, 3, 3]
        df.write_delta("t", mode="overwrite", delta_write_options={"schema_mode": "overwrite"})
        print(json.dumps(sorted(pl.read_delta("t").rows())[0]))
        """,
        tmp_path / "polars",
    )
    assert json.loads(answer) == [1, "a", 1.5]
    assert OwnTable.open(str(tmp_path / "polars" / "t")).snapshot().scan().to_arrow().num_rows == 3


@pytest.mark.skipif(importlib.util.find_spec("dask_deltatable") is None, reason="needs dask-deltatable")
def test_dask_reads_and_writes(tmp_path) -> None:
    run(
        """
        import dask.dataframe as dd
        import dask_deltatable
        import pandas as pd
        from deltalake import write_deltalake
        write_deltalake("t", pd.DataFrame({"id": range(10), "day": list("ab") * 5}), partition_by=["day"])
        assert sorted(dask_deltatable.read_deltalake("t").compute()["id"]) == list(range(10))
        few = dask_deltatable.read_deltalake("t", filter=[("day", "=", "a")]).compute()
        assert sorted(few["id"]) == [0, 2, 4, 6, 8]
        frame = dd.from_pandas(pd.DataFrame({"x": [1, 2, 3]}), npartitions=2)
        dask_deltatable.to_deltalake("made", frame, mode="append", compute=True)
        """,
        tmp_path / "dask",
    )
    assert sorted(OwnTable.open(str(tmp_path / "dask" / "made")).to_pyarrow_table()["x"].to_pylist()) == [1, 2, 3]


def test_pandas_frames_go_both_ways(tmp_path) -> None:
    import pandas as pd

    frame = pd.DataFrame({"id": [1, 2], "t": pd.to_datetime(["2026-01-01", "2026-01-02"])})
    door.write_deltalake(tmp_path, frame)
    found = door.DeltaTable(tmp_path).to_pandas()
    assert found["id"].tolist() == [1, 2]
    assert found["t"].tolist() == frame["t"].tolist()


def test_deltalake_and_the_door_write_one_table_in_turn(tmp_path) -> None:
    real = pytest.importorskip("deltalake", minversion="1.6")
    door.write_deltalake(tmp_path, ROWS, partition_by=["day"])
    real.write_deltalake(tmp_path, ROWS, mode="append")
    door.DeltaTable(tmp_path).delete("id = 1")
    real.DeltaTable(tmp_path).update(updates={"x": "0.0"}, predicate="id = 2")
    source = pa.table({"id": [3, 9], "day": ["c", "c"], "x": [5.0, 6.0]})
    merger = door.DeltaTable(tmp_path).merge(source, "t.id = s.id", "s", "t")
    merger.when_matched_update_all().when_not_matched_insert_all().execute()
    real.DeltaTable(tmp_path).optimize.compact()
    door.DeltaTable(tmp_path).create_checkpoint()
    both = [
        sorted(table.to_pyarrow_table().to_pylist(), key=str)
        for table in (door.DeltaTable(tmp_path), real.DeltaTable(tmp_path))
    ]
    assert both[0] == both[1]
    assert sorted(row["id"] for row in both[0]) == [2, 2, 3, 3, 9]
    assert door.DeltaTable(tmp_path).version() == real.DeltaTable(tmp_path).version() == 5


def test_the_programs_run_from_this_checkout() -> None:
    assert Path(door.__file__).is_relative_to(ROOT)
