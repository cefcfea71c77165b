"""Requests are signed completely, and credentials are never shown."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deltalog.storage.s3.signing import Credentials, encoded_path, encoded_query, signed
from tests.support.core.strategies import examples

NAMES = st.sampled_from(["range", "if-match", "if-none-match", "x-amz-checksum-crc32"])


@settings(max_examples=examples(50), deadline=None)
@given(
    st.dictionaries(NAMES, st.text("aZ09=*/", min_size=1)),
    st.dictionaries(st.sampled_from(["prefix", "start-after"]), st.text(st.characters(exclude_categories=["Cs"]))),
)
def test_every_header_is_signed(headers: dict[str, str], query: dict[str, str]) -> None:
    url = f"https://s3.example:9000{encoded_path('/bucket/a b')}?{encoded_query(query)}"
    full = signed("PUT", url, {"host": "s3.example:9000", **headers}, "hash", Credentials("KEY", "SECRET"), "eu-west-1")
    made = {name.lower(): value for name, value in full.items()}
    authorization = made.pop("authorization")
    listed = authorization.partition("SignedHeaders=")[2].partition(",")[0]
    assert listed.split(";") == sorted(made) and set(headers) < set(made)
    assert made["x-amz-content-sha256"] == "hash" and "Credential=KEY/" in authorization
    assert "SECRET" not in str(full)


def test_a_session_token_is_sent() -> None:
    full = signed("GET", "https://h/b/k", {"host": "h"}, "hash", Credentials("K", "S", "TOKEN"), "eu-west-1")
    assert full["X-Amz-Security-Token"] == "TOKEN"


def test_credentials_are_not_shown() -> None:
    shown = repr(Credentials("KEY", "SECRET", "TOKEN"))
    assert not any(word in shown for word in ("KEY", "SECRET", "TOKEN"))


@pytest.mark.parametrize(("path", "encoded"), [("/b/a b+c%20", "/b/a%20b%2Bc%2520"), ("/b/é~", "/b/%C3%A9~")])
def test_a_path_is_escaped_once(path: str, encoded: str) -> None:
    assert encoded_path(path) == encoded


def test_a_query_is_escaped_once() -> None:
    assert encoded_query({"prefix": "a b/+", "delimiter": ""}) == "prefix=a%20b%2F%2B&delimiter="
