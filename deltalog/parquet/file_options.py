"""How Parquet files are encoded: codec, sizes of files, row groups and pages, and options of columns. Pure."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from deltalog.errors import CallError

CODECS = ("none", "snappy", "gzip", "brotli", "lz4", "zstd")
_LEVELS = {"gzip": range(10), "brotli": range(12), "zstd": range(1, 23)}
ENCODINGS = (
    "PLAIN", "RLE", "BYTE_STREAM_SPLIT", "DELTA_BINARY_PACKED", "DELTA_LENGTH_BYTE_ARRAY", "DELTA_BYTE_ARRAY",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class ColumnOptions:
    """How one column is encoded; None: the writer chooses. ``dictionary``: whether the column is dictionary-encoded.
    ``encoding``: one of ENCODINGS; it cannot be combined with a dictionary. ``statistics``: whether the files and
    the log contain bounds of this column. ``bloom_filter``: whether files have a Bloom filter for the column, or the
    ``fpp`` and ``ndv`` of the filter."""

    dictionary: bool | None = None
    encoding: str | None = None
    statistics: bool | None = None
    bloom_filter: bool | Mapping[str, Any] | None = None


NO_COLUMN_OPTIONS = ColumnOptions()


@dataclass(frozen=True, slots=True)
class FileOptions:
    """How the data files of a transaction are encoded. Sizes are in bytes; None leaves the choice to the writer.

    ``compression``: one of CODECS, with a ``compression_level`` for gzip, brotli and zstd. ``target_bytes``: no row
    group is added to a file that has reached this size. ``row_group_rows``: the maximum number of rows of a row group.
    ``write_batch_rows``: how many rows are encoded at a time. ``columns``: the options of top-level columns, keyed by
    name; ``other_columns``: the options of all other columns. Raises CallError for values that no file can have.
    """

    compression: str | None = None
    compression_level: int | None = None
    target_bytes: int | None = None
    row_group_rows: int | None = None
    data_page_bytes: int | None = None
    dictionary_page_bytes: int | None = None
    page_rows: int | None = None
    write_batch_rows: int | None = None
    other_columns: ColumnOptions = NO_COLUMN_OPTIONS
    columns: Mapping[str, ColumnOptions] = field(default_factory=dict, hash=False)

    def __post_init__(self) -> None:
        if self.compression is not None and self.compression not in CODECS:
            raise CallError(f"Unknown compression {self.compression!r}. Known: {', '.join(CODECS)}.")
        levels = _LEVELS.get(self.compression or "", range(0))
        if self.compression_level is not None and self.compression_level not in levels:
            raise CallError(
                f"{self.compression} has the compression levels {levels.start} to {levels.stop - 1}; got "
                f"{self.compression_level}."
                if levels
                else f"The compression {self.compression} has no levels. Leave the level out."
            )
        for name in ("target_bytes", "row_group_rows", "data_page_bytes", "dictionary_page_bytes", "page_rows",
                     "write_batch_rows"):  # fmt: skip
            value = getattr(self, name)
            if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < 1):
                raise CallError(f"{name} must be an integer >= 1, or None; got {value!r}.")
        for each in (self.other_columns, *self.columns.values()):
            if each.encoding is not None and (each.encoding not in ENCODINGS or each.dictionary):
                raise CallError(
                    f"A column's encoding is one of {', '.join(ENCODINGS)}, and excludes a dictionary; got {each!r}."
                )

    def with_codec(self, default: str) -> FileOptions:
        """These options with a codec: their own codec if they name one, otherwise ``default``."""
        return self if self.compression is not None else replace(self, compression=default)

    def renamed(self, names: Callable[[str], str]) -> FileOptions:
        """A copy of these options for columns that have other names."""
        return (
            replace(self, columns={names(name): each for name, each in self.columns.items()}) if self.columns else self
        )

    @property
    def has_columns(self) -> bool:
        """Whether any column has options of its own."""
        return bool(self.columns) or self.other_columns != NO_COLUMN_OPTIONS

    def of_path(self, path: str) -> ColumnOptions:
        """The options of a leaf column, which is given by its dotted path: those of its top-level column."""
        return self.columns.get(path) or self.columns.get(path.partition(".")[0], self.other_columns)

    def without_statistics(self, paths: Iterable[str]) -> set[str]:
        """The leaf columns without statistics."""
        return {path for path in paths if self.of_path(path).statistics is False} if self.has_columns else set()

    def arguments(self, paths: Collection[str], dictionaries: Collection[str] | bool) -> dict[str, Any]:
        """The arguments for pyarrow's ParquetWriter, except those for statistics. ``paths``: the dotted paths of the
        leaf columns; ``dictionaries``: the paths that get a dictionary by default; True: all of them."""
        found: dict[str, Any] = {
            "compression": self.compression,
            "compression_level": self.compression_level,
            "data_page_size": self.data_page_bytes,
            "dictionary_pagesize_limit": self.dictionary_page_bytes,
            "write_batch_size": self.write_batch_rows,
        }
        if self.page_rows is not None:
            found["max_rows_per_page"] = self.page_rows
        options = {path: self.of_path(path) for path in paths} if self.has_columns else {}
        encoded = {path: each.encoding for path, each in options.items() if each.encoding is not None}
        if encoded or any(each.dictionary is not None for each in options.values()):
            default = set(paths) if dictionaries is True else set(dictionaries or ())
            dictionaries = [
                path
                for path, each in options.items()
                if path not in encoded and (path in default if each.dictionary is None else each.dictionary)
            ]
        found["use_dictionary"] = dictionaries if isinstance(dictionaries, bool) else list(dictionaries)
        if encoded:
            found["column_encoding"] = encoded
        filters = {path: each.bloom_filter for path, each in options.items() if each.bloom_filter}
        if filters:
            found["bloom_filter_options"] = filters
        return {name: value for name, value in found.items() if value is not None}


DEFAULT = FileOptions()
