"""Changes managed tables: makes commits with the metadata in the request, and changes what only the catalog stores."""

from __future__ import annotations

from dataclasses import replace

import msgspec

from deltalog.catalog import records
from deltalog.catalog.committer import publish
from deltalog.catalog.marks import added_paths, ratify_added
from deltalog.catalog.records import DocumentChange, Head, Ratification, TableRecord
from deltalog.environment import Environment
from deltalog.errors import (
    CallError,
    CommitConflictError,
    ConcurrentModificationError,
    CorruptTableError,
    DeltaLogError,
    MetadataChangedError,
    ObjectNotFoundError,
    TableReplacedError,
    UnpublishedCommitsError,
)
from deltalog.protocol import features
from deltalog.protocol.paths import commit_path, staged_commit_path
from deltalog.storage.table_files import TableFiles
from deltalog.transactions import external_commits
from deltalog.transactions.managed_tables import ManagedTables
from deltalog.transactions.unity import contract, documents
from deltalog.transactions.unity.contract import Plan
from deltalog.transactions.unity.documents import TABLE, TableDocument, checked_comment
from deltalog.transactions.unity.locations import location_of
from deltalog.transactions.unity.managed import ManagedHeads, Place
from deltalog.transactions.unity.states import StateAt
from deltalog.transactions.unity.views import ManagedView, etag_of
from deltalog.unity import messages
from deltalog.unity.table_state import TableState

_TRIES = 20


class Updates:
    """Changes managed tables. Thread-safe. ``most_unpublished``: see ``UnitySettings``."""

    def __init__(
        self, tables: ManagedTables, managed: ManagedHeads, environment: Environment, most_unpublished: int
    ) -> None:
        self.coordinator = tables.coordinator
        self._tables = tables
        self._managed = managed
        self._environment = environment
        self._most_unpublished = most_unpublished

    def update(self, record: TableRecord, plan: Plan) -> ManagedView:
        """See ``UnityTables.update``."""
        if plan.table_id != record.table_id:
            raise TableReplacedError(f"{record.name} has the id {record.table_id}, not {plan.table_id}.", version=-1)
        if plan.get(messages.UpdateSnapshotVersion) is not None:
            raise CallError("update-metadata-snapshot-version is for external tables only.")
        for _ in range(_TRIES):
            place = self._managed.place(record)
            added = plan.get(messages.AddCommit)
            if added is not None and self._is_replay(record, place.head, added.commit):
                return self._managed.view_of(record, place.head, place.at, place.document)
            self._check_etag(record, plan, place)
            found = (
                self._without_commit(record, plan, place) if added is None else self._with(record, plan, place, added)
            )
            if found is not None:
                return found
        raise ConcurrentModificationError(f"{record.name} was changed during every attempt to update it. Try again.")

    def _check_etag(self, record: TableRecord, plan: Plan, place: Place) -> None:
        if plan.etag is not None and plan.etag != etag_of(place.at.state, place.document):
            raise MetadataChangedError(
                f"The metadata of {record.name} has changed: its etag is no longer {plan.etag}. Load the table again.",
                winning_version=place.head.metadata_version,
                winning_operation=None,
            )

    def _is_replay(self, record: TableRecord, head: Head, commit: messages.Commit) -> bool:
        """Whether this commit was already ratified. Raises CommitConflictError if another commit has its version,
        CallError if the commit would leave a gap in the versions.
        """
        external_commits.check_file_name(commit.version, commit.file_name)
        if commit.version > head.version + 1:
            raise CallError(
                f"{record.name} is at version {head.version}; the next commit must have version {head.version + 1}."
            )
        if commit.version == head.version + 1:
            return False
        ratified = head.commit(commit.version)
        is_same = self._is_published(record, commit) if ratified is None else ratified.file == commit.file_name
        if not is_same:
            raise CommitConflictError(
                f"{record.name} already has another commit as version {commit.version}; the latest version is "
                f"{head.version}.",
                winning_version=commit.version,
                winning_operation=None,
            )
        return True

    def _is_published(self, record: TableRecord, commit: messages.Commit) -> bool:
        """Whether a staged file still exists, and its content is that of the published commit of its version. Cost: 2
        GETs."""
        store = self._tables.plain_store(record.url)
        try:
            staged = store.get(staged_commit_path(commit.file_name))
            return staged == store.get(commit_path(commit.version))
        except ObjectNotFoundError:
            return False

    def _with(self, record: TableRecord, plan: Plan, place: Place, added: messages.AddCommit) -> ManagedView | None:
        """Ratify a commit; None if something was changed concurrently."""
        published = plan.get(messages.SetLatestBackfilledVersion)
        head = place.head
        if published is not None:
            head = self.confirm(record, head, published.latest_published_version)
        if len(head.unpublished) >= self._most_unpublished:
            head = self._relieved(record, head)
        given = added.commit
        if not features.is_catalog_managed(place.at.state.protocol):
            raise CallError(f"{record.name} was released from the catalog and no longer accepts commits through it.")
        commit, actions = external_commits.staged_commit(
            self._tables, record, given.version, given.file_name, place.at.ict_ms, given.file_size
        )
        if (given.timestamp, given.file_size) != (commit.in_commit_timestamp_ms, commit.size_bytes):
            raise CallError(
                f"{given.file_name} has the in-commit timestamp {commit.in_commit_timestamp_ms} and "
                f"{commit.size_bytes} bytes, but the request says {given.timestamp} and {given.file_size}."
            )
        commit = replace(commit, modified_ms=given.file_modification_timestamp)
        at = place.at.after(actions, commit.in_commit_timestamp_ms)
        contract.check_shown(at.state)  # because the response to a ratified commit shows it
        contract.check_agrees(plan, at.state)
        contract.check_managed_state(at.state, record.table_id, self.coordinator.catalog_id)
        if actions.protocol is not None:
            features.check_readable(actions.protocol, record.name)
        document = self._document_with(record, plan, place, at, added)
        changes: tuple[DocumentChange, ...] = ()
        if document != place.document or (plan.etag is not None and place.revision):
            changes = (documents.change(TABLE, record.table_id, place.revision, document),)
        elif plan.etag is not None:
            # The etag was computed without a document, so the document must still be absent at the ratification.
            changes = (documents.absent(TABLE, record.table_id),)
        store, view = (
            self._tables.plain_store(record.url),
            self._managed.view_of(record, head, place.at, place.document),
        )
        shown = view.metadata_version, view.metadata_ms
        decision = ratify_added(
            self._tables.marks(record.table_id), self.coordinator, record.table_id, commit, store,
            lambda: added_paths(TableFiles(store), actions.adds), changes,
        )  # fmt: skip
        if decision is not Ratification.RATIFIED:
            return None
        # The commit is ratified, so nothing may fail from here on; therefore nothing is read.
        self._managed.states.keep(record.table_id, at, Head(commit.version, (), *records.metadata_mark(head, [commit])))
        marks = records.metadata_mark(replace(head, metadata_version=shown[0], metadata_ms=shown[1]), [commit])
        return self._managed.view_of(record, Head(commit.version, (*head.unpublished, commit), *marks), at, document)

    def _document_with(
        self, record: TableRecord, plan: Plan, place: Place, at: StateAt, added: messages.AddCommit
    ) -> TableDocument:
        """The document with the facts about a table that only the catalog stores, after a commit."""
        document, now_ms = place.document, self._environment.clock_ms()
        before, description = place.at.state.metadata.description, at.state.metadata.description
        comment, given = document.comment, plan.get(messages.SetTableComment)
        if description != before:
            comment = None  # the description in the log is newer
        if given is not None:
            comment = None if (given.comment or "") == (description or "") else checked_comment(given.comment)
        removed = plan.get(messages.RemoveProperties)
        gone = {*(removed.removals if removed else ()), *at.state.metadata.configuration}
        properties = {key: value for key, value in document.properties.items() if key not in gone}
        iceberg = contract.check_uniform(
            added.uniform, at.state.metadata.configuration, location_of(record.url), added.commit.version
        )
        base = None if iceberg is None else iceberg.base_converted_delta_version
        stored = None if document.iceberg is None else document.iceberg.converted_delta_version
        if base is not None and base != stored:
            raise MetadataChangedError(
                f"{record.name}: base-converted-delta-version is {base}, but the table was converted up to {stored}.",
                winning_version=stored,
                winning_operation=None,
            )
        new = TableDocument(comment=comment, properties=properties, iceberg=iceberg, updated_ms=document.updated_ms)
        return new if new == document else msgspec.structs.replace(new, updated_ms=now_ms)

    def _without_commit(self, record: TableRecord, plan: Plan, place: Place) -> ManagedView | None:
        """Apply a request that contains no commit; None if something was changed concurrently."""
        contract.check_only_of_catalog(plan, place.at.state)
        head, document, published = place.head, place.document, plan.get(messages.SetLatestBackfilledVersion)
        if published is not None:  # first, because this can fail
            head = self.confirm(record, head, published.latest_published_version)
        if plan.changes_metadata:
            document = self._edited(place.at.state, plan, document)
            if document != place.document:
                change = documents.change(TABLE, record.table_id, place.revision, document)
                if not self.coordinator.change_documents([change]):
                    return None
        return self._managed.view_of(record, head, place.at, document)

    def _edited(self, state: TableState, plan: Plan, document: TableDocument) -> TableDocument:
        comment, properties = document.comment, dict(document.properties)
        if (given := plan.get(messages.SetTableComment)) is not None:
            comment = (
                None if (given.comment or "") == (state.metadata.description or "") else checked_comment(given.comment)
            )
        if (set_ := plan.get(messages.SetProperties)) is not None:
            properties.update(set_.updates)
        if (removed := plan.get(messages.RemoveProperties)) is not None:
            properties = {key: value for key, value in properties.items() if key not in removed.removals}
        changed = msgspec.structs.replace(document, comment=comment, properties=properties)
        if changed == document:
            return document
        return msgspec.structs.replace(changed, updated_ms=self._environment.clock_ms())

    def confirm(self, record: TableRecord, head: Head, version: int) -> Head:
        """Record that the commits up to ``version`` are published, after publishing those that are not. Raises
        CallError. Cost: none if the catalog knows it, else that of ``publish``."""
        if version > head.version:
            raise CallError(
                f"Version {version} of {record.name} does not exist, so it cannot be published: the latest version is "
                f"{head.version}."
            )
        covered = tuple(commit for commit in head.unpublished if commit.version <= version)
        if covered:
            store = self._tables.plain_store(record.url)
            try:
                publish(store, self.coordinator, record.table_id, Head(covered[-1].version, covered))
                self._tables.record_late(record.table_id, covered)
            except (CorruptTableError, ObjectNotFoundError) as error:
                raise CallError(error.message) from None
        return replace(head, unpublished=head.unpublished[len(covered) :])

    def _relieved(self, record: TableRecord, head: Head) -> Head:
        """Publish all commits of a table, because its clients have not published them. Raises UnpublishedCommitsError
        if that fails."""
        try:
            return self.confirm(record, head, head.version)
        except DeltaLogError as error:
            raise UnpublishedCommitsError(
                f"{record.name} has {len(head.unpublished)} ratified commits that are not published, and the server "
                f"cannot publish them ({error.message}). Publish them in order, report it with "
                "set-latest-backfilled-version, and commit again."
            ) from error
