"""WriterProperties: how data files are encoded, in the form that deltalake accepts."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum
from typing import Literal

from deltalog.parquet.file_options import DEFAULT, ENCODINGS, ColumnOptions, FileOptions

_LEVELS = {"GZIP": (0, 10, 6), "BROTLI": (0, 11, 1), "ZSTD": (1, 22, 1)}
_WRITTEN = re.compile(r"(\w+)(?:\((\d+)\))?")
_CODECS = {"UNCOMPRESSED": "none", "LZ4_RAW": "lz4"}

Encoding = Enum("Encoding", {name: name for name in ENCODINGS})  # type: ignore[misc]


class Compression(Enum):
    """The codecs of Parquet files."""

    UNCOMPRESSED = "UNCOMPRESSED"
    SNAPPY = "SNAPPY"
    GZIP = "GZIP"
    BROTLI = "BROTLI"
    LZ4 = "LZ4"
    ZSTD = "ZSTD"
    LZ4_RAW = "LZ4_RAW"

    @classmethod
    def from_str(cls, value: str) -> Compression:
        """The codec with this name, which may be in upper or lower case. Raises ValueError."""
        try:
            return cls(value.upper())
        except ValueError:
            raise ValueError(
                f"{value} is not a valid Compression. Valid values are: {[c.value for c in cls]}"
            ) from None

    def get_level_range(self) -> tuple[int, int]:
        """The lowest and the highest compression level. Raises KeyError for a codec without levels."""
        return self._levels()[:2]

    def get_default_level(self) -> int:
        """The level if none is passed. Raises KeyError for a codec without levels."""
        return self._levels()[2]

    def check_valid_level(self, level: int) -> bool:
        """True. Raises ValueError for a level that the codec does not have."""
        least, most = self.get_level_range()
        if not least <= level <= most:
            raise ValueError(f"Compression level for {self.value} should fall between {least}-{most}")
        return True

    def _levels(self) -> tuple[int, int, int]:
        if self.value not in _LEVELS:
            raise KeyError(f"{self.value} does not have a compression level.")
        return _LEVELS[self.value]


@dataclass
class BloomFilterProperties:
    """The Bloom filter of a column; ``set_bloom_filter_enabled`` says whether there is one. ``fpp``: the share of false
    positives. ``ndv``: the number of distinct values."""

    set_bloom_filter_enabled: bool | None
    fpp: float | None = None
    ndv: int | None = None

    def __post_init__(self) -> None:
        if self.fpp is not None and not 0 < self.fpp < 1:
            raise ValueError("fpp must be between 0 and 1 exclusive")

    def __str__(self) -> str:
        return f"set_bloom_filter_enabled: {self.set_bloom_filter_enabled}, fpp: {self.fpp}, ndv: {self.ndv}"


@dataclass
class ColumnProperties:
    """How one column is encoded. ``encoding``: used for a column without a dictionary."""

    dictionary_enabled: bool | None = None
    statistics_enabled: Literal["NONE", "CHUNK", "PAGE"] | None = None
    bloom_filter_properties: BloomFilterProperties | None = None
    encoding: str | None = None

    def __post_init__(self) -> None:
        if isinstance(self.encoding, str):
            if self.encoding.upper() not in ENCODINGS:
                raise ValueError(f"{self.encoding} is not a valid Encoding. Valid values are: {list(ENCODINGS)}")
            if self.dictionary_enabled:
                raise ValueError("Cannot specify dictionary_enabled=True and encoding")

    def __str__(self) -> str:
        return (
            f"dictionary_enabled: {self.dictionary_enabled}, statistics_enabled: {self.statistics_enabled}, "
            f"bloom_filter_properties: {self.bloom_filter_properties}, encoding: {self.encoding}"
        )

    def options(self) -> ColumnOptions:
        """The same for deltalog."""
        bloom = self.bloom_filter_properties
        chosen: bool | dict[str, float] | None = None
        if bloom is not None and bloom.set_bloom_filter_enabled:
            values = {name: value for name, value in (("fpp", bloom.fpp), ("ndv", bloom.ndv)) if value is not None}
            chosen = values or True
        return ColumnOptions(
            dictionary=self.dictionary_enabled,
            encoding=None if self.encoding is None else self.encoding.upper(),
            statistics=None if self.statistics_enabled is None else self.statistics_enabled != "NONE",
            bloom_filter=chosen,
        )


class WriterProperties:
    """How data files are encoded. Sizes are in bytes; None: as the writer chooses. ``compression_level``: used by GZIP,
    BROTLI and ZSTD only. ``statistics_truncate_length`` is accepted but has no effect: bounds in the log are truncated
    as in delta-spark."""

    def __init__(
        self,
        data_page_size_limit: int | None = None,
        dictionary_page_size_limit: int | None = None,
        data_page_row_count_limit: int | None = None,
        write_batch_size: int | None = None,
        max_row_group_size: int | None = None,
        compression: Literal["UNCOMPRESSED", "SNAPPY", "GZIP", "BROTLI", "LZ4", "ZSTD", "LZ4_RAW"] | None = None,
        compression_level: int | None = None,
        statistics_truncate_length: int | None = None,
        default_column_properties: ColumnProperties | None = None,
        column_properties: dict[str, ColumnProperties] | None = None,
    ) -> None:
        self.data_page_size_limit = data_page_size_limit
        self.dictionary_page_size_limit = dictionary_page_size_limit
        self.data_page_row_count_limit = data_page_row_count_limit
        self.write_batch_size = write_batch_size
        self.max_row_group_size = max_row_group_size
        self.compression: str | None = None
        self.statistics_truncate_length = statistics_truncate_length
        self.default_column_properties = default_column_properties
        self.column_properties = column_properties
        if compression is None:
            if compression_level is not None:
                raise ValueError("A compression level needs a compression: pass the compression, too.")
            return
        codec = Compression.from_str(compression)
        self.compression = codec.value
        if codec.value in _LEVELS:
            level = codec.get_default_level() if compression_level is None else compression_level
            codec.check_valid_level(level)
            self.compression = f"{codec.value}({level})"

    def __str__(self) -> str:
        columns = self.column_properties
        shown = ", ".join(f"column '{name}': {each}" for name, each in columns.items()) if columns else None
        return (
            f"WriterProperties(data_page_size_limit: {self.data_page_size_limit}, "
            f"dictionary_page_size_limit: {self.dictionary_page_size_limit}, "
            f"data_page_row_count_limit: {self.data_page_row_count_limit}, "
            f"write_batch_size: {self.write_batch_size}, max_row_group_size: {self.max_row_group_size}, "
            f"compression: {self.compression}, statistics_truncate_length: {self.statistics_truncate_length},"
            f"default_column_properties: {self.default_column_properties}, column_properties: {shown})"
        )


def file_options(properties: WriterProperties | None, target_bytes: int | None = None) -> FileOptions:
    """The writer properties, converted to deltalog's options. Raises CallError."""
    if properties is None:
        return DEFAULT if target_bytes is None else FileOptions(target_bytes=target_bytes)
    found = _WRITTEN.fullmatch(properties.compression or "")
    codec = found[1].upper() if found else None
    level = int(found[2]) if found and found[2] else None
    other = properties.default_column_properties
    return FileOptions(
        compression=None if codec is None else _CODECS.get(codec, codec.lower()),
        compression_level=min(level, 9) if codec == "GZIP" and level is not None else level,
        target_bytes=target_bytes,
        row_group_rows=properties.max_row_group_size,
        data_page_bytes=properties.data_page_size_limit,
        dictionary_page_bytes=properties.dictionary_page_size_limit,
        page_rows=properties.data_page_row_count_limit,
        write_batch_rows=properties.write_batch_size,
        other_columns=ColumnOptions() if other is None else other.options(),
        columns={name: each.options() for name, each in (properties.column_properties or {}).items()},
    )
