"""Types that tables can have, under the name of ``deltalake.writer._conversion``, which some programs import."""

from __future__ import annotations

from typing import Any

from deltalog.deltalake import nanoseconds
from deltalog.deltalake.arrow import delta_schema, given_schema, taken_schema


def _convert_arro3_schema_to_delta(schema: Any, existing_schema: Any = None) -> Any:
    """An Arrow schema with the types that a table would get."""
    existing = None if existing_schema is None else taken_schema(existing_schema)
    return given_schema(delta_schema(taken_schema(schema), existing, nanoseconds.enabled()))
