"""The output of each reading command, as readable text and as JSON."""

from __future__ import annotations

import datetime
import decimal
import json
import os
import re
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import deltalog
from deltalog import DeltaTable, TransactionManager
from deltalog.storage.fs import LocalStore
from tests.support.cli import MINUTE, START, Cli, Clock, Ran, set_file_time
from tests.support.core import ICT, put_variant_table


def lines(ran: Ran) -> list[Any]:
    assert (ran.status, ran.err) == (0, "")
    return [json.loads(line) for line in ran.out.splitlines()]


def document(ran: Ran) -> Any:
    (only,) = lines(ran)
    return only


# ------------------------------------------------------------------------------------- the info command


def test_info_document(cli: Cli, late: Path) -> None:
    facts = document(cli("info", late, "--json"))
    snapshot = DeltaTable.open(late).snapshot()
    assert facts["table"] == str(late)
    assert (facts["version"], facts["num_files"], facts["num_rows"]) == (4, 1, 1)
    assert facts["size_bytes"] == snapshot.size_bytes
    assert facts["timestamp_ms"] == START + 4 * MINUTE
    assert facts["timestamp"] == "2026-09-21T14:17:20.000Z"
    assert facts["clock"] == "in-commit"
    assert facts["in_commit_timestamps"] == {
        "enabled": True,
        "enablement": {"version": 2, "timestamp_ms": START + 2 * MINUTE},
    }
    assert facts["protocol"] == json.loads(json.dumps(snapshot.protocol.to_json()))
    assert facts["metadata"] == json.loads(json.dumps(snapshot.metadata.to_json()))
    assert [field["name"] for field in facts["schema"]["fields"]] == ["id", "what"]
    assert facts["partition_columns"] == facts["set_transactions"] == facts["domain_metadata"] == []


def test_info_of_an_older_version_goes_by_the_clock_of_today(cli: Cli, late: Path) -> None:
    facts = document(cli("info", late, "--version", 1, "--json"))
    assert (facts["version"], facts["num_rows"]) == (1, 2)
    assert facts["in_commit_timestamps"] == {"enabled": False, "enablement": None}
    assert (facts["timestamp_ms"], facts["clock"]) == (START + MINUTE + 7, "file-modification")


def test_info_time_is_that_of_history_where_file_times_run_back(cli: Cli, late: Path) -> None:
    set_file_time(late, 1, START - MINUTE)
    facts = document(cli("info", late, "--version", 1, "--json"))
    assert facts["timestamp_ms"] == START + 7 + 1
    assert facts["timestamp_ms"] == DeltaTable.open(late).history()[-2].timestamp_ms


def test_info_for_people(cli: Cli, late: Path) -> None:
    ran = cli("info", late)
    assert ran.status == 0
    assert f"Table            {late}" in ran.out
    assert "on since version 2, 1790000120000 ms (2026-09-21T14:15:20.000Z)" in ran.out
    assert "1 file, " in ran.out and ", 1 row" in ran.out
    assert "delta.enableInCommitTimestamps" in ran.out
    assert "\x1b" not in ran.out
    assert all(line == line.rstrip() for line in ran.out.splitlines())


@pytest.mark.parametrize(
    ("point", "version"),
    [
        (("--version", "1"), 1),
        (("--timestamp-ms", str(START + MINUTE + 7)), 1),
        (("--timestamp", "2026-09-21T14:16:20Z"), 3),
        (("--timestamp", "2026-09-21 16:16:20.000+02:00"), 3),
    ],
)
def test_points_in_time(cli: Cli, late: Path, point: tuple[str, str], version: int) -> None:
    assert document(cli("info", late, *point, "--json"))["version"] == version
    files = {row["path"] for row in lines(cli("files", late, *point, "--json"))}
    assert files == set(DeltaTable.open(late).snapshot(version=version).files()["path"].to_pylist())
    rows = lines(cli("rows", late, *point, "--json"))
    assert len(rows) == {1: 2, 3: 5}[version]


# ------------------------------------------------------------------------------------------- files and rows


def test_files_lines(cli: Cli, tmp_path: Path) -> None:
    data = pa.table({"k": ["a b", None], "n": [1, 2]})
    table = DeltaTable.create(tmp_path / "t", data.schema, partition_by=["k"], data=data)
    found = lines(cli("files", tmp_path / "t", "--json"))
    logged = table.snapshot().files().to_pylist()
    assert [row["path"] for row in found] == [row["path"] for row in logged]
    assert {row["partition_values"]["k"] for row in found} == {"a b", None}
    assert all(row["stats"]["numRecords"] == 1 and row["size"] > 0 for row in found)
    assert len(lines(cli("files", tmp_path / "t", "--limit", 1, "--json"))) == 1


def test_files_for_people(cli: Cli, late: Path) -> None:
    ran = cli("files", late, "--version", 3, "--limit", 1)
    assert ran.out.count(".parquet") == 1
    assert "2 files" in ran.out and "1 more: --limit 0 shows all" in ran.out
    assert cli("files", late, "--version", 3, "--limit", 0).out.count(".parquet") == 2


def test_rows_lines(cli: Cli, late: Path) -> None:
    rows = lines(cli("rows", late, "--version", 3, "--json"))
    assert sorted(rows, key=lambda row: row["id"]) == [
        {"id": 1, "what": "view"},
        {"id": 2, "what": "click"},
        {"id": 3, "what": "buy"},
        {"id": 4, "what": None},
        {"id": 5, "what": "é"},
    ]
    chosen = lines(cli("rows", late, "--version", 3, "--columns", "what, id", "--limit", 2, "--json"))
    assert [list(row) for row in chosen] == [["what", "id"]] * 2


def test_rows_show_variants_as_json_text(cli: Cli, tmp_path: Path) -> None:
    put_variant_table(LocalStore(tmp_path))
    assert lines(cli("rows", tmp_path, "--json")) == [{"id": 1, "v": "[7]"}, {"id": 2, "v": None}]
    assert [line.split() for line in cli("rows", tmp_path).out.splitlines()[2:4]] == [["1", "[7]"], ["2", "null"]]


def test_rows_values_that_json_lacks(cli: Cli, tmp_path: Path) -> None:
    moment = datetime.datetime(2026, 3, 4, 5, 6, 7, 8, tzinfo=datetime.timezone.utc)
    data = pa.table(
        {
            "d": pa.array([decimal.Decimal("1.20")], pa.decimal128(10, 2)),
            "t": pa.array([moment], pa.timestamp("us", "UTC")),
            "day": pa.array([moment.date()], pa.date32()),
            "b": pa.array([b"\x00\xff"], pa.binary()),
            "f": pa.array([float("nan")], pa.float64()),
            "g": pa.array([float("-inf")], pa.float64()),
            "m": pa.array([[("x", 1)]], pa.map_(pa.string(), pa.int64())),
            "i": pa.array([[(2, "y")]], pa.map_(pa.int64(), pa.string())),
            "s": pa.array([{"a": [1, None]}], pa.struct([("a", pa.list_(pa.int64()))])),
            "n": pa.array([2**62], pa.int64()),
        }
    )
    DeltaTable.create(tmp_path / "t", data.schema, data=data)
    assert document(cli("rows", tmp_path / "t", "--json")) == {
        "d": "1.20",
        "t": "2026-03-04T05:06:07.000008Z",
        "day": "2026-03-04",
        "b": "AP8=",
        "f": "NaN",
        "g": "-Infinity",
        "m": {"x": 1},
        "i": [[2, "y"]],
        "s": {"a": [1, None]},
        "n": 2**62,
    }


def test_rows_for_people_are_a_screenful(cli: Cli, tmp_path: Path) -> None:
    data = pa.table({"n": list(range(1000, 1050))})
    DeltaTable.create(tmp_path / "t", data.schema, data=data)
    ran = cli("rows", tmp_path / "t")
    assert "1019" in ran.out and "1020" not in ran.out
    assert "20 of 50 rows in version 0; 30 more: --limit 0 shows all" in ran.out
    assert "1049" in cli("rows", tmp_path / "t", "--limit", 0).out
    assert len(lines(cli("rows", tmp_path / "t", "--json"))) == 50


def test_rows_of_an_empty_table(cli: Cli, late: Path) -> None:
    assert lines(cli("rows", late, "--version", 0, "--json")) == []
    assert "0 of 0 rows in version 0" in cli("rows", late, "--version", 0).out


# ------------------------------------------------------------------------------------------------ history


def test_history_lines(cli: Cli, late: Path) -> None:
    expected = [entry.to_json() for entry in DeltaTable.open(late).history()]
    assert lines(cli("history", late, "--json")) == json.loads(json.dumps(expected))
    assert [entry["version"] for entry in lines(cli("history", late, "--limit", 2, "--json"))] == [4, 3]


def test_history_for_people(cli: Cli, late: Path) -> None:
    ran = cli("history", late)
    rows = {row.split()[0]: row for row in ran.out.splitlines() if row.split()[:1] and row.split()[0].isdigit()}
    assert list(rows) == ["4", "3", "2", "1", "0", "5"]
    assert "2026-09-21T14:16:20.000Z" in rows["3"] and "in-commit" in rows["3"] and "+7 ms" in rows["3"]
    assert "+3 rows, +1 file" in rows["3"]
    assert "file time" in rows["1"] and "first" in rows["1"] and "ms" not in rows["1"]
    assert "−2 files" in rows["4"]
    assert "3 more: --limit 0 shows all" in cli("history", late, "--limit", 2).out


def test_history_shows_a_missing_in_commit_timestamp(cli: Cli, late: Path) -> None:
    commit = late / "_delta_log" / f"{3:020d}.json"
    actions = [json.loads(line) for line in commit.read_bytes().splitlines()]
    del actions[0]["commitInfo"]["inCommitTimestamp"]
    commit.write_text("".join(json.dumps(action) + "\n" for action in actions))
    ran = cli("history", late)
    assert ran.status == 0
    assert "missing" in ran.out


# ------------------------------------------------------------------------------------------------ resolve


def test_resolve_document(cli: Cli, late: Path) -> None:
    asked = START + 3 * MINUTE + 5
    expected = DeltaTable.open(late).explain_timestamp(asked).to_json()
    for arguments in (
        ["--timestamp-ms", asked],
        ["--timestamp", "2026-09-21T14:16:20.005Z"],
        ["2026-09-21T14:16:20.005Z"],
    ):
        answer = document(cli("resolve", late, *arguments, "--json"))
        assert answer.pop("clamped") is None
        assert answer == expected
    assert expected["answer"] == {
        "version": 3,
        "timestamp_ms": START + 3 * MINUTE,
        "timestamp": "2026-09-21T14:16:20.000Z",
        "clock": "in-commit",
    }


def test_resolve_for_people(cli: Cli, late: Path) -> None:
    ran = cli("resolve", late, "--timestamp-ms", START + MINUTE + 8)
    assert ran.status == 0
    assert "Answer     version 1, committed at 1790000060007 ms" in ran.out
    assert "file modification times, made increasing (the requested time is before the enablement)" in ran.out
    assert "Note       file modification times change when the table is copied" in ran.out


@pytest.mark.parametrize(
    ("asked", "clamp", "version"),
    [(START - 1, ("--before", "earliest"), 0), (START + 9 * MINUTE, ("--after", "latest"), 4)],
)
def test_resolve_outside_of_the_history(cli: Cli, late: Path, asked: int, clamp: tuple[str, str], version: int) -> None:
    refused = cli("resolve", late, "--timestamp-ms", asked, "--json")
    assert refused.status == 1
    explained = json.loads(refused.out)
    assert explained["answer"] is None and explained["clamped"] is None
    error = json.loads(refused.err)
    assert (error["error"], error["code"]) == ("TimestampOutOfRangeError", "TIMESTAMP_OUT_OF_RANGE")
    option = " ".join(clamp)
    clamping = f"pass {option} to deltalog resolve, whose answer --version takes."
    assert error["message"] == re.sub(r"pass \w+=.* to version_at or snapshot\.", clamping, explained["refusal"])

    people = cli("resolve", late, "--timestamp-ms", asked)
    assert people.status == 1
    assert "none: the instant is refused" in people.out
    label, place = ("Earliest", "after") if version == 0 else ("Latest", "before")
    beside = re.escape(f"{label:<11}version {version}, committed at ")
    assert re.search(rf"{beside}.* which is {place} the instant; {option} selects it", " ".join(people.out.split(" ")))
    assert people.err.startswith("error [TIMESTAMP_OUT_OF_RANGE]: ")

    clamped = document(cli("resolve", late, "--timestamp-ms", asked, *clamp, "--json"))
    assert clamped["clamped"]["version"] == version
    assert f"Clamped    to version {version}" in cli("resolve", late, "--timestamp-ms", asked, *clamp).out


# --------------------------------------------------------------------------------------------- enable-ict


def test_enable_ict(cli: Cli, tmp_path: Path) -> None:
    path = tmp_path / "t"
    DeltaTable.create(path, pa.schema([("n", pa.int64())]), environment=Clock().environment())
    first = document(cli("enable-ict", path, "--json"))
    snapshot = DeltaTable.open(path).snapshot()
    assert snapshot.enablement is not None
    assert first == {
        "version": 1,
        "committed": True,
        "in_commit_timestamp_ms": snapshot.in_commit_timestamp_ms,
        "enablement": {"version": 1, "timestamp_ms": snapshot.enablement.timestamp_ms},
    }
    again = document(cli("enable-ict", path, "--json"))
    assert again == {**first, "committed": False}
    assert "already on" in cli("enable-ict", path).out
    assert DeltaTable.open(path).version == 1


def test_enable_ict_for_people(cli: Cli, tmp_path: Path) -> None:
    DeltaTable.create(tmp_path / "t", pa.schema([("n", pa.int64())]))
    assert cli("enable-ict", tmp_path / "t").out.startswith("In-commit timestamps are on since version 1, ")


# ---------------------------------------------------------------------------------------- commands on log files


def appended(path: Path) -> DeltaTable:
    """Four versions, two months old."""
    clock = Clock()
    table = DeltaTable.create(path, pa.schema([("n", pa.int64())]), properties=ICT, environment=clock.environment())
    for number in range(3):
        table.append(pa.table({"n": [number]}))
    return table


def test_checkpoint(cli: Cli, tmp_path: Path) -> None:
    appended(tmp_path / "t")
    name = "00000000000000000003.checkpoint.parquet"
    assert document(cli("checkpoint", tmp_path / "t", "--json")) == {"version": 3, "names": [name], "num_files": 3}
    assert (tmp_path / "t" / "_delta_log" / name).exists()
    assert cli("checkpoint", tmp_path / "t").out == f"Checkpoint of version 3, 3 files: {name}\n"


def test_compact(cli: Cli, tmp_path: Path) -> None:
    appended(tmp_path / "t")
    assert document(cli("compact", tmp_path / "t", "--from", "1", "--to", "2", "--json")) == {"from": 1, "to": 2}
    assert cli("compact", tmp_path / "t").out.startswith("Versions 0 to 3 are now also in one file")
    cli("checkpoint", tmp_path / "t")
    assert document(cli("compact", tmp_path / "t", "--json")) == {"from": None, "to": None}
    assert "nothing was written" in cli("compact", tmp_path / "t").out


def test_cleanup(cli: Cli, tmp_path: Path) -> None:
    table = appended(tmp_path / "t")
    table.checkpoint()
    retention = {"delta.logRetentionDuration": "interval 0 days"}
    table.set_properties(retention)
    log = tmp_path / "t" / "_delta_log"
    before = sorted(path.name for path in log.iterdir())
    said = document(cli("cleanup", tmp_path / "t", "--dry-run", "--json"))
    assert sorted(path.name for path in log.iterdir()) == before
    assert (said["first_version"], said["unreachable"], said["dry_run"]) == (3, [0, 2], True)
    going = [file["path"] for file in said["files"] if file["deleted"]]
    told = cli("cleanup", tmp_path / "t", "--dry-run").out.splitlines()
    assert [line.split()[0] for line in told] == ["Table", "Cut-off", "Decision", "Files", "Lost"]
    assert "would be deleted" in told[3]
    assert f"Files     {len(going)} deleted" in cli("cleanup", tmp_path / "t").out
    assert not any((tmp_path / "t" / path).exists() for path in going) and len(going) == 6
    assert DeltaTable.open(tmp_path / "t").snapshot().num_files == 3


def test_vacuum(cli: Cli, tmp_path: Path) -> None:
    table = appended(tmp_path / "t")
    first = table.snapshot(1).files()["path"].to_pylist()
    table.overwrite(pa.table({"n": [9]}))
    said = document(cli("vacuum", tmp_path / "t", "--json"))
    assert said["dry_run"] is True and said["files"] == [] and said["retention_ms"] == 7 * 86_400_000
    refused = cli("vacuum", tmp_path / "t", "--retention-hours", "0", "--yes")
    assert refused.status == 1 and "168 hours" in refused.err
    shown = cli("vacuum", tmp_path / "t", "--retention-hours", "0", "--below-retention").out
    assert "3 would be deleted" in shown and "Nothing was deleted. --yes" in shown and first[0] in shown
    done = cli("vacuum", tmp_path / "t", "--retention-hours", "0", "--below-retention", "--yes").out
    assert "3 deleted" in done and not (tmp_path / "t" / first[0]).exists()
    said = document(cli("vacuum", tmp_path / "t", "--retention-hours", "0", "--below-retention", "--yes", "--json"))
    assert said["files"] == [] and said["kept"] == {"the latest version needs it": 1}
    assert DeltaTable.open(tmp_path / "t").snapshot().num_files == 1


def test_vacuum_lite(cli: Cli, tmp_path: Path) -> None:
    table = appended(tmp_path / "t")
    table.overwrite(pa.table({"n": [9]}))
    (tmp_path / "t" / "stray").write_bytes(b"1")
    os.utime(tmp_path / "t" / "stray", (1, 1))
    options = ("--retention-hours", "0", "--below-retention", "--lite")
    assert "lite" in cli("vacuum", tmp_path / "t", *options).out
    said = document(cli("vacuum", tmp_path / "t", *options, "--yes", "--json"))
    assert len(said["files"]) == 3 and said["full"] is False and (tmp_path / "t" / "stray").exists()


def test_vacuum_of_a_managed_table(cli: Cli, tmp_path: Path) -> None:
    appended(tmp_path / "t").overwrite(pa.table({"n": [9]}))
    TransactionManager(str(tmp_path / "c.db")).register_table("db.t", str(tmp_path / "t"))
    address, options = f"catalog:{tmp_path}/c.db#db.t", ("--retention-hours", "0", "--below-retention")
    assert cli("vacuum", tmp_path / "t", *options).status == 1
    assert "3 would be deleted" in cli("vacuum", address, *options).out
    assert "3 deleted" in cli("vacuum", address, *options, "--yes").out
    assert DeltaTable.open(address).snapshot().num_files == 1
    assert cli("vacuum", f"catalog:{tmp_path}/none.db#db.t").status == 1 and not (tmp_path / "none.db").exists()


def test_vacuum_shows_some_of_many(cli: Cli, tmp_path: Path) -> None:
    appended(tmp_path / "t")
    for number in range(30):
        path = tmp_path / "t" / f"{number:02d}"
        path.write_bytes(b"1")
        os.utime(path, (1, 1))
    shown = cli("vacuum", tmp_path / "t").out.splitlines()
    assert "19" in shown and "20" not in shown and "and 10 files more" in shown


def test_optimize(cli: Cli, tmp_path: Path) -> None:
    table = appended(tmp_path / "t")
    planned = document(cli("optimize", tmp_path / "t", "--dry-run", "--json"))
    assert planned["dry_run"] and len(planned["removed"]) == 3 and planned["commits"] == []
    assert "3 of 3 would be rewritten" in cli("optimize", tmp_path / "t", "--dry-run").out
    assert cli("optimize", tmp_path / "t", "--target-size", "1b").out.splitlines()[1].split()[1] == "0"
    rows = table.snapshot().scan().to_arrow().num_rows
    done = cli("optimize", tmp_path / "t", "--target-size", "1 MB", "--tasks", "1").out
    assert "3 of 3 rewritten" in done and DeltaTable.open(tmp_path / "t").snapshot().num_files == 1
    assert DeltaTable.open(tmp_path / "t").snapshot().scan().to_arrow().num_rows == rows
    assert document(cli("optimize", tmp_path / "t", "--purge", "--json"))["commits"] == []
    sorted_ = document(cli("optimize", tmp_path / "t", "--z-order", "n", "--json"))
    assert sorted_["rows"] == rows and len(sorted_["commits"]) == 1
    assert cli("optimize", tmp_path / "t", "--z-order", "n", "--purge").status == 2
    assert cli("optimize", tmp_path / "t", "--full", "--purge").status == 2
    assert "is not clustered" in cli("optimize", tmp_path / "t", "--full").err
    DeltaTable.open(tmp_path / "t").cluster_by(["n"])
    assert document(cli("optimize", tmp_path / "t", "--json"))["rows"] == rows
    assert document(cli("optimize", tmp_path / "t", "--full", "--json"))["bins"] == 0


@pytest.mark.parametrize("size", ["0", "x", "1.5mb"])
def test_impossible_sizes(cli: Cli, tmp_path: Path, size: str) -> None:
    appended(tmp_path / "t")
    refused = cli("optimize", tmp_path / "t", "--target-size", size)
    assert refused.status == 2 and "--target-size" in refused.err


def test_version(cli: Cli) -> None:
    assert cli("--version") == Ran(0, f"deltalog {deltalog.__version__}\n", "")


def test_history_loses_nothing_where_there_is_little_room(cli: Cli, late: Path) -> None:
    for columns in ("20", "80", "100"):
        out = cli("history", late, env={"COLUMNS": columns}).out
        told = "".join(out.split())
        assert "2026-09-21T14:17:20.000Z" in told and "“first”" in told
        assert max(len(line) for line in out.splitlines()) <= max(80, int(columns))


def test_rows_of_many_columns_are_records(cli: Cli, tmp_path: Path) -> None:
    data = pa.table({f"column{n}": [n, None] for n in range(30)})
    DeltaTable.create(tmp_path / "t", data.schema, data=data)
    lines = [line.split() for line in cli("rows", tmp_path / "t", env={"COLUMNS": "100"}).out.splitlines()]
    assert lines[:30] == [[f"column{n}", str(n)] for n in range(30)]
    assert lines[30:61] == [[], *[[f"column{n}", "null"] for n in range(30)]]


# ------------------------------------------------------------------------------------------------ restore


def test_restore_and_its_dry_run(cli: Cli, late: Path) -> None:
    planned = document(cli("restore", late, "--version", 1, "--dry-run", "--json"))
    assert (planned["restored_version"], planned["version"], planned["committed"]) == (1, None, False)
    assert DeltaTable.open(late).version == 4
    assert cli("restore", late, "--version", 1, "--dry-run").out.startswith("Version 1 would be restored.\n")
    done = document(cli("restore", late, "--timestamp-ms", START + MINUTE + 7, "--json"))
    assert done == {**planned, "version": 5, "committed": True}
    table = DeltaTable.open(late)
    files = table.snapshot().files(["path", "size"])
    assert sorted(files["path"].to_pylist()) == sorted(table.snapshot(1).files()["path"].to_pylist())
    assert (done["files_after"], done["bytes_after"]) == (files.num_rows, sum(files["size"].to_pylist()))
    assert table.snapshot().in_commit_timestamps_enabled
    again = cli("restore", late, "--version", 1)
    assert again.status == 0 and "already" in again.out and DeltaTable.open(late).version == 5


def test_restore_of_files_that_are_gone(cli: Cli, late: Path) -> None:
    table = DeltaTable.open(late)
    live, then = (set(table.snapshot(version).files()["path"].to_pylist()) for version in (None, 1))
    (gone,) = then - live
    (late / gone).unlink()
    refused = cli("restore", late, "--version", 1)
    assert refused.status == 1 and gone in refused.err and DeltaTable.open(late).version == 4
    assert gone in cli("restore", late, "--version", 1, "--dry-run").out
    done = document(cli("restore", late, "--version", 1, "--ignore-missing-files", "--json"))
    assert done["committed"] and done["missing_files"] == [gone]
    assert cli("restore", late).status == 2


def test_columns_may_be_named_one_by_one(cli: Cli, tmp_path: Path) -> None:
    data = pa.table({"a": [1], "b,c": [2], " d ": [3], "e": [4]})
    DeltaTable.create(tmp_path / "t", data.schema, data=data, properties={"delta.columnMapping.mode": "name"})
    for given, shown in (
        (["e", "a"], ["e", "a"]),
        (["e, a", "b,c"], ["e", "a", "b,c"]),
        ([" d ", "e"], [" d ", "e"]),
        (["a, d ,e"], ["a", " d ", "e"]),
    ):
        options = [word for each in given for word in ("--columns", each)]
        assert list(document(cli("rows", tmp_path / "t", *options, "--json"))) == shown
    refused = cli("rows", tmp_path / "t", "--columns", "a", "--columns", "nope", "--json")
    assert refused.status == 2 and "'nope'" in refused.err


def test_a_limit_beyond_all_numbers_is_all(cli: Cli, late: Path) -> None:
    for command in ("files", "rows", "history"):
        assert cli(command, late, "--limit", str(10**30)).status == 0


@pytest.mark.parametrize(("cases", "says"), [(["ict-feed-timestamps-off"], "1 case was written to")])
def test_exported_cases_are_counted(cli: Cli, tmp_path: Path, cases: list[str], says: str) -> None:
    ran = cli("conformance", "export", tmp_path / "out", *(part for case in cases for part in ("--case", case)))
    assert ran.status == 0 and says in ran.out
