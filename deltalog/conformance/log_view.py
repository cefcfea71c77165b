"""The log of a table as files, a registry of checks, and the table as its newest checkpoint has it."""

from __future__ import annotations

import contextlib
import json
import re
import shutil
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from deltalog.read.snapshot import Snapshot
from deltalog.table import DeltaTable

COMMIT = re.compile(r"(\d{20})\.json")
_CHECKPOINT = re.compile(r"(\d{20})\.checkpoint.*")


@dataclass(frozen=True)
class LogView:
    """The log of a table as files. ``began_ms``: the time at which the steps of the case began; ``ended_ms``: the
    current time."""

    root: Path
    began_ms: int
    ended_ms: int

    def versions(self) -> list[int]:
        if not (self.root / "_delta_log").is_dir():
            return []
        names = (COMMIT.fullmatch(file.name) for file in (self.root / "_delta_log").iterdir())
        return sorted(int(match[1]) for match in names if match)

    def latest(self) -> int:
        return max(self.versions(), default=-1)

    def actions(self, version: int) -> list[dict[str, Any]]:
        text = (self.root / "_delta_log" / f"{version:020d}.json").read_text(encoding="utf-8")
        return [json.loads(line) for line in text.splitlines() if line.strip()]

    def of_kind(self, version: int, kind: str) -> list[dict[str, Any]]:
        return [action[kind] for action in self.actions(version) if kind in action]

    def info(self, version: int) -> dict[str, Any]:
        return next(iter(self.of_kind(version, "commitInfo")), {})

    def ict(self, version: int) -> Any:
        return self.info(version).get("inCommitTimestamp")

    def latest_of(self, kind: str, until: int | None = None) -> dict[str, Any]:
        """The newest protocol or metaData action in the commits."""
        for version in reversed(self.versions()):
            if (until is None or version <= until) and (found := self.of_kind(version, kind)):
                return found[-1]
        return {}

    def configuration(self) -> dict[str, str]:
        return dict(self.latest_of("metaData").get("configuration") or {})

    def checkpoints(self) -> list[int]:
        names = (_CHECKPOINT.fullmatch(file.name) for file in (self.root / "_delta_log").iterdir())
        return sorted({int(match[1]) for match in names if match})


Check = Callable[[LogView, int, Any], str | None]


class Checks(dict[str, Check]):
    """Checks by name."""

    def named(self, name: str) -> Callable[[Check], Check]:
        """Register a function as the check with this name."""

        def register(function: Check) -> Check:
            self[name] = function
            return function

        return register


@contextlib.contextmanager
def by_checkpoint(view: LogView) -> Iterator[Snapshot]:
    """Open the latest version of a copy of the log that lacks all ``.crc`` files and the commits up to the newest
    checkpoint."""
    newest = view.checkpoints()[-1]
    with tempfile.TemporaryDirectory(prefix="deltalog-conformance-") as scratch:
        copy = Path(shutil.copytree(view.root, Path(scratch) / "table"))
        for file in list((copy / "_delta_log").iterdir()):
            number = file.name[:20]
            covered = number.isdigit() and (file.suffix == ".crc" or int(number) <= newest)
            if covered and file.suffix in (".crc", ".json") and ".checkpoint." not in file.name:
                file.unlink()
        yield DeltaTable.open(str(copy)).snapshot()
