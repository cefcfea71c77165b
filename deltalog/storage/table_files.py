"""Resolves each file path in a log to a store and a path in that store, and refuses unsafe paths.

The contents of a log are untrusted. A file must be in the table or in a location that the caller allowed. A store for
an allowed location is opened with the caller's arguments, never with values from the log.

Spec: PROTOCOL.md#add-file-and-remove-file (path), #deletion-vector-descriptor-schema (pathOrInlineDv).
"""

from __future__ import annotations

from collections.abc import Sequence

from deltalog.errors import UnsafePathError
from deltalog.protocol.paths import locate, place_of, sidecar_path
from deltalog.storage.base import LogStore, real_url
from deltalog.storage.secrets import check_location


class TableFiles:
    """Access to the files of the table in ``store``. ``allowed_paths`` are further directories, or prefixes on the same
    kind of store, to which absolute paths in the log may point, for example to the source of a shallow clone.

    Raises CallError for a place on another kind of store. Cost: none.
    """

    def __init__(self, store: LogStore, allowed_paths: Sequence[str] = ()) -> None:
        for path in allowed_paths:
            check_location(path)
        self._stores = [store, *(store.sibling(path) for path in allowed_paths)]
        self._places = [place_of(each.url) for each in self._stores]

    @property
    def allowed_paths(self) -> tuple[str, ...]:
        """The URLs of the allowed locations, excluding that of the table itself."""
        return tuple(store.url for store in self._stores[1:])

    @property
    def store(self) -> LogStore:
        """The store of the table itself."""
        return self._stores[0]

    def find(self, named: str) -> tuple[LogStore, str]:
        """The store of a file that the log names, and its path in that store.

        Raises UnsafePathError if the path, or a symbolic link in it, leads outside the table and the allowed places.
        Cost: no request; on local disk one ``lstat`` for each directory of the path.
        """
        number, path = locate(named, self._places)
        return self._checked(self._stores[number], path, named)

    def find_sidecar(self, named: str) -> tuple[LogStore, str]:
        """Like ``find``, for a sidecar, which must be in the table's own ``_sidecars`` directory."""
        store = self.store
        return self._checked(store, sidecar_path(named, store.url), named)

    def location(self, named: str) -> str:
        """The path or URL by which other programs can open a file that the log names. Raises UnsafePathError."""
        store, path = self.find(named)
        return store.location(path)

    def _checked(self, store: LogStore, path: str, named: str) -> tuple[LogStore, str]:
        target = store.link_target(path)
        if target is not None:
            # The link target is a resolved path; therefore the resolved paths of the allowed locations are compared
            # with it.
            real = [place_of(real_url(each)) for each in self._stores]
            segments = place_of(target).segments
            if not any(segments[: len(place.segments)] == place.segments for place in real):
                raise UnsafePathError(
                    f"The log of {self.store.url} names the file {named!r}, and a symbolic link in its path leads "
                    "out of the table to a place that allowed_paths does not name. Nothing was read from there.",
                    path=named,
                )
        return store, path
