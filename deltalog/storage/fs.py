"""The store for the local disk and for mounted file systems.

Exclusive creation uses ``link``: the bytes are written to an unnamed temporary file (``O_TMPFILE``; a hidden name if
the file system does not support it), fsynced, and linked to the final name, which fails if that name exists. Readers
therefore see either a complete file or none, even if the process is killed. With ``O_CREAT|O_EXCL`` on the final
name, a killed process could leave a partial file, and with "check, then rename", two writers could both win. So neither
is used.

NFS: ``link`` is atomic, but on a network file system the reply can be lost, or a retransmission can fail with EEXIST.
In both cases, the link count of the temporary file shows whether the link was created. Attribute caches can hide new
commits for some seconds: mount with ``actimeo=0`` or ``lookupcache=none`` if several machines write.

``durability`` says what fsync means on macOS and Windows, and ``windows`` has the store for Windows.
"""

from __future__ import annotations

import contextlib
import errno
import itertools
import os
import re
import uuid
from collections.abc import Callable, Iterator, Sequence
from stat import S_ISDIR, S_ISLNK, S_ISREG
from typing import TYPE_CHECKING, Any, BinaryIO, TypeVar

from deltalog.errors import CallError, ObjectNotFoundError, PathExistsError, StoreError
from deltalog.lazy_names import lazy_modules
from deltalog.protocol.paths import LOG_DIRECTORY, has_all, has_some, is_within
from deltalog.storage import durability, windows_paths
from deltalog.storage.base import Entry, EntryKind, FileMeta, LogStore, PutOutcome, WalkPart, keep_cleanup_errors
from deltalog.storage.mounts import mount_points_below
from deltalog.storage.open_directories import OpenDirectories, OwnDirectories, emptied, open_without_links

if TYPE_CHECKING:
    import urllib.parse as urls
else:
    lazy_modules(__name__, urls="urllib.parse")

T = TypeVar("T")

# O_BINARY, because Windows otherwise changes the ends of lines.
_NEW_FILE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0)
_READ = os.O_RDONLY | durability.FLAGS
_TEMPORARY_NAME = re.compile(r"\.[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\.tmp")
_O_TMPFILE = getattr(os, "O_TMPFILE", 0)
_SMALL_BYTES = 16_384
_MOST_BUFFER_BYTES = 1 << 20
_LISTED_AT_ONCE = 4_096
_JUNCTION_TAG = 0xA0000003  # IO_REPARSE_TAG_MOUNT_POINT
_LEAST_FOR_BATCH = 4
# Errors that are raised if an entry to remove has changed since the listing: a parent is now a link or a file, or the
# directory is not empty.
_CHANGED_ERRNOS = {errno.ELOOP, errno.ENOTDIR, errno.ENOTEMPTY, errno.EEXIST, errno.EBUSY}
# Errors for a path that does not exist or leads through a link or a file.
_ABSENT_ERRNOS = {errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.ENAMETOOLONG}
_NO_TMPFILE_ERRNOS = {errno.EOPNOTSUPP, errno.EISDIR, errno.ENOENT, errno.EINVAL, errno.EPERM, errno.EXDEV}


class LocalStore(LogStore):
    """A table directory in the local file system. ``root`` is made absolute; symbolic links in it are not resolved."""

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.root,)  # the other process may have another working directory

    def __init__(self, root: str | os.PathLike[str]) -> None:
        self.root = os.path.abspath(os.fspath(root))
        self.url = self.root
        self._known_directories: set[str] = set()
        self._tmpfile_works = bool(_O_TMPFILE)

    def put_if_absent(self, path: str, data: bytes) -> PutOutcome:
        return self._create(path, lambda temporary: temporary.write(data))

    def put_stream_if_absent(self, path: str, write: Callable[[BinaryIO], object]) -> PutOutcome:
        return self._create(path, lambda temporary: temporary.write_stream(write))

    def _create(self, path: str, fill: Callable[[_TemporaryFile], None]) -> PutOutcome:
        target = self._absolute(path)
        directory = self._make_directory(os.path.dirname(target))
        with store_errors("write", target):
            if os.path.lexists(target):
                return PutOutcome.EXISTS
            temporary = _TemporaryFile(directory, unnamed=self._tmpfile_works)
        with contextlib.closing(temporary):
            with store_errors("write", target):
                fill(temporary)
                try:
                    temporary.link_to(target)
                except FileExistsError:
                    if not temporary.was_linked():
                        return PutOutcome.EXISTS
                except OSError as error:
                    if temporary.is_unnamed and error.errno in _NO_TMPFILE_ERRNOS:
                        self._tmpfile_works = False
                        return self._create(path, fill)
                    if not temporary.was_linked():
                        raise
            try:
                self._flush_directory(directory)
            except OSError:
                return PutOutcome.UNKNOWN
        return PutOutcome.COMMITTED

    def link_if_absent(self, names: Sequence[tuple[str, str, int]]) -> int:
        done, directories = 0, set()
        for old, new, size_bytes in names:
            source, target = self._absolute(old), self._absolute(new)
            try:
                status = os.lstat(source)
                if not S_ISREG(status.st_mode) or status.st_size != size_bytes:
                    break
                os.link(source, target)
            except OSError:  # file systems without hard links also raise this error; the caller then copies the objects
                break
            done += 1
            directories.add(os.path.dirname(target))
        for directory in directories:
            with store_errors("write", directory):
                self._flush_directory(directory)
        return done

    def put(self, path: str, data: bytes, *, durable: bool = True) -> None:
        target = self._absolute(path)
        directory = self._make_directory(os.path.dirname(target))
        with store_errors("write", target):
            temporary = _TemporaryFile(directory, unnamed=False)
            with contextlib.closing(temporary):
                temporary.write(data, durable=durable)
                # Hadoop keeps a .crc file next to each local file, and would reject new content because of an old .crc
                # file.
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(os.path.join(directory, f".{os.path.basename(target)}.crc"))
                temporary.rename_to(target, self._replace)
            if durable:
                self._flush_directory(directory)

    def get(self, path: str, length: int | None = None) -> bytes:
        target = self._absolute(path)
        # Does not use open(), because 10,000 commits need 10,000 small reads, and file objects would double the number
        # of system calls.
        try:
            descriptor = os.open(target, _READ)
            try:
                return _read(descriptor, length)
            finally:
                os.close(descriptor)
        except OSError as error:
            raise _store_error("read", target, error) from error

    def get_many(self, paths: Sequence[str], length: int | None = None) -> list[bytes]:
        """See LogStore. Each directory is opened once, and its files are opened relative to it. For small files, this
        method takes a third of the time that reading them one by one takes."""
        if len(paths) < _LEAST_FOR_BATCH:
            return [self.get(path, length) for path in paths]
        return self._read_each(paths, lambda descriptor, name: _read(descriptor, length))

    def get_many_with_meta(self, paths: Sequence[str], length: int | None = None) -> list[tuple[bytes, FileMeta]]:
        return self._read_each(
            paths, lambda descriptor, name: (_read(descriptor, length), meta_of(name, os.fstat(descriptor)))
        )

    def _read_each(self, paths: Sequence[str], read: Callable[[int, str], T]) -> list[T]:
        """The result of ``read`` for each file; ``read`` is called with the file's descriptor and name."""
        found: list[T] = []
        path = ""
        try:
            with contextlib.closing(OpenDirectories(self._absolute)) as opened:
                for path in paths:
                    directory, _, name = path.rpartition("/")
                    descriptor = os.open(name, _READ, dir_fd=opened[directory])
                    try:
                        found.append(read(descriptor, name))
                    finally:
                        os.close(descriptor)
        except OSError as error:
            raise _store_error("read", self._absolute(path), error) from error
        return found

    def list_from(
        self, directory: str, start: str = "", *, stat: bool = True, limit: int | None = None
    ) -> list[FileMeta]:
        if not stat:
            return [FileMeta(name, None, None) for name in sorted(self.list_names(directory, start, limit=limit))]
        target = self._absolute(directory)
        with store_errors("list", target):
            try:
                above = os.open(target, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            except (FileNotFoundError, NotADirectoryError):
                return []
            try:
                found: list[FileMeta] = []
                for name in sorted(name for name in os.listdir(above) if name >= start):
                    if len(found) == limit:
                        break
                    try:
                        status = os.stat(name, dir_fd=above)
                    except FileNotFoundError:
                        continue  # removed between listing and stat
                    if not S_ISDIR(status.st_mode):
                        found.append(meta_of(name, status))
                return found
            finally:
                os.close(above)

    def list_names(self, directory: str, start: str = "", *, limit: int | None = None) -> list[str]:
        target = self._absolute(directory)
        with store_errors("list", target):
            try:
                with os.scandir(target) as entries:
                    later = (entry for entry in entries if entry.name >= start) if start else entries
                    names = [entry.name for entry in later if not entry.is_dir()]
                return names if limit is None else sorted(names)[:limit]
            except (FileNotFoundError, NotADirectoryError):
                return []

    def head(self, path: str) -> FileMeta | None:
        target = self._absolute(path)
        with store_errors("stat", target):
            try:
                return meta_of(os.path.basename(target), os.stat(target))
            except (FileNotFoundError, NotADirectoryError):
                return None

    def head_many(self, paths: Sequence[str]) -> list[FileMeta | None]:
        """See LogStore. Each directory is opened once, as in ``get_many``."""
        if len(paths) < _LEAST_FOR_BATCH:
            return [self.head(path) for path in paths]
        found: list[FileMeta | None] = []
        path = paths[0]
        try:
            with contextlib.closing(OpenDirectories(self._absolute)) as opened:
                for path in paths:
                    directory, _, name = path.rpartition("/")
                    try:
                        found.append(meta_of(name, os.stat(name, dir_fd=opened[directory])))
                    except (FileNotFoundError, NotADirectoryError):
                        found.append(None)
        except OSError as error:
            raise _store_error("stat", self._absolute(path), error) from error
        return found

    def delete(self, path: str) -> None:
        target = self._absolute(path)
        absent = contextlib.suppress(FileNotFoundError, NotADirectoryError, IsADirectoryError)
        with store_errors("delete", target), absent:
            os.unlink(target)
        if path.startswith(f"{LOG_DIRECTORY}/"):
            return
        # A partition directory is removed along with its last file.
        parent = os.path.dirname(target)
        while len(parent) > len(self.root):
            try:
                os.rmdir(parent)
            except OSError:
                return
            parent = os.path.dirname(parent)

    def remove_orphans(self, directory: str, before_ms: int) -> list[str]:
        """See LogStore. A writer leaves hidden files if it is killed during ``put``, or, on file systems without
        O_TMPFILE, during any write."""
        target = self._absolute(directory)
        removed = []
        with store_errors("clean", target), _scanned(target) as entries:
            for entry in list(entries):
                if not _TEMPORARY_NAME.fullmatch(entry.name) or not entry.is_file(follow_symlinks=False):
                    continue
                with contextlib.suppress(FileNotFoundError):
                    if entry.stat(follow_symlinks=False).st_mtime_ns // 1_000_000 < before_ms:
                        os.unlink(entry.path)
                        removed.append(entry.name)
        return sorted(removed)

    def walk(self, enters: Callable[[str], bool]) -> Iterator[Entry]:
        for part in self.walk_parts(enters):
            yield from part.entries
            yield from self.entries(part.paths())

    def walk_parts(self, enters: Callable[[str], bool], start: str = "", end: str | None = None) -> Iterator[WalkPart]:
        real, device, mounts = self._mounts()
        waiting = [""]
        while waiting:
            directory = waiting.pop()
            target = self._below(real, directory)
            is_whole = has_all(directory, start, end)
            with store_errors("list", target), _scanned(target) as listed:
                while some := [*itertools.islice(listed, _LISTED_AT_ONCE)]:
                    part = WalkPart(directory, [], [])
                    for found in some:
                        is_mount = bool(mounts) and found.path in mounts
                        is_file = not is_mount and found.is_file(follow_symlinks=False)
                        if is_file and is_whole:
                            part.names.append(found.name)
                            continue
                        path = f"{directory}/{found.name}" if directory else found.name
                        is_wanted = is_whole or is_within(path, start, end)
                        if is_file:
                            part.names.extend([found.name] if is_wanted else [])
                            continue
                        if not (is_wanted or has_some(path, start, end)):
                            continue
                        with contextlib.suppress(FileNotFoundError):  # removed between listing and stat
                            entry = entry_of(path, self._status(found), device, is_mount)
                            is_entered = entry.kind is EntryKind.DIRECTORY and found.name != LOG_DIRECTORY
                            if is_entered and has_some(path, start, end) and enters(path):
                                waiting.append(path)
                            if is_wanted:
                                part.entries.append(entry)
                    yield part

    def _mounts(self) -> tuple[str, int, frozenset[str]]:
        real = os.path.realpath(self.root)
        with store_errors("list", self.root):
            return real, os.stat(real).st_dev, mount_points_below(real)

    def entries(self, paths: Sequence[str]) -> list[Entry]:
        """See LogStore. Each directory is opened relative to its parent, without following symbolic links."""
        real, device, mounts = self._mounts()
        mounted = {os.path.relpath(mount, real) for mount in mounts}
        below = tuple(f"{mount}/" for mount in mounted)
        found = []
        with contextlib.closing(OwnDirectories(real)) as opened:
            for path in paths:
                directory, _, name = path.rpartition("/")
                try:
                    if not path.startswith(below):
                        status = os.stat(name, dir_fd=opened[directory], follow_symlinks=False)
                        found.append(entry_of(path, status, device, path in mounted))
                except OSError as error:
                    if error.errno not in _ABSENT_ERRNOS:
                        raise _store_error("stat", self._absolute(path), error) from error
        return found

    def remove(self, entries: Sequence[Entry]) -> list[Entry]:
        """See LogStore. Each directory is opened relative to its parent, so that no symbolic link is followed, not even
        a link created after the listing."""
        removed = []
        with contextlib.closing(OwnDirectories(os.path.realpath(self.root))) as opened:
            for entry in entries:
                directory, _, name = entry.path.rpartition("/")
                try:
                    above = opened[directory]
                    status = os.stat(name, dir_fd=above, follow_symlinks=False)
                    if entry.kind is EntryKind.DIRECTORY:
                        if not S_ISDIR(status.st_mode):
                            continue
                        opened.forget(entry.path)
                        os.rmdir(name, dir_fd=above)
                    elif entry.kind is EntryKind.LINK:
                        if not S_ISLNK(status.st_mode):
                            continue
                        os.unlink(name, dir_fd=above)
                    elif S_ISREG(status.st_mode) and is_same(entry, status):
                        os.unlink(name, dir_fd=above)
                    else:
                        continue
                except OSError as error:
                    if error.errno in _CHANGED_ERRNOS or isinstance(error, FileNotFoundError):
                        continue
                    raise _store_error("delete", self._absolute(entry.path), error) from error
                removed.append(entry)
        return removed

    def remove_all(self) -> int:
        """See LogStore. Raises StoreError if directories are nested in more than 100 levels."""
        with store_errors("delete", self.root):
            kept = (
                {os.path.relpath(mount, self.root) for mount in self._mounts()[2]} if os.path.isdir(self.root) else ()
            )
            try:
                opened = open_without_links(self.root)
            except FileNotFoundError:
                return 0
            except OSError as error:
                if error.errno not in _ABSENT_ERRNOS:
                    raise
                reason = "it is no directory, or its path has a symbolic link, which is not followed"
                raise StoreError(f"Nothing is deleted at {self.root}: {reason}.", path=self.root) from None
            try:
                count = emptied(opened, kept, LOG_DIRECTORY)
            finally:
                os.close(opened)
            # Something was written meanwhile, or is kept.
            with contextlib.suppress(OSError):
                os.rmdir(self.root)
            return count

    def open_input(self, path: str) -> Any:
        import pyarrow as pa

        target = self._absolute(path)
        with store_errors("read", target):
            if not _is_file_or_directory(os.stat(target).st_mode):  # opening a pipe would wait for its writer
                raise _special_file_error()
            return pa.OSFile(target)

    @contextlib.contextmanager
    def open_output(self, path: str) -> Iterator[BinaryIO]:
        target = self._absolute(path)
        directory = self._make_directory(os.path.dirname(target))
        with store_errors("write", target):
            try:
                descriptor = os.open(target, _NEW_FILE, 0o666)
            except FileNotFoundError:  # the directory was just removed along with its last file
                self._make_directory(directory)
                descriptor = os.open(target, _NEW_FILE, 0o666)
        file = os.fdopen(descriptor, "wb")
        try:
            with store_errors("write", target):
                try:
                    yield file
                    file.flush()
                    durability.flush(file.fileno())
                    self._flush_directory(directory)
                finally:
                    # After a failed write, buffered bytes cannot be written; after an abort, they are not needed.
                    with contextlib.suppress(OSError):
                        file.close()
        except BaseException as error:
            try:
                self.delete(path)
            except StoreError as failure:
                keep_cleanup_errors(error, [failure])
            raise

    def sync(self, paths: list[str]) -> None:
        directories: set[str] = set()
        for path in paths:
            target = self._absolute(path)
            with store_errors("fsync", target):
                self._flush_file(target)
            parent = os.path.dirname(target)
            while parent not in directories and len(parent) >= len(os.path.dirname(self.root)):
                directories.add(parent)
                parent = os.path.dirname(parent)
        for directory in directories:
            with store_errors("fsync", directory):
                self._flush_directory(directory)

    def location(self, path: str) -> str:
        return self._absolute(path)

    def local_path(self, path: str) -> str | None:
        absolute = self._absolute(path)  # of an absolute root; for thousands of files abspath() takes noticeable time
        is_normal = "/." not in absolute and "//" not in absolute and not absolute.endswith("/")
        return absolute if is_normal else os.path.abspath(absolute)

    def sibling(self, url: str) -> LocalStore:
        root = local_root(url)
        if root is None:
            raise CallError(f"{url} is not on the local disk, where the table {self.root} is.")
        return type(self)(root)

    def link_target(self, path: str) -> str | None:
        """See LogStore. Symbolic links in the root are resolved only for the path ``""``, because the caller chose the
        root."""
        if not path:
            return os.path.realpath(self.root)
        target = self.root
        for segment in path.split("/"):
            target = f"{target}/{segment}"
            if os.path.islink(target):
                return os.path.realpath(self._absolute(path))
        return None

    def _absolute(self, path: str) -> str:
        return os.path.join(self.root, path) if path else self.root

    def _below(self, root: str, path: str) -> str:
        return os.path.join(root, path)

    def _replace(self, source: str, target: str) -> None:
        os.replace(source, target)

    def _flush_directory(self, directory: str) -> None:
        durability.flush_path(directory)

    def _flush_file(self, path: str) -> None:
        durability.flush_path(path)

    def _status(self, found: os.DirEntry[str]) -> os.stat_result:
        return found.stat(follow_symlinks=False)

    def _make_directory(self, directory: str) -> str:
        """Create the directory and its parents, and fsync the parent of each."""
        if directory in self._known_directories and os.path.isdir(directory):
            return directory
        with store_errors("create", directory):
            missing = []
            current = directory
            while not os.path.isdir(current):
                missing.append(current)
                current = os.path.dirname(current)
            for each in reversed(missing):
                with contextlib.suppress(FileExistsError):
                    os.mkdir(each)
                self._flush_directory(os.path.dirname(each))
        self._known_directories.add(directory)
        return directory


class _TemporaryFile:
    """A file that is being written and does not have its final name yet. ``close`` removes the temporary name of the
    file, if this name still exists."""

    def __init__(self, directory: str, *, unnamed: bool) -> None:
        self._path: str | None = None
        if unnamed:
            try:
                self._descriptor = os.open(directory, os.O_WRONLY | _O_TMPFILE, 0o666)
                self.is_unnamed = True
                return
            except OSError as error:
                if error.errno not in _NO_TMPFILE_ERRNOS:
                    raise
        self.is_unnamed = False
        self._path = os.path.join(directory, f".{uuid.uuid4()}.tmp")  # see _TEMPORARY_NAME
        self._descriptor = os.open(self._path, _NEW_FILE, 0o666)

    def write(self, data: bytes, *, durable: bool = True) -> None:
        view = memoryview(data)
        while view:
            view = view[os.write(self._descriptor, view) :]
        if durable:
            durability.flush(self._descriptor)

    def write_stream(self, write: Callable[[BinaryIO], object]) -> None:
        with os.fdopen(os.dup(self._descriptor), "wb") as file:
            write(file)
        durability.flush(self._descriptor)

    def link_to(self, target: str) -> None:
        if self._path is None:
            # With src_dir_fd, CPython calls linkat with AT_SYMLINK_FOLLOW; without it, the new link would point to the
            # symbolic link itself.
            source = f"/proc/self/fd/{self._descriptor}"
            os.link(source, target, src_dir_fd=self._descriptor, follow_symlinks=True)
        else:
            os.link(self._path, target)

    def was_linked(self) -> bool:
        """Whether ``link_to`` created the link although it raised an error: a network file system may lose the reply to
        the request and repeat it, which fails with EEXIST."""
        return os.fstat(self._descriptor).st_nlink == (2 if self._path else 1)

    def rename_to(self, target: str, replace: Callable[[str, str], None]) -> None:
        assert self._path is not None
        self._close()  # Windows renames no open file
        replace(self._path, target)
        self._path = None

    def _close(self) -> None:
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)

    def close(self) -> None:
        self._close()
        if self._path is not None:
            with contextlib.suppress(OSError):
                os.unlink(self._path)


def local_root(url: str) -> str | None:
    """The directory of a path or ``file:`` URL, or None for another scheme."""
    if "://" not in url and not url.startswith("file:"):
        return os.path.abspath(_without_slash(url))
    parts = urls.urlsplit(url)
    if parts.scheme != "file" or parts.netloc not in ("", "localhost"):
        return None
    return os.path.abspath(_without_slash(urls.unquote(parts.path)))


def _without_slash(path: str, system: str = os.name) -> str:
    """On Windows, ``/C:/data`` as ``C:/data``."""
    return windows_paths.root_of(path) if system == "nt" else path


def entry_of(path: str, status: os.stat_result, device: int, is_mount: bool) -> Entry:
    if S_ISLNK(status.st_mode):
        kind = EntryKind.LINK
    elif is_mount or status.st_dev != device or is_junction(status):
        kind = EntryKind.OTHER
    elif S_ISDIR(status.st_mode):
        kind = EntryKind.DIRECTORY
    else:
        kind = EntryKind.FILE if S_ISREG(status.st_mode) else EntryKind.OTHER
    return Entry(path, kind, status.st_size, status.st_mtime_ns // 1_000_000)


def is_junction(status: os.stat_result) -> bool:
    """Whether a directory of Windows stands for another one. Python does not count junctions as symbolic links."""
    return getattr(status, "st_reparse_tag", 0) == _JUNCTION_TAG


def is_same(entry: Entry, status: os.stat_result) -> bool:
    return (status.st_size, status.st_mtime_ns // 1_000_000) == (entry.size_bytes, entry.modification_time_ms)


def meta_of(name: str, status: os.stat_result) -> FileMeta:
    # Inode numbers are reused, and tools can set mtime but not ctime.
    fingerprint = f"{status.st_ino:x}-{status.st_mtime_ns:x}-{status.st_ctime_ns:x}"
    return FileMeta(name, status.st_size, status.st_mtime_ns // 1_000_000, fingerprint)


def _scanned(directory: str) -> contextlib.AbstractContextManager[Iterator[os.DirEntry[str]]]:
    """The entries of a directory as an iterator, which is empty if the directory does not exist."""
    try:
        return os.scandir(directory)
    except (FileNotFoundError, NotADirectoryError):
        return contextlib.nullcontext(iter(()))


@contextlib.contextmanager
def store_errors(verb: str, path: str) -> Iterator[None]:
    try:
        yield
    except StoreError:
        raise
    except OSError as error:
        raise _store_error(verb, path, error) from error


def _store_error(verb: str, path: str, error: OSError) -> StoreError:
    absent = (FileNotFoundError, NotADirectoryError, IsADirectoryError)  # a directory is not an object
    if verb not in ("write", "create") and isinstance(error, absent):
        return ObjectNotFoundError(f"Cannot {verb} {path}: there is no such file.", path=path)
    if verb == "write" and isinstance(error, FileExistsError):
        return PathExistsError(f"Cannot write {path}: the file exists already, and is unchanged.", path=path)
    reason = error.strerror or str(error)
    return StoreError(
        f"Cannot {verb} {path}: {reason}. Nothing was changed; check the path, its permissions and free space.",
        path=path,
    )


def _is_file_or_directory(mode: int) -> bool:
    """Whether a descriptor is safe to read: a regular file, or a directory, which the kernel refuses to read anyway."""
    return S_ISREG(mode) or S_ISDIR(mode)


def _special_file_error() -> OSError:
    return OSError(errno.EINVAL, "it is a pipe, a socket or a device, and no file")


def _read(descriptor: int, length: int | None) -> bytes:
    if length is None:
        return _read_all(descriptor)
    if length > _MOST_BUFFER_BYTES:  # the buffer is allocated before the file is read
        length = min(length, os.fstat(descriptor).st_size)
    return os.read(descriptor, length)


def _read_all(descriptor: int) -> bytes:
    # Most files are small and are read with two system calls, the second of which returns no bytes. Only larger ones
    # need fstat.
    piece = os.read(descriptor, _SMALL_BYTES)
    # A device may have no end.
    if len(piece) in (0, _SMALL_BYTES) and not _is_file_or_directory(os.fstat(descriptor).st_mode):
        raise _special_file_error()
    pieces = [piece]
    size = _SMALL_BYTES
    while piece and (piece := os.read(descriptor, size)):
        pieces.append(piece)
        size = max(os.fstat(descriptor).st_size - sum(map(len, pieces)), 0) + 1 if len(pieces) == 2 else 1 << 20
    return pieces[0] if len(pieces) == 1 else b"".join(pieces)
