"""The confirmations for the Java kernel and for Sail; see tests/interop/confirmations.py."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from deltalog.conformance.environments import cache_directory, environment_of
from tests.interop.confirmations import (
    HOUR_MS,
    T,
    commit,
    contradicting,
    iso,
    numbered,
    parquet,
    said,
    three,
    without_commits,
)
from tests.support.unity_clients.jvm import Jvm
from tests.support.unity_clients.kernel import Kernel, KernelSnapshot


class KernelJava:
    """The confirmations for the Java kernel, in a JVM that Python drives."""

    def __init__(self) -> None:
        self._jvm = Jvm()
        self._kernel = Kernel(self._jvm, "http://127.0.0.1:1")  # the address of a catalog, which is not used
        self._manager = self._jvm.classes.io.delta.kernel.TableManager

    def close(self) -> None:
        self._jvm.stop()

    def load(self, root: Path, version: int | None = None, ms: int | None = None) -> KernelSnapshot:
        builder = self._manager.loadSnapshot(str(root))
        with self._jvm.errors():
            if version is not None:
                builder = builder.atVersion(version)
            if ms is not None:
                builder = builder.atTimestamp(ms, self._manager.loadSnapshot(str(root)).build(self._kernel.engine))
            return KernelSnapshot(self._kernel, builder.build(self._kernel.engine))

    def rows(self, root: Path, version: int | None = None) -> list[Any]:
        return sorted(row["id"] for row in self.load(root, version).rows())

    def version_at(self, root: Path, ms: int) -> int:
        return self.load(root, ms=ms).version

    CASES: Mapping[str, str] = {}


class Sail:
    """The confirmations for Sail, in a session that runs in Sail's environment."""

    def __init__(self) -> None:
        python = environment_of("sail", cache_directory()) / "bin" / "python"
        script = Path(__file__).with_name("sail_session.py")
        self._process = subprocess.Popen(
            [str(python), "-I", str(script)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )

    def close(self) -> None:
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait(60)
        self._process.stdout.close()

    def ask(self, **question: Any) -> list[dict[str, Any]]:
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(json.dumps(question) + "\n")
        self._process.stdin.flush()
        answer = json.loads(self._process.stdout.readline())
        if "error" in answer:
            raise SailError(answer["error"])
        return list(answer["rows"])

    def rows(self, root: Path, **options: Any) -> list[Any]:
        given = {key: str(value) for key, value in options.items()}
        return sorted(row["id"] for row in self.ask(read=str(root), options=given))

    def version_at(self, root: Path, ms: int) -> int:
        """Version n has the rows 0 to n."""
        return len(self.rows(root, timestampAsOf=iso(ms))) - 1

    CASES: Mapping[str, str] = {}


class SailError(Exception):
    pass
