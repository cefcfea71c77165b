from __future__ import annotations

import hashlib
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deltalog.log.checkpoint.last_checkpoint import checksum, encode_hint, read_hint


@given(st.integers(0, 2**63 - 1), st.integers(0, 2**40), st.integers(0, 2**40), st.integers(0, 2**40))
def test_what_is_written_is_read(version: int, size: int, size_bytes: int, files: int) -> None:
    data = encode_hint(version, size, size_bytes, files)
    assert read_hint(data) == version
    body = json.loads(data)
    assert body["checksum"] == checksum(body)
    assert {k: body[k] for k in ("size", "sizeInBytes", "numOfAddFiles")} == {
        "size": size, "sizeInBytes": size_bytes, "numOfAddFiles": files,
    }  # fmt: skip


def test_the_canonical_form_of_the_protocol() -> None:
    """The worked example in PROTOCOL.md, section "How to canonicalize a JSON"."""
    body = {
        "k0": "'v 0'",
        "checksum": "adsaskfljadfkjadfkj",
        "k1": {"k2": 2, "k3": ["v3", [1, 2], {"k4": "v4", "k5": ["v5", "v6", "v7"]}]},
    }
    canonical = (
        '"k0"="%27v%200%27","k1"+"k2"=2,"k1"+"k3"+0="v3","k1"+"k3"+1+0=1,"k1"+"k3"+1+1=2,"k1"+"k3"+2+"k4"="v4",'
        '"k1"+"k3"+2+"k5"+0="v5","k1"+"k3"+2+"k5"+1="v6","k1"+"k3"+2+"k5"+2="v7"'
    )
    assert checksum(body) == hashlib.md5(canonical.encode(), usedforsecurity=False).hexdigest()
    assert checksum(body) == "6a92d155a59bf2eecbd4b4ec7fd1f875"


def test_a_hint_without_a_checksum_is_taken() -> None:
    assert read_hint(b'{"version":3,"size":10}') == 3
    assert read_hint(b'{"version":0}') == 0


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{",
        b"null",
        b"7",
        b"[]",
        b'"version"',
        b"{}",
        b'{"version":"3"}',
        b'{"version":-1}',
        b'{"version":1.0}',
        b'{"version":true}',
        b'{"version":9223372036854775808}',
        b'{"version":3,"checksum":"0000"}',
        b"\xff",
        b"[" * 100_000,
    ],
)
def test_torn_and_wrong_hints_are_none(data: bytes) -> None:
    assert read_hint(data) is None


@given(st.data())
def test_no_truncation_of_a_hint_is_believed(data: st.DataObject) -> None:
    whole = encode_hint(12, 34, 56, 7)
    assert read_hint(whole[: data.draw(st.integers(0, len(whole) - 1))]) is None
