"""The calls for a table of a server that has no UC Delta API: its commits are proposed and listed by the older calls,
``/delta/preview/commits``.

These calls have no requirements and send no metadata back, so the table is identified by its id and its location.
Metadata that a commit changes goes with it, as far as these calls have a form for it: the comment and the properties.

Spec: Unity Catalog API, api/all.yaml, DeltaCommits.
"""

from __future__ import annotations

from deltalog.errors import CatalogRequestError
from deltalog.unity import messages, objects
from deltalog.unity.client import MOST_PAGES, UnityClient
from deltalog.unity.names import TableName


class PreviewCalls:
    """See TableCalls."""

    def __init__(self, client: UnityClient, name: TableName) -> None:
        self.client = client
        self.name = name
        self._info: objects.TableInfo | None = None

    @property
    def url(self) -> str:
        """The root of the server's API."""
        return self.client.url

    def load(self) -> messages.LoadedTable:
        """See TableCalls. Cost: 2 requests; 1 for an external table."""
        info = self._info = self.client.table(self.name)
        location, table_id = info.storage_location, info.table_id
        if info.data_source_format not in (None, "DELTA") or not location or not table_id:
            raise CatalogRequestError(
                f"{self.name.address} is not a Delta table ({info.data_source_format or info.table_type}).",
                path=self.url,
            )
        metadata = messages.TableMetadata(
            etag="",
            table_type="MANAGED" if info.table_type == "MANAGED" else "EXTERNAL",
            table_uuid=table_id,
            location=location,
            created_time=info.created_at or 0,
            updated_time=info.updated_at or info.created_at or 0,
            columns={"type": "struct", "fields": []},
            properties=info.properties or {},
        )
        if metadata.table_type != "MANAGED":
            return messages.LoadedTable(metadata=metadata)
        commits, latest = self._commits(table_id, location)
        return messages.LoadedTable(metadata=metadata, commits=commits, latest_table_version=latest)

    def _commits(self, table_id: str, location: str) -> tuple[tuple[messages.Commit, ...], int]:
        """The unpublished commits, and the latest version. Cost: 1 request per page."""
        found: dict[int, messages.Commit] = {}
        start = 0
        for _ in range(MOST_PAGES):
            wanted = objects.GetCommits(table_id=table_id, table_uri=location, start_version=start)
            page = self.client.commits(wanted)
            for each in page.commits:
                found[each.version] = messages.Commit(
                    version=each.version,
                    timestamp=each.timestamp,
                    file_name=each.file_name,
                    file_size=each.file_size,
                    file_modification_timestamp=each.file_modification_timestamp,
                )
            last = max((each.version for each in page.commits), default=page.latest_table_version)
            if last >= page.latest_table_version:
                return tuple(found[version] for version in sorted(found, reverse=True)), page.latest_table_version
            start = last + 1
        raise CatalogRequestError(f"{self.url}: the commits of {self.name} do not end.", path=self.url)

    def update(self, update: messages.UpdateTable, *, is_idempotent: bool) -> messages.LoadedTable | None:
        """See TableCalls."""
        info = self._info if self._info is not None else self.client.table(self.name)
        self._info = info
        self.client.commit(_older(update, info, self.url), is_idempotent=is_idempotent)
        return None

    def create(self, request: messages.CreateTable) -> messages.LoadedTable:
        """Refuse: these servers have no call that creates a managed table and whose outcome can be settled."""
        raise CatalogRequestError(f"{self.url} does not offer the UC Delta API.", path=self.url)

    def credentials(self, operation: messages.CredentialOperation) -> tuple[messages.StorageCredential, ...]:
        """See TableCalls."""
        info = self._info if self._info is not None else self.client.table(self.name)
        found = self.client.temporary_credentials(info.table_id or "", operation)
        return found.as_storage_credentials(info.storage_location or "", operation)


def _older(update: messages.UpdateTable, info: objects.TableInfo, url: str) -> objects.ProposeCommit:
    """A request of the UC Delta API in the older form. Raises CatalogRequestError for one that has no such form."""
    commit: objects.CommitInfo | None = None
    published: int | None = None
    comment: str | None = None
    properties: dict[str, str] | None = None
    for each in update.requirements:
        if isinstance(each, messages.AssertTableUuid) and each.uuid != info.table_id:
            raise CatalogRequestError(f"{url}: the table is another one now.", path=url, status=404)
    for action in update.updates:
        if isinstance(action, messages.AddCommit):
            proposed = action.commit
            commit = objects.CommitInfo(
                version=proposed.version,
                timestamp=proposed.timestamp,
                file_name=proposed.file_name,
                file_size=proposed.file_size,
                file_modification_timestamp=proposed.file_modification_timestamp,
            )
        elif isinstance(action, messages.SetLatestBackfilledVersion):
            published = action.latest_published_version
        elif isinstance(action, messages.SetTableComment):
            comment = action.comment
        elif isinstance(action, messages.SetProperties):
            properties = {**(info.properties or {}), **(properties or {}), **action.updates}
        elif isinstance(action, messages.RemoveProperties):
            kept = {**(info.properties or {}), **(properties or {})}
            properties = {key: value for key, value in kept.items() if key not in action.removals}
    metadata = None
    if comment is not None or properties is not None:
        metadata = objects.Metadata(
            description=comment, properties=None if properties is None else objects.Properties(properties=properties)
        )
    return objects.ProposeCommit(
        table_id=info.table_id or "",
        table_uri=info.storage_location or "",
        commit_info=commit,
        latest_backfilled_version=published,
        metadata=metadata,
    )
