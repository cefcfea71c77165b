"""Serializes the values that the caller passes for commitInfo fields: strings and JSON values. Pure.

Spec: PROTOCOL.md#commit-provenance-information.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from deltalog.errors import CallError
from deltalog.protocol.actions import plain
from deltalog.protocol.codec import canonical_json, json_text

UserMetadata = str | Mapping[str, Any] | None


def metadata_text(user_metadata: UserMetadata) -> str | None:
    """``userMetadata``: text unchanged, a mapping as JSON. Raises CallError."""
    if user_metadata is None:
        return None
    if isinstance(user_metadata, str):
        return str(plain(user_metadata))
    if not isinstance(user_metadata, Mapping):
        raise CallError(
            f"user_metadata must be a string or a mapping of JSON values, not {type(user_metadata).__name__}."
        )
    return json_text(dict(user_metadata), sort_keys=True)


def operation_text(name: str) -> str:
    """``operation``. Raises CallError."""
    if not isinstance(name, str):
        raise CallError(f"The operation of a commit must be a string, not {name!r}.")
    return str(plain(name))


def parameter_texts(parameters: Mapping[str, Any]) -> dict[str, str]:
    """``operationParameters``: text unchanged, other values as JSON. Raises CallError."""
    return {
        name: str(plain(value)) if isinstance(value, str) else canonical_json(value)
        for name, value in _named(parameters, "parameters")
    }


def metric_texts(metrics: Mapping[str, Any]) -> dict[str, str]:
    """``operationMetrics``. Raises CallError."""
    return {name: str(value) for name, value in _named(metrics, "metrics")}


def _named(values: Mapping[str, Any], what: str) -> list[tuple[str, Any]]:
    if not isinstance(values, Mapping) or not all(isinstance(name, str) for name in values):
        raise CallError(f"The {what} of a commit must be a mapping from names to values, not {values!r}.")
    return [(plain(name), value) for name, value in values.items()]
