"""DeltaStorageHandler: a pyarrow file system that reads a table's data files and writes new ones."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa
from pyarrow.fs import FileInfo, FileSelector, FileSystemHandler, FileType

from deltalog.deltalake.exceptions import translating
from deltalog.errors import CallError, ObjectNotFoundError
from deltalog.protocol.paths import is_plain
from deltalog.storage.base import LogStore
from deltalog.storage.registry import open_store

_NOT_HERE = "A table's files are changed only by commits. Write rows with write_deltalake."


class DeltaStorageHandler(FileSystemHandler):  # type: ignore[misc]
    """The files below a table's root. Methods that change existing files raise NotImplementedError: tables are changed
    by commits."""

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
        """Whether both handlers give access to the same table."""
        return isinstance(other, DeltaStorageHandler) and self._store.url == other._store.url

    def __eq__(self, other: object) -> bool:
        return self.equals(other)

    def __hash__(self) -> int:
        return hash(self._store.url)

    def normalize_path(self, path: str) -> str:
        """The path below the table root, without a slash at its beginning or end."""
        return path.strip("/")

    @translating
    def get_file_info(self, paths: list[str]) -> list[FileInfo]:
        """The kind and size of each file."""
        return [self._info(path) for path in paths]

    def _info(self, path: str) -> FileInfo:
        size = self._sizes.get(path)
        if size is None:
            if not path.strip("/"):
                return FileInfo(path, FileType.Directory)
            found = self._store.head(_inside(path))
            if found is None:
                return FileInfo(path, FileType.NotFound)
            size = found.size_bytes
        return FileInfo(path, FileType.File, size=size)

    def get_file_info_selector(self, selector: FileSelector) -> list[FileInfo]:
        """Always empty: the log, not a listing, determines which files a table has (``DeltaTable.file_uris``)."""
        return []

    @translating
    def open_input_file(self, path: str) -> pa.NativeFile:
        """Open a file for reading at any position."""
        try:
            opened = self._store.open_input(_inside(path))
        except ObjectNotFoundError as error:
            raise FileNotFoundError(error.message) from error
        if isinstance(opened, pa.NativeFile):
            return opened
        return pa.PythonFile(opened, mode="r")

    def open_input_stream(self, path: str) -> pa.NativeFile:
        """Open a file for reading."""
        return self.open_input_file(path)

    def create_dir(self, path: str, recursive: bool) -> None:
        """Does nothing, because stores have no directories."""

    def delete_dir(self, path: str) -> None:
        """Raises NotImplementedError."""
        raise NotImplementedError(_NOT_HERE)

    def delete_dir_contents(self, path: str, missing_dir_ok: bool = False) -> None:
        """Raises NotImplementedError."""
        raise NotImplementedError(_NOT_HERE)

    def delete_root_dir_contents(self) -> None:
        """Raises NotImplementedError."""
        raise NotImplementedError(_NOT_HERE)

    @translating
    def delete_file(self, path: str) -> None:
        """Delete a file. The caller must know that no version refers to the file; this method does not check it."""
        self._store.delete(_inside(path))

    def move(self, src: str, dest: str) -> None:
        """Raises NotImplementedError."""
        raise NotImplementedError(_NOT_HERE)

    def copy_file(self, src: str, dest: str) -> None:
        """Raises NotImplementedError."""
        raise NotImplementedError(_NOT_HERE)

    @translating
    def open_output_stream(self, path: str, metadata: Mapping[str, str] | None = None) -> pa.NativeFile:
        """Open a new file for writing, which is durable once it is closed. The file belongs to the table once a commit
        names it (``create_write_transaction``)."""
        return pa.PythonFile(_Output(self._store, _inside(path)), mode="w")

    def open_append_stream(self, path: str, metadata: Mapping[str, str] | None = None) -> pa.NativeFile:
        """Raises NotImplementedError."""
        raise NotImplementedError(_NOT_HERE)


def _inside(path: str) -> str:
    """The path below the table root. Raises CallError for one that could lead out of it."""
    inside = path.lstrip("/")
    if not is_plain(inside):
        raise CallError(f"{path!r} is not a plain path below the table root.")
    return inside


class _Output:
    """A new file of a store, as an object that pyarrow writes to."""

    closed = False

    def __init__(self, store: LogStore, path: str) -> None:
        self._opened = store.open_output(path)
        self._file = self._opened.__enter__()

    def write(self, data: Any) -> int:
        """Write all of ``data``."""
        return self._file.write(data)

    def tell(self) -> int:
        """The number of bytes written so far."""
        return self._file.tell()

    def flush(self) -> None:
        """Nothing: ``close`` makes the file durable."""

    def close(self) -> None:
        """Make the file durable."""
        if not self.closed:
            self.closed = True
            self._opened.__exit__(None, None, None)
