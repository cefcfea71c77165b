"""The byte ranges of a Parquet file's columns: only the needed bytes are read, and damaged footers do not crash the
process."""

from __future__ import annotations

import base64
import io
import random
import struct
import subprocess
import sys
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pyarrow.parquet.encryption as encryption
import pytest

from deltalog.parquet.column_ranges import column_ranges, expect_columns
from deltalog.storage.ranges import TAIL_BYTES, RangeReader

ROWS = 2_000
GROUPS = 4
NESTED = pa.array([{"b": n, "c": [n, n + 1]} for n in range(ROWS)])
TABLE = pa.table(
    {**{f"c{n}": pa.array([row * 0.7 + n for row in range(ROWS)]) for n in range(12)}, "a": NESTED, "a.b": range(ROWS)}
)


def written(**options: Any) -> bytes:
    sink = io.BytesIO()
    pq.write_table(TABLE, sink, row_group_size=ROWS // GROUPS, **options)
    return sink.getvalue()


class Reads(io.BytesIO):
    def __init__(self, data: bytes) -> None:
        super().__init__(data)
        self.made: list[tuple[int, int]] = []

    def read(self, size: int | None = -1) -> bytes:
        start = self.tell()
        data = super().read(size)
        self.made.append((start, start + len(data)))
        return data


@pytest.mark.parametrize("options", [{}, {"use_dictionary": False}, {"compression": "none", "data_page_size": 100}])
@pytest.mark.parametrize("columns", [["c3"], ["c1", "c7", "a"], ["a.c"], ["a.b"], ["absent"], []])
@pytest.mark.parametrize("groups", [[0], [1, 3], list(range(GROUPS))])
def test_they_are_what_arrow_reads(options: Any, columns: list[str], groups: list[int]) -> None:
    data = written(**options)
    footer = pq.ParquetFile(io.BytesIO(data)).metadata
    found = column_ranges(footer, len(data), groups, columns)
    source = Reads(data)
    with pq.ParquetFile(source, metadata=footer, pre_buffer=False) as file:
        for _ in file.iter_batches(row_groups=groups, columns=columns) if columns else ():
            pass
    assert set(source.made) <= set(found)
    # A column "a.b" has the same path as the field "b" of a struct "a"; its ranges are requested together with the
    # struct's.
    others = (
        {one for group in groups for one in column_ranges(footer, len(data), [group], ["a.b"])}
        if "a" in columns
        else set()
    )
    assert set(found) - others <= set(source.made)


def test_a_column_that_is_named_twice_is_announced_twice() -> None:
    data = written()
    footer = pq.ParquetFile(io.BytesIO(data)).metadata
    once = column_ranges(footer, len(data), [0], ["a"])
    assert len(column_ranges(footer, len(data), [0], ["a", "a.c"])) == len(once) + 1


def test_columns_that_are_far_apart_are_requested_side_by_side() -> None:
    chance = random.Random(1)
    values = {f"c{n}": [chance.random() for _ in range(50_000)] for n in range(12)}
    wide = pa.table(values)
    sink = io.BytesIO()
    pq.write_table(wide, sink, compression="none", use_dictionary=False)
    data = sink.getvalue()
    requests: list[tuple[int, int]] = []

    def read(start: int, end: int) -> bytes:
        requests.append((start, end))
        return data[start:end]

    source = RangeReader("object", data[-TAIL_BYTES:], len(data), read)
    with pq.ParquetFile(source) as file:
        expect_columns(source, file.metadata, [0], ["c1", "c5", "c9"], ahead=True)
        assert len(requests) == 3 and sum(end - start for start, end in requests) < 3 * 410_000
        (batch,) = file.iter_batches(100_000, columns=["c1", "c5", "c9"])
        assert batch.column(1).to_pylist() == values["c5"]
    assert len(requests) == 3


DAMAGED = """
import io, random, struct, sys
import pyarrow.parquet as pq
from deltalog.parquet.column_ranges import column_ranges
data = sys.stdin.buffer.read()
length = struct.unpack("<I", data[-8:-4])[0]
found = 0
for seed in range(1500):
    chance, damaged = random.Random(seed), bytearray(data)
    for _ in range(chance.choice([1, 1, 2, 4])):
        damaged[len(data) - 8 - length + chance.randrange(length)] = chance.randrange(256)
    try:
        footer = pq.ParquetFile(io.BytesIO(damaged)).metadata
    except Exception:
        continue
    groups = list(range(min(footer.num_row_groups, 20)))
    found += bool(column_ranges(footer, len(data), groups, ["c3", "a", "a.b"]))
print(found)
"""


def in_another_process(code: str, data: bytes) -> str:
    run = subprocess.run([sys.executable, "-c", code], input=data, capture_output=True, timeout=120, check=False)
    assert run.returncode == 0, run.stderr.decode()[-2000:]
    return run.stdout.decode().strip()


def test_damaged_footers_do_not_end_the_process() -> None:
    assert int(in_another_process(DAMAGED, written())) > 50


ENCRYPTED = """
import io, sys
import pyarrow.parquet as pq
from deltalog.parquet.column_ranges import column_ranges
data = sys.stdin.buffer.read()
footer = pq.ParquetFile(io.BytesIO(data)).metadata
print(column_ranges(footer, len(data), [0], ["c3"]), len(column_ranges(footer, len(data), [0], ["c4"])))
"""


def test_an_encrypted_column_does_not_end_the_process() -> None:
    """Even a read of the metadata alone would crash the process."""

    class Keys(encryption.KmsClient):
        def wrap_key(self, key_bytes: bytes, master_key_identifier: str) -> bytes:
            return base64.b64encode(key_bytes)

        def unwrap_key(self, wrapped_key: bytes, master_key_identifier: str) -> bytes:
            return base64.b64decode(wrapped_key)

    factory = encryption.CryptoFactory(lambda configuration: Keys())
    how = encryption.EncryptionConfiguration(footer_key="footer", column_keys={"column": ["c3"]}, plaintext_footer=True)
    properties = factory.file_encryption_properties(encryption.KmsConnectionConfig(), how)
    sink = io.BytesIO()
    with pq.ParquetWriter(sink, TABLE.schema, encryption_properties=properties) as writer:
        writer.write_table(TABLE)
    assert in_another_process(ENCRYPTED, sink.getvalue()) == "[] 1"


def test_a_file_that_is_in_memory_is_not_asked_for_anything() -> None:
    data = written()
    assert struct.unpack("<I", data[-8:-4])[0] < len(data) < TAIL_BYTES * 8
    source = RangeReader("object", data, len(data), lambda start, end: pytest.fail("a range was requested"))
    with pq.ParquetFile(source) as file:
        expect_columns(source, file.metadata, [0], ["c1"], ahead=True)
        assert file.read(["c1"]).num_rows == ROWS
