"""Runs cases on an engine. An exception fails its case; it never stops the run, unless it is an AdapterError.

The cases run in this process. The engine is in this process too, or in a process of its own, which can be killed: a
``deltalog.conformance.remote.RemoteEngine``.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Protocol

import pyarrow as pa

from deltalog.conformance import case as steps
from deltalog.conformance import checks, log_checks, log_view, values, variant_bytes
from deltalog.conformance.builder import TableBuilder
from deltalog.conformance.case import FAILED, LACKS_FEATURE, PASSED, SKIPPED, Case, Outcome, Step
from deltalog.conformance.engine import Engine, NotSupported
from deltalog.conformance.remote import AdapterError, EngineGone, case_limit, error_text, read_parquet
from deltalog.protocol.arrow_types import PRIMITIVES
from deltalog.protocol.schema import StructType

_MAX_REASON = 400


class WrongOutcome(Exception):
    """The outcome of a step differs from the expected one."""


class Catalog(Protocol):
    """A catalog on whose tables cases run: ``deltalog.conformance.managed.ManagedTables``."""

    def outcome(self, engine: Engine, case: Case) -> Outcome: ...


def run(
    engine: Engine,
    cases: Iterable[Case],
    directory: str | os.PathLike[str] | None = None,
    catalog: Catalog | None = None,
) -> Iterator[Outcome]:
    """Run every case in its own directory below ``directory`` (by default a temporary one). Yields the outcome of each
    case as soon as it arrives. ``catalog``: the catalog for cases about catalog-managed tables, which are skipped
    without one."""
    with _directory(directory) as parent:
        for case in cases:
            place = Path(tempfile.mkdtemp(prefix=f"{case.id}-", dir=parent))
            try:
                yield run_case(engine, case, place, catalog)
            finally:
                shutil.rmtree(place, ignore_errors=True)


def run_case(engine: Engine, case: Case, place: Path, catalog: Catalog | None = None) -> Outcome:
    """Build the table in ``place``, run the steps and compare their outcomes with the expected ones. ``catalog``: as
    for ``run``. Raises AdapterError if the process of the engine does not start or does not keep to the line
    protocol."""
    if case.area == steps.CATALOG_MANAGED:
        return _without_catalog(case) if catalog is None else catalog.outcome(engine, case)
    root = build(case, place)
    return outcome_of(engine, case, lambda: CaseRun(engine, root).take(case.steps))


def _without_catalog(case: Case) -> Outcome:
    return Outcome(case.id, case.area, SKIPPED, "there is no server of a Unity Catalog for this run")


def outcome_of(engine: Engine, case: Case, work: Callable[[], object]) -> Outcome:
    """Run the steps of a case, which ``work`` does, and turn what it raises into an outcome. Raises as ``run_case``."""
    try:
        with case_limit(engine):
            work()
    except AdapterError:
        raise
    except NotSupported as reason:
        return Outcome(case.id, case.area, SKIPPED, _short(str(reason)))
    except WrongOutcome as difference:
        return Outcome(case.id, case.area, FAILED, _short(str(difference)))
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:  # BaseException, because a Rust panic is not an Exception
        return Outcome(case.id, case.area, FAILED, _short(error_text(error)))
    return Outcome(case.id, case.area, PASSED)


def build(case: Case, place: Path) -> Path:
    """Write the table of a case to ``place/table`` and the commits of other writers to ``place/later``."""
    root = place / "table"
    if case.build is not None:
        case.build(TableBuilder(root))
    return root


def _short(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= _MAX_REASON else text[: _MAX_REASON - 1] + "…"


@contextlib.contextmanager
def _directory(given: str | os.PathLike[str] | None) -> Iterator[Path]:
    if given is not None:
        Path(given).mkdir(parents=True, exist_ok=True)
        yield Path(given)
        return
    with tempfile.TemporaryDirectory(prefix="deltalog-conformance-", ignore_cleanup_errors=True) as made:
        yield Path(made)


class CaseRun:
    """The steps of one case. ``path``: what the engine is given as the table's path, by default ``root``. ``later``:
    the directory of the commits that the builder has prepared, by default the one next to ``root``."""

    def __init__(self, engine: Engine, root: Path, path: str | None = None, later: Path | None = None) -> None:
        self.engine = engine
        self.root = root
        self.path = str(root) if path is None else path
        self.later = root.with_name("later") if later is None else later
        self.began_ms = time.time_ns() // 1_000_000
        self._begun: Engine | None = None

    def take(self, taken: Iterable[Step]) -> None:
        for number, step in enumerate(taken, start=1):
            root = self.root
            before = log_checks.commits_of(root)
            try:
                self._take(step)
            except WrongOutcome as difference:
                raise WrongOutcome(f"step {number}, {step.kind}: {difference}") from None
            except EngineGone as gone:
                raise WrongOutcome(f"step {number}, {step.kind}: {gone}") from None
            except (NotSupported, AdapterError):
                raise
            except Exception as error:
                if self.engine.lacks and re.search(self.engine.lacks, str(error)):
                    raise NotSupported(f"{LACKS_FEATURE}: {error}") from error
                raise WrongOutcome(f"step {number}, {step.kind}: {error_text(error)}") from error
            if wrong := log_checks.unchanged(before, root):
                raise WrongOutcome(f"step {number}, {step.kind}: {wrong}")

    def _take(self, step: Step) -> None:
        if isinstance(step, (steps.Refused, steps.MayRefuse)):
            self._take_refused(step)
        elif isinstance(step, steps.Log):
            view = log_view.LogView(self.root, self.began_ms, time.time_ns() // 1_000_000)
            if wrong := checks.run(view, step.check, step.version, step.value):
                raise WrongOutcome(f"{step.check}: {wrong}")
        elif isinstance(step, steps.Put):
            self._put(step.name)
        elif isinstance(step, steps.Begin):
            self._begun = self.engine.begin(self.path)
        elif isinstance(step, steps.Clone):
            self._clone(step)
        elif isinstance(step, (steps.Write, steps.Create)):
            self._write(step)
        else:
            self._read(step)

    def _take_refused(self, step: steps.Refused | steps.MayRefuse) -> None:
        try:
            self._take(step.step)
        except (NotSupported, WrongOutcome, AdapterError):
            raise
        except self.engine.refusals:
            return
        if isinstance(step, steps.Refused):
            raise WrongOutcome("the engine did not refuse")

    def prepared(self, name: str) -> list[Path]:
        """The files that the builder has prepared under a name."""
        return sorted((self.later / name).iterdir())

    def _put(self, name: str) -> None:
        for file in self.prepared(name):
            shutil.copy2(file, self.root / "_delta_log" / file.name)
            os.utime(self.root / "_delta_log" / file.name)

    def _clone(self, step: steps.Clone) -> None:
        target = self.root.with_name("clone")
        self.engine.clone(self.path, str(target), step.shallow, step.version)
        self.root, self.path = target, str(target)

    def _rows(self, step: steps.Rows) -> Any:
        if step.at_us is not None:
            return self.engine.rows_at_us(self.path, step.at_us)
        return self.engine.rows(self.path, step.version, step.at_ms)

    def _read(self, step: Step) -> None:
        if isinstance(step, steps.Rows):
            variants = step.variants or ()
            found = values.rows_of(_read(self._rows(step)), variants)
            wrong = values.difference(found, values.canonical_rows(values.with_variants(step.expect, variants)))
        elif isinstance(step, steps.TrackedRows):
            found = values.rows_of(_read(self.engine.tracked_rows(self.path, step.version)))
            wrong = values.difference(found, values.canonical_rows(step.expect))
        elif isinstance(step, steps.VersionAt):
            wrong = _unequal(int(self.engine.version_at(self.path, step.at_ms)), step.expect)
        elif isinstance(step, steps.LatestVersion):
            wrong = _unequal(int(self.engine.latest_version(self.path)), step.expect)
        elif isinstance(step, steps.History):
            history = dict(self.engine.history(self.path))
            wrong = _unequal({v: history.get(v, "absent") for v in step.expect}, dict(step.expect))
        elif isinstance(step, steps.Changes):
            wrong = self._changes(step)
        else:
            raise TypeError(f"{step.kind} is no step of a case")
        if wrong:
            raise WrongOutcome(wrong)

    def _changes(self, step: steps.Changes) -> str | None:
        found = _read(self.engine.changes(self.path, step.from_version, step.to_version, step.from_ms, step.to_ms))
        return values.difference(values.changes_of(found, step.timestamps), values.canonical_rows(step.expect))

    def _write(self, step: steps.Write | steps.Create) -> None:
        if isinstance(step, steps.Create):
            schema = _schema(step.columns).to_arrow()
            self.engine.create(self.path, schema, tuple(step.partition_by), dict(step.properties))
            return
        engine = self.engine
        if step.begun:
            assert self._begun is not None, "the case must begin a transaction before it writes in it"
            engine = self._begun
        if step.call in ("append", "overwrite"):
            getattr(engine, step.call)(self.path, rows_to_write(step))
        elif step.call == "append_once":
            assert step.application is not None and step.application_version is not None
            engine.append_once(self.path, rows_to_write(step), step.application, step.application_version)
        elif step.call == "set_type":
            assert step.column is not None and step.type is not None
            engine.set_type(self.path, step.column, step.type)
        elif step.call == "delete":
            engine.delete(self.path, step.where or "true")
        elif step.call == "set_properties":
            engine.set_properties(self.path, dict(step.properties))
        elif step.call == "restore":
            assert step.version is not None
            engine.restore(self.path, step.version)
        elif step.call == "restore_to_time":
            assert step.at_ms is not None
            engine.restore_to_time(self.path, step.at_ms)
        elif step.call == "checkpoint":
            engine.checkpoint(self.path)
        else:
            raise TypeError(f"{step.call} is no call that writes")


def _read(found: Any) -> Any:
    """The rows that an engine returned, read from the Parquet file if it returned one."""
    if not isinstance(found, Path):
        return found
    table = read_parquet(found)
    found.unlink()
    return table


def rows_to_write(step: steps.Write) -> pa.Table:
    """The rows that a step writes, with the types that it gives and otherwise inferred ones. A variant is a struct of
    ``metadata`` and ``value`` with the name of Arrow's extension type in the metadata of its field."""
    rows = [dict(row) for row in step.rows or ()]
    table = pa.Table.from_pylist(rows)
    for name, kind in (step.types or {}).items():
        table = _with(table, pa.array([row[name] for row in rows], type_of(kind)), pa.field(name, type_of(kind)))
    for name in step.variants or ():
        encoded = [None if row[name] is None else variant_bytes.encode(json.loads(row[name])) for row in rows]
        table = _with(table, pa.array(encoded, _VARIANT), pa.field(name, _VARIANT, metadata=_VARIANT_NAME))
    return table


def _with(table: pa.Table, column: pa.Array, field: pa.Field) -> pa.Table:
    return table.set_column(table.column_names.index(field.name), field, column)


_VARIANT = PRIMITIVES["variant"]
_VARIANT_NAME = {"ARROW:extension:name": "arrow.parquet.variant"}


def type_of(kind: Any) -> pa.DataType:
    """The Arrow type for a type as in the schema of a table."""
    return _schema({"c": kind}).to_arrow().field("c").type


def _schema(columns: Mapping[str, Any]) -> StructType:
    fields = [{"name": name, "type": kind, "nullable": True, "metadata": {}} for name, kind in columns.items()]
    return StructType.from_json(json.dumps({"type": "struct", "fields": fields}))


def _unequal(found: Any, expected: Any) -> str | None:
    return None if found == expected else f"the result is {found}, not {expected}"
