"""What a transaction changes of protocol, metadata and metadata domains, on top of what the version that it read has.

Spec: PROTOCOL.md#change-metadata, #protocol-evolution, #domain-metadata.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import msgspec

from deltalog.commit.validate import as_read_back
from deltalog.errors import CallError, InvalidPropertyError
from deltalog.protocol import column_mapping, features, metadata_update
from deltalog.protocol.actions import DomainMetadata, Metadata, Protocol
from deltalog.protocol.partitions import check_partition_columns
from deltalog.protocol.properties import CONSTRAINT_PREFIX, ENABLE_ROW_TRACKING, check_assignment
from deltalog.protocol.schema import StructType
from deltalog.protocol.schema_enforcement import check_column_names
from deltalog.read.snapshot import Snapshot


class MetadataChanges:
    """Protocol and metadata as a transaction will leave them, and the metadata domains that it changes.

    ``base``: the version that they are changes of; None where the table is created. Each change brings with it what
    it needs: features, ids and physical names of columns. Actions are as readers of the log will have them;
    InvalidActionError for what cannot be read back.
    """

    def __init__(
        self, base: Snapshot | None, protocol: Protocol | None, metadata: Metadata | None, new_uuid: Callable[[], str]
    ) -> None:
        """``protocol`` and ``metadata``: where they are changed from the start; both for a new table."""
        self.base = base
        self.new_uuid = new_uuid
        self._protocol = None if protocol is None else as_read_back(protocol, Protocol)
        self._metadata = None if metadata is None else as_read_back(metadata, Metadata)
        self._domains: list[DomainMetadata] = []
        self._depends_on_files = False

    # -------------------------------------------------------------------------------------------- the outcome

    @property
    def metadata(self) -> Metadata:
        """The metadata as the transaction will leave it."""
        if self._metadata is not None:
            return self._metadata
        assert self.base is not None
        return self.base.metadata

    @property
    def protocol(self) -> Protocol:
        """The protocol as the transaction will leave it."""
        if self._protocol is not None:
            return self._protocol
        assert self.base is not None
        return self.base.protocol

    @property
    def changed_metadata(self) -> Metadata | None:
        """The metadata where it is not that of the base."""
        return None if self.base is not None and self._metadata == self.base.metadata else self._metadata

    @property
    def changed_protocol(self) -> Protocol | None:
        """The protocol where it is not that of the base."""
        return None if self.base is not None and self._protocol == self.base.protocol else self._protocol

    @property
    def domains(self) -> tuple[DomainMetadata, ...]:
        """The domainMetadata actions, one for each domain that is changed."""
        return tuple(self._domains)

    @property
    def depends_on_metadata(self) -> bool:
        """Whether metadata was set. Setting it to what it is writes nothing, and still asserts that it is so."""
        return self._metadata is not None

    @property
    def depends_on_files(self) -> bool:
        """Whether a change holds for the files of the base only: any that another writer adds is a conflict."""
        return self._depends_on_files

    # -------------------------------------------------------------------------------------------------- changes

    def set_schema(self, schema: StructType, partition_by: Sequence[str] | None = None) -> None:
        """Another schema, and partition columns where given. As ``Transaction.set_schema``."""
        schema_string = schema.to_json()
        check_column_names(schema, column_mapping.mode_of(self.metadata.configuration) != "none")
        columns = self.metadata.partition_columns if partition_by is None else tuple(partition_by)
        self._replace(schema_string=schema_string, partition_columns=check_partition_columns(schema, columns))

    def set_properties(self, properties: Mapping[str, str]) -> None:
        """Table properties. As ``Transaction.set_properties``."""
        check_assignment(dict(properties))
        named, kept = features.split_feature_properties(properties)
        tracked = ENABLE_ROW_TRACKING.read(self.metadata.configuration)
        if self.base is not None and not tracked and ENABLE_ROW_TRACKING.read(kept):
            self._check_row_ids(self.base)
        self._replace_configuration({**self.metadata.configuration, **kept})
        self._set_protocol(features.with_features(self.protocol, named))

    def unset_properties(self, keys: Iterable[str]) -> None:
        """Table properties removed; absent ones are ignored."""
        removed = set(keys)
        check_assignment(dict.fromkeys(removed))
        self._replace_configuration({k: v for k, v in self.metadata.configuration.items() if k not in removed})

    def set_constraint(self, name: str, expression: str | None) -> None:
        """A CHECK constraint, or with None that it is dropped. Rows that the table has are not checked."""
        key = f"{CONSTRAINT_PREFIX}{name.lower()}"
        others = {k: v for k, v in self.metadata.configuration.items() if k.lower() != key}
        self._replace_configuration(others if expression is None else {**others, key: expression})

    def set_description(self, name: str | None, description: str | None) -> None:
        """The name and the description of the table; None leaves them as they are."""
        given = {"name": name, "description": description}
        self._replace(**{key: value for key, value in given.items() if value is not None})

    def set_protocol(self, protocol: Protocol) -> None:
        """Another protocol. Nothing that the table needs may be missing from it."""
        self._set_protocol(protocol)

    def set_state(self, protocol: Protocol, metadata: Metadata) -> None:
        """Protocol and metadata as they are, ids and names of columns included. Not checked before commit."""
        self._set_protocol(protocol)
        self._metadata = as_read_back(metadata, Metadata)

    def set_domain(self, domain: str, configuration: str) -> None:
        """The configuration of a user's domain. Raises CallError for names that belong to Delta."""
        _check_user_domain(domain, configuration)
        self.stage_domain(DomainMetadata(domain=domain, configuration=configuration, removed=False))

    def remove_domain(self, domain: str) -> None:
        """A user's domain removed; an absent one is ignored. Raises CallError as ``set_domain``."""
        _check_user_domain(domain, "")
        for existing in () if self.base is None else self.base.domain_metadata:
            if existing.domain == domain:
                self.stage_domain(msgspec.structs.replace(existing, removed=True))

    def stage_domain(self, action: DomainMetadata) -> None:
        """A domainMetadata action, of Delta's own domains too; the last one for a domain counts."""
        action = as_read_back(action, DomainMetadata)
        self._domains = [*(each for each in self._domains if each.domain != action.domain), action]
        self._set_protocol(features.with_features(self.protocol, ["domainMetadata"]))

    # -------------------------------------------------------------------------------------------------- helpers

    def _set_protocol(self, protocol: Protocol) -> None:
        self._protocol = as_read_back(protocol, Protocol)

    def _replace(self, **changes: Any) -> None:
        changed = msgspec.structs.replace(self.metadata, **changes)
        protocol, metadata = metadata_update.complete(self.metadata, changed, self.protocol, self.new_uuid)
        self.set_state(protocol, metadata)

    def _replace_configuration(self, configuration: Mapping[str, str]) -> None:
        self._replace(configuration=self.metadata.with_configuration(configuration).configuration)

    def _check_row_ids(self, base: Snapshot) -> None:
        """Refuse to turn row tracking on while files have no row ids; none may come in meanwhile."""
        without = base.files(["base_row_id"])["base_row_id"].null_count
        if without:
            raise InvalidPropertyError(
                f"{base.url}: {ENABLE_ROW_TRACKING.key} cannot be turned on: {without} files have no row ids, and "
                "adding them (a backfill) is not supported. Turn it on when a table is created.",
                key=ENABLE_ROW_TRACKING.key,
            )
        self._depends_on_files = True


def _check_user_domain(domain: str, configuration: str) -> None:
    if not (isinstance(domain, str) and domain and isinstance(configuration, str)):
        raise CallError(f"A metadata domain has a name and a configuration as text; got {domain!r}.")
    if domain.startswith("delta."):
        raise CallError(f"The metadata domain {domain!r} belongs to Delta: choose a name without the prefix delta.")
