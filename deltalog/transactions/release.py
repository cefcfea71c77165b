"""Releases a table from a catalog, so that it can be accessed by its path.

A commit, which is ratified like any other, removes ``catalogManaged`` from the protocol. Once this commit is published,
the catalog removes the table. Between the ratification of this commit and the removal, no later commit can be ratified,
because ``deltalog.catalog.committer.stage`` refuses a commit that is based on an unmanaged version. Therefore any
process can complete the release if the released version is the latest version in the catalog.

Spec: PROTOCOL.md#creating-and-dropping-catalog-managed-tables, #catalog-managed-table-enablement.
"""

from __future__ import annotations

from deltalog.catalog.committer import discard_commits, publish, stage
from deltalog.catalog.marks import check_none_deletes
from deltalog.catalog.records import Proposal, Ratification, RatifiedCommit, TableRecord
from deltalog.commit.attempt import Attempt, build_attempt
from deltalog.commit.hooks import NewVersion, after_commit, errors_logged
from deltalog.commit.loop import base_of
from deltalog.commit.prepared import Prepared
from deltalog.environment import Environment
from deltalog.errors import (
    ConcurrentModificationError,
    CoordinatorError,
    DeltaLogError,
    EntityNotFoundError,
    FeatureDropIncompleteError,
    InvalidCommitError,
    MissingVersionError,
    OperationTimeoutError,
    ResourceNotReadyError,
    UnsupportedFeatureError,
)
from deltalog.log.loader import load_latest
from deltalog.log.reader import LogReader
from deltalog.log.snapshot import LogSnapshot
from deltalog.protocol import features
from deltalog.protocol.features import CATALOG_MANAGED
from deltalog.protocol.json_values import mapping_or_empty
from deltalog.protocol.properties import CATALOG_ID_KEY, UNITY_TABLE_ID_KEY
from deltalog.transactions.managed_tables import ManagedTables

_TRIES = 20
_OF_CATALOGS = (CATALOG_ID_KEY, UNITY_TABLE_ID_KEY)
_OPERATION, _PARAMETERS = "DROP FEATURE", {"featureName": CATALOG_MANAGED, "truncateHistory": "false"}


def release(tables: ManagedTables, record: TableRecord, environment: Environment) -> None:
    """See ``TransactionManager.release_table``."""
    _Release(tables, record, environment).run()


def complete_release(tables: ManagedTables, record: TableRecord, environment: Environment) -> None:
    """Publish the commits of a table whose latest version is the releasing commit, and remove the table from the
    catalog. Raises FeatureDropIncompleteError. Cost: that of ``publish``, and 2 coordinator calls."""
    coordinator, store = tables.coordinator, tables.plain_store(record.url)
    failure: DeltaLogError | None = None
    version = -1
    for number in range(environment.retry.settle_attempts):
        environment.back_off(number)
        try:
            head = coordinator.head(record.table_id)
            if head is not None:
                version = head.version
                publish(store, coordinator, record.table_id, head)
            if head is None or coordinator.drop(
                record.table_id, head.version, None, tables.without_access(record.table_id)
            ):
                return tables.forget(record.table_id)
        except DeltaLogError as error:
            failure = error
    raise FeatureDropIncompleteError(
        f"{record.name} no longer has {CATALOG_MANAGED} in its protocol, but is still in the catalog "
        f"{coordinator.url}, which ratifies no further commit of it. Call release_table again (deltalog tables "
        f"release), which completes the release. A step of it failed: {failure or 'the table was changed meanwhile'}",
        feature=CATALOG_MANAGED,
        version=version,
    ) from failure


def is_released(reader: LogReader, version: int) -> bool:
    """Whether ``version``, the table's latest version in the catalog, is the commit that released the table; False if
    that commit cannot be read. Cost: 1 GET of 4 KiB."""
    try:
        info = reader.commit_info(version)
    except (InvalidCommitError, MissingVersionError):
        return False
    parameters = mapping_or_empty(None if info is None else info.body.get("operationParameters"))
    return info is not None and info.operation == _OPERATION and parameters.get("featureName") == CATALOG_MANAGED


class _Release:
    """One call of ``release``. The log is changed only if ``_ratify`` succeeds."""

    def __init__(self, tables: ManagedTables, record: TableRecord, environment: Environment) -> None:
        self._tables, self._record, self._environment = tables, record, environment
        self._coordinator, self._store = tables.coordinator, tables.plain_store(record.url)
        self._in_doubt: OperationTimeoutError | None = None
        self._doubtful: list[RatifiedCommit] = []  # staged commits, one of which may have been ratified

    def run(self) -> None:
        for number in range(_TRIES):
            self._environment.back_off(number)
            try:
                is_over = self._try()
            except DeltaLogError as error:
                reported = self._reported(error)
                if reported is error:
                    raise
                raise reported from error
            if is_over:
                complete_release(self._tables, self._record, self._environment)
                # This is safe: if one of these commits was ratified, it has been published by now.
                discard_commits(self._store, self._doubtful)
                return
        raise self._reported(
            ConcurrentModificationError(
                f"{self._record.name}: a commit or a clean-up interfered with every attempt to release it from "
                f"{self._coordinator.url}. It is still managed by the catalog: stop its writers, and call again."
            )
        )

    def _reported(self, error: DeltaLogError) -> DeltaLogError:
        """Convert an error to the error for the caller, which depends on whether an earlier proposal may have been
        ratified."""
        if self._in_doubt is not None:
            return OperationTimeoutError(
                f"{self._record.name}: the catalog {self._coordinator.url} stopped answering while the release was "
                "committed, and whether it is ratified is unknown. Call release_table again: it completes the release.",
                path=self._coordinator.url,
            )
        if isinstance(error, OperationTimeoutError):
            return CoordinatorError(f"{error.message} Nothing was released; call again.", path=error.path)
        return error

    def _try(self) -> bool:
        """Try to release the table; returns False if the table was changed concurrently."""
        head = self._coordinator.head(self._record.table_id)
        if head is None:
            self._check_released()
            return True
        publish(self._store, self._coordinator, self._record.table_id, head)
        try:
            snapshot = self._tables.handle(self._record).refresh().log
        except ResourceNotReadyError:
            if self._coordinator.head(self._record.table_id) is not None:
                raise
            return False  # another call has removed it from the catalog in the meantime
        if not features.is_catalog_managed(snapshot.protocol):
            return True
        return self._ratify(snapshot)

    def _check_released(self) -> None:
        """Check that a table that is missing from the catalog was released by another call, and not dropped. Raises
        EntityNotFoundError."""
        try:
            load_latest(LogReader(self._store))
        except UnsupportedFeatureError as error:
            if CATALOG_MANAGED not in error.features:
                return
            raise EntityNotFoundError(
                f"{self._record.name} was dropped from the catalog {self._coordinator.url} meanwhile, and not "
                "released: register it again, then release it."
            ) from error

    def _ratify(self, snapshot: LogSnapshot) -> bool:
        """Propose the releasing commit; returns whether it was ratified. While a table is being released, no clean-up
        may delete its objects, because writers without the catalog do not check markings. A clean-up that starts later
        finds that the table was released, and deletes nothing."""
        record, coordinator, environment = self._record, self._coordinator, self._environment
        last = check_none_deletes(coordinator, record, environment.clock_ms())
        attempt = build_attempt(_prepared(snapshot, environment), base_of(snapshot), environment.clock_ms())
        commit = stage(self._store, coordinator, record.table_id, attempt, environment.new_uuid, releases=True)
        try:
            decision = coordinator.ratify(Proposal({record.table_id: (commit,)}, marks={record.table_id: last}))
        except OperationTimeoutError as error:
            self._in_doubt = error
            self._doubtful.append(commit)
            return False
        except DeltaLogError:
            discard_commits(self._store, [commit])
            raise
        if decision is not Ratification.RATIFIED:
            discard_commits(self._store, [commit])
            return False
        fact = f"{record.url}: version {commit.version}, which releases the table, is committed"
        with errors_logged(fact, "its publication and .crc"):
            self._follow_up(snapshot, attempt, commit)
        return True

    def _follow_up(self, snapshot: LogSnapshot, attempt: Attempt, commit: RatifiedCommit) -> None:
        publish(self._store, self._coordinator, self._record.table_id, contents={commit.file: attempt.data})
        before = snapshot.through(LogReader(self._store))
        made = NewVersion(before.after(*attempt.landed), attempt.result(), before, [attempt.landed])
        after_commit(made, self._environment, lambda latest: None)


def _prepared(snapshot: LogSnapshot, environment: Environment) -> Prepared:
    metadata = snapshot.metadata
    kept = {key: value for key, value in metadata.configuration.items() if key not in _OF_CATALOGS}
    return Prepared(
        environment.new_uuid(),
        _OPERATION,
        _PARAMETERS,
        protocol=features.without_feature(snapshot.protocol, CATALOG_MANAGED),
        metadata=metadata.with_configuration(kept),
    )
