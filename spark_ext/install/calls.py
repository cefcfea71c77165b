"""Records the arguments of calls on PySpark's readers and writers, because PySpark does not expose these arguments."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import deltalog

_CALLS = "_deltalog_recorded"
FORMATS = ("delta", "deltalog")


@dataclass
class Calls:
    """What the calls on a reader or a writer have set, in whatever order the calls were made."""

    source: str | None = None
    mode: str | None = None
    schema: Any = None
    options: dict[str, Any] = field(default_factory=dict)
    columns: dict[str, tuple[Any, ...]] = field(default_factory=dict)
    properties: dict[str, str] = field(default_factory=dict)

    @property
    def are_ours(self) -> bool:
        """Whether the format is Delta."""
        return isinstance(self.source, str) and self.source.lower() in FORMATS

    def apply(self, target: Any, but: tuple[str, ...] = ()) -> Any:
        """Set the options on a reader or writer of spark_ext. An option that deltalog does not know has no effect, as
        in delta-spark, but causes a warning."""
        for key, value in self.options.items():
            if value is None or key.lower() in but:
                continue
            try:
                target.option(key, value)
            except deltalog.CallError as error:
                if not error.message.startswith("Unknown "):
                    raise
                warnings.warn(f"The option {key} has no effect on a Delta table. {error.message}", stacklevel=4)
        return target


def calls_of(of: Any) -> Calls:
    """The recorded calls of a reader or a writer."""
    found = vars(of).setdefault(_CALLS, Calls())
    assert isinstance(found, Calls)
    return found


def of_source(original: Any, target: Any, *args: Any, **named: Any) -> Any:
    """``format`` and ``using``."""
    found = original(target, *args, **named)
    calls_of(target).source = (*args, *named.values())[0]
    return found


def of_mode(original: Any, writer: Any, saveMode: str | None) -> Any:
    """``mode``."""
    if saveMode is not None:
        calls_of(writer).mode = saveMode
    return original(writer, saveMode)


def of_schema(original: Any, reader: Any, schema: Any) -> Any:
    """``schema``."""
    calls_of(reader).schema = schema
    return original(reader, schema)


def of_option(original: Any, target: Any, key: str, value: Any) -> Any:
    """``option``."""
    set_option(calls_of(target), key, value)
    return original(target, key, value)


def of_options(original: Any, target: Any, **options: Any) -> Any:
    """``options``."""
    for key, value in options.items():
        set_option(calls_of(target), key, value)
    return original(target, **options)


def of_property(original: Any, writer: Any, property: str, value: str) -> Any:
    """``tableProperty``."""
    calls_of(writer).properties[property] = value
    return original(writer, property, value)


def of_columns(call: str) -> Callable[..., Any]:
    """``partitionBy`` and the like."""

    def columns(original: Any, writer: Any, *cols: Any) -> Any:
        listed = cols[0] if len(cols) == 1 and isinstance(cols[0], (list, tuple)) else cols
        calls_of(writer).columns[call] = tuple(listed)
        return original(writer, *cols)

    return columns


def set_option(calls: Calls, key: str, value: Any) -> None:
    """Record an option, whose name is case-insensitive; the last value counts."""
    for earlier in [each for each in calls.options if each.lower() == key.lower()]:
        del calls.options[earlier]
    calls.options[key] = value
