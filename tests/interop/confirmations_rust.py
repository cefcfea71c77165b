"""The confirmations for the engines on the Rust kernel, for Daft and for Dask; see tests/interop/confirmations.py. Each
engine runs in its own environment, without the kit."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa

from deltalog.conformance.environments import cache_directory, environment_of
from tests.interop.confirmations import Deltalake, iso


class InEnvironment(Deltalake):
    """The answers of an engine. ``FUNCTIONS``: code that defines ``rows(path, version, time)``, which returns a list of
    dictionaries."""

    NAME: ClassVar[str]
    FUNCTIONS: ClassVar[str]
    CASES: Mapping[str, str] = {}

    def __init__(self) -> None:
        python = environment_of(self.NAME, cache_directory()) / "bin" / "python"
        self._process = subprocess.Popen(
            [str(python), "-I", str(Path(__file__).with_name("engine_session.py"))],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        self.result(self.FUNCTIONS)

    def close(self) -> None:
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait(60)
        self._process.stdout.close()

    def result(self, code: str, **values: Any) -> Any:
        """Run code in the engine's environment. An exception is raised here with the name of its class there."""
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(json.dumps({"code": code, "values": values}) + "\n")
        self._process.stdin.flush()
        answer = json.loads(self._process.stdout.readline())
        if "error" in answer:
            kind, message = answer["error"]
            raise type(kind, (Exception,), {})(message)
        return answer["result"]

    def rows(self, root: Path, version: int | None = None, time: str | None = None) -> pa.Table:
        found = self.result("result = rows(path, version, time)", path=str(root), version=version, time=time)
        return pa.Table.from_pylist(found)

    def version_at(self, root: Path, ms: int) -> int:
        """Version n has the rows 0 to n."""
        return self.rows(root, time=iso(ms)).num_rows - 1
