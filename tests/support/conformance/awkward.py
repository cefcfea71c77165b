"""Adapters that do what adapters should not do, and adapters that return rows in every form. They import only the
standard library and ``deltalog.conformance.engine``."""

from __future__ import annotations

import datetime
import os
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from deltalog.conformance.engine import Engine, NotSupported

DAY = datetime.date(2025, 1, 15)
TIME = datetime.datetime(2025, 1, 15, 12, 0, 0, 123456, datetime.timezone.utc)


class Awkward(Engine):
    """What it does depends on the last part of the path. For tables of cases, it returns one row per commit."""

    name = "awkward"
    version = "7"
    refusals = (ValueError,)
    lacks = "lacks this"
    packages = ("pytest", "no-such-package")

    def rows(self, path: str, version: int | None = None, timestamp_ms: int | None = None) -> Any:
        print("noise on standard output")
        os.write(1, b"noise on the descriptor\n")
        assert sys.stdin.read() == ""
        do = Path(path).name
        if do == "hang" or "exact-earlier" in path:
            time.sleep(3600)
        elif do == "die" or "exact-later" in path:
            os._exit(7)
        elif do == "refuse":
            raise ValueError("x" * 10_000)
        elif do == "fail":
            raise KeyError("key")
        elif do == "panic":
            raise PanicException("index out of bounds")
        elif do == "exit":
            sys.exit("leaving")
        elif do == "no-message":
            raise Speechless
        elif do == "not-supported":
            raise NotSupported("such paths")
        elif do == "list":
            return [{"id": 1, "day": DAY, "at": TIME, "map": [("b", 1.5), ("a", None)], "bytes": b"\x00\xff"}]
        elif do == "empty":
            return []
        elif do == "parquet":
            return self.file()
        elif do == "object":
            return [{"id": object()}]
        elif do == "nonsense":
            return 5
        return [{"id": number} for number in range(len(list(Path(path, "_delta_log").glob("*.json"))))]

    def file(self) -> Path:
        """A Parquet file with the ids 1 and 2."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        found = Path(tempfile.mkdtemp()) / "rows.parquet"
        pq.write_table(pa.table({"id": [1, 2]}), found)
        return found

    def latest_version(self, path: str) -> Any:
        return 1.5 if path == "half" else True if path == "true" else "5" if path == "text" else 5

    def history(self, path: str) -> Mapping[int, int | None]:
        return {0: 1_736_942_400_000, 12: None}

    def begin(self, path: str) -> Engine:
        return _Begun()


class _Begun(Engine):
    def append(self, path: str, rows: Any) -> None:
        raise (ValueError if path == "refuse" else KeyError)(str(rows.to_pylist()))


class PanicException(BaseException):
    """As Rust libraries raise it."""


class Speechless(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text")


class Broken(Awkward):
    """Does not even read a plain table."""

    def rows(self, path: str, version: int | None = None, timestamp_ms: int | None = None) -> Any:
        raise ValueError("the server of the engine does not listen")


class Unmade(Awkward):
    """Cannot be created."""

    def __init__(self) -> None:
        raise RuntimeError("the JVM did not start")


class OnlyVersions(Engine):
    """Implements nothing that the check of adapters uses, apart from a method that is wrong."""

    name = "only-versions"

    def latest_version(self, path: str) -> int:
        return 5
