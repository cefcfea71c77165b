"""Exports the cases as files for test runners in any language. docs/conformance-format.md describes the format."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from deltalog.conformance import values
from deltalog.conformance.builder import TableBuilder
from deltalog.conformance.case import (
    Case,
    Changes,
    MayRefuse,
    Refused,
    Rows,
    Step,
    TrackedRows,
    Write,
    step_to_json,
)
from deltalog.conformance.cases import SUITE_VERSION
from deltalog.conformance.runner import rows_to_write
from deltalog.errors import PathExistsError

FORMAT = 1


def export_cases(directory: Path, cases: Iterable[Case]) -> int:
    """Write every case to ``directory/<id>``, and ``index.json``. Returns the number of cases. Raises PathExistsError
    if the directory is not empty."""
    if directory.exists() and any(directory.iterdir()):
        raise PathExistsError(f"{directory} is not empty: export into a new directory.")
    directory.mkdir(parents=True, exist_ok=True)
    index = [_export(directory / case.id, case) for case in cases]
    _write(directory / "index.json", {"format": FORMAT, "suite": SUITE_VERSION, "cases": index})
    return len(index)


def _export(place: Path, case: Case) -> dict[str, Any]:
    place.mkdir()
    file_times: dict[str, int] = {}
    schema = pa.schema([])
    if case.build is not None:
        builder = TableBuilder(place / "table")
        case.build(builder)
        schema = builder.latest_schema
        file_times = {f"_delta_log/{name}": ms for name, ms in builder.file_times_ms.items()}
        for file in sorted((place / "table/_delta_log").glob("*.crc")):
            if file.name not in builder.file_times_ms:  # not a part of the case, but written with a checkpoint
                file.unlink()
    _write(place / "file_times.json", file_times)
    steps = []
    for number, step in enumerate(case.steps, start=1):
        steps.append(_step(place, number, step, schema))
    described = {
        "id": case.id, "area": case.area, "about": case.about, "section": case.section, "basis": case.basis,
        "rule": case.rule,
    }  # fmt: skip
    _write(place / "case.json", {**described, "format": FORMAT, "suite": SUITE_VERSION, "steps": steps})
    return {**described, "has_table": case.build is not None}


def _step(place: Path, number: int, step: Step, schema: pa.Schema) -> dict[str, Any]:
    """The step as JSON; its rows are written to JSON and Parquet files, to which the JSON refers."""
    found = step_to_json(step)
    inner = step.step if isinstance(step, (Refused, MayRefuse)) else step
    body = found["of"] if inner is not step else found
    if isinstance(inner, (Rows, TrackedRows, Changes)):
        body["expect"] = _rows(place, f"expected_{number}", inner.expect, schema)
    if isinstance(inner, Write) and inner.rows is not None:
        body["rows"] = _rows(place, f"rows_{number}", inner.rows, schema, inner)
    if found["step"] == "log" and "value" in found:
        found["value"] = json.loads(json.dumps(found["value"], default=values.canonical))
    return found


def _rows(place: Path, name: str, rows: Iterable[Any], schema: pa.Schema, write: Write | None = None) -> str:
    """Write rows to both files. ``write``: the step that writes them."""
    listed = [dict(row) for row in rows]
    _write(place / f"{name}.json", values.canonical_rows(listed))
    if write is not None and (write.types or write.variants):
        pq.write_table(rows_to_write(write), place / f"{name}.parquet")
    elif listed:
        columns = {column: _column([row[column] for row in listed], column, schema) for column in listed[0]}
        pq.write_table(pa.table(columns), place / f"{name}.parquet")
    return name


def _column(found: list[Any], name: str, schema: pa.Schema) -> pa.Array:
    """The values, in the type that the column has in the table, or in an inferred type if the table lacks the column or
    has another type in the latest version."""
    typed = None
    if name in schema.names:
        with contextlib.suppress(pa.ArrowInvalid, pa.ArrowTypeError):
            typed = pa.array(found, schema.field(name).type)
    if typed is not None and typed.to_pylist() == found:
        return typed
    with contextlib.suppress(pa.ArrowInvalid, pa.ArrowTypeError):
        return pa.array(found)
    assert typed is not None, f"the column {name} has no type"
    return typed


def _write(file: Path, document: Any) -> None:
    file.write_text(json.dumps(document, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
