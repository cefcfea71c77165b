"""What a managed table must have, what the requests of clients must contain, and whether they agree with the log. Pure.

Spec: ManagedTablesSpec.md#create-a-table, #write-a-commit, #catalog-and-log-consistency.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from deltalog.errors import CallError, CorruptTableError, SchemaMismatchError
from deltalog.protocol import features
from deltalog.protocol.features import CATALOG_MANAGED
from deltalog.protocol.properties import CATALOG_ID_KEY, ENABLE_IN_COMMIT_TIMESTAMPS
from deltalog.unity import messages
from deltalog.unity.columns import from_columns, to_columns
from deltalog.unity.table_state import TABLE_ID_KEY, TableState, is_derived

_READER_FEATURES = (CATALOG_MANAGED, "vacuumProtocolCheck")
_WRITER_FEATURES = (CATALOG_MANAGED, "inCommitTimestamp", "vacuumProtocolCheck")
_SUGGESTED = ("deletionVectors", "v2Checkpoint")
_SUGGESTED_PROPERTIES = {"delta.enableDeletionVectors": "true", "delta.checkpointPolicy": "v2"}
REQUIRED_PROTOCOL = messages.TableProtocol(
    min_reader_version=3, min_writer_version=7, reader_features=_READER_FEATURES, writer_features=_WRITER_FEATURES
)
_UNIFORM_KEY = "delta.universalFormat.enabledFormats"
# Properties with these prefixes describe the table's log, so none is stored in the catalog alone.
_OF_LOGS = ("delta.", "io.unitycatalog.", "deltalog.")
U = TypeVar("U")


def staged(table_id: str, location: str, credentials: Iterable[messages.StorageCredential]) -> messages.StagingTable:
    """The response to a client that stages a table: what version 0 must contain, and what the server suggests."""
    return messages.StagingTable(
        table_id=table_id,
        location=location,
        storage_credentials=tuple(credentials),
        required_protocol=REQUIRED_PROTOCOL,
        suggested_protocol=messages.SuggestedProtocol(reader_features=_SUGGESTED, writer_features=_SUGGESTED),
        required_properties={ENABLE_IN_COMMIT_TIMESTAMPS.key: "true", TABLE_ID_KEY: table_id},
        suggested_properties=dict(_SUGGESTED_PROPERTIES),
    )


def check_managed_state(state: TableState, table_id: str, catalog_id: str) -> None:
    """Check that a table has the features and properties that a managed table of this catalog needs. Raises CallError,
    which names it."""
    protocol, properties = state.protocol, state.metadata.configuration
    reader, writer = set(features.reader_features(protocol)), set(features.writer_features(protocol))
    # Tables that deltalog created may lack vacuumProtocolCheck, which does not concern the catalog.
    for name in (CATALOG_MANAGED,):
        if name not in reader or name not in writer:
            raise CallError(f"A managed table needs the feature {name} for readers and for writers.")
    if "inCommitTimestamp" not in writer or not ENABLE_IN_COMMIT_TIMESTAMPS.read(properties):
        raise CallError(f"A managed table needs the feature inCommitTimestamp and {ENABLE_IN_COMMIT_TIMESTAMPS.key}.")
    if unlisted := sorted(reader - writer):
        raise CallError(f"The features {', '.join(unlisted)} are listed for readers but not for writers.")
    own = properties.get(TABLE_ID_KEY)
    # The log of a table that deltalog dropped and registered again has its earlier id.
    if own != table_id and properties.get(CATALOG_ID_KEY) != catalog_id:
        raise CallError(f"The property {TABLE_ID_KEY} must be {table_id}, not {own!r}.")


def check_shown(state: TableState) -> None:
    """Check that the API has a form for a state. Raises CallError."""
    try:
        to_columns(state.schema)
        state.etag()
        state.derived_properties()
    except (CorruptTableError, SchemaMismatchError) as error:
        raise CallError(f"The metadata of the table cannot be shown: {error.message}") from None
    except RecursionError:
        raise CallError("The metadata of the table cannot be shown: it is nested too deeply.") from None


def check_required(protocol: messages.TableProtocol) -> None:
    """Check that the protocol of a new managed table has the versions and features that the server requires. Raises
    CallError."""
    given = protocol.to_action()
    if given.min_reader_version < 3 or given.min_writer_version < 7:
        raise CallError("A managed table needs at least reader version 3 and writer version 7.")
    listed = {"reader": set(given.reader_features or ()), "writer": set(given.writer_features or ())}
    for role, wanted in (("reader", _READER_FEATURES), ("writer", _WRITER_FEATURES)):
        for name in wanted:
            if name not in listed[role]:
                raise CallError(f"The protocol lacks the required {role} feature {name}.")


def check_created(request: messages.CreateTable, state: TableState, ict_ms: int | None) -> None:
    """Check that a request to create a table agrees with version 0. Optional members that the request omits are not
    checked: the log's values hold. Raises CallError."""
    if ict_ms != request.last_commit_timestamp_ms:
        raise CallError(
            f"last-commit-timestamp-ms is {request.last_commit_timestamp_ms}, but the in-commit timestamp of version "
            f"0 is {ict_ms}."
        )
    for key in (ENABLE_IN_COMMIT_TIMESTAMPS.key, TABLE_ID_KEY):
        if key not in request.properties:
            raise CallError(f"The request lacks the required property {key}.")
    _check_protocol(request.protocol, state)
    if request.columns is not None:
        _check_columns(request.columns, state)
    if request.partition_columns:
        _check_partition_columns(request.partition_columns, state)
    derived = state.derived_properties()
    for key, value in request.properties.items():
        expected = derived.get(key) if is_derived(key) else state.metadata.configuration.get(key)
        if value != expected:
            raise CallError(f"The property {key} is {value!r} in the request, but {expected!r} in version 0.")
    _check_domains(request.domain_metadata, state)


def check_uniform(
    uniform: messages.Uniform | None,
    properties: Mapping[str, str],
    location: str,
    version: int,
) -> messages.IcebergConversion | None:
    """The state of the conversion to Iceberg that a request gives for the table after its commit. Raises CallError if
    the request has this state but the table's properties do not enable the conversion, or the other way round."""
    formats = {each.strip() for each in properties.get(_UNIFORM_KEY, "").split(",")}
    if (uniform is not None) != ("iceberg" in formats):
        what = "needs" if "iceberg" in formats else "must not have"
        raise CallError(f"The request {what} uniform.iceberg: {_UNIFORM_KEY} is {properties.get(_UNIFORM_KEY)!r}.")
    if uniform is None:
        return None
    given = uniform.iceberg
    if given.metadata_location is None or given.converted_delta_timestamp is None:
        raise CallError("uniform.iceberg needs metadata-location and converted-delta-timestamp.")
    if given.converted_delta_version != version:
        raise CallError(f"uniform.iceberg.converted-delta-version must be {version}.")
    if not is_below(given.metadata_location, location):
        raise CallError(f"uniform.iceberg.metadata-location must lie below {location}.")
    return given


def is_below(path: str, root: str) -> bool:
    """Whether a URL lies below another, and has no ``.``, ``..`` or empty segment below it."""
    base = f"{root.rstrip('/')}/"
    return path.startswith(base) and not {"", ".", ".."}.intersection(path[len(base) :].split("/"))


@dataclass(frozen=True, slots=True)
class Plan:
    """A checked request to update a table. ``updates``: the updates by class; a request has at most one of each
    class."""

    table_id: str
    etag: str | None
    updates: Mapping[type[Any], Any]

    def get(self, kind: type[U]) -> U | None:
        found: U | None = self.updates.get(kind)
        return found

    @property
    def changes_metadata(self) -> bool:
        return bool(self.updates.keys() - {messages.AddCommit, messages.SetLatestBackfilledVersion})


def plan_of(request: messages.UpdateTable) -> Plan:
    """Check the shape of a request. Raises CallError."""
    requirements = _by_class(request.requirements, "requirement")
    updates = _by_class(request.updates, "action")
    uuid = requirements.get(messages.AssertTableUuid)
    if uuid is None:
        raise CallError("The requirement assert-table-uuid is missing.")
    if not updates:
        raise CallError("updates must have at least one action.")
    set_, removed = updates.get(messages.SetProperties), updates.get(messages.RemoveProperties)
    if set_ and removed and (both := set_.updates.keys() & set(removed.removals)):
        raise CallError(f"set-properties and remove-properties both name {', '.join(sorted(both))}.")
    for key in (*(set_.updates if set_ else ()), *(removed.removals if removed else ())):
        if is_derived(key):
            raise CallError(f"The property {key} is derived by the server and cannot be set or removed.")
    domains, gone = updates.get(messages.SetDomainMetadata), updates.get(messages.RemoveDomainMetadata)
    if domains and gone and (both := domains.updates.keys() & set(gone.domains)):
        raise CallError(f"set-domain-metadata and remove-domain-metadata both name {', '.join(sorted(both))}.")
    added = updates.get(messages.AddCommit)
    if added is not None:
        _check_commit(added.commit)
    published = updates.get(messages.SetLatestBackfilledVersion)
    if published is not None and published.latest_published_version < 0:
        raise CallError("latest-published-version must not be negative.")
    etag = requirements.get(messages.AssertEtag)
    return Plan(uuid.uuid.lower(), etag.etag if etag else None, updates)


def _by_class(given: Iterable[Any], what: str) -> dict[type[Any], Any]:
    found: dict[type[Any], Any] = {}
    for each in given:
        if type(each) in found:
            raise CallError(f"The request has two {what}s of the type {type(each).__struct_config__.tag}.")
        found[type(each)] = each
    return found


def _check_commit(commit: messages.Commit) -> None:
    for name in ("version", "timestamp", "file_size", "file_modification_timestamp"):
        if getattr(commit, name) <= 0:
            raise CallError(f"{name.replace('_', '-')} of the commit must be positive.")


def check_agrees(plan: Plan, after: TableState) -> None:
    """Check that the metadata updates in a request are those that its commit makes. ``after``: the state after the
    commit. Raises CallError."""
    if (protocol := plan.get(messages.SetProtocol)) is not None:
        _check_protocol(protocol.protocol, after)
    if (columns := plan.get(messages.SetColumns)) is not None:
        _check_columns(columns.columns, after)
    if (partition := plan.get(messages.SetPartitionColumns)) is not None:
        _check_partition_columns(partition.partition_columns, after)
    if (properties := plan.get(messages.SetProperties)) is not None:
        for key, value in properties.updates.items():
            if (found := after.metadata.configuration.get(key)) != value:
                raise CallError(f"set-properties sets {key} to {value!r}, but the commit has {found!r}.")
    if (removed := plan.get(messages.RemoveProperties)) is not None:
        for key in removed.removals:
            if key in after.metadata.configuration:
                raise CallError(f"remove-properties removes {key}, but the commit keeps it.")
    if (domains := plan.get(messages.SetDomainMetadata)) is not None:
        _check_domains(domains.updates, after)
    if (gone := plan.get(messages.RemoveDomainMetadata)) is not None:
        for domain in gone.domains:
            if domain in after.domains:
                raise CallError(f"remove-domain-metadata removes {domain}, but the commit keeps it.")


def check_only_of_catalog(plan: Plan, state: TableState) -> None:
    """Check that a request without a commit changes only what the log does not have. Raises CallError."""
    allowed = {
        messages.SetTableComment,
        messages.SetProperties,
        messages.RemoveProperties,
        messages.SetLatestBackfilledVersion,
    }
    for kind in plan.updates.keys() - allowed:
        raise CallError(f"{kind.__struct_config__.tag} needs an add-commit in the same request: the log records it.")
    set_, removed = plan.get(messages.SetProperties), plan.get(messages.RemoveProperties)
    for key in (*(set_.updates if set_ else ()), *(removed.removals if removed else ())):
        if key.startswith(_OF_LOGS) or key in state.metadata.configuration:
            raise CallError(f"The property {key} belongs to the log: send the commit that changes it along.")


def _check_protocol(given: messages.TableProtocol, state: TableState) -> None:
    action, found = given.to_action(), state.protocol
    same = (action.min_reader_version, action.min_writer_version) == (
        found.min_reader_version,
        found.min_writer_version,
    )
    lists = ((action.reader_features, found.reader_features), (action.writer_features, found.writer_features))
    if not same or any(set(sent or ()) != set(logged or ()) for sent, logged in lists):
        raise CallError("The protocol in the request is not that of the commit.")


def _check_columns(columns: messages.Columns, state: TableState) -> None:
    if from_columns(columns) != state.schema:
        raise CallError("The columns in the request are not those of the commit.")


def _check_partition_columns(given: Iterable[str], state: TableState) -> None:
    if [each.lower() for each in given] != [each.lower() for each in state.metadata.partition_columns]:
        found = ", ".join(state.metadata.partition_columns)
        raise CallError(f"The partition columns in the request are not those of the commit: {found or 'none'}.")


def _check_domains(given: Mapping[str, dict[str, Any]], state: TableState) -> None:
    for domain, value in given.items():
        if state.domains.get(domain) != value:
            raise CallError(f"The metadata of the domain {domain} in the request is not that of the commit.")
