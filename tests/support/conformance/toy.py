"""A toy engine that reads JSON commits; it does not support checkpoints, partitions or reader features."""

import json
import urllib.parse
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from deltalog.conformance import Engine


class ToyEngine(Engine):
    name = "toy"
    version = "0.1"
    refusals = (ValueError, OSError)
    lacks = "reader version"

    def _commits(self, path: str) -> dict[int, list[Any]]:
        files = sorted(file for file in Path(path, "_delta_log").glob("*.json") if file.stem.isdigit())
        found = {
            int(f.stem): [json.loads(line) for line in f.read_text().splitlines()] for f in files if len(f.stem) == 20
        }
        if list(found) != list(range(len(found))) or not found:
            raise ValueError("the commits do not begin with version 0, or one is missing")
        return found

    def latest_version(self, path: str) -> int:
        return max(self._commits(path))

    def version_at(self, path: str, timestamp_ms: int) -> int:
        infos = [[a["commitInfo"] for a in actions if "commitInfo" in a] for actions in self._commits(path).values()]
        times: list[Any] = [found[0].get("inCommitTimestamp") if found else None for found in infos]
        if not all(isinstance(ms, int) for ms in times) or not min(times) <= timestamp_ms <= max(times):
            raise ValueError("a commit has no in-commit timestamp, or the time is outside of the history")
        return max(version for version, ms in enumerate(times) if ms <= timestamp_ms)

    def rows(self, path: str, version: int | None = None, timestamp_ms: int | None = None) -> list[dict[str, Any]]:
        commits, files = self._commits(path), dict[str, Any]()
        table: Any = {"partitionColumns": ["none"]}
        last = max(commits) if version is None else version
        if timestamp_ms is not None:
            last = self.version_at(path, timestamp_ms)
        for action in [action for number in range(last + 1) for action in commits[number]]:
            if "protocol" in action and action["protocol"]["minReaderVersion"] > 1:
                raise ValueError("this reader version is not supported")
            table = action.get("metaData", table)
            if "add" in action:
                files[action["add"]["path"]] = action["add"]
            if "remove" in action:
                files.pop(action["remove"]["path"], None)
        if table["partitionColumns"]:
            raise ValueError("there is no metaData, or the table is partitioned")
        names = [field["name"] for field in json.loads(table["schemaString"])["fields"]]
        parts = [pq.read_table(Path(path, urllib.parse.unquote(name))) for name in files]
        return [row for part in parts for row in part.select(names).to_pylist()]
