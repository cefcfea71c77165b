"""The results of a scenario, compared between two engines."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from itertools import zip_longest
from typing import Any

from tests.interop.parity.tables import DELTA_SPARK, OK, SPARK_EXT, Table
from tests.support.spark.log_files import actions, commits

FACETS = ("errors", "rows", "schema", "history", "log")
# Fields of commitInfo that identify the engine, the time, or the run.
_OWN = {"engineInfo", "timestamp", "txnId", "inCommitTimestamp", "isolationLevel", "readVersion", "operation"}
ABSENT = "absent"
_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


def answers(table: Table) -> dict[str, Any]:
    """The answers by facet. At the end, each engine reads the table that it wrote, and delta-spark also reads
    spark_ext's table."""
    if commits_of(table):
        table.read()
        if table.engine is SPARK_EXT:
            own = table.rows[-1] if table.errors[-1] == OK else table.errors[-1]
            theirs = table.read_by(DELTA_SPARK)
            if theirs != own:
                table.errors[-1] = f"{table.errors[-1]}; delta-spark reads {theirs}"
    made = [actions(path) for path in commits_of(table).values()]
    return {
        "errors": table.errors,
        "rows": table.rows,
        "schema": table.schemas,
        "history": _plain([_history(each) for each in made], table),
        "log": _plain([_effects(each) for each in made], table),
    }


def commits_of(table: Table) -> dict[int, Any]:
    return commits(table.path) if (table.path / "_delta_log").is_dir() else {}


def _history(commit: list[dict[str, Any]]) -> dict[str, Any]:
    (info,) = (each["commitInfo"] for each in commit if "commitInfo" in each)
    kept = {key: value for key, value in info.items() if key not in _OWN}
    metrics = {key: _metric(key, value) for key, value in kept.pop("operationMetrics", {}).items()}
    parameters = {key: _text(value) for key, value in kept.pop("operationParameters", {}).items()}
    return {"operation": info["operation"], "parameters": parameters, "metrics": metrics, **kept}


def _text(value: Any) -> Any:
    """The operation parameters as DESCRIBE HISTORY shows them: all values are strings. Property keys are sorted."""
    if isinstance(value, str) and value.startswith("{"):
        return json.dumps(json.loads(value), sort_keys=True)
    return json.dumps(value) if isinstance(value, bool) else value


def _metric(name: str, value: str) -> str:
    return "(time)" if name.endswith("Ms") else "(bytes)" if "Bytes" in name else value


def _effects(commit: list[dict[str, Any]]) -> dict[str, Any]:
    """The effects of a commit: its files, identified by partition values and row count, and its other actions without
    names and times."""
    found: dict[str, Any] = {}
    for action in commit:
        ((kind, body),) = action.items()
        if kind == "metaData":
            found["schema"] = json.loads(body["schemaString"])["fields"]
            found["partitionColumns"] = body["partitionColumns"]
            found["configuration"] = body["configuration"]
        elif kind == "protocol":
            found[kind] = {key: sorted(v) if isinstance(v, list) else v for key, v in body.items()}
        elif kind in ("add", "remove", "cdc"):
            found.setdefault(kind, []).append(_file(body))
        elif kind != "commitInfo":
            body = {key: value for key, value in body.items() if key not in ("lastUpdated",)}
            found.setdefault(kind, []).append(body)
    for kind in ("add", "remove", "cdc"):
        if kind in found:
            found[kind].sort(key=json.dumps)
    return found


def _plain(answer: list[dict[str, Any]], table: Table) -> Any:
    """The text without the parts that differ between runs: random column names, expression ids and table
    directories."""
    text = re.sub(r"#\d+", "#", _UUID.sub("(uuid)", json.dumps(answer)))
    return json.loads(re.sub(re.escape(str(table.place.directory)) + r"/\d+", "(directory)", text))


def _file(body: dict[str, Any]) -> dict[str, Any]:
    stats = json.loads(body["stats"]) if body.get("stats") else {}
    kept = {"partitionValues": body.get("partitionValues"), "rows": stats.get("numRecords")}
    for key in ("dataChange", "baseRowId", "defaultRowCommitVersion", "clusteringProvider", "tags"):
        if body.get(key) is not None:
            kept[key] = body[key]
    kept["deletionVector"] = (body.get("deletionVector") or {}).get("cardinality")
    return {key: value for key, value in kept.items() if value is not None}


def differences(theirs: Any, ours: Any, where: str = "") -> Iterator[tuple[str, Any, Any]]:
    """The differences between two answers: for each, the path to the differing element, delta-spark's value and
    spark_ext's value."""
    if isinstance(theirs, dict) and isinstance(ours, dict):
        for key in {**theirs, **ours}:
            yield from differences(theirs.get(key, ABSENT), ours.get(key, ABSENT), f"{where}.{key}" if where else key)
    elif isinstance(theirs, list) and isinstance(ours, list) and not where.startswith("rows["):
        for number, (their, our) in enumerate(zip_longest(theirs, ours, fillvalue=ABSENT)):
            yield from differences(their, our, f"{where}[{number}]")
    elif theirs != ours:
        yield where, theirs, ours
