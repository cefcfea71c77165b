from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyroaring import BitMap64

from deltalog.errors import InvalidActionError
from deltalog.protocol import limits
from deltalog.protocol.actions import DeletionVector
from deltalog.protocol.deletion_vectors import (
    decode_z85,
    encode,
    encode_file,
    encode_z85,
    from_file,
    from_inline,
    in_file,
    inline,
    relative_path,
)

NONE = DeletionVector("i", "", 0, 0)
positions = st.builds(
    lambda scattered, start, run: BitMap64(scattered) | BitMap64(range(start, start + run)),
    st.lists(st.integers(0, 2**40), min_size=1, max_size=50), st.integers(0, 2**33), st.integers(0, 300),
)  # fmt: skip


def test_base85_is_that_of_zeromq() -> None:
    assert encode_z85(bytes.fromhex("864FD26FB559F75B")) == "HelloWorld"
    assert decode_z85("HelloWorld", NONE).hex() == "864fd26fb559f75b"


@given(st.binary(max_size=40))
def test_base85_keeps_bytes_and_fills_the_last_group_with_zeros(data: bytes) -> None:
    assert decode_z85(encode_z85(data), NONE) == data + b"\0" * (-len(data) % 4)


@given(positions)
def test_a_vector_in_the_log_comes_back(bitmap: BitMap64) -> None:
    vector = inline(encode(bitmap), len(bitmap))
    assert (vector.storage_type, vector.offset, vector.cardinality) == ("i", None, len(bitmap))
    assert from_inline(vector) == bitmap


@given(st.lists(positions, min_size=1, max_size=4))
def test_several_vectors_share_a_file(bitmaps: list[BitMap64]) -> None:
    encoded = [encode(bitmap) for bitmap in bitmaps]
    content, offsets = encode_file(encoded)
    assert content[0] == 1 and offsets[0] == 1
    assert len(content) == 1 + sum(len(data) + 8 for data in encoded)
    for bitmap, data, offset in zip(bitmaps, encoded, offsets, strict=True):
        assert from_file(content, in_file("0" * 32, "", offset, len(data), len(bitmap))) == bitmap


@pytest.mark.parametrize("prefix", ["", "ab"])
def test_the_name_of_a_file_is_its_uuid(prefix: str) -> None:
    unique = "d2c639aa-8816-431a-aaf6-d3fe2512ff61"
    vector = in_file(unique, prefix, 4, 40, 6)
    assert vector == DeletionVector("u", prefix + "^-aqEH.-t@S}K{vb[*k^", 40, 6, 4)  # the example of PROTOCOL.md
    assert relative_path(vector) == f"{prefix}/deletion_vector_{unique}.bin".lstrip("/")


def test_stretches_of_rows_are_runs() -> None:
    assert len(encode(BitMap64(range(10_000_000)))) < 3000
    assert len(encode(BitMap64(range(30)))) <= 96


def test_encoding_leaves_the_bitmap_alone() -> None:
    bitmap = BitMap64(range(1000))
    before = bitmap.serialize()
    encode(bitmap)
    assert bitmap.serialize() == before


def test_a_vector_over_the_cap_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "MAX_VECTOR_BYTES", 40)
    encode(BitMap64([1]))
    with pytest.raises(InvalidActionError, match="MAX_VECTOR_BYTES"):
        encode(BitMap64(range(0, 200, 2)))
