"""Calls that raise the errors of docs/errors.md. Each runs in an empty directory."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from deltalog import errors
from deltalog.errors import DeltaLogError


@dataclass(frozen=True)
class Example:
    """``when``: the call, in the words of the page. ``call``: makes it in a directory, and raises ``kind``."""

    kind: type[DeltaLogError]
    when: str
    call: Callable[[Path], object]


EXAMPLES: dict[str, Example] = {}
_UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")


def _example(kind: type[DeltaLogError], when: str) -> Callable[[Callable[[Path], object]], Callable[[Path], object]]:
    def known(call: Callable[[Path], object]) -> Callable[[Path], object]:
        assert kind.__name__ not in EXAMPLES
        EXAMPLES[kind.__name__] = Example(kind, when, call)
        return call

    return known


def raised_by(example: Example, place: Path) -> str:
    """The message of the error that the call raises in a new directory, with names that are the same in every run."""
    place.mkdir()
    try:
        example.call(place)
    except DeltaLogError as error:
        assert type(error) is example.kind, f"{example.kind.__name__}: {error!r}"
        message = _UUID.sub("6f1c2a4e-58d3-4b0e-9c7a-1d2e3f405162", error.message)
        return message.replace(str(place), "/data")
    raise AssertionError(f"{example.kind.__name__}: the call raised nothing")


@_example(errors.TableNotFoundError, "`DeltaTable.open` of a directory without a log")
def _no_table(place: Path) -> None:
    from deltalog import DeltaTable

    DeltaTable.open(str(place / "events"))
