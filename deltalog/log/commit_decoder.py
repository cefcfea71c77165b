"""Decodes commits. In long runs of commits, adds and removes are decoded as Arrow columns, and the other actions of
many commits are decoded in one call. Decoding many commits together is several times faster than decoding each one
separately.

A run of commits that cannot safely be decoded as columns is halved repeatedly; a run that is too short to halve is
decoded one commit at a time, and an invalid commit is refused there.

Spec: PROTOCOL.md#add-file-and-remove-file.
"""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING

from deltalog.errors import InvalidCommitError
from deltalog.lazy_names import lazy_modules
from deltalog.log.replay import Commits
from deltalog.parallel import in_order
from deltalog.protocol.codec import decode_commit

if TYPE_CHECKING:
    import pyarrow as pa

    from deltalog.log import commit_columns
else:
    lazy_modules(__name__, "deltalog.log.commit_columns", pa="pyarrow")

# For commits with fewer bytes than this, columnar decoding saves little. The block size bounds the memory that long
# runs of commits need.
_MIN_BYTES, _BLOCK_BYTES = 1 << 20, 8 << 20


@contextlib.contextmanager
def garbage_collection_paused() -> Iterator[None]:
    """Disable the garbage collector while very many objects without reference cycles are created, because it would
    spend more time traversing them than it takes to create them. Nested and concurrent use is safe; if the caller has
    disabled the garbage collector, it stays disabled."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def decode_commits(versions: Sequence[int], data: Sequence[bytes]) -> Commits:
    """Decode the commits ``versions`` (ascending) from the bytes of their files. Raises InvalidCommitError."""
    files = list(zip(versions, data, strict=True))
    with garbage_collection_paused():
        return _joined(in_order(partial(_decode_block, block) for block in _blocks(files)))


def _joined(blocks: Iterator[Commits]) -> Commits:
    found = list(blocks)
    return Commits([action for each in found for action in each.actions], [run for each in found for run in each.runs])


def _blocks(files: Sequence[tuple[int, bytes]]) -> Iterator[list[tuple[int, bytes]]]:
    block: list[tuple[int, bytes]] = []
    size = 0
    for version, data in files:
        if block and size + len(data) > _BLOCK_BYTES:
            yield block
            block, size = [], 0
        block.append((version, data))
        size += len(data)
    if block:
        yield block


def _decode_block(block: Sequence[tuple[int, bytes]]) -> Iterator[Commits]:
    """The commits of a block, which is halved to isolate commits that cannot be decoded as columns."""
    size = sum(len(data) for _, data in block)
    if not _MIN_BYTES <= size <= _BLOCK_BYTES:
        yield Commits([decode_commit(data, version) for version, data in block])
        return
    try:
        commits = commit_columns.as_columns(block)
    except (pa.ArrowException, ValueError, InvalidCommitError):
        middle = len(block) // 2
        if middle:
            yield from _decode_block(block[:middle])
            yield from _decode_block(block[middle:])
        else:
            yield Commits([decode_commit(data, version) for version, data in block])
    else:
        yield commits
