from __future__ import annotations

from typing import Any

import msgspec
import pytest

from deltalog import CallError, DeltaTable
from deltalog.engine import Protocol
from deltalog.errors import InvalidActionError, InvalidPropertyError
from deltalog.protocol import features
from deltalog.protocol.actions import DomainMetadata
from deltalog.protocol.schema import PrimitiveType
from deltalog.schema import StructField, StructType
from deltalog.write.metadata_changes import MetadataChanges
from tests.support.core import SCHEMA, environment, memory, rows


def changes(**properties: str) -> MetadataChanges:
    """Changes to the metadata of a table that has one row and the given properties."""
    named = {name.replace("_", "."): value for name, value in properties.items()}
    table = DeltaTable.create(memory(), SCHEMA, environment=environment(), data=rows(1), properties=named)
    return MetadataChanges(table.snapshot().log, None, None, environment().new_uuid)


def test_without_a_change_all_is_as_the_base_has_it() -> None:
    given = changes()
    assert given.base is not None
    assert (given.metadata, given.protocol) == (given.base.metadata, given.base.protocol)
    assert given.changed_metadata is None and given.changed_protocol is None and given.domains == ()
    assert not given.depends_on_metadata and not given.depends_on_files


def test_a_later_base_is_followed() -> None:
    table = DeltaTable.create(memory(), SCHEMA, environment=environment())
    given = MetadataChanges(table.snapshot().log, None, None, environment().new_uuid)
    table.set_properties({"a": "b"})
    given.start_from(table.snapshot().log)
    assert given.metadata.configuration == {"a": "b"}


def test_setting_what_is_set_changes_nothing_and_depends_on_it() -> None:
    given = changes(owner="me")
    given.set_properties({"owner": "me"})
    assert given.changed_metadata is None and given.depends_on_metadata


def test_a_property_brings_its_feature() -> None:
    given = changes()
    given.set_properties({"delta.enableDeletionVectors": "true", "a": "b"})
    assert given.changed_protocol is not None and given.changed_metadata is not None
    assert "deletionVectors" in features.writer_features(given.protocol)
    assert given.changed_metadata.configuration == {"delta.enableDeletionVectors": "true", "a": "b"}
    given.unset_properties(["a", "absent"])
    assert given.metadata.configuration == {"delta.enableDeletionVectors": "true"}


def test_a_transaction_turns_row_tracking_on_only_where_all_files_have_ids() -> None:
    with pytest.raises(InvalidPropertyError, match="1 files have no row ids"):
        changes().set_properties({"delta.enableRowTracking": "true"})
    empty = DeltaTable.create(memory(), SCHEMA, environment=environment())
    given = MetadataChanges(empty.snapshot().log, None, None, environment().new_uuid)
    given.set_properties({"delta.enableRowTracking": "true"})
    assert given.depends_on_files


def test_constraints_are_named_without_regard_to_case() -> None:
    given = changes()
    given.set_constraint("Positive", "id > 0")
    given.set_constraint("positive", "id > 1")
    assert given.metadata.configuration == {"delta.constraints.positive": "id > 1"}
    assert "checkConstraints" in features.writer_features(given.protocol)
    given.set_constraint("POSITIVE", None)
    assert given.metadata.configuration == {}


def test_a_schema_and_its_partition_columns() -> None:
    given = changes()
    wider = StructType((*given.metadata.schema.fields, StructField("x", PrimitiveType("long"))))
    given.set_schema(wider, ["x"])
    assert given.metadata.schema == wider and given.metadata.partition_columns == ("x",)
    given.set_description(None, "what it holds")
    assert (given.metadata.name, given.metadata.description) == (None, "what it holds")


@pytest.mark.parametrize(
    "change",
    [
        lambda given: given.set_protocol({"minReaderVersion": 1}),
        lambda given: given.set_protocol(Protocol(min_reader_version=True, min_writer_version="2")),  # type: ignore[arg-type]
        lambda given: given.set_state(given.protocol, msgspec.structs.replace(given.metadata, created_time=2**63)),
        lambda given: given.stage_domain(DomainMetadata(domain="d", configuration=5, removed=False)),  # type: ignore[arg-type]
    ],
    ids=["no protocol", "protocol of other types", "metadata", "domain"],
)
def test_what_cannot_be_read_back_is_refused_when_it_is_staged(change: Any) -> None:
    given = changes()
    with pytest.raises(InvalidActionError):
        change(given)
    assert given.changed_metadata is None and given.changed_protocol is None and given.domains == ()


def test_the_last_change_of_a_domain_counts() -> None:
    given = changes()
    given.set_domain("mine", "1")
    given.set_domain("other", "2")
    given.set_domain("mine", "3")
    assert [(each.domain, each.configuration) for each in given.domains] == [("other", "2"), ("mine", "3")]
    assert "domainMetadata" in features.writer_features(given.protocol)


def test_domains_are_removed_where_they_are() -> None:
    table = DeltaTable.create(memory(), SCHEMA, environment=environment())
    table.set_domain_metadata("mine", "1")
    given = MetadataChanges(table.snapshot().log, None, None, environment().new_uuid)
    given.remove_domain("absent")
    assert not given.domains
    given.remove_domain("mine")
    assert [(each.domain, each.removed) for each in given.domains] == [("mine", True)]


@pytest.mark.parametrize("name", ["delta.rowTracking", "", None])
def test_domains_of_delta_are_not_changed(name: Any) -> None:
    for change in (lambda given: given.set_domain(name, "x"), lambda given: given.remove_domain(name)):
        with pytest.raises(CallError):
            change(changes())
