"""Damaged footers, some of which end the process that reads them: they are findings."""

from __future__ import annotations

import io
import json
import random
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from deltalog import DeltaTable, check
from deltalog.doctor.footer_guard import FooterGuard, footer_of

SCHEMA = pa.schema([("id", pa.int64()), ("name", pa.string()), ("tags", pa.list_(pa.int64()))])
ROWS = pa.table({"id": range(50), "name": [f"n{i}" for i in range(50)], "tags": [[i, i] for i in range(50)]}, SCHEMA)
READ = """
import sys, pyarrow.parquet as pq
footer = pq.ParquetFile(sys.argv[1]).metadata
for group in map(footer.row_group, range(footer.num_row_groups)):
    for chunk in map(group.column, range(group.num_columns)):
        chunk.statistics
"""


def parquet() -> bytes:
    sink = io.BytesIO()
    pq.write_table(ROWS, sink, row_group_size=20)
    return sink.getvalue()


def damaged(data: bytes, seed: int) -> bytes:
    """Some bytes of the footer are others."""
    chance, changed = random.Random(seed), bytearray(data)
    start = len(data) - 8 - int.from_bytes(data[-8:-4], "little")
    for _ in range(chance.choice([1, 2, 3, 5])):
        changed[chance.randrange(start, len(data) - 8)] = chance.randrange(256)
    return bytes(changed)


@pytest.fixture(scope="module")
def fatal() -> bytes:
    """A file whose footer ends the process that reads it with the installed pyarrow."""
    guard, data = FooterGuard(), parquet()
    try:
        for seed in range(20_000):
            found = damaged(data, seed)
            if guard.fatal([footer_of(io.BytesIO(found))]) != [None]:
                return found
    finally:
        guard.close()
    pytest.skip(f"pyarrow {pa.__version__} ends with none of 20,000 damaged footers")


def test_such_a_footer_ends_a_process(fatal: bytes, tmp_path: Path) -> None:
    (tmp_path / "a.parquet").write_bytes(fatal)
    done = subprocess.run([sys.executable, "-c", READ, str(tmp_path / "a.parquet")], capture_output=True, check=False)
    assert done.returncode == -signal.SIGABRT


@pytest.mark.parametrize("deep", [False, True])
def test_it_is_a_finding_and_the_check_goes_on(fatal: bytes, tmp_path: Path, deep: bool) -> None:
    table = DeltaTable.create(tmp_path, SCHEMA, data=ROWS)
    table.append(ROWS)
    commit = tmp_path / "_delta_log" / f"{1:020d}.json"
    lines = [json.loads(line) for line in commit.read_text().splitlines()]
    add = next(line["add"] for line in lines if "add" in line)
    (tmp_path / add["path"]).write_bytes(fatal)
    add["size"] = len(fatal)
    commit.write_text("".join(json.dumps(line) + "\n" for line in lines))
    report = check(tmp_path, deep)
    [finding] = [each for each in report.findings if each.severity == "error" and each.rule == "data-file-unreadable"]
    assert finding.path == add["path"] and "SIGABRT" in finding.message, str(report)
    assert report.examined.footers == 1


def test_a_healthy_footer_ends_nothing_and_neither_does_one_after_a_fatal_one(fatal: bytes) -> None:
    guard = FooterGuard()
    files = (parquet(), fatal, parquet(), fatal, parquet())
    answers = guard.fatal([footer_of(io.BytesIO(data)) for data in files])
    guard.close()
    assert [answer is None for answer in answers] == [True, False, True, False, True]


def test_threads_share_one_process(fatal: bytes) -> None:
    guard, found = FooterGuard(), dict[int, str | None]()

    def ask(number: int) -> None:
        [found[number]] = guard.fatal([footer_of(io.BytesIO(fatal if number % 3 == 0 else parquet()))])

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(9)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    guard.close()
    assert {number for number, how in found.items() if how is not None} == {0, 3, 6}


@pytest.mark.parametrize("data", [b"", b"PAR1", b"PAR1" * 3, b"x" * 100, b"PAR1" + b"\xff" * 4 + b"PAR1"])
def test_what_is_no_parquet_file_is_left_to_its_reader(data: bytes) -> None:
    guard = FooterGuard()
    assert guard.fatal([footer_of(io.BytesIO(data))]) == [None]
    guard.close()
    with pytest.raises((OSError, ValueError)):
        pq.ParquetFile(pa.BufferReader(footer_of(io.BytesIO(data))))


def test_a_footer_of_any_size_is_read_whole() -> None:
    sink = io.BytesIO()
    pq.write_table(pa.table({f"column-{number}": [number] for number in range(2_000)}), sink)
    assert sink.tell() > 200_000
    with pq.ParquetFile(pa.BufferReader(footer_of(sink))) as file:
        assert file.metadata.num_columns == 2_000 and file.metadata.num_rows == 1
