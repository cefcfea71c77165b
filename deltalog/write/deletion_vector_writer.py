"""Writes deletion vectors into files below the table's root.

The protocol allows small deletion vectors inline in the log. deltalog reads but does not write them, because
delta-spark's VACUUM fails with a MatchError on a table that has one
(VacuumCommand.getDeletionVectorRelativePathAndSize, 3.1 to 4.4).

Spec: PROTOCOL.md#deletion-vectors, #deletion-vector-file-storage-format, #deletion-vector-files,
#writer-requirement-for-deletion-vectors.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import msgspec
from pyroaring import BitMap64

from deltalog.protocol import deletion_vectors
from deltalog.protocol.actions import DeletionVector
from deltalog.storage.base import LogStore

# Some readers fetch the whole file for each deletion vector, so deltalog keeps these files small.
FILE_BYTES = 2 << 20


def write_deletion_vectors(
    store: LogStore,
    vectors: Sequence[BitMap64],
    new_uuid: Callable[[], str],
    prefix_length: int,
    written: Callable[[str], None],
) -> list[DeletionVector]:
    """Store sets of row positions as deletion vectors; they are durable when the call returns. Returns the descriptors
    of the vectors, in the order of the sets.

    ``prefix_length``: the length of the random name of a file's directory, in characters; 0: no directory.
    ``written`` is called with the path of each file before it is written. Raises InvalidActionError for a vector over
    the size limit, StoreError. Cost: 1 PUT for each FILE_BYTES of vectors.
    """
    encoded = [deletion_vectors.encode(positions) for positions in vectors]
    found: dict[int, DeletionVector] = {}
    for numbers in _packed(encoded):
        unique = new_uuid()
        prefix = unique.replace("-", "")[-prefix_length:] if prefix_length else ""
        content, offsets = deletion_vectors.encode_file([encoded[number] for number in numbers])
        for number, offset in zip(numbers, offsets, strict=True):
            size, cardinality = len(encoded[number]), len(vectors[number])
            found[number] = deletion_vectors.in_file(unique, prefix, offset, size, cardinality)
        path = deletion_vectors.relative_path(found[numbers[0]])
        written(path)
        store.put(path, content)
    return [found[number] for number in range(len(vectors))]


def _packed(encoded: Sequence[bytes]) -> Iterator[list[int]]:
    """The indexes of the vectors, in groups of at most FILE_BYTES; a larger vector is in a group by itself."""
    group: list[int] = []
    size = 0
    for number, data in enumerate(encoded):
        if group and size + len(data) > FILE_BYTES:
            yield group
            group, size = [], 0
        group.append(number)
        size += len(data)
    if group:
        yield group


def masked_statistics(text: str | None, rows: int) -> str:
    """The statistics of a file with a deletion vector: the bounds are valid but no longer tight.

    ``rows``: the number of rows in the Parquet file, including deleted rows; the protocol requires this number for a
    file with a deletion vector. The JSON text of the bounds is kept unchanged. Spec: PROTOCOL.md#per-file-statistics.
    """
    try:
        statistics = msgspec.json.decode(text or "{}", type=dict[str, msgspec.Raw])
    except msgspec.DecodeError:
        statistics = {}
    statistics["numRecords"] = msgspec.Raw(str(rows).encode())
    statistics["tightBounds"] = msgspec.Raw(b"false")
    return msgspec.json.encode(statistics).decode()
