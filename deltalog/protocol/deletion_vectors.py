"""Decodes deletion vectors into sets of deleted row positions, and encodes such sets. Pure.

Spec: PROTOCOL.md#deletion-vector-descriptor-schema, #deletion-vector-format, #derived-fields.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Sequence

from pyroaring import BitMap64

from deltalog.errors import InvalidActionError, InvalidDataFileError
from deltalog.protocol import limits
from deltalog.protocol.actions import DeletionVector

_MAGIC = 1681511377
_Z85 = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"
_Z85_VALUES = {character: value for value, character in enumerate(_Z85)}
_UUID_LENGTH = 20
_FILE_VERSION = b"\x01"


def relative_path(vector: DeletionVector) -> str:
    """The path, below the table root, of the file that contains a vector of storage type ``u``. Raises
    InvalidDataFileError."""
    text = vector.path_or_inline_dv
    if len(text) < _UUID_LENGTH:
        raise _invalid(vector, f"its path {text!r} is shorter than an encoded UUID")
    prefix, raw = text[:-_UUID_LENGTH], decode_z85(text[-_UUID_LENGTH:], vector).hex()
    name = f"deletion_vector_{raw[:8]}-{raw[8:12]}-{raw[12:16]}-{raw[16:20]}-{raw[20:]}.bin"
    return f"{prefix}/{name}" if prefix else name


def file_of(vector: DeletionVector | None) -> str | None:
    """The path of the file that contains a vector, in the form in which the log has paths: relative or absolute, and
    percent-encoded. None for an inline vector, or if there is no vector. Raises InvalidDataFileError."""
    if vector is None or vector.storage_type == "i":
        return None
    return relative_path(vector) if vector.storage_type == "u" else vector.path_or_inline_dv


def decode_z85(text: str, vector: DeletionVector) -> bytes:
    """Decode ZeroMQ's base85: five characters for four bytes. Raises InvalidDataFileError."""
    if len(text) % 5 or any(character not in _Z85_VALUES for character in text):
        raise _invalid(vector, "its text is not base85 of whole groups")
    out = bytearray()
    for start in range(0, len(text), 5):
        value = 0
        for character in text[start : start + 5]:
            value = value * 85 + _Z85_VALUES[character]
        # Some writers pad the last group so that it exceeds 32 bits. The excess bits are padding, so they are cut off.
        out += (value & 0xFFFFFFFF).to_bytes(4, "big")
    return bytes(out)


def from_inline(vector: DeletionVector) -> BitMap64:
    """The row positions in a deletion vector of storage type ``i`` (inline). Raises InvalidDataFileError."""
    length = len(vector.path_or_inline_dv)
    if length > limits.MAX_INLINE_VECTOR_BYTES:
        raise _invalid(vector, f"its inline size in bytes {limits.over('MAX_INLINE_VECTOR_BYTES', length)}")
    data = decode_z85(vector.path_or_inline_dv, vector)
    if not vector.size_in_bytes <= len(data) < vector.size_in_bytes + 4:
        raise _invalid(vector, f"it has {len(data)} bytes inline, but claims {vector.size_in_bytes}")
    return _positions(data[: vector.size_in_bytes], vector)


def needed_bytes(vector: DeletionVector) -> int:
    """The number of bytes that ``from_file`` needs from the start of a vector's file; 1 if the vector's size is
    invalid, because ``from_file`` then refuses it."""
    if not 0 <= vector.size_in_bytes <= limits.MAX_VECTOR_BYTES:
        return 1
    return max((vector.offset or 0) + 4 + vector.size_in_bytes + 4, 1)


def from_file(data: bytes, vector: DeletionVector) -> BitMap64:
    """Decode the positions of a vector from the content of its file, of which at least the first ``needed_bytes`` must
    be passed. Raises InvalidDataFileError."""
    start = vector.offset or 0
    end = start + 4 + vector.size_in_bytes
    if data[:1] != _FILE_VERSION:
        raise _invalid(vector, "its file is not of format version 1")
    if vector.size_in_bytes > limits.MAX_VECTOR_BYTES:
        raise _invalid(vector, f"its size in bytes {limits.over('MAX_VECTOR_BYTES', vector.size_in_bytes)}")
    if end + 4 > len(data):
        raise _invalid(vector, f"its file ends at byte {len(data)}, before byte {end + 4}")
    (size,) = struct.unpack_from(">i", data, start)
    if size != vector.size_in_bytes:
        raise _invalid(vector, f"its size is {size} bytes in the file, but {vector.size_in_bytes} in the log")
    body = data[start + 4 : end]
    (checksum,) = struct.unpack_from(">I", data, end)
    if zlib.crc32(body) != checksum:
        raise _invalid(vector, "its checksum does not match")
    return _positions(body, vector)


def _positions(data: bytes, vector: DeletionVector) -> BitMap64:
    if len(data) < 12 or struct.unpack_from("<i", data)[0] != _MAGIC:
        raise _invalid(vector, "it does not begin with the magic number")
    if struct.unpack_from("<q", data, 4)[0] > len(data):
        raise _invalid(vector, "it claims more buckets than it has bytes")
    try:
        positions = BitMap64.deserialize(data[4:])
    except (ValueError, MemoryError) as error:
        raise _invalid(vector, f"its bitmap cannot be read: {error}") from None
    if len(positions) != vector.cardinality:
        raise _invalid(vector, f"it has {len(positions)} positions, but {vector.cardinality} according to the log")
    return positions


# ---------------------------------------------------------------------------------------------- encoding


def encode(positions: BitMap64) -> bytes:
    """Encode positions as the magic number followed by the bitmap in the portable format, with contiguous rows as runs.

    Raises InvalidActionError for a vector over the cap.
    """
    compact = BitMap64(positions)
    compact.run_optimize()
    data: bytes = struct.pack("<i", _MAGIC) + compact.serialize()
    if len(data) > limits.MAX_VECTOR_BYTES:
        raise InvalidActionError(f"A deletion vector: its size in bytes {limits.over('MAX_VECTOR_BYTES', len(data))}")
    return data


def encode_z85(data: bytes) -> str:
    """Encode as ZeroMQ's base85, padding the bytes with zeros to whole groups of four."""
    out = []
    for start in range(0, len(data), 4):
        value = int.from_bytes(data[start : start + 4].ljust(4, b"\0"), "big")
        group = [""] * 5
        for place in range(4, -1, -1):
            value, digit = divmod(value, 85)
            group[place] = _Z85[digit]
        out += group
    return "".join(out)


def inline(data: bytes, cardinality: int) -> DeletionVector:
    """The descriptor (storage type ``i``) of an encoded vector that is stored inline in the log."""
    return DeletionVector("i", encode_z85(data), len(data), cardinality)


def encode_file(vectors: Sequence[bytes]) -> tuple[bytes, list[int]]:
    """The content of a file with these encoded vectors, and the offset of each vector."""
    content, offsets = bytearray(_FILE_VERSION), []
    for data in vectors:
        offsets.append(len(content))
        content += struct.pack(">i", len(data)) + data + struct.pack(">I", zlib.crc32(data))
    return bytes(content), offsets


def in_file(unique: str, prefix: str, offset: int, size_bytes: int, cardinality: int) -> DeletionVector:
    """The descriptor (storage type ``u``) of a vector in the file that ``relative_path`` returns.

    ``unique``: the UUID of the file, as a string. ``prefix``: the name of the file's directory, or empty.
    """
    name = prefix + encode_z85(bytes.fromhex(unique.replace("-", "")))
    return DeletionVector("u", name, size_bytes, cardinality, offset)


def _invalid(vector: DeletionVector, why: str) -> InvalidDataFileError:
    return InvalidDataFileError(
        f"The deletion vector {vector.unique_id[:200]!r} cannot be used: {why}. Without it, deleted rows would be "
        "returned; restore its file.",
        path=vector.path_or_inline_dv,
    )
