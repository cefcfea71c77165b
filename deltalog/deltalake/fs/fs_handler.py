"""DeltaStorageHandler: the data files of a table as a file system of pyarrow, for reading."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa
from pyarrow.fs import FileInfo, FileSelector, FileSystemHandler, FileType

from deltalog.deltalake.exceptions import translating
from deltalog.errors import ObjectNotFoundError
from deltalog.storage.base import LogStore
from deltalog.storage.registry import open_store

_READ_ONLY = "This file system is for reading. Write rows with write_deltalake."


class DeltaStorageHandler(FileSystemHandler):  # type: ignore[misc]
    """The files below a table's root. Methods that change files raise NotImplementedError: tables are changed by
    commits."""

    @translating
    def __init__(
        self,
        table_uri: str,
        options: Mapping[str, Any] | None = None,
        known_sizes: dict[str, int] | None = None,
    ) -> None:
        self._store = open_store(table_uri, storage_options=dict(options or {}))
        self._sizes = known_sizes or {}

    @classmethod
    def from_store(cls, store: LogStore, known_sizes: dict[str, int] | None = None) -> DeltaStorageHandler:
        """A handler for an open store. ``known_sizes``: the sizes of files in bytes, by path."""
        self: DeltaStorageHandler = cls.__new__(cls)
        self._store, self._sizes = store, known_sizes or {}
        return self

    @classmethod
    def from_table(
        cls, table: Any, options: Mapping[str, Any] | None = None, known_sizes: dict[str, int] | None = None
    ) -> DeltaStorageHandler:
        """A handler for the table of ``DeltaTable._table``."""
        return cls.from_store(table.handle.reader.store, known_sizes)

    def get_type_name(self) -> str:
        """The name of the file system."""
        return "deltalog"

    def equals(self, other: Any) -> bool:
        """Whether both show the same table."""
        return isinstance(other, DeltaStorageHandler) and self._store.url == other._store.url

    def __eq__(self, other: object) -> bool:
        return self.equals(other)

    def __hash__(self) -> int:
        return hash(self._store.url)

    def normalize_path(self, path: str) -> str:
        """The path itself."""
        return path

    @translating
    def get_file_info(self, paths: list[str]) -> list[FileInfo]:
        """The kind and size of each file."""
        return [self._info(path) for path in paths]

    def _info(self, path: str) -> FileInfo:
        size = self._sizes.get(path)
        if size is None:
            found = self._store.head(path)
            if found is None:
                return FileInfo(path, FileType.NotFound)
            size = found.size_bytes
        return FileInfo(path, FileType.File, size=size)

    def get_file_info_selector(self, selector: FileSelector) -> list[FileInfo]:
        """Raises NotImplementedError: the log lists the files."""
        raise NotImplementedError("The log says which files a table has: call DeltaTable.file_uris.")

    @translating
    def open_input_file(self, path: str) -> pa.NativeFile:
        """Open a file for reading at any position."""
        try:
            opened = self._store.open_input(path)
        except ObjectNotFoundError as error:
            raise FileNotFoundError(error.message) from error
        if isinstance(opened, pa.NativeFile):
            return opened
        return pa.PythonFile(opened, mode="r")

    def open_input_stream(self, path: str) -> pa.NativeFile:
        """Open a file for reading."""
        return self.open_input_file(path)

    def create_dir(self, path: str, recursive: bool) -> None:
        """Nothing: stores have no directories."""

    def delete_dir(self, path: str) -> None:
        """Raises NotImplementedError."""
        raise NotImplementedError(_READ_ONLY)

    def delete_dir_contents(self, path: str, missing_dir_ok: bool = False) -> None:
        """Raises NotImplementedError."""
        raise NotImplementedError(_READ_ONLY)

    def delete_root_dir_contents(self) -> None:
        """Raises NotImplementedError."""
        raise NotImplementedError(_READ_ONLY)

    def delete_file(self, path: str) -> None:
        """Raises NotImplementedError."""
        raise NotImplementedError(_READ_ONLY)

    def move(self, src: str, dest: str) -> None:
        """Raises NotImplementedError."""
        raise NotImplementedError(_READ_ONLY)

    def copy_file(self, src: str, dest: str) -> None:
        """Raises NotImplementedError."""
        raise NotImplementedError(_READ_ONLY)

    def open_output_stream(self, path: str, metadata: Mapping[str, str] | None = None) -> pa.NativeFile:
        """Raises NotImplementedError."""
        raise NotImplementedError(_READ_ONLY)

    def open_append_stream(self, path: str, metadata: Mapping[str, str] | None = None) -> pa.NativeFile:
        """Raises NotImplementedError."""
        raise NotImplementedError(_READ_ONLY)
