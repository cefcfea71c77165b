"""What the API shows of a table's metadata domains."""

from __future__ import annotations

import pytest

from deltalog.protocol.actions import DomainMetadata, Format, Metadata, Protocol
from deltalog.unity.table_state import TableState, updates_between

PROTOCOL = Protocol(min_reader_version=3, min_writer_version=7, reader_features=(), writer_features=("domainMetadata",))
METADATA = Metadata(
    id="1", format=Format(), schema_string='{"type":"struct","fields":[]}', partition_columns=(), configuration={}
)


def domain(configuration: str, removed: bool = False) -> list[DomainMetadata]:
    return [DomainMetadata(domain="mine", configuration=configuration, removed=removed)]


@pytest.mark.parametrize("configuration", ["plain text", '{"a": 1e400}', '{"a": 1}', "[1]"])
def test_each_change_of_a_domain_changes_the_etag(configuration: str) -> None:
    before = TableState.of(PROTOCOL, METADATA, [])
    after = before.after(None, None, domain(configuration))
    other = after.after(None, None, domain('{"a": 2}'))
    text = other.after(None, None, domain("other text"))
    removed = text.after(None, None, domain("", removed=True))
    assert len({before.etag(), after.etag(), other.etag(), text.etag()}) == 4
    assert removed == before and removed.etag() == before.etag()
    assert after == TableState.of(PROTOCOL, METADATA, domain(configuration))


def test_a_domain_without_a_form_in_the_api_is_not_sent() -> None:
    before = TableState.of(PROTOCOL, METADATA, [])
    assert updates_between(before, before.after(None, None, domain("plain text"))) == []
