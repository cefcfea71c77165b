"""char(n) and varchar(n) in the metadata of text columns."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from deltalog import CorruptTableError
from deltalog.protocol import char_varchar
from deltalog.protocol.char_varchar import SIZED_KEY, Length
from deltalog.schema import ArrayType, PrimitiveType, StructField

STRING = PrimitiveType("string")


def column(declared: str, data_type: object = STRING) -> StructField:
    return StructField("c", data_type, metadata={SIZED_KEY: declared})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("declared", "length"),
    [
        ("char(3)", Length(True, 3)),
        ("CHAR( 3 )", Length(True, 3)),
        ("varchar(20)", Length(False, 20)),
        ("char()", None),
        ("char(-1)", None),
        ("char(1234567890)", None),
        ("array<char(3)>", None),
        ("string", None),
    ],
)
def test_the_declared_length(declared: str, length: Length | None) -> None:
    assert char_varchar.length_of(column(declared)) == length
    padded = length if length is not None and length.padded else None
    assert char_varchar.char_length([column(declared)]) == (None if padded is None else padded.limit)


def test_only_text_has_a_length() -> None:
    assert char_varchar.length_of(StructField("c", STRING)) is None
    assert char_varchar.length_of(column("char(3)", PrimitiveType("long"))) is None
    assert char_varchar.declared(StructField("c", STRING)) is None


def test_the_last_field_of_a_path_counts() -> None:
    assert char_varchar.char_length([column("char(3)"), column("char(4)")]) == 4


def test_a_length_over_the_cap_names_the_column() -> None:
    with pytest.raises(CorruptTableError, match=r"Column c is declared char\(999999999\)"):
        char_varchar.char_length([column("char(999999999)")])


def test_chars_inside_other_types() -> None:
    assert char_varchar.has_char_inside(column("array<char(3)>", ArrayType(STRING)))
    assert not char_varchar.has_char_inside(column("array<varchar(3)>", ArrayType(STRING)))
    assert not char_varchar.has_char_inside(column("char(3)"))
    assert not char_varchar.has_char_inside(StructField("c", STRING))


def test_padding_counts_characters() -> None:
    assert char_varchar.padded(pa.array(["ä", "", None, "abcd"]), 3).to_pylist() == ["ä  ", "   ", None, "abcd"]


@given(st.text(st.characters(codec="utf-8"), max_size=6), st.text(st.characters(codec="utf-8"), max_size=6))
def test_no_padded_text_is_above_the_bound(text: str, high: str) -> None:
    """The upper bound holds for any string that is at most ``high`` before padding."""
    if text.encode() > high.encode():
        text, high = high, text
    bound = char_varchar.upper_bound(pa.array([high]), 4).to_pylist()[0]
    assert char_varchar.padded(pa.array([text]), 4).to_pylist()[0].encode() <= bound.encode()
