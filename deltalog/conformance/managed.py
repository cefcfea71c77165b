"""Runs cases about catalog-managed tables against a server of Unity Catalog.

The kit is another client of the server: it creates the table of each case, and commits by the UC Delta API. The server
must create managed tables on this machine's disk; ``deltalog serve catalog.db --warehouse DIRECTORY`` does.

Spec: UC Delta API 1.0, ManagedTablesSpec.md#create-a-table, #write-a-commit.
"""

from __future__ import annotations

import contextlib
import functools
import shutil
import tempfile
import uuid
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from deltalog.conformance import case as steps
from deltalog.conformance.builder import TableBuilder
from deltalog.conformance.case import Case, Outcome, Step
from deltalog.conformance.cases.managed import TABLE_ID
from deltalog.conformance.engine import Engine, NotSupported
from deltalog.conformance.runner import CaseRun, WrongOutcome, outcome_of
from deltalog.doctor.check import check
from deltalog.errors import TableExistsError
from deltalog.protocol.codec import decode_commit
from deltalog.protocol.paths import commit_path, staged_commit_name, staged_commit_path
from deltalog.storage.fs import local_root
from deltalog.unity import messages, rules
from deltalog.unity.client import UnityClient
from deltalog.unity.creation_rules import request_for
from deltalog.unity.http import Server
from deltalog.unity.names import TableName
from deltalog.unity.table_state import TableState

SCHEMA = "conformance"


class ManagedTables:
    """The tables of cases: new tables in the schema ``conformance`` of a catalog, which is created if it does not
    exist. Raises as UnityClient."""

    def __init__(self, url: str, token: str | None = None, *, catalog: str = "main") -> None:
        self._client, self._token, self._catalog = UnityClient(Server.at(url, token)), token, catalog
        with contextlib.suppress(TableExistsError):
            if all(each.name != SCHEMA for each in self._client.schemas(catalog)):
                self._client.create_schema(catalog, SCHEMA, None)

    def outcome(self, engine: Engine, case: Case) -> Outcome:
        """Run a case on a new table. Raises as ``run_case``."""
        later = Path(tempfile.mkdtemp(prefix=f"{case.id}-"))
        try:
            work = functools.partial(_run, engine, case, self._client, self._catalog, self._token, later)
            return outcome_of(engine, case, work)
        finally:
            shutil.rmtree(later, ignore_errors=True)


def run_managed(
    engine: Engine, cases: Iterable[Case], url: str, token: str | None = None, *, catalog: str = "main"
) -> Iterator[Outcome]:
    """Run cases about catalog-managed tables on a server. Yields the outcome of each case as soon as it arrives. Raises
    as ManagedTables."""
    tables = ManagedTables(url, token, catalog=catalog)
    yield from (tables.outcome(engine, case) for case in cases)


def _run(engine: Engine, case: Case, client: UnityClient, catalog: str, token: str | None, later: Path) -> None:
    served = engine.of_catalog(client.url, token)
    name = TableName(catalog, SCHEMA, f"t_{uuid.uuid4().hex}")
    _ManagedRun(served, client, name, token, _created(case, client, name, later), later).take(case.steps)


def _created(case: Case, client: UnityClient, name: TableName, later: Path) -> Path:
    """Create the table of a case: version 0 is there when the table is created, the others are committed."""
    staging = client.create_staging_table(name)
    place = local_root(staging.location)
    if place is None:
        raise NotSupported(f"the server creates tables at {staging.location}, not on this machine's disk")
    root = Path(place)
    builder = TableBuilder(root, later)
    builder.configuration = {TABLE_ID: staging.table_id}
    assert case.build is not None, "the table of such a case is built"
    case.build(builder)
    waiting = sorted(path for path in builder.log.glob("*.json") if int(path.stem) > 0)
    moved = [path.rename(later / path.name) for path in waiting]
    actions = decode_commit((root / commit_path(0)).read_bytes(), 0)
    assert actions.protocol is not None and actions.metadata is not None and actions.commit_info is not None
    state = TableState.of(actions.protocol, actions.metadata, actions.domains)
    time_ms = actions.commit_info.in_commit_timestamp_ms
    assert time_ms is not None
    client.create_table(name, request_for(name, staging.location, state, time_ms, "MANAGED"))
    for file in moved:
        commit(client, name, root, file, publish=True)
        file.unlink()
    return root


def stage(root: Path, prepared: Path) -> messages.Commit:
    """Stage a prepared commit, a file named by its version."""
    version, data = int(prepared.stem), prepared.read_bytes()
    info = decode_commit(data, version).commit_info
    assert info is not None and info.in_commit_timestamp_ms is not None and info.txn_id is not None
    file = staged_commit_name(version, info.txn_id)
    path = root / staged_commit_path(file)
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(data)
    time_ms = info.in_commit_timestamp_ms
    return messages.Commit(
        version=version, timestamp=time_ms, file_name=file, file_size=len(data), file_modification_timestamp=time_ms
    )


def commit(client: UnityClient, name: TableName, root: Path, prepared: Path, *, publish: bool) -> None:
    """Commit a prepared commit, which changes only files, and publish it on request. Raises as UnityClient."""
    table_id = client.load_table(name).metadata.table_uuid
    staged = stage(root, prepared)
    client.update_table(name, rules.proposal(table_id, staged, (), None, None))
    if publish:
        target = root / commit_path(staged.version)
        if not target.exists():
            shutil.copy2(root / staged_commit_path(staged.file_name), target)
        client.update_table(name, rules.report(table_id, staged.version))


class _ManagedRun(CaseRun):
    def __init__(
        self, engine: Engine, client: UnityClient, name: TableName, token: str | None, root: Path, later: Path
    ) -> None:
        super().__init__(engine, root, str(name), later)
        self._client, self._name, self._token = client, name, token

    def _take(self, step: Step) -> None:
        if isinstance(step, steps.Stage):
            for file in self.prepared(step.name):
                stage(self.root, file)
        elif isinstance(step, steps.Ratify):
            for file in self.prepared(step.name):
                commit(self._client, self._name, self.root, file, publish=step.publish)
        elif isinstance(step, steps.Agree):
            self._agree(step)
        else:
            super()._take(step)

    def _agree(self, step: steps.Agree) -> None:
        latest = self._client.load_table(self._name).latest_table_version
        if step.expect not in (None, latest):
            raise WrongOutcome(f"the catalog's latest version is {latest}, not {step.expect}")
        options: dict[str, Any] = {"unity_catalog_url": self._client.url, "unity_catalog_token": self._token}
        report = check(self._name.address, **options)
        wrong = [
            each for each in report.findings if each.severity == "error" or each.rule == "catalog-metadata-differs"
        ]
        if wrong:
            raise WrongOutcome(f"the doctor found {'; '.join(map(str, wrong))}")
