"""Hypothesis strategies for schemas, and the number of examples of a test."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st

from deltalog.schema import ArrayType, DecimalType, MapType, PrimitiveType, StructField, StructType


def examples(most: int) -> int:
    """The number of examples of a test: ``most`` with --long, and a smaller number in other runs."""
    profile = settings.default
    assert profile is not None
    return most * profile.max_examples // 100


STORED = (
    "string", "long", "integer", "short", "byte", "float", "double",
    "boolean", "binary", "date", "timestamp", "timestamp_ntz",
)  # fmt: skip
decimals = st.integers(1, 38).flatmap(lambda p: st.integers(0, p).map(lambda s: DecimalType(p, s)))
names = st.text(st.characters(blacklist_categories=("Cs", "Cc"), blacklist_characters=" ,;{}()\n\t="), min_size=1)


def fields(types: st.SearchStrategy[object], *, metadata: bool) -> st.SearchStrategy[tuple[StructField, ...]]:
    some = st.dictionaries(
        st.text(max_size=5), st.text(max_size=5) | st.integers(-(2**63), 2**63 - 1) | st.booleans(), max_size=2
    )
    each = st.builds(StructField, names, types, st.booleans(), some if metadata else st.just({}))
    return st.lists(each, min_size=1, max_size=4, unique_by=lambda f: f.name.lower()).map(tuple)


def schemas(primitives: tuple[str, ...] = STORED, *, metadata: bool = False) -> st.SearchStrategy[StructType]:
    leaf = st.sampled_from(primitives).map(PrimitiveType) | decimals
    nested = st.recursive(
        leaf,
        lambda inner: (
            st.builds(ArrayType, inner, st.booleans())
            | st.builds(MapType, inner, inner, st.booleans())
            | fields(inner, metadata=metadata).map(StructType)
        ),
        max_leaves=6,
    )
    return fields(nested, metadata=metadata).map(StructType)
