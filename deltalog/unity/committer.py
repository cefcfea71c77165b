"""The committer of a catalog-managed table of a Unity Catalog: commits are staged, proposed, and published.

A commit takes effect when the server accepts it. If the outcome of a proposal is unknown, the table is read again. The
name of the commit's file tells whose commit the version is: it contains the transaction's txnId, and stays the same if
the proposal is sent again. Publication copies accepted commits to ``_delta_log``, in their order; the
server is told only after the copies are durable.

Spec: UC Delta API 1.0, ManagedTablesSpec.md#write-a-commit, #commit-recovery, #publishing-and-backfill,
#create-recovery; PROTOCOL.md#catalog-managed-tables, #publishing-commits.
"""

from __future__ import annotations

import logging
from functools import partial

import msgspec

from deltalog.background import in_background
from deltalog.catalog.committer import copy_to_log, discard_staged, write_staged
from deltalog.catalog.records import Head
from deltalog.catalog.store import ManagedStore
from deltalog.commit import hooks
from deltalog.commit.attempt import Attempt
from deltalog.commit.committer import CommitOutcome, Committed, Committer, Exists, Unknown
from deltalog.commit.hooks import errors_logged
from deltalog.environment import Environment
from deltalog.errors import (
    CatalogRequestError,
    CoordinatorError,
    DeltaLogError,
    MetadataChangedError,
    NotFoundError,
    OperationTimeoutError,
    StoreError,
    TableExistsError,
    TableNotFoundError,
    TableReplacedError,
)
from deltalog.protocol.paths import commit_path, staged_commit_path
from deltalog.protocol.timestamps import required_ict
from deltalog.storage.base import PutOutcome, get_or_none
from deltalog.unity import creation_rules, messages, rules
from deltalog.unity.client import of_table
from deltalog.unity.rules import Reaction, Verdict
from deltalog.unity.table import UnityTable

log = logging.getLogger(__name__)


class UnityCommitter(Committer):
    """The committer of a table. ``store``: its store, which also caches the head after a commit. ``permits_cleanup``:
    whether the catalog's owner permits the clean-up of the log."""

    def __init__(
        self, store: ManagedStore[UnityTable], environment: Environment, *, permits_cleanup: bool = False
    ) -> None:
        self._store = store
        self._table = store.coordinator
        self._environment = environment
        self._permits_cleanup = permits_cleanup
        # The files of proposals without an answer, whose requests may still arrive: these files must stay, even if the
        # commit loop proposes the same commit again and the server refuses it.
        self._in_flight = set[str]()

    def commit(self, attempt: Attempt) -> CommitOutcome:
        """Commit an attempt. Raises StoreError; CatalogRequestError if the server refuses the commit;
        MetadataChangedError if the metadata was changed in the catalog only; TableReplacedError, TableNotFoundError;
        UnsupportedFeatureError for a table that is converted to Iceberg.

        Cost: 1 PUT to stage (on a local disk 1 HEAD too) and 1 request to the server; after the commit 1 PUT to publish
        it, and 1 request that reports it unless the next commit does.
        """
        if attempt.version == 0:
            return self._create(attempt)
        rules.check_no_uniform(attempt.actions.metadata or attempt.base.metadata, self._store.url)
        commit = self._stage(attempt)
        outcome = self._propose(attempt, commit)
        if isinstance(outcome, Committed):
            self._after(commit, attempt)
        return outcome

    def after_commit(
        self, version: hooks.NewVersion, environment: Environment, on_checkpoint: hooks.OnCheckpoint
    ) -> None:
        """Run the hooks, without the clean-up of the log, which the catalog has to permit. Spec:
        PROTOCOL.md#maintenance-operations-on-catalog-managed-tables."""
        if not self._permits_cleanup:
            kept = msgspec.structs.replace(version.hooks, cleanup=False)
            version = msgspec.structs.replace(version, hooks=kept)
        hooks.after_commit(version, environment, on_checkpoint)

    # ---------------------------------------------------------------------------------------------- proposals

    def _stage(self, attempt: Attempt) -> messages.Commit:
        """Write the staged file, and return the commit to propose. Raises StoreError, which means that nothing was
        committed."""
        store, version = self._store.inner, attempt.version
        file = write_staged(store, version, attempt.prepared.txn_id, attempt.data)
        # On a store over a network, a HEAD would take one more round, and no reader depends on the modification time.
        found = None if store.is_remote else store.head(staged_commit_path(file))
        modified_ms = None if found is None else found.modification_time_ms
        return messages.Commit(
            version=version,
            timestamp=required_ict(attempt.actions.commit_info, version, store.url),
            file_name=file,
            file_size=len(attempt.data),
            file_modification_timestamp=modified_ms or self._environment.clock_ms(),
        )

    def _propose(self, attempt: Attempt, commit: messages.Commit) -> CommitOutcome:
        """Propose a commit until its outcome is known, within bounds."""
        table, version = self._table, commit.version
        changes = rules.metadata_updates(attempt)
        etag = table.etag(attempt.base.version)
        published_versions = set[int]()
        for number in range(self._environment.retry.settle_attempts):
            self._environment.back_off(number)
            is_sent = commit.file_name in self._in_flight
            reported = table.unreported()
            proposal = rules.proposal(table.table_id, commit, changes, etag, reported)
            error: CatalogRequestError | OperationTimeoutError
            try:
                loaded = table.calls.update(proposal, is_idempotent=False)
            except OperationTimeoutError as unanswered:
                error, reaction, is_sent = unanswered, Reaction.UNKNOWN, True
                self._in_flight.add(commit.file_name)
            except CatalogRequestError as refused:
                error, reaction = refused, rules.reaction_to(refused)
            except CoordinatorError:
                if is_sent:
                    return Unknown()
                discard_staged(self._store.inner, commit.file_name)
                raise
            else:
                if self._shows(loaded, attempt, commit):
                    table.note_reported(reported)
                    self._in_flight.discard(commit.file_name)
                    self._record(commit, loaded)
                    return Committed()
                error, reaction, is_sent = self._not_shown(version), Reaction.UNKNOWN, True
                self._in_flight.add(commit.file_name)
            if reaction is Reaction.PUBLISH and self._publish_backlog(published_versions):
                continue
            if reaction in (Reaction.REFUSED, Reaction.PUBLISH):
                if is_sent:
                    return Unknown()
                discard_staged(self._store.inner, commit.file_name)
                raise of_table(error, table.name) if isinstance(error, CatalogRequestError) else error
            settled = self._settled(attempt, commit, error, is_sent=is_sent)
            if settled is not None:
                return settled
        if commit.file_name in self._in_flight:
            return Unknown()
        discard_staged(self._store.inner, commit.file_name)
        raise CoordinatorError(
            f"{table.name.address}: the catalog {table.url} refuses version {version} as taken, and has versions up "
            f"to {version - 1} only. Nothing was committed; try again.",
            path=table.url,
        )

    def _shows(self, loaded: messages.LoadedTable | None, attempt: Attempt, commit: messages.Commit) -> bool:
        """Whether the response to an accepted proposal shows the commit. Servers of the older calls send no state.
        Cost: none; 1 GET if only the published commit can show it."""
        if loaded is None:
            return True
        try:
            self._table.check_is_this(loaded)
            return self._verdict(loaded, attempt, commit) is Verdict.OURS
        except DeltaLogError as error:
            log.warning("%s: the answer to the commit of version %s: %s", self._store.url, commit.version, error)
            return False

    def _verdict(self, loaded: messages.LoadedTable, attempt: Attempt, commit: messages.Commit) -> Verdict:
        """What a state of the table says about a proposed commit; never PUBLISHED. Raises CatalogRequestError,
        StoreError. Cost: 1 GET if the version is published."""
        found = rules.verdict(rules.head_of(loaded, self._table.url), commit.version, commit.file_name)
        if found is Verdict.PUBLISHED:
            is_ours = self._store.inner.get(commit_path(commit.version)) == attempt.data
            return Verdict.OURS if is_ours else Verdict.ANOTHERS
        return found

    def _not_shown(self, version: int) -> OperationTimeoutError:
        url = self._table.url
        return OperationTimeoutError(
            f"{self._table.name.address}: the catalog {url} accepted version {version}, and answered with a state of "
            "the table that does not have it. The request may have taken effect.",
            path=url,
        )

    def _settled(
        self, attempt: Attempt, commit: messages.Commit, error: CoordinatorError, *, is_sent: bool
    ) -> CommitOutcome | None:
        """Read the table again, to settle a proposal that had no answer (``is_sent``) or was answered with a conflict.
        Returns None if the same commit is to be proposed again."""
        table, version = self._table, commit.version
        try:
            found = self._verdict(table.reload(), attempt, commit)
        except (TableReplacedError, TableNotFoundError):
            if is_sent:
                return Unknown()
            discard_staged(self._store.inner, commit.file_name)
            raise
        except DeltaLogError as failed:
            log.warning("%s: the outcome of version %s is not known yet: %s", self._store.url, version, failed)
            return Unknown() if is_sent else Exists()
        if found is Verdict.OURS:
            self._in_flight.discard(commit.file_name)
            return Committed()
        if found is Verdict.ANOTHERS:  # an earlier request that arrives late can no longer be accepted
            self._in_flight.discard(commit.file_name)
            discard_staged(self._store.inner, commit.file_name)
            return Exists()
        if isinstance(error, CatalogRequestError) and rules.is_requirement(error):
            if is_sent:
                return Unknown()
            discard_staged(self._store.inner, commit.file_name)
            raise MetadataChangedError(
                f"{table.name.address}: the table's metadata was changed in the catalog since it was read (for example "
                "its comment), and this commit changes it too. Nothing was committed. Read the table again, and repeat "
                "the change if it is still wanted.",
                winning_version=None,
                winning_operation=None,
                read_version=attempt.base.version,
            )
        return None

    def _record(self, commit: messages.Commit, loaded: messages.LoadedTable | None) -> None:
        """Record the state after an accepted proposal."""
        with errors_logged(f"{self._store.url}: version {commit.version} is committed", "reading the catalog's answer"):
            if loaded is None:
                self._table.record_accepted(commit)
            else:
                self._table.record(loaded)

    # ------------------------------------------------------------------------------------------- publication

    def _after(self, commit: messages.Commit, attempt: Attempt) -> None:
        """Publish an accepted commit and those before it, and report it; in the background for a store over a
        network."""
        known = self._table.known_head()
        if known is not None:
            self._store.record_head(known)
        work = partial(self._publish_logged, commit, attempt.data)
        if self._store.is_remote and self._environment.background:
            in_background(self._store.url, work)
        else:
            work()

    def _publish_logged(self, commit: messages.Commit, data: bytes) -> None:
        with errors_logged(
            f"{self._store.url}: version {commit.version} is committed",
            "publication of the commit (the next commit publishes it)",
        ):
            head = self._table.known_head()
            if head is None or head.version < commit.version:
                head = rules.head_of(self._table.reload(), self._table.url)
            self._publish(head, {commit.file_name: data})
            self._report()

    def _publish(self, head: Head, contents: dict[str, bytes]) -> None:
        copy_to_log(self._store.inner, head.unpublished, contents)
        self._table.note_published(head.version)
        known = self._table.known_head()
        if known is not None:
            self._store.record_head(known)

    def _report(self) -> None:
        """Report what is published, if it is not reported yet. Cost: 1 request."""
        published = self._table.unreported()
        if published is None:
            return
        loaded = self._table.calls.update(rules.report(self._table.table_id, published), is_idempotent=True)
        self._table.note_reported(published)
        if loaded is not None:
            self._table.record(loaded)

    def _publish_backlog(self, done: set[int]) -> bool:
        """Publish the table's unpublished commits, after the server has refused a commit because there are too many of
        them. Returns whether another proposal may succeed. ``done``: the head versions for which this was already done;
        the call adds its own."""
        table = self._table
        try:
            head = rules.head_of(table.reload(), table.url)
            if head.version in done or not head.unpublished:
                return False
            done.add(head.version)
            self._publish(head, {})
            loaded = table.calls.update(rules.report(table.table_id, head.version), is_idempotent=True)
            table.note_reported(head.version)
            if loaded is not None:
                table.record(loaded)
        except DeltaLogError as error:
            log.warning("%s: the unpublished commits could not be published: %s", self._store.url, error)
            return False
        return True

    # ---------------------------------------------------------------------------------------------- creation

    def _create(self, attempt: Attempt) -> CommitOutcome:
        """Write version 0 at the staged location, and register the table. Raises TableExistsError if another table has
        the name. Cost: 1 PUT, 1 request."""
        store, table, staging = self._store.inner, self._table, self._table.staging
        if not table.is_new or staging is None:
            return Exists()
        metadata = attempt.actions.metadata
        assert metadata is not None
        creation_rules.check_required(staging, attempt.protocol, metadata, table.name)
        rules.check_no_uniform(metadata, table.name.address)
        path = commit_path(0)
        outcome = store.put_if_absent(path, attempt.data)
        if outcome is not PutOutcome.COMMITTED and get_or_none(store, path) != attempt.data:
            raise StoreError(
                f"{store.url}: {path} was not written, or something else is there already. No table was created; try "
                "again.",
                path=path,
            )
        request = creation_rules.create_request(table.name, staging.location, attempt)
        for number in range(self._environment.retry.settle_attempts):
            self._environment.back_off(number)
            table.may_exist = True
            is_sent = path in self._in_flight
            try:
                loaded = table.calls.create(request)
            except OperationTimeoutError:
                is_sent = True
                self._in_flight.add(path)
                refusal: DeltaLogError | None = None
            except (CatalogRequestError, TableExistsError, NotFoundError) as refused:
                refusal = refused
            except CoordinatorError as failed:
                return self._not_created(failed, is_sent=is_sent)
            else:
                try:
                    table.record(loaded)
                    return Committed()
                except DeltaLogError as error:
                    log.warning("%s: the answer to its creation: %s", table.name.address, error)
                is_sent, refusal = True, None
                self._in_flight.add(path)
            try:
                table.reload()
                return Committed()  # only the creator of the staged table can have created a table with its id
            except TableReplacedError:
                refusal = TableExistsError(
                    f"{table.name.address} exists already: another table was created under this name. Nothing was "
                    "created."
                )
                return self._not_created(refusal, is_sent=is_sent)
            except TableNotFoundError:
                pass
            except DeltaLogError as failed:
                return self._not_created(refusal or failed, is_sent=is_sent or refusal is None)
            if refusal is not None:
                return self._not_created(refusal, is_sent=is_sent)
        return Unknown()

    def _not_created(self, error: DeltaLogError, *, is_sent: bool) -> CommitOutcome:
        if is_sent:
            return Unknown()
        self._table.may_exist = False
        try:
            self._store.inner.delete(commit_path(0))
        except StoreError as failed:
            log.debug("%s: version 0 could not be deleted: %s", self._store.url, failed)
        raise error
