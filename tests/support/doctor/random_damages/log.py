"""A log as files: which actions it has, by a replay of its own, and how to change it."""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import unquote

from deltalog.protocol.actions import DeletionVector
from deltalog.protocol.deletion_vectors import relative_path

Line = dict[str, Any]
T = TypeVar("T")


class NoTargetError(Exception):
    """The table has nothing that a damage could change."""


@dataclass(frozen=True)
class Place:
    """An action: the version and the number of its line, and its body."""

    version: int
    line: int
    body: Line

    @property
    def stats(self) -> Line:
        found: Line = json.loads(self.body.get("stats") or "{}")
        return found


class Log:
    """The log of the table at ``path``. ``chance`` chooses what is damaged."""

    def __init__(self, path: Path, chance: random.Random) -> None:
        self.path, self.chance = path, chance
        self.folder = path / "_delta_log"
        self.versions = sorted(int(file.stem) for file in self.folder.glob("*.json") if file.stem.isdigit())
        self._actions = {version: self.lines(version) for version in self.versions}

    def take(self, version: int) -> None:
        """Read a commit again."""
        self._actions[version] = self.lines(version)

    @property
    def last(self) -> int:
        return self.versions[-1]

    def pick(self, found: Iterable[T]) -> T:
        """One of the things; raises NoTargetError if there is none."""
        some = list(found)
        if not some:
            raise NoTargetError
        return self.chance.choice(some)

    # ------------------------------------------------------------------------------------------------ files

    def commit(self, version: int) -> Path:
        return self.folder / f"{version:020d}.json"

    def crc(self, version: int) -> Path:
        return self.folder / f"{version:020d}.crc"

    def lines(self, version: int) -> list[Line]:
        return [json.loads(line) for line in self.commit(version).read_text(encoding="utf-8").splitlines()]

    def write(self, version: int, lines: Sequence[Line]) -> None:
        text = "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines)
        self.commit(version).write_text(text, encoding="utf-8")

    def append(self, *lines: Line) -> int:
        """Another commit, with the next in-commit timestamp if it has none."""
        info: Line = {"timestamp": 1, "operation": "WRITE"}
        before = self.info(self.last)
        if "inCommitTimestamp" in before:
            info["inCommitTimestamp"] = info["timestamp"] = before["inCommitTimestamp"] + 1
        self.write(self.last + 1, [{"commitInfo": info}, *lines])
        return self.last + 1

    def change(self, place: Place, kind: str, body: Line) -> None:
        """Replace the body of an action."""
        lines = self.lines(place.version)
        lines[place.line] = {kind: body}
        self.write(place.version, lines)

    def change_stats(self, place: Place, stats: Line) -> None:
        self.change(place, "add", {**place.body, "stats": json.dumps(stats)})

    def data(self, place: Place) -> Path:
        """The data file of an action."""
        return self.path / unquote(place.body["path"])

    def vector(self, place: Place) -> Path | None:
        """The file of the deletion vector of an action."""
        vector = place.body.get("deletionVector")
        if not vector or vector["storageType"] != "u":
            return None
        made = DeletionVector("u", vector["pathOrInlineDv"], vector["sizeInBytes"], vector["cardinality"])
        return self.path / relative_path(made)

    # ---------------------------------------------------------------------------------------------- actions

    def info(self, version: int) -> Line:
        return next((line["commitInfo"] for line in self._actions[version] if "commitInfo" in line), {})

    def of_kind(self, kind: str, version: int | None = None) -> list[Place]:
        return [
            Place(each, number, line[kind])
            for each in (self.versions if version is None else [version])
            for number, line in enumerate(self._actions[each])
            if kind in line
        ]

    def metadata(self) -> Place:
        return self.of_kind("metaData")[-1]

    def protocol(self) -> Place:
        return self.of_kind("protocol")[-1]

    def properties(self) -> dict[str, str]:
        return dict(self.metadata().body["configuration"])

    def live(self) -> list[Place]:
        """The add actions of the files that are live in the latest version."""
        found: dict[tuple[str, str], Place] = {}
        for version in self.versions:
            for each in self.of_kind("remove", version):
                found.pop(_key(each.body), None)
            for each in self.of_kind("add", version):
                found[_key(each.body)] = each
        return list(found.values())

    def recent(self, plain: bool = True) -> list[Place]:
        """The live files that were added after the last checkpoint, so that their add actions are those of the commits;
        if ``plain``, only those without a deletion vector."""
        after = max(self.checkpoints(), default=-1)
        return [
            each for each in self.live() if each.version > after and not (plain and each.body.get("deletionVector"))
        ]

    def removed(self) -> list[Place]:
        """The remove actions of files that no version has added again, and of which no part is live."""
        live = {each.body["path"] for each in self.live()}
        return [each for each in self.of_kind("remove") if each.body["path"] not in live]

    # ------------------------------------------------------------------------------------------ derived files

    def checkpoints(self) -> list[int]:
        return sorted({int(file.name[:20]) for file in self.folder.glob("*.checkpoint*")})

    def checkpoint_files(self) -> list[Path]:
        return sorted(self.folder.glob("*.checkpoint*"))

    def classic(self) -> list[Path]:
        """The checkpoints of one Parquet file without sidecars."""
        return sorted(self.folder.glob("*.checkpoint.parquet"))

    def sidecars(self) -> list[Path]:
        return sorted(self.folder.glob("_sidecars/*.parquet"))

    def crcs(self) -> list[int]:
        return sorted(int(file.stem) for file in self.folder.glob("*.crc"))

    def change_crc(self, version: int, change: Callable[[Line], object]) -> None:
        body = json.loads(self.crc(version).read_text())
        change(body)
        self.crc(version).write_text(json.dumps(body))

    def without_derived(self) -> None:
        """Remove what is derived from the commits, which would hide that the latest version needs them."""
        for file in (*self.checkpoint_files(), *self.sidecars(), *self.folder.glob("*.crc")):
            file.unlink()
        (self.folder / "_last_checkpoint").unlink(missing_ok=True)


def _key(body: Line) -> tuple[str, str]:
    vector = body.get("deletionVector") or {}
    return body["path"], f"{vector.get('storageType')}{vector.get('pathOrInlineDv')}{vector.get('offset')}"


def cut(file: Path, keep: float) -> None:
    """Keep only the first part of a file."""
    data = file.read_bytes()
    file.write_bytes(data[: int(len(data) * keep)])


def swap(one: Path, other: Path) -> None:
    """Exchange two files."""
    between = one.with_name(f"{one.name}.swapped")
    shutil.move(one, between)
    shutil.move(other, one)
    shutil.move(between, other)
