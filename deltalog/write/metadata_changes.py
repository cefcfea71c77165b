"""The changes to protocol, metadata and metadata domains in a transaction.

Spec: PROTOCOL.md#change-metadata, #protocol-evolution, #domain-metadata, #writer-requirements-for-domain-metadata,
#format-specification, #identity-columns, #clustered-table.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from deltalog.commit.validate import as_read_back
from deltalog.errors import (
    CallError,
    CorruptTableError,
    InvalidPropertyError,
    SchemaMismatchError,
    UnsupportedFeatureError,
)
from deltalog.lazy_names import lazy_modules
from deltalog.log.snapshot import LogSnapshot
from deltalog.protocol import column_mapping, features, identity_columns, row_tracking
from deltalog.protocol.actions import DomainMetadata, Metadata, Protocol
from deltalog.protocol.column_metadata import IDENTITY_KEY
from deltalog.protocol.column_paths import path_text
from deltalog.protocol.identity_columns import Identity
from deltalog.protocol.partitions import check_partition_columns
from deltalog.protocol.properties import (
    CONSTRAINT_PREFIX,
    ENABLE_ROW_TRACKING,
    ROW_TRACKING_SUSPENDED,
    check_assignment,
)
from deltalog.protocol.schema import StructType
from deltalog.protocol.schema_enforcement import check_column_names

if TYPE_CHECKING:
    from deltalog.protocol import metadata_update
    from deltalog.write import clustering_columns as clustering
else:
    lazy_modules(__name__, "deltalog.protocol.metadata_update", clustering="deltalog.write.clustering_columns")


class MetadataChanges:
    """The protocol and the metadata that a table has after a transaction, and the metadata domains that the transaction
    changes.

    ``base``: the snapshot that the transaction changes; None for a new table. ``protocol`` and ``metadata``: the values
    after the transaction. Each change also includes the changes that it requires: table features, column ids and
    physical names. Actions are normalised to the form that readers of the log will decode; an action that readers could
    not decode raises InvalidActionError. ``depends_on_metadata``: whether metadata was set, so that the commit depends
    on it. Setting the metadata to its current value writes nothing, but a concurrent change of the metadata is then a
    conflict. ``depends_on_files``: whether a change is valid only for the files of ``base``; then a file added by
    another writer is a conflict.
    """

    protocol: Protocol
    metadata: Metadata

    def __init__(
        self,
        base: LogSnapshot | None,
        protocol: Protocol | None,
        metadata: Metadata | None,
        new_uuid: Callable[[], str],
    ) -> None:
        """``protocol`` and ``metadata``: the initial changes; both are required for a new table."""
        self.new_uuid = new_uuid
        self.depends_on_metadata = metadata is not None
        self.depends_on_files = False
        self.moves_to_catalog = False
        self._depends_on_protocol = protocol is not None
        self._domains: list[DomainMetadata] = []
        if protocol is not None:
            self.protocol = as_read_back(protocol, Protocol)
        if metadata is not None:
            self.metadata = as_read_back(metadata, Metadata)
        self.start_from(base)

    def start_from(self, base: LogSnapshot | None) -> None:
        """Rebase on another version. Values that the transaction has already set are kept."""
        self.base = base
        if base is not None:
            self.protocol = self.protocol if self._depends_on_protocol else base.protocol
            self.metadata = self.metadata if self.depends_on_metadata else base.metadata

    # -------------------------------------------------------------------------------------------- the outcome

    @property
    def changed_metadata(self) -> Metadata | None:
        """The metadata if it differs from the metadata of the base version, else None."""
        return None if self.base is not None and self.metadata == self.base.metadata else self.metadata

    @property
    def changed_protocol(self) -> Protocol | None:
        """The protocol if it differs from the protocol of the base version, else None."""
        return None if self.base is not None and self.protocol == self.base.protocol else self.protocol

    @property
    def domains(self) -> tuple[DomainMetadata, ...]:
        """The domainMetadata actions, one for each changed domain."""
        return tuple(self._domains)

    @property
    def clustering_columns(self) -> tuple[tuple[str, ...], ...]:
        """The clustering columns, like ``Snapshot.clustering_columns``. Raises CorruptTableError."""
        existing = None if self.base is None else self.base.state.domains.get(column_mapping.CLUSTERING_DOMAIN)
        domain = next((each for each in self._domains if each.domain == column_mapping.CLUSTERING_DOMAIN), existing)
        return column_mapping.clustered_by(domain, self.metadata)

    @property
    def identities(self) -> tuple[Identity, ...]:
        """The identity columns, if the protocol has the identity-column feature. Raises UnsupportedFeatureError for an
        invalid one."""
        if IDENTITY_KEY not in self.metadata.schema_string:
            return ()
        if "identityColumns" not in features.writer_features(self.protocol):
            return ()
        try:
            return identity_columns.identities_in(self.metadata.schema)
        except SchemaMismatchError as error:
            text = f"No rows can be written. {error} Correct the metadata with the writer that set it."
            raise UnsupportedFeatureError(text, features=("identityColumns",)) from None

    # ---------------------------------------------------------------------------------- changes of the metadata

    def set_schema(self, schema: StructType, partition_by: Sequence[str] | None = None) -> None:
        """Replace the schema, and also the partition columns if they are passed. Like ``Transaction.set_schema``."""
        schema_string = identity_columns.keeping_marks(schema, self.metadata.schema).to_json()
        check_column_names(schema, column_mapping.mode_of(self.metadata.configuration) != "none")
        columns = self.metadata.partition_columns if partition_by is None else tuple(partition_by)
        identity_columns.check_identities(schema, columns)
        clustered_by = self.clustering_columns
        self._replace(schema_string=schema_string, partition_columns=check_partition_columns(schema, columns))
        if clustered_by:
            self._check_clustering(clustered_by)

    def move_to_catalog(self, properties: Mapping[str, str]) -> None:
        """Set the properties by which a catalog recognises the table as its own. Only a catalog that registers the
        table may change them."""
        self.set_properties(properties)
        self.moves_to_catalog = True

    def set_properties(self, properties: Mapping[str, str]) -> None:
        """Set table properties. Like ``Transaction.set_properties``."""
        check_assignment(dict(properties))
        named, kept = features.split_feature_properties(properties)
        assigned = {**self.metadata.configuration, **kept}
        tracked = ENABLE_ROW_TRACKING.read(self.metadata.configuration)
        if ENABLE_ROW_TRACKING.read(assigned) and ROW_TRACKING_SUSPENDED.read(assigned):
            raise InvalidPropertyError(
                f"{ENABLE_ROW_TRACKING.key} and {ROW_TRACKING_SUSPENDED.key} cannot both be true: files added while "
                "row tracking is suspended get no row ids.",
                key=ENABLE_ROW_TRACKING.key,
            )
        if self.base is not None and not tracked and ENABLE_ROW_TRACKING.read(kept):
            self._check_row_ids(self.base)
        self._replace_configuration(assigned)
        self._set_protocol(features.with_features(self.protocol, named))

    def unset_properties(self, keys: Iterable[str]) -> None:
        """Remove table properties; absent properties are ignored."""
        removed = set(keys)
        check_assignment(dict.fromkeys(removed))
        self._replace_configuration({k: v for k, v in self.metadata.configuration.items() if k not in removed})

    def set_constraint(self, name: str, expression: str | None) -> None:
        """Add a CHECK constraint; the value None drops the constraint. Existing rows are not checked."""
        key = f"{CONSTRAINT_PREFIX}{name.lower()}"
        others = {k: v for k, v in self.metadata.configuration.items() if k.lower() != key}
        self._replace_configuration(others if expression is None else {**others, key: expression})

    def set_description(self, name: str | None, description: str | None) -> None:
        """Set the name and the description of the table; None leaves them unchanged."""
        given = {"name": name, "description": description}
        self._replace(**{key: value for key, value in given.items() if value is not None})

    def set_protocol(self, protocol: Protocol) -> None:
        """Replace the protocol. The new protocol must have all features that the table needs."""
        self._set_protocol(protocol)

    def set_state(self, protocol: Protocol, metadata: Metadata) -> None:
        """Replace protocol and metadata verbatim, including the ids and physical names of columns. They are checked at
        commit."""
        self._set_protocol(protocol)
        self.metadata = as_read_back(metadata, Metadata)
        self.depends_on_metadata = True

    def set_clustering(self, columns: Sequence[str | Sequence[str]]) -> None:
        """Set the clustering columns, each as a path; an empty sequence ends clustering. Files are not checked. Raises
        CallError, SchemaMismatchError."""
        paths = clustering.clustering_paths(columns, self.metadata)
        mode = column_mapping.mode_of(self.metadata.configuration)
        self.stage_domain(column_mapping.clustering_domain(paths, self.metadata.schema, mode))
        self._set_protocol(features.with_features(self.protocol, [clustering.FEATURE]))

    def raise_marks(self, marks: Mapping[str, int | None]) -> None:
        """Raise the high-water marks of identity columns; the marks are keyed by column name. Nothing is staged if no
        high-water mark changes."""
        before = self.metadata.schema if marks else None
        after = None if before is None else identity_columns.with_marks(before, marks)
        if after is not None and after != before:
            changed = msgspec.structs.replace(self.metadata, schema_string=after.to_json())
            self.metadata = as_read_back(changed, Metadata)
            self.depends_on_metadata = True

    def set_domain(self, domain: str, configuration: str) -> None:
        """Set the configuration of a custom domain. Raises CallError for names that are reserved for Delta."""
        _check_user_domain(domain, configuration)
        self.stage_domain(DomainMetadata(domain=domain, configuration=configuration, removed=False))

    def remove_domain(self, domain: str) -> None:
        """Remove a custom domain; an absent domain is ignored. Raises CallError as ``set_domain``."""
        _check_user_domain(domain, "")
        for existing in () if self.base is None else self.base.state.domains.values():
            if existing.domain == domain:
                self.stage_domain(msgspec.structs.replace(existing, removed=True))

    def stage_domain(self, action: DomainMetadata) -> None:
        """Stage a domainMetadata action for a custom or system domain. The last action for a domain wins."""
        action = as_read_back(action, DomainMetadata)
        self._domains = [*(each for each in self._domains if each.domain != action.domain), action]
        self._set_protocol(features.with_features(self.protocol, ["domainMetadata"]))

    # -------------------------------------------------------------------------------------------------- helpers

    def _set_protocol(self, protocol: Protocol) -> None:
        self.protocol = as_read_back(protocol, Protocol)
        self._depends_on_protocol = True

    def _replace(self, **changes: Any) -> None:
        changed = msgspec.structs.replace(self.metadata, **changes)
        protocol, metadata = metadata_update.complete(self.metadata, changed, self.protocol, self.new_uuid)
        self.set_state(protocol, metadata)

    def _replace_configuration(self, configuration: Mapping[str, str]) -> None:
        self._replace(configuration=self.metadata.with_configuration(configuration).configuration)

    def _check_clustering(self, columns: Sequence[tuple[str, ...]]) -> None:
        """Raise SchemaMismatchError if the table can no longer be clustered by its clustering columns."""
        names = ", ".join(path_text(column) for column in columns)
        if self.metadata.partition_columns:
            raise SchemaMismatchError(
                f"The table is clustered by {names}, and a clustered table cannot have partition columns. Omit them."
            )
        try:
            self.clustering_columns  # noqa: B018
        except CorruptTableError:
            raise SchemaMismatchError(
                f"The table is clustered by {names}, and the new schema lacks one of these columns, or has another "
                "column under its name. Keep these columns, or end the clustering with cluster_by([])."
            ) from None

    def _check_row_ids(self, base: LogSnapshot) -> None:
        """Refuse to turn on row tracking while there are files without row ids. If the protocol does not yet require
        other writers to assign row ids, a file that another writer adds before this commit is a conflict."""
        without = base.cache.files(["base_row_id"])["base_row_id"].null_count
        if without:
            raise InvalidPropertyError(
                f"{base.url}: {ENABLE_ROW_TRACKING.key} cannot be turned on in this transaction: {without} files have "
                "no row ids. Call DeltaTable.set_properties, which gives them row ids first.",
                key=ENABLE_ROW_TRACKING.key,
            )
        self.depends_on_files = not row_tracking.assigns_ids(base.protocol, base.metadata.configuration)


def _check_user_domain(domain: str, configuration: str) -> None:
    if not (isinstance(domain, str) and domain and isinstance(configuration, str)):
        raise CallError(f"A metadata domain must have a name and a configuration, both strings; got {domain!r}.")
    if domain.startswith("delta."):
        raise CallError(
            f"The metadata domain {domain!r} is reserved for Delta. Choose a name without the prefix delta."
        )
