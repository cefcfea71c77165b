"""DynamoDBCoordinator: a catalog in one DynamoDB table, for any number of machines.

``dynamodb_layout`` defines the items of this table. A proposal is one TransactWriteItems request on the record of the
transaction and the heads of the tables. If the response to a proposal is lost, the items of the table show whether the
proposal took effect. Leftovers of a killed process, such as pieces of parts and commits of dropped tables, are ignored.
"""

from __future__ import annotations

import contextlib
import dataclasses
import logging
import uuid
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

from deltalog.arguments import safe_repr
from deltalog.catalog import dynamodb_layout as layout
from deltalog.catalog.coordinator import Coordinator
from deltalog.catalog.dynamodb_actions import (
    Action,
    Item,
    Key,
    check,
    check_absent,
    delete,
    delete_if_exists,
    put,
    update,
)
from deltalog.catalog.dynamodb_items import MOST_ACTIONS, ItemTable, Refusal
from deltalog.catalog.records import (
    Document,
    DocumentChange,
    Head,
    Marking,
    Marks,
    Proposal,
    Ratification,
    TableRecord,
    TransactionRecord,
    TransactionStatus,
    metadata_mark,
    nested_with,
)
from deltalog.errors import (
    CallError,
    ConcurrentModificationError,
    CoordinatorError,
    EntityNotFoundError,
    OperationTimeoutError,
)
from deltalog.storage.dynamodb.client import DynamoTable, Timing
from deltalog.storage.dynamodb.tables import FirstUse
from deltalog.storage.secrets import Reopen

FORMAT = 3  # version 2 added markings, version 3 documents; older versions would not check them
# Size limits of a transaction's item in bytes: for an item that contains only the record, and for one that contains the
# record and batches. The rest of DynamoDB's limit of 400 KB is reserved, so that the transaction can always be ended.
_MOST_RECORD_BYTES, _MOST_BYTES = 360 << 10, 384 << 10
_BATCH_BYTES = 40
_PASSES = 30

log = logging.getLogger(__name__)


class DynamoDBCoordinator(Coordinator):
    """A catalog in the DynamoDB table ``name``, which ``create_commit_table(name, "catalog")`` creates.

    ``options`` and ``endpoint_url``: as for ``DynamoTable``. Any number of threads and processes may use the catalog. A
    transaction changes at most 48 tables, because it consists of at most 100 items: 4 for its record, and for each
    table 1 for the table and 1 for its commit. A transaction's record contains the versions of the tables that it may
    read, and an id per change; it has room for about 8,000 tables and 9,000 changes.

    ``upgrade``: whether a catalog of an earlier format is upgraded. Programs of earlier versions of deltalog that still
    use the catalog would not notice the upgrade, and would lose data that only the new format has. Upgrade only on
    request, as ``deltalog catalog upgrade`` does, when no such programs run.

    Raises CoordinatorError if there is no such table, if it contains something else, or if the catalog was created by a
    newer deltalog or has an earlier format; EntityNotFoundError if it contains no catalog yet and ``create`` is false;
    CallError. Cost: 2 requests, or 5 to create a catalog.
    """

    def __init__(
        self,
        name: str,
        options: Mapping[str, Any] | None = None,
        *,
        endpoint_url: str | None = None,
        timing: Timing | None = None,
        create: bool = True,
        upgrade: bool = False,
    ) -> None:
        self.url = f"dynamodb://{name}"
        self.reopen = Reopen(DynamoDBCoordinator, name, options, endpoint_url=endpoint_url, timing=timing, create=False)
        table = DynamoTable(name, options or {}, endpoint_url=endpoint_url, timing=timing)
        self._items = ItemTable(table, self.url)
        self._table_ids: tuple[int, list[str]] = (-1, [])
        with self._items.errors():
            FirstUse(table, "catalog")()
        self._catalog_id = self._make(create, upgrade)

    @safe_repr
    def __repr__(self) -> str:
        return f"DynamoDBCoordinator({self._items.table.name!r})"

    @property
    def catalog_id(self) -> str:
        return self._catalog_id

    def close(self) -> None:
        """Do nothing: connections are shared and closed when the process ends."""

    def _make(self, create: bool, upgrade: bool) -> str:
        found = self._items.get(layout.CATALOG)
        if found is None:
            if not self._items.is_empty() and self._items.get(layout.CATALOG) is None:
                raise CoordinatorError(
                    f"The DynamoDB table {self._items.table.name!r} does not contain a catalog. Nothing was changed: "
                    "name another table, or create one: deltalog commit-table create NAME --kind catalog.",
                    path=self._items.table.name,
                )
            if not create:
                raise EntityNotFoundError(
                    f"There is no catalog at {self.url}: the table exists, but is empty. Check its name and region; "
                    "TransactionManager(url) and deltalog tables register create a new one."
                )
            new = {"catalog_id": str(uuid.uuid4()), "format": FORMAT, "changes": 0, "left": 1}
            self._items.transact([put(layout.CATALOG, new, new=True)], _new_token())
            found = self._items.get(layout.CATALOG)
        version = FORMAT + 1 if found is None else found.get("format", 0)
        if found is None or version > FORMAT:
            raise CoordinatorError(
                f"The catalog {self.url} was created or upgraded by a newer deltalog (format {version}; this one "
                f"supports {FORMAT}): upgrade this one. Nothing was changed.",
                path=self._items.table.name,
            )
        if version < FORMAT and not upgrade:
            raise CoordinatorError(
                f"The catalog {self.url} has format {version}, which programs of earlier versions of deltalog use, and "
                f"this version of deltalog needs {FORMAT}. End these programs, on all machines, and upgrade the "
                f"catalog: deltalog catalog upgrade dynamodb:{self._items.table.name}. Nothing was changed.",
                path=self._items.table.name,
            )
        if version < FORMAT:
            unchanged = {"catalog_id": found["catalog_id"], "format": version}
            self._items.transact([update(layout.CATALOG, {"format": FORMAT}, unchanged)], _new_token())
        self.keeps_staged_commits = bool(found.get("staged", 0))
        return str(found["catalog_id"])

    def _change(self, actions: Sequence[Action], token: str, witness: Key) -> bool:
        """Execute the actions. Returns whether the actions were executed. See ``_refused``."""
        return self._refused(actions, token, witness) is None

    def _refused(self, actions: Sequence[Action], token: str, witness: Key) -> Refusal | None:
        """Execute the actions. Returns the failed conditions, or None if the actions were executed. ``witness``: an
        item into which the actions write ``token``, so that the item shows whether they were executed."""
        try:
            refusal = self._items.transact(actions, token)
        except OperationTimeoutError:
            if self._has_token(witness, token):
                return None
            raise
        if refusal is None or refusal.is_of(token):
            return None
        # a successful drop leaves no item that could contain the token
        if (refusal.unsettled or witness == layout.CATALOG) and self._has_token(witness, token):
            return None
        if refusal.unsettled:
            raise self._lost_answer()
        if witness == layout.CATALOG and 0 in refusal.found and not self._is_this(refusal.found[0]):
            raise CoordinatorError(
                f"The catalog {self.url} is not the one that was opened: it was replaced. Nothing was changed.",
                path=self._items.table.name,
            )
        return refusal

    def _is_this(self, catalog: Item | None) -> bool:
        return catalog is not None and catalog["catalog_id"] == self._catalog_id

    def _has_token(self, key: Key, token: str) -> bool:
        with contextlib.suppress(CoordinatorError):  # the item could not be read
            item = self._items.get(key)
            return item is not None and item.get("token") == token
        return False

    def _lost_answer(self) -> OperationTimeoutError:
        return OperationTimeoutError(
            f"A response of the catalog {self.url} was lost, and the record has changed since: whether the change was "
            "made is unknown. Read the record.",
            path=self._items.table.name,
        )

    # ----------------------------------------------------------------------------------------------- tables

    def register(self, table: TableRecord, version: int, documents: Sequence[DocumentChange] = ()) -> bool:
        for number in range(1, _PASSES):
            # The catalog's counter of changes reveals concurrent changes to the items read here.
            changes = (self._items.get(layout.CATALOG) or {}).get("changes", 0)
            records = (msgspec.json.decode(item["record"], type=TableRecord) for item in self._items.query("names"))
            if nested_with(table.url, records) is not None:
                return False
            refusal = self._registration_refused(table, version, changes, documents)
            if refusal is None:
                return True
            if set(refusal.found) != {0}:
                return False
            self._items.table.timing.back_off(number, 1.0)
        raise self._changing("its tables")

    def _registration_refused(
        self, table: TableRecord, version: int, changes: int, documents: Sequence[DocumentChange]
    ) -> Refusal | None:
        token = _new_token()
        record = layout.as_json(table)
        actions = [
            self._tables_change(token, changes),
            put(
                layout.head_key(table.table_id),
                {"record": record, "version": version, "published": version, "metadata": str(version), "token": token},
                new=True,
            ),
            put(("names", table.name), {"record": record, "token": token}, new=True),
            put(layout.url_key(table.url), {"table_id": table.table_id, "token": token}, new=True),
            *layout.document_changes(documents, token),
        ]
        return self._refused(actions, token, layout.CATALOG)

    def drop(
        self, table_id: str, version: int, marks: int | None = None, documents: Sequence[DocumentChange] = ()
    ) -> bool:
        head = self._items.get(layout.head_key(table_id))
        if head is None or not head["version"] == head["published"] == version:
            return False
        table = msgspec.json.decode(head["record"], type=TableRecord)
        garbage = list(self._commits(table_id))
        token = _new_token()
        last = {} if marks is None else layout.last_mark({table_id: marks}, table_id)
        actions = [
            self._tables_change(token),
            delete(
                layout.head_key(table_id), {"record": head["record"], "version": version, "published": version, **last}
            ),
            delete(("names", table.name)),
            delete(layout.url_key(table.url)),
            *layout.document_changes(documents, token),
        ]
        done = self._change(actions, token, layout.CATALOG)
        if done:
            self._remove(garbage)
            with contextlib.suppress(CoordinatorError):  # they are no longer read
                self._items.delete_each(
                    [(item["pk"], item["sk"]) for item in self._items.query(layout.marks_partition(table_id))]
                )
        return done

    def rename(self, table_id: str, name: str, documents: Sequence[DocumentChange] = ()) -> bool:
        head = self._items.get(layout.head_key(table_id))
        if head is None:
            return False
        table = msgspec.json.decode(head["record"], type=TableRecord)
        record, token = layout.as_json(dataclasses.replace(table, name=name)), _new_token()
        if name == table.name:
            return False
        actions = [
            self._tables_change(token),
            update(layout.head_key(table_id), {"record": record}, {"record": head["record"]}),
            delete(("names", table.name)),
            put(("names", name), {"record": record, "token": token}, new=True),
            *layout.document_changes(documents, token),
        ]
        return self._change(actions, token, layout.CATALOG)

    def _tables_change(self, token: str, changes: int | None = None) -> Action:
        """The action that counts a change to the set of tables. ``cut`` uses this count to verify that its list of
        tables is consistent. ``changes``: the number of changes that the counter must show; None: any number."""
        where: Item = {"catalog_id": self._catalog_id, **({} if changes is None else {"changes": changes})}
        return update(layout.CATALOG, {"token": token}, where, add={"changes": 1})

    def table(self, name: str) -> TableRecord | None:
        item = self._items.get(("names", name))
        return msgspec.json.decode(item["record"], type=TableRecord) if item else None

    def table_with_id(self, table_id: str) -> TableRecord | None:
        item = self._items.get(layout.head_key(table_id))
        return msgspec.json.decode(item["record"], type=TableRecord) if item else None

    def tables(self, after: str = "", limit: int = 1000) -> list[TableRecord]:
        items = self._after("names", after, limit)
        return [msgspec.json.decode(item["record"], type=TableRecord) for item in items]

    # ----------------------------------------------------------------------------- the head items of tables

    def head(self, table_id: str) -> Head | None:
        for number in range(1, _PASSES):
            item = self._items.get(layout.head_key(table_id))
            if item is None:
                return None
            first, last = item["published"] + 1, item["version"]
            found = [layout.commit_of(each) for each in self._commits(table_id, first, last)]
            if [commit.version for commit in found] == list(range(first, last + 1)):
                return Head(last, tuple(found), *layout.metadata_mark_of(item))
            # Some commits were published and removed from the catalog while they were read.
            self._items.table.timing.back_off(number, 1.0)
        raise self._changing(f"the commits of the table {table_id}")

    def cut(self) -> dict[str, int]:
        before: dict[str, int] | None = None
        for number in range(1, _PASSES):
            changes, table_ids = self._table_ids
            versions = self._versions(changes, table_ids)
            if versions is None:
                self._table_ids = self._listed_table_ids()
            elif len(table_ids) < MOST_ACTIONS or versions == before:
                # If two passes return the same versions, all of these were current between the passes, because versions
                # only increase and no request sees a transaction half-committed.
                return versions
            else:
                self._items.table.timing.back_off(min(number, 3), 1.0)
            before = versions
        raise self._changing("the versions of its tables")

    def _versions(self, changes: int, table_ids: Sequence[str]) -> dict[str, int] | None:
        """The versions of the tables; None if tables were added or dropped in the meantime. Cost: 1 request per 99
        tables."""
        found: dict[str, int] = {}
        for start in range(0, len(table_ids) or 1, MOST_ACTIONS - 1):
            wanted = table_ids[start : start + MOST_ACTIONS - 1]
            catalog, *heads = self._items.get_at_once([layout.CATALOG, *map(layout.head_key, wanted)])
            if catalog is None or catalog["changes"] != changes:
                return None
            for table_id, head in zip(wanted, heads, strict=True):
                if head is None:
                    return None
                found[table_id] = head["version"]
        return found

    def _listed_table_ids(self) -> tuple[int, list[str]]:
        catalog = self._items.get(layout.CATALOG)
        return catalog["changes"] if catalog else -1, [item["sk"] for item in self._items.query("heads")]

    def ratify(self, proposal: Proposal) -> Ratification:
        self.check_times(proposal)
        token = _new_token()
        actions = [*self._actions(proposal, token), *layout.document_changes(proposal.documents, token)]
        if len(actions) > MOST_ACTIONS:
            raise CallError(
                f"A catalog in DynamoDB changes at most {MOST_ACTIONS} items in one transaction; this one needs "
                f"{len(actions)}: 1 for each table, 1 for each commit, 4 for its record. Commit fewer tables at once."
            )
        try:
            refusal = self._items.transact(actions, token)
        except OperationTimeoutError:
            outcome = self._outcome(proposal, token)
            if outcome is not None:
                return outcome
            raise
        if refusal is None or refusal.is_of(token):
            return Ratification.RATIFIED
        outcome = self._outcome(proposal, token)
        if outcome is Ratification.RATIFIED:
            return outcome
        if outcome is None and refusal.unsettled:
            raise self._lost_answer()
        if proposal.before is not None and 0 in refusal.found:
            return Ratification.DECIDED
        first_document = len(actions) - len(proposal.documents)
        if refusal.found and min(refusal.found) >= first_document:
            return Ratification.CHANGED
        heads = {item["sk"]: item["version"] for item in refusal.found.values() if item and item["pk"] == "heads"}
        is_unmoved = bool(heads) and all(proposal.expected.get(each) == version for each, version in heads.items())
        return Ratification.MARKED if is_unmoved and heads.keys() <= proposal.marks.keys() else Ratification.MOVED

    def _actions(self, proposal: Proposal, token: str) -> list[Action]:
        actions: list[Action] = []
        if proposal.before is not None and proposal.after is not None:
            actions += layout.replacement(proposal.after, proposal.before.revision, token)
        for table_id, version in proposal.expected.items():
            key, where = layout.head_key(table_id), {"version": version, **layout.last_mark(proposal.marks, table_id)}
            commits = proposal.commits.get(table_id, ())
            if commits:
                changed = layout.metadata_attribute(metadata_mark(Head(version), commits))
                actions.append(update(key, {"version": commits[-1].version, "token": token, **changed}, where))
                actions += [
                    put(layout.commit_key(table_id, each.version), {"commit": layout.as_json(each), "token": token})
                    for each in commits
                ]
            else:
                actions.append(check(key, where))
        return actions

    def _outcome(self, proposal: Proposal, token: str) -> Ratification | None:
        """The outcome of a proposal as shown by its items; None if the items do not show the outcome or cannot be
        read."""
        with contextlib.suppress(CoordinatorError):
            return self._read_outcome(proposal, token)
        return None

    def _read_outcome(self, proposal: Proposal, token: str) -> Ratification | None:
        if proposal.before is not None:
            record = self._items.get(layout.record_key(proposal.before.id))
            if record is not None and record["token"] == token:
                return Ratification.RATIFIED
            if record is not None and record["revision"] == proposal.before.revision + 1:
                return Ratification.DECIDED
        for table_id, commits in proposal.commits.items():
            head, item = self._items.get_at_once(
                [layout.head_key(table_id), layout.commit_key(table_id, commits[0].version)]
            )
            if head is None or head["version"] < commits[0].version:
                return None
            if item is not None:
                return Ratification.RATIFIED if item["token"] == token else Ratification.MOVED
            break
        return None

    def published(self, table_id: str, version: int) -> None:
        garbage = list(self._commits(table_id, 0, version))
        key = layout.head_key(table_id)
        for _ in range(_PASSES):
            # In one request: another process may have begun to serve the catalog.
            wanted = [key] if self.keeps_staged_commits else [key, layout.CATALOG]
            found = {(item["pk"], item["sk"]): item for item in self._items.get_many(wanted)}
            if found.get(layout.CATALOG, {}).get("staged", 0):
                self.keeps_staged_commits = True
            head = found.get(key)
            if head is None:
                return
            known = min(version, head["version"])
            if known <= head["published"]:
                break
            where = {"published": head["published"], "record": head["record"]}
            change = update(key, {"published": known}, where)
            if self._items.transact([change], _new_token()) is None:
                break
        self._remove(garbage)

    def _commits(self, table_id: str, first: int = 0, last: int = 10**19) -> Iterator[Item]:
        if last < first:
            return iter(())
        values = {":first": f"{first:020d}", ":last": f"{last:020d}"}
        return self._items.query(layout.commit_key(table_id, 0)[0], "sk BETWEEN :first AND :last", values)

    def _remove(self, commits: Sequence[Item]) -> None:
        """Delete, best effort, items that are no longer read. Items that were rewritten are kept, because the
        table may have been registered again."""
        try:
            for start in range(0, len(commits), MOST_ACTIONS):
                some = commits[start : start + MOST_ACTIONS]
                where = [delete_if_exists((each["pk"], each["sk"]), {"token": each["token"]}) for each in some]
                self._items.transact(where, _new_token())
        except CoordinatorError as error:
            log.info("%s: published commits could not be removed yet: %s", self.url, error)

    def _changing(self, what: str) -> ConcurrentModificationError:
        return ConcurrentModificationError(
            f"The catalog {self.url}: {what} changed during every attempt to read them. Try again with fewer writers."
        )

    def keep_staged_commits(self) -> None:
        if not self.keeps_staged_commits:
            self._items.transact(
                [update(layout.CATALOG, {"staged": 1}, {"catalog_id": self._catalog_id})], _new_token()
            )
            self.keeps_staged_commits = True

    # -------------------------------------------------------------------------------------------- documents

    def document(self, kind: str, key: str) -> Document | None:
        item = self._items.get(layout.document_key(kind, key))
        return layout.document_of(kind, item) if item else None

    def documents(self, kind: str, after: str = "", limit: int = 1000) -> list[Document]:
        return [layout.document_of(kind, item) for item in self._after(layout.document_key(kind, "")[0], after, limit)]

    def change_documents(self, changes: Sequence[DocumentChange], free_names: Sequence[str] = ()) -> bool:
        token = _new_token()
        witness = next((layout.document_key(each.kind, each.key) for each in changes if each.content is not None), None)
        actions = layout.document_changes(changes, token)
        actions += [check_absent(("names", name)) for name in free_names]
        if witness is None:  # a deletion leaves no item that could contain the token
            actions.insert(0, self._tables_change(token))
        return self._change(actions, token, witness or layout.CATALOG)

    # ------------------------------------------------------------------------------------------------ marks

    def marks(self, table_id: str) -> Marks:
        head = self._items.get(layout.head_key(table_id))
        if head is None:
            return Marks()
        last, items = head.get("marks", 0), self._items.query(layout.marks_partition(table_id))
        return Marks(last, {item["number"]: layout.marking_of(item) for item in items if item["number"] <= last})

    def mark(self, table_id: str, number: int, marking: Marking) -> bool:
        head = self._items.get(layout.head_key(table_id))
        if head is None or head.get("marks", 0) != number - 1:
            return False
        token = _new_token()
        where = {"record": head["record"], **layout.last_mark({table_id: number - 1}, table_id)}
        actions = [
            update(layout.head_key(table_id), {"marks": number, "token": token}, where),
            put(
                layout.mark_key(table_id, number),
                {"number": number, "marking": layout.as_json(marking), "token": token},
            ),
        ]
        return self._change(actions, token, layout.mark_key(table_id, number))

    def remark(self, table_id: str, number: int, marking: Marking | None) -> None:
        key = layout.mark_key(table_id, number)
        if marking is None:
            change = delete(key)
        else:
            change = update(key, {"marking": layout.as_json(marking)}, {"number": number})
        self._items.transact([change], _new_token())

    # ----------------------------------------------------------------------------------------- transactions

    def insert(self, record: TransactionRecord) -> bool:
        token = _new_token()
        item = {"record": layout.as_json(record), "revision": record.revision, "token": token, "batches": []}
        actions = [put(layout.record_key(record.id), item, new=True), layout.listing(record)]
        return self._change(actions, token, layout.record_key(record.id))

    def transaction(self, transaction_id: str) -> TransactionRecord | None:
        item = self._items.get(layout.record_key(transaction_id))
        return layout.record_of(item) if item else None

    def replace(self, record: TransactionRecord) -> bool:
        token = _new_token()
        return self._change(layout.replacement(record, record.revision - 1, token), token, layout.record_key(record.id))

    def transactions(
        self, statuses: frozenset[TransactionStatus], after: tuple[int, str] | None = None, limit: int = 1000
    ) -> list[TransactionRecord]:
        wanted = {
            name: [each for each in statuses if each.is_final is final]
            for name, final in (("open", False), ("done", True))
        }
        last = layout.sort_order(*after) if after else ""
        found: list[TransactionRecord] = []
        while len(found) < limit:
            # Open transactions are read first, so that a transaction that is decided in between is found among the
            # decided ones.
            pages = [self._after(name, last, limit, some) for name, some in wanted.items() if some]
            keys = sorted({item["sk"] for page in pages for item in page})[:limit]
            found += [record for record in self._records(keys) if record.status in statuses]
            if len(keys) < limit:
                break
            last = keys[-1]
        return found[:limit]

    def uncleaned(self, after: tuple[int, str] | None = None, limit: int = 1000) -> list[TransactionRecord]:
        catalog = self._items.get(layout.CATALOG)
        if catalog is not None and "left" not in catalog:
            self._list_uncleaned()
        last = layout.sort_order(*after) if after else ""
        found: list[TransactionRecord] = []
        while len(found) < limit:
            keys = [item["sk"] for item in self._after(layout.UNCLEANED, last, limit)]
            records = {layout.sort_order(*record.key): record for record in self._records(keys)}
            self._items.delete_each((layout.UNCLEANED, key) for key in keys if key not in records)  # forgotten
            found += records.values()
            if len(keys) < limit:
                break
            last = keys[-1]
        return found[:limit]

    def _list_uncleaned(self) -> None:
        """Migrate a catalog of an earlier version of deltalog, in which any decided transaction may have parts left to
        clean up. Runs once. Cost: 1 request per 16 transactions."""
        self._items.put_each([{"pk": layout.UNCLEANED, "sk": item["sk"]} for item in self._items.query("done")])
        self._items.transact([update(layout.CATALOG, {"left": 1}, {"catalog_id": self._catalog_id})], _new_token())

    def _records(self, keys: Sequence[str]) -> Iterator[TransactionRecord]:
        return map(layout.record_of, self._items.get_many([layout.record_key(key.partition(" ")[2]) for key in keys]))

    def _after(self, partition: str, last: str, limit: int, statuses: Sequence[TransactionStatus] = ()) -> list[Item]:
        """The first items after a sort key, optionally only those with certain statuses."""
        condition = "sk > :last" if last else ""
        values = {":last": last} if last else {}
        names = [f":status{number}" for number, _ in enumerate(statuses)]
        values.update({name: status.value for name, status in zip(names, statuses, strict=True)})
        filters = " OR ".join(f"decided = {name}" for name in names)
        page = limit if len(statuses) == 0 else None
        items = self._items.query(partition, condition, values, filters=filters, limit=page)
        return [item for _, item in zip(range(limit), items, strict=False)]

    def delete(self, transaction_id: str) -> None:
        found = self._items.get(layout.record_key(transaction_id))
        pieces = [(item["pk"], item["sk"]) for item in self._pieces(transaction_id, "part ")]
        self._items.delete_each(pieces)
        if found is not None:
            place = layout.sort_order(*layout.record_of(found).key)
            keys = [layout.record_key(transaction_id), ("open", place), ("done", place), (layout.UNCLEANED, place)]
            self._items.transact([delete(key) for key in keys], _new_token())

    # ------------------------------------------------------------------------------------------------ parts

    def put_parts(
        self, record: TransactionRecord, parts: Mapping[str, bytes], marks: Mapping[str, int] | None = None
    ) -> bool:
        """The parts are written first, in pieces that form one batch, which no one reads until the transaction's record
        references it."""
        free_bytes = _MOST_RECORD_BYTES - len(layout.as_json(record).encode())
        if free_bytes < 0:
            raise CallError(
                f"The catalog {self.url} cannot store transaction {record.id}: with the versions of "
                f"{len(record.pins or ())} tables its record is larger than an item of DynamoDB may be. Nothing was "
                "changed. Divide the tables among several catalogs, or keep this one in a SQLite file."
            )
        if not (parts or marks):
            return self.replace(record)
        batch = _new_token()
        pieces = [
            piece for key, part in parts.items() for piece in layout.pieces_of(record.id, batch, key, bytes(part))
        ]
        self._items.put_each(pieces)
        room = (free_bytes + _MOST_BYTES - _MOST_RECORD_BYTES) // _BATCH_BYTES
        actions = layout.replacement(
            record, record.revision - 1, batch, append={"batches": [batch]}, room={"batches": room}
        )
        actions += [
            check(layout.head_key(table_id), layout.last_mark(marks or {}, table_id)) for table_id in marks or ()
        ]
        refusal = self._refused(actions, batch, layout.record_key(record.id))
        if refusal is None:
            return True
        # Whether or not the deletion succeeds, no record references the items to be deleted.
        with contextlib.suppress(CoordinatorError):
            self._items.delete_each((piece["pk"], piece["sk"]) for piece in pieces)
        found = refusal.found.get(0)
        if found is not None and found["revision"] == record.revision - 1:
            raise CallError(
                f"Transaction {record.id} was changed {len(found['batches'])} times, and the catalog {self.url} cannot "
                "store more. This change was not made. Commit it, and continue in another one."
            )
        return False

    def parts(self, transaction_id: str, prefix: str = "") -> dict[str, bytes]:
        batches = layout.batches_of(self._items.get(layout.record_key(transaction_id)))
        found: dict[str, dict[int, dict[int, Item]]] = {}
        for item in self._pieces(transaction_id, f"part {prefix[: layout.SHOWN_OF_KEY]}"):
            if item["batch"] in batches and item["key"].startswith(prefix):
                pieces = found.setdefault(item["key"], {}).setdefault(batches[item["batch"]], {})
                pieces[item["number"]] = item
        whole: dict[str, bytes] = {}
        for key in sorted(found):
            last = found[key][max(found[key])]
            if len(last) == next(iter(last.values()))["count"]:  # otherwise it is being deleted
                whole[key] = b"".join(last[number]["data"] for number in sorted(last))
        return whole

    def delete_parts(self, transaction_id: str, keys: Sequence[str] | None = None) -> None:
        """Deletes the oldest batch first: if the newest were deleted first, an older one would become visible in
        between."""
        kept = self._items.get(layout.record_key(transaction_id))
        batches = layout.batches_of(kept)
        found: dict[int, list[Key]] = {}
        for key in [None] if keys is None else keys:
            for item in self._pieces(transaction_id, "part " if key is None else layout.part_prefix(key)):
                if item["batch"] in batches and key in (None, item["key"]):
                    found.setdefault(batches[item["batch"]], []).append((item["pk"], item["sk"]))
        for batch in sorted(found):
            self._items.delete_each(found[batch])
        if keys is None and kept is not None and (record := layout.record_of(kept)).status.is_final:
            self._items.delete_each([(layout.UNCLEANED, layout.sort_order(*record.key))])

    def _pieces(self, transaction_id: str, begin: str) -> Iterator[Item]:
        return self._items.query(layout.record_key(transaction_id)[0], "begins_with(sk, :begin)", {":begin": begin})


def format_of(name: str, options: Mapping[str, Any] | None = None, *, endpoint_url: str | None = None) -> int:
    """The format of the catalog in a DynamoDB table. Changes nothing. Raises CoordinatorError, and EntityNotFoundError
    if there is no catalog. Cost: 1 request.
    """
    url = f"dynamodb://{name}"
    found = ItemTable(DynamoTable(name, options or {}, endpoint_url=endpoint_url), url).get(layout.CATALOG)
    if found is None:
        raise EntityNotFoundError(f"There is no catalog at {url}: the table is empty or contains something else.")
    return int(found.get("format", 0))


def _new_token() -> str:
    return str(uuid.uuid4())
