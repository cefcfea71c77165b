"""Types that tables can have, in a module with the same name as ``deltalake.writer._conversion``, which some programs
import."""

from __future__ import annotations

from typing import Any

from deltalog.deltalake import nanoseconds
from deltalog.deltalake.arrow import delta_schema, given_schema, taken_schema


def _convert_arro3_schema_to_delta(schema: Any, existing_schema: Any = None) -> Any:
    """An Arrow schema, with the types that a table created from it would have."""
    existing = None if existing_schema is None else taken_schema(existing_schema)
    return given_schema(delta_schema(taken_schema(schema), existing, nanoseconds.enabled()))
