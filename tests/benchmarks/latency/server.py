"""ministack with the measured tables in its buckets: ``python -m tests.benchmarks.latency.server [--quick]``.

Uploading 500,000 objects would take longer than the measurement, so they are put directly into ministack's memory. For
each page of a listing, ministack sorts all keys of the bucket, which S3 does not do and which would add a third of a
second to each page on the longest logs; here the keys are sorted only once. Everything else, including the handling of
each measured request, is ministack's own code.
"""

from __future__ import annotations

import bisect
import datetime
import gc
import itertools
import sys
from collections.abc import Iterator, Mapping
from typing import Any

import ministack.services.s3 as s3

from tests.benchmarks.latency.logs import Log, logs, objects

ACCOUNT = "000000000000"


class Index:
    """The keys of each bucket in sorted order. They are sorted again only if their number has changed; sorting is fast,
    because most of them are already in order."""

    def __init__(self) -> None:
        self._sorted: dict[int, list[str]] = {}

    def keys(self, contents: Mapping[str, Any], prefix: str, start_after: str) -> Iterator[str]:
        """The keys that begin with ``prefix`` and sort after ``start_after``, in ascending order."""
        found = self._sorted.get(id(contents))
        if found is None or len(found) != len(contents):
            found = self._sorted[id(contents)] = sorted(contents)
        start = max(bisect.bisect_left(found, prefix), bisect.bisect_right(found, start_after))
        keys = itertools.islice(found, start, None)
        return itertools.takewhile(lambda key: key.startswith(prefix), keys)


def indexed_listing(index: Index) -> Any:
    """A replacement for ministack.services.s3._collect_list_entries that does not sort the whole bucket."""
    original = s3._collect_list_entries

    def collect(contents: dict, prefix: str, delimiter: str, max_keys: int, start_after: str) -> Any:
        # Keys with the same prefix up to the delimiter become one entry, so the number of keys that a page needs is not
        # known in advance.
        wanted: dict[str, Any] = {}
        entries: set[str] = set()
        for key in index.keys(contents, prefix, start_after):
            rest = key[len(prefix) :]
            entry = key
            if delimiter and delimiter in rest:
                entry = prefix + rest[: rest.index(delimiter) + len(delimiter)]
            if entry > start_after:
                entries.add(entry)
            if len(entries) > max_keys + 1:
                break
            wanted[key] = contents[key]
        return original(wanted, prefix, delimiter, max_keys, start_after)

    return collect


def fill(log: Log) -> int:
    """Put a table into a new bucket named after it. Returns the number of objects in the bucket."""
    contents = {}
    for number, (key, data, modified_ms) in enumerate(objects(log)):
        record = s3._build_object_record(data, {}, etag=f'"{number:032x}"')
        record["last_modified"] = _iso(modified_ms)
        contents[key] = record
    s3._buckets._data[ACCOUNT, log.name] = {"created": s3.now_iso(), "objects": contents, "region": None}
    return len(contents)


def _iso(ms: int) -> str:
    at = datetime.datetime.fromtimestamp(ms / 1000, datetime.timezone.utc)
    return at.strftime("%Y-%m-%dT%H:%M:%S.000Z")


def main() -> None:
    quick = "--quick" in sys.argv
    for log in logs(quick):
        fill(log)
    s3._collect_list_entries = indexed_listing(Index())
    gc.freeze()
    from ministack.app import main as serve

    sys.argv[1:] = []
    serve()


if __name__ == "__main__":
    main()
