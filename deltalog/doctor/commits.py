"""Checks the actions of one commit against each other and against the state before the commit. Pure.

Spec: PROTOCOL.md#add-file-and-remove-file, #add-cdc-file, #transaction-identifiers, #append-only-tables.
"""

from __future__ import annotations

import urllib.parse
from collections.abc import Iterator

from deltalog.doctor.commit_lines import Actions
from deltalog.doctor.features import has
from deltalog.doctor.file_entries import Rules
from deltalog.doctor.findings import Finding, found
from deltalog.errors import CorruptTableError, DeltaLogError
from deltalog.log.replay import PartialState
from deltalog.protocol.actions import Metadata
from deltalog.protocol.features import CATALOG_MANAGED
from deltalog.protocol.paths import commit_path
from deltalog.protocol.properties import APPEND_ONLY, ENABLE_CHANGE_DATA_FEED, Property
from deltalog.protocol.row_tracking import DOMAIN, high_water_mark


def examine_commit(
    actions: Actions, version: int, rules: Rules | None, before: PartialState, is_known: bool
) -> Iterator[Finding]:
    """Check one commit. ``rules``: the rules according to protocol and metadata after the commit; None if these are
    unknown. ``before``: the state before the commit. ``is_known``: whether the state before the commit is completely
    known."""
    path = commit_path(version)
    yield from _removes(actions, version, rules, before)
    for file in actions.cdc:
        if file.data_change:
            yield found("cdc-data-change", "dataChange is true.", version, file.path)
    info = actions.info
    if info is None and actions.is_whole:
        yield found("commit-info-absent", "The commit has no commitInfo.", version, path)
    if (
        info is not None
        and info.body.get("isBlindAppend") is True
        and any(each.data_change for each in actions.removes)
    ):
        yield found("commit-info-contradicts", f"The commit removes {len(actions.removes)} files.", version, path)
    for transaction in actions.transactions:
        last = before.transactions.get(transaction.app_id)
        if last is not None and transaction.version < last.version:
            text = f"The version of {transaction.app_id} goes from {last.version} to {transaction.version}."
            yield found("txn-version-decreases", text, version, path)
    if rules is None:
        return
    if actions.cdc and not _reads(ENABLE_CHANGE_DATA_FEED, rules.metadata):
        yield found("cdc-without-feed", f"The commit has {len(actions.cdc)} cdc actions.", version, path)
    if actions.domains and not has(rules.protocol, "domainMetadata"):
        yield found("domain-without-feature", f"The commit has the domain {actions.domains[0].domain}.", version, path)
    if has(rules.protocol, CATALOG_MANAGED) and actions.is_whole and (info is None or not info.txn_id):
        yield found("catalog-txn-id-missing", "commitInfo has no txnId.", version, path)
    if is_known:
        yield from _mark(actions, version, before, path)
    if rules.allows_vectors and not rules.writes_vectors:
        removed = {remove.path: remove.deletion_vector for remove in actions.removes}
        for add in actions.adds:
            vector = add.deletion_vector
            is_new = vector is not None and add.path in removed and removed[add.path] != vector and add.data_change
            if is_new and (info is None or info.operation != "RESTORE"):
                yield found(
                    "vector-while-off", "delta.enableDeletionVectors is not true in this version.", version, add.path
                )


def _removes(actions: Actions, version: int, rules: Rules | None, before: PartialState) -> Iterator[Finding]:
    append_only = rules is not None and has(rules.protocol, "appendOnly") and _reads(APPEND_ONLY, rules.metadata)
    # A commit may replace the rows of a table and make it append-only.
    append_only = append_only and before.metadata is not None and _reads(APPEND_ONLY, before.metadata)
    without_time = 0
    for remove in actions.removes:
        if remove.extended_file_metadata and (remove.partition_values is None or remove.size is None):
            missing = "partitionValues" if remove.partition_values is None else "size"
            yield found("remove-metadata-incomplete", f"The remove action has no {missing}.", version, remove.path)
        without_time += remove.deletion_timestamp is None
        if append_only and remove.data_change:
            yield found("append-only-violated", "dataChange is true.", version, remove.path)
        if "\0" in urllib.parse.unquote(remove.path) or not remove.path.strip("/"):
            yield found("path-invalid", f"The path is {remove.path[:200]!r}.", version, remove.path)
    if without_time:
        text = f"{without_time} of {len(actions.removes)} remove actions have no deletionTimestamp."
        yield found("remove-time-missing", text, version, commit_path(version))


def _reads(prop: Property[bool], metadata: Metadata) -> bool:
    try:
        return prop.read(metadata.configuration)
    except DeltaLogError:
        return False


def _mark(actions: Actions, version: int, before: PartialState, path: str) -> Iterator[Finding]:
    """Report a row id high-water mark that decreases."""
    try:
        old = high_water_mark([before.domains[DOMAIN]]) if DOMAIN in before.domains else None
        new = high_water_mark([each for each in actions.domains if each.domain == DOMAIN], -1)
    except CorruptTableError:
        return
    if old is not None and new >= 0 and new < old:
        text = f"It was {old} and is now {new}."
        yield found("row-id-high-water-mark-decreased", text, version, path)
