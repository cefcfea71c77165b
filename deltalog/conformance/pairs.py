"""Two engines change one table in turn, judged by deltalog and by a third engine.

docs/conformance.md says what must hold after each step. ``pair_model`` has the steps and the model of the table.
"""

from __future__ import annotations

import contextlib
import re
import shutil
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

import pyarrow as pa

from deltalog.conformance import checks, log_checks, values
from deltalog.conformance.case import FAILED, PASSED
from deltalog.conformance.engine import Engine, NotSupported
from deltalog.conformance.environments import ENGINES, launch_of
from deltalog.conformance.log_view import LogView
from deltalog.conformance.pair_model import (
    COLUMNS,
    FIRST,
    REFUSED,
    TIMED,
    VARIANTS,
    WRITERS,
    Act,
    Model,
    PairResult,
    Variant,
    acts,
    commit_times,
    judges,
)
from deltalog.conformance.remote import AdapterError, error_text
from deltalog.conformance.runner import WrongOutcome
from deltalog.conformance.starting import start_engine
from deltalog.doctor.check import check
from deltalog.errors import CallError
from deltalog.table import DeltaTable

_TYPES = {"long": pa.int64(), "string": pa.string()}
_SCHEMA = pa.schema([(name, _TYPES[kind]) for name, kind in COLUMNS.items()])
_MAX_REASON = 300


class EngineSet:
    """Engines in processes of their own, which start when they are needed, and end with the block. ``limit_seconds``:
    the time limit per call. ``cache``: as for ``start_engine``. ``places``: adapters to use instead of the kit's,
    by name."""

    def __init__(self, limit_seconds: float, cache: Path | None, places: Mapping[str, str] = {}) -> None:
        self._limit_seconds, self._cache, self._places = limit_seconds, cache, places
        self._started: dict[str, Engine] = {}
        self._broken: dict[str, AdapterError] = {}
        self._exits = contextlib.ExitStack()

    def __enter__(self) -> EngineSet:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._exits.close()

    def engine_of(self, name: str) -> Engine:
        """Raises CallError if there is no such engine, or if it is not installed, and AdapterError if it does not
        start."""
        if name in self._broken:
            raise self._broken[name]
        if name not in self._started:
            engine = start_engine(self._places.get(name, name), self._limit_seconds, cache=self._cache)
            try:
                self._started[name] = self._exits.enter_context(engine)
            except AdapterError as error:
                self._broken[name] = error  # a JVM that does not start takes long not to
                raise
        return self._started[name]

    def writers(self) -> list[str]:
        """The engines of the kit that write and can run here."""
        return [name for name in WRITERS if self._is_here(name)]

    def available(self) -> list[str]:
        """All engines of the kit that can run here: those that can be judges."""
        return [name for name in ENGINES if self._is_here(name)]

    def versions(self, names: Sequence[str]) -> dict[str, str]:
        """The versions of the given engines and of all that have been started."""
        return {name: self.engine_of(name).version for name in dict.fromkeys([*names, *self._started])}

    def _is_here(self, name: str) -> bool:
        try:
            launch_of(name, self._cache)
        except CallError:
            return False
        return True


class _Refused(Exception):
    """An engine could not do a step, or refused it by name. The message says who refused what."""


def run_pairs(
    engine_of: Callable[[str], Engine],
    pairs: Iterable[tuple[str, str]],
    available: Sequence[str],
    variants: Sequence[Variant] = VARIANTS,
) -> Iterator[tuple[tuple[str, str], PairResult]]:
    """Run the variants for each pair of engines. ``engine_of``: the engine of a name; it is called when an engine is
    needed. ``available``: the names of the engines that can be judges. Yields each result as soon as it arrives. Raises
    AdapterError if the adapter of one of the pair does not work."""
    for first, second in pairs:
        for variant in variants:
            third = _started(engine_of, judges(first, second, available))
            yield (first, second), run_pair(engine_of(first), engine_of(second), third, variant)


def _started(engine_of: Callable[[str], Engine], names: Iterable[str]) -> Iterator[Engine]:
    """The engines that can be started; a judge that cannot is passed over."""
    for name in names:
        try:
            engine = engine_of(name)
        except AdapterError:
            continue
        yield engine


def run_pair(first: Engine, second: Engine, third: Iterable[Engine], variant: Variant) -> PairResult:
    """Let two engines change a new table in turn. ``third``: the judges; the first that can read the table is used."""
    with tempfile.TemporaryDirectory(prefix="deltalog-pair-", ignore_cleanup_errors=True) as place:
        found = _PairRun((first, second), iter(third), variant, Path(place) / "table")
        try:
            found.run()
        except WrongOutcome as difference:
            return found.result(FAILED, str(difference))
        except _Refused as reason:
            return found.result(REFUSED, str(reason))
        for name, number in found.commits.items():
            if not number:
                reasons = [each for each in found.refused if each.startswith(f"{name} ")]
                appends = [each for each in reasons if each.startswith(f"{name} append: ")]
                return found.result(REFUSED, (appends or reasons)[0])
        return found.result(PASSED, None)


class _PairRun:
    """One variant of one pair."""

    def __init__(self, pair: tuple[Engine, Engine], third: Iterator[Engine], variant: Variant, root: Path) -> None:
        self.pair, self.variant, self.root = pair, variant, root
        self.model = Model()
        # The names differ, because an engine is never paired with itself.
        self.commits = {engine.name: 0 for engine in pair}
        self.refused: list[str] = []
        self._checkpoints: list[int] = []
        self._third = third
        self._judge: Engine | None = next(third, None)
        self._began_ms = time.time_ns() // 1_000_000

    def result(self, outcome: str, reason: str | None) -> PairResult:
        tidy = [self._tidy(each) for each in self.refused]
        judge = self._judge.name if self._judge and sum(self.commits.values()) else None
        return PairResult(self.variant.name, outcome, reason and self._tidy(reason), judge, dict(self.commits), tidy)

    def _tidy(self, text: str) -> str:
        """One line without the path of this run."""
        text = re.sub(rf"(?:file:/*)?{re.escape(str(self.root))}", "TABLE", " ".join(text.split()))
        return text if len(text) <= _MAX_REASON else text[: _MAX_REASON - 1] + "…"

    def run(self) -> None:
        for number, act in enumerate(acts(self.variant)):
            if act.call == "overwrite":  # which would hide defects of the files that are live so far
                self._doctor()
            self._step(number, act)
        self._doctor()
        self._deltalog_reads(self._view(), range(self.model.latest + 1))
        for engine in self.pair:
            self._reads(engine, "the latest version", self.model.latest)
        if self._judge is not None:
            self._reads_versions(self._judge)

    def _step(self, number: int, act: Act) -> None:
        order = self.pair if act.by == FIRST else self.pair[::-1]
        for engine in order if act.or_other else order[:1]:
            try:
                self._do(engine, act)
            except _Refused as reason:
                self.refused.append(str(reason))
                continue
            except WrongOutcome as difference:
                raise WrongOutcome(f"step {number}, {engine.name} {act.call}: {difference}") from None
            return
        if act.or_other:
            raise _Refused(self.refused[-1])

    def _do(self, engine: Engine, act: Act) -> None:
        before = log_checks.commits_of(self.root)
        try:
            self._call(engine, act)
        except (KeyboardInterrupt, SystemExit, AdapterError):
            raise
        except BaseException as error:  # BaseException, because a Rust panic is not an Exception
            if not self._refuses(engine, error):
                raise WrongOutcome(error_text(error)) from error
            if log_checks.commits_of(self.root) != before:
                raise WrongOutcome(f"it refused, and changed the log: {error}") from error
            if act.call == "create":
                shutil.rmtree(self.root, ignore_errors=True)
            raise _Refused(f"{engine.name} {act.call}: {error}") from error
        if wrong := log_checks.unchanged(before, self.root):
            raise WrongOutcome(wrong)
        view = self._view()
        made = view.latest() - self.model.latest
        if wrong := self.model.wrong_number_of_commits(act, made):
            raise WrongOutcome(wrong)
        self.model.take(act, made)
        self.commits[engine.name] += made
        self._judged(view, act, made)

    def _refuses(self, engine: Engine, error: BaseException) -> bool:
        if isinstance(error, NotSupported):
            return True
        if engine.lacks and re.search(engine.lacks, str(error)):
            return True
        return isinstance(error, engine.refusals) and self.variant.is_named_by(str(error))

    def _call(self, engine: Engine, act: Act) -> None:
        path = str(self.root)
        if act.call == "create":
            engine.create(path, _SCHEMA, self.variant.partition_by, dict(act.properties))
        elif act.call in ("append", "overwrite"):
            getattr(engine, act.call)(path, pa.Table.from_pylist([dict(row) for row in act.rows], _SCHEMA))
        elif act.call == "delete":
            engine.delete(path, act.where)
        elif act.call == "set_properties":
            engine.set_properties(path, dict(act.properties))
        else:
            engine.checkpoint(path)

    def _view(self) -> LogView:
        return LogView(self.root, self._began_ms, time.time_ns() // 1_000_000)

    # ------------------------------------------------------------------------------------------- judging

    def _judged(self, view: LogView, act: Act, made: int) -> None:
        """Raise WrongOutcome unless the table is that of the model."""
        latest = self.model.latest
        self._log(view, "contiguous")
        self._log(view, "property", value=self.model.properties)
        for version in range(latest - made + 1, latest + 1):
            self._log(view, "paths-are-relative-and-there", version)
        self._times(view)
        if act.call == "checkpoint":
            self._log(view, "checkpoint", value=latest)
            self._log(view, "last-checkpoint", value=latest)
            self._log(view, "checkpoint-without-commit-info", value=latest)
            self._log(view, "rows-by-checkpoint", value=self.model.rows[-1])
            self._doctor()
        self._read_by_deltalog(view, made)
        self._read_by_judge()

    def _doctor(self) -> None:
        report = check(str(self.root))
        if not report.ok:
            wrong = "; ".join(str(each) for each in report.findings if each.severity == "error")
            raise WrongOutcome(f"the doctor found {wrong}")

    def _log(self, view: LogView, name: str, version: int | None = None, value: Any = None) -> None:
        if wrong := checks.run(view, name, version, value):
            raise WrongOutcome(f"{name}: {wrong}")

    def _times(self, view: LogView) -> None:
        start = self.model.ict_from
        if start is None:
            self._log(view, "no-ict")
            return
        self._log(view, "ict-active", value=True)
        self._log(view, "ict-increases", value=start)
        for version in range(start, self.model.latest + 1):
            self._log(view, "commit-info-first", version)
            self._log(view, "ict-is-the-clock", version)
        if start > 0:
            self._log(view, "pair", value=start)

    def _commit_times(self, view: LogView) -> list[int]:
        versions = range(self.model.latest + 1)
        files = [self.root / "_delta_log" / f"{version:020d}.json" for version in versions]
        file_times_ms = [file.stat().st_mtime_ns // 1_000_000 for file in files]
        return commit_times(file_times_ms, [view.ict(version) for version in versions], self.model.ict_from)

    def _read_by_deltalog(self, view: LogView, made: int) -> None:
        """All versions after a checkpoint was written, which may change how they are read; else the new ones, because
        the commits of the others are unchanged."""
        checkpoints, self._checkpoints = self._checkpoints, view.checkpoints()
        first = 0 if self._checkpoints != checkpoints else self.model.latest + 1 - made
        self._deltalog_reads(view, range(first, self.model.latest + 1))

    def _deltalog_reads(self, view: LogView, versions: Iterable[int]) -> None:
        table, times = DeltaTable.open(str(self.root)), self._commit_times(view)
        for version in versions:
            found = table.snapshot(version).scan().to_arrow()
            self._same(f"deltalog reads version {version}", found, self.model.rows[version])
            found = table.version_at(times[version]).version
            if found != version:
                raise WrongOutcome(
                    f"deltalog resolves the time {times[version]} of version {version} to version {found}"
                )

    def _read_by_judge(self) -> None:
        while (judge := self._judge) is not None:
            found = self._answer(judge, f"{judge.name} does not read it")
            if not isinstance(found, _Refused):
                self._same(f"{judge.name} reads the latest version", found, self.model.rows[-1])
                return
            self._judge = next(self._third, None)

    def _reads_versions(self, engine: Engine) -> None:
        """All versions by number and, if the engine resolves in-commit timestamps where they are on, by their times."""
        by_time = self.model.ict_from is None or engine.name in TIMED
        for version, time_ms in enumerate(self._commit_times(self._view())):
            self._reads(engine, f"version {version}", version)
            if by_time:
                self._finds(engine, version, time_ms)

    def _finds(self, engine: Engine, version: int, time_ms: int) -> None:
        try:
            found = engine.version_at(str(self.root), time_ms)
        except NotSupported:
            self._reads(engine, f"version {version} by its time {time_ms}", version, time_ms)
            return
        except (KeyboardInterrupt, SystemExit, AdapterError):
            raise
        except BaseException as error:  # as above
            raise WrongOutcome(
                f"at the end, {engine.name} finds no version at {time_ms}: {error_text(error)}"
            ) from error
        if found != version:
            raise WrongOutcome(
                f"at the end, {engine.name} finds version {found} at the time {time_ms} of version {version}"
            )

    def _reads(self, engine: Engine, what: str, version: int, time_ms: int | None = None) -> None:
        number = version if time_ms is None else None
        found = self._answer(engine, f"at the end, {engine.name} does not read {what}", number, time_ms)
        if not isinstance(found, _Refused):
            self._same(f"at the end, {engine.name} reads {what}", found, self.model.rows[version])

    def _answer(self, engine: Engine, failure: str, version: int | None = None, time_ms: int | None = None) -> Any:
        """The rows that an engine reads, or _Refused. Raises WrongOutcome with the text ``failure`` for any other
        error."""
        try:
            return engine.rows(str(self.root), version, time_ms)
        except (KeyboardInterrupt, SystemExit, AdapterError):
            raise
        except BaseException as error:  # BaseException, because a Rust panic is not an Exception
            if self._refuses(engine, error):
                return _Refused(str(error))
            raise WrongOutcome(f"{failure}: {error_text(error)}") from error

    def _same(self, what: str, found: Any, rows: Sequence[Mapping[str, Any]]) -> None:
        if wrong := values.difference(values.rows_of(found), values.canonical_rows(rows)):
            raise WrongOutcome(f"{what}: {wrong}")
