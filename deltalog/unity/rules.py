"""The rules of a client's commits: what is proposed, what a refusal means, and how an unknown outcome is settled. Pure.

Spec: UC Delta API 1.0, ManagedTablesSpec.md#write-a-commit, #commit-recovery, #publishing-and-backfill.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Iterable

from deltalog.catalog.records import Head, RatifiedCommit
from deltalog.commit.attempt import Attempt
from deltalog.commit.base import Base
from deltalog.errors import CallError, CatalogRequestError, UnsupportedFeatureError
from deltalog.protocol.actions import DomainMetadata, Metadata
from deltalog.protocol.paths import canonical_url
from deltalog.unity import messages
from deltalog.unity.columns import to_columns
from deltalog.unity.table_state import TableState, updates_between

CATALOG_MANAGED_KEYS = ("delta.feature.catalogManaged", "delta.feature.catalogOwned-preview")
S3_KEY = "s3.access-key-id"
UNIFORM_KEY = "delta.universalFormat.enabledFormats"
_FILE = re.compile(r"(?P<version>[0-9]{20})\.[0-9A-Za-z-]{1,64}\.json")
# The most commits that a response may list, so that a server cannot fill a client's memory.
_MOST_COMMITS = 100_000


class Reaction(enum.Enum):
    """How a client reacts to a refused proposal."""

    RELOAD = "the version or the metadata is another: read the table again"
    PUBLISH = "too many commits are unpublished: publish them, and propose again"
    UNKNOWN = "the outcome is unknown: read the table again"
    REFUSED = "nothing was committed"


class Verdict(enum.Enum):
    """What a table says about a proposed commit."""

    OURS = "it was accepted"
    ANOTHERS = "another commit has its version"
    FREE = "its version does not exist yet"
    PUBLISHED = "its version exists, and only the published file says which commit that is"


def reaction_to(error: CatalogRequestError) -> Reaction:
    """What a refusal of an ``add-commit`` means. Servers that have only the older calls send no error types with
    refusals."""
    if error.status == 409:
        return Reaction.RELOAD
    if error.status == 429 and error.error_type != "TooManyRequestsException":
        return Reaction.PUBLISH
    return Reaction.REFUSED


def is_requirement(error: CatalogRequestError) -> bool:
    """Whether a request was refused because one of its requirements was not met, and not because its version was
    taken."""
    return error.error_type == "UpdateRequirementConflictException"


def is_managed(loaded: messages.LoadedTable) -> bool:
    """Whether the catalog, not the log, says which commits a table has."""
    return any(loaded.metadata.properties.get(key) == "supported" for key in CATALOG_MANAGED_KEYS)


def head_of(loaded: messages.LoadedTable, catalog: str, published: int = -1) -> Head:
    """The head of a catalog-managed table, from a response of the server. ``published``: the version up to which this
    process has published the commits itself; their published files are known to be copies, so these commits are not
    listed as unpublished. Raises CatalogRequestError for a response that contradicts itself."""
    name, latest = loaded.metadata.location, loaded.latest_table_version
    commits = sorted(loaded.commits or (), key=lambda commit: commit.version)
    if latest is None or latest < 0:
        raise _invalid(catalog, f"{name} has no latest version")
    first = latest + 1 - len(commits)
    if len(commits) > _MOST_COMMITS:
        raise _invalid(catalog, f"{name} has {len(commits)} unpublished commits")
    if (first < 1 and commits) or any(commit.version != first + number for number, commit in enumerate(commits)):
        raise _invalid(catalog, f"the commits of {name} are not the last ones up to version {latest}")
    for commit in commits:
        named = _FILE.fullmatch(commit.file_name)
        if named is None or int(named["version"]) != commit.version or commit.file_size <= 0:
            raise _invalid(catalog, f"{commit.file_name!r} cannot be the file of version {commit.version} of {name}")
    return Head(latest, tuple(_ratified(commit) for commit in commits if commit.version > published))


def verdict(head: Head, version: int, file: str) -> Verdict:
    """What the head of a table says about the commit in ``file``, proposed as ``version``. The name of the file
    decides, never the error with which a proposal was answered."""
    if head.version < version:
        return Verdict.FREE
    commit = head.commit(version)
    if commit is None:
        return Verdict.PUBLISHED
    return Verdict.OURS if commit.file == file else Verdict.ANOTHERS


def metadata_updates(attempt: Attempt) -> list[messages.Update]:
    """The updates that must accompany the commit of an attempt; none if the commit does not change the table's
    metadata."""
    base, actions = attempt.base, attempt.actions
    before = _state_before(base, actions.domains)
    if before is None:
        return []
    return updates_between(before, before.after(actions.protocol, actions.metadata, actions.domains))


def changes_metadata(updates: Iterable[messages.Update]) -> bool:
    """Whether updates change the metadata that a table's etag stands for. The high-water mark of row tracking does not
    count: most commits to a table with row tracking move it."""
    for each in updates:
        if isinstance(each, messages.SetDomainMetadata):
            if each.updates.keys() - {"delta.rowTracking"}:
                return True
        elif not isinstance(each, (messages.AddCommit, messages.SetLatestBackfilledVersion)):
            return True
    return False


def proposal(
    table_id: str,
    commit: messages.Commit,
    changes: Iterable[messages.Update],
    etag: str | None,
    published: int | None,
) -> messages.UpdateTable:
    """The request that proposes a commit. ``etag``: the etag of the metadata on which the commit was planned; sent only
    if the commit changes the metadata. ``published``: the version up to which the same request also reports the commits
    as published."""
    changes = list(changes)
    requirements: list[messages.Requirement] = [messages.AssertTableUuid(uuid=table_id)]
    if etag and changes_metadata(changes):
        requirements.append(messages.AssertEtag(etag=etag))
    updates: list[messages.Update] = [*changes, messages.AddCommit(commit=commit)]
    if published is not None:
        updates.append(messages.SetLatestBackfilledVersion(latest_published_version=published))
    return messages.UpdateTable(requirements=tuple(requirements), updates=tuple(updates))


def report(table_id: str, published: int) -> messages.UpdateTable:
    """The request that reports the commits up to a version as published."""
    return messages.UpdateTable(
        requirements=(messages.AssertTableUuid(uuid=table_id),),
        updates=(messages.SetLatestBackfilledVersion(latest_published_version=published),),
    )


def external_update(table_id: str, attempt: Attempt, etag: str) -> messages.UpdateTable:
    """The request that tells of the metadata of an external table after a commit. It has the whole metadata, so that it
    also makes up for earlier commits that were not told. ``etag``: of what the server has."""
    actions, before = attempt.actions, attempt.base.metadata
    metadata = actions.metadata or before
    assert metadata is not None and before is not None
    found = TableState.of(attempt.protocol, metadata, actions.domains)
    updates: list[messages.Update] = [
        messages.SetProtocol(protocol=messages.TableProtocol.from_action(attempt.protocol)),
        messages.SetColumns(columns=to_columns(metadata.schema)),
        messages.SetPartitionColumns(partition_columns=metadata.partition_columns),
        messages.UpdateSnapshotVersion(
            last_commit_version=attempt.version, last_commit_timestamp_ms=attempt.timestamp_ms
        ),
    ]
    if metadata.configuration:
        updates.append(messages.SetProperties(updates=dict(metadata.configuration)))
    if removed := tuple(key for key in before.configuration if key not in metadata.configuration):
        updates.append(messages.RemoveProperties(removals=removed))
    if metadata.description != before.description:
        updates.append(messages.SetTableComment(comment=metadata.description or ""))
    if found.domains:
        updates.append(messages.SetDomainMetadata(updates=dict(found.domains)))
    if gone := tuple(each.domain for each in actions.domains if each.removed):
        updates.append(messages.RemoveDomainMetadata(domains=gone))
    requirements: list[messages.Requirement] = [messages.AssertTableUuid(uuid=table_id)]
    if etag:
        requirements.append(messages.AssertEtag(etag=etag))
    return messages.UpdateTable(requirements=tuple(requirements), updates=tuple(updates))


def check_no_uniform(metadata: Metadata | None, table: str) -> None:
    """Refuse a commit to a table that is converted to Iceberg: every commit would have to carry the conversion. Raises
    UnsupportedFeatureError. Spec: ManagedTablesSpec.md#write-a-commit."""
    formats = "" if metadata is None else metadata.configuration.get(UNIFORM_KEY, "")
    if "iceberg" in (each.strip().lower() for each in formats.split(",")):
        raise UnsupportedFeatureError(
            f"{table} is converted to Iceberg with every commit ({UNIFORM_KEY}), and deltalog does not convert tables "
            "to Iceberg. Nothing was committed: write it with an engine that does, or remove the property with one.",
            features=(UNIFORM_KEY,),
        )


def _state_before(base: Base, domains: Iterable[DomainMetadata]) -> TableState | None:
    """The state before a commit, but only with the domains that the commit removes, so that every domain that it sets
    is sent."""
    if base.protocol is None or base.metadata is None:
        return None
    return TableState(base.protocol, base.metadata, {each.domain: {} for each in domains if each.removed})


def _ratified(commit: messages.Commit) -> RatifiedCommit:
    return RatifiedCommit(commit.version, commit.file_name, commit.timestamp, commit.file_size, "")


def _invalid(catalog: str, what: str) -> CatalogRequestError:
    return CatalogRequestError(f"{catalog} did not answer as a Unity Catalog does: {what}.", path=catalog)


def credential_at(
    credentials: Iterable[messages.StorageCredential], location: str
) -> messages.StorageCredential | None:
    """The credential with the longest prefix of ``location``; None if there is none for S3."""
    place = canonical_url(location).rstrip("/")

    def fits(prefix: str) -> bool:
        start = canonical_url(prefix).rstrip("/")
        return place == start or place.startswith(f"{start}/")

    found = [each for each in credentials if each.config.get(S3_KEY) and fits(each.prefix)]
    return max(found, key=lambda each: len(each.prefix), default=None)


def no_credentials(location: str, table: str) -> CallError:
    """The error if the server issues no credentials that deltalog can use."""
    return CallError(
        f"{table} is stored at {location}, for which the catalog issued no credentials that deltalog can use: it uses "
        "those for S3. Give the options of the store, with its credentials, together with the address."
    )
